//! The handshake: a rank and rank 0 prove to each other that they know the job's key, without
//! sending it.
//!
//! ```text
//! rank → 0   hello:     what this is, version, rank, size, a nonce
//! 0 → rank   challenge: what this is, version, a nonce
//! rank → 0   proof:     signature of [rank's side, version, rank, size, both nonces]
//! 0 → rank   verdict:   code, text, and the signature of [rank 0's side, the same, code, text]
//! ```
//!
//! Both nonces are in both signatures, so that neither can be replayed; the sides are, so that
//! neither can be sent back as the other. Everything that comes before the proof has a fixed size.
//! What follows the handshake is neither encrypted nor signed: it keeps strangers out, not those who
//! can change packets on the way.

use super::key::{JobKey, random};
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// Of the handshake and of the frames that follow it.
pub(super) const VERSION: u32 = 3;
const MAGIC: [u8; 8] = *b"SHALOmt\n";
const NONCE_BYTES: usize = JobKey::BYTES;
/// Behind the first eight, which say what it is.
const HELLO_BYTES: usize = 4 + 8 + 8 + NONCE_BYTES;
const CHALLENGE_BYTES: usize = 8 + 4 + NONCE_BYTES;
const RANK_SIDE: &[u8] = b"rank";
const CENTRE_SIDE: &[u8] = b"zero";
/// The longest text of a verdict.
const TEXT_BYTES: usize = 1000;

/// Codes of a verdict.
const ADMITTED: u8 = 0;
const REFUSED: u8 = 1;
/// The proof was wrong; such a verdict has no signature.
const OTHER_KEY: u8 = 2;

/// Why a connection is not one of a rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stranger {
    /// It said nothing, too slowly, or something that is no handshake.
    NoHandshake,
    OtherVersion,
    OtherKey,
}

/// Why a rank was not let in, or not yet.
#[derive(Debug)]
pub(super) enum Refusal {
    /// It may work later.
    TryAgain(String),
    /// It will not.
    Final(String),
}

/// What both sides sign.
struct Transcript {
    parts: [u8; 4 + 8 + 8 + 2 * NONCE_BYTES],
}

impl Transcript {
    fn new(rank: u64, size: u64, of_rank: &[u8; NONCE_BYTES], of_centre: &[u8; NONCE_BYTES]) -> Self {
        let mut parts = [0; 4 + 8 + 8 + 2 * NONCE_BYTES];
        let fields: [&[u8]; 5] =
            [&VERSION.to_le_bytes(), &rank.to_le_bytes(), &size.to_le_bytes(), of_rank, of_centre];
        let mut rest = &mut parts[..];
        for field in fields {
            // The lengths add up to that of the array.
            rest.write_all(field).expect("it fits");
        }
        Self { parts }
    }
}

/// A rank that has proved that it knows the key.
pub(super) struct Candidate {
    pub(super) rank: u64,
    pub(super) size: u64,
    transcript: Transcript,
}

impl Candidate {
    /// The verdict on it, as it goes over the wire: `Err` says why it is refused.
    pub(super) fn verdict(&self, key: &JobKey, verdict: Result<(), &str>) -> Vec<u8> {
        let (code, text) = match verdict {
            Ok(()) => (ADMITTED, ""),
            Err(text) => (REFUSED, shortened(text)),
        };
        let signature = key.sign(&[CENTRE_SIDE, &self.transcript.parts, &[code], text.as_bytes()]);
        encode_verdict(code, text, &signature)
    }
}

fn shortened(text: &str) -> &str {
    let mut bytes = text.len().min(TEXT_BYTES);
    while !text.is_char_boundary(bytes) {
        bytes -= 1;
    }
    &text[..bytes]
}

fn encode_verdict(code: u8, text: &str, signature: &[u8; JobKey::BYTES]) -> Vec<u8> {
    [&[code][..], &(text.len() as u16).to_le_bytes(), text.as_bytes(), signature].concat()
}

/// Rank 0's side: hears who comes, up to the proof. The caller sends the verdict.
pub(super) fn receive(stream: &TcpStream, key: &JobKey, deadline: Instant) -> Result<Candidate, Stranger> {
    let silent = |_| Stranger::NoHandshake;
    // Who says something else need not be heard out.
    let mut magic = [0; MAGIC.len()];
    read_by(stream, &mut magic, deadline).map_err(silent)?;
    if magic != MAGIC {
        return Err(Stranger::NoHandshake);
    }
    let mut hello = [0; HELLO_BYTES];
    read_by(stream, &mut hello, deadline).map_err(silent)?;
    let mut hello = &hello[..];
    let version = u32::from_le_bytes(take(&mut hello));
    let rank = u64::from_le_bytes(take(&mut hello));
    let size = u64::from_le_bytes(take(&mut hello));
    let of_rank: [u8; NONCE_BYTES] = take(&mut hello);
    // The challenge tells the other side which version this is.
    let of_centre = random().map_err(|_| Stranger::NoHandshake)?;
    write_by(stream, &[&MAGIC[..], &VERSION.to_le_bytes(), &of_centre].concat(), deadline).map_err(silent)?;
    if version != VERSION {
        return Err(Stranger::OtherVersion);
    }
    let transcript = Transcript::new(rank, size, &of_rank, &of_centre);
    let mut proof = [0; JobKey::BYTES];
    read_by(stream, &mut proof, deadline).map_err(silent)?;
    if !key.verify(&[RANK_SIDE, &transcript.parts], &proof) {
        // It is told in vain if it has gone.
        let _ = write_by(stream, &encode_verdict(OTHER_KEY, "", &[0; JobKey::BYTES]), deadline);
        return Err(Stranger::OtherKey);
    }
    Ok(Candidate { rank, size, transcript })
}

/// The other ranks' side: proves who this is, and hears rank 0's verdict.
pub(super) fn introduce(
    stream: &TcpStream,
    key: &JobKey,
    rank: usize,
    size: usize,
    deadline: Instant,
) -> Result<(), Refusal> {
    let broken = |what: &'static str| {
        move |error: io::Error| Refusal::TryAgain(format!("the connection failed {what}: {error}"))
    };
    let (rank, size) = (rank as u64, size as u64);
    let of_rank = random().map_err(|error| Refusal::Final(error.to_string()))?;
    let fields: [&[u8]; 5] =
        [&MAGIC, &VERSION.to_le_bytes(), &rank.to_le_bytes(), &size.to_le_bytes(), &of_rank];
    write_by(stream, &fields.concat(), deadline).map_err(broken("at the first word"))?;

    let mut challenge = [0; CHALLENGE_BYTES];
    read_by(stream, &mut challenge, deadline).map_err(broken("before rank 0's answer"))?;
    let mut challenge = &challenge[..];
    if take::<8>(&mut challenge) != MAGIC {
        return Err(Refusal::TryAgain("what listens there is no rank 0; is the port right?".into()));
    }
    let version = u32::from_le_bytes(take(&mut challenge));
    if version != VERSION {
        return Err(Refusal::Final(format!(
            "rank 0 speaks version {version} of the rendezvous and this rank version {VERSION}; start all ranks with one build"
        )));
    }
    let transcript = Transcript::new(rank, size, &of_rank, &take(&mut challenge));
    write_by(stream, &key.sign(&[RANK_SIDE, &transcript.parts]), deadline).map_err(broken("at the proof"))?;

    let mut start = [0; 3];
    read_by(stream, &mut start, deadline).map_err(broken("before rank 0's verdict"))?;
    let [code, low, high] = start;
    let mut text = vec![0; usize::from(u16::from_le_bytes([low, high])).min(TEXT_BYTES)];
    let mut signature = [0; JobKey::BYTES];
    read_by(stream, &mut text, deadline).map_err(broken("in rank 0's verdict"))?;
    read_by(stream, &mut signature, deadline).map_err(broken("in rank 0's verdict"))?;
    if !key.verify(&[CENTRE_SIDE, &transcript.parts, &[code], &text], &signature) {
        return Err(Refusal::Final(
            "what listens there has another job key; is it of another job? Give all ranks the same key"
                .into(),
        ));
    }
    match code {
        ADMITTED => Ok(()),
        _ => Err(Refusal::Final(String::from_utf8_lossy(&text).into_owned())),
    }
}

fn take<const N: usize>(bytes: &mut &[u8]) -> [u8; N] {
    let (field, rest) = bytes.split_first_chunk().expect("the message has all its fields");
    *bytes = rest;
    *field
}

/// What is left until the deadline, for a socket: never zero, which would mean for ever.
fn left(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
}

/// Reads all of it by a deadline, which bounds the whole and not only each read: a stranger that
/// sends a byte now and then must not stay.
fn read_by(mut stream: &TcpStream, mut bytes: &mut [u8], deadline: Instant) -> io::Result<()> {
    while !bytes.is_empty() {
        stream.set_read_timeout(Some(left(deadline)?))?;
        match stream.read(bytes) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => bytes = &mut bytes[count..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

pub(super) fn write_by(mut stream: &TcpStream, mut bytes: &[u8], deadline: Instant) -> io::Result<()> {
    while !bytes.is_empty() {
        stream.set_write_timeout(Some(left(deadline)?))?;
        match stream.write(bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => bytes = &bytes[count..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
