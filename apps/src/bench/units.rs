//! What one core takes at least for the instructions of a kernel, measured.
//!
//! Loads and stores go through memory that the first-level cache holds, and what is loaded is added up; what computes
//! works on registers, in independent chains, with as many instructions of each kind as the kernel needs for one
//! vector of cells. Vectors are as wide as the processor has. So each time is a bound from below.

use std::hint::black_box;

use fearless_simd::{Level, Simd, dispatch, prelude::*};
use streamhalo::comm::device::{PastCaches, ask_for_line};

use crate::app::values::Real;
use crate::app::{LINE_BYTES, Vectors};

/// Independent chains of instructions.
const CHAINS: usize = 8;

/// Of a row that loads and stores go through: several lines of the caches, so that little is left of what rows begin with.
const ROW_BYTES: usize = 8 * LINE_BYTES;

/// How far ahead a copy asks for lines.
const AHEAD_BYTES: usize = 4096;

/// Elements of a vector.
pub(crate) fn lanes<T: Vectors>() -> usize {
    dispatch!(Level::new(), simd => lanes_at::<_, T>(simd))
}

#[inline(always)]
fn lanes_at<S: Simd, T: Vectors>(_simd: S) -> usize {
    T::Vector::<S>::LEN
}

/// Loads `LOADS` vectors for every `STORES` that it stores, from and to rows of which each begins with a line of the caches,
/// as long ones of a grid do. Gives how many it has stored.
pub(crate) fn load_and_store<T: Vectors, const LOADS: usize, const STORES: usize>(rounds: usize) -> usize {
    let cells = (LOADS + STORES) * ROW_BYTES / size_of::<T>();
    let mut memory = vec![T::default(); cells + LINE_BYTES];
    let start = memory.as_ptr().align_offset(LINE_BYTES);
    let rows = &mut memory[start..][..cells];
    dispatch!(Level::new(), simd => load_and_store_at::<_, T, LOADS, STORES>(simd, rounds, rows))
}

#[inline(always)]
fn load_and_store_at<S: Simd, T: Vectors, const LOADS: usize, const STORES: usize>(
    simd: S,
    rounds: usize,
    rows: &mut [T],
) -> usize {
    let lanes = T::Vector::<S>::LEN;
    let width = ROW_BYTES / size_of::<T>();
    let mut stores = 0;
    for _ in 0..rounds {
        let (from, to) = black_box(&mut *rows).split_at_mut(LOADS * width);
        for x in (0..width).step_by(lanes) {
            let mut sums = [T::Vector::<S>::from_slice(simd, &from[x..x + lanes]); STORES];
            for row in 1..LOADS {
                sums[row % STORES] += T::Vector::<S>::from_slice(simd, &from[row * width + x..][..lanes]);
            }
            for (row, sum) in sums.iter().enumerate() {
                sum.store_slice(&mut to[row * width + x..][..lanes]);
            }
            stores += STORES;
        }
    }
    stores
}

/// Copies a row in vectors, as a kernel loads and stores it, and asks for lines [`AHEAD_BYTES`] ahead.
pub(crate) fn copy_row<T: Vectors>(from: &[T], to: &mut [T]) {
    dispatch!(Level::new(), simd => copy_row_at::<_, T>(simd, from, to));
}

#[inline(always)]
fn copy_row_at<S: Simd, T: Vectors>(simd: S, from: &[T], to: &mut [T]) {
    let lanes = T::Vector::<S>::LEN;
    let from = &from[..to.len()];
    let whole = to.len() - to.len() % lanes;
    for x in (0..whole).step_by(lanes) {
        ask_for_line(&from[x], AHEAD_BYTES);
        ask_for_line(&to[x], AHEAD_BYTES);
        T::Vector::<S>::from_slice(simd, &from[x..x + lanes]).store_slice(&mut to[x..x + lanes]);
    }
    to[whole..].copy_from_slice(&from[whole..]);
}

/// The same, but what is written goes past the caches if the row begins with a vector; otherwise as the C library copies.
pub(crate) fn copy_row_past<T: Vectors>(stores: PastCaches<'_>, from: &[T], to: &mut [T]) {
    dispatch!(Level::new(), simd => copy_row_past_at::<_, T>(simd, stores, from, to));
}

#[inline(always)]
fn copy_row_past_at<S: Simd, T: Vectors>(_simd: S, stores: PastCaches<'_>, from: &[T], to: &mut [T]) {
    let lanes = T::Vector::<S>::LEN;
    let from = &from[..to.len()];
    let whole = to.len() - to.len() % lanes;
    match stores.row(to, lanes) {
        Ok(mut to) => {
            for x in (0..whole).step_by(lanes) {
                ask_for_line(&from[x], AHEAD_BYTES);
                to.store(x, &from[x..x + lanes]);
            }
            to.store_end(&from[whole..]);
        }
        Err(to) => to.copy_from_slice(from),
    }
}

/// Computes as for so many vectors of cells: `ADDITIONS`, `PRODUCTS`, `FUSED` of one with the other, and `CUTS` of one
/// vector out of two. Gives for how many.
pub(crate) fn compute<
    T: Real,
    const ADDITIONS: usize,
    const PRODUCTS: usize,
    const FUSED: usize,
    const CUTS: usize,
>(
    rounds: usize,
) -> usize {
    dispatch!(Level::new(), simd => compute_at::<_, T, ADDITIONS, PRODUCTS, FUSED, CUTS>(simd, rounds))
}

#[inline(always)]
fn compute_at<
    S: Simd,
    T: Real,
    const ADDITIONS: usize,
    const PRODUCTS: usize,
    const FUSED: usize,
    const CUTS: usize,
>(
    simd: S,
    rounds: usize,
) -> usize {
    let [zero, one] = black_box([0, 1].map(|value: u8| T::Widest::<S>::splat(simd, T::from(value))));
    let mut chains = black_box([[one; 2]; CHAINS]);
    for _ in 0..rounds {
        // One kind after the other, so that no two of a kind can be taken together; and those of a kind of all chains, so that
        // none waits for what it has just computed.
        for step in 0..ADDITIONS.max(PRODUCTS).max(FUSED).max(CUTS) {
            for pair in &mut chains {
                let [value, other] = [step % 2, 1 - step % 2];
                if step < ADDITIONS {
                    pair[value] += zero;
                }
                if step < FUSED {
                    pair[other] = pair[other].mul_add_precise(one, zero);
                }
                if step < PRODUCTS {
                    pair[value] *= one;
                }
                if step < CUTS {
                    pair[other] = pair[other].slide::<1>(one);
                }
            }
        }
    }
    black_box(chains);
    CHAINS * rounds
}

/// Chooses as for so many vectors of cells, each by a comparison and what it selects. Gives for how many.
pub(crate) fn choose<T: Vectors + From<u8>>(rounds: usize) -> usize {
    dispatch!(Level::new(), simd => choose_at::<_, T>(simd, rounds))
}

#[inline(always)]
fn choose_at<S: Simd, T: Vectors + From<u8>>(simd: S, rounds: usize) -> usize {
    let one = black_box(T::Vector::<S>::splat(simd, T::from(1)));
    let mut chains = black_box([[one; 2]; CHAINS]);
    for _ in 0..rounds {
        for [chosen, from] in &mut chains {
            *chosen = from.simd_eq(one).select(one, *chosen);
        }
    }
    black_box(chains);
    CHAINS * rounds
}

#[cfg(test)]
mod tests {
    use streamhalo::comm::device::past_caches;

    use super::*;

    /// A limit is no limit if something is left out: rows of every length around those of vectors, that begin with a line and
    /// behind one.
    #[test]
    fn every_way_copies_the_whole_row() {
        for (start, cells) in (0..2).flat_map(|start| (0..70).map(move |cells| (start, cells))) {
            let from: Vec<f32> = (1..=cells as u16).map(f32::from).collect();
            for is_past in [false, true] {
                let mut memory = [0.0_f32; 100];
                let start = memory.as_ptr().align_offset(LINE_BYTES) + start;
                let to = &mut memory[start..][..cells];
                match is_past {
                    true => past_caches(|stores| copy_row_past(stores, &from, to)),
                    false => copy_row(&from, to),
                }
                assert_eq!(to, from, "{cells} cells from {start} on, {is_past}");
                assert_eq!(memory.iter().filter(|cell| **cell != 0.0).count(), cells);
            }
        }
    }
}
