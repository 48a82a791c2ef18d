//! `streamhalo run --watch`: Life in the terminal while it runs.
//!
//! Ranks bring together what a frame shows; rank 0 draws it as text, and reports it as it reports all else, so
//! that it does not matter whether ranks are threads or processes. The program that was called has the terminal.

mod frame;
mod screen;
#[cfg(test)]
mod tests;
mod watcher;

use serde::{Deserialize, Serialize};

use crate::config::{AppSettings, RunConfig};
use crate::error::AppError;

pub(crate) use screen::Screen;
pub(crate) use watcher::Watcher;

/// The size of a terminal, in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Size {
    rows: usize,
    columns: usize,
}

impl Size {
    /// That of the terminal that this program prints to.
    ///
    /// # Errors
    ///
    /// [`AppError::Usage`] if it prints to something else, or to a terminal that can only print lines.
    pub(crate) fn of_terminal() -> Result<Self, AppError> {
        let terminal = console::Term::stdout();
        let is_dumb = std::env::var_os("TERM").is_none_or(|name| name.is_empty() || name == "dumb");
        match terminal.size_checked() {
            _ if !terminal.is_term() => Err(refused(
                "the standard output is not a terminal; leave the flag out, \
                                                     or `--snapshot every=N` writes pictures into files",
            )),
            _ if is_dumb => Err(refused("the terminal cannot move its cursor (`TERM` is `dumb` or not set)")),
            Some((rows @ 2.., columns @ 1..)) => Ok(Self { rows: rows.into(), columns: columns.into() }),
            _ => Err(refused("the terminal does not say how large it is, or has less than two lines")),
        }
    }
}

/// Refuses what cannot be shown, as far as a configuration and whoever starts the ranks can tell.
///
/// # Errors
///
/// [`AppError::Usage`] with what cannot.
pub(crate) fn check(config: &RunConfig, is_launched: bool) -> Result<(), AppError> {
    if !matches!(config.app.settings, AppSettings::Life(_)) {
        let message = format!("shows `life`, and this configuration is of `{}`", config.app.name);
        return Err(refused(&message));
    }
    if is_launched {
        return Err(refused(
            "is for ranks that `streamhalo run` starts itself, not for those that others have started; with \
             `--fabric shm`, and called directly, it starts processes on this machine",
        ));
    }
    Ok(())
}

fn refused(message: &str) -> AppError {
    AppError::usage("--watch", message)
}
