//! Rows of a stencil that are computed side by side, and share what they load.

// Iterators need not be inlined into what `dispatch!` makes for an instruction set; loops that count are there. All of it
// is `inline(always)`, as `Columns` says.
#![allow(clippy::needless_range_loop)]

use std::ops::{Add, Mul};

use fearless_simd::{Simd, prelude::*};
use streamhalo::comm::device::{PastCaches, ask_for_line};

use super::problem::Weights;
use crate::app::values::Real;
use crate::app::{Columns, FAR, NEAR, store};

/// 7 points. `here` are the cells to the left, in the middle and to the right, `beside` those at lower and
/// higher y, then at lower and higher z.
#[inline(always)]
pub(super) fn star<A>(weights: &Weights<A>, here: [A; 3], beside: [A; 4], added: A) -> A
where
    A: Copy + Add<Output = A> + Mul<Output = A>,
{
    let [w000, w001, w010, _, w100, ..] = *weights;
    let [low_y, high_y, low_z, high_z] = beside;
    w000 * here[1] + w001 * (here[0] + here[2]) + w010 * (low_y + high_y) + w100 * (low_z + high_z) + added
}

/// `P` and `Q` of a column of 27 points, whose cells are by z, then y.
#[inline(always)]
pub(super) fn full_values<A>(weights: &Weights<A>, [low, here, high]: [[A; 3]; 3]) -> [A; 2]
where
    A: Copy + Add<Output = A> + Mul<Output = A>,
{
    weigh(weights, here, [low[0] + high[0], low[1] + high[1], low[2] + high[2]])
}

/// The same from the cells in the middle plane, by y, and the sums of those in the planes beside it.
#[inline(always)]
fn weigh<A>(weights: &Weights<A>, here: [A; 3], sums: [A; 3]) -> [A; 2]
where
    A: Copy + Add<Output = A> + Mul<Output = A>,
{
    let [w000, w001, w010, w011, w100, w101, w110, w111] = *weights;
    let (along_y, along_both) = (here[0] + here[2], sums[0] + sums[2]);
    [
        w000 * here[1] + w010 * along_y + w100 * sums[1] + w110 * along_both,
        w001 * here[1] + w011 * along_y + w101 * sums[1] + w111 * along_both,
    ]
}

/// 27 points, from the values to the left, in the middle and to the right.
#[inline(always)]
pub(super) fn full<A: Copy + Add<Output = A>>([left, here, right]: [[A; 2]; 3], added: A) -> A {
    here[0] + (left[1] + right[1]) + added
}

/// Rows side by side. Those to read are by z, then y; each has one cell more on either side.
pub(super) struct Group<'r, S, T, V, const DISTANCE: u8, const ROWS: usize, const INPUTS: usize> {
    pub(super) simd: S,
    pub(super) weights: Weights<V>,
    pub(super) planes: [[&'r [T]; INPUTS]; 3],
    pub(super) sources: [V; ROWS],
    pub(super) shape: &'r [T],
    /// How far behind those of the higher plane, and of the rows to write, lines are asked for, if they are far.
    pub(super) ahead_bytes: usize,
    pub(super) stores: PastCaches<'r>,
    pub(super) out: [&'r mut [T]; ROWS],
}

impl<
    S: Simd,
    T: Real,
    V: SimdBase<S, Element = T>,
    const DISTANCE: u8,
    const ROWS: usize,
    const INPUTS: usize,
> Group<'_, S, T, V, DISTANCE, ROWS, INPUTS>
{
    /// Asks for what will be needed of memory where others compute the cells from `x` on. The lower planes are in the
    /// caches since they were the higher one, and what is written past the caches is never read.
    #[inline(always)]
    fn ask_ahead(&self, x: usize) {
        for row in 0..ROWS {
            if DISTANCE != NEAR {
                ask_for_line(&self.planes[2][row + 1][x], self.ahead_bytes);
            }
            if DISTANCE == FAR {
                ask_for_line(&self.out[row][x], self.ahead_bytes);
            }
        }
    }

    /// A row from `x` on, or its cell at `x` in every element.
    #[inline(always)]
    fn vector<const IS_ALONE: bool>(&self, row: &[T], x: usize) -> V {
        if IS_ALONE { V::splat(self.simd, row[x]) } else { load(self.simd, row, x) }
    }
}

/// 7 points.
pub(super) struct Star<'r, S, T, V, const DISTANCE: u8, const ROWS: usize, const INPUTS: usize>(
    pub(super) Group<'r, S, T, V, DISTANCE, ROWS, INPUTS>,
);

impl<
    S: Simd,
    T: Real,
    V: SimdBase<S, Element = T>,
    const DISTANCE: u8,
    const ROWS: usize,
    const INPUTS: usize,
> Columns<V, ROWS, 1> for Star<'_, S, T, V, DISTANCE, ROWS, INPUTS>
{
    #[inline(always)]
    fn values<const IS_ALONE: bool>(&self, x: usize) -> [[V; 1]; ROWS] {
        let [_, here, _] = &self.0.planes;
        let mut values = [[self.0.vector::<IS_ALONE>(here[1], x)]; ROWS];
        for row in 1..ROWS {
            values[row] = [self.0.vector::<IS_ALONE>(here[row + 1], x)];
        }
        values
    }

    #[inline(always)]
    fn compute(&mut self, x: usize, [left, own, right]: [[[V; 1]; ROWS]; 3]) {
        self.0.ask_ahead(x);
        let Group { simd, weights, planes: [low, here, high], sources, shape, stores, out, .. } = &mut self.0;
        let shape: V = load(*simd, shape, x);
        let mut before = load(*simd, here[0], x + 1);
        for row in 0..ROWS {
            let behind = if row + 1 < ROWS { own[row + 1][0] } else { load(*simd, here[INPUTS - 1], x + 1) };
            let beside =
                [before, behind, load(*simd, low[row + 1], x + 1), load(*simd, high[row + 1], x + 1)];
            let around = [left[row][0], own[row][0], right[row][0]];
            let value = star(weights, around, beside, sources[row] * shape);
            store::<_, _, DISTANCE>(*stores, value, &mut out[row][x..x + V::LEN]);
            before = own[row][0];
        }
    }
}

/// 27 points.
pub(super) struct Full<'r, S, T, V, const DISTANCE: u8, const ROWS: usize, const INPUTS: usize>(
    pub(super) Group<'r, S, T, V, DISTANCE, ROWS, INPUTS>,
);

impl<
    S: Simd,
    T: Real,
    V: SimdBase<S, Element = T>,
    const DISTANCE: u8,
    const ROWS: usize,
    const INPUTS: usize,
> Columns<V, ROWS, 2> for Full<'_, S, T, V, DISTANCE, ROWS, INPUTS>
{
    #[inline(always)]
    fn values<const IS_ALONE: bool>(&self, x: usize) -> [[V; 2]; ROWS] {
        let [low, here, high] = &self.0.planes;
        let cell = self.0.vector::<IS_ALONE>(here[0], x);
        let (mut cells, mut sums) = ([cell; INPUTS], [cell; INPUTS]);
        for row in 0..INPUTS {
            cells[row] = self.0.vector::<IS_ALONE>(here[row], x);
            sums[row] = self.0.vector::<IS_ALONE>(low[row], x) + self.0.vector::<IS_ALONE>(high[row], x);
        }
        let mut values = [[cell; 2]; ROWS];
        for row in 0..ROWS {
            let (cells, sums) = (&cells[row..], &sums[row..]);
            values[row] = weigh(&self.0.weights, [cells[0], cells[1], cells[2]], [sums[0], sums[1], sums[2]]);
        }
        values
    }

    #[inline(always)]
    fn compute(&mut self, x: usize, [left, own, right]: [[[V; 2]; ROWS]; 3]) {
        self.0.ask_ahead(x);
        let Group { simd, sources, shape, stores, out, .. } = &mut self.0;
        let shape: V = load(*simd, shape, x);
        for row in 0..ROWS {
            let value = full([left[row], own[row], right[row]], sources[row] * shape);
            store::<_, _, DISTANCE>(*stores, value, &mut out[row][x..x + V::LEN]);
        }
    }
}

#[inline(always)]
fn load<S: Simd, V: SimdBase<S>>(simd: S, row: &[V::Element], x: usize) -> V {
    V::from_slice(simd, &row[x..x + V::LEN])
}

#[inline(always)]
pub(super) fn splat<S: Simd, V: SimdBase<S>, const N: usize>(simd: S, values: [V::Element; N]) -> [V; N] {
    let mut vectors = [V::splat(simd, values[0]); N];
    for (vector, value) in vectors.iter_mut().zip(values) {
        *vector = V::splat(simd, value);
    }
    vectors
}
