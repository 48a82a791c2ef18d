//! Rows of a few whole vectors, each as long as a line, as strong scaling leaves them.
//!
//! What is needed of a row stays in registers from where it is the next one along y to where it is the one before: a row is
//! loaded once, 27 points add up its sums along z once, and little is left of what a row begins and ends with.

// As in `row`.
#![allow(clippy::needless_range_loop)]

use std::ops::Range;

use fearless_simd::{Simd, prelude::*};

use super::full::{around, ends, full, full_values};
use super::kernel::{Shape, Task};
use super::problem::Weights;
use super::row::{splat, star};
use crate::app::values::Real;
use crate::app::{OutputRow, array, one_to_the_left, one_to_the_right};

/// The same row of three planes, by z, with one cell more on either side.
type Rows3<'r, T> = ((&'r [T], &'r [T]), &'r [T]);

// Everything is `inline(always)`, and there are no closures: see `kernel`.
impl<T: Real> Task<'_, T> {
    /// Computes 7 points of the rows `ys` of plane `z`, which have `B` vectors, to `out`.
    #[inline(always)]
    pub(super) fn short_star<'o, S: Simd, const L: usize, const B: usize>(
        &self,
        simd: S,
        z: usize,
        ys: Range<usize>,
        out: impl Iterator<Item = &'o mut [T]>,
    ) {
        let Common { weights, shape, source, at_z } = self.common::<S, L, B>(simd, z);
        let [low, here, high] = self.planes(z, &ys);
        let mut rows = low.each().zip(here.each()).zip(high.each());
        let (Some(first), Some(mut own_rows)) = (rows.next(), rows.next()) else { return };
        let mut before = load::<S, T, L, B>(simd, first.0.1);
        let mut own = load::<S, T, L, B>(simd, own_rows.0.1);
        for ((next_rows, mut out), along_y) in rows.zip(out).zip(&self.shape.0[1][ys]) {
            let ((low, here), high) = own_rows;
            let behind = load::<S, T, L, B>(simd, next_rows.0.1);
            // Not kept: there are too few registers.
            let (low, high) = (load::<S, T, L, B>(simd, low), load::<S, T, L, B>(simd, high));
            let source = T::Widest::<S>::splat(simd, source * (at_z * *along_y));
            let mut left = T::Widest::<S>::splat(simd, here[0]);
            for index in 0..B {
                let cells = own[index];
                let right = match index + 1 < B {
                    true => own[index + 1],
                    false => T::Widest::<S>::splat(simd, here[B * L + 1]),
                };
                let along_x = [one_to_the_left(left, cells), cells, one_to_the_right(cells, right)];
                let beside = [before[index] + behind[index], low[index] + high[index]];
                let value = star(&weights, along_x, beside, source * shape[index]);
                OutputRow::<T, L>::store(&mut out, index, &array(value));
                left = cells;
            }
            (before, own, own_rows) = (own, behind, next_rows);
        }
    }

    /// The same of 27 points.
    #[inline(always)]
    pub(super) fn short_full<'o, S: Simd, const L: usize, const B: usize>(
        &self,
        simd: S,
        z: usize,
        ys: Range<usize>,
        out: impl Iterator<Item = &'o mut [T]>,
    ) {
        let Common { weights, shape, source, at_z } = self.common::<S, L, B>(simd, z);
        let [low, here, high] = self.planes(z, &ys);
        let mut rows = low.each().zip(here.each()).zip(high.each());
        let (Some(first), Some(second)) = (rows.next(), rows.next()) else { return };
        let (mut before, mut own) = (Sums::of::<S, T, L>(simd, first), Sums::of::<S, T, L>(simd, second));
        for ((row, mut out), along_y) in rows.zip(out).zip(&self.shape.0[1][ys]) {
            let behind = Sums::<_, B>::of::<S, T, L>(simd, row);
            let source = T::Widest::<S>::splat(simd, source * (at_z * *along_y));
            let ends = values::<S, _>(&weights, [before.ends, own.ends, behind.ends]);
            let mut left = ends;
            let mut here = values::<S, _>(&weights, [before.vectors[0], own.vectors[0], behind.vectors[0]]);
            for index in 0..B {
                let right = match index + 1 < B {
                    true => {
                        let next = index + 1;
                        let columns = [before.vectors[next], own.vectors[next], behind.vectors[next]];
                        values::<S, _>(&weights, columns)
                    }
                    false => ends,
                };
                let value = full(around(left, here, right), source, shape[index]);
                OutputRow::<T, L>::store(&mut out, index, &array(value));
                (left, here) = (here, right);
            }
            (before, own) = (own, behind);
        }
    }

    /// Looked up before the rows, which the compiler cannot know not to be written to it: in each it takes a third longer.
    #[inline(always)]
    fn common<S: Simd, const L: usize, const B: usize>(
        &self,
        simd: S,
        z: usize,
    ) -> Common<T, T::Widest<S>, B> {
        let Self { rule, shape: Shape([along_z, _, along_x]), x, .. } = self;
        let shape = load::<S, T, L, B>(simd, &along_x[x.start - 1..]);
        Common { weights: splat(simd, rule.weights), shape, source: rule.source, at_z: along_z[z] }
    }
}

/// What all rows of a plane have.
struct Common<T, V, const B: usize> {
    weights: Weights<V>,
    /// Of the source along x.
    shape: [V; B],
    /// For each unit of its shape.
    source: T,
    /// Its shape along z.
    at_z: T,
}

/// Of a row of `B` vectors: the cells, and the sums of those beside them along z; and both of the columns around the row, in
/// one vector, so that they are computed together.
#[derive(Clone, Copy)]
struct Sums<V, const B: usize> {
    vectors: [[V; 2]; B],
    ends: [V; 2],
}

impl<V: Copy, const B: usize> Sums<V, B> {
    #[inline(always)]
    fn of<S: Simd, T: Real<Widest<S> = V>, const L: usize>(simd: S, ((low, here), high): Rows3<'_, T>) -> Self
    where
        V: SimdFloat<S, Element = T>,
    {
        let lows = load::<S, T, L, B>(simd, low);
        let cells = load::<S, T, L, B>(simd, here);
        let highs = load::<S, T, L, B>(simd, high);
        let along_z = ends::<S, V>(simd, low, B * L) + ends::<S, V>(simd, high, B * L);
        let mut sums = Self { vectors: [[cells[0]; 2]; B], ends: [ends(simd, here, B * L), along_z] };
        for index in 0..B {
            sums.vectors[index] = [cells[index], lows[index] + highs[index]];
        }
        sums
    }
}

/// `P` and `Q` of columns, by y.
#[inline(always)]
fn values<S: Simd, V: SimdFloat<S>>(weights: &Weights<V>, [before, own, behind]: [[V; 2]; 3]) -> [V; 2] {
    full_values(weights, [before[0], own[0], behind[0]], [before[1], own[1], behind[1]])
}

/// The vectors of a row that has one cell more on either side.
#[inline(always)]
fn load<S: Simd, T: Real, const L: usize, const B: usize>(simd: S, row: &[T]) -> [T::Widest<S>; B] {
    let chunks = &row[1..].as_chunks::<L>().0[..B];
    let mut vectors = [T::Widest::<S>::splat(simd, row[0]); B];
    for index in 0..B {
        vectors[index] = T::Widest::<S>::from_slice(simd, &chunks[index]);
    }
    vectors
}
