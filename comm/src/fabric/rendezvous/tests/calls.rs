//! Barriers, gathers and smaller meetings.

use super::*;
use std::sync::atomic::AtomicUsize;

#[test]
fn everyone_gets_the_data_of_everyone() {
    watched(|| {
        const LENGTHS: [usize; 5] = [0, 1, 3 << 20, 17, 0];
        for size in [1, 2, 5] {
            let data = |rank: usize, round: usize| -> Vec<u8> {
                (0..LENGTHS[(rank + round) % 5]).map(|index| (index * 7 + rank * 31 + round) as u8).collect()
            };
            job(size, AMPLE, |rendezvous, context| {
                let meeting = rendezvous.meeting();
                for round in 0..5 {
                    let gathered = meeting.all_gather(context, &data(context.rank, round));
                    let expected: Vec<Vec<u8>> = (0..size).map(|rank| data(rank, round)).collect();
                    assert!(gathered.expect("all come") == expected, "round {round} of {size} ranks");
                }
            });
        }
    });
}

#[test]
fn nobody_leaves_a_barrier_before_all_have_come() {
    watched(|| {
        let came = AtomicUsize::new(0);
        job(5, AMPLE, |rendezvous, context| {
            let meeting = rendezvous.meeting();
            for round in 1..=300 {
                came.fetch_add(1, Ordering::SeqCst);
                meeting.barrier(context).expect("all come");
                // Nobody comes to the next round before the second barrier.
                assert_eq!(came.load(Ordering::SeqCst), 5 * round);
                meeting.barrier(context).expect("all come");
            }
        });
    });
}

#[test]
fn spinning_ranks_meet_too() {
    watched(|| {
        job(2, AMPLE, |rendezvous, context| {
            let context = WaitContext { policy: WaitPolicy::SPIN, ..context.clone() };
            for _ in 0..3 {
                rendezvous.meeting().barrier(&context).expect("all come");
            }
        });
    });
}

#[test]
fn smaller_meetings_share_the_connections() {
    watched(|| {
        let gathered = job(5, AMPLE, |rendezvous, context| {
            let whole = rendezvous.meeting();
            let three = whole.first(context, 3).expect("all come");
            let again = whole.first(context, 3).expect("all come");
            let two = three.as_ref().and_then(|three| three.first(context, 2).expect("all come"));
            let own = [context.rank as u8];
            let mut sizes = Vec::new();
            for round in 0..50 {
                // The larger ones first, then the smaller ones, in turns.
                let mut meetings = [Some(&whole), three.as_ref(), again.as_ref(), two.as_ref()];
                if round % 2 == 1 {
                    meetings.reverse();
                }
                for meeting in meetings.into_iter().flatten() {
                    let all = meeting.all_gather(context, &own).expect("all come");
                    assert!(all.iter().enumerate().all(|(rank, data)| data[..] == [rank as u8]));
                    sizes.push(all.len());
                    meeting.barrier(context).expect("all come");
                }
            }
            sizes.truncate(4);
            sizes
        });
        let expected = [vec![5, 3, 3, 2], vec![5, 3, 3, 2], vec![5, 3, 3, 3], vec![5; 4], vec![5; 4]];
        assert_eq!(gathered, expected);
    });
}

#[test]
fn different_calls_fail_alike_on_all() {
    watched(|| {
        let outcomes = job(4, AMPLE, |rendezvous, context| {
            let meeting = rendezvous.meeting();
            if context.rank == 3 {
                // The verdict need not wait for the last one, and is the same for it.
                std::thread::sleep(Duration::from_millis(50));
            }
            let mismatch = match context.rank {
                2 => meeting.all_gather(context, b"data").map(drop),
                _ => meeting.barrier(context),
            };
            meeting.barrier(context).expect("the next call is a new one");
            let sizes = meeting.first(context, 1 + context.rank / 2).map(drop);
            meeting.barrier(context).expect("the next call is a new one");
            (mismatch.expect_err("calls differ"), sizes.expect_err("sizes differ"))
        });
        for (mismatch, sizes) in &outcomes {
            assert!(matches!(mismatch, Error::CollectiveFailed { .. }), "{mismatch}");
            assert_says(&mismatch.to_string(), &["the barrier", "the all-gather"]);
            assert_says(
                &sizes.to_string(),
                &["rank 2", "World::first", "asked for 2 ranks, but rank 0 for 1"],
            );
            assert_eq!((mismatch, sizes), (&outcomes[0].0, &outcomes[0].1));
        }
    });
}

/// One rank comes to a barrier only once the others have given up.
fn meet_without(late: usize) {
    let done = AtomicUsize::new(0);
    let outcomes = job(3, SOME, |rendezvous, context| {
        if context.rank == late {
            while done.load(Ordering::SeqCst) < 2 {
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        let meeting = rendezvous.meeting();
        let outcome = meeting.barrier(context);
        done.fetch_add(1, Ordering::SeqCst);
        // All have come by now, but not to the same calls.
        let later = meeting.all_gather(context, &[]).expect_err("that ended the meeting");
        assert!(matches!(&later, Error::CollectiveFailed { rank, .. } if *rank == late), "{later}");
        assert_says(&later.to_string(), &["given up, which ends all calls"]);
        outcome
    });
    for (rank, outcome) in outcomes.into_iter().enumerate() {
        let said = outcome.expect_err("the last has not come in time").to_string();
        let (who, what) = if rank == late {
            (format!("rank {rank} could not take part in"), "came after the others had waited".into())
        } else {
            (format!("rank {rank} waited"), format!("s for the barrier of rank {late} (wanted "))
        };
        assert_says(&said, &[&who, &what]);
    }
}

#[test]
fn a_rank_that_does_not_come_is_named_on_all() {
    watched(|| {
        // Side by side: each takes as long as its ranks wait.
        std::thread::scope(|scope| {
            for late in 0..3 {
                scope.spawn(move || meet_without(late));
            }
        });
    });
}

#[test]
fn several_that_do_not_come_are_named() {
    watched(|| {
        let done = AtomicUsize::new(0);
        let outcomes = job(4, SOME, |rendezvous, context| {
            if context.rank % 2 == 1 {
                let outcome = rendezvous.meeting().all_gather(context, &[]);
                done.fetch_add(1, Ordering::SeqCst);
                return outcome.expect_err("others do not come").to_string();
            }
            while done.load(Ordering::SeqCst) < 2 {
                std::thread::sleep(Duration::from_millis(5));
            }
            String::new()
        });
        for rank in [1, 3] {
            assert_says(&outcomes[rank], &["the all-gather", "ranks 0 and 2 have not come"]);
        }
    });
}

#[test]
fn a_rank_0_that_says_nothing_is_named() {
    watched(|| {
        let (listener, address) = listener();
        std::thread::scope(|scope| {
            let rank = scope.spawn(move || {
                let rendezvous = Rendezvous::join(&options(address, 1, 2, AMPLE)).expect("it is let in");
                let started = Instant::now();
                let outcome = rendezvous.meeting().barrier(&context(1, BRIEF));
                assert!(started.elapsed() >= BRIEF + GRACE);
                outcome
            });
            // Lets it in, and is stopped then.
            let (stream, _) = listener.accept().expect("it comes");
            let candidate = handshake::receive(&stream, &key(7), Instant::now() + AMPLE);
            let verdict = candidate.expect("it has the key").verdict(&key(7), Ok(()));
            let start = frame::encode(&Head::Start { address: Ipv4Addr::LOCALHOST.into() }, &[]);
            let deadline = Instant::now() + AMPLE;
            handshake::write_by(&stream, &[&verdict[..], &start].concat(), deadline).expect("it reads");
            let error = rank.join().expect("it does not panic").expect_err("no verdict comes");
            assert!(matches!(error, Error::TimedOut { rank: 1, peer: 0, .. }), "{error}");
            assert_says(&error.to_string(), &["the barrier", "rank 0 does not even say who is missing"]);
        });
    });
}
