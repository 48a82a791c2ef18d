//! Every rule of the 2026 paper, sections III-C and III-D: the exact error, with nothing enqueued, so that the
//! right call still works afterwards.

use std::time::Duration;
use streamhalo::comm::device::{Buffer, Extents, Section};
use streamhalo::comm::fabric::Executor;
use streamhalo::comm::queue::{Queue, imatch_all, match_all, match_one};
use streamhalo::comm::{Communicator, Error, PersistentRequest, Source, Tag, wait_all};
use streamhalo::{ElementType, HaloError, Stream, StreamKind, World, WorldOptions};
use streamhalo_tests::{KINDS, on_ranks, outcomes, stream_of};

const INLINE: StreamKind = StreamKind::Inline;

fn line(elements: usize) -> Extents {
    Extents { points: [1, 1, elements], components: 1 }
}

/// A rank with a communicator, a stream, and memory to send from and to receive into.
struct Rank {
    communicator: Communicator,
    stream: Stream,
    out: Buffer<f64>,
    arrived: Buffer<f64>,
}

impl Rank {
    fn new(world: &World, kind: StreamKind) -> Result<Self, HaloError> {
        let stream = stream_of(world, kind)?;
        let mut out = Buffer::<f64>::zeros(world, &stream, line(8))?;
        out.view_mut(line(8).whole())?.fill(1.0 + world.rank() as f64);
        let arrived = Buffer::zeros(world, &stream, line(8))?;
        Ok(Self { communicator: Communicator::new(world)?, stream, out, arrived })
    }

    fn queue(&self) -> Queue {
        Queue::new(&self.stream, &self.communicator).expect("all are of one world")
    }

    /// A receive from the rank before this one, and a send to the one behind it.
    fn ring(&self, tag: u32) -> Result<[PersistentRequest; 2], HaloError> {
        let (rank, size) = (self.communicator.rank(), self.communicator.size());
        Ok([
            self.communicator.recv_init(&self.arrived.section(0..8)?, (rank + size - 1) % size, tag)?,
            self.communicator.send_init(&self.out.section(0..8)?, (rank + 1) % size, tag)?,
        ])
    }

    fn matched(&self, tag: u32) -> Result<[PersistentRequest; 2], HaloError> {
        let mut ring = self.ring(tag)?;
        match_all(&mut ring)?;
        Ok(ring)
    }

    /// One exchange, which must be right.
    fn exchange(&mut self, queue: &Queue, requests: &mut [PersistentRequest]) -> Result<(), HaloError> {
        let (rank, size) = (self.communicator.rank(), self.communicator.size());
        queue.enqueue_start_all(requests)?;
        queue.enqueue_wait_all(requests)?;
        queue.wait()?;
        let expected = vec![1.0 + ((rank + size - 1) % size) as f64; 8];
        assert_eq!(self.arrived.copy_out(line(8).whole())?, expected);
        self.arrived.view_mut(line(8).whole())?.fill(0.0);
        Ok(())
    }
}

/// Tries something on one and on two ranks, on both kinds of stream.
fn each(try_it: impl Fn(&World, Rank) -> Result<(), HaloError> + Sync) {
    for ranks in [1, 2] {
        for kind in KINDS {
            on_ranks(ranks, |world| try_it(world, Rank::new(world, kind)?));
        }
    }
}

fn assert_out_of_order<T: std::fmt::Debug>(result: Result<T, Error>, expected: &'static str, says: &str) {
    let error = result.expect_err("it is out of order");
    let Error::OutOfOrder { call, reason } = &error else { panic!("{error:?}") };
    assert_eq!(*call, expected);
    assert!(reason.contains(says), "`{reason}` does not say `{says}`");
}

#[test]
fn a_request_that_is_not_matched_is_refused_and_none_of_its_batch_is_enqueued() {
    each(|world, mut rank| {
        let queue = rank.queue();
        let [matched, other] = rank.matched(1)?;
        drop(other);
        let [unmatched, _] = rank.ring(2)?;
        let peer = (world.rank() + world.size() - 1) % world.size();
        let mut batch = [matched, unmatched];
        let expected =
            |call| Error::Unmatched { call, request: format!("receive from rank {peer} with tag 2") };
        assert_eq!(queue.enqueue_start_all(&mut batch), Err(expected("enqueue_start_all")));
        assert_eq!(queue.enqueue_start(&mut batch[1]), Err(expected("enqueue_start")));
        assert_eq!(queue.enqueue_wait(&mut batch[1]), Err(expected("enqueue_wait")));
        // The matched one was not started, or it could not be waited for by the host.
        assert_out_of_order(queue.enqueue_wait(&mut batch[0]), "enqueue_wait", "has not been started");
        assert!(!batch[0].is_active() && !batch[1].is_active());
        // Nor is its section held.
        rank.arrived.view_mut(line(8).whole())?;
        drop(batch);
        let mut right = rank.matched(3)?;
        rank.exchange(&queue, &mut right)
    });
}

#[test]
fn a_wildcard_cannot_be_matched() {
    each(|_, mut rank| {
        let section = rank.arrived.section(0..8)?;
        for (source, tag) in
            [(Source::Any, Tag::Value(1)), (Source::Rank(0), Tag::Any), (Source::Any, Tag::Any)]
        {
            let request = rank.communicator.recv_init(&section, source, tag)?;
            // Nobody is told of the others either.
            let [receive, send] = rank.ring(1)?;
            let mut batch = [receive, request, send];
            assert_eq!(match_all(&mut batch), Err(Error::WildcardRefused { call: "match_all" }));
            let started = rank.queue().enqueue_start(&mut batch[1]);
            assert!(matches!(started, Err(Error::Unmatched { .. })), "{started:?}");
        }
        let mut right = rank.matched(1)?;
        let queue = rank.queue();
        rank.exchange(&queue, &mut right)
    });
}

#[test]
fn a_start_needs_a_wait_before_the_next() {
    each(|_, mut rank| {
        let queue = rank.queue();
        let mut requests = rank.matched(1)?;
        for request in &mut requests {
            assert_out_of_order(queue.enqueue_wait(request), "enqueue_wait", "since its last wait");
        }
        queue.enqueue_start_all(&mut requests)?;
        for request in &mut requests {
            assert_out_of_order(queue.enqueue_start(request), "enqueue_start", "enqueue its wait first");
        }
        assert_out_of_order(queue.enqueue_start_all(&mut requests), "enqueue_start_all", "its wait");
        queue.enqueue_wait_all(&mut requests)?;
        assert_out_of_order(queue.enqueue_wait_all(&mut requests), "enqueue_wait_all", "since its last wait");
        queue.wait()?;
        rank.arrived.view_mut(line(8).whole())?.fill(0.0);
        rank.exchange(&queue, &mut requests)
    });
}

#[test]
fn the_host_keeps_off_what_is_enqueued() {
    each(|_, mut rank| {
        let queue = rank.queue();
        let mut requests = rank.matched(1)?;
        queue.enqueue_start_all(&mut requests)?;
        for request in &mut requests {
            assert!(request.is_active());
            let route = request.route().expect("it is matched");
            assert_eq!((route.bytes, route.executor), (64, Executor::Stream));
            assert_out_of_order(request.wait(), "PersistentRequest::wait", "enqueued on a queue");
            assert_out_of_order(request.test(), "PersistentRequest::test", "enqueued on a queue");
            assert_out_of_order(request.start(), "PersistentRequest::start", "enqueued on a queue");
            assert_out_of_order(match_one(request), "match_all", "matched already");
        }
        queue.enqueue_wait_all(&mut requests)?;
        queue.wait()?;
        rank.arrived.view_mut(line(8).whole())?.fill(0.0);
        rank.exchange(&queue, &mut requests)?;
        // A request that the host has started is no queue's.
        requests.iter_mut().try_for_each(PersistentRequest::start)?;
        for request in &mut requests {
            assert_out_of_order(queue.enqueue_start(request), "enqueue_start", "started by the host");
        }
        for request in &mut requests {
            request.wait()?;
        }
        let [mut unmatched, mut its_send] = rank.ring(2)?;
        assert_eq!(unmatched.route(), None);
        unmatched.start()?;
        assert_out_of_order(match_one(&mut unmatched), "match_all", "has been started");
        its_send.start()?;
        unmatched.wait()?;
        its_send.wait()?;
        rank.arrived.view_mut(line(8).whole())?.fill(0.0);
        rank.exchange(&queue, &mut requests)
    });
}

#[test]
fn a_wait_belongs_to_the_queue_of_its_start() {
    each(|world, mut rank| {
        let [queue, other] = [rank.queue(), rank.queue()];
        let mut requests = rank.matched(1)?;
        queue.enqueue_start_all(&mut requests)?;
        let peer = (world.rank() + world.size() - 1) % world.size();
        for (wait, call) in [
            (other.enqueue_wait(&mut requests[0]), "enqueue_wait"),
            (other.enqueue_wait_all(&mut requests), "enqueue_wait_all"),
        ] {
            let request = format!("receive from rank {peer} with tag 1");
            assert_eq!(wait, Err(Error::WrongQueue { call, request, owner: queue.id(), used: other.id() }));
        }
        queue.enqueue_wait_all(&mut requests)?;
        queue.wait()?;
        rank.arrived.view_mut(line(8).whole())?.fill(0.0);
        // The next start may be on another one.
        rank.exchange(&other, &mut requests)
    });
}

#[test]
fn a_request_is_freed_once_the_host_knows_that_it_is_complete() {
    each(|_, mut rank| {
        let queue = rank.queue();
        let mut requests = rank.matched(1)?;
        queue.enqueue_start_all(&mut requests)?;
        let [receive, send] = requests;
        let refuse = |request: PersistentRequest, says| {
            let (request, error) = request.free().expect_err("it may not be complete");
            assert_out_of_order(Err::<(), _>(error), "PersistentRequest::free", says);
            request
        };
        let mut requests = [receive, send].map(|request| refuse(request, "enqueue its wait"));
        queue.enqueue_wait_all(&mut requests)?;
        let requests = requests.map(|request| refuse(request, "call `Queue::wait`"));
        queue.wait()?;
        for request in requests {
            request.free().map_err(|(_, error)| error)?;
        }
        rank.arrived.view_mut(line(8).whole())?.fill(0.0);
        let mut requests = rank.matched(1)?;
        rank.exchange(&queue, &mut requests)?;
        // One that has never been matched, or never been started, may be freed at any time.
        rank.ring(1)?
            .into_iter()
            .chain(rank.matched(1)?)
            .try_for_each(|request| request.free().map_err(|(_, error)| HaloError::from(error)))
    });
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

#[test]
fn sections_are_held_from_start_to_wait() {
    each(|_, mut rank| {
        let queue = rank.queue();
        let mut requests = rank.matched(1)?;
        queue.enqueue_start_all(&mut requests)?;
        let in_use = |result: Result<(), Error>, expected: &str| {
            let error = result.expect_err("it is in use");
            assert!(matches!(&error, Error::InUse { by, .. } if *by == expected), "{error:?}");
        };
        in_use(rank.arrived.view(line(8).whole()).map(drop), "a receive on a queue");
        in_use(rank.out.view_mut(line(8).whole()).map(drop), "a send on a queue");
        // What is sent may be read.
        rank.out.view(line(8).whole())?;
        queue.enqueue_wait_all(&mut requests)?;
        rank.arrived.view_mut(line(8).whole())?.fill(0.0);
        rank.exchange(&queue, &mut requests)?;
        // Two receives into one section are refused together.
        let [receive, send] = requests;
        let [other_receive, other_send] = rank.matched(2)?;
        let mut batch = [receive, other_receive];
        in_use(queue.enqueue_start_all(&mut batch), "a receive on a queue");
        assert!(!batch[0].is_active());
        let [receive, _] = batch;
        drop(other_send);
        rank.exchange(&queue, &mut [receive, send])
    });
}

#[test]
fn requests_of_another_communicator_stream_or_world_are_refused() {
    each(|world, mut rank| {
        let other = Communicator::new(world)?;
        let queue = Queue::new(&rank.stream, &other)?;
        let mut requests = rank.matched(1)?;
        let refused = queue.enqueue_start(&mut requests[1]);
        let peer = (world.rank() + 1) % world.size();
        let request = format!("send to rank {peer} with tag 1");
        assert_eq!(refused, Err(Error::WrongCommunicator { call: "enqueue_start", request }));

        let elsewhere = stream_of(world, INLINE)?;
        let queue = Queue::new(&elsewhere, &rank.communicator)?;
        let (owner, used) = (rank.stream.id(), elsewhere.id());
        let what = "the section of a request";
        assert_eq!(queue.enqueue_start(&mut requests[0]), Err(Error::WrongStream { what, owner, used }));

        let alone = World::alone()?;
        let error = Queue::new(&stream_of(&alone, INLINE)?, &rank.communicator).map(drop).unwrap_err();
        assert_eq!(error, Error::OtherWorld { what: "a queue" });
        let queue = rank.queue();
        rank.exchange(&queue, &mut requests)
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
        assert_eq!(match_all(&mut batch), Err(error.clone()));
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

fn impatient() -> WorldOptions {
    WorldOptions { timeout: Some(Duration::from_millis(300)), ..WorldOptions::default() }
}

#[test]
fn a_peer_that_does_not_match_is_named() {
    let results = World::threads(3, impatient(), |world| -> Result<(), HaloError> {
        let rank = Rank::new(&world, INLINE)?;
        let [receive, send] = rank.ring(4)?;
        if world.rank() == 2 {
            // It matches the one, and not the other.
            match_all(&mut [receive])?;
            std::thread::sleep(Duration::from_millis(600));
        } else if world.rank() == 1 {
            let error =
                match_all(&mut [receive, send]).expect_err("rank 2 matches, rank 0 has nothing for it");
            let Error::TimedOut { rank: 1, peer, what, wanted: 2, found: 1, .. } = &error else {
                panic!("{error:?}")
            };
            assert_eq!((*peer, what.as_str()), (0, "the match of a receive from rank 0 with tag 4"));
        } else {
            std::thread::sleep(Duration::from_millis(600));
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
    for kind in KINDS {
        let results = World::threads(2, impatient(), |world| -> Result<Option<Error>, HaloError> {
            let rank = Rank::new(&world, kind)?;
            let mut requests = rank.matched(6)?;
            let queue = rank.queue();
            if world.rank() == 0 {
                queue.enqueue_start(&mut requests[0])?;
                queue.enqueue_wait(&mut requests[0])?;
                return Ok(Some(queue.wait().expect_err("nobody sends")));
            }
            while world.barrier().is_ok() {}
            Ok(None)
        });
        let results: Vec<_> = results.unwrap().into_iter().map(Result::unwrap).collect();
        let Some(Error::TimedOut { rank: 0, peer: 1, what, wanted: 1, found: 0, .. }) = &results[0] else {
            panic!("{results:?}")
        };
        assert_eq!(what, "the completion");
    }
}

#[test]
fn a_match_goes_on_when_nobody_waits_for_it() {
    each(|world, mut rank| {
        let mut requests = rank.ring(1)?;
        drop(imatch_all(&mut requests)?);
        assert_out_of_order(imatch_all(&mut requests).map(drop), "match_all", "match");
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
