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
    given_up(world, &communicator, &queue)?;
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

/// Sections that are in use are refused together, and one that another operation of the same start uses as it is enqueued.
fn sections_in_use(world: &World, queue: &OperationQueue) -> Result<(), HaloError> {
    let me = world.rank();
    let mut buffer = Buffer::<u8>::zeros(world, queue.stream(), line(4))?;
    let first = queue.enqueue_send(&buffer.section(0..2)?, me, 1)?;
    let in_use = |what, start, end, by| Error::InUse { what, start, end, by };
    let error = queue.enqueue_recv(&buffer.section(1..4)?, me, 1).unwrap_err();
    assert_eq!(error, in_use("an enqueued receive", 1, 4, "an enqueued send"));
    let second = queue.enqueue_recv(&buffer.section(2..4)?, me, 1)?;
    let error = queue.enqueue_send(&buffer.section(3..4)?, me, 2).unwrap_err();
    assert_eq!(error, in_use("an enqueued send", 3, 4, "an enqueued receive"));
    let error = queue.enqueue_recv(&buffer.section(3..4)?, me, 2).unwrap_err();
    assert_eq!(error, in_use("an enqueued receive", 3, 4, "an enqueued receive"));
    // Two sends may read the same.
    let also = queue.enqueue_send(&buffer.section(1..2)?, me, 2)?;
    let view = buffer.view_mut(line(4).whole());
    // Arrays of a device have none.
    if view.is_ok() {
        let error = queue.enqueue_start().unwrap_err();
        assert_eq!(error, in_use("an enqueued send", 0, 2, "a view of an array"));
    }
    drop(view);
    for operation in [&first, &second, &also] {
        refused(operation.test(), "EnqueuedOperation::test", "has not been started");
    }
    let other = Buffer::<u8>::zeros(world, queue.stream(), line(1))?;
    let third = queue.enqueue_recv(&other.section(0..1)?, me, 2)?;
    queue.enqueue_start()?;
    assert_eq!(
        [first, second, also, third].map(|one| one.wait().map(|status| status.bytes)),
        [2, 2, 1, 1].map(Ok)
    );
    queue.enqueue_wait()?;
    Ok(queue.wait()?)
}

/// A queue that is dropped gives up what it has not started, of which nobody hears.
fn given_up(world: &World, communicator: &Communicator, queue: &OperationQueue) -> Result<(), HaloError> {
    let me = world.rank();
    let mut buffer = Buffer::<u8>::zeros(world, queue.stream(), line(4))?;
    let of_queue = |queue: &OperationQueue, buffer: &Buffer<u8>| -> Result<_, HaloError> {
        let send = queue.enqueue_send(&buffer.section(0..2)?, me, 3)?;
        Ok([send, queue.enqueue_recv(&buffer.section(2..4)?, me, 3)?])
    };
    let gone = OperationQueue::new(queue.stream(), communicator)?;
    let given_up = of_queue(&gone, &buffer)?;
    drop(gone);
    for operation in &given_up {
        refused(operation.wait(), "EnqueuedOperation::wait", "has not been started");
    }
    buffer.with_host_mut(line(4).whole(), |mut all| {
        all.iter_mut().zip(1..).for_each(|(value, next)| *value = next);
    })?;
    queue.wait()?;
    assert_eq!(communicator.iprobe(me, 3)?, None, "nothing was sent");
    assert_eq!(buffer.copy_out(line(4).whole())?, [1, 2, 3, 4]);
    // Another queue's receive meets its own send, and none of before.
    let [send, receive] = of_queue(queue, &buffer)?;
    queue.enqueue_start()?;
    queue.enqueue_wait()?;
    queue.wait()?;
    assert_eq!((receive.wait()?.bytes, send.wait()?.bytes), (2, 2));
    assert_eq!(buffer.copy_out(line(4).whole())?, [1, 2, 1, 2]);
    Ok(())
}
