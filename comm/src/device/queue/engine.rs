//! A device as its streams share it: its programs, and how many of its kernels wait.

use super::executor::QueueExecutor;
use crate::device::accelerator::{Accelerator, DeviceMemory, Execute};
use crate::device::driver::{Driver, MemoryKind};
use crate::device::stream::Status;
use crate::device::text::KernelText;
use crate::device::{MemoryMode, Signals, Waits, Ways};
use crate::element::ElementType;
use crate::error::{Error, Result};
use crate::fabric::Executor;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ffi::c_void;
use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// What all streams of a device share.
pub(crate) struct Engine<D: Driver> {
    driver: D,
    own: D::Program,
    /// By the text's name and source.
    programs: Mutex<HashMap<(&'static str, &'static str), D::Program>>,
    /// Kernels of all streams that wait.
    waiters: AtomicU32,
}

/// A place among the kernels that wait.
pub(super) struct Waiter<D: Driver>(Arc<Engine<D>>);

impl<D: Driver> Drop for Waiter<D> {
    fn drop(&mut self) {
        self.0.waiters.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The devices of a kind that this process has opened. They stay open: their programs stay compiled, and what ranks
/// that come later allocate is in the same memory.
pub(crate) struct Opened<K, D: Driver>(Mutex<Vec<(K, Arc<Engine<D>>)>>);

impl<K: PartialEq, D: Driver> Opened<K, D> {
    pub(crate) const fn new() -> Self {
        Self(Mutex::new(Vec::new()))
    }

    /// The device of that key, opened if it is not yet: ranks that ask for the same one get the same.
    pub(crate) fn open(&self, key: K, open: impl FnOnce() -> Result<D>) -> Result<Arc<dyn Accelerator>> {
        // Held while a device is opened.
        let mut opened = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, engine)) = opened.iter().find(|(known, _)| *known == key) {
            return Ok(engine.clone());
        }
        let engine = Arc::new(Engine::new(open()?)?);
        opened.push((key, engine.clone()));
        Ok(engine)
    }
}

impl<D: Driver> Engine<D> {
    pub(crate) fn new(driver: D) -> Result<Self> {
        let own = driver.own_program()?;
        Ok(Self { driver, own, programs: Mutex::default(), waiters: AtomicU32::new(0) })
    }

    pub(super) fn driver(&self) -> &D {
        &self.driver
    }

    /// Whether kernels are to wait. On the host's own cores they would take them from the ranks.
    fn waits_by_kernels(&self, waits: Waits) -> bool {
        let traits = self.driver.traits();
        let can = traits.kernels_signal && traits.compute_units > 1;
        can && match waits {
            Waits::Auto => traits.is_gpu,
            Waits::Kernel => true,
            Waits::Proxy => false,
        }
    }

    /// Counts a kernel in that will wait, unless the others could then not go on.
    pub(super) fn reserve_waiter(self: &Arc<Self>) -> Option<Waiter<D>> {
        let most = self.driver.traits().compute_units.saturating_sub(1);
        let counted = |waiting: u32| (waiting < most).then(|| waiting + 1);
        let counted = self.waiters.fetch_update(Ordering::Relaxed, Ordering::Relaxed, counted);
        counted.is_ok().then(|| Waiter(self.clone()))
    }

    /// A kernel of the streams' own, and what it reaches by addresses in tables.
    pub(super) fn own_kernel(&self, name: &str, reaches: &[*const c_void]) -> Result<D::Kernel> {
        self.driver.kernel(&self.own, name, reaches)
    }

    /// A kernel of a text that has been compiled.
    pub(super) fn kernel(&self, text: &'static KernelText) -> Result<D::Kernel> {
        let programs = self.programs.lock().unwrap_or_else(PoisonError::into_inner);
        let program = programs.get(&(text.name, text.source)).expect("a launch compiles its text first");
        self.driver.kernel(program, text.name, &[])
    }

    fn refused(&self, reason: &str) -> Error {
        Error::DeviceUnavailable { device: self.driver.name().into(), reason: reason.into() }
    }
}

impl<D: Driver> Accelerator for Engine<D> {
    fn name(&self) -> &str {
        self.driver.name()
    }

    fn executor(&self, waits: Waits) -> Executor {
        if self.waits_by_kernels(waits) { Executor::Stream } else { Executor::Proxy }
    }

    fn host_reaches(&self) -> bool {
        self.driver.traits().host_reaches
    }

    #[cfg(test)]
    fn kernels_signal(&self) -> bool {
        self.driver.traits().kernels_signal
    }

    fn with_memory(&self, mode: MemoryMode) -> Result<Option<Arc<dyn Accelerator>>> {
        self.driver.with_memory(mode)
    }

    fn allocate(&self, bytes: usize, kind: MemoryKind) -> Result<DeviceMemory> {
        self.driver.allocate(bytes, kind)
    }

    fn check_element(&self, element: ElementType) -> Result<()> {
        if element == ElementType::F64 && !self.driver.traits().has_doubles {
            return Err(self.refused("it does not compute with f64; use f32, or another device"));
        }
        Ok(())
    }

    fn compile(&self, text: &'static KernelText) -> Result<()> {
        // Held while it is compiled: ranks that ask for the same text would compile it as often.
        let mut programs = self.programs.lock().unwrap_or_else(PoisonError::into_inner);
        if let Entry::Vacant(new) = programs.entry((text.name, text.source)) {
            new.insert(self.driver.build(text)?);
        }
        Ok(())
    }

    fn open_queue(self: Arc<Self>, status: Arc<Status>, ways: Ways) -> Result<Box<dyn Execute>> {
        let Ways { waits, signals } = ways;
        if waits == Waits::Kernel && !self.waits_by_kernels(waits) {
            return Err(self.refused(
                "kernels cannot wait on it: it has no atomic operations at the scope of all devices, or only one \
                 compute unit; let the thread wait",
            ));
        }
        if signals == Signals::Merged && !self.driver.traits().kernels_signal {
            return Err(self.refused(
                "kernels cannot signal on it: it has no atomic operations at the scope of all devices; choose \
                 `kernel`, which leaves signals to the stream's thread there",
            ));
        }
        let by_kernels = self.waits_by_kernels(waits);
        Ok(Box::new(QueueExecutor::new(self, status, by_kernels, signals)?))
    }
}

impl<D: Driver> fmt::Debug for Engine<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Engine({:?})", self.driver)
    }
}
