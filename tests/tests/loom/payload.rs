//! Memory that both sides of a protocol use, without an order of its own.

use crate::checker::OTHER_EPOCH;
use loom::cell::UnsafeCell;

pub(crate) struct Payload(UnsafeCell<u32>);

// SAFETY: that accesses are ordered is what the models check: loom fails a model in which two are not.
unsafe impl Sync for Payload {}

impl Payload {
    pub(crate) fn new(value: u32) -> Self {
        Self(UnsafeCell::new(value))
    }

    pub(crate) fn write(&self, value: u32) {
        // SAFETY: see `Sync` above.
        self.0.with_mut(|place| unsafe { *place = value });
    }

    pub(crate) fn get(&self) -> u32 {
        // SAFETY: see `Sync` above.
        self.0.with(|place| unsafe { *place })
    }

    /// Fails the model if it is not that.
    pub(crate) fn read(&self, value: u32) {
        assert_eq!(self.get(), value, "{OTHER_EPOCH}");
    }
}
