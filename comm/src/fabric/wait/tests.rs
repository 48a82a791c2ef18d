//! What ends a wait for a word, in the order of the rules: the word, a rank that has failed, one that has left, the
//! time-out. Each is tried while the rank spins, yields and sleeps.

use super::*;
use crate::fabric::{Fabric, LocalFabric, Role};
use std::cell::Cell;

/// Longer than any wait here that does not come to its time-out.
const AMPLE: Duration = Duration::from_secs(20);
const BRIEF: Duration = Duration::from_millis(30);

/// Spins for ever; a core for each rank; sleeps at once; yields at once.
const POLICIES: [WaitPolicy; 4] = [
    WaitPolicy::SPIN,
    WaitPolicy { spins: 100, yields: 20, sleeps: false },
    WaitPolicy { spins: 1, yields: 0, sleeps: true },
    WaitPolicy { spins: 0, yields: u32::MAX, sleeps: false },
];

/// Rank 3 waits for a word that rank 5 writes.
struct Waiter {
    context: WaitContext,
    word: Word,
}

fn waiter(policy: WaitPolicy, timeout: Duration) -> Waiter {
    let end = LocalFabric::ends(1).expect("there is memory").remove(0);
    let abort = end.abort();
    let memory = end.allocate(64).expect("there is memory");
    let word = memory.word_with_parting(0, Role::Exposure, 5, 3).expect("it fits");
    Waiter { context: WaitContext { rank: 3, policy, timeout: Some(timeout), abort, calls: false }, word }
}

impl Waiter {
    fn wait(&self, gone: &dyn Fn() -> Option<Error>, serve: &mut dyn FnMut() -> bool) -> Result<()> {
        self.context.wait(&self.word, 2, gone, serve)
    }

    fn alone(&self) -> Result<()> {
        self.wait(&|| self.word.gone(2), &mut || false)
    }
}

fn failed(rank: usize, operation: &str) -> Result<()> {
    Err(Error::PeerFailed { rank, operation: operation.into() })
}

const DROPPED: &str = "it has dropped its end, without the exposure of epoch 2";

#[test]
fn what_is_there_is_not_waited_for() {
    for policy in POLICIES {
        let waiter = waiter(policy, AMPLE);
        waiter.word.set(2);
        // Neither who has left nor who has failed matters then, and nobody is served.
        waiter.context.abort.raise(1, "a test");
        let served = waiter.wait(&|| panic!("nobody is asked for"), &mut || panic!("nothing is served"));
        assert_eq!(served, Ok(()));
    }
}

#[test]
fn others_are_served_until_it_is_there() {
    for policy in POLICIES {
        for more in [true, false] {
            let (waiter, calls) = (waiter(policy, AMPLE), Cell::new(0));
            let mut serve = || {
                calls.set(calls.get() + 1);
                if calls.get() == 40 {
                    waiter.word.set(2);
                }
                more
            };
            assert_eq!(waiter.wait(&|| waiter.word.gone(2), &mut serve), Ok(()));
            assert_eq!(calls.get(), 40);
        }
    }
}

#[test]
fn a_time_out_says_who_waits_for_whom() {
    for policy in POLICIES {
        let waiter = waiter(policy, BRIEF);
        waiter.word.set(1);
        let began = Instant::now();
        let said = waiter.alone().expect_err("nothing comes").to_string();
        let expected = format!(" s for {} of epoch 2 of rank 5 (wanted 2, found 1); ", Role::Exposure);
        // As long as it took, which may be more than was asked for.
        let waited = said.strip_prefix("rank 3 waited ").expect("it says who");
        let (waited, _) = waited.split_once(&expected).expect("it says for what");
        let most = began.elapsed().as_secs_f64() + 0.1;
        let is_so_long = |waited: f64| (0.1..=most).contains(&waited);
        assert!(waited == "less than 0.1" || waited.parse().is_ok_and(is_so_long), "{said}");
        assert!(began.elapsed() >= BRIEF);
    }
}

#[test]
fn a_rank_that_has_failed_ends_it() {
    for policy in POLICIES {
        let waiter = waiter(policy, AMPLE);
        let mut serve = || {
            waiter.context.abort.raise(7, "a test");
            false
        };
        assert_eq!(waiter.wait(&|| None, &mut serve), failed(7, "a test"));
    }
}

#[test]
fn what_was_there_before_a_rank_failed_counts() {
    for policy in POLICIES {
        let waiter = waiter(policy, AMPLE);
        // Both come behind the last look of a round, where that is one look.
        let mut done = || {
            let is_there = waiter.context.abort.failure().is_some();
            waiter.context.abort.raise(7, "a test");
            is_there
        };
        let waited = waiter.context.wait_until(&mut done, &mut || false, &mut |_| ());
        assert!(waited.is_ok(), "{waited:?}, {policy:?}");
    }
}

#[test]
fn a_rank_that_has_left_ends_it() {
    for policy in POLICIES {
        let waiter = waiter(policy, AMPLE);
        waiter.word.part(1);
        assert_eq!(waiter.alone(), failed(5, DROPPED));
        // Any of those whom the caller waits for.
        assert_eq!(waiter.wait(&|| failed(6, DROPPED).err(), &mut || false), failed(6, DROPPED));
    }
}

#[test]
fn who_has_failed_is_named_before_who_has_left() {
    for policy in POLICIES {
        let waiter = waiter(policy, AMPLE);
        let gone = || {
            waiter.context.abort.raise(7, "a test");
            failed(6, DROPPED).err()
        };
        assert_eq!(waiter.wait(&gone, &mut || false), failed(7, "a test"));
        // Also where it says so only after it has left.
        let waiter = self::waiter(policy, AMPLE);
        waiter.word.part(1);
        let calls = Cell::new(0);
        // By looks: of the time between two of them only so much counts, however long a busy machine makes it.
        let mut serve = || {
            std::thread::sleep(Duration::from_millis(10));
            calls.set(calls.get() + 1);
            if calls.get() == 4 {
                waiter.context.abort.raise(5, "a late word");
            }
            false
        };
        assert_eq!(waiter.wait(&|| waiter.word.gone(2), &mut serve), failed(5, "a late word"));
    }
}

#[test]
fn what_was_done_before_a_rank_left_counts() {
    for policy in POLICIES {
        let waiter = waiter(policy, AMPLE);
        let gone = || {
            waiter.word.set(2);
            failed(6, DROPPED).err()
        };
        assert_eq!(waiter.wait(&gone, &mut || false), Ok(()));
        // What its streams still carry out counts as well.
        let waiter = self::waiter(policy, AMPLE);
        waiter.word.part(2);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(BRIEF);
                waiter.word.set(2);
            });
            assert_eq!(waiter.context.wait(&waiter.word, 2, &|| waiter.word.gone(2), &mut || false), Ok(()));
        });
    }
}

#[test]
fn a_rank_that_waits_for_ever_polls_as_well() {
    let waiter = waiter(POLICIES[1], Duration::MAX);
    let polled = Cell::new(0);
    let mut done = || {
        polled.set(polled.get() + 1);
        Ok(polled.get() == 5)
    };
    let late = |_| panic!("nothing is late");
    assert_eq!(waiter.context.poll_longer(Duration::from_secs(1), &mut done, &|| None, &late), Ok(()));
}
