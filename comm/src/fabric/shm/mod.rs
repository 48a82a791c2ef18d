//! The fabric `shm`: ranks are processes of one machine that share one memory file.
//!
//! The launcher makes the file and passes it on to its ranks by inheritance. It has no name, so
//! nothing of it can be left behind: it is gone when the last process that maps it is.

mod job;
mod mapping;
mod node;
mod segment;

pub use job::Job;
pub(crate) use mapping::{Mapping, reserve, whole_pages};
pub(super) use node::within_nodes;
pub use segment::ShmFabric;

use super::Fabric;
use crate::error::Result;
use crate::world::WorldOptions;
use std::sync::Arc;

/// Names the memory file to a rank, as a file descriptor that it inherits.
pub const SEGMENT_VARIABLE: &str = "STREAMHALO_SHM_FD";
/// The rank of a process, from 0.
pub const RANK_VARIABLE: &str = "STREAMHALO_RANK";
/// How many ranks there are.
pub const SIZE_VARIABLE: &str = "STREAMHALO_SIZE";

/// The process that started the ranks, without which they end.
pub const LAUNCHER_VARIABLE: &str = "STREAMHALO_LAUNCHER";

/// The fabric of a rank that `streamhalo run` or `streamhalo launch` has started.
pub(super) fn join(options: &WorldOptions) -> Result<Arc<dyn Fabric>> {
    job::end_with_parent()?;
    node::of_job(options)
}

/// Makes this process end with the one that started it by a [`Job`], if one did. [`World`](crate::World)s over
/// `shm` see to that themselves.
///
/// # Errors
/// [`Error::System`](crate::Error::System) if that one has ended already.
pub fn end_with_launcher() -> Result<()> {
    if std::env::var_os(LAUNCHER_VARIABLE).is_some() {
        job::end_with_parent()?;
    }
    Ok(())
}

/// Tells the [`Job`] that has started this process why `rank` has failed, if one did: it knows of its processes only how
/// they ended. [`World`](crate::World)s over `shm` tell it themselves; only the first word of any rank counts.
///
/// # Errors
/// [`Error::BadEnvironment`](crate::Error::BadEnvironment) if this process cannot open what it has inherited.
pub fn tell_launcher(rank: usize, reason: &str) -> Result<()> {
    if let Ok(descriptor) = std::env::var(SEGMENT_VARIABLE) {
        segment::Segment::inherited(&descriptor)?.0.abort().raise(rank, reason);
    }
    Ok(())
}

/// How a job ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Exit {
    /// Every rank ended with status 0.
    Success,
    /// A rank failed.
    Failed {
        /// The first rank that did.
        rank: usize,
        /// Its exit status, or the signal that ended it.
        reason: String,
        /// A status for the launcher to exit with.
        code: i32,
    },
}
