//! Timing things in turn, so that drift of the machine hits all alike.

use std::time::{Duration, Instant};
use streamhalo::{HaloError, World};

/// Something that can be done again and again.
pub(super) trait Subject {
    /// Does it that often, to the end. Collective.
    fn repeat(&mut self, times: usize) -> Result<(), HaloError>;
    /// Whether this rank's time counts.
    fn counts(&self) -> bool {
        true
    }
    /// It is done in multiples of this.
    fn step(&self) -> usize {
        1
    }
}

/// How long something takes: the slowest rank's time of one repetition.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Timing {
    /// Over batches.
    pub(super) median_us: f64,
    pub(super) min_us: f64,
    pub(super) batches: usize,
    pub(super) repeats_per_batch: usize,
    /// Of each batch, in the order of the turns.
    pub(super) turns_us: Vec<f64>,
}

/// Batches in the time that a subject is given.
const BATCHES: f64 = 25.0;
const FEWEST_BATCHES: usize = 5;
const MOST_REPEATS: usize = 20_000;
/// Before each batch: other subjects have had the caches since the last turn.
const WARM_UP: usize = 4;

struct Turn<'s, S: ?Sized> {
    subject: &'s mut S,
    repeats: usize,
    batches_us: Vec<f64>,
}

/// Times subjects in turn, each for about `seconds`. Collective.
pub(super) fn in_turns<'s, S: Subject + ?Sized + 's>(
    world: &World,
    seconds: f64,
    subjects: impl IntoIterator<Item = &'s mut S>,
) -> Result<Vec<Timing>, HaloError> {
    let mut turns = Vec::new();
    for subject in subjects {
        let repeats = repeats_in(world, subject, seconds / BATCHES)?;
        turns.push(Turn { subject, repeats, batches_us: Vec::new() });
    }
    let started = Instant::now();
    let whole = Duration::from_secs_f64(seconds * turns.len() as f64);
    while !turns.is_empty() {
        for turn in &mut turns {
            let time = time(world, turn.subject, turn.repeats)?;
            turn.batches_us.push(world.all_max(time.as_secs_f64() * 1e6 / turn.repeats as f64)?);
        }
        let go_on = turns[0].batches_us.len() < FEWEST_BATCHES || started.elapsed() < whole;
        // Rank 0 decides for all.
        if !world.all_gather(&go_on)?[0] {
            break;
        }
    }
    Ok(turns.into_iter().map(Turn::timing).collect())
}

impl<S: ?Sized> Turn<'_, S> {
    fn timing(self) -> Timing {
        Timing {
            median_us: median(&self.batches_us),
            min_us: self.batches_us.iter().copied().fold(f64::INFINITY, f64::min),
            batches: self.batches_us.len(),
            repeats_per_batch: self.repeats,
            turns_us: self.batches_us,
        }
    }
}

/// Of some values, the upper one of two.
pub(super) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

/// How many repetitions take about so long, the same on all ranks.
fn repeats_in<S: Subject + ?Sized>(world: &World, subject: &mut S, seconds: f64) -> Result<usize, HaloError> {
    let step = subject.step();
    // One first, which may be all that there is time for.
    let once = world.all_max(time(world, subject, step)?.as_secs_f64() / step as f64)?;
    let tries = ((seconds / once) as usize).clamp(1, 10).next_multiple_of(step);
    time(world, subject, tries)?;
    let one = world.all_max(time(world, subject, tries)?.as_secs_f64() / tries as f64)?;
    Ok(((seconds / one) as usize).clamp(1, MOST_REPEATS).next_multiple_of(step))
}

/// Time of that many repetitions on this rank, which begin on all ranks at once; none where it does not count.
/// Collective.
pub(super) fn time<S: Subject + ?Sized>(
    world: &World,
    subject: &mut S,
    times: usize,
) -> Result<Duration, HaloError> {
    subject.repeat(WARM_UP.min(times).next_multiple_of(subject.step()))?;
    world.barrier()?;
    let started = Instant::now();
    subject.repeat(times)?;
    let time = started.elapsed();
    Ok(if subject.counts() { time } else { Duration::ZERO })
}

#[cfg(test)]
mod tests {
    use super::*;
    use streamhalo::WorldOptions;

    struct Nap(Duration, usize);

    impl Subject for Nap {
        fn repeat(&mut self, times: usize) -> Result<(), HaloError> {
            assert!(times.is_multiple_of(self.1));
            (0..times).for_each(|_| std::thread::sleep(self.0));
            Ok(())
        }

        fn step(&self) -> usize {
            self.1
        }
    }

    #[test]
    fn the_slowest_ranks_time_counts() {
        let timings = World::threads(2, WorldOptions::default(), |world| {
            let nap = |us| Duration::from_micros(us * (1 + world.rank() as u64));
            let (mut short, mut long) = (Nap(nap(100), 1), Nap(nap(2_000), 2));
            in_turns(&world, 0.02, [&mut short, &mut long])
        });
        for rank in timings.expect("threads can be started") {
            let [short, long] = &rank.expect("naps do not fail")[..] else { panic!("two are timed") };
            assert!(short.min_us >= 200.0 && short.median_us >= short.min_us, "{short:?}");
            assert!(long.min_us >= 4_000.0 && long.repeats_per_batch == 2, "{long:?}");
            assert!(short.batches == long.batches && short.batches >= FEWEST_BATCHES);
        }
    }
}
