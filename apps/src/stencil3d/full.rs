//! Rows side by side of 27 points: they share what is loaded, and what is added up along z.

// As in `row`.
#![allow(clippy::needless_range_loop)]

use fearless_simd::{Simd, prelude::*};

use super::problem::Weights;
use super::row::Group;
use crate::app::values::Real;
use crate::app::{OutputRow, array, one_to_the_left, one_to_the_right};

/// `P` and `Q` of columns of 27 points, from the cells of the plane itself and the sums of those beside along z, both by y.
#[inline(always)]
pub(super) fn full_values<S: Simd, V: SimdFloat<S>>(
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
    /// Computes 27 points. `P` and `Q` are computed once, for vectors that begin where those of the cells do, and what is to
    /// their left and right is cut out of them and their neighbours. Of what is before the first vector and behind the last
    /// one column is needed, and no more is looked at.
    #[inline(always)]
    pub(super) fn compute_full(self, mut outs: [impl OutputRow<T, L>; N]) {
        let cells = outs[0].cells();
        let last = cells / L - 1;
        let shape = &self.shape[..cells];
        let shapes = &shape.as_chunks::<L>().0[..last + 1];
        let (mut rows, mut vectors) = (self.planes, [[shapes; M]; 3]);
        for plane in 0..3 {
            for row in 0..M {
                rows[plane][row] = &rows[plane][row][..cells + 2];
                vectors[plane][row] = &rows[plane][row][1..].as_chunks::<L>().0[..last + 1];
            }
        }
        for row in 0..N {
            self.ask_for_rest_ahead(&outs[row], row);
        }
        let ends = self.ends(&rows, (last + 1) * L);
        let (mut before, mut own) = (ends, self.vector(&vectors, 0));
        for index in 0..last {
            for row in 0..N {
                self.ask_ahead(&outs[row], &vectors[2][row + 1][index], index);
            }
            let behind = self.vector(&vectors, index + 1);
            for row in 0..N {
                let columns = around(before[row], own[row], behind[row]);
                outs[row].store(index, &self.full(row, columns, &shapes[index]));
            }
            (before, own) = (own, behind);
        }
        for row in 0..N {
            let columns = around(before[row], own[row], ends[row]);
            outs[row].store(last, &self.full(row, columns, &shapes[last]));
        }
        // As of 7 points: some cells are computed a second time.
        if !cells.is_multiple_of(L) {
            let start = cells - L;
            let (left, own, right) =
                (self.columns(&rows, start), self.columns(&rows, start + 1), self.columns(&rows, start + 2));
            for row in 0..N {
                let columns = [left[row], own[row], right[row]];
                outs[row].store_last(&self.full(row, columns, &shape[start..]));
            }
        }
    }

    /// A vector of cells of a row, from `P` and `Q` to their left, at their places and to their right.
    #[inline(always)]
    fn full(&self, row: usize, columns: [[V; 2]; 3], shape: &[T]) -> [T; L] {
        array(full(columns, self.sources[row], V::from_slice(self.simd, shape)))
    }

    /// `P` and `Q` of each row, of the `index`-th vector of the cells' own columns.
    #[inline(always)]
    fn vector(&self, vectors: &[[&[[T; L]]; M]; 3], index: usize) -> [[V; 2]; N] {
        let mut values = [[self.sources[0]; M]; 3];
        for plane in 0..3 {
            for row in 0..M {
                values[plane][row] = V::from_slice(self.simd, &vectors[plane][row][index]);
            }
        }
        self.values(values)
    }

    /// The same of the columns from `x` on.
    #[inline(always)]
    fn columns(&self, rows: &[[&[T]; M]; 3], x: usize) -> [[V; 2]; N] {
        let mut values = [[self.sources[0]; M]; 3];
        for plane in 0..3 {
            for row in 0..M {
                values[plane][row] = V::from_slice(self.simd, &rows[plane][row][x..x + L]);
            }
        }
        self.values(values)
    }

    /// The same of the columns around so many cells, both in one vector, so that they are computed together.
    #[inline(always)]
    fn ends(&self, rows: &[[&[T]; M]; 3], cells: usize) -> [[V; 2]; N] {
        let mut values = [[self.sources[0]; M]; 3];
        for plane in 0..3 {
            for row in 0..M {
                values[plane][row] = ends(self.simd, rows[plane][row], cells);
            }
        }
        self.values(values)
    }

    /// The same of values by z, then y.
    #[inline(always)]
    fn values(&self, [low, here, high]: [[V; M]; 3]) -> [[V; 2]; N] {
        let mut along_z = low;
        for row in 0..M {
            along_z[row] = low[row] + high[row];
        }
        let mut values = [[here[0]; 2]; N];
        for row in 0..N {
            values[row] = full_values(
                self.weights,
                [here[row], here[row + 1], here[row + 2]],
                [along_z[row], along_z[row + 1], along_z[row + 2]],
            );
        }
        values
    }
}

/// `P` and `Q` to the left of a vector of columns, of its own and to the right.
#[inline(always)]
pub(super) fn around<S: Simd, V: SimdFloat<S>>(before: [V; 2], own: [V; 2], behind: [V; 2]) -> [[V; 2]; 3] {
    let left = [before[0], one_to_the_left(before[1], own[1])];
    [left, own, [behind[0], one_to_the_right(own[1], behind[1])]]
}

/// The values around so many cells of a row where vectors beside theirs have them: that behind first, and that before
/// last.
#[inline(always)]
pub(super) fn ends<S: Simd, V: SimdFloat<S>>(simd: S, row: &[V::Element], cells: usize) -> V {
    one_to_the_left(V::splat(simd, row[cells + 1]), V::splat(simd, row[0]))
}
