//! `queue`: persistent requests that a stream starts and waits for (2026, tables I to III).

use super::{Link, WINDOW, fill, line, places};
use streamhalo::comm::device::Buffer;
use streamhalo::comm::queue::{Queue, match_all};
use streamhalo::comm::{Communicator, PersistentRequest};
use streamhalo::{HaloError, Stream, World};

pub(super) fn link(world: &World, stream: &Stream, bytes: usize) -> Result<Option<Box<dyn Link>>, HaloError> {
    let communicator = Communicator::new(world)?;
    let queue = Queue::new(stream, &communicator)?;
    let places = places(bytes);
    let (own, theirs) = (line(world, stream, bytes)?, line(world, stream, places * bytes)?);
    let peer = 1 - world.rank();
    let (mut sends, mut recvs) = (Vec::new(), Vec::new());
    for place in 0..places {
        let tag = place as u32;
        recvs.push(communicator.recv_init(
            &theirs.section(place * bytes..(place + 1) * bytes)?,
            peer,
            tag,
        )?);
        sends.push(communicator.send_init(&own.section(0..bytes)?, peer, tag)?);
    }
    // Receives and sends are matched together, or both ranks would wait for each other's other half.
    recvs.append(&mut sends);
    match_all(&mut recvs)?;
    let sends = recvs.split_off(places);
    Ok(Some(Box::new(Queued { queue, own, theirs, sends, recvs, _communicator: communicator })))
}

struct Queued {
    queue: Queue,
    own: Buffer<u8>,
    theirs: Buffer<u8>,
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

    fn fill(&mut self, bytes: &[u8]) -> Result<(), HaloError> {
        fill(&mut self.own, bytes)
    }

    fn received(&mut self) -> Result<Vec<u8>, HaloError> {
        Ok(self.theirs.copy_out(self.theirs.extents().whole())?)
    }

    fn executor(&self) -> String {
        self.sends[0].route().map_or("none".to_owned(), |route| route.executor.to_string())
    }
}
