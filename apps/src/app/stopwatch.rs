//! How long a rank's stream spends on what.
//!
//! The clock is read where the work is done: on an inline stream that is the calling thread, right
//! after the call; on a threaded stream a host function between two operations reads it. A reading
//! costs 20 to 30 ns on an inline stream, and the queueing of a function more on a threaded one.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use streamhalo::{Stream, StreamKind};

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
pub struct Stopwatch {
    stream: Stream,
    laps: Arc<Laps>,
}

/// Of one rank, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Times {
    /// From the start to the stop.
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

/// Only one thread at a time works on a stream, so that relaxed accesses do.
#[derive(Debug)]
struct Laps {
    started: Instant,
    last_ns: AtomicU64,
    halo_ns: AtomicU64,
    compute_ns: AtomicU64,
}

impl Laps {
    fn end(&self, phase: Phase) {
        let now_ns = u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let lap_ns = now_ns - self.last_ns.swap(now_ns, Ordering::Relaxed);
        let total = match phase {
            Phase::Halo => &self.halo_ns,
            Phase::Compute => &self.compute_ns,
        };
        total.store(total.load(Ordering::Relaxed) + lap_ns, Ordering::Relaxed);
    }
}

impl Stopwatch {
    /// Starts now, with nothing on the stream.
    pub fn start(stream: &Stream) -> Self {
        let laps = Laps {
            started: Instant::now(),
            last_ns: AtomicU64::new(0),
            halo_ns: AtomicU64::new(0),
            compute_ns: AtomicU64::new(0),
        };
        Self { stream: stream.clone(), laps: Arc::new(laps) }
    }

    /// Counts the time since the last lap, on the stream, as time of `phase`. Does not block.
    #[inline]
    pub fn lap(&self, phase: Phase) {
        match self.stream.kind() {
            StreamKind::Inline => self.laps.end(phase),
            StreamKind::Threaded => {
                let laps = self.laps.clone();
                self.stream.enqueue_host("stopwatch", move || {
                    laps.end(phase);
                    Ok(())
                });
            }
        }
    }

    /// Stops. The stream must have been synchronised.
    pub fn stop(self) -> Times {
        let seconds = |ns: &AtomicU64| ns.load(Ordering::Relaxed) as f64 / 1e9;
        Times {
            solve_s: self.laps.started.elapsed().as_secs_f64(),
            halo_s: seconds(&self.laps.halo_ns),
            compute_s: seconds(&self.laps.compute_ns),
        }
    }
}
