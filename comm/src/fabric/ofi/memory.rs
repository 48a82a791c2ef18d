//! Memory that the network interface may read and write, and places in it.

use super::call::{check, function};
use super::counter::Counter;
use super::endpoint::{Endpoint, PeerAddress, bind, close, control};
use super::library::unavailable;
use super::sys::{self, Fid, FidMr, Zeroed};
use crate::device::Vendor;
use crate::error::{Error, Result};
use std::any::Any;
use std::ffi::c_void;
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;

/// A registered piece of memory. Cloning is cheap; with the last clone it is withdrawn, and then
/// the memory is let go.
#[derive(Clone)]
pub(crate) struct MemoryRegion {
    inner: Arc<Inner>,
}

struct Inner {
    region: *mut FidMr,
    base: NonNull<u8>,
    bytes: usize,
    endpoint: Endpoint,
    /// Bound to the region, so closed after it.
    _counter: Option<Counter>,
    _memory: Arc<dyn Any + Send + Sync>,
}

// SAFETY: opened as thread-safe; who accesses the memory when is settled by who uses the region.
unsafe impl Send for Inner {}
// SAFETY: as above; nothing in it changes.
unsafe impl Sync for Inner {}

impl MemoryRegion {
    /// Registers memory, for peers and for this endpoint's own operations. Whatever a peer writes
    /// to it, or changes by atomic operations, `counter` counts. `vendor`: of the GPU whose memory it is, if it is one's.
    ///
    /// # Safety
    /// `base` must point to `bytes` bytes that stay readable and writable, by those who address such memory, for as long
    /// as `memory` lives, and of which no reference is formed that peers' writes would contradict.
    ///
    /// # Errors
    /// [`Error::FabricUnavailable`] for a counter where there are no triggered operations;
    /// [`Error::Libfabric`].
    pub(crate) unsafe fn register(
        endpoint: &Endpoint,
        (base, bytes): (NonNull<u8>, usize),
        vendor: Option<Vendor>,
        memory: Arc<dyn Any + Send + Sync>,
        counter: Option<&Counter>,
    ) -> Result<MemoryRegion> {
        if counter.is_some() && !endpoint.has_triggered() {
            return Err(unavailable(format!(
                "provider `{}` does not count what arrives in a region, or the endpoint was opened without \
                 triggered operations",
                endpoint.provider()
            )));
        }
        let opened = &endpoint.inner;
        let library = opened.library;
        let domain = opened.domain;
        // SAFETY: the endpoint keeps its domain open.
        let table = unsafe { (*domain).mr };
        let access = sys::FI_SEND
            | sys::FI_RECV
            | sys::FI_READ
            | sys::FI_WRITE
            | sys::FI_REMOTE_READ
            | sys::FI_REMOTE_WRITE;
        let key = if opened.wants(sys::FI_MR_PROV_KEY) { 0 } else { opened.next_key() };
        let flags = if counter.is_some() { sys::FI_RMA_EVENT } else { 0 };
        let mut region = null_mut();
        if opened.has_hmem() {
            let (iface, device, what) = match vendor {
                None => (sys::FI_HMEM_SYSTEM, 0, "memory"),
                Some(Vendor::Cuda(device)) => (sys::FI_HMEM_CUDA, device, "memory of a GPU (CUDA)"),
                Some(Vendor::Hip(device)) => (sys::FI_HMEM_ROCR, device, "memory of a GPU (HIP)"),
            };
            let register = function!("fi_mr_regattr", table, sys::FiOpsMr, regattr)?;
            let memory = sys::IoVec { base: base.as_ptr().cast(), len: bytes };
            let attributes = sys::FiMrAttr {
                mr_iov: &raw const memory,
                iov_count: 1,
                access,
                requested_key: key,
                iface,
                device: u64::from(device.cast_unsigned()),
                ..Zeroed::zeroed()
            };
            // SAFETY: the caller vouches for the memory, which is kept until after the region is closed; the
            // attributes outlive the call.
            let code = unsafe { register(domain.cast(), &raw const attributes, flags, &mut region) };
            check(library, "fi_mr_regattr", code, &format!("when registering {bytes} bytes of {what}"))?;
        } else {
            let register = function!("fi_mr_reg", table, sys::FiOpsMr, reg)?;
            let pointer = base.as_ptr().cast_const().cast::<c_void>();
            // SAFETY: the caller vouches for the memory, which is kept until after the region is closed.
            let code = unsafe {
                register(domain.cast(), pointer, bytes, access, 0, key, flags, &mut region, null_mut())
            };
            check(library, "fi_mr_reg", code, &format!("when registering {bytes} bytes of memory"))?;
        }
        let inner = Inner {
            region,
            base,
            bytes,
            endpoint: endpoint.clone(),
            _counter: counter.cloned(),
            _memory: memory,
        };
        let region: *mut Fid = region.cast();
        if let Some(counter) = counter {
            bind(library, region, counter.raw().cast(), sys::FI_REMOTE_WRITE)?;
        }
        if opened.wants(sys::FI_MR_ENDPOINT) {
            bind(library, region, opened.endpoint.cast(), 0)?;
        }
        // Elsewhere a region is enabled from the start, and has no such command.
        if opened.wants(sys::FI_MR_ENDPOINT) || (counter.is_some() && opened.wants(sys::FI_MR_RMA_EVENT)) {
            let code = control(library, region, sys::FI_ENABLE, null_mut())?;
            check(library, "fi_mr_enable", code, "when enabling a memory region")?;
        }
        Ok(MemoryRegion { inner: Arc::new(inner) })
    }

    /// What peers need to reach it.
    pub(crate) fn key(&self) -> u64 {
        // SAFETY: open until the last clone is dropped.
        unsafe { (*self.inner.region).key }
    }

    /// The address of the first byte, as peers must give it: 0 where providers count from there.
    pub(crate) fn remote_base(&self) -> u64 {
        if self.inner.endpoint.inner.wants(sys::FI_MR_VIRT_ADDR) {
            self.inner.base.as_ptr() as u64
        } else {
            0
        }
    }

    /// Size in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.inner.bytes
    }

    /// Bytes of it, as source or destination of this side's operations.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`].
    pub(crate) fn slice(&self, offset: usize, bytes: usize, what: &'static str) -> Result<LocalSlice> {
        match offset.checked_add(bytes) {
            Some(end) if end <= self.bytes() => Ok(LocalSlice { region: self.clone(), offset, bytes }),
            _ => Err(Error::OutOfBounds {
                what,
                start: offset,
                end: offset.saturating_add(bytes),
                region_bytes: self.bytes(),
            }),
        }
    }

    /// Where peers find the byte at `offset`, if they know this endpoint as `peer`.
    pub(crate) fn remote(&self, peer: PeerAddress, offset: usize) -> RemotePlace {
        RemotePlace { peer, key: self.key(), address: self.remote_base() + offset as u64 }
    }

    fn descriptor(&self) -> *mut c_void {
        // SAFETY: open until the last clone is dropped.
        unsafe { (*self.inner.region).mem_desc }
    }
}

impl std::fmt::Debug for MemoryRegion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "MemoryRegion(key {:#x}, {} bytes)", self.key(), self.bytes())
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        close(self.region.cast());
    }
}

/// Bytes of this side.
#[derive(Debug, Clone)]
pub(crate) struct LocalSlice {
    region: MemoryRegion,
    offset: usize,
    bytes: usize,
}

impl LocalSlice {
    /// How many.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn pointer(&self) -> *mut c_void {
        // SAFETY: `slice` checked that the offset lies within the region.
        unsafe { self.region.inner.base.as_ptr().add(self.offset) }.cast()
    }

    /// What the provider wants with the pointer.
    pub(super) fn descriptor(&self) -> *mut c_void {
        self.region.descriptor()
    }
}

/// A place in a peer's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RemotePlace {
    /// Whose memory.
    pub(crate) peer: PeerAddress,
    /// The region's key.
    pub(crate) key: u64,
    /// The peer's [`MemoryRegion::remote_base`], and the offset from there.
    pub(crate) address: u64,
}
