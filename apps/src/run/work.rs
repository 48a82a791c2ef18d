//! One entry of `run.ranks`: every backend, trial by trial.

use std::cell::RefCell;

use serde::{Deserialize, Serialize};
use streamhalo::comm::backend::Measured;
use streamhalo::{Device, Stream, StreamOptions, World, WorldOptions};

use crate::app::{Application, ApplicationRow, Between, Looker, Outcome, Trial};
use crate::checkpoint::{Checkpoint, Checkpoints};
use crate::config::RunConfig;
use crate::error::AppError;
use crate::pictures::Snapshots;
use crate::ranks::{Work, patient};
use crate::report::ExchangeTimeline;
use crate::report::text::joined;
use crate::run::{TimelineWanted, Uses, device};
use crate::watch::{Size, Watcher};

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
    /// Whether one more trial of each backend is recorded, and how much of it.
    pub(crate) timeline: Option<TimelineWanted>,
    /// Whether these are the ranks whose first trial writes pictures and checkpoints, if the configuration asks
    /// for any.
    pub(crate) draws: bool,
    /// The terminal that shows what goes on, if one does.
    pub(crate) watched: Option<Size>,
    /// What the backend `auto` need not measure.
    pub(crate) measured: Vec<Measured>,
    /// The checksum of the checkpoint that it goes on from, if it does.
    pub(crate) from: Option<String>,
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
    /// What the backend `auto` is chosen by, measured by this run or an earlier one.
    Measured(Measured),
    /// Something that the user is to know.
    Says(String),
    /// What the terminal shows.
    Frame(String),
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
    /// A trial begins that is recorded, and not timed.
    Recording {
        /// The backend.
        backend: String,
    },
    /// What was recorded.
    Timeline(Box<ExchangeTimeline>),
}

impl Work for RunWork {
    const NAME: &'static str = "run";

    type Report = RunReport;

    fn options(&self) -> WorldOptions {
        world_options(&self.config)
    }

    /// An answer is compared on the cores of the ranks.
    fn is_awaited(report: &RunReport) -> bool {
        matches!(report, RunReport::Finished { .. })
    }

    fn on_rank(&self, world: &World, report: &mut dyn FnMut(RunReport)) -> Result<(), AppError> {
        let application = ApplicationRow::open(&self.config)?;
        let (device, stream) = stream(&self.config, world)?;
        world.set_measured(self.measured.clone());
        // Before anything waits on the device for another rank.
        application.device_kernels().into_iter().try_for_each(|text| stream.compile(text))?;
        // Those who look at a trial report too, while it runs.
        let report = RefCell::new(report);
        let report = |said: RunReport| (report.borrow_mut())(said);
        report(RunReport::Uses(Uses::of(world, &device, &stream, &self.config)));
        // After the stream: threads that a device's library starts would be bound to this rank's core too. Until the end only,
        // as under a launcher the next entry is another work of this thread.
        let _pinned = self.config.run.pin.then(|| world.pin()).transpose()?;
        let from = Checkpoint::asked_for(&self.config, &*application, self.from.as_deref());
        let patient = patient(world)?;
        let from = from.map(|opened| Checkpoint::agree(&patient, opened)).transpose()?;
        let (application, from) = (&*application, from.as_ref());
        let (stream, patient) = (&stream, &patient);
        let rank = OnRank { work: self, application, from, world, patient, stream, report: &report };
        for _ in 0..self.config.run.warmup {
            for backend in &self.config.comm.backend {
                rank.trial(backend, None, false)?;
                report(RunReport::Warm);
            }
        }
        // Trial by trial, not backend by backend: a machine that slows down slows all alike.
        let last_trial = self.config.run.trials.saturating_sub(1);
        for number in 0..self.config.run.trials {
            for backend in &self.config.comm.backend {
                let is_last = number == last_trial && Some(backend) == self.config.comm.backend.last();
                let wants_state = match self.states {
                    StatesWanted::All => true,
                    StatesWanted::Last => is_last,
                    StatesWanted::None => false,
                };
                let outcome = Box::new(rank.trial(backend, Some(number), wants_state)?);
                report(RunReport::Finished { backend: backend.clone(), trial: number, outcome });
                patient.barrier()?; // until it is judged
            }
        }
        match self.timeline {
            Some(wanted) => self.record(wanted, world, stream, &report),
            None => Ok(()),
        }
    }
}

/// A rank at work.
struct OnRank<'a> {
    work: &'a RunWork,
    application: &'a dyn Application,
    /// What it goes on from.
    from: Option<&'a Checkpoint>,
    world: &'a World,
    /// Its ranks, for what no trial times: they wait as long as it takes.
    patient: &'a World,
    stream: &'a Stream,
    report: &'a dyn Fn(RunReport),
}

impl OnRank<'_> {
    /// Runs a trial, or a warm-up where it has no number, and lets those look at it who were asked for.
    fn trial(&self, backend: &str, number: Option<u32>, wants_state: bool) -> Result<Outcome, AppError> {
        let Self { work, application, from, world, patient, stream, report } = *self;
        let RunWork { config, layout, draws, watched, .. } = work;
        report(RunReport::Begin { backend: backend.to_owned(), trial: number });
        let says = |sentence| report(RunReport::Says(sentence));
        let shows = |frame| report(RunReport::Frame(frame));
        // All trials have the same bits.
        let is_drawn = *draws && number == Some(0) && config.comm.backend[0] == backend;
        let first = from.map_or(0, Checkpoint::step);
        let snapshots = is_drawn.then(|| Snapshots::of(config, first, &says)).flatten();
        let checkpoints = is_drawn.then(|| Checkpoints::of(config, application, first, &says)).flatten();
        let watcher = watched.map(|size| {
            let (split, which) = (joined(layout, " x "), trial_name(number));
            // The end of the line is what a narrow terminal has no room for.
            Watcher::new(size, config.app.steps, format!("{backend}, {which}, {split} ranks"), &shows)
        });
        let mut lookers: Vec<&dyn Looker> = Vec::new();
        lookers.extend(snapshots.as_ref().map(|snapshots| snapshots as &dyn Looker));
        lookers.extend(watcher.as_ref().map(|watcher| watcher as &dyn Looker));
        lookers.extend(checkpoints.as_ref().map(|checkpoints| checkpoints as &dyn Looker));
        let between = Between { lookers: &lookers, from, patient: Some(patient) };
        let trial = Trial { world, stream, backend, layout, wants_state, between };
        let known = world.chosen_by().len();
        let mut outcome = application.run_trial(&trial)?;
        world.chosen_by().drain(known..).for_each(|measured| report(RunReport::Measured(measured)));
        if from.is_some() {
            outcome.measured.insert("restarted_at".to_owned(), first.into());
            outcome.timed_steps = Some(config.app.steps - first);
        }
        Ok(outcome)
    }
}

/// "trial 3", or "warm-up" for none.
pub(crate) fn trial_name(number: Option<u32>) -> String {
    number.map_or("warm-up".to_owned(), |number| format!("trial {number}"))
}

/// How ranks wait, as a configuration says.
pub(crate) fn world_options(config: &RunConfig) -> WorldOptions {
    WorldOptions { timeout: config.comm.timeout(), ..WorldOptions::default() }
}

/// A rank's stream, whose messages are staged, as a configuration says.
pub(crate) fn stream(config: &RunConfig, world: &World) -> Result<(Device, Stream), AppError> {
    if let Some(staging) = &config.staging {
        world.set_staging(*staging)?;
    }
    let options =
        StreamOptions { kind: config.device.stream.unwrap_or_default(), threads: config.device.threads };
    let device = device(config, Some(world))?;
    let stream = device.stream_with(world, options)?;
    Ok((device, stream))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ranks::on_threads;
    use std::process::Command;
    use std::sync::Mutex;
    use std::time::Duration;

    /// What two ranks play, which wait for each other for so long that a busy machine lets none wait in vain.
    const TEXT: &str = "app = { steps = 2, pattern = 'random:1' }\ngrid.cells = [4, 6]\n\
                        comm = { backend = 'st-send', timeout_s = 1.5 }\n";

    /// Longer than that.
    const LONGER: Duration = Duration::from_secs(2);

    fn work(trials: u32, rest: &str) -> RunWork {
        let run = format!("run = {{ ranks = 2, trials = {trials}, warmup = 0, pin = false }}\n");
        let config = RunConfig::of(&format!("{TEXT}{run}{rest}"));
        let (layout, states) = (vec![1, 2], StatesWanted::All);
        let (timeline, watched, measured, from) = (None, None, Vec::new(), None);
        RunWork { config, layout, states, timeline, draws: !rest.is_empty(), watched, measured, from }
    }

    /// A rank writes into a pipe, which nobody opens for longer than ranks may wait for each other in a trial.
    #[test]
    fn ranks_wait_for_one_that_is_at_its_file() {
        let waits = |key: &str, file: &str, said: &str| {
            let folder = tempfile::tempdir().expect("can be made");
            let pipe = folder.path().join(file);
            std::fs::create_dir(pipe.parent().expect("has one")).expect("can be made");
            assert!(Command::new("mkfifo").arg(&pipe).status().expect("`mkfifo` is there").success());
            // Not joined: it would hang where nobody writes into the pipe.
            std::thread::spawn(move || {
                std::thread::sleep(LONGER);
                let mut pipe = std::fs::File::open(pipe).expect("is there");
                std::io::copy(&mut pipe, &mut std::io::sink()).expect("can be read");
            });
            let work = work(1, &format!("output = {{ dir = {:?}, {key} = 2 }}\n", folder.path()));
            let done = on_threads(2, work.options(), |world| work.on_rank(world, &mut |_| {}));
            let error = done.expect_err("a pipe is no disk").to_string();
            assert!(error.starts_with(said), "{error}");
        };
        // At the same time: they mostly wait.
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let file = "snapshots/.life_000002_1.vti.unfinished";
                waits("snapshot_every", file, "rank 1 failed: cannot write the picture");
            });
            scope.spawn(|| {
                let file = "checkpoints/.life_000002.halo.unfinished";
                waits("checkpoint_every", file, "rank 0 failed: cannot write the checkpoint");
            });
        });
    }

    /// Rank 0 judges where it is, as under a launcher, for longer than ranks may wait for each other in a trial.
    #[test]
    fn no_rank_begins_a_trial_before_the_one_before_it_is_judged() {
        let work = work(2, "");
        let events = Mutex::new(Vec::new());
        let note = |event: String| events.lock().expect("nobody panics").push(event);
        let done = on_threads(2, work.options(), |world| {
            let mut report = |report| match report {
                RunReport::Begin { trial, .. } => note(format!("{} begins", trial_name(trial))),
                RunReport::Finished { trial, .. } if world.rank() == 0 => {
                    // Nothing begins behind the second one.
                    std::thread::sleep(if trial == 0 { LONGER } else { Duration::ZERO });
                    note(format!("{} is judged", trial_name(Some(trial))));
                }
                _ => {}
            };
            work.on_rank(world, &mut report)
        });
        done.expect("nobody gives up");
        let of_trial =
            |trial| [format!("{trial} begins"), format!("{trial} begins"), format!("{trial} is judged")];
        let expected = ["trial 0", "trial 1"].map(of_trial).concat();
        assert_eq!(events.into_inner().expect("nobody panics"), expected);
    }

    /// As under a launcher, where the ranks of all entries are the same threads.
    #[test]
    fn entries_on_one_thread_find_the_same_cores() {
        let config = RunConfig::of(
            "app = { steps = 1, pattern = 'random:1' }\ngrid.cells = [4, 6]\ncomm.backend = 'st-send'\n\
             run = { ranks = 1, trials = 1, warmup = 0, pin = true }\n",
        );
        let (layout, states) = (vec![1, 1], StatesWanted::All);
        let (timeline, watched, measured, from) = (None, None, Vec::new(), None);
        let work = RunWork { config, layout, states, timeline, draws: false, watched, measured, from };
        let cores = || std::thread::available_parallelism().expect("it is known").get();
        let found = Mutex::new(Vec::new());
        let done = on_threads(1, work.options(), |world| {
            for _ in 0..2 {
                let mut found = found.lock().expect("nobody panics");
                found.push(cores());
                let entry = world.first_with(1, work.options())?.expect("there is a rank");
                work.on_rank(&entry, &mut |report| {
                    if matches!(report, RunReport::Finished { .. }) {
                        assert_eq!(cores(), 1, "it is pinned");
                    }
                })?;
            }
            Ok(())
        });
        done.expect("it is done");
        let found = found.into_inner().expect("nobody panics");
        assert_eq!(found[0], found[1]);
    }
}
