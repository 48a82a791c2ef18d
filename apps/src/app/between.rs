//! What happens between steps: whoever has asked for it looks at the field while nothing is computed.

use std::fmt;

use serde_json::{Map, Value};
use streamhalo::{Array, ElementType, Entity, Tile, World};

use super::{Stored, Trial};
use crate::checkpoint::Checkpoint;
use crate::error::AppError;

/// Where a trial begins, and who looks at its field between its steps.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Between<'a> {
    /// In the order in which they are asked. All ranks have the same.
    pub(crate) lookers: &'a [&'a dyn Looker],
    /// What it goes on from, in place of the application's initial state. All ranks have the same.
    pub(crate) from: Option<&'a Checkpoint>,
    /// The trial's ranks in a world in which they wait as long as it takes for one that reads or writes a file, or
    /// puts a whole state together; `None` for the trial's own.
    pub(crate) patient: Option<&'a World>,
}

/// Somebody who looks at a field between steps, such as one who writes pictures.
pub(crate) trait Looker {
    /// The first number of finished steps, from `from` on, at which it looks; `None` for never again. All
    /// ranks say the same.
    fn next(&self, from: u64) -> Option<u64>;

    /// Looks. Nothing is computed meanwhile, and no time of the trial counts it. Collective; blocks.
    ///
    /// # Errors
    ///
    /// What ends the trial.
    fn look(&self, look: &Look<'_>) -> Result<(), AppError>;
}

impl fmt::Debug for dyn Looker + '_ {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Looker")
    }
}

/// A field of cells after a number of steps, as one rank sees it. Grids have three axes here, the slowest
/// first; those of fewer have 1 cell along the first of them.
pub(crate) struct Look<'a> {
    /// The trial, for its ranks, which wait for each other as [`Between::patient`] says.
    pub(crate) trial: &'a Trial<'a>,
    /// Steps that are finished.
    pub(crate) step: u64,
    /// The axes that the grid has.
    pub(crate) dimensions: usize,
    /// Cells of the whole grid per axis.
    pub(crate) cells: [usize; 3],
    /// Where the cells are.
    pub(crate) geometry: Geometry,
    /// The owned cells of every rank, in global indices.
    pub(crate) owned: Vec<Tile>,
    /// What a cell is.
    pub(crate) element: ElementType,
    /// The owned cells of this rank, row-major, the lowest byte of each value first.
    pub(crate) bytes: Vec<u8>,
    /// What belongs to the answer besides the cells. All ranks have the same.
    pub(crate) carried: Map<String, Value>,
    read: fn(&[u8]) -> f64,
}

/// Where the cells of a grid are, per axis, the slowest first.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Geometry {
    /// The low corner of the cell at index 0.
    pub(crate) origin: [f64; 3],
    /// The sides of a cell.
    pub(crate) spacing: [f64; 3],
}

impl Default for Geometry {
    /// Cells are squares and cubes with sides of 1.
    fn default() -> Self {
        Self { origin: [0.0; 3], spacing: [1.0; 3] }
    }
}

impl<'a> Look<'a> {
    fn new<T: Stored, const D: usize>(
        trial: &'a Trial<'a>,
        step: u64,
        geometry: Geometry,
        field: &Array<T, D>,
        carried: Map<String, Value>,
    ) -> Result<Self, AppError> {
        let partition = field.grid().subdomain().partition();
        let mut cells = [1; 3];
        cells[3 - D..].copy_from_slice(&partition.grid().cells());
        let mut bytes = Vec::with_capacity(field.owned_box().len() * T::BYTES);
        field.with_owned(|owned| {
            for row in owned.rows() {
                let row = row.to_slice().expect("rows are contiguous");
                row.iter().for_each(|value| value.write(&mut bytes));
            }
        })?;
        Ok(Self {
            trial,
            step,
            dimensions: D,
            cells,
            geometry,
            owned: (0..partition.ranks()).map(|rank| partition.owned_cells(rank).tile()).collect(),
            element: T::TYPE,
            bytes,
            carried,
            read: |bytes| T::read(bytes).to_f64(),
        })
    }

    /// The ranks.
    pub(crate) fn world(&self) -> &'a World {
        self.trial.world
    }

    /// The owned cells of this rank, in global indices.
    pub(crate) fn own(&self) -> Tile {
        self.owned[self.world().rank()]
    }

    /// The values of this rank's owned cells in one row, at indices of the whole grid.
    pub(crate) fn row(&self, z: usize, y: usize) -> impl Iterator<Item = f64> {
        let Tile { start, end } = self.own();
        let row = (z - start[0]) * (end[1] - start[1]) + y - start[1];
        let row_bytes = (end[2] - start[2]) * self.element.bytes();
        let bytes = &self.bytes[row * row_bytes..][..row_bytes];
        bytes.chunks_exact(self.element.bytes()).map(self.read)
    }
}

impl Between<'_> {
    /// The first number of finished steps, from `from` on, at which somebody looks; beyond all steps if nobody
    /// does.
    pub(crate) fn next(&self, from: u64) -> u64 {
        self.lookers.iter().filter_map(|looker| looker.next(from)).min().unwrap_or(u64::MAX)
    }

    /// Has those look that want to after `step` steps, at a trial whose ranks wait for each other meanwhile as its world
    /// says. Collective; waits for the stream and for all ranks.
    pub(crate) fn look<T: Stored, const D: usize>(
        &self,
        trial: &Trial<'_>,
        step: u64,
        geometry: Geometry,
        field: &Array<T, D>,
        carried: Map<String, Value>,
    ) -> Result<(), AppError> {
        debug_assert_eq!(field.entity(), Entity::Cell);
        let look = Look::new(trial, step, geometry, field, carried)?;
        for looker in self.lookers.iter().filter(|looker| looker.next(step) == Some(step)) {
            looker.look(&look)?;
        }
        // Nobody goes on, and counts time, before all can.
        Ok(trial.world.barrier()?)
    }
}
