//! Memory of a GPU, and of the host as the GPU reaches it.
//!
//! Nothing here may wait for what is on the device: a kernel that waits for a rank which allocates or frees would
//! wait for ever. So the device's memory is allocated from a pool in the order of a stream that nobody waits on
//! (the driver's "Stream Ordered Memory Allocator"), and the host's comes in chunks, since locking pages and
//! unlocking them may come to a rest of the whole device.

use super::context::Context;
use super::sys::{
    self, CUdeviceptr, CUmemAllocationHandleType, CUmemLocation, CUmemPoolProps, Failure, check,
};
use crate::device::accelerator::{DeviceMemory, Reach};
use crate::device::gpu::{ALIGNMENT, size_class};
use crate::error::{Error, Result};
use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::Arc;

/// A pool of a device's memory, which keeps what has been freed.
///
/// # Errors
/// What the driver says.
pub(super) fn pool(device: sys::CUdevice) -> Result<sys::CUmemoryPool, Failure> {
    // SAFETY: the structure consists of numbers and pointers, of which zero means that nothing is asked for; what is
    // reserved has to be zero.
    let mut properties: CUmemPoolProps = unsafe { std::mem::zeroed() };
    properties.allocType = sys::CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.handleTypes = CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_NONE;
    // SAFETY: as above.
    let mut location: CUmemLocation = unsafe { std::mem::zeroed() };
    location.type_ = sys::CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE;
    location.__bindgen_anon_1.id = device;
    properties.location = location;
    let mut pool = std::ptr::null_mut();
    // SAFETY: the properties outlive the call, which writes a handle.
    check("cuMemPoolCreate", unsafe { sys::cuMemPoolCreate(&mut pool, &properties) })?;
    // Giving memory back to the system may wait for the device.
    let mut keeps_all = u64::MAX;
    let attribute = sys::CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD;
    // SAFETY: the attribute is a number of 64 bits, which is read.
    let set = unsafe { sys::cuMemPoolSetAttribute(pool, attribute, (&raw mut keeps_all).cast::<c_void>()) };
    check("cuMemPoolSetAttribute", set)?;
    Ok(pool)
}

/// Zeroed memory of the device. Waits until it is zeroed, and for nothing else.
pub(super) fn of_device(context: &Arc<Context>, id: u64, bytes: usize) -> Result<DeviceMemory> {
    context.check_size(bytes)?;
    let size = bytes.max(ALIGNMENT).next_multiple_of(ALIGNMENT);
    let address = take(context, size).map_err(|failure| context.out_of_memory(bytes, failure))?;
    let allocation = Allocation { context: context.clone(), address };
    let base = NonNull::new(address as *mut u8).filter(|base| base.addr().get().is_multiple_of(ALIGNMENT));
    let base = base.ok_or_else(|| Error::OutOfMemory {
        bytes,
        kind: "device",
        reason: format!("{} has given memory at {address:#x}", context.name()),
    })?;
    // SAFETY: aligned, as long as asked for, and there until the allocation is dropped.
    Ok(unsafe { DeviceMemory::new(base, bytes, id, Reach::Kernels, Box::new(allocation)) })
}

/// Zeroed memory of the device.
pub(super) fn take(context: &Context, size: usize) -> Result<CUdeviceptr, Failure> {
    let _current = context.enter()?;
    let mut address = 0;
    // SAFETY: pool and stream live as long as the context; an address is written.
    let taken =
        unsafe { sys::cuMemAllocFromPoolAsync(&mut address, size, context.pool(), context.own_stream()) };
    check("cuMemAllocFromPoolAsync", taken)?;
    if let Err(failure) = context.clear(address, size) {
        // SAFETY: allocated above and used by nobody. The first failure is the one to tell.
        unsafe { sys::cuMemFreeAsync(address, context.own_stream()) };
        return Err(failure);
    }
    Ok(address)
}

/// An allocation of the device, which keeps its context.
struct Allocation {
    context: Arc<Context>,
    address: CUdeviceptr,
}

impl Drop for Allocation {
    fn drop(&mut self) {
        if let Ok(_current) = self.context.enter() {
            // SAFETY: allocated from the context's pool. Operations hold what they use until their queue has come to
            // rest, so that no kernel uses it any more. There is nobody to tell of a failure.
            unsafe { sys::cuMemFreeAsync(self.address, self.context.own_stream()) };
        }
    }
}

/// Zeroed memory of the host, which the device addresses by the same pointers. Stays locked when it is freed, for
/// those that come later.
pub(super) fn of_host(context: &Arc<Context>, id: u64, bytes: usize) -> Result<DeviceMemory> {
    let size = size_class(bytes);
    let taken = context.pinned().take(size, |size| lock_pages(context, size));
    let address = taken.map_err(|failure| context.out_of_memory(bytes, failure))?;
    let allocation = PinnedAllocation { context: context.clone(), size, address };
    let base = NonNull::new(address as *mut u8).expect("a chunk is never at zero");
    // SAFETY: the host's memory of that size, which nobody else has.
    unsafe { base.as_ptr().write_bytes(0, size) };
    // SAFETY: a multiple of 64 bytes in a chunk that begins at a page, and there until the allocation is dropped.
    Ok(unsafe { DeviceMemory::new(base, bytes, id, Reach::Both, Box::new(allocation)) })
}

fn lock_pages(context: &Context, size: usize) -> Result<usize, Failure> {
    let _current = context.enter()?;
    let mut address = std::ptr::null_mut();
    // For all contexts, and at the same address for the device: where addresses are unified, as they are for all
    // programs of 64 bits ("Unified Addressing").
    let flags = sys::CU_MEMHOSTALLOC_PORTABLE | sys::CU_MEMHOSTALLOC_DEVICEMAP;
    // SAFETY: an address is written.
    check("cuMemHostAlloc", unsafe { sys::cuMemHostAlloc(&mut address, size, flags) })?;
    Ok(address as usize)
}

struct PinnedAllocation {
    context: Arc<Context>,
    size: usize,
    address: usize,
}

impl Drop for PinnedAllocation {
    fn drop(&mut self) {
        self.context.pinned().give_back(self.size, self.address);
    }
}

impl Context {
    /// Whether the device could have so much.
    pub(super) fn check_size(&self, bytes: usize) -> Result<()> {
        if bytes as u64 <= self.memory_bytes() {
            return Ok(());
        }
        let (name, all) = (self.name(), self.memory_bytes());
        let reason =
            format!("{name} has {all} bytes and allocates at most as many; use fewer cells, or more ranks");
        Err(Error::OutOfMemory { bytes, kind: "device", reason })
    }

    /// Sets memory of the device that has just been allocated to zero. Waits for that, and for nothing else.
    pub(super) fn clear(&self, address: CUdeviceptr, size: usize) -> Result<(), Failure> {
        let _current = self.enter()?;
        // SAFETY: the memory has that size, nobody else has it yet, and pools allocate in the order of this stream.
        let zeroed = unsafe { sys::cuMemsetD8Async(address, 0, size, self.own_stream()) };
        check("cuMemsetD8Async", zeroed).and_then(|()| self.finish_own())
    }

    /// Copies locked memory of the host to the device. Waits for that, and for nothing else.
    ///
    /// # Safety
    /// Both sides must have that many bytes, and nobody else uses them meanwhile.
    pub(super) unsafe fn copy_apart(
        &self,
        source: *const u8,
        destination: *mut u8,
        bytes: usize,
    ) -> Result<(), Failure> {
        let _current = self.enter()?;
        let (source, destination) = (source.addr() as u64, destination.addr() as u64);
        // SAFETY: by the caller, who has both until the stream has come to rest below.
        let copied = unsafe { sys::cuMemcpyAsync(destination, source, bytes, self.own_stream()) };
        check("cuMemcpyAsync", copied).and_then(|()| self.finish_own())
    }

    /// Why there is no memory of that size.
    pub(super) fn out_of_memory(&self, bytes: usize, failure: Failure) -> Error {
        if failure.code != sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY {
            return self.failed(failure);
        }
        let (mut free, mut all) = (0, 0);
        let asked = self.enter().and_then(|_current| {
            // SAFETY: two numbers are written.
            check("cuMemGetInfo", unsafe { sys::cuMemGetInfo_v2(&mut free, &mut all) })
        });
        let known = match asked {
            Ok(()) => format!("{free} of its {all} bytes are free"),
            Err(failure) => failure.to_string(),
        };
        let kind = if failure.call == "cuMemHostAlloc" { "locked host" } else { "device" };
        let reason = format!("{} has no more ({known}); use fewer cells or ranks", self.name());
        Error::OutOfMemory { bytes, kind, reason }
    }

    /// Locks a chunk of the host's memory while nothing is on the device yet.
    pub(super) fn lock_first_pages(&self) -> Result<(), Failure> {
        let address = self.pinned().take(ALIGNMENT, |size| lock_pages(self, size))?;
        self.pinned().give_back(ALIGNMENT, address);
        Ok(())
    }
}
