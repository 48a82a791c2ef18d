//! The same steps on the whole grid, cell by cell, to verify against.
//!
//! It has no ghosts, no rows and no tiles: every neighbour of a cell is looked up by its global index, around
//! periodic axes, and is 0 beyond the ends of others. Only the order of the additions, and which products are rounded with them,
//! is that of the kernel, so that answers can be compared bit by bit; that they solve the equation is another test.

use super::problem::{Problem, Weights};
use crate::app::values::Real;

/// A whole grid.
pub(super) struct Reference<T> {
    cells: [usize; 3],
    periodic: [bool; 3],
    is_full: bool,
    /// `[z][y][x]`.
    values: Vec<T>,
    /// The factors of the source's shape.
    shape: [Vec<T>; 3],
}

impl<T: Real> Reference<T> {
    pub(super) fn new(problem: &Problem, is_full: bool, cells: [usize; 3], periodic: [bool; 3]) -> Self {
        let along =
            |axis: usize| (0..cells[axis]).map(|index| T::from_f64(problem.factor(axis, index))).collect();
        let values = all_below(cells).map(|cell| problem.initial(cell)).collect();
        Self { cells, periodic, is_full, values, shape: [along(0), along(1), along(2)] }
    }

    /// The values, row-major.
    pub(super) fn values(&self) -> &[T] {
        &self.values
    }

    /// Replaces every value by what the weights and the source give.
    pub(super) fn step(&mut self, weights: &Weights<T>, source: T) {
        self.values = all_below(self.cells).map(|cell| self.apply(weights, source, cell)).collect();
    }

    /// The root of the sum of the squares of what the weights and the source give.
    pub(super) fn norm(&self, weights: &Weights<T>, source: T) -> f64 {
        sum(all_below(self.cells).map(|cell| self.apply(weights, source, cell).to_f64().powi(2))).sqrt()
    }

    fn apply(&self, w: &Weights<T>, source: T, cell: [usize; 3]) -> T {
        let at = |dz: isize, dy: isize, dx: isize| self.neighbour(cell, [dz, dy, dx]);
        // The sums of one, two or four rows at a place along x.
        let c = |dx| at(0, 0, dx);
        let y = |dx| at(0, -1, dx) + at(0, 1, dx);
        let z = |dx| at(-1, 0, dx) + at(1, 0, dx);
        let e = |dx| (at(-1, -1, dx) + at(1, -1, dx)) + (at(-1, 1, dx) + at(1, 1, dx));
        let [shape_z, shape_y, shape_x] = [0, 1, 2].map(|axis| self.shape[axis][cell[axis]]);
        let source = source * (shape_z * shape_y);
        if self.is_full {
            // All that has the same weight along x.
            let p = |dx| w[6].mul_add(e(dx), w[4].mul_add(z(dx), w[2].mul_add(y(dx), w[0] * c(dx))));
            let q = |dx| w[7].mul_add(e(dx), w[5].mul_add(z(dx), w[3].mul_add(y(dx), w[1] * c(dx))));
            source.mul_add(shape_x, p(0)) + (q(-1) + q(1))
        } else {
            let along_x = w[1].mul_add(c(-1) + c(1), w[0].mul_add(c(0), source * shape_x));
            w[4].mul_add(z(0), w[2].mul_add(y(0), along_x))
        }
    }

    fn neighbour(&self, cell: [usize; 3], offset: [isize; 3]) -> T {
        let mut place = 0;
        for axis in 0..3 {
            let extent = self.cells[axis];
            let index = match cell[axis].checked_add_signed(offset[axis]) {
                Some(index) if index < extent => index,
                _ if !self.periodic[axis] => return T::default(),
                Some(_) => 0,
                None => extent - 1,
            };
            place = place * extent + index;
        }
        self.values[place]
    }
}

/// All indices below the extents, the last axis fastest.
fn all_below([depth, height, width]: [usize; 3]) -> impl Iterator<Item = [usize; 3]> {
    (0..depth).flat_map(move |z| (0..height).flat_map(move |y| (0..width).map(move |x| [z, y, x])))
}

/// The sum of values, rounded about once: what each addition loses is added up beside it (Neumaier, Rundungsfehleranalyse
/// einiger Verfahren zur Summation endlicher Summen, 1974). Else it would drift further from that of the ranks, who add
/// in many short sums, the more cells there are.
fn sum(values: impl Iterator<Item = f64>) -> f64 {
    let (mut sum, mut lost) = (0.0_f64, 0.0);
    for value in values {
        let next = sum + value;
        let (large, small) = if sum.abs() >= value.abs() { (sum, value) } else { (value, sum) };
        lost += (large - next) + small;
        sum = next;
    }
    // Of infinite values nothing is lost that could be told.
    if lost.is_finite() { sum + lost } else { sum }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stencil3d::check::NORM_TOLERANCE;

    /// As many cells as a large grid has, on which a sum one by one drifts further than norms may be from each other.
    #[test]
    fn sums_of_many_cells_do_not_drift() {
        let (count, value) = (1 << 22, 0.1);
        let values = || std::iter::repeat_n(value, count);
        // A power of two changes the exponent only.
        let right = value * count as f64;
        let error = |found: f64| ((found - right) / right).abs();
        assert!(error(values().sum()) > NORM_TOLERANCE, "{:e}", error(values().sum()));
        assert_eq!(sum(values()), right);
        assert_eq!(sum([1.0, 1e100, 1.0, -1e100].into_iter()), 2.0);
        assert!(sum([f64::INFINITY, 1.0].into_iter()).is_infinite());
    }
}
