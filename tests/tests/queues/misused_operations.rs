//! Enqueued operations (2022, section III): what is refused at once, and what makes the stream fail.

use std::time::Duration;
use streamhalo::comm::device::Buffer;
use streamhalo::comm::queue::OperationQueue;
use streamhalo::comm::{Communicator, Error};
use streamhalo::{ElementType, HaloError, Stream, StreamKind, World, WorldOptions};
use streamhalo_tests::cases::misused::{line, operations};
use streamhalo_tests::{KINDS, Scenario, expect_all, on_ranks, stream_of, watchdog};

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
    for ranks in [1, 2] {
        for kind in KINDS {
            on_ranks(ranks, |world| operations(world, Scenario { backend: "none", kind }));
        }
    }
}

#[test]
fn a_message_that_does_not_fit_makes_the_stream_fail() {
    for kind in KINDS {
        // A world each: what fails on a stream of one fails all that comes behind it.
        let [bytes, floats] = [false, true].map(|floats| {
            let errors = on_ranks(1, |world| {
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
                Ok(queue.wait().expect_err("it does not fit"))
            });
            errors.into_iter().next().expect("there is a rank")
        });
        assert_eq!(bytes, Error::Truncated { sender: 0, tag: 3, message_bytes: 9, room_bytes: 8 });
        let (asked, found) = (ElementType::F64, ElementType::U8);
        assert_eq!(floats, Error::MessageMismatch { sender: 0, tag: 3, asked, found });
    }
}

#[test]
fn a_partner_that_does_not_come_is_named() {
    for kind in KINDS {
        let errors = with_queue(2, kind, |world, stream, _, queue| {
            let buffer = Buffer::<u8>::zeros(world, stream, line(4))?;
            if world.rank() == 1 {
                // It stays until the stream of rank 0 has failed, which takes both of its waits.
                while !matches!(world.barrier(), Err(Error::PeerFailed { .. })) {}
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

#[test]
fn a_partner_that_has_left_is_named_at_once() {
    for kind in KINDS {
        let results = World::threads(2, watchdog(), |world| -> Result<_, HaloError> {
            let (stream, communicator) = (stream_of(&world, kind)?, Communicator::new(&world)?);
            if world.rank() == 1 {
                drop(communicator);
                while world.barrier().is_ok() {}
                return Ok(None);
            }
            let queue = OperationQueue::new(&stream, &communicator)?;
            let buffer = Buffer::<u8>::zeros(&world, &stream, line(4))?;
            queue.enqueue_recv(&buffer.section(0..4)?, 1, 7)?;
            queue.enqueue_start()?;
            queue.enqueue_wait()?;
            Ok(Some(queue.wait().expect_err("nobody sends")))
        });
        let errors = expect_all(results.expect("threads can be started"));
        let Some(Error::PeerFailed { rank: 1, operation }) = &errors[0] else { panic!("{errors:?}") };
        assert_eq!(operation, "it has dropped its end of this communicator");
    }
}
