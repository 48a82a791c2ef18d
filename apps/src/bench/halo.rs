//! Time of a halo exchange, for all backends in one interleaved run.

use super::streams::{Contestant, Opened, Streams};
use super::subject::{Subject, subject};
use super::turns::{self, Timing, in_turns};
use serde::{Deserialize, Serialize};
use std::time::Duration;
use streamhalo::comm::ElementType;
use streamhalo::comm::backend::AUTO;
use streamhalo::{StreamOptions, World};

use crate::error::AppError;
use crate::ranks::Work;
use crate::run::executors_of_all;

/// What is measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HaloBench {
    /// Ranks along each axis, slowest first.
    pub layout: Vec<usize>,
    /// Cells of each rank along each axis, slowest first.
    pub cells: Vec<usize>,
    /// What a cell is.
    pub element: ElementType,
    /// Layers of ghosts.
    pub width: usize,
    /// Only neighbours across faces.
    pub faces: bool,
    /// A field of two generations, swapped after every exchange.
    pub alternating: bool,
    /// Backends, in the order in which they take turns.
    pub backends: Vec<String>,
    /// Name of the fabric, for the report.
    pub fabric: String,
    /// Where streams are.
    #[serde(default)]
    pub streams: Streams,
    /// For how long each backend is measured.
    pub seconds: f64,
}

/// The figures of one backend. Times are per exchange, the slowest rank's.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HaloFigures {
    /// Which measurement this is: `halo`.
    pub bench: String,
    /// The backend.
    pub backend: String,
    /// The one that `auto` has chosen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chosen_backend: Option<String>,
    /// How streams signalled, on a device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<String>,
    /// The fabric.
    pub fabric: String,
    /// The device of the streams, unless it is the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// Whether that computes on cores of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub is_gpu: Option<bool>,
    /// Who was to wait in the streams, on a device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits: Option<String>,
    /// Who carries out the messages, as in `stream+proxy`.
    pub executor: String,
    /// How the first message travels.
    pub path: String,
    /// Ranks along each axis, slowest first.
    pub layout: Vec<usize>,
    /// Cells of each rank along each axis, slowest first.
    pub cells: Vec<usize>,
    /// Element type.
    pub element: String,
    /// Layers of ghosts.
    pub width: usize,
    /// Which neighbours took part: `all`, or `faces`.
    #[serde(default)]
    pub pattern: String,
    /// Whether the field had two generations.
    pub alternating: bool,
    /// How many exchanges were replayed together, if any were.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replayed: Option<usize>,
    /// Payload bytes that rank 0 sends.
    pub bytes: usize,
    /// Messages that rank 0 sends.
    pub messages: usize,
    /// Median over batches.
    pub median_us: f64,
    /// Minimum over batches.
    pub min_us: f64,
    /// Batches measured.
    pub batches: usize,
    /// Exchanges in a batch.
    pub exchanges_per_batch: usize,
}

impl HaloBench {
    /// How many ranks take part.
    pub fn ranks(&self) -> usize {
        self.layout.iter().product()
    }
}

impl Work for HaloBench {
    const NAME: &'static str = "bench-halo";

    type Report = Vec<HaloFigures>;

    fn on_rank(&self, world: &World, report: &mut dyn FnMut(Vec<HaloFigures>)) -> Result<(), AppError> {
        let opened = self.streams.open(world, StreamOptions::default())?;
        // Behind it: threads that a device's library starts would be bound to this rank's core too.
        let _pinned = world.pin()?;
        let contestants = opened.contestants(&self.backends);
        let mut subjects = Vec::new();
        for one in &contestants {
            subjects.push(subject(self, world, (one.backend, one.stream))?);
        }
        let timings = in_turns(world, self.seconds, subjects.iter_mut().map(|subject| &mut **subject))?;
        let mut figures = Vec::new();
        for ((one, subject), timing) in contestants.iter().zip(&subjects).zip(timings) {
            let executor = executors_of_all(world, one.backend, &subject.routes())?;
            figures.push(self.figures((&opened, one), executor, &**subject, timing));
        }
        report(figures);
        Ok(())
    }
}

/// A number of exchanges of the first backend of a [`HaloBench`]; gives the slowest rank's time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TimedExchanges {
    /// What is exchanged.
    pub bench: HaloBench,
    /// How often.
    pub exchanges: u64,
}

impl Work for TimedExchanges {
    const NAME: &'static str = "timed-exchanges";

    type Report = Duration;

    fn on_rank(&self, world: &World, report: &mut dyn FnMut(Duration)) -> Result<(), AppError> {
        let opened = self.bench.streams.open(world, StreamOptions::default())?;
        // Behind it: threads that a device's library starts would be bound to this rank's core too.
        let _pinned = world.pin()?;
        let contestants = opened.contestants(&self.bench.backends);
        let mut subject = subject(&self.bench, world, (contestants[0].backend, contestants[0].stream))?;
        turns::time(world, &mut *subject, 10)?;
        let time = turns::time(world, &mut *subject, self.exchanges as usize)?;
        report(Duration::from_secs_f64(world.all_max(time.as_secs_f64())?));
        Ok(())
    }
}

impl HaloBench {
    fn figures(
        &self,
        (opened, one): (&Opened, &Contestant<'_>),
        executor: String,
        subject: &dyn Subject,
        timing: Timing,
    ) -> HaloFigures {
        let routes = subject.routes();
        let first = routes.first();
        HaloFigures {
            bench: "halo".to_owned(),
            backend: one.backend.to_owned(),
            chosen_backend: (one.backend == AUTO).then(|| subject.backend().to_owned()),
            signal: one.signal.map(|signal| signal.name().to_owned()),
            fabric: self.fabric.clone(),
            device: opened.device_name(),
            is_gpu: opened.is_gpu(),
            waits: self.streams.waits_name().map(str::to_owned),
            executor,
            path: first.map_or("own-rank copies", |route| route.path).to_owned(),
            layout: self.layout.clone(),
            cells: self.cells.clone(),
            element: self.element.name().to_owned(),
            width: self.width,
            pattern: if self.faces { "faces" } else { "all" }.to_owned(),
            alternating: self.alternating,
            replayed: subject.replayed(),
            bytes: subject.bytes(),
            messages: routes.len(),
            median_us: timing.median_us,
            min_us: timing.min_us,
            batches: timing.batches,
            exchanges_per_batch: timing.repeats_per_batch,
        }
    }
}
