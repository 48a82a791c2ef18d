//! What happens as a word is posted, besides its value being there.

use super::observer::Recording;
use std::fmt;
use std::sync::Arc;

/// What a word in memory does besides holding its value.
#[derive(Clone)]
pub(crate) enum Hook {
    /// Tells an observer that it was written.
    Observed(Arc<Recording>),
    /// Rings a bell in place of being written.
    Doorbell(Arc<dyn Doorbell>),
}

impl fmt::Debug for Hook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Hook::Observed(_) => "Observed",
            Hook::Doorbell(_) => "Doorbell",
        })
    }
}

/// Is told when a stream comes to a trigger that is not a plain word of memory.
pub(crate) trait Doorbell: Send + Sync {
    /// The value that the stream has posted.
    fn ring(&self, value: u32);
}
