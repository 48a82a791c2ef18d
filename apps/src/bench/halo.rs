//! Time of a halo exchange, for all backends in one interleaved run.

use super::subject::{Subject, subject};
use serde::{Deserialize, Serialize};
use std::time::{Duration, Instant};
use streamhalo::{HaloError, World};

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
    /// Name of the element type.
    pub element: String,
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
    /// The fabric.
    pub fabric: String,
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
    /// Whether the field had two generations.
    pub alternating: bool,
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

/// Batches in the time that a backend is given.
const BATCHES: f64 = 25.0;
const FEWEST_BATCHES: usize = 5;

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
        world.pin()?;
        let mut contestants = Vec::new();
        for backend in &self.backends {
            contestants.push(Contestant {
                subject: subject(self, world, backend)?,
                exchanges: 1,
                batches_us: Vec::new(),
            });
        }
        for contestant in &mut contestants {
            contestant.calibrate(world, self.seconds)?;
        }
        let started = Instant::now();
        let whole = Duration::from_secs_f64(self.seconds * contestants.len() as f64);
        loop {
            // In turn, so that drift of the machine hits all alike.
            for contestant in &mut contestants {
                contestant.batch(world)?;
            }
            let go_on = contestants[0].batches_us.len() < FEWEST_BATCHES || started.elapsed() < whole;
            // Rank 0 decides for all.
            if !world.all_gather(&go_on)?[0] {
                break;
            }
        }
        let mut figures = Vec::new();
        for (backend, contestant) in self.backends.iter().zip(contestants) {
            let executor = executors_of_all(world, backend, &contestant.subject.routes())?;
            figures.push(self.figures(backend, executor, contestant));
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
        world.pin()?;
        let mut subject = subject(&self.bench, world, &self.bench.backends[0])?;
        subject.time(world, 10)?;
        let time = subject.time(world, self.exchanges as usize)?;
        report(Duration::from_secs_f64(world.all_max(time.as_secs_f64())?));
        Ok(())
    }
}

/// A backend that takes its turns.
struct Contestant {
    subject: Box<dyn Subject>,
    exchanges: usize,
    batches_us: Vec<f64>,
}

impl Contestant {
    /// Chooses how many exchanges make a batch, the same on all ranks.
    fn calibrate(&mut self, world: &World, seconds: f64) -> Result<(), HaloError> {
        self.subject.time(world, 10)?;
        let one = world.all_max(self.subject.time(world, 10)?.as_secs_f64() / 10.0)?;
        self.exchanges = ((seconds / BATCHES / one) as usize).clamp(2, 20_000) & !1;
        Ok(())
    }

    fn batch(&mut self, world: &World) -> Result<(), HaloError> {
        let time = self.subject.time(world, self.exchanges)?;
        self.batches_us.push(world.all_max(time.as_secs_f64() * 1e6 / self.exchanges as f64)?);
        Ok(())
    }
}

impl HaloBench {
    fn figures(&self, backend: &str, executor: String, mut contestant: Contestant) -> HaloFigures {
        contestant.batches_us.sort_by(f64::total_cmp);
        let routes = contestant.subject.routes();
        let first = routes.first();
        HaloFigures {
            bench: "halo".to_owned(),
            backend: backend.to_owned(),
            fabric: self.fabric.clone(),
            executor,
            path: first.map_or("own-rank copies", |route| route.path).to_owned(),
            layout: self.layout.clone(),
            cells: self.cells.clone(),
            element: self.element.clone(),
            width: self.width,
            alternating: self.alternating,
            bytes: contestant.subject.bytes(),
            messages: routes.len(),
            median_us: contestant.batches_us[contestant.batches_us.len() / 2],
            min_us: contestant.batches_us[0],
            batches: contestant.batches_us.len(),
            exchanges_per_batch: contestant.exchanges,
        }
    }
}
