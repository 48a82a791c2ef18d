//! The program `streamhalo`.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::Parser;
use streamhalo_apps::{cli::Cli, commands, report, survive_file_size_limits};

fn main() -> ExitCode {
    survive_file_size_limits();
    let outcome = match Cli::try_parse() {
        Ok(cli) => commands::dispatch(cli),
        Err(error) => commands::refuse(error),
    };
    match outcome {
        Ok(status) => ExitCode::from(status),
        Err(error) => {
            if error.is_for_this_process() {
                report::say(&format!("error: {error}\n"));
                if let Some(hint) = error.hint() {
                    report::say(&format!("hint: {hint}\n"));
                }
            }
            ExitCode::from(error.exit_status())
        }
    }
}
