//! Enqueued operations (2022, section III): what is refused at once, with nothing enqueued.

use super::{line, refused};
use crate::cases::Done;
use crate::{Scenario, stream_of};
use streamhalo::comm::device::Buffer;
use streamhalo::comm::queue::OperationQueue;
use streamhalo::comm::{Communicator, Error, Source, Tag};
use streamhalo::{HaloError, StreamKind, World};

/// All that is refused.
pub fn operations(world: &World, way: Scenario) -> Result<Done, HaloError> {
    let (stream, communicator) = (stream_of(world, way.kind)?, Communicator::new(world)?);
    let queue = OperationQueue::new(&stream, &communicator)?;
    what_cannot_be(world, &communicator, &queue)?;
    untimely(world, &queue)?;
    sections_in_use(world, &queue)?;
    Ok(Done::default())
}

/// Ranks, tags, wildcards, streams and worlds that cannot be meant.
fn what_cannot_be(
    world: &World,
    communicator: &Communicator,
    queue: &OperationQueue,
) -> Result<(), HaloError> {
    let (stream, size) = (queue.stream(), world.size());
    let buffer = Buffer::<u8>::zeros(world, stream, line(4))?;
    let section = buffer.section(0..4)?;
    let wildcard = Error::WildcardRefused { call: "enqueue_recv" };
    assert_eq!(queue.enqueue_recv(&section, Source::Any, 1).unwrap_err(), wildcard);
    assert_eq!(queue.enqueue_recv(&section, 0, Tag::Any).unwrap_err(), wildcard);
    let far = Error::WrongRank { what: "enqueue_send", rank: size, size };
    assert_eq!(queue.enqueue_send(&section, size, 1).unwrap_err(), far);
    let (tag, largest) = (u32::MAX, Communicator::LARGEST_TAG);
    let tag = Error::WrongTag { what: "enqueue_recv", tag, largest };
    assert_eq!(queue.enqueue_recv(&section, 0, u32::MAX).unwrap_err(), tag);
    let other = stream_of(world, StreamKind::Inline)?;
    let (owner, used) = (stream.id(), other.id());
    let elsewhere = OperationQueue::new(&other, communicator)?.enqueue_send(&section, 0, 1).unwrap_err();
    assert_eq!(elsewhere, Error::WrongStream { what: "the section of an operation", owner, used });
    let alone = stream_of(&World::alone()?, StreamKind::Inline)?;
    let error = OperationQueue::new(&alone, communicator).map(drop).unwrap_err();
    assert_eq!(error, Error::OtherWorld { what: "a queue of operations" });
    // Nothing of it was enqueued.
    queue.enqueue_start()?;
    queue.enqueue_wait()?;
    Ok(queue.wait()?)
}

/// The host may wait once the start is enqueued, and from then on keeps off the sections.
fn untimely(world: &World, queue: &OperationQueue) -> Result<(), HaloError> {
    let me = world.rank();
    let mut buffer = Buffer::<u8>::zeros(world, queue.stream(), line(4))?;
    let send = queue.enqueue_send(&buffer.section(0..2)?, me, 1)?;
    let receive = queue.enqueue_recv(&buffer.section(2..4)?, me, 1)?;
    refused(send.test(), "EnqueuedOperation::test", "has not been started");
    refused(receive.wait(), "EnqueuedOperation::wait", "has not been started");
    // Not held before the start: kernels may still write it.
    buffer.with_host_mut(line(4).whole(), |mut all| all.fill(9))?;
    queue.enqueue_start()?;
    let error = buffer.copy_out(line(4).whole()).map(drop).unwrap_err();
    assert!(matches!(error, Error::InUse { by: "an enqueued receive", .. }), "{error}");
    assert_eq!((receive.wait()?.bytes, send.wait()?.bytes), (2, 2));
    buffer.with_host_mut(line(4).whole(), |_| ())?;
    queue.enqueue_wait()?;
    Ok(queue.wait()?)
}

/// Sections that are in use are refused together. The queue then has what cannot be started.
fn sections_in_use(world: &World, queue: &OperationQueue) -> Result<(), HaloError> {
    let me = world.rank();
    let mut buffer = Buffer::<u8>::zeros(world, queue.stream(), line(4))?;
    let first = queue.enqueue_send(&buffer.section(0..3)?, me, 1)?;
    let second = queue.enqueue_recv(&buffer.section(2..4)?, me, 1)?;
    let error = queue.enqueue_start().unwrap_err();
    assert!(matches!(error, Error::InUse { by: "an enqueued send", .. }), "{error}");
    buffer.with_host_mut(line(4).whole(), |_| ())?;
    for operation in [first, second] {
        refused(operation.test(), "EnqueuedOperation::test", "has not been started");
    }
    Ok(())
}
