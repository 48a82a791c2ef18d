//! The program `streamhalo`.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::Parser;
use streamhalo_apps::{cli::Cli, commands};

fn main() -> ExitCode {
    match commands::dispatch(Cli::parse()) {
        Ok(status) => ExitCode::from(status),
        Err(error) => {
            eprintln!("error: {error}");
            if let Some(hint) = error.hint() {
                eprintln!("hint: {hint}");
            }
            ExitCode::from(error.exit_status())
        }
    }
}
