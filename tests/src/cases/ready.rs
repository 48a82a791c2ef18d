//! Ready sends on queues that come before their receive has been started: over wires, where the sender is not told.

use super::Done;
use super::queues::{Payload, element};
use crate::{Scenario, stream_of};
use std::sync::mpsc;
use std::time::{Duration, Instant};
use streamhalo::comm::queue::{Queue, match_all, match_one};
use streamhalo::comm::{Communicator, Error, PersistentRequest};
use streamhalo::{HaloError, StreamKind, World};

const TAG: u32 = 3;
/// How long a payload may take to come.
const PATIENCE: Duration = Duration::from_secs(10);

/// From rank 0 to the last one, first as it should be. Over libfabric what came too soon is found when its receive is
/// started; an MPI library has it wait until then. Over mapped memory the sender's stream fails, which ends the job and
/// is tried elsewhere.
pub fn too_early(world: &World, way: Scenario, elements: usize) -> Result<Done, HaloError> {
    let (rank, last) = (world.rank(), world.size() - 1);
    let stream = stream_of(world, way.kind)?;
    let communicator = Communicator::new(world)?;
    let mut payload = Payload::new(world, &stream, elements)?;
    let section = payload.section()?;
    let mut requests = Vec::new();
    if last > 0 && rank == 0 {
        requests.push(communicator.rsend_init(&section, last, TAG)?);
    } else if last > 0 && rank == last {
        requests.push(communicator.recv_init(&section, 0, TAG)?);
    }
    match_all(&mut requests)?;
    let queue = Queue::new(&stream);
    let path = requests.first().and_then(PersistentRequest::route).map_or("", |route| route.path);
    // Said by those who know; the others have nothing to do but to come.
    let path = world.all_gather(&path.to_owned())?.swap_remove(0);
    if !["MPI message", "triggered write", "write with data"].contains(&&*path) {
        return Ok(Done::default());
    }
    let run = |queue: &Queue, requests: &mut [PersistentRequest]| -> Result<(), Error> {
        queue.enqueue_start_all(requests)?;
        queue.enqueue_wait_all(requests)?;
        queue.wait()
    };
    // As it should be: the receive starts, and is then waited for.
    if rank == last {
        queue.enqueue_start_all(&mut requests)?;
        stream.synchronize()?;
    }
    world.barrier()?;
    if rank == 0 {
        payload.fill(0, 1, 1)?;
        run(&queue, &mut requests)?;
    } else if rank == last {
        queue.enqueue_wait_all(&mut requests)?;
        queue.wait()?;
        assert_eq!(payload.read()?, of_epoch(1, elements));
    }
    world.barrier()?;
    // And too soon.
    if rank == 0 {
        payload.fill(0, 1, 2)?;
        queue.enqueue_start_all(&mut requests)?;
    }
    world.barrier()?;
    if rank == 0 {
        queue.enqueue_wait_all(&mut requests)?;
        queue.wait()?;
    } else if rank == last && path == "MPI message" {
        assert_eq!(
            payload.read()?,
            of_epoch(1, elements),
            "nothing comes before the receive has been started"
        );
        run(&queue, &mut requests)?;
        assert_eq!(payload.read()?, of_epoch(2, elements));
    } else if rank == last {
        let since = Instant::now();
        // What is for a device waits on the host for a start, where nobody is shown it.
        while stream.is_on_host() && payload.read()? != of_epoch(2, elements) {
            assert!(since.elapsed() < PATIENCE, "what was sent does not come");
            std::thread::sleep(Duration::from_millis(1));
        }
        // What says that it has come is behind it.
        std::thread::sleep(Duration::from_millis(200));
        for _ in 0..2 {
            match queue.enqueue_start_all(&mut requests) {
                Err(Error::ReceiverNotReady { rank, peer, tag }) => {
                    assert_eq!((rank, peer, tag), (0, last, TAG))
                }
                other => panic!("a ready send came before its receive, and nobody says so: {other:?}"),
            }
        }
        stream.synchronize()?;
        assert_eq!(payload.read()?.len(), elements, "a start that is refused lends nothing");
    }
    world.barrier()?;
    Ok(Done::default())
}

/// The same over libfabric while the stream has still to come to the start of the receive, which the host has enqueued in
/// time: the stream fails, and with it the world.
///
/// # Errors
/// Those of calls that must succeed.
///
/// # Panics
/// If the stream says otherwise.
pub fn too_early_for_the_stream(world: &World, kind: StreamKind) -> Result<(), HaloError> {
    let is_receiver = world.rank() == 1;
    let stream = stream_of(world, kind)?;
    let communicator = Communicator::new(world)?;
    let mut payload = Payload::new(world, &stream, 3)?;
    let section = payload.section()?;
    let mut request = match is_receiver {
        true => communicator.recv_init(&section, 0, TAG)?,
        false => communicator.rsend_init(&section, 1, TAG)?,
    };
    match_one(&mut request)?;
    let queue = Queue::new(&stream);
    for epoch in 1..=2 {
        let (go_on, may_go_on) = mpsc::channel();
        if is_receiver {
            stream.enqueue_host("being late", move || may_go_on.recv().map_err(|error| error.to_string()));
            queue.enqueue_start(&mut request)?;
            if epoch == 1 {
                go_on.send(()).expect("the stream waits for it");
                stream.synchronize()?;
            }
        }
        // As it should be, and then too soon.
        world.barrier()?;
        if !is_receiver {
            payload.fill(0, 1, epoch)?;
            queue.enqueue_start(&mut request)?;
            queue.enqueue_wait(&mut request)?;
            queue.wait()?;
        }
        world.barrier()?;
        if is_receiver {
            if epoch == 2 {
                // It has left the sender, and takes as long as the network does.
                std::thread::sleep(Duration::from_secs(1));
                go_on.send(()).expect("the stream waits for it");
            }
            queue.enqueue_wait(&mut request)?;
            match (epoch, queue.wait()) {
                (1, Ok(())) => assert_eq!(payload.read()?, of_epoch(1, 3)),
                (2, Err(Error::ReceiverNotReady { rank: 0, peer: 1, tag: TAG })) => {}
                (_, other) => panic!("epoch {epoch} ends with {other:?}"),
            }
        }
    }
    Ok(())
}

fn of_epoch(epoch: usize, elements: usize) -> Vec<i64> {
    (0..elements).map(|index| element(0, 1, epoch, index)).collect()
}
