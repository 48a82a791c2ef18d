//! Readings of a device's clock, on the host's: the device notes when it comes to marks.
//!
//! The clocks are compared by marks on a queue that is at rest, of which the host knows before and after what they were
//! passed.

use super::executor::QueueExecutor;
use crate::device::driver::{CommandQueue, Driver};
use crate::device::operation::TellTime;
use crate::error::Result;
use crate::timeline::now_ns;
use std::collections::VecDeque;

/// Marks by which the clocks are compared: the quickest counts.
const ROUNDS: usize = 16;
/// Times from one mark to another get less exact as they get longer, where a device gives them as `f32`.
const LONG_NS: u64 = 100_000_000;

type Mark<D> = <<D as Driver>::Queue as CommandQueue>::Mark;

/// A device's clock, as one of its queues tells it.
pub(super) struct DeviceClock<D: Driver> {
    /// A mark, and when it was passed.
    origin: (Mark<D>, u64),
}

impl<D: Driver> DeviceClock<D> {
    /// Compares it with the host's. The queue is at rest, and takes timed marks.
    pub(super) fn new(queue: &mut D::Queue) -> Result<Self> {
        let compare = |_| -> Result<(u64, u64, Mark<D>)> {
            let before = now_ns();
            let mark = queue.timed_mark()?;
            queue.finish()?;
            Ok((now_ns() - before, before, mark))
        };
        let compared = (0..ROUNDS).map(compare).collect::<Result<Vec<_>>>()?;
        let quickest = compared.into_iter().min_by_key(|(took, ..)| *took);
        let (took, before, mark) = quickest.expect("there are some rounds");
        Ok(Self { origin: (mark, before + took / 2) })
    }

    /// When the device came to a mark, which it has passed.
    pub(super) fn at(&self, queue: &D::Queue, mark: &Mark<D>) -> Result<u64> {
        let (origin, origin_ns) = &self.origin;
        Ok(origin_ns.saturating_add_signed(queue.nanoseconds(origin, mark)?))
    }

    /// Lets go of a mark of that time: it may be what later ones are compared with.
    pub(super) fn pass(&mut self, mark: Mark<D>, at_ns: u64) {
        if at_ns.saturating_sub(self.origin.1) > LONG_NS {
            self.origin = (mark, at_ns);
        }
    }
}

/// What a stream is asked to tell of the time, in its order.
pub(super) struct Readings<D: Driver> {
    clock: DeviceClock<D>,
    /// What the device may not have come to.
    pending: VecDeque<(Mark<D>, TellTime)>,
}

impl<D: Driver> QueueExecutor<D> {
    /// Has the device note the time, and tells what it has noted before.
    pub(super) fn read_clock(&mut self, tell: TellTime) -> Result<()> {
        if !self.engine.driver().traits().keeps_times {
            self.finish()?;
            tell(now_ns());
            return Ok(());
        }
        if self.readings.is_none() {
            self.finish()?;
            let clock = DeviceClock::new(&mut self.queue)?;
            self.readings = Some(Readings { clock, pending: VecDeque::new() });
        }
        let mark = self.queue.timed_mark()?;
        self.readings.as_mut().expect("made above").pending.push_back((mark, tell));
        self.tell_times()
    }

    /// Tells the times that the device has noted. Of a stream that has failed nobody is told any.
    pub(super) fn tell_times(&mut self) -> Result<()> {
        let Self { readings: Some(Readings { clock, pending }), queue, .. } = self else { return Ok(()) };
        while pending.front().is_some_and(|(mark, _)| queue.has_passed(mark))
            && let Some((mark, tell)) = pending.pop_front()
        {
            let at_ns = clock.at(queue, &mark)?;
            clock.pass(mark, at_ns);
            tell(at_ns);
        }
        Ok(())
    }
}
