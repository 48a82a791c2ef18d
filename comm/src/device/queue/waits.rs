//! Waits that kernels do in place of the stream's thread.
//!
//! A kernel that waits occupies a compute unit. So there are fewer of them at a time than the device has compute
//! units, over all its streams: those that they wait for always find one. What a kernel cannot do is left to the
//! thread: it looks at the abort word and at the clock, and tells a kernel to stop. Kernels behind a wait that was
//! stopped store and signal nothing more.

use super::engine::{Engine, Waiter};
use crate::device::accelerator::DeviceMemory;
use crate::device::driver::{CommandQueue, Driver, MemoryKind, Value};
use crate::device::operation::WaitSet;
use crate::device::stream::Status;
use crate::error::{Error, Result};
use crate::fabric::{GaveUp, Word};
use std::collections::VecDeque;
use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

/// Words that one kernel waits for.
const WORDS: usize = 4;

/// What the kernels of a stream and its thread tell each other.
pub(super) struct Flags {
    /// Where the thread tells kernels to stop.
    stop: DeviceMemory,
    /// Where kernels tell those behind them that one was stopped: all kernels read it, and the host never does.
    failed: DeviceMemory,
}

impl Flags {
    pub(super) fn new<D: Driver>(driver: &D) -> Result<Self> {
        let word = |kind| driver.allocate(size_of::<AtomicU32>(), kind);
        Ok(Self { stop: word(MemoryKind::Pinned)?, failed: word(MemoryKind::Device)? })
    }

    fn stop(&self) -> *const c_void {
        self.stop.base().as_ptr().cast_const().cast()
    }

    pub(super) fn failed(&self) -> *const c_void {
        self.failed.base().as_ptr().cast_const().cast()
    }

    fn raise(&self) {
        // SAFETY: aligned memory that the host reaches and that lives as long as `self`, used as an atomic by all.
        unsafe { AtomicU32::from_ptr(self.stop.base().as_ptr().cast()) }.store(1, Ordering::Release);
    }
}

/// The waits of a stream that kernels do.
pub(super) struct KernelWaits<D: Driver> {
    kernel: D::Kernel,
    outstanding: VecDeque<Outstanding<D>>,
}

type Mark<D> = <<D as Driver>::Queue as CommandQueue>::Mark;

struct Outstanding<D: Driver> {
    /// What is before it on the queue does not count as waiting.
    begin: Mark<D>,
    end: Mark<D>,
    waits: Arc<WaitSet>,
    value: u32,
    /// When it was first seen to run.
    since: Option<Instant>,
    _place: Waiter<D>,
}

impl<D: Driver> KernelWaits<D> {
    pub(super) fn new(engine: &Engine<D>) -> Result<Self> {
        Ok(Self { kernel: engine.own_kernel("halo_wait", &[])?, outstanding: VecDeque::new() })
    }

    /// Whether kernels of the stream still wait.
    pub(super) fn are_outstanding(&self) -> bool {
        !self.outstanding.is_empty()
    }

    /// Puts a wait on the queue, if the device can spare a compute unit; whether it could. The caller holds the
    /// set, whose words kernels can reach.
    pub(super) fn launch(
        &mut self,
        engine: &Arc<Engine<D>>,
        queue: &mut D::Queue,
        flags: &Flags,
        waits: &Arc<WaitSet>,
        value: u32,
    ) -> Result<bool> {
        let Some(place) = engine.reserve_waiter() else { return Ok(false) };
        let begin = queue.mark()?;
        for group in waits.words.chunks(WORDS) {
            let words = (0..WORDS).map(|word| group.get(word).map_or(std::ptr::null(), address));
            let pointers = words.chain([flags.stop(), flags.failed()]).map(Value::Pointer);
            let arguments: Vec<Value> = pointers.chain([Value::U32(value)]).collect();
            // SAFETY: the arguments are those of the kernel's text, where pointers to words may be null; the
            // caller holds the words, and the flags live as long as the queue.
            unsafe { queue.launch("a wait", &mut self.kernel, &arguments, [1, 1, 1]) }?;
        }
        let (end, waits) = (queue.mark()?, waits.clone());
        self.outstanding.push_back(Outstanding { begin, end, waits, value, since: None, _place: place });
        Ok(true)
    }

    /// Lets go of those that have ended, and stops all if another rank has failed or one lasts too long: the error
    /// of the stream then.
    pub(super) fn watch(&mut self, queue: &D::Queue, flags: &Flags, status: &Status) -> Result<()> {
        while let Some(first) = self.outstanding.front_mut() {
            // An error of the device ends it too, and surfaces as the queue comes to rest.
            if queue.has_passed(&first.end) {
                self.outstanding.pop_front();
                continue;
            }
            let context = &status.context;
            let runs = queue.has_passed(&first.begin);
            let since = runs.then(|| *first.since.get_or_insert_with(Instant::now));
            let waited = since.map(|since| since.elapsed()).unwrap_or_default();
            let gave_up = if context.abort.failure().is_some() {
                GaveUp::PeerFailed
            } else if context.timeout.is_some_and(|timeout| waited >= timeout) {
                GaveUp::TimedOut(waited)
            } else {
                return Ok(());
            };
            flags.raise();
            let error = first.error(status, gave_up);
            self.outstanding.clear();
            return Err(error);
        }
        Ok(())
    }
}

impl<D: Driver> Outstanding<D> {
    fn error(&self, status: &Status, gave_up: GaveUp) -> Error {
        let late = self.waits.words.iter().find(|word| !word.cell().reached(self.value));
        // If all have come meanwhile, any is as good as another.
        let late = late.or(self.waits.words.first()).expect("a kernel waits for something");
        self.waits.name_the_late(status.context.give_up(gave_up, late, self.value), late)
    }
}

/// A word as kernels see it.
pub(super) fn address(word: &Word) -> *const c_void {
    std::ptr::from_ref(word.cell()).cast()
}
