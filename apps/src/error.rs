//! What can go wrong in the program, and what the user can do about it.

use std::fmt::Display;
use std::io;
use std::path::PathBuf;

use streamhalo::HaloError;
use streamhalo::grid::GridError;

use crate::checkpoint::CheckpointError;
use crate::config::ConfigError;
use crate::life::pattern::InitialError;

/// An error of the program `streamhalo`. Its text says what was asked and what was found;
/// [`hint`](Self::hint) says what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AppError {
    /// A configuration or a flag that lays over it is wrong.
    #[error(transparent)]
    Config(Box<ConfigError>),

    /// A configuration file cannot be read.
    #[error("cannot read the configuration {}: {source}", path.display())]
    ConfigUnreadable {
        /// The file that was asked for.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },

    /// The command line is not understood.
    #[error("{message}")]
    CommandLine {
        /// What the parser says of it.
        message: String,
    },

    /// A flag's value does not fit another flag's.
    #[error("{flag}: {message}")]
    Usage {
        /// The flag as it was typed.
        flag: String,
        /// What does not fit.
        message: String,
    },

    /// The grid of a configuration cannot be split as it says.
    #[error("at {}: {source}", ranks_of(*.ranks))]
    Split {
        /// The entry of `run.ranks`.
        ranks: usize,
        /// Why.
        source: Box<GridError>,
    },

    /// The initial state of `life` is no pattern, or does not fit the grid.
    #[error("`app.pattern`: {0}")]
    Pattern(#[from] InitialError),

    /// The reference, and an answer beside it, have no room on this machine.
    #[error("there is no room for the {bytes} bytes that it takes to verify runs against a reference")]
    NoRoomToVerify {
        /// How many.
        bytes: usize,
    },

    /// There is no checkpoint to go on from.
    #[error(transparent)]
    Checkpoint(Box<CheckpointError>),

    /// The file of `comm.measured` is no such file.
    #[error("the file for what `auto` measures, {}: {reason}", path.display())]
    Measured {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },

    /// What a run has measured for later ones could not be kept.
    #[error("what `auto` has measured is not kept in {}: {reason}", path.display())]
    NotKept {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },

    /// A rank failed.
    #[error("rank {rank} failed: {message}")]
    Rank {
        /// The first rank that did.
        rank: usize,
        /// What it was doing, and its error.
        message: String,
    },

    /// An exchange could not be set up or carried out.
    #[error(transparent)]
    Halo(Box<HaloError>),

    /// A rank of a launcher cannot do what it was asked.
    #[error("rank {rank}: {message}")]
    Refused {
        /// The first rank that cannot.
        rank: usize,
        /// Its error.
        message: String,
        /// What to do about it.
        hint: Option<String>,
        /// The exit status of its error.
        status: u8,
    },

    /// The ranks of a launcher were not started alike.
    #[error("rank {rank} was not started as the others were: {what}")]
    Differs {
        /// The first rank that differs from rank 0, or from the one that says so.
        rank: usize,
        /// In what.
        what: String,
    },

    /// What went wrong is for another rank to print.
    #[error("another rank says what went wrong")]
    Told {
        /// The exit status of the error.
        status: u8,
    },

    /// The ranks of a fabric have to be started by a launcher, and were not.
    #[error(
        "ranks over the fabric `{fabric}` are started by an MPI launcher, but no MPI launcher has started this process"
    )]
    NotLaunched {
        /// What was started.
        command: &'static str,
        /// The fabric.
        fabric: String,
    },

    /// The program was started by a launcher that it cannot work under.
    #[error("`{command}` was started by {launcher}: {reason}")]
    Launcher {
        /// What was started.
        command: &'static str,
        /// What started it.
        launcher: String,
        /// Why that does not do.
        reason: String,
    },

    /// The ranks of a launcher meet through MPI over this fabric, and cannot.
    #[error(
        "the processes of {launcher} meet through MPI over the fabric `{fabric}`, and MPI cannot be used: {reason}"
    )]
    MeetsThroughMpi {
        /// What was started.
        command: &'static str,
        /// The fabric.
        fabric: String,
        /// What started it.
        launcher: String,
        /// Why MPI cannot be used.
        reason: String,
    },

    /// A program that was launched has failed.
    #[error("rank {rank} of `{program}` failed: {reason}")]
    Launched {
        /// The program.
        program: String,
        /// The first rank that failed.
        rank: usize,
        /// How it ended.
        reason: String,
        /// Its exit status.
        status: u8,
    },

    /// There is no program of the name that was to be launched.
    #[error("there is no program `{program}`")]
    NoProgram {
        /// As it was typed.
        program: String,
    },

    /// What was to be launched is no program.
    #[error("`{program}` {reason}, not a program")]
    NotAProgram {
        /// As it was typed.
        program: String,
        /// What it is.
        reason: &'static str,
    },

    /// The user has asked the program to stop.
    #[error("interrupted; earlier results are untouched")]
    Interrupted {
        /// The signal's number.
        signal: usize,
    },

    /// The user has asked what was launched to stop.
    #[error("interrupted")]
    LaunchInterrupted {
        /// The signal's number.
        signal: usize,
    },

    /// Ctrl-C cannot be watched for.
    #[error("cannot watch for Ctrl-C: {0}")]
    Signals(io::Error),

    /// A folder cannot take results.
    #[error("cannot write results into {}: {source}", dir.display())]
    NotWritable {
        /// The folder that was asked for.
        dir: PathBuf,
        /// Why.
        source: io::Error,
    },

    /// Another run writes into a folder.
    #[error("cannot write results into {}: {by} does so", dir.display())]
    Occupied {
        /// The folder that was asked for.
        dir: PathBuf,
        /// Who is there.
        by: String,
    },

    /// A file of results could not be written or put in its place.
    #[error("cannot replace {}: {source}; earlier results are untouched", path.display())]
    Replace {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },

    /// A file of an earlier run is still beside the results of this one.
    #[error("cannot remove {}, which an earlier run has left: {source}", path.display())]
    NotRemoved {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },

    /// What follows from results that are there could not be written.
    #[error("{source}")]
    NotMadeAgain {
        /// Why.
        source: Box<AppError>,
    },

    /// There is no `results.json` to report on.
    #[error("cannot read {}: {source}", path.display())]
    ResultsUnreadable {
        /// Where it was looked for.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },

    /// A `results.json` ends in the middle.
    #[error("{} ends in the middle: {reason}", path.display())]
    ResultsTruncated {
        /// The file.
        path: PathBuf,
        /// What the parser missed.
        reason: String,
    },

    /// A `results.json` that this program did not write.
    #[error("{} is not a result of streamhalo: {reason}", path.display())]
    ResultsForeign {
        /// The file.
        path: PathBuf,
        /// What is missing or wrong.
        reason: String,
    },

    /// A `results.json` of another version of the schema.
    #[error("{} has schema {found}; this program reads schema {supported}", path.display())]
    ResultsSchema {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: String,
        /// Ours.
        supported: u32,
    },

    /// Results that must not be written: a run that was measured wrong.
    #[error("run {run} of the results is inconsistent: {reason}")]
    InconsistentRun {
        /// Counted from 1.
        run: usize,
        /// What is wrong.
        reason: String,
    },

    /// The plot could not be drawn.
    #[error("cannot draw the plot: {0}")]
    Plot(String),

    /// The terminal or pipe that we print to is broken.
    #[error("cannot print: {0}")]
    Print(io::Error),
}

impl AppError {
    /// What does not fit, of a flag or a key.
    pub(crate) fn usage(flag: &str, message: impl Into<String>) -> Self {
        Self::Usage { flag: flag.to_owned(), message: message.into() }
    }

    /// What to do about it, as one line.
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::Config(error) => return error.hint.clone(),
            Self::Checkpoint(error) => return Some(error.hint()),
            Self::Refused { hint, .. } => return hint.clone(),
            Self::NotMadeAgain { source } => match **source {
                Self::NotWritable { .. } | Self::Replace { .. } => {
                    "the table is all there; for the files have the folder take them, or report on a copy of it"
                }
                _ => return source.hint(),
            },
            Self::NotLaunched { command, fabric } => {
                return Some(format!(
                    "start it as in `mpiexec -n 4 {command} ... --fabric {fabric}` (with Slurm \
                     `srun -n 4 ...`); on one machine `--fabric shm` needs no launcher"
                ));
            }
            Self::MeetsThroughMpi { command, fabric, .. } => {
                return Some(format!(
                    "ranks meet without MPI where each is told by flags where rank 0 waits: `{command} ... --fabric \
                     {fabric} --rank-zero HOST:PORT --world-size N --rank R`"
                ));
            }
            Self::Differs { .. } => {
                "give every rank the same program and flags, and a configuration that all can read"
            }
            Self::ConfigUnreadable { .. } => {
                "give the path of a TOML file, as in `streamhalo run configs/life/acorn.toml`"
            }
            Self::NotAProgram { .. } => {
                "give the path of a program, as in `./my-solver`; `chmod +x` makes one of a script"
            }
            Self::NoProgram { .. } => {
                "give its path, as in `./my-solver`, or the name of one in a folder of PATH"
            }
            Self::Measured { .. } => {
                "name another file as `comm.measured`, or remove it: the next run with `auto` writes it"
            }
            Self::NotKept { .. } => "the results are there; the next run measures again",
            Self::NotRemoved { .. } => {
                "the new results are there; remove it by hand, so that it is not taken for theirs"
            }
            Self::NoRoomToVerify { .. } => {
                "ask for fewer cells or elements, or do not verify: `run.verify = false`"
            }
            Self::Occupied { .. } => {
                "wait until it has ended, or have `run` or `bench` write into another folder with `--out DIR`"
            }
            Self::NotWritable { source, .. } | Self::Replace { source, .. } => match source.kind() {
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                    "make room there, or choose a folder elsewhere with `--out DIR`"
                }
                io::ErrorKind::FileTooLarge => {
                    "give this process, or the file system, a higher limit for the size of a file (`ulimit -f`)"
                }
                io::ErrorKind::AlreadyExists | io::ErrorKind::NotADirectory => {
                    "a file has the name of the folder, or of one above it; choose another with `--out DIR`"
                }
                io::ErrorKind::IsADirectory => {
                    "a folder has the name of the file; remove it, or choose another place with `--out DIR`"
                }
                _ => "make the folder writable, or choose another with `--out DIR`",
            },
            Self::ResultsUnreadable { .. } => {
                "give the folder that a run wrote, as in `streamhalo report results/life`"
            }
            Self::ResultsTruncated { .. } | Self::ResultsForeign { .. } => {
                "run the configuration again: `streamhalo run CONFIG.toml --out DIR` replaces it"
            }
            Self::ResultsSchema { .. } => {
                "report with the version of streamhalo that wrote it, or run the configuration again"
            }
            _ => return None,
        };
        Some(hint.to_owned())
    }

    /// Whether this process is the one that prints it.
    pub fn is_for_this_process(&self) -> bool {
        !matches!(self, Self::Told { .. })
    }

    /// The exit status: 2 for a wrong command line or configuration, that of a program which was
    /// launched, 127 if there is none of that name, 126 if what has the name is none, 128 and the signal after an
    /// interruption, 1 for all else.
    pub fn exit_status(&self) -> u8 {
        match self {
            Self::Config(_)
            | Self::ConfigUnreadable { .. }
            | Self::ResultsUnreadable { .. }
            | Self::CommandLine { .. }
            | Self::Usage { .. }
            | Self::Split { .. }
            | Self::Pattern(_)
            | Self::Checkpoint(_)
            | Self::Measured { .. }
            | Self::Launcher { .. }
            | Self::NotLaunched { .. }
            | Self::Differs { .. } => 2,
            Self::Launched { status, .. } | Self::Refused { status, .. } | Self::Told { status } => *status,
            // As `env` and shells say it.
            Self::NoProgram { .. } => 127,
            Self::NotAProgram { .. } => 126,
            // As shells say that a signal ended a program.
            Self::Interrupted { signal } | Self::LaunchInterrupted { signal } => {
                u8::try_from(128 + signal).unwrap_or(1)
            }
            _ => 1,
        }
    }
}

impl From<CheckpointError> for AppError {
    fn from(error: CheckpointError) -> Self {
        Self::Checkpoint(Box::new(error))
    }
}

impl From<HaloError> for AppError {
    fn from(error: HaloError) -> Self {
        Self::Halo(Box::new(error))
    }
}

impl From<streamhalo::comm::Error> for AppError {
    fn from(error: streamhalo::comm::Error) -> Self {
        HaloError::from(error).into()
    }
}

impl From<GridError> for AppError {
    fn from(error: GridError) -> Self {
        HaloError::from(error).into()
    }
}

/// "1 rank", "4 ranks".
pub(crate) fn ranks_of(count: usize) -> String {
    counted(count, "rank")
}

/// "1 layout", "2 layouts", "2 axes".
pub(crate) fn counted<T: Display + PartialEq + From<u8>>(count: T, noun: &str) -> String {
    match noun {
        _ if count == T::from(1) => format!("1 {noun}"),
        "axis" => format!("{count} axes"),
        "entry" => format!("{count} entries"),
        _ => format!("{count} {noun}s"),
    }
}

impl From<Box<ConfigError>> for AppError {
    fn from(error: Box<ConfigError>) -> Self {
        Self::Config(error)
    }
}
