//! `queue`: persistent requests that a stream starts and waits for (2026, tables I to III).

use super::payload::{Messages, Payload};
use super::{Link, WINDOW};
use streamhalo::comm::queue::{Queue, match_all};
use streamhalo::comm::{Communicator, PersistentRequest};
use streamhalo::{HaloError, Stream, World};

pub(super) fn link(
    world: &World,
    stream: &Stream,
    [bytes, places]: [usize; 2],
) -> Result<Option<Box<dyn Link>>, HaloError> {
    let communicator = Communicator::new(world)?;
    let queue = Queue::new(stream);
    let payload = Messages::new(world, stream, bytes, places)?;
    let (from, into, peer) = (payload.sent()?, payload.places()?, 1 - world.rank());
    let (mut sends, mut recvs) = (Vec::new(), Vec::new());
    for (into, tag) in into.iter().zip(0..) {
        recvs.push(communicator.recv_init(into, peer, tag)?);
        sends.push(communicator.send_init(&from, peer, tag)?);
    }
    // Receives and sends are matched together, or both ranks would wait for each other's other half.
    recvs.append(&mut sends);
    match_all(&mut recvs)?;
    let sends = recvs.split_off(into.len());
    Ok(Some(Box::new(Queued { queue, payload, sends, recvs, _communicator: communicator })))
}

struct Queued {
    queue: Queue,
    payload: Messages,
    sends: Vec<PersistentRequest>,
    recvs: Vec<PersistentRequest>,
    _communicator: Communicator,
}

impl Queued {
    /// How often all requests are started for a window.
    fn rounds(&self) -> usize {
        WINDOW.div_ceil(self.sends.len())
    }
}

impl Link for Queued {
    fn start(&mut self) -> Result<(), HaloError> {
        Ok(self.queue.enqueue_start(&mut self.sends[0])?)
    }

    fn finish(&mut self) -> Result<(), HaloError> {
        Ok(self.queue.enqueue_wait(&mut self.sends[0])?)
    }

    fn recv(&mut self) -> Result<(), HaloError> {
        self.queue.enqueue_start(&mut self.recvs[0])?;
        Ok(self.queue.enqueue_wait(&mut self.recvs[0])?)
    }

    fn send_window(&mut self) -> Result<(), HaloError> {
        for _ in 0..self.rounds() {
            self.queue.enqueue_start_all(&mut self.sends)?;
            self.queue.enqueue_wait_all(&mut self.sends)?;
        }
        Ok(())
    }

    fn recv_window(&mut self) -> Result<(), HaloError> {
        for _ in 0..self.rounds() {
            self.queue.enqueue_start_all(&mut self.recvs)?;
            self.queue.enqueue_wait_all(&mut self.recvs)?;
        }
        Ok(())
    }

    fn swap_windows(&mut self) -> Result<(), HaloError> {
        for _ in 0..self.rounds() {
            self.queue.enqueue_start_all(&mut self.recvs)?;
            self.queue.enqueue_start_all(&mut self.sends)?;
            self.queue.enqueue_wait_all(&mut self.sends)?;
            self.queue.enqueue_wait_all(&mut self.recvs)?;
        }
        Ok(())
    }

    fn synchronize(&mut self) -> Result<(), HaloError> {
        Ok(self.queue.wait()?)
    }

    fn payload(&mut self) -> &mut dyn Payload {
        &mut self.payload
    }

    fn executor(&self) -> String {
        self.sends[0].route().map_or("none".to_owned(), |route| route.executor.to_string())
    }
}
