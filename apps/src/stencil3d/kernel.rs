//! Rows of a stencil of 7 or 27 points, in vectors as wide as the processor has, or as the rows are.
//!
//! With `w` the weights by distance along z, y and x, `C` the row itself, `Y` the sum of the rows beside it
//! along y, `Z` of those along z, `E` of the four along both, and `+-` the sum of the values on either side
//! along x, the value of a cell is, added up from left to right,
//!
//! ```text
//!  7:  q s + w000 C + w001 C+- + w010 Y + w100 Z
//! 27:  P + q s + Q+-      P = w000 C + w010 Y + w100 Z + w110 E      Q = w001 C + w011 Y + w101 Z + w111 E
//! ```
//!
//! where `q s` is the source. Each product is rounded with the sum that it is added to, once: all processors and devices of
//! today have that in one operation, which takes as long as one of the two. `E` is the sum of the `Z` of the rows beside
//! along y, and all that is known of a column is `P` and `Q`, which are computed once for a vector of columns and used at
//! three places. Rows of 7 points are computed one by one, those of 27 points in pairs where there are registers enough: more
//! side by side would load less, but have so many streams of memory that lines are late. Short ones are kept in registers,
//! where these are many (`short`). The instruction set is chosen where a tile begins. What is fused is written, and nothing
//! else is, so that all of them give the same bits; and each cell's operations are the same however tiles and vectors are
//! cut.

use std::ops::Range;

use fearless_simd::{Level, Simd, dispatch, prelude::*};
use streamhalo::comm::device::{PastCaches, Plane, Way, past_caches};
use streamhalo::{Rows, RowsMut, Tile};

use super::problem::Weights;
use crate::app::LINE_BYTES;
use crate::app::values::Real;

/// Cells of a piece of a row whose values are not stored in a field.
pub(super) const PIECE: usize = 256;

/// Of the rows around a strip of rows that goes through all planes: they stay in the second-level cache from where
/// they are the higher plane to where they are the lower one.
const STRIP_BYTES: usize = 384 << 10;

/// The same of 7 points near to the core, in vectors as long as a line: they stay in the first-level one. All else that
/// has been measured takes so many operations, or loads, that it does not matter where they are.
const NEAR_STRIP_BYTES: usize = 24 << 10;

/// Rows that such a strip has at least: two more are read beside them.
const LEAST_NEAR_ROWS: usize = 8;

/// Of the narrowest vectors of any processor.
pub(super) const BLOCK_BYTES: usize = 16;

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

/// Computes the cells of a tile, in strips of rows that go through all planes. The instruction set is of the caller's choice,
/// so that tests reach all.
pub(crate) fn step<T: Real>(
    level: Level,
    way: Way,
    rule: &Rule<T>,
    shape: &Shape<T>,
    tile: Tile,
    now: Rows<'_, T>,
    mut next: RowsMut<'_, T>,
) {
    past_caches(|stores| {
        let task = Task::new(rule, shape, now, tile, (way == Way::Past).then_some(stores));
        dispatch!(level, simd => task.compute(simd, way, &mut next));
    });
}

/// Calls `sink` with pieces of what the rule gives at the cells of `tile`, row by row.
pub(crate) fn evaluate<T: Real>(
    rule: &Rule<T>,
    shape: &Shape<T>,
    tile: Tile,
    now: Rows<'_, T>,
    mut sink: impl FnMut(&[T]),
) {
    let mut values = [T::default(); PIECE];
    dispatch!(Level::new(), simd => {
        for (z, y) in tile.rows() {
            for x in (tile.start[2]..tile.end[2]).step_by(PIECE) {
                let piece = &mut values[..PIECE.min(tile.end[2] - x)];
                let tile = Tile { start: [z, y, x], end: [z + 1, y + 1, x + piece.len()] };
                let task = Task::new(rule, shape, now, tile, None);
                task.compute(simd, Way::Through, &mut Piece(piece));
                sink(piece);
            }
        }
    });
}

/// Where values go.
trait Output<T: 'static> {
    /// The rows `ys` of plane `z`.
    fn rows_of_plane(&mut self, z: usize, ys: Range<usize>) -> impl Iterator<Item = &mut [T]>;
}

impl<T: Real> Output<T> for RowsMut<'_, T> {
    #[inline(always)]
    fn rows_of_plane(&mut self, z: usize, ys: Range<usize>) -> impl Iterator<Item = &mut [T]> {
        self.plane(z, ys)
    }
}

/// The only row that is computed.
struct Piece<'a, T>(&'a mut [T]);

impl<T: Real> Output<T> for Piece<'_, T> {
    #[inline(always)]
    fn rows_of_plane(&mut self, _z: usize, _ys: Range<usize>) -> impl Iterator<Item = &mut [T]> {
        std::iter::once(&mut *self.0)
    }
}

/// What is computed.
pub(super) struct Task<'a, T> {
    pub(super) rule: &'a Rule<T>,
    pub(super) shape: &'a Shape<T>,
    now: Rows<'a, T>,
    zs: Range<usize>,
    ys: Range<usize>,
    pub(super) x: Range<usize>,
    /// If the way is past the caches.
    pub(super) stores: Option<PastCaches<'a>>,
}

// What computes vectors is `inline(always)`: only code that lands inside the function that `dispatch!` makes for an
// instruction set, or `vectorize`, is compiled for it.
impl<'a, T: Real> Task<'a, T> {
    #[inline(always)]
    fn new(
        rule: &'a Rule<T>,
        shape: &'a Shape<T>,
        now: Rows<'a, T>,
        Tile { start, end }: Tile,
        stores: Option<PastCaches<'a>>,
    ) -> Self {
        Self { rule, shape, now, zs: start[0]..end[0], ys: start[1]..end[1], x: start[2]..end[2], stores }
    }

    /// How many rows a strip has: of a few, near to the core, or of more.
    fn strip(&self, is_near: bool) -> usize {
        let rows_of = |bytes: usize| bytes / (3 * self.x.len() * size_of::<T>()).max(1);
        match rows_of(NEAR_STRIP_BYTES) {
            rows if is_near && rows >= LEAST_NEAR_ROWS => rows,
            _ => rows_of(STRIP_BYTES).max(1),
        }
    }

    /// Computes all to `out`.
    #[inline(always)]
    fn compute<S: Simd>(&self, simd: S, way: Way, out: &mut impl Output<T>) {
        if self.x.len() >= T::Widest::<S>::LEN {
            return self.compute_in::<S, T::Widest<S>>(simd, way, out);
        }
        // Rows of strong scaling, and what others compute before their ghosts have come. No line of them is written whole, as
        // it would have to be to go past the caches.
        if const { T::Half::<S>::LEN < T::Widest::<S>::LEN } && self.x.len() >= T::Half::<S>::LEN {
            return self.compute_in::<S, T::Half<S>>(simd, Way::Through, out);
        }
        self.compute_in::<S, T::Block<S>>(simd, Way::Through, out);
    }

    /// The same, in those vectors.
    #[inline(always)]
    fn compute_in<S: Simd, V: SimdFloat<S, Element = T>>(&self, simd: S, way: Way, out: &mut impl Output<T>) {
        match V::LEN {
            2 => self.compute_of::<S, V, 2>(simd, way, out),
            4 => self.compute_of::<S, V, 4>(simd, way, out),
            8 => self.compute_of::<S, V, 8>(simd, way, out),
            16 => self.compute_of::<S, V, 16>(simd, way, out),
            _ => unreachable!("vectors have 2 to 16 numbers"),
        }
    }

    /// The same; they have `L` cells.
    #[inline(always)]
    fn compute_of<S: Simd, V: SimdFloat<S, Element = T>, const L: usize>(
        &self,
        simd: S,
        way: Way,
        out: &mut impl Output<T>,
    ) {
        let strip = self
            .strip(const { L * size_of::<T>() == LINE_BYTES } && way == Way::Through && !self.rule.is_full);
        // In strips. Each kernel is a function of its own for the instruction set of `simd`: one of all of them would need a
        // large stack in builds that are not optimised.
        macro_rules! apart {
            ($kernel:ident::<$($parameter:tt),+>) => {
                simd.vectorize(
                    #[inline(always)]
                    || {
                        for first in self.ys.clone().step_by(strip) {
                            let ys = first..self.ys.end.min(first + strip);
                            for z in self.zs.clone() {
                                let out = out.rows_of_plane(z, ys.clone());
                                self.$kernel::<$($parameter),+>(simd, z, ys.clone(), out);
                            }
                        }
                    },
                )
            };
        }
        // Only the widest vectors are as long as a line, and the processors that have them have 32 of them.
        if const { L * size_of::<T>() == LINE_BYTES } && way == Way::Through && self.x.len().is_multiple_of(L)
        {
            // Of more vectors there are not registers enough.
            match (self.rule.is_full, self.x.len() / L) {
                (false, 1) => return apart!(short_star::<S, L, 1>),
                (false, 2) => return apart!(short_star::<S, L, 2>),
                (false, 3) => return apart!(short_star::<S, L, 3>),
                (false, 4) => return apart!(short_star::<S, L, 4>),
                (true, 1) => return apart!(short_full::<S, L, 1>),
                (true, 2) => return apart!(short_full::<S, L, 2>),
                _ => {}
            }
        }
        // Vectors of a block, where they are the widest, have not been measured: they go through the caches.
        let is_ahead = way != Way::Through && const { L * size_of::<T>() > BLOCK_BYTES };
        if const { L * size_of::<T>() == LINE_BYTES } && self.rule.is_full {
            return match is_ahead {
                true => apart!(rows::<S, V, L, 2, 4, true, true>),
                false => apart!(rows::<S, V, L, 2, 4, true, false>),
            };
        }
        match (self.rule.is_full, is_ahead) {
            (false, true) => apart!(rows::<S, V, L, 1, 3, false, true>),
            (false, false) => apart!(rows::<S, V, L, 1, 3, false, false>),
            (true, true) => apart!(rows::<S, V, L, 1, 3, true, true>),
            (true, false) => apart!(rows::<S, V, L, 1, 3, true, false>),
        }
    }

    /// What lies around the rows `ys` of plane `z`, by plane.
    #[inline(always)]
    pub(super) fn planes(&self, z: usize, ys: &Range<usize>) -> [Plane<'_, T>; 3] {
        let (ys, x) = (ys.start - 1..ys.end + 1, self.x.start - 1..self.x.end + 1);
        let plane = |z: usize| self.now.plane(z, ys.clone(), x.clone());
        [plane(z - 1), plane(z), plane(z + 1)]
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use streamhalo::prelude::{Alternating, Entity, GlobalGrid};
    use streamhalo::{Device, HaloError, World, WorldOptions};

    use super::*;
    use crate::app::levels;

    /// Rows of every length around those of vectors, narrower ones and lines, short ones and those that begin with a line, in
    /// one strip and more, with every instruction set, through the caches and past them; and narrow parts of wide rows, as are
    /// computed before ghosts have come: as cell by cell.
    #[test]
    fn the_same_bits_at_every_distance() {
        let whole = |width: usize| (width, width);
        let narrow = || [1, 2, 3, 4, 6, 7, 8, 12, 15].map(|part| (64, part));
        compare::<f64>(
            [1, 2, 3, 4, 6, 7, 8, 9, 16, 24, 31, 32, 64, 67, 1040].map(whole).into_iter().chain(narrow()),
        );
        compare::<f32>(
            [3, 4, 7, 8, 12, 15, 16, 17, 32, 48, 63, 64, 70, 128, 2080]
                .map(whole)
                .into_iter()
                .chain(narrow()),
        );
    }

    /// What the rule gives at a cell, as the equations at the top are written.
    fn cell<T: Real>(rule: &Rule<T>, shape: &Shape<T>, now: &Rows<'_, T>, [z, y, x]: [usize; 3]) -> T {
        let [w000, w001, w010, w011, w100, w101, w110, w111] = rule.weights;
        let at = |dz: usize, dy: usize, dx: usize| now.span(z + dz - 1, y + dy - 1, x + dx - 1..x + dx)[0];
        let along_y = |dx| at(1, 0, dx) + at(1, 2, dx);
        let along_z = |dy, dx| at(0, dy, dx) + at(2, dy, dx);
        let (source, shape) = (rule.source * (shape.0[0][z] * shape.0[1][y]), shape.0[2][x]);
        if !rule.is_full {
            let value = w000.mul_add(at(1, 1, 1), source * shape);
            let value = w001.mul_add(at(1, 1, 0) + at(1, 1, 2), value);
            return w100.mul_add(along_z(1, 1), w010.mul_add(along_y(1), value));
        }
        let weigh = |own: T, by_y: T, by_z: T, by_both: T, dx| {
            let value = by_z.mul_add(along_z(1, dx), by_y.mul_add(along_y(dx), own * at(1, 1, dx)));
            by_both.mul_add(along_z(0, dx) + along_z(2, dx), value)
        };
        let [left, right] = [0, 2].map(|dx| weigh(w001, w011, w101, w111, dx));
        source.mul_add(shape, weigh(w000, w010, w100, w110, 1)) + (left + right)
    }

    /// Of rows, by how many cells they have, and how many of those are computed.
    fn compare<T: Real>(rows: impl Iterator<Item = (usize, usize)> + Clone + Sync) {
        let results = World::threads(1, WorldOptions::default(), |world| -> Result<(), HaloError> {
            let stream = Device::host().stream(&world)?;
            for (is_full, (width, part)) in rows.clone().flat_map(|row| [(false, row), (true, row)]) {
                let grid = GlobalGrid::new([2, 21, width], [true; 3])?;
                let grid = grid.partition(&world)?.local(1)?;
                let mut cells = Alternating::<T, 3>::zeros(&grid, Entity::Cell, &stream)?;
                let value = |[z, y, x]: [usize; 3], _| T::from_f64(((z * 31 + y * 7 + x) as f64).sin());
                cells.now_mut().fill_with_ghosts(value)?;
                let weights = [0.4, 0.1, 0.09, 0.01, 0.11, 0.02, 0.03, 0.04].map(T::from_f64);
                let rule = Rule { is_full, weights, source: T::from_f64(0.3) };
                let factors = |cells| (0..cells).map(|x| T::from_f64(x as f64)).collect();
                let shape = Arc::new(Shape([4, 23, width + 2].map(factors)));
                let mut tile = grid.owned(Entity::Cell).tile();
                tile.end[2] = tile.start[2] + part;
                let mut bits = |how: Option<(Level, Way)>| -> Result<Vec<u64>, HaloError> {
                    let shape = shape.clone();
                    cells.swap();
                    cells.now_mut().owned_mut()?.fill(T::from_f64(-1.0));
                    cells.swap();
                    let arrays = cells.now_and_next()?;
                    stream.launch("stencil", tile, arrays, move |tile, (now, mut next)| match how {
                        Some((level, way)) => step(level, way, &rule, &shape, tile, now, next),
                        None => {
                            for (out, (z, y)) in next.rows().zip(tile.rows()) {
                                for (out, x) in out.iter_mut().zip(tile.start[2]..) {
                                    *out = cell(&rule, &shape, &now, [z, y, x]);
                                }
                            }
                        }
                    })?;
                    cells.swap();
                    let bits = cells.now().owned()?.iter().map(|cell| cell.bits()).collect();
                    cells.swap();
                    Ok(bits)
                };
                let expected = bits(None)?;
                for (level, way) in levels().into_iter().flat_map(|level| Way::ALL.map(|way| (level, way))) {
                    let found = bits(Some((level, way)))?;
                    assert_eq!(found, expected, "{is_full}, {part} of {width}, {level:?}, {way:?}");
                }
            }
            Ok(())
        });
        let results: Result<Vec<()>, HaloError> = results.expect("ranks start").into_iter().collect();
        results.expect("nothing fails");
    }
}
