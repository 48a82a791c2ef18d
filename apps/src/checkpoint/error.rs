//! Why there is nothing to go on from.

use std::io;
use std::num::NonZeroUsize;
use std::path::PathBuf;

use serde_json::Value;

use crate::error::ranks_of;

/// Why a run cannot go on from what it was given.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the fields say what the messages say")]
pub enum CheckpointError {
    #[error("cannot read the checkpoint {}: {source}", path.display())]
    Unreadable { path: PathBuf, source: io::Error },
    #[error(
        "{} has no checkpoint of `{app}`: neither there nor in a folder checkpoints in it is a file named as in \
         {app}_000100.halo",
        path.display()
    )]
    NoneThere { path: PathBuf, app: String },
    #[error("{} is no checkpoint of streamhalo: it does not begin as one", path.display())]
    Foreign { path: PathBuf },
    #[error("the checkpoint {} has format {found}; this program reads format {supported}", path.display())]
    Version { path: PathBuf, found: u32, supported: u32 },
    #[error(
        "the checkpoint {} is truncated: it has {found_bytes} bytes of {}{needed_bytes}",
        path.display(), if *.at_least { "at least " } else { "" }
    )]
    Truncated { path: PathBuf, found_bytes: u64, needed_bytes: u64, at_least: bool },
    #[error(
        "the checkpoint {} is damaged: it has {found_bytes} bytes, {} more than it should have",
        path.display(), found_bytes - needed_bytes
    )]
    TooLong { path: PathBuf, found_bytes: u64, needed_bytes: u64 },
    #[error("the checkpoint {} is damaged: {what}", path.display())]
    Damaged { path: PathBuf, what: String },
    #[error(
        "the checkpoint {} is of another run: `{key}` is {} there, and {} in this configuration{}",
        path.display(), shown(found), shown(asked),
        weak.map_or(String::new(), |ranks| format!(" at {}, as `run.scaling` is weak", ranks_of(ranks.get())))
    )]
    OtherRun {
        path: PathBuf,
        key: String,
        found: Option<Value>,
        asked: Option<Value>,
        /// At how many ranks, where each number has other cells.
        weak: Option<NonZeroUsize>,
    },
    #[error("the checkpoint {} holds step {found}, not {named} as its name says", path.display())]
    Misnamed { path: PathBuf, found: u64, named: u64 },
    #[error("the checkpoint {} is another one than as the run began", path.display())]
    Replaced { path: PathBuf },
    #[error("the checkpoint {} is of step {found}, but `app.steps` is {asked}", path.display())]
    Beyond { path: PathBuf, found: u64, asked: u64 },
    #[error("{why}; this run would write its own over it")]
    InTheWay { why: Box<CheckpointError> },
}

impl CheckpointError {
    /// The same of an entry of `run.ranks` whose cells are as many as its ranks make them.
    #[must_use]
    pub(crate) fn at_weak(mut self, ranks: usize) -> Self {
        if let Self::OtherRun { key, weak, .. } = &mut self
            && key == "grid.cells"
        {
            *weak = NonZeroUsize::new(ranks);
        }
        self
    }

    /// What to do about it.
    pub(crate) fn hint(&self) -> String {
        match self {
            Self::Unreadable { .. } | Self::NoneThere { .. } => {
                "give the path of a checkpoint, or of the folder with those of a run, to every rank, as in \
                 `--restart results/life/checkpoints`"
                    .to_owned()
            }
            Self::Foreign { .. } => {
                "checkpoints are written by `streamhalo run --checkpoint every=N`".to_owned()
            }
            Self::Version { .. } => "go on with the version of streamhalo that wrote it".to_owned(),
            Self::Truncated { .. } | Self::TooLong { .. } | Self::Damaged { .. } => {
                "copy it again, or go on from an earlier one".to_owned()
            }
            Self::OtherRun { weak: Some(_), .. } => {
                "each entry of `run.ranks` has other cells: go on with the one that wrote the checkpoint, by \
                 `--ranks N`, and with `grid.cells` as they were"
                    .to_owned()
            }
            Self::OtherRun { .. } => {
                "ranks, layouts, backends, fabrics, halos and the frequency of exchanges may be others; what \
                 determines the answer may not"
                    .to_owned()
            }
            Self::Replaced { .. } => {
                "go on from one that no other run replaces meanwhile, as in a folder of its own".to_owned()
            }
            Self::Misnamed { .. } => {
                "give it the name that it was written with, or go on from it by its path".to_owned()
            }
            Self::Beyond { found, .. } => format!("set `app.steps` to {found} or more"),
            Self::InTheWay { .. } => {
                "choose another folder with `--out DIR`, or remove the file if nobody needs it".to_owned()
            }
        }
    }
}

fn shown(value: &Option<Value>) -> String {
    value.as_ref().map_or("not set".to_owned(), Value::to_string)
}
