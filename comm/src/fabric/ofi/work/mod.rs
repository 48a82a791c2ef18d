//! Deferred work: operations that the network interface carries out by itself once a counter has
//! come to a threshold.
//!
//! An entry is made once, with all the structures that libfabric reads, and armed anew for each
//! epoch, without allocation. The structures stay where they are until the entry has been counted
//! complete; one that is dropped before is never freed, because the network interface may still
//! come to read it.
//!
//! Data operations count their completion. Additions to a counter have no completion of their own:
//! Slingshot refuses one, and `sockets` has none. Sends are not here at all, because on `sockets`
//! nothing can be chained on one.

mod atomic;
mod counter_add;
mod write;

pub(crate) use atomic::DeferredAtomic;
pub(crate) use counter_add::DeferredCounterAdd;
pub(crate) use write::DeferredWrite;

use super::call::{Posted, posted};
use super::counter::Counter;
use super::endpoint::{Endpoint, control};
use super::library::Library;
use super::sys::{self, FiDeferredWork, Zeroed};
use crate::error::{Error, Result};
use std::ffi::c_void;
use std::ptr::NonNull;

/// The part that all entries have in common. `P` is what they read besides.
pub(crate) struct Entry<P> {
    /// Reached by the network interface while armed. A bare pointer, because a box would claim to be
    /// the only one.
    pinned: NonNull<Pinned<P>>,
    trigger: Counter,
    /// The counter that says when the entry is complete.
    done: Counter,
    /// The value of `done` from which that is so; 0: not armed.
    awaited: u64,
}

/// What must not move. `work` comes first, so that errors name the entry by its context.
#[repr(C)]
struct Pinned<P> {
    work: FiDeferredWork,
    parts: P,
}

// SAFETY: the pointers are to parts of the same box and to objects that may be used from any
// thread; what changes does so under `&mut`.
unsafe impl<P> Send for Entry<P> {}

impl<P> Entry<P> {
    /// An entry of a kind of operation. `operation` completes its parts, which have come to where
    /// they stay, and returns the operation's description; its first argument is what operations
    /// have to give as their context.
    fn pinned(
        trigger: &Counter,
        done: &Counter,
        kind: i32,
        parts: P,
        operation: impl FnOnce(*mut c_void, *mut P) -> *mut c_void,
    ) -> Self {
        let mut work = FiDeferredWork::zeroed();
        work.triggering_cntr = trigger.raw();
        work.op_type = kind;
        let pinned = NonNull::from(Box::leak(Box::new(Pinned { work, parts })));
        let mut entry = Self { pinned, trigger: trigger.clone(), done: done.clone(), awaited: 0 };
        let context = entry.context();
        // SAFETY: a live box of our own.
        let parts = unsafe { &raw mut (*pinned.as_ptr()).parts };
        entry.work().op = operation(context, parts);
        entry
    }

    /// The entry of the queue, which must not be armed.
    fn work(&mut self) -> &mut FiDeferredWork {
        // SAFETY: the box lives as long as `self`, and nobody else refers to it now.
        unsafe { &mut (*self.pinned.as_ptr()).work }
    }

    /// What the entry reads besides, which must not be armed.
    fn parts(&self) -> &P {
        // SAFETY: as above.
        unsafe { &(*self.pinned.as_ptr()).parts }
    }

    fn endpoint(&self) -> &Endpoint {
        self.trigger.endpoint()
    }

    /// What the entry is known by: the address of its first field, the provider's context.
    fn context(&self) -> *mut c_void {
        self.pinned.as_ptr().cast()
    }

    /// Queues it for when the trigger comes to `threshold`, which it may have done already. `done`
    /// is the value of the completion counter from which this one counts as complete: the sum of
    /// all that are counted there, if several are.
    ///
    /// # Errors
    /// [`Error::OutOfOrder`] if it is still armed; [`Error::Libfabric`].
    pub(crate) fn arm(&mut self, threshold: u64, done: u64) -> Result<Posted> {
        if !self.is_done() {
            return Err(Error::OutOfOrder {
                call: "arm",
                reason: format!(
                    "the entry has not completed yet: its counter is at {}, {} is awaited",
                    self.done.read(),
                    self.awaited
                ),
            });
        }
        self.work().threshold = threshold;
        let opened = &self.endpoint().inner;
        let (library, domain) = (opened.library, opened.domain);
        let code = control(library, domain.cast(), sys::FI_QUEUE_WORK, self.context())?;
        let posted = taken(library, code)?;
        if posted == Posted::Yes {
            self.awaited = done;
        }
        Ok(posted)
    }

    /// Forgets what was awaited, when the counters are set back at a quiet point.
    pub(crate) fn settle(&mut self) -> Result<()> {
        if !self.is_done() {
            return Err(Error::OutOfOrder {
                call: "settle",
                reason: "the entry has not completed yet; wait until all have before counters are set back"
                    .into(),
            });
        }
        self.awaited = 0;
        Ok(())
    }

    /// Whether it has completed since it was last armed.
    pub(crate) fn is_done(&self) -> bool {
        self.awaited == 0 || self.done.read() >= self.awaited
    }

    /// Remembers what the entry is for, should it fail.
    fn named(self, what: String) -> Self {
        let context = self.context() as usize;
        self.endpoint().inner.deferred().insert(context, what);
        self
    }
}

impl<P> Drop for Entry<P> {
    fn drop(&mut self) {
        let context = self.context() as usize;
        if self.is_done() {
            self.endpoint().inner.deferred().remove(&context);
            // SAFETY: it came from a box, nothing reads it any more, and this is its last use.
            drop(unsafe { Box::from_raw(self.pinned.as_ptr()) });
        } else {
            // What the structures point to must stay as well.
            std::mem::forget((self.trigger.clone(), self.done.clone()));
        }
    }
}

impl<P> std::fmt::Debug for Entry<P> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Entry { trigger, done, awaited, .. } = self;
        write!(f, "(trigger {trigger:?}, done at {awaited} of {done:?})")
    }
}

/// What the provider says when an entry is queued. On Slingshot all ranks that share an interface share its entries.
fn taken(library: &Library, code: i32) -> Result<Posted> {
    if code == -sys::FI_ENOSPC {
        return Ok(Posted::NoRoom);
    }
    posted(library, "fi_control(FI_QUEUE_WORK)", code.into(), "when queueing an entry")
}

fn supported(endpoint: &Endpoint) -> Result<()> {
    if endpoint.has_triggered() {
        return Ok(());
    }
    Err(super::library::unavailable(format!(
        "provider `{}` has no triggered operations, or the endpoint was opened without them; `cxi` and `sockets` have them",
        endpoint.provider()
    )))
}

const _: () = assert!(std::mem::offset_of!(FiDeferredWork, context) == 0);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interface_without_room_is_asked_again() {
        let library = match Library::load() {
            Ok(library) => library,
            Err(error) => return println!("skipped: {error}"),
        };
        assert_eq!(taken(library, 0), Ok(Posted::Yes));
        assert_eq!(taken(library, -sys::FI_ENOSPC), Ok(Posted::NoRoom));
        assert_eq!(taken(library, -sys::FI_EAGAIN), Ok(Posted::NoRoom));
        assert!(taken(library, -sys::FI_ENODATA).is_err());
    }
}
