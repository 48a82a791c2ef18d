//! `streamhalo run CONFIG.toml`: every entry of `run.ranks` with every backend, verified, and
//! written down at the end.
//!
//! One process leads: the one that was called, or rank 0 of those that a launcher has started. It alone
//! verifies, prints and writes. Other ranks of a launcher follow.

use std::path::{Path, PathBuf};

use serde_json::Value;
use streamhalo::WorldOptions;

use super::{check_room_for, load};
use crate::checkpoint::{self, Checkpoint};
use crate::cli::RunArgs;
use crate::config::{Places, RunConfig, Scaling};
use crate::error::{AppError, counted, ranks_of};
use crate::occupied::{BEGINNINGS, Occupied, remove_unfinished};
use crate::pictures;
use crate::ranks::{Prepared, Ranks, adopt, are_launched};
use crate::report::wrap::filled;
use crate::report::{self, ExchangeTimeline, MachineInfo, OutputFile, Progress, Results};
use crate::run::{
    Banner, Journal, Kept, MeasuredFile, Part, RunReport, RunWork, StatesWanted, TimelineWanted, plan,
    trial_name, world_options,
};
use crate::watch::{self, Screen, Size};

const COMMAND: &str = "streamhalo run";

/// Runs and reports. Nothing but pictures and checkpoints is written before everything has run, so that
/// whatever goes wrong leaves earlier results as they are.
pub(super) fn run(args: &RunArgs) -> Result<u8, AppError> {
    let config = load(&args.config, &args.overrides());
    let fabric = config.as_ref().map(|(config, _)| config.comm.fabric.clone());
    let fabric = fabric.ok().or(args.config.fabric.clone());
    let planned = config.and_then(|(config, places)| match Planned::new(config, args) {
        Ok(planned) => Ok(Planned { places, ..planned }),
        Err(error) => Err(places.locate(error)),
    });
    let (ranks, planned) = Ranks::gather(COMMAND, fabric.as_deref(), planned)?;
    let outcome = match ranks.lead_here() {
        true => lead(&ranks, &planned, args.quiet).inspect_err(|_| {
            // Ranks that are threads may be in the middle of a file, and go on until the program has ended.
            BEGINNINGS.end();
            _ = planned.remove_unfinished();
        }),
        false => follow(&ranks, &planned),
    };
    ranks.conclude(outcome)
}

/// A run that can be done as far as one process can tell.
struct Planned {
    config: RunConfig,
    /// Where its values were set.
    places: Places,
    parts: Vec<Part>,
    /// Recorded at the largest number of ranks.
    timeline: Option<TimelineWanted>,
    is_watched: bool,
    /// What the backend `auto` need not measure.
    measured: MeasuredFile,
    /// What all trials go on from.
    from: Option<Checkpoint>,
    /// Later checkpoints in its folder, from which this run cannot go on.
    passed_over: Vec<PathBuf>,
    /// That nobody else writes into the folder of results, where this process leads.
    _occupied: Option<Occupied>,
}

impl Planned {
    fn new(mut config: RunConfig, args: &RunArgs) -> Result<Self, AppError> {
        adopt(&args.rendezvous, &config.comm.fabric)?;
        if args.watch {
            watch::check(&config, are_launched(COMMAND, &config.comm.fabric))?;
        }
        let timeline = args.timeline.map(|asked| TimelineWanted::of(asked, &config)).transpose()?;
        let mut parts = plan(&config)?;
        let (mut from, mut passed_over) = (None, Vec::new());
        if let Some(path) = config.run.restart.take() {
            let is_weak = config.run.scaling == Scaling::Weak;
            let open = |path: &Path, named: Option<u64>| {
                let opened = parts.iter().map(|part| {
                    let opened = Checkpoint::open(path, &part.config, &*part.application);
                    let opened = opened.and_then(|opened| opened.named(named));
                    opened.map_err(|error| if is_weak { error.at_weak(part.entry.ranks) } else { error })
                });
                Ok(opened.collect::<Result<Vec<_>, _>>()?.pop())
            };
            (from, passed_over) = checkpoint::resolve(&path, &config.app.name, open)?;
        }
        // Ranks must not look for the latest one each, while another run writes.
        let restart = from.as_ref().map(|from| from.path().to_owned());
        parts.iter_mut().for_each(|part| part.config.run.restart.clone_from(&restart));
        config.run.restart = restart;
        let measured = MeasuredFile::open(&config)?;
        let (places, is_watched) = (Places::default(), args.watch);
        Ok(Self { config, places, parts, timeline, is_watched, measured, from, passed_over, _occupied: None })
    }

    /// Removes pictures and checkpoints that nobody will finish: all that can be removed, also after an error.
    fn remove_unfinished(&self) -> Result<(), AppError> {
        let folders = [checkpoint::FOLDER, pictures::FOLDER].into_iter();
        folders
            .map(|folder| remove_unfinished(&self.config.output.dir.join(folder)))
            .fold(Ok(()), Result::and)
    }

    /// What the ranks of each entry do, and the terminal that shows it, if one does.
    fn works(&self, watched: Option<Size>) -> impl Iterator<Item = (&Part, RunWork)> {
        let most = self.parts.iter().map(|part| part.entry.ranks).max();
        let recorded = self.parts.iter().position(|part| Some(part.entry.ranks) == most);
        self.parts.iter().enumerate().map(move |(index, part)| {
            let is_last = index + 1 == self.parts.len();
            let states = match self.config.run.verify {
                true => StatesWanted::All,
                false if is_last && part.application.has_files() => StatesWanted::Last,
                false => StatesWanted::None,
            };
            let timeline = self.timeline.filter(|_| recorded == Some(index));
            let (config, layout) = (part.config.clone(), part.entry.layout.clone());
            let measured = self.measured.known().to_vec();
            let from = self.from.as_ref().map(|from| from.checksum().to_owned());
            (part, RunWork { config, layout, states, timeline, draws: index == 0, watched, measured, from })
        })
    }
}

impl Prepared for Planned {
    fn asked(&self) -> Value {
        let mut asked = serde_json::to_value(&self.config).expect("a configuration is JSON");
        asked["--timeline"] = self.timeline.map(|wanted| wanted.to_string()).into();
        asked
    }

    fn most_ranks(&self) -> (Option<&'static str>, usize) {
        (Some("run.ranks"), self.parts.iter().map(|part| part.entry.ranks).max().unwrap_or(1))
    }

    fn options(&self) -> WorldOptions {
        world_options(&self.config)
    }

    fn prepare_to_lead(&mut self) -> Result<(), AppError> {
        if self.is_watched {
            Size::of_terminal()?;
        }
        let checked = || {
            if self.config.run.verify {
                self.parts.iter().try_for_each(check_room)?;
            }
            self.from.as_ref().map_or(Ok(()), Checkpoint::verify)?;
            self.measured.check_writable()
        };
        checked().map_err(|error| self.places.locate(error))?;
        let dir = &self.config.output.dir;
        let files = [&[report::RESULTS_FILE], &report::DERIVED[..]].concat().into_iter().map(str::to_owned);
        self._occupied = Some(check_room_for(dir, &files.chain(report::of_some_runs()).collect::<Vec<_>>())?);
        if self.config.output.checkpoint_every > 0 {
            // Those that its first ranks write.
            let Part { config, application, .. } = &self.parts[0];
            let first = self.from.as_ref().map_or(0, Checkpoint::step);
            checkpoint::prepare(config, &**application, first).map_err(|error| self.places.locate(error))?;
        }
        if self.config.output.snapshot_every > 0 {
            pictures::check_place(dir)?;
        }
        // Whether this run writes there or not: it may be as large as the grid.
        self.remove_unfinished()
    }
}

/// The part of a rank that another one leads.
fn follow(ranks: &Ranks, planned: &Planned) -> Result<u8, AppError> {
    let interrupt = ranks.interrupt()?;
    for (part, work) in planned.works(None) {
        ranks.carry_out(part.entry.ranks, work, &interrupt, &mut |_| {})?;
    }
    Ok(0)
}

fn lead(ranks: &Ranks, planned: &Planned, quiet: bool) -> Result<u8, AppError> {
    let Planned { config, parts, timeline, is_watched, measured, from, passed_over, .. } = planned;
    let watched = if *is_watched { Some(Size::of_terminal()?) } else { None };
    let machine = MachineInfo::detect();
    let interrupt = ranks.interrupt()?;
    if !quiet {
        report::say(&Banner { config, ranks, machine: &machine }.to_string());
        if let Some(from) = from {
            report::say(&format!(
                "restart:  {}, after {}\n",
                from.path().display(),
                counted(from.step(), "step")
            ));
        }
        for path in passed_over {
            report::say(&format!(
                "          and not {}, which is of another run, or beyond `app.steps`\n",
                path.display()
            ));
        }
    }

    // Also of a quiet run: who asks for checkpoints relies on them.
    if let Some(sentence) = checkpoint::none_are_due(config, from.as_ref().map_or(0, Checkpoint::step)) {
        report::say(&sentence);
    }

    let trials = u64::from(config.run.warmup) + u64::from(config.run.trials);
    let recorded = u64::from(timeline.is_some());
    let runs = (trials * parts.len() as u64 + recorded) * config.comm.backend.len() as u64;
    let progress = Progress::new(runs, quiet || *is_watched);
    let mut journal = Journal::new(config);
    let mut timelines: Vec<ExchangeTimeline> = Vec::new();
    let mut newly_measured = Vec::new();
    let mut is_said = quiet;
    let mut screen = Screen::of_terminal();
    for (part, work) in planned.works(watched) {
        let entry = &part.entry;
        if config.run.verify && !journal.has_reference_of(part) {
            progress.begin("computing the reference to verify against");
            check_room(part)?;
            journal.verify_against(part, part.application.reference(&|| interrupt.check())?);
        }
        let mut running = ranks_of(entry.ranks);
        ranks
            .carry_out(entry.ranks, work, &interrupt, &mut |report| match report {
                RunReport::Uses(uses) if !is_said => {
                    is_said = true;
                    progress.say(&uses.to_string());
                }
                RunReport::Uses(_) => {}
                RunReport::Begin { backend, trial } => {
                    running = format!("{backend}, {}, {}", ranks_of(entry.ranks), trial_name(trial));
                    progress.begin(&running);
                }
                RunReport::Measured(one) => {
                    let read = measured.path_of(&one);
                    if !quiet {
                        let from = read.map(|path| format!(" (read from {})", path.display()));
                        let sentence = format!("auto:     {one}{}", from.unwrap_or_default());
                        if *is_watched {
                            screen.say_later(sentence)
                        } else {
                            progress.say(&filled(&sentence))
                        }
                    }
                    if read.is_none() {
                        newly_measured.push(one);
                    }
                }
                RunReport::Says(sentence) if *is_watched => screen.say_later(sentence),
                RunReport::Says(sentence) => progress.say(&(sentence + "\n")),
                RunReport::Frame(frame) => screen.show(&frame),
                RunReport::Warm => progress.end(),
                RunReport::Recording { backend } => {
                    running = format!("{backend}, {}, timeline", ranks_of(entry.ranks));
                    progress.begin(&running);
                }
                RunReport::Timeline(timeline) => {
                    timelines.push(*timeline);
                    progress.end();
                }
                RunReport::Finished { backend, trial, outcome } => {
                    journal.note(part, backend, trial, *outcome);
                    progress.end();
                }
            })
            .map_err(|error| during(error, running))?;
    }
    drop((screen, progress));
    interrupt.check()?;

    let Kept { records, state, wrong } = journal.close();
    let results = Results::new(config, machine, records)?;
    let mut extra = state.map_or(Vec::new(), |(application, state)| application.files(&state));
    let written = timeline_files(&timelines).and_then(|files| {
        extra.extend(files);
        let files = report::result_files(&results, extra)?;
        report::replace_results(&config.output.dir, &files).inspect_err(|error| say_where_kept(error, &files))
    });
    // Behind the results, as it may have to wait.
    let kept_measured = measured.write_with(newly_measured, &interrupt);
    // What was measured is shown also where there is no room for its files.
    wrong.iter().for_each(|sentence| report::say(&format!("{sentence}\n")));
    report::print(&report::table(&results))?;
    written?;
    if !quiet {
        report::say(&format!("results in {}\n", config.output.dir.display()));
    }
    kept_measured?;
    Ok(u8::from(!results.all_verified()))
}

/// Keeps files that could not be written, as a run may have taken hours and pictures the last of the room, and says where.
fn say_where_kept(error: &AppError, files: &[OutputFile]) {
    // They are in their place, and something of an earlier run as well.
    if matches!(error, AppError::NotRemoved { .. }) {
        return;
    }
    if let Some(dir) = report::keep_elsewhere(files) {
        report::say(&format!("the results of this run are in {}\n", dir.display()));
    }
}

/// Whether there is room to verify, as the standard collections would end the program without. Looked at before anything
/// runs, and again when it is needed: by then there may be less.
fn check_room(part: &Part) -> Result<(), AppError> {
    let bytes = part.application.bytes_to_verify();
    Vec::<u8>::new().try_reserve_exact(bytes).map_err(|_| AppError::NoRoomToVerify { bytes })
}

/// The files of timelines; says what there was no room for.
fn timeline_files(timelines: &[ExchangeTimeline]) -> Result<Vec<OutputFile>, AppError> {
    let mut files = Vec::with_capacity(2 * timelines.len());
    for timeline in timelines {
        if timeline.dropped() > 0 {
            report::say(&format!(
                "timeline of {}: there was no room for the first {}; record fewer steps\n",
                timeline.backend,
                counted(timeline.dropped(), "span")
            ));
        }
        files.extend(timeline.files()?);
    }
    Ok(files)
}

/// Adds to the failure of a rank what was running.
fn during(error: AppError, running: String) -> AppError {
    match error {
        AppError::Rank { rank, message } => {
            AppError::Rank { rank, message: format!("{message} ({running})") }
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::ApplicationRow;

    #[test]
    fn room_to_verify_is_that_of_what_references_and_judges_keep() {
        let points = 8 * 8 * 8 * 6_usize.pow(3);
        for (text, bytes) in [
            ("app.pattern = 'random:1'\ngrid.cells = [30, 50]", 16 * 30 * 50),
            ("app.name = 'stencil3d'\ngrid.cells = [20, 30, 40]", 16 * 20 * 30 * 40),
            ("app = { name = 'stencil3d', element = 'f32' }\ngrid.cells = [20, 30, 40]", 8 * 20 * 30 * 40),
            ("app = { name = 'faces', order = 5 }\ngrid.cells = [8, 8, 8]", 32 * points),
            ("app = { name = 'faces', order = 5, values = 'reals' }\ngrid.cells = [8, 8, 8]", 48 * points),
            ("app = { name = 'comb', variables = 3 }\ngrid.cells = [9, 9, 9]", 2 * 3 * 8 * 9 * 9 * 9),
            ("app.name = 'pipeline'\ngrid.cells = [7000, 90]", 4 * 8 * 90),
            ("app = { name = 'tree', elements = 5 }\ngrid.cells = 1000", 8 * 8 * 5),
            ("app = { name = 'cholesky', steps = 2 }\ngrid.cells = 512", 4 * 8 * 512 * 512),
            (
                "app = { name = 'cholesky', steps = 2, values = 'reals' }\ngrid.cells = 512",
                6 * 8 * 512 * (512 + 2),
            ),
        ] {
            let application = ApplicationRow::open(&RunConfig::of(text)).expect("is right");
            assert_eq!(application.bytes_to_verify(), bytes, "{text}");
        }
    }
}
