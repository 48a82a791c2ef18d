//! Time of a halo exchange, for all backends in one interleaved run.

use super::ranks::Measurement;
use serde::{Deserialize, Serialize};
use std::time::{Duration, Instant};
use streamhalo::comm::Element;
use streamhalo::grid::Fields;
use streamhalo::{Alternating, Array, Device, Entity, GlobalGrid, HaloError, Pattern, Stream, StreamHalo, World};

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
    /// Who carries out the first message.
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

impl Measurement for HaloBench {
    type Outcome = Vec<HaloFigures>;

    fn on_rank(&self, world: &World) -> Result<Vec<HaloFigures>, HaloError> {
        match self.cells.len() {
            1 => self.with_element::<1>(world),
            2 => self.with_element::<2>(world),
            _ => self.with_element::<3>(world),
        }
    }
}

/// A field that can be measured: filled from global indices, exchanged, and checked.
struct Subject<T, const D: usize> {
    field: Either<T, D>,
    halo: StreamHalo,
    batches_us: Vec<f64>,
    exchanges: usize,
}

enum Either<T, const D: usize> {
    Single(Array<T, D>),
    Double(Alternating<T, D>),
}

impl HaloBench {
    fn with_element<const D: usize>(&self, world: &World) -> Result<Vec<HaloFigures>, HaloError> {
        match self.element.as_str() {
            "u8" => self.compare::<u8, D>(world, |hash| hash as u8),
            "i32" => self.compare::<i32, D>(world, |hash| hash as i32),
            "i64" => self.compare::<i64, D>(world, |hash| hash as i64),
            "f32" => self.compare::<f32, D>(world, |hash| (hash % (1 << 20)) as f32),
            _ => self.compare::<f64, D>(world, |hash| (hash % (1 << 40)) as f64),
        }
    }

    fn compare<T: Element, const D: usize>(&self, world: &World, value: fn(u64) -> T) -> Result<Vec<HaloFigures>, HaloError> {
        let stream = Device::host().stream(world)?;
        let mut subjects = Vec::new();
        for backend in &self.backends {
            subjects.push(self.subject::<T, D>(world, &stream, backend, value)?);
        }
        for subject in &mut subjects {
            subject.calibrate(world, self.seconds)?;
        }
        let started = Instant::now();
        let whole = Duration::from_secs_f64(self.seconds * subjects.len() as f64);
        loop {
            for subject in &mut subjects {
                let time = subject.time(world, subject.exchanges)?;
                let slowest_us = world.all_max(time.as_secs_f64() * 1e6 / subject.exchanges as f64)?;
                subject.batches_us.push(slowest_us);
            }
            let go_on = subjects[0].batches_us.len() < FEWEST_BATCHES || started.elapsed() < whole;
            // Rank 0 decides for all.
            if !world.all_gather(&go_on)?[0] {
                break;
            }
        }
        Ok(self.backends.iter().zip(subjects).map(|(backend, subject)| self.figures(backend, subject)).collect())
    }

    fn subject<T: Element, const D: usize>(&self, world: &World, stream: &Stream, backend: &str, value: fn(u64) -> T) -> Result<Subject<T, D>, HaloError> {
        let layout: [usize; D] = std::array::from_fn(|axis| self.layout[axis]);
        let cells: [usize; D] = std::array::from_fn(|axis| self.cells[axis] * layout[axis]);
        let grid = GlobalGrid::new(cells, [true; D])?.partition_as(world, layout)?.local(self.width)?;
        let pattern = || if self.faces { Pattern::Faces } else { Pattern::All };
        let global = move |index: [usize; D]| {
            let hash = index.iter().fold(0_u64, |hash, i| hash.wrapping_mul(1_000_003).wrapping_add(*i as u64));
            value(hash.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 13)
        };
        let mut subject = if self.alternating {
            let mut field = Alternating::<T, D>::zeros(&grid, Entity::Cell, stream)?;
            for _ in 0..2 {
                field.now_mut().fill(|index, _| global(index))?;
                field.swap();
            }
            let halo = StreamHalo::new(world, stream, backend, pattern(), self.width, &field)?;
            Subject { field: Either::Double(field), halo, batches_us: Vec::new(), exchanges: 1 }
        } else {
            let mut field = Array::<T, D>::zeros(&grid, Entity::Cell, stream)?;
            field.fill(|index, _| global(index))?;
            let halo = StreamHalo::new(world, stream, backend, pattern(), self.width, &field)?;
            Subject { field: Either::Single(field), halo, batches_us: Vec::new(), exchanges: 1 }
        };
        // Correct before timed: both generations.
        for _ in 0..2 {
            subject.exchange_and(|field| {
                let all = field.copy_with_ghosts()?;
                for (index, found) in all.indexed_iter() {
                    let local: [usize; D] = std::array::from_fn(|axis| index[axis]);
                    let filled = !self.faces || (0..D).filter(|axis| !grid_range(field, *axis).contains(&local[*axis])).count() <= 1;
                    let expected = grid.to_global(Entity::Cell, local).map(global);
                    assert!(!filled || Some(*found) == expected, "backend {backend} put {found:?} where {expected:?} belongs, at {local:?}");
                }
                Ok(())
            })?;
        }
        Ok(subject)
    }

    fn figures<T: Element, const D: usize>(&self, backend: &str, mut subject: Subject<T, D>) -> HaloFigures {
        subject.batches_us.sort_by(f64::total_cmp);
        let routes = subject.halo.routes();
        let first = routes.first();
        HaloFigures {
            bench: "halo".to_owned(),
            backend: backend.to_owned(),
            fabric: self.fabric.clone(),
            executor: first.map_or("stream".to_owned(), |route| route.executor.to_string()),
            path: first.map_or("own-rank copies", |route| route.path).to_owned(),
            layout: self.layout.clone(),
            cells: self.cells.clone(),
            element: self.element.clone(),
            width: self.width,
            alternating: self.alternating,
            bytes: subject.halo.bytes_per_exchange(),
            messages: routes.len(),
            median_us: subject.batches_us[subject.batches_us.len() / 2],
            min_us: subject.batches_us[0],
            batches: subject.batches_us.len(),
            exchanges_per_batch: subject.exchanges,
        }
    }
}

fn grid_range<T: Element, const D: usize>(field: &Array<T, D>, axis: usize) -> std::ops::Range<usize> {
    let owned = field.owned_box();
    owned.start[axis]..owned.end[axis]
}

impl<T: Element, const D: usize> Subject<T, D> {
    /// One exchange, then a look at what it was about.
    fn exchange_and(&mut self, look: impl FnOnce(&Array<T, D>) -> Result<(), HaloError>) -> Result<(), HaloError> {
        match &mut self.field {
            Either::Single(field) => {
                self.halo.gather(field)?;
                look(field)
            }
            Either::Double(field) => {
                self.halo.gather(field)?;
                look(field.now())?;
                field.swap();
                Ok(())
            }
        }
    }

    /// Time of that many exchanges on this rank. Collective.
    fn time(&mut self, world: &World, exchanges: usize) -> Result<Duration, HaloError> {
        world.barrier()?;
        let started = Instant::now();
        match &mut self.field {
            Either::Single(field) => repeat(&mut self.halo, field, exchanges, |_| {})?,
            Either::Double(field) => repeat(&mut self.halo, field, exchanges, Alternating::swap)?,
        }
        self.halo.stream().synchronize()?;
        Ok(started.elapsed())
    }

    /// Chooses how many exchanges make a batch, the same on all ranks.
    fn calibrate(&mut self, world: &World, seconds: f64) -> Result<(), HaloError> {
        self.time(world, 10)?;
        let one = world.all_max(self.time(world, 10)?.as_secs_f64() / 10.0)?;
        self.exchanges = ((seconds / BATCHES / one) as usize).clamp(2, 20_000) & !1;
        Ok(())
    }
}

fn repeat<F: Fields<D>, const D: usize>(halo: &mut StreamHalo, field: &mut F, exchanges: usize, after: impl Fn(&mut F)) -> Result<(), HaloError> {
    for _ in 0..exchanges {
        halo.enqueue_gather(field)?;
        after(field);
    }
    Ok(())
}
