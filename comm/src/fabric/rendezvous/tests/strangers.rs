//! Who is not of the job: it stays out, and disturbs nobody.

use super::*;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread;

/// Runs the rest of a job of two around what strangers do, which gets the address before rank 1 comes.
fn job_of_two(strangers: impl FnOnce(SocketAddr)) {
    let (listener, address) = listener();
    thread::scope(|scope| {
        let centre = scope.spawn(move || Rendezvous::from_listener(listener, &options(address, 0, 2, AMPLE)));
        strangers(address);
        let started = Instant::now();
        let other = Rendezvous::join(&options(address, 1, 2, AMPLE)).expect("strangers disturb nobody");
        let centre = centre.join().expect("no rank panics").expect("strangers disturb nobody");
        assert!(started.elapsed() < gate::HANDSHAKE / 2, "rank 1 had to wait for strangers");
        scope.spawn(move || centre.meeting().barrier(&context(0, AMPLE)).expect("all come"));
        other.meeting().barrier(&context(1, AMPLE)).expect("all come");
    });
}

/// The reason why rank 0 gives up when a job of two sees strangers alone.
fn complaint_about(strangers: impl FnOnce(SocketAddr)) -> String {
    let (listener, address) = listener();
    thread::scope(|scope| {
        let centre = scope.spawn(move || {
            Rendezvous::from_listener(listener, &options(address, 0, 2, Duration::from_secs(2)))
        });
        strangers(address);
        reason(centre.join().expect("no rank panics"))
    })
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("rank 0 listens");
    stream.set_read_timeout(Some(AMPLE)).expect("it is a socket");
    stream
}

/// Whether the other end has closed, without a word.
fn is_turned_away(mut stream: &TcpStream) -> bool {
    matches!(stream.read(&mut [0; 1]), Ok(0) | Err(_))
}

fn with_key(address: SocketAddr, seed: u8) -> Result<Arc<Rendezvous>> {
    Rendezvous::join(&RendezvousOptions { key: key(seed), ..options(address, 1, 2, AMPLE) })
}

#[test]
fn another_key_is_refused_on_both_sides() {
    watched(|| {
        job_of_two(|address| {
            for seed in [8, 9] {
                assert_says(&reason(with_key(address, seed)), &["another job key"]);
            }
        });
        let complaint = complaint_about(|address| {
            reason(with_key(address, 8));
            reason(with_key(address, 9));
        });
        assert_says(
            &complaint,
            &["rank 1 did not come within ", "2 strangers were refused: the job key differs"],
        );
    });
}

#[test]
fn garbage_and_silence_are_turned_away() {
    watched(|| {
        job_of_two(|address| {
            let mut garbage = connect(address);
            garbage.write_all(&[b'x'; 1000]).expect("it is read");
            assert!(is_turned_away(&garbage));
            drop(connect(address));
        });
        let complaint = complaint_about(|address| {
            let mut garbage = connect(address);
            garbage
                .write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\nAccept: everything\r\n\r\n")
                .expect("it is read");
            assert!(is_turned_away(&garbage));
        });
        assert_says(&complaint, &["1 stranger was refused: it said nothing, or nothing that a rank says"]);
    });
}

#[test]
fn another_version_is_told_apart() {
    watched(|| {
        let complaint = complaint_about(|address| {
            let mut stream = connect(address);
            let hello = [&b"SHALOmt\n"[..], &99_u32.to_le_bytes(), &[0; 48]].concat();
            stream.write_all(&hello).expect("it is read");
            let mut challenge = [0; 44];
            stream.read_exact(&mut challenge).expect("it says which version it is");
            assert_eq!(challenge[8..12], handshake::VERSION.to_le_bytes());
            assert!(is_turned_away(&stream));
        });
        assert_says(&complaint, &["1 stranger was refused: it speaks another version"]);
    });
}

#[test]
fn a_crowd_that_says_nothing_holds_up_nobody() {
    watched(|| {
        let mut crowd = Vec::new();
        job_of_two(|address| crowd.extend((0..200).map(|_| connect(address))));
        assert!(crowd.iter().all(is_turned_away));
    });
}

#[test]
fn one_that_dawdles_is_turned_away() {
    watched(|| {
        let (listener, address) = listener();
        thread::scope(|scope| {
            scope.spawn(move || {
                let options = options(address, 0, 2, gate::HANDSHAKE + Duration::from_secs(2));
                let complaint = reason(Rendezvous::from_listener(listener, &options));
                assert_says(&complaint, &["1 stranger was refused: it said nothing"]);
            });
            let mut stream = connect(address);
            let started = Instant::now();
            stream.write_all(b"SHALOmt\n").expect("it is read");
            // A byte now and then; each is in time by itself.
            while stream.write_all(b"S").is_ok() {
                assert!(started.elapsed() < gate::HANDSHAKE * 2, "it is still listened to");
                thread::sleep(Duration::from_millis(300));
            }
        });
    });
}

/// Passes bytes on both ways between a rank and rank 0, and gives what each has said.
fn eavesdrop(on: TcpListener, centre: SocketAddr) -> thread::JoinHandle<[Vec<u8>; 2]> {
    thread::spawn(move || {
        let (rank, _) = on.accept().expect("a rank comes");
        let centre = connect(centre);
        let pass = |mut from: TcpStream, mut to: TcpStream| {
            thread::spawn(move || {
                let mut heard = Vec::new();
                let mut bytes = [0; 4096];
                while let Ok(count @ 1..) = from.read(&mut bytes) {
                    heard.extend_from_slice(&bytes[..count]);
                    let _ = to.write_all(&bytes[..count]);
                }
                let _ = to.shutdown(std::net::Shutdown::Write);
                heard
            })
        };
        let copy = |stream: &TcpStream| stream.try_clone().expect("it is a socket");
        let ways = [pass(copy(&rank), copy(&centre)), pass(centre, rank)];
        ways.map(|way| way.join().expect("it does not panic"))
    })
}

/// What a rank and rank 0 say to each other in a whole job.
fn overheard() -> [Vec<u8>; 2] {
    let (middle, middle_address) = listener();
    let (listener, address) = listener();
    let heard = eavesdrop(middle, address);
    thread::scope(|scope| {
        scope.spawn(move || {
            Rendezvous::from_listener(listener, &options(address, 0, 2, AMPLE)).expect("they meet")
        });
        scope.spawn(move || Rendezvous::join(&options(middle_address, 1, 2, AMPLE)).expect("they meet"));
    });
    heard.join().expect("it does not panic")
}

#[test]
fn the_key_does_not_go_over_the_wire() {
    watched(|| {
        let secret = [7; JobKey::BYTES];
        for heard in overheard() {
            assert!(heard.len() > 2 * JobKey::BYTES, "something was said");
            assert!(!heard.windows(secret.len()).any(|window| window == secret));
            assert!(!String::from_utf8_lossy(&heard).contains(&key(7).to_hex()[..16]));
        }
    });
}

#[test]
fn a_replayed_handshake_is_refused() {
    watched(|| {
        let [of_rank, _] = overheard();
        let (hello, rest) = of_rank.split_at(60);
        let proof = rest[..32].to_vec();
        let replay = |address: SocketAddr| {
            let mut stream = connect(address);
            stream.write_all(hello).expect("it is read");
            stream.read_exact(&mut [0; 44]).expect("a challenge comes");
            stream.write_all(&proof).expect("it is read");
            let mut verdict = Vec::new();
            stream.read_to_end(&mut verdict).expect("a verdict comes, and the end");
            assert_eq!(verdict[0], 2, "it says that the proof is wrong");
        };
        job_of_two(replay);
        assert_says(&complaint_about(replay), &["1 stranger was refused: the job key differs"]);
    });
}

/// A rank 0 that does not know the key, and answers with what `sign` makes of the rank's proof.
fn impostor(sign: impl FnOnce([u8; 32]) -> [u8; 32] + Send) -> String {
    let (listener, address) = listener();
    thread::scope(|scope| {
        let rank = scope.spawn(move || Rendezvous::join(&options(address, 1, 2, AMPLE)));
        let (mut stream, _) = listener.accept().expect("a rank comes");
        let mut hello = [0; 60];
        stream.read_exact(&mut hello).expect("it says who it is");
        // The rank's own nonce, so that both sides would have signed much the same.
        let challenge = [&hello[..12], &hello[28..]].concat();
        stream.write_all(&challenge).expect("it is read");
        let mut proof = [0; 32];
        stream.read_exact(&mut proof).expect("it proves who it is");
        stream.write_all(&[&[0, 0, 0][..], &sign(proof)].concat()).expect("it is read");
        reason(rank.join().expect("it does not panic"))
    })
}

#[test]
fn a_rank_0_without_the_key_is_refused() {
    watched(|| {
        assert_says(&impostor(|_| [0; 32]), &["another job key"]);
        assert_says(&impostor(|proof| proof), &["another job key"]);
    });
}

#[test]
fn rank_and_size_are_bound_to_the_proof() {
    watched(|| {
        // Who can change the first words on their way cannot make one rank into another.
        for (place, value) in [(12, 2_u64), (20, 4_u64)] {
            let (listener, address) = listener();
            thread::scope(|scope| {
                let rank =
                    scope.spawn(move || Rendezvous::join(&options(address, 1, 3, Duration::from_secs(2))));
                let (mut stream, _) = listener.accept().expect("a rank comes");
                let mut hello = [0; 60];
                stream.read_exact(&mut hello).expect("it says who it is");
                hello[place..place + 8].copy_from_slice(&value.to_le_bytes());
                // Rank 0, behind someone who changes what the rank has said.
                let (inside, inside_address) = super::listener();
                let centre = scope.spawn(move || {
                    let (stream, _) = inside.accept().expect("someone comes");
                    handshake::receive(&stream, &key(7), Instant::now() + AMPLE).err()
                });
                let mut inner = connect(inside_address);
                inner.write_all(&hello).expect("it is read");
                let mut challenge = [0; 44];
                inner.read_exact(&mut challenge).expect("a challenge comes");
                stream.write_all(&challenge).expect("it is read");
                let mut proof = [0; 32];
                stream.read_exact(&mut proof).expect("it proves who it is");
                inner.write_all(&proof).expect("it is read");
                assert_eq!(centre.join().expect("it does not panic"), Some(handshake::Stranger::OtherKey));
                drop((stream, listener));
                reason(rank.join().expect("it does not panic"));
            });
        }
    });
}
