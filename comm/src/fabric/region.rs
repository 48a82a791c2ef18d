//! Memory that peers can address, and places in it.

use super::hook::{Doorbell, Hook};
use super::observer::Recording;
use super::role::Role;
use super::word::{Parting, WordCell};
use crate::device::DeviceMemory;
use crate::error::{Error, Result};
use std::any::Any;
use std::ptr::NonNull;
use std::sync::Arc;

/// A cache line, in bytes: regions begin on one, and words that different ranks write lie on different ones.
pub(crate) const LINE: usize = 64;

/// A piece of memory of one rank, as mapped into this one. Cloning is cheap; the memory lives
/// until the owner and every peer that has mapped it have let go.
///
/// Peers may write to it at any time, so no reference to its bytes is ever formed: it is read
/// and written through raw pointers, ordered by the words of `word.rs`.
#[derive(Clone)]
pub struct Region {
    inner: Arc<Inner>,
}

struct Inner {
    base: NonNull<u8>,
    bytes: usize,
    owner: usize,
    key: u64,
    observer: Option<Arc<Recording>>,
    /// Whether the host may read and write it.
    host_reaches: bool,
    /// Frees or unmaps the memory when the last clone is dropped.
    memory: Arc<dyn Any + Send + Sync>,
}

// SAFETY: the pointer is to memory that `memory` keeps mapped and that any thread may address;
// who accesses it when is settled by the flag protocols of the modules that do.
unsafe impl Send for Inner {}
// SAFETY: as above; `Inner` itself is never changed after construction.
unsafe impl Sync for Inner {}

impl Region {
    /// # Safety
    /// `base` must be aligned to a [`LINE`] and point to `bytes` bytes that stay readable and
    /// writable for as long as `memory` lives: by the host, unless it is a [`DeviceMemory`] that says otherwise.
    pub(crate) unsafe fn new(
        base: NonNull<u8>,
        bytes: usize,
        owner: usize,
        key: u64,
        memory: Arc<dyn Any + Send + Sync>,
    ) -> Self {
        let host_reaches = memory.downcast_ref::<DeviceMemory>().is_none_or(DeviceMemory::host_reaches);
        Self { inner: Arc::new(Inner { base, bytes, owner, key, observer: None, host_reaches, memory }) }
    }

    /// Memory of a device that no peer can map.
    pub(crate) fn private(memory: Arc<DeviceMemory>, owner: usize) -> Self {
        Self::on_a_device(memory, owner, Self::PRIVATE)
    }

    /// Memory of a device, under a key by which peers know it.
    pub(crate) fn on_a_device(memory: Arc<DeviceMemory>, owner: usize, key: u64) -> Self {
        let (base, bytes) = (memory.base(), memory.bytes());
        // SAFETY: as whoever has made the memory has promised.
        unsafe { Self::new(base, bytes, owner, key, memory) }
    }

    /// The key of what no peer can map.
    const PRIVATE: u64 = u64::MAX;

    /// The same memory, with every store of this rank to it reported to `observer`.
    pub(crate) fn observed(&self, observer: Arc<Recording>) -> Self {
        let inner = &self.inner;
        Self {
            inner: Arc::new(Inner {
                base: inner.base,
                bytes: inner.bytes,
                owner: inner.owner,
                key: inner.key,
                observer: Some(observer),
                host_reaches: inner.host_reaches,
                memory: inner.memory.clone(),
            }),
        }
    }

    /// Size in bytes.
    pub fn bytes(&self) -> usize {
        self.inner.bytes
    }

    /// The rank whose memory it is.
    pub fn owner(&self) -> usize {
        self.inner.owner
    }

    /// What a peer needs to map the region. Unique within a job for as long as the region lives, unless it is a
    /// device's and the fabric does not reach devices.
    pub fn key(&self) -> u64 {
        self.inner.key
    }

    /// Whether both are the same memory.
    pub fn is_same(&self, other: &Region) -> bool {
        self.inner.base == other.inner.base
    }

    /// The memory of a device that it is, if it is one's.
    pub(crate) fn on_device(&self) -> Option<&DeviceMemory> {
        self.inner.memory.downcast_ref()
    }

    /// How many clones there are in this rank, places and words of it included.
    pub(crate) fn holders(&self) -> usize {
        Arc::strong_count(&self.inner)
    }

    /// Whether an address lies in it.
    pub(crate) fn contains(&self, address: *const u8) -> bool {
        (address as usize).wrapping_sub(self.address() as usize) < self.bytes()
    }

    /// Whether the host may read and write it.
    pub(crate) fn host_reaches(&self) -> bool {
        self.inner.host_reaches
    }

    /// Where the host finds it.
    #[inline(always)]
    pub(crate) fn base(&self) -> *mut u8 {
        debug_assert!(self.host_reaches(), "{self:?} is not the host's to read and write");
        self.inner.base.as_ptr()
    }

    /// Where kernels and queues of its device find it; the host does not, if it does not reach the memory.
    pub(crate) fn address(&self) -> *mut u8 {
        self.inner.base.as_ptr()
    }

    pub(crate) fn observer(&self) -> Option<&Arc<Recording>> {
        self.inner.observer.as_ref()
    }

    /// The place at `offset` bytes, of which `bytes` bytes will be used. `what` is for the message.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`] if they are not in the region.
    pub fn place(&self, offset: usize, bytes: usize, what: &'static str) -> Result<Place> {
        match offset.checked_add(bytes) {
            Some(end) if end <= self.bytes() => Ok(Place { region: self.clone(), offset }),
            _ => Err(Error::OutOfBounds {
                what,
                start: offset,
                end: offset.saturating_add(bytes),
                region_bytes: self.bytes(),
            }),
        }
    }

    /// The synchronisation word at `offset` bytes, a multiple of 8.
    pub(crate) fn word(&self, offset: usize, role: Role, from: usize, to: usize) -> Result<Word> {
        assert!(offset.is_multiple_of(8), "a word at byte {offset} is not aligned");
        let place = self.place(offset, size_of::<WordCell>(), "a synchronisation word")?;
        assert!(self.host_reaches(), "words are where the host reads them");
        // SAFETY: `place` checked that the offset lies within the region.
        let cell = unsafe { self.inner.base.add(offset) }.cast::<WordCell>();
        let hook = self.inner.observer.clone().map(Hook::Observed);
        Ok(Word { cell, hook, has_parting: false, region: place.region, role, from, to })
    }

    /// As [`Region::word`], with the parting of its writer in the eight bytes behind it.
    pub(crate) fn word_with_parting(
        &self,
        offset: usize,
        role: Role,
        from: usize,
        to: usize,
    ) -> Result<Word> {
        self.place(offset, WITH_PARTING, "a synchronisation word and a parting")?;
        let word = self.word(offset, role, from, to)?;
        Ok(Word { has_parting: true, ..word })
    }

    /// Copies bytes in. For set-up, before any peer knows the region.
    pub(crate) fn write_bytes(&self, offset: usize, data: &[u8]) -> Result<()> {
        let place = self.place(offset, data.len(), "a copy into a region")?;
        // SAFETY: in bounds by `place`; the source is a live slice and cannot overlap memory of
        // a region, to which no references exist.
        unsafe { std::ptr::copy_nonoverlapping(data.as_ptr(), place.pointer(), data.len()) };
        Ok(())
    }

    /// Copies bytes out. For set-up, after a collective has ordered the writer before the caller.
    pub(crate) fn read_bytes(&self, offset: usize, bytes: usize) -> Result<Vec<u8>> {
        let place = self.place(offset, bytes, "a copy out of a region")?;
        let mut data = vec![0; bytes];
        // SAFETY: in bounds by `place`; the destination is a fresh vector of that length.
        unsafe { std::ptr::copy_nonoverlapping(place.pointer(), data.as_mut_ptr(), bytes) };
        Ok(data)
    }
}

impl std::fmt::Debug for Region {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Region(rank {}, key {:#x}, {} bytes)", self.owner(), self.key(), self.bytes())
    }
}

/// A position in a region: where a message, a box or a slot begins.
#[derive(Debug, Clone)]
pub struct Place {
    region: Region,
    offset: usize,
}

impl Place {
    /// The region.
    pub fn region(&self) -> &Region {
        &self.region
    }

    /// Bytes from the region's beginning.
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// The place `bytes` further on, of which `length` bytes will be used.
    ///
    /// # Errors
    /// As [`Region::place`].
    pub fn advance(&self, bytes: usize, length: usize, what: &'static str) -> Result<Place> {
        self.region.place(self.offset.saturating_add(bytes), length, what)
    }

    /// Whether `bytes` bytes from here on are in the region.
    ///
    /// # Errors
    /// As [`Region::place`].
    #[inline]
    pub(crate) fn check(&self, bytes: usize, what: &'static str) -> Result<()> {
        let region_bytes = self.region.bytes();
        // A place lies in its region, so that there is no overflow.
        if bytes <= region_bytes - self.offset {
            return Ok(());
        }
        let (start, end) = (self.offset, self.offset.saturating_add(bytes));
        Err(Error::OutOfBounds { what, start, end, region_bytes })
    }

    /// Where the host finds it.
    #[inline(always)]
    pub(crate) fn pointer(&self) -> *mut u8 {
        // SAFETY: a place is only made with an offset within its region.
        unsafe { self.region.base().add(self.offset) }
    }

    /// As [`Region::address`].
    pub(crate) fn address(&self) -> *mut u8 {
        self.region.address().wrapping_add(self.offset)
    }
}

/// The bytes of a word with a parting.
const WITH_PARTING: usize = size_of::<WordCell>() + size_of::<Parting>();

/// A synchronisation word in some rank's memory, with what it means.
#[derive(Clone)]
pub struct Word {
    cell: NonNull<WordCell>,
    hook: Option<Hook>,
    /// Whether its writer says so when it lets go of its end.
    has_parting: bool,
    region: Region,
    /// What a value in it says.
    pub(crate) role: Role,
    /// The rank that writes it.
    pub(crate) from: usize,
    /// The rank that waits on it.
    pub(crate) to: usize,
}

// SAFETY: the cell consists of atomics, and `region` keeps it mapped.
unsafe impl Send for Word {}
// SAFETY: as above.
unsafe impl Sync for Word {}

impl Word {
    #[inline(always)]
    pub(crate) fn cell(&self) -> &WordCell {
        // SAFETY: `region` keeps the memory mapped; the cell is aligned by construction and
        // consists of atomics, so that other ranks may change it meanwhile.
        unsafe { self.cell.as_ref() }
    }

    /// What its writer says when it lets go of its end, if it says that.
    #[inline]
    pub(super) fn parting(&self) -> Option<&Parting> {
        self.has_parting.then(|| shared_struct(&self.region, self.offset() + size_of::<WordCell>()))
    }

    /// Bytes from the beginning of the memory that it is in.
    #[inline]
    pub(crate) fn offset(&self) -> usize {
        self.cell.as_ptr() as usize - self.region.address() as usize
    }

    /// The memory that it is in.
    pub(crate) fn region(&self) -> &Region {
        &self.region
    }

    /// The same word, of which a wire is told whenever it is posted.
    pub(crate) fn with_doorbell(mut self, doorbell: Arc<dyn Doorbell>) -> Self {
        self.hook = Some(Hook::Doorbell(doorbell));
        self
    }

    #[inline(always)]
    pub(crate) fn hook(&self) -> Option<&Hook> {
        self.hook.as_ref()
    }
}

impl std::fmt::Debug for Word {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} of rank {} to rank {}: {}", self.role, self.from, self.to, self.cell().load())
    }
}

/// A structure of atomics at `offset` bytes of a region, for which zero is a value.
///
/// Only for types that consist of atomics, whose alignment divides a [`LINE`].
pub(crate) fn shared_struct<T: Sync>(region: &Region, offset: usize) -> &T {
    assert!(
        offset.is_multiple_of(align_of::<T>()) && align_of::<T>() <= LINE,
        "byte {offset} is not aligned"
    );
    assert!(offset + size_of::<T>() <= region.bytes(), "byte {offset} is not in the region");
    assert!(region.host_reaches(), "{region:?} is not the host's to read and write");
    // SAFETY: in bounds by the assertion.
    let start = unsafe { region.inner.base.add(offset) }.cast::<T>();
    // SAFETY: aligned and in bounds by the assertions, zeroed when made, and mapped for as long
    // as `region` is borrowed; callers keep to types made of atomics.
    unsafe { start.as_ref() }
}
