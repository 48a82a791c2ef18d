//! Memory between processes: a GPU's by the handles of CUDA's interprocess communication, and the host's by locking it.
//!
//! Memory of a pool has no such handles, so what other processes open is of allocations (`cuMemAlloc`). These, and the
//! calls of this file that register and open, may come to a rest of the kernels of this process: they belong to set-up,
//! and allocations come in chunks which are kept.

use super::context::Context;
use super::sys::{self, CUdevice, CUdeviceptr, Failure, check};
use crate::device::accelerator::{DeviceMemory, Reach};
use crate::device::gpu::{Chunks, HANDLE_BYTES, Handle, Imports, Opener, size_class};
use crate::error::{Error, Result};
use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::Arc;

/// What a context shares with other processes.
#[derive(Debug, Default)]
pub(super) struct Shared {
    chunks: Chunks,
    imports: Imports,
}

/// What processes call a GPU, or a part of one (MIG), whatever is hidden from them.
pub(super) fn identity(device: CUdevice) -> Result<String, String> {
    let mut same = 0;
    let attribute = sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM;
    // SAFETY: a number is written.
    check("cuDeviceGetAttribute", unsafe { sys::cuDeviceGetAttribute(&mut same, attribute, device) })
        .map_err(|failure| failure.to_string())?;
    if same == 0 {
        return Err("its kernels have other addresses for memory of the host than the host".into());
    }
    let mut uuid = sys::CUuuid { bytes: [0; 16] };
    // SAFETY: sixteen bytes are written.
    check("cuDeviceGetUuid", unsafe { sys::cuDeviceGetUuid_v2(&mut uuid, device) })
        .map_err(|failure| failure.to_string())?;
    let digits: String = uuid.bytes.iter().map(|byte| format!("{:02x}", *byte as u8)).collect();
    Ok(format!("cuda {digits}"))
}

/// Whether kernels of a GPU reach the memory of the one with that identity.
pub(super) fn reaches(device: CUdevice, other: &str) -> Result<(), String> {
    let found = sys::devices().map_err(|failure| failure.to_string())?;
    let Some(peer) = found.into_iter().find(|peer| identity(*peer).is_ok_and(|identity| identity == other))
    else {
        return Err("its GPU is hidden from this process; let CUDA_VISIBLE_DEVICES name both".into());
    };
    let mut can = 0;
    // SAFETY: a number is written.
    let asked = unsafe { sys::cuDeviceCanAccessPeer(&mut can, device, peer) };
    check("cuDeviceCanAccessPeer", asked).map_err(|failure| failure.to_string())?;
    let reason =
        "the driver gives the two GPUs no access to each other's memory (`nvidia-smi topo -p2p rw` shows it)";
    if device == peer || can != 0 { Ok(()) } else { Err(reason.into()) }
}

/// Memory in a chunk, which keeps its context.
struct Exportable {
    context: Arc<Context>,
    address: usize,
    size: usize,
}

impl Drop for Exportable {
    fn drop(&mut self) {
        // Operations hold what they use until their queue has come to rest, and other processes have closed it.
        self.context.chunks().give_back(self.size, self.address);
    }
}

/// Zeroed memory of the device that other processes can open. Stays allocated when it is freed, for those that come
/// later.
pub(super) fn exportable(context: &Arc<Context>, id: u64, bytes: usize) -> Result<DeviceMemory> {
    context.check_size(bytes)?;
    let size = size_class(bytes);
    let taken = context.chunks().take(size, |size| allocate(context, size));
    let address = taken.map_err(|failure| context.out_of_memory(bytes, failure))?;
    let memory = Exportable { context: context.clone(), address, size };
    context.clear(address as CUdeviceptr, size).map_err(|failure| context.failed(failure))?;
    let base = NonNull::new(address as *mut u8).expect("a chunk is never at zero");
    // SAFETY: a multiple of 64 bytes in a chunk that begins at one of 256, and there until the allocation is dropped.
    Ok(unsafe { DeviceMemory::new(base, bytes, id, Reach::Kernels, Box::new(memory)) })
}

fn allocate(context: &Context, size: usize) -> Result<usize, Failure> {
    let _current = context.enter()?;
    let mut address: CUdeviceptr = 0;
    // SAFETY: an address is written.
    check("cuMemAlloc", unsafe { sys::cuMemAlloc_v2(&mut address, size) })?;
    Ok(address as usize)
}

/// What other processes open the memory by.
pub(super) fn export(context: &Context, memory: &DeviceMemory) -> Result<Vec<u8>> {
    let address = memory.base().as_ptr() as usize;
    let asked = || -> Result<Handle, Failure> {
        let _current = context.enter()?;
        let (mut start, mut size) = (0, 0);
        // SAFETY: an address and a size are written, of the allocation that the memory is in.
        let range = unsafe { sys::cuMemGetAddressRange_v2(&mut start, &mut size, address as CUdeviceptr) };
        check("cuMemGetAddressRange", range)?;
        let mut handle = sys::CUipcMemHandle { reserved: [0; HANDLE_BYTES] };
        // SAFETY: the beginning of an allocation of `cuMemAlloc`; a handle is written.
        check("cuIpcGetMemHandle", unsafe { sys::cuIpcGetMemHandle(&mut handle, start) })?;
        let vendor = handle.reserved.iter().map(|byte| *byte as u8).collect();
        Ok(Handle::of(address, memory.bytes(), start as usize, vendor))
    };
    asked().map(|handle| handle.to_bytes()).map_err(|failure| context.failed(failure))
}

impl Opener for Context {
    const VENDOR: &'static str = "CUDA";

    fn name(&self) -> &str {
        self.name()
    }

    fn imports(&self) -> &Imports {
        &self.shared().imports
    }

    fn open(&self, handle: [u8; HANDLE_BYTES]) -> Result<usize, String> {
        let open = || -> Result<usize, Failure> {
            let _current = self.enter()?;
            let flags = sys::CUipcMem_flags::CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS as u32;
            let mut start: CUdeviceptr = 0;
            let handle = sys::CUipcMemHandle { reserved: handle.map(u8::cast_signed) };
            // SAFETY: an address is written; a handle that is none is an error.
            let opened = unsafe { sys::cuIpcOpenMemHandle_v2(&mut start, handle, flags) };
            check("cuIpcOpenMemHandle", opened)?;
            Ok(start as usize)
        };
        open().map_err(|failure| failure.to_string())
    }

    unsafe fn close(&self, start: usize) {
        if let Ok(_current) = self.enter() {
            // SAFETY: as the caller promises. There is nobody to tell of a failure.
            unsafe { sys::cuIpcCloseMemHandle(start as CUdeviceptr) };
        }
    }

    unsafe fn lock(&self, start: usize, bytes: usize) -> Result<()> {
        let lock = || -> Result<CUdeviceptr, Failure> {
            let _current = self.enter()?;
            let flags = sys::CU_MEMHOSTREGISTER_PORTABLE | sys::CU_MEMHOSTREGISTER_DEVICEMAP;
            let pages = start as *mut c_void;
            // SAFETY: as the caller promises.
            check("cuMemHostRegister", unsafe { sys::cuMemHostRegister_v2(pages, bytes, flags) })?;
            let mut address: CUdeviceptr = 0;
            // SAFETY: registered above; an address is written.
            let asked = unsafe { sys::cuMemHostGetDevicePointer_v2(&mut address, pages, 0) };
            check("cuMemHostGetDevicePointer", asked).inspect_err(|_| {
                // SAFETY: registered above, and used by nobody.
                unsafe { self.unlock(start) };
            })?;
            Ok(address)
        };
        let address = lock().map_err(|failure| self.failed(failure))?;
        if address as usize != start {
            // SAFETY: registered above, and used by nobody.
            unsafe { self.unlock(start) };
            let reason =
                format!("kernels have {address:#x} for the host's {start:#x}: they cannot share words");
            return Err(Error::DeviceUnavailable { device: self.name().into(), reason });
        }
        Ok(())
    }

    unsafe fn unlock(&self, start: usize) {
        if let Ok(_current) = self.enter() {
            // SAFETY: as the caller promises. There is nobody to tell of a failure.
            unsafe { sys::cuMemHostUnregister(start as *mut c_void) };
        }
    }
}

impl Context {
    fn chunks(&self) -> &Chunks {
        &self.shared().chunks
    }
}
