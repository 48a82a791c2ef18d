//! What makes a stream-triggered backend, as data.

use super::Direct;
use super::matching::{PlannedRecv, PlannedSend, Target};
use crate::fabric::{Role, Word};

/// How receivers learn that payloads are there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Completion {
    /// Each sender sets a word of its own to the epoch.
    Flag,
    /// All senders count in one word.
    Count,
}

/// What makes a stream-triggered backend: what goes before, with and after the payload.
#[derive(Debug, Clone, Copy)]
pub(super) struct Protocol {
    /// The backend's name.
    pub(super) backend: &'static str,
    /// What a receiver says as it starts.
    pub(super) readiness: Role,
    /// To which senders it says so.
    pub(super) announces: fn(&PlannedRecv) -> bool,
    /// From which receivers a sender waits to hear it.
    pub(super) awaits: fn(&PlannedSend) -> bool,
    /// The value that a receiver announces in an epoch.
    pub(super) announced: fn(u32) -> u32,
    /// The value that a sender needs in an epoch.
    pub(super) needed: fn(u32) -> u32,
    /// Whether no send starts before all receivers are ready.
    pub(super) waits_for_group: bool,
    /// Receive buffers used in turn.
    pub(super) buffers: usize,
    /// What must be allowed for a single pass into the ghosts.
    pub(super) direct: Direct,
    pub(super) completion: Completion,
}

impl Protocol {
    /// What says that a payload is there, in the memory of a peer that is mapped.
    pub(super) fn completion_word(self, target: &Target, phase: usize) -> Option<&Word> {
        match (target, self.completion) {
            (Target::Near(near), Completion::Flag) => Some(&near.arrivals[phase % self.buffers]),
            (Target::Near(near), Completion::Count) => Some(&near.counts[phase]),
            (Target::Far(..), _) => None,
        }
    }
}
