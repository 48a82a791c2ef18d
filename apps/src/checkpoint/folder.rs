//! The folder of checkpoints in a results folder, and the names in it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::CheckpointError;
use crate::error::AppError;
use crate::occupied::remove_unfinished;
use crate::report;

/// The folder in that of the results.
pub(crate) const FOLDER: &str = "checkpoints";

/// What follows an application's name and the step in the name of a checkpoint.
const EXTENSION: &str = ".halo";

/// The name of a checkpoint.
pub(super) fn name(app: &str, step: u64) -> String {
    format!("{app}_{step:06}{EXTENSION}")
}

/// The checkpoint that a user has asked for: a file, or the latest one of an application in a folder, or in that of the
/// checkpoints of a folder of results.
///
/// # Errors
///
/// Where there is none.
pub(crate) fn resolve(path: &Path, app: &str) -> Result<PathBuf, CheckpointError> {
    if !path.is_dir() {
        return Ok(path.to_owned());
    }
    let step = |name: &str| name.strip_prefix(app)?.strip_prefix('_')?.strip_suffix(EXTENSION)?.parse().ok();
    for folder in [path.to_owned(), path.join(FOLDER)].into_iter().filter(|folder| folder.is_dir()) {
        let names =
            names(&folder).map_err(|source| CheckpointError::Unreadable { path: folder.clone(), source })?;
        let latest: Option<(u64, String)> =
            names.into_iter().filter_map(|name| Some((step(&name)?, name))).max();
        if let Some((_, name)) = latest {
            return Ok(folder.join(name));
        }
    }
    Err(CheckpointError::NoneThere { path: path.to_owned(), app: app.to_owned() })
}

/// Makes the folder in that of the results, which nobody else writes into, and removes what runs that were killed have left
/// unfinished there.
///
/// # Errors
///
/// Where nothing can be written there.
pub(crate) fn prepare(results: &Path) -> Result<(), AppError> {
    let folder = results.join(FOLDER);
    report::check_writable(&folder)?;
    remove_unfinished(&folder)
}

/// What is in a folder, but for names that are no text, which are none of ours.
pub(super) fn names(folder: &Path) -> io::Result<Vec<String>> {
    let entries = fs::read_dir(folder)?.collect::<io::Result<Vec<_>>>()?;
    Ok(entries.into_iter().filter_map(|entry| entry.file_name().into_string().ok()).collect())
}
