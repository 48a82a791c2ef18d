//! Memory of devices that other processes reach by handles.
//!
//! The handle lies in memory of the fabric, whose key is that of the device's memory: who maps it finds the handle, and
//! counts itself in. The process that has exported the memory keeps it until all have closed it again, as drivers want,
//! without waiting for anybody: what it has let go of itself is looked at when it next exports, or lets go of, something.
//! What a peer that has died had open is kept until the process ends.
//!
//! A driver may come to a rest of all kernels before it closes memory of others, or unlocks the host's. A thread that watches
//! kernels which wait would then wait for what nobody watches, without end: what it lets go of is closed later.

use super::{Fabric, Region, shared_struct};
use crate::device::{Accelerator, DeviceMemory, MemoryKind};
use crate::error::{Error, Result};
use crate::locks::lock;
use std::any::Any;
use std::cell::Cell;
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

/// What was let go of within [`closing_later`], and is closed by who next sets something up.
static UNUSED: Mutex<Vec<Box<dyn Any + Send + Sync>>> = Mutex::new(Vec::new());

thread_local! {
    static CLOSES_LATER: Cell<bool> = const { Cell::new(false) };
}

/// Lets go of things on the thread of a stream, where kernels may be watched, or those of another stream may wait for what
/// this one does next.
pub(crate) fn closing_later(let_go: impl FnOnce()) {
    CLOSES_LATER.set(true);
    let_go();
    CLOSES_LATER.set(false);
}

/// Closes what was to be closed later. May come to a rest of all kernels of this process.
fn close_unused() {
    // Outside of the lock, which those who watch these kernels take.
    let unused = std::mem::take(&mut *lock(&UNUSED));
    drop(unused);
}

/// Keeps what a driver has opened or locked.
struct Open(Option<Box<dyn Any + Send + Sync>>);

impl Drop for Open {
    fn drop(&mut self) {
        if let (Some(open), true) = (self.0.take(), CLOSES_LATER.get()) {
            lock(&UNUSED).push(open);
        }
    }
}

/// Zeroed memory of a device, where kernels are fastest, which peers map by [`import`]. Not collective.
///
/// # Errors
/// [`Error::OutOfMemory`], what the device says.
pub(crate) fn export(fabric: &dyn Fabric, device: &dyn Accelerator, bytes: usize) -> Result<Region> {
    close_unused();
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
    close_unused();
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
        Box::new(Open(Some(Box::new(imported))))
    });
    Ok(Region::on_a_device(Arc::new(memory), owner, key))
}

/// The same region, as memory that kernels of the device address too. They add to words in it only if `adds`.
///
/// # Errors
/// What the device says.
pub(crate) fn register(device: &dyn Accelerator, region: &Region, adds: bool) -> Result<Region> {
    close_unused();
    let memory = device.register(region)?.kept_by(|memory| Box::new(Open(Some(Box::new(memory)))));
    let memory = if adds { memory } else { memory.without_additions() };
    Ok(Region::on_a_device(Arc::new(memory), region.owner(), region.key()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;

    struct Closes(Arc<AtomicBool>);

    impl Drop for Closes {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    #[test]
    fn what_is_let_go_of_where_kernels_are_watched_is_closed_later() {
        let closed = [(); 3].map(|()| Arc::new(AtomicBool::new(false)));
        let is_closed = || closed.each_ref().map(|one| one.load(Ordering::Relaxed));
        let [first, second, third] =
            closed.each_ref().map(|closed| Open(Some(Box::new(Closes(closed.clone())))));
        drop(first);
        assert_eq!(is_closed(), [true, false, false]);
        closing_later(|| drop(second));
        assert_eq!(is_closed(), [true, false, false]);
        drop(third);
        assert_eq!(is_closed(), [true, false, true]);
        close_unused();
        assert_eq!(is_closed(), [true; 3]);
    }
}
