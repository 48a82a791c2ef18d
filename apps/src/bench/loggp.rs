//! The parameters of the LogGP model: latency L, overhead o, gap g, and gap per byte G.
//!
//! A message of k bytes takes L + 2o + (k - 1)G in this model, and a rank begins one every g + (k - 1)G.
//! - o is what a sender spends on a small message itself, beside computation that hides the rest
//!   (as in `overlap`); that of the receiver is taken to be the same.
//! - g is the time from one message to the next in a window of many of the smallest, without what G says of their
//!   bytes, and without the ways of the last one and of the answer.
//! - G is the slope of that time over the sizes from 4 KiB on, by least squares.
//! - L is half of the round trip of a small message without 2o.
//!
//! All of them are by the minima over batches, which other work on the machine disturbs least. A parameter that comes out
//! at 0 or below is none: the fabric is not as the model says, as where the sender does all the work of a message, or
//! what was measured does not show it.

use super::bandwidth::Windows;
use super::figure::Figure;
use super::latency::RoundTrip;
use super::micro::MicroBench;
use super::overlap::{above_zero, overheads};
use super::primitive::{WINDOW, checked};
use super::turns::{Subject, in_turns};
use super::what::{Report, Row, Run, Value};
use streamhalo::World;

use crate::error::AppError;

pub(super) const ROW: Row = Row {
    name: "loggp",
    title: "latencies, and gaps between messages",
    value: Value::Time,
    note: "o: of a sender, beside computation; g: between small messages of a window;\n\
           G: slope of the gaps from 4 KiB on; L: half a round trip less 2o.",
    varies: None,
    run: Run::All(measure),
};

/// Sizes from which on the slope is taken.
const LARGE: f64 = 4096.0;

const LATENCY: &str = "latency";
const GAP: &str = "gap";
/// The operation of the figures that have the parameters.
pub(crate) const FIT: &str = "fit";

/// Measures all primitives at all sizes, and reports the figures of each size and then the fits. Collective over
/// two ranks.
fn measure(bench: &MicroBench, world: &World, report: &mut Report<'_>) -> Result<(), AppError> {
    let mut all: Vec<Figure> = Vec::new();
    for bytes in &bench.sizes {
        let figures = at_size(bench, world, *bytes)?;
        all.extend(figures.iter().cloned());
        report(figures);
    }
    let Some(small) = bench.sizes.iter().min() else { return Ok(()) };
    let stream = bench.stream(world)?;
    let (mut links, mut latencies) = (Vec::new(), Vec::new());
    for name in &bench.contestants {
        let latency = all.iter().find(|one| is_of(one, name, LATENCY) && one.bytes == *small);
        // Both or none: it was measured where it can be used.
        if let (Some(link), Some(latency)) = (checked(bench, (world, &stream), name, *small, false)?, latency)
        {
            links.push((link, latency.min_us));
            latencies.push(latency);
        }
    }
    let (_links, overheads) = overheads(world, bench.seconds, links)?;
    let fits = latencies.into_iter().zip(overheads).map(|(latency, overhead)| {
        let gaps = all.iter().filter(|one| is_of(one, &latency.backend, GAP));
        let gaps: Vec<(f64, f64)> = gaps.map(|one| (one.bytes as f64, one.min_us)).collect();
        let fit = Fit::of((*small as f64, latency.min_us), overhead.overhead_us, &gaps);
        Figure { operation: Some(FIT.to_owned()), ..latency.clone() }
            .with_if_known("l_us", fit.latency_us)
            .with_if_known("o_us", fit.overhead_us)
            .with_if_known("g_us", fit.gap_us)
            .with_if_known("g_ns_per_byte", fit.gap_ns_per_byte)
    });
    report(fits.collect());
    Ok(())
}

fn is_of(figure: &Figure, name: &str, operation: &str) -> bool {
    figure.backend == name && figure.operation.as_deref() == Some(operation)
}

/// Half of a round trip, and the time of a message in a window.
fn at_size(bench: &MicroBench, world: &World, bytes: usize) -> Result<Vec<Figure>, AppError> {
    let (begins, stream) = (world.rank() == 0, bench.stream(world)?);
    let mut subjects: Vec<(&str, String, &str, Box<dyn Subject>)> = Vec::new();
    for name in &bench.contestants {
        let one = checked(bench, (world, &stream), name, bytes, false)?;
        if let (Some(one), Some(many)) = (one, Windows::checked(bench, (world, &stream), name, bytes, false)?)
        {
            let executor = one.executor();
            let trip = Box::new(RoundTrip { link: one, begins });
            subjects.push((name, executor.clone(), LATENCY, trip));
            subjects.push((name, executor, GAP, Box::new(many)));
        }
    }
    let turns = subjects.iter_mut().map(|(.., subject)| &mut **subject);
    let timings = in_turns(world, bench.seconds, turns)?;
    let figures = subjects.iter().zip(timings).map(|((name, executor, operation, _), timing)| {
        let parts = if *operation == LATENCY { 2.0 } else { WINDOW as f64 };
        let figure = timing.figure(bench, (name, executor.clone()), bytes).divided_by(parts);
        Figure { operation: Some((*operation).to_owned()), ..figure }
    });
    Ok(figures.collect())
}

/// The parameters, as far as they can be told.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Fit {
    latency_us: Option<f64>,
    overhead_us: Option<f64>,
    gap_us: Option<f64>,
    gap_ns_per_byte: Option<f64>,
}

impl Fit {
    /// From the half round trip of a small message, the overhead, and gaps by bytes.
    fn of((small, half_us): (f64, f64), overhead_us: Option<f64>, gaps: &[(f64, f64)]) -> Self {
        let large: Vec<(f64, f64)> = gaps.iter().copied().filter(|(bytes, _)| *bytes >= LARGE).collect();
        let slope = slope(&large).and_then(above_zero);
        let latency_us = slope
            .zip(overhead_us)
            .and_then(|(slope, overhead_us)| above_zero(half_us - 2.0 * overhead_us - (small - 1.0) * slope));
        let of_bytes = (small - 1.0) * slope.unwrap_or(0.0);
        let gap_us = gaps.iter().find(|(bytes, _)| *bytes == small);
        // A window takes so many bytes, a gap less, and two ways: of its last message, and of the answer.
        let (window, ways_us) = (WINDOW as f64, 2.0 * (half_us - of_bytes));
        let gap_us = gap_us
            .and_then(|(_, each_us)| above_zero((window * (each_us - of_bytes) - ways_us) / (window - 1.0)));
        Self { latency_us, overhead_us, gap_us, gap_ns_per_byte: slope.map(|slope| slope * 1e3) }
    }
}

/// Of a line through points, by least squares; none through fewer than two.
fn slope(points: &[(f64, f64)]) -> Option<f64> {
    let n = points.len() as f64;
    let mean = |pick: fn(&(f64, f64)) -> f64| points.iter().map(pick).sum::<f64>() / n;
    let (x, y) = (mean(|p| p.0), mean(|p| p.1));
    let over: f64 = points.iter().map(|p| (p.0 - x) * (p.1 - y)).sum();
    let under: f64 = points.iter().map(|p| (p.0 - x).powi(2)).sum();
    (under > 0.0).then(|| over / under)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_that_is_as_the_model_says_is_found_again() {
        let (l, o, g, per_byte) = (1.5, 0.25, 0.4, 2e-4);
        let sizes = [8.0, 64.0, 4096.0, 65_536.0, 1_048_576.0];
        let way = |bytes: f64| l + 2.0 * o + (bytes - 1.0) * per_byte;
        let half = way(8.0);
        let window = |bytes: f64| 63.0 * (g + (bytes - 1.0) * per_byte) + way(bytes) + half;
        let gaps = sizes.map(|bytes| (bytes, window(bytes) / 64.0));
        let fit = Fit::of((8.0, half), Some(o), &gaps);
        let close = |found: Option<f64>, expected: f64| {
            found.is_some_and(|found| (found - expected).abs() < 1e-2 * expected)
        };
        assert!(close(fit.latency_us, l) && close(fit.gap_us, g), "{fit:?}");
        let slow =
            Fit::of((8.0, half + 100.0), Some(o), &gaps.map(|(bytes, each)| (bytes, each + 200.0 / 64.0)));
        assert!(close(slow.gap_us, g), "however long messages are under way: {slow:?}");
        assert!(fit.overhead_us == Some(o) && close(fit.gap_ns_per_byte, per_byte * 1e3), "{fit:?}");
    }

    /// A message of its size would take that gap and its bytes.
    #[test]
    fn the_gap_is_the_same_however_long_the_smallest_message_is() {
        let of_bytes = |bytes: f64| (bytes - 1.0) * 2e-4;
        let gaps =
            [65_536.0, 1_048_576.0].map(|bytes| (bytes, (63.0 * 0.4 + 2.0 * 6.0) / 64.0 + of_bytes(bytes)));
        let found = Fit::of((65_536.0, 6.0 + of_bytes(65_536.0)), Some(0.25), &gaps).gap_us;
        assert!(found.is_some_and(|found| (found - 0.4).abs() < 1e-6), "{found:?}");
    }

    /// The time of a byte is that of long messages: short ones have other protocols.
    #[test]
    fn short_messages_have_no_part_in_the_gap_per_byte() {
        let long = [(4096.0, 2.0), (8192.0, 3.0)];
        let fit = |gaps: &[(f64, f64)]| Fit::of((8.0, 9.0), Some(0.5), gaps).gap_ns_per_byte;
        let of_long = fit(&long);
        assert_eq!(of_long, Some(1e3 / 4096.0));
        assert_eq!(fit(&[&[(8.0, 0.5), (64.0, 0.5), (2048.0, 5.0)], &long[..]].concat()), of_long);
        assert_eq!(fit(&[(8.0, 0.5), (64.0, 0.6), (4096.0, 2.0)]), None, "one size has no slope");
        assert_eq!(fit(&[]), None);
    }

    #[test]
    fn what_is_not_above_zero_cannot_be_told() {
        let gaps = [(8.0, 0.4), (4096.0, 2.0), (8192.0, 3.0)];
        let fit = Fit::of((8.0, 0.3), Some(0.2), &gaps);
        assert_eq!((fit.latency_us, fit.overhead_us, fit.gap_us.is_some()), (None, Some(0.2), true));
        let slow = Fit::of((8.0, 13.0), Some(0.2), &gaps);
        assert_eq!(slow.gap_us, None, "the window takes no longer than two ways");
        let hidden = Fit::of((8.0, 0.3), None, &gaps);
        assert_eq!((hidden.latency_us, hidden.overhead_us), (None, None));
        let falling = Fit::of((8.0, 9.0), Some(0.2), &[(8.0, 0.4), (4096.0, 3.0), (8192.0, 2.0)]);
        assert_eq!((falling.latency_us, falling.gap_ns_per_byte), (None, None));
    }
}
