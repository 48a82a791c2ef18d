//! Enqueued operations (2022, section III): what is refused at once, and what makes the stream fail.

use std::time::Duration;
use streamhalo::comm::device::{Buffer, Extents};
use streamhalo::comm::queue::OperationQueue;
use streamhalo::comm::{Communicator, Error, Source, Tag};
use streamhalo::{ElementType, HaloError, Stream, StreamKind, World, WorldOptions};
use streamhalo_tests::{KINDS, expect_all, on_ranks, stream_of};

fn line(elements: usize) -> Extents {
    Extents { points: [1, 1, elements], components: 1 }
}

fn with_queue<T: Send>(
    ranks: usize,
    kind: StreamKind,
    try_it: impl Fn(&World, &Stream, &Communicator, OperationQueue) -> Result<T, HaloError> + Sync,
) -> Vec<T> {
    let options = WorldOptions { timeout: Some(Duration::from_secs(2)), ..WorldOptions::default() };
    let results = World::threads(ranks, options, |world| {
        let (stream, communicator) = (stream_of(&world, kind)?, Communicator::new(&world)?);
        let queue = OperationQueue::new(&stream, &communicator)?;
        try_it(&world, &stream, &communicator, queue)
    });
    expect_all(results.expect("threads can be started"))
}

#[test]
fn what_cannot_be_is_refused_at_once() {
    with_queue(2, KINDS[1], |world, stream, communicator, queue| {
        let buffer = Buffer::<u8>::zeros(world, stream, line(4))?;
        let section = buffer.section(0..4)?;
        let wildcard = Error::WildcardRefused { call: "enqueue_recv" };
        assert_eq!(queue.enqueue_recv(&section, Source::Any, 1).unwrap_err(), wildcard);
        assert_eq!(queue.enqueue_recv(&section, 0, Tag::Any).unwrap_err(), wildcard);
        let far = Error::WrongRank { what: "enqueue_send", rank: 2, size: 2 };
        assert_eq!(queue.enqueue_send(&section, 2, 1).unwrap_err(), far);
        let (tag, largest) = (u32::MAX, Communicator::LARGEST_TAG);
        let tag = Error::WrongTag { what: "enqueue_recv", tag, largest };
        assert_eq!(queue.enqueue_recv(&section, 0, u32::MAX).unwrap_err(), tag);
        let other = stream_of(world, KINDS[0])?;
        let (owner, used) = (stream.id(), other.id());
        let elsewhere = OperationQueue::new(&other, communicator)?.enqueue_send(&section, 0, 1).unwrap_err();
        assert_eq!(elsewhere, Error::WrongStream { what: "the section of an operation", owner, used });
        let alone = stream_of(&World::alone()?, KINDS[0])?;
        let error = OperationQueue::new(&alone, communicator).map(drop).unwrap_err();
        assert_eq!(error, Error::OtherWorld { what: "a queue of operations" });
        // Nothing of it was enqueued.
        queue.enqueue_start()?;
        queue.enqueue_wait()?;
        queue.wait()?;
        Ok(())
    });
}

#[test]
fn the_host_may_wait_once_it_is_started() {
    for kind in KINDS {
        with_queue(1, kind, |world, stream, _, queue| {
            let mut buffer = Buffer::<u8>::zeros(world, stream, line(4))?;
            let send = queue.enqueue_send(&buffer.section(0..2)?, 0, 1)?;
            let receive = queue.enqueue_recv(&buffer.section(2..4)?, 0, 1)?;
            for result in [send.test(), receive.wait().map(Some)] {
                let error = result.expect_err("it has not been started");
                assert!(
                    matches!(error, Error::OutOfOrder { call: "EnqueuedOperation::test", .. }),
                    "{error}"
                );
            }
            // Not held before the start: kernels may still write it.
            buffer.view_mut(line(4).whole())?.fill(9);
            queue.enqueue_start()?;
            let error = buffer.view(line(4).whole()).map(drop).unwrap_err();
            assert!(matches!(error, Error::InUse { by: "an enqueued receive", .. }), "{error}");
            assert_eq!((receive.wait()?.bytes, send.wait()?.bytes), (2, 2));
            buffer.view_mut(line(4).whole())?;
            queue.enqueue_wait()?;
            queue.wait()?;
            Ok(())
        });
    }
}

#[test]
fn sections_that_are_in_use_are_refused_together() {
    with_queue(1, KINDS[0], |world, stream, _, queue| {
        let mut buffer = Buffer::<u8>::zeros(world, stream, line(4))?;
        let first = queue.enqueue_send(&buffer.section(0..3)?, 0, 1)?;
        let second = queue.enqueue_recv(&buffer.section(2..4)?, 0, 1)?;
        let error = queue.enqueue_start().unwrap_err();
        assert!(matches!(error, Error::InUse { by: "an enqueued send", .. }), "{error}");
        buffer.view_mut(line(4).whole())?;
        for operation in [first, second] {
            assert!(matches!(operation.test(), Err(Error::OutOfOrder { .. })), "it was started");
        }
        Ok(())
    });
}

#[test]
fn a_message_that_does_not_fit_makes_the_stream_fail() {
    for kind in KINDS {
        let errors = on_ranks(1, |world| {
            let mut errors = Vec::new();
            for floats in [false, true] {
                let (stream, communicator) = (stream_of(world, kind)?, Communicator::new(world)?);
                let queue = OperationQueue::new(&stream, &communicator)?;
                let bytes = Buffer::<u8>::zeros(world, &stream, line(9))?;
                let other = Buffer::<f64>::zeros(world, &stream, line(9))?;
                queue.enqueue_send(&bytes.section(0..9)?, 0, 3)?;
                let room = if floats {
                    other.section(0..9)?
                } else {
                    Buffer::<u8>::zeros(world, &stream, line(8))?.section(0..8)?
                };
                queue.enqueue_recv(&room, 0, 3)?;
                queue.enqueue_start()?;
                queue.enqueue_wait()?;
                errors.push(queue.wait().expect_err("it does not fit"));
            }
            Ok(errors)
        });
        let truncated = Error::Truncated { sender: 0, tag: 3, message_bytes: 9, room_bytes: 8 };
        let (asked, found) = (ElementType::F64, ElementType::U8);
        assert_eq!(errors[0], [truncated, Error::MessageMismatch { sender: 0, tag: 3, asked, found }]);
    }
}

#[test]
fn a_partner_that_does_not_come_is_named() {
    for kind in KINDS {
        let errors = with_queue(2, kind, |world, stream, _, queue| {
            let buffer = Buffer::<u8>::zeros(world, stream, line(4))?;
            if world.rank() == 1 {
                while world.barrier().is_ok() {}
                return Ok(None);
            }
            let receive = queue.enqueue_recv(&buffer.section(0..4)?, 1, 7)?;
            queue.enqueue_start()?;
            let late = receive.wait().expect_err("nobody sends");
            assert!(matches!(late, Error::TimedOut { rank: 0, peer: 1, .. }), "{late}");
            queue.enqueue_wait()?;
            Ok(Some(queue.wait().expect_err("nobody sends")))
        });
        let Some(Error::TimedOut { rank: 0, peer: 1, what, .. }) = &errors[0] else { panic!("{errors:?}") };
        assert_eq!(what, "the other side of an enqueued receive from rank 1 with tag 7");
    }
}
