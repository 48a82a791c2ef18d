//! The folder of checkpoints in a results folder, and the names in it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::looker::next;
use super::{Checkpoint, CheckpointError};
use crate::app::Application;
use crate::config::RunConfig;
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

/// The step of a checkpoint of an application, by its name.
fn step_of(name: &str, app: &str) -> Option<u64> {
    name.strip_prefix(app)?.strip_prefix('_')?.strip_suffix(EXTENSION)?.parse().ok()
}

/// The checkpoint that a user has asked for, opened: a file, or of a folder, or of that of the checkpoints in a folder of
/// results, the latest one of an application that the run can go on from; and the later ones that are passed over, which
/// an earlier run with other settings or more steps has left there. What is of a folder is opened with the step that its name
/// says, by which it is one of the latest.
///
/// # Errors
///
/// Where there is none; if the run can go on from none that is there, why not from the latest.
pub(crate) fn resolve<C>(
    path: &Path,
    app: &str,
    open: impl Fn(&Path, Option<u64>) -> Result<C, CheckpointError>,
) -> Result<(C, Vec<PathBuf>), CheckpointError> {
    let (mut passed_over, mut why) = (Vec::new(), None);
    for (named, path) in latest_first(path, app)? {
        match open(&path, named) {
            Err(error @ (CheckpointError::OtherRun { .. } | CheckpointError::Beyond { .. })) => {
                why.get_or_insert(error);
                passed_over.push(path);
            }
            opened => return Ok((opened?, passed_over)),
        }
    }
    Err(why.unwrap_or(CheckpointError::NoneThere { path: path.to_owned(), app: app.to_owned() }))
}

/// The checkpoints that a user may mean; those of a folder with the steps in their names.
fn latest_first(path: &Path, app: &str) -> Result<Vec<(Option<u64>, PathBuf)>, CheckpointError> {
    if !path.is_dir() {
        return Ok(vec![(None, path.to_owned())]);
    }
    for folder in [path.to_owned(), path.join(FOLDER)].into_iter().filter(|folder| folder.is_dir()) {
        let names =
            names(&folder).map_err(|source| CheckpointError::Unreadable { path: folder.clone(), source })?;
        let mut found: Vec<_> = names
            .into_iter()
            .filter_map(|name| Some((Some(step_of(&name, app)?), folder.join(name))))
            .collect();
        if !found.is_empty() {
            found.sort_unstable();
            found.reverse();
            return Ok(found);
        }
    }
    Ok(Vec::new())
}

/// Makes the folder in that of the results, which nobody else writes into, for a run from step `first` on, and removes what
/// runs that were killed have left unfinished there.
///
/// # Errors
///
/// Where nothing can be written there; [`CheckpointError::InTheWay`] where the run would write over something that it
/// would not leave there itself.
pub(crate) fn prepare(config: &RunConfig, application: &dyn Application, first: u64) -> Result<(), AppError> {
    let folder = config.output.dir.join(FOLDER);
    report::check_writable(&folder)?;
    check_names(&folder, config, application, first)?;
    remove_unfinished(&folder)
}

/// That each file whose name the run needs is a checkpoint with the cells of the one that gets it.
fn check_names(
    folder: &Path,
    config: &RunConfig,
    application: &dyn Application,
    first: u64,
) -> Result<(), CheckpointError> {
    let (app, steps) = (&config.app.name, config.app.steps);
    let is_needed = |found: &String| {
        let step = step_of(found, app).filter(|step| *step <= steps && *found == name(app, *step));
        step.is_some_and(|step| next(config.output.checkpoint_every, first, step) == Some(step))
    };
    let found =
        names(folder).map_err(|source| CheckpointError::Unreadable { path: folder.to_owned(), source })?;
    let mut needed: Vec<_> = found.into_iter().filter(is_needed).collect();
    needed.sort_unstable();
    needed.iter().try_for_each(|name| {
        let opened = Checkpoint::open(&folder.join(name), config, application);
        let opened = opened.and_then(|opened| opened.named(step_of(name, app)));
        opened.map(|_| ()).map_err(|why| CheckpointError::InTheWay { why: Box::new(why) })
    })
}

/// What is in a folder, but for names that are no text, which are none of ours.
pub(super) fn names(folder: &Path) -> io::Result<Vec<String>> {
    let entries = fs::read_dir(folder)?.collect::<io::Result<Vec<_>>>()?;
    Ok(entries.into_iter().filter_map(|entry| entry.file_name().into_string().ok()).collect())
}
