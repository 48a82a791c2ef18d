//! Which receive takes which message.
//!
//! A message goes to the first receive that was posted for it; a receive takes the first message that has
//! come for it. Both lists are searched in order, so that messages from one rank with one tag do not overtake
//! each other.

use crate::source::{Source, Tag};
use std::collections::VecDeque;

/// Tags from here on are those of collective calls and of what the library says to itself.
pub(crate) const INTERNAL: u32 = 1 << 31;

/// What a receive accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub(crate) source: Source,
    pub(crate) tag: Tag,
}

impl Wanted {
    /// Whether it accepts a message from there with that tag. No wildcard accepts an internal tag; those of collective calls
    /// are taken in order, whichever call they say.
    #[inline]
    fn accepts(self, source: usize, tag: u32) -> bool {
        let tag_fits = match self.tag {
            Tag::Any => tag < INTERNAL,
            Tag::Value(wanted) => wanted == tag || wanted.min(tag) >= INTERNAL,
        };
        tag_fits && self.source.matches(source)
    }
}

/// A message that came before its receive.
#[derive(Debug)]
pub(crate) struct Early<M> {
    pub(crate) source: usize,
    pub(crate) tag: u32,
    pub(crate) message: M,
}

/// Receives without a message, and messages without a receive.
#[derive(Debug)]
pub(crate) struct Matching<M> {
    posted: Vec<(Wanted, u32)>,
    early: VecDeque<Early<M>>,
}

impl<M> Matching<M> {
    /// With room for that many of each before it has to grow.
    pub(crate) fn with_capacity(capacity: usize) -> Self {
        Self { posted: Vec::with_capacity(capacity), early: VecDeque::with_capacity(capacity) }
    }

    /// Makes room for that many of each.
    pub(crate) fn reserve(&mut self, all: usize) {
        self.posted.reserve(all.saturating_sub(self.posted.len()));
        self.early.reserve(all.saturating_sub(self.early.len()));
    }

    /// The message that a new receive takes, or else the receive is posted.
    #[inline]
    pub(crate) fn post(&mut self, wanted: Wanted, receive: u32) -> Option<Early<M>> {
        let early = self.early.iter().position(|early| wanted.accepts(early.source, early.tag));
        match early {
            Some(early) => self.early.remove(early),
            None => {
                self.posted.push((wanted, receive));
                None
            }
        }
    }

    /// The receive that a new message goes to. Where there is none, the message is to be kept.
    #[inline]
    pub(crate) fn arrive(&mut self, source: usize, tag: u32) -> Option<u32> {
        let posted = self.posted.iter().position(|(wanted, _)| wanted.accepts(source, tag))?;
        Some(self.posted.remove(posted).1)
    }

    /// Keeps a message that no receive was posted for.
    pub(crate) fn keep(&mut self, source: usize, tag: u32, message: M) {
        self.early.push_back(Early { source, tag, message });
    }

    /// The message that a receive would take.
    pub(crate) fn find(&self, wanted: Wanted) -> Option<&Early<M>> {
        self.early.iter().find(|early| wanted.accepts(early.source, early.tag))
    }

    /// Takes a posted receive back.
    pub(crate) fn cancel(&mut self, receive: u32) {
        self.posted.retain(|(_, posted)| *posted != receive);
    }
}
