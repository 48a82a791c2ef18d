//! The Game of Life benchmark of the 2026 paper (CabanaGhost, section VI-A3): strong scaling of an
//! 8-point stencil, of which only the halo exchange differs from backend to backend.
//!
//! | paper | here |
//! |---|---|
//! | figure 2, `StreamHalo(exec_space)`: requests for each neighbour, `MPI_Matchall` | [`StreamHalo::builder`] in `set_up` |
//! | figure 3, `enqueueGather(arrays)`: (1) start receives, (2) pack, (3) start sends, (4) wait, (5) unpack | [`StreamHalo::enqueue_gather`] in `Field::take` |
//! | figure 3, what comes behind it on the same stream: the kernel | [`Stream::launch`] of `sweep_tile`, in `Pace::launch` |
//! | VI-A3, "trials of 1,000 Game of Life iterations" | the loop of `Trial::carry_out` |
//! | VI-A3, "the time from the beginning to the end of the solver phases" | `solve_s`, between two barriers |
//!
//! With `run.exchange_every = k` the halo is k or more cells wide and exchanged every k steps: the
//! first step behind an exchange computes k - 1 layers of ghosts too, the next one k - 2, and so on. The host takes all
//! k in one sweep over the rows.

use std::marker::PhantomData;
use std::ops::Range;

use serde_json::{Map, Value};
use streamhalo::comm::device::StoreWay;
use streamhalo::prelude::{Alternating, Entity, GlobalGrid, LocalGrid, Pattern, StreamHalo};
use streamhalo::{KernelText, Stream};

use super::answer::answer;
use super::bits;
use super::kernel::Cell;
use super::pace::{Pace, text};
use super::pattern::{Generation, Initial};
use super::rle;
use crate::app::{
    Application, ApplicationRow, Outcome, Phase, Replays, Routes, Steps, Stopwatch, Stored, Trial,
    global_grid, of_axes,
};
use crate::config::{AppSettings, CellsAs, LifeSettings, RunConfig};
use crate::error::AppError;
use crate::report::{FINAL_STATE, OutputFile};

/// The row of the registry.
pub(crate) const ROW: ApplicationRow = ApplicationRow {
    name: "life",
    summary: "Conway's Game of Life, an 8-point stencil on bytes or `f64`",
    source: "2026, section VI-A3",
    dimensions: &[2],
    cell: "cell",
    steps_cells: true,
    work_power: 1,
    cut: None,
    open: |config| {
        let AppSettings::Life(settings) = &config.app.settings else {
            unreachable!("the configuration of `life` has the settings of `life`")
        };
        Ok(match settings.cells_as {
            CellsAs::U8 => Box::new(Life::<u8>::open(config, settings)?),
            CellsAs::F64 => Box::new(Life::<f64>::open(config, settings)?),
        })
    },
};

/// The game with its settings.
pub(super) struct Life<T> {
    pub(super) initial: Generation,
    pub(super) grid: GlobalGrid<2>,
    halo_width: [usize; 2],
    exchange_every: usize,
    replay: usize,
    pub(super) steps: u64,
    /// With whom to exchange: tests leave some out, to show that they are needed.
    pub(super) pattern: Pattern,
    cell: PhantomData<T>,
}

/// What one rank computes on.
struct Field<T> {
    grid: LocalGrid<2>,
    cells: Alternating<T, 2>,
    halo: StreamHalo,
    stream: Stream,
    pace: Pace,
    store_way: StoreWay,
    replays: Replays,
}

impl<T: Cell + Stored> Steps<T, 2> for Field<T> {
    fn at_once(&self) -> u64 {
        self.pace.at_once()
    }

    fn take(&mut self, steps: Range<u64>, stopwatch: &Stopwatch) -> Result<(), AppError> {
        let Self { cells, halo, stream, pace, store_way, .. } = self;
        if pace.needs_exchange() {
            halo.enqueue_gather(cells)?;
            stopwatch.lap(Phase::Halo);
        }
        pace.launch(stream, steps, store_way, cells)?;
        cells.swap();
        stopwatch.lap(Phase::Compute);
        Ok(())
    }

    fn needs_exchange(&self) -> bool {
        self.pace.needs_exchange()
    }

    fn replays(&mut self) -> Option<&mut Replays> {
        Some(&mut self.replays)
    }

    fn cells(&mut self) -> &mut Alternating<T, 2> {
        &mut self.cells
    }
}

impl<T: Cell + Stored> Life<T> {
    pub(super) fn open(config: &RunConfig, settings: &LifeSettings) -> Result<Self, AppError> {
        let grid = global_grid(config)?;
        let initial = Initial::open(&settings.pattern, grid.cells())?;
        Ok(Self {
            initial: initial.place(grid.cells(), grid.periodic(), settings.origin)?,
            grid,
            halo_width: of_axes(&config.grid.halo),
            exchange_every: config.run.exchange_every,
            replay: config.run.replay,
            steps: config.app.steps,
            pattern: Pattern::All,
            cell: PhantomData,
        })
    }

    /// The first generation, and the exchange that every step begins with.
    fn set_up(&self, trial: &Trial<'_>) -> Result<Field<T>, AppError> {
        let grid = trial.local_grid(&self.grid, self.halo_width)?;
        let mut cells = Alternating::zeros(&grid, Entity::Cell, trial.stream)?;
        // Both generations, so that the system hands out their pages before the clock runs.
        cells.now_mut().with_owned_mut(|mut owned| owned.fill(T::default()))?;
        cells.swap();
        let [first_y, first_x] = grid.owned_global(Entity::Cell).start;
        let mut bytes = vec![0; grid.owned(Entity::Cell).extents()[1]];
        cells.now_mut().with_owned_mut(|mut owned| {
            for (y, mut row) in owned.rows_mut().into_iter().enumerate() {
                self.initial.fill_row(first_y + y, first_x, &mut bytes);
                row.iter_mut().zip(&bytes).for_each(|(cell, byte)| *cell = T::from(*byte));
            }
        })?;
        let pace = Pace::new(trial.stream, &grid, self.exchange_every);
        let halo = StreamHalo::builder(trial.world, trial.stream)
            .backend(trial.backend)
            .pattern(self.pattern.clone())
            .swaps_per_exchange(pace.swaps_per_exchange())
            .build(self.halo_width, &mut cells)?;
        let store_way = StoreWay::new::<T>(pace.largest_tile());
        let replays = Replays::new(self.replay, self.exchange_every);
        Ok(Field { grid, cells, halo, stream: trial.stream.clone(), pace, store_way, replays })
    }
}

impl<T: Cell + Stored> Application for Life<T> {
    fn run_trial(&self, trial: &Trial<'_>) -> Result<Outcome, AppError> {
        let (mut field, setup_s) = trial.set_up(|| self.set_up(trial))?;
        let times = trial.carry_out(self.steps, &mut field)?;
        let answer = answer(trial, &field.grid, &field.cells)?;
        let mut outcome = trial.outcome(setup_s, times, &field.halo, answer)?;
        field.replays.note(trial, &mut outcome)?;
        Ok(outcome)
    }

    fn routes(&self, trial: &Trial<'_>) -> Result<Routes, AppError> {
        let field = self.set_up(trial)?;
        Ok(Routes::of(&field.grid, &field.halo))
    }

    fn check_replay(&self) -> Result<(), String> {
        Ok(())
    }

    fn determines_answer(&self) -> Map<String, Value> {
        Map::from_iter([("app.pattern".to_owned(), Value::from(self.initial.identity()))])
    }

    fn device_kernels(&self) -> Vec<&'static KernelText> {
        vec![text::<T>()]
    }

    fn has_files(&self) -> bool {
        true
    }

    fn files(&self, state: &[u8]) -> Vec<OutputFile> {
        let [height, width] = self.grid.cells();
        let cells = bits::live(state).map(|cell| (cell / width, cell % width));
        let head = format!("#C Generation {}.\n", self.steps);
        vec![OutputFile::new(FINAL_STATE, head + &rle::encode(height, width, cells))]
    }
}
