//! One entry of `run.ranks`: every backend, trial by trial.

use serde::{Deserialize, Serialize};
use streamhalo::{Device, Stream, StreamKind, StreamOptions, World, WorldOptions};

use crate::app::{Application, ApplicationRow, Outcome, Trial};
use crate::config::{self, RunConfig};
use crate::error::AppError;
use crate::ranks::Work;
use crate::run::Uses;

/// Of which trials the final state is brought together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum StatesWanted {
    /// Of all that are timed: each is verified.
    All,
    /// Of the very last one: for the files that are made from it.
    Last,
    /// Of none.
    None,
}

/// What the ranks of one entry do.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct RunWork {
    /// The whole configuration.
    pub(crate) config: RunConfig,
    /// How the grid is split over these ranks.
    pub(crate) layout: Vec<usize>,
    /// Of which trials the state is wanted.
    pub(crate) states: StatesWanted,
}

/// What rank 0 tells of them.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum RunReport {
    /// The ranks are there.
    Uses(Uses),
    /// A trial begins.
    Begin {
        /// The backend.
        backend: String,
        /// Counted from 0; `None` for a warm-up.
        trial: Option<u32>,
    },
    /// A warm-up has ended.
    Warm,
    /// A timed trial has ended.
    Finished {
        /// The backend.
        backend: String,
        /// Counted from 0.
        trial: u32,
        /// What it gave.
        outcome: Box<Outcome>,
    },
}

impl Work for RunWork {
    const NAME: &'static str = "run";

    type Report = RunReport;

    fn options(&self) -> WorldOptions {
        world_options(&self.config)
    }

    fn on_rank(&self, world: &World, report: &mut dyn FnMut(RunReport)) -> Result<(), AppError> {
        let application = ApplicationRow::open(&self.config)?;
        let stream = stream(&self.config, world)?;
        report(RunReport::Uses(Uses::of(world, &self.config)));
        // After the stream, whose own threads would be bound to this rank's core too.
        if self.config.run.pin {
            world.pin()?;
        }
        for _ in 0..self.config.run.warmup {
            for backend in &self.config.comm.backend {
                report(RunReport::Begin { backend: backend.clone(), trial: None });
                self.trial(&*application, world, &stream, backend, false)?;
                report(RunReport::Warm);
            }
        }
        // Trial by trial, not backend by backend: a machine that slows down slows all alike.
        let last_trial = self.config.run.trials.saturating_sub(1);
        for trial in 0..self.config.run.trials {
            for backend in &self.config.comm.backend {
                report(RunReport::Begin { backend: backend.clone(), trial: Some(trial) });
                let is_last = trial == last_trial && Some(backend) == self.config.comm.backend.last();
                let wants_state = match self.states {
                    StatesWanted::All => true,
                    StatesWanted::Last => is_last,
                    StatesWanted::None => false,
                };
                let outcome = self.trial(&*application, world, &stream, backend, wants_state)?;
                report(RunReport::Finished { backend: backend.clone(), trial, outcome: Box::new(outcome) });
            }
        }
        Ok(())
    }
}

impl RunWork {
    fn trial(
        &self,
        application: &dyn Application,
        world: &World,
        stream: &Stream,
        backend: &str,
        wants_state: bool,
    ) -> Result<Outcome, AppError> {
        application.run_trial(&Trial { world, stream, backend, layout: &self.layout, wants_state })
    }
}

/// How ranks wait, as a configuration says.
pub(crate) fn world_options(config: &RunConfig) -> WorldOptions {
    WorldOptions { timeout: config.comm.timeout(), ..WorldOptions::default() }
}

/// A rank's stream, as a configuration says.
pub(crate) fn stream(config: &RunConfig, world: &World) -> Result<Stream, AppError> {
    let kind = match config.device.stream {
        Some(config::StreamKind::Threaded) => StreamKind::Threaded,
        Some(config::StreamKind::Inline) | None => StreamKind::Inline,
    };
    let options = StreamOptions { kind, threads: config.device.threads };
    Ok(Device::host().stream_with(world, options)?)
}
