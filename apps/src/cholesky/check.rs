//! What the answer must be, and how far from it another one may be.

use serde_json::Map;

use super::driver::Cholesky;
use super::matrix::Matrix;
use crate::app::Answer;
use crate::app::values::{self, checksum_of_row, shown};
use crate::config::Values;
use crate::error::AppError;

impl Cholesky {
    /// Of integers the factor, by its formula. Of reals the matrix itself, which the factor is multiplied out to be
    /// compared with.
    pub(super) fn serial_answer(&self, go_on: &dyn Fn() -> Result<(), AppError>) -> Result<Answer, AppError> {
        let (rows, mut checksum) = (self.rows(), 0_u64);
        let mut state = vec![0.0; rows * rows];
        for step in 0..self.steps {
            go_on()?;
            let matrix = Matrix::new(self.initial(), rows, step);
            let is_last = step + 1 == self.steps;
            match self.settings.values {
                Values::Integers => {
                    for (row, place) in state.chunks_exact_mut(rows).enumerate() {
                        place
                            .iter_mut()
                            .zip(matrix.factor_row(row))
                            .for_each(|(place, value)| *place = value);
                        checksum = checksum.wrapping_add(checksum_of_row([0, row, 0], &place[..=row]));
                    }
                }
                Values::Reals if is_last => {
                    let places = state.iter_mut().enumerate();
                    places.for_each(|(index, place)| *place = matrix.at(index / rows, index % rows));
                }
                Values::Reals => {}
            }
        }
        Ok(Answer { checksum: shown(checksum), result: Map::new(), state: Some(values::encode(&state)) })
    }

    /// What is wrong with an answer, if anything is.
    ///
    /// Of reals L Lᵀ may differ from A by the backward error of the factorisation, at most (n+1) ε/2 (|L| |Lᵀ|)
    /// element by element to first order (Higham, Accuracy and Stability of Numerical Algorithms, theorem 10.3), and by
    /// as much again for being multiplied out.
    pub(super) fn judge(&self, found: &Answer, reference: &Answer) -> Option<String> {
        let values =
            |answer: &Answer| Some(values::decode::<f64>(answer.state.as_deref()?).collect::<Vec<f64>>());
        let (factor, right) = (values(found)?, values(reference)?);
        let rows = self.rows();
        let differs = |found: Vec<f64>, allowed: &dyn Fn(usize) -> f64| {
            values::difference([1, rows, rows], found.into_iter(), right.iter().copied(), allowed)
        };
        if self.settings.values == Values::Reals && self.steps > 0 {
            if factor.len() != rows * rows {
                return Some(format!("there are {} of {} values", factor.len(), rows * rows));
            }
            let [products, magnitudes] = multiplied_out(&factor, rows);
            let relative = (rows + 2) as f64 * f64::EPSILON;
            let said = differs(products, &|index| relative * magnitudes[index])?;
            return Some(format!("L Lᵀ is not A: {said}"));
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
