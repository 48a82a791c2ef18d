//! Windows and queues of a device where the cases of the host do not look: what nobody accesses stays, parts are read
//! and written between epochs, and misuse has the errors of the host.

use streamhalo::comm::device::Buffer;
use streamhalo::comm::queue::{OperationQueue, Queue, match_all, match_one};
use streamhalo::comm::window::{ActiveOptions, Group, Mode, Window};
use streamhalo::comm::{Communicator, Error, Source, Tag};
use streamhalo::{HaloError, Op, RowsMut, Stream, StreamKind, World};
use streamhalo_tests::cases::active::row;
use streamhalo_tests::{in_both_memories, on_ranks, other_device, stream_of};

/// On ranks with a stream of the device, wherever its arrays are.
fn on_devices(ranks: usize, test: impl Fn(&World, &Stream) -> Result<(), HaloError> + Sync) {
    if other_device().is_none() {
        return;
    }
    in_both_memories(|| {
        on_ranks(ranks, |world| test(world, &stream_of(world, StreamKind::Device)?));
    });
}

/// Elements that count from `first`.
fn counting(world: &World, stream: &Stream, elements: usize, first: i32) -> Result<Buffer<i32>, HaloError> {
    let mut buffer = Buffer::zeros(world, stream, row(elements))?;
    buffer.with_host_mut(row(elements).whole(), |mut all| {
        all.iter_mut().zip(first..).for_each(|(to, from)| *to = from);
    })?;
    Ok(buffer)
}

fn all(buffer: &Buffer<i32>) -> Result<Vec<i32>, HaloError> {
    Ok(buffer.copy_out(buffer.extents().whole())?)
}

/// Enqueues adding one to every element.
fn add_one(stream: &Stream, buffer: &mut Buffer<i32>) -> Result<(), HaloError> {
    let whole = buffer.extents().whole();
    let add = |_, (mut out,): (RowsMut<'_, i32>,)| out.row(0, 0).iter_mut().for_each(|value| *value += 1);
    Ok(stream.launch_on_host("add one", whole, (buffer.writer(whole)?,), add)?)
}

/// A part that is exposed is the source of a put, and gets what a get brings.
#[test]
fn sections_within_the_part_that_is_exposed() {
    on_devices(1, |world, stream| {
        for mode in [Mode::Host, Mode::Stream] {
            let part = counting(world, stream, 10, 10)?;
            let window = Window::active(world, &part.section(1..9)?, ActiveOptions::default())?;
            let alone = Group::new(world, &[0])?;
            match mode {
                Mode::Host => window.post(&alone)?,
                Mode::Stream => window.post_stream(&alone, stream)?,
            }
            window.start(&alone, mode)?;
            // Offsets count from the beginning of the part, sections from that of the buffer.
            window.get(&part.section(1..3)?, 0, 4)?;
            window.put(&part.section(3..5)?, 0, 6)?;
            match mode {
                Mode::Host => window.complete().and_then(|()| window.wait())?,
                Mode::Stream => window.complete_stream(stream).and_then(|()| window.wait_stream(stream))?,
            }
            assert_eq!(all(&part)?, [10, 15, 16, 13, 14, 15, 16, 13, 14, 19], "{mode:?}");
        }
        Ok(())
    });
}

/// Between epochs the part is the device's, and the host reads and writes it there.
#[test]
fn parts_between_epochs() {
    on_devices(2, |world, stream| {
        let mut part = counting(world, stream, 4, 0)?;
        let source = counting(world, stream, 1, 70 + world.rank() as i32)?;
        let window = Window::active(world, &part.section(0..4)?, ActiveOptions::default())?;
        let peer = Group::new(world, &[1 - world.rank()])?;
        for epoch in 0..3 {
            add_one(stream, &mut part)?;
            window.post_stream(&peer, stream)?;
            window.start(&peer, Mode::Stream)?;
            window.put(&source.section(0..1)?, 1 - world.rank(), 3)?;
            window.complete_stream(stream)?;
            window.wait_stream(stream)?;
            add_one(stream, &mut part)?;
            let mut found = [0; 4];
            window.read(0, &mut found)?;
            let put = 72 - world.rank() as i32;
            let before = if epoch == 0 { [2, 3, 4, put] } else { [4, 5, 52, put] };
            assert_eq!(found, before, "epoch {epoch}");
            window.write(0, &[2, 3, 50])?;
            assert_eq!(all(&part)?, [2, 3, 50, put]);
        }
        Ok(())
    });
}

/// What a section holds is in the window while that is there, with what peers have made of it, and in the section
/// afterwards.
#[test]
fn notified_accesses_go_to_the_device_with_the_window() {
    on_devices(2, |world, stream| {
        let (rank, peer) = (world.rank(), 1 - world.rank());
        let mut part = counting(world, stream, 6, 10 * rank as i32)?;
        let window = Window::over(world, &part.section(1..6)?)?;
        let refused = part.writer(row(6).whole()).map(|_| ());
        assert!(matches!(refused, Err(Error::InUse { by: "a window", .. })), "{refused:?}");
        let mut got = [0; 2];
        window.get_notify(&mut got, peer, 3, 1)?;
        assert_eq!(got, [10 * peer as i32 + 4, 10 * peer as i32 + 5]);
        let mut request = window.notify_init(Source::Rank(peer), Tag::Any, 3)?;
        window.put_notify(&[-7], peer, 0, 2)?;
        window.accumulate_notify(&[100, 100], peer, 1, Op::Sum, 3)?;
        request.start()?;
        drop(window);
        // What the request takes goes to the device as well.
        request.wait()?;
        world.barrier()?;
        let refused = part.writer(row(6).whole()).map(|_| ());
        assert!(matches!(refused, Err(Error::InUse { by: "a window", .. })), "{refused:?}");
        request.free();
        add_one(stream, &mut part)?;
        let own = 10 * rank as i32;
        assert_eq!(all(&part)?, [own + 1, -6, own + 103, own + 104, own + 5, own + 6]);
        Ok(())
    });
}

/// How often the host waits for the stream in a call that must succeed.
fn waits<T>(stream: &Stream, call: impl FnOnce() -> Result<T, Error>) -> Result<(T, u64), Error> {
    let before = stream.synchronizations();
    Ok((call()?, stream.synchronizations() - before))
}

/// Whoever sends the section next would have it of before.
#[test]
fn what_is_on_its_way_to_the_device_is_waited_for() {
    on_devices(1, |world, stream| {
        let communicator = Communicator::new(world)?;
        let part = counting(world, stream, 4, 0)?;
        let section = part.section(0..4)?;
        let sent = || -> Result<_, Error> {
            let (mut send, waits) = waits(stream, || communicator.isend(&section, 0, 1))?;
            let mut found = [0; 4];
            communicator.recv(&mut found, 0, 1)?;
            send.wait()?;
            Ok((found, waits))
        };
        stream.synchronize()?;
        let window = Window::over(world, &section)?;
        window.put_notify(&[7], 0, 1, 1)?;
        window.notify_init(Source::Any, Tag::Any, 1).and_then(|mut one| one.start().and(one.wait()))?;
        drop(window);
        assert_eq!(sent()?, ([0, 7, 2, 3], 1));

        let out = counting(world, stream, 2, 50)?;
        let operations = OperationQueue::new(stream, &communicator)?;
        let receive = operations.enqueue_recv(&section, 0, 2)?;
        operations.enqueue_send(&out.section(0..2)?, 0, 2)?;
        operations.enqueue_start()?;
        receive.wait()?;
        assert_eq!(sent()?, ([50, 51, 2, 3], 1));
        assert_eq!(sent()?, ([50, 51, 2, 3], 0));
        Ok(operations.enqueue_wait()?)
    });
}

/// It is read and written behind the copy that peers are to access, which is on the stream, and before they do.
#[test]
fn a_part_that_a_stream_exposes_is_that_of_the_device() {
    on_devices(1, |world, stream| {
        let part = counting(world, stream, 4, 0)?;
        let window = Window::active(world, &part.section(0..4)?, ActiveOptions::default())?;
        let alone = Group::new(world, &[0])?;
        stream.synchronize()?;
        window.post_stream(&alone, stream)?;
        let mut found = [0; 4];
        assert_eq!(waits(stream, || window.read(0, &mut found))?.1, 1);
        assert_eq!(found, [0, 1, 2, 3]);
        window.write(1, &[70])?;
        window.start(&alone, Mode::Stream)?;
        window.complete_stream(stream)?;
        window.wait_stream(stream)?;
        assert_eq!(all(&part)?, [0, 70, 2, 3]);
        Ok(())
    });
}

/// What is behind a message that is shorter than its section stays.
#[test]
fn messages_that_are_shorter_than_their_receives() {
    on_devices(2, |world, stream| {
        let (rank, peer) = (world.rank(), 1 - world.rank());
        let communicator = Communicator::new(world)?;
        let mut out = counting(world, stream, 3, 100 * rank as i32)?;
        let mut arrived = counting(world, stream, 5, 50)?;
        let queue = Queue::new(stream);
        let mut requests = [
            communicator.recv_init(&arrived.section(0..5)?, peer, 1)?,
            communicator.send_init(&out.section(0..3)?, peer, 1)?,
        ];
        match_all(&mut requests)?;
        let sent = |more: i32| (0..3).map(move |index| 100 * peer as i32 + index + more);
        let expected = |more, tail: i32| sent(more).chain([53 + tail, 54 + tail]).collect::<Vec<_>>();
        for epoch in 1..=3 {
            // Kernels write both in every epoch; the host waits for nothing.
            add_one(stream, &mut out)?;
            add_one(stream, &mut arrived)?;
            queue.enqueue_start_all(&mut requests)?;
            let refused = out.writer(row(3).whole()).map(|_| ());
            assert!(matches!(refused, Err(Error::InUse { by: "a send on a queue", .. })), "{refused:?}");
            queue.enqueue_wait_all(&mut requests)?;
            assert_eq!(all(&arrived)?, expected(epoch, epoch));
        }
        let operations = OperationQueue::new(stream, &communicator)?;
        for epoch in 4..=6 {
            add_one(stream, &mut out)?;
            add_one(stream, &mut arrived)?;
            let receive = operations.enqueue_recv(&arrived.section(0..5)?, peer, 2)?;
            operations.enqueue_send(&out.section(0..3)?, peer, 2)?;
            operations.enqueue_start()?;
            if epoch == 5 {
                // The host learns of it first, and a kernel goes on with it.
                assert_eq!(receive.wait()?.bytes, 12);
                add_one(stream, &mut arrived)?;
                add_one(stream, &mut arrived)?;
                operations.enqueue_wait()?;
                assert_eq!(all(&arrived)?, expected(epoch + 2, epoch + 2));
                continue;
            }
            operations.enqueue_wait()?;
            let tail = if epoch == 6 { epoch + 2 } else { epoch };
            assert_eq!(all(&arrived)?, expected(epoch, tail));
        }
        Ok(())
    });
}

/// What a peer waits for goes out while the stream waits for what that peer does then.
#[test]
fn sends_go_out_while_enqueued_operations_are_waited_for() {
    on_devices(2, |world, stream| {
        let rank = world.rank();
        let communicator = Communicator::new(world)?;
        let part = counting(world, stream, 4, 10 * rank as i32)?;
        let [first, second] = [part.section(0..2)?, part.section(2..4)?];
        let mut request = match rank {
            0 => communicator.send_init(&first, 1, 1)?,
            _ => communicator.recv_init(&first, 0, 1)?,
        };
        match_one(&mut request)?;
        let (queue, operations) = (Queue::new(stream), OperationQueue::new(stream, &communicator)?);
        if rank == 0 {
            queue.enqueue_start(&mut request)?;
            operations.enqueue_recv(&second, 1, 2)?;
            operations.enqueue_start()?;
            operations.enqueue_wait()?;
            queue.enqueue_wait(&mut request)?;
        } else {
            // It is not ready as the stream of the sender comes to the start.
            std::thread::sleep(std::time::Duration::from_millis(100));
            queue.enqueue_start(&mut request)?;
            queue.enqueue_wait(&mut request)?;
            operations.enqueue_send(&first, 0, 2)?;
            operations.enqueue_start()?;
            operations.enqueue_wait()?;
        }
        assert_eq!(all(&part)?, [[0, 1, 0, 1], [0, 1, 12, 13]][rank]);
        Ok(())
    });
}

/// As on the host: a stream of the same device that is not the memory's does not order what is done with it.
#[test]
fn streams_that_the_memory_does_not_belong_to() {
    on_devices(1, |world, stream| {
        let other = stream_of(world, StreamKind::Device)?;
        let [mine, theirs] = [stream, &other].map(|stream| counting(world, stream, 4, 0));
        let (mine, theirs) = (mine?.section(0..4)?, theirs?.section(0..4)?);
        let wrong = |what| Err(Error::WrongStream { what, owner: other.id(), used: stream.id() });
        let window = Window::active(world, &theirs, ActiveOptions::default())?;
        let alone = Group::new(world, &[0])?;
        assert_eq!(window.post_stream(&alone, stream), wrong("memory of an epoch"));
        let window = Window::active(world, &mine, ActiveOptions::default())?;
        window.post_stream(&alone, stream)?;
        window.start(&alone, Mode::Stream)?;
        window.put(&theirs, 0, 0)?;
        assert_eq!(window.complete_stream(stream), wrong("memory of an epoch"));
        // It is still open, and the stream of the section, which the part is not of, may carry it out.
        window.complete_stream(&other)?;
        window.wait_stream(stream)?;
        let communicator = Communicator::new(world)?;
        let operations = OperationQueue::new(stream, &communicator)?;
        let refused = operations.enqueue_send(&theirs, 0, 1).map(|_| ());
        assert_eq!(refused, wrong("the section of an operation"));
        let queue = Queue::new(stream);
        let mut requests = [communicator.recv_init(&mine, 0, 1)?, communicator.send_init(&theirs, 0, 1)?];
        match_all(&mut requests)?;
        assert_eq!(queue.enqueue_start(&mut requests[1]), wrong("the section of a request"));
        Ok(())
    });
}
