//! What a pair takes: recorded stores to peers' memory.

use streamhalo::comm::Communicator;
use streamhalo::comm::device::{Buffer, Extents};
use streamhalo::comm::fabric::{Event, Role};
use streamhalo::comm::queue::{Queue, match_all};
use streamhalo::{HaloError, World};
use streamhalo_tests::{KINDS, expect_all, stream_of, watchdog};

const EPOCHS: usize = 5;

/// What each rank did to the other one's memory in some epochs of two messages either way.
fn recorded(ready: bool) -> Vec<Vec<Event>> {
    let results = World::recorded_threads(2, watchdog(), |world, recording| -> Result<_, HaloError> {
        let (stream, communicator) = (stream_of(&world, KINDS[0])?, Communicator::new(&world)?);
        let queue = Queue::new(&stream);
        let extents = Extents { points: [1, 1, 10], components: 1 };
        let out = Buffer::<u8>::zeros(&world, &stream, extents)?;
        let arrived = Buffer::<u8>::zeros(&world, &stream, extents)?;
        let peer = 1 - world.rank();
        let mut requests = Vec::new();
        for (tag, range) in [(0, 0..3), (1, 3..10)] {
            requests.push(communicator.recv_init(&arrived.section(range.clone())?, peer, tag)?);
            let send = if ready { Communicator::rsend_init } else { Communicator::send_init };
            requests.push(send(&communicator, &out.section(range)?, peer, tag)?);
        }
        match_all(&mut requests)?;
        requests.sort_by_key(|request| format!("{request:?}").contains("Send"));
        queue.wait()?;
        world.barrier()?;
        recording.take();
        for _ in 0..EPOCHS {
            queue.enqueue_start_all(&mut requests[..2])?;
            world.barrier()?;
            queue.enqueue_start_all(&mut requests[2..])?;
            queue.enqueue_wait_all(&mut requests)?;
        }
        queue.wait()?;
        Ok(recording.take())
    });
    expect_all(results.expect("threads can be started"))
}

#[test]
fn a_pair_takes_a_clear_to_send_a_payload_and_a_completion() {
    // A ready send looks at the same word once, and never waits for it.
    for ready in [false, true] {
        for (rank, events) in recorded(ready).into_iter().enumerate() {
            let event = |role, bytes| Event { role, from: rank, to: 1 - rank, bytes };
            let count = |wanted: Event| events.iter().filter(|event| **event == wanted).count();
            assert_eq!(count(event(Role::ClearToSend, 0)), 2 * EPOCHS, "{events:?}");
            assert_eq!(count(event(Role::Completion, 0)), 2 * EPOCHS);
            assert_eq!((count(event(Role::Payload, 3)), count(event(Role::Payload, 7))), (EPOCHS, EPOCHS));
            assert_eq!(events.len(), 6 * EPOCHS, "nothing else: {events:?}");
        }
    }
}
