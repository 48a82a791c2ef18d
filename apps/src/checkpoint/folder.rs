//! The folder of checkpoints in a results folder, and the names in it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::CheckpointError;
use crate::error::AppError;
use crate::report;

/// The folder in that of the results.
pub(super) const FOLDER: &str = "checkpoints";

/// What follows an application's name and the step in the name of a checkpoint.
const EXTENSION: &str = ".halo";
/// What follows that in a temporary name.
const UNFINISHED: &str = ".unfinished";

/// The name of a checkpoint.
pub(super) fn name(app: &str, step: u64) -> String {
    format!("{app}_{step:06}{EXTENSION}")
}

/// Its name while this process writes it.
pub(super) fn unfinished(name: &str) -> String {
    unfinished_by(name, std::process::id())
}

/// The same of any process, which is part of it, so that two runs into one folder do not write into one file.
pub(super) fn unfinished_by(name: &str, process: u32) -> String {
    format!(".{name}.{process}{UNFINISHED}")
}

/// Whether a file was left behind in the middle of being written: before this process has written any, and by no other
/// that is still at it.
fn is_left(name: &str) -> bool {
    let Some(written) = name.strip_prefix('.').and_then(|name| name.strip_suffix(UNFINISHED)) else {
        return false;
    };
    let process = written.rsplit_once('.').and_then(|(_, process)| process.parse().ok());
    process.is_none_or(|process| process == std::process::id() || !is_running(process))
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

/// The checkpoint that a user has asked for: a file, or the latest one of an application in a folder.
///
/// # Errors
///
/// Where there is none.
pub(crate) fn resolve(path: &Path, app: &str) -> Result<PathBuf, CheckpointError> {
    if !path.is_dir() {
        return Ok(path.to_owned());
    }
    let step = |name: &str| name.strip_prefix(app)?.strip_prefix('_')?.strip_suffix(EXTENSION)?.parse().ok();
    let names =
        names(path).map_err(|source| CheckpointError::Unreadable { path: path.to_owned(), source })?;
    let latest = names.into_iter().filter_map(|name| Some((step(&name)?, name))).max();
    let (_, name): (u64, String) =
        latest.ok_or_else(|| CheckpointError::NoneThere { path: path.to_owned(), app: app.to_owned() })?;
    Ok(path.join(name))
}

/// Makes the folder in that of the results, and removes what runs that were killed have left unfinished
/// there, but not what another run is writing.
///
/// # Errors
///
/// Where nothing can be written there.
pub(crate) fn prepare(results: &Path) -> Result<(), AppError> {
    let folder = results.join(FOLDER);
    report::check_writable(&folder)?;
    let sweep = || {
        names(&folder)?
            .iter()
            .filter(|name| is_left(name))
            .try_for_each(|name| fs::remove_file(folder.join(name)))
    };
    sweep().map_err(|source| AppError::NotWritable { dir: folder.clone(), source })
}

/// What is in a folder, but for names that are no text, which are none of ours.
pub(super) fn names(folder: &Path) -> io::Result<Vec<String>> {
    let entries = fs::read_dir(folder)?.collect::<io::Result<Vec<_>>>()?;
    Ok(entries.into_iter().filter_map(|entry| entry.file_name().into_string().ok()).collect())
}
