//! What the leaves hold, how it is weighted, and the serial sum of all.

use crate::app::Initial;
use crate::error::AppError;

/// What a contribution is multiplied with in a step, so that one of another step is noticed.
pub(super) fn weight(step: u64) -> f64 {
    (step % WEIGHTS + 1) as f64
}

/// Different weights, of which the last is the largest.
const WEIGHTS: u64 = 8;

/// The sum of the weights of all steps, which is exact.
fn weights(steps: u64) -> f64 {
    let (rounds, rest) = (steps / WEIGHTS, steps % WEIGHTS);
    (rounds * (WEIGHTS * (WEIGHTS + 1) / 2) + rest * (rest + 1) / 2) as f64
}

/// A value of a leaf.
pub(super) fn value(initial: Initial, leaf: usize, element: usize) -> f64 {
    initial.at(0, [0, leaf, element])
}

/// Leaves that are summed between two questions whether to go on: a moment's work.
const BLOCK_LEAVES: usize = 1 << 16;

/// The totals of all steps together, value by value: the serial sum over the leaves, and that of their magnitudes.
///
/// # Errors
///
/// That of `go_on`.
pub(super) fn totals(
    initial: Initial,
    leaves: usize,
    elements: usize,
    steps: u64,
    go_on: &dyn Fn() -> Result<(), AppError>,
) -> Result<[Vec<f64>; 2], AppError> {
    let (mut sums, mut magnitudes) = (vec![0.0; elements], vec![0.0; elements]);
    for (element, (sum, magnitude)) in sums.iter_mut().zip(&mut magnitudes).enumerate() {
        for first in (0..leaves).step_by(BLOCK_LEAVES) {
            go_on()?;
            for leaf in first..leaves.min(first + BLOCK_LEAVES) {
                let value = value(initial, leaf, element);
                *sum += value;
                *magnitude += value.abs();
            }
        }
        // No steps are 0, and not the negative one.
        *sum = 0.0 + weights(steps) * *sum;
        *magnitude *= weights(steps);
    }
    Ok([sums, magnitudes])
}

/// Leaves times steps of which the sums of integers are exact: values and weights are at most 2²⁰ and 2³.
pub(super) const MOST: u64 = 1 << (53 - 20 - 4);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Values;
    use std::cell::Cell;

    #[test]
    fn totals_are_sums_of_all_steps() {
        let initial = Initial { values: Values::Integers, seed: 3 };
        for steps in [0, 1, 8, 21] {
            let [found, magnitudes] = totals(initial, 5, 2, steps, &|| Ok(())).expect("nobody stops it");
            for element in 0..2 {
                let (mut sum, mut magnitude) = (0.0, 0.0);
                for step in 0..steps {
                    for leaf in 0..5 {
                        sum += weight(step) * value(initial, leaf, element);
                        magnitude += weight(step) * value(initial, leaf, element).abs();
                    }
                }
                assert_eq!((found[element], magnitudes[element]), (sum, magnitude), "{steps}");
            }
        }
    }

    /// Whoever waits for them can stop them at any block.
    #[test]
    fn totals_ask_at_every_block_whether_to_go_on() {
        let initial = Initial { values: Values::Integers, seed: 3 };
        let blocks = 2 * 3;
        for stopped_at in 1..=blocks {
            let asked = Cell::new(0);
            let go_on = || {
                asked.set(asked.get() + 1);
                if asked.get() == stopped_at { Err(AppError::Interrupted { signal: 2 }) } else { Ok(()) }
            };
            let stopped = totals(initial, 2 * BLOCK_LEAVES + 1, 2, 1, &go_on);
            assert!(matches!(stopped, Err(AppError::Interrupted { signal: 2 })), "{stopped:?}");
            assert_eq!(asked.get(), stopped_at);
        }
    }
}
