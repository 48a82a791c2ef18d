//! Persistent requests on queues, and enqueued operations: payloads that are filled and checked by kernels, so
//! that no epoch waits for the host.

mod halo;
mod payload;

pub use halo::halo;
pub use payload::{Checks, Payload, SIZES, element};

use super::Done;
use crate::{Random, Scenario, delay, stream_of};
use streamhalo::comm::Communicator;
use streamhalo::comm::queue::{OperationQueue, Queue, imatch_all, match_all};
use streamhalo::{HaloError, StreamKind, World};

/// Two queues on streams of their own, which even and odd ranks use in opposite orders; one starts its sends
/// before its receives.
pub fn opposite_orders(world: &World, way: Scenario, elements: usize) -> Result<Done, HaloError> {
    let communicator = Communicator::new(world)?;
    let checks = Checks::default();
    let (rank, size) = (world.rank(), world.size());
    let (next, previous) = ((rank + 1) % size, (rank + size - 1) % size);
    let mut ends = Vec::new();
    for number in 0..2_usize {
        let stream = stream_of(world, way.kind)?;
        let (out, arrived) =
            (Payload::new(world, &stream, elements)?, Payload::new(world, &stream, elements)?);
        let mut requests = [
            communicator.send_init(&out.section()?, next, number as u32)?,
            communicator.recv_init(&arrived.section()?, previous, number as u32)?,
        ];
        match_all(&mut requests)?;
        ends.push((Queue::new(&stream), requests, out, arrived, number));
    }
    if rank % 2 == 1 {
        ends.reverse();
    }
    for epoch in 1..=6 {
        for (queue, requests, out, _, number) in &mut ends {
            out.fill(rank, *number, epoch)?;
            let [send, receive] = requests;
            queue.enqueue_start(send)?;
            queue.enqueue_start(receive)?;
        }
        for (queue, [send, receive], _, arrived, number) in &mut ends {
            queue.enqueue_wait(receive)?;
            queue.enqueue_wait(send)?;
            arrived.check(&checks, (previous, *number, epoch), elements)?;
        }
    }
    ends.iter().try_for_each(|(queue, ..)| queue.wait())?;
    Ok(checks.done(&(way, elements)))
}

/// Messages of every size between all pairs of ranks, one's own among them: several with one tag, which match in
/// the order of the calls, into receives that have room for more; of two communicators, begun in any order, and matched in
/// the background.
pub fn many_messages(world: &World, way: Scenario) -> Result<Done, HaloError> {
    let communicators = [Communicator::new(world)?, Communicator::new(world)?];
    let stream = stream_of(world, way.kind)?;
    let queue = Queue::new(&stream);
    let checks = Checks::default();
    let (rank, room) = (world.rank(), 2);
    let (mut sends, mut receives, mut matches) = (Vec::new(), Vec::new(), Vec::new());
    for peer in 0..world.size() {
        for (number, elements) in SIZES.into_iter().enumerate() {
            // Two tags, each used twice.
            let tag = (number / 2) as u32;
            let communicator = &communicators[number / 2 % 2];
            let (out, arrived) =
                (Payload::new(world, &stream, elements)?, Payload::new(world, &stream, elements + room)?);
            let mut pair = [
                communicator.send_init(&out.section()?, peer, tag)?,
                communicator.recv_init(&arrived.section()?, peer, tag)?,
            ];
            matches.push(imatch_all(&mut pair)?);
            let [send, receive] = pair;
            sends.push((send, out, number));
            receives.push((receive, arrived, peer, number, elements));
        }
    }
    matches.iter_mut().try_for_each(|one| one.wait())?;
    assert!(receives.iter().all(|(receive, ..)| receive.is_matched()));
    let mut random = Random::new(7 + rank as u64);
    for epoch in 1..=4 {
        let mut order: Vec<usize> = (0..2 * sends.len()).collect();
        while !order.is_empty() {
            let one = order.swap_remove(random.below(order.len()));
            if one < sends.len() {
                let (send, out, number) = &mut sends[one];
                out.fill(rank, *number, epoch)?;
                queue.enqueue_start(send)?;
            } else {
                queue.enqueue_start(&mut receives[one - sends.len()].0)?;
            }
        }
        delay(&stream, &mut random);
        for (receive, arrived, peer, number, elements) in &mut receives {
            queue.enqueue_wait(receive)?;
            arrived.check(&checks, (*peer, *number, epoch), *elements)?;
        }
        sends.iter_mut().try_for_each(|(send, ..)| queue.enqueue_wait(send))?;
    }
    queue.wait()?;
    Ok(checks.done(&way))
}

/// Requests that are dropped as soon as their wait is enqueued, alone and in a batch, and one that never ends.
pub fn freed_early(world: &World, way: Scenario) -> Result<Done, HaloError> {
    let communicator = Communicator::new(world)?;
    let stream = stream_of(world, way.kind)?;
    let queue = Queue::new(&stream);
    let checks = Checks::default();
    let (rank, size) = (world.rank(), world.size());
    let (next, previous) = ((rank + 1) % size, (rank + size - 1) % size);
    let (mut out, arrived) = (Payload::new(world, &stream, 300)?, Payload::new(world, &stream, 300)?);
    let matched = || -> Result<_, HaloError> {
        let send = communicator.send_init(&out.section()?, next, 1)?;
        let mut requests = [communicator.recv_init(&arrived.section()?, previous, 1)?, send];
        match_all(&mut requests)?;
        Ok(requests)
    };
    let [mut batch, mut alone, mut left] = [matched()?, matched()?, matched()?];
    out.fill(rank, 0, 1)?;
    queue.enqueue_start_all(&mut batch)?;
    queue.enqueue_wait_all(&mut batch)?;
    drop(batch);
    arrived.check(&checks, (previous, 0, 1), 300)?;
    out.fill(rank, 0, 2)?;
    alone.iter_mut().try_for_each(|request| queue.enqueue_start(request))?;
    alone.iter_mut().try_for_each(|request| queue.enqueue_wait(request))?;
    drop(alone);
    arrived.check(&checks, (previous, 0, 2), 300)?;
    queue.wait()?;
    // Nobody sends what is received, nor waits for it.
    queue.enqueue_start(&mut left[0])?;
    queue.wait()?;
    world.barrier()?;
    drop(left);
    assert!(arrived.buffer.reader(arrived.whole()).is_err(), "it may still be written");
    Ok(checks.done(&way))
}

/// Figure 7 of 2022: batches of sends whose payloads kernels write after they were enqueued, which meet a queue,
/// or ordinary receives, on the other side; and back from ordinary sends.
pub fn operations(world: &World, way: Scenario, elements: usize) -> Result<Done, HaloError> {
    let communicator = Communicator::new(world)?;
    let stream = stream_of(world, way.kind)?;
    let queue = OperationQueue::new(&stream, &communicator)?;
    let checks = Checks::default();
    let (rank, size) = (world.rank(), world.size());
    let (next, previous) = ((rank + 1) % size, (rank + size - 1) % size);
    let tags = [123, 126, 125, 124];
    let make = |_| Payload::new(world, &stream, elements);
    let mut outs = tags.iter().map(make).collect::<Result<Vec<_>, _>>()?;
    let arrived = tags.iter().map(make).collect::<Result<Vec<_>, _>>()?;
    for epoch in 1..=4 {
        // A queue on both sides.
        for ((out, arrived), tag) in outs.iter().zip(&arrived).zip(tags) {
            queue.enqueue_send(&out.section()?, next, tag)?;
            queue.enqueue_recv(&arrived.section()?, previous, tag)?;
        }
        for (number, out) in outs.iter_mut().enumerate() {
            out.fill(rank, number, epoch)?;
        }
        queue.enqueue_start()?;
        queue.enqueue_wait()?;
        for (number, arrived) in arrived.iter().enumerate() {
            arrived.check(&checks, (previous, number, epoch), elements)?;
        }
        queue.wait()?;
        // Ordinary receives meet a queue.
        let mut receives = Vec::new();
        for (arrived, tag) in arrived.iter().zip(tags) {
            receives.push(communicator.irecv(&arrived.section()?, previous, tag)?);
        }
        for (number, (out, tag)) in outs.iter_mut().zip(tags).enumerate() {
            queue.enqueue_send(&out.section()?, next, tag)?;
            out.fill(rank, number + 8, epoch)?;
        }
        queue.enqueue_start()?;
        for mut receive in receives {
            receive.wait()?;
        }
        queue.enqueue_wait()?;
        for (number, arrived) in arrived.iter().enumerate() {
            arrived.check(&checks, (previous, number + 8, epoch), elements)?;
        }
        queue.wait()?;
        // Ordinary sends, to a queue.
        let mut handles = Vec::new();
        for (arrived, tag) in arrived.iter().zip(tags) {
            handles.push(queue.enqueue_recv(&arrived.section()?, previous, tag)?);
        }
        queue.enqueue_start()?;
        for (number, out) in outs.iter_mut().enumerate() {
            out.fill(rank, number + 16, epoch)?;
        }
        stream.synchronize()?;
        let mut sends = Vec::new();
        for (out, tag) in outs.iter().zip(tags) {
            sends.push(communicator.isend(&out.section()?, next, tag)?);
        }
        for handle in &handles {
            assert_eq!(handle.wait()?.source, previous);
        }
        for mut send in sends {
            send.wait()?;
        }
        queue.enqueue_wait()?;
        for (number, arrived) in arrived.iter().enumerate() {
            arrived.check(&checks, (previous, number + 16, epoch), elements)?;
        }
        queue.wait()?;
    }
    Ok(checks.done(&(way, elements)))
}

/// A kernel, on a threaded stream or a device's, that writes the payload long after its send was started.
pub fn late_payload(world: &World, way: Scenario) -> Result<Done, HaloError> {
    let communicator = Communicator::new(world)?;
    let kind = if way.kind == StreamKind::Inline { StreamKind::Threaded } else { way.kind };
    let stream = stream_of(world, kind)?;
    let queue = OperationQueue::new(&stream, &communicator)?;
    let (rank, size) = (world.rank(), world.size());
    let (mut out, arrived) = (Payload::new(world, &stream, 9)?, Payload::new(world, &stream, 9)?);
    let checks = Checks::default();
    let receive = queue.enqueue_recv(&arrived.section()?, (rank + 1) % size, 1)?;
    let send = queue.enqueue_send(&out.section()?, (rank + size - 1) % size, 1)?;
    stream.enqueue_host("a long kernel", || {
        std::thread::sleep(std::time::Duration::from_millis(20));
        Ok(())
    });
    out.fill(rank, 1, 1)?;
    queue.enqueue_start()?;
    assert_eq!((receive.test()?, send.test()?), (None, None), "the stream is not there yet");
    queue.enqueue_wait()?;
    arrived.check(&checks, ((rank + 1) % size, 1, 1), 9)?;
    queue.wait()?;
    assert!(receive.test()?.is_some_and(|status| status.bytes == 72));
    Ok(checks.done(&"late"))
}
