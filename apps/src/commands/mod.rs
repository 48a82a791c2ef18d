//! The commands of the program, one file each.

mod bench;
mod explain;
mod info;
mod launch;
mod report;
mod run;
mod worker;

use std::io::{self, ErrorKind};
use std::path::Path;

use clap::CommandFactory;
use clap::error::{ContextKind, ContextValue};
use streamhalo::Device;
use streamhalo::comm::fabric::{self, FABRICS};

use crate::cli::{Cli, Command, ConfigArgs};
use crate::config::{KnownNames, Overrides, Places, RunConfig, known_backends, nearest};
use crate::error::AppError;
use crate::occupied::Occupied;
use crate::ranks;

/// The devices that this version has.
const DEVICES: [&str; 4] = Device::KINDS;

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
        Command::Bench(args) => bench::bench(&args.what),
        Command::Worker(args) => worker::worker(&args),
    }
}

/// Answers a command line that is a question, or is not understood. The ranks of a launcher are told, as
/// they would wait for this one.
///
/// # Errors
///
/// What is wrong with the command line, where a launcher has started several processes.
pub fn refuse(mut error: clap::Error) -> Result<u8, AppError> {
    suggest_command(&mut error);
    if error.kind() == clap::error::ErrorKind::InvalidUtf8 {
        error = Cli::command().error(error.kind(), no_text());
    }
    let launcher = fabric::launched();
    match launcher {
        Some(fabric::Launched { ranks: Some(2..), rank, .. }) => {
            if !error.use_stderr() {
                return match rank {
                    None | Some(0) => error.exit(),
                    Some(_) => Ok(0),
                };
            }
            let text = error.to_string();
            let message = text.strip_prefix("error: ").unwrap_or(&text).trim_end().to_owned();
            ranks::refuse(AppError::CommandLine { message })
        }
        _ => error.exit(),
    }
}

/// Which arguments are no text, one of which has to be.
fn no_text() -> String {
    let arguments = std::env::args_os().skip(1).filter(|argument| argument.to_str().is_none());
    let shown: Vec<String> = arguments.map(|argument| format!("{argument:?}")).collect();
    format!("{} is not UTF-8; what is no path has to be", shown.join(" or "))
}

/// A folder that can take files of these names, so that no run ends in what its first second could have told.
///
/// # Errors
///
/// As [`report::prepare`]; [`AppError::Replace`] with the folder that is where a file must be.
fn check_room_for(dir: &Path, names: &[String]) -> Result<Occupied, AppError> {
    let occupied = crate::report::prepare(dir, names)?;
    match names.iter().map(|name| dir.join(name)).find(|path| path.is_dir()) {
        Some(path) => {
            let source = io::Error::new(ErrorKind::IsADirectory, "a folder has its name");
            Err(AppError::Replace { path, source })
        }
        None => Ok(occupied),
    }
}

/// Adds the name of a command that was probably meant, where clap has found none: what it holds for near is nearer.
fn suggest_command(error: &mut clap::Error) {
    let Some(ContextValue::String(wrong)) = error.get(ContextKind::InvalidSubcommand) else { return };
    if error.get(ContextKind::SuggestedSubcommand).is_some() {
        return;
    }
    let mut known = Cli::command();
    // What is no text names no command, and is shown as clap has it here.
    let arguments = std::env::args_os().skip(1).map(|argument| argument.to_string_lossy().into_owned());
    for argument in arguments.take_while(|argument| argument != wrong) {
        known = known.find_subcommand(argument).cloned().unwrap_or(known);
    }
    let visible = known.get_subcommands().filter(|command| !command.is_hide_set());
    let names: Vec<&str> = visible.map(clap::Command::get_name).collect();
    let suggested = nearest(wrong, &names).map(|name| ContextValue::Strings(vec![name.to_owned()]));
    suggested.and_then(|name| error.insert(ContextKind::SuggestedSubcommand, name));
}

/// The configuration that a command was given, with the names that this program knows.
fn load(args: &ConfigArgs, overrides: &Overrides) -> Result<(RunConfig, Places), AppError> {
    let fabrics: Vec<&str> = FABRICS.iter().map(|row| row.name).collect();
    let names = KnownNames { backends: &known_backends(), fabrics: &fabrics, devices: &DEVICES };
    RunConfig::load(&args.config, overrides, &names)
}
