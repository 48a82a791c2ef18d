//! Ranks that fail, or let go of their communicator, while others wait for them.

use super::{SOON, buffer, tried, world_of};
use std::time::Duration;
use streamhalo::World;
use streamhalo::comm::queue::OperationQueue;
use streamhalo::comm::{Communicator, Error, Source, Tag};
use streamhalo_tests::watchdog;

/// Nobody hangs when a rank has failed, or has let go of its communicator.
#[test]
fn ranks_that_fail_and_ranks_that_leave() {
    let results = world_of(3, SOON, |world, communicator| match world.rank() {
        2 => Err(Error::System { call: "this test", reason: "told to".into() }),
        _ => communicator.recv(&mut [0.0], 2, 0).map(|_| ()),
    });
    for result in &results[..2] {
        let Err(Error::PeerFailed { rank: 2, operation }) = result else { panic!("{result:?}") };
        // Either is the reason, as its end is dropped on the way out.
        assert!(operation.contains("told to") || operation.contains("dropped its end"), "{operation}");
    }
    let results = world_of(2, SOON, |world, communicator| {
        if world.rank() == 1 {
            return communicator.send(&[1.0], 0, 3);
        }
        communicator.recv(&mut [0.0], 1, 3)?;
        let received = communicator.recv(&mut [0.0], 1, 3).map(|_| ());
        assert_eq!(communicator.send(&[1.0], 1, 3), received, "nobody would ever receive it");
        received
    });
    let Err(Error::PeerFailed { rank: 1, operation }) = &results[0] else { panic!("{results:?}") };
    assert!(operation.contains("dropped its end"), "{operation}");
    let requests = world_of(2, SOON, |world, communicator| {
        let (_stream, buffer) = buffer(world)?;
        if world.rank() == 1 {
            std::thread::sleep(Duration::from_millis(50));
            world.fail("this test ends it");
            return Ok(());
        }
        let mut request = communicator.irecv(&buffer.section(0..5)?, Source::Any, Tag::Any)?;
        while request.test()?.is_none() {}
        panic!("there is no message");
    });
    assert!(matches!(requests[0], Err(Error::PeerFailed { rank: 1, .. })), "{requests:?}");
}

/// It drops what it has before it can say why: its error is what others are told, not that. They listen for it for a
/// short time, which a busy machine may take from it, but not every time.
#[test]
fn who_waits_for_a_rank_that_fails_is_told_why() {
    let rank_main = |world: World| {
        let communicator = Communicator::new(&world)?;
        let (stream, buffer) = buffer(&world)?;
        let section = buffer.section(0..4)?;
        match world.rank() {
            0 => communicator.recv_section(&section, 2, 1).map(drop),
            1 => {
                let queue = OperationQueue::new(&stream, &communicator)?;
                queue.enqueue_recv(&section, 2, 1)?;
                queue.enqueue_start()?;
                queue.enqueue_wait()?;
                queue.wait()
            }
            _ => {
                drop(communicator);
                std::thread::sleep(Duration::from_millis(10));
                buffer.section(0..4001).map(drop)
            }
        }
    };
    let mut results = Vec::new();
    let is_told = (0..5).any(|_| {
        results = World::threads(3, watchdog(), rank_main).expect("threads can be started");
        results[..2].iter().all(|result| {
            let Err(Error::PeerFailed { rank: 2, operation }) = result else { panic!("{results:?}") };
            operation.contains("32008")
        })
    });
    assert!(is_told, "{results:?}");
}

/// Whoever takes a message of any rank, and waits for it before it is announced, depends on its sender alone from then on.
#[test]
fn a_sender_that_leaves_before_a_long_message_of_any_rank_is_taken_is_named() {
    let results = tried(3, |world, _| {
        let communicator = Communicator::new(world)?;
        let (_stream, buffer) = buffer(world)?;
        let section = buffer.section(0..4000)?;
        match world.rank() {
            0 => {
                let taken = communicator.irecv(&section, Source::Any, 1)?.wait();
                world.barrier()?;
                return Ok(Some(taken));
            }
            1 => {
                // So that rank 0 waits already. It need not: then it knows the sender from the start.
                std::thread::sleep(Duration::from_millis(50));
                drop(communicator.isend(&section, 0, 1)?);
                drop(communicator);
            }
            _ => {}
        }
        world.barrier()?;
        Ok(None)
    });
    let Some(Err(Error::PeerFailed { rank: 1, operation })) = &results[0] else { panic!("{results:?}") };
    assert_eq!(operation, "it has dropped its end of this communicator");
}
