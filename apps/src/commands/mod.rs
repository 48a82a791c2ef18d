//! The commands of the program, one file each.

mod bench_halo;
mod report;

use crate::cli::{Bench, Cli, Command};
use crate::error::AppError;

/// Carries out a command and answers with the exit status: 0, or 1 where a run failed its
/// verification.
///
/// # Errors
///
/// Whatever keeps the command from being carried out.
pub fn dispatch(cli: Cli) -> Result<u8, AppError> {
    match cli.command {
        Command::Report(args) => report::report(&args),
        Command::Run(_) => not_built("run"),
        Command::Launch(_) => not_built("launch"),
        Command::Explain(_) => not_built("explain"),
        Command::Info => not_built("info"),
        Command::Bench(args) => match args.what {
            Bench::Halo(args) => bench_halo::bench_halo(&args),
        },
    }
}

fn not_built(command: &'static str) -> Result<u8, AppError> {
    Err(AppError::NotBuilt { command })
}
