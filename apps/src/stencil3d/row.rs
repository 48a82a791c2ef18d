//! The cells of one row of a stencil, a vector at a time.

// Iterators need not be inlined into what `dispatch!` makes for an instruction set; loops that count are there. All of it
// is `inline(always)`, as only code that lands inside of that is compiled for it.
#![allow(clippy::needless_range_loop)]

use fearless_simd::{Simd, prelude::*};
use streamhalo::comm::device::ask_for_later_line;

use super::problem::Weights;
use crate::app::values::Real;
use crate::app::{LINE_BYTES, OutputRow, array, one_to_the_left, one_to_the_right};

/// 7 points. `here` are the cells to the left, in the middle and to the right, the others the sums of those beside along y
/// and z.
#[inline(always)]
pub(super) fn star<S: Simd, V: SimdFloat<S>>(
    weights: &Weights<V>,
    here: [V; 3],
    [along_y, along_z]: [V; 2],
    added: V,
) -> V {
    let [w000, w001, w010, _, w100, ..] = *weights;
    let value = w000.mul_add_precise(here[1], added);
    let value = w001.mul_add_precise(here[0] + here[2], value);
    w100.mul_add_precise(along_z, w010.mul_add_precise(along_y, value))
}

/// `P` and `Q` of a column of 27 points, whose cells are by z, then y.
#[inline(always)]
pub(super) fn full_values<S: Simd, V: SimdFloat<S>>(
    weights: &Weights<V>,
    [low, here, high]: [[V; 3]; 3],
) -> [V; 2] {
    full_values_of_sums(weights, here, [low[0] + high[0], low[1] + high[1], low[2] + high[2]])
}

/// The same, from the cells of the plane itself and the sums of those beside along z, both by y.
#[inline(always)]
pub(super) fn full_values_of_sums<S: Simd, V: SimdFloat<S>>(
    weights: &Weights<V>,
    here: [V; 3],
    along_z: [V; 3],
) -> [V; 2] {
    let [w000, w001, w010, w011, w100, w101, w110, w111] = *weights;
    let (along_y, along_both) = (here[0] + here[2], along_z[0] + along_z[2]);
    let p = w010.mul_add_precise(along_y, w000 * here[1]);
    let p = w110.mul_add_precise(along_both, w100.mul_add_precise(along_z[1], p));
    let q = w011.mul_add_precise(along_y, w001 * here[1]);
    let q = w111.mul_add_precise(along_both, w101.mul_add_precise(along_z[1], q));
    [p, q]
}

/// 27 points, from the values to the left, in the middle and to the right, and what the source adds.
#[inline(always)]
pub(super) fn full<S: Simd, V: SimdFloat<S>>([left, here, right]: [[V; 2]; 3], source: V, shape: V) -> V {
    source.mul_add_precise(shape, here[0]) + (left[1] + right[1])
}

/// A row to compute, in vectors of `L` cells; if `IS_AHEAD`, of a field far from the core, so that lines are asked for.
pub(super) struct Row<'r, S, T, V, const L: usize, const IS_AHEAD: bool> {
    pub(super) simd: S,
    pub(super) weights: &'r Weights<V>,
    /// What the source is for each unit of its shape.
    pub(super) source: V,
    pub(super) shape: &'r [T],
    /// The row and those around it, by z, then y. Each has one cell more on either side.
    pub(super) planes: [[&'r [T]; 3]; 3],
    /// How far behind those of the higher plane, and of what is written through the caches, lines are asked for.
    pub(super) ahead_bytes: usize,
}

impl<S: Simd, T: Real, V: SimdFloat<S, Element = T>, const L: usize, const IS_AHEAD: bool>
    Row<'_, S, T, V, L, IS_AHEAD>
{
    /// Computes 7 points. Neighbours along x are cut out of what is loaded anyway if vectors are as long as a line, since loads
    /// where they are would all straddle two; shorter ones are loaded, which takes less than cutting them.
    #[inline(always)]
    pub(super) fn compute_star(self, mut out: impl OutputRow<T, L>) {
        let cells = out.cells();
        self.ask_for_rest_ahead(&out, cells);
        let [[_, low, _], [before, own, behind], [_, high, _]] = self.planes;
        let shape = &self.shape[..cells];
        let mut rows = [own, &own[1..], &own[2..], &before[1..], &behind[1..], &low[1..], &high[1..]];
        let mut vectors = [shape.as_chunks::<L>().0; 7];
        for row in 0..7 {
            rows[row] = &rows[row][..cells];
            vectors[row] = rows[row].as_chunks::<L>().0;
        }
        let shapes = shape.as_chunks::<L>().0;
        if const { L * size_of::<T>() == LINE_BYTES } {
            let last = cells / L - 1;
            let mut before = V::splat(self.simd, own[0]);
            let mut here = V::from_slice(self.simd, &vectors[1][0]);
            for index in 0..last {
                self.ask_ahead(&out, &vectors[6][index], index);
                let behind = V::from_slice(self.simd, &vectors[1][index + 1]);
                let values = self.cut([before, here, behind], &vectors, index);
                out.store(index, &self.star(values, &shapes[index]));
                (before, here) = (here, behind);
            }
            let behind = V::splat(self.simd, own[(last + 1) * L + 1]);
            let values = self.cut([before, here, behind], &vectors, last);
            out.store(last, &self.star(values, &shapes[last]));
        } else {
            for index in 0..cells / L {
                let mut values = [self.source; 7];
                for row in 0..7 {
                    values[row] = V::from_slice(self.simd, &vectors[row][index]);
                }
                self.ask_ahead(&out, &vectors[6][index], index);
                out.store(index, &self.star(values, &shapes[index]));
            }
        }
        // The last vector is moved back to end with the row. It computes some cells a second time, from inputs that have
        // not changed, instead of leaving a remainder to a slower loop.
        if !cells.is_multiple_of(L) {
            let start = cells - L;
            let mut values = [self.source; 7];
            for row in 0..7 {
                values[row] = V::from_slice(self.simd, &rows[row][start..]);
            }
            out.store_last(&self.star(values, &shape[start..]));
        }
    }

    /// The values at the places of the `index`-th vector of cells and beside them, along x cut out of the vectors in front
    /// of theirs, theirs, and behind.
    #[inline(always)]
    fn cut(&self, [before, here, behind]: [V; 3], vectors: &[&[[T; L]]; 7], index: usize) -> [V; 7] {
        let mut values =
            [one_to_the_left(before, here), here, one_to_the_right(here, behind), here, here, here, here];
        for row in 3..7 {
            values[row] = V::from_slice(self.simd, &vectors[row][index]);
        }
        values
    }

    /// A vector of cells, from the values at their places and beside them.
    #[inline(always)]
    fn star(&self, [left, own, right, before, behind, low, high]: [V; 7], shape: &[T]) -> [T; L] {
        let added = self.source * V::from_slice(self.simd, shape);
        array(star(self.weights, [left, own, right], [before + behind, low + high], added))
    }

    /// Computes 27 points. `P` and `Q` are computed once, for vectors that begin where those of the cells do, and what is to
    /// their left and right is cut out of them and their neighbours. Of what is before the first vector and behind the last
    /// one column is needed, and no more is looked at.
    #[inline(always)]
    pub(super) fn compute_full(self, mut out: impl OutputRow<T, L>) {
        let cells = out.cells();
        self.ask_for_rest_ahead(&out, cells);
        let last = cells / L - 1;
        let shape = &self.shape[..cells];
        let shapes = &shape.as_chunks::<L>().0[..last + 1];
        let (mut rows, mut vectors) = (self.planes, [[shapes; 3]; 3]);
        for plane in 0..3 {
            for row in 0..3 {
                rows[plane][row] = &rows[plane][row][..cells + 2];
                vectors[plane][row] = &rows[plane][row][1..].as_chunks::<L>().0[..last + 1];
            }
        }
        let mut before = self.column(&rows, 0);
        let mut own = self.vector(&vectors, 0);
        for index in 0..last {
            self.ask_ahead(&out, &vectors[2][1][index], index);
            let behind = self.vector(&vectors, index + 1);
            out.store(index, &self.full(around(before, own, behind), &shapes[index]));
            (before, own) = (own, behind);
        }
        let behind = self.column(&rows, (last + 1) * L + 1);
        out.store(last, &self.full(around(before, own, behind), &shapes[last]));
        if !cells.is_multiple_of(L) {
            let start = cells - L;
            let columns =
                [self.columns(&rows, start), self.columns(&rows, start + 1), self.columns(&rows, start + 2)];
            out.store_last(&self.full(columns, &shape[start..]));
        }
    }

    /// Computes a row that is narrower than any vector: of each one element counts.
    #[inline(always)]
    pub(super) fn compute_narrow(self, is_full: bool, out: &mut [T]) {
        let [[_, low, _], [before, own, behind], [_, high, _]] = self.planes;
        for index in 0..out.len() {
            let shape = V::splat(self.simd, self.shape[index]);
            let value = if is_full {
                let rows = &self.planes;
                let columns =
                    [self.column(rows, index), self.column(rows, index + 1), self.column(rows, index + 2)];
                full(columns, self.source, shape)
            } else {
                let values =
                    [own[index], own[index + 1], own[index + 2], before[index + 1], behind[index + 1]];
                let [left, here, right, before, behind] = splat::<S, V, 5>(self.simd, values);
                let [low, high] = splat::<S, V, 2>(self.simd, [low[index + 1], high[index + 1]]);
                star(self.weights, [left, here, right], [before + behind, low + high], self.source * shape)
            };
            out[index] = value[0];
        }
    }

    /// A vector of cells, from `P` and `Q` to their left, at their places and to their right.
    #[inline(always)]
    fn full(&self, columns: [[V; 2]; 3], shape: &[T]) -> [T; L] {
        array(full(columns, self.source, V::from_slice(self.simd, shape)))
    }

    /// `P` and `Q` of the `index`-th vector of the cells' own columns.
    #[inline(always)]
    fn vector(&self, vectors: &[[&[[T; L]]; 3]; 3], index: usize) -> [V; 2] {
        let mut values = [[self.source; 3]; 3];
        for plane in 0..3 {
            for row in 0..3 {
                values[plane][row] = V::from_slice(self.simd, &vectors[plane][row][index]);
            }
        }
        full_values(self.weights, values)
    }

    /// The same of the columns from `x` on.
    #[inline(always)]
    fn columns(&self, rows: &[[&[T]; 3]; 3], x: usize) -> [V; 2] {
        let mut values = [[self.source; 3]; 3];
        for plane in 0..3 {
            for row in 0..3 {
                values[plane][row] = V::from_slice(self.simd, &rows[plane][row][x..x + L]);
            }
        }
        full_values(self.weights, values)
    }

    /// The same of column `x` alone, in every element.
    #[inline(always)]
    fn column(&self, rows: &[[&[T]; 3]; 3], x: usize) -> [V; 2] {
        let mut values = [[self.source; 3]; 3];
        for plane in 0..3 {
            for row in 0..3 {
                values[plane][row] = V::splat(self.simd, rows[plane][row][x]);
            }
        }
        full_values(self.weights, values)
    }

    /// Asks for lines that others will need, of the higher plane and of what is written: the lower planes are in the caches
    /// since they were the higher one, and what is written past the caches is never read.
    #[inline(always)]
    fn ask_ahead(&self, out: &impl OutputRow<T, L>, high: &[T; L], index: usize) {
        if IS_AHEAD {
            ask_for_later_line(high, self.ahead_bytes);
            out.ask_for_later(index, self.ahead_bytes);
        }
    }

    /// Asks likewise for the lines around: of the last vector, which no other follows, of the ghost at the end, where what is
    /// no whole vector is too, and of the one that begins the row. One or two lines of each row that are late take back
    /// what all others gain.
    #[inline(always)]
    fn ask_for_rest_ahead(&self, out: &impl OutputRow<T, L>, cells: usize) {
        if IS_AHEAD {
            out.ask_for_later(cells / L - 1, self.ahead_bytes);
            if !cells.is_multiple_of(L) {
                out.ask_for_end(self.ahead_bytes);
            }
            let high = &self.planes[2][1][..cells + 2];
            ask_for_later_line(&high[cells / L * L], self.ahead_bytes);
            ask_for_later_line(&high[cells + 1], self.ahead_bytes);
            ask_for_later_line(&high[0], self.ahead_bytes);
        }
    }
}

/// `P` and `Q` to the left of a vector of columns, of its own and to the right.
#[inline(always)]
pub(super) fn around<S: Simd, V: SimdFloat<S>>(before: [V; 2], own: [V; 2], behind: [V; 2]) -> [[V; 2]; 3] {
    let left = [before[0], one_to_the_left(before[1], own[1])];
    [left, own, [behind[0], one_to_the_right(own[1], behind[1])]]
}

#[inline(always)]
pub(super) fn splat<S: Simd, V: SimdFloat<S>, const N: usize>(simd: S, values: [V::Element; N]) -> [V; N] {
    let mut vectors = [V::splat(simd, values[0]); N];
    for (vector, value) in vectors.iter_mut().zip(values) {
        *vector = V::splat(simd, value);
    }
    vectors
}
