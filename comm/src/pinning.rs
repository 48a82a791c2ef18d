//! Threads that stay on one core each.

use crate::error::{Error, Result};
use crate::world::World;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use serde::{Deserialize, Serialize};
use std::cell::Cell;
use std::collections::BTreeMap;
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
    let all = world.agree(CALL, Cores::of_thread())?;
    let pinned = Pinned::to_core(Cores::of_rank(world.rank(), &all));
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

/// Where a thread may run if it is not pinned.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Cores {
    /// The running system, if it can be told from others.
    node: Option<String>,
    cores: Vec<usize>,
}

impl Cores {
    /// Of the calling thread.
    ///
    /// # Errors
    /// [`Error::System`] if the system refuses.
    fn of_thread() -> Result<Self> {
        Ok(Self { node: std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok(), cores: allowed()? })
    }

    /// The core that a rank takes, where all ranks may run as `all` says: of its cores the first of those that the fewest
    /// ranks before it on its node have taken. Launchers give ranks the same cores, some each, or one each, and deal them
    /// out over nodes one by one or in blocks.
    fn of_rank(rank: usize, all: &[Self]) -> usize {
        let mut taken = BTreeMap::new();
        let mut own = 0;
        for Self { cores, .. } in all[..=rank].iter().filter(|other| other.node == all[rank].node) {
            own = *cores.iter().min_by_key(|core| taken.get(*core).unwrap_or(&0)).expect("it runs somewhere");
            *taken.entry(own).or_insert(0) += 1;
        }
        own
    }
}

fn failed<E: Display>(call: &'static str) -> impl Fn(E) -> Error {
    move |error| Error::System { call, reason: error.to_string() }
}
