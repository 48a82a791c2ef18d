//! A device as its streams share it: its programs, and how many of its kernels wait.

use super::executor::QueueExecutor;
use crate::device::accelerator::{Accelerator, DeviceMemory, Execute};
use crate::device::copies::{Lane, QueueLane};
use crate::device::driver::{Driver, MemoryKind};
use crate::device::status::Status;
use crate::device::text::KernelText;
use crate::device::{Addresses, MemoryMode, Signals, Waits, Ways};
use crate::element::ElementType;
use crate::error::{Error, Result};
use crate::fabric::{Executor, Region};
use crate::locks::lock;
use std::collections::HashMap;
use std::ffi::c_void;
use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

/// What all streams of a device share.
pub(crate) struct Engine<D: Driver> {
    driver: D,
    own: D::Program,
    /// By the text's name and source. Each has a lock of its own: loading one may wait for the device, and with it for other
    /// ranks, which launch what is there already.
    programs: Mutex<HashMap<(&'static str, &'static str), Compiled<D>>>,
    /// Kernels of all streams that wait.
    waiters: AtomicU32,
    queues: Mutex<Queues>,
}

/// `None` until it is compiled.
type Compiled<D> = Arc<Mutex<Option<<D as Driver>::Program>>>;

/// The queues that are open: those of streams, and those for copies.
#[derive(Debug, Default)]
struct Queues {
    all: u32,
    /// On which something may wait.
    waiting: u32,
}

/// Who waits for other ranks in a stream, once that is settled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Waiting {
    Thread,
    Kernels,
    Queue,
}

/// A place among the queues.
pub(super) struct QueuePlace<D: Driver> {
    engine: Arc<Engine<D>>,
    may_wait: bool,
}

impl<D: Driver> Drop for QueuePlace<D> {
    fn drop(&mut self) {
        let mut queues = self.engine.queues();
        queues.all -= 1;
        queues.waiting -= u32::from(self.may_wait);
    }
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
        let mut opened = lock(&self.0);
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
        let (waiters, queues) = (AtomicU32::new(0), Mutex::default());
        Ok(Self { driver, own, programs: Mutex::default(), waiters, queues })
    }

    pub(super) fn driver(&self) -> &D {
        &self.driver
    }

    /// Who is to wait. On the host's own cores kernels would take them from the ranks; and behind a wait a launch that
    /// blocks would keep the thread from looking at the clock.
    fn waiting(&self, ways: Ways) -> Waiting {
        let traits = self.driver.traits();
        if traits.launches_block {
            return Waiting::Thread;
        }
        let kernels = traits.kernels_signal && traits.compute_units > 1;
        match ways.waits {
            Waits::Auto if ways.signals == Signals::Memop && traits.has_memory_operations => Waiting::Queue,
            Waits::Auto if kernels && traits.is_gpu => Waiting::Kernels,
            Waits::Kernel if kernels => Waiting::Kernels,
            _ => Waiting::Thread,
        }
    }

    fn queues(&self) -> MutexGuard<'_, Queues> {
        lock(&self.queues)
    }

    /// Counts a queue in, unless one that waits could then hold up another one.
    fn reserve_queue(self: &Arc<Self>, may_wait: bool) -> Result<QueuePlace<D>> {
        let most = self.driver.traits().queues;
        let mut queues = self.queues();
        let waiting = queues.waiting + u32::from(may_wait);
        if waiting > 0 && queues.all >= most {
            return Err(self.refused(&format!(
                "its hardware serves {most} streams at a time, {} are open, of ranks and of copies of their messages \
                 (two each), and behind those that wait for other ranks one more might be held up; use fewer ranks \
                 in a process, let threads wait (`device.waits = \"proxy\"`), or give the process more queues of the \
                 hardware (for CUDA: CUDA_DEVICE_MAX_CONNECTIONS=32 in its environment)",
                queues.all
            )));
        }
        (queues.all, queues.waiting) = (queues.all + 1, waiting);
        Ok(QueuePlace { engine: self.clone(), may_wait })
    }

    /// Whether kernels that move payloads signal.
    pub(super) fn merges(&self, signals: Signals) -> bool {
        let traits = self.driver.traits();
        signals == Signals::Merged || signals == Signals::Auto && traits.is_gpu && traits.kernels_signal
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
        let program = self.program(text);
        let program = lock(&program);
        self.driver.kernel(program.as_ref().expect("a launch compiles its text first"), text.name, &[])
    }

    fn program(&self, text: &'static KernelText) -> Compiled<D> {
        lock(&self.programs).entry((text.name, text.source)).or_default().clone()
    }

    fn refused(&self, reason: &str) -> Error {
        Error::DeviceUnavailable { device: self.driver.name().into(), reason: reason.into() }
    }
}

impl<D: Driver> Accelerator for Engine<D> {
    fn name(&self) -> &str {
        self.driver.name()
    }

    fn id(&self) -> u64 {
        self.driver.id()
    }

    fn is_gpu(&self) -> bool {
        self.driver.traits().is_gpu
    }

    fn executor(&self, ways: Ways) -> Executor {
        if self.waiting(ways) == Waiting::Thread { Executor::Proxy } else { Executor::Stream }
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
        let memory = self.driver.allocate(bytes, kind)?;
        Ok(match self.driver.addresses() {
            Addresses::Of(vendor) if kind != MemoryKind::Pinned => memory.of_vendor(vendor),
            _ => memory,
        })
    }

    fn identity(&self) -> std::result::Result<String, String> {
        self.driver.identity()
    }

    fn reaches(&self, identity: &str) -> std::result::Result<(), String> {
        self.driver.reaches(identity)
    }

    fn register(&self, region: &Region) -> Result<DeviceMemory> {
        self.driver.register(region)
    }

    fn export(&self, memory: &DeviceMemory) -> Result<Vec<u8>> {
        self.driver.export(memory)
    }

    fn import(&self, handle: &[u8]) -> Result<DeviceMemory> {
        self.driver.import(handle)
    }

    fn addresses(&self) -> Addresses {
        self.driver.addresses()
    }

    fn within(&self, call: &mut dyn FnMut()) -> Result<()> {
        self.driver.within(call)
    }

    fn open_lane(self: Arc<Self>) -> Result<Box<dyn Lane>> {
        let place = self.reserve_queue(false)?;
        Ok(Box::new(QueueLane::new(self.driver.open_queue(None)?, place)))
    }

    fn check_element(&self, element: ElementType) -> Result<()> {
        if element == ElementType::F64 && !self.driver.traits().has_doubles {
            return Err(self.refused("it does not compute with f64; use f32, or another device"));
        }
        Ok(())
    }

    fn compile(&self, text: &'static KernelText) -> Result<()> {
        // Held while it is compiled: ranks that ask for the same text would compile it as often.
        let program = self.program(text);
        let mut program = lock(&program);
        if program.is_none() {
            *program = Some(self.driver.build(text)?);
        }
        Ok(())
    }

    fn open_queue(self: Arc<Self>, status: Arc<Status>, ways: Ways) -> Result<Box<dyn Execute>> {
        let (waiting, traits) = (self.waiting(ways), self.driver.traits());
        if ways.waits == Waits::Kernel && waiting == Waiting::Thread {
            if traits.launches_block {
                return Err(self.refused(
                    "kernels cannot wait on it while a launch lasts until its kernel has ended, as the environment asks \
                     for (CUDA_LAUNCH_BLOCKING, HIP_LAUNCH_BLOCKING or AMD_SERIALIZE_KERNEL): nobody could stop one; \
                     unset that, or let the thread wait",
                ));
            }
            return Err(self.refused(
                "kernels cannot wait on it: it has no atomic operations at the scope of all devices, or only one \
                 compute unit; let the thread wait",
            ));
        }
        if ways.signals == Signals::Merged && !traits.kernels_signal {
            return Err(self.refused(
                "kernels cannot signal on it: it has no atomic operations at the scope of all devices; choose \
                 `kernel`, which leaves signals to the stream's thread there",
            ));
        }
        if ways.signals == Signals::Memop && !traits.has_memory_operations {
            return Err(self.refused("its queues have no memory operations; choose `kernel` or `merged`"));
        }
        let place = self.reserve_queue(waiting != Waiting::Thread)?;
        Ok(Box::new(QueueExecutor::new(self, status, ways.signals, waiting, place)?))
    }
}

impl<D: Driver> fmt::Debug for Engine<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Engine({:?})", self.driver)
    }
}
