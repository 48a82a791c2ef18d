//! The fabric `shm`: ranks are processes of one machine that share one memory file.
//!
//! The launcher makes the file and passes it on to its ranks by inheritance. It has no name, so
//! nothing of it can be left behind: it is gone when the last process that maps it is.

#[cfg(target_os = "linux")]
mod job;
#[cfg(target_os = "linux")]
mod segment;

#[cfg(target_os = "linux")]
pub(crate) use job::end_with_parent;
pub use job::{Exit, Job, pin_to_core};
#[cfg(target_os = "linux")]
pub use segment::ShmFabric;

/// Names the memory file to a rank, as a file descriptor that it inherits.
pub const SEGMENT_VARIABLE: &str = "STREAMHALO_SHM_FD";
/// The rank of a process, from 0.
pub const RANK_VARIABLE: &str = "STREAMHALO_RANK";
/// How many ranks there are.
pub const SIZE_VARIABLE: &str = "STREAMHALO_SIZE";

/// The process that started the ranks, without which they end.
pub const LAUNCHER_VARIABLE: &str = "STREAMHALO_LAUNCHER";

/// Why the fabric cannot be used here, if so.
pub(super) fn unusable() -> Option<String> {
    if cfg!(target_os = "linux") {
        None
    } else {
        Some("it needs memfd and futex, which are Linux calls; use `local`".into())
    }
}
