//! Checkpoints: how often they are written, how many stay, and what a run goes on from.

use std::path::{Path, PathBuf};

use super::app::{Looks, Own};
use super::fault::{Fault, Origin};
use super::section::Section;

/// The keys of `[output]`.
pub(super) const EVERY: &str = "checkpoint_every";
pub(super) const KEPT: &str = "checkpoints_kept";
/// The key of `[run]`.
pub(super) const RESTART: &str = "restart";

/// As many as are left when the latest one turns out to be damaged by the disk.
const DEFAULT_KEPT: usize = 2;

/// Steps between two checkpoints, 0 for none, and how many of them stay, 0 for all.
pub(super) fn read(output: &Section<'_>, app: &Own) -> Result<(u64, usize), Fault> {
    let every = output.integer(EVERY, 0)?;
    if let Some(every) = every.as_ref().filter(|every| every.value > 0) {
        can_go_on(app, &every.origin)?;
    }
    let kept = output.integer(KEPT, 0)?;
    Ok((every.map_or(0, |every| every.value), kept.map_or(DEFAULT_KEPT, |kept| kept.value)))
}

/// What a run goes on from. A relative path in a configuration file starts at that file's folder, one in a flag at
/// the working directory.
pub(super) fn read_restart(run: &Section<'_>, app: &Own, folder: &Path) -> Result<Option<PathBuf>, Fault> {
    let Some(path) = run.string(RESTART, "the path of a checkpoint, or of a folder with some")? else {
        return Ok(None);
    };
    can_go_on(app, &path.origin)?;
    Ok(Some(path.origin.base(folder).join(path.value)))
}

fn can_go_on(app: &Own, origin: &Origin) -> Result<(), Fault> {
    if app.looks >= Looks::PicturesAndCheckpoints {
        return Ok(());
    }
    let message = format!("`{}` has no checkpoints: it cannot go on from the middle of a run", app.name);
    let others = Own::names_with(Looks::PicturesAndCheckpoints);
    Err(Fault::new(origin, message).expected(format!("checkpoints of {others}")))
}
