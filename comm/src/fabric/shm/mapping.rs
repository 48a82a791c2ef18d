//! Memory files: memory that has no name and that processes share, page by page.

use crate::error::{Error, Result};
use rustix::fs::FallocateFlags;
use rustix::mm::{MapFlags, ProtFlags};
use std::ffi::c_void;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;

/// A page; regions begin on one.
pub(crate) const PAGE: usize = 4096;

/// As many bytes as the pages have that so many lie on.
pub(crate) fn whole_pages(bytes: usize) -> usize {
    bytes.next_multiple_of(PAGE)
}

/// A mapped piece of the file.
#[derive(Debug)]
pub(crate) struct Mapping {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: a mapping is plain memory of the process; access is settled by those who use it.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps bytes of a file, from a multiple of the page's on.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub(crate) fn new(file: &OwnedFd, offset: u64, bytes: usize) -> Result<Self> {
        let failed = |error: rustix::io::Errno| Error::OutOfMemory {
            bytes,
            kind: "shared",
            reason: format!(
                "mapping it failed: {error}; look at the limits of address space and of mappings"
            ),
        };
        // SAFETY: a fresh shared mapping at an address of the kernel's choice replaces nothing.
        let start = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                file.as_fd(),
                offset,
            )
        };
        let start = NonNull::new(start.map_err(failed)?.cast::<u8>())
            .ok_or_else(|| failed(rustix::io::Errno::NOMEM))?;
        Ok(Self { start, bytes })
    }

    /// Where it begins.
    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// How long it is.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// What is at its beginning, which consists of atomics.
    pub(super) fn header<T: Sync>(&self) -> &T {
        assert!(size_of::<T>() <= self.bytes && align_of::<T>() <= PAGE, "a header must fit its mapping");
        // SAFETY: in bounds and aligned by the assertion; headers consist of atomics, and the
        // mapping lives as long as `self`.
        unsafe { self.start.cast::<T>().as_ref() }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped in `new` with this size, and nobody uses it any more.
        let _ = unsafe { rustix::mm::munmap(self.start.as_ptr().cast::<c_void>(), self.bytes) };
    }
}

/// The error for memory of a file that is not there.
pub(crate) fn out_of_memory(bytes: usize, reason: impl std::fmt::Display) -> Error {
    let reason = format!("{reason}; free memory, or use fewer cells or ranks");
    Error::OutOfMemory { bytes, kind: "shared", reason }
}

/// Reserving less than this is not worth a look at what the machine has left.
const MUCH_MEMORY_BYTES: usize = 1 << 24;

/// Makes sure that the memory is there.
///
/// # Errors
/// [`Error::OutOfMemory`].
pub(crate) fn reserve(file: &OwnedFd, offset: u64, bytes: usize) -> Result<()> {
    // The kernel does not refuse what it does not have: it takes page after page, and kills
    // processes when there are none left.
    if bytes >= MUCH_MEMORY_BYTES
        && let Some(available) = available_bytes()
        && bytes as u64 > available
    {
        return Err(out_of_memory(bytes, format!("the machine has {available} bytes left")));
    }
    rustix::fs::fallocate(file, FallocateFlags::empty(), offset, bytes as u64)
        .map_err(|error| out_of_memory(bytes, error))
}

/// What the kernel thinks that it can still give out.
fn available_bytes() -> Option<u64> {
    let told = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = told.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix(" kB")?.parse::<u64>().ok()?.checked_mul(1024)
}
