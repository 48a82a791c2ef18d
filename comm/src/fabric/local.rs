//! The fabric `local`: ranks are threads of one process.

use super::Abort;
use super::claims::OF_THIS_PROCESS;
use super::mpi::Launched;
use super::{Executor, Fabric, Region, WaitPolicy};
use crate::boards::Boards;
use crate::device::DeviceMemory;
use crate::error::{Error, Result};
use crate::locks::lock;
use crate::meeting::Meeting;
use crate::world::WorldOptions;
use std::alloc::Layout;
use std::any::Any;
use std::collections::HashMap;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::thread::available_parallelism;

/// Bytes of an ordinary page, and of a large one where systems have them.
const PAGE_BYTES: usize = 4096;
const HUGE_PAGE_BYTES: usize = 2 << 20;

/// Memory of so many bytes asks for large pages: kernels that read and write many rows side by side touch more ordinary
/// ones than a processor remembers the places of.
const LARGE_BYTES: usize = 4 << 20;

/// One rank's end of the fabric.
#[derive(Debug)]
pub struct LocalFabric {
    hub: Arc<Hub>,
    rank: usize,
}

/// The fabric of a process that is alone.
pub(super) fn join(_options: &WorldOptions) -> Result<Arc<dyn Fabric>> {
    match super::mpi::launched() {
        Some(Launched { ranks, evidence, .. }) if ranks != Some(1) => Err(super::unavailable(
            "local",
            format!(
                "its ranks are threads of one process, but a launcher started this process as one of several \
                 ({evidence}); use `mpi`, or start one process"
            ),
        )),
        _ => {
            super::check_alone("local")?;
            Ok(LocalFabric::ends(1)?.remove(0))
        }
    }
}

/// What the ranks share: which memory goes with which key.
#[derive(Debug)]
struct Hub {
    size: usize,
    shared: Mutex<HashMap<u64, Shared>>,
    next_key: AtomicU64,
    roots: [Arc<Block>; 2],
    /// How many cores the ranks may use together, each of which may be pinned to its own afterwards.
    cores: usize,
}

/// Memory that goes with a key, for as long as anyone has mapped it.
#[derive(Debug)]
struct Shared {
    base: NonNull<u8>,
    bytes: usize,
    memory: Weak<dyn Any + Send + Sync>,
}

// SAFETY: the pointer is used only together with the memory that it is into, which any thread may address.
unsafe impl Send for Shared {}

impl LocalFabric {
    /// The ends of a fabric of `size` ranks, by rank. Each may be moved to its own thread.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub fn ends(size: usize) -> Result<Vec<Arc<LocalFabric>>> {
        // Threads inherit what the one that starts them may use, also where that is pinned.
        let cores = available_parallelism().map_or(1, usize::from);
        let hub = Arc::new(Hub::new(size, cores)?);
        Ok((0..size).map(|rank| Arc::new(LocalFabric { hub: hub.clone(), rank })).collect())
    }

    /// The memory of a rank that shares none with others.
    pub(crate) fn alone(rank: usize) -> Result<Arc<Self>> {
        Ok(Arc::new(Self { hub: Arc::new(Hub::new(1, 1)?), rank }))
    }

    /// Lets peers map memory of this rank.
    ///
    /// # Safety
    /// As [`Region::new`].
    unsafe fn share(
        &self,
        key: u64,
        base: NonNull<u8>,
        bytes: usize,
        memory: Arc<dyn Any + Send + Sync>,
    ) -> Region {
        let mut shared = lock(&self.hub.shared);
        shared.retain(|_, shared| shared.memory.strong_count() > 0);
        shared.insert(key, Shared { base, bytes, memory: Arc::downgrade(&memory) });
        // SAFETY: by the caller.
        unsafe { Region::new(base, bytes, self.rank, key, memory) }
    }
}

impl Hub {
    fn new(size: usize, cores: usize) -> Result<Self> {
        let roots = [Arc::new(Block::new(Abort::BYTES, 0)?), Arc::new(Block::new(Boards::bytes(size), 0)?)];
        Ok(Self { size, shared: Mutex::default(), next_key: AtomicU64::new(1), roots, cores })
    }
}

impl Fabric for LocalFabric {
    fn name(&self) -> &'static str {
        "local"
    }

    fn executor(&self) -> Executor {
        Executor::Stream
    }

    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.hub.size
    }

    fn allocate(&self, bytes: usize) -> Result<Region> {
        let key = self.hub.next_key.fetch_add(1, Ordering::Relaxed);
        let block = Block::new(bytes, key)?;
        let base = block.base();
        // SAFETY: the block holds `bytes` bytes from there, which is aligned to 64, and keeps them.
        Ok(unsafe { self.share(key, base, bytes, Arc::new(block)) })
    }

    fn reaches_devices(&self) -> bool {
        true
    }

    fn adopt(&self, memory: Arc<DeviceMemory>) -> Region {
        let key = self.hub.next_key.fetch_add(1, Ordering::Relaxed);
        let (base, bytes) = (memory.base(), memory.bytes());
        // SAFETY: as whoever has made the memory has promised.
        unsafe { self.share(key, base, bytes, memory) }
    }

    fn map(&self, owner: usize, key: u64, bytes: usize) -> Result<Region> {
        let shared = lock(&self.hub.shared);
        let found = shared.get(&key).filter(|shared| shared.bytes == bytes);
        match found.and_then(|shared| Some((shared.base, shared.memory.upgrade()?))) {
            // SAFETY: as when it was shared; the memory is kept again.
            Some((base, memory)) => Ok(unsafe { Region::new(base, bytes, owner, key, memory) }),
            None => Err(Error::System {
                call: "mapping a peer's memory",
                reason: format!("rank {owner} has no region with key {key} and {bytes} bytes any more"),
            }),
        }
    }

    fn abort(&self) -> Abort {
        Abort::new(self.hub.roots[0].region(0, u64::MAX))
    }

    fn meeting(self: Arc<Self>) -> Result<Box<dyn Meeting>> {
        let boards = self.hub.roots[1].region(0, u64::MAX);
        let size = self.hub.size;
        Ok(Box::new(Boards::new(self, boards, size)?))
    }

    fn wait_policy(&self) -> WaitPolicy {
        WaitPolicy::for_threads(self.hub.size, self.hub.cores)
    }
}

/// Memory of the heap that lives while anyone has mapped it.
#[derive(Debug)]
struct Block {
    start: NonNull<u8>,
    layout: Layout,
    skew: usize,
    bytes: usize,
}

// SAFETY: the block owns its memory; access is settled by those who map it.
unsafe impl Send for Block {}
// SAFETY: as above; a block is never changed.
unsafe impl Sync for Block {}

impl Block {
    fn new(bytes: usize, key: u64) -> Result<Self> {
        let skew = super::skew(bytes, key);
        let failed = |reason: &str| Error::OutOfMemory { bytes, kind: "host", reason: reason.into() };
        let alignment = match bytes {
            0..PAGE_BYTES => 64,
            PAGE_BYTES..LARGE_BYTES => PAGE_BYTES,
            _ => HUGE_PAGE_BYTES,
        };
        let size = bytes.checked_add(skew).map(|size| size.max(64));
        let layout = size.and_then(|size| Layout::from_size_align(size, alignment).ok());
        let layout = layout.ok_or_else(|| failed("the size is beyond the address space"))?;
        // SAFETY: the layout's size is at least 64.
        let start = unsafe { std::alloc::alloc(layout) };
        let start = NonNull::new(start)
            .ok_or_else(|| failed("the allocator has no more; use fewer cells or ranks"))?;
        #[cfg(not(miri))]
        if bytes >= LARGE_BYTES {
            use rustix::mm::{Advice, madvise};
            let whole_pages = layout.size() / PAGE_BYTES * PAGE_BYTES;
            // SAFETY: pages of what has been allocated, of which only the size changes. A system without large ones
            // serves as well, only slower.
            let _ = unsafe { madvise(start.as_ptr().cast(), whole_pages, Advice::LinuxHugepage) };
        }
        let block = Self { start, layout, skew, bytes };
        let mut zero = |piece: Range<usize>| {
            // SAFETY: a piece of the allocation.
            let start = unsafe { block.start.add(piece.start) };
            // SAFETY: as above, and nobody else knows it yet.
            unsafe { start.write_bytes(0, piece.len()) };
            Ok(())
        };
        let refused = |left: u64| {
            failed(&format!("the machine has {left} bytes left; free memory, or use fewer cells or ranks"))
        };
        OF_THIS_PROCESS.take(layout.size(), &mut zero, &refused)?;
        Ok(block)
    }

    fn base(&self) -> NonNull<u8> {
        // SAFETY: the allocation holds `skew` more bytes than asked for.
        unsafe { self.start.add(self.skew) }
    }

    fn region(self: &Arc<Self>, owner: usize, key: u64) -> Region {
        // SAFETY: the memory holds `bytes` bytes from `base`, which is aligned to 64 since the
        // skew is, and lives as long as this `Arc`.
        unsafe { Region::new(self.base(), self.bytes, owner, key, self.clone()) }
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this layout, and nobody maps it any more.
        unsafe { std::alloc::dealloc(self.start.as_ptr(), self.layout) };
    }
}
