//! Memory of devices that other processes reach by handles.
//!
//! The handle lies in memory of the fabric, whose key is that of the device's memory: who maps it finds the handle, and
//! counts itself in. The process that has exported the memory keeps it until all have closed it again, as drivers want,
//! without waiting for anybody: what it has let go of itself is looked at when it next exports, or lets go of, something.
//! What a peer that has died had open is kept until the process ends.

use super::{Fabric, Region, shared_struct};
use crate::device::{Accelerator, DeviceMemory, MemoryKind};
use crate::error::{Error, Result};
use crate::locks::lock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

/// The longest handle. What a vendor gives for memory has 64 bytes.
const HANDLE_BYTES: usize = 192;
const BYTES: usize = 64 + HANDLE_BYTES;
/// The process that has exported it has freed it.
const FREED: u32 = u32::MAX;

/// The beginning of what lies in the fabric's memory; the handle is behind it.
#[repr(C)]
struct Header {
    /// Imports that are open, or [`FREED`].
    imports: AtomicU32,
    handle_bytes: AtomicU32,
}

impl Header {
    fn of(region: &Region) -> &Self {
        shared_struct(region, 0)
    }

    /// Counts one more import in; false if the memory is no more.
    fn join(&self) -> bool {
        let more = |imports: u32| (imports < FREED - 1).then(|| imports + 1);
        self.imports.fetch_update(Ordering::AcqRel, Ordering::Relaxed, more).is_ok()
    }

    fn leave(&self) {
        self.imports.fetch_sub(1, Ordering::AcqRel);
    }

    /// Whether nobody has it open, nor will.
    fn free(&self) -> bool {
        self.imports.compare_exchange(0, FREED, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }
}

/// Memory that has been exported, and where its handle lies.
struct Exported {
    _memory: DeviceMemory,
    told: Region,
}

/// What this process has let go of and others may still have open.
static RETIRED: Mutex<Vec<Exported>> = Mutex::new(Vec::new());

/// Frees what nobody has open any more.
fn free_retired() {
    let freed: Vec<Exported> = {
        let mut retired = lock(&RETIRED);
        retired.extract_if(.., |one| Header::of(&one.told).free()).collect()
    };
    // Outside of the lock: drivers take their time.
    drop(freed);
}

/// What keeps exported memory for its region.
struct Owner(Option<Exported>);

impl Drop for Owner {
    fn drop(&mut self) {
        if let Some(exported) = self.0.take() {
            lock(&RETIRED).push(exported);
        }
        free_retired();
    }
}

/// What keeps imported memory: it is closed before whoever exported it hears of it.
struct Imported {
    memory: Option<DeviceMemory>,
    told: Region,
}

impl Drop for Imported {
    fn drop(&mut self) {
        self.memory = None;
        Header::of(&self.told).leave();
    }
}

/// Zeroed memory of a device, where kernels are fastest, which peers map by [`import`]. Not collective.
///
/// # Errors
/// [`Error::OutOfMemory`], what the device says.
pub(crate) fn export(fabric: &dyn Fabric, device: &dyn Accelerator, bytes: usize) -> Result<Region> {
    free_retired();
    let memory = device.allocate(bytes, MemoryKind::Exportable)?;
    let handle = device.export(&memory)?;
    assert!(handle.len() <= HANDLE_BYTES, "a handle of {} bytes", handle.len());
    let told = fabric.allocate(BYTES)?;
    told.write_bytes(64, &handle)?;
    Header::of(&told).handle_bytes.store(handle.len() as u32, Ordering::Release);
    let key = told.key();
    let memory = memory.kept_by(|memory| Box::new(Owner(Some(Exported { _memory: memory, told }))));
    Ok(Region::on_a_device(Arc::new(memory), fabric.rank(), key))
}

/// Maps memory that `owner` has exported, by the key and the size that it gave out. Not collective.
///
/// # Errors
/// As [`Fabric::map`]; what the device says.
pub(crate) fn import(
    fabric: &dyn Fabric,
    device: &dyn Accelerator,
    (owner, key, bytes): (usize, u64, usize),
) -> Result<Region> {
    let told = fabric.map(owner, key, BYTES)?;
    let gone = || Error::System {
        call: "mapping the memory of a peer's device",
        reason: format!("rank {owner} has none with key {key} and {bytes} bytes any more"),
    };
    if !Header::of(&told).join() {
        return Err(gone());
    }
    // Leaves again, whatever fails.
    let mut imported = Imported { memory: None, told };
    let handle_bytes = Header::of(&imported.told).handle_bytes.load(Ordering::Acquire) as usize;
    let memory = device.import(&imported.told.read_bytes(64, handle_bytes.min(HANDLE_BYTES))?)?;
    if memory.bytes() != bytes {
        return Err(gone());
    }
    let memory = memory.kept_by(|memory| {
        imported.memory = Some(memory);
        Box::new(imported)
    });
    Ok(Region::on_a_device(Arc::new(memory), owner, key))
}

/// The same region, as memory that kernels of the device address too. They add to words in it only if `adds`.
///
/// # Errors
/// What the device says.
pub(crate) fn register(device: &dyn Accelerator, region: &Region, adds: bool) -> Result<Region> {
    let memory = device.register(region)?;
    let memory = if adds { memory } else { memory.without_additions() };
    Ok(Region::on_a_device(Arc::new(memory), region.owner(), region.key()))
}
