//! The command line. Values that only a registry can judge (backends, fabrics, rank lists)
//! are taken as text here and checked where the configuration is, with the same errors.

mod bench;
mod sizes;
mod timeline;

use std::ffi::OsString;
use std::num::{IntErrorKind, NonZeroUsize, ParseIntError};
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::config::Overrides;

pub use bench::*;
pub use sizes::Sizes;
pub use timeline::TimelineAsked;

/// Stencil applications over stream-triggered halo exchange.
#[derive(Clone, Debug, Parser)]
#[command(name = "streamhalo", version, mut_subcommands = negative_numbers_are_values)]
#[command(after_help = "Example:\n  streamhalo run configs/life/acorn.toml --ranks 1,2")]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// Else clap takes the value of `--ranks -1` for a flag that it does not know, and does not say what is wrong with it.
fn negative_numbers_are_values(command: clap::Command) -> clap::Command {
    let may_follow = |arg: clap::Arg| {
        let is_value = !arg.is_positional() && arg.get_action().takes_values();
        arg.allow_negative_numbers(is_value)
    };
    command.mut_args(may_follow).mut_subcommands(negative_numbers_are_values)
}

/// The number of a rank.
fn rank(text: &str) -> Result<usize, String> {
    text.parse().map_err(|_| "must be the number of a rank: an integer of at least 0".to_owned())
}

const TOO_LARGE: &str = "does not fit into 64 bits";

/// A number of things of which there is at least one.
fn count(text: &str) -> Result<NonZeroUsize, String> {
    text.parse().map_err(|error: ParseIntError| match error.kind() {
        IntErrorKind::PosOverflow => TOO_LARGE.to_owned(),
        _ => "must be an integer of at least 1".to_owned(),
    })
}

/// The commands.
#[derive(Clone, Debug, Subcommand)]
#[non_exhaustive]
pub enum Command {
    /// Run an application as a TOML file describes it
    Run(RunArgs),
    /// Start N processes of one's own program on this machine, over `shm`
    Launch(LaunchArgs),
    /// Show per neighbour: direction, bytes, path, who executes it, and why
    Explain(ExplainArgs),
    /// List devices, fabrics, MPI libraries and providers: found, or why not
    Info,
    /// Measure one thing, checked before it is timed
    Bench(BenchArgs),
    /// Write tables and plots of a results folder again
    Report(ReportArgs),
    /// The process of a rank, as `run` starts it
    #[command(hide = true)]
    Worker(WorkerArgs),
}

/// A configuration and what is laid over it.
#[derive(Args, Clone, Debug)]
pub struct ConfigArgs {
    /// The run configuration, a TOML file
    #[arg(value_name = "CONFIG.toml")]
    pub config: PathBuf,
    /// Set run.trials=3, unset run.trials= (repeatable)
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// Rank counts, as in 1,2,4
    #[arg(long, value_name = "N,...", allow_hyphen_values = true)]
    pub ranks: Option<String>,
    /// Backends to compare, or all
    #[arg(long, value_name = "NAME,...")]
    pub backend: Option<String>,
    /// Fabric to run over
    #[arg(long, value_name = "NAME")]
    pub fabric: Option<String>,
}

impl ConfigArgs {
    /// What the flags lay over the file.
    pub fn overrides(&self) -> Overrides {
        Overrides {
            set: self.set.clone(),
            ranks: self.ranks.clone(),
            backend: self.backend.clone(),
            fabric: self.fabric.clone(),
            ..Overrides::default()
        }
    }
}

/// How processes that were started one by one find each other, over `ofi` and `shm+ofi`.
#[derive(Args, Clone, Debug, Default)]
pub struct RendezvousArgs {
    /// Where ranks meet that are started one by one
    #[arg(long, value_name = "HOST:PORT", requires = "world_size", requires = "rank")]
    pub rank_zero: Option<String>,
    /// How many ranks meet there
    #[arg(long, value_name = "N", requires = "rank_zero", value_parser = count)]
    pub world_size: Option<NonZeroUsize>,
    /// Which of them this process is, from 0
    #[arg(long, value_name = "R", requires = "rank_zero", value_parser = rank)]
    pub rank: Option<usize>,
}

/// `streamhalo run`
#[derive(Args, Clone, Debug)]
// Without its argument, which the usage has, so that it fits a screen.
#[command(
    help_template = "{about}\n\n{usage-heading} {usage}\n\nOptions:\n{options}{after-help}",
    after_help = "Example:\n  streamhalo run configs/life/acorn.toml --backend standard,st-rsend"
)]
pub struct RunArgs {
    /// The configuration.
    #[command(flatten)]
    pub config: ConfigArgs,
    /// Folder for results, in place of `output.dir`
    #[arg(long, value_name = "DIR")]
    pub out: Option<String>,
    /// Write pictures of the field, as in every=100
    #[arg(long, value_name = "every=N")]
    pub snapshot: Option<String>,
    /// Write checkpoints to go on from, as in every=1000
    #[arg(long, value_name = "every=N")]
    pub checkpoint: Option<String>,
    /// Go on from a checkpoint or a folder's latest
    #[arg(long, value_name = "PATH")]
    pub restart: Option<String>,
    /// Show `life` in the terminal while it runs
    #[arg(long, conflicts_with = "quiet")]
    pub watch: bool,
    /// Record who does what when, as JSON and SVG
    #[arg(long, value_name = "steps=K", num_args = 0..=1, default_missing_value = "")]
    pub timeline: Option<TimelineAsked>,
    /// No progress on the terminal
    #[arg(long)]
    pub quiet: bool,
    /// How processes that were started one by one find each other.
    #[command(flatten)]
    pub rendezvous: RendezvousArgs,
}

impl RunArgs {
    /// What the flags lay over the file.
    pub fn overrides(&self) -> Overrides {
        Overrides {
            out: self.out.clone(),
            snapshot: self.snapshot.clone(),
            checkpoint: self.checkpoint.clone(),
            restart: self.restart.clone(),
            ..self.config.overrides()
        }
    }
}

/// `streamhalo explain`
#[derive(Args, Clone, Debug)]
#[command(after_help = "Example:\n  streamhalo explain configs/life/acorn.toml --ranks 4")]
pub struct ExplainArgs {
    /// The configuration.
    #[command(flatten)]
    pub config: ConfigArgs,
    /// How processes that were started one by one find each other.
    #[command(flatten)]
    pub rendezvous: RendezvousArgs,
}

/// `streamhalo launch`
#[derive(Args, Clone, Debug)]
#[command(after_help = "All processes are on this machine. Across machines `mpiexec` or `srun` starts\n\
                        the program itself, and `World::from_env` finds its ranks.\n\n\
                        Example:\n  streamhalo launch -n 4 ./my-solver --cells 512")]
pub struct LaunchArgs {
    /// Number of processes
    #[arg(short = 'n', value_name = "N", value_parser = count)]
    pub processes: NonZeroUsize,
    // One list, not two arguments: from its first value on nothing is read as a flag of ours.
    /// The program and its arguments, passed on as they are
    #[arg(
        value_names = ["PROGRAM", "ARGS"],
        required = true,
        num_args = 1..,
        trailing_var_arg = true
    )]
    pub command: Vec<OsString>,
}

impl LaunchArgs {
    /// The program and its arguments.
    pub fn program(&self) -> (&OsString, &[OsString]) {
        let (program, arguments) = self.command.split_first().expect("clap requires at least the program");
        (program, arguments)
    }
}

/// `streamhalo report`
#[derive(Args, Clone, Debug)]
#[command(after_help = "Example:\n  streamhalo report results/life")]
pub struct ReportArgs {
    /// Folder with the results.json of a run
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,
}

/// `streamhalo worker`
#[derive(Args, Clone, Debug)]
pub struct WorkerArgs {
    /// What the ranks do together
    pub work: String,
    /// The fabric that one of them looks for
    pub fabric: Option<String>,
}
