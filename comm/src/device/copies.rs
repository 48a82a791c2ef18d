//! Copies between the memory of a device and the host's, for messages that are staged.
//!
//! They have queues of their own, one for each direction, so that a copy down and a copy up run at a time, and neither
//! waits for kernels.

use super::accelerator::Accelerator;
use super::driver::CommandQueue;
use crate::error::Result;
use crate::fabric::Place;
use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

/// Where a copy goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CopyDirection {
    /// From the device to the host.
    Down,
    /// From the host to the device.
    Up,
}

/// A copy that has begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CopyMark {
    direction: CopyDirection,
    number: u64,
}

/// The copies of one direction, in order.
pub(crate) trait Lane: Send {
    /// Begins one. Does not wait.
    fn begin(&mut self, source: &Place, destination: &Place, bytes: usize) -> Result<()>;
    /// How many have passed, of all that have begun. Does not wait.
    fn passed(&mut self) -> Result<u64>;
    /// Blocks until all have passed.
    fn finish(&mut self) -> Result<()>;
}

/// The copies of a device in both directions.
pub(crate) struct Copies {
    accelerator: Arc<dyn Accelerator>,
    down: Counted,
    up: Counted,
}

/// A lane that numbers its copies.
struct Counted {
    lane: Box<dyn Lane>,
    begun: u64,
    passed: u64,
}

impl Copies {
    /// Queues for the copies of a device.
    ///
    /// # Errors
    /// [`crate::Error::DeviceUnavailable`] if it has no more.
    pub(crate) fn open(accelerator: &Arc<dyn Accelerator>) -> Result<Self> {
        let open = || Ok(Counted { lane: accelerator.clone().open_lane()?, begun: 0, passed: 0 });
        Ok(Self { accelerator: accelerator.clone(), down: open()?, up: open()? })
    }

    /// The device.
    pub(crate) fn accelerator(&self) -> &Arc<dyn Accelerator> {
        &self.accelerator
    }

    /// Begins a copy of that many bytes. Does not wait. Whoever calls it knows that nobody writes the source and
    /// nobody else uses the destination until it has passed; the memory is kept.
    ///
    /// # Errors
    /// [`crate::Error::OutOfBounds`]; what the device says.
    pub(crate) fn begin(
        &mut self,
        direction: CopyDirection,
        device: &Place,
        host: &Place,
        bytes: usize,
    ) -> Result<CopyMark> {
        let (source, destination) = match direction {
            CopyDirection::Down => (device, host),
            CopyDirection::Up => (host, device),
        };
        source.check(bytes, "a staged message")?;
        destination.check(bytes, "a staged message")?;
        let lane = self.lane(direction);
        lane.lane.begin(source, destination, bytes)?;
        lane.begun += 1;
        Ok(CopyMark { direction, number: lane.begun })
    }

    /// Blocks until all copies of one direction have been made.
    ///
    /// # Errors
    /// What the device says of any.
    pub(crate) fn finish(&mut self, direction: CopyDirection) -> Result<()> {
        let lane = self.lane(direction);
        lane.lane.finish()?;
        lane.passed = lane.begun;
        Ok(())
    }

    fn lane(&mut self, direction: CopyDirection) -> &mut Counted {
        match direction {
            CopyDirection::Down => &mut self.down,
            CopyDirection::Up => &mut self.up,
        }
    }

    /// Whether a copy has been made. Does not wait.
    ///
    /// # Errors
    /// What the device says, of any copy before it.
    pub(crate) fn has_passed(&mut self, mark: CopyMark) -> Result<bool> {
        let lane = self.lane(mark.direction);
        if lane.passed < mark.number {
            lane.passed = lane.lane.passed()?;
        }
        Ok(lane.passed >= mark.number)
    }
}

impl fmt::Debug for Copies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Copies({}, {} down, {} up)", self.accelerator.name(), self.down.begun, self.up.begun)
    }
}

/// A queue that nothing but copies are on.
pub(super) struct QueueLane<Q: CommandQueue, P> {
    queue: Q,
    /// Copies that were not seen to have passed, with the memory that they are made between.
    under_way: VecDeque<(Q::Mark, [Place; 2])>,
    passed: u64,
    /// Behind the queue, whose place it is.
    _place: P,
}

impl<Q: CommandQueue, P> QueueLane<Q, P> {
    pub(super) fn new(queue: Q, place: P) -> Self {
        Self { queue, under_way: VecDeque::new(), passed: 0, _place: place }
    }
}

impl<Q: CommandQueue, P: Send> Lane for QueueLane<Q, P> {
    fn begin(&mut self, source: &Place, destination: &Place, bytes: usize) -> Result<()> {
        // SAFETY: both sides hold that many bytes, as the caller has checked; they are of different regions, and
        // `under_way` keeps these until the copy has passed.
        unsafe { self.queue.copy(source.address(), destination.address(), bytes) }?;
        let places = [source.clone(), destination.clone()];
        match self.queue.mark() {
            Ok(mark) => self.under_way.push_back((mark, places)),
            Err(error) => {
                // Nobody can see that it has passed, but when the queue is at rest.
                if self.queue.finish().is_err() {
                    std::mem::forget(places);
                }
                return Err(error);
            }
        }
        self.queue.flush()
    }

    fn passed(&mut self) -> Result<u64> {
        while let Some((mark, _)) = self.under_way.front() {
            if !self.queue.has_passed(mark) {
                break;
            }
            if self.under_way.len() == 1 {
                // It is at rest, and says whether anything has failed.
                self.queue.finish()?;
            }
            self.under_way.pop_front();
            self.passed += 1;
        }
        Ok(self.passed)
    }

    fn finish(&mut self) -> Result<()> {
        self.queue.finish()?;
        self.passed += self.under_way.drain(..).count() as u64;
        Ok(())
    }
}

impl<Q: CommandQueue, P> Drop for QueueLane<Q, P> {
    fn drop(&mut self) {
        if !self.under_way.is_empty() && self.queue.finish().is_err() {
            // The device may still be at the memory, which then stays.
            std::mem::take(&mut self.under_way).into_iter().for_each(|(_, places)| std::mem::forget(places));
        }
    }
}
