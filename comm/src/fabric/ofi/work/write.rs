//! Writes that wait for their trigger.

use super::{Entry, supported};
use crate::error::Result;
use crate::fabric::ofi::counter::Counter;
use crate::fabric::ofi::memory::{LocalSlice, RemotePlace};
use crate::fabric::ofi::sys::{self, Zeroed};
use std::ffi::c_void;

/// What a write reads: local bytes, their descriptor, and the place in the peer's memory.
pub(crate) struct WriteParts {
    operation: sys::FiOpRma,
    source: sys::IoVec,
    descriptor: *mut c_void,
    target: sys::FiRmaIov,
    _memory: LocalSlice,
}

/// A write to a peer that waits for its trigger.
pub(crate) type DeferredWrite = Entry<WriteParts>;

impl DeferredWrite {
    /// Writes `source` to `target` each time that it is armed and `trigger` comes to the threshold;
    /// then adds 1 to `completion`.
    ///
    /// # Errors
    /// [`Error::FabricUnavailable`] if the provider has no deferred work.
    pub(crate) fn new(
        source: &LocalSlice,
        target: RemotePlace,
        trigger: &Counter,
        completion: &Counter,
    ) -> Result<Self> {
        let endpoint = trigger.endpoint();
        supported(endpoint)?;
        let parts = WriteParts {
            operation: sys::FiOpRma { ep: endpoint.inner.endpoint, ..Zeroed::zeroed() },
            source: sys::IoVec { base: source.pointer(), len: source.bytes() },
            descriptor: source.descriptor(),
            target: sys::FiRmaIov { addr: target.address, len: source.bytes(), key: target.key },
            _memory: source.clone(),
        };
        let finish = |context, parts: *mut WriteParts| {
            // SAFETY: the parts are where they stay, and nothing reads them yet.
            let parts = unsafe { &mut *parts };
            parts.operation.msg = sys::FiMsgRma {
                msg_iov: &raw const parts.source,
                desc: &raw mut parts.descriptor,
                iov_count: 1,
                addr: target.peer.0,
                rma_iov: &raw const parts.target,
                rma_iov_count: 1,
                context,
                data: 0,
            };
            (&raw mut parts.operation).cast()
        };
        let mut entry = Self::pinned(trigger, completion, sys::FI_OP_WRITE, parts, finish);
        entry.work().completion_cntr = completion.raw();
        let what = format!("a triggered write of {} bytes to {}", source.bytes(), target.peer);
        Ok(entry.named(what))
    }
}
