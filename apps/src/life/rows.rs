//! Rows of two generations, as kernels look them up.

use std::ops::Range;

use streamhalo::comm::device::{Rows, RowsMut, Tile};

use super::kernel::Cell;

/// The rows of two generations. Several are looked up together: of short ones that takes as long as computing them.
pub(super) trait Generations<'now, T> {
    /// So many rows of the present one from the `y`-th on, with a ghost cell on either side for each generation that a
    /// sweep takes. The first of all is as far above the first row that is written.
    fn now<const N: usize>(&self, y: usize) -> [&'now [T]; N];

    /// So many rows of the next one from the `y`-th on; each is asked for once, in order.
    fn next<const N: usize>(&mut self, y: usize) -> [&mut [T]; N];
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
    fn now<const N: usize>(&self, y: usize) -> [&'now [T]; N] {
        self.now.spans(0, self.first - self.layers + y, self.x.clone())
    }

    #[inline(always)]
    fn next<const N: usize>(&mut self, y: usize) -> [&mut [T]; N] {
        self.next.rows_from(0, self.first + y)
    }
}
