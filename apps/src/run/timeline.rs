//! `--timeline`: one more trial of each backend, which nobody measures, with its streams recorded.

use std::fmt;
use std::num::NonZeroU64;

use serde::{Deserialize, Serialize};
use streamhalo::comm::timeline::ClockOffset;
use streamhalo::{Stream, World};

use super::{RunReport, RunWork};
use crate::app::{APPLICATIONS, ApplicationRow, Between, Trial};
use crate::cli::TimelineAsked;
use crate::config::{AppSettings, Means, RunConfig};
use crate::error::{AppError, counted};
use crate::report::{ExchangeTimeline, RankTimeline};

/// Steps before the recorded ones, for caches and the ranks to settle.
const LEAD: u64 = 20;
/// Exchanges that are recorded unless somebody says how many steps.
const EXCHANGES: u64 = 3;
/// Room for the spans of a rank: some seven megabytes.
const SPANS: usize = 1 << 16;

/// What is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TimelineWanted {
    /// Steps at the end of the trial, at least; the first of them begins with an exchange.
    steps: u64,
}

impl TimelineWanted {
    /// What is wanted of a run, if it can be had.
    ///
    /// # Errors
    ///
    /// [`AppError::Usage`] for an application without a stream, or without as many steps.
    pub(crate) fn of(asked: TimelineAsked, config: &RunConfig) -> Result<Self, AppError> {
        let refused = |message| Err(AppError::usage("--timeline", message));
        let has_stream = |row: &&ApplicationRow| row.means() == Means::Exchanges;
        if !has_stream(&ApplicationRow::of(config)) {
            let others: Vec<_> = APPLICATIONS.iter().filter(has_stream).map(|row| row.name).collect();
            return refused(format!(
                "`{}` puts nothing on a stream: the host calls its primitives itself; a timeline can be had of {}",
                config.app.name,
                others.join(", ")
            ));
        }
        if config.app.steps == 0 {
            return refused("there is nothing to record in 0 steps; set `app.steps` to 1 or more".to_owned());
        }
        if let Some(asked) = asked.steps.filter(|asked| asked.get() > config.app.steps) {
            let steps = counted(config.app.steps, "step");
            return refused(format!(
                "`steps={asked}` are more than the {steps} of the run; record {} or fewer, or set `app.steps` to {asked}",
                config.app.steps
            ));
        }
        let every = config.run.exchange_every as u64;
        Ok(Self { steps: asked.steps.map_or(EXCHANGES.saturating_mul(every), NonZeroU64::get) })
    }

    /// The configuration of a trial that is as long as it has to be, and the first step that is kept.
    fn shortened(self, config: &RunConfig) -> (RunConfig, u64) {
        let mut config = config.clone();
        let every = config.run.exchange_every as u64;
        // It shows steps as they are put on a stream one by one.
        config.run.replay = 0;
        let lead = LEAD.next_multiple_of(every);
        config.app.steps = config.app.steps.min(lead.saturating_add(self.steps));
        // Passes around the loop of steps would all be the same.
        if let AppSettings::Faces(settings) = &mut config.app.settings {
            (settings.outer, settings.middle) = (1, 1);
        }
        let first = config.app.steps.saturating_sub(self.steps) / every * every;
        (config, first)
    }
}

/// Of how many steps.
impl fmt::Display for TimelineWanted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the last {}", counted(self.steps, "step"))
    }
}

impl RunWork {
    /// Runs every backend once more, and reports what its streams did at the end of it. Collective; blocks.
    ///
    /// # Errors
    ///
    /// Those of a trial, or that there is no memory for it.
    pub(super) fn record(
        &self,
        wanted: TimelineWanted,
        world: &World,
        stream: &Stream,
        report: &dyn Fn(RunReport),
    ) -> Result<(), AppError> {
        let (config, first_step) = wanted.shortened(&self.config);
        let application = ApplicationRow::open(&config)?;
        let clock = ClockOffset::to_rank_zero(world)?;
        for backend in &config.comm.backend {
            report(RunReport::Recording { backend: backend.clone() });
            let between = Between::default();
            let trial = Trial { world, stream, backend, layout: &self.layout, wants_state: false, between };
            stream.record_timeline(SPANS)?;
            let outcome = application.run_trial(&trial);
            let timeline = stream.take_timeline().expect("the stream was told to keep one");
            let outcome = outcome?;
            let own = RankTimeline::cut(timeline, first_step, clock);
            let parts = trial.gather(&serde_json::to_vec(&own).expect("is plain data"))?;
            let ranks = parts.iter().map(|part| serde_json::from_slice(part).expect("was written by a rank"));
            report(RunReport::Timeline(Box::new(ExchangeTimeline {
                app: config.app.name.clone(),
                backend: backend.clone(),
                fabric: config.comm.fabric.clone(),
                executor: outcome.executor,
                stream: config
                    .device
                    .stream
                    .map_or_else(|| config.device.kind.clone(), |kind| kind.name().to_owned()),
                layout: self.layout.clone(),
                cells: config.grid.cells.clone(),
                exchange_every: config.run.exchange_every as u64,
                ranks: ranks.collect(),
            })));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(asked: &str, text: &str) -> Result<TimelineWanted, String> {
        TimelineWanted::of(asked.parse()?, &RunConfig::of(text)).map_err(|error| error.to_string())
    }

    #[test]
    fn the_trial_is_as_long_as_it_has_to_be_and_begins_with_an_exchange() {
        let life = "app = { pattern = 'random:1', steps = STEPS }\ngrid = { cells = [64, 64], halo = EVERY }\n\
                    run.exchange_every = EVERY\n";
        for (asked, steps, every, expected) in [
            ("", 1000, 1, (23, 20)),
            ("", 1000, 4, (32, 20)),
            ("", 2, 1, (2, 0)),
            ("steps=1", 1000, 1, (21, 20)),
            ("steps=5", 1000, 4, (25, 20)),
            ("steps=1000", 1000, 1, (1000, 0)),
            ("steps=7", 7, 3, (7, 0)),
        ] {
            let text = life.replace("STEPS", &steps.to_string()).replace("EVERY", &every.to_string());
            let (short, first) = wanted(asked, &text).expect("can be had").shortened(&RunConfig::of(&text));
            assert_eq!((short.app.steps, first), expected, "{asked}: {steps} steps, every {every}");
        }
    }

    #[test]
    fn a_pass_around_the_steps_is_enough() {
        let faces = "app = { name = 'faces', outer = 3, middle = 2, steps = 9 }\n";
        let (short, _) = wanted("steps=2", faces).expect("can be had").shortened(&RunConfig::of(faces));
        let AppSettings::Faces(settings) = short.app.settings else { panic!("is `faces`") };
        assert_eq!((settings.outer, settings.middle), (1, 1));
    }

    #[test]
    fn what_cannot_be_recorded_is_refused() {
        for (asked, text, said) in [
            ("steps=0", "", "expected `steps=K`"),
            ("configs/life.toml", "", "the configuration goes before the flag"),
            ("", "app = { pattern = 'random:1', steps = 0 }", "nothing to record in 0 steps"),
            (
                "steps=8",
                "app = { pattern = 'random:1', steps = 7 }",
                "`steps=8` are more than the 7 steps of the run",
            ),
            ("", "app.name = 'pipeline'\ncomm.backend = 'standard'", "`pipeline` puts nothing on a stream"),
            ("", "app.name = 'tree'\ncomm.backend = 'standard'", "can be had of life, faces, stencil3d"),
        ] {
            let error = wanted(asked, text).expect_err("cannot be had");
            assert!(error.contains(said), "{error}");
        }
    }
}
