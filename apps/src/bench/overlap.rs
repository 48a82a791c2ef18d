//! The share of a message's latency that computation can hide (2015, section V).
//!
//! Computation that takes slightly longer than the latency is put between the initiation of a message and its
//! local completion. What the message then takes beyond the computation is its overhead; the rest of its latency
//! was hidden: none of it where the overhead is more than the latency. All of it is by the minima over batches, which other
//! work on the machine disturbs least. Where the message takes no longer than the computation alone, what was measured
//! does not show its overhead, since a sender does something; then there is no share either.

use super::figure::Figure;
use super::latency::RoundTrip;
use super::micro::MicroBench;
use super::primitive::{Link, checked};
use super::turns::{Subject, Timing, in_turns};
use super::what::{Row, Run, Value};
use std::hint::black_box;
use std::time::Instant;
use streamhalo::{HaloError, World};

use crate::error::AppError;

pub(super) const ROW: Row = Row {
    name: "overlap",
    title: "share of the latency that computation can hide",
    value: Value::Percent,
    note: "Computation is between the initiation and the local completion (2015, section V).",
    varies: None,
    run: Run::Sizes(measure),
};

/// By how much the computation exceeds the latency.
const LONGER: f64 = 1.1;

/// Measures all primitives at one size. Collective over two ranks.
fn measure(bench: &MicroBench, world: &World, bytes: usize) -> Result<Vec<Figure>, AppError> {
    let begins = world.rank() == 0;
    let stream = bench.stream(world)?;
    let (mut names, mut trips) = (Vec::new(), Vec::new());
    for name in &bench.contestants {
        if let Some(link) = checked(bench, (world, &stream), name, bytes, false)? {
            names.push(name);
            trips.push(RoundTrip { link, begins });
        }
    }
    let latencies = in_turns(world, bench.seconds, &mut trips)?;
    let halves = latencies.iter().map(|trip| trip.min_us / 2.0);
    let links = trips.into_iter().map(|trip| trip.link).zip(halves).collect();
    let (links, overheads) = overheads(world, bench.seconds, links)?;
    let mut figures = Vec::new();
    for (index, name) in names.into_iter().enumerate() {
        let Overhead { overhead_us, computing } = &overheads[index];
        let figure =
            latencies[index].clone().figure(bench, (name, links[index].executor()), bytes).divided_by(2.0);
        let share = overhead_us.map(|overhead_us| hidden_percent(figure.min_us, overhead_us));
        let figure =
            figure.with_if_known("overlap_percent", share).with_if_known("overhead_us", *overhead_us);
        figures.push(figure.with("compute_us", computing.min_us));
    }
    Ok(figures)
}

/// The part of a latency that is not overhead.
fn hidden_percent(latency_us: f64, overhead_us: f64) -> f64 {
    100.0 * (1.0 - overhead_us / latency_us).max(0.0)
}

/// What a sender has to do for a message itself.
#[derive(Debug, Clone)]
pub(super) struct Overhead {
    /// `None` where it cannot be told.
    pub(super) overhead_us: Option<f64>,
    pub(super) computing: Timing,
}

type Links = Vec<Box<dyn Link>>;

/// Measures the overheads of links with these latencies in microseconds, and gives the links back. Collective.
pub(super) fn overheads(
    world: &World,
    seconds: f64,
    links: Vec<(Box<dyn Link>, f64)>,
) -> Result<(Links, Vec<Overhead>), HaloError> {
    let begins = world.rank() == 0;
    let unit_us = unit_us();
    let mut pairs: Vec<_> = links
        .into_iter()
        .map(|(link, latency_us)| {
            let units = ((LONGER * latency_us / unit_us) as usize).max(1);
            let computing = Computing { begins, units, value: 1.0 };
            (Sending { link, computing: computing.clone() }, computing)
        })
        .collect();
    let subjects = pairs
        .iter_mut()
        .flat_map(|(sending, computing)| [sending as &mut dyn Subject, computing as &mut dyn Subject]);
    let timings = in_turns(world, seconds, subjects)?;
    let overhead = |pair: &[Timing]| Overhead {
        overhead_us: above_zero(pair[0].min_us - pair[1].min_us),
        computing: pair[1].clone(),
    };
    let overheads = timings.chunks(2).map(overhead).collect();
    Ok((pairs.into_iter().map(|(sending, _)| sending.link).collect(), overheads))
}

/// What is not above zero was not seen.
pub(super) fn above_zero(value: f64) -> Option<f64> {
    (value > 0.0).then_some(value)
}

/// Arithmetic that no compiler leaves out. It goes on from what the one before has left: a processor would begin with it
/// before that has ended.
fn compute(value: f64, units: usize) -> f64 {
    (0..units).fold(value, |value, _| black_box(value * 0.999_999 + 1e-6))
}

/// How long a unit of it takes.
fn unit_us() -> f64 {
    const UNITS: usize = 20_000;
    let time = || {
        let started = Instant::now();
        black_box(compute(1.0, UNITS));
        started.elapsed().as_secs_f64() * 1e6 / UNITS as f64
    };
    // The shortest: nothing else was on the core meanwhile.
    (0..10).map(|_| time()).fold(f64::INFINITY, f64::min)
}

/// A message with computation in between; the peer receives.
struct Sending {
    link: Box<dyn Link>,
    computing: Computing,
}

impl Subject for Sending {
    fn repeat(&mut self, times: usize) -> Result<(), HaloError> {
        for _ in 0..times {
            if self.computing.begins {
                self.link.start()?;
                self.computing.once();
                self.link.finish()?;
            } else {
                self.link.recv()?;
            }
            self.link.synchronize()?;
        }
        Ok(())
    }

    /// The receiver only follows.
    fn counts(&self) -> bool {
        self.computing.begins
    }
}

/// The computation alone.
#[derive(Clone)]
struct Computing {
    begins: bool,
    units: usize,
    /// What it has come to.
    value: f64,
}

impl Computing {
    fn once(&mut self) {
        self.value = compute(self.value, self.units);
    }
}

impl Subject for Computing {
    fn repeat(&mut self, times: usize) -> Result<(), HaloError> {
        if self.begins {
            (0..times).for_each(|_| self.once());
        }
        Ok(())
    }

    fn counts(&self) -> bool {
        self.begins
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_overhead_is_hidden_and_nothing_where_the_overhead_is_more_than_the_latency() {
        assert_eq!([0.5, 2.0, 3.0].map(|overhead_us| hidden_percent(2.0, overhead_us)), [75.0, 0.0, 0.0]);
    }

    /// Calls behind each other have no part of their time in common.
    #[test]
    fn computation_takes_as_long_in_many_calls_as_in_one() {
        let time = |times: usize, units: usize| {
            let mut computing = Computing { begins: true, units, value: 1.0 };
            let started = Instant::now();
            computing.repeat(times).expect("it only computes");
            black_box(computing.value);
            started.elapsed()
        };
        // Of several, as other work on the machine may come in between.
        let rounds = (0..50).map(|_| [time(1, 20_000), time(1000, 20)]);
        let [one, many] = rounds.reduce(|[a, b], [c, d]| [a.min(c), b.min(d)]).expect("there are some");
        assert!(many.as_secs_f64() > 0.9 * one.as_secs_f64(), "{many:?} in many calls, {one:?} in one");
    }
}
