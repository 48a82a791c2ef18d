//! Who writes checkpoints between steps.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fs;
use std::path::PathBuf;

use serde_json::{Map, Value};

use super::{FOLDER, folder, settings, write};
use crate::app::{Application, Look, Looker};
use crate::config::{OnFullDisk, RunConfig};
use crate::error::{AppError, counted};

/// Writes a checkpoint every so many steps, and removes those before the last ones whose names were not there before.
pub(crate) struct Checkpoints<'a> {
    every: u64,
    /// How many stay; 0 for all.
    kept: usize,
    on_full_disk: OnFullDisk,
    /// The step that the trial begins with.
    first: u64,
    app: &'a str,
    folder: PathBuf,
    settings: Map<String, Value>,
    /// Tells the user something; of rank 0.
    tell: &'a dyn Fn(String),
    /// Whether the user has been told that there is no room.
    is_told: Cell<bool>,
    /// Those that this trial has written and not removed, the oldest first.
    written: RefCell<VecDeque<Written>>,
}

/// A checkpoint that was written.
struct Written {
    path: PathBuf,
    /// Whether an earlier run has left one of that name, which is kept for it.
    was_there: bool,
}

impl<'a> Checkpoints<'a> {
    /// Of a trial from step `first` on; `None` where the configuration asks for none.
    pub(crate) fn of(
        config: &'a RunConfig,
        application: &dyn Application,
        first: u64,
        tell: &'a dyn Fn(String),
    ) -> Option<Self> {
        (config.output.checkpoint_every > 0).then(|| Self {
            every: config.output.checkpoint_every,
            kept: config.output.checkpoints_kept,
            on_full_disk: config.output.on_full_disk,
            first,
            app: &config.app.name,
            folder: config.output.dir.join(FOLDER),
            settings: settings::of(config, application),
            tell,
            is_told: Cell::new(false),
            written: RefCell::default(),
        })
    }

    /// Keeps a new one, and removes what is older than the last ones.
    fn keep(&self, new: Written) {
        let mut written = self.written.borrow_mut();
        written.push_back(new);
        while self.kept > 0 && written.len() > self.kept {
            if let Some(Written { path, was_there: false }) = written.pop_front() {
                // One that is gone already, or cannot be removed, does no harm to the run.
                _ = fs::remove_file(path);
            }
        }
    }
}

/// The first step from `from` on with a checkpoint, of a trial that begins with step `first`.
pub(super) fn next(every: u64, first: u64, from: u64) -> Option<u64> {
    // What a trial begins with needs no checkpoint.
    from.max(first + 1).checked_next_multiple_of(every)
}

/// What to tell the user where checkpoints are asked for and the run, from step `first` on, ends before one is due.
pub(crate) fn none_are_due(config: &RunConfig, first: u64) -> Option<String> {
    let (steps, every) = (config.app.steps, config.output.checkpoint_every);
    if every == 0 || next(every, first, first).is_some_and(|step| step <= steps) {
        return None;
    }
    let run = if first == 0 { format!("has {steps}") } else { format!("goes from {first} to {steps}") };
    Some(format!("checkpoints: none, for they are {} apart and the run {run}\n", counted(every, "step")))
}

impl Looker for Checkpoints<'_> {
    fn next(&self, from: u64) -> Option<u64> {
        next(self.every, self.first, from)
    }

    fn look(&self, look: &Look<'_>) -> Result<(), AppError> {
        let name = folder::name(self.app, look.step);
        let is_first = look.world().rank() == 0;
        let was_there = fs::symlink_metadata(self.folder.join(&name)).is_ok();
        match write::write(&self.folder, &name, &self.settings, look) {
            Ok(path) if is_first => self.keep(Written { path, was_there }),
            Ok(_) => {}
            Err(failed) => {
                let thing = format!("the checkpoint after {} steps", look.step);
                let sentence = failed.judge(&thing, "without it", self.on_full_disk)?;
                // There may be room for the next one: it is tried, and not told again.
                if is_first && !self.is_told.replace(true) {
                    (self.tell)(sentence);
                }
            }
        }
        Ok(())
    }
}
