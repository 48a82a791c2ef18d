//! The commands of the program, one file each.

mod bench_halo;
mod explain;
mod info;
mod launch;
mod report;
mod run;
mod worker;

use streamhalo::comm::backend::backend_names;
use streamhalo::comm::fabric::FABRICS;

use crate::app::APPLICATIONS;
use crate::cli::{Bench, Cli, Command, ConfigArgs};
use crate::config::{KnownNames, Overrides, RunConfig};
use crate::error::AppError;

/// The devices that this version has.
const DEVICES: [&str; 1] = ["host"];

/// Carries out a command and answers with the exit status: 0, or 1 where a run failed its
/// verification.
///
/// # Errors
///
/// Whatever keeps the command from being carried out.
pub fn dispatch(cli: Cli) -> Result<u8, AppError> {
    match cli.command {
        Command::Report(args) => report::report(&args),
        Command::Run(args) => run::run(&args),
        Command::Launch(args) => launch::launch(&args),
        Command::Explain(args) => explain::explain(&args),
        Command::Info => info::info(),
        Command::Bench(args) => match args.what {
            Bench::Halo(args) => bench_halo::bench_halo(&args),
        },
        Command::Worker(args) => worker::worker(&args),
    }
}

/// The configuration that a command was given, with the names that this program knows.
fn load(args: &ConfigArgs, overrides: &Overrides) -> Result<RunConfig, AppError> {
    let apps: Vec<&str> = APPLICATIONS.iter().map(|row| row.name).collect();
    let backends: Vec<&str> = backend_names().collect();
    let fabrics: Vec<&str> = FABRICS.iter().map(|row| row.name).collect();
    let names = KnownNames { apps: &apps, backends: &backends, fabrics: &fabrics, devices: &DEVICES };
    RunConfig::load(&args.config, overrides, &names)
}
