//! What the answer must be, and how far from it another one may be.

use serde_json::Map;

use super::driver::Cholesky;
use super::matrix::Matrix;
use crate::app::values::{self, checksum_of_row, shown};
use crate::app::{Answer, Initial, Verified, size_of_all};
use crate::config::Values;
use crate::error::AppError;

impl Cholesky {
    /// Whether the factor of a step goes into the answer's state: of integers the last one, as the checksum shows them
    /// all.
    pub(super) fn is_looked_at(&self, step: u64) -> bool {
        self.settings.values == Values::Reals || step + 1 == self.steps
    }

    /// What is multiplied by a step's matrix, and by its factor.
    fn sampled_by(&self, step: u64) -> Vec<f64> {
        let initial = Initial { values: Values::Reals, ..self.initial() };
        (0..self.rows()).map(|row| initial.at(step, [2, 0, row])).collect()
    }

    /// What is kept of a factor of reals: L (Lᵀ x) of a random x, row by row, and behind it |L| (|Lᵀ| |x|), which an
    /// error in it is relative to. So a factor is found wrong with n² multiplications and not n³, as R. Freivalds finds
    /// wrong products (Probabilistic machines can use less running time, 1977).
    pub(super) fn sample(&self, step: u64, factor: &[u8]) -> Vec<f64> {
        if self.settings.values == Values::Integers {
            return Vec::new();
        }
        let (rows, x) = (self.rows(), self.sampled_by(step));
        let factor: Vec<f64> = values::decode::<f64>(factor).collect();
        let times = |of: fn(f64) -> f64| {
            let row_of = |row: usize| factor[row * rows..][..=row].iter().map(|value| of(*value));
            let mut half = vec![0.0; rows];
            for (row, x) in x.iter().enumerate() {
                half.iter_mut().zip(row_of(row)).for_each(|(half, value)| *half += value * of(*x));
            }
            let product = |row| row_of(row).zip(&half).map(|(value, half)| value * half).sum();
            (0..rows).map(product).collect::<Vec<f64>>()
        };
        [times(|value| value), times(f64::abs)].concat()
    }
}

impl Verified for Cholesky {
    /// Of integers the last factor, by its formula. Of reals the last matrix itself, which the factor is multiplied out
    /// to be compared with, and behind it A x of every step, for what is kept of its factor.
    fn reference(&self, go_on: &dyn Fn() -> Result<(), AppError>) -> Result<Answer, AppError> {
        let (rows, mut checksum) = (self.rows(), 0_u64);
        let (mut state, mut samples) = (vec![0.0; rows * rows], Vec::new());
        for step in 0..self.steps {
            let (matrix, x) = (Matrix::new(self.initial(), rows, step), self.sampled_by(step));
            for (row, values) in state.chunks_exact_mut(rows).enumerate() {
                go_on()?;
                match self.settings.values {
                    Values::Integers => {
                        let places = values.iter_mut().zip(matrix.factor_row(row));
                        places.for_each(|(value, right)| *value = right);
                        checksum = checksum.wrapping_add(checksum_of_row([0, row, 0], &values[..=row]));
                    }
                    Values::Reals => {
                        let places = values.iter_mut().enumerate();
                        places.for_each(|(column, value)| *value = matrix.at(row, column));
                        samples.push(values.iter().zip(&x).map(|(value, x)| value * x).sum::<f64>());
                    }
                }
            }
        }
        state.extend(samples);
        Ok(Answer { checksum: shown(checksum), result: Map::new(), state: Some(values::encode(&state)) })
    }

    /// What is found and what is right, each as bytes too; of reals what the factor comes to, multiplied out, and samples
    /// of every step.
    fn bytes_to_verify(&self) -> usize {
        let (rows, steps) = (self.rows(), usize::try_from(self.steps).unwrap_or(usize::MAX));
        let (squares, samples) = match self.settings.values {
            Values::Integers => (4, 0),
            Values::Reals => (6, 6_usize.saturating_mul(steps)),
        };
        let values = size_of_all([squares, rows, rows]).saturating_add(size_of_all([samples, rows]));
        values.saturating_mul(size_of::<f64>())
    }

    /// What is wrong with an answer, if anything is.
    ///
    /// Of reals L Lᵀ may differ from A by the backward error of the factorisation, at most (n+1) ε/2 (|L| |Lᵀ|)
    /// element by element to first order (Higham, Accuracy and Stability of Numerical Algorithms, theorem 10.3), and by
    /// as much again for being multiplied out. L (Lᵀ x) and A x are rounded in n additions each time, so that twice as
    /// much is between them, of |L| (|Lᵀ| |x|).
    fn difference(&self, found: &Answer, reference: &Answer) -> Option<String> {
        let values =
            |answer: &Answer| Some(values::decode::<f64>(answer.state.as_deref()?).collect::<Vec<f64>>());
        let (factor, right) = (values(found)?, values(reference)?);
        let rows = self.rows();
        let (right, right_samples) = right.split_at_checked(rows * rows)?;
        let differs = |found: Vec<f64>, allowed: &dyn Fn(usize) -> f64| {
            values::difference([1, rows, rows], found.into_iter(), right.iter().copied(), allowed)
        };
        if self.settings.values == Values::Reals && self.steps > 0 {
            let expected = rows * rows + 2 * right_samples.len();
            if factor.len() != expected {
                return Some(format!("there are {} of {expected} values", factor.len()));
            }
            let (factor, samples) = factor.split_at(rows * rows);
            let [products, magnitudes] = multiplied_out(factor, rows);
            let relative = (rows + 2) as f64 * f64::EPSILON;
            let said = differs(products, &|index| relative * magnitudes[index]);
            let of_step = |(step, (sample, right)): (usize, (&[f64], &[f64]))| {
                let (found, magnitudes) = sample.split_at(rows);
                let allowed = |row: usize| 2.0 * relative * magnitudes[row];
                let (found, right) = (found.iter().copied(), right.iter().copied());
                let said = values::difference([1, 1, rows], found, right, allowed)?;
                Some(format!("L Lᵀ x is not A x in step {step}: {said}"))
            };
            let mut steps = samples.chunks(2 * rows).zip(right_samples.chunks(rows)).enumerate();
            return said.map(|said| format!("L Lᵀ is not A: {said}")).or_else(|| steps.find_map(of_step));
        }
        differs(factor, &|_| 0.0).or_else(|| {
            (found.checksum != reference.checksum)
                .then(|| "the last factor does not, but an earlier one does".to_owned())
        })
    }
}

/// L Lᵀ, and |L| |Lᵀ|, by the definition.
fn multiplied_out(factor: &[f64], rows: usize) -> [Vec<f64>; 2] {
    let [mut products, mut magnitudes] = [0; 2].map(|_| vec![0.0; rows * rows]);
    for row in 0..rows {
        for column in 0..=row {
            let left = &factor[row * rows..][..=column];
            let right = &factor[column * rows..][..=column];
            let (mut product, mut magnitude) = (0.0, 0.0);
            for (left, right) in left.iter().zip(right) {
                product += left * right;
                magnitude += (left * right).abs();
            }
            for index in [row * rows + column, column * rows + row] {
                (products[index], magnitudes[index]) = (product, magnitude);
            }
        }
    }
    [products, magnitudes]
}
