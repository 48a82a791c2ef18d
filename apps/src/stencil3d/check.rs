//! What the answer must be, and how far from it another one may be.

use serde_json::{Map, Value, json};

use super::driver::Stencil3d;
use super::reference::Reference;
use crate::app::values::{self, Real, checksum_of_whole, shown};
use crate::app::{Answer, Verified, size_of_all};
use crate::error::AppError;

/// How far norms may be from the reference's, relative to it: both add the same squares as `f64`, the ranks in many
/// short sums and the reference with what each addition loses. Far above what that makes of as many cells as a
/// machine holds, far below what a wrong cell does.
pub(super) const NORM_TOLERANCE: f64 = 1e-12;

impl<T: Real> Verified for Stencil3d<T> {
    /// The answer of the reference.
    fn reference(&self, go_on: &dyn Fn() -> Result<(), AppError>) -> Result<Answer, AppError> {
        let (cells, periodic) = (self.grid.cells(), self.grid.periodic());
        let mut grid = Reference::<T>::new(&self.problem, self.is_full(), cells, periodic);
        let weights = self.problem.step_weights();
        let residual = (self.problem.residual_weights(), self.problem.residual_source());
        let mut norms = Vec::new();
        for step in 0..self.steps {
            go_on()?;
            if self.has_norm(step) {
                norms.push(grid.norm(&residual.0, residual.1));
            }
            grid.step(&weights, self.problem.step_source(step));
        }
        Ok(Answer {
            checksum: shown(checksum_of_whole(cells, grid.values())),
            result: result(&norms),
            state: Some(values::encode(grid.values())),
        })
    }

    /// Two generations, or two states.
    fn bytes_to_verify(&self) -> usize {
        size_of_all(self.grid.cells()).saturating_mul(2 * T::BYTES)
    }

    fn difference(&self, found: &Answer, reference: &Answer) -> Option<String> {
        let [state, right] = [found, reference].map(|answer| answer.state.as_deref().unwrap_or_default());
        let decode = values::decode::<T>;
        let differs = values::difference(self.grid.cells(), decode(state), decode(right), |_| 0.0);
        differs.or_else(|| {
            if found.checksum != reference.checksum {
                // As those of 0 and -0.
                return Some(format!(
                    "no value differs, but the checksum of their bits is {}, not {}",
                    found.checksum, reference.checksum
                ));
            }
            ["first", "last"].into_iter().find_map(|which| {
                let norm = |answer: &Answer| answer.result.get("residual")?.get(which)?.as_f64();
                match (norm(found), norm(reference)) {
                    (None, None) => None,
                    (Some(found), Some(right)) if (found - right).abs() <= NORM_TOLERANCE * right => None,
                    (found, right) => {
                        let shown =
                            |norm: Option<f64>| norm.map_or("none".to_owned(), |norm| norm.to_string());
                        let [found, right] = [found, right].map(shown);
                        Some(format!("the {which} norm of the residual is {found}, not {right}"))
                    }
                }
            })
        })
    }
}

/// What is known besides the cells: the first and the last norm of the residual.
pub(super) fn result(norms: &[f64]) -> Map<String, Value> {
    let ends = norms.first().zip(norms.last());
    let ends = ends.map(|(first, last)| json!({ "first": first, "last": last }));
    ends.map(|ends| ("residual".to_owned(), ends)).into_iter().collect()
}

/// The name of what checkpoints have of norms.
const RESIDUAL: &str = "residual_bits";

/// The first and the last norm for a checkpoint: their bits, as decimal digits are not always read as the same
/// number.
pub(super) fn carried(norms: &[f64]) -> Map<String, Value> {
    let ends = norms.first().zip(norms.last());
    let ends = ends.map(|(first, last)| json!([first.to_bits(), last.to_bits()]));
    ends.map(|ends| (RESIDUAL.to_owned(), ends)).into_iter().collect()
}

/// The norms that a checkpoint has.
pub(super) fn norms_of(carried: &Map<String, Value>) -> Vec<f64> {
    let bits = carried.get(RESIDUAL).and_then(Value::as_array).into_iter().flatten();
    bits.filter_map(Value::as_u64).map(f64::from_bits).collect()
}
