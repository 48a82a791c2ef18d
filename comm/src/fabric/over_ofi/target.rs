//! Places that peers write to, and the memory that they are in.

use crate::device::DeviceMemory;
use crate::error::Result;
use crate::fabric::ofi::{Endpoint, MemoryRegion, PeerAddress, RemotePlace};
use crate::fabric::{Place, Word};
use serde::{Deserialize, Serialize};
use std::ptr::NonNull;
use std::sync::Arc;

/// A place that the teller lets the other side write to.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) struct Target {
    key: u64,
    address: u64,
    /// What comes with the completion of a write.
    pub(super) number: u32,
}

impl Target {
    /// The beginning of a region.
    pub(super) fn of(region: &MemoryRegion, number: u32) -> Self {
        Self { key: region.key(), address: region.remote_base(), number }
    }

    pub(super) fn at(self, peer: PeerAddress) -> RemotePlace {
        RemotePlace { peer, key: self.key, address: self.address }
    }
}

/// Registers the bytes at a place.
pub(super) fn register(
    endpoint: &Endpoint,
    place: &Place,
    bytes: usize,
    counter: Option<&crate::fabric::ofi::Counter>,
) -> Result<MemoryRegion> {
    let base = NonNull::new(place.address()).expect("regions are never null");
    let vendor = place.region().on_device().and_then(DeviceMemory::vendor);
    let memory = Arc::new(place.region().clone());
    // SAFETY: the place was checked to hold that many bytes of a region that is kept, and to whose bytes
    // no references are formed.
    unsafe { MemoryRegion::register(endpoint, (base, bytes), vendor, memory, counter) }
}

/// Registers a word, for atomic operations on its value.
pub(super) fn register_word(
    endpoint: &Endpoint,
    word: &Word,
    counter: Option<&crate::fabric::ofi::Counter>,
) -> Result<MemoryRegion> {
    let base = NonNull::from(word.cell()).cast();
    // SAFETY: a word begins with its value, of four bytes, and is kept; it consists of atomics.
    unsafe {
        MemoryRegion::register(endpoint, (base, size_of::<u32>()), None, Arc::new(word.clone()), counter)
    }
}
