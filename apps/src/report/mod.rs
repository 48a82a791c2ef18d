//! What a run leaves behind: `results.json`, and everything that is made from it.
//!
//! `results.json` is the source; the table, `results.csv`, `speedup.svg` and `time.svg` are functions of
//! it, which is why `streamhalo report` can make them again.

mod csv;
mod files;
mod machine;
mod plot;
mod progress;
mod results;
mod summary;
mod table;
pub(crate) mod text;
mod timeline;
pub(crate) mod wrap;

use std::fs::DirBuilder;
use std::io::{self, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};
use std::{env, fs, process};

pub use csv::{csv, csv_of_rows};
pub use files::{OutputFile, check_writable, replace_files};
pub use machine::MachineInfo;
pub use plot::{ChartLine, LineChart, lines_svg, speedup_svg, time_svg, timeline_svg};
pub use progress::Progress;
pub use results::{RESULTS_FILE, Results, RunRecord, SCHEMA};
pub use summary::{Baseline, Group, Spread, Summary, Verification};
pub use table::table;
pub(crate) use table::{RULED, by_executor, right};
pub use timeline::{ExchangeTimeline, RankTimeline, chrome_trace};

use files::remove_files;
pub(crate) use files::{left_in_replacing, sync_folder};
use timeline::timeline_names;

use crate::config::known_backends;
use crate::error::AppError;
use crate::occupied::Occupied;

/// The file of an application's state at the end, for those that have one.
pub(crate) const FINAL_STATE: &str = "final.rle";

/// The names of the files that follow from the results.
pub(crate) const DERIVED: [&str; 3] = ["results.csv", "speedup.svg", "time.svg"];

/// The files that follow from the results: `results.csv`, `speedup.svg` and `time.svg`.
///
/// # Errors
///
/// [`AppError::Plot`] where the plot cannot be drawn.
pub fn derived_files(results: &Results) -> Result<Vec<OutputFile>, AppError> {
    let contents = [csv(results), speedup_svg(results)?, time_svg(results)?];
    Ok(DERIVED.into_iter().zip(contents).map(|(name, content)| OutputFile::new(name, content)).collect())
}

/// Writes `results.json`, what follows from it, and the application's own `extra` files:
/// all of them, or none and the earlier ones stay. Then timelines and final states of earlier runs are removed.
///
/// # Errors
///
/// [`AppError::InconsistentRun`] where a record cannot be right, [`AppError::Plot`], and
/// [`AppError::NotWritable`] or [`AppError::Replace`] where the folder cannot take the files; [`AppError::NotRemoved`]
/// where it has them, and something of an earlier run as well.
pub fn write_results(dir: &Path, results: &Results, extra: Vec<OutputFile>) -> Result<(), AppError> {
    replace_results(dir, &result_files(results, extra)?)
}

/// The files that a run leaves: `results.json` first, what follows from it, and `extra`.
///
/// # Errors
///
/// [`AppError::InconsistentRun`] where a record cannot be right, and [`AppError::Plot`].
pub(crate) fn result_files(results: &Results, extra: Vec<OutputFile>) -> Result<Vec<OutputFile>, AppError> {
    let mut files = vec![OutputFile::new(RESULTS_FILE, results.to_json()?)];
    files.extend(derived_files(results)?);
    files.extend(extra);
    Ok(files)
}

/// Writes the files of a run, as [`write_results`] does.
///
/// # Errors
///
/// Those of it that are of the folder.
pub(crate) fn replace_results(dir: &Path, files: &[OutputFile]) -> Result<(), AppError> {
    replace_files(dir, files)?;
    // Beside these results, one of another run would be taken for theirs.
    let is_new = |name: &str| files.iter().any(|file| file.name == name);
    remove_files(dir, of_some_runs().filter(|name| !is_new(name)))
}

/// Writes the files of a run that could not be written where they belong into a new folder among temporary files, and gives
/// it: all of them, or `results.json` if there is no room for all. `None` where there is no place there either.
pub(crate) fn keep_elsewhere(files: &[OutputFile]) -> Option<PathBuf> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos());
    let dir = env::temp_dir().join(format!("streamhalo-results-{}-{now}", process::id()));
    // One that is new and this user's: others may write beside it.
    DirBuilder::new().mode(0o700).create(&dir).ok()?;
    let written = replace_files(&dir, files).or_else(|_| replace_files(&dir, &files[..1]));
    if written.is_err() {
        _ = fs::remove_dir_all(&dir);
    }
    written.ok().map(|()| dir)
}

/// The names of the files that some runs leave and others do not.
pub(crate) fn of_some_runs() -> impl Iterator<Item = String> {
    known_backends().into_iter().flat_map(timeline_names).chain([FINAL_STATE.to_owned()])
}

/// A folder for a run or a bench that is going to leave files of these names, without what those that were killed while
/// they replaced theirs have left behind.
///
/// # Errors
///
/// As [`Occupied::new`].
pub(crate) fn prepare(dir: &Path, names: &[String]) -> Result<Occupied, AppError> {
    let occupied = Occupied::new(dir)?;
    files::remove_left_behind(dir, &names.iter().cloned().chain(of_some_runs()).collect::<Vec<_>>())?;
    Ok(occupied)
}

/// Prints to the standard error, where nobody has to listen: what is said there is no result.
pub fn say(text: &str) {
    _ = io::stderr().lock().write_all(text.as_bytes());
}

/// Prints to the standard output. A reader that has seen enough (`| head`) is no error.
///
/// # Errors
///
/// [`AppError::Print`] where printing fails for another reason.
pub fn print(text: &str) -> Result<(), AppError> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(AppError::Print(error)),
        _ => Ok(()),
    }
}
