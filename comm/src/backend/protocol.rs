//! What makes a stream-triggered backend, as data.

use super::Direct;
use super::matching::{PlannedRecv, PlannedSend, Target};
use crate::fabric::{Terms, Word};

/// What makes a stream-triggered backend: what goes before, with and after the payload.
#[derive(Debug, Clone, Copy)]
pub(super) struct Protocol {
    /// What wires have to know of it.
    pub(super) terms: Terms,
    /// To which senders a receiver says, as it starts, that it is ready.
    pub(super) announces: fn(&PlannedRecv) -> bool,
    /// From which receivers a sender waits to hear it.
    pub(super) awaits: fn(&PlannedSend) -> bool,
    /// What must be allowed for a single pass into the ghosts.
    pub(super) direct: Direct,
}

impl Protocol {
    /// Every send waits for its receiver.
    pub(super) const CLEARED: Self = Self {
        terms: Terms::CLEAR_TO_SEND,
        announces: |_| true,
        awaits: |_| true,
        direct: Direct::WhenClear,
    };

    /// Receivers are ready, as what they send themselves says; only where messages go one way do they say so.
    pub(super) const READY: Self = Self {
        terms: Terms::READY,
        announces: |recv| recv.one_way,
        awaits: |send| send.one_way,
        direct: Direct::Alternating,
    };

    /// What says that a payload is there, in the memory of a peer that is mapped.
    pub(super) fn completion_word(self, target: &Target, phase: usize) -> Option<&Word> {
        match target {
            Target::Near(near) if self.terms.counts => Some(&near.counts[phase]),
            Target::Near(near) => Some(&near.arrivals[phase % self.terms.buffers]),
            Target::Far(..) => None,
        }
    }
}
