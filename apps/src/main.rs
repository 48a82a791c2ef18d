//! The program `streamhalo`.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::Parser;
use streamhalo_apps::{cli::Cli, commands};

fn main() -> ExitCode {
    let outcome = match Cli::try_parse() {
        Ok(cli) => commands::dispatch(cli),
        Err(error) => commands::refuse(error),
    };
    match outcome {
        Ok(status) => ExitCode::from(status),
        Err(error) => {
            if error.is_for_this_process() {
                eprintln!("error: {error}");
                if let Some(hint) = error.hint() {
                    eprintln!("hint: {hint}");
                }
            }
            ExitCode::from(error.exit_status())
        }
    }
}
