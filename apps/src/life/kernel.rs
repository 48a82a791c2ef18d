//! Generations of Life on rows of cells.
//!
//! Equation: `next = 1` if `t = 3` or (`t = 4` and `here = 1`), else 0, where `t` is the number of live cells among
//! the nine.
//!
//! Bytes are computed as they are (`bytes`), a generation at a time. Wider cells are a bit each while they are computed, and
//! so are bytes where a sweep over the rows takes several generations (`wave`).

use std::ops::{Add, Sub};

use fearless_simd::{Level, dispatch};
use streamhalo::comm::device::{Rows, RowsMut, Tile};

use super::rows::{Generations, OfTile, Slices};
use super::{bytes, wave};
use crate::app::Vectors;

/// What a cell is stored as: the number 0 or 1.
pub trait Cell: Vectors + From<u8> + Add<Output = Self> + Sub<Output = Self> {
    /// 0 or 1; 2 for whatever is no cell, so that it is seen.
    #[inline]
    fn to_byte(self) -> u8 {
        match self {
            dead if dead == Self::from(0) => 0,
            live if live == Self::from(1) => 1,
            _ => 2,
        }
    }
}

impl Cell for u8 {}
impl Cell for f64 {}

/// Computes one row of the next generation.
///
/// The three rows of the present generation have one ghost cell on either side, so each is two cells
/// longer than `next`. Cells are 0 or 1. Many rows are faster together, by [`step_rows`].
///
/// # Panics
///
/// If a row has another length.
pub fn step_row<T: Cell>(above: &[T], here: &[T], below: &[T], next: &mut [T]) {
    step_rows(1, |row| [above, here, below][row], [next]);
}

/// Computes `rows` consecutive rows of the next generation.
///
/// `next` yields the rows to write, from the lowest y up. Row `i` of them is computed from
/// `now(i)`, `now(i + 1)` and `now(i + 2)`, which have one ghost cell on either side: `now(0)` is
/// the row above the first one written. All rows of one call have one length. Cells are 0 or 1.
///
/// # Panics
///
/// If there are not as many rows in `next`, a row of `now` is not two cells longer than they are, or they differ in
/// length.
pub fn step_rows<'now, 'next, T: Cell>(
    rows: usize,
    now: impl Fn(usize) -> &'now [T],
    next: impl IntoIterator<Item = &'next mut [T]>,
) {
    step_rows_at(Level::new(), rows, now, next);
}

/// [`step_rows`] with an instruction set of the caller's choice, so that tests reach all of them.
pub(super) fn step_rows_at<'now, 'next, T: Cell>(
    level: Level,
    rows: usize,
    now: impl Fn(usize) -> &'now [T],
    next: impl IntoIterator<Item = &'next mut [T]>,
) {
    sweep_rows_at(level, rows, Sweep::ONE, now, next);
}

/// How many generations a sweep over rows takes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sweep {
    /// One to [`Sweep::MOST`]. As many layers of cells are read around those that are written.
    pub(crate) generations: usize,
    /// On the lower and on the upper side of each axis, slowest first: how many layers of cells beyond those that are
    /// written change from generation to generation, at least. Beyond the boundary of a grid they stay dead.
    pub(crate) changes: [[usize; 2]; 2],
}

impl Sweep {
    /// A single generation, for which it does not matter what becomes of others.
    pub(crate) const ONE: Self = Self { generations: 1, changes: [[1; 2]; 2] };

    /// The ghosts in front of a row are bits of one word.
    pub(crate) const MOST: usize = 64;

    /// The same of a part of a tile: the rest of it changes too.
    pub(super) fn of_part(self, whole: Tile, part: Tile) -> Self {
        let mut changes = self.changes;
        for (axis, [below, above]) in changes.iter_mut().enumerate() {
            *below += part.start[1 + axis] - whole.start[1 + axis];
            *above += whole.end[1 + axis] - part.end[1 + axis];
        }
        Self { changes, ..self }
    }

    /// How many of the layers that are read on each side do not change.
    pub(super) fn layers_that_stay(&self) -> [[usize; 2]; 2] {
        self.changes.map(|sides| sides.map(|layers| self.generations.saturating_sub(layers)))
    }
}

/// Computes `rows` consecutive rows that many generations on: as [`step_rows`], but that rows of `now` have as many ghost
/// cells on either side as there are generations, and `now(0)` is as many rows above the first one written.
pub(super) fn sweep_rows_at<'now, 'next, T: Cell>(
    level: Level,
    rows: usize,
    sweep: Sweep,
    now: impl Fn(usize) -> &'now [T],
    next: impl IntoIterator<Item = &'next mut [T]>,
) {
    sweep_all(level, rows, sweep, Slices::new(now, next.into_iter()));
}

/// Computes the cells of a tile of an array that many generations on.
pub(super) fn sweep_tile<T: Cell>(sweep: Sweep, tile: Tile, now: Rows<'_, T>, next: RowsMut<'_, T>) {
    sweep_all(Level::new(), tile.extents()[1], sweep, OfTile::new(tile, sweep.generations, now, next));
}

fn sweep_all<'now, T: Cell>(level: Level, rows: usize, sweep: Sweep, mut all: impl Generations<'now, T>) {
    if size_of::<T>() == 1 && sweep.generations == 1 {
        // A vector of them is one word of bits: it is computed as it is.
        return bytes::step_rows(level, rows, all);
    }
    if rows > 0 {
        dispatch!(level, simd => wave::sweep_in_widest(simd, rows, sweep, &mut all));
    }
}
