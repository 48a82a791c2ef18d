//! The matrices: symmetric and positive definite by construction, element by element from its place, so that every
//! rank makes its own tiles. Those of integers have a factor that is known.
//!
//! Of integers the factor is L(i,j) = r(i) r(j) c(j) with signs r and magnitudes c, which are 1, 2 or 4, and so
//! A(i,j) = r(i) r(j) S(min(i,j)) with S(m) the sum of c² up to m. All that a factorisation computes on its way are
//! integers too, and divided by powers of two: nothing is rounded, in whatever order it is done.
//!
//! Of reals, what is off the diagonal is random between -1 and 1, and what is on it is the number of rows, which is more
//! than a row comes to.

use crate::app::Initial;
use crate::config::Values;

/// The matrix of one factorisation.
pub(super) struct Matrix {
    initial: Initial,
    step: u64,
    rows: usize,
    /// r, c and S, of integers.
    signs: Vec<f64>,
    magnitudes: Vec<f64>,
    sums: Vec<f64>,
}

impl Matrix {
    /// The matrix of a step, counted from 0: another one in each.
    pub(super) fn new(initial: Initial, rows: usize, step: u64) -> Self {
        let integers = match initial.values {
            Values::Integers => rows,
            Values::Reals => 0,
        };
        let draws = (0..integers).map(|index| initial.at(step, [0, 0, index]));
        let signs = draws.clone().map(|draw| if draw < 0.0 { -1.0 } else { 1.0 }).collect();
        let magnitudes: Vec<f64> = draws.map(|draw| [1.0, 2.0, 4.0][draw.abs() as usize % 3]).collect();
        let sums = magnitudes.iter().scan(0.0, |sum, magnitude| {
            *sum += magnitude * magnitude;
            Some(*sum)
        });
        Self { sums: sums.collect(), initial, step, rows, signs, magnitudes }
    }

    /// A(row, column).
    pub(super) fn at(&self, row: usize, column: usize) -> f64 {
        let (low, high) = (row.min(column), row.max(column));
        match self.initial.values {
            Values::Integers => self.signs[row] * self.signs[column] * self.sums[low],
            Values::Reals if row == column => self.rows as f64,
            Values::Reals => self.initial.at(self.step, [1, high, low]),
        }
    }

    /// A row of the factor of a matrix of integers, up to the diagonal.
    pub(super) fn factor_row(&self, row: usize) -> impl Iterator<Item = f64> {
        (0..=row).map(move |column| self.signs[row] * self.signs[column] * self.magnitudes[column])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matrix(values: Values, step: u64) -> Matrix {
        Matrix::new(Initial { values, seed: 5 }, 40, step)
    }

    #[test]
    fn the_known_factor_is_one() {
        let matrix = matrix(Values::Integers, 3);
        let rows: Vec<Vec<f64>> = (0..40).map(|row| matrix.factor_row(row).collect()).collect();
        for row in 0..40 {
            assert!(rows[row][row] > 0.0);
            for column in 0..=row {
                let product: f64 = rows[row].iter().zip(&rows[column]).map(|(a, b)| a * b).sum();
                assert_eq!(matrix.at(row, column), product, "{row} {column}");
                assert_eq!(matrix.at(column, row), product, "{row} {column}");
            }
        }
        let magnitudes = [1.0, 2.0, 4.0].map(|one| (0..40).any(|row| rows[row][row] == one));
        assert_eq!(magnitudes, [true; 3]);
    }

    #[test]
    fn reals_are_symmetric_and_dominated_by_the_diagonal() {
        let matrix = matrix(Values::Reals, 0);
        for row in 0..40 {
            let others = (0..40).filter(|column| *column != row).map(|column| matrix.at(row, column).abs());
            assert!(others.sum::<f64>() < matrix.at(row, row));
            assert!((0..40).all(|column| matrix.at(row, column) == matrix.at(column, row)));
        }
    }

    #[test]
    fn steps_have_other_matrices() {
        for values in [Values::Integers, Values::Reals] {
            let [one, other] = [0, 1].map(|step| matrix(values, step));
            assert!((1..40).any(|row| one.at(row, 0) != other.at(row, 0)));
        }
    }
}
