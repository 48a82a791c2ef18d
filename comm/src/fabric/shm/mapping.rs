//! Memory files: memory that has no name and that processes share, page by page.

use crate::error::{Error, Result};
use crate::fabric::claims::Claims;
use rustix::fs::FallocateFlags;
use rustix::mm::{MapFlags, ProtFlags};
use std::ffi::c_void;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;

/// As many bytes as the system's pages have that so many lie on.
pub(crate) fn whole_pages(bytes: usize) -> usize {
    bytes.next_multiple_of(rustix::param::page_size())
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
    /// Maps bytes of a file, from a multiple of the system's pages on.
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
        assert!(size_of::<T>() <= self.bytes && align_of::<T>() <= 64, "a header must fit its mapping");
        // SAFETY: in bounds by the assertion, and aligned, as a page is; headers consist of atomics, and the
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

/// Makes sure that the memory is there, in front of others who claim some of this file's.
///
/// # Errors
/// [`Error::OutOfMemory`]; then none of it is taken.
pub(crate) fn reserve(file: &OwnedFd, offset: u64, bytes: usize, claims: &Claims) -> Result<()> {
    let mut take = |piece: Range<usize>| {
        // A signal ends the call, and its handler may come often: hence no more than a piece at a time.
        let (at, length) = (offset + piece.start as u64, piece.len() as u64);
        rustix::io::retry_on_intr(|| rustix::fs::fallocate(file, FallocateFlags::empty(), at, length))
            .map_err(|error| out_of_memory(bytes, error))
    };
    let refused = |left: u64| out_of_memory(bytes, format!("the machine has {left} bytes left"));
    claims.take(bytes, &mut take, &refused).inspect_err(|_| give_back(file, offset, bytes))
}

/// Makes a hole of a piece of the file that nobody uses.
pub(super) fn give_back(file: &OwnedFd, offset: u64, bytes: usize) {
    let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    // A failure only means that the memory comes back when the job ends.
    let _ = rustix::fs::fallocate(file, hole, offset, bytes as u64);
}
