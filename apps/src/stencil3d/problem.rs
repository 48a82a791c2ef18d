//! The equations, and the solution that they were made for.
//!
//! On the unit cube, with `s(x) = sin(2 pi x + phase)` along a periodic axis and `s(x) = sin(pi x)` along
//! one whose ends are held at 0, let `S = s(z) s(y) s(x)`. Then `-laplace S = lambda S`, with lambda the
//! sum of the squares of the wave numbers, and
//!
//! | | equation | source | solution |
//! |---|---|---|---|
//! | `heat` | `du/dt = laplace u + f` | `f = (lambda cos wt - w sin wt) S` | `u = cos(wt) S` |
//! | `jacobi` | `-laplace u = b` | `b = lambda S` | `u = S` |
//!
//! Both step as `next = u + tau (L u + source)`: Euler's explicit method with `tau` the step in time, and
//! Jacobi's iteration with `1 / tau` the diagonal of `-L` for 7 points. (The same `tau` damps the iteration
//! for 27, by 100 / 144; undamped it would not converge where spacings differ much.) The discrete Laplacian `L` adds second
//! differences `D` along each axis; that of 27 points averages each of them over the two other axes
//! with `M = (1, 10, 1) / 12`. Both are of second order in the spacing, and so is the heat equation in all,
//! since `tau` is proportional to the spacing squared.

use std::f64::consts::PI;

use streamhalo::{Array, Entity, GlobalGrid, LocalGrid};

use super::kernel::Shape;
use crate::app::values::Real;
use crate::app::{Geometry, places_of};
use crate::config::{Equation, Stencil3dSettings};
use crate::error::AppError;

/// `w`: the solution of the heat equation varies that fast.
const FREQUENCY: f64 = 10.0;

/// `tau` times the sum of the inverse squares of the spacings; steps are stable up to 1/2.
const HEAT_COURANT: f64 = 0.4;
const JACOBI_COURANT: f64 = 0.5;

/// An equation on a grid.
#[derive(Clone, Debug)]
pub(super) struct Problem {
    equation: Equation,
    points: u32,
    cells: [usize; 3],
    periodic: [bool; 3],
}

/// Weights of the points of a stencil, by how far they are along z, y and x: entry `4 dz + 2 dy + dx`.
pub(crate) type Weights<T> = [T; 8];

impl Problem {
    pub(super) fn new(settings: &Stencil3dSettings, grid: &GlobalGrid<3>) -> Self {
        let Stencil3dSettings { equation, points, .. } = *settings;
        Self { equation, points, cells: grid.cells(), periodic: grid.periodic() }
    }

    /// Cells along an axis that is not periodic lie inside of its ends, where the first ghosts are.
    fn spacing(&self, axis: usize) -> f64 {
        1.0 / (self.cells[axis] + usize::from(!self.periodic[axis])) as f64
    }

    /// Where the cells are: values are those at their centres.
    pub(super) fn geometry(&self) -> Geometry {
        let spacing: [f64; 3] = std::array::from_fn(|axis| self.spacing(axis));
        // Between ends that are held the first cell's centre is one spacing from the end.
        let low = |axis: usize| spacing[axis] * if self.periodic[axis] { -0.5 } else { 0.5 };
        Geometry { origin: std::array::from_fn(low), spacing }
    }

    fn wave_number(&self, axis: usize) -> f64 {
        if self.periodic[axis] { 2.0 * PI } else { PI }
    }

    /// `s` along an axis at the cell of a global index.
    pub(super) fn factor(&self, axis: usize, index: usize) -> f64 {
        let (place, phase) = match self.periodic[axis] {
            // Another one on each axis, so that axes cannot be mistaken for each other.
            true => (index as f64, 0.3 + axis as f64),
            false => ((index + 1) as f64, 0.0),
        };
        (self.wave_number(axis) * place * self.spacing(axis) + phase).sin()
    }

    /// `S` at a cell.
    fn shape(&self, cell: [usize; 3]) -> f64 {
        (0..3).map(|axis| self.factor(axis, cell[axis])).product()
    }

    /// `s` along each axis of a rank's part. A ghost has that of the cell that it is a copy of; nothing is computed beyond
    /// the ends.
    pub(super) fn shape_of<T: Real>(&self, grid: &LocalGrid<3>) -> Shape<T> {
        let places = places_of(grid);
        let factor = |axis, place: &Option<usize>| place.map_or(0.0, |index| self.factor(axis, index));
        let along = |axis: usize| places[axis].iter().map(|place| T::from_f64(factor(axis, place))).collect();
        Shape(std::array::from_fn(along))
    }

    fn lambda(&self) -> f64 {
        (0..3).map(|axis| self.wave_number(axis).powi(2)).sum()
    }

    /// `L`.
    fn laplacian(&self) -> Weights<f64> {
        let average = match self.points {
            27 => [10.0 / 12.0, 1.0 / 12.0],
            _ => [1.0, 0.0],
        };
        std::array::from_fn(|entry| {
            let far = [entry >> 2, entry >> 1 & 1, entry & 1];
            let along = |axis: usize| {
                let difference = [-2.0, 1.0][far[axis]] / self.spacing(axis).powi(2);
                let others = (0..3).filter(|other| *other != axis);
                difference * others.map(|other| average[far[other]]).product::<f64>()
            };
            (0..3).map(along).sum()
        })
    }

    fn tau(&self) -> f64 {
        let courant = match self.equation {
            Equation::Heat => HEAT_COURANT,
            Equation::Jacobi => JACOBI_COURANT,
        };
        courant / (0..3).map(|axis| self.spacing(axis).powi(-2)).sum::<f64>()
    }

    /// The weights of a step: those of `1 + tau L`.
    pub(super) fn step_weights<T: Real>(&self) -> Weights<T> {
        let tau = self.tau();
        let mut weights = self.laplacian().map(|weight| tau * weight);
        weights[0] += 1.0;
        weights.map(T::from_f64)
    }

    /// What a step adds for each unit of `S`, `step` counted from 0.
    pub(super) fn step_source<T: Real>(&self, step: u64) -> T {
        let tau = self.tau();
        let (sin, cos) = (FREQUENCY * tau * step as f64).sin_cos();
        T::from_f64(match self.equation {
            Equation::Heat => tau * (self.lambda() * cos - FREQUENCY * sin),
            Equation::Jacobi => tau * self.lambda(),
        })
    }

    /// The weights of the residual `L u + b`.
    pub(super) fn residual_weights<T: Real>(&self) -> Weights<T> {
        self.laplacian().map(T::from_f64)
    }

    /// `b` for each unit of `S`.
    pub(super) fn residual_source<T: Real>(&self) -> T {
        T::from_f64(self.lambda())
    }

    /// The value of a cell before the first step.
    pub(super) fn initial<T: Real>(&self, cell: [usize; 3]) -> T {
        match self.equation {
            Equation::Heat => T::from_f64(self.shape(cell)),
            Equation::Jacobi => T::default(),
        }
    }

    /// The solution that the equation was made for, at a cell after so many steps; of Jacobi's iteration
    /// after very many.
    pub(super) fn solution(&self, cell: [usize; 3], steps: u64) -> f64 {
        let time = match self.equation {
            Equation::Heat => (FREQUENCY * self.tau() * steps as f64).cos(),
            Equation::Jacobi => 1.0,
        };
        time * self.shape(cell)
    }

    /// The largest difference of an owned cell from the solution after so many steps. Waits for the stream.
    pub(super) fn error<T: Real>(&self, now: &Array<T, 3>, steps: u64) -> Result<f64, AppError> {
        let cells = now.grid().owned_global(Entity::Cell).indices();
        let right = |cell: [usize; 3]| self.solution(cell, steps);
        Ok(now.with_owned(|owned| {
            let errors = owned.iter().zip(cells).map(|(value, cell)| (value.to_f64() - right(cell)).abs());
            // A cell that is no number is as wrong as can be.
            errors.map(|error| if error.is_nan() { f64::INFINITY } else { error }).fold(0.0, f64::max)
        })?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Precision;

    fn problem(equation: Equation, points: u32) -> Problem {
        let settings =
            Stencil3dSettings { equation, points, element: Precision::F64, overlap: true, residual_every: 0 };
        Problem::new(&settings, &GlobalGrid::new([6, 8, 10], [true, false, true]).expect("is a grid"))
    }

    /// How many points are that far.
    fn times(entry: usize) -> f64 {
        f64::from(1 << entry.count_ones())
    }

    #[test]
    fn steps_keep_constants_and_are_stable() {
        for (equation, points) in
            [(Equation::Heat, 7), (Equation::Heat, 27), (Equation::Jacobi, 7), (Equation::Jacobi, 27)]
        {
            let weights = problem(equation, points).step_weights::<f64>();
            let sum: f64 = weights.iter().enumerate().map(|(entry, weight)| times(entry) * weight).sum();
            assert!((sum - 1.0).abs() < 1e-14, "{sum}");
            // What a step makes of a wave is linear in the cosine along each axis: greatest where these are 1
            // or -1, where values along the axis are the same or alternate.
            for alternating in 0..8_usize {
                let sign = |entry: usize| f64::from(1 - 2 * ((entry & alternating).count_ones() as i32 & 1));
                let factor: f64 = (0..8).map(|entry| times(entry) * weights[entry] * sign(entry)).sum();
                assert!(factor.abs() <= 1.0 + 1e-14, "{factor}");
            }
            let used = weights.iter().enumerate().skip(1).filter(|(_, weight)| **weight != 0.0);
            assert_eq!(used.map(|(entry, _)| times(entry)).sum::<f64>() + 1.0, f64::from(points));
        }
    }

    #[test]
    fn second_moments_are_those_of_a_laplacian() {
        for points in [7, 27] {
            let problem = problem(Equation::Heat, points);
            for axis in 0..3 {
                let far = |entry: usize| f64::from(u8::from(entry >> (2 - axis) & 1 == 1));
                let weights = problem.laplacian();
                let moment: f64 = (0..8).map(|entry| times(entry) * weights[entry] * far(entry)).sum();
                assert!((moment * problem.spacing(axis).powi(2) - 2.0).abs() < 1e-12, "{moment}");
            }
        }
    }
}
