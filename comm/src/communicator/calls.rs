//! What the calls of a communicator are made of: its engine, messages of plain bytes, and the checks of ranks and tags.

use super::Communicator;
use super::engine::{COMMUNICATOR, Engine};
use super::host::Host;
use super::request::Kind;
use super::slots::Ticket;
use super::tickets::{Contents, Found};
use crate::device::Hold;
use crate::element::ElementType;
use crate::error::{Error, Result};
use crate::fabric::Place;
use crate::queue::Matcher;
use crate::source::{Source, Status, Tag};
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard};

impl Communicator {
    pub(crate) fn host(&self) -> &Rc<Host> {
        &self.inner.host
    }

    /// The engine, for operations that run on a stream's thread.
    pub(crate) fn engine(&self) -> &Arc<Mutex<Engine>> {
        self.host().share()
    }

    pub(crate) fn matcher(&self) -> &RefCell<Matcher> {
        &self.inner.matcher
    }

    /// Whether both are the same communicator.
    pub(crate) fn is_same(&self, other: &Communicator) -> bool {
        Rc::ptr_eq(&self.inner, &other.inner)
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Engine> {
        self.host().lock()
    }

    /// Looks once at what has come.
    pub(crate) fn progress(&self) -> Result<()> {
        self.lock().progress()
    }

    /// The outcome of a request if it is complete; makes progress.
    pub(super) fn test_ticket(&self, ticket: Ticket) -> Result<Option<Result<Status>>> {
        let found = self.lock().look_for(ticket)?;
        match found {
            Found::Outcome(outcome) => Ok(Some(outcome)),
            Found::Leaver(rank) => Err(self.host().context().left(rank, COMMUNICATOR)),
            Found::Nothing => self.unless_failed().map(|()| None),
        }
    }

    pub(super) fn unless_failed(&self) -> Result<()> {
        let context = self.host().context();
        match context.abort.failure() {
            None => Ok(()),
            Some(_) => Err(context.peer_failure()),
        }
    }

    pub(super) fn abandon(&self, ticket: Ticket, hold: Hold) {
        self.sweep();
        let mut engine = self.lock();
        engine.free(ticket);
        if engine.is_known(ticket) {
            self.inner.abandoned.borrow_mut().push((ticket, hold));
        }
    }

    /// Lets go of the sections of abandoned requests that have ended.
    pub(super) fn sweep(&self) {
        let ended: Vec<_> = {
            let mut abandoned = self.inner.abandoned.borrow_mut();
            if abandoned.is_empty() {
                return;
            }
            let engine = self.lock();
            abandoned.extract_if(.., |(ticket, _)| !engine.is_known(*ticket)).collect()
        };
        // The last use of a stream may be one of these: it then comes to its end, for which its thread needs the engine.
        drop(ended);
    }

    pub(super) fn send_bytes(
        &self,
        bytes: &[u8],
        element: Option<ElementType>,
        destination: usize,
        tag: u32,
    ) -> Result<()> {
        let mut engine = self.lock();
        if engine.is_eager(destination, bytes.len()) {
            // It would be taken without a word, and lost.
            if engine.has_left(destination) {
                return Err(self.host().context().left(destination, COMMUNICATOR));
            }
            if engine.try_send_bytes(bytes, element, destination, tag)? {
                return Ok(());
            }
            drop(engine);
            let mut done = |engine: &mut Engine| engine.try_send_bytes(bytes, element, destination, tag);
            let what = || format!("the acceptance of the message with tag {tag} ({} bytes)", bytes.len());
            let late = |waited| self.host().context().late(destination, what(), waited);
            return self.host().wait_for_room(destination, &mut done, &late);
        }
        drop(engine);
        let staged = self.inner.pool.borrow_mut().take(bytes.len())?;
        staged.write(bytes)?;
        let ticket = self
            .lock()
            .begin(Kind::Send { destination, tag }, Contents::Place(&staged, bytes.len(), element))?;
        self.wait_staged(ticket)?;
        self.inner.pool.borrow_mut().give_back(&staged);
        Ok(())
    }

    pub(super) fn recv_bytes(
        &self,
        bytes: &mut [u8],
        element: Option<ElementType>,
        source: Source,
        tag: Tag,
    ) -> Result<Status> {
        let begun = self.begin_recv(bytes.len(), element, source, tag)?;
        self.end_recv(begun, bytes)
    }

    pub(super) fn begin_recv(
        &self,
        bytes: usize,
        element: Option<ElementType>,
        source: Source,
        tag: Tag,
    ) -> Result<StagedRecv> {
        let staged = self.inner.pool.borrow_mut().take(bytes)?;
        let ticket =
            self.lock().begin(Kind::Recv { source, tag }, Contents::Place(&staged, bytes, element))?;
        Ok(StagedRecv { ticket, staged })
    }

    pub(super) fn end_recv(&self, begun: StagedRecv, bytes: &mut [u8]) -> Result<Status> {
        let status = self.wait_staged(begun.ticket)?;
        begun.staged.read(&mut bytes[..status.bytes])?;
        self.inner.pool.borrow_mut().give_back(&begun.staged);
        Ok(status)
    }

    /// Waits for a request of staging memory. If that fails the memory belongs to the request alone.
    pub(super) fn wait_staged(&self, ticket: Ticket) -> Result<Status> {
        let outcome = self.host().wait(ticket);
        if outcome.is_err() {
            let mut engine = self.lock();
            if engine.is_known(ticket) {
                engine.free(ticket);
            }
        }
        outcome
    }

    pub(crate) fn check_send(&self, what: &'static str, destination: usize, tag: u32) -> Result<()> {
        self.check_rank(what, destination)?;
        Self::check_tag(what, tag)
    }

    pub(super) fn check_recv(&self, what: &'static str, source: Source, tag: Tag) -> Result<()> {
        if let Source::Rank(source) = source {
            self.check_rank(what, source)?;
        }
        match tag {
            Tag::Any => Ok(()),
            Tag::Value(tag) => Self::check_tag(what, tag),
        }
    }

    pub(super) fn check_rank(&self, what: &'static str, rank: usize) -> Result<()> {
        let size = self.size();
        if rank < size { Ok(()) } else { Err(Error::WrongRank { what, rank, size }) }
    }

    pub(super) fn check_tag(what: &'static str, tag: u32) -> Result<()> {
        let largest = Self::LARGEST_TAG;
        if tag <= largest { Ok(()) } else { Err(Error::WrongTag { what, tag, largest }) }
    }
}

/// A receive into staging memory.
pub(super) struct StagedRecv {
    pub(super) ticket: Ticket,
    staged: Place,
}
