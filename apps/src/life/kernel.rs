//! One generation of Life on rows of `u8` cells, in byte lanes as wide as the CPU has.
//!
//! Equation: `next = 1` if `(n | here) = 3`, else 0, where `n` is the number of live neighbours.
//! With `n = 3` the value is 3 whatever `here` is; with `n = 2` only if `here = 1`; no other `n`
//! gives 3. And `n = h(above) + h(here) + h(below) - here`, where `h` is the sum of three cells side
//! by side in one row.
//!
//! A row's `h` serves three rows of the next generation, so a block of rows is advanced together and
//! `h` stays in registers on the way down. With blocks of three, five rows are read for three
//! written: 46 instructions, 15 of them loads and 3 stores, for three vectors (64 cells each with
//! AVX-512, 32 with AVX2), where the plain nine-point form has 9 loads for one.
//!
//! What limits it (one Zen 4 core, AVX-512): in cache the loads, of which nearly all straddle two
//! lines because rows of width + 2 start anywhere, so 30 lines are touched per 192 cells; 21 Gcells/s
//! at 1024 x 1024. Beyond the caches memory, with one byte read, one fetched to be overwritten and
//! one written back per cell; 10 Gcells/s at 4096 x 4096.
//!
//! Blocks of three are a compromise. Every further row saves loads, but rows of a grid whose width is
//! near a power of two fall into the same few sets of the first-level cache: blocks of four keep ten
//! rows in flight against eight ways, and are slower by 1.3 times at 4096 x 4096.

use fearless_simd::{Level, dispatch, prelude::*, u8x16};

/// Rows that one sweep along x advances together.
const BLOCK_ROWS: usize = 3;

/// Computes one row of the next generation.
///
/// The three rows of the present generation have one ghost cell on either side, so each is two cells
/// longer than `next`. Cells are 0 or 1. For many rows [`step_rows`] is about twice as fast.
///
/// # Panics
///
/// If a row has another length.
pub fn step_row(above: &[u8], here: &[u8], below: &[u8], next: &mut [u8]) {
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
pub fn step_rows<'now, 'next>(
    now: impl Fn(usize) -> &'now [u8],
    next: impl IntoIterator<Item = &'next mut [u8]>,
) {
    step_rows_at(Level::new(), now, next);
}

/// [`step_rows`] with an instruction set of the caller's choice, so that tests reach all of them.
pub(super) fn step_rows_at<'now, 'next>(
    level: Level,
    now: impl Fn(usize) -> &'now [u8],
    next: impl IntoIterator<Item = &'next mut [u8]>,
) {
    let mut next = next.into_iter().fuse();
    dispatch!(level, simd => {
        let mut y = 0;
        while let Some(first) = next.next() {
            match (next.next(), next.next()) {
                (Some(second), Some(third)) => step_block::<_, BLOCK_ROWS, { BLOCK_ROWS + 2 }>(
                    simd,
                    [now(y), now(y + 1), now(y + 2), now(y + 3), now(y + 4)],
                    [first, second, third],
                ),
                (Some(second), None) => step_block::<_, 2, 4>(
                    simd,
                    [now(y), now(y + 1), now(y + 2), now(y + 3)],
                    [first, second],
                ),
                _ => step_block::<_, 1, 3>(simd, [now(y), now(y + 1), now(y + 2)], [first]),
            }
            y += BLOCK_ROWS;
        }
    });
}

/// Advances one block of rows in the widest lanes that fit it.
// Everything below is `inline(always)`: only code that lands inside the function that `dispatch!`
// makes for an instruction set is compiled for it.
#[inline(always)]
fn step_block<S: Simd, const ROWS: usize, const INPUTS: usize>(
    simd: S,
    now: [&[u8]; INPUTS],
    next: [&mut [u8]; ROWS],
) {
    const { assert!(INPUTS == ROWS + 2) };
    let columns = next[0].len();
    for row in &next {
        assert_eq!(row.len(), columns, "rows of the next generation have one length");
    }
    for row in now {
        assert_eq!(row.len(), columns + 2, "a row to read has one ghost cell on either side");
    }
    if columns >= S::u8s::LEN {
        step_lanes::<S, S::u8s, ROWS, INPUTS>(simd, now, next);
    } else if columns >= u8x16::<S>::LEN {
        step_lanes::<S, u8x16<S>, ROWS, INPUTS>(simd, now, next);
    } else {
        step_cells(now, next);
    }
}

/// Advances one block of rows of at least `V::LEN` columns.
#[inline(always)]
fn step_lanes<S: Simd, V: SimdInt<S, Element = u8>, const ROWS: usize, const INPUTS: usize>(
    simd: S,
    now: [&[u8]; INPUTS],
    next: [&mut [u8]; ROWS],
) {
    let columns = next[0].len();
    let (zero, one, three) = (V::splat(simd, 0), V::splat(simd, 1), V::splat(simd, 3));
    for start in (0..columns).step_by(V::LEN) {
        // The last vector is moved back to end with the row. It computes some cells a second time,
        // from inputs that have not changed, instead of leaving a remainder to a slower loop.
        let x = start.min(columns - V::LEN);
        let (mut above, _) = triples::<S, V>(simd, now[0], x);
        let (mut here, mut centre) = triples::<S, V>(simd, now[1], x);
        for row in 0..ROWS {
            let (below, centre_below) = triples::<S, V>(simd, now[row + 2], x);
            let neighbours = above + here + below - centre;
            let alive = (neighbours | centre).simd_eq(three);
            alive.select(one, zero).store_slice(&mut next[row][x..x + V::LEN]);
            (above, here, centre) = (here, below, centre_below);
        }
    }
}

/// The sums of three cells side by side around each of the columns `x..x + V::LEN`, and these cells.
#[inline(always)]
fn triples<S: Simd, V: SimdInt<S, Element = u8>>(simd: S, row: &[u8], x: usize) -> (V, V) {
    // One slice of all that is read leaves one bounds check for three loads.
    let window = &row[x..x + V::LEN + 2];
    let centre = V::from_slice(simd, &window[1..][..V::LEN]);
    let left = V::from_slice(simd, &window[..V::LEN]);
    let right = V::from_slice(simd, &window[2..][..V::LEN]);
    (left + right + centre, centre)
}

/// Advances one block of rows that are narrower than any vector.
#[inline(always)]
fn step_cells<const ROWS: usize, const INPUTS: usize>(now: [&[u8]; INPUTS], next: [&mut [u8]; ROWS]) {
    for (y, row) in next.into_iter().enumerate() {
        for (x, cell) in row.iter_mut().enumerate() {
            let around: u8 = now[y..y + 3].iter().flat_map(|row| &row[x..x + 3]).sum();
            let here = now[y + 1][x + 1];
            *cell = u8::from(((around - here) | here) == 3);
        }
    }
}
