//! Memory between processes: a device's by the handles of HIP's interprocess communication, and the host's by locking it.
//!
//! What is called here may come to a rest of the kernels of this process, and belongs to set-up. Memory that has been
//! exported is kept when it is given back, as all of the device is, and keeps its handle.

use super::driver::Context;
use super::library::SUCCESS;
use crate::device::accelerator::DeviceMemory;
use crate::device::gpu::{HANDLE_BYTES, Handle, Imports, Opener};
use crate::error::{Error, Result};
use hip_sys::hiprt;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr::NonNull;

/// A page of the host.
#[repr(align(4096))]
struct Page(#[expect(dead_code, reason = "only its address is used")] [u8; 4096]);

/// Tries whether kernels address memory of the host that is locked as the host does: with some settings of the system they
/// have addresses of their own for it.
///
/// # Errors
/// Why they do not.
pub(super) fn try_locking(context: &Context) -> Result<(), String> {
    let mut page = Box::new(Page([0; 4096]));
    let start = std::ptr::from_mut(&mut *page) as usize;
    // SAFETY: a page of its own, which is there until the end of this function.
    let locked = unsafe { context.lock(start, size_of::<Page>()) };
    locked.map_err(|error| match error {
        Error::DeviceUnavailable { reason, .. } => reason,
        other => other.to_string(),
    })?;
    // SAFETY: locked above, and no kernel uses it.
    unsafe { context.unlock(start) };
    Ok(())
}

/// What processes call a device, whatever is hidden from them: where it is plugged in.
pub(super) fn identity(context: &Context) -> Result<String, String> {
    if let Some(reason) = context.unshared() {
        return Err(format!("memory of the host cannot be shared with its kernels: {reason}"));
    }
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
pub(super) fn reaches(context: &Context, other: &str) -> Result<(), String> {
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
    let _current = context.enter()?;
    let address = memory.base().as_ptr();
    let mut handle = hiprt::hipIpcMemHandle_st { reserved: [0; HANDLE_BYTES] };
    // SAFETY: what `hipMalloc` has given, from its beginning on; a handle is written.
    let code = unsafe { (context.runtime().hipIpcGetMemHandle)(&mut handle, address.cast()) };
    context.check("hipIpcGetMemHandle", code)?;
    let vendor = handle.reserved.iter().map(|byte| *byte as u8).collect();
    Ok(Handle::of(address as usize, memory.bytes(), address as usize, vendor).to_bytes())
}

impl Opener for Context {
    const VENDOR: &'static str = "HIP";

    fn name(&self) -> &str {
        self.name()
    }

    fn imports(&self) -> &Imports {
        &self.imports
    }

    fn open(&self, handle: [u8; HANDLE_BYTES]) -> Result<usize, String> {
        let _current = self.enter().map_err(|error| error.to_string())?;
        let mut start: *mut c_void = std::ptr::null_mut();
        let handle = hiprt::hipIpcMemHandle_st { reserved: handle.map(|byte| byte as c_char) };
        let lazily = hiprt::hipIpcMemLazyEnablePeerAccess;
        // SAFETY: an address is written; a handle that is none is an error.
        match unsafe { (self.runtime().hipIpcOpenMemHandle)(&mut start, handle, lazily) } {
            SUCCESS => Ok(start as usize),
            code => Err(self.describe(code)),
        }
    }

    unsafe fn close(&self, start: usize) {
        if let Ok(_current) = self.enter() {
            // SAFETY: as the caller promises. There is nobody to tell of a failure.
            let _ = unsafe { (self.runtime().hipIpcCloseMemHandle)(start as *mut c_void) };
        }
    }

    unsafe fn lock(&self, start: usize, bytes: usize) -> Result<()> {
        let _current = self.enter()?;
        let (pages, flags) =
            (start as *mut c_void, hiprt::hipHostRegisterPortable | hiprt::hipHostRegisterMapped);
        // SAFETY: as the caller promises.
        self.check("hipHostRegister", unsafe { (self.runtime().hipHostRegister)(pages, bytes, flags) })?;
        self.check_address(NonNull::new(pages.cast()).expect("pages are never at zero")).inspect_err(|_| {
            // SAFETY: registered above, and used by nobody.
            unsafe { self.unlock(start) };
        })
    }

    unsafe fn unlock(&self, start: usize) {
        if let Ok(_current) = self.enter() {
            // SAFETY: as the caller promises. There is nobody to tell of a failure.
            let _ = unsafe { (self.runtime().hipHostUnregister)(start as *mut c_void) };
        }
    }
}
