//! How long a rank's stream spends on what.
//!
//! The clock is read where the work is done: on an inline stream that is the calling thread, right
//! after the call; on a threaded stream its thread between two operations; on a GPU the device itself, whose times
//! come later. A reading costs 20 to 30 ns on an inline stream, and the queueing of an operation more on others; on a
//! GPU several microseconds of the thread that feeds it, which is more than some kernels take, so that there one step of
//! some is read and stands for those behind it. So do those that are put on a stream one by one for those that it replays.

use std::cell::Cell;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use streamhalo::comm::timeline::now_ns;
use streamhalo::{Stream, StreamKind};

use super::{END_MARK, step_mark};

/// Steps of a device of which one is read: a prime, so that what happens every so many steps (exchanges of a wide halo, norms)
/// is among them as often as among all.
const OF_STEPS: u64 = 17;

/// What a stream is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Exchanging ghosts, waiting for other ranks included.
    Halo,
    /// Running kernels.
    Compute,
}

/// Adds up the time of each phase, from its start on.
#[derive(Debug)]
pub struct Stopwatch(Laps<2>);

/// Of one rank, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Times {
    /// From the start to the stop, without pauses.
    pub solve_s: f64,
    /// In [`Phase::Halo`].
    pub halo_s: f64,
    /// In [`Phase::Compute`].
    pub compute_s: f64,
}

/// The times of one after another.
impl std::ops::AddAssign for Times {
    fn add_assign(&mut self, other: Self) {
        self.solve_s += other.solve_s;
        self.halo_s += other.halo_s;
        self.compute_s += other.compute_s;
    }
}

impl Stopwatch {
    /// Starts now, with nothing on the stream.
    pub fn start(stream: &Stream) -> Self {
        Self(Laps::start(stream))
    }

    /// For steps that take no time: nothing is read.
    pub(crate) fn of_nothing(stream: &Stream) -> Self {
        Self(Laps { is_read: Cell::new(false), ..Laps::of(stream, now_ns()) })
    }

    /// Steps begin that are put on the stream together: a timeline says where.
    #[inline]
    pub fn begin_steps(&self, steps: Range<u64>) {
        self.0.begin_steps(steps);
    }

    /// From now on all steps are read that are not left out.
    pub(crate) fn read_all(&self) {
        self.0.of_steps.set(1);
    }

    /// So many steps are put on the stream by one call: those that are read stand for them too.
    pub(crate) fn leave_out(&self, steps: u64) {
        self.0.leave_out(steps);
    }

    /// Counts the time since the last lap, on the stream, as time of `phase`. Does not block.
    #[inline]
    pub fn lap(&self, phase: Phase) {
        self.0.lap(match phase {
            Phase::Halo => 0,
            Phase::Compute => 1,
        });
    }

    /// Does something that no time counts: the next lap begins behind it. The stream must have been
    /// synchronised.
    pub(crate) fn pause<R>(&self, meanwhile: impl FnOnce() -> R) -> R {
        self.0.pause(meanwhile)
    }

    /// Seconds from the start until now, pauses aside.
    pub(crate) fn elapsed_s(&self) -> f64 {
        self.0.elapsed_s()
    }

    /// Stops. The stream must have been synchronised.
    pub fn stop(self) -> Times {
        let (solve_s, [halo_s, compute_s]) = self.0.stop();
        Times { solve_s, halo_s, compute_s }
    }
}

/// The same for any number of phases, which go by their index.
#[derive(Debug)]
pub(crate) struct Laps<const N: usize> {
    stream: Stream,
    read: Arc<Read<N>>,
    /// Of a stream whose timeline is kept only steps are marked: readings of the clock would be on it.
    is_recorded: bool,
    /// Whether the step is read.
    is_read: Cell<bool>,
    /// Of how many one is.
    of_steps: Cell<u64>,
    steps: Counted,
}

/// Steps so far: all of them, how often some have begun that are not left out, and those that were read.
#[derive(Debug, Default)]
struct Counted {
    all: Cell<u64>,
    begun: Cell<u64>,
    read: Cell<u64>,
}

/// Only one thread at a time works on a stream, so that relaxed accesses do. All in nanoseconds.
#[derive(Debug)]
struct Read<const N: usize> {
    started: u64,
    last: AtomicU64,
    spent: [AtomicU64; N],
    paused: AtomicU64,
}

impl<const N: usize> Read<N> {
    fn end(&self, phase: usize, now: u64) {
        // A device's clock is compared with the host's, which may be wrong by some microseconds.
        let lap = now.saturating_sub(self.last.swap(now, Ordering::Relaxed));
        self.spent[phase].store(self.spent[phase].load(Ordering::Relaxed) + lap, Ordering::Relaxed);
    }
}

impl<const N: usize> Laps<N> {
    /// Starts now, with nothing on the stream. Blocks on a device, whose clock is compared with the host's.
    pub(crate) fn start(stream: &Stream) -> Self {
        if stream.kind() == StreamKind::Device && !stream.is_recorded() {
            stream.enqueue_clock(|_| ());
            // An error is the next one's who synchronises.
            let _ = stream.synchronize();
        }
        Self::of(stream, now_ns())
    }

    /// From then on.
    fn of(stream: &Stream, started: u64) -> Self {
        let read = Read {
            started,
            last: AtomicU64::new(started),
            spent: std::array::from_fn(|_| AtomicU64::new(0)),
            paused: AtomicU64::new(0),
        };
        let is_recorded = stream.is_recorded();
        let of_steps = if stream.kind() == StreamKind::Device { OF_STEPS } else { 1 };
        Self {
            stream: stream.clone(),
            read: Arc::new(read),
            is_recorded,
            is_read: Cell::new(!is_recorded),
            of_steps: Cell::new(of_steps),
            steps: Counted::default(),
        }
    }

    /// See [`Stopwatch::begin_steps`].
    #[inline]
    pub(crate) fn begin_steps(&self, steps: Range<u64>) {
        if self.is_recorded {
            self.stream.mark(&step_mark(steps.start));
            return;
        }
        let count = steps.end - steps.start;
        let Counted { all, begun, read } = &self.steps;
        let is_read = begun.get().is_multiple_of(self.of_steps.get());
        all.set(all.get() + count);
        begun.set(begun.get() + 1);
        if is_read {
            read.set(read.get() + count);
        }
        if self.is_read.replace(is_read) || !is_read {
            return;
        }
        // What has been since the last one that was read is no time of this one.
        let read = self.read.clone();
        match self.stream.kind() {
            StreamKind::Inline => read.last.store(now_ns(), Ordering::Relaxed),
            _ => self.stream.enqueue_clock(move |now| read.last.store(now, Ordering::Relaxed)),
        }
    }

    /// See [`Stopwatch::leave_out`].
    fn leave_out(&self, steps: u64) {
        self.steps.all.set(self.steps.all.get() + steps);
        self.is_read.set(false);
    }

    /// Counts the time since the last lap, on the stream, as time of a phase. Does not block.
    #[inline]
    pub(crate) fn lap(&self, phase: usize) {
        match self.stream.kind() {
            StreamKind::Inline if self.is_read.get() => self.read.end(phase, now_ns()),
            _ if !self.is_read.get() => {}
            _ => {
                let read = self.read.clone();
                self.stream.enqueue_clock(move |now| read.end(phase, now));
            }
        }
    }

    /// See [`Stopwatch::pause`].
    fn pause<R>(&self, meanwhile: impl FnOnce() -> R) -> R {
        let Read { last, paused, .. } = &*self.read;
        let began = now_ns();
        let result = meanwhile();
        let now = now_ns();
        last.store(now, Ordering::Relaxed);
        paused.store(paused.load(Ordering::Relaxed) + now - began, Ordering::Relaxed);
        result
    }

    fn elapsed_s(&self) -> f64 {
        (now_ns() - self.read.started - self.read.paused.load(Ordering::Relaxed)) as f64 / 1e9
    }

    /// Seconds from the start until now, pauses aside, and those of each phase. The stream must have been
    /// synchronised.
    pub(crate) fn stop(self) -> (f64, [f64; N]) {
        self.stream.mark(END_MARK);
        let elapsed_s = self.elapsed_s();
        let spent = self.read.spent.each_ref().map(|spent| spent.load(Ordering::Relaxed) as f64 / 1e9);
        (elapsed_s, spent.map(|seconds| seconds * self.stands_for(elapsed_s, spent.iter().sum())))
    }

    /// How often what was read stands for: steps that are read take longer, and all of them together as long as they did.
    fn stands_for(&self, elapsed_s: f64, read_s: f64) -> f64 {
        match (self.steps.all.get(), self.steps.read.get()) {
            (_, 0) => 1.0,
            (all, read) => (all as f64 / read as f64).min(elapsed_s / read_s.max(f64::MIN_POSITIVE)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use streamhalo::{Device, StreamOptions, World};

    #[test]
    fn steps_that_are_read_stand_for_the_others_and_for_no_more_than_there_was() {
        let world = World::alone().expect("needs nothing");
        let laps = Laps::<1>::start(&Device::host().stream(&world).expect("is there"));
        assert_eq!(laps.stands_for(1.0, 0.5), 1.0, "all is read");
        laps.steps.all.set(32);
        laps.steps.read.set(2);
        assert_eq!(laps.stands_for(10.0, 0.5), 16.0);
        assert_eq!(laps.stands_for(1.0, 0.5), 2.0, "what was read took longer");
    }

    /// Of 3 steps the first and the last are read, on any stream of the host; what is between them is no time of theirs.
    #[test]
    fn steps_that_are_read_stand_for_those_that_are_left_out() {
        const LONG: Duration = Duration::from_millis(100);
        let world = World::alone().expect("needs nothing");
        for kind in [StreamKind::Inline, StreamKind::Threaded] {
            let options = StreamOptions { kind, ..StreamOptions::default() };
            let stream = Device::host().stream_with(&world, options).expect("is there");
            let stopwatch = Stopwatch::start(&stream);
            let pass = |phase| {
                stream.synchronize().expect("nothing fails");
                std::thread::sleep(LONG);
                stopwatch.lap(phase);
                stream.synchronize().expect("nothing fails");
            };
            stopwatch.begin_steps(0..1);
            pass(Phase::Compute);
            stopwatch.leave_out(1);
            pass(Phase::Halo);
            stopwatch.begin_steps(2..3);
            pass(Phase::Compute);
            let times = stopwatch.stop();
            assert_eq!(times.halo_s, 0.0, "{kind:?}");
            // At most 1.5 times what was read, and all that there was.
            let read_s = 2.0 * LONG.as_secs_f64();
            assert!(
                times.compute_s >= 1.4 * read_s && times.compute_s <= times.solve_s + 1e-6,
                "{kind:?}: {times:?}"
            );
        }
    }

    /// Otherwise exchanges of a wide halo, or norms, would be read each time or never.
    #[test]
    fn steps_that_are_read_are_not_those_of_a_usual_period() {
        for period in 2..=16 {
            let met =
                (0..period).map(|read| read * OF_STEPS % period).collect::<std::collections::HashSet<_>>();
            assert_eq!(met.len() as u64, period, "of {period}");
        }
    }

    #[test]
    fn pauses_are_no_time_of_anything() {
        const LONG: Duration = Duration::from_millis(200);
        let world = World::alone().expect("needs nothing");
        for kind in [StreamKind::Inline, StreamKind::Threaded] {
            let options = StreamOptions { kind, ..StreamOptions::default() };
            let stream = Device::host().stream_with(&world, options).expect("is there");
            let stopwatch = Stopwatch::start(&stream);
            std::thread::sleep(LONG / 10);
            stopwatch.lap(Phase::Halo);
            stream.synchronize().expect("nothing fails");
            stopwatch.pause(|| std::thread::sleep(LONG));
            stopwatch.lap(Phase::Compute);
            stream.synchronize().expect("nothing fails");
            let laps = stopwatch.0.read.clone();
            let times = stopwatch.stop();
            let most = (now_ns() - laps.started) as f64 / 1e9 - LONG.as_secs_f64() + 1e-6;
            assert!(times.halo_s >= (LONG / 10).as_secs_f64(), "{kind:?}: {times:?}");
            assert!(times.halo_s + times.compute_s <= most && times.solve_s <= most, "{kind:?}: {times:?}");
        }
    }
}
