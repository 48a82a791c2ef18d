//! Rows of cells, each of which is computed from what stands around it, many at a time.

use fearless_simd::{Simd, prelude::*};
use streamhalo::Element;

/// An element of which vectors can be computed.
pub trait Vectors: Element {
    /// As many of them as an instruction set computes at once.
    type Vector<S: Simd>: SimdBase<S, Element = Self>;
}

impl Vectors for u8 {
    type Vector<S: Simd> = S::u8s;
}

impl Vectors for f32 {
    type Vector<S: Simd> = S::f32s;
}

impl Vectors for f64 {
    type Vector<S: Simd> = S::f64s;
}

/// `ROWS` rows side by side, whose cells are computed from `N` values of each row in their own column and in those
/// to the left and to the right.
// Everything here, and whatever implements it, is `inline(always)`: only code that lands inside the function
// that `dispatch!` makes for an instruction set is compiled for it.
pub(crate) trait Columns<V, const ROWS: usize, const N: usize> {
    /// The values of the columns from `x` on. Column 0 is the one to the left of the first cell.
    fn values(&self, x: usize) -> [[V; N]; ROWS];

    /// Computes the cells from `x` on, given the values to the left, in their own columns and to the right.
    fn compute(&mut self, x: usize, around: [[[V; N]; ROWS]; 3]);
}

/// Computes the `cells` cells of each row, at least as many as a vector has.
///
/// Every vector of values is made once, and those one and two columns further on are cut out of it and the
/// next one: rows start anywhere in a line of the cache, so that loads would straddle two.
#[inline(always)]
pub(crate) fn sweep<S: Simd, V: SimdBase<S>, const ROWS: usize, const N: usize>(
    cells: usize,
    rows: &mut impl Columns<V, ROWS, N>,
) {
    let mut x = 0;
    let mut left = rows.values(0);
    while x + 2 * V::LEN <= cells + 2 {
        let ahead = rows.values(x + V::LEN);
        let (mut own, mut right) = (left, left);
        for row in 0..ROWS {
            for value in 0..N {
                own[row][value] = left[row][value].slide::<1>(ahead[row][value]);
                right[row][value] = left[row][value].slide::<2>(ahead[row][value]);
            }
        }
        rows.compute(x, [left, own, right]);
        left = ahead;
        x += V::LEN;
    }
    while x < cells {
        // The last vector is moved back to end with the row. It computes some cells a second time, from
        // inputs that have not changed, instead of leaving a remainder to a slower loop.
        let start = x.min(cells - V::LEN);
        if start < x {
            left = rows.values(start);
        }
        let right = rows.values(start + 2);
        let mut own = left;
        for row in 0..ROWS {
            for value in 0..N {
                // The last but one column of those to the right comes first when they are turned round, and cut.
                let turned = right[row][value].reverse();
                own[row][value] = left[row][value].slide::<1>(turned.slide::<1>(turned));
            }
        }
        rows.compute(start, [left, own, right]);
        x += V::LEN;
    }
}
