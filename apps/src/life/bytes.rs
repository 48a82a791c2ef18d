//! One generation of Life on rows of bytes, of which a vector holds as many as there are bits in a word.
//!
//! Equation: `next = 1` if `t - 3 <= here`, else 0, where `t` is the number of live cells among the nine: bytes wrap
//! around, so that what is less than 0 is more than any cell.
//!
//! Columns are added up before rows: `t` is the sum of three columns side by side, and a column is the sum
//! of three rows. Along x every vector of columns is loaded and added once, and those to the left and to the right are
//! cut out of it and its neighbours: long rows begin with a line of the cache, and loads beside it would straddle two.
//! What is to the left of a vector is cut out when that vector is found, as is what is to the right of the one before: the
//! first step of both is the same with AVX2. A vector takes 4 loads, 2 or 3 instructions that cut, 8 that compute and one
//! store, where the plain nine-point form has 9 loads. `cargo bench --bench kernels` compares with what the
//! processor can do.
//!
//! Rows are computed one by one. Two or three side by side save loads, which cost little, and are slower where the
//! first-level cache does not hold them: more rows are then written at a time, and fewer registers are left.

use fearless_simd::{Level, Simd, dispatch, prelude::*, u8x16};

use super::rows::Generations;
use crate::app::{one_to_the_left, one_to_the_right};

/// Computes one generation of so many rows.
pub(super) fn step_rows<'now>(level: Level, rows: usize, mut all: impl Generations<'now, u8>) {
    dispatch!(level, simd => {
        // Not zipped, since what makes pairs is not inlined here.
        let (mut present, mut next) = all.in_turn(rows);
        while let (Some(now), Some(next)) = (present.next(), next.next()) {
            step_row(simd, now, next);
        }
    });
}

/// Computes a row in the widest vectors that fit it.
// Everything below is `inline(always)`: only code that lands inside the function that `dispatch!` makes for an
// instruction set is compiled for it.
#[inline(always)]
fn step_row<S: Simd>(simd: S, now: [&[u8]; 3], next: &mut [u8]) {
    let cells = next.len();
    for row in now {
        assert_eq!(row.len(), cells + 2, "a row to read has one ghost cell on either side");
    }
    match S::u8s::LEN {
        _ if cells < 16 => step_cells(now, next),
        32 if cells >= 32 => step_vectors::<S, S::u8s, 32>(simd, now, next),
        64 if cells >= 64 => step_vectors::<S, S::u8s, 64>(simd, now, next),
        _ => step_vectors::<S, u8x16<S>, 16>(simd, now, next),
    }
}

/// Computes a row in vectors of `L` cells, of which it has at least one.
#[inline(always)]
fn step_vectors<S: Simd, V: SimdBase<S, Element = u8>, const L: usize>(
    simd: S,
    now: [&[u8]; 3],
    next: &mut [u8],
) {
    let cells = next.len();
    // Exactly as many vectors of each, so that no bounds are left to compare.
    let before_last = cells - L;
    let [above, here, below] = now.map(|row| row[1 + L..][..before_last].as_chunks::<L>().0);
    let cells_now = now[1][1..][..before_last].as_chunks::<L>().0;
    let cells_next = next[..before_last].as_chunks_mut::<L>().0;
    let (mut left, mut own) = (columns::<S, V>(simd, now, 0), columns::<S, V>(simd, now, 1));
    for index in 0..before_last / L {
        let behind = V::from_slice(simd, &above[index])
            + V::from_slice(simd, &here[index])
            + V::from_slice(simd, &below[index]);
        let all = left + own + one_to_the_right(own, behind);
        alive_next(simd, all, V::from_slice(simd, &cells_now[index])).store_slice(&mut cells_next[index]);
        (left, own) = (one_to_the_left(own, behind), behind);
    }
    let last = before_last / L * L;
    store_next(simd, [left, own, columns(simd, now, last + 2)], now[1], last, next);
    // The last vector is moved back to end with the row. It computes some cells a second time, from inputs that have not
    // changed, instead of leaving a remainder to a slower loop.
    if last < before_last {
        let x = before_last;
        let beside = [columns(simd, now, x), columns(simd, now, x + 1), columns(simd, now, x + 2)];
        store_next::<S, V>(simd, beside, now[1], x, next);
    }
}

/// Computes the vector of cells from `x` on, from the sums of the columns to their left, their own and to their right.
#[inline(always)]
fn store_next<S: Simd, V: SimdBase<S, Element = u8>>(
    simd: S,
    [left, own, right]: [V; 3],
    here: &[u8],
    x: usize,
    next: &mut [u8],
) {
    let here = V::from_slice(simd, &here[1 + x..][..V::LEN]);
    alive_next(simd, left + own + right, here).store_slice(&mut next[x..x + V::LEN]);
}

/// The sums of the columns from `x` on. Column 0 is the one to the left of the first cell.
#[inline(always)]
fn columns<S: Simd, V: SimdBase<S, Element = u8>>(simd: S, [above, here, below]: [&[u8]; 3], x: usize) -> V {
    V::from_slice(simd, &above[x..x + V::LEN])
        + V::from_slice(simd, &here[x..x + V::LEN])
        + V::from_slice(simd, &below[x..x + V::LEN])
}

/// Which cells live next, given how many live of the nine.
#[inline(always)]
fn alive_next<S: Simd, V: SimdBase<S, Element = u8>>(simd: S, all: V, here: V) -> V {
    (all - V::splat(simd, 3)).simd_le(here).select(V::splat(simd, 1), V::splat(simd, 0))
}

/// Computes a row that is narrower than any vector.
#[inline(always)]
fn step_cells(now: [&[u8]; 3], next: &mut [u8]) {
    for (x, cell) in next.iter_mut().enumerate() {
        let all: u8 = now.iter().flat_map(|row| &row[x..x + 3]).sum();
        *cell = u8::from(all.wrapping_sub(3) <= now[1][x + 1]);
    }
}
