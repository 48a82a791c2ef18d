//! `enqueued`: sends and receives that are matched each time, in batches that a stream starts and waits for (2022,
//! section III).

use super::payload::{Messages, Payload};
use super::{Link, WINDOW};
use streamhalo::comm::device::Section;
use streamhalo::comm::fabric::Executor;
use streamhalo::comm::queue::OperationQueue;
use streamhalo::comm::{Communicator, PRIMITIVES};
use streamhalo::{HaloError, Stream, StreamKind, World};

pub(super) fn link(
    world: &World,
    stream: &Stream,
    [bytes, places]: [usize; 2],
) -> Result<Option<Box<dyn Link>>, HaloError> {
    let communicator = Communicator::new(world)?;
    let queue = OperationQueue::new(stream, &communicator)?;
    let payload = Messages::new(world, stream, bytes, places)?;
    let (from, into) = (payload.sent()?, payload.places()?);
    let row = PRIMITIVES.iter().find(|row| row.name == "enqueued-messages");
    let executor = match row.expect("it is a primitive").executor(world.fabric().executor()) {
        // Sections of a device have copies on the host, which its stream's thread sends.
        Executor::Stream if stream.kind() == StreamKind::Device => Executor::Proxy,
        executor => executor,
    };
    let peer = 1 - world.rank();
    Ok(Some(Box::new(Enqueued { queue, payload, from, into, peer, executor, _communicator: communicator })))
}

struct Enqueued {
    queue: OperationQueue,
    payload: Messages,
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

    fn payload(&mut self) -> &mut dyn Payload {
        &mut self.payload
    }

    fn executor(&self) -> String {
        self.executor.to_string()
    }
}
