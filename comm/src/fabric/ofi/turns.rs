//! Turns of threads where a provider's calls do not go together.
//!
//! The `shm` provider of libfabric 1.17 says that it is thread-safe, and is not: while one thread polls, it looks for the
//! receive of a message that has come and then keeps the message as unexpected, in two steps. A receive that another
//! thread posts in between finds no message, and the message no receive: neither completes. Threads that post receives
//! and that poll take turns there. Who finds another one at it does not wait: it comes again anyway.

use crate::locks::try_lock;
use std::sync::{Mutex, MutexGuard};

/// Whose turn it is, where that matters.
#[derive(Debug)]
pub(super) struct Turns(Option<Mutex<()>>);

/// That it is the caller's, until dropped.
pub(super) type Turn<'a> = Option<MutexGuard<'a, ()>>;

impl Turns {
    /// For the calls of that provider.
    pub(super) fn of(provider: &str) -> Self {
        Self((provider == "shm").then(Mutex::default))
    }

    /// The caller's turn, unless it is another thread's. Never blocks.
    pub(super) fn take(&self) -> Option<Turn<'_>> {
        match &self.0 {
            Some(turn) => try_lock(turn).map(Some),
            None => Some(None),
        }
    }
}
