//! Rows side by side of a stencil, a vector at a time: how they go through a strip, rows of 7 points, and narrow ones.

// Iterators need not be inlined into what `dispatch!` makes for an instruction set; loops that count are there. All of it
// is `inline(always)`, as only code that lands inside of that is compiled for it.
#![allow(clippy::needless_range_loop)]

use std::ops::Range;

use fearless_simd::{Simd, prelude::*};
use streamhalo::comm::device::{Plane, ask_for_later_line};

use super::full::{full, full_values};
use super::kernel::{BLOCK_BYTES, Shape, Task};
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

/// Rows that lines are asked for ahead where the cells are far from the core.
const ROWS_AHEAD: usize = 6;

impl<T: Real> Task<'_, T> {
    /// Computes rows, `N` at a time, which have `M` around them with themselves, and those that are left one by one.
    #[inline(always)]
    pub(super) fn rows<
        'o,
        S: Simd,
        V: SimdFloat<S, Element = T>,
        const L: usize,
        const N: usize,
        const M: usize,
        const IS_FULL: bool,
        const IS_AHEAD: bool,
    >(
        &self,
        simd: S,
        z: usize,
        ys: Range<usize>,
        mut out: impl Iterator<Item = &'o mut [T]>,
    ) {
        let grouped = ys.len() - ys.len() % N;
        self.groups::<S, V, L, N, M, IS_FULL, IS_AHEAD>(simd, z, &ys, 0, &mut out);
        if const { N > 1 } && grouped < ys.len() {
            self.groups::<S, V, L, 1, 3, IS_FULL, IS_AHEAD>(simd, z, &ys, grouped, &mut out);
        }
    }

    /// Computes the rows of the strip `ys` from the `first`-th on, but those that are no `N` any more.
    #[inline(always)]
    fn groups<
        'o,
        S: Simd,
        V: SimdFloat<S, Element = T>,
        const L: usize,
        const N: usize,
        const M: usize,
        const IS_FULL: bool,
        const IS_AHEAD: bool,
    >(
        &self,
        simd: S,
        z: usize,
        ys: &Range<usize>,
        first: usize,
        out: &mut impl Iterator<Item = &'o mut [T]>,
    ) {
        let Self { rule, shape: Shape([along_z, along_y, along_x]), x, stores, .. } = self;
        let [low, here, high] = self.planes(z, ys);
        // Behind the last row of a strip its first one follows, in the next plane.
        let place = |plane: &Plane<'_, T>, row: usize| plane.rows::<1>(row)[0].as_ptr().addr();
        let row_bytes = place(&here, 1) - place(&here, 0);
        let to_next_plane = place(&high, 0) - place(&here, 0) - ys.len() * row_bytes;

        // What does not change from row to row: the compiler cannot know that rows are not written to it.
        let weights = splat::<S, V, 8>(simd, rule.weights);
        let (source, at_z, shape) = (rule.source, along_z[z], &along_x[x.clone()]);
        let along_y = &along_y[ys.clone()];
        let mut windows = low.windows(first).zip(here.windows(first)).zip(high.windows(first));
        let mut row = first;
        while let Some(((low, here), high)) = windows.next() {
            let mut sources = [V::splat(simd, source); N];
            for beside in 0..N {
                sources[beside] = V::splat(simd, source * (at_z * along_y[row + beside]));
            }
            let is_last = ys.len() - row <= ROWS_AHEAD;
            let group = Group::<S, T, _, L, N, M, IS_AHEAD> {
                simd,
                weights: &weights,
                sources,
                shape,
                planes: [low, here, high],
                ahead_bytes: ROWS_AHEAD * row_bytes + if is_last { to_next_plane } else { 0 },
            };
            let out = std::array::from_fn(|_| out.next().expect("a strip has that many rows"));
            row += N;
            for _ in 1..N {
                windows.next();
            }
            // Each condition by itself, so that builds that are not optimised leave out what is never reached: their stacks
            // have room for a part of all that is in line here.
            if const { L * size_of::<T>() == BLOCK_BYTES } && shape.len() < L {
                group.compute_narrow(IS_FULL, out);
                continue;
            }
            if IS_AHEAD {
                let past = match stores {
                    Some(stores) => stores.rows(out, L),
                    None => Err(out),
                };
                match past {
                    Ok(out) => group.compute::<IS_FULL>(out),
                    Err(out) => group.compute::<IS_FULL>(out),
                }
            } else {
                group.compute::<IS_FULL>(out);
            }
        }
    }
}

/// `N` rows side by side to compute, which have `M` around them with themselves, two more, in vectors of `L` cells; if
/// `IS_AHEAD`, of a field far from the core, so that lines are asked for.
pub(super) struct Group<'r, S, T, V, const L: usize, const N: usize, const M: usize, const IS_AHEAD: bool> {
    pub(super) simd: S,
    pub(super) weights: &'r Weights<V>,
    /// What the source of each row is for each unit of its shape.
    pub(super) sources: [V; N],
    pub(super) shape: &'r [T],
    /// The rows and those around them, by z, then y. Each has one cell more on either side.
    pub(super) planes: [[&'r [T]; M]; 3],
    /// How far behind those of the higher plane, and of what is written through the caches, lines are asked for.
    pub(super) ahead_bytes: usize,
}

impl<
    S: Simd,
    T: Real,
    V: SimdFloat<S, Element = T>,
    const L: usize,
    const N: usize,
    const M: usize,
    const IS_AHEAD: bool,
> Group<'_, S, T, V, L, N, M, IS_AHEAD>
{
    /// Computes 27 points, or 7, row by row.
    #[inline(always)]
    fn compute<const IS_FULL: bool>(self, outs: [impl OutputRow<T, L>; N]) {
        if IS_FULL {
            self.compute_full(outs);
        } else {
            for (row, out) in outs.into_iter().enumerate() {
                self.compute_star(row, out);
            }
        }
    }

    /// Computes 7 points of one row. Neighbours along x are cut out of what is loaded anyway if vectors are as long as a line,
    /// since loads where they are would all straddle two; shorter ones are loaded, which takes less than cutting them.
    #[inline(always)]
    fn compute_star(&self, row: usize, mut out: impl OutputRow<T, L>) {
        let cells = out.cells();
        self.ask_for_rest_ahead(&out, row);
        let source = self.sources[row];
        let [[_, low, _], [before, own, behind], [_, high, _]] = self.rows_around(row);
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
                out.store(index, &self.star(source, values, &shapes[index]));
                (before, here) = (here, behind);
            }
            let behind = V::splat(self.simd, own[(last + 1) * L + 1]);
            let values = self.cut([before, here, behind], &vectors, last);
            out.store(last, &self.star(source, values, &shapes[last]));
        } else {
            for index in 0..cells / L {
                let mut values = [source; 7];
                for row in 0..7 {
                    values[row] = V::from_slice(self.simd, &vectors[row][index]);
                }
                self.ask_ahead(&out, &vectors[6][index], index);
                out.store(index, &self.star(source, values, &shapes[index]));
            }
        }
        // The last vector is moved back to end with the row. It computes some cells a second time, from inputs that have
        // not changed, instead of leaving a remainder to a slower loop.
        if !cells.is_multiple_of(L) {
            let start = cells - L;
            let mut values = [source; 7];
            for row in 0..7 {
                values[row] = V::from_slice(self.simd, &rows[row][start..]);
            }
            out.store_last(&self.star(source, values, &shape[start..]));
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
    fn star(&self, source: V, [left, own, right, before, behind, low, high]: [V; 7], shape: &[T]) -> [T; L] {
        let added = source * V::from_slice(self.simd, shape);
        array(star(self.weights, [left, own, right], [before + behind, low + high], added))
    }

    /// Computes rows that are narrower than any vector: of each one element counts.
    #[inline(always)]
    fn compute_narrow(self, is_full: bool, outs: [&mut [T]; N]) {
        for row in 0..N {
            let (planes, source) = (self.rows_around(row), self.sources[row]);
            let [[_, low, _], [before, own, behind], [_, high, _]] = planes;
            for index in 0..outs[row].len() {
                let shape = V::splat(self.simd, self.shape[index]);
                let value = if is_full {
                    let columns = [
                        self.column(&planes, index),
                        self.column(&planes, index + 1),
                        self.column(&planes, index + 2),
                    ];
                    full(columns, source, shape)
                } else {
                    let values =
                        [own[index], own[index + 1], own[index + 2], before[index + 1], behind[index + 1]];
                    let [left, here, right, before, behind] = splat::<S, V, 5>(self.simd, values);
                    let [low, high] = splat::<S, V, 2>(self.simd, [low[index + 1], high[index + 1]]);
                    star(self.weights, [left, here, right], [before + behind, low + high], source * shape)
                };
                outs[row][index] = value[0];
            }
        }
    }

    /// `P` and `Q` of column `x` alone, in every element.
    #[inline(always)]
    fn column(&self, planes: &[[&[T]; 3]; 3], x: usize) -> [V; 2] {
        let mut values = [[self.sources[0]; 3]; 3];
        for plane in 0..3 {
            for row in 0..3 {
                values[plane][row] = V::splat(self.simd, planes[plane][row][x]);
            }
        }
        let [low, here, high] = values;
        full_values(self.weights, here, [low[0] + high[0], low[1] + high[1], low[2] + high[2]])
    }

    /// The `row`-th row and those around it, by z, then y.
    #[inline(always)]
    fn rows_around(&self, row: usize) -> [[&[T]; 3]; 3] {
        let mut planes = [[self.shape; 3]; 3];
        for plane in 0..3 {
            for beside in 0..3 {
                planes[plane][beside] = self.planes[plane][row + beside];
            }
        }
        planes
    }

    /// Asks for lines that others will need, of the higher plane and of what is written: the lower planes are in the caches
    /// since they were the higher one, and what is written past the caches is never read.
    #[inline(always)]
    pub(super) fn ask_ahead(&self, out: &impl OutputRow<T, L>, high: &[T; L], index: usize) {
        if IS_AHEAD {
            ask_for_later_line(high, self.ahead_bytes);
            out.ask_for_later(index, self.ahead_bytes);
        }
    }

    /// Asks likewise for the lines around those of the `row`-th row: of the last vector, which no other follows, of the ghost
    /// at the end, where what is no whole vector is too, and of the one that begins the row. One or two lines of each row
    /// that are late take back what all others gain.
    #[inline(always)]
    pub(super) fn ask_for_rest_ahead(&self, out: &impl OutputRow<T, L>, row: usize) {
        if IS_AHEAD {
            let cells = out.cells();
            out.ask_for_later(cells / L - 1, self.ahead_bytes);
            if !cells.is_multiple_of(L) {
                out.ask_for_end(self.ahead_bytes);
            }
            let high = &self.planes[2][row + 1][..cells + 2];
            ask_for_later_line(&high[cells / L * L], self.ahead_bytes);
            ask_for_later_line(&high[cells + 1], self.ahead_bytes);
            ask_for_later_line(&high[0], self.ahead_bytes);
        }
    }
}

#[inline(always)]
pub(super) fn splat<S: Simd, V: SimdFloat<S>, const N: usize>(simd: S, values: [V::Element; N]) -> [V; N] {
    let mut vectors = [V::splat(simd, values[0]); N];
    for (vector, value) in vectors.iter_mut().zip(values) {
        *vector = V::splat(simd, value);
    }
    vectors
}
