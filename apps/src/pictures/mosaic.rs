//! A field as a picture has it: one plane of it, in blocks of cells where it has more cells than there is room
//! for. Ranks add up their own cells, and rank 0 gets the sums.

use std::ops::Range;

use streamhalo::Tile;

use crate::app::{Look, Stored};
use crate::error::AppError;

/// Square blocks of the cells of a plane; those at the high ends may be cut off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mosaic {
    /// The index of the plane on the slowest of three axes: the middle one.
    pub(crate) plane: usize,
    /// Cells along a side of a block.
    pub(crate) side: usize,
    /// Cells of the plane per axis, slowest first.
    cells: [usize; 2],
}

impl Mosaic {
    /// The smallest blocks of which there are at most `most` per axis, slowest first.
    pub(crate) fn fitting([depth, height, width]: [usize; 3], most: [usize; 2]) -> Self {
        let side = height.div_ceil(most[0].max(1)).max(width.div_ceil(most[1].max(1))).max(1);
        Self { plane: depth / 2, side, cells: [height, width] }
    }

    /// Blocks per axis, slowest first.
    pub(crate) fn extents(&self) -> [usize; 2] {
        self.cells.map(|cells| cells.div_ceil(self.side))
    }

    /// Cells of each block, row-major.
    pub(crate) fn cells_of_blocks(&self) -> impl Iterator<Item = usize> {
        let along = |axis: usize, block: usize| self.side.min(self.cells[axis] - block * self.side);
        let [rows, columns] = self.extents();
        (0..rows * columns).map(move |block| along(0, block / columns) * along(1, block % columns))
    }

    /// The sum over the cells of each block, row-major, on rank 0; the others get nothing. Collective; blocks.
    ///
    /// # Errors
    ///
    /// Which rank failed.
    pub(crate) fn sums(&self, look: &Look<'_>) -> Result<Option<Vec<f64>>, AppError> {
        let mut own = Vec::new();
        self.own_sums(look).into_iter().for_each(|sum| sum.write(&mut own));
        let parts = look.trial.gather(&own)?;
        if look.world().rank() != 0 {
            return Ok(None);
        }
        let [rows, columns] = self.extents();
        let mut sums = vec![0.0; rows * columns];
        for (part, owned) in parts.iter().zip(&look.owned) {
            let blocks = self.blocks_of(owned);
            let places = blocks.flat_map(|(row, within)| within.map(move |column| row * columns + column));
            for (place, sum) in places.zip(part.chunks_exact(f64::BYTES)) {
                sums[place] += f64::read(sum);
            }
        }
        Ok(Some(sums))
    }

    /// What this rank adds to the blocks that it has cells of, in the order of [`Mosaic::blocks_of`].
    fn own_sums(&self, look: &Look<'_>) -> Vec<f64> {
        let own = look.own();
        let mut sums = Vec::new();
        for (row, columns) in self.blocks_of(&own) {
            let first = sums.len();
            sums.resize(first + columns.len(), 0.0);
            let within = row * self.side..(row + 1) * self.side;
            for y in within.start.max(own.start[1])..within.end.min(own.end[1]) {
                for (x, value) in (own.start[2]..).zip(look.row(self.plane, y)) {
                    sums[first + x / self.side - columns.start] += value;
                }
            }
        }
        sums
    }

    /// The blocks that a rank has cells of: each row of blocks, with its columns.
    fn blocks_of(&self, owned: &Tile) -> impl Iterator<Item = (usize, Range<usize>)> + use<> {
        let has_cells = (owned.start[0]..owned.end[0]).contains(&self.plane);
        let along = |axis: usize| owned.start[axis] / self.side..owned.end[axis].div_ceil(self.side);
        let (rows, columns) = (if has_cells { along(1) } else { 0..0 }, along(2));
        rows.map(move |row| (row, columns.clone()))
    }
}
