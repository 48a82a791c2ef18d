//! Atomic operations that wait for their trigger. They set words: additions are atomic with those of the interface itself
//! only (fi_atomic(3)), and not with a processor's.

use super::{Entry, supported};
use crate::error::{Error, Result};
use crate::fabric::ofi::counter::Counter;
use crate::fabric::ofi::endpoint::Endpoint;
use crate::fabric::ofi::memory::{LocalSlice, MemoryRegion, RemotePlace};
use crate::fabric::ofi::sys::{self, Zeroed};
use std::cell::UnsafeCell;
use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::Arc;

/// What an atomic operation reads.
pub(crate) struct AtomicParts {
    operation: sys::FiOpAtomic,
    operand: sys::FiIoc,
    descriptor: *mut c_void,
    target: sys::FiRmaIoc,
    value: LocalSlice,
}

/// An atomic operation that sets a 32-bit word of a peer, or of this side, and waits for its trigger. If the
/// word's region has a counter, that counts it.
pub(crate) type DeferredAtomic = Entry<AtomicParts>;

impl DeferredAtomic {
    /// Sets the word at `target` to [the value](Self::set_value) each time that it is armed and `trigger` comes to
    /// the threshold; then adds 1 to `completion`.
    ///
    /// # Errors
    /// [`Error::FabricUnavailable`] if the provider has no deferred work; [`Error::Libfabric`].
    pub(crate) fn new(target: RemotePlace, trigger: &Counter, completion: &Counter) -> Result<Self> {
        let endpoint = trigger.endpoint();
        supported(endpoint)?;
        let value = operand(endpoint)?;
        let parts = AtomicParts {
            operation: sys::FiOpAtomic { ep: endpoint.inner.endpoint, ..Zeroed::zeroed() },
            operand: sys::FiIoc { addr: value.pointer(), count: 1 },
            descriptor: value.descriptor(),
            target: sys::FiRmaIoc { addr: target.address, count: 1, key: target.key },
            value,
        };
        let finish = |context, parts: *mut AtomicParts| {
            // SAFETY: the parts are where they stay, and nothing reads them yet.
            let parts = unsafe { &mut *parts };
            parts.operation.msg = sys::FiMsgAtomic {
                msg_iov: &raw const parts.operand,
                desc: &raw mut parts.descriptor,
                iov_count: 1,
                addr: target.peer.0,
                rma_iov: &raw const parts.target,
                rma_iov_count: 1,
                datatype: sys::FI_UINT32,
                op: sys::FI_ATOMIC_WRITE,
                context,
                data: 0,
            };
            (&raw mut parts.operation).cast()
        };
        let mut entry = Self::pinned(trigger, completion, sys::FI_OP_ATOMIC, parts, finish);
        entry.work().completion_cntr = completion.raw();
        let what = format!("a triggered atomic operation on a word of {}", target.peer);
        Ok(entry.named(what))
    }

    /// What the word is set to the next time that it is armed; zero until then.
    ///
    /// # Errors
    /// [`Error::OutOfOrder`] if it is still armed.
    pub(crate) fn set_value(&mut self, value: u32) -> Result<()> {
        if !self.is_done() {
            return Err(Error::OutOfOrder {
                call: "set_value",
                reason: "the entry has not completed yet, and may still read its operand".into(),
            });
        }
        store(&self.parts().value, value);
        Ok(())
    }
}

/// A registered word with an operand.
fn operand(endpoint: &Endpoint) -> Result<LocalSlice> {
    let word: Arc<OperandWord> = Arc::new(OperandWord(UnsafeCell::new(0)));
    let base = NonNull::new(word.0.get()).expect("a live word has an address").cast();
    // SAFETY: the word lives as long as the region, and only `store` writes to it.
    let region = unsafe { MemoryRegion::register(endpoint, (base, 4), None, word, None) }?;
    region.slice(0, 4, "an operand")
}

struct OperandWord(UnsafeCell<u32>);

// SAFETY: it is written only while no entry that reads it is armed.
unsafe impl Sync for OperandWord {}

/// Puts a value into an operand word.
fn store(operand: &LocalSlice, value: u32) {
    // SAFETY: the slice is an aligned word that no armed entry reads.
    unsafe { operand.pointer().cast::<u32>().write(value) };
}
