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

use std::time::Instant;

use serde_json::Map;
use streamhalo::comm::Error;

use super::kernel::{factor, solve, update};
use super::links::{self, Extent, Links};
use super::matrix::Matrix;
use super::schedule::{Hop, Schedule};
use crate::app::values::{checksum_of_row, encode, shown, zeros};
use crate::app::{
    Answer, Application, ApplicationRow, Initial, Need, Outcome, Phase, Routes, Stopwatch, Times, Trial,
    size_of_all,
};
use crate::config::{AppSettings, CholeskySettings, Primitive, RunConfig, Values};
use crate::error::AppError;

/// The row of the registry.
pub(crate) const ROW: ApplicationRow = ApplicationRow {
    name: "cholesky",
    summary: "a factorisation in tiles, each broadcast along a tree; any tag from any source",
    source: "2015, section VI-C",
    dimensions: &[1],
    steps_cells: false,
    needs: &[Need::Primitive],
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

type Connect =
    Box<dyn Fn(&Trial<'_>, Primitive, Extent) -> Result<Option<Box<dyn Links>>, Error> + Send + Sync>;

/// What one rank works with.
struct Process {
    schedule: Schedule,
    rank: usize,
    /// By the number of the tile, as are the next two: what this rank has to do with it, if anything.
    hops: Vec<Option<Hop>>,
    /// Row-major; those of the factor once they are here, before that what this rank computes them from.
    tiles: Vec<Vec<f64>>,
    is_here: Vec<bool>,
    /// The numbers of those that come from other ranks, and how many of them have come in this factorisation.
    incoming: Vec<usize>,
    have_come: usize,
    links: Option<Box<dyn Links>>,
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
            return Err(AppError::Usage { flag: "grid.cells".to_owned(), message });
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

    fn schedule(&self, trial: &Trial<'_>) -> Schedule {
        Schedule { side: self.side, ranks: trial.world.size() }
    }

    /// Payload bytes of a tile.
    fn tile_bytes(&self) -> usize {
        self.settings.tile * self.settings.tile * size_of::<f64>()
    }

    /// Lays a step's matrix out in the tiles that this rank computes, and forgets the last factor.
    fn lay_out(&self, process: &mut Process, step: u64) {
        let (matrix, size) = (Matrix::new(self.initial(), self.rows(), step), self.settings.tile);
        for tile @ [row, column] in process.schedule.all() {
            if process.schedule.owner(tile) == process.rank {
                let values = &mut process.tiles[process.schedule.number(tile)];
                for (index, value) in values.iter_mut().enumerate() {
                    *value = matrix.at(row * size + index / size, column * size + index % size);
                }
            }
        }
        process.is_here.fill(false);
        process.have_come = 0;
    }

    /// This rank's part of the checksum of the factor.
    fn checksum(&self, process: &Process) -> u64 {
        let size = self.settings.tile;
        let of_tile = |(first_row, first_column, values): (usize, usize, &[f64])| {
            let rows = values.chunks_exact(size).zip(first_row..);
            // Of a tile on the diagonal what is on and below it.
            rows.map(|(values, row)| {
                checksum_of_row([0, row, first_column], &values[..size.min(row + 1 - first_column)])
            })
            .fold(0, u64::wrapping_add)
        };
        process.own(size).map(of_tile).fold(0, u64::wrapping_add)
    }

    /// The factor on rank 0, row by row with what is above the diagonal; the others get nothing. Collective.
    fn whole(&self, trial: &Trial<'_>, process: &Process) -> Result<Option<Vec<u8>>, AppError> {
        let (size, rows) = (self.settings.tile, self.rows());
        let own: Vec<u8> = process.own(size).flat_map(|(_, _, values)| encode(values)).collect();
        let parts = trial.gather(&own)?;
        if parts.is_empty() {
            return Ok(None);
        }
        let mut state = vec![0; rows * rows * size_of::<f64>()];
        let mut rests: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
        for tile @ [row, column] in process.schedule.all() {
            let rest = &mut rests[process.schedule.owner(tile)];
            let (values, behind) = rest.split_at(self.tile_bytes());
            *rest = behind;
            for (index, values) in values.chunks_exact(size * size_of::<f64>()).enumerate() {
                let start = ((row * size + index) * rows + column * size) * size_of::<f64>();
                state[start..start + values.len()].copy_from_slice(values);
            }
        }
        Ok(Some(state))
    }
}

impl Process {
    /// Space for the needed tiles, and the connections. Collective.
    fn new(app: &Cholesky, trial: &Trial<'_>) -> Result<Self, AppError> {
        let (schedule, rank) = (app.schedule(trial), trial.world.rank());
        let hops: Vec<_> = schedule.all().map(|tile| schedule.hop(tile, rank)).collect();
        let (tile, values) = (app.settings.tile, app.settings.tile * app.settings.tile);
        let tiles = hops.iter().map(|hop| if hop.is_some() { zeros([tile; 2]) } else { Ok(Vec::new()) });
        let tiles = tiles.collect::<Result<_, _>>()?;
        let from = |(number, hop): (usize, &Option<Hop>)| Some((number, hop.as_ref()?.parent?));
        let incoming: Vec<_> = hops.iter().enumerate().filter_map(from).collect();
        let extent = Extent { tiles: hops.len(), values, incoming: incoming.clone(), steps: app.steps };
        Ok(Self {
            links: (app.connect)(trial, trial.primitive(), extent)?,
            tiles,
            is_here: vec![false; hops.len()],
            incoming: incoming.into_iter().map(|(number, _)| number).collect(),
            have_come: 0,
            schedule,
            rank,
            hops,
        })
    }

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
        while self.have_come < self.incoming.len() {
            self.receive(true)?;
        }
        let finished = self.links.as_mut().map_or(Ok(()), |links| links.finish());
        stopwatch.lap(Phase::Halo);
        finished
    }

    /// Receives until a tile is here.
    fn wait_for(&mut self, number: usize) -> Result<(), Error> {
        while !self.is_here[number] {
            self.receive(true)?;
        }
        Ok(())
    }

    /// Sends a tile that this rank has computed to its first children.
    fn broadcast(&mut self, number: usize) -> Result<(), Error> {
        self.is_here[number] = true;
        if self.links.as_ref().is_some_and(|links| links.is_ordered()) {
            while self.incoming.get(self.have_come).is_some_and(|next| *next < number) {
                self.receive(true)?;
            }
        }
        self.pass_on(number)
    }

    /// Passes on what has come meanwhile, as far as it may come in any order.
    fn forward(&mut self) -> Result<(), Error> {
        while self.links.as_ref().is_some_and(|links| !links.is_ordered()) && self.receive(false)? {}
        Ok(())
    }

    /// Receives the next tile, whichever it is, and passes it on. Whether there was one; if it `waits` there is.
    fn receive(&mut self, waits: bool) -> Result<bool, Error> {
        let Some(links) = self.links.as_mut().filter(|_| self.have_come < self.incoming.len()) else {
            return Ok(false);
        };
        let Some(number) = links.next(waits)? else { return Ok(false) };
        links.read(number, &mut self.tiles[number])?;
        self.have_come += 1;
        self.is_here[number] = true;
        self.pass_on(number)?;
        Ok(true)
    }

    fn pass_on(&mut self, number: usize) -> Result<(), Error> {
        match (&mut self.links, &self.hops[number]) {
            (Some(links), Some(hop)) => links.send(number, &self.tiles[number], &hop.children),
            _ => Ok(()),
        }
    }

    /// The tiles that this rank computes: first row and column of the matrix, and values.
    fn own(&self, size: usize) -> impl Iterator<Item = (usize, usize, &[f64])> {
        let own = self.schedule.all().zip(&self.tiles).skip(self.rank).step_by(self.schedule.ranks);
        own.map(move |([row, column], values)| (row * size, column * size, values.as_slice()))
    }
}

impl Application for Cholesky {
    fn run_trial(&self, trial: &Trial<'_>) -> Result<Outcome, AppError> {
        let started = Instant::now();
        let mut process = Process::new(self, trial)?;
        let mut setup_s = started.elapsed().as_secs_f64();
        let (mut spent, mut checksum) = (Times::default(), 0_u64);
        let (mut factor, mut samples) = (None, Vec::new());
        for step in 0..self.steps {
            let started = Instant::now();
            self.lay_out(&mut process, step);
            trial.world.barrier()?;
            setup_s += started.elapsed().as_secs_f64();

            let stopwatch = Stopwatch::start(trial.stream);
            process.factorise(&stopwatch)?;
            trial.world.barrier()?; // all have read what they were sent: it may be overwritten, or dropped
            spent += stopwatch.stop();
            checksum = checksum.wrapping_add(self.checksum(&process));
            if trial.wants_state && self.is_looked_at(step) {
                factor = self.whole(trial, &process)?;
                samples.extend(factor.iter().flat_map(|factor| self.sample(step, factor)));
            }
        }

        let hops = process.hops.iter().flatten();
        let messages = hops.map(|hop| hop.children.len()).sum::<usize>();
        let is_asked = trial.wants_state && trial.world.rank() == 0;
        let none = || vec![0; self.rows() * self.rows() * size_of::<f64>()];
        let state = is_asked.then(|| [factor.unwrap_or_else(none), encode(&samples)].concat());
        let answer = Answer { checksum: shown(trial.all_sum(checksum)?), result: Map::new(), state };
        let traffic = (messages * self.tile_bytes(), messages);
        let mut outcome = trial.outcome_by_host(setup_s, spent, traffic, answer)?;
        outcome.note_rate("gflops", (self.rows() as f64).powi(3) / 3.0, self.steps); // as is usual
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

    fn reference(&self, go_on: &dyn Fn() -> Result<(), AppError>) -> Result<Answer, AppError> {
        self.serial_answer(go_on)
    }

    /// What is found and what is right, each as bytes too; of reals what the factor comes to, multiplied out, and samples
    /// of every step.
    fn bytes_to_verify(&self) -> usize {
        let (rows, steps) = (self.rows(), usize::try_from(self.steps).unwrap_or(usize::MAX));
        let (squares, samples) = match self.settings.values {
            Values::Integers => (4, 0),
            Values::Reals => (6, 6_usize.saturating_mul(steps)),
        };
        let values = size_of_all([squares, rows, rows]).saturating_add(size_of_all([samples, rows]));
        values.saturating_mul(size_of::<f64>())
    }

    fn difference(&self, found: &Answer, reference: &Answer) -> Option<String> {
        self.judge(found, reference)
    }
}
