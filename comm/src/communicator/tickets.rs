//! Requests of an engine, from their making to their end.

use super::engine::{Engine, MOST_AHEAD};
use super::pipeline::Pipeline;
use super::record::{EAGER, Post, message_header};
use super::request::Kind;
use super::slots::{Slot, State, Ticket};
use crate::device::Section;
use crate::element::ElementType;
use crate::error::Result;
use crate::fabric::{Payload, Place};
use crate::source::{Source, Status};

/// The memory of a message.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Contents<'a> {
    /// So many bytes from a place of the host on, which are elements of a type if one is said; at most so many of a receive.
    Place(&'a Place, usize, Option<ElementType>),
    /// A section, wherever it lives.
    Section(&'a Section),
}

/// What a look for a request has found.
#[derive(Debug, PartialEq)]
pub(crate) enum Found {
    /// It is complete.
    Outcome(Result<Status>),
    /// It is not.
    Nothing,
    /// It never will be, as this rank has let go of its end.
    Leaver(usize),
}

impl Engine {
    /// A persistent request.
    ///
    /// # Errors
    /// If the device of a section has no queues for copies.
    pub(crate) fn init(&mut self, kind: Kind, contents: Contents<'_>) -> Result<Ticket> {
        let slot = self.slot(kind, contents)?;
        Ok(self.core.slots.add(slot.persistent()))
    }

    /// Begins to send or to receive. Until that is complete, what is sent must stay as it is, and nobody else may use what is
    /// received into.
    ///
    /// # Errors
    /// As [`Engine::init`] and [`Engine::start`].
    pub(crate) fn begin(&mut self, kind: Kind, contents: Contents<'_>) -> Result<Ticket> {
        let slot = self.slot(kind, contents)?;
        let ticket = self.core.slots.add(slot);
        let started = self.start(ticket);
        if started.is_err() && self.is_complete(ticket) {
            // It has not begun.
            self.free(ticket);
        }
        started.map(|()| ticket)
    }

    fn slot(&mut self, kind: Kind, contents: Contents<'_>) -> Result<Slot> {
        let (place, bytes, element, accelerator) = match contents {
            Contents::Place(place, bytes, element) => (place, bytes, element, None),
            Contents::Section(section) => {
                (section.place(), section.bytes(), Some(section.element_type()), section.accelerator())
            }
        };
        let mut slot = Slot::new(kind.is_send(), kind.wanted(), element, place.clone(), bytes);
        if let Some(accelerator) = accelerator {
            let device = self.core.staged_for(accelerator)?;
            slot.pipeline = Some(Box::new(Pipeline::on_device(device, place)));
        }
        Ok(slot)
    }

    /// Starts a persistent request that is not active.
    #[inline]
    pub(crate) fn start(&mut self, ticket: Ticket) -> Result<()> {
        let index = self.core.slots.index(ticket);
        let is_staged = self.core.slots.at(index).pipeline.is_some();
        if is_staged {
            self.core.begin_staged(index)?;
        }
        if !self.core.slots.at(index).is_send {
            self.core.begin_receive(index);
            return self.flush();
        }
        let slot = self.core.slots.at(index);
        let (Source::Rank(destination), bytes) = (slot.wanted.source, slot.bytes) else {
            unreachable!("a send has one destination")
        };
        self.core.slots.begin(index, State::Queued);
        let has_left = self.has_left(destination);
        let peer = &mut self.core.peers[destination];
        // What comes from a device is announced at once, in order, and follows when it is on the host. What nobody takes
        // any more is announced too, as it would be complete otherwise, and lost.
        let is_there = (!is_staged || bytes == 0) && !has_left;
        let post = if is_there && bytes <= peer.eager_bytes && peer.ahead < MOST_AHEAD {
            peer.ahead += 1;
            Post::Eager(index)
        } else {
            Post::ReadyToSend(index)
        };
        if peer.outbox.is_empty() {
            let sent = self.send_post(destination, &post);
            if self.note(sent)? {
                return Ok(());
            }
        }
        self.core.post(destination, post);
        self.flush_peer(destination)
    }

    /// Sends a short message if that can be done at once; whether it was.
    pub(crate) fn try_send_bytes(
        &mut self,
        payload: &[u8],
        element: Option<ElementType>,
        destination: usize,
        tag: u32,
    ) -> Result<bool> {
        self.flush_peer(destination)?;
        let peer = &mut self.core.peers[destination];
        if peer.ahead >= MOST_AHEAD || !peer.outbox.is_empty() {
            return Ok(false);
        }
        let header = message_header(EAGER, element, tag, payload.len(), peer.taken);
        if !self.packets.try_send(destination, header, Payload::Bytes(payload))? {
            return Ok(false);
        }
        peer.ahead += 1;
        peer.taken = 0;
        if let Some(observer) = self.packets.observer(destination) {
            observer.stored(destination, payload.len());
        }
        Ok(true)
    }

    /// Whether a request is not active.
    #[inline]
    pub(crate) fn is_complete(&self, ticket: Ticket) -> bool {
        matches!(self.core.slots.get(ticket).state, State::Complete | State::Inactive)
    }

    /// Takes the outcome of a request, if it is complete. One that is not persistent is then forgotten.
    #[inline]
    pub(crate) fn outcome(&mut self, ticket: Ticket) -> Option<Result<Status>> {
        self.core.slots.take_outcome(ticket)
    }

    /// Makes progress, and takes the outcome of a request if it is complete.
    ///
    /// # Errors
    /// What the fabric says.
    pub(crate) fn look_for(&mut self, ticket: Ticket) -> Result<Found> {
        self.progress()?;
        if let Some(outcome) = self.outcome(ticket) {
            return Ok(Found::Outcome(outcome));
        }
        if self.leaver(ticket).is_none() {
            return Ok(Found::Nothing);
        }
        // What it sent before it left is there now, and may be all that was needed of it.
        self.hear_out()?;
        Ok(match self.outcome(ticket) {
            Some(outcome) => Found::Outcome(outcome),
            None => self.leaver(ticket).map_or(Found::Nothing, Found::Leaver),
        })
    }

    /// A rank to name if a request that is not complete never will be: the one that it needs has let go of its end, or
    /// all have that could have sent what it waits for.
    pub(crate) fn leaver(&self, ticket: Ticket) -> Option<usize> {
        self.gone(self.describe_peer(ticket)).filter(|_| self.needs_peer(ticket))
    }

    /// As [`Engine::outcome`], of a persistent request that is complete, for whoever needs no status.
    #[inline]
    pub(crate) fn end(&mut self, ticket: Ticket) -> Result<()> {
        self.core.slots.end(ticket)
    }

    /// Forgets a request. A receive that nothing has matched is taken back; what has begun otherwise goes on,
    /// and keeps its memory, until it is complete.
    pub(crate) fn free(&mut self, ticket: Ticket) {
        let index = self.core.slots.index(ticket);
        match self.core.slots.at(index).state {
            State::Inactive | State::Complete => self.core.slots.remove(index),
            State::Posted => {
                self.core.matching.cancel(index);
                self.core.slots.withdraw(index);
            }
            State::Queued | State::InTransfer => self.core.slots.detach(index),
        }
    }

    /// Whether the engine still knows a request.
    pub(crate) fn is_known(&self, ticket: Ticket) -> bool {
        self.core.slots.is_known(ticket)
    }

    /// Whether somebody else than this engine may be at the memory of a request. A peer that has left is not, but a
    /// transfer that waits for it may be.
    pub(crate) fn is_in_transfer(&self, ticket: Ticket) -> bool {
        if !self.is_known(ticket) {
            return false;
        }
        let index = self.core.slots.index(ticket);
        let slot = self.core.slots.get(ticket);
        let has_left = |peer: usize| self.core.peers[peer].is_mapped && self.has_left(peer);
        let is_written =
            !slot.is_send && slot.state == State::InTransfer && !slot.peer().is_some_and(has_left);
        is_written
            || slot.is_copied()
            || self.core.bulks.iter().any(|(_, transferred, _)| *transferred == index)
    }

    /// Whether a request that is in transfer will come to its end: receives from a rank that has left do not, but for
    /// copies of this rank's devices. Who takes a send stays until it has come.
    pub(crate) fn will_end(&self, ticket: Ticket) -> bool {
        let slot = self.core.slots.get(ticket);
        slot.is_send || slot.is_copied() || !slot.peer().is_some_and(|peer| self.has_left(peer))
    }
}
