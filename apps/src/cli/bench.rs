//! The flags of `streamhalo bench`.

use std::num::{IntErrorKind, NonZeroUsize, ParseIntError};
use std::path::PathBuf;

use clap::builder::{ArgPredicate, PossibleValuesParser, TypedValueParser};
use clap::{Args, Subcommand, ValueEnum};
use streamhalo::StreamKind;
use streamhalo::comm::ElementType;

use super::{RendezvousArgs, Sizes, TOO_LARGE, count};

/// `streamhalo bench`
#[derive(Args, Clone, Debug)]
#[command(after_help = "Example:\n  streamhalo bench halo --layout 2,1,1 --fabric shm")]
pub struct BenchArgs {
    /// What to measure.
    #[command(subcommand)]
    pub what: Bench,
}

/// What is said behind the help of a measurement of primitives, of which some have a `flag`, that is no message.
macro_rules! of_primitives {
    ($flag:literal, $example:literal) => {
        concat!(
            "Primitives: ",
            $flag,
            "two-sided, put-notify, put-active, put-stream, enqueued, queue\nExample:\n  streamhalo bench ",
            $example
        )
    };
}

/// What can be measured.
#[derive(Clone, Debug, Subcommand)]
#[non_exhaustive]
pub enum Bench {
    /// One halo exchange, per backend
    Halo(BenchHaloArgs),
    /// Round trips of a packed message on a stream, per backend
    Pingpong(PingpongArgs),
    /// Half of a round trip, per primitive
    #[command(after_help = of_primitives!("flag, ", "latency --sizes 8..64KiB --primitive flag,put-notify"))]
    Latency(PrimitiveArgs),
    /// Windows of 64 messages one way, per primitive
    #[command(after_help = of_primitives!("flag, ", "bandwidth --sizes 4KiB..4MiB --fabric shm"))]
    Bandwidth(PrimitiveArgs),
    /// Windows of 64 messages both ways, per primitive
    #[command(after_help = of_primitives!("flag, ", "bibandwidth --sizes 4KiB..4MiB --fabric shm"))]
    Bibandwidth(PrimitiveArgs),
    /// Collective calls of the host, and on a stream per backend
    Collectives(CollectivesArgs),
    /// The share of the latency that computation can hide
    #[command(after_help = of_primitives!("", "overlap --sizes 8..64KiB --primitive put-notify"))]
    Overlap(PrimitiveArgs),
    /// L, o, g and G of the LogGP model, fitted
    #[command(after_help = of_primitives!("", "loggp --fabric shm --primitive two-sided,put-notify"))]
    Loggp(PrimitiveArgs),
    /// Epochs on a stream over budgets of entries, per policy
    Throttle(ThrottleArgs),
    /// Copies between a device and the host, per kind of memory
    Copies(CopiesArgs),
    /// Messages of a device, per scheme of staging
    Staging(StagingArgs),
    /// Packing on a device: one kernel, one per neighbour, a copy
    Moves(MovesArgs),
}

/// Where the streams of a measurement are, and when those of the host run.
#[derive(Args, Clone, Debug)]
pub struct StreamArgs {
    /// Stream: inline or threaded
    #[arg(long, value_name = "KIND", value_parser = named(StreamKind::OF_HOST, StreamKind::name), hide_possible_values = true, default_value = "inline")]
    pub stream: StreamKind,
    /// Device: host, or another kind
    #[arg(long, value_name = "KIND[:NAME]", default_value = "host")]
    pub device: String,
}

/// How streams signal and wait, and what they replay.
#[derive(Args, Clone, Debug, Default)]
pub struct SignalArgs {
    /// Signals: auto, kernel, merged, memop or all
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    pub signal: Vec<String>,
    /// Waits: auto (default), kernel or proxy
    #[arg(long, value_name = "NAME")]
    pub waits: Option<String>,
    /// Exchanges replayed: even, up to 1000
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = even)]
    pub replay: usize,
}

/// Where a measurement runs, and where its figures go.
#[derive(Args, Clone, Debug)]
pub struct FigureArgs {
    /// Fabric to run over
    #[arg(long, value_name = "NAME", default_value = "local")]
    pub fabric: String,
    /// Print one JSON object a line, and no table
    #[arg(long, value_name = "-", value_parser = ["-"], hide_possible_values = true)]
    pub json: Option<String>,
    /// Folder for the figures: JSON, CSV and a plot
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// How processes that were started one by one find each other.
    #[command(flatten)]
    pub rendezvous: RendezvousArgs,
}

impl FigureArgs {
    /// Whether JSON lines go to the standard output.
    pub fn prints_json(&self) -> bool {
        self.json.is_some()
    }
}

/// What the measurements over sizes have in common.
#[derive(Args, Clone, Debug)]
pub struct TimedArgs {
    /// About how long each is measured
    #[arg(long, value_name = "S", default_value = "0.1", value_parser = positive_seconds)]
    pub seconds: f64,
    /// Where, and what becomes of the figures.
    #[command(flatten)]
    pub figures: FigureArgs,
}

/// `streamhalo bench pingpong`
#[derive(Args, Clone, Debug)]
#[command(after_help = "Each round trip packs, sends, receives and unpacks on both ranks (2026, VI-A).\n\
                        Example:\n  streamhalo bench pingpong --sizes 8..1MiB,4MiB --fabric shm --json -")]
pub struct PingpongArgs {
    /// Bytes: N,M or N..M doubling
    #[arg(long, value_name = "N..M", default_value = "8..4MiB", allow_hyphen_values = true)]
    pub sizes: Sizes,
    /// Backends to compare, or all
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', default_value = "all")]
    pub backend: Vec<String>,
    /// Where streams are.
    #[command(flatten)]
    pub stream: StreamArgs,
    /// How streams signal.
    #[command(flatten)]
    pub signals: SignalArgs,
    /// For how long, where, and what becomes of the figures.
    #[command(flatten)]
    pub timed: TimedArgs,
}

/// `streamhalo bench latency` and its like
#[derive(Args, Clone, Debug)]
pub struct PrimitiveArgs {
    /// Bytes: N,M or N..M doubling
    #[arg(long, value_name = "N..M", default_value = "8..4MiB", allow_hyphen_values = true)]
    pub sizes: Sizes,
    /// Primitives to compare, or all
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', default_value = "all")]
    pub primitive: Vec<String>,
    /// Where streams are.
    #[command(flatten)]
    pub stream: StreamArgs,
    /// For how long, where, and what becomes of the figures.
    #[command(flatten)]
    pub timed: TimedArgs,
}

/// `streamhalo bench collectives`
#[derive(Args, Clone, Debug)]
#[command(after_help = "Operations: barrier, allreduce, broadcast, reduce, allgather,\n\
                        neighbour-alltoall; streams have the first two.\n\
                        Example:\n  streamhalo bench collectives --ranks 4 --sizes 8..4KiB --fabric shm")]
pub struct CollectivesArgs {
    /// Ranks that take part
    #[arg(long, value_name = "N", default_value = "2", value_parser = count)]
    pub ranks: NonZeroUsize,
    /// Bytes, by 8; N..M doubling
    #[arg(long, value_name = "N..M", default_value = "8..64KiB", allow_hyphen_values = true)]
    pub sizes: Sizes,
    /// Operations, or all
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', default_value = "all")]
    pub operation: Vec<String>,
    /// Backends, host, or all
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', default_value = "all")]
    pub backend: Vec<String>,
    /// Where streams are.
    #[command(flatten)]
    pub stream: StreamArgs,
    /// For how long, where, and what becomes of the figures.
    #[command(flatten)]
    pub timed: TimedArgs,
}

/// `streamhalo bench throttle`
#[derive(Args, Clone, Debug)]
#[command(after_help = "Policies: application, static, adaptive.\n\
                        Each epoch posts, puts, completes and waits (2023, section 5.2).\n\
                        Example:\n  streamhalo bench throttle --entries 2..64 --policy static,adaptive")]
// The host runs ahead of a stream of its own only where that has a thread; those of a device are of no kind that is named.
#[command(mut_arg("stream", |stream| {
    let stream = stream.help("Stream of the host: threaded");
    let on_host = stream.default_value("threaded").default_value_if("device", "host", "threaded");
    on_host.default_value_if("device", ArgPredicate::IsPresent, "inline")
}))]
pub struct ThrottleArgs {
    /// Entries: N,M or N..M doubling
    #[arg(long, value_name = "N..M", default_value = "2..256", value_parser = Sizes::of_counts, allow_hyphen_values = true)]
    pub entries: Sizes,
    /// Bytes of a put
    #[arg(long, value_name = "N", default_value = "1KiB", allow_hyphen_values = true)]
    pub size: Sizes,
    /// Policies to compare, or all
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', default_value = "all")]
    pub policy: Vec<String>,
    /// Where streams are.
    #[command(flatten)]
    pub stream: StreamArgs,
    /// For how long, where, and what becomes of the figures.
    #[command(flatten)]
    pub timed: TimedArgs,
}

/// `streamhalo bench copies`
#[derive(Args, Clone, Debug)]
#[command(after_help = "Each copy is waited for (2023 on Intel GPUs, figure 4).\n\
                        Example:\n  streamhalo bench copies --device opencl:pocl --sizes 16..4MiB")]
pub struct CopiesArgs {
    /// Kind, and which of them
    #[arg(long, value_name = "KIND[:NAME]", default_value = "opencl")]
    pub device: String,
    /// Bytes: N,M or N..M doubling
    #[arg(long, value_name = "N..M", default_value = "16..4MiB", allow_hyphen_values = true)]
    pub sizes: Sizes,
    /// Memory: pinned, pageable or all
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', default_value = "all")]
    pub memory: Vec<String>,
    /// Copy to-host, to-device, or all
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', default_value = "all")]
    pub operation: Vec<String>,
    /// For how long, where, and what becomes of the figures.
    #[command(flatten)]
    pub timed: TimedArgs,
}

/// `streamhalo bench staging`
#[derive(Args, Clone, Debug)]
#[command(after_help = "Schemes: naive, even, advanced; user is a program that copies by itself.\n\
                        Example:\n  streamhalo bench staging --scheme naive,advanced --sizes 64KiB..4MiB")]
pub struct StagingArgs {
    /// Kind, and which of them
    #[arg(long, value_name = "KIND[:NAME]", default_value = "opencl")]
    pub device: String,
    /// Bytes: N,M or N..M doubling
    #[arg(long, value_name = "N..M", default_value = "16..4MiB", allow_hyphen_values = true)]
    pub sizes: Sizes,
    /// Schemes to compare, or all
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', default_value = "all")]
    pub scheme: Vec<String>,
    /// Blocks of even and advanced: 2 by default
    #[arg(long, value_name = "N,...", value_delimiter = ',')]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=64), allow_hyphen_values = true)]
    pub blocks: Vec<u32>,
    /// Memory: pinned (default), pageable or all
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    pub memory: Vec<String>,
    /// Largest message in one piece: 64KiB by default
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub threshold: Option<Sizes>,
    /// latency (default), bandwidth, bibandwidth, all
    #[arg(
        long,
        value_name = "NAME,...",
        value_delimiter = ',',
        default_value = "latency",
        hide_default_value = true
    )]
    pub operation: Vec<String>,
    /// For how long, where, and what becomes of the figures.
    #[command(flatten)]
    pub timed: TimedArgs,
}

/// `streamhalo bench moves`
#[derive(Args, Clone, Debug)]
#[command(after_help = "Operations: z-faces, y-faces, x-faces, pack, unpack.\n\
                        Beside kernels copies of as many bytes by the device itself (2023, section 5.4).\n\
                        Example:\n  streamhalo bench moves --device cuda --cells 64..512 --width 4")]
pub struct MovesArgs {
    /// Kind, and which of them
    #[arg(long, value_name = "KIND[:NAME]", default_value = "opencl")]
    pub device: String,
    /// Cells per axis; N..M doubling
    #[arg(long, value_name = "N..M", default_value = "16..128", value_parser = Sizes::of_counts, allow_hyphen_values = true)]
    pub cells: Sizes,
    /// Layers of cells that are packed
    #[arg(long, value_name = "N", default_value = "1", value_parser = count)]
    pub width: NonZeroUsize,
    /// Element: u8, i32, i64, f32 or f64
    #[arg(long, value_name = "TYPE", value_parser = named(ElementType::ALL, ElementType::name), hide_possible_values = true)]
    #[arg(default_value = "f64")]
    pub element: ElementType,
    /// Operations, or all
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', default_value = "all")]
    pub operation: Vec<String>,
    /// For how long, where, and what becomes of the figures.
    #[command(flatten)]
    pub timed: TimedArgs,
}

/// `streamhalo bench halo`
#[derive(Args, Clone, Debug)]
// Without the blank lines of others, so that it fits a screen.
#[command(help_template = "{about}. {usage-heading} {usage}\n\nOptions:\n{options}\n\
                     Lists are slowest axis first. Example:\n  \
                     streamhalo bench halo --layout 2,1,1 --cells 32,32,32 --json -")]
pub struct BenchHaloArgs {
    /// Ranks per axis
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_value = "2,1,1", value_parser = count)]
    #[arg(allow_hyphen_values = true)]
    pub layout: Vec<NonZeroUsize>,
    /// Cells per axis of each rank
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_value = "64,64,64", value_parser = count)]
    #[arg(allow_hyphen_values = true)]
    pub cells: Vec<NonZeroUsize>,
    /// Element: u8, i32, i64, f32 or f64
    #[arg(long, value_name = "TYPE", value_parser = named(ElementType::ALL, ElementType::name), hide_possible_values = true)]
    #[arg(default_value = "f64")]
    pub element: ElementType,
    /// Halo width in cells
    #[arg(long, value_name = "N", default_value = "1", value_parser = count)]
    pub width: NonZeroUsize,
    /// Neighbours: across faces, or all
    #[arg(long, value_name = "faces|all", value_enum, hide_possible_values = true)]
    #[arg(default_value = "all")]
    pub pattern: Neighbours,
    /// Two generations, swapped after each exchange
    #[arg(long)]
    pub alternating: bool,
    /// Backends to measure, or all
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', default_value = "all")]
    pub backend: Vec<String>,
    /// Device: host, or another kind
    #[arg(long, value_name = "KIND[:NAME]", default_value = "host")]
    pub device: String,
    /// How streams signal.
    #[command(flatten)]
    pub signals: SignalArgs,
    /// About how long each is measured
    #[arg(long, value_name = "S", default_value = "1", value_parser = positive_seconds)]
    pub seconds: f64,
    /// Where, and what becomes of the figures.
    #[command(flatten)]
    pub figures: FigureArgs,
}

impl BenchHaloArgs {
    /// How many ranks the layout asks for; `None` where 64 bits do not hold it.
    pub fn ranks(&self) -> Option<usize> {
        let mut axes = self.layout.iter();
        axes.try_fold(1_usize, |ranks, axis| ranks.checked_mul(axis.get()))
    }
}

/// Which neighbours exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Neighbours {
    /// Those that share a face.
    Faces,
    /// Those that share an edge or a corner too.
    All,
}

/// A value by its name, which clap lists and suggests.
fn named<T: Copy + Send + Sync + 'static, const N: usize>(
    all: [T; N],
    name: fn(T) -> &'static str,
) -> impl TypedValueParser<Value = T> {
    let parser = PossibleValuesParser::new(all.map(name));
    parser.map(move |found| all.into_iter().find(|one| name(*one) == found).expect("clap has checked it"))
}

/// A number of exchanges that are replayed. What is odd, or too many, is refused with its reason where the streams are
/// chosen.
fn even(text: &str) -> Result<usize, String> {
    text.parse().map_err(|error: ParseIntError| match error.kind() {
        IntErrorKind::PosOverflow => TOO_LARGE.to_owned(),
        _ => "must be an even integer of at least 0".to_owned(),
    })
}

fn positive_seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if seconds > 0.0 && seconds <= 86_400.0 => Ok(seconds),
        _ => Err("expected seconds: a number above 0, at most 86400".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Cli, Command};
    use super::*;
    use clap::Parser;

    #[test]
    fn epochs_are_on_a_stream_with_a_thread_unless_a_device_has_them() {
        for (flags, expected) in [
            (&[][..], StreamKind::Threaded),
            (&["--device", "host"], StreamKind::Threaded),
            (&["--device", "host", "--stream", "inline"], StreamKind::Inline),
            (&["--device", "cuda"], StreamKind::Inline),
            (&["--device", "cuda", "--stream", "threaded"], StreamKind::Threaded),
        ] {
            let line = [&["streamhalo", "bench", "throttle"], flags].concat();
            let cli = Cli::try_parse_from(line).expect("it is understood");
            let Command::Bench(BenchArgs { what: Bench::Throttle(args) }) = cli.command else {
                panic!("{flags:?}")
            };
            assert_eq!(args.stream.stream, expected, "{flags:?}");
        }
    }
}
