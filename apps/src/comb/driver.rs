//! Comb, LLNL's benchmark of halo exchanges of structured meshes, which the paper on active RMA times beside Faces
//! (2023, section 6.9; the paper gives no more than that its results were similar, and cites another benchmark of the
//! same name).
//!
//! A cycle has these phases, by Comb's names; they are timed where the work is done, on the stream:
//!
//! | Comb | here |
//! |---|---|
//! | pre-comm: "setting memory to initial values" | the launches of `set` in `Block::cycle` |
//! | post-recv | `GatherStep::PostReceives` |
//! | post-send: packing, and sending | `GatherStep::PostSends` |
//! | wait-recv, up to the unpacking, and wait-send | `GatherStep::Wait`: one wait for both |
//! | the unpacking in wait-recv | `GatherStep::Unpack` |
//! | post-comm: physics behind the exchange; testing correctness | the launches of `count_wrong` in `Block::cycle` |
//! | start-up | `Comb::set_up` |
//! | bench-comm: the cycles, from a barrier to a barrier | `run_trial` |
//!
//! What a backend does not tell apart is not told apart: `phases`.

use std::marker::PhantomData;
use std::sync::Arc;

use streamhalo::comm::device::{Buffer, Extents, Scalar};
use streamhalo::prelude::{Array, Entity, GlobalGrid, IndexBox, LocalGrid, Pattern, StreamHalo, Tile};
use streamhalo::{KernelText, RowsMut, Stream};

use super::check::result;
use super::kernel::{LOOK, SET, count_wrong, set};
use super::numbering::{Turn, Whereabouts};
use super::phases::{PHASES, POST_COMM, PRE_COMM, phase, phases, times};
use crate::app::values::{Real, checksum_of_owned, shown, whole_state};
use crate::app::{
    Answer, Application, ApplicationRow, Laps, Outcome, Routes, Tables, Trial, global_grid, mix, of_axes,
    of_real,
};
use crate::config::{AppSettings, Precision, RunConfig};
use crate::error::AppError;

/// The row of the registry.
pub(crate) const ROW: ApplicationRow = ApplicationRow {
    name: "comb",
    summary: "cycles of a halo exchange of several variables, each phase timed",
    source: "2023 on active RMA, section 6.9; LLNL's Comb",
    dimensions: &[3],
    cell: "cell",
    steps_cells: true,
    work_power: 1,
    cut: None,
    open: |config| {
        let AppSettings::Comb(settings) = &config.app.settings else {
            unreachable!("the configuration of `comb` has the settings of `comb`")
        };
        Ok(match settings.element {
            Precision::F32 => Box::new(Comb::<f32>::open(config, settings.variables)?),
            Precision::F64 => Box::new(Comb::<f64>::open(config, settings.variables)?),
        })
    },
};

/// The benchmark with its settings.
pub(super) struct Comb<T> {
    pub(super) variables: usize,
    pub(super) grid: GlobalGrid<3>,
    halo_width: [usize; 3],
    pub(super) cycles: u64,
    /// Whom to exchange with: all 26, but for tests that show that each of them counts.
    pub(super) pattern: Pattern,
    element: PhantomData<T>,
}

/// What one rank works on.
struct Block<T> {
    grid: LocalGrid<3>,
    variables: Vec<Array<T, 3>>,
    halo: StreamHalo,
    owned: Tile,
    /// Boxes that hold every ghost once.
    ghosts: Vec<Tile>,
    here: Arc<Whereabouts>,
    /// The same for kernels of devices.
    tables: Tables<i64>,
    /// How often each ghost has not held what it must, in all cycles and variables.
    wrong: Buffer<i32>,
}

impl<T: Real> Comb<T> {
    pub(super) fn open(config: &RunConfig, variables: usize) -> Result<Self, AppError> {
        if config.run.exchange_every != 1 {
            let message = format!("it is {}, but every cycle of `comb` exchanges", config.run.exchange_every);
            return Err(AppError::usage("run.exchange_every", message));
        }
        Ok(Self {
            variables,
            grid: global_grid(config)?,
            halo_width: of_axes(&config.grid.halo),
            cycles: config.app.steps,
            pattern: Pattern::All,
            element: PhantomData,
        })
    }

    /// The variables, and one exchange for all of them. Collective.
    fn set_up(&self, trial: &Trial<'_>) -> Result<Block<T>, AppError> {
        let grid = trial.local_grid(&self.grid, self.halo_width)?;
        let variables = (0..self.variables).map(|_| Array::zeros(&grid, Entity::Cell, trial.stream));
        let mut variables = variables.collect::<Result<Vec<Array<T, 3>>, _>>()?;
        // So that the system hands out their pages before the clock runs.
        for array in &mut variables {
            array.with_owned_mut(|mut owned| owned.fill(T::default()))?;
        }
        let halo = StreamHalo::builder(trial.world, trial.stream)
            .backend(trial.backend)
            .pattern(self.pattern.clone())
            .build(self.halo_width, &mut variables)?;
        let (owned, extents) = (grid.owned(Entity::Cell), grid.extents(Entity::Cell));
        let ghosts = IndexBox::new([0; 3], extents).without(owned);
        let here = Whereabouts::of(&grid);
        let places = here.places();
        let places = places.each_ref().map(Vec::as_slice);
        let all = Extents { points: extents, components: 1 };
        let mut wrong = Buffer::zeros(trial.world, trial.stream, all)?;
        wrong.with_host_mut(all.whole(), |mut counts| counts.fill(0))?;
        Ok(Block {
            here: Arc::new(here),
            tables: Tables::new(trial.world, trial.stream, places)?,
            owned: owned.tile(),
            ghosts: ghosts.into_iter().map(|part| part.tile()).collect(),
            grid,
            variables,
            halo,
            wrong,
        })
    }
}

impl<T: Real> Block<T> {
    /// One cycle, counted from 0.
    fn cycle(&mut self, stream: &Stream, cycle: u64, laps: &Laps<PHASES>) -> Result<(), AppError> {
        let cells @ [_, height, _] = self.grid.subdomain().partition().grid().cells();
        let (local, global) = (self.owned.start, self.grid.owned_global(Entity::Cell).start);
        let shift: [isize; 3] = std::array::from_fn(|axis| global[axis] as isize - local[axis] as isize);
        // Behind what both kernels are given besides.
        let numbers = |turn: Turn| [height as i64, turn.base() as i64];
        for (variable, array) in self.variables.iter_mut().enumerate() {
            let turn = Turn { variable, cycle };
            let scalars = shift.map(|shift| shift as i64).into_iter().chain(numbers(turn)).map(Scalar::from);
            let (text, scalars): (_, Vec<_>) = (of_real::<T>(&SET), scalars.collect());
            let body = move |tile, (values,): (RowsMut<'_, T>,)| set(cells, shift, turn, tile, values);
            stream.launch_either_with(text, self.owned, (array.writer()?,), &scalars, body)?;
        }
        laps.lap(PRE_COMM);
        self.halo.enqueue_gather_in_steps(&mut self.variables, |step| laps.lap(phase(step)))?;
        let all = self.wrong.extents().whole();
        for (variable, array) in self.variables.iter().enumerate() {
            let turn = Turn { variable, cycle };
            let (text, scalars) = (of_real::<T>(&LOOK), numbers(turn).map(Scalar::from));
            for ghosts in &self.ghosts {
                let here = self.here.clone();
                let [along_z, along_y, along_x] = self.tables.readers()?;
                let arguments = (array.reader()?, along_z, along_y, along_x, self.wrong.writer(all)?);
                stream.launch_either_with(
                    text,
                    *ghosts,
                    arguments,
                    &scalars,
                    move |tile, (values, _, _, _, wrong)| count_wrong(&here, turn, tile, values, wrong),
                )?;
            }
        }
        laps.lap(POST_COMM);
        Ok(())
    }
}

impl<T: Real> Application for Comb<T> {
    fn run_trial(&self, trial: &Trial<'_>) -> Result<Outcome, AppError> {
        let (mut block, setup_s) = trial.set_up(|| self.set_up(trial))?;

        let laps = Laps::start(trial.stream);
        for cycle in 0..self.cycles {
            laps.begin_steps(cycle..cycle + 1);
            trial.stream.check()?; // skips whatever is enqueued once something has failed
            block.cycle(trial.stream, cycle, &laps)?;
        }
        trial.stream.synchronize()?; // the only place where the host waits
        trial.world.barrier()?;
        let (solve_s, spent_s) = laps.stop();

        let wrong = block.wrong.copy_out(block.wrong.extents().whole())?;
        let wrong = trial.all_sum(wrong.into_iter().map(|count| count as u64).sum())?;
        let (mut checksum, mut state) = (0, Vec::new());
        for array in &block.variables {
            checksum = mix(checksum ^ trial.all_sum(checksum_of_owned(array)?)?);
            if trial.wants_state {
                state.extend(whole_state(trial, array)?);
            }
        }
        let state = (trial.wants_state && trial.world.rank() == 0).then(|| state.concat());
        trial.patient().world.barrier()?; // others wait for rank 0 as long as it takes
        let answer = Answer { checksum: shown(checksum), result: result(wrong), state };
        let mut outcome = trial.outcome(setup_s, times(solve_s, spent_s), &block.halo, answer)?;
        outcome.measured.extend(phases(trial, (block.halo.backend(), self.cycles), spent_s)?);
        Ok(outcome)
    }

    fn routes(&self, trial: &Trial<'_>) -> Result<Routes, AppError> {
        let block = self.set_up(trial)?;
        Ok(Routes::of(&block.grid, &block.halo))
    }

    fn device_kernels(&self) -> Vec<&'static KernelText> {
        vec![of_real::<T>(&SET), of_real::<T>(&LOOK)]
    }
}
