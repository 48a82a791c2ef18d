//! A part of a region that is read and written by offsets, on paths where every nanosecond counts.

use super::region::{Place, Region};
use crate::element::{Element, Op};
use crate::error::{Error, Result};
use std::ptr::NonNull;

/// Bytes of a region that some rank accesses directly: the memory of a window, say. Keeps it mapped.
#[derive(Debug, Clone)]
pub(crate) struct Memory {
    start: NonNull<u8>,
    bytes: usize,
    region: Region,
}

// SAFETY: the pointer is to memory of the region, which any thread may address.
unsafe impl Send for Memory {}

impl Memory {
    /// The bytes from a place on.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`] if its region has not that many.
    pub(crate) fn new(place: &Place, bytes: usize) -> Result<Self> {
        let place = place.advance(0, bytes, "memory of a window")?;
        let start = NonNull::new(place.pointer()).expect("regions are never null");
        Ok(Self { start, bytes, region: place.region().clone() })
    }

    /// Where those bytes are, if they are all there.
    #[inline(always)]
    pub(crate) fn find(&self, offset: usize, bytes: usize) -> Option<*mut u8> {
        match offset.checked_add(bytes) {
            // SAFETY: within the memory, as was just compared.
            Some(end) if end <= self.bytes => Some(unsafe { self.start.add(offset) }.as_ptr()),
            _ => None,
        }
    }

    /// Where it begins.
    pub(crate) fn place(&self) -> Place {
        let offset = self.start.as_ptr() as usize - self.region.base() as usize;
        self.region.place(offset, self.bytes, "memory of a window").expect("checked when it was made")
    }

    /// Where those bytes are.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`] if they are not all there.
    #[inline]
    pub(crate) fn at(&self, offset: usize, bytes: usize, what: &'static str) -> Result<*mut u8> {
        self.find(offset, bytes).ok_or_else(|| self.out_of_bounds(what, offset, bytes))
    }

    /// The error for bytes that are not there.
    #[cold]
    pub(crate) fn out_of_bounds(&self, what: &'static str, start: usize, bytes: usize) -> Error {
        Error::OutOfBounds { what, start, end: start.saturating_add(bytes), region_bytes: self.bytes }
    }

    /// Copies bytes in. What a peer reads or writes there meanwhile is undefined.
    ///
    /// # Errors
    /// As [`Memory::at`].
    #[inline]
    pub(crate) fn write(&self, offset: usize, data: &[u8], what: &'static str) -> Result<()> {
        let to = self.at(offset, data.len(), what)?;
        // SAFETY: in bounds by `at`; no reference to memory of a region exists, so that the slice is not in it.
        unsafe { copy_short(data.as_ptr(), to, data.len()) };
        Ok(())
    }

    /// Copies bytes out, as [`Memory::write`].
    ///
    /// # Errors
    /// As [`Memory::at`].
    #[inline]
    pub(crate) fn read(&self, offset: usize, data: &mut [u8], what: &'static str) -> Result<()> {
        let from = self.at(offset, data.len(), what)?;
        // SAFETY: as above; the slice is the caller's alone.
        unsafe { copy_short(from, data.as_mut_ptr(), data.len()) };
        Ok(())
    }
}

/// Copies bytes, of which there are likely few: a call is not worth it for some whole words.
///
/// # Safety
/// As [`std::ptr::copy_nonoverlapping`].
#[inline(always)]
pub(super) unsafe fn copy_short(source: *const u8, destination: *mut u8, bytes: usize) {
    // A single number above all: it costs two instructions here.
    if bytes == 8 {
        // SAFETY: by the caller.
        unsafe { std::ptr::copy_nonoverlapping(source, destination, 8) };
    } else {
        // SAFETY: by the caller.
        unsafe { copy_few(source, destination, bytes) };
    }
}

/// As [`copy_short`], of what is not a single number.
///
/// # Safety
/// As [`std::ptr::copy_nonoverlapping`].
#[inline(never)]
unsafe fn copy_few(source: *const u8, destination: *mut u8, bytes: usize) {
    macro_rules! copy {
        ($($words:literal)*) => {
            match bytes {
                0 => {}
                $(bytes if bytes == 8 * $words => {
                    // SAFETY: by the caller.
                    unsafe { std::ptr::copy_nonoverlapping(source, destination, 8 * $words) }
                })*
                // SAFETY: by the caller.
                _ => unsafe { std::ptr::copy_nonoverlapping(source, destination, bytes) },
            }
        };
    }
    copy!(2 3 4);
}

/// Asks for a cache line that is going to be written and that another core may have: it comes while this core does
/// something else. Changes nothing that a program can see.
#[inline(always)]
pub(super) fn expect_to_write<T>(line: *const T) {
    // SAFETY: an instruction that never faults, whatever the address is; processors without it do nothing.
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    unsafe {
        std::arch::asm!("prefetchw [{}]", in(reg) line, options(nostack, preserves_flags, readonly));
    }
    // SAFETY: as above.
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    unsafe {
        std::arch::asm!("prfm pstl1keep, [{}]", in(reg) line, options(nostack, preserves_flags, readonly));
    }
    #[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
    let _ = line;
}

/// Combines elements with others, one by one.
///
/// # Safety
/// Both pointers are to `elements` elements, which need not be aligned; nobody else uses the destination.
pub(super) unsafe fn combine<T: Element>(source: *const T, destination: *mut T, elements: usize, op: Op) {
    for index in 0..elements {
        let place = destination.wrapping_add(index);
        // SAFETY: by the caller.
        let other = unsafe { source.wrapping_add(index).read_unaligned() };
        // SAFETY: by the caller.
        let own = unsafe { place.read_unaligned() };
        // SAFETY: by the caller.
        unsafe { place.write_unaligned(T::combine(op, own, other)) };
    }
}
