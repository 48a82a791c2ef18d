//! Threads that stay on one core each: none, where the system is not asked for it.

use crate::error::Result;
use crate::world::World;

/// Keeps a thread on one core. None does here.
#[derive(Debug)]
pub enum Pinned {}

/// Threads are not pinned here.
pub(crate) fn pin(_world: &World) -> Result<Option<Pinned>> {
    Ok(None)
}

/// Threads are not pinned here.
pub(crate) fn unpinned() -> impl Fn() + Send + Sync {
    || ()
}
