//! Names of files while they are written during a run.
//!
//! The process of the run is part of them, so that two runs into one folder do not write into one file, and so that a run
//! removes what others have left behind, but not what they are writing.

use std::fs;

/// How such a name ends.
const UNFINISHED: &str = ".unfinished";

/// The name of a file while the run of a process writes it.
pub(crate) fn unfinished(name: &str, process: u32) -> String {
    format!(".{name}.{process}{UNFINISHED}")
}

/// The name that a file was to get which was left behind in the middle of being written: by the run of `process` before
/// it writes any, or by another one that has ended.
pub(crate) fn left_behind(name: &str, process: u32) -> Option<&str> {
    let written = name.strip_prefix('.')?.strip_suffix(UNFINISHED)?;
    let by = written.rsplit_once('.').and_then(|(name, by)| Some((name, by.parse().ok()?)));
    match by {
        Some((name, by)) => (by == process || !is_running(by)).then_some(name),
        // Of no process that could still be at it.
        None => Some(written),
    }
}

/// Whether a process of this machine runs, as far as the system tells. One that has ended and was not waited for does
/// not.
fn is_running(process: u32) -> bool {
    let stat = fs::read(format!("/proc/{process}/stat")).unwrap_or_default();
    // The state follows the name of the program, which is in brackets and may hold any others.
    let name_end = stat.iter().rposition(|byte| *byte == b')');
    let state = name_end.and_then(|end| stat.get(end + 2));
    state.is_some_and(|state| !b"ZX".contains(state))
}
