//! Memory that the ranks of a node share, although somebody else has started them.
//!
//! The first rank of a node makes the memory file, and the others open it through `/proc`, as the same
//! user may. It has no name of its own, so that nothing of it is left behind.

use super::super::spanning::Spanning;
use super::super::{Executor, Fabric, unavailable};
use super::segment::{Segment, ShmFabric};
use crate::error::Result;
use crate::pinning::{allowed, usable};
use crate::world::{World, WorldOptions};
use rustix::fs::MemfdFlags;
use rustix::thread::{CpuSet, sched_setaffinity};
use std::collections::BTreeSet;
use std::os::fd::AsRawFd;
use std::sync::Arc;

/// The fabric `name`: that of a wire between nodes, with mapped memory within them. Collective.
pub(in super::super) fn within_nodes(
    name: &'static str,
    wire: Arc<Spanning>,
    options: &WorldOptions,
) -> Result<Arc<dyn Fabric>> {
    const CALL: &str = "sharing memory within nodes";
    let world = World::new(wire.clone(), *options)?;
    let (rank, size) = (world.rank(), world.size());
    let nodes = world.agree(CALL, node())?;
    let mapped: Vec<bool> = nodes.iter().map(|node| *node == nodes[rank]).collect();
    let leader = nodes.iter().position(|node| *node == nodes[rank]).expect("this rank is on its node");
    // What a rank starts may outlive the job, and is not to keep its memory.
    let made = (leader == rank).then(|| Segment::create(size, MemfdFlags::CLOEXEC));
    let path = match &made {
        None => Ok(String::new()),
        Some(Ok(segment)) => {
            Ok(format!("/proc/{}/fd/{}", std::process::id(), segment.descriptor().as_raw_fd()))
        }
        Some(Err(error)) => Err(error.clone()),
    };
    let paths = world.agree(CALL, path)?;
    let opened = match made {
        Some(segment) => segment,
        None => Segment::open(&paths[leader]).map(|(segment, _)| segment).map_err(|reason| {
            unavailable(
                name,
                format!(
                    "the memory file of rank {leader}, which is on the same node, cannot be opened ({reason}); \
                     use the fabric without `shm+`"
                ),
            )
        }),
    };
    let memory = opened.and_then(|segment| ShmFabric::of_segment(segment, rank, size));
    // Rank `leader` keeps the file open until all have it.
    world.agree(CALL, memory.as_ref().map(|_| ()))?;
    let memory = memory?;
    let executor = if mapped.iter().all(|mapped| *mapped) { Executor::Stream } else { wire.executor };
    Ok(Arc::new(Spanning {
        name,
        bootstrap: wire.bootstrap.clone(),
        engine: wire.engine.clone(),
        cores: memory.cores_of_all(),
        memory: Arc::new(memory),
        mapped,
        farewell: wire.farewell.clone(),
        wire: wire.wire.clone().filter(|_| executor != Executor::Stream),
        executor,
    }))
}

/// The fabric of the ranks of a job, each of which a script may have bound to its own core. Collective, unless the options
/// say how to wait.
pub(super) fn of_job(options: &WorldOptions) -> Result<Arc<dyn Fabric>> {
    match options.policy {
        Some(_) => Ok(ShmFabric::from_env()?),
        None => Ok(ShmFabric::of_all(options.timeout)?),
    }
}

/// How many cores ranks have that may use these together: as many, unless the system gives them the time of fewer, as in a
/// container with a quota.
pub(super) fn together(cores: &BTreeSet<usize>) -> usize {
    let counted = || allowed().ok().map(|allowed| (allowed.len(), usable()));
    let is_own = allowed().is_ok_and(|own| own.iter().eq(cores));
    // Of a thread that is bound to fewer than a quota the system does not tell it: another one is let onto all of them.
    let counted = if is_own { counted() } else { on_cores(cores, counted).flatten() };
    match counted {
        _ if cores.is_empty() => usable(),
        Some((allowed, usable)) => within_quota(cores.len(), allowed, usable),
        None => cores.len(),
    }
}

/// What becomes of so many cores where a thread that `allowed` of them are open to gets the time of `usable`.
fn within_quota(cores: usize, allowed: usize, usable: usize) -> usize {
    if usable < allowed { usable.min(cores) } else { cores }
}

/// What it gives in a thread that may run on these cores, of those that the system leaves to this process; `None` if
/// there cannot be one.
pub(super) fn on_cores<T: Send>(cores: &BTreeSet<usize>, what: impl FnOnce() -> T + Send) -> Option<T> {
    let mut set = CpuSet::new();
    cores.iter().for_each(|core| set.set(*core));
    let run = || {
        sched_setaffinity(None, &set).ok()?;
        Some(what())
    };
    std::thread::scope(|scope| std::thread::Builder::new().spawn_scoped(scope, run).ok()?.join().ok()?)
}

/// Names the node of a rank, where ranks of one system are to keep their memory apart.
const NODE_VARIABLE: &str = "STREAMHALO_NODE";

/// What two ranks have in common if one can open the other's files: the running system, and its view
/// of processes.
fn node() -> std::io::Result<(String, String)> {
    if let Ok(name) = std::env::var(NODE_VARIABLE) {
        return Ok((name, String::new()));
    }
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    let processes = std::fs::read_link("/proc/self/ns/pid")?;
    Ok((boot, processes.to_string_lossy().into_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quota_is_kept_to_and_a_binding_is_none() {
        assert_eq!(within_quota(4, 4, 4), 4);
        // A container that has the time of two.
        assert_eq!(within_quota(64, 64, 2), 2);
        // What the system leaves to the process may be some of them, or more.
        assert_eq!([within_quota(4, 1, 1), within_quota(2, 8, 4), within_quota(8, 4, 2)], [4, 2, 2]);
    }

    #[test]
    fn ranks_that_are_bound_have_the_cores_of_all_of_their_node() {
        let own: BTreeSet<_> = allowed().expect("the system tells them").into_iter().collect();
        assert_eq!(together(&own), usable());
        let bound = on_cores(&own.iter().copied().take(1).collect(), || (usable(), together(&own)));
        assert_eq!(bound, Some((1, usable())));
        // Where no rank was told its own.
        assert_eq!(together(&BTreeSet::new()), usable());
    }
}
