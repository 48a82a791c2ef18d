//! What can be measured over sizes: each is one file and one row.

use super::figure::Figure;
use super::micro::MicroBench;
use super::{bandwidth, collectives, copies, latency, loggp, moves, overlap, pingpong, staging, throttle};
use crate::error::AppError;
use serde::{Deserialize, Serialize};
use streamhalo::World;

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum What {
    /// Round trips of a packed message on a stream.
    Pingpong,
    /// Half of a round trip.
    Latency,
    /// Windows of messages, one way.
    Bandwidth,
    /// Windows of messages, both ways.
    Bibandwidth,
    /// Barriers and reductions on streams.
    Collectives,
    /// The share of the latency that computation can hide.
    Overlap,
    /// The parameters of the LogGP model.
    Loggp,
    /// Epochs over budgets of entries.
    Throttle,
    /// Copies between a device and the host.
    Copies,
    /// Messages of a device, staged in the host's memory.
    Staging,
    /// Moves between fields of a device and packed messages.
    Moves,
}

impl What {
    pub(crate) fn row(self) -> &'static Row {
        match self {
            What::Pingpong => &pingpong::ROW,
            What::Latency => &latency::ROW,
            What::Bandwidth => &bandwidth::ROW,
            What::Bibandwidth => &bandwidth::BOTH_WAYS,
            What::Collectives => &collectives::ROW,
            What::Overlap => &overlap::ROW,
            What::Loggp => &loggp::ROW,
            What::Throttle => &throttle::ROW,
            What::Copies => &copies::ROW,
            What::Staging => &staging::ROW,
            What::Moves => &moves::ROW,
        }
    }
}

/// A measurement: how it is done, and what its numbers are.
pub(crate) struct Row {
    /// The name on the command line and in figures.
    pub(crate) name: &'static str,
    /// What it is about.
    pub(crate) title: &'static str,
    /// What a number is.
    pub(crate) value: Value,
    /// What a reader has to know about them.
    pub(crate) note: &'static str,
    /// What is varied, if it is not bytes.
    pub(crate) varies: Option<&'static str>,
    pub(super) run: Run,
}

/// What is shown of a figure.
pub(crate) enum Value {
    /// Microseconds.
    Time,
    /// 10⁹ bytes a second.
    GigabytesPerSecond,
    /// 10⁶ bytes a second, as the OSU suite shows it.
    MegabytesPerSecond,
    /// The share that was hidden.
    Percent,
}

impl Value {
    pub(crate) fn unit(&self) -> &'static str {
        match self {
            Value::Time => "us",
            Value::GigabytesPerSecond => "GB/s",
            Value::MegabytesPerSecond => "MB/s",
            Value::Percent => "%",
        }
    }

    /// The median of a figure, and the values at both ends of its spread; `None` where it cannot be told.
    pub(crate) fn of(&self, figure: &Figure) -> Option<[f64; 3]> {
        let rate = |scale: f64| {
            let number = |name| scale * figure.number(name).expect("is measured for every figure");
            [number("gb_per_s"), number("best_gb_per_s")]
        };
        let [median, best] = match self {
            Value::Time => [figure.median_us, figure.min_us],
            Value::GigabytesPerSecond => rate(1.0),
            Value::MegabytesPerSecond => rate(1e3),
            Value::Percent => return figure.number("overlap_percent").map(|share| [share; 3]),
        };
        Some([median, best, median])
    }
}

type Figures = Result<Vec<Figure>, AppError>;
pub(super) type Report<'r> = dyn FnMut(Vec<Figure>) + 'r;

/// How it is done, collectively: with each size, or with all of them.
pub(super) enum Run {
    Sizes(fn(&MicroBench, &World, usize) -> Figures),
    /// Each operation that was asked for.
    Operations(fn(&MicroBench, &World, &str, usize) -> Figures),
    /// Each number of entries that was asked for.
    Entries(fn(&MicroBench, &World, usize, usize) -> Figures),
    All(fn(&MicroBench, &World, &mut Report<'_>) -> Result<(), AppError>),
}

impl Run {
    pub(super) fn report(
        &self,
        bench: &MicroBench,
        world: &World,
        report: &mut Report<'_>,
    ) -> Result<(), AppError> {
        for (index, bytes) in bench.sizes.iter().copied().enumerate() {
            match self {
                Run::Sizes(measure) => report(measure(bench, world, bytes)?),
                Run::Operations(measure) => {
                    // A barrier has no size.
                    for operation in bench.operations.iter().filter(|name| index == 0 || *name != "barrier") {
                        report(measure(bench, world, operation, bytes)?);
                    }
                }
                Run::Entries(measure) => {
                    for entries in &bench.entries {
                        report(measure(bench, world, bytes, *entries)?);
                    }
                }
                Run::All(measure) => return measure(bench, world, report),
            }
        }
        Ok(())
    }
}
