//! Files that could not be written during a run, and the verdict of all ranks on them.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use streamhalo::World;

use crate::config::OnFullDisk;
use crate::error::AppError;

/// A file that could not be written.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Unwritten {
    path: PathBuf,
    reason: String,
    /// Whether there was no room for it.
    is_full: bool,
}

/// Why ranks have not written something together.
#[derive(Debug)]
pub(crate) enum Failed {
    /// A rank could not, and all know that.
    Unwritten {
        /// The first such rank.
        rank: usize,
        /// What it could not write.
        what: Unwritten,
    },
    /// The ranks cannot go on at all.
    Ended(AppError),
}

impl From<streamhalo::comm::Error> for Failed {
    fn from(error: streamhalo::comm::Error) -> Self {
        Self::Ended(error.into())
    }
}

impl Unwritten {
    /// What the system says of a file.
    pub(crate) fn new(path: &Path, error: &io::Error) -> Self {
        let no_room = [ErrorKind::StorageFull, ErrorKind::QuotaExceeded, ErrorKind::FileTooLarge];
        Self { path: path.to_owned(), reason: error.to_string(), is_full: no_room.contains(&error.kind()) }
    }

    /// That a file cannot be written for a reason that is not the system's.
    pub(crate) fn because(path: &Path, reason: String) -> Self {
        Self { path: path.to_owned(), reason, is_full: false }
    }
}

/// What all ranks have made of their parts. Collective; blocks.
///
/// # Errors
///
/// On all ranks if it is one on any of them. That there is no room is told only where nothing else is wrong.
pub(crate) fn verdict<T>(world: &World, own: Result<T, Unwritten>) -> Result<Vec<T>, Failed>
where
    T: Serialize + DeserializeOwned,
{
    let all = world.all_gather(&own)?;
    let failed = all.iter().enumerate().filter_map(|(rank, own)| Some((rank, own.as_ref().err()?)));
    match failed.min_by_key(|(_, what)| what.is_full) {
        Some((rank, what)) => Err(Failed::Unwritten { rank, what: what.clone() }),
        None => Ok(all.into_iter().flatten().collect()),
    }
}

impl Failed {
    /// What to tell the user of `thing`, as in "the picture after 20 steps", where the run goes on `without`, as in
    /// "without further pictures".
    ///
    /// # Errors
    ///
    /// Where it does not.
    pub(crate) fn judge(
        self,
        thing: &str,
        without: &str,
        on_full_disk: OnFullDisk,
    ) -> Result<String, AppError> {
        let (rank, what) = match self {
            Self::Unwritten { rank, what } => (rank, what),
            Self::Ended(error) => return Err(error),
        };
        let message = format!("cannot write {thing}, {}: {}", what.path.display(), what.reason);
        match (what.is_full, on_full_disk) {
            (true, OnFullDisk::GoOn) => Ok(format!("rank {rank} {message}; the run goes on {without}")),
            (true, OnFullDisk::Stop) => {
                let advice = "with `output.on_full_disk = \"go-on\"` it goes on without";
                Err(AppError::Rank { rank, message: format!("{message}; {advice}") })
            }
            (false, _) => Err(AppError::Rank { rank, message }),
        }
    }
}
