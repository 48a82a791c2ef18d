//! Calls of several threads at one endpoint, which the carrier and the rank's own thread are.

use super::two::{Meeting, has, run_two};
use super::*;
use std::sync::atomic::AtomicBool;

#[test]
fn shm_receives_while_another_thread_polls() {
    if has("shm", false) {
        run_two("threads::shm");
    }
}

/// Messages that come just as their receives are posted, while other threads do nothing but poll.
#[test]
#[ignore = "a rank of the test above"]
fn shm() {
    const ROUNDS: u64 = 500;
    const MESSAGES: usize = 4;
    const WORDS: usize = 2048;
    let Some(meeting) = Meeting::join() else { return };
    let options = EndpointOptions { provider: Some("shm".into()), ..EndpointOptions::default() };
    let (endpoint, peer) = connected(&meeting, &options);
    let memory = Words::new(&endpoint, (1 + MESSAGES) * WORDS, None);
    let (completed, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        // With those of the other rank more than small machines have cores, so that one is interrupted anywhere in a call.
        for _ in 0..2 {
            scope.spawn(|| {
                let mut completions = [Completion::Nothing; 16];
                while !is_over.load(Ordering::Relaxed) {
                    let count = endpoint.poll(&mut completions).expect("nothing has failed");
                    completed.fetch_add(count as u64, Ordering::Release);
                }
            });
        }
        let _over = Over(&is_over);
        for round in 0..ROUNDS {
            // Of both protocols, of which the shorter one is copied at once.
            let words = if round % 2 == 0 { WORDS } else { 1 };
            let here = memory.region.slice(0, 8 * words, "a message").expect("in bounds");
            let end = Instant::now() + PATIENCE;
            let posted = |operation: &dyn Fn() -> Result<Posted>| {
                while operation().expect("an operation can be posted") == Posted::NoRoom {
                    assert!(Instant::now() < end, "no room in round {round}");
                    std::thread::yield_now();
                }
            };
            for message in 0..MESSAGES {
                let there = memory.region.slice(8 * WORDS * (1 + message), 8 * words, "a message");
                let (there, tag) = (there.expect("in bounds"), round * MESSAGES as u64 + message as u64);
                // SAFETY: nobody writes those words.
                posted(&|| unsafe { endpoint.send_tagged(&here, peer, tag, 1) });
                // SAFETY: nobody looks at these, and the next message to them is sent once this one has come.
                posted(&|| unsafe { endpoint.receive_tagged(&there, peer, tag, 2) });
            }
            let both = 2 * MESSAGES as u64 * (round + 1);
            while completed.load(Ordering::Acquire) < both {
                assert!(Instant::now() < end, "waited too long in round {round}");
                std::thread::yield_now();
            }
        }
        meeting.tell("over", b"here");
        wait("the other rank", || meeting.has_told("over"));
    });
}

/// Ends the threads that poll, also if its rank fails.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
