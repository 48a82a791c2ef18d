//! Rows of a stencil of 7 or 27 points, in vectors as wide as the processor has.
//!
//! With `w` the weights by distance along z, y and x, `C` the row itself, `Y` the sum of the rows beside it
//! along y, `Z` of those along z, `E` of the four along both, and `+-` the sum of the values on either side
//! along x, the value of a cell is, added up from left to right,
//!
//! ```text
//!  7:  w000 C + w001 C+- + w010 Y + w100 Z + q s
//! 27:  P + Q+- + q s      P = w000 C + w010 Y + w100 Z + w110 E      Q = w001 C + w011 Y + w101 Z + w111 E
//! ```
//!
//! where `q s` is the source. `E` is the sum of the `Z` of the rows beside along y, and all that is known of a column
//! is `P` and `Q`, which are computed once for a vector of columns and used at three places: 13 additions and 9
//! products a cell instead of 27 and 9. Rows are computed in groups, which share what they load: of 7 points 3.5
//! vectors instead of 5 for one of cells, of 27 points 5 instead of 9. The processor's instruction set is chosen where
//! a tile begins. Nothing is contracted to fused operations, so that all of them give the same bits; and each cell's
//! operations are the same however tiles, groups and vectors are cut.

// Iterators need not be inlined into what `dispatch!` makes for an instruction set; loops that count are there.
#![allow(clippy::needless_range_loop)]

use std::ops::Range;

use fearless_simd::{Level, Simd, dispatch, prelude::*};
use streamhalo::comm::device::{PastCaches, Plane, past_caches};
use streamhalo::{Rows, RowsMut, Tile};

use super::group::{Full, Group, Star, full, full_values, splat, star};
use super::problem::Weights;
use crate::app::values::Real;
use crate::app::{FAR, NEAR, PAST, distance_of, sweep};

/// Cells of a piece of a row whose values are not stored in a field.
pub(super) const PIECE: usize = 256;

/// Rows of a group of 7 points and of one of 27. More of them do not fit into the registers.
const STAR_ROWS: usize = 4;
const FULL_ROWS: usize = 3;

/// Rows that they read in each plane.
const STAR_INPUTS: usize = STAR_ROWS + 2;
const FULL_INPUTS: usize = FULL_ROWS + 2;

/// Of the rows around a strip of rows that goes through all planes: they stay in the second-level cache from where
/// they are the higher plane to where they are the lower one.
const STRIP_BYTES: usize = 384 << 10;

/// Groups of rows that lines are asked for ahead. The processor asks by itself for what follows in a row, but groups of
/// rows begin so many streams at once that most of their lines are late.
const GROUPS_AHEAD: usize = 2;

/// Of a vector for which kernels are compiled for every distance from the core.
const WIDE_BYTES: usize = 32;

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
    next: RowsMut<'_, T>,
) {
    step_at(distance_of(2 * tile.points() * size_of::<T>()), rule, shape, tile, now, next);
}

/// [`step`] of a tile that is so far from the core.
fn step_at<T: Real>(
    distance: u8,
    rule: &Rule<T>,
    shape: &Shape<T>,
    tile: Tile,
    now: Rows<'_, T>,
    mut next: RowsMut<'_, T>,
) {
    let row_bytes = tile.extents()[2] * size_of::<T>();
    // Groups that are whole, of either kind.
    let strip = (STRIP_BYTES / (3 * row_bytes).max(1))
        .next_multiple_of(STAR_ROWS * FULL_ROWS)
        .max(STAR_ROWS * FULL_ROWS);
    past_caches(|stores| {
        let task = Task { rule, shape, now, x: tile.start[2]..tile.end[2], stores };
        dispatch!(Level::new(), simd => {
            for first in (tile.start[1]..tile.end[1]).step_by(strip) {
                let ys = first..tile.end[1].min(first + strip);
                for z in tile.start[0]..tile.end[0] {
                    task.plane(simd, distance, z, ys.clone(), &mut next);
                }
            }
        });
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
    past_caches(|stores| {
        dispatch!(Level::new(), simd => {
            for x in (tile.start[2]..tile.end[2]).step_by(PIECE) {
                let piece = &mut values[..PIECE.min(tile.end[2] - x)];
                let task = Task { rule, shape, now, x: x..x + piece.len(), stores };
                for (z, y) in tile.rows() {
                    if rule.is_full {
                        task.row::<_, true>(simd, [z, y], piece);
                    } else {
                        task.row::<_, false>(simd, [z, y], piece);
                    }
                    sink((z, y), piece);
                }
            }
        });
    });
}

/// What is computed, of the columns `x`.
struct Task<'a, T> {
    rule: &'a Rule<T>,
    shape: &'a Shape<T>,
    now: Rows<'a, T>,
    x: Range<usize>,
    stores: PastCaches<'a>,
}

// Everything below is `inline(always)`, as `Columns` says.
impl<T: Real> Task<'_, T> {
    /// The rows `ys` of plane `z`, which is so far from the core.
    #[inline(always)]
    fn plane<S: Simd>(&self, simd: S, distance: u8, z: usize, ys: Range<usize>, next: &mut RowsMut<'_, T>) {
        // Vectors that are narrower are those of old processors, which one kernel serves: each is compiled for every
        // type and number of points.
        if const { T::Vector::<S>::LEN * size_of::<T>() < WIDE_BYTES } {
            return self.rows_of_plane::<_, NEAR>(simd, z, ys, next);
        }
        match distance {
            NEAR => self.rows_of_plane::<_, NEAR>(simd, z, ys, next),
            FAR => self.rows_of_plane::<_, FAR>(simd, z, ys, next),
            _ => self.rows_of_plane::<_, PAST>(simd, z, ys, next),
        }
    }

    /// The same, for one distance: in groups.
    #[inline(always)]
    fn rows_of_plane<S: Simd, const DISTANCE: u8>(
        &self,
        simd: S,
        z: usize,
        ys: Range<usize>,
        next: &mut RowsMut<'_, T>,
    ) {
        if self.rule.is_full {
            self.groups::<S, true, DISTANCE, FULL_ROWS, FULL_INPUTS>(simd, z, ys, next);
        } else {
            self.groups::<S, false, DISTANCE, STAR_ROWS, STAR_INPUTS>(simd, z, ys, next);
        }
    }

    #[inline(always)]
    fn groups<S: Simd, const IS_FULL: bool, const DISTANCE: u8, const ROWS: usize, const INPUTS: usize>(
        &self,
        simd: S,
        z: usize,
        ys: Range<usize>,
        next: &mut RowsMut<'_, T>,
    ) {
        let planes = self.around(z, ys.clone());
        let weights = splat::<S, T::Vector<S>, 8>(simd, self.rule.weights);
        let mut out = next.plane(z, ys.clone());
        let mut row = 0;
        // Behind the last group of a strip its first one follows, in the next plane.
        let place = |plane: usize, row: usize| planes[plane].rows::<1>(row)[0].as_ptr().addr();
        let (plane_bytes, row_bytes) = (place(2, 0) - place(1, 0), place(1, 1) - place(1, 0));
        let strip_bytes = ys.len() / ROWS * ROWS * row_bytes;
        let ahead = GROUPS_AHEAD * ROWS;
        while row + ROWS <= ys.len() {
            let inputs = [planes[0].rows(row), planes[1].rows(row), planes[2].rows(row)];
            let (at, out) = ([z, ys.start + row], out.rows(row));
            let is_last = row + ahead + ROWS > ys.len();
            let ahead_bytes = ahead * row_bytes + if is_last { plane_bytes - strip_bytes } else { 0 };
            self.group::<S, IS_FULL, DISTANCE, ROWS, INPUTS>(simd, &weights, at, inputs, out, ahead_bytes);
            row += ROWS;
        }
        // The few that are left, wherever they are: what is compiled for them serves `evaluate` too.
        while row < ys.len() {
            let inputs = [planes[0].rows(row), planes[1].rows(row), planes[2].rows(row)];
            let (at, out) = ([z, ys.start + row], out.rows(row));
            self.group::<S, IS_FULL, NEAR, 1, 3>(simd, &weights, at, inputs, out, 0);
            row += 1;
        }
    }

    /// Computes a row by itself.
    #[inline(always)]
    fn row<S: Simd, const IS_FULL: bool>(&self, simd: S, [z, y]: [usize; 2], out: &mut [T]) {
        let planes = self.around(z, y..y + 1);
        let weights = splat::<S, T::Vector<S>, 8>(simd, self.rule.weights);
        let inputs = [planes[0].rows(0), planes[1].rows(0), planes[2].rows(0)];
        self.group::<S, IS_FULL, NEAR, 1, 3>(simd, &weights, [z, y], inputs, [out], 0);
    }

    /// What is read of the planes below, of and above the rows `ys` of plane `z`: those rows and one more on either
    /// side, each with a cell more on either side.
    #[inline(always)]
    fn around(&self, z: usize, ys: Range<usize>) -> [Plane<'_, T>; 3] {
        let (ys, x) = (ys.start - 1..ys.end + 1, self.x.start - 1..self.x.end + 1);
        let now = &self.now;
        [
            now.plane(z - 1, ys.clone(), x.clone()),
            now.plane(z, ys.clone(), x.clone()),
            now.plane(z + 1, ys, x),
        ]
    }

    /// Computes a group of rows, the first of which is at `z` and `y`, from those around them.
    #[inline(always)]
    fn group<S: Simd, const IS_FULL: bool, const DISTANCE: u8, const ROWS: usize, const INPUTS: usize>(
        &self,
        simd: S,
        weights: &Weights<T::Vector<S>>,
        [z, y]: [usize; 2],
        mut planes: [[&[T]; INPUTS]; 3],
        mut out: [&mut [T]; ROWS],
        ahead_bytes: usize,
    ) {
        const { assert!(INPUTS == ROWS + 2) };
        let cells = planes[0][0].len() - 2;
        if cells < T::Vector::<S>::LEN {
            for (row, out) in out.into_iter().enumerate() {
                self.narrow_row([z, y + row], out);
            }
            return;
        }
        let Self { shape: Shape([_, _, along_x]), x, stores, .. } = self;
        // One number for all their lengths, so that one comparison stands for those of all loads.
        for row in 0..INPUTS {
            planes[0][row] = &planes[0][row][..cells + 2];
            planes[1][row] = &planes[1][row][..cells + 2];
            planes[2][row] = &planes[2][row][..cells + 2];
        }
        for row in 0..ROWS {
            out[row] = &mut std::mem::take(&mut out[row])[..cells];
        }
        let shape = &along_x[x.start..][..cells];
        let mut sources = [T::Vector::<S>::splat(simd, self.source([z, y])); ROWS];
        for row in 1..ROWS {
            sources[row] = T::Vector::<S>::splat(simd, self.source([z, y + row]));
        }
        let rows = Group::<_, _, _, DISTANCE, ROWS, INPUTS> {
            simd,
            weights: *weights,
            planes,
            sources,
            shape,
            ahead_bytes,
            stores: *stores,
            out,
        };
        if IS_FULL {
            sweep(cells, &mut Full(rows));
        } else {
            sweep(cells, &mut Star(rows));
        }
    }

    /// What the source is in a row for each unit of its shape along x.
    #[inline(always)]
    fn source(&self, [z, y]: [usize; 2]) -> T {
        let Shape([along_z, along_y, _]) = self.shape;
        self.rule.source * (along_z[z] * along_y[y])
    }

    /// A row that is narrower than a vector. Apart from the others, whose inputs stay in registers only where none of
    /// their indices depend on anything.
    #[inline(never)]
    fn narrow_row(&self, [z, y]: [usize; 2], out: &mut [T]) {
        let Self { rule: Rule { is_full, weights, .. }, shape: Shape([_, _, along_x]), now, x, .. } = self;
        let around = x.start - 1..x.end + 1;
        let planes: [[&[T]; 3]; 3] = [z - 1, z, z + 1].map(|z| now.spans(z, y - 1, around.clone()));
        let source = self.source([z, y]);
        for (index, cell) in out.iter_mut().enumerate() {
            let column = |x: usize| planes.map(|plane| plane.map(|row| row[x]));
            let columns = [column(index), column(index + 1), column(index + 2)];
            let added = source * along_x[x.start + index];
            *cell = if *is_full {
                full(columns.map(|column| full_values(weights, column)), added)
            } else {
                let [low, here, high] = columns[1];
                let along_x = [columns[0][1][1], here[1], columns[2][1][1]];
                star(weights, along_x, [here[0], here[2], low[1], high[1]], added)
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use streamhalo::prelude::{Alternating, Entity, GlobalGrid};
    use streamhalo::{Device, HaloError, World, WorldOptions};

    use super::*;

    /// Rows of every length around those of vectors and lines, short ones and those that begin with a line, in groups
    /// and alone.
    #[test]
    fn the_same_bits_at_every_distance() {
        let results = World::threads(1, WorldOptions::default(), |world| -> Result<(), HaloError> {
            let stream = Device::host().stream(&world)?;
            for (is_full, width) in
                [7, 8, 9, 16, 31, 64, 67].into_iter().flat_map(|x| [(false, x), (true, x)])
            {
                let grid = GlobalGrid::new([2, 9, width], [true; 3])?;
                let grid = grid.partition(&world)?.local(1)?;
                let mut cells = Alternating::<f64, 3>::zeros(&grid, Entity::Cell, &stream)?;
                let value = |[z, y, x]: [usize; 3], _| ((z * 31 + y * 7 + x) as f64).sin();
                cells.now_mut().fill_with_ghosts(value)?;
                let weights = [0.4, 0.1, 0.09, 0.01, 0.11, 0.02, 0.03, 0.04];
                let rule = Rule { is_full, weights, source: 0.3 };
                let shape = Shape([4, 11, width + 2].map(|cells| (0..cells).map(|x| x as f64).collect()));
                let (shape, tile) = (Arc::new(shape), grid.owned(Entity::Cell).tile());
                let found = [NEAR, FAR, PAST].map(|distance| -> Result<Vec<u64>, HaloError> {
                    let shape = shape.clone();
                    let arrays = cells.now_and_next()?;
                    stream.launch("stencil", tile, arrays, move |tile, (now, next)| {
                        step_at(distance, &rule, &shape, tile, now, next);
                    })?;
                    cells.swap();
                    let bits = cells.now().owned()?.iter().map(|cell| cell.to_bits()).collect();
                    cells.now_mut().owned_mut()?.fill(-1.0);
                    cells.swap();
                    Ok(bits)
                });
                let [near, far, past] = found;
                let near = near?;
                assert!(!near.contains(&(-1.0_f64).to_bits()), "{width}");
                assert_eq!(near, far?, "{is_full}, {width}");
                assert_eq!(near, past?, "{is_full}, {width}");
            }
            Ok(())
        });
        let results: Result<Vec<()>, HaloError> = results.expect("ranks start").into_iter().collect();
        results.expect("nothing fails");
    }
}
