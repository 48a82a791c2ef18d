//! Additions to counters that wait for their trigger.

use super::{Entry, supported};
use crate::error::{Error, Result};
use crate::fabric::ofi::counter::Counter;
use crate::fabric::ofi::sys;

/// An addition to a counter of this side that waits for its trigger.
pub(crate) type DeferredCounterAdd = Entry<sys::FiOpCntr>;

impl DeferredCounterAdd {
    /// Adds `value` to `counter` each time that it is armed and `trigger` comes to the threshold.
    /// `counter` must not trigger, by way of whatever entries, an addition to `trigger`.
    ///
    /// # Errors
    /// [`Error::FabricUnavailable`] if the provider has no deferred work; [`Error::OutOfOrder`] if
    /// both counters are one, which would lock for ever.
    pub(crate) fn new(counter: &Counter, value: u64, trigger: &Counter) -> Result<Self> {
        supported(trigger.endpoint())?;
        if counter.raw() == trigger.raw() {
            return Err(Error::OutOfOrder {
                call: "DeferredCounterAdd::new",
                reason: "a counter cannot add to itself; let another one add to it".into(),
            });
        }
        let parts = sys::FiOpCntr { cntr: counter.raw(), value };
        let finish = |_, parts: *mut sys::FiOpCntr| parts.cast();
        let entry = Self::pinned(trigger, counter, sys::FI_OP_CNTR_ADD, parts, finish);
        Ok(entry.named("a triggered addition to a counter".into()))
    }
}
