//! One generation of Life with a bit for each cell, where vectors side by side become one: a slice.
//!
//! Bit `j` of each element of a slice says which cells live of the `j`-th vector, so that cells become bits, and come of them,
//! without going from one element to another: a vector takes one or two operations there, and two back. What is beside a
//! cell is in the element beside it or, at the end of a vector, in the next bit of the element at the other end. The
//! rule takes as many operations for a slice as for a vector of words (`wave`): of as many cells if they are bytes, but of a
//! quarter of them if they are doubles.
//!
//! What is known of the rows above stays in registers where a row is one slice. The last slice of a row is moved back to
//! end with it: some cells are computed twice, from inputs that have not changed.

// Iterators need not be inlined into what `dispatch!` makes for an instruction set; loops that count are there.
#![allow(clippy::needless_range_loop)]

use fearless_simd::{Level, Simd, dispatch, prelude::*};
use streamhalo::comm::device::{PastCaches, past_caches};

use super::kernel::Task;
use super::rule::{Known, Sums, alive_next};
use super::wave::{NEAR_BYTES, room};
use super::words::ask_for_lines;
use crate::app::{LINE_BYTES, OutputRow, Vectors, array, one_to_the_left, one_to_the_right};

/// How far behind those that are read next lines are asked for where no cache holds both generations. Within the caches some
/// sizes gain by it and others lose.
const PAST_AHEAD_BYTES: usize = 8 << 10;

/// Slices of a row of which what is known is not allocated, which takes a sixth of the time of 12 rows of 1024 bytes.
const FEW: usize = 4;

/// Vectors of a slice at most.
const MOST_VECTORS: usize = 16;

/// Cells of which vectors side by side can be one.
pub(crate) trait Sliced: Vectors {
    /// Vectors of a slice.
    const VECTORS: usize;

    /// Of both generations, above which another way is as fast or faster.
    const MOST_BYTES: usize;

    /// From the cells of a slice, with one more on either side: what is to the left of each, these, and what is to the right.
    fn slice<S: Simd>(simd: S, row: &[Self]) -> [S::u64s; 3];

    /// The cells of the `index`-th vector of a slice.
    fn cells<S: Simd>(simd: S, slice: S::u64s, index: usize) -> Self::Vector<S>;
}

// Everything below is `inline(always)`: only code that lands inside the function that `dispatch!` makes for an
// instruction set is compiled for it.
impl Sliced for u8 {
    const VECTORS: usize = 8;
    const MOST_BYTES: usize = usize::MAX;

    #[inline(always)]
    fn slice<S: Simd>(simd: S, row: &[u8]) -> [S::u64s; 3] {
        let mut here = S::u64s::splat(simd, 0);
        for index in 0..Self::VECTORS {
            let cells = S::u8s::from_slice(simd, &row[1 + index * S::u8s::LEN..][..S::u8s::LEN]);
            here |= cells.bitcast::<S::u64s>() << index as u32;
        }
        let bytes = here.bitcast::<S::u8s>();
        // Of these only the last and the first byte matter.
        let before = (bytes + bytes) | S::u8s::splat(simd, row[0]);
        let behind = (bytes >> 1) | S::u8s::splat(simd, row[row.len() - 1] << 7);
        [one_to_the_left(before, bytes).bitcast(), here, one_to_the_right(bytes, behind).bitcast()]
    }

    #[inline(always)]
    fn cells<S: Simd>(simd: S, slice: S::u64s, index: usize) -> S::u8s {
        ((slice >> index as u32) & S::u64s::splat(simd, u64::from_ne_bytes([1; 8]))).bitcast()
    }
}

/// Bits 52 to 61 of 1.0 are set. So of each half of the vectors eight take one of them each, and what is beside the first cell
/// and the last one takes the bit in front and the one behind.
impl Sliced for f64 {
    const VECTORS: usize = 16;
    const MOST_BYTES: usize = NEAR_BYTES;

    #[inline(always)]
    fn slice<S: Simd>(simd: S, row: &[f64]) -> [S::u64s; 3] {
        let half = Self::VECTORS / 2;
        let one_of = |bit: usize| 1 << (52 + bit);
        let mut low = S::f64s::splat(simd, row[0]).bitcast::<S::u64s>() & S::u64s::splat(simd, one_of(0));
        let mut high = S::f64s::splat(simd, row[row.len() - 1]).bitcast::<S::u64s>()
            & S::u64s::splat(simd, one_of(half + 1));
        for index in 0..half {
            let bit = S::u64s::splat(simd, one_of(1 + index));
            let cells = S::f64s::from_slice(simd, &row[1 + index * S::f64s::LEN..][..S::f64s::LEN]);
            low |= cells.bitcast::<S::u64s>() & bit;
            let cells = S::f64s::from_slice(simd, &row[1 + (half + index) * S::f64s::LEN..][..S::f64s::LEN]);
            high |= cells.bitcast::<S::u64s>() & bit;
        }
        let here = high | (low >> half as u32);
        [one_to_the_left(here << 1, here), here, one_to_the_right(here, here >> 1)]
    }

    #[inline(always)]
    fn cells<S: Simd>(simd: S, slice: S::u64s, index: usize) -> S::f64s {
        let bit = S::u64s::splat(simd, 1 << (53 - Self::VECTORS / 2 + index));
        let dead = (slice & bit).simd_eq(S::u64s::splat(simd, 0));
        dead.select(S::f64s::splat(simd, 0.0), S::f64s::splat(simd, 1.0))
    }
}

/// Whether slices are the fastest way for so many rows and columns: of vectors as long as a line, if they overlap little.
/// With AVX2 bytes take as long in other ways, and doubles less.
pub(super) fn suit<T: Sliced>(level: Level, [rows, columns]: [usize; 2]) -> bool {
    let cells = dispatch!(level, simd => cells_of::<_, T>(simd));
    cells * size_of::<T>() == T::VECTORS * LINE_BYTES
        && cells <= columns
        && columns.next_multiple_of(cells) - columns <= columns / 4
        && 2 * rows * columns * size_of::<T>() <= T::MOST_BYTES
}

/// How many cells a slice has.
#[inline(always)]
pub(super) fn cells_of<S: Simd, T: Sliced>(_: S) -> usize {
    T::VECTORS * T::Vector::<S>::LEN
}

/// Computes one generation of rows that have a slice at least.
pub(super) fn step<'r, T: Sliced>(
    task: Task<impl Iterator<Item = &'r [T]>, impl Iterator<Item = &'r mut [T]>>,
) {
    let Task { level, is_past, extents, now, next } = task;
    past_caches(|stores| {
        let stores = is_past.then_some(stores);
        dispatch!(level, simd => step_in_vectors(simd, stores, extents[1], now, next));
    });
}

#[inline(always)]
fn step_in_vectors<'r, S: Simd, T: Sliced>(
    simd: S,
    stores: Option<PastCaches<'_>>,
    columns: usize,
    now: impl Iterator<Item = &'r [T]>,
    next: impl Iterator<Item = &'r mut [T]>,
) {
    match T::Vector::<S>::LEN {
        2 => step_rows::<S, T, 2>(simd, stores, columns, now, next),
        4 => step_rows::<S, T, 4>(simd, stores, columns, now, next),
        8 => step_rows::<S, T, 8>(simd, stores, columns, now, next),
        16 => step_rows::<S, T, 16>(simd, stores, columns, now, next),
        32 => step_rows::<S, T, 32>(simd, stores, columns, now, next),
        64 => step_rows::<S, T, 64>(simd, stores, columns, now, next),
        _ => unreachable!("vectors have 2 to 64 cells"),
    }
}

/// In vectors of `L` cells.
#[inline(always)]
fn step_rows<'r, S: Simd, T: Sliced, const L: usize>(
    simd: S,
    stores: Option<PastCaches<'_>>,
    columns: usize,
    mut now: impl Iterator<Item = &'r [T]>,
    next: impl Iterator<Item = &'r mut [T]>,
) {
    let (Some(above), Some(here)) = (now.next(), now.next()) else { return };
    let slices = columns.div_ceil(T::VECTORS * L);
    for row in [above, here] {
        assert_eq!(row.len(), columns + 2, "a row to read has one ghost cell on either side");
    }
    let first = known_of::<S, T, L>(simd, [above, here], 0);
    if slices == 1 {
        return step_known::<S, T, L>(simd, stores, columns, &mut [first], now, next);
    }
    let (mut few, mut many) = ([first; FEW], Vec::new());
    let known = room(slices, &mut few, &mut many, first);
    for slice in 1..slices {
        known[slice] = known_of::<S, T, L>(simd, [above, here], slice);
    }
    step_known::<S, T, L>(simd, stores, columns, known, now, next);
}

/// Where a slice of so many columns starts.
#[inline(always)]
fn start_of<T: Sliced, const L: usize>(slice: usize, columns: usize) -> usize {
    let cells = T::VECTORS * L;
    (slice * cells).min(columns - cells)
}

/// What a slice has of two rows.
#[inline(always)]
fn known_of<S: Simd, T: Sliced, const L: usize>(simd: S, [above, here]: [&[T]; 2], slice: usize) -> Known<S> {
    let start = start_of::<T, L>(slice, above.len() - 2);
    let above = T::slice(simd, &above[start..][..T::VECTORS * L + 2]);
    let here = T::slice(simd, &here[start..][..T::VECTORS * L + 2]);
    Known { above: Sums::of(above), here: Sums::of(here), cells: here[1] }
}

/// The rows behind those of which that is known.
#[inline(always)]
fn step_known<'r, S: Simd, T: Sliced, const L: usize>(
    simd: S,
    stores: Option<PastCaches<'_>>,
    columns: usize,
    known: &mut [Known<S>],
    mut now: impl Iterator<Item = &'r [T]>,
    mut next: impl Iterator<Item = &'r mut [T]>,
) {
    // Not zipped, since what makes pairs is not inlined here.
    while let (Some(below), Some(next)) = (now.next(), next.next()) {
        assert_eq!(next.len(), columns, "rows of the next generation have one length");
        assert_eq!(below.len(), columns + 2, "a row to read has one ghost cell on either side");
        for slice in 0..known.len() {
            let start = start_of::<T, L>(slice, columns);
            // Of a slice that is moved back.
            let stored_cells = slice * T::VECTORS * L - start;
            let below = &below[start..][..T::VECTORS * L + 2];
            let next = &mut next[start..][..T::VECTORS * L];
            let past = match stores {
                Some(stores) => {
                    ask_for_lines(&below[1..=T::VECTORS * L], PAST_AHEAD_BYTES);
                    stores.row(next, L)
                }
                None => Err(next),
            };
            match past {
                Ok(next) => step_slice::<S, T, L>(simd, &mut known[slice], below, next),
                Err(next) => match stores {
                    Some(stores) if stored_cells > 0 => {
                        let next = &mut next[stored_cells..];
                        step_end::<S, T, L>(simd, stores, &mut known[slice], below, next);
                    }
                    _ => step_slice::<S, T, L>(simd, &mut known[slice], below, next),
                },
            }
        }
    }
}

/// The last slice of a row, moved back to where no vector of what is stored begins: of its cells those that no slice
/// before has stored.
#[inline(always)]
fn step_end<S: Simd, T: Sliced, const L: usize>(
    simd: S,
    stores: PastCaches<'_>,
    known: &mut Known<S>,
    below: &[T],
    next: &mut [T],
) {
    let mut cells = [[T::default(); L]; MOST_VECTORS];
    let cells = cells[..T::VECTORS].as_flattened_mut();
    step_slice::<S, T, L>(simd, known, below, &mut *cells);
    let cells = &cells[cells.len() - next.len()..];
    match stores.row(next, L) {
        Ok(mut next) => next.store_end(cells),
        Err(next) => next.copy_from_slice(cells),
    }
}

#[inline(always)]
fn step_slice<S: Simd, T: Sliced, const L: usize>(
    simd: S,
    known: &mut Known<S>,
    below: &[T],
    mut next: impl OutputRow<T, L>,
) {
    let slice = T::slice(simd, below);
    let below = Sums::of(slice);
    let Known { above, here, cells } = *known;
    let alive = alive_next(above, (here, cells), below);
    for index in 0..T::VECTORS {
        next.store(index, &array(T::cells(simd, alive, index)));
    }
    *known = Known { above: here, here: below, cells: slice[1] };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::levels;

    #[test]
    fn suit_vectors_as_long_as_a_line_that_overlap_little() {
        for level in levels() {
            let is_long = dispatch!(level, simd => cells_of::<_, u8>(simd)) == 8 * LINE_BYTES;
            for (columns, are_few) in [(511, false), (512, true), (819, false), (820, true), (1024, true)] {
                assert_eq!(suit::<u8>(level, [1 << 20, columns]), is_long && are_few, "{level:?}, {columns}");
            }
            for (rows, columns, are_few) in [(9, 127, false), (512, 128, true), (513, 128, false)] {
                assert_eq!(
                    suit::<f64>(level, [rows, columns]),
                    is_long && are_few,
                    "{level:?}, {rows}, {columns}"
                );
            }
        }
    }
}
