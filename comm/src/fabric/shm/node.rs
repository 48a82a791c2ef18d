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
    let allowed = world.agree(CALL, allowed())?;
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
    let executor = if mapped.iter().all(|mapped| *mapped) { Executor::Stream } else { wire.executor };
    Ok(Arc::new(Spanning {
        name,
        bootstrap: wire.bootstrap.clone(),
        engine: wire.engine.clone(),
        memory: Arc::new(memory?),
        cores: cores_of(rank, &mapped, &allowed, usable()),
        mapped,
        farewell: wire.farewell.clone(),
        wire: wire.wire.clone().filter(|_| executor != Executor::Stream),
        executor,
    }))
}

/// The fabric of the ranks of a job, each of which a script may have bound to its own core. Collective.
pub(super) fn of_job(options: &WorldOptions) -> Result<Arc<dyn Fabric>> {
    let world = World::new(ShmFabric::from_env()?, *options)?;
    let allowed = world.agree("joining the ranks of a job", allowed())?;
    let cores = cores_of(world.rank(), &vec![true; world.size()], &allowed, usable());
    Ok(ShmFabric::of_env(cores)?)
}

/// How many cores the ranks of the node of `rank` may use together, which are those that each of them may, unless the system
/// gives this one, by `usable`, the time of fewer.
fn cores_of(rank: usize, mapped: &[bool], allowed: &[Vec<usize>], usable: usize) -> usize {
    if usable < allowed[rank].len() {
        return usable;
    }
    let here = allowed.iter().zip(mapped).filter(|(_, mapped)| **mapped).flat_map(|(cores, _)| cores);
    here.collect::<BTreeSet<_>>().len()
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
    fn ranks_that_are_bound_have_the_cores_of_all_of_their_node() {
        let one_each: Vec<_> = (0..4).map(|rank| vec![rank]).collect();
        assert_eq!(cores_of(1, &[true; 4], &one_each, 1), 4);
        assert_eq!(cores_of(1, &[false, true, true, false], &one_each, 1), 2);
        let some_each = [vec![0, 1], vec![0, 1], vec![2, 3], vec![2, 3]];
        assert_eq!(cores_of(0, &[true; 4], &some_each, 2), 4);
        let the_same = vec![vec![0, 1]; 4];
        assert_eq!(cores_of(3, &[true; 4], &the_same, 2), 2);
        // A container that has the time of two of them.
        let many = vec![(0..64).collect(); 4];
        assert_eq!(cores_of(3, &[true; 4], &many, 2), 2);
    }
}
