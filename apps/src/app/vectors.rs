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
    /// The values of the columns from `x` on, or those of column `x` alone in every element. Column 0 is the one to the
    /// left of the first cell.
    fn values<const IS_ALONE: bool>(&self, x: usize) -> [[V; N]; ROWS];

    /// Computes the cells from `x` on, given the values to the left, in their own columns and to the right.
    fn compute(&mut self, x: usize, around: [[[V; N]; ROWS]; 3]);
}

/// Computes the `cells` cells of each row, at least as many as a vector has.
///
/// Every vector of values is made once, in the cells' own columns, and those to the left and to the right are cut out
/// of it and its neighbours: long rows begin with a line of the cache, and loads beside it would straddle two. Of what is
/// before the first vector and behind the last one column is needed, and no more is looked at.
#[inline(always)]
pub(crate) fn sweep<S: Simd, V: SimdBase<S>, const ROWS: usize, const N: usize>(
    cells: usize,
    rows: &mut impl Columns<V, ROWS, N>,
) {
    let mut x = 0;
    let (mut before, mut own) = (rows.values::<true>(0), rows.values::<false>(1));
    while x + 2 * V::LEN <= cells {
        let behind = rows.values::<false>(x + V::LEN + 1);
        rows.compute(x, around(before, own, behind));
        (before, own) = (own, behind);
        x += V::LEN;
    }
    let behind = rows.values::<true>(x + V::LEN + 1);
    rows.compute(x, around(before, own, behind));
    x += V::LEN;
    if x < cells {
        // The last vector is moved back to end with the row. It computes some cells a second time, from
        // inputs that have not changed, instead of leaving a remainder to a slower loop.
        let start = cells - V::LEN;
        let [left, right] = [rows.values::<false>(start), rows.values::<false>(start + 2)];
        rows.compute(start, [left, rows.values::<false>(start + 1), right]);
    }
}

/// The values to the left, in their own columns and to the right.
#[inline(always)]
fn around<S: Simd, V: SimdBase<S>, const ROWS: usize, const N: usize>(
    before: [[V; N]; ROWS],
    own: [[V; N]; ROWS],
    behind: [[V; N]; ROWS],
) -> [[[V; N]; ROWS]; 3] {
    let (mut left, mut right) = (own, own);
    for row in 0..ROWS {
        for value in 0..N {
            left[row][value] = one_to_the_left(before[row][value], own[row][value]);
            right[row][value] = one_to_the_right(own[row][value], behind[row][value]);
        }
    }
    [left, own, right]
}

/// What is one element to the left of `own`, whose neighbour there is the last of `before`.
///
/// Vectors of two blocks of 128 bits, and bytes, are moved by whole blocks first, then within blocks: processors do both faster
/// than they cut such vectors anywhere, and the first is the same to the right of `before`.
#[inline(always)]
pub(crate) fn one_to_the_left<S: Simd, V: SimdBase<S>>(before: V, own: V) -> V {
    match (V::LEN, size_of::<V::Element>()) {
        (2, _) => before.slide::<1>(own),
        (4, 8) => before.slide::<2>(own).slide_within_blocks::<1>(own),
        (4, _) => before.slide::<3>(own),
        (8, 4) => before.slide::<4>(own).slide_within_blocks::<3>(own),
        (8, _) => before.slide::<7>(own),
        (16, _) => before.slide::<15>(own),
        (32, _) => before.slide::<16>(own).slide_within_blocks::<15>(own),
        (64, _) => before.slide::<48>(own).slide_within_blocks::<15>(own),
        _ => unreachable!("vectors have 2 to 64 elements"),
    }
}

/// What is one element to the right of `own`, whose neighbour there is the first of `behind`. As [`one_to_the_left`].
#[inline(always)]
pub(crate) fn one_to_the_right<S: Simd, V: SimdBase<S>>(own: V, behind: V) -> V {
    match (V::LEN, size_of::<V::Element>()) {
        (4, 8) => own.slide_within_blocks::<1>(own.slide::<2>(behind)),
        (8, 4) => own.slide_within_blocks::<1>(own.slide::<4>(behind)),
        (32 | 64, _) => own.slide_within_blocks::<1>(own.slide::<16>(behind)),
        _ => own.slide::<1>(behind),
    }
}
