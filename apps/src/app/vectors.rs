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

/// A row, or some of them side by side, whose cells are computed from `N` values in their own column and in
/// those to the left and to the right.
// Everything here, and whatever implements it, is `inline(always)`: only code that lands inside the function
// that `dispatch!` makes for an instruction set is compiled for it.
pub(crate) trait Columns<V, const N: usize> {
    /// The values of the columns from `x` on. Column 0 is the one to the left of the first cell.
    fn values(&self, x: usize) -> [V; N];

    /// Computes the cells from `x` on, given the values to the left, in their own columns and to the right.
    fn compute(&mut self, x: usize, around: [[V; N]; 3]);
}

/// Computes the `cells` cells of a row, at least as many as a vector has.
///
/// Every vector of values is made once, and those one and two columns further on are cut out of it and the
/// next one: rows start anywhere in a line of the cache, so that loads would straddle two.
#[inline(always)]
pub(crate) fn sweep<S: Simd, V: SimdBase<S>, const N: usize>(cells: usize, row: &mut impl Columns<V, N>) {
    let mut x = 0;
    let mut left = row.values(0);
    while x + 2 * V::LEN <= cells + 2 {
        let ahead = row.values(x + V::LEN);
        let (mut own, mut right) = (left, left);
        for value in 0..N {
            [own[value], right[value]] = cut(left[value], ahead[value]);
        }
        row.compute(x, [left, own, right]);
        left = ahead;
        x += V::LEN;
    }
    while x < cells {
        // The last vector is moved back to end with the row. It computes some cells a second time, from
        // inputs that have not changed, instead of leaving a remainder to a slower loop.
        let start = x.min(cells - V::LEN);
        if start < x {
            left = row.values(start);
        }
        let right = row.values(start + 2);
        let mut own = left;
        for value in 0..N {
            // The last but one column of those to the right comes first when they are turned round, and cut.
            let turned = right[value].reverse();
            own[value] = left[value].slide::<1>(turned.slide::<1>(turned));
        }
        row.compute(start, [left, own, right]);
        x += V::LEN;
    }
}

/// What is one and what is two elements further on in two vectors, one behind the other: first by a block of 128
/// bits, then within blocks. Processors do both faster than they cut vectors anywhere.
#[inline(always)]
fn cut<S: Simd, V: SimdBase<S>>(left: V, ahead: V) -> [V; 2] {
    let by_block = match V::Block::LEN {
        2 => left.slide::<2>(ahead),
        4 => left.slide::<4>(ahead),
        16 => left.slide::<16>(ahead),
        _ => return [left.slide::<1>(ahead), left.slide::<2>(ahead)],
    };
    [left.slide_within_blocks::<1>(by_block), left.slide_within_blocks::<2>(by_block)]
}
