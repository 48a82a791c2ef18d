//! `enqueued`: sends and receives that are matched each time, in batches that a stream starts and waits for (2022,
//! section III).

use super::{Link, WINDOW, fill, line, places};
use streamhalo::comm::device::{Buffer, Section};
use streamhalo::comm::fabric::Executor;
use streamhalo::comm::queue::OperationQueue;
use streamhalo::comm::{Communicator, PRIMITIVES};
use streamhalo::{HaloError, Stream, World};

pub(super) fn link(world: &World, stream: &Stream, bytes: usize) -> Result<Option<Box<dyn Link>>, HaloError> {
    let communicator = Communicator::new(world)?;
    let queue = OperationQueue::new(stream, &communicator)?;
    let places = places(bytes);
    let (own, theirs) = (line(world, stream, bytes)?, line(world, stream, places * bytes)?);
    let sections = (0..places).map(|place| theirs.section(place * bytes..(place + 1) * bytes));
    let (from, into) = (own.section(0..bytes)?, sections.collect::<Result<Vec<_>, _>>()?);
    let row = PRIMITIVES.iter().find(|row| row.name == "enqueued-messages");
    let executor = row.expect("it is a primitive").executor(world.fabric().executor());
    let peer = 1 - world.rank();
    Ok(Some(Box::new(Enqueued {
        queue,
        own,
        theirs,
        from,
        into,
        peer,
        executor,
        _communicator: communicator,
    })))
}

struct Enqueued {
    queue: OperationQueue,
    own: Buffer<u8>,
    theirs: Buffer<u8>,
    from: Section,
    into: Vec<Section>,
    peer: usize,
    executor: Executor,
    _communicator: Communicator,
}

const TAG: u32 = 7;

impl Enqueued {
    /// Starts as many messages as there are places, and waits for them; as often as a window takes.
    fn window(&self, enqueue: impl Fn(&Section) -> Result<(), HaloError>) -> Result<(), HaloError> {
        for _ in 0..WINDOW.div_ceil(self.into.len()) {
            self.into.iter().try_for_each(&enqueue)?;
            self.queue.enqueue_start()?;
            self.queue.enqueue_wait()?;
        }
        Ok(())
    }

    fn enqueue_send(&self) -> Result<(), HaloError> {
        self.queue.enqueue_send(&self.from, self.peer, TAG)?;
        Ok(())
    }

    fn enqueue_recv(&self, into: &Section) -> Result<(), HaloError> {
        self.queue.enqueue_recv(into, self.peer, TAG)?;
        Ok(())
    }
}

impl Link for Enqueued {
    fn start(&mut self) -> Result<(), HaloError> {
        self.enqueue_send()?;
        Ok(self.queue.enqueue_start()?)
    }

    fn finish(&mut self) -> Result<(), HaloError> {
        Ok(self.queue.enqueue_wait()?)
    }

    fn recv(&mut self) -> Result<(), HaloError> {
        self.enqueue_recv(&self.into[0])?;
        self.queue.enqueue_start()?;
        Ok(self.queue.enqueue_wait()?)
    }

    fn send_window(&mut self) -> Result<(), HaloError> {
        self.window(|_| self.enqueue_send())
    }

    fn recv_window(&mut self) -> Result<(), HaloError> {
        self.window(|into| self.enqueue_recv(into))
    }

    fn swap_windows(&mut self) -> Result<(), HaloError> {
        self.window(|into| self.enqueue_recv(into).and_then(|()| self.enqueue_send()))
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
        self.executor.to_string()
    }
}
