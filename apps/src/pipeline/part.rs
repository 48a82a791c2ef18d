//! The columns of one rank, and the values that are given.

use std::ops::Range;

use super::driver::{COLUMNS, Pipeline};
use super::links::{Extent, Links};
use crate::app::Trial;
use crate::app::values::zeros;
use crate::error::AppError;

/// The columns of one rank.
pub(super) struct Part {
    /// In the whole grid.
    pub(super) columns: Range<usize>,
    rows: usize,
    block_rows: usize,
    /// Row by row: the left neighbour's last column, and then the rank's own.
    pub(super) values: Vec<f64>,
    /// Values of a block of rows on their way.
    pub(super) halo: Vec<f64>,
    pub(super) links: Option<Box<dyn Links>>,
    pub(super) is_first: bool,
    pub(super) is_last: bool,
    /// How many values have not come as they must be. The next iteration overwrites them, and only those of the last row get into
    /// the corner, so that the values at the end show no more than the last iteration's.
    pub(super) wrong: u64,
    pub(super) cells: [usize; 2],
    pub(super) iteration: u64,
}

impl Part {
    /// The boundary values: A(i, 0) is i, and A(0, j) is j. Collective.
    pub(super) fn new(app: &Pipeline, trial: &Trial<'_>) -> Result<Self, AppError> {
        let (rank, owned) = (trial.world.rank(), trial.owned_cells(&app.grid)?);
        let columns = owned.start[COLUMNS]..owned.end[COLUMNS];
        let (rows, is_first) = (app.grid.cells()[0], rank == 0);
        let mut values = zeros(app.extents(columns.len()))?;
        for (column, value) in values[..=columns.len()].iter_mut().enumerate() {
            *value = (columns.start + column) as f64 - 1.0;
        }
        if is_first {
            for (row, values) in values.chunks_exact_mut(columns.len() + 1).enumerate() {
                values[1] = row as f64;
            }
        }
        let messages = if is_first { 1 } else { (rows - 1).div_ceil(app.block_rows) as u64 };
        let receives = messages * app.iterations();
        let extent = Extent { rows, block_rows: app.block_rows, receives };
        Ok(Self {
            links: (app.connect)(trial, trial.primitive(), extent)?,
            halo: vec![0.0; app.block_rows.min(rows)],
            is_last: rank + 1 == trial.world.size(),
            wrong: 0,
            cells: app.grid.cells(),
            iteration: 0,
            block_rows: app.block_rows,
            columns,
            rows,
            values,
            is_first,
        })
    }

    /// The rows below the first, block by block.
    pub(super) fn blocks(&self) -> impl Iterator<Item = Range<usize>> + use<> {
        let (rows, block_rows) = (self.rows, self.block_rows);
        (1..rows).step_by(block_rows).map(move |first| first..first.saturating_add(block_rows).min(rows))
    }

    /// The rank's own columns, row by row.
    pub(super) fn own(&self) -> impl Iterator<Item = &[f64]> {
        self.values.chunks_exact(self.columns.len() + 1).map(|row| &row[1..])
    }
}
