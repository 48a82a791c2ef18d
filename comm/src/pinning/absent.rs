//! Threads that stay on one core each: none, where the system is not asked for it.

use crate::error::Result;
use crate::world::World;

/// Would keep the thread that has made it on one core.
#[derive(Debug)]
#[must_use = "the thread is pinned until this is dropped"]
pub struct Pinned {
    _private: (),
}

/// Threads are not pinned here.
pub(crate) fn pin(_world: &World) -> Result<Pinned> {
    Ok(Pinned { _private: () })
}

/// Of how many cores the calling thread gets the time.
pub(crate) fn usable() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Threads are not pinned here.
pub(crate) fn unpinned() -> impl Fn() + Send + Sync {
    || ()
}
