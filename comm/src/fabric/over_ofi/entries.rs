//! The deferred operations of an exchange: one set of entries for each epoch that may be queued at
//! once, made at matching and armed again and again.

use crate::error::Result;
use crate::fabric::Terms;
use crate::fabric::ofi::{Counter, DeferredAtomic, DeferredCounterAdd, DeferredWrite, Posted};

/// How many times something has happened once that many epochs are through.
#[derive(Debug, Clone, Copy)]
pub(super) enum Count {
    /// So often in each epoch.
    Epochs(u64),
    /// So often in each epoch of one phase.
    Phases(u64),
    /// A receiver that grants credits has said, as it started to receive the epoch before, that the
    /// buffer of this one is free.
    Credits,
}

impl Count {
    /// After `epochs` epochs, counted from where counters were last set back, which is an even number
    /// of them.
    pub(super) fn after(self, epochs: u64) -> u64 {
        match self {
            Count::Epochs(each) => each * epochs,
            Count::Phases(each) => each * epochs.div_ceil(2),
            Count::Credits => epochs - 1,
        }
    }
}

/// What an atomic operation puts into its word.
#[derive(Debug, Clone, Copy)]
pub(super) enum Value {
    Epoch,
    /// What a receiver announces.
    Announced,
}

/// One deferred operation.
#[derive(Debug)]
pub(super) enum Work {
    Write(DeferredWrite),
    Atomic(DeferredAtomic, Value),
    /// One of the two conditions of a send whose other is the stream's trigger.
    Credit(DeferredCounterAdd, Counter),
}

/// A deferred operation, and when it is triggered and complete.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) work: Work,
    pub(super) threshold: Count,
    pub(super) done: Count,
    /// Whether it is one of an epoch whose receiver needs no credit, and was done by hand.
    by_hand: bool,
}

impl Entry {
    pub(super) fn new(work: Work, threshold: Count, done: Count) -> Self {
        Self { work, threshold, done, by_hand: false }
    }

    /// Queues it for the `epochs`-th epoch since counters, which start at `start`, were set back.
    pub(super) fn arm(&mut self, terms: Terms, number: u64, epochs: u64, start: u64) -> Result<Posted> {
        let epoch = terms.last_epoch.wrapping_add(number as u32);
        let (threshold, done) = (start + self.threshold.after(epochs), start + self.done.after(epochs));
        match &mut self.work {
            Work::Write(write) => write.arm(threshold, done),
            Work::Atomic(atomic, value) => {
                match value {
                    Value::Epoch => atomic.set_value(epoch)?,
                    Value::Announced => atomic.set_value((terms.announced)(epoch))?,
                }
                atomic.arm(threshold, done)
            }
            Work::Credit(_, trigger) if number <= 2 => {
                // Both buffers are free at first.
                self.by_hand = true;
                trigger.add(1).map(|()| Posted::Yes)
            }
            Work::Credit(add, _) => {
                self.by_hand = false;
                add.arm(threshold, done)
            }
        }
    }

    pub(super) fn is_done(&self) -> bool {
        match &self.work {
            Work::Write(write) => write.is_done(),
            Work::Atomic(atomic, _) => atomic.is_done(),
            Work::Credit(add, _) => self.by_hand || add.is_done(),
        }
    }

    /// Forgets what it has counted, for counters to be set back.
    pub(super) fn settle(&mut self) -> Result<()> {
        match &mut self.work {
            Work::Write(write) => write.settle(),
            Work::Atomic(atomic, _) => atomic.settle(),
            Work::Credit(add, _) => add.settle(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_go_up_as_epochs_do() {
        let counts = |count: Count| [1, 2, 3, 4, 5].map(|epochs| count.after(epochs));
        assert_eq!(counts(Count::Epochs(2)), [2, 4, 6, 8, 10]);
        assert_eq!(counts(Count::Phases(2)), [2, 2, 4, 4, 6]);
        assert_eq!(counts(Count::Credits), [0, 1, 2, 3, 4]);
    }
}
