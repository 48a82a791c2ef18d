//! The Faces microbenchmark of the papers on stream-triggered point-to-point (2022, section V-A) and
//! active RMA (2023, sections 6.2 and 6.7).
//!
//! | paper | here |
//! |---|---|
//! | outer loop: "allocate MPI buffers, run loops, and deallocate" | `run_trial`, `Faces::allocate` |
//! | middle loop: "initialize the values of the spectral elements and run the inner loop" | `run_trial`, `Faces::initialise` |
//! | inner loop: "run the communication steps and accumulate the wall-clock runtime" | the loop of `Trial::carry_out` |
//! | (1) pre-post receives from up to 26 neighbours, (2) copy faces, edges and corners of the surface into buffers, (3) send | [`StreamHalo::begin_gather`] in `Block::take` |
//! | (4) sum all faces of elements inside of the block | the launch on `inner` |
//! | 2023, 6.7: the extra kernel on an independent stream | `Extra::launch` |
//! | (5) wait for the messages | `finish` |
//! | (6) add them to faces, edges and corners of the surface | the launches on `surface` |
//! | "average, minimum, and maximum" over ranks | [`Trial::over_ranks`] |
//! | "comparing against a reference CPU-only implementation" | `check`, `reference` |
//!
//! Step (6) reads both the ghosts that have come and the rank's own copies, from the generation before: what
//! is sent must not be written before the exchange has finished, and each copy is added once.

use std::ops::Range;
use std::time::Instant;

use streamhalo::grid::GridError;
use streamhalo::prelude::{Alternating, Entity, GlobalGrid, LocalGrid, Pattern, StreamHalo, Tile};
use streamhalo::{KernelText, Stream};

use super::check::result;
use super::extra::{self, Extra, all_equal};
use super::kernel::{SUM, launch_sum};
use crate::app::values::{checksum_of_owned, encode, shown, whole_of};
use crate::app::{
    Answer, Application, ApplicationRow, Between, Initial, Outcome, Phase, Replays, Routes, Steps, Stopwatch,
    Times, Trial, inner_of, of_axes,
};
use crate::config::{AppSettings, FacesSettings, RunConfig};
use crate::error::{AppError, counted, ranks_of};

/// The row of the registry.
pub(crate) const ROW: ApplicationRow = ApplicationRow {
    name: "faces",
    summary: "sums over shared faces, edges and corners of spectral elements",
    source: "2022, section V-A; 2023 on active RMA, sections 6.2 and 6.7",
    dimensions: &[3],
    cell: "element",
    steps_cells: true,
    work_power: 1,
    cut: None,
    open: |config| Ok(Box::new(Faces::open(config)?)),
};

/// The benchmark with its settings.
pub(super) struct Faces {
    pub(super) settings: FacesSettings,
    pub(super) elements: [usize; 3],
    /// The points of all elements.
    pub(super) grid: GlobalGrid<3>,
    pub(super) steps: u64,
    replay: usize,
    /// Whom to exchange with in a pass of the outer loop: all 26, but for tests that show that each of them counts.
    pub(super) pattern: Box<dyn Fn(u64) -> Pattern + Send + Sync>,
}

/// What the outer loop allocates on one rank.
struct Block {
    grid: LocalGrid<3>,
    points: Alternating<f64, 3>,
    halo: StreamHalo,
    extra: Option<Extra>,
    /// Points of an element along an axis.
    order_points: usize,
    /// Points whose copies this rank has.
    inner: Tile,
    /// The others, on the surface of the block.
    surface: Vec<Tile>,
    stream: Stream,
    /// Seconds of the last inner loop until this rank was through, before it waited for the others.
    own_s: f64,
    replays: Replays,
}

impl Faces {
    pub(super) fn open(config: &RunConfig) -> Result<Self, AppError> {
        let AppSettings::Faces(settings) = &config.app.settings else {
            unreachable!("the configuration of `faces` has the settings of `faces`")
        };
        let elements: [usize; 3] = of_axes(&config.grid.cells);
        let points = elements.map(|elements| elements.saturating_mul(settings.order + 1));
        let grid = GlobalGrid::new(points, of_axes(&config.grid.periodic)).map_err(|error| match error {
            GridError::TooManyEntries { limit, .. } => AppError::usage(
                "grid.cells",
                format!(
                    "{elements:?} elements of {} points along each axis are more than {limit} points in all: use \
                     fewer elements, or a lower `app.order`",
                    settings.order + 1
                ),
            ),
            other => other.into(),
        })?;
        Ok(Self {
            settings: settings.clone(),
            elements,
            grid,
            steps: config.app.steps,
            replay: config.run.replay,
            pattern: Box::new(|_outer| Pattern::All),
        })
    }

    pub(super) fn initial(&self) -> Initial {
        Initial { values: self.settings.values, seed: self.settings.seed }
    }

    /// The outer loop's part: buffers, and the exchange of one layer of points.
    fn allocate(&self, trial: &Trial<'_>, outer: u64) -> Result<Block, AppError> {
        let grid = trial.local_grid(&self.grid, [1; 3])?;
        let mut points = Alternating::zeros(&grid, Entity::Cell, trial.stream)?;
        let halo = StreamHalo::builder(trial.world, trial.stream)
            .backend(trial.backend)
            .pattern((self.pattern)(outer))
            .build(1, &mut points)?;
        let extra = match self.settings.extra_compute {
            0 => None,
            sweeps => Some(Extra::new(trial.world, trial.stream, &grid, sweeps)?),
        };
        let owned = grid.owned(Entity::Cell);
        let inner = inner_of(&grid, &halo, 1);
        let surface = owned.without(inner).into_iter().map(|part| part.tile()).collect();
        let order_points = self.settings.order + 1;
        let (inner, stream) = (inner.tile(), trial.stream.clone());
        let replays = Replays::new(self.replay, 1);
        Ok(Block { grid, points, halo, extra, order_points, inner, surface, stream, own_s: 0.0, replays })
    }

    /// The middle loop's part: values of a round, in both generations, because no step touches points
    /// that only one element has.
    fn initialise(&self, round: u64, block: &mut Block) -> Result<(), AppError> {
        let initial = self.initial();
        for _generation in 0..2 {
            block.points.now_mut().fill(|point, _| initial.at(round, point))?;
            block.points.swap();
        }
        block.extra.as_mut().map_or(Ok(()), Extra::reset)
    }
}

impl Steps<f64, 3> for Block {
    /// The six steps of the paper.
    fn take(&mut self, _steps: Range<u64>, stopwatch: &Stopwatch) -> Result<(), AppError> {
        let mut in_flight = self.halo.begin_gather(&mut self.points)?; // (1), (2), (3)
        stopwatch.lap(Phase::Halo);
        self.extra.as_mut().map_or(Ok(()), |extra| extra.launch(&self.stream))?;
        launch_sum(&self.stream, self.order_points, self.inner, &mut in_flight)?; // (4)
        stopwatch.lap(Phase::Compute);
        in_flight.finish()?; // (5)
        stopwatch.lap(Phase::Halo);
        for tile in &self.surface {
            launch_sum(&self.stream, self.order_points, *tile, &mut self.points)?; // (6)
        }
        self.points.swap();
        stopwatch.lap(Phase::Compute);
        Ok(())
    }

    fn end(&mut self, stopwatch: &Stopwatch) -> Result<(), AppError> {
        self.extra.as_ref().map_or(Ok(()), Extra::synchronize)?;
        self.own_s = stopwatch.elapsed_s();
        Ok(())
    }

    fn replays(&mut self) -> Option<&mut Replays> {
        Some(&mut self.replays)
    }

    fn cells(&mut self) -> &mut Alternating<f64, 3> {
        &mut self.points
    }
}

impl Application for Faces {
    fn run_trial(&self, trial: &Trial<'_>) -> Result<Outcome, AppError> {
        let mut spent = Times::default();
        let (mut setup_s, mut inner_s, mut checksum, mut extra) = (0.0, 0.0, 0_u64, None);
        let (mut last, mut sums) = (None, Vec::new());
        for outer in 0..u64::from(self.settings.outer) {
            let mut started = Instant::now();
            let replayed = last.take().map_or(0, |block: Block| block.replays.replayed_steps());
            let mut block = self.allocate(trial, outer)?;
            block.replays.go_on_from(replayed);
            for middle in 0..u64::from(self.settings.middle) {
                let round = outer * u64::from(self.settings.middle) + middle;
                self.initialise(round, &mut block)?;
                setup_s += started.elapsed().as_secs_f64();
                // Others see the first pass: those that follow differ in their values alone.
                let between = if (outer, middle) == (0, 0) { trial.between } else { Between::default() };
                trial.world.barrier()?;
                spent += Trial { between, ..*trial }.carry_out(self.steps, &mut block)?;
                inner_s += block.own_s;
                checksum = checksum.wrapping_add(checksum_of_owned(block.points.now())?);
                if let Some(of_round) = &block.extra {
                    extra = Some(extra.unwrap_or(0.0) + of_round.value()?);
                }
                if trial.wants_state {
                    block.points.now().with_owned(|owned| self.add_round(round, owned, &mut sums))?;
                }
                started = Instant::now();
            }
            last = Some(block);
        }
        let block = last.expect("the outer loop has a pass");

        let extra = extra.map(|value| all_equal(trial, value)).transpose()?;
        let state =
            if trial.wants_state { whole_of::<f64>(trial, &block.grid, &encode(&sums))? } else { None };
        let answer = Answer { checksum: shown(trial.all_sum(checksum)?), result: result(extra), state };
        let mut outcome = trial.outcome(setup_s, spent, &block.halo, answer)?;
        outcome.timed_steps = Some(self.rounds() * self.steps).filter(|steps| *steps != self.steps);
        block.replays.note(trial, &mut outcome)?;
        outcome.measured.insert("inner_s".to_owned(), trial.over_ranks(inner_s)?);
        Ok(outcome)
    }

    fn routes(&self, trial: &Trial<'_>) -> Result<Routes, AppError> {
        let block = self.allocate(trial, 0)?;
        Ok(Routes::of(&block.grid, &block.halo))
    }

    fn check_layout(&self, layout: &[usize]) -> Result<(), AppError> {
        let Some(axis) = (0..3).find(|axis| !self.elements[*axis].is_multiple_of(layout[*axis])) else {
            return Ok(());
        };
        let (elements, ranks) = (counted(self.elements[axis], "element"), ranks_of(layout[axis]));
        let message = format!(
            "{elements} along axis {axis} cannot be shared evenly by the {ranks} of the layout \
             {layout:?}: `faces` gives every rank as many; choose another number, or `run.layout`"
        );
        Err(AppError::usage("grid.cells", message))
    }

    fn check_replay(&self) -> Result<(), String> {
        match self.settings.extra_compute {
            0 => Ok(()),
            _ => Err("the extra kernel is on a stream of its own; set `app.extra_compute` to 0".to_owned()),
        }
    }

    fn device_kernels(&self) -> Vec<&'static KernelText> {
        if self.settings.extra_compute == 0 { vec![&SUM] } else { vec![&SUM, &extra::SWEEPS] }
    }
}
