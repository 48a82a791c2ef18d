//! What the answer must be, and where another one differs from it.

use serde_json::{Map, Value};

use super::driver::Comb;
use crate::app::values::{self, Real, checksum_of_whole, shown};
use crate::app::{Answer, Verified, mix, size_of_all};
use crate::error::AppError;

impl<T: Real> Verified for Comb<T> {
    /// The cells of the last cycle, one variable behind the other.
    fn reference(&self, go_on: &dyn Fn() -> Result<(), AppError>) -> Result<Answer, AppError> {
        let (mut checksum, mut state) = (0, Vec::new());
        let cells @ [depth, height, width] = self.grid.cells();
        for variable in 0..self.variables {
            let mut values = vec![T::default(); depth * height * width];
            for (z, plane) in values.chunks_exact_mut(height * width).enumerate() {
                go_on()?;
                let Some(cycle) = self.cycles.checked_sub(1) else { break };
                for (within, value) in plane.iter_mut().enumerate() {
                    let place = [z, within / width, within % width];
                    *value = T::from_f64(number_of_cell(cells, place, variable, cycle));
                }
            }
            checksum = mix(checksum ^ checksum_of_whole(cells, &values));
            state.extend(values::encode(&values));
        }
        Ok(Answer { checksum: shown(checksum), result: result(0), state: Some(state) })
    }

    /// Two states of all variables, or one beside its last variable and that as bytes.
    fn bytes_to_verify(&self) -> usize {
        let variables = (2 * self.variables).max(self.variables + 2);
        size_of_all(self.grid.cells()).saturating_mul(variables * T::BYTES)
    }

    fn difference(&self, found: &Answer, reference: &Answer) -> Option<String> {
        let cells = self.grid.cells();
        let bytes = cells.iter().product::<usize>() * T::BYTES;
        let (state, right) = (found.state.as_deref()?, reference.state.as_deref()?);
        let variables = (0..self.variables).map(|variable| variable * bytes..(variable + 1) * bytes);
        let mut differences = variables.enumerate().filter_map(|(variable, range)| {
            let [found, right] = [state, right].map(|state| state.get(range.clone()).unwrap_or_default());
            let decode = values::decode::<T>;
            let said = values::difference(cells, decode(found), decode(right), |_| 0.0)?;
            Some(format!("of variable {variable} {said}"))
        });
        differences.next().or_else(|| {
            if found.result != reference.result {
                return Some(format!("no value differs, but ghosts did: {:?}", found.result));
            }
            // As those of 0 and -0.
            let differs = found.checksum != reference.checksum;
            differs.then(|| {
                format!(
                    "no value differs, but the checksum of their bits is {}, not {}",
                    found.checksum, reference.checksum
                )
            })
        })
    }
}

/// What a cell holds in the end, for the reference: SplitMix64 and steps of the golden ratio in numbers that do not wrap
/// around, which share nothing with the code of the kernels.
fn number_of_cell([_, height, _]: [usize; 3], [z, y, x]: [usize; 3], variable: usize, cycle: u64) -> f64 {
    const MODULUS: u128 = 1 << 64;
    const GOLDEN: u128 = 11_400_714_819_323_198_485;
    let spread = |value: u128| {
        let sum = (value + GOLDEN) % MODULUS;
        let once = (sum ^ (sum >> 30)) * 13_787_848_793_156_543_929 % MODULUS;
        let twice = (once ^ (once >> 27)) * 10_723_151_780_598_845_931 % MODULUS;
        twice ^ (twice >> 31)
    };
    let base = spread(spread(variable as u128) ^ u128::from(cycle));
    let sum = spread(base ^ (z * height + y) as u128) + x as u128 * GOLDEN;
    (sum % MODULUS / 1_099_511_627_776) as f64
}

/// What is known besides the cells: how many ghosts were wrong, of all variables, in all cycles, of all ranks.
pub(super) fn result(wrong: u64) -> Map<String, Value> {
    Map::from_iter([("wrong_ghosts".to_owned(), Value::from(wrong))])
}
