//! The protocols, between two processes over real providers.
//!
//! Each test starts its own program twice, once for each rank, on a test that is ignored otherwise.
//! The ranks exchange addresses through files. Whatever takes too long is ended, and says so.

mod immediate;
mod leftover;
mod sockets;
mod threads;
mod throttling;
mod two;

use super::call::Posted;
use super::completion::{Completion, Token};
use super::counter::Counter;
use super::endpoint::{Endpoint, EndpointOptions, PeerAddress};
use super::memory::{MemoryRegion, RemotePlace};
use crate::error::Result;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use two::Meeting;

/// How long a rank waits for anything.
const PATIENCE: Duration = Duration::from_secs(20);

/// Waits until something is so, giving the provider's threads the core meanwhile.
fn wait(what: &str, mut so: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !so() {
        assert!(Instant::now() < end, "waited too long for {what}");
        std::thread::sleep(Duration::from_micros(50));
    }
}

/// Memory of 64-bit words that peers may write to.
struct Words {
    words: Arc<Vec<AtomicU64>>,
    region: MemoryRegion,
}

impl Words {
    fn new(endpoint: &Endpoint, count: usize, counter: Option<&Counter>) -> Words {
        let words: Arc<Vec<AtomicU64>> = Arc::new((0..count).map(|_| AtomicU64::new(0)).collect());
        let base = NonNull::new(words.as_ptr().cast_mut().cast()).expect("a vector has an address");
        // SAFETY: the vector stays as it is until the region is closed, and its words are atomics,
        // which may be written to behind references.
        let region =
            unsafe { MemoryRegion::register(endpoint, (base, 8 * count), None, words.clone(), counter) };
        Words { words, region: region.expect("the memory can be registered") }
    }

    fn load(&self, index: usize) -> u64 {
        self.words[index].load(Ordering::Acquire)
    }

    fn store(&self, index: usize, value: u64) {
        self.words[index].store(value, Ordering::Release);
    }

    /// Waits for a word.
    fn wait(&self, index: usize, value: u64, what: &str) {
        wait(&format!("{what} to become {value}"), || self.load(index) == value);
    }

    /// Tells the other rank where the memory is.
    fn tell(&self, meeting: &Meeting, name: &str) {
        let mut said = self.region.key().to_le_bytes().to_vec();
        said.extend(self.region.remote_base().to_le_bytes());
        meeting.tell(name, &said);
    }
}

/// Hears where the other rank's memory is.
fn hear(meeting: &Meeting, name: &str, peer: PeerAddress) -> RemotePlace {
    let said = meeting.hear(name);
    let number = |at: usize| u64::from_le_bytes(said[at..at + 8].try_into().expect("eight bytes"));
    RemotePlace { peer, key: number(0), address: number(8) }
}

/// The place `words` further on.
fn at(place: RemotePlace, words: usize) -> RemotePlace {
    RemotePlace { address: place.address + 8 * words as u64, ..place }
}

/// An endpoint and its peer, with the connections between them made in both directions, and to itself.
fn connected(meeting: &Meeting, options: &EndpointOptions) -> (Endpoint, PeerAddress) {
    let endpoint = Endpoint::open(options).expect("the endpoint opens");
    meeting.tell("address", &endpoint.address());
    let mut addresses = [endpoint.address(), meeting.hear("address")];
    addresses.rotate_left(meeting.rank);
    let peers = addresses.map(|address| endpoint.insert(&address).expect("an address is good"));
    assert_eq!(peers, [PeerAddress(0), PeerAddress(1)], "errors name ranks");
    let (own, peer) = (peers[meeting.rank], peers[1 - meeting.rank]);

    let scratch = Words::new(&endpoint, 2, None);
    scratch.tell(meeting, "scratch");
    let there = hear(meeting, "scratch", peer);
    let own = scratch.region.remote(own, 0);
    for (number, target) in [(0, there), (1, own)] {
        let source = scratch.region.slice(8, 8, "warming up").expect("in bounds");
        post(&endpoint, || {
            // SAFETY: the scratch memory lives until after the meeting below, and nobody reads it.
            unsafe { endpoint.write(&source, target, number) }
        });
        finish(&endpoint, Completion::Done(Token::new(target.peer, number)));
    }
    meet(meeting, &endpoint, "warm");
    (endpoint, peer)
}

/// Posts an operation as soon as there is room for it. Providers without a thread of their own also
/// connect while they are polled.
fn post(endpoint: &Endpoint, mut operation: impl FnMut() -> Result<Posted>) {
    wait("room", || {
        let posted = operation().expect("an operation can be posted");
        if posted == Posted::NoRoom {
            endpoint.poll(&mut []).expect("nothing has failed");
        }
        posted == Posted::Yes
    });
}

/// An entry of deferred work has been queued.
fn queued(posted: Result<Posted>) {
    assert_eq!(posted.expect("an entry can be queued"), Posted::Yes);
}

/// Polls until that completion comes; others before it are lost.
fn finish(endpoint: &Endpoint, awaited: Completion) {
    let mut completions = [Completion::Nothing; 8];
    wait(&format!("{awaited:?}"), || {
        let count = endpoint.poll(&mut completions).expect("nothing has failed");
        completions[..count].contains(&awaited)
    });
}

/// Waits for the other rank, keeping its operations moving.
fn meet(meeting: &Meeting, endpoint: &Endpoint, name: &str) {
    meeting.tell(name, b"here");
    let mut completions = [Completion::Nothing; 8];
    wait(&format!("the other rank at `{name}`"), || {
        endpoint.poll(&mut completions).expect("nothing has failed");
        meeting.has_told(name)
    });
}

/// `sockets` with triggered operations, over the loopback interface.
fn sockets() -> EndpointOptions {
    EndpointOptions {
        provider: Some("sockets".into()),
        source: Some("127.0.0.1".into()),
        needs_triggered: true,
        ..EndpointOptions::default()
    }
}
