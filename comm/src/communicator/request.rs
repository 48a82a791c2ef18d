//! Sends and receives that outlive the call that begins them.

use super::Communicator;
use super::matching::Wanted;
use super::slots::Ticket;
use super::tickets::Contents;
use crate::device::{Hold, Intent, Section};
use crate::error::{Error, Result};
use crate::queue::MatchState;
use crate::source::{Source, Status, Tag};
use std::cell::{Cell, RefCell};
use std::fmt;
use std::rc::Rc;

/// A send or a receive that has begun: of [`Communicator::isend`] or [`Communicator::irecv`].
///
/// Its section is held until it is complete. Dropping a request that is not: a receive that no message has
/// matched is taken back, as if it had never begun; anything else goes on by itself, and its section stays
/// held until it has ended. The last clone of a communicator waits for such receives when it is dropped, as
/// their senders may be writing, but not for senders that have left.
#[must_use = "a request that is dropped at once is taken back, or ends at some time that is not known"]
pub struct Request {
    communicator: Communicator,
    /// Until it is complete.
    active: Option<(Ticket, Hold)>,
    outcome: Result<Status>,
}

impl Request {
    pub(super) fn new(communicator: &Communicator, ticket: Ticket, hold: Hold) -> Self {
        // Replaced by the outcome, and not given to anybody before.
        let outcome = Ok(Status { source: communicator.world().rank(), tag: 0, bytes: 0 });
        Self { communicator: communicator.clone(), active: Some((ticket, hold)), outcome }
    }

    /// Whether it is complete, and with which status: of the message that was received; for a send this rank,
    /// the tag and the length. Makes progress, and does not block. Can be asked again afterwards.
    ///
    /// ```
    /// use streamhalo_comm::device::{Buffer, Device, Extents};
    /// use streamhalo_comm::{Communicator, Error, World, WorldOptions};
    ///
    /// let ranks = World::threads(2, WorldOptions::default(), |world| {
    ///     let stream = Device::host().stream(&world)?;
    ///     let communicator = Communicator::new(&world)?;
    ///     let line = Extents { points: [1, 1, 4], components: 1 };
    ///     let cells = Buffer::<f64>::zeros(&world, &stream, line)?;
    ///     let mut request = match world.rank() {
    ///         0 => communicator.isend(&cells.section(0..3)?, 1, 7)?,
    ///         _ => communicator.irecv(&cells.section(0..4)?, 0, 7)?,
    ///     };
    ///     let status = loop {
    ///         if let Some(status) = request.test()? {
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
    /// [`Error::Truncated`] or [`Error::MessageMismatch`] if the message is not what the receive can take;
    /// [`Error::PeerFailed`] if it is not complete and a rank has failed, or one that it needs has dropped its
    /// communicator; what the fabric says.
    pub fn test(&mut self) -> Result<Option<Status>> {
        let Some((ticket, _)) = &self.active else { return self.outcome.clone().map(Some) };
        match self.communicator.test_ticket(*ticket)? {
            None => Ok(None),
            Some(outcome) => {
                self.active = None;
                self.outcome = outcome;
                self.outcome.clone().map(Some)
            }
        }
    }

    /// Blocks until it is complete, and gives its status, as [`Request::test`]. Can be asked again afterwards.
    ///
    /// # Errors
    /// As [`Request::test`], and [`Error::TimedOut`] if nothing comes, or nobody takes it: the request is still
    /// active then.
    pub fn wait(&mut self) -> Result<Status> {
        let Some((ticket, _)) = &self.active else { return self.outcome.clone() };
        let ticket = *ticket;
        let outcome = self.communicator.host().wait(ticket);
        if !self.communicator.host().lock().is_known(ticket) {
            self.active = None;
            self.outcome = outcome.clone();
        }
        outcome
    }

    /// Whether it is known to be complete, by [`Request::test`] or [`Request::wait`].
    pub fn is_complete(&self) -> bool {
        self.active.is_none()
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        if let Some((ticket, hold)) = self.active.take() {
            self.communicator.abandon(ticket, hold);
        }
    }
}

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.active {
            None => write!(f, "Request({:?})", self.outcome),
            Some((ticket, _)) => {
                write!(f, "Request({})", self.communicator.host().lock().describe(*ticket).1)
            }
        }
    }
}

/// Blocks until all requests are complete, and gives their statuses, in order.
///
/// # Errors
/// The first error of any, as [`Request::wait`]; those behind it have not been waited for.
pub fn wait_all(requests: &mut [Request]) -> Result<Vec<Status>> {
    requests.iter_mut().map(Request::wait).collect()
}

/// What a request does, each time that it is started if it is persistent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Send {
        destination: usize,
        tag: u32,
    },
    /// A send of which the receive has begun already.
    ReadySend {
        destination: usize,
        tag: u32,
    },
    Recv {
        source: Source,
        tag: Tag,
    },
}

impl Kind {
    pub(super) fn is_send(self) -> bool {
        !matches!(self, Kind::Recv { .. })
    }

    /// What a receive accepts; of a send its destination and its tag.
    pub(super) fn wanted(self) -> Wanted {
        match self {
            Kind::Send { destination, tag } | Kind::ReadySend { destination, tag } => {
                Wanted { source: Source::Rank(destination), tag: Tag::Value(tag) }
            }
            Kind::Recv { source, tag } => Wanted { source, tag },
        }
    }
}

/// Where a persistent request is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Not started, or waited for since.
    Inactive,
    /// Started by the host.
    Active,
    /// Enqueued on a queue, which waits for it.
    Enqueued,
}

/// A send or a receive that is described once and started again and again: of [`Communicator::send_init`],
/// [`Communicator::rsend_init`] or [`Communicator::recv_init`]. Its section is held while it is active.
///
/// Dropping one that is active is as dropping a [`Request`].
pub struct PersistentRequest {
    pub(crate) inner: Rc<Persistent>,
}

/// What the handles of a persistent request share.
pub(crate) struct Persistent {
    pub(crate) communicator: Communicator,
    pub(crate) kind: Kind,
    pub(crate) section: Section,
    pub(crate) stage: Cell<Stage>,
    /// What it has been matched with, for a queue.
    pub(crate) match_state: Rc<MatchState>,
    ticket: Ticket,
    hold: RefCell<Option<Hold>>,
}

impl PersistentRequest {
    pub(super) fn new(communicator: &Communicator, kind: Kind, section: &Section) -> Result<Self> {
        section.stream().check_world(communicator.world(), "a request")?;
        let ticket = communicator.host().lock().init(kind, Contents::Section(section))?;
        Ok(Self {
            inner: Rc::new(Persistent {
                communicator: communicator.clone(),
                kind,
                section: section.clone(),
                stage: Cell::new(Stage::Inactive),
                match_state: Rc::default(),
                ticket,
                hold: RefCell::default(),
            }),
        })
    }

    /// Starts it. Does not block, unless something is still on the section's stream that forbids it, such as a kernel that
    /// writes what is sent: that is waited for.
    ///
    /// # Errors
    /// [`Error::OutOfOrder`] if it is active, or enqueued on a queue; [`Error::InUse`] if something else uses a
    /// part of its section; what the fabric says.
    pub fn start(&mut self) -> Result<()> {
        let inner = &*self.inner;
        inner.refuse(&[Stage::Active, Stage::Enqueued], "PersistentRequest::start")?;
        inner.take_section()?;
        inner.begin()
    }

    /// Whether it is complete, and with which status; it can be started again then. Makes progress, and does
    /// not block.
    ///
    /// ```
    /// use streamhalo_comm::device::{Buffer, Device, Extents};
    /// use streamhalo_comm::{Communicator, Error, World, WorldOptions};
    ///
    /// let ranks = World::threads(2, WorldOptions::default(), |world| {
    ///     let stream = Device::host().stream(&world)?;
    ///     let communicator = Communicator::new(&world)?;
    ///     let line = Extents { points: [1, 1, 4], components: 1 };
    ///     let cells = Buffer::<f64>::zeros(&world, &stream, line)?;
    ///     let mut request = match world.rank() {
    ///         0 => communicator.send_init(&cells.section(0..4)?, 1, 7)?,
    ///         _ => communicator.recv_init(&cells.section(0..4)?, 0, 7)?,
    ///     };
    ///     for _ in 0..3 {
    ///         request.start()?;
    ///         let status = loop {
    ///             if let Some(status) = request.test()? {
    ///                 break status;
    ///             }
    ///             std::thread::yield_now(); // ... what else there is to do ...
    ///         };
    ///         assert_eq!((status.source, status.bytes), (0, 32));
    ///     }
    ///     Ok::<_, Error>(())
    /// })?;
    /// assert_eq!(ranks, [Ok(()), Ok(())]);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::OutOfOrder`] if it has not been started since it was last complete, or is enqueued on a queue,
    /// whose wait is the only one for it (2026 paper, section III-D); else as [`Request::test`].
    pub fn test(&mut self) -> Result<Option<Status>> {
        let inner = &*self.inner;
        inner.refuse(&[Stage::Inactive, Stage::Enqueued], "PersistentRequest::test")?;
        match inner.communicator.test_ticket(inner.ticket)? {
            None => Ok(None),
            Some(outcome) => {
                inner.ended();
                outcome.map(Some)
            }
        }
    }

    /// Blocks until it is complete, and gives its status; it can be started again then.
    ///
    /// # Errors
    /// As [`PersistentRequest::test`] and [`Request::wait`].
    pub fn wait(&mut self) -> Result<Status> {
        let inner = &*self.inner;
        inner.refuse(&[Stage::Inactive, Stage::Enqueued], "PersistentRequest::wait")?;
        let outcome = inner.communicator.host().wait(inner.ticket);
        if inner.communicator.host().lock().is_complete(inner.ticket) {
            inner.ended();
        }
        outcome
    }

    /// Whether it has been started and is not known to be complete.
    pub fn is_active(&self) -> bool {
        self.inner.stage.get() != Stage::Inactive
    }
}

impl Persistent {
    fn refuse(&self, stages: &[Stage], call: &'static str) -> Result<()> {
        let stage = self.stage.get();
        if !stages.contains(&stage) {
            return Ok(());
        }
        let reason = match stage {
            Stage::Inactive => "the request is not active; start it first",
            Stage::Active => "the request is active; wait for it first",
            Stage::Enqueued => "the request is enqueued on a queue; only that queue can wait for it",
        };
        Err(Error::OutOfOrder { call, reason: reason.into() })
    }

    fn what(&self) -> &'static str {
        if self.kind.is_send() { "a send" } else { "a receive" }
    }

    /// Keeps others from its section.
    fn take_section(&self) -> Result<()> {
        let intent = if self.kind.is_send() { Intent::Read } else { Intent::Write };
        self.communicator.sweep();
        *self.hold.borrow_mut() = Some(self.section.hold(intent, self.what())?);
        self.stage.set(Stage::Active);
        Ok(())
    }

    /// Begins, once it has its section.
    fn begin(&self) -> Result<()> {
        let mut engine = self.communicator.host().lock();
        let started = engine.start(self.ticket);
        if started.is_err() && engine.is_complete(self.ticket) {
            // It has not begun.
            self.ended();
        }
        started
    }

    fn ended(&self) {
        self.stage.set(Stage::Inactive);
        self.hold.borrow_mut().take();
    }
}

impl Drop for Persistent {
    fn drop(&mut self) {
        match self.hold.take() {
            Some(hold) => self.communicator.abandon(self.ticket, hold),
            None => self.communicator.host().lock().free(self.ticket),
        }
    }
}

impl fmt::Debug for PersistentRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Persistent { kind, section, stage, .. } = &*self.inner;
        write!(f, "PersistentRequest({kind:?}, {} bytes, {:?})", section.bytes(), stage.get())
    }
}

/// Starts all requests, in order, or none: if one is active, or something else uses a part of its section, those before it
/// have not been started either. Blocks as [`PersistentRequest::start`] does.
///
/// # Errors
/// As [`PersistentRequest::start`]. If the fabric fails at one, those before it are active.
pub fn start_all(requests: &mut [PersistentRequest]) -> Result<()> {
    for request in &*requests {
        request.inner.refuse(&[Stage::Active, Stage::Enqueued], "start_all")?;
    }
    for (index, request) in requests.iter().enumerate() {
        if let Err(error) = request.inner.take_section() {
            requests[..index].iter().for_each(|taken| taken.inner.ended());
            return Err(error);
        }
    }
    for (index, request) in requests.iter().enumerate() {
        if let Err(error) = request.inner.begin() {
            requests[index + 1..].iter().for_each(|taken| taken.inner.ended());
            return Err(error);
        }
    }
    Ok(())
}
