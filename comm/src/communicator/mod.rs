//! Communicators: two-sided messages and collective calls between the ranks of a world, by the host.
//!
//! A message is matched by its source and its tag, in the order in which receives were posted and messages
//! were sent: those from one rank to another with one tag do not overtake each other. Short messages leave at
//! once (*eager*); longer ones when their receiver is ready (*rendezvous*), straight from section to section.
//!
//! Three ways to the same message, between two ranks:
//!
//! ```
//! use streamhalo_comm::device::{Buffer, Device, Extents};
//! use streamhalo_comm::{Communicator, Error, Source, Tag, World, WorldOptions, start_all, wait_all};
//!
//! fn rank_main(world: World) -> Result<f64, Error> {
//!     let communicator = Communicator::new(&world)?;
//!     let (own, peer) = (world.rank() as f64, 1 - world.rank());
//!
//!     // Blocking, on slices: `MPI_Send` and `MPI_Recv`. The receive may be longer than its message.
//!     if world.rank() == 0 {
//!         communicator.send(&[1.5, 2.5], peer, 7)?;
//!     } else {
//!         let mut values = [0.0; 3];
//!         let status = communicator.recv(&mut values, Source::Any, Tag::Any)?;
//!         assert_eq!((status.source, status.tag, status.bytes), (0, 7, 16));
//!         assert_eq!(values, [1.5, 2.5, 0.0]);
//!     }
//!
//!     // Not blocking, on sections of a buffer that outlive the call: `MPI_Isend` and `MPI_Irecv`.
//!     let stream = Device::host().stream(&world)?;
//!     let two = Extents { points: [1, 1, 2], components: 1 };
//!     let mut buffer = Buffer::<f64>::zeros(&world, &stream, two)?;
//!     buffer.view_mut(two.whole())?.fill(own);
//!     let (out, into) = (buffer.section(0..1)?, buffer.section(1..2)?);
//!     let mut both = [communicator.irecv(&into, peer, 8)?, communicator.isend(&out, peer, 8)?];
//!     assert!(buffer.view_mut(two.whole()).is_err(), "messages are on their way");
//!     wait_all(&mut both)?;
//!
//!     // Persistent, started again and again: `MPI_Recv_init` and `MPI_Send_init`.
//!     let mut both = [communicator.recv_init(&into, peer, 9)?, communicator.send_init(&out, peer, 9)?];
//!     for _ in 0..3 {
//!         start_all(&mut both)?;
//!         for request in &mut both {
//!             request.wait()?;
//!         }
//!     }
//!     Ok(buffer.copy_out(two.whole())?[1])
//! }
//!
//! # fn main() -> Result<(), Error> {
//! assert_eq!(World::threads(2, WorldOptions::default(), rank_main)?, [Ok(1.0), Ok(0.0)]);
//! # Ok(())
//! # }
//! ```

mod arrivals;
mod blocks;
mod call;
mod calls;
mod collective;
mod engine;
mod exchanges;
mod gather;
mod host;
mod ledger;
mod mapped;
mod matching;
mod pipeline;
mod pool;
mod posting;
mod record;
mod request;
mod sections;
mod slots;
mod staging;
mod step;
#[cfg(test)]
mod tests;
mod tickets;
mod transit;

pub(crate) use blocks::Blocks;
pub(crate) use engine::{COMMUNICATOR, Engine, MOST_AHEAD};
pub(crate) use exchanges::Exchanges;
pub(crate) use host::Host;
pub use ledger::{StagedAction, StagedStep};
pub(crate) use matching::INTERNAL;
pub(crate) use request::{Kind, Stage};
pub use request::{PersistentRequest, Request, start_all, wait_all};
pub(crate) use slots::Ticket;
pub use staging::{Staging, StagingMemory, StagingScheme};
pub(crate) use tickets::{Contents, Found};

use crate::device::{Hold, Intent, Section};
use crate::element::Element;
use crate::error::Result;
use crate::fabric::{Progress, bytes_of, bytes_of_mut, register};
use crate::queue::{Matcher, go_on};
use crate::source::{Source, Status, Tag};
use crate::world::World;
use pool::Pool;
use std::cell::{Cell, RefCell};
use std::fmt;
use std::rc::Rc;
use step::Scratch;

/// Two-sided messages and collective calls between the ranks of a world. Messages of one communicator never
/// meet those of another. It belongs to the thread of its rank; clones are the same communicator.
///
/// Calls make progress on all messages of the rank, and so does whatever else blocks its thread. Blocking
/// sends and receives work on slices: short messages are copied once at either side, longer ones (above 8160
/// bytes, less in worlds of more than 16 ranks) go through memory that the communicator keeps. What goes from
/// [`Section`] to [`Section`] is not copied on the way.
///
/// A rank whose messages nobody receives is stopped at some point: at least 64 short messages of it are kept by their
/// receiver, and those behind them wait with it until they are received.
///
/// Dropping the last clone on a rank waits for nobody, but for the senders of messages that were coming to requests which
/// it has dropped ([`Request`]). Whoever then waits for a message or an answer of that rank gets
/// [`crate::Error::PeerFailed`] once all has come that it had sent, on every fabric; so does a receive from any rank
/// once all others have left.
#[derive(Clone)]
pub struct Communicator {
    inner: Rc<Inner>,
}

struct Inner {
    world: World,
    host: Rc<Host>,
    /// For messages of slices.
    pool: RefCell<Pool>,
    /// Of collective calls.
    scratch: RefCell<Scratch>,
    /// How many calls of all ranks there have been, wrapping.
    calls: Cell<u32>,
    /// Pairs requests for queues.
    matcher: RefCell<Matcher>,
    /// Requests that were dropped while they could not be taken back.
    abandoned: RefCell<Vec<(Ticket, Hold)>>,
}

/// Matches go on, as messages do.
impl Progress for Inner {
    fn progress(&self) -> bool {
        go_on(&self.world, &self.host, &self.matcher)
    }
}

impl Communicator {
    /// The largest tag of a message.
    pub const LARGEST_TAG: u32 = INTERNAL - 1;

    /// A communicator of all ranks of a world, as `MPI_Comm_dup` makes one. Collective; blocks.
    ///
    /// # Errors
    /// [`crate::Error::CollectiveFailed`], on all ranks, if one has no memory for it, or what its wire says.
    pub fn new(world: &World) -> Result<Self> {
        let host = Host::connect(world)?;
        let pool = RefCell::new(Pool::of_fabric(world.shared_fabric()));
        let (scratch, matcher, abandoned) = (RefCell::default(), RefCell::default(), RefCell::default());
        let (world, calls) = (world.clone(), Cell::new(0));
        let inner = Rc::new(Inner { world, host, pool, scratch, calls, matcher, abandoned });
        register(&inner);
        Ok(Self { inner })
    }

    /// The world whose ranks it connects.
    pub fn world(&self) -> &World {
        &self.inner.world
    }

    /// This rank, from 0.
    pub fn rank(&self) -> usize {
        self.inner.world.rank()
    }

    /// How many ranks there are.
    pub fn size(&self) -> usize {
        self.inner.world.size()
    }

    /// Sends elements. Blocks until they have left: a short message at once, if its receiver has not many of
    /// this rank to receive still, and a longer one once a receive has matched it.
    ///
    /// # Errors
    /// [`crate::Error::WrongRank`], [`crate::Error::WrongTag`]; [`crate::Error::PeerFailed`] if a rank has failed, or the
    /// destination has dropped its communicator before this is called; [`crate::Error::TimedOut`] if nobody receives it: a short message is then not sent, and a longer one is received by
    /// whoever receives it later.
    pub fn send<T: Element>(&self, elements: &[T], destination: usize, tag: u32) -> Result<()> {
        self.check_send("Communicator::send", destination, tag)?;
        self.send_bytes(bytes_of(elements), Some(T::TYPE), destination, tag)
    }

    /// Receives a message of at most as many elements. Blocks. The elements behind its end stay as they are.
    ///
    /// # Errors
    /// [`crate::Error::WrongRank`], [`crate::Error::WrongTag`]; [`crate::Error::Truncated`] if the message is longer,
    /// [`crate::Error::MessageMismatch`] if it has elements of another type; [`crate::Error::PeerFailed`] if a rank has
    /// failed, [`crate::Error::TimedOut`] if none comes.
    pub fn recv<T: Element>(
        &self,
        elements: &mut [T],
        source: impl Into<Source>,
        tag: impl Into<Tag>,
    ) -> Result<Status> {
        let (source, tag) = (source.into(), tag.into());
        self.check_recv("Communicator::recv", source, tag)?;
        self.recv_bytes(bytes_of_mut(elements), Some(T::TYPE), source, tag)
    }

    /// Sends elements and receives others, in no order, so that ranks may do so in a ring. Blocks.
    ///
    /// ```
    /// use streamhalo_comm::{Communicator, Error, World, WorldOptions};
    ///
    /// let ranks = World::threads(3, WorldOptions::default(), |world| {
    ///     let communicator = Communicator::new(&world)?;
    ///     let (rank, size) = (world.rank(), world.size());
    ///     let mut before = [0];
    ///     communicator.sendrecv((&[rank as i32], (rank + 1) % size, 7), &mut before, (rank + size - 1) % size, 7)?;
    ///     Ok::<_, Error>(before)
    /// })?;
    /// assert_eq!(ranks, [Ok([2]), Ok([0]), Ok([1])]);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Communicator::send`] and [`Communicator::recv`].
    pub fn sendrecv<T: Element, U: Element>(
        &self,
        (sent, destination, send_tag): (&[T], usize, u32),
        received: &mut [U],
        source: impl Into<Source>,
        tag: impl Into<Tag>,
    ) -> Result<Status> {
        let (source, tag) = (source.into(), tag.into());
        self.check_send("Communicator::sendrecv", destination, send_tag)?;
        self.check_recv("Communicator::sendrecv", source, tag)?;
        let begun = self.begin_recv(size_of_val(received), Some(U::TYPE), source, tag)?;
        let sent = self.send_bytes(bytes_of(sent), Some(T::TYPE), destination, send_tag);
        if let Err(error) = sent {
            self.lock().free(begun.ticket);
            return Err(error);
        }
        self.end_recv(begun, bytes_of_mut(received))
    }

    /// Begins to send a section, which nothing may write until the request is complete. Does not block, unless something is
    /// still on the section's stream that writes it, such as a kernel: that is waited for.
    ///
    /// # Errors
    /// [`crate::Error::WrongRank`], [`crate::Error::WrongTag`]; [`crate::Error::OtherWorld`] if the section is of another
    /// world; [`crate::Error::InUse`] if something that has begun writes a part of it; what the fabric says, or a stream that
    /// was waited for.
    pub fn isend(&self, section: &Section, destination: usize, tag: u32) -> Result<Request> {
        self.check_send("Communicator::isend", destination, tag)?;
        self.sweep();
        let hold = self.hold(section, Intent::Read, "a send")?;
        let ticket = self.lock().begin(Kind::Send { destination, tag }, Contents::Section(section))?;
        Ok(Request::new(self, ticket, hold))
    }

    /// Begins to receive a message into a section, which nothing may read or write until the request is
    /// complete. The message may be shorter. Does not block, unless something is still on the section's stream that uses it.
    ///
    /// # Errors
    /// As [`Communicator::isend`].
    pub fn irecv(
        &self,
        section: &Section,
        source: impl Into<Source>,
        tag: impl Into<Tag>,
    ) -> Result<Request> {
        let (source, tag) = (source.into(), tag.into());
        self.check_recv("Communicator::irecv", source, tag)?;
        self.sweep();
        let hold = self.hold(section, Intent::Write, "a receive")?;
        let ticket = self.lock().begin(Kind::Recv { source, tag }, Contents::Section(section))?;
        Ok(Request::new(self, ticket, hold))
    }

    /// Holds a section of this world.
    fn hold(&self, section: &Section, intent: Intent, what: &'static str) -> Result<Hold> {
        section.stream().check_world(self.world(), "a message")?;
        section.hold(intent, what)
    }

    /// The message that a receive would get if it began now: nothing of it is received. Does not block. That there is none
    /// says nothing of what may come, or whether its sender is still there; [`Communicator::probe`] does.
    ///
    /// ```
    /// use streamhalo_comm::{Communicator, Error, Tag, World, WorldOptions};
    ///
    /// let ranks = World::threads(2, WorldOptions::default(), |world| {
    ///     let communicator = Communicator::new(&world)?;
    ///     if world.rank() == 0 {
    ///         communicator.send(&[2.5], 1, 7)?;
    ///         return Ok(0.0);
    ///     }
    ///     while communicator.iprobe(0, Tag::Any)?.is_none() {
    ///         // ... what else is to be computed ...
    ///         std::thread::yield_now();
    ///     }
    ///     let mut value = [0.0];
    ///     communicator.recv(&mut value, 0, 7)?;
    ///     Ok::<_, Error>(value[0])
    /// })?;
    /// assert_eq!(ranks[1], Ok(2.5));
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`crate::Error::WrongRank`], [`crate::Error::WrongTag`]; [`crate::Error::PeerFailed`] if there is none and a
    /// rank has failed.
    pub fn iprobe(&self, source: impl Into<Source>, tag: impl Into<Tag>) -> Result<Option<Status>> {
        let (source, tag) = (source.into(), tag.into());
        self.check_recv("Communicator::iprobe", source, tag)?;
        let mut engine = self.lock();
        engine.progress()?;
        match engine.find(source, tag) {
            Some(status) => Ok(Some(status)),
            None => self.unless_failed().map(|()| None),
        }
    }

    /// As [`Communicator::iprobe`], but blocks until there is a message.
    ///
    /// ```
    /// use streamhalo_comm::{Communicator, Error, Source, Tag, World, WorldOptions};
    ///
    /// // A message whose length the receiver does not know.
    /// let ranks = World::threads(2, WorldOptions::default(), |world| {
    ///     let communicator = Communicator::new(&world)?;
    ///     if world.rank() == 0 {
    ///         communicator.send(&[1.5, 2.5, 3.5], 1, 7)?;
    ///         return Ok(Vec::new());
    ///     }
    ///     let found = communicator.probe(Source::Any, Tag::Any)?;
    ///     let mut values = vec![0.0; found.bytes / size_of::<f64>()];
    ///     communicator.recv(&mut values, found.source, found.tag)?;
    ///     Ok::<_, Error>(values)
    /// })?;
    /// assert_eq!(ranks[1], Ok(vec![1.5, 2.5, 3.5]));
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Communicator::iprobe`], and [`crate::Error::TimedOut`] if none comes.
    pub fn probe(&self, source: impl Into<Source>, tag: impl Into<Tag>) -> Result<Status> {
        let (source, tag) = (source.into(), tag.into());
        self.check_recv("Communicator::probe", source, tag)?;
        let peer = source.rank();
        let mut found = None;
        let mut done = |engine: &mut Engine| {
            found = engine.find(source, tag);
            Ok(found.is_some())
        };
        let what = || match peer {
            Some(_) => format!("a message with {tag}"),
            None => format!("a message with {tag}, or of any other rank,"),
        };
        let late = |waited| self.host().context().late(self.lock().somebody(peer), what(), waited);
        self.host().wait_for_rank(peer, &mut done, &late)?;
        Ok(found.expect("the wait ends with a message"))
    }

    /// A persistent send of a section. Does not start it, and does not communicate.
    ///
    /// # Errors
    /// [`crate::Error::WrongRank`], [`crate::Error::WrongTag`]; [`crate::Error::OtherWorld`] if the section is of another
    /// world than the communicator.
    pub fn send_init(&self, section: &Section, destination: usize, tag: u32) -> Result<PersistentRequest> {
        self.check_send("Communicator::send_init", destination, tag)?;
        PersistentRequest::new(self, Kind::Send { destination, tag }, section)
    }

    /// As [`Communicator::send_init`], for a receiver that has always started its receive before (a *ready*
    /// send): queues need no clear-to-send for it. Started by the host it is as any other.
    ///
    /// ```
    /// use streamhalo_comm::device::{Buffer, Device, Extents};
    /// use streamhalo_comm::queue::{Queue, match_one};
    /// use streamhalo_comm::{Communicator, Error, World, WorldOptions};
    ///
    /// let ranks = World::threads(2, WorldOptions::default(), |world| {
    ///     let stream = Device::host().stream(&world)?;
    ///     let communicator = Communicator::new(&world)?;
    ///     let queue = Queue::new(&stream);
    ///     let line = Extents { points: [1, 1, 4], components: 1 };
    ///     let mut cells = Buffer::<f64>::zeros(&world, &stream, line)?;
    ///     let whole = cells.section(0..4)?;
    ///     let mut request = if world.rank() == 0 {
    ///         cells.view_mut(line.whole())?.fill(5.0);
    ///         communicator.rsend_init(&whole, 1, 7)?
    ///     } else {
    ///         communicator.recv_init(&whole, 0, 7)?
    ///     };
    ///     match_one(&mut request)?;
    ///     if world.rank() == 1 {
    ///         queue.enqueue_start(&mut request)?;
    ///     }
    ///     world.barrier()?; // the receive has been started: the send may go without being asked for
    ///     if world.rank() == 0 {
    ///         queue.enqueue_start(&mut request)?;
    ///     }
    ///     queue.enqueue_wait(&mut request)?;
    ///     queue.wait()?;
    ///     Ok::<_, Error>(cells.copy_out(line.whole())?)
    /// })?;
    /// assert_eq!(ranks[1], Ok(vec![5.0; 4]));
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Communicator::send_init`].
    pub fn rsend_init(&self, section: &Section, destination: usize, tag: u32) -> Result<PersistentRequest> {
        self.check_send("Communicator::rsend_init", destination, tag)?;
        PersistentRequest::new(self, Kind::ReadySend { destination, tag }, section)
    }

    /// A persistent receive into a section. Does not start it, and does not communicate.
    ///
    /// # Errors
    /// As [`Communicator::send_init`].
    pub fn recv_init(
        &self,
        section: &Section,
        source: impl Into<Source>,
        tag: impl Into<Tag>,
    ) -> Result<PersistentRequest> {
        let (source, tag) = (source.into(), tag.into());
        self.check_recv("Communicator::recv_init", source, tag)?;
        PersistentRequest::new(self, Kind::Recv { source, tag }, section)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // Peers may be writing the sections of receives that were dropped. Who has left ends none.
        let abandoned = std::mem::take(self.abandoned.get_mut());
        let is_awaited =
            |engine: &Engine, ticket: Ticket| engine.is_in_transfer(ticket) && engine.will_end(ticket);
        let mut done =
            |engine: &mut Engine| Ok(!abandoned.iter().any(|(ticket, _)| is_awaited(engine, *ticket)));
        let late = |waited| self.host.context().late(None, "a dropped receive", waited);
        // A wait that fails says nothing to anybody.
        let _ = self.host.wait_until(&mut done, &late);
        if abandoned.is_empty() {
            return;
        }
        let engine = self.host.lock();
        let (written, ended): (Vec<_>, Vec<_>) =
            abandoned.into_iter().partition(|(ticket, _)| engine.is_in_transfer(*ticket));
        // As when they are swept.
        drop(engine);
        // Somebody may still write those: they are never lent again.
        written.into_iter().for_each(|(_, hold)| hold.keep());
        drop(ended);
    }
}

impl fmt::Debug for Communicator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Communicator(of {:?})", self.inner.world)
    }
}
