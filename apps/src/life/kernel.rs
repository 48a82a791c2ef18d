//! Generations of Life on rows of cells.
//!
//! Equation: `next = 1` if `t = 3` or (`t = 4` and `here = 1`), else 0, where `t` is the number of live cells among
//! the nine.
//!
//! Where a sweep over the rows takes several generations a word has a bit for each of 64 cells in order (`wave`). One generation
//! takes vectors side by side as one, with a bit for each cell (`slices`), where rows are long enough and that is the fastest
//! way; else doubles go as words, and bytes as they are (`bytes`).

use fearless_simd::{Level, Simd};
use streamhalo::comm::device::{Rows, RowsMut, Tile, Way};

use super::slices::{self, Sliced};
use super::{bytes, wave, words};

/// What a cell is stored as: the number 0 or 1.
pub(crate) trait Cell: Sliced + From<u8> {
    /// Computes one generation of rows that slices do not suit.
    fn step<'r>(task: Task<impl Iterator<Item = &'r [Self]>, impl Iterator<Item = &'r mut [Self]>>);

    /// Spreads a word of 64 bits over as many cells.
    #[inline(always)]
    fn spread_word<S: Simd>(simd: S, word: u64, cells: &mut [Self]) {
        words::spread_word(simd, word, cells);
    }

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

impl Cell for u8 {
    fn step<'r>(task: Task<impl Iterator<Item = &'r [Self]>, impl Iterator<Item = &'r mut [Self]>>) {
        bytes::step(task);
    }
}

impl Cell for f64 {
    fn step<'r>(task: Task<impl Iterator<Item = &'r [Self]>, impl Iterator<Item = &'r mut [Self]>>) {
        wave::step(task);
    }

    #[inline(always)]
    fn spread_word<S: Simd>(simd: S, word: u64, cells: &mut [Self]) {
        words::spread_over_doubles(simd, word, cells);
    }
}

/// The rows that a sweep goes over.
pub(crate) struct Task<Now, Next> {
    /// The instruction set, of the caller's choice so that tests reach all.
    pub(super) level: Level,
    /// Whether no cache holds the field.
    pub(super) is_past: bool,
    /// How many rows and columns are written.
    pub(super) extents: [usize; 2],
    /// Those of the present generation, in order: as many as are written, and exactly as many more on either side as there
    /// are generations, each with as many cells more on either side.
    pub(super) now: Now,
    /// Those to write, in order, exactly so many.
    pub(super) next: Next,
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

/// Computes the cells of a tile of an array that many generations on. Lines are asked for ahead on every `way`.
pub(super) fn sweep_tile<T: Cell>(
    way: Way,
    sweep: Sweep,
    tile: Tile,
    now: Rows<'_, T>,
    mut next: RowsMut<'_, T>,
) {
    let ([_, rows, columns], Tile { start: [_, y, x], end: [_, y_end, x_end] }) = (tile.extents(), tile);
    if rows == 0 {
        return;
    }
    // All rows are looked up at once: of short ones that takes as long as computing them.
    let layers = sweep.generations;
    let now = now.plane(0, y - layers..y_end + layers, x - layers..x_end + layers);
    let (now, next) = (now.each(), next.plane(0, y..y_end));
    let (level, is_past) = (Level::new(), way == Way::Past);
    sweep_rows(sweep, Task { level, is_past, extents: [rows, columns], now, next });
}

/// Computes rows that many generations on.
///
/// # Panics
///
/// If a row to read is not so much longer than those to write, or these differ in length where cells become bits.
pub(super) fn sweep_rows<'r, T: Cell>(
    sweep: Sweep,
    task: Task<impl Iterator<Item = &'r [T]>, impl Iterator<Item = &'r mut [T]>>,
) {
    match sweep.generations {
        1 if slices::suit::<T>(task.level, task.extents) => slices::step(task),
        1 => T::step(task),
        _ => wave::sweep_rows(sweep, task),
    }
}
