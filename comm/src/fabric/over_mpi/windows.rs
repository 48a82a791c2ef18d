//! The windows of a rank. Making and freeing one is collective, and dropping an exchange is not: so a
//! window lives until the ranks meet again and all say that they are done with it.

use crate::error::Result;
use crate::fabric::Region;
use crate::fabric::mpi::{Communicator, Window};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The windows over the first ranks of a world, by how many these are.
#[derive(Debug, Default)]
pub(super) struct Windows {
    worlds: Mutex<HashMap<usize, Made>>,
}

#[derive(Debug, Default)]
struct Made {
    communicator: Option<Communicator>,
    next: u32,
    windows: Vec<Kept>,
}

/// A window with its number, which is the same on all its ranks.
#[derive(Debug)]
struct Kept {
    number: u32,
    window: Arc<Window>,
    _memory: Option<Region>,
}

impl Windows {
    fn worlds(&self) -> MutexGuard<'_, HashMap<usize, Made>> {
        self.worlds.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A window over the first `size` ranks, of this rank's `memory`. Collective over them.
    pub(super) fn open(
        &self,
        all: &Communicator,
        size: usize,
        memory: Option<Region>,
    ) -> Result<Arc<Window>> {
        let mut worlds = self.worlds();
        let made = worlds.entry(size).or_default();
        let communicator = match &made.communicator {
            Some(communicator) => communicator,
            None => made.communicator.insert(all.first(size)?),
        };
        let (base, bytes) =
            memory.as_ref().map_or((std::ptr::null_mut(), 0), |memory| (memory.base(), memory.bytes()));
        // SAFETY: the memory is kept beside the window.
        let window = Arc::new(unsafe { Window::create(base, bytes, communicator) }?);
        let number = made.next;
        made.next += 1;
        made.windows.push(Kept { number, window: window.clone(), _memory: memory });
        Ok(window)
    }

    /// The windows over the first `size` ranks that this rank is done with.
    pub(super) fn done(&self, size: usize) -> Vec<u32> {
        let worlds = self.worlds();
        let windows = worlds.get(&size).map_or(&[][..], |made| &made.windows);
        windows.iter().filter(|kept| Arc::strong_count(&kept.window) == 1).map(|kept| kept.number).collect()
    }

    /// Frees those that all ranks are done with. Collective over the first `size` ranks.
    pub(super) fn free(&self, size: usize, done: &[&[u32]]) -> Result<()> {
        let mut worlds = self.worlds();
        let Some(made) = worlds.get_mut(&size) else { return Ok(()) };
        let by_all = |kept: &mut Kept| done.iter().all(|done| done.contains(&kept.number));
        for kept in made.windows.extract_if(.., by_all) {
            let window = Arc::into_inner(kept.window).expect("this rank has said that it is done with it");
            window.free()?;
        }
        Ok(())
    }
}
