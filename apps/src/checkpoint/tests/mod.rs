//! Files and what they are refused for, and runs that go on from them.

mod files;
mod restarts;
mod writing;

use std::fs;
use std::path::{Path, PathBuf};

use streamhalo::{Device, WorldOptions};
use tempfile::TempDir;

use super::{Checkpoint, CheckpointError, Checkpoints};
use crate::app::{Answer, ApplicationRow, Between, Looker, Trial};
use crate::config::RunConfig;
use crate::error::AppError;
use crate::ranks::on_threads;

/// A results folder of one test.
struct Folder(TempDir);

impl Folder {
    fn new() -> Self {
        Self(TempDir::with_prefix("streamhalo-").expect("can write"))
    }

    /// A configuration whose checkpoints go here.
    fn config(&self, app: &str, rest: &str) -> RunConfig {
        RunConfig::of(&format!("app = {{ {app} }}\noutput.dir = {:?}\n{rest}\n", self.0.path()))
    }

    /// The checkpoint of a step.
    fn checkpoint(&self, app: &str, step: u64) -> PathBuf {
        self.checkpoints().join(super::folder::name(app, step))
    }

    fn checkpoints(&self) -> PathBuf {
        self.0.path().join(super::FOLDER)
    }

    /// The names in the folder of checkpoints, sorted.
    fn names(&self) -> Vec<String> {
        let mut names = super::folder::names(&self.checkpoints()).expect("is there");
        names.sort();
        names
    }
}

/// What the ranks of a layout find together, from a checkpoint on if there is one, with checkpoints as the
/// configuration says.
fn play(
    config: &RunConfig,
    layout: &[usize],
    backend: &str,
    from: Option<&Path>,
) -> Result<Answer, AppError> {
    let application = ApplicationRow::open(config)?;
    let application = &*application;
    let answers = on_threads(layout.iter().product(), WorldOptions::default(), |world| {
        let stream = Device::host().stream(world)?;
        let from = from.map(|path| Checkpoint::agree(world, Checkpoint::open(path, config, application)));
        let from = from.transpose()?;
        let first = from.as_ref().map_or(0, Checkpoint::step);
        let checkpoints = Checkpoints::of(config, application, first, &|_| {});
        let lookers: Vec<&dyn Looker> = checkpoints.iter().map(|one| one as &dyn Looker).collect();
        let between = Between { lookers: &lookers, from: from.as_ref(), ..Between::default() };
        let trial = Trial { world, stream: &stream, backend, layout, wants_state: true, between };
        Ok(application.run_trial(&trial)?.answer)
    });
    Ok(answers?.swap_remove(0))
}

/// The error of a file that cannot be gone on from.
fn refused(path: &Path, config: &RunConfig) -> CheckpointError {
    let application = ApplicationRow::open(config).expect("is right");
    let opened = Checkpoint::open(path, config, &*application);
    match opened.and_then(|opened| opened.verify()) {
        Ok(()) => panic!("{} is accepted", path.display()),
        Err(error) => error,
    }
}
