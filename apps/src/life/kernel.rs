//! One generation of Life on rows of cells, in lanes as wide as the CPU has.
//!
//! Equation: `next = 1` if `t = 3` or `t - here = 3`, else 0, where `t` is the number of live cells among
//! the nine. With three live neighbours one of the two holds whatever `here` is; with two of them the first
//! does only if `here = 1`; no other number gives 3. Sums are of at most nine, which every type of
//! [`Cell`] holds exactly: all of them live the same life.
//!
//! Columns are added up before rows: `t` is the sum of three columns side by side, and a column is the sum
//! of three rows. A block of rows is advanced together, so that of three rows five are read. Along x every
//! vector of columns is loaded and added once, and those one and two cells further on are cut out of it and
//! the next one: rows of width + 2 start anywhere, so that loads would straddle two lines of the cache.
//! For three vectors (of 64 bytes with AVX-512) this takes 8 loads, 6 instructions that cut, 27 that
//! compute and 3 stores, where the plain nine-point form has 27 loads. `cargo bench --bench kernels` compares with what
//! the processor can do.
//!
//! Blocks of three are a compromise. Every further row saves loads, but rows of a grid whose width is
//! near a power of two fall into the same few sets of the first-level cache: blocks of four keep ten
//! rows in flight against eight ways, and are slower by 1.3 times at 4096 x 4096 bytes.

use std::ops::{Add, Sub};

use crate::app::{Columns, Vectors, sweep};
use fearless_simd::{Level, dispatch, prelude::*};

/// Rows that one sweep along x advances together.
const BLOCK_ROWS: usize = 3;

/// What a cell is stored as: the number 0 or 1.
pub trait Cell: Vectors + From<u8> + Add<Output = Self> + Sub<Output = Self> {
    /// 0 or 1; 2 for whatever is no cell, so that it is seen.
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
/// longer than `next`. Cells are 0 or 1. For many rows [`step_rows`] is about twice as fast.
///
/// # Panics
///
/// If a row has another length.
pub fn step_row<T: Cell>(above: &[T], here: &[T], below: &[T], next: &mut [T]) {
    dispatch!(Level::new(), simd => step_block(simd, [above, here, below], [next]));
}

/// Computes consecutive rows of the next generation.
///
/// `next` yields the rows to write, from the lowest y up. Row `i` of them is computed from
/// `now(i)`, `now(i + 1)` and `now(i + 2)`, which have one ghost cell on either side: `now(0)` is
/// the row above the first one written. All rows of one call have one length. Cells are 0 or 1.
///
/// # Panics
///
/// If a row of `now` is not two cells longer than the rows of `next`, or these differ in length.
pub fn step_rows<'now, 'next, T: Cell>(
    now: impl Fn(usize) -> &'now [T],
    next: impl IntoIterator<Item = &'next mut [T]>,
) {
    step_rows_at(Level::new(), now, next);
}

/// [`step_rows`] with an instruction set of the caller's choice, so that tests reach all of them.
pub(super) fn step_rows_at<'now, 'next, T: Cell>(
    level: Level,
    now: impl Fn(usize) -> &'now [T],
    next: impl IntoIterator<Item = &'next mut [T]>,
) {
    let mut next = next.into_iter().fuse();
    dispatch!(level, simd => {
        let mut y = 0;
        while let Some(first) = next.next() {
            match (next.next(), next.next()) {
                (Some(second), Some(third)) => step_block::<_, T, BLOCK_ROWS, { BLOCK_ROWS + 2 }>(
                    simd,
                    [now(y), now(y + 1), now(y + 2), now(y + 3), now(y + 4)],
                    [first, second, third],
                ),
                (Some(second), None) => step_block::<_, T, 2, 4>(
                    simd,
                    [now(y), now(y + 1), now(y + 2), now(y + 3)],
                    [first, second],
                ),
                _ => step_block::<_, T, 1, 3>(simd, [now(y), now(y + 1), now(y + 2)], [first]),
            }
            y += BLOCK_ROWS;
        }
    });
}

/// Advances one block of rows in the widest lanes that fit it.
// Everything below is `inline(always)`, as `Columns` says.
#[inline(always)]
fn step_block<S: Simd, T: Cell, const ROWS: usize, const INPUTS: usize>(
    simd: S,
    now: [&[T]; INPUTS],
    next: [&mut [T]; ROWS],
) {
    const { assert!(INPUTS == ROWS + 2) };
    let columns = next[0].len();
    for row in &next {
        assert_eq!(row.len(), columns, "rows of the next generation have one length");
    }
    for row in now {
        assert_eq!(row.len(), columns + 2, "a row to read has one ghost cell on either side");
    }
    if columns >= T::Vector::<S>::LEN {
        sweep::<S, T::Vector<S>, ROWS>(columns, &mut Block { simd, now, next });
    } else if columns >= <T::Vector<S> as SimdBase<S>>::Block::LEN {
        sweep::<S, <T::Vector<S> as SimdBase<S>>::Block, ROWS>(columns, &mut Block { simd, now, next });
    } else {
        step_cells(now, next);
    }
}

/// Rows that are advanced together.
struct Block<'r, S, T, const ROWS: usize, const INPUTS: usize> {
    simd: S,
    now: [&'r [T]; INPUTS],
    next: [&'r mut [T]; ROWS],
}

impl<S: Simd, T: Cell, V: SimdBase<S, Element = T>, const ROWS: usize, const INPUTS: usize> Columns<V, ROWS>
    for Block<'_, S, T, ROWS, INPUTS>
{
    /// For each row to write the sums of the three cells above each other.
    #[inline(always)]
    fn values(&self, x: usize) -> [V; ROWS] {
        let mut above = V::from_slice(self.simd, &self.now[0][x..x + V::LEN]);
        let mut here = V::from_slice(self.simd, &self.now[1][x..x + V::LEN]);
        let mut sums = [above; ROWS];
        for (row, sum) in sums.iter_mut().enumerate() {
            let below = V::from_slice(self.simd, &self.now[row + 2][x..x + V::LEN]);
            *sum = above + here + below;
            (above, here) = (here, below);
        }
        sums
    }

    #[inline(always)]
    fn compute(&mut self, x: usize, [left, own, right]: [[V; ROWS]; 3]) {
        let (zero, one) = (V::splat(self.simd, T::from(0)), V::splat(self.simd, T::from(1)));
        let three = V::splat(self.simd, T::from(3));
        for row in 0..ROWS {
            let here = V::from_slice(self.simd, &self.now[row + 1][x + 1..][..V::LEN]);
            let all = left[row] + own[row] + right[row];
            let lives = all.simd_eq(three) | (all - here).simd_eq(three);
            lives.select(one, zero).store_slice(&mut self.next[row][x..x + V::LEN]);
        }
    }
}

/// Advances one block of rows that are narrower than any vector.
#[inline(always)]
fn step_cells<T: Cell, const ROWS: usize, const INPUTS: usize>(now: [&[T]; INPUTS], next: [&mut [T]; ROWS]) {
    for (y, row) in next.into_iter().enumerate() {
        for (x, cell) in row.iter_mut().enumerate() {
            let all = now[y..y + 3].iter().flat_map(|row| &row[x..x + 3]);
            let all = all.fold(T::from(0), |sum, cell| sum + *cell);
            let three = T::from(3);
            *cell = T::from(u8::from(all == three || all - now[y + 1][x + 1] == three));
        }
    }
}
