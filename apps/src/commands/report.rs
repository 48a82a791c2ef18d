//! `streamhalo report DIR`: everything that follows from `results.json`, again.

use std::fs;

use crate::cli::ReportArgs;
use crate::error::AppError;
use crate::occupied::Occupied;
use crate::report::{self, RESULTS_FILE, Results};

/// Rewrites `results.csv`, `speedup.svg` and `time.svg` and prints the table, also where nothing can be written. A run that
/// failed its verification shows in the exit status as it did when it ran.
pub(super) fn report(args: &ReportArgs) -> Result<u8, AppError> {
    let path = args.dir.join(RESULTS_FILE);
    // Before the folder is made for the lock.
    fs::metadata(&path).map_err(|source| AppError::ResultsUnreadable { path, source })?;
    let occupied = Occupied::new(&args.dir);
    // Behind the lock: whoever had it may have replaced them.
    let results = Results::read(&args.dir)?;
    let written =
        occupied.and_then(|_occupied| report::replace_files(&args.dir, &report::derived_files(&results)?));
    report::print(&report::table(&results))?;
    written.map_err(|source| AppError::NotMadeAgain { source: Box::new(source) })?;
    Ok(u8::from(!results.all_verified()))
}
