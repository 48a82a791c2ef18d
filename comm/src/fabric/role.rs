//! What is said between ranks.

use std::fmt;

/// What a word says, or a message is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Role {
    /// A rank has arrived at a barrier.
    Barrier,
    /// A sender asks a receiver for a place to put a large message (two-sided, rendezvous).
    ReadyToSend,
    /// A receiver says that its memory may be written.
    ClearToSend,
    /// A receiver of a one-way pair says how far it has unpacked.
    Credit,
    /// A target exposes its window.
    Exposure,
    /// The payload.
    Payload,
    /// The payload has arrived.
    Completion,
    /// A payload has arrived: one more in the receiver's count.
    Notification,
    /// A stream has come to where a message may be carried out.
    Trigger,
    /// A payload has left the memory that it was packed into.
    Departure,
}

impl Role {
    /// What it is called, without an article.
    pub const fn name(self) -> &'static str {
        match self {
            Role::Barrier => "barrier",
            Role::ReadyToSend => "ready-to-send",
            Role::ClearToSend => "clear-to-send",
            Role::Credit => "credit",
            Role::Exposure => "exposure",
            Role::Payload => "payload",
            Role::Completion => "completion",
            Role::Notification => "notification",
            Role::Trigger => "trigger",
            Role::Departure => "acceptance of the payload",
        }
    }
}

impl Role {
    /// What a wait for its word to come to `value` waits for: that of an epoch, where words of this role hold epochs.
    pub(crate) fn of(self, value: u32) -> String {
        match self {
            Role::ClearToSend | Role::Exposure | Role::Completion => format!("{self} of epoch {value}"),
            _ => self.to_string(),
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the {}", self.name())
    }
}
