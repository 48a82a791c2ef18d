//! `streamhalo report DIR`: everything that follows from `results.json`, again.

use crate::cli::ReportArgs;
use crate::error::AppError;
use crate::occupied::Occupied;
use crate::report::{self, Results};

/// Rewrites `results.csv`, `speedup.svg` and `time.svg` and prints the table. A run that failed its
/// verification shows in the exit status as it did when it ran.
pub(super) fn report(args: &ReportArgs) -> Result<u8, AppError> {
    let results = Results::read(&args.dir)?;
    let _occupied = Occupied::new(&args.dir)?;
    report::replace_files(&args.dir, &report::derived_files(&results)?)?;
    report::print(&report::table(&results))?;
    Ok(u8::from(!results.all_verified()))
}
