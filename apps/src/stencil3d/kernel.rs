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
//! where `q s` is the source. With 27 points `Y`, `Z` and `E` are computed once for a piece of a row and then
//! read at three places: 16 additions and 9 products a cell instead of 27 and 9. Loops are plain; they are
//! compiled once for every instruction set, and the processor's is chosen where a tile begins. Nothing is
//! contracted to fused operations, so that all of them give the same bits.

use std::array::from_fn;

use fearless_simd::{Level, dispatch};
use streamhalo::{Rows, RowsMut, Tile};

use super::problem::Weights;
use crate::app::values::Real;

/// Cells of a piece of a row: three sums of it and of its ends fit the first-level cache with the rows.
const PIECE: usize = 256;

/// A stencil, and what is added to it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rule<T> {
    /// Whether it has 27 points, or 7.
    pub(super) is_full: bool,
    pub(super) weights: Weights<T>,
    /// For each unit of the shape.
    pub(super) source: T,
}

/// The shape of the source: its factor along each axis at every local index, ghosts included.
#[derive(Debug)]
pub(super) struct Shape<T>(pub(super) [Vec<T>; 3]);

/// `Y`, `Z` and `E` of a piece of a row and its ends: kept from row to row, as clearing them takes longer than
/// a short row.
struct Sums<T>([[T; PIECE + 2]; 3]);

impl<T: Real> Default for Sums<T> {
    fn default() -> Self {
        Self([[T::default(); PIECE + 2]; 3])
    }
}

/// Computes the cells of `tile`.
pub(super) fn step<T: Real>(
    rule: &Rule<T>,
    shape: &Shape<T>,
    tile: Tile,
    now: Rows<'_, T>,
    mut next: RowsMut<'_, T>,
) {
    let mut sums = Sums::default();
    dispatch!(Level::new(), _simd => {
        for (row, (z, y)) in next.rows().zip(tile.rows()) {
            compute_row(rule, shape, now, [z, y, tile.start[2]], &mut sums, row);
        }
    });
}

/// Calls `sink` with pieces of what the rule gives at the cells of `tile`, row by row, with the index of the
/// row within the tile.
pub(super) fn evaluate<T: Real>(
    rule: &Rule<T>,
    shape: &Shape<T>,
    tile: Tile,
    now: Rows<'_, T>,
    mut sink: impl FnMut((usize, usize), &[T]),
) {
    let mut values = [T::default(); PIECE];
    let mut sums = Sums::default();
    dispatch!(Level::new(), _simd => {
        for (z, y) in tile.rows() {
            for x in (tile.start[2]..tile.end[2]).step_by(PIECE) {
                let piece = &mut values[..PIECE.min(tile.end[2] - x)];
                compute_row(rule, shape, now, [z, y, x], &mut sums, piece);
                sink((z, y), piece);
            }
        }
    });
}

/// Computes the cells from `start` on along x.
// `inline(always)`: only code that lands inside the function that `dispatch!` makes for an instruction set is
// compiled for it.
#[inline(always)]
fn compute_row<T: Real>(
    rule: &Rule<T>,
    Shape([along_z, along_y, along_x]): &Shape<T>,
    now: Rows<'_, T>,
    [z, y, x]: [usize; 3],
    sums: &mut Sums<T>,
    out: &mut [T],
) {
    let source = rule.source * (along_z[z] * along_y[y]);
    let shape = &along_x[x..x + out.len()];
    let wide = x - 1..x + out.len() + 1;
    if rule.is_full {
        let rows: [[&[T]; 3]; 3] = from_fn(|dz| from_fn(|dy| now.span(z + dz - 1, y + dy - 1, wide.clone())));
        full_row(&rule.weights, rows, source, shape, sums, out);
    } else {
        let narrow = |z: usize, y: usize| now.span(z, y, x..x + out.len());
        let beside = [narrow(z, y - 1), narrow(z, y + 1), narrow(z - 1, y), narrow(z + 1, y)];
        star_row(&rule.weights, now.span(z, y, wide), beside, source, shape, out);
    }
}

/// 7 points. `beside` are the rows at lower and higher y, then at lower and higher z.
#[inline(always)]
fn star_row<T: Real>(
    weights: &Weights<T>,
    here: &[T],
    beside: [&[T]; 4],
    source: T,
    shape: &[T],
    out: &mut [T],
) {
    let [w000, w001, w010, _, w100, ..] = *weights;
    let cells = out.len();
    let here = &here[..cells + 2];
    let [low_y, high_y, low_z, high_z] = beside.map(|row| &row[..cells]);
    let shape = &shape[..cells];
    for x in 0..cells {
        out[x] = w000 * here[x + 1]
            + w001 * (here[x] + here[x + 2])
            + w010 * (low_y[x] + high_y[x])
            + w100 * (low_z[x] + high_z[x])
            + source * shape[x];
    }
}

/// 27 points. `rows` by z, then y; each has one cell more on either side.
#[inline(always)]
fn full_row<T: Real>(
    weights: &Weights<T>,
    rows: [[&[T]; 3]; 3],
    source: T,
    shape: &[T],
    Sums([sum_y, sum_z, sum_e]): &mut Sums<T>,
    out: &mut [T],
) {
    let [w000, w001, w010, w011, w100, w101, w110, w111] = *weights;
    for (piece, out) in out.chunks_mut(PIECE).enumerate() {
        let (start, cells) = (piece * PIECE, out.len());
        let rows: [[&[T]; 3]; 3] = rows.map(|plane| plane.map(|row| &row[start..start + cells + 2]));
        let shape = &shape[start..start + cells];
        let (sum_y, sum_z) = (&mut sum_y[..cells + 2], &mut sum_z[..cells + 2]);
        let sum_e = &mut sum_e[..cells + 2];
        let here = rows[1][1];
        for x in 0..cells + 2 {
            sum_y[x] = rows[1][0][x] + rows[1][2][x];
            sum_z[x] = rows[0][1][x] + rows[2][1][x];
            sum_e[x] = (rows[0][0][x] + rows[0][2][x]) + (rows[2][0][x] + rows[2][2][x]);
        }
        for x in 0..cells {
            out[x] = w000 * here[x + 1]
                + w001 * (here[x] + here[x + 2])
                + w010 * sum_y[x + 1]
                + w011 * (sum_y[x] + sum_y[x + 2])
                + w100 * sum_z[x + 1]
                + w101 * (sum_z[x] + sum_z[x + 2])
                + w110 * sum_e[x + 1]
                + w111 * (sum_e[x] + sum_e[x + 2])
                + source * shape[x];
        }
    }
}
