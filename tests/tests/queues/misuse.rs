//! What is refused at once, which is tried over every fabric, and what only shows later: requests that do not fit,
//! partners that are late, have left or have failed.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::slice::from_mut;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex};
use std::time::Duration;
use streamhalo::comm::device::{Buffer, Section};
use streamhalo::comm::queue::{imatch_all, imatch_one, match_all, match_one};
use streamhalo::comm::{Communicator, Error, PersistentRequest, wait_all};
use streamhalo::{ElementType, HaloError, Stream, StreamKind, World, WorldOptions};
use streamhalo_tests::cases::leaving::requested;
use streamhalo_tests::cases::misused::{Rank, line, refused, requests};
use streamhalo_tests::{KINDS, Scenario, at_once, expect_all, on_ranks, outcomes, stream_of, until};

const INLINE: StreamKind = StreamKind::Inline;

#[test]
fn what_is_against_the_rules_is_refused_and_the_right_call_still_works() {
    for ranks in [1, 2, 3] {
        for kind in KINDS {
            on_ranks(ranks, |world| requests(world, Scenario { backend: "none", kind }));
        }
    }
}

/// Two ranks, of which rank 0 sends 4 elements and rank 1 receives so many, with few seconds for a wait.
fn late_pair<T: Send>(
    room: usize,
    run: impl Fn(&Communicator, &Section, &mut PersistentRequest) -> Result<T, HaloError> + Sync,
) -> Vec<T> {
    let options = WorldOptions { timeout: Some(Duration::from_secs(2)), ..WorldOptions::default() };
    let results = World::threads(2, options, |world| {
        let (stream, communicator) = (stream_of(&world, INLINE)?, Communicator::new(&world)?);
        let cells = Buffer::<f64>::zeros(&world, &stream, line(8))?;
        let more = cells.section(0..8)?;
        let mut request = match world.rank() {
            0 => communicator.send_init(&cells.section(0..4)?, 1, 3)?,
            _ => communicator.recv_init(&cells.section(0..room)?, 0, 3)?,
        };
        run(&communicator, &more, &mut request)
    });
    expect_all(results.expect("threads can be started"))
}

/// Again, as often as it takes too long: on a busy machine more than once, and not for ever.
fn again(call: &mut dyn FnMut() -> Result<(), Error>) -> Result<(), Error> {
    for _ in 1..10 {
        match call() {
            Err(Error::TimedOut { .. }) => {}
            ended => return ended,
        }
    }
    call()
}

/// Where two ranks wait for each other: not for ever for one that has failed.
#[derive(Default)]
struct Gate {
    here: Mutex<usize>,
    came: Condvar,
}

impl Gate {
    fn wait(&self) {
        let mut here = self.here.lock().expect("nobody panics with it");
        *here += 1;
        self.came.notify_all();
        let is_missing = |here: &mut usize| *here < 2;
        let waited = self.came.wait_timeout_while(here, Duration::from_secs(60), is_missing);
        let is_late = waited.expect("nobody panics with it").1.timed_out();
        assert!(!is_late, "the other rank has not come");
    }
}

#[test]
fn a_match_that_was_late_is_waited_for_again() {
    let (told, gate) = (Gate::default(), Gate::default());
    let bytes = late_pair(4, |communicator, more, request| {
        let mut next = match communicator.rank() {
            0 => communicator.send_init(more, 1, 3)?,
            _ => communicator.recv_init(more, 0, 3)?,
        };
        if communicator.rank() == 0 {
            let late = match_one(request).expect_err("rank 1 does not match");
            assert!(matches!(late, Error::TimedOut { rank: 0, peer: 1, .. }), "{late}");
            told.wait();
        } else {
            told.wait();
        }
        again(&mut || match_one(request))?;
        // Of the same tag, behind it: there is no other of before.
        again(&mut || match_all(from_mut(&mut next)))?;
        gate.wait();
        Ok([&*request, &next].map(|one| one.route().map(|route| route.bytes)))
    });
    assert_eq!(bytes, [[Some(32), Some(64)]; 2]);
}

#[test]
fn what_became_of_a_late_match_meanwhile_is_told() {
    let (told, gate) = (Gate::default(), Gate::default());
    let errors = late_pair(3, |communicator, _, request| {
        if communicator.rank() == 1 {
            told.wait();
            let ended = again(&mut || match_one(request));
            gate.wait();
            return Ok(ended);
        }
        let mut matching = imatch_one(request)?;
        assert!(matches!(match_one(request), Err(Error::TimedOut { .. })));
        told.wait();
        gate.wait();
        assert!(!request.is_matched());
        let ended = match_one(request);
        assert_eq!(matching.wait(), ended, "whoever has begun it is told too");
        Ok(ended)
    });
    assert!(matches!(errors[0], Err(Error::Mismatch { sender: 0, receiver: 1, tag: 3, .. })), "{errors:?}");
    assert_eq!(errors[0], errors[1]);
}

/// Tries something on one and on two ranks, on both kinds of stream.
fn each(try_it: impl Fn(&World, Rank) -> Result<(), HaloError> + Sync) {
    for ranks in [1, 2] {
        for kind in KINDS {
            on_ranks(ranks, |world| try_it(world, Rank::new(world, kind)?));
        }
    }
}

#[test]
fn what_was_started_and_dropped_keeps_its_section() {
    on_ranks(2, |world| {
        let mut rank = Rank::new(world, INLINE)?;
        let queue = rank.queue();
        let [mut receive, send] = rank.matched(1)?;
        queue.enqueue_start(&mut receive)?;
        drop((receive, send));
        let error = rank.arrived.view_mut(line(8).whole()).map(drop).unwrap_err();
        assert!(matches!(error, Error::InUse { by: "a receive on a queue", .. }), "{error:?}");
        world.barrier()?;
        Ok(())
    });
}

/// What both ranks are told when rank 0 sends the one section and rank 1 receives into the other.
fn mismatch(make: impl Fn(&World, &Stream) -> Result<[Section; 2], HaloError> + Sync) -> Error {
    let errors = on_ranks(2, |world| {
        let mut rank = Rank::new(world, INLINE)?;
        let [send, receive] = make(world, &rank.stream)?;
        let peer = 1 - world.rank();
        let mut bad = match world.rank() {
            0 => rank.communicator.send_init(&send, peer, 5)?,
            _ => rank.communicator.recv_init(&receive, peer, 5)?,
        };
        let error = match_one(&mut bad).expect_err("they do not fit");
        assert!(!bad.is_matched());
        // With others in the batch, which match.
        let [good, also] = rank.ring(1)?;
        let mut batch = [good, bad, also];
        let mut matching = imatch_all(&mut batch)?;
        for _ in 0..2 {
            assert_eq!(matching.wait(), Err(error.clone()), "whoever asks again is told again");
        }
        assert!(batch[0].is_matched() && !batch[1].is_matched() && batch[2].is_matched());
        let [good, _, also] = batch;
        let queue = rank.queue();
        rank.exchange(&queue, &mut [good, also])?;
        Ok(error)
    });
    assert_eq!(errors[0], errors[1]);
    errors[0].clone()
}

#[test]
fn pairs_that_do_not_fit_are_refused_on_both_ranks() {
    let too_long = mismatch(|world, stream| {
        let [long, short] = [9, 8].map(|elements| Buffer::<f64>::zeros(world, stream, line(elements)));
        Ok([long?.section(0..9)?, short?.section(0..8)?])
    });
    let expected = |sent: &str| Error::Mismatch {
        sender: 0,
        receiver: 1,
        tag: 5,
        sent: sent.into(),
        expected: "receives at most 8 f64".into(),
    };
    assert_eq!(too_long, expected("9 f64"));
    let other_type = mismatch(|world, stream| {
        let integers = Buffer::<i64>::zeros(world, stream, line(8))?;
        let floats = Buffer::<f64>::zeros(world, stream, line(8))?;
        assert_eq!(integers.section(0..8)?.element_type(), ElementType::I64);
        Ok([integers.section(0..8)?, floats.section(0..8)?])
    });
    assert_eq!(other_type, expected("8 i64"));
}

/// Waits that fail soon; not so soon that a busy machine ends those that set a test up.
fn impatient() -> WorldOptions {
    WorldOptions { timeout: Some(Duration::from_millis(1_500)), ..WorldOptions::default() }
}

#[test]
fn a_peer_that_does_not_match_is_named() {
    let is_over = AtomicBool::new(false);
    let results = World::threads(3, impatient(), |world| -> Result<(), HaloError> {
        let rank = Rank::new(&world, INLINE)?;
        let [receive, send] = rank.ring(4)?;
        if world.rank() == 2 {
            // It matches the one, and not the other.
            match_all(&mut [receive])?;
            until(&is_over);
        } else if world.rank() == 1 {
            let error =
                match_all(&mut [receive, send]).expect_err("rank 2 matches, rank 0 has nothing for it");
            is_over.store(true, Ordering::Release);
            let Error::TimedOut { rank: 1, peer, what, wanted: 2, found: 1, .. } = &error else {
                panic!("{error:?}")
            };
            assert_eq!((*peer, what.as_str()), (0, "the match of a receive from rank 0 with tag 4"));
        } else {
            until(&is_over);
        }
        Ok(())
    });
    for result in results.unwrap() {
        result.unwrap();
    }
}

#[test]
fn a_peer_that_has_left_or_failed_is_named() {
    on_ranks(2, |world| {
        let rank = Rank::new(world, INLINE)?;
        if world.rank() == 1 {
            drop(rank);
            world.barrier()?;
            return Ok(());
        }
        let error = match_one(&mut rank.ring(4)?[0]).expect_err("rank 1 has left");
        assert!(matches!(&error, Error::PeerFailed { rank: 1, operation } if operation.contains("dropped")));
        world.barrier()?;
        Ok(())
    });
    let results = outcomes(2, |world| {
        let rank = Rank::new(world, INLINE)?;
        if world.rank() == 1 {
            rank.stream.enqueue_host("a fall", || Err("over".into()));
            return Ok(rank.stream.synchronize().unwrap_err());
        }
        Ok(match_one(&mut rank.ring(4)?[0]).expect_err("rank 1 has failed"))
    });
    let error = results[0].as_ref().unwrap();
    assert!(
        matches!(error, Error::PeerFailed { rank: 1, operation } if operation.contains("over")),
        "{error:?}"
    );
}

#[test]
fn a_peer_that_has_dropped_its_request_is_named_at_once() {
    for kind in KINDS {
        for (is_sender, is_started) in [(false, false), (false, true), (true, false), (true, true)] {
            let ended = outcomes(2, |world| requested(world, kind, is_sender, is_started));
            ended[0].clone().expect("it is told");
        }
    }
}

/// Takes its time to be dropped.
struct Slow(Duration);

impl Drop for Slow {
    fn drop(&mut self) {
        std::thread::sleep(self.0);
    }
}

/// What rank 0 is told as it waits for a request of rank 1, which ends in some way, and drops other things slowly before
/// it can say so.
fn told(kind: StreamKind, slow: Duration, end: impl Fn() -> Result<(), HaloError> + Sync) -> HaloError {
    let told = Mutex::new(None);
    let wait = |world: &World| -> Result<(), HaloError> {
        let _slow = (world.rank() == 1).then(|| Slow(slow));
        let rank = Rank::new(world, kind)?;
        let mut requests = rank.matched(6)?;
        if world.rank() == 1 {
            // The other one waits by then.
            std::thread::sleep(Duration::from_millis(50));
            return end();
        }
        let queue = rank.queue();
        queue.enqueue_start(&mut requests[0])?;
        queue.enqueue_wait(&mut requests[0])?;
        Ok(queue.wait()?)
    };
    let ranks = || {
        outcomes(2, |world| {
            let ended = wait(world);
            if world.rank() == 0 {
                *told.lock().expect("nobody panics with it") = ended.clone().err();
            }
            ended
        })
    };
    _ = catch_unwind(AssertUnwindSafe(ranks));
    told.into_inner().expect("nobody panics with it").expect("nobody sends")
}

#[test]
fn why_a_rank_fails_is_told_before_what_it_drops() {
    for kind in KINDS {
        let is_named = |error: &HaloError, expected| match error {
            HaloError::Communication(Error::PeerFailed { rank: 1, operation }) => {
                operation.contains(expected)
            }
            other => panic!("{other:?}"),
        };
        let returned = || Err(HaloError::BadOffset { offset: vec![7], reason: "the tide is out".into() });
        // The short time in which it is listened for is taken from it by a busy machine, but not every time.
        let mut returned = (0..5).map(|_| told(kind, Duration::from_millis(30), returned));
        assert!(returned.any(|error| is_named(&error, "the tide is out")), "{kind:?}");
        // Longer than anybody listens for it.
        let panicked = told(kind, Duration::from_millis(300), || panic!("it is unwell"));
        assert!(is_named(&panicked, "panicked"), "{panicked:?}");
    }
}

#[test]
fn a_ready_send_that_finds_no_receive_makes_its_stream_fail() {
    for kind in KINDS {
        for batch in [1, 2] {
            let errors = on_ranks(2, |world| {
                let rank = Rank::new(world, kind)?;
                let (section, room) = (rank.out.section(0..8)?, rank.arrived.section(0..8)?);
                let queue = rank.queue();
                if world.rank() == 0 {
                    let send = |tag| rank.communicator.rsend_init(&section, 1, tag);
                    let mut sends = (0..batch).map(send).collect::<Result<Vec<_>, _>>()?;
                    match_all(&mut sends)?;
                    world.barrier()?;
                    queue.enqueue_start_all(&mut sends)?;
                    let error = queue.wait().expect_err("rank 1 has started nothing");
                    return Ok(error);
                }
                let receive = |tag| rank.communicator.recv_init(&room, 0, tag);
                let mut receives = (0..batch).map(receive).collect::<Result<Vec<_>, _>>()?;
                match_all(&mut receives)?;
                world.barrier()?;
                while world.barrier().is_ok() {}
                queue.enqueue_start(&mut receives[0])?;
                queue.enqueue_wait(&mut receives[0])?;
                Ok(queue.wait().expect_err("rank 0 has failed"))
            });
            assert_eq!(errors[0], Error::ReceiverNotReady { rank: 0, peer: 1, tag: 0 });
            assert!(matches!(&errors[1], Error::PeerFailed { rank: 0, .. }), "{errors:?}");
        }
    }
}

#[test]
fn a_receive_whose_send_is_not_started_ends_with_the_time_out() {
    at_once(&KINDS, |kind| {
        let results = World::threads(2, impatient(), |world| -> Result<Option<Error>, HaloError> {
            let rank = Rank::new(&world, *kind)?;
            let mut requests = rank.matched(6)?;
            let queue = rank.queue();
            if world.rank() == 0 {
                queue.enqueue_start(&mut requests[0])?;
                queue.enqueue_wait(&mut requests[0])?;
                return Ok(Some(queue.wait().expect_err("nobody sends")));
            }
            // They stay as they are.
            std::mem::forget(requests);
            while world.barrier().is_ok() {}
            Ok(None)
        });
        let results: Vec<_> = results.unwrap().into_iter().map(Result::unwrap).collect();
        let Some(Error::TimedOut { rank: 0, peer: 1, what, wanted: 1, found: 0, .. }) = &results[0] else {
            panic!("{results:?}")
        };
        assert_eq!(what, "the completion of epoch 1");
    });
}

#[test]
fn sections_of_another_world_are_refused() {
    on_ranks(2, |world| {
        let other = World::alone()?;
        let stream = stream_of(&other, KINDS[0])?;
        let cells = Buffer::<f64>::zeros(&other, &stream, line(8))?;
        let (section, communicator) = (cells.section(0..8)?, Communicator::new(world)?);
        let requests = [
            communicator.send_init(&section, 0, 1),
            communicator.rsend_init(&section, 0, 1),
            communicator.recv_init(&section, 0, 1),
        ];
        for request in requests {
            assert_eq!(request.map(drop), Err(Error::OtherWorld { what: "a request" }));
        }
        let messages = [communicator.isend(&section, 0, 1), communicator.irecv(&section, 0, 1)];
        for message in messages {
            assert_eq!(message.map(drop), Err(Error::OtherWorld { what: "a message" }));
        }
        Ok(())
    });
}

#[test]
fn a_match_goes_on_when_nobody_waits_for_it() {
    each(|world, mut rank| {
        let mut requests = rank.ring(1)?;
        drop(imatch_all(&mut requests)?);
        refused(imatch_all(&mut requests).map(drop), "imatch_all", "match");
        world.barrier()?;
        while !requests.iter().all(PersistentRequest::is_matched) {}
        let queue = rank.queue();
        rank.exchange(&queue, &mut requests)?;
        // Nor is a partner given to somebody else when its own request is gone.
        let mut gone = rank.ring(2)?;
        drop(imatch_all(&mut gone)?);
        drop(gone);
        let mut requests = rank.ring(2)?;
        match_all(&mut requests)?;
        world.barrier()?;
        rank.exchange(&queue, &mut requests)?;
        wait_all(&mut [])?;
        Ok(())
    });
}
