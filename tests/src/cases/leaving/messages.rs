//! Communicators and windows of notified accesses that a rank lets go of, and ranks that go as soon as they have had all.

use super::{LONG, said};
use crate::cases::Done;
use crate::{Scenario, TIMEOUT, stream_of};
use std::time::Instant;
use streamhalo::comm::device::{Buffer, Extents};
use streamhalo::comm::queue::{OperationQueue, match_one};
use streamhalo::comm::window::{ActiveOptions, Group, Mode, Window};
use streamhalo::comm::{Communicator, Source, Tag};
use streamhalo::{HaloError, Op, World};

/// The last rank drops its communicator; the others receive what it has sent, and nothing else.
pub fn communicators(world: &World, way: Scenario) -> Result<Done, HaloError> {
    let (size, leaver) = (world.size(), world.size() - 1);
    let stream = stream_of(world, way.kind)?;
    let communicator = Communicator::new(world)?;
    let whole = Extents { points: [1, 1, LONG], components: 1 };
    if world.rank() == leaver {
        for peer in 0..leaver {
            communicator.send(&[7_i32, peer as i32], peer, 1)?;
            communicator.send(&vec![peer as f64; LONG], peer, 2)?;
        }
        // One that is announced to all, and that none has asked for when this rank goes.
        let announced = Buffer::<f64>::zeros(world, &stream, whole)?;
        for peer in 0..leaver {
            drop(communicator.isend(&announced.section(0..LONG)?, peer, 8)?);
        }
        drop(communicator);
        world.barrier()?;
        world.barrier()?;
        return Ok(Done::default());
    }
    let mut long = vec![0.0; LONG];
    communicator.recv(&mut long, leaver, 2)?;
    assert!(long.iter().all(|element| *element == world.rank() as f64));
    let mut receive = Buffer::<f64>::zeros(world, &stream, whole)?;
    said(leaver, communicator.irecv(&receive.section(0..LONG)?, leaver, 3)?.wait());
    world.barrier()?;
    // What this rank asks of it, it does not answer; nobody waits for that when the communicator goes.
    let mut asked = Buffer::<f64>::zeros(world, &stream, whole)?;
    said(leaver, communicator.irecv(&asked.section(0..LONG)?, leaver, 8)?.wait());
    // What came before it left is still there.
    let mut short = [0; 2];
    communicator.recv(&mut short, leaver, 1)?;
    assert_eq!(short, [7, world.rank() as i32]);
    said(leaver, communicator.recv(&mut short, leaver, 1));
    said(leaver, communicator.probe(leaver, Tag::Any));
    assert_eq!(communicator.iprobe(leaver, Tag::Any)?, None);
    // Nor do loops that ask again and again go on for ever.
    said(leaver, communicator.irecv(&receive.section(0..9)?, leaver, 5)?.test());
    said(leaver, communicator.send(&long, leaver, 4));
    // However short it is.
    let sent = Buffer::<f64>::zeros(world, &stream, whole)?;
    said(leaver, communicator.isend(&sent.section(0..2)?, leaver, 4)?.wait());
    let mut again = communicator.send_init(&sent.section(0..2)?, leaver, 4)?;
    again.start()?;
    said(leaver, again.wait());
    drop(again);
    if size == 2 {
        said(leaver, communicator.recv(&mut short, Source::Any, Tag::Any));
        said(leaver, communicator.probe(Source::Any, Tag::Any));
    }
    let mut request = communicator.recv_init(&receive.section(0..9)?, leaver, 5)?;
    said(leaver, match_one(&mut request));
    drop(request);
    assert_eq!(receive.view_mut(whole.whole())?.len(), LONG, "a request that has failed lends nothing");
    // The others still have each other.
    if let Some(other) = world.rank().checked_sub(1) {
        communicator.send(&[1_u8], other, 6)?;
    }
    if world.rank() + 1 < leaver {
        communicator.recv(&mut [0_u8], world.rank() + 1, 6)?;
    }
    let begun = Instant::now();
    drop(communicator);
    assert!(begun.elapsed() < TIMEOUT / 4, "it has waited {:?} for a rank that has left", begun.elapsed());
    if world.fabric().is_mapped(leaver) {
        assert_eq!(asked.view_mut(whole.whole())?.len(), LONG, "nobody writes it any more");
    }
    world.barrier()?;
    Ok(Done::default())
}

/// The last rank drops its communicator; the others have enqueued what it does not answer.
pub fn enqueued(world: &World, way: Scenario) -> Result<Done, HaloError> {
    let leaver = world.size() - 1;
    let stream = stream_of(world, way.kind)?;
    let communicator = Communicator::new(world)?;
    if world.rank() == leaver {
        drop(communicator);
    } else {
        let buffer = Buffer::<f64>::zeros(world, &stream, Extents { points: [1, 1, 9], components: 1 })?;
        let queue = OperationQueue::new(&stream, &communicator)?;
        let enqueued = queue.enqueue_recv(&buffer.section(0..9)?, leaver, 5)?;
        queue.enqueue_start()?;
        said(leaver, enqueued.wait());
    }
    world.barrier()?;
    Ok(Done::default())
}

/// The last rank drops its window of notified accesses.
pub fn windows(world: &World, way: Scenario) -> Result<Done, HaloError> {
    let leaver = world.size() - 1;
    let window = Window::allocate::<i32>(world, &stream_of(world, way.kind)?, 100)?;
    if world.rank() == leaver {
        (0..leaver).try_for_each(|peer| window.put_notify(&[3; 50], peer, 0, 3))?;
        drop(window);
        world.barrier()?;
        return Ok(Done::default());
    }
    let mut first = window.notify_init(Source::Rank(leaver), Tag::Any, 1)?;
    first.start()?;
    assert_eq!(first.wait()?.tag, 3);
    let mut come = [0; 50];
    window.read(0, &mut come)?;
    assert_eq!(come, [3; 50]);
    first.start()?;
    said(leaver, first.wait());
    said(leaver, window.put_notify(&[1], leaver, 0, 0));
    said(leaver, window.put_notify(&[1; 90], leaver, 0, 0));
    said(leaver, window.flush(leaver));
    said(leaver, window.fetch_and_op_notify(1, leaver, 0, Op::Sum, 0));
    if leaver == 1 {
        let mut any = window.notify_init(Source::Any, Tag::Any, 1)?;
        any.start()?;
        said(leaver, any.wait());
    }
    world.barrier()?;
    Ok(Done::default())
}

/// The last rank lets go as soon as it has had all that rank 0 has for it, which may not know yet that it is done.
pub fn at_once(world: &World, way: Scenario) -> Result<Done, HaloError> {
    let (rank, leaver) = (world.rank(), world.size() - 1);
    let whole = Extents { points: [1, 1, LONG], components: 1 };
    for round in 1..=6 {
        let stream = stream_of(world, way.kind)?;
        let mut buffer = Buffer::<f64>::zeros(world, &stream, whole)?;
        buffer.with_host_mut(whole.whole(), |mut all| all.fill(f64::from(round) * rank as f64))?;
        let section = buffer.section(0..LONG)?;
        let window = Window::active(world, &section, ActiveOptions::default())?;
        let communicator = Communicator::new(world)?;
        let peer = Group::new(world, &[if rank == 0 { leaver } else { 0 }])?;
        if leaver > 0 && rank == 0 {
            window.start(&peer, Mode::Host)?;
            window.put(&section, leaver, 0)?;
            window.complete()?;
            communicator.isend(&section, leaver, 1)?.wait()?;
        } else if leaver > 0 && rank == leaver {
            window.post(&peer)?;
            window.wait()?;
            drop(window);
            assert!(buffer.copy_out(whole.whole())?.iter().all(|element| *element == 0.0));
            communicator.irecv(&section, 0, 1)?.wait()?;
            drop(communicator);
        }
        world.barrier()?;
    }
    Ok(Done::default())
}
