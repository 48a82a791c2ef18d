//! Threads that stay on one core each.

use crate::error::{Error, Result};
use crate::shares::Share;
use crate::world::World;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::cell::Cell;
use std::fmt::Display;
use std::marker::PhantomData;

#[cfg(test)]
mod tests;

thread_local! {
    /// What the thread could use before it was pinned.
    static BEFORE: Cell<Option<CpuSet>> = const { Cell::new(None) };
}

/// Keeps the thread that has made it on one core. Once it is dropped the thread may use those again that it could use before.
#[derive(Debug)]
#[must_use = "the thread is pinned until this is dropped"]
pub struct Pinned {
    allowed: CpuSet,
    before: Option<CpuSet>,
    /// It is about its own thread.
    _stays: PhantomData<*const ()>,
}

impl Pinned {
    /// Pins the calling thread.
    ///
    /// # Errors
    /// [`Error::System`] if the system refuses.
    fn to_core(core: usize) -> Result<Self> {
        let allowed = sched_getaffinity(None).map_err(failed("sched_getaffinity"))?;
        let mut one = CpuSet::new();
        one.set(core);
        sched_setaffinity(None, &one).map_err(failed("sched_setaffinity"))?;
        let before = BEFORE.get();
        BEFORE.set(before.or(Some(allowed)));
        Ok(Self { allowed, before, _stays: PhantomData })
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // A thread that stays where it is works too.
        let _ = sched_setaffinity(None, &self.allowed);
        BEFORE.set(self.before);
    }
}

/// As [`World::pin`].
pub(crate) fn pin(world: &World) -> Result<Pinned> {
    const CALL: &str = "World::pin";
    let own = allowed();
    let all = world.agree(CALL, own.clone().map(Share::new))?;
    let place = Share::of_rank(world.rank(), &all).expect("it runs somewhere");
    let pinned = own.and_then(|cores| Pinned::to_core(cores[place]));
    world.agree(CALL, pinned.as_ref().map(|_| ()))?;
    pinned
}

/// Lets the thread that calls it use the cores that this one could before it was pinned: of threads that a pinned one
/// starts, those that are not to share its core.
pub(crate) fn unpinned() -> impl Fn() + Send + Sync {
    let before = BEFORE.get();
    move || {
        if let Some(before) = before {
            // A thread that stays where it is works too.
            let _ = sched_setaffinity(None, &before);
        }
    }
}

/// The cores on which the calling thread may run if it is not pinned.
///
/// # Errors
/// [`Error::System`] if the system refuses.
pub(crate) fn allowed() -> Result<Vec<usize>> {
    let allowed = match BEFORE.get() {
        Some(before) => before,
        None => sched_getaffinity(None).map_err(failed("sched_getaffinity"))?,
    };
    Ok((0..CpuSet::MAX_CPU).filter(|core| allowed.is_set(*core)).collect())
}

fn failed<E: Display>(call: &'static str) -> impl Fn(E) -> Error {
    move |error| Error::System { call, reason: error.to_string() }
}
