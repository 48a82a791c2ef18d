//! The communicators of a world. Making and freeing one is collective.

use crate::error::Result;
use crate::fabric::mpi::Communicator;
use crate::locks::lock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

/// Those that live as long as the world: libraries have room for some thousands at a time.
#[derive(Debug)]
pub(super) struct Communicators {
    /// In the order of making, which is the same on all ranks of each. The first is of all ranks.
    made: Mutex<Vec<Communicator>>,
    numbers: AtomicU64,
}

impl Communicators {
    /// A first one, of the ranks of `theirs`, which may be freed then. Collective over it.
    pub(super) fn new(theirs: &Communicator) -> Result<Arc<Self>> {
        Ok(Arc::new(Self { made: Mutex::new(vec![theirs.duplicate()?]), numbers: AtomicU64::new(0) }))
    }

    fn made(&self) -> MutexGuard<'_, Vec<Communicator>> {
        lock(&self.made)
    }

    fn add(&self, made: Communicator) -> Communicator {
        self.made().push(made.clone());
        made
    }

    /// The first one.
    pub(super) fn base(&self) -> Communicator {
        self.made()[0].clone()
    }

    /// Another one of all ranks. Collective.
    pub(super) fn duplicate(&self) -> Result<Communicator> {
        Ok(self.add(self.base().duplicate()?))
    }

    /// One of the first ranks of another. Collective over those.
    pub(super) fn first(&self, of: &Communicator, ranks: usize) -> Result<Communicator> {
        Ok(self.add(of.first(ranks)?))
    }

    /// A number that this rank has given to none yet.
    pub(super) fn next_number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }

    /// Frees all, when nothing is on its way in any of them: a message that comes later could be taken for one of a
    /// communicator of another world. Collective.
    pub(super) fn free_all(&self) {
        for communicator in self.made().drain(..) {
            // What cannot be freed goes with the process.
            let _ = communicator.free();
        }
    }
}
