//! Matched requests that a rank lets go of.

use super::said;
use crate::stream_of;
use std::time::Duration;
use streamhalo::comm::device::{Buffer, Extents};
use streamhalo::comm::queue::{Queue, match_one};
use streamhalo::comm::{Communicator, Error};
use streamhalo::{HaloError, StreamKind, World};

/// The last rank drops a matched request while an epoch of it is still on its stream, which that carries out; it may have
/// started the next one, which may come or not. Then rank 0's stream waits for one more, and fails, and with it the world.
///
/// # Errors
/// Those of calls that must succeed.
///
/// # Panics
/// If the stream says otherwise.
pub fn requested(
    world: &World,
    kind: StreamKind,
    is_sender: bool,
    is_started: bool,
) -> Result<(), HaloError> {
    let (rank, leaver) = (world.rank(), world.size() - 1);
    let stream = stream_of(world, kind)?;
    let communicator = Communicator::new(world)?;
    if rank != 0 && rank != leaver {
        return Ok(());
    }
    let queue = Queue::new(&stream);
    let line = Extents { points: [1, 1, 4], components: 1 };
    let mut buffer = Buffer::<i32>::zeros(world, &stream, line)?;
    buffer.with_host_mut(line.whole(), |mut all| all.fill(1 + rank as i32))?;
    let section = buffer.section(0..4)?;
    let sends = (rank == leaver) == is_sender;
    let mut request = match sends {
        true => communicator.send_init(&section, leaver - rank, 1)?,
        false => communicator.recv_init(&section, leaver - rank, 1)?,
    };
    match_one(&mut request)?;
    if rank == leaver {
        stream.enqueue_host("being late", || {
            std::thread::sleep(Duration::from_millis(50));
            Ok(())
        });
    }
    queue.enqueue_start(&mut request)?;
    queue.enqueue_wait(&mut request)?;
    let sender = if is_sender { leaver } else { 0 };
    if rank == leaver {
        if is_started {
            queue.enqueue_start(&mut request)?;
        }
        drop(request);
        // It may see the failure of the other, which comes behind what it waits for.
        let ended = stream.synchronize();
        assert!(matches!(ended, Ok(()) | Err(Error::PeerFailed { rank: 0, .. })), "{ended:?}");
        if !is_started {
            assert_eq!(buffer.copy_out(line.whole())?, [1 + sender as i32; 4]);
        }
        return Ok(());
    }
    queue.wait()?;
    assert_eq!(buffer.copy_out(line.whole())?, [1 + sender as i32; 4]);
    let mut one_more = || {
        queue.enqueue_start(&mut request)?;
        queue.enqueue_wait(&mut request)?;
        queue.wait()
    };
    let mut ended = one_more();
    let has_come = ended.is_ok() && is_started;
    if has_come {
        ended = one_more();
    }
    let epoch = format!("of epoch {}", if has_come { 3 } else { 2 });
    assert!(
        matches!(&ended, Err(Error::PeerFailed { operation, .. }) if operation.contains(&epoch)),
        "{ended:?}"
    );
    said(leaver, ended);
    Ok(())
}
