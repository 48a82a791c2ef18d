//! The task-based Cholesky factorisation of the paper on notified access (2015, section VI-C).
//!
//! | paper | here |
//! |---|---|
//! | "an *n x n* symmetric positive-definite matrix *A* has the form *A = LLᵀ*" | `Matrix` |
//! | "the code divides the matrix into tiles and each process allocates space for the needed tiles" | `Process::new` |
//! | "the left-looking variant" | the loop over `n` in `Process::factorise` |
//! | DSYRK, DGEMM; DPOTRF; DTRSM | `update`, `factor`, `solve` there |
//! | "the simple statically pipelined schedule" | `Schedule` |
//! | "broadcasts tiles as needed after they are produced" | `Process::broadcast` |
//! | "as soon as a node receives an update, it forwards the update to its children" | `Process::receive` |
//! | "nodes generally cannot know what update they receive next" | `Links::next` |
//! | message passing, one-sided, notified access | [`links`](super) |
//!
//! A tile is updated by one tile after the other of the columns before it, in their order, whichever has come first:
//! so the bits of the factor depend on the size of a tile, and on nothing else.

use serde_json::Map;
use streamhalo::comm::Error;

use super::kernel::{factor, solve, update};
use super::links::{self, Connect};
use super::matrix::Matrix;
use super::process::Process;
use super::schedule::Schedule;
use crate::app::values::{encode, shown};
use crate::app::{
    Answer, Application, ApplicationRow, Initial, Outcome, Phase, Routes, Stopwatch, Times, Trial,
};
use crate::config::{AppSettings, CholeskySettings, RunConfig};
use crate::error::AppError;

/// The row of the registry.
pub(crate) const ROW: ApplicationRow = ApplicationRow {
    name: "cholesky",
    summary: "a factorisation in tiles, each broadcast along a tree; any tag from any source",
    source: "2015, section VI-C",
    dimensions: &[1],
    cell: "cell",
    steps_cells: false,
    work_power: 3,
    cut: None,
    open: |config| Ok(Box::new(Cholesky::open(config)?)),
};

/// More tiles along a side are a slip: 8 million in the triangle.
const MOST_TILES: usize = 4096;

/// The factorisation with its settings.
pub(super) struct Cholesky {
    pub(super) settings: CholeskySettings,
    /// Tiles along a side.
    side: usize,
    pub(super) steps: u64,
    /// What carries tiles from rank to rank: [`links::connect`], but for tests that show that each message counts.
    pub(super) connect: Connect,
}

impl Cholesky {
    pub(super) fn open(config: &RunConfig) -> Result<Self, AppError> {
        let AppSettings::Cholesky(settings) = &config.app.settings else {
            unreachable!("the configuration of `cholesky` has the settings of `cholesky`")
        };
        let (rows, tile) = (config.grid.cells[0], settings.tile);
        let side = rows / tile;
        if side > MOST_TILES {
            let message = format!(
                "{rows} rows are {side} tiles of {tile}: `cholesky` takes at most {MOST_TILES} tiles along a side"
            );
            return Err(AppError::usage("grid.cells", message));
        }
        let steps = config.app.steps;
        Ok(Self { settings: settings.clone(), side, steps, connect: Box::new(links::connect) })
    }

    pub(super) fn rows(&self) -> usize {
        self.side * self.settings.tile
    }

    pub(super) fn initial(&self) -> Initial {
        Initial { values: self.settings.values, seed: self.settings.seed }
    }

    pub(super) fn schedule(&self, trial: &Trial<'_>) -> Schedule {
        Schedule { side: self.side, ranks: trial.world.size() }
    }

    /// Payload bytes of a tile.
    fn tile_bytes(&self) -> usize {
        self.settings.tile * self.settings.tile * size_of::<f64>()
    }
}

impl Process {
    /// One factorisation: this rank's tiles, one after the other, and whatever it has to receive and pass on.
    fn factorise(&mut self, stopwatch: &Stopwatch) -> Result<(), Error> {
        let schedule = self.schedule;
        for [m, k] in schedule.all().skip(self.rank).step_by(schedule.ranks) {
            let number = schedule.number([m, k]);
            let mut tile = std::mem::take(&mut self.tiles[number]);
            for n in 0..k {
                let needed = [[m, n], [k, n]].map(|tile| schedule.number(tile));
                needed.into_iter().try_for_each(|needed| self.wait_for(needed))?;
                stopwatch.lap(Phase::Halo);
                update(&mut tile, &self.tiles[needed[0]], &self.tiles[needed[1]]);
                stopwatch.lap(Phase::Compute);
                self.forward()?;
                stopwatch.lap(Phase::Halo);
            }
            if m == k {
                factor(&mut tile);
            } else {
                let diagonal = schedule.number([k, k]);
                self.wait_for(diagonal)?;
                stopwatch.lap(Phase::Halo);
                solve(&mut tile, &self.tiles[diagonal]);
            }
            stopwatch.lap(Phase::Compute);
            self.tiles[number] = tile;
            self.broadcast(number)?;
        }
        self.finish()?;
        stopwatch.lap(Phase::Halo);
        Ok(())
    }
}

impl Application for Cholesky {
    fn run_trial(&self, trial: &Trial<'_>) -> Result<Outcome, AppError> {
        let (mut process, mut setup_s) = trial.set_up(|| Process::new(self, trial))?;
        let (mut spent, mut checksum) = (Times::default(), 0_u64);
        let (mut factor, mut samples) = (None, Vec::new());
        for step in 0..self.steps {
            let ((), laid_out_s) = trial.set_up(|| {
                process.lay_out(&Matrix::new(self.initial(), self.rows(), step));
                Ok(())
            })?;
            setup_s += laid_out_s;

            let stopwatch = Stopwatch::start(trial.stream);
            process.factorise(&stopwatch)?;
            trial.world.barrier()?; // all have read what they were sent: it may be overwritten, or dropped
            spent += stopwatch.stop();
            checksum = checksum.wrapping_add(process.checksum());
            if trial.wants_state && self.is_looked_at(step) {
                factor = process.whole(trial)?;
                samples.extend(factor.iter().flat_map(|factor| self.sample(step, factor)));
                trial.patient().world.barrier()?; // others wait for rank 0 as long as it takes
            }
        }

        let is_asked = trial.wants_state && trial.world.rank() == 0;
        let none = || vec![0; self.rows() * self.rows() * size_of::<f64>()];
        let state = is_asked.then(|| [factor.unwrap_or_else(none), encode(&samples)].concat());
        let answer = Answer { checksum: shown(trial.all_sum(checksum)?), result: Map::new(), state };
        let messages = process.messages();
        let traffic = (messages * self.tile_bytes(), messages);
        let mut outcome = trial.outcome_by_host(setup_s, spent, traffic, answer)?;
        // As is usual: n³/3 operations a factorisation.
        outcome.note_rate("gflops", (self.rows() as f64).powi(3) / 3.0, self.steps);
        Ok(outcome)
    }

    fn routes(&self, trial: &Trial<'_>) -> Result<Routes, AppError> {
        let (schedule, rank) = (self.schedule(trial), trial.world.rank());
        let mut tiles = vec![0_usize; schedule.ranks];
        for hop in schedule.all().filter_map(|tile| schedule.hop(tile, rank)) {
            hop.children.iter().for_each(|child| tiles[*child] += 1);
        }
        let message = |(peer, tiles): (usize, usize)| {
            let reason = format!("{tiles} tiles a factorisation");
            (vec![peer as i32 - rank as i32], peer, self.tile_bytes(), reason)
        };
        let peers = tiles.into_iter().enumerate().filter(|(_, tiles)| *tiles > 0);
        Ok(Routes::by_host(trial, peers.map(message)))
    }
}
