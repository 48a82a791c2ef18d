//! `streamhalo run CONFIG.toml`: every entry of `run.ranks` with every backend, verified, and
//! written down at the end.

use streamhalo::World;
use streamhalo::comm::Error;
use streamhalo::comm::fabric::shm::SEGMENT_VARIABLE;
use streamhalo::comm::fabric::{FABRICS, FabricRow};

use super::load;
use crate::app::ApplicationRow;
use crate::cli::RunArgs;
use crate::config::{RunConfig, StreamKind};
use crate::error::{AppError, ranks_of};
use crate::interrupt::Interrupt;
use crate::ranks;
use crate::report::{self, MachineInfo, Progress, Results};
use crate::run::{Journal, Kept, RunReport, RunWork, StatesWanted, executor, plan};

/// Runs and reports. Nothing is written before everything has run, so that whatever goes wrong
/// leaves earlier results as they are.
pub(super) fn run(args: &RunArgs) -> Result<u8, AppError> {
    let config = load(&args.config, &args.overrides())?;
    refuse_launchers()?;
    let fabric = usable_fabric(&config.comm.fabric)?;
    let entries = plan(&config)?;
    let application = ApplicationRow::open(&config)?;
    let machine = MachineInfo::detect();
    report::check_writable(&config.output.dir)?;
    let interrupt = Interrupt::watch()?;
    if !args.quiet {
        announce(&config, fabric, &machine);
    }

    let trials = u64::from(config.run.warmup) + u64::from(config.run.trials);
    let runs = trials * (entries.len() * config.comm.backend.len()) as u64;
    let progress = Progress::new(runs, args.quiet);
    let reference = if config.run.verify {
        progress.begin("computing the reference to verify against");
        Some(application.reference(&|| interrupt.check())?)
    } else {
        None
    };
    let mut journal = Journal::new(&config, fabric, &*application, reference);
    for (index, entry) in entries.iter().enumerate() {
        let states = match (config.run.verify, index + 1 == entries.len()) {
            (true, _) => StatesWanted::All,
            (false, true) => StatesWanted::Last,
            (false, false) => StatesWanted::None,
        };
        let work = RunWork { config: config.clone(), layout: entry.layout.clone(), states };
        let mut running = ranks_of(entry.ranks);
        ranks::carry_out(fabric.name, entry.ranks, work, &interrupt, &mut |report| match report {
            RunReport::Begin { backend, trial } => {
                let what = trial.map_or("warm-up".to_owned(), |trial| format!("trial {trial}"));
                running = format!("{backend}, {}, {what}", ranks_of(entry.ranks));
                progress.begin(&running);
            }
            RunReport::Warm => progress.end(),
            RunReport::Finished { backend, trial, outcome } => {
                journal.note(entry, backend, trial, *outcome);
                progress.end();
            }
        })
        .map_err(|error| during(error, running))?;
    }
    drop(progress);
    interrupt.check()?;

    let Kept { records, state, wrong } = journal.close();
    let results = Results::new(&config, machine, records)?;
    let extra = state.map_or(Vec::new(), |state| application.files(&state));
    report::write_results(&config.output.dir, &results, extra)?;
    for sentence in &wrong {
        eprintln!("{sentence}");
    }
    report::print(&report::table(&results))?;
    if !args.quiet {
        eprintln!("results in {}", config.output.dir.display());
    }
    Ok(u8::from(!results.all_verified()))
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

/// `run` starts its own ranks; as a rank of somebody else it would do everything several times.
fn refuse_launchers() -> Result<(), AppError> {
    let refused = |launcher, reason| AppError::Launcher { command: "streamhalo run", launcher, reason };
    if std::env::var_os(SEGMENT_VARIABLE).is_some() {
        return Err(refused(
            "`streamhalo launch`",
            "it starts its own ranks; call it directly, with `--fabric shm`".to_owned(),
        ));
    }
    match World::from_env() {
        Err(Error::FabricUnavailable { reason, .. }) => Err(refused("an MPI launcher", reason)),
        _ => Ok(()),
    }
}

fn usable_fabric(name: &str) -> Result<&'static FabricRow, AppError> {
    let row = FABRICS.iter().find(|row| row.name == name).expect("a configuration names a registered fabric");
    match (row.unusable)() {
        None => Ok(row),
        Some(reason) => Err(AppError::from(Error::FabricUnavailable { name: name.to_owned(), reason })),
    }
}

/// Says what is used, on the standard error.
fn announce(config: &RunConfig, fabric: &FabricRow, machine: &MachineInfo) {
    let cores = machine.logical_cores.map_or("?".to_owned(), |cores| cores.to_string());
    let stream = match config.device.stream {
        Some(StreamKind::Threaded) => "threaded",
        _ => "inline",
    };
    let threads = match config.device.threads {
        1 => "1 thread".to_owned(),
        threads => format!("{threads} threads"),
    };
    let backends = &config.comm.backend;
    let executors = backends.iter().map(|backend| (executor(backend, fabric), backend.as_str()));
    eprintln!(
        "device:   {}, {cores} cores; {stream} stream, {threads} a rank for kernels",
        config.device.kind
    );
    eprintln!("fabric:   {}, {}", fabric.name, fabric.summary);
    eprintln!("backends: {}", backends.join(", "));
    eprintln!("executor: {}", report::by_executor(executors));
}
