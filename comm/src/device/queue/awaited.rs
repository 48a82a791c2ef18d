//! What kernels wait for, and by which numbers they are told of it and tell of it.

use crate::device::accelerator::DeviceMemory;
use crate::device::driver::{Driver, MemoryKind, Value};
use crate::device::operation::WaitSet;
use crate::device::sequence::Due;
use crate::error::Result;
use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// A number that a kernel is given: on top of one in the device's memory, if there is one.
#[derive(Debug, Clone, Copy)]
pub(super) struct Number {
    pub(super) base: *const c_void,
    pub(super) value: u32,
}

impl From<u32> for Number {
    fn from(value: u32) -> Self {
        Self { base: std::ptr::null(), value }
    }
}

impl Number {
    /// As the kernels of streams have it.
    pub(super) fn arguments(self) -> [Value<'static>; 2] {
        [Value::Pointer(self.base), Value::U32(self.value)]
    }
}

/// Where a kernel says which wait it does, and its number.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    at: *const c_void,
    number: u32,
}

impl Place {
    /// As the kernels of streams have it.
    pub(super) fn arguments(self) -> [Value<'static>; 2] {
        [Value::Pointer(self.at), Value::U32(self.number)]
    }
}

/// A word in which kernels say which wait they have come to last: its number, or zero.
pub(super) struct Current(DeviceMemory);

impl Current {
    pub(super) fn new<D: Driver>(driver: &D) -> Result<Self> {
        driver.allocate(size_of::<AtomicU32>(), MemoryKind::Pinned).map(Self)
    }

    pub(super) fn place(&self, number: u32) -> Place {
        Place { at: self.0.base().as_ptr().cast_const().cast(), number }
    }

    pub(super) fn number(&self) -> u32 {
        // SAFETY: aligned memory that the host reaches and that lives as long as `self`, used as an atomic by all.
        unsafe { AtomicU32::from_ptr(self.0.base().as_ptr().cast()) }.load(Ordering::Acquire)
    }
}

/// The waits of a period, in their order.
pub(super) struct PeriodWaits {
    sets: Vec<(Arc<WaitSet>, Due)>,
    /// Of them, counted from 1.
    current: Current,
}

impl PeriodWaits {
    pub(super) fn new<D: Driver>(driver: &D) -> Result<Self> {
        Ok(Self { sets: Vec::new(), current: Current::new(driver)? })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.sets.is_empty()
    }

    pub(super) fn add(&mut self, waits: Arc<WaitSet>, due: Due) -> Place {
        self.sets.push((waits, due));
        self.current.place(self.sets.len() as u32)
    }

    /// Where kernels say which one they have come to.
    pub(super) fn said_at(&self) -> *const c_void {
        self.current.place(0).at
    }

    /// The number of the wait that the device has come to last, from 1, if it has come to one.
    pub(super) fn current(&self) -> Option<usize> {
        Some(self.current.number() as usize).filter(|number| *number > 0)
    }

    /// The value and the epoch of each, once counts have moved on so far since the capture.
    pub(super) fn begin(&self, moved: &[u32]) -> Vec<[u32; 2]> {
        let wanted = self.sets.iter().map(|(waits, due)| (waits, due.after(moved)));
        wanted.map(|(waits, value)| [value, waits.begin(value)]).collect()
    }
}

/// What is being waited for.
pub(super) enum Awaited {
    /// With its value and its epoch.
    Set(Arc<WaitSet>, [u32; 2]),
    /// The waits of a period, with those of each.
    Period(Arc<PeriodWaits>, Vec<[u32; 2]>),
}

impl Awaited {
    /// The wait with that number, with its value and its epoch; of a period the last one that there is, at most.
    pub(super) fn get(&self, number: usize) -> (&Arc<WaitSet>, [u32; 2]) {
        match self {
            Awaited::Set(waits, wanted) => (waits, *wanted),
            Awaited::Period(waits, wanted) => {
                let index = number.clamp(1, waits.sets.len()) - 1;
                (&waits.sets[index].0, wanted[index])
            }
        }
    }
    /// Whether all of the wait with that number has come.
    pub(super) fn has_come(&self, number: usize) -> bool {
        let (waits, [value, _]) = self.get(number);
        waits.words.iter().all(|word| word.cell().reached(value))
    }
}
