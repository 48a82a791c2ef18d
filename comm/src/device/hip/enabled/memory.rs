//! Memory of a device, and of the host as kernels reach it.
//!
//! Nothing here may wait for what is on the device: a kernel that waits for a rank which allocates or frees would wait
//! for ever. The runtime frees when all streams have come to rest; so what is given back is kept for those that come
//! later, and freed only where there is no more.

use super::driver::Context;
use super::library::{OUT_OF_MEMORY, SUCCESS};
use crate::device::accelerator::{DeviceMemory, Reach};
use crate::device::driver::MemoryKind;
use crate::device::gpu::{ALIGNMENT, Chunks, size_class};
use crate::error::{Error, Result};
use crate::locks::lock;
use hip_sys::hiprt;
use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard};

/// What a device has allocated and nobody uses.
#[derive(Default)]
pub(super) struct Memory {
    /// Of the device, with their bytes.
    spare: Mutex<Vec<(usize, usize)>>,
    /// Of the host.
    pinned: Chunks,
}

/// An allocation that is in use.
struct Allocation {
    context: Arc<Context>,
    kind: MemoryKind,
    address: usize,
    size: usize,
}

impl Drop for Allocation {
    fn drop(&mut self) {
        // Operations hold what they use until the queue has come to rest, so that no kernel uses it any more.
        match self.kind {
            MemoryKind::Device | MemoryKind::Exportable => {
                self.context.memory.spare().push((self.address, self.size))
            }
            MemoryKind::Pinned => self.context.memory.pinned.give_back(self.size, self.address),
        }
    }
}

impl Memory {
    fn spare(&self) -> MutexGuard<'_, Vec<(usize, usize)>> {
        lock(&self.spare)
    }

    /// Memory of the device of that size, if there is some that nobody uses.
    fn take_spare(&self, size: usize) -> Option<usize> {
        let mut spare = self.spare();
        let index = spare.iter().position(|(_, bytes)| *bytes == size)?;
        Some(spare.swap_remove(index).0)
    }
}

/// Zeroed memory. Waits until it is zeroed, and for nothing else.
pub(super) fn allocate(context: &Arc<Context>, bytes: usize, kind: MemoryKind) -> Result<DeviceMemory> {
    let what = match kind {
        MemoryKind::Device | MemoryKind::Exportable => "device",
        MemoryKind::Pinned => "locked host",
    };
    let failed = |code| match code {
        OUT_OF_MEMORY => Error::OutOfMemory { bytes, kind: what, reason: context.why_no_memory(code) },
        // What has failed before is told by every call.
        _ => Error::DeviceUnavailable {
            device: context.name().into(),
            reason: format!("an allocation failed: {}", context.describe(code)),
        },
    };
    let _current = context.enter()?;
    let (address, size) = match kind {
        // What `hipMalloc` gives has handles for other processes.
        MemoryKind::Device | MemoryKind::Exportable => {
            let size = bytes.max(ALIGNMENT).next_multiple_of(ALIGNMENT);
            (context.of_device(size).map_err(failed)?, size)
        }
        MemoryKind::Pinned => {
            let size = size_class(bytes);
            let taken = context.memory.pinned.take(size, |size| context.lock_pages(size));
            (taken.map_err(failed)?, size)
        }
    };
    let allocation = Allocation { context: context.clone(), kind, address, size };
    let base = NonNull::new(address as *mut u8).expect("an allocation that has not failed");
    match kind {
        MemoryKind::Device | MemoryKind::Exportable => context.clear(base, size)?,
        MemoryKind::Pinned => {
            context.check_address(base)?;
            // SAFETY: the host's memory, with that many bytes, that nobody else has.
            unsafe { base.as_ptr().write_bytes(0, size) };
        }
    }
    let reach = match kind {
        MemoryKind::Device | MemoryKind::Exportable => Reach::Kernels,
        MemoryKind::Pinned => Reach::Both,
    };
    // SAFETY: the runtime aligns to more than 64 bytes; the memory is there until the allocation is dropped, and the
    // host and kernels have the same addresses of locked memory.
    Ok(unsafe { DeviceMemory::new(base, bytes, context.id, reach, Box::new(allocation)) })
}

impl Context {
    /// Memory of the device, or the code of why there is none.
    fn of_device(&self, size: usize) -> std::result::Result<usize, u32> {
        if let Some(address) = self.memory.take_spare(size) {
            return Ok(address);
        }
        let allocate = || {
            let mut base: *mut c_void = std::ptr::null_mut();
            // SAFETY: a place for the answer.
            match unsafe { (self.runtime().hipMalloc)(&mut base, size) } {
                SUCCESS if !base.is_null() => Ok(base as usize),
                SUCCESS => Err(OUT_OF_MEMORY),
                code => Err(code),
            }
        };
        match allocate() {
            Err(OUT_OF_MEMORY) if self.free_spare() => allocate(),
            allocated => allocated,
        }
    }

    /// Memory of the host that kernels reach while they run, or the code of why there is none.
    fn lock_pages(&self, size: usize) -> std::result::Result<usize, u32> {
        let mut base: *mut c_void = std::ptr::null_mut();
        let flags = hiprt::hipHostMallocPortable | hiprt::hipHostMallocMapped | hiprt::hipHostMallocCoherent;
        // SAFETY: a place for the answer.
        match unsafe { (self.runtime().hipHostMalloc)(&mut base, size, flags) } {
            SUCCESS if !base.is_null() => Ok(base as usize),
            SUCCESS => Err(OUT_OF_MEMORY),
            code => Err(code),
        }
    }

    /// Gives what nobody uses back to the runtime; whether there was something.
    pub(super) fn free_spare(&self) -> bool {
        let spare = std::mem::take(&mut *self.memory.spare());
        for (address, _) in &spare {
            // SAFETY: allocated so, and nobody has it. There is nobody to tell of a failure.
            let _ = unsafe { (self.runtime().hipFree)(*address as *mut c_void) };
        }
        !spare.is_empty()
    }

    fn why_no_memory(&self, code: u32) -> String {
        let (mut free, mut all) = (0, 0);
        // SAFETY: places for two answers.
        let known = match unsafe { (self.runtime().hipMemGetInfo)(&mut free, &mut all) } {
            SUCCESS => format!("{free} of its {all} bytes are free"),
            code => self.describe(code),
        };
        format!("{} has no more ({}; {known}); use fewer cells or ranks", self.name(), self.describe(code))
    }

    /// That kernels address memory of the host as the host does.
    pub(super) fn check_address(&self, base: NonNull<u8>) -> Result<()> {
        let (host, mut address) = (base.as_ptr().cast(), std::ptr::null_mut());
        // SAFETY: a place for the answer, and memory of the runtime.
        let code = unsafe { (self.runtime().hipHostGetDevicePointer)(&mut address, host, 0) };
        self.check("hipHostGetDevicePointer", code)?;
        if address != host {
            let reason = format!("kernels have {address:p} for the host's {host:p}: they cannot share words");
            return Err(Error::DeviceUnavailable { device: self.name().into(), reason });
        }
        Ok(())
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
    ) -> Result<()> {
        let kind = hiprt::hipMemcpyKind::hipMemcpyDefault;
        let copy = self.runtime().hipMemcpyAsync;
        let _current = self.enter()?;
        // SAFETY: by the caller, who has both until the stream has come to rest below.
        let code = unsafe { copy(destination.cast(), source.cast(), bytes, kind, self.set_up) };
        self.check("a copy", code)?;
        // SAFETY: the stream lives.
        self.check("a copy", unsafe { (self.runtime().hipStreamSynchronize)(self.set_up) })
    }

    /// Sets memory of the device to zero. Blocks.
    fn clear(&self, base: NonNull<u8>, bytes: usize) -> Result<()> {
        // SAFETY: the memory has that many bytes, and nobody else has it yet.
        let code = unsafe { (self.runtime().hipMemsetAsync)(base.as_ptr().cast(), 0, bytes, self.set_up) };
        self.check("clearing memory", code)?;
        // SAFETY: the stream lives.
        self.check("clearing memory", unsafe { (self.runtime().hipStreamSynchronize)(self.set_up) })
    }
}
