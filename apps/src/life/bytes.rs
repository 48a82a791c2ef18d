//! One generation of Life on rows of bytes that slices do not suit (`slices`).
//!
//! Equation: `next = 1` if `n | here = 3`, else 0, where `n` is the number of live cells among the eight around it: three,
//! or two and the cell itself.
//!
//! Columns are added up before rows: `n` is the sum of the columns to the left and to the right, and of what is above and
//! below. Along x every vector of columns is loaded and added once, and those to the left and to the right are
//! cut out of it and its neighbours: long rows begin with a line of the cache, and loads beside it would straddle two.
//! What is to the left of a vector is cut out when that vector is found, as is what is to the right of the one before: the
//! first step of both is the same with AVX2. A vector takes 3 loads, 2 to 4 instructions that cut, 7 that compute and one
//! store, where the plain nine-point form has 9 loads.
//!
//! Rows are computed one by one. Two or three side by side save loads, which cost little, and are slower where the
//! first-level cache does not hold them: more rows are then written at a time, and fewer registers are left. Where no cache
//! holds both generations vectors are stored past the caches: that moves two bytes for a cell instead of three.

use std::hint::black_box;
use std::marker::PhantomData;

use fearless_simd::{Simd, dispatch, prelude::*, u8x16};
use streamhalo::comm::device::{PastCaches, ask_for_line, past_caches};

use super::kernel::Task;
use crate::app::{OutputRow, array, one_to_the_left, one_to_the_right};

/// How far behind those that are read next lines are asked for, where a cache holds both generations, and where none does.
const AHEAD_BYTES: usize = 2 << 10;
const PAST_AHEAD_BYTES: usize = 8 << 10;

/// Computes one generation of rows.
pub(super) fn step<'r>(task: Task<impl Iterator<Item = &'r [u8]>, impl Iterator<Item = &'r mut [u8]>>) {
    let Task { level, is_past, mut now, mut next, .. } = task;
    // The compiler must not know what a live cell is: it would load it from memory by every mask, which makes a row take half
    // as long again with AVX-512.
    let one = black_box(1);
    past_caches(|stores| {
        dispatch!(level, simd => match is_past {
            true => step_all::<_, true>(simd, stores, one, &mut now, &mut next),
            false => step_all::<_, false>(simd, stores, one, &mut now, &mut next),
        });
    });
}

#[inline(always)]
fn step_all<'r, S: Simd, const IS_PAST: bool>(
    simd: S,
    stores: PastCaches<'_>,
    one: u8,
    now: &mut impl Iterator<Item = &'r [u8]>,
    next: &mut impl Iterator<Item = &'r mut [u8]>,
) {
    let (Some(mut above), Some(mut here)) = (now.next(), now.next()) else { return };
    // Not zipped, since what makes pairs is not inlined here.
    while let (Some(below), Some(next)) = (now.next(), next.next()) {
        step_row::<S, IS_PAST>(simd, stores, one, [above, here, below], next);
        (above, here) = (here, below);
    }
}

/// Computes a row in the widest vectors that fit it.
// Everything below is `inline(always)`: only code that lands inside the function that `dispatch!` makes for an
// instruction set is compiled for it.
#[inline(always)]
fn step_row<S: Simd, const IS_PAST: bool>(
    simd: S,
    stores: PastCaches<'_>,
    one: u8,
    now: [&[u8]; 3],
    next: &mut [u8],
) {
    let cells = next.len();
    for row in now {
        assert_eq!(row.len(), cells + 2, "a row to read has one ghost cell on either side");
    }
    match S::u8s::LEN {
        _ if cells < 16 => step_cells(now, next),
        32 if cells >= 32 => step_wide::<S, 32, IS_PAST>(simd, stores, one, now, next),
        64 if cells >= 64 => step_wide::<S, 64, IS_PAST>(simd, stores, one, now, next),
        _ => step_vectors::<S, u8x16<S>, 16, IS_PAST>(simd, one, now, next),
    }
}

/// Computes a row in vectors of all cells that the processor takes at once, `L` of them.
#[inline(always)]
fn step_wide<S: Simd, const L: usize, const IS_PAST: bool>(
    simd: S,
    stores: PastCaches<'_>,
    one: u8,
    now: [&[u8]; 3],
    next: &mut [u8],
) {
    match if IS_PAST { stores.row(next, L) } else { Err(next) } {
        Ok(next) => step_vectors::<S, S::u8s, L, IS_PAST>(simd, one, now, next),
        Err(next) => step_vectors::<S, S::u8s, L, IS_PAST>(simd, one, now, next),
    }
}

/// Computes a row in vectors of `L` cells, of which it has at least one.
#[inline(always)]
fn step_vectors<S: Simd, V: SimdInt<S, Element = u8>, const L: usize, const IS_PAST: bool>(
    simd: S,
    one: u8,
    now: [&[u8]; 3],
    mut next: impl OutputRow<u8, L>,
) {
    let (cells, one) = (next.cells(), V::splat(simd, one));
    // Exactly as many vectors of each, so that no bounds are left to compare.
    let last = cells / L - 1;
    let [above, here, below] = now.map(|row| &row[1 + L..].as_chunks::<L>().0[..last]);
    let ahead_bytes = if IS_PAST { PAST_AHEAD_BYTES } else { AHEAD_BYTES };
    let mut left = Columns::<S, V>::at(simd, now, 0).all();
    let mut own = Columns::at(simd, now, 1);
    for index in 0..last {
        // Narrower ones are many for a line, and have not been measured.
        if L > 16 {
            ask_for_line(&below[index], ahead_bytes);
            next.ask_for(index, ahead_bytes);
        }
        let behind = Columns::of(simd, [&above[index], &here[index], &below[index]]);
        let (all, all_behind) = (own.all(), behind.all());
        next.store(index, &own.alive_next(simd, one, left, one_to_the_right(all, all_behind)));
        (left, own) = (one_to_the_left(all, all_behind), behind);
    }
    let right = Columns::at(simd, now, last * L + 2).all();
    next.store(last, &own.alive_next(simd, one, left, right));
    // The last vector is moved back to end with the row. It computes some cells a second time, from inputs that have not
    // changed, instead of leaving a remainder to a slower loop.
    if !cells.is_multiple_of(L) {
        let x = cells - L;
        let [left, own, right] =
            [Columns::at(simd, now, x), Columns::at(simd, now, x + 1), Columns::at(simd, now, x + 2)];
        next.store_last(&own.alive_next(simd, one, left.all(), right.all()));
    }
}

/// Of a vector of columns of three cells: the one in the middle, and how many of those above and below live.
struct Columns<S: Simd, V: SimdInt<S, Element = u8>> {
    here: V,
    beside: V,
    of: PhantomData<S>,
}

impl<S: Simd, V: SimdInt<S, Element = u8>> Columns<S, V> {
    #[inline(always)]
    fn of(simd: S, [above, here, below]: [&[u8]; 3]) -> Self {
        let beside = V::from_slice(simd, above) + V::from_slice(simd, below);
        Self { here: V::from_slice(simd, here), beside, of: PhantomData }
    }

    /// Those from `x` on. Column 0 is the one to the left of the first cell.
    #[inline(always)]
    fn at(simd: S, [above, here, below]: [&[u8]; 3], x: usize) -> Self {
        Self::of(simd, [&above[x..x + V::LEN], &here[x..x + V::LEN], &below[x..x + V::LEN]])
    }

    /// How many live of each column.
    #[inline(always)]
    fn all(&self) -> V {
        self.here + self.beside
    }

    /// Which cells live next, given how many live of the columns to their left and right, and what a live cell is.
    #[inline(always)]
    fn alive_next<const L: usize>(&self, simd: S, one: V, left: V, right: V) -> [u8; L] {
        let around = left + self.beside + right;
        array((around | self.here).simd_eq(V::splat(simd, 3)).select(one, V::splat(simd, 0)))
    }
}

/// Computes a row that is narrower than any vector.
#[inline(always)]
fn step_cells(now: [&[u8]; 3], next: &mut [u8]) {
    for (x, cell) in next.iter_mut().enumerate() {
        let (here, all) = (now[1][x + 1], now.iter().flat_map(|row| &row[x..x + 3]).sum::<u8>());
        *cell = u8::from((all - here) | here == 3);
    }
}
