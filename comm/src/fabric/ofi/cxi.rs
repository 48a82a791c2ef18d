//! Slingshot's own extensions: a counter's doorbell, which a stream can ring.
//!
//! Written from the provider's public interface. There is no such network interface on the machines
//! that this project is tested on: it compiles, and has not run.
//!
//! A page of the network interface is mapped into the process for each counter. A 64-bit store of
//! `n` to its first word adds `n` to the counter, so a stream fires a batch by one memory write, once
//! the page is registered with the device (`cuMemHostRegister` with its flags for device mapping and
//! I/O memory; `hipHostRegister`). The host must go on polling the completion queue beside the
//! exchanges, which is how the provider takes back entries that have completed and reports failures.

use super::call::{check, function};
use super::counter::Counter;
use super::library::unavailable;
use super::sys::{self, Fid, Unused};
use crate::error::Result;
use std::ffi::{CStr, c_int, c_void};
use std::ptr::NonNull;

/// The name of the table of functions.
const COUNTER_OPERATIONS: &CStr = c"cxi_counter_ops";
/// Where, from the page's start, a store of zero sets the counter to zero.
const RESET_OFFSET: usize = 16 * 8;
/// The largest addition: counters have 48 bits.
const LARGEST: u64 = (1 << 48) - 1;

/// The table. Unlike libfabric's own ones it does not begin with its size.
#[repr(C)]
struct CounterOperations {
    set_writeback_buffer: Unused,
    mapped_address: Option<unsafe extern "C" fn(*mut Fid, *mut *mut c_void, *mut usize) -> c_int>,
}

/// The page of a counter. Keeps the counter open.
#[derive(Debug)]
pub(crate) struct Doorbell {
    page: NonNull<u64>,
    bytes: usize,
    _counter: Counter,
}

// SAFETY: stores to the page are single and may come from anywhere: it is a device's.
unsafe impl Send for Doorbell {}
// SAFETY: as above.
unsafe impl Sync for Doorbell {}

impl Doorbell {
    /// The doorbell of a counter.
    ///
    /// # Errors
    /// [`Error::FabricUnavailable`](crate::Error::FabricUnavailable) if the provider has none;
    /// [`Error::Libfabric`](crate::Error::Libfabric).
    pub(crate) fn of(counter: &Counter) -> Result<Doorbell> {
        let endpoint = counter.endpoint();
        let without = || {
            unavailable(format!(
                "counters of provider `{}` have no address that a stream can write to; `cxi` has",
                endpoint.provider()
            ))
        };
        if endpoint.provider() != "cxi" {
            return Err(without());
        }
        let library = endpoint.inner.library;
        let object: *mut Fid = counter.raw().cast();
        // SAFETY: `counter` is open.
        let table = unsafe { (*object).ops };
        let open = function!("fi_open_ops", table, sys::FiOps, ops_open)?;
        let mut operations: *mut c_void = std::ptr::null_mut();
        // SAFETY: the name ends in zero, and the context is not used.
        let code =
            unsafe { open(object, COUNTER_OPERATIONS.as_ptr(), 0, &mut operations, std::ptr::null_mut()) };
        check(library, "fi_open_ops", code, "for the counter operations of `cxi`")?;
        let operations: *const CounterOperations = operations.cast_const().cast();
        if operations.is_null() {
            return Err(without());
        }
        // SAFETY: the table of that name begins with these two functions.
        let mapped = unsafe { (*operations).mapped_address }.ok_or_else(without)?;
        let (mut page, mut bytes) = (std::ptr::null_mut(), 0);
        // SAFETY: of an open counter, with room for both results.
        let code = unsafe { mapped(object, &mut page, &mut bytes) };
        check(library, "get_mmio_addr", code, "for the doorbell of a counter")?;
        let page = NonNull::new(page.cast()).ok_or_else(without)?;
        Ok(Doorbell { page, bytes, _counter: counter.clone() })
    }

    /// The word that a stream writes to, once the page is registered with its device.
    pub(crate) fn address(&self) -> *mut u64 {
        self.page.as_ptr()
    }

    /// The whole page, to be registered.
    pub(crate) fn page(&self) -> (*mut c_void, usize) {
        (self.page.as_ptr().cast(), self.bytes)
    }

    /// Rings it from the host.
    pub(crate) fn add(&self, value: u64) {
        debug_assert!(value <= LARGEST, "{value} does not fit a counter");
        // SAFETY: the first word of a page that stays mapped while the counter is open.
        unsafe { self.page.as_ptr().write_volatile(value) };
    }

    /// Sets the counter to zero, at a quiet point. Other values cannot be set through the page.
    pub(crate) fn reset(&self) {
        // SAFETY: within the page, as above.
        let word = unsafe { self.page.as_ptr().byte_add(RESET_OFFSET) };
        // SAFETY: as above.
        unsafe { word.write_volatile(0) };
    }
}
