//! What the answer must be, and how far from it another one may be.

use serde_json::{Map, Value};

use super::driver::Faces;
use super::reference::Reference;
use crate::app::values::{self, checksum_of_whole, shown};
use crate::app::{Answer, Verified, size_of_all};
use crate::config::Values;
use crate::error::AppError;

/// The most copies of a point.
const MOST_COPIES: f64 = 8.0;

impl Faces {
    /// Passes of the two outer loops.
    pub(super) fn rounds(&self) -> u64 {
        u64::from(self.settings.outer) * u64::from(self.settings.middle)
    }

    /// What the values of a round count in the state. The checksum shows integers of all rounds, and the state the
    /// last ones. Rounded values have none to compare, so that those of all rounds go into it, each with another
    /// weight: else two rounds that have each other's values would not show.
    fn weight(&self, round: u64) -> f64 {
        let left = self.rounds() - round;
        match self.settings.values {
            Values::Integers => f64::from(u8::from(left == 1)),
            Values::Reals => 1.0 / left as f64,
        }
    }

    /// Adds the values of a round to the state.
    pub(super) fn add_round<'a>(
        &self,
        round: u64,
        values: impl IntoIterator<Item = &'a f64>,
        state: &mut Vec<f64>,
    ) {
        let weighted = values.into_iter().map(|value| self.weight(round) * value);
        if round == 0 {
            *state = weighted.collect();
        } else {
            state.iter_mut().zip(weighted).for_each(|(sum, value)| *sum += value);
        }
    }
}

impl Verified for Faces {
    /// The answer of the reference. On real values its state is followed by the sum of what the magnitudes
    /// of all copies would have come to: what the error is relative to.
    fn reference(&self, go_on: &dyn Fn() -> Result<(), AppError>) -> Result<Answer, AppError> {
        let initial = self.initial();
        let (mut checksum, mut state, mut magnitudes) = (0_u64, Vec::new(), Vec::new());
        let play = |value: &dyn Fn([usize; 3]) -> f64| {
            let mut mesh =
                Reference::new(self.elements, self.settings.order + 1, self.grid.periodic(), value);
            for _ in 0..self.steps {
                go_on()?;
                mesh.step();
            }
            Ok::<_, AppError>(mesh.by_place())
        };
        for round in 0..self.rounds() {
            let found = play(&|point| initial.at(round, point))?;
            checksum = checksum.wrapping_add(checksum_of_whole(self.grid.cells(), &found));
            self.add_round(round, &found, &mut state);
            if self.settings.values == Values::Reals {
                let magnitudes_of_round = play(&|point| initial.at(round, point).abs())?;
                self.add_round(round, &magnitudes_of_round, &mut magnitudes);
            }
        }
        state.extend(magnitudes);
        let sweeps = u64::from(self.settings.extra_compute);
        let extra = (sweeps > 0).then(|| (sweeps * self.steps * self.rounds()) as f64);
        Ok(Answer { checksum: shown(checksum), result: result(extra), state: Some(values::encode(&state)) })
    }

    /// The state, and of the mesh points, sums and numbers of nodes; of reals the values of a round and the state of
    /// their magnitudes besides.
    fn bytes_to_verify(&self) -> usize {
        let arrays = match self.settings.values {
            Values::Integers => 4,
            Values::Reals => 6,
        };
        size_of_all(self.grid.cells()).saturating_mul(arrays * size_of::<f64>())
    }

    fn difference(&self, found: &Answer, reference: &Answer) -> Option<String> {
        let (state, right) = (found.state.as_deref()?, reference.state.as_deref()?);
        let magnitudes: Vec<f64> =
            values::decode::<f64>(right).skip(values::decode::<f64>(state).count()).collect();
        // Integers are exact. Else each step adds up to 8 copies, here and in the reference, and then rounds are
        // weighted and added.
        let additions = MOST_COPIES * self.steps as f64 + (self.rounds() + 1) as f64;
        let relative = additions * f64::EPSILON;
        let allowed = |index: usize| magnitudes.get(index).map_or(0.0, |magnitude| relative * magnitude);
        values::difference(
            self.grid.cells(),
            values::decode::<f64>(state),
            values::decode::<f64>(right),
            allowed,
        )
        .or_else(|| match self.settings.values {
            Values::Integers if found.checksum != reference.checksum => {
                Some("the last round's values do not, but an earlier round's do".to_owned())
            }
            _ => (found.result != reference.result)
                .then(|| format!("the extra kernel gave {:?}, not {:?}", found.result, reference.result)),
        })
    }
}

/// What is known besides the points: how many sweeps of the extra kernel there were.
pub(super) fn result(extra: Option<f64>) -> Map<String, Value> {
    extra.map(|value| ("extra_compute".to_owned(), Value::from(value))).into_iter().collect()
}
