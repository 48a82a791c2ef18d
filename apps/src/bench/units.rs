//! What one core takes at least for the instructions of a kernel, measured.
//!
//! Loads and stores go through memory that the first-level cache holds; what computes works on registers, in
//! independent chains, with as many instructions of each kind as the kernel needs for one vector of cells. Vectors
//! are as wide as the processor has. So each time is a bound from below.

use std::hint::black_box;

use fearless_simd::{Level, Simd, dispatch, prelude::*};

use crate::app::Vectors;

/// Independent chains of instructions.
const CHAINS: usize = 8;

/// Of the memory that loads and stores go through: well within the first-level cache.
const BYTES: usize = 8 << 10;

/// Elements of a vector.
pub(crate) fn lanes<T: Vectors>() -> usize {
    dispatch!(Level::new(), simd => lanes_at::<_, T>(simd))
}

#[inline(always)]
fn lanes_at<S: Simd, T: Vectors>(_simd: S) -> usize {
    T::Vector::<S>::LEN
}

/// Memory for [`load`] and [`store`].
pub(crate) fn memory<T: Vectors>() -> Vec<T> {
    vec![T::default(); BYTES / size_of::<T>()]
}

/// Loads vectors from rows of which each starts two elements later in its cache line, as those of a grid do.
/// Gives how many.
pub(crate) fn load<T: Vectors>(rounds: usize, memory: &[T]) -> usize {
    dispatch!(Level::new(), simd => load_at(simd, rounds, memory))
}

#[inline(always)]
fn load_at<S: Simd, T: Vectors>(simd: S, rounds: usize, memory: &[T]) -> usize {
    let lanes = T::Vector::<S>::LEN;
    let mut sums = [T::Vector::<S>::splat(simd, T::default()); CHAINS];
    let mut loads = 0;
    for _ in 0..rounds {
        for row in black_box(memory).chunks_exact(CHAINS * lanes + 2) {
            for chain in 0..CHAINS {
                let loaded = T::Vector::<S>::from_slice(simd, &row[chain * lanes..][..lanes]);
                sums[chain] += loaded;
            }
            loads += CHAINS;
        }
    }
    black_box(sums);
    loads
}

/// Stores vectors to such rows. Gives how many.
pub(crate) fn store<T: Vectors>(rounds: usize, memory: &mut [T]) -> usize {
    dispatch!(Level::new(), simd => store_at(simd, rounds, memory))
}

#[inline(always)]
fn store_at<S: Simd, T: Vectors>(simd: S, rounds: usize, memory: &mut [T]) -> usize {
    let lanes = T::Vector::<S>::LEN;
    let value = T::Vector::<S>::splat(simd, black_box(T::default()));
    let mut stores = 0;
    for _ in 0..rounds {
        for row in black_box(&mut *memory).chunks_exact_mut(CHAINS * lanes + 2) {
            for chain in 0..CHAINS {
                value.store_slice(&mut row[chain * lanes..][..lanes]);
            }
            stores += CHAINS;
        }
    }
    stores
}

/// Computes as for so many vectors of cells: `ADDITIONS`, `PRODUCTS`, `CUTS` of one vector out of two, and
/// `CHOICES`, each of which is two comparisons, their union, and what it selects. Gives for how many.
pub(crate) fn compute<
    T,
    const ADDITIONS: usize,
    const PRODUCTS: usize,
    const CUTS: usize,
    const CHOICES: usize,
>(
    rounds: usize,
) -> usize
where
    T: Vectors + From<u8>,
{
    dispatch!(Level::new(), simd => compute_at::<_, T, ADDITIONS, PRODUCTS, CUTS, CHOICES>(simd, rounds))
}

#[inline(always)]
fn compute_at<
    S: Simd,
    T: Vectors + From<u8>,
    const ADDITIONS: usize,
    const PRODUCTS: usize,
    const CUTS: usize,
    const CHOICES: usize,
>(
    simd: S,
    rounds: usize,
) -> usize {
    let [zero, one] = black_box([0, 1].map(|value| T::Vector::<S>::splat(simd, T::from(value))));
    let mut chains = black_box([[one; 2]; CHAINS]);
    for _ in 0..rounds {
        for pair in &mut chains {
            // One kind after the other, so that no two of a kind can be taken together.
            for step in 0..ADDITIONS.max(PRODUCTS).max(CUTS) {
                let value = &mut pair[step % 2];
                if step < ADDITIONS {
                    // Nor of bytes, whose additions can: the greater of two takes as long as their sum.
                    let is_max = size_of::<T>() == 1 && step % 4 >= 2;
                    *value = if is_max { value.max(one) } else { *value + zero };
                }
                if step < PRODUCTS {
                    *value *= one;
                }
                if step < CUTS {
                    *value = value.slide::<1>(one);
                }
            }
            for _ in 0..CHOICES {
                pair[0] = (pair[0].simd_eq(zero) | pair[1].simd_eq(one)).select(one, pair[0]);
            }
        }
    }
    black_box(chains);
    CHAINS * rounds
}
