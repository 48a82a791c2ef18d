//! One generation of Life on rows of bytes, of which a vector holds as many as there are bits in a word.
//!
//! Equation: `next = 1` if `t = 3` or `t - here = 3`, else 0, where `t` is the number of live cells among
//! the nine.
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

use fearless_simd::{Level, Simd, dispatch, prelude::*};

use super::kernel::Cell;

/// Rows that one sweep along x advances together.
const BLOCK_ROWS: usize = 3;

/// [`step_rows`](super::kernel::step_rows) of cells that are bytes.
pub(super) fn step_rows<'now, 'next, T: Cell>(
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

/// A row, or some of them side by side, whose cells are computed from `N` values in their own column and in
/// those to the left and to the right.
// Everything here, and whatever implements it, is `inline(always)`: only code that lands inside the function
// that `dispatch!` makes for an instruction set is compiled for it.
trait Columns<V, const N: usize> {
    /// The values of the columns from `x` on. Column 0 is the one to the left of the first cell.
    fn values(&self, x: usize) -> [V; N];

    /// Computes the cells from `x` on, given the values to the left, in their own columns and to the right.
    fn compute(&mut self, x: usize, around: [[V; N]; 3]);
}

/// Computes the `cells` cells of a row, at least as many as a vector has.
///
/// Every vector of values is made once, and those one and two columns further on are cut out of it and the
/// next one: rows start anywhere in a line of the cache, so that loads would straddle two.
#[inline(always)]
fn sweep<S: Simd, V: SimdBase<S>, const N: usize>(cells: usize, row: &mut impl Columns<V, N>) {
    let mut x = 0;
    let mut left = row.values(0);
    while x + 2 * V::LEN <= cells + 2 {
        let ahead = row.values(x + V::LEN);
        let (mut own, mut right) = (left, left);
        for value in 0..N {
            [own[value], right[value]] = cut(left[value], ahead[value]);
        }
        row.compute(x, [left, own, right]);
        left = ahead;
        x += V::LEN;
    }
    while x < cells {
        // The last vector is moved back to end with the row. It computes some cells a second time, from
        // inputs that have not changed, instead of leaving a remainder to a slower loop.
        let start = x.min(cells - V::LEN);
        if start < x {
            left = row.values(start);
        }
        let right = row.values(start + 2);
        let mut own = left;
        for value in 0..N {
            // The last but one column of those to the right comes first when they are turned round, and cut.
            let turned = right[value].reverse();
            own[value] = left[value].slide::<1>(turned.slide::<1>(turned));
        }
        row.compute(start, [left, own, right]);
        x += V::LEN;
    }
}

/// What is one and what is two elements further on in two vectors, one behind the other: first by a block of 128
/// bits, then within blocks. Processors do both faster than they cut vectors anywhere.
#[inline(always)]
fn cut<S: Simd, V: SimdBase<S>>(left: V, ahead: V) -> [V; 2] {
    let by_block = match V::Block::LEN {
        2 => left.slide::<2>(ahead),
        4 => left.slide::<4>(ahead),
        16 => left.slide::<16>(ahead),
        _ => return [left.slide::<1>(ahead), left.slide::<2>(ahead)],
    };
    [left.slide_within_blocks::<1>(by_block), left.slide_within_blocks::<2>(by_block)]
}
