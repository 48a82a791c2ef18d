//! An MPI library of this machine, as it is listed.

use std::path::PathBuf;

/// An MPI library of this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundLibrary {
    /// The library's file.
    pub path: PathBuf,
    /// Its binary interface; empty for one that could not be opened.
    pub abi: String,
    /// The first line of what it says of itself; empty for one that could not be opened.
    pub version: String,
    /// What of MPI it has: `persistent` requests, `RMA` windows, `partitioned` communication.
    pub capabilities: Vec<&'static str>,
    /// For each vendor of GPUs, whether it takes addresses of their memory, or who says so once MPI has started.
    pub gpus: Vec<String>,
    /// Why it cannot be used by this process, if so.
    pub unusable: Option<String>,
}
