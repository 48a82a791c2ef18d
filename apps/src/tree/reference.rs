//! What the leaves hold, how it is weighted, and the serial sum of all.

use crate::app::Initial;

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

/// The totals of all steps together, value by value: the serial sum over the leaves, and that of their magnitudes.
pub(super) fn totals(initial: Initial, leaves: usize, elements: usize, steps: u64) -> [Vec<f64>; 2] {
    let sum = |of: &dyn Fn(f64) -> f64| {
        let sum = |element| (0..leaves).map(|leaf| of(value(initial, leaf, element))).sum::<f64>();
        // No steps are 0, and not the negative one.
        (0..elements).map(|element| 0.0 + weights(steps) * sum(element)).collect()
    };
    [sum(&|value| value), sum(&f64::abs)]
}

/// Leaves times steps of which the sums of integers are exact: values and weights are at most 2²⁰ and 2³.
pub(super) const MOST: u64 = 1 << (53 - 20 - 4);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Values;

    #[test]
    fn totals_are_sums_of_all_steps() {
        let initial = Initial { values: Values::Integers, seed: 3 };
        for steps in [0, 1, 8, 21] {
            let [found, magnitudes] = totals(initial, 5, 2, steps);
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
}
