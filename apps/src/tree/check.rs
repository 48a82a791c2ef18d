//! What the answer must be, and how far from it another one may be.

use serde_json::{Map, Value};

use super::driver::Tree;
use super::reference::totals;
use crate::app::values::{checksum_of_row, decode, difference, encode, shown};
use crate::app::{Answer, Verified};
use crate::config::Values;
use crate::error::AppError;

impl Verified for Tree {
    /// The answer of the serial sum. Its state is what both sums must be, and then what an error in each is relative to.
    fn reference(&self, go_on: &dyn Fn() -> Result<(), AppError>) -> Result<Answer, AppError> {
        let [leaves] = self.leaves.cells();
        let [sum, magnitudes] = totals(self.initial(), leaves, self.settings.elements, self.steps, go_on)?;
        let checksum = shown(checksum_of_row([0; 3], &sum));
        Ok(Answer { checksum, result: result(true), state: Some(encode(&[sum, magnitudes].concat())) })
    }

    /// The totals and the magnitudes of the reference, and both totals of an answer, each as bytes too.
    fn bytes_to_verify(&self) -> usize {
        self.settings.elements.saturating_mul(8 * size_of::<f64>())
    }

    fn difference(&self, found: &Answer, reference: &Answer) -> Option<String> {
        let values = |answer: &Answer| Some(decode::<f64>(answer.state.as_deref()?).collect::<Vec<f64>>());
        let (found_values, right) = (values(found)?, values(reference)?);
        let elements = self.settings.elements;
        let (right, magnitudes) = right.split_at(elements);
        let [leaves] = self.leaves.cells();
        // Integers are exact. Else every leaf is added once and weighted once, and every step added once.
        let relative = (leaves as u64 + self.steps + 1) as f64 * f64::EPSILON;
        let allowed = |index: usize| match self.settings.values {
            Values::Integers => 0.0,
            Values::Reals => relative * magnitudes[index],
        };
        let sums = found_values.chunks(elements).zip(["the tree", "the library's allreduce"]);
        let differences = sums.filter_map(|(sum, whose)| {
            let found = difference([1, 1, elements], sum.iter().copied(), right.iter().copied(), allowed)?;
            Some(format!("of {whose} {found}"))
        });
        let mut differences = differences.chain(
            (found.result != reference.result)
                .then(|| "ranks have different totals of the tree or of the library's allreduce".to_owned()),
        );
        match found_values.len() == 2 * elements {
            true => differences.next(),
            false => Some(format!("there are {} of {} values", found_values.len(), 2 * elements)),
        }
    }
}

/// What is known besides the root's totals: whether every rank has the same, of the tree and of the library.
pub(super) fn result(is_agreed: bool) -> Map<String, Value> {
    Map::from_iter([("ranks_agree".to_owned(), Value::from(is_agreed))])
}
