//! Counters: what deferred operations wait for, and what they count when done.

use super::call::{check, function};
use super::endpoint::{Endpoint, close};
use super::sys::{self, FidCntr, Zeroed};
use crate::error::{Error, Result};
use std::ptr::null_mut;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a value that was set may take to be read.
const SEEN_WITHIN: Duration = Duration::from_secs(1);

/// A counter of a network interface. Cloning is cheap; it is closed with the last clone.
///
/// On some providers adding to a counter carries out what it triggers before it returns. An entry
/// must therefore never add to a counter that, by way of others, triggers the entry itself.
#[derive(Clone)]
pub(crate) struct Counter {
    inner: Arc<Inner>,
}

struct Inner {
    counter: *mut FidCntr,
    endpoint: Endpoint,
}

// SAFETY: opened as thread-safe; the pointer never changes.
unsafe impl Send for Inner {}
// SAFETY: as above.
unsafe impl Sync for Inner {}

impl Counter {
    /// A counter at zero.
    ///
    /// # Errors
    /// [`Error::Libfabric`](crate::Error::Libfabric).
    pub(crate) fn open(endpoint: &Endpoint) -> Result<Counter> {
        let domain = endpoint.inner.domain;
        // SAFETY: the endpoint keeps its domain open.
        let table = unsafe { (*domain).ops };
        let open = function!("fi_cntr_open", table, sys::FiOpsDomain, cntr_open)?;
        let mut attributes = sys::FiCntrAttr { wait_obj: sys::FI_WAIT_NONE, ..Zeroed::zeroed() };
        let mut counter = null_mut();
        // SAFETY: an open domain, and attributes that outlive the call.
        let code = unsafe { open(domain, &mut attributes, &mut counter, null_mut()) };
        check(endpoint.inner.library, "fi_cntr_open", code, "when making a counter")?;
        Ok(Counter { inner: Arc::new(Inner { counter, endpoint: endpoint.clone() }) })
    }

    /// Adds, which fires what waits for the sum.
    ///
    /// # Errors
    /// [`Error::Libfabric`](crate::Error::Libfabric).
    pub(crate) fn add(&self, value: u64) -> Result<()> {
        let add = function!("fi_cntr_add", self.table(), sys::FiOpsCntr, add)?;
        // SAFETY: open until the last clone is dropped.
        let code = unsafe { add(self.raw(), value) };
        check(self.inner.endpoint.inner.library, "fi_cntr_add", code, "when adding to a counter")
    }

    /// Sets the value, and blocks until it can be read: what is read on Slingshot lags behind, and an
    /// old value would make an entry look complete. Only where nothing waits for the counter and
    /// nothing adds to it.
    ///
    /// # Errors
    /// [`Error::Libfabric`].
    pub(crate) fn set(&self, value: u64) -> Result<()> {
        let set = function!("fi_cntr_set", self.table(), sys::FiOpsCntr, set)?;
        let before = self.read();
        // SAFETY: open until the last clone is dropped.
        let code = unsafe { set(self.raw(), value) };
        check(self.inner.endpoint.inner.library, "fi_cntr_set", code, "when setting a counter")?;
        let end = Instant::now() + SEEN_WITHIN;
        while before != value && self.read() == before {
            if Instant::now() > end {
                return Err(Error::Libfabric {
                    call: "fi_cntr_set",
                    reason: format!("a counter was set to {value} and still reads as {before}"),
                });
            }
            std::thread::sleep(Duration::from_micros(20));
        }
        Ok(())
    }

    /// Lets the provider look again at what waits for this counter: `sockets` leaves entries that
    /// found its ring full until the next change.
    ///
    /// # Errors
    /// [`Error::Libfabric`](crate::Error::Libfabric).
    pub(crate) fn kick(&self) -> Result<()> {
        self.add(0)
    }

    /// The value: how many operations have succeeded, and what was added.
    pub(crate) fn read(&self) -> u64 {
        let Ok(read) = function!("fi_cntr_read", self.table(), sys::FiOpsCntr, read) else { return 0 };
        // SAFETY: open until the last clone is dropped.
        unsafe { read(self.raw()) }
    }

    /// How many operations have failed.
    pub(crate) fn read_error(&self) -> u64 {
        let Ok(read) = function!("fi_cntr_readerr", self.table(), sys::FiOpsCntr, readerr) else { return 0 };
        // SAFETY: open until the last clone is dropped.
        unsafe { read(self.raw()) }
    }

    /// The largest value with which comparisons still come out right. A counter that would pass it
    /// has to be set back first, at a time when nothing waits for it.
    pub(crate) fn largest(&self) -> u64 {
        match self.inner.endpoint.provider() {
            // It compares as signed 32-bit numbers.
            "sockets" => i32::MAX as u64,
            // 48 bits, of which the bit that says so in a write-back is not one.
            "cxi" => (1 << 48) - 1,
            _ => u64::MAX >> 1,
        }
    }

    pub(super) fn raw(&self) -> *mut FidCntr {
        self.inner.counter
    }

    pub(super) fn endpoint(&self) -> &Endpoint {
        &self.inner.endpoint
    }

    fn table(&self) -> *const sys::FiOpsCntr {
        // SAFETY: open until the last clone is dropped.
        unsafe { (*self.inner.counter).ops }
    }
}

impl std::fmt::Debug for Counter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Counter({}, {} failed)", self.read(), self.read_error())
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        close(self.counter.cast());
    }
}
