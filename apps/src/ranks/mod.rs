//! The ranks that do a work together: threads of this process for the fabric `local`, processes of this
//! program for `shm`, or the processes that a launcher has started, of which this is one.
//!
//! What they do together is a [`Work`]. Processes that this program starts are started as `streamhalo
//! worker NAME`, are told their work on the standard input, and rank 0's reports come back as JSON lines
//! on its standard output; threads are handed the work as it is, and report through a channel; ranks of a
//! launcher all know the work, and rank 0 has the reports at hand. Whoever leads sees one stream of
//! reports in each case.
//!
//! Whoever leads may need the cores of the ranks for what it does with a report. Rank 0 is told when that is
//! done, through another channel or by a byte on its standard input, and the others wait for it in a world
//! that is patient.

mod agreement;
mod launched;
mod processes;
mod rendezvous;
mod start;
#[cfg(test)]
mod tests;
mod threads;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use streamhalo::comm::Error;
use streamhalo::comm::fabric::WaitPolicy;
use streamhalo::grid::GridError;
use streamhalo::{HaloError, World, WorldOptions};

use crate::error::AppError;
use crate::interrupt::Interrupt;

pub(crate) use launched::Launched;
pub use processes::rank_main;
pub(crate) use rendezvous::adopt;
pub(crate) use start::{LOOK, Prepared, Ranks, are_launched, are_started_by_others, refuse, unusable};
#[cfg(test)]
pub(crate) use threads::on_threads;

/// How long whoever waits for ranks sleeps between two looks at Ctrl-C. Ranks may hold all cores.
const PAUSE: Duration = Duration::from_millis(20);

/// How ranks wait that are not in a hurry: as long as it takes, and asleep, whatever their policy is elsewhere. They
/// may share their cores with one that works.
const PATIENT: WorldOptions =
    WorldOptions { policy: Some(WaitPolicy { spins: 1, yields: 0, sleeps: true }), timeout: None };

/// A world of the same ranks that wait for each other as long as it takes. Collective; blocks.
///
/// # Errors
///
/// Which rank failed.
pub(crate) fn patient(world: &World) -> Result<World, Error> {
    let patient = world.first_with(world.size(), PATIENT)?;
    Ok(patient.expect("it is of all ranks"))
}

/// What the ranks of a world do together.
pub trait Work: Serialize + DeserializeOwned + Send + Sync + 'static {
    /// Tells the process of a rank which work is its.
    const NAME: &'static str;

    /// What rank 0 reports, any number of times.
    type Report: Serialize + DeserializeOwned + Send + 'static;

    /// How its ranks wait.
    fn options(&self) -> WorldOptions {
        WorldOptions::default()
    }

    /// Whether rank 0 goes on only once whoever leads is through with a report.
    fn is_awaited(_report: &Self::Report) -> bool {
        false
    }

    /// The part of one rank. What ranks other than 0 report goes nowhere.
    ///
    /// # Errors
    ///
    /// What goes wrong on the rank.
    fn on_rank(&self, world: &World, report: &mut dyn FnMut(Self::Report)) -> Result<(), AppError>;
}

/// Starts `ranks` ranks over `fabric` that do the work. Blocks until all have ended or the user
/// interrupts, and hands on reports as they come.
///
/// # Errors
///
/// [`AppError::Rank`] with the rank that failed first, [`AppError::Interrupted`], or that there is
/// no such fabric here.
pub(crate) fn carry_out<W: Work>(
    fabric: &str,
    ranks: usize,
    work: W,
    interrupt: &Interrupt,
    receive: &mut dyn FnMut(W::Report),
) -> Result<(), AppError> {
    match fabric {
        "local" => threads::carry_out(ranks, work, interrupt, receive),
        _ if fabric == "shm" || rendezvous::is_for(fabric) => {
            processes::carry_out(fabric, ranks, &work, interrupt, receive)
        }
        _ => Err(AppError::NotLaunched { command: "streamhalo run", fabric: fabric.to_owned() }),
    }
}

/// Runs a rank's part and tells the other ranks if it fails or panics.
fn guarded(world: &World, part: impl FnOnce() -> Result<(), AppError>) -> Result<(), AppError> {
    // Nothing of what a panic has left behind is looked at again.
    let result = catch_unwind(AssertUnwindSafe(part)).unwrap_or_else(|panic| {
        let message = match (panic.downcast_ref::<&str>(), panic.downcast_ref::<String>()) {
            (Some(text), _) => (*text).to_owned(),
            (_, Some(text)) => text.clone(),
            _ => "without a message".to_owned(),
        };
        Err(AppError::Rank { rank: world.rank(), message: format!("it panicked: {message}") })
    });
    if let Err(error) = &result {
        world.fail(&message_of(world.rank(), error));
    }
    result
}

/// What a rank tells the others of its error: they know which rank it is. Of an error that all have, and that names another
/// rank, whoever tells it first says so as the communication layer does, which then names that one.
fn message_of(own: usize, error: &AppError) -> String {
    match error {
        AppError::Rank { rank, message } if *rank != own => {
            Error::PeerFailed { rank: *rank, operation: message.clone() }.to_string()
        }
        AppError::Rank { message, .. } => message.clone(),
        other => other.to_string(),
    }
}

fn no_thread(error: std::io::Error) -> AppError {
    AppError::from(Error::System { call: "starting a thread", reason: error.to_string() })
}

/// What the communication layer said, if it was that.
fn communication(error: &AppError) -> Option<&Error> {
    let AppError::Halo(error) = error else {
        return None;
    };
    match &**error {
        HaloError::Communication(error) | HaloError::Grid(GridError::Communication(error)) => Some(error),
        _ => None,
    }
}

/// The error of the rank that failed first, if any did. The others have stopped waiting for it, and
/// their errors say so.
fn first_cause(results: impl IntoIterator<Item = Result<(), AppError>>) -> Result<(), AppError> {
    let failed = results.into_iter().enumerate().find_map(|(rank, result)| Some((rank, result.err()?)));
    failed.map_or(Ok(()), |(rank, error)| Err(cause(rank, error)))
}

/// What is behind the error of a rank: that of the rank that failed first, if it says so.
fn cause(rank: usize, error: AppError) -> AppError {
    match communication(&error) {
        Some(Error::PeerFailed { rank, operation }) => {
            AppError::Rank { rank: *rank, message: operation.clone() }
        }
        Some(Error::CollectiveFailed { call, rank, reason }) => {
            AppError::Rank { rank: *rank, message: format!("{reason} (in `{call}`)") }
        }
        _ if matches!(error, AppError::Rank { .. }) => error,
        _ => AppError::Rank { rank, message: error.to_string() },
    }
}
