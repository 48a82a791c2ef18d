//! Rows of a stencil of 7 or 27 points, in vectors as wide as the processor has.
//!
//! With `w` the weights by distance along z, y and x, `C` the row itself, `Y` the sum of the rows beside it
//! along y, `Z` of those along z, `E` of the four along both, and `+-` the sum of the values on either side
//! along x, the value of a cell is, added up from left to right,
//!
//! ```text
//!  7:  w000 C + w001 C+- + w010 Y                       + w100 Z                      + q s
//! 27:  w000 C + w001 C+- + w010 Y + w011 Y+- + w100 Z + w101 Z+- + w110 E + w111 E+- + q s
//! ```
//!
//! where `q s` is the source. `C`, `Y`, `Z` and `E` are computed once for a vector of columns and used at three
//! places: 17 additions and 9 products a cell instead of 27 and 9. The processor's instruction set is chosen where
//! a tile begins. Nothing is contracted to fused operations, so that all of them give the same bits.

use std::ops::{Add, Mul, Range};

use fearless_simd::{Level, Simd, dispatch, prelude::*};
use streamhalo::{Rows, RowsMut, Tile};

use super::problem::Weights;
use crate::app::values::Real;
use crate::app::{Columns, sweep};

/// Cells of a piece of a row whose values are not stored in a field.
const PIECE: usize = 256;

/// A stencil, and what is added to it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rule<T> {
    /// Whether it has 27 points, or 7.
    pub(crate) is_full: bool,
    pub(crate) weights: Weights<T>,
    /// For each unit of the shape.
    pub(crate) source: T,
}

/// The shape of the source: its factor along each axis at every local index, ghosts included.
#[derive(Debug)]
pub(crate) struct Shape<T>(pub(crate) [Vec<T>; 3]);

/// Computes the cells of `tile`.
pub(crate) fn step<T: Real>(
    rule: &Rule<T>,
    shape: &Shape<T>,
    tile: Tile,
    now: Rows<'_, T>,
    mut next: RowsMut<'_, T>,
) {
    let mut around = Around::new(now, tile.start[2]..tile.end[2]);
    dispatch!(Level::new(), simd => {
        for (row, (z, y)) in next.rows().zip(tile.rows()) {
            compute_row(simd, rule, shape, around.rows(z, y), [z, y, tile.start[2]], row);
        }
    });
}

/// Calls `sink` with pieces of what the rule gives at the cells of `tile`, row by row, with the index of the
/// row within the tile.
pub(crate) fn evaluate<T: Real>(
    rule: &Rule<T>,
    shape: &Shape<T>,
    tile: Tile,
    now: Rows<'_, T>,
    mut sink: impl FnMut((usize, usize), &[T]),
) {
    let mut values = [T::default(); PIECE];
    dispatch!(Level::new(), simd => {
        for x in (tile.start[2]..tile.end[2]).step_by(PIECE) {
            let piece = &mut values[..PIECE.min(tile.end[2] - x)];
            let mut around = Around::new(now, x..x + piece.len());
            for (z, y) in tile.rows() {
                compute_row(simd, rule, shape, around.rows(z, y), [z, y, x], piece);
                sink((z, y), piece);
            }
        }
    });
}

/// The rows around one and after the other, by z, then y: each with one cell more on either side.
struct Around<'a, T> {
    now: Rows<'a, T>,
    x: Range<usize>,
    /// The row that they are around.
    row: (usize, usize),
    rows: [[&'a [T]; 3]; 3],
}

impl<'a, T: Real> Around<'a, T> {
    /// Of the columns `x`.
    fn new(now: Rows<'a, T>, x: Range<usize>) -> Self {
        Self { now, x: x.start - 1..x.end + 1, row: (0, 0), rows: [[&[]; 3]; 3] }
    }

    #[inline(always)]
    fn rows(&mut self, z: usize, y: usize) -> [[&'a [T]; 3]; 3] {
        // Of the nine rows six are around the row before too.
        let is_next = self.row == (z, y - 1);
        for (plane, rows) in self.rows.iter_mut().enumerate() {
            if is_next {
                (rows[0], rows[1]) = (rows[1], rows[2]);
            }
            for dy in if is_next { 2..3 } else { 0..3 } {
                rows[dy] = self.now.span(z + plane - 1, y + dy - 1, self.x.clone());
            }
        }
        self.row = (z, y);
        self.rows
    }
}

/// Computes the cells from `x` on of a row, given those around it.
// Everything below is `inline(always)`, as `Columns` says.
#[inline(always)]
fn compute_row<S: Simd, T: Real>(
    simd: S,
    rule: &Rule<T>,
    Shape([along_z, along_y, along_x]): &Shape<T>,
    rows: [[&[T]; 3]; 3],
    [z, y, x]: [usize; 3],
    out: &mut [T],
) {
    let (weights, source) = (rule.weights, rule.source * (along_z[z] * along_y[y]));
    let shape = &along_x[x..x + out.len()];
    let cells = out.len();
    if rule.is_full {
        if cells >= T::Vector::<S>::LEN {
            let weights = weights.map(|weight| T::Vector::<S>::splat(simd, weight));
            let source = T::Vector::<S>::splat(simd, source);
            sweep(cells, &mut Full { simd, weights, rows, source, shape, out });
        } else {
            for x in 0..cells {
                let at = |x: usize| full_values(rows.map(|plane| plane.map(|row| row[x])));
                out[x] = full(&weights, [at(x), at(x + 1), at(x + 2)], source * shape[x]);
            }
        }
    } else {
        let [[_, low_z, _], [low_y, here, high_y], [_, high_z, _]] = rows;
        let beside = [low_y, high_y, low_z, high_z];
        if cells >= T::Vector::<S>::LEN {
            let weights = weights.map(|weight| T::Vector::<S>::splat(simd, weight));
            let source = T::Vector::<S>::splat(simd, source);
            sweep(cells, &mut Star { simd, weights, here, beside, source, shape, out });
        } else {
            for x in 0..cells {
                let around = [here[x], here[x + 1], here[x + 2]];
                let beside = beside.map(|row| row[x + 1]);
                out[x] = star(&weights, around, beside, source * shape[x]);
            }
        }
    }
}

/// 7 points. `here` are the cells to the left, in the middle and to the right, `beside` those at lower and
/// higher y, then at lower and higher z.
#[inline(always)]
fn star<A>(weights: &Weights<A>, here: [A; 3], beside: [A; 4], added: A) -> A
where
    A: Copy + Add<Output = A> + Mul<Output = A>,
{
    let [w000, w001, w010, _, w100, ..] = *weights;
    let [low_y, high_y, low_z, high_z] = beside;
    w000 * here[1] + w001 * (here[0] + here[2]) + w010 * (low_y + high_y) + w100 * (low_z + high_z) + added
}

/// The values of a column of 27 points, whose cells are by z, then y: `C`, `Y`, `Z` and `E`.
#[inline(always)]
fn full_values<A: Copy + Add<Output = A>>(column: [[A; 3]; 3]) -> [A; 4] {
    let [low, here, high] = column;
    [here[1], here[0] + here[2], low[1] + high[1], (low[0] + low[2]) + (high[0] + high[2])]
}

/// 27 points, from the values to the left, in the middle and to the right.
#[inline(always)]
fn full<A>(weights: &Weights<A>, [left, here, right]: [[A; 4]; 3], added: A) -> A
where
    A: Copy + Add<Output = A> + Mul<Output = A>,
{
    let [w000, w001, w010, w011, w100, w101, w110, w111] = *weights;
    w000 * here[0]
        + w001 * (left[0] + right[0])
        + w010 * here[1]
        + w011 * (left[1] + right[1])
        + w100 * here[2]
        + w101 * (left[2] + right[2])
        + w110 * here[3]
        + w111 * (left[3] + right[3])
        + added
}

/// A row of 7 points. All rows have one cell more on either side.
struct Star<'r, S, T, V> {
    simd: S,
    weights: Weights<V>,
    here: &'r [T],
    beside: [&'r [T]; 4],
    source: V,
    shape: &'r [T],
    out: &'r mut [T],
}

impl<S: Simd, T: Real, V: SimdBase<S, Element = T>> Columns<V, 1> for Star<'_, S, T, V> {
    #[inline(always)]
    fn values(&self, x: usize) -> [V; 1] {
        [load(self.simd, self.here, x)]
    }

    #[inline(always)]
    fn compute(&mut self, x: usize, [[left], [own], [right]]: [[V; 1]; 3]) {
        let [low_y, high_y, low_z, high_z] = self.beside;
        let beside = [
            load(self.simd, low_y, x + 1),
            load(self.simd, high_y, x + 1),
            load(self.simd, low_z, x + 1),
            load(self.simd, high_z, x + 1),
        ];
        let added = self.source * load::<S, V>(self.simd, self.shape, x);
        star(&self.weights, [left, own, right], beside, added).store_slice(&mut self.out[x..x + V::LEN]);
    }
}

/// A row of 27 points. Rows are by z, then y; each has one cell more on either side.
struct Full<'r, S, T, V> {
    simd: S,
    weights: Weights<V>,
    rows: [[&'r [T]; 3]; 3],
    source: V,
    shape: &'r [T],
    out: &'r mut [T],
}

impl<S: Simd, T: Real, V: SimdBase<S, Element = T>> Columns<V, 4> for Full<'_, S, T, V> {
    #[inline(always)]
    fn values(&self, x: usize) -> [V; 4] {
        let [low, here, high] = self.rows;
        full_values([
            [load(self.simd, low[0], x), load(self.simd, low[1], x), load(self.simd, low[2], x)],
            [load(self.simd, here[0], x), load(self.simd, here[1], x), load(self.simd, here[2], x)],
            [load(self.simd, high[0], x), load(self.simd, high[1], x), load(self.simd, high[2], x)],
        ])
    }

    #[inline(always)]
    fn compute(&mut self, x: usize, around: [[V; 4]; 3]) {
        let added = self.source * load::<S, V>(self.simd, self.shape, x);
        full(&self.weights, around, added).store_slice(&mut self.out[x..x + V::LEN]);
    }
}

#[inline(always)]
fn load<S: Simd, V: SimdBase<S>>(simd: S, row: &[V::Element], x: usize) -> V {
    V::from_slice(simd, &row[x..x + V::LEN])
}
