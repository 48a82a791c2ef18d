//! What the answer must be, and where another one differs from it.

use serde_json::{Map, Value};

use super::driver::{COLUMNS, Pipeline};
use super::reference::{last_corner, rows};
use crate::app::values::{self, checksum_of_row, decode, encode, shown};
use crate::app::{Answer, Verified};
use crate::error::AppError;

impl Verified for Pipeline {
    /// The answer by the formula. The state is the last row, which depends on every update; the checksum is that of all
    /// values.
    fn reference(&self, go_on: &dyn Fn() -> Result<(), AppError>) -> Result<Answer, AppError> {
        let (cells, iterations) = (self.grid.cells(), self.iterations());
        let mut checksum = 0_u64;
        let mut last_row = Vec::new();
        for (index, row) in rows(cells, iterations).enumerate() {
            go_on()?;
            checksum = checksum.wrapping_add(checksum_of_row([0, index, 0], &row));
            last_row = row;
        }
        let result = result(last_corner(cells, iterations), 0);
        Ok(Answer { checksum: shown(checksum), result, state: Some(encode(&last_row)) })
    }

    /// The reference keeps no more than a row and the next one, of which the last is the state.
    fn bytes_to_verify(&self) -> usize {
        self.grid.cells()[COLUMNS].saturating_mul(4 * size_of::<f64>())
    }

    fn difference(&self, found: &Answer, reference: &Answer) -> Option<String> {
        if found == reference {
            return None;
        }
        let (state, right) = (found.state.as_deref()?, reference.state.as_deref()?);
        let (state, right) = (decode::<f64>(state), decode::<f64>(right));
        let in_row = values::difference([1, 1, self.grid.cells()[COLUMNS]], state, right, |_| 0.0);
        Some(match in_row {
            Some(difference) => format!("in the last row {difference}"),
            None if found.result != reference.result => {
                format!("the last row does not, but {:?} is not {:?}", found.result, reference.result)
            }
            None => "the last row does not, but values above it do".to_owned(),
        })
    }
}

/// What is known besides the values: the one that the kernel verifies, and how many have come wrong.
pub(super) fn result(corner: f64, wrong: u64) -> Map<String, Value> {
    Map::from_iter([
        ("corner".to_owned(), Value::from(corner)),
        ("came_wrong".to_owned(), Value::from(wrong)),
    ])
}
