//! 3DStencil of the paper on GPU-aware communication on Intel GPUs (2023, section V-G), which "uses plenty
//! of" non-blocking sends and receives: the heat equation by explicit steps, or Poisson's by Jacobi's iteration.
//!
//! | step | here |
//! |---|---|
//! | non-blocking receives and sends of the ghosts | [`StreamHalo::begin_gather`] in `Block::step` |
//! | meanwhile, cells that need no ghosts | the launch on `inner` |
//! | wait for the ghosts | `finish` |
//! | the other cells | the launches on `outer` |
//! | the residual of Jacobi's iteration | `Norm::enqueue` in `Solve::step` |
//! | the mean of 5 runs (V, "we report the mean values of 5 runs") | `run.trials`; medians and extremes are reported |
//!
//! With `run.exchange_every = k` the halo is k or more cells wide and exchanged every k steps: the first step
//! behind an exchange computes k - 1 layers of ghosts too, the next one k - 2, and so on.

use std::marker::PhantomData;
use std::ops::Range;
use std::rc::Rc;
use std::time::Instant;

use serde_json::{Map, Value, json};
use streamhalo::prelude::{Alternating, Array, Entity, GlobalGrid, LocalGrid, Pattern, StreamHalo, Tile};
use streamhalo::{HaloError, KernelText, Stream};

use super::check::{carried, norms_of, result};
use super::device::{FOLD, Factors, residual_text, step_text};
use super::kernel::{Rule, Shape, step};
use super::norm::Norm;
use super::problem::Problem;
use crate::app::values::{Real, checksum_of_owned, shown, whole_state};
use crate::app::{
    Answer, Application, ApplicationRow, Geometry, Need, Outcome, Phase, Routes, Steps, Stopwatch, Trial,
    global_grid, inner_of, of_axes, shell, size_of_all, with_ghosts,
};
use crate::config::{AppSettings, Precision, RunConfig, Stencil3dSettings};
use crate::error::AppError;

/// The row of the registry.
pub(crate) const ROW: ApplicationRow = ApplicationRow {
    name: "stencil3d",
    summary: "7 or 27 points in f32 or f64: the heat equation, or Jacobi's iteration",
    source: "2023 on Intel GPUs, section V-G",
    dimensions: &[3],
    steps_cells: true,
    needs: &[Need::Gather],
    cut: None,
    open: |config| {
        let AppSettings::Stencil3d(settings) = &config.app.settings else {
            unreachable!("the configuration of `stencil3d` has the settings of `stencil3d`")
        };
        Ok(match settings.element {
            Precision::F32 => Box::new(Stencil3d::<f32>::open(config, settings)?),
            Precision::F64 => Box::new(Stencil3d::<f64>::open(config, settings)?),
        })
    },
};

/// Of the widest vectors that any processor computes with.
const WIDEST_VECTOR_BYTES: usize = 64;

/// A solver with its settings.
pub(super) struct Stencil3d<T> {
    settings: Stencil3dSettings,
    pub(super) problem: Problem,
    pub(super) grid: GlobalGrid<3>,
    halo_width: [usize; 3],
    exchange_every: usize,
    pub(super) steps: u64,
    /// With whom to exchange, if not with all that the stencil needs: for tests that show that it does.
    pub(super) pattern: Option<Pattern>,
    element: PhantomData<T>,
}

/// What one rank computes on.
struct Block<T> {
    grid: LocalGrid<3>,
    cells: Alternating<T, 3>,
    halo: StreamHalo,
    factors: Rc<Factors<T>>,
    rule: Rule<T>,
    /// Steps since the last exchange: at 0 it is due.
    since_exchange: usize,
    /// What each of them computes.
    tiles: Vec<Tile>,
    /// The first of them in two parts: what needs no ghosts, and the rest.
    inner: Tile,
    outer: Vec<Tile>,
}

impl<T: Real> Stencil3d<T> {
    pub(super) fn open(config: &RunConfig, settings: &Stencil3dSettings) -> Result<Self, AppError> {
        let grid = global_grid(config)?;
        Ok(Self {
            settings: settings.clone(),
            problem: Problem::new(settings, &grid),
            grid,
            halo_width: of_axes(&config.grid.halo),
            exchange_every: config.run.exchange_every,
            steps: config.app.steps,
            pattern: None,
            element: PhantomData,
        })
    }

    pub(super) fn is_full(&self) -> bool {
        self.settings.points == 27
    }

    /// Whether a norm is taken before a step.
    pub(super) fn has_norm(&self, step: u64) -> bool {
        self.settings.residual_every > 0 && step.is_multiple_of(self.settings.residual_every)
    }

    /// The first generation, and the exchange.
    fn set_up(&self, trial: &Trial<'_>) -> Result<Block<T>, AppError> {
        let grid = trial.local_grid(&self.grid, self.halo_width)?;
        let mut cells = Alternating::zeros(&grid, Entity::Cell, trial.stream)?;
        cells.now_mut().fill(|cell, _| self.problem.initial(cell))?;
        // Steps that compute ghosts need those at edges and corners, whatever the stencil.
        let needed = if self.is_full() || self.exchange_every > 1 { Pattern::All } else { Pattern::Faces };
        let halo = StreamHalo::builder(trial.world, trial.stream)
            .backend(trial.backend)
            .pattern(self.pattern.clone().unwrap_or(needed))
            .swaps_per_exchange(self.exchange_every)
            .build(self.halo_width, &mut cells)?;
        let layers = (0..self.exchange_every).rev();
        let boxes: Vec<_> = layers.map(|layers| with_ghosts(&grid, layers)).collect();
        let inner = inner_of(&grid, &halo, WIDEST_VECTOR_BYTES / size_of::<T>());
        Ok(Block {
            factors: Rc::new(Factors::new(trial.world, trial.stream, self.shape(&grid))?),
            rule: Rule {
                is_full: self.is_full(),
                weights: self.problem.step_weights(),
                source: T::default(),
            },
            since_exchange: 0,
            tiles: boxes.iter().map(|cells| cells.tile()).collect(),
            inner: inner.tile(),
            outer: shell(boxes[0], inner).into_iter().map(|part| part.tile()).collect(),
            grid,
            cells,
            halo,
        })
    }

    /// The factors of the source at local indices. A ghost has that of the cell that it is a copy of.
    fn shape(&self, grid: &LocalGrid<3>) -> Shape<T> {
        let first = grid.owned_global(Entity::Cell).start;
        let extents = grid.extents(Entity::Cell);
        Shape(std::array::from_fn(|axis| {
            let (count, ghosts) = (self.grid.cells()[axis], grid.owned(Entity::Cell).start[axis]);
            // As many turns ahead as there are ghosts, so that nothing is below 0.
            let global = |local: usize| (first[axis] + local + ghosts * (count - 1)) % count;
            (0..extents[axis]).map(|local| T::from_f64(self.problem.factor(axis, global(local)))).collect()
        }))
    }

    /// The largest difference of an owned cell from the solution that the equation was made for.
    fn error(&self, block: &Block<T>) -> Result<f64, AppError> {
        let cells = block.grid.owned_global(Entity::Cell).indices();
        let right = |cell: [usize; 3]| self.problem.solution(cell, self.steps);
        Ok(block.cells.now().with_owned(|owned| {
            let errors = owned.iter().zip(cells).map(|(value, cell)| (value.to_f64() - right(cell)).abs());
            // A cell that is no number is as wrong as can be.
            errors.map(|error| if error.is_nan() { f64::INFINITY } else { error }).fold(0.0, f64::max)
        })?)
    }
}

impl<T: Real> Block<T> {
    fn step(&mut self, stream: &Stream, overlap: bool, stopwatch: &Stopwatch) -> Result<(), AppError> {
        let Self { cells, halo, factors, rule, .. } = self;
        let since = self.since_exchange;
        self.since_exchange = (since + 1) % self.tiles.len();
        if since == 0 && overlap {
            let mut in_flight = halo.begin_gather(cells)?;
            stopwatch.lap(Phase::Halo);
            launch(stream, *rule, factors, self.inner, &mut in_flight)?;
            stopwatch.lap(Phase::Compute);
            in_flight.finish()?;
            stopwatch.lap(Phase::Halo);
            for tile in &self.outer {
                launch(stream, *rule, factors, *tile, cells)?;
            }
        } else {
            if since == 0 {
                halo.enqueue_gather(cells)?;
                stopwatch.lap(Phase::Halo);
            }
            launch(stream, *rule, factors, self.tiles[since], cells)?;
        }
        stopwatch.lap(Phase::Compute);
        Ok(())
    }
}

/// Enqueues a step of the cells of `tile`.
pub(crate) fn launch<T: Real>(
    stream: &Stream,
    rule: Rule<T>,
    factors: &Factors<T>,
    tile: Tile,
    cells: &mut Alternating<T, 3>,
) -> Result<(), HaloError> {
    let scalars: Vec<_> = rule.scalars().collect();
    let shape = factors.shape.clone();
    let [along_z, along_y, along_x] = factors.readers()?;
    let (now, next) = cells.now_and_next()?;
    let (text, arguments) = (step_text::<T>(rule.is_full), (now, along_z, along_y, along_x, next));
    stream.launch_either_with(text, tile, arguments, &scalars, move |tile, (now, _, _, _, next)| {
        step(&rule, &shape, tile, now, next);
    })?;
    Ok(())
}

/// A block on its way through time, and the norms before its steps.
struct Solve<'a, T> {
    stencil: &'a Stencil3d<T>,
    stream: &'a Stream,
    block: Block<T>,
    norm: Option<Norm<T>>,
}

impl<T: Real> Steps<T, 3> for Solve<'_, T> {
    fn take(&mut self, steps: Range<u64>, stopwatch: &Stopwatch) -> Result<(), AppError> {
        let Self { stencil, stream, block, norm } = self;
        let step = steps.start;
        block.rule.source = stencil.problem.step_source(step);
        block.step(stream, stencil.settings.overlap, stopwatch)?;
        if let Some(norm) = norm.as_mut().filter(|_| stencil.has_norm(step)) {
            norm.enqueue(stream, &block.cells)?;
            stopwatch.lap(Phase::Compute);
        }
        block.cells.swap();
        Ok(())
    }

    fn now(&self) -> &Array<T, 3> {
        self.block.cells.now()
    }

    fn now_mut(&mut self) -> &mut Array<T, 3> {
        self.block.cells.now_mut()
    }

    fn carried(&self) -> Result<Map<String, Value>, AppError> {
        let norms = self.norm.as_ref().map_or(Ok(Vec::new()), Norm::ends)?;
        Ok(carried(&norms))
    }

    fn carry(&mut self, carried: &Map<String, Value>) {
        if let Some(norm) = &mut self.norm {
            norm.go_on_from(norms_of(carried));
        }
    }

    fn geometry(&self) -> Geometry {
        self.stencil.problem.geometry()
    }
}

impl<T: Real> Application for Stencil3d<T> {
    fn run_trial(&self, trial: &Trial<'_>) -> Result<Outcome, AppError> {
        let world = trial.world;
        let started = Instant::now();
        let block = self.set_up(trial)?;
        let residual = Rule {
            weights: self.problem.residual_weights(),
            source: self.problem.residual_source(),
            ..block.rule
        };
        let owned = block.grid.owned(Entity::Cell).tile();
        let norm = match self.settings.residual_every {
            0 => None,
            _ => Some(Norm::new(trial, residual, block.factors.clone(), owned)?),
        };
        let mut solve = Solve { stencil: self, stream: trial.stream, block, norm };
        world.barrier()?;
        let setup_s = started.elapsed().as_secs_f64();

        let times = trial.carry_out(self.steps, &mut solve)?;

        let Solve { block, norm, .. } = solve;
        let now = block.cells.now();
        let norms = norm.as_ref().map_or(Ok(Vec::new()), Norm::ends)?;
        let answer = Answer {
            checksum: shown(trial.all_sum(checksum_of_owned(now)?)?),
            result: result(&norms),
            state: if trial.wants_state { whole_state(trial, now)? } else { None },
        };
        let error = world.all_max(self.error(&block)?)?;
        let mut outcome = trial.outcome(setup_s, times, &block.halo, answer)?;
        outcome.measured.insert("error".to_owned(), Value::from(error));
        Ok(outcome)
    }

    fn routes(&self, trial: &Trial<'_>) -> Result<Routes, AppError> {
        let block = self.set_up(trial)?;
        Ok(Routes::of(&block.grid, &block.halo))
    }

    fn reference(&self, go_on: &dyn Fn() -> Result<(), AppError>) -> Result<Answer, AppError> {
        self.serial_answer(go_on)
    }

    /// Two generations, or two states.
    fn bytes_to_verify(&self) -> usize {
        size_of_all(self.grid.cells()).saturating_mul(2 * T::BYTES)
    }

    fn difference(&self, found: &Answer, reference: &Answer) -> Option<String> {
        self.judge(found, reference)
    }

    fn determines_answer(&self) -> Map<String, Value> {
        let Stencil3dSettings { equation, points, element, overlap: _, residual_every } = &self.settings;
        let settings = json!({
            "app.equation": equation,
            "app.points": points,
            "app.element": element,
            "app.residual_every": residual_every,
        });
        settings.as_object().cloned().unwrap_or_default()
    }

    fn device_kernels(&self) -> Vec<&'static KernelText> {
        let step = step_text::<T>(self.is_full());
        match self.settings.residual_every {
            0 => vec![step],
            _ => vec![step, residual_text::<T>(self.is_full()), &FOLD],
        }
    }
}
