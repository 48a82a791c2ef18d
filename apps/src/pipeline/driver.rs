//! The pipelined stencil of the paper on notified access (2015, section VI-A): the kernel Sync_p2p of the Parallel
//! Research Kernels.
//!
//! | paper and kernel | here |
//! |---|---|
//! | an *m x n* domain, of which every process has some columns | `Part` |
//! | "A(i, j) = A(i-1, j) + A(i, j-1) - A(i-1, j-1)" | `update` |
//! | "wait for the update from the left neighbor and pipeline the data to the right" | `Part::iterate` |
//! | one notification for a row, or for a block of rows (the kernel's group factor) | `Part::blocks` |
//! | "a global synchronization ... between iterations": the corner goes, negated, back to the start | the end of `Part::iterate` |
//! | message passing, general active target, notified access | [`links`](super) |
//! | the iteration before the clock starts; the rate from all others | `run_trial` |
//! | the verification value, *(iterations + 1) (m + n - 2)* | `reference` |

use streamhalo::GlobalGrid;

use super::check::result;
use super::links::{self, Connect};
use super::part::Part;
use super::reference;
use crate::app::values::{checksum_of_row, encode, shown};
use crate::app::{
    Answer, Application, ApplicationRow, Outcome, Phase, Routes, Stopwatch, Trial, size_of_all,
};
use crate::config::{AppSettings, RunConfig};
use crate::error::{AppError, ranks_of};

/// The row of the registry.
pub(crate) const ROW: ApplicationRow = ApplicationRow {
    name: "pipeline",
    summary: "a stencil whose rows run through the ranks as a pipeline, one notification a row",
    source: "2015, section VI-A; Parallel Research Kernels, Sync_p2p",
    dimensions: &[2],
    cell: "cell",
    steps_cells: true,
    work_power: 1,
    cut: Some(COLUMNS),
    open: |config| Ok(Box::new(Pipeline::open(config)?)),
};

/// The axis that is split.
pub(super) const COLUMNS: usize = 1;

/// Fewer would leave the first rank only the column that is given, whose corner others would have to be told.
const LEAST_COLUMNS: usize = 2;

/// Accesses to memory for each point: three are read, one is written.
const ACCESSES: f64 = 4.0;

/// The kernel with its settings.
pub(super) struct Pipeline {
    pub(super) grid: GlobalGrid<2>,
    pub(super) block_rows: usize,
    steps: u64,
    /// What carries rows from rank to rank: [`links::connect`], but for tests that show that each message counts.
    pub(super) connect: Connect,
}

impl Pipeline {
    pub(super) fn open(config: &RunConfig) -> Result<Self, AppError> {
        let AppSettings::Pipeline(settings) = &config.app.settings else {
            unreachable!("the configuration of `pipeline` has the settings of `pipeline`")
        };
        let cells = [config.grid.cells[0], config.grid.cells[1]];
        let (steps, most) = (config.app.steps, reference::most_iterations(cells).saturating_sub(1));
        if steps > most {
            let message =
                format!("{steps} iterations of {cells:?} values: an f64 holds those of at most {most}");
            return Err(AppError::usage("app.steps", message));
        }
        let grid = GlobalGrid::new(cells, [false; 2])?;
        Ok(Self { grid, block_rows: settings.block_rows, steps, connect: Box::new(links::connect) })
    }

    /// The one before the clock starts too.
    pub(super) fn iterations(&self) -> u64 {
        self.steps + 1
    }

    /// Rows and columns of what a rank has in memory.
    pub(super) fn extents(&self, own_columns: usize) -> [usize; 2] {
        [self.grid.cells()[0], own_columns + 1]
    }

    /// Payload bytes and number of the messages that a rank sends in an iteration.
    fn traffic(&self, trial: &Trial<'_>) -> (usize, usize) {
        let (rows, size) = (self.grid.cells()[0] - 1, trial.world.size());
        match trial.world.rank() + 1 {
            _ if size == 1 => (0, 0),
            right if right == size => (size_of::<f64>(), 1),
            _ => (rows * size_of::<f64>(), rows.div_ceil(self.block_rows)),
        }
    }
}

/// One row from the one above it, from a column on. The difference is taken first, so that one sum alone waits for
/// the value to the left; integers are exact in any order.
fn update(above: &[f64], row: &mut [f64], from: usize) {
    let mut left = row[from - 1];
    for (value, above) in row[from..].iter_mut().zip(above[from - 1..].windows(2)) {
        left += above[1] - above[0];
        *value = left;
    }
}

impl Part {
    /// One iteration: every block of rows as soon as the left neighbour has sent its last column.
    fn iterate(&mut self, stopwatch: &Stopwatch) -> Result<(), AppError> {
        let (stride, is_first, is_last) = (self.columns.len() + 1, self.is_first, self.is_last);
        // The first rank's first column is given.
        let from = if is_first { 2 } else { 1 };
        let right = reference::last_corner(self.cells, self.iteration) + self.columns.start as f64 - 1.0;
        for block in self.blocks() {
            let halo = &mut self.halo[..block.len()];
            let first = block.start * stride;
            if let Some(links) = self.links.as_mut().filter(|_| !is_first) {
                links.receive(block.clone(), halo)?;
                for (row, value) in halo.iter().enumerate() {
                    self.values[first + row * stride] = *value;
                    self.wrong += u64::from(*value != (block.start + row) as f64 + right);
                }
            }
            stopwatch.lap(Phase::Halo);
            for start in (first..first + block.len() * stride).step_by(stride) {
                let (above, row) = self.values[start - stride..start + stride].split_at_mut(stride);
                update(above, row, from);
            }
            stopwatch.lap(Phase::Compute);
            if let Some(links) = self.links.as_mut().filter(|_| !is_last) {
                for (row, value) in halo.iter_mut().enumerate() {
                    *value = self.values[first + (row + 1) * stride - 1];
                }
                links.send(block, halo)?;
            }
        }
        // The corner is on its way back to the start: the next iteration begins where it arrives.
        let mut corner = [-self.values[self.values.len() - 1]];
        if let Some(links) = &mut self.links {
            if is_last {
                links.send(0..1, &corner)?;
            }
            if is_first {
                links.receive(0..1, &mut corner)?;
                self.wrong += u64::from(corner[0] != -reference::last_corner(self.cells, self.iteration + 1));
            }
        }
        if is_first {
            self.values[1] = corner[0];
        }
        self.iteration += 1;
        stopwatch.lap(Phase::Halo);
        Ok(())
    }
}

impl Application for Pipeline {
    fn run_trial(&self, trial: &Trial<'_>) -> Result<Outcome, AppError> {
        let (mut part, setup_s) = trial.set_up(|| {
            let mut part = Part::new(self, trial)?;
            part.iterate(&Stopwatch::start(trial.stream))?; // as the kernel does, before the clock starts
            Ok(part)
        })?;

        let stopwatch = Stopwatch::start(trial.stream);
        for _ in 0..self.steps {
            part.iterate(&stopwatch)?;
        }
        trial.world.barrier()?; // nobody drops what a neighbour still writes
        let times = stopwatch.stop();

        let last_row = part.own().last().expect("there are rows");
        let corner =
            trial.world.all_gather(&last_row[last_row.len() - 1])?.pop().expect("a rank is the last");
        let checksums =
            part.own().enumerate().map(|(row, own)| checksum_of_row([0, row, part.columns.start], own));
        let checksum = trial.all_sum(checksums.fold(0, u64::wrapping_add))?;
        let state = if trial.wants_state { Some(trial.gather(&encode(last_row))?.concat()) } else { None };
        let state = state.filter(|_| trial.world.rank() == 0);
        let result = result(corner, trial.all_sum(part.wrong)?);
        let answer = Answer { checksum: shown(checksum), result, state };
        let mut outcome = trial.outcome_by_host(setup_s, times, self.traffic(trial), answer)?;
        let [rows, columns] = self.grid.cells();
        let points = ((rows - 1) * (columns - 1)) as f64;
        outcome.note_rate("gmops", ACCESSES * points, self.steps); // as the paper plots it
        Ok(outcome)
    }

    fn routes(&self, trial: &Trial<'_>) -> Result<Routes, AppError> {
        let (size, right) = (trial.world.size(), (trial.world.rank() + 1) % trial.world.size());
        if size == 1 {
            return Ok(Routes::by_host(trial, []));
        }
        let (all_bytes, messages) = self.traffic(trial);
        let reason = match right {
            0 => "the corner, at the end of an iteration".to_owned(),
            _ => format!("the last column, in {messages} messages an iteration"),
        };
        // The last message of an iteration may be shorter than the others.
        let bytes = all_bytes.min(self.block_rows.saturating_mul(size_of::<f64>()));
        Ok(Routes::by_host(trial, [(vec![0, 1], right, bytes, reason)]))
    }

    fn check_layout(&self, layout: &[usize]) -> Result<(), AppError> {
        let columns = self.grid.cells()[COLUMNS];
        if layout[0] != 1 {
            let message = format!("`pipeline` splits columns only, not rows: {layout:?} would be [1, ranks]");
            return Err(AppError::usage("run.layout", message));
        }
        if columns < LEAST_COLUMNS * layout[COLUMNS] {
            let message = format!(
                "{columns} columns are too few for {} ranks: `pipeline` gives each at least {LEAST_COLUMNS}",
                layout[COLUMNS]
            );
            return Err(AppError::usage("grid.cells", message));
        }
        // Not by the rank alone: before it begins the reference is computed, which has one row at a time and takes long.
        let values = size_of_all(self.extents(columns.div_ceil(layout[COLUMNS])));
        if Vec::<f64>::new().try_reserve_exact(values).is_err() {
            let bytes = values.saturating_mul(size_of::<f64>());
            let message = format!(
                "{:?} values over {} are {bytes} bytes for a rank, more than there is room for: use fewer, or more \
                 ranks",
                self.grid.cells(),
                ranks_of(layout[COLUMNS])
            );
            return Err(AppError::usage("grid.cells", message));
        }
        Ok(())
    }
}
