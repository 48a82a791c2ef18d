//! 3DStencil of the paper on GPU-aware communication on Intel GPUs (2023, section V-G), which "uses plenty
//! of" non-blocking sends and receives: the heat equation by explicit steps, or Poisson's by Jacobi's iteration.
//!
//! | step | here |
//! |---|---|
//! | non-blocking receives and sends of the ghosts | [`begin_gather`](streamhalo::StreamHalo::begin_gather) in `Block::step` |
//! | meanwhile, cells that need no ghosts | the launch on `inner` |
//! | wait for the ghosts | `finish` |
//! | the other cells | the launches on `outer` |
//! | the residual of Jacobi's iteration | `Norm::enqueue` in `Block::take` |
//! | the mean of 5 runs (V, "we report the mean values of 5 runs") | `run.trials`; medians and extremes are reported |
//!
//! With `run.exchange_every = k` the halo is k or more cells wide and exchanged every k steps: the first step
//! behind an exchange computes k - 1 layers of ghosts too, the next one k - 2, and so on.

use std::marker::PhantomData;
use std::ops::Range;

use serde_json::{Map, Value, json};
use streamhalo::KernelText;
use streamhalo::prelude::{Alternating, GlobalGrid, Pattern};

use super::block::Block;
use super::check::{carried, norms_of, result};
pub(crate) use super::device::launch;
use super::device::{FOLD, residual_text, step_text};
use super::problem::Problem;
use crate::app::values::{Real, checksum_of_owned, shown, whole_state};
use crate::app::{
    Answer, Application, ApplicationRow, Geometry, Outcome, Phase, Replays, Routes, Steps, Stopwatch, Trial,
    global_grid, of_axes,
};
use crate::config::{AppSettings, Equation, Precision, RunConfig, Stencil3dSettings};
use crate::error::{AppError, counted};

/// The row of the registry.
pub(crate) const ROW: ApplicationRow = ApplicationRow {
    name: "stencil3d",
    summary: "7 or 27 points in f32 or f64: the heat equation, or Jacobi's iteration",
    source: "2023 on Intel GPUs, section V-G",
    dimensions: &[3],
    cell: "cell",
    steps_cells: true,
    work_power: 1,
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

/// A solver with its settings.
pub(super) struct Stencil3d<T> {
    pub(super) settings: Stencil3dSettings,
    pub(super) problem: Problem,
    pub(super) grid: GlobalGrid<3>,
    pub(super) halo_width: [usize; 3],
    pub(super) exchange_every: usize,
    pub(super) replay: usize,
    pub(super) steps: u64,
    /// With whom to exchange, if not with all that the stencil needs: for tests that show that it does.
    pub(super) pattern: Option<Pattern>,
    element: PhantomData<T>,
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
            replay: config.run.replay,
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
}

impl<T: Real> Block<'_, T> {
    fn step(&mut self, stopwatch: &Stopwatch) -> Result<(), AppError> {
        let Self { stencil, stream, cells, halo, factors, store_way, rule, .. } = self;
        let since = self.since_exchange;
        if since == 0 && stencil.settings.overlap {
            let mut in_flight = halo.begin_gather(cells)?;
            stopwatch.lap(Phase::Halo);
            launch(stream, *rule, factors, store_way, self.inner, &mut in_flight)?;
            stopwatch.lap(Phase::Compute);
            in_flight.finish()?;
            stopwatch.lap(Phase::Halo);
            for tile in &self.outer {
                launch(stream, *rule, factors, store_way, *tile, cells)?;
            }
        } else {
            if since == 0 {
                halo.enqueue_gather(cells)?;
                stopwatch.lap(Phase::Halo);
            }
            launch(stream, *rule, factors, store_way, self.tiles[since], cells)?;
        }
        self.since_exchange = (since + 1) % self.tiles.len();
        stopwatch.lap(Phase::Compute);
        Ok(())
    }
}

impl<T: Real> Steps<T, 3> for Block<'_, T> {
    fn take(&mut self, steps: Range<u64>, stopwatch: &Stopwatch) -> Result<(), AppError> {
        let (stencil, step) = (self.stencil, steps.start);
        self.rule.source = stencil.problem.step_source(step);
        self.step(stopwatch)?;
        if let Some(norm) = self.norm.as_mut().filter(|_| stencil.has_norm(step)) {
            norm.enqueue(self.stream, &self.cells)?;
            stopwatch.lap(Phase::Compute);
        }
        self.cells.swap();
        Ok(())
    }

    fn needs_exchange(&self) -> bool {
        self.since_exchange == 0
    }

    fn replays(&mut self) -> Option<&mut Replays> {
        Some(&mut self.replays)
    }

    fn cells(&mut self) -> &mut Alternating<T, 3> {
        &mut self.cells
    }

    fn carried(&self) -> Result<Map<String, Value>, AppError> {
        Ok(carried(&self.norms()?))
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
        let (mut block, setup_s) = trial.set_up(|| {
            let mut block = Block::new(self, trial)?;
            block.norm = block.residual(trial)?;
            Ok(block)
        })?;
        let times = trial.carry_out(self.steps, &mut block)?;

        let now = block.cells.now();
        let answer = Answer {
            checksum: shown(trial.all_sum(checksum_of_owned(now)?)?),
            result: result(&block.norms()?),
            state: if trial.wants_state { whole_state(trial, now)? } else { None },
        };
        let error = trial.world.all_max(self.problem.error(now, self.steps)?)?;
        let mut outcome = trial.outcome(setup_s, times, &block.halo, answer)?;
        block.replays.note(trial, &mut outcome)?;
        outcome.measured.insert("error".to_owned(), Value::from(error));
        Ok(outcome)
    }

    fn routes(&self, trial: &Trial<'_>) -> Result<Routes, AppError> {
        let block = Block::new(self, trial)?;
        Ok(Routes::of(&block.grid, &block.halo))
    }

    fn check_replay(&self) -> Result<(), String> {
        match (self.settings.equation, self.settings.residual_every) {
            (Equation::Heat, _) => Err("the source of the heat equation is another at each step; \
                that of `app.equation = \"jacobi\"` is not"
                .to_owned()),
            (Equation::Jacobi, 0) => Ok(()),
            (Equation::Jacobi, every) => Err(format!(
                "a norm is taken every {}; set `app.residual_every` to 0",
                counted(every as usize, "step")
            )),
        }
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
