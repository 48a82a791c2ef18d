//! Threads that stay on one core each.

use crate::error::{Error, Result};
use crate::shares::Share;
use crate::world::World;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::cell::{Cell, RefCell};
use std::fmt::Display;
use std::rc::Rc;
use std::thread::available_parallelism;

#[cfg(test)]
mod tests;

thread_local! {
    /// What the thread could use before it was pinned, and the time of how many.
    static BEFORE: Cell<Option<(CpuSet, usize)>> = const { Cell::new(None) };
    /// Where the guards of the thread keep it, the newest last, where it is.
    static KEPT: RefCell<Vec<Rc<CpuSet>>> = const { RefCell::new(Vec::new()) };
}

/// Keeps the thread that has made it on one core, until a newer one keeps it on another. Once the last is dropped, in any
/// order, the thread may use those again that it could use before.
#[derive(Debug)]
#[must_use = "the thread is pinned until this is dropped"]
pub struct Pinned {
    /// Not sent to other threads: it is about its own.
    core: Rc<CpuSet>,
}

impl Pinned {
    /// Pins the calling thread.
    ///
    /// # Errors
    /// [`Error::System`] if the system refuses.
    fn to_core(core: usize) -> Result<Self> {
        let before = (may_use()?, usable());
        let mut one = CpuSet::new();
        one.set(core);
        sched_setaffinity(None, &one).map_err(failed("sched_setaffinity"))?;
        BEFORE.set(Some(before));
        let core = Rc::new(one);
        KEPT.with_borrow_mut(|kept| kept.push(core.clone()));
        Ok(Self { core })
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        let newest = KEPT.try_with(|kept| {
            let mut kept = kept.borrow_mut();
            kept.retain(|other| !Rc::ptr_eq(other, &self.core));
            kept.last().map(|core| **core)
        });
        // A thread that ends needs none.
        let Ok(newest) = newest else { return };
        if let Some(allowed) = newest.or_else(|| BEFORE.take().map(|(before, _)| before)) {
            // A thread that stays where it is works too.
            let _ = sched_setaffinity(None, &allowed);
        }
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
        if let Some((before, _)) = before {
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
    let allowed = may_use()?;
    Ok((0..CpuSet::MAX_CPU).filter(|core| allowed.is_set(*core)).collect())
}

/// Of how many cores the calling thread gets the time if it is not pinned.
pub(crate) fn usable() -> usize {
    BEFORE.get().map_or_else(|| available_parallelism().map_or(1, usize::from), |(_, usable)| usable)
}

/// What the calling thread may use if it is not pinned.
fn may_use() -> Result<CpuSet> {
    match BEFORE.get() {
        Some((before, _)) => Ok(before),
        None => sched_getaffinity(None).map_err(failed("sched_getaffinity")),
    }
}

fn failed<E: Display>(call: &'static str) -> impl Fn(E) -> Error {
    move |error| Error::System { call, reason: error.to_string() }
}
