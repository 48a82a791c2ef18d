//! Two-sided operations on a stream (2022, section III): enqueued one by one, started and waited for in batches.

use crate::communicator::{COMMUNICATOR, Communicator, Contents, Engine, Found, Kind, Ticket};
use crate::device::{Hold, Intent, Mirror, Mirrors, Section, Stream};
use crate::element::ElementType;
use crate::error::{Error, Result};
use crate::fabric::{Place, WaitContext};
use crate::locks::lock;
use crate::source::{Source, Status, Tag};
use crate::timeline::Activity;
use std::cell::{Cell, RefCell};
use std::fmt;
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

/// A queue of sends and receives that a stream carries out where it comes to their start (`MPIX_Queue`).
///
/// What is enqueued here is matched anew each time with the two-sided messages of the communicator, of whatever
/// kind on the other side: another queue, a blocking receive, or a persistent one. It is done in the order in
/// which it was enqueued. Until the stream comes to the start nothing happens, so that kernels that were enqueued
/// before may still write the payload.
///
/// Dropping the queue (`MPIX_Free_queue`) gives up what has not been started. What was started and has not been
/// waited for goes on; its sections can then not be used again. The queue keeps the copies of sections on a device that
/// it was given last.
pub struct OperationQueue {
    stream: Stream,
    communicator: Communicator,
    /// Not started.
    enqueued: RefCell<Vec<Rc<Entry>>>,
    /// Started and not waited for.
    started: RefCell<Vec<Rc<Entry>>>,
    mirrors: RefCell<Mirrors>,
}

/// A send or a receive on an [`OperationQueue`], to be tested or waited for by the host where that is wanted.
/// May be dropped at any time: the queue keeps what it needs.
#[derive(Debug)]
pub struct EnqueuedOperation {
    entry: Rc<Entry>,
    stream: Stream,
    communicator: Communicator,
}

#[derive(Debug)]
struct Entry {
    mirror: Mirror,
    /// Whether what has come is where the section is, or on its way there on the stream.
    is_up: Cell<bool>,
    operation: Arc<Operation>,
    hold: RefCell<Option<Hold>>,
}

/// What the stream needs to know.
#[derive(Debug)]
struct Operation {
    is_send: bool,
    peer: usize,
    tag: u32,
    place: Place,
    bytes: usize,
    element: ElementType,
    stage: Mutex<Stage>,
}

/// How far an operation has come.
#[derive(Debug, Clone)]
enum Stage {
    Enqueued,
    /// Its start is on the stream.
    Started,
    Running(Ticket),
    Complete(Result<Status>),
}

impl OperationQueue {
    /// A queue over a stream (`MPIX_Create_queue`). Local; does not communicate.
    ///
    /// # Errors
    /// [`Error::OtherWorld`] if the stream was made with another world than the communicator.
    pub fn new(stream: &Stream, communicator: &Communicator) -> Result<Self> {
        stream.check_world(communicator.world(), "a queue of operations")?;
        Ok(Self {
            stream: stream.clone(),
            communicator: communicator.clone(),
            enqueued: RefCell::default(),
            started: RefCell::default(),
            mirrors: RefCell::default(),
        })
    }

    /// The stream.
    pub fn stream(&self) -> &Stream {
        &self.stream
    }

    /// Enqueues a send of a whole section (`MPIX_Enqueue_send`), which the next start carries out. Does not block.
    ///
    /// # Errors
    /// [`Error::WrongRank`], [`Error::WrongTag`], [`Error::WrongStream`] if the section is of another stream's
    /// buffer, [`Error::InUse`] if an operation that would start with it may not use the section at the same time, or
    /// [`Error::OutOfMemory`] for the copy of a section on a device.
    pub fn enqueue_send(&self, section: &Section, destination: usize, tag: u32) -> Result<EnqueuedOperation> {
        self.communicator.check_send("enqueue_send", destination, tag)?;
        self.enqueue(section, destination, tag, true)
    }

    /// Enqueues a receive of at most a whole section (`MPIX_Enqueue_recv`), which the next start carries out.
    /// Does not block.
    ///
    /// # Errors
    /// [`Error::WildcardRefused`] (2022, section III-D), else as [`OperationQueue::enqueue_send`].
    pub fn enqueue_recv(
        &self,
        section: &Section,
        source: impl Into<Source>,
        tag: impl Into<Tag>,
    ) -> Result<EnqueuedOperation> {
        let call = "enqueue_recv";
        let (Source::Rank(source), Tag::Value(tag)) = (source.into(), tag.into()) else {
            return Err(Error::WildcardRefused { call });
        };
        self.communicator.check_send(call, source, tag)?;
        self.enqueue(section, source, tag, false)
    }

    fn enqueue(&self, section: &Section, peer: usize, tag: u32, is_send: bool) -> Result<EnqueuedOperation> {
        if section.stream().id() != self.stream.id() {
            let (owner, used) = (section.stream().id(), self.stream.id());
            return Err(Error::WrongStream { what: "the section of an operation", owner, used });
        }
        // Together they could never start.
        let of_batch = self.enqueued.borrow();
        let against = |other: &&Rc<Entry>| {
            !(is_send && other.operation.is_send) && other.mirror.section().meets(section)
        };
        if let Some(other) = of_batch.iter().find(against) {
            let (what, by) = (purpose(is_send).1, purpose(other.operation.is_send).1);
            let start = section.place().offset();
            return Err(Error::InUse { what, start, end: start + section.bytes(), by });
        }
        drop(of_batch);
        let make = || Mirror::new(self.communicator.world(), section);
        let mirror = self.mirrors.borrow_mut().of(section, make)?;
        let operation = Operation {
            is_send,
            peer,
            tag,
            place: mirror.place().clone(),
            bytes: section.bytes(),
            element: section.element_type(),
            stage: Mutex::new(Stage::Enqueued),
        };
        let (operation, hold) = (Arc::new(operation), RefCell::new(None));
        let entry = Rc::new(Entry { mirror, is_up: Cell::new(is_send), operation, hold });
        self.enqueued.borrow_mut().push(entry.clone());
        Ok(EnqueuedOperation { entry, stream: self.stream.clone(), communicator: self.communicator.clone() })
    }

    /// Enqueues the start of all that was enqueued since the last one (`MPIX_Enqueue_start`): where the stream
    /// comes to it, it begins them in their order, and goes on. Does not block. Until the wait that follows is
    /// enqueued nothing else may use their sections.
    ///
    /// # Errors
    /// [`Error::InUse`] if another operation uses a section; then nothing is started. [`Error::NotCapturable`] within a
    /// capture.
    pub fn enqueue_start(&self) -> Result<()> {
        self.stream.refuse_capture_of("a start of enqueued operations")?;
        let mut batch = self.enqueued.borrow_mut();
        for index in 0..batch.len() {
            if let Err(error) = batch[index].take_hold() {
                batch[..index].iter().for_each(|entry| drop(entry.hold.take()));
                return Err(error);
            }
        }
        let operations: Vec<_> = batch.iter().map(|entry| entry.operation.clone()).collect();
        let mut started = self.started.borrow_mut();
        // What the host has waited for needs no wait of the stream, which may never be enqueued.
        started.retain(|entry| !entry.is_over());
        let first = started.len();
        started.append(&mut batch);
        if operations.is_empty() {
            return Ok(());
        }
        operations.iter().for_each(|operation| *operation.stage() = Stage::Started);
        // Of a receive what is behind a message that is shorter.
        started[first..].iter().for_each(|entry| entry.mirror.enqueue_down());
        let engine = self.communicator.engine().clone();
        let begin = move || operations.iter().try_for_each(|operation| operation.begin(&engine));
        let name = "the start of enqueued operations".into();
        self.stream.enqueue_boxed(Activity::Trigger, name, Box::new(move |_| begin()));
        Ok(())
    }

    /// Enqueues a wait that blocks the stream until all that was started before is complete
    /// (`MPIX_Enqueue_wait`). What is enqueued behind it may use the sections. Never blocks on the host; an inline
    /// stream is the host.
    ///
    /// # Errors
    /// At once [`Error::NotCapturable`] within a capture, and no other. The stream fails if an operation does, or is not
    /// complete within the time-out.
    pub fn enqueue_wait(&self) -> Result<()> {
        self.stream.refuse_capture_of("a wait for enqueued operations")?;
        let batch = std::mem::take(&mut *self.started.borrow_mut());
        if batch.is_empty() {
            return Ok(());
        }
        let operations: Vec<_> = batch.iter().map(|entry| entry.operation.clone()).collect();
        let engine = self.communicator.engine().clone();
        let context = self.stream.status().context.clone();
        let wait = move |serve: &mut dyn FnMut() -> bool| {
            operations.iter().try_for_each(|operation| {
                let mut look = || {
                    serve();
                    operation.look(&engine)
                };
                wait_for(operation, &mut look, &context).map(drop)
            })
        };
        let name = "the wait for enqueued operations".into();
        self.stream.enqueue_boxed(Activity::Wait, name, Box::new(wait));
        let holds = batch.iter().filter_map(|entry| entry.end());
        holds.for_each(Hold::leave);
        Ok(())
    }

    /// Blocks until all that was enqueued on the stream has run (2022, the end of figure 7).
    ///
    /// # Errors
    /// As [`Stream::synchronize`].
    pub fn wait(&self) -> Result<()> {
        self.stream.synchronize()
    }
}

impl EnqueuedOperation {
    /// Whether it is complete. Does not block.
    ///
    /// ```
    /// use streamhalo_comm::device::{Buffer, Device, Extents};
    /// use streamhalo_comm::queue::OperationQueue;
    /// use streamhalo_comm::{Communicator, Error, World, WorldOptions};
    ///
    /// let ranks = World::threads(2, WorldOptions::default(), |world| {
    ///     let stream = Device::host().stream(&world)?;
    ///     let communicator = Communicator::new(&world)?;
    ///     let queue = OperationQueue::new(&stream, &communicator)?;
    ///     let line = Extents { points: [1, 1, 4], components: 1 };
    ///     let cells = Buffer::<f64>::zeros(&world, &stream, line)?;
    ///     let operation = match world.rank() {
    ///         0 => queue.enqueue_send(&cells.section(0..3)?, 1, 7)?,
    ///         _ => queue.enqueue_recv(&cells.section(0..4)?, 0, 7)?,
    ///     };
    ///     queue.enqueue_start()?;
    ///     let status = loop {
    ///         if let Some(status) = operation.test()? {
    ///             break status;
    ///         }
    ///         std::thread::yield_now(); // ... what else there is to do ...
    ///     };
    ///     Ok::<_, Error>((status.source, status.tag, status.bytes))
    /// })?;
    /// assert_eq!(ranks, [Ok((0, 7, 24)), Ok((0, 7, 24))]);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::OutOfOrder`] if its start has not been enqueued; else its own error, or the stream's.
    pub fn test(&self) -> Result<Option<Status>> {
        match self.look("EnqueuedOperation::test")? {
            Found::Nothing => Ok(None),
            Found::Leaver(rank) => Err(self.stream.status().context.left(rank, COMMUNICATOR)),
            Found::Outcome(outcome) => outcome.map(Some),
        }
    }

    fn look(&self, call: &'static str) -> Result<Found> {
        let operation = &self.entry.operation;
        if matches!(*operation.stage(), Stage::Enqueued) {
            let reason = format!("the {} has not been started; call `enqueue_start`", operation.describe());
            return Err(Error::OutOfOrder { call, reason });
        }
        let found = operation.look(self.communicator.engine())?;
        match &found {
            Found::Outcome(_) => self.entry.end_by_host(),
            _ => self.stream.check()?,
        }
        Ok(found)
    }

    /// Blocks the host until it is complete (2022, section III-B). Afterwards its section may be used.
    ///
    /// ```
    /// use streamhalo_comm::device::{Buffer, Device, Extents};
    /// use streamhalo_comm::queue::OperationQueue;
    /// use streamhalo_comm::{Communicator, Error, World, WorldOptions};
    ///
    /// let ranks = World::threads(2, WorldOptions::default(), |world| {
    ///     let stream = Device::host().stream(&world)?;
    ///     let communicator = Communicator::new(&world)?;
    ///     let queue = OperationQueue::new(&stream, &communicator)?;
    ///     let line = Extents { points: [1, 1, 4], components: 1 };
    ///     let mut cells = Buffer::<f64>::zeros(&world, &stream, line)?;
    ///     let whole = cells.section(0..4)?;
    ///     let operation = if world.rank() == 0 {
    ///         cells.view_mut(line.whole())?.fill(5.0);
    ///         queue.enqueue_send(&whole, 1, 7)?
    ///     } else {
    ///         queue.enqueue_recv(&whole, 0, 7)?
    ///     };
    ///     queue.enqueue_start()?;
    ///     let status = operation.wait()?; // the host, and not the stream
    ///     Ok::<_, Error>((status.bytes, cells.copy_out(line.whole())?))
    /// })?;
    /// assert_eq!(ranks[1], Ok((32, vec![5.0; 4])));
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`EnqueuedOperation::test`], and [`Error::TimedOut`].
    pub fn wait(&self) -> Result<Status> {
        let mut look = || self.look("EnqueuedOperation::wait");
        wait_for(&self.entry.operation, &mut look, &self.stream.status().context)
    }
}

impl Entry {
    fn take_hold(&self) -> Result<()> {
        let (intent, by) = purpose(self.operation.is_send);
        *self.hold.borrow_mut() = Some(self.mirror.section().hold_in_order(intent, by)?);
        Ok(())
    }

    /// Gives the section back, by what kept others from it: what is behind this on the stream finds in it what has come.
    fn end(&self) -> Option<Hold> {
        if !self.is_up.replace(true) {
            self.mirror.enqueue_up();
        }
        self.hold.take()
    }

    /// The same, for a host that knows that it is complete: all that is left is what has come and goes to a device.
    fn end_by_host(&self) {
        let hold = self.end();
        if self.mirror.is_copy() && !self.operation.is_send {
            hold.into_iter().for_each(Hold::leave);
        }
    }

    /// Whether nothing is left to do for it, and nobody has to be told of an error.
    fn is_over(&self) -> bool {
        self.hold.borrow().is_none() && matches!(*self.operation.stage(), Stage::Complete(Ok(_)))
    }
}

impl Drop for Entry {
    /// A peer may write at any time to what has been started and was never waited for.
    fn drop(&mut self) {
        if !matches!(*self.operation.stage(), Stage::Complete(_)) {
            self.hold.take().into_iter().for_each(Hold::keep);
        }
    }
}

/// What an operation does with its section, and its name.
fn purpose(is_send: bool) -> (Intent, &'static str) {
    match is_send {
        true => (Intent::Read, "an enqueued send"),
        false => (Intent::Write, "an enqueued receive"),
    }
}

impl Operation {
    fn stage(&self) -> MutexGuard<'_, Stage> {
        lock(&self.stage)
    }

    fn describe(&self) -> String {
        let Self { peer, tag, .. } = self;
        match self.is_send {
            true => format!("enqueued send to rank {peer} with tag {tag}"),
            false => format!("enqueued receive from rank {peer} with tag {tag}"),
        }
    }

    fn begin(&self, engine: &Mutex<Engine>) -> Result<()> {
        let mut stage = self.stage();
        let kind = match self.is_send {
            true => Kind::Send { destination: self.peer, tag: self.tag },
            false => Kind::Recv { source: Source::Rank(self.peer), tag: Tag::Value(self.tag) },
        };
        let contents = Contents::Place(&self.place, self.bytes, Some(self.element));
        let ticket = lock(engine).begin(kind, contents)?;
        *stage = Stage::Running(ticket);
        Ok(())
    }

    /// Whether it has its outcome.
    fn look(&self, engine: &Mutex<Engine>) -> Result<Found> {
        let mut stage = self.stage();
        let found = match &*stage {
            Stage::Running(ticket) => lock(engine).look_for(*ticket)?,
            Stage::Complete(outcome) => Found::Outcome(outcome.clone()),
            Stage::Enqueued | Stage::Started => Found::Nothing,
        };
        if let Found::Outcome(outcome) = &found {
            *stage = Stage::Complete(outcome.clone());
        }
        Ok(found)
    }
}

/// Blocks until `look` finds the outcome of an operation.
fn wait_for(
    operation: &Operation,
    look: &mut dyn FnMut() -> Result<Found>,
    context: &WaitContext,
) -> Result<Status> {
    let (leaver, mut ended) = (Cell::new(None), None);
    let mut done = || {
        match look()? {
            Found::Outcome(outcome) => ended = Some(outcome?),
            Found::Leaver(rank) => leaver.set(Some(rank)),
            Found::Nothing => leaver.set(None),
        }
        Ok(ended.is_some())
    };
    let gone = || leaver.get().map(|rank| context.left(rank, COMMUNICATOR));
    let what = || format!("the other side of an {}", operation.describe());
    let late = |waited| context.late(operation.peer, what(), waited);
    context.poll_longer(Duration::ZERO, &mut done, &gone, &late)?;
    Ok(ended.expect("the wait ends with the operation"))
}

impl fmt::Debug for OperationQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [enqueued, started] = [&self.enqueued, &self.started].map(|list| list.borrow().len());
        write!(f, "OperationQueue({enqueued} enqueued, {started} started, on {:?})", self.stream)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::{Buffer, Device, Extents, left_of};
    use crate::world::World;

    /// What a peer may still write is not lent again; the stream that works on it ends all the same.
    #[test]
    fn a_receive_that_is_never_waited_for_keeps_no_stream() {
        let world = World::alone().expect("a world of one rank");
        let communicator = Communicator::new(&world).expect("a communicator");
        let stream = Device::host().stream(&world).expect("a stream");
        let line = Extents { points: [1, 1, 8], components: 1 };
        let buffer = Buffer::<f64>::zeros(&world, &stream, line).expect("memory");
        let section = buffer.section(0..8).expect("it is in the buffer");
        let queue = OperationQueue::new(&stream, &communicator).expect("one world");
        queue.enqueue_recv(&section, 0, 7).expect("there is such a rank");
        queue.enqueue_start().expect("nobody uses the section");
        drop(queue);
        let left = left_of(stream, buffer, section);
        assert!(matches!(left, (Err(Error::InUse { .. }), false)), "{left:?}");
    }
}
