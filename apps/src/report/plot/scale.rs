//! Where values go on the axes, and where the axes have their ticks.
//!
//! A chart is drawn in *positions*: the value itself, or its binary logarithm once rank
//! counts span a factor of 8, where a linear axis would press the small ones together.

use std::ops::Range;

use plotters::coord::ranged1d::{DefaultFormatting, KeyPointHint, Ranged};

/// Rank counts whose greatest is this many times the least go on logarithmic axes.
const LOG_FROM: usize = 8;

/// How values become positions, on both axes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scale {
    Linear,
    Log2,
}

impl Scale {
    /// `ranks` is sorted and not empty.
    pub(super) fn for_ranks(ranks: &[usize]) -> Self {
        match ranks[ranks.len() - 1] / ranks[0] >= LOG_FROM {
            true => Self::Log2,
            false => Self::Linear,
        }
    }

    pub(super) fn position(self, value: f64) -> f64 {
        match self {
            Self::Linear => value,
            Self::Log2 => value.log2(),
        }
    }

    pub(super) fn value(self, position: f64) -> f64 {
        match self {
            Self::Linear => position,
            Self::Log2 => position.exp2(),
        }
    }
}

/// One axis: its range and its ticks, both in positions.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Axis {
    pub(super) range: Range<f64>,
    pub(super) ticks: Vec<f64>,
}

impl Axis {
    /// The axis of rank counts: a tick at each that has room for its label.
    pub(super) fn of_ranks(scale: Scale, ranks: &[usize]) -> Self {
        let positions: Vec<f64> = ranks.iter().map(|n| scale.position(*n as f64)).collect();
        let (first, last) = (positions[0], positions[positions.len() - 1]);
        let span = last - first;
        let pad = if span == 0.0 { 1.0 } else { 0.08 * span };
        // About 25 labels of four digits fit side by side.
        let room = span / 25.0;
        let mut ticks: Vec<f64> = Vec::with_capacity(positions.len());
        for position in positions {
            if ticks.last().is_none_or(|tick| position - tick >= room) {
                ticks.push(position);
            }
        }
        Self { range: first - pad..last + pad, ticks }
    }

    /// A logarithmic axis of sizes or numbers from the first to the last, with ticks at powers of 2 that
    /// leave room for their labels.
    pub(super) fn of_powers((first, last): (f64, f64)) -> Self {
        let (low, high) = (first.log2(), last.log2());
        let pad = if high > low { 0.04 * (high - low) } else { 1.0 };
        let (first, last) = (low.ceil() as i32, high.floor() as i32);
        // About ten labels as long as `512 KiB` fit side by side.
        let step = ((last - first) / 10 + 1).max(1);
        let ticks = (first..=last).step_by(step as usize).map(f64::from).collect();
        Self { range: low - pad..high + pad, ticks }
    }

    /// As [`Axis::of_speedups`], with few ticks however far the values are apart.
    pub(super) fn of_values(scale: Scale, least: f64, greatest: f64) -> Self {
        let mut axis = Self::of_speedups(scale, least, greatest.max(f64::MIN_POSITIVE));
        if scale == Scale::Log2 {
            let step = axis.ticks.len() / 14 + 1;
            axis.ticks = axis.ticks.into_iter().step_by(step).collect();
        }
        axis
    }

    /// The axis of speed-ups, which holds `least` and `greatest`: from 0 where it is
    /// linear, between powers of 2 where it is not.
    pub(super) fn of_speedups(scale: Scale, least: f64, greatest: f64) -> Self {
        match scale {
            Scale::Linear => {
                let step = step_for(greatest);
                let count = (1.04 * greatest / step).ceil();
                Self {
                    range: 0.0..count * step,
                    ticks: (0..=count as u32).map(|n| f64::from(n) * step).collect(),
                }
            }
            Scale::Log2 => {
                let (low, high) = (least.log2().floor(), greatest.log2().ceil());
                let high = high.max(low + 1.0);
                let mut ticks = vec![low];
                while ticks[ticks.len() - 1] < high {
                    ticks.push(ticks[ticks.len() - 1] + 1.0);
                }
                // The margin keeps markers on the border whole.
                Self { range: low - 0.12..high + 0.12, ticks }
            }
        }
    }
}

impl Ranged for Axis {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    fn map(&self, position: &f64, (first, last): (i32, i32)) -> i32 {
        let share = (position - self.range.start) / (self.range.end - self.range.start);
        first + (f64::from(last - first) * share).round() as i32
    }

    /// The library asks how many fit; ours were chosen to.
    fn key_points<Hint: KeyPointHint>(&self, _: Hint) -> Vec<f64> {
        self.ticks.clone()
    }

    fn range(&self) -> Range<f64> {
        self.range.clone()
    }
}

/// 1, 2 or 5 times a power of ten, for four to nine ticks up to `greatest`.
pub(super) fn step_for(greatest: f64) -> f64 {
    let power = 10_f64.powf((greatest / 9.0).log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0].map(|factor| factor * power);
    let enough = |step: &&f64| greatest / **step <= 9.0;
    *steps.iter().find(enough).unwrap_or(&steps[3])
}

/// A tick's label: no more decimals than it needs.
pub(super) fn label(value: f64) -> String {
    let rounded = (value * 1e4).round() / 1e4;
    format!("{rounded}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_are_logarithmic_from_a_factor_of_eight() {
        assert_eq!(Scale::for_ranks(&[1, 2, 4]), Scale::Linear);
        assert_eq!(Scale::for_ranks(&[1, 8]), Scale::Log2);
        assert_eq!(Scale::for_ranks(&[4, 31]), Scale::Linear);
    }

    #[test]
    fn speedup_axes_hold_their_values_and_have_few_ticks() {
        for (least, greatest) in [(0.4, 1.0), (1.0, 4.0), (0.9, 7.3), (1e-3, 2e-3)] {
            let axis = Axis::of_speedups(Scale::Linear, least, greatest);
            assert!(axis.range.contains(&greatest), "{greatest}: {axis:?}");
            assert!((4..=12).contains(&axis.ticks.len()), "{greatest}: {axis:?}");
        }
        let axis = Axis::of_speedups(Scale::Log2, 0.7, 60.0);
        assert_eq!(axis.ticks, [-1.0, 0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    }

    #[test]
    fn crowded_rank_ticks_are_thinned() {
        let ranks: Vec<usize> = (1..=64).collect();
        let axis = Axis::of_ranks(Scale::Log2, &ranks);
        assert!(axis.ticks.len() <= 26, "{}", axis.ticks.len());
        assert_eq!(Axis::of_ranks(Scale::Linear, &[2]).ticks, [2.0]);
    }

    #[test]
    fn powers_are_ticks_that_have_room() {
        assert_eq!(Axis::of_powers((8.0, 64.0)).ticks, [3.0, 4.0, 5.0, 6.0]);
        let axis = Axis::of_powers((1.0, f64::from(1 << 30)));
        assert!(axis.ticks.len() <= 11 && axis.ticks[0] == 0.0, "{axis:?}");
        assert_eq!(Axis::of_powers((100.0, 100.0)).range.end - 100_f64.log2(), 1.0);
        let axis = Axis::of_values(Scale::Log2, 1e-2, 1e6);
        assert!(axis.ticks.len() <= 15 && axis.range.contains(&1e6_f64.log2()), "{axis:?}");
    }

    #[test]
    fn labels_are_short() {
        assert_eq!([0.25, 3.0, 0.1 + 0.2].map(label), ["0.25", "3", "0.3"]);
    }
}
