//! The machine's MPI libraries, where this version opens none: it knows those of Linux.

mod found;
#[allow(dead_code, reason = "only what started the process matters here")]
mod launcher;

pub use found::FoundLibrary;

/// How many ranks an MPI launcher has started, with the variable that says so.
pub(crate) fn started_ranks() -> Option<(&'static str, usize)> {
    launcher::Launcher::of_this_process().size
}

/// No library: none is looked for on this system.
pub fn installed() -> Vec<FoundLibrary> {
    Vec::new()
}
