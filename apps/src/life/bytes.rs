//! One generation of Life on rows of bytes, of which a vector holds as many as there are bits in a word.
//!
//! Equation: `next = 1` if `t = 3` or `t - here = 3`, else 0, where `t` is the number of live cells among
//! the nine.
//!
//! Columns are added up before rows: `t` is the sum of three columns side by side, and a column is the sum
//! of three rows. A block of rows is advanced together, so that of three rows five are read. Along x every
//! vector of columns is loaded and added once, and those to the left and to the right are cut out of it and its
//! neighbours: long rows begin with a line of the cache, and loads beside it would straddle two.
//! For three vectors (of 64 bytes with AVX-512) this takes 8 loads, 6 instructions that cut, 27 that
//! compute and 3 stores, where the plain nine-point form has 27 loads. `cargo bench --bench kernels` compares with what
//! the processor can do.
//!
//! Blocks of three are a compromise. Every further row saves loads, but rows of a grid whose width is
//! near a power of two fall into the same few sets of the first-level cache: blocks of four keep ten
//! rows in flight against eight ways, and are slower by 1.3 times at 4096 x 4096 bytes.

use fearless_simd::{Level, Simd, dispatch, prelude::*};

use super::kernel::Cell;
use super::rows::Generations;
use crate::app::{Columns, sweep};

/// Rows that one sweep along x advances together.
const BLOCK_ROWS: usize = 3;

/// Computes one generation of so many rows, of cells that are bytes.
pub(super) fn step_rows<'now, T: Cell>(level: Level, rows: usize, mut all: impl Generations<'now, T>) {
    dispatch!(level, simd => {
        let mut y = 0;
        while y + BLOCK_ROWS <= rows {
            step_block::<_, T, BLOCK_ROWS, { BLOCK_ROWS + 2 }>(simd, all.now(y), all.next(y));
            y += BLOCK_ROWS;
        }
        match rows - y {
            2 => step_block::<_, T, 2, 4>(simd, all.now(y), all.next(y)),
            1 => step_block::<_, T, 1, 3>(simd, all.now(y), all.next(y)),
            _ => {}
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
        sweep::<S, T::Vector<S>, ROWS, 1>(columns, &mut Block { simd, now, next });
    } else if columns >= <T::Vector<S> as SimdBase<S>>::Block::LEN {
        sweep::<S, <T::Vector<S> as SimdBase<S>>::Block, ROWS, 1>(columns, &mut Block { simd, now, next });
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

impl<S: Simd, T: Cell, V: SimdBase<S, Element = T>, const ROWS: usize, const INPUTS: usize>
    Columns<V, ROWS, 1> for Block<'_, S, T, ROWS, INPUTS>
{
    /// For each row to write the sums of the three cells above each other.
    #[inline(always)]
    fn values<const IS_ALONE: bool>(&self, x: usize) -> [[V; 1]; ROWS] {
        let load = |row: usize| {
            if IS_ALONE {
                V::splat(self.simd, self.now[row][x])
            } else {
                V::from_slice(self.simd, &self.now[row][x..x + V::LEN])
            }
        };
        let (mut above, mut here) = (load(0), load(1));
        let mut sums = [[above]; ROWS];
        for (row, sum) in sums.iter_mut().enumerate() {
            let below = load(row + 2);
            *sum = [above + here + below];
            (above, here) = (here, below);
        }
        sums
    }

    #[inline(always)]
    fn compute(&mut self, x: usize, [left, own, right]: [[[V; 1]; ROWS]; 3]) {
        let (zero, one) = (V::splat(self.simd, T::from(0)), V::splat(self.simd, T::from(1)));
        let three = V::splat(self.simd, T::from(3));
        for row in 0..ROWS {
            let here = V::from_slice(self.simd, &self.now[row + 1][x + 1..][..V::LEN]);
            let all = left[row][0] + own[row][0] + right[row][0];
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
