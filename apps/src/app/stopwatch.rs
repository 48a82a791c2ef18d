//! How long a rank's stream spends on what.
//!
//! The clock is read where the work is done: on an inline stream that is the calling thread, right
//! after the call; on a threaded stream a host function between two operations reads it. A reading
//! costs 20 to 30 ns on an inline stream, and the queueing of a function more on a threaded one.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use streamhalo::{Stream, StreamKind};

use super::{END_MARK, step_mark};

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

    /// A step begins: a timeline says where.
    #[inline]
    pub fn begin_step(&self, step: u64) {
        self.0.begin_step(step);
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
}

/// Only one thread at a time works on a stream, so that relaxed accesses do.
#[derive(Debug)]
struct Read<const N: usize> {
    started: Instant,
    last_ns: AtomicU64,
    spent_ns: [AtomicU64; N],
    paused_ns: AtomicU64,
}

impl<const N: usize> Read<N> {
    fn now_ns(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    fn end(&self, phase: usize) {
        let now_ns = self.now_ns();
        let lap_ns = now_ns - self.last_ns.swap(now_ns, Ordering::Relaxed);
        let total = &self.spent_ns[phase];
        total.store(total.load(Ordering::Relaxed) + lap_ns, Ordering::Relaxed);
    }
}

impl<const N: usize> Laps<N> {
    /// Starts now, with nothing on the stream.
    pub(crate) fn start(stream: &Stream) -> Self {
        let read = Read {
            started: Instant::now(),
            last_ns: AtomicU64::new(0),
            spent_ns: std::array::from_fn(|_| AtomicU64::new(0)),
            paused_ns: AtomicU64::new(0),
        };
        Self { stream: stream.clone(), read: Arc::new(read), is_recorded: stream.is_recorded() }
    }

    /// See [`Stopwatch::begin_step`].
    #[inline]
    pub(crate) fn begin_step(&self, step: u64) {
        if self.is_recorded {
            self.stream.mark(&step_mark(step));
        }
    }

    /// Counts the time since the last lap, on the stream, as time of a phase. Does not block.
    #[inline]
    pub(crate) fn lap(&self, phase: usize) {
        match self.stream.kind() {
            StreamKind::Inline => self.read.end(phase),
            _ if self.is_recorded => {}
            _ => {
                let read = self.read.clone();
                self.stream.enqueue_host("stopwatch", move || {
                    read.end(phase);
                    Ok(())
                });
            }
        }
    }

    /// See [`Stopwatch::pause`].
    fn pause<R>(&self, meanwhile: impl FnOnce() -> R) -> R {
        let Read { last_ns, paused_ns, .. } = &*self.read;
        let began_ns = self.read.now_ns();
        let result = meanwhile();
        let now_ns = self.read.now_ns();
        last_ns.store(now_ns, Ordering::Relaxed);
        paused_ns.store(paused_ns.load(Ordering::Relaxed) + now_ns - began_ns, Ordering::Relaxed);
        result
    }

    /// Seconds from the start until now, pauses aside, and those of each phase. The stream must have been
    /// synchronised.
    pub(crate) fn stop(self) -> (f64, [f64; N]) {
        self.stream.mark(END_MARK);
        let seconds = |ns: &AtomicU64| ns.load(Ordering::Relaxed) as f64 / 1e9;
        let solve_s = self.read.started.elapsed().as_secs_f64() - seconds(&self.read.paused_ns);
        (solve_s, std::array::from_fn(|phase| seconds(&self.read.spent_ns[phase])))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use streamhalo::{Device, StreamOptions, World};

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
            let most = (laps.started.elapsed() - LONG).as_secs_f64() + 1e-6;
            assert!(times.halo_s >= (LONG / 10).as_secs_f64(), "{kind:?}: {times:?}");
            assert!(times.halo_s + times.compute_s <= most && times.solve_s <= most, "{kind:?}: {times:?}");
        }
    }
}
