//! The sends and receives of an engine, by ticket.

use super::matching::Wanted;
use super::pipeline::Pipeline;
use crate::element::ElementType;
use crate::error::{Error, Result};
use crate::fabric::Place;
use crate::source::{Source, Status};

/// Names a send or a receive for as long as it is known to its engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ticket {
    index: u32,
    generation: u32,
}

/// How far a send or a receive has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// Not started; or, if it is persistent, waited for since.
    Inactive,
    /// A receive that no message has matched.
    Posted,
    /// A send of which the peer knows nothing yet.
    Queued,
    /// What the peer does next ends it.
    InTransfer,
    /// Its outcome is there.
    Complete,
}

/// A send or a receive.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) is_send: bool,
    /// Started again and again, and freed by its owner.
    is_persistent: bool,
    /// Freed as soon as it is complete: nobody asks for the outcome.
    is_detached: bool,
    /// What a receive accepts; of a send its destination and its tag.
    pub(super) wanted: Wanted,
    /// The peer's type must be the same, if both say one.
    pub(super) element: Option<ElementType>,
    /// Where the message is on the host; of one on a device, once it has room there.
    pub(super) place: Place,
    /// How a message goes that is in blocks, or on a device.
    pub(super) pipeline: Option<Box<Pipeline>>,
    /// Of the message of a send; the room of a receive.
    pub(super) bytes: usize,
    pub(super) state: State,
    /// Of the message, once it is known.
    pub(super) status: Status,
    error: Option<Box<Error>>,
}

impl Slot {
    pub(super) fn new(
        is_send: bool,
        wanted: Wanted,
        element: Option<ElementType>,
        place: Place,
        bytes: usize,
    ) -> Self {
        let status = Status { source: 0, tag: 0, bytes: 0 };
        let (is_persistent, is_detached, state) = (false, false, State::Inactive);
        let (pipeline, error) = (None, None);
        Self {
            is_send,
            is_persistent,
            is_detached,
            wanted,
            element,
            place,
            pipeline,
            bytes,
            state,
            status,
            error,
        }
    }

    /// Started again and again, until its owner frees it.
    pub(super) fn persistent(self) -> Self {
        Self { is_persistent: true, ..self }
    }

    /// The rank at the other side, if it is known.
    pub(super) fn peer(&self) -> Option<usize> {
        match (self.wanted.source, self.state) {
            (Source::Rank(peer), _) => Some(peer),
            (Source::Any, State::InTransfer) => Some(self.status.source),
            (Source::Any, _) => None,
        }
    }

    /// Whether a device copies from or to its memory.
    pub(super) fn is_copied(&self) -> bool {
        self.pipeline.as_ref().is_some_and(|pipeline| pipeline.has_copies())
    }

    fn is_active(&self) -> bool {
        matches!(self.state, State::Posted | State::Queued | State::InTransfer)
    }
}

#[derive(Debug, Default)]
struct Entry {
    generation: u32,
    slot: Option<Slot>,
}

/// All sends and receives of an engine.
#[derive(Debug, Default)]
pub(super) struct Slots {
    entries: Vec<Entry>,
    free: Vec<u32>,
    /// How many have begun and are not complete.
    active: usize,
}

impl Slots {
    pub(super) fn with_capacity(capacity: usize) -> Self {
        Self { entries: Vec::with_capacity(capacity), free: Vec::with_capacity(capacity), active: 0 }
    }

    pub(super) fn add(&mut self, slot: Slot) -> Ticket {
        let index = self.free.pop().unwrap_or_else(|| {
            self.entries.push(Entry::default());
            // Every entry may be free at once: freeing must not have to allocate.
            self.free.reserve(self.entries.len());
            self.entries.len() as u32 - 1
        });
        let entry = &mut self.entries[index as usize];
        entry.slot = Some(slot);
        Ticket { index, generation: entry.generation }
    }

    /// The slot of a number that this engine has given to a peer.
    #[inline]
    pub(super) fn at(&mut self, index: u32) -> &mut Slot {
        let slot = self.entries.get_mut(index as usize).and_then(|entry| entry.slot.as_mut());
        slot.expect("a send or a receive is known until its peer is done with it")
    }

    #[inline]
    pub(super) fn index(&self, ticket: Ticket) -> u32 {
        debug_assert!(self.is_known(ticket), "a ticket is used while it is known");
        ticket.index
    }

    pub(super) fn is_known(&self, ticket: Ticket) -> bool {
        let entry = self.entries.get(ticket.index as usize);
        entry.is_some_and(|entry| entry.generation == ticket.generation && entry.slot.is_some())
    }

    pub(super) fn get(&self, ticket: Ticket) -> &Slot {
        debug_assert!(self.is_known(ticket), "a ticket is used while it is known");
        let slot = self.entries[ticket.index as usize].slot.as_ref();
        slot.expect("a ticket is used while it is known")
    }

    pub(super) fn active(&self) -> usize {
        self.active
    }

    /// Begins: the state becomes `state`.
    #[inline]
    pub(super) fn begin(&mut self, index: u32, state: State) {
        let slot = self.at(index);
        debug_assert!(!slot.is_active(), "a send or a receive ends before it begins again");
        slot.state = state;
        self.active += 1;
    }

    /// Ends, well or not.
    #[inline]
    pub(super) fn complete(&mut self, index: u32, outcome: Result<Status>) {
        self.settle(index, outcome);
        self.end_settled(index);
    }

    /// It is known how a send or a receive ends, but the peer is to be told first: whoever knows that all is complete may
    /// let go of the communicator, and of what has not left.
    #[inline]
    pub(super) fn settle(&mut self, index: u32, outcome: Result<Status>) {
        let slot = self.at(index);
        slot.state = State::InTransfer;
        match outcome {
            Ok(status) => slot.status = status,
            Err(error) => slot.error = Some(Box::new(error)),
        }
    }

    /// Ends as was settled.
    #[inline]
    pub(super) fn end_settled(&mut self, index: u32) {
        self.active -= 1;
        let slot = self.at(index);
        slot.state = State::Complete;
        if slot.is_detached {
            self.remove(index);
        }
    }

    /// Ends a send or a receive that the peer knows nothing of.
    pub(super) fn withdraw(&mut self, index: u32) {
        self.active -= 1;
        self.remove(index);
    }

    /// Nobody will ask for the outcome.
    pub(super) fn detach(&mut self, index: u32) {
        self.at(index).is_detached = true;
    }

    pub(super) fn remove(&mut self, index: u32) {
        let entry = &mut self.entries[index as usize];
        entry.slot = None;
        entry.generation = entry.generation.wrapping_add(1);
        self.free.push(index);
    }

    /// Has a persistent request that is complete begin again, and gives its error if it has one.
    #[inline]
    pub(super) fn end(&mut self, ticket: Ticket) -> Result<()> {
        let slot = self.at(self.index(ticket));
        slot.state = State::Inactive;
        match slot.error.take() {
            None => Ok(()),
            Some(error) => Err(*error),
        }
    }

    /// Takes the outcome, if it is there: what is persistent can begin again, and the rest is forgotten.
    #[inline]
    pub(super) fn take_outcome(&mut self, ticket: Ticket) -> Option<Result<Status>> {
        let index = self.index(ticket);
        let slot = self.at(index);
        if slot.state != State::Complete {
            return None;
        }
        let outcome = match slot.error.take() {
            None => Ok(slot.status),
            Some(error) => Err(*error),
        };
        slot.state = State::Inactive;
        if !slot.is_persistent {
            self.remove(index);
        }
        Some(outcome)
    }
}
