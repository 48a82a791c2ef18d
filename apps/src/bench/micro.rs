//! Measurements of single primitives over sizes.

use super::answers::Answers;
use super::figure::Figure;
use super::moves::Boxes;
use super::streams::Streams;
use super::turns::median;
use super::what::What;
use serde::{Deserialize, Serialize};
use streamhalo::comm::Error;
use streamhalo::{HaloError, Stream, StreamKind, StreamOptions, World};

use crate::error::AppError;
use crate::ranks::Work;

/// A measurement over sizes, with all contestants in one interleaved run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MicroBench {
    /// What is measured.
    pub what: What,
    /// Name of the fabric, for the report.
    pub fabric: String,
    /// How many ranks take part.
    pub ranks: usize,
    /// Bytes of a message; cells of a box along each axis where that is what is moved.
    pub sizes: Vec<usize>,
    /// Backends or primitives, in the order in which they take turns.
    pub contestants: Vec<String>,
    /// What is done, where there are several things to do.
    pub operations: Vec<String>,
    /// How many entries for triggered operations there are, where that is what is varied.
    pub entries: Vec<usize>,
    /// When the operations on streams run.
    pub stream: StreamKind,
    /// Where streams are.
    #[serde(default)]
    pub streams: Streams,
    /// What is moved, where that is measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boxes: Option<Boxes>,
    /// Up to which length messages of a device are staged in one piece.
    #[serde(default)]
    pub threshold_bytes: usize,
    /// For how long each contestant is measured at each size.
    pub seconds: f64,
}

impl MicroBench {
    /// The answers of a contestant.
    pub(super) fn answers<'a>(&self, world: &'a World, contestant: &'a str) -> Answers<'a> {
        Answers { world, bench: self.what.row().name, contestant }
    }

    /// A stream as asked for, that contestants share: a device has few queues on which something waits. Collective.
    pub(super) fn stream(&self, world: &World) -> Result<Stream, AppError> {
        Ok(self.streams.of_rank(world)?.stream_with(world, self.options())?)
    }

    /// What a contestant is called after. The command line has checked the names; what else makes a bench may not have.
    pub(super) fn named<T>(
        &self,
        contestant: &str,
        known: impl FnOnce(&str) -> Option<T>,
    ) -> Result<T, HaloError> {
        let reason = || format!("`bench {}` has no contestant `{contestant}`", self.what.row().name);
        Ok(known(contestant).ok_or_else(|| Error::OutOfOrder { call: "bench", reason: reason() })?)
    }

    /// The kind of the streams, on the host.
    pub(crate) fn stream_name(&self) -> Option<&'static str> {
        self.streams.device.is_none().then(|| self.stream.name())
    }

    /// How streams of the host run.
    pub(super) fn options(&self) -> StreamOptions {
        StreamOptions { kind: self.stream, threads: 1 }
    }
}

impl Work for MicroBench {
    const NAME: &'static str = "bench";

    /// Of one size.
    type Report = Vec<Figure>;

    fn on_rank(&self, world: &World, report: &mut dyn FnMut(Vec<Figure>)) -> Result<(), AppError> {
        let device = self.streams.of_rank(world)?;
        // A first stream comes before: threads that a device's library starts would be bound to this rank's core too.
        if self.streams.device.is_some() {
            drop(device.stream_with(world, self.options())?);
        }
        let _pinned = world.pin()?;
        let report = &mut |figures: Vec<Figure>| {
            report(figures.into_iter().map(|figure| figure.on(&device)).collect());
        };
        self.what.row().run.report(self, world, report)
    }
}

/// The kind of a device, and which one of that kind: `opencl:pocl`, or the first that can be used.
pub(crate) fn split_device(name: &str) -> (&str, &str) {
    name.split_once(':').unwrap_or((name, ""))
}

/// Adds to each figure how many times it takes as long as that of one contestant, if that one has a figure: the median
/// over the turns, of which each is compared with the other's in the same round. How far a machine's cores are from each
/// other may change while they are measured.
pub(super) fn divided(name: &str, by: &str, figures: Vec<Figure>) -> Vec<Figure> {
    let floor = figures.iter().find(|figure| figure.backend == by).map(|figure| figure.turns_us.clone());
    let ratio = |figure: Figure| match &floor {
        Some(floor) if figure.backend != by => {
            let ratios: Vec<_> = figure.turns_us.iter().zip(floor).map(|(one, floor)| one / floor).collect();
            figure.with(name, median(&ratios))
        }
        _ => figure,
    };
    figures.into_iter().map(ratio).collect()
}

#[cfg(test)]
impl MicroBench {
    /// Between two threads, of messages of eight bytes.
    pub(crate) fn of(what: What, contestants: &[&str]) -> Self {
        Self {
            what,
            fabric: "local".to_owned(),
            ranks: 2,
            sizes: vec![8],
            contestants: contestants.iter().map(ToString::to_string).collect(),
            operations: Vec::new(),
            entries: Vec::new(),
            stream: StreamKind::Inline,
            streams: Streams::default(),
            boxes: None,
            threshold_bytes: 0,
            seconds: 1.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::turns::Timing;

    #[test]
    fn ratios_are_of_turns_in_the_same_round() {
        let bench = MicroBench::of(What::Latency, &[]);
        let figure = |name: &str, turns_us: &[f64]| {
            let timing = Timing {
                median_us: median(turns_us),
                min_us: 1.0,
                batches: turns_us.len(),
                repeats_per_batch: 1,
                turns_us: turns_us.to_vec(),
            };
            timing.figure(&bench, (name, "host".into()), 8).divided_by(2.0)
        };
        // The cores are far from each other in all rounds but one.
        let flag = figure("flag", &[2.0, 20.0, 20.0]);
        let put = figure("put", &[4.0, 22.0, 2.0]);
        let found = divided("ratio", "flag", vec![put, flag]);
        assert_eq!(found[0].number("ratio"), Some(1.1));
        assert!(found[1].more.is_empty(), "nothing is compared with itself");
    }
}
