//! Memory between processes: a device's by the handles of HIP's interprocess communication, and the host's by locking it.
//!
//! What is called here may come to a rest of the kernels of this process, and belongs to set-up. Memory that has been
//! exported is kept when it is given back, as all of the device is, and keeps its handle.

use super::driver::Context;
use super::library::SUCCESS;
use crate::device::accelerator::{DeviceMemory, Reach};
use crate::device::gpu::{Handle, pages_of};
use crate::error::{Error, Result};
use crate::fabric::Region;
use hip_sys::hiprt;
use std::ffi::{CStr, CString, c_int, c_void};
use std::ptr::NonNull;
use std::sync::Arc;

/// What processes call a device, whatever is hidden from them: where it is plugged in.
pub(super) fn identity(context: &Context) -> std::result::Result<String, String> {
    let mut bus = [0; 64];
    // SAFETY: at most as many bytes are written as the call is told.
    let code = unsafe { (context.runtime().hipDeviceGetPCIBusId)(bus.as_mut_ptr(), 64, context.index()) };
    if code != SUCCESS {
        return Err(format!("hipDeviceGetPCIBusId failed: {}", context.describe(code)));
    }
    let bytes = bus.map(|byte| byte as u8);
    let bus = CStr::from_bytes_until_nul(&bytes).unwrap_or_default().to_string_lossy().to_lowercase();
    Ok(format!("hip {bus}"))
}

/// Whether kernels of a device reach the memory of the one with that identity.
pub(super) fn reaches(context: &Context, other: &str) -> std::result::Result<(), String> {
    let bus = CString::new(other.trim_start_matches("hip ")).map_err(|error| error.to_string())?;
    let mut peer: c_int = 0;
    // SAFETY: a number is written; the text ends in zero.
    if unsafe { (context.runtime().hipDeviceGetByPCIBusId)(&mut peer, bus.as_ptr()) } != SUCCESS {
        return Err(
            "its GPU is hidden from this process; let HIP_VISIBLE_DEVICES and ROCR_VISIBLE_DEVICES name both"
                .into(),
        );
    }
    let mut can: c_int = 0;
    // SAFETY: a number is written.
    let code = unsafe { (context.runtime().hipDeviceCanAccessPeer)(&mut can, context.index(), peer) };
    match (code, can) {
        _ if peer == context.index() => Ok(()),
        (SUCCESS, 0) => Err("the runtime gives the two GPUs no access to each other's memory".into()),
        (SUCCESS, _) => Ok(()),
        (code, _) => Err(format!("hipDeviceCanAccessPeer failed: {}", context.describe(code))),
    }
}

/// What other processes open the memory by.
pub(super) fn export(context: &Context, memory: &DeviceMemory) -> Result<Vec<u8>> {
    context.enter()?;
    let address = memory.base().as_ptr();
    let mut handle = hiprt::hipIpcMemHandle_st { reserved: [0; 64] };
    // SAFETY: what `hipMalloc` has given, from its beginning on; a handle is written.
    let code = unsafe { (context.runtime().hipIpcGetMemHandle)(&mut handle, address.cast()) };
    context.check("hipIpcGetMemHandle", code)?;
    let vendor = handle.reserved.iter().map(|byte| *byte as u8).collect();
    Ok(Handle::of(address as usize, memory.bytes(), address as usize, vendor).to_bytes())
}

/// What another process has allocated.
struct Imported {
    context: Arc<Context>,
    handle: Handle,
}

impl Drop for Imported {
    fn drop(&mut self) {
        self.context.imports.close(&self.handle, |start| {
            if self.context.enter().is_ok() {
                // SAFETY: opened by `import`, and nobody uses it any more. There is nobody to tell of a failure.
                let _ = unsafe { (self.context.runtime().hipIpcCloseMemHandle)(start as *mut c_void) };
            }
        });
    }
}

/// The memory of a handle.
pub(super) fn import(context: &Arc<Context>, handle: &[u8]) -> Result<DeviceMemory> {
    let refused = |reason| Error::DeviceUnavailable { device: context.name().into(), reason };
    let handle = Handle::from_bytes(handle).map_err(refused)?;
    let bytes = handle.bytes as usize;
    if let Some(address) = handle.own() {
        // The runtime does not open what is this process's: it is there already, and whoever exports it keeps it.
        let base = NonNull::new(address as *mut u8).ok_or_else(|| refused("a handle of nothing".into()))?;
        // SAFETY: memory of this process, as it was exported.
        return Ok(unsafe { DeviceMemory::new(base, bytes, context.id, Reach::Kernels, Box::new(())) });
    }
    let vendor = <[u8; 64]>::try_from(handle.vendor.as_slice());
    let vendor = vendor.map_err(|_| refused("not a handle of HIP".into()))?;
    let reserved = vendor.map(|byte| byte as std::ffi::c_char);
    context.enter()?;
    let opened = context.imports.open(&handle, || {
        let mut start: *mut c_void = std::ptr::null_mut();
        let (handle, lazily) = (hiprt::hipIpcMemHandle_st { reserved }, hiprt::hipIpcMemLazyEnablePeerAccess);
        // SAFETY: an address is written; a handle that is none is an error.
        match unsafe { (context.runtime().hipIpcOpenMemHandle)(&mut start, handle, lazily) } {
            SUCCESS => Ok(start as usize),
            code => Err(code),
        }
    });
    let address = opened.map_err(|code| {
        let failed = context.describe(code);
        refused(format!(
            "memory of another process cannot be opened: {failed}; `device.peers = \"staged\"` does without"
        ))
    })?;
    let imported = Imported { context: context.clone(), handle };
    let base = NonNull::new(address as *mut u8).expect("what has been opened is never at zero");
    // SAFETY: as the other process has allocated it, and open until `imported` is dropped.
    Ok(unsafe { DeviceMemory::new(base, bytes, context.id, Reach::Kernels, Box::new(imported)) })
}

/// Pages of the host that are locked. It keeps the region that they are of.
struct Registered {
    context: Arc<Context>,
    start: usize,
    _region: Region,
}

impl Drop for Registered {
    fn drop(&mut self) {
        if self.context.enter().is_ok() {
            // SAFETY: registered by `register`, and no kernel uses it any more. There is nobody to tell of a failure.
            let _ = unsafe { (self.context.runtime().hipHostUnregister)(self.start as *mut c_void) };
        }
    }
}

/// Locks memory of the host, which kernels then address as the host does.
pub(super) fn register(context: &Arc<Context>, region: &Region) -> Result<DeviceMemory> {
    let (start, bytes) = pages_of(region);
    context.enter()?;
    let flags = hiprt::hipHostRegisterPortable | hiprt::hipHostRegisterMapped;
    // SAFETY: whole pages that the region is on, which `one` keeps mapped.
    let code = unsafe { (context.runtime().hipHostRegister)(start as *mut c_void, bytes, flags) };
    context.check("hipHostRegister", code)?;
    let one = Registered { context: context.clone(), start, _region: region.clone() };
    context.check_address(NonNull::new(start as *mut u8).expect("pages are never at zero"))?;
    let base = NonNull::new(region.base()).expect("regions are never null");
    // SAFETY: the region's memory, which stays mapped and registered until `one` is dropped.
    Ok(unsafe { DeviceMemory::new(base, region.bytes(), context.id, Reach::Both, Box::new(one)) })
}
