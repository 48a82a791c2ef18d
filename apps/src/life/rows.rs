//! Rows of two generations, as kernels look them up.

use std::ops::Range;

use streamhalo::comm::device::{Rows, RowsMut, Tile};

use super::kernel::Cell;

/// The rows of two generations.
pub(crate) trait Generations<'now, T: 'static> {
    /// The `y`-th row of the present one, with a ghost cell on either side for each generation that a sweep takes. The
    /// first of all is as far above the first row that is written.
    fn now(&self, y: usize) -> &'now [T];

    /// The `y`-th row of the next one; each is asked for once, in order.
    fn next(&mut self, y: usize) -> &mut [T];

    /// So many rows of the next one from the first on, and in front of them what is around each in the present one, a
    /// generation before. They are looked up at once: of short ones that takes as long as computing them.
    fn in_turn(
        &mut self,
        rows: usize,
    ) -> (impl Iterator<Item = [&'now [T]; 3]>, impl Iterator<Item = &mut [T]>);
}

/// Those of a tile.
pub(super) struct OfTile<'r, T> {
    /// The first row to write, and how far above it the first row to read is.
    first: usize,
    layers: usize,
    /// The columns to read.
    x: Range<usize>,
    now: Rows<'r, T>,
    next: RowsMut<'r, T>,
}

impl<'r, T> OfTile<'r, T> {
    pub(super) fn new(tile: Tile, layers: usize, now: Rows<'r, T>, next: RowsMut<'r, T>) -> Self {
        let x = tile.start[2] - layers..tile.end[2] + layers;
        Self { first: tile.start[1], layers, x, now, next }
    }
}

impl<'now, T: Cell> Generations<'now, T> for OfTile<'now, T> {
    #[inline(always)]
    fn now(&self, y: usize) -> &'now [T] {
        self.now.span(0, self.first - self.layers + y, self.x.clone())
    }

    #[inline(always)]
    fn next(&mut self, y: usize) -> &mut [T] {
        self.next.row(0, self.first + y)
    }

    #[inline(always)]
    fn in_turn(
        &mut self,
        rows: usize,
    ) -> (impl Iterator<Item = [&'now [T]; 3]>, impl Iterator<Item = &mut [T]>) {
        let ys = self.first..self.first + rows;
        let now = self.now.plane(0, ys.start - self.layers..ys.end + self.layers, self.x.clone());
        (now.windows(0), self.next.plane(0, ys))
    }
}
