//! Frames: what ranks and rank 0 say to each other once they have met.

use crate::fabric::Parted;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::io::{self, Read};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// Which collective call a rank makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Call {
    Barrier,
    AllGather,
    First,
}

impl Call {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Call::Barrier => "barrier",
            Call::AllGather => "all_gather",
            Call::First => "World::first",
        }
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Call::Barrier => "the barrier",
            Call::AllGather => "the all-gather",
            Call::First => "the making of a smaller world",
        })
    }
}

/// One collective call of one meeting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct Round {
    pub(super) meeting: u64,
    pub(super) sequence: u64,
}

/// How a collective call ended, the same for all ranks of its meeting.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Verdict {
    /// The data of all, by rank, is the frame's body; these are the lengths.
    Gathered { bytes: Vec<u64> },
    /// The ranks made different calls.
    Mismatch { call: Call, rank: u32, reason: String },
    /// A rank waited too long; these had not come.
    Late { missing: Vec<u32>, ranks: u32, waited: Duration },
    /// It waits for a rank that has said goodbye.
    Left { rank: u32 },
}

/// The head of a frame.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Head {
    /// From rank 0: all have come. The address is rank 0's.
    Start { address: IpAddr },
    /// From rank 0: not all have come, or not as they should.
    Closed { reason: String },
    /// To rank 0: this rank waits no longer for the others to come.
    GaveUp { waited: Duration },
    /// To rank 0: this rank has come to a call of a meeting of that many ranks. The body is its data.
    Arrive { round: Round, ranks: u32, call: Call },
    /// To rank 0: this rank comes to no more calls of a meeting of that many ranks.
    LeftMeeting { meeting: u64, ranks: u32 },
    /// To rank 0: this rank has waited too long for a verdict.
    Late { round: Round, waited: Duration },
    /// From rank 0.
    Verdict { round: Round, verdict: Verdict },
    /// A rank has failed: to rank 0, and from there to all.
    Failed { rank: u32, text: String },
    /// What a rank tells another one that it lets go of: to rank 0, and from there to that one.
    Parted { from: u32, to: u32, parted: Parted },
    /// This is the last frame of a rank whose work is done.
    Goodbye,
}

/// Enough for the heads of a hundred thousand ranks, and no more than can be had.
const HEAD_BYTES_MOST: u32 = 1 << 24;

/// A frame that has come.
#[derive(Debug)]
pub(super) struct Frame {
    pub(super) head: Head,
    pub(super) body: Vec<u8>,
}

/// A frame as it goes over the wire, to one rank or many: the lengths of head and body, and both.
pub(super) fn encode(head: &Head, body: &[u8]) -> Arc<[u8]> {
    let head = postcard::to_stdvec(head).expect("a head can always be written to memory");
    [&(head.len() as u32).to_le_bytes()[..], &(body.len() as u64).to_le_bytes(), &head, body].concat().into()
}

/// Takes a frame off the wire. Blocks.
pub(super) fn read(wire: &mut dyn Read) -> io::Result<Frame> {
    let mut head_bytes = [0; 4];
    let mut body_bytes = [0; 8];
    wire.read_exact(&mut head_bytes)?;
    wire.read_exact(&mut body_bytes)?;
    let head_bytes = u32::from_le_bytes(head_bytes);
    if head_bytes > HEAD_BYTES_MOST {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "what it sent is no frame"));
    }
    let head = read_all(wire, head_bytes.into())?;
    let head =
        postcard::from_bytes(&head).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
    Ok(Frame { head, body: read_all(wire, u64::from_le_bytes(body_bytes))? })
}

/// Memory grows with what has come, not with what was announced.
fn read_all(wire: &mut dyn Read, bytes: u64) -> io::Result<Vec<u8>> {
    let mut read = Vec::new();
    wire.take(bytes).read_to_end(&mut read)?;
    if read.len() as u64 == bytes { Ok(read) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}
