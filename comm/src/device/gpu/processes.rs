//! Memory of other processes as a GPU reaches it: what they have allocated there, and the host's, which is locked.

use super::{Handle, Imports, pages_of};
use crate::device::accelerator::{DeviceMemory, Reach};
use crate::error::{Error, Result};
use crate::fabric::Region;
use std::ptr::NonNull;
use std::sync::Arc;

/// The bytes of a vendor's handle.
pub(in crate::device) const HANDLE_BYTES: usize = 64;

/// A device, as the calls of its vendor open and lock memory for it.
pub(in crate::device) trait Opener: Send + Sync + 'static {
    /// Whose handles it opens.
    const VENDOR: &'static str;

    fn name(&self) -> &str;

    /// What it has opened.
    fn imports(&self) -> &Imports;

    /// Opens what another process has allocated: where it begins, never at zero, until it is closed. Bytes that are no
    /// handle are an error.
    fn open(&self, handle: [u8; HANDLE_BYTES]) -> Result<usize, String>;

    /// # Safety
    /// It was opened, and nobody uses it any more.
    unsafe fn close(&self, start: usize);

    /// Locks pages, which kernels then address as the host does: otherwise unlocks them again.
    ///
    /// # Safety
    /// They are mapped until they are unlocked.
    unsafe fn lock(&self, start: usize, bytes: usize) -> Result<()>;

    /// # Safety
    /// They were locked, and no kernel uses them any more.
    unsafe fn unlock(&self, start: usize);
}

/// A part of what another process has allocated.
struct Imported<O: Opener> {
    opener: Arc<O>,
    handle: Handle,
}

impl<O: Opener> Drop for Imported<O> {
    fn drop(&mut self) {
        self.opener.imports().close(&self.handle, |start| {
            // SAFETY: opened by `import`, and nobody uses it any more.
            unsafe { self.opener.close(start) };
        });
    }
}

/// The memory of a handle.
pub(in crate::device) fn import<O: Opener>(opener: &Arc<O>, id: u64, handle: &[u8]) -> Result<DeviceMemory> {
    let refused = |reason| Error::DeviceUnavailable { device: opener.name().into(), reason };
    let handle = Handle::from_bytes(handle).map_err(refused)?;
    let bytes = handle.bytes as usize;
    if let Some(address) = handle.own() {
        // A vendor does not open what is this process's: it is there already, and whoever exports it keeps it.
        let base = NonNull::new(address as *mut u8).ok_or_else(|| refused("a handle of nothing".into()))?;
        // SAFETY: memory of this process, as it was exported.
        return Ok(unsafe { DeviceMemory::new(base, bytes, id, Reach::Kernels, Box::new(())) });
    }
    let vendor = <[u8; HANDLE_BYTES]>::try_from(handle.vendor.as_slice());
    let vendor = vendor.map_err(|_| refused(format!("not a handle of {}", O::VENDOR)))?;
    let address = opener.imports().open(&handle, || opener.open(vendor)).map_err(|failed| {
        refused(format!(
            "memory of another process cannot be opened: {failed}; `device.peers = \"staged\"` does without"
        ))
    })?;
    let imported = Imported { opener: opener.clone(), handle };
    let base = NonNull::new(address as *mut u8).expect("what has been opened is never at zero");
    // SAFETY: as the other process has allocated it, and open until `imported` is dropped.
    Ok(unsafe { DeviceMemory::new(base, bytes, id, Reach::Kernels, Box::new(imported)) })
}

/// Pages of the host that are locked. It keeps the region that they are of.
struct Locked<O: Opener> {
    opener: Arc<O>,
    start: usize,
    _region: Region,
}

impl<O: Opener> Drop for Locked<O> {
    fn drop(&mut self) {
        // SAFETY: locked by `register`, and no kernel uses it any more.
        unsafe { self.opener.unlock(self.start) };
    }
}

/// Locks memory of the host.
pub(in crate::device) fn register<O: Opener>(
    opener: &Arc<O>,
    id: u64,
    region: &Region,
) -> Result<DeviceMemory> {
    let (start, bytes) = pages_of(region);
    // SAFETY: whole pages that the region is on, which `locked` keeps mapped.
    unsafe { opener.lock(start, bytes) }?;
    let locked = Locked { opener: opener.clone(), start, _region: region.clone() };
    let base = NonNull::new(region.base()).expect("regions are never null");
    // SAFETY: the region's memory, which stays mapped and locked until `locked` is dropped.
    Ok(unsafe { DeviceMemory::new(base, region.bytes(), id, Reach::Both, Box::new(locked)) })
}
