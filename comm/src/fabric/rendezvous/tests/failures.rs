//! Ranks that fail, vanish or leave.

use super::*;
use std::sync::Mutex;
use std::sync::atomic::AtomicUsize;

/// Makes failures raise the abort word of the context, as a world does, and tells how often.
fn abort_on_failure(rendezvous: &Rendezvous, context: &WaitContext) -> Arc<AtomicUsize> {
    let count = Arc::new(AtomicUsize::new(0));
    let (told, abort) = (count.clone(), context.abort.clone());
    rendezvous.on_failure(Box::new(move |rank, text| {
        told.fetch_add(1, Ordering::SeqCst);
        abort.raise(rank, text);
    }));
    count
}

fn wait_for(what: impl Fn() -> bool) {
    let started = Instant::now();
    while !what() {
        assert!(started.elapsed() < AMPLE, "it does not happen");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_rank_that_vanishes_is_named_on_all_others() {
    watched(|| {
        for (size, lost) in [(2, 1), (4, 3), (5, 2), (4, 0)] {
            let through = AtomicUsize::new(0);
            let outcomes = job(size, AMPLE, |rendezvous, context| {
                abort_on_failure(&rendezvous, context);
                let meeting = rendezvous.meeting();
                for _ in 0..3 {
                    meeting.barrier(context).expect("all come");
                }
                through.fetch_add(1, Ordering::SeqCst);
                if context.rank == lost {
                    // Rank 0 would take verdicts along that are still on their way.
                    wait_for(|| through.load(Ordering::SeqCst) == size);
                    rendezvous.vanish();
                    return None;
                }
                Some((meeting.all_gather(context, b"more").expect_err("one is gone"), rendezvous))
            });
            for (error, _) in outcomes.into_iter().flatten() {
                assert!(matches!(error, Error::PeerFailed { rank, .. } if rank == lost), "{error}");
                assert_says(&error.to_string(), &["it is gone", "ended"]);
            }
        }
    });
}

#[test]
fn a_rank_that_vanishes_is_noticed_outside_of_calls() {
    watched(|| {
        job(3, AMPLE, |rendezvous, context| {
            let count = abort_on_failure(&rendezvous, context);
            rendezvous.meeting().barrier(context).expect("all come");
            if context.rank == 2 {
                rendezvous.vanish();
                return;
            }
            wait_for(|| context.abort.failure().is_some());
            let (rank, text) = context.abort.failure().expect("it was told");
            assert_eq!((rank, text.as_str()), (2, "it is gone: its connection to rank 0 ended"));
            assert_eq!(count.load(Ordering::SeqCst), 1);
            // Stays until the other one has been told.
            let _ = rendezvous.meeting().barrier(context);
        });
    });
}

#[test]
fn a_failure_is_told_to_all_and_only_the_first_counts() {
    watched(|| {
        for teller in 0..3 {
            job(3, AMPLE, |rendezvous, context| {
                let count = abort_on_failure(&rendezvous, context);
                rendezvous.meeting().barrier(context).expect("all come");
                if context.rank == teller {
                    rendezvous.tell_failure(teller, "it ran out of cheese");
                    rendezvous.tell_failure(1, "another one");
                } else {
                    let error = rendezvous.meeting().barrier(context).expect_err("one has failed");
                    let operation = "it ran out of cheese".into();
                    assert_eq!(error, Error::PeerFailed { rank: teller, operation });
                }
                wait_for(|| count.load(Ordering::SeqCst) > 0);
                assert_eq!(count.load(Ordering::SeqCst), 1);
                // Whoever leaves now has told what it had to tell.
            });
        }
    });
}

#[test]
fn a_failure_before_anyone_listens_is_told() {
    watched(|| {
        job(3, AMPLE, |rendezvous, context| {
            rendezvous.meeting().barrier(context).expect("all come");
            if context.rank == 1 {
                rendezvous.tell_failure(1, "too early");
            }
            // A call ends with it even if nobody has set a callback.
            let error = rendezvous.meeting().barrier(context).expect_err("one has failed");
            assert_eq!(error, Error::PeerFailed { rank: 1, operation: "too early".into() });
            let told = Arc::new(Mutex::new(Vec::new()));
            let list = told.clone();
            rendezvous.on_failure(Box::new(move |rank, text| {
                list.lock().expect("nobody panics").push((rank, text.to_string()));
            }));
            assert_eq!(*told.lock().expect("nobody panics"), [(1, "too early".to_string())]);
        });
    });
}

#[test]
fn a_panic_is_told() {
    watched(|| {
        let outcomes = job(2, AMPLE, |rendezvous, context| {
            let meeting = rendezvous.meeting();
            meeting.barrier(context).expect("all come");
            if context.rank == 1 {
                let panicking = std::panic::AssertUnwindSafe(move || {
                    let _held = (rendezvous, meeting);
                    std::panic::resume_unwind(Box::new("on purpose"));
                });
                let _ = std::panic::catch_unwind(panicking);
                return Ok(());
            }
            meeting.barrier(context)
        });
        let operation = "its own code, which panicked".into();
        assert_eq!(outcomes[0], Err(Error::PeerFailed { rank: 1, operation }));
    });
}

#[test]
fn leaving_is_no_failure_but_is_not_waited_for() {
    watched(|| {
        for leaver in 0..3 {
            let outcomes = job(3, AMPLE, |rendezvous, context| {
                let count = abort_on_failure(&rendezvous, context);
                let meeting = rendezvous.meeting();
                meeting.barrier(context).expect("all come");
                if context.rank == leaver {
                    return Ok(());
                }
                let started = Instant::now();
                let outcome = meeting.barrier(context);
                assert!(started.elapsed() < AMPLE);
                let told = count.load(Ordering::SeqCst);
                if leaver != 0 {
                    // Who is left can still meet the rest, if there is someone in between.
                    assert_eq!(told, 0);
                }
                outcome
            });
            for (rank, outcome) in outcomes.into_iter().enumerate().filter(|(rank, _)| *rank != leaver) {
                let error = outcome.expect_err("one has left");
                assert!(matches!(error, Error::PeerFailed { rank, .. } if rank == leaver), "{rank}: {error}");
                assert_says(&error.to_string(), &["left the world"]);
            }
        }
    });
}

/// As of the first ranks of a world, or of a world whose last ranks are still waited for elsewhere.
#[test]
fn who_lets_go_of_one_meeting_is_named_there_and_comes_to_others() {
    watched(|| {
        for leaver in 0..3 {
            job(3, AMPLE, |rendezvous, context| {
                let [left, kept] = [rendezvous.meeting(), rendezvous.meeting()];
                left.barrier(context).expect("all come");
                if context.rank == leaver {
                    drop(left);
                } else {
                    for outcome in [left.barrier(context), left.all_gather(context, b"").map(drop)] {
                        let error = outcome.expect_err("one has let go");
                        assert!(matches!(error, Error::PeerFailed { rank, .. } if rank == leaver), "{error}");
                    }
                }
                kept.barrier(context).expect("all come");
            });
        }
    });
}

#[test]
fn the_end_of_a_job_is_no_failure() {
    watched(|| {
        let mut shortest = Duration::MAX;
        for _ in 0..20 {
            let started = Instant::now();
            let told = job(4, AMPLE, |rendezvous, context| {
                let count = abort_on_failure(&rendezvous, context);
                rendezvous.meeting().barrier(context).expect("all come");
                drop(rendezvous);
                count
            });
            assert!(told.iter().all(|count| count.load(Ordering::SeqCst) == 0));
            shortest = shortest.min(started.elapsed());
        }
        // A busy machine may hold some of them up for as long.
        assert!(shortest < FAREWELL, "goodbyes are waited for in vain: {shortest:?}");
    });
}
