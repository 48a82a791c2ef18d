//! `streamhalo worker NAME`: a rank that this program has started as a process. Not for people.

use super::explain::Explanation;
use crate::bench::halo::HaloBench;
use crate::bench::micro::MicroBench;
use crate::cli::WorkerArgs;
use crate::error::AppError;
use crate::ranks::{LOOK, Work, rank_main, unusable};
use crate::report;
use crate::run::RunWork;

/// Does a rank's part of the work of that name.
pub(super) fn worker(args: &WorkerArgs) -> Result<u8, AppError> {
    match args.work.as_str() {
        RunWork::NAME => rank_main::<RunWork>(),
        HaloBench::NAME => rank_main::<HaloBench>(),
        MicroBench::NAME => rank_main::<MicroBench>(),
        Explanation::NAME => rank_main::<Explanation>(),
        LOOK => {
            let fabric = args.fabric.as_deref().unwrap_or("local");
            report::print(&unusable(fabric).unwrap_or_default())?;
            Ok(0)
        }
        other => {
            let message = format!("there is no work `{other}`; workers are started by `streamhalo` itself");
            Err(AppError::usage("worker", message))
        }
    }
}
