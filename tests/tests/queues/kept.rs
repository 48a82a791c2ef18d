//! What a queue of operations keeps: nothing of those that the host has waited for.

use streamhalo::comm::device::{Buffer, Extents};
use streamhalo::comm::queue::OperationQueue;
use streamhalo::comm::{Communicator, Error};
use streamhalo_tests::{KINDS, on_ranks, stream_of};

#[test]
fn operations_that_the_host_has_waited_for_are_not_kept() {
    for kind in KINDS {
        on_ranks(1, |world| {
            let (stream, communicator) = (stream_of(world, kind)?, Communicator::new(world)?);
            let line = |elements| Extents { points: [1, 1, elements], components: 1 };
            let cells = Buffer::<u8>::zeros(world, &stream, line(9))?;
            let queue = OperationQueue::new(&stream, &communicator)?;
            let operations = |bytes: usize| -> Result<_, Error> {
                let receive = queue.enqueue_recv(&cells.section(0..3)?, 0, 1)?;
                let send = queue.enqueue_send(&cells.section(3..3 + bytes)?, 0, 1)?;
                queue.enqueue_start().map(|()| [receive, send])
            };
            let kept = |started| {
                let expected = format!("OperationQueue(0 enqueued, {started} started, ");
                assert!(format!("{queue:?}").starts_with(&expected), "{queue:?}, not {expected}");
            };
            for _ in 0..3 {
                operations(3)?.iter().try_for_each(|one| one.wait().map(|_| ()))?;
                kept(2);
            }
            // One that nobody has waited for is kept, and so is one that has failed: the stream does as well.
            let [receive, send] = operations(3)?;
            receive.wait()?;
            let [short, long] = operations(4)?;
            kept(3);
            send.wait()?;
            long.wait()?;
            let truncated = Error::Truncated { sender: 0, tag: 1, message_bytes: 4, room_bytes: 3 };
            assert_eq!(short.wait(), Err(truncated.clone()));
            queue.enqueue_start()?;
            kept(1);
            queue.enqueue_wait()?;
            assert_eq!(queue.wait(), Err(truncated));
            Ok(())
        });
    }
}
