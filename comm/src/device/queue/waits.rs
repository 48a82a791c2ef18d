//! Waits that kernels, or the queue itself, do in place of the stream's thread.
//!
//! A kernel that waits occupies a compute unit. So there are fewer of them at a time than the device has compute
//! units, over all its streams: those that they wait for always find one. What a kernel cannot do is left to the
//! thread: it looks at the abort word and at the clock, and tells a kernel to stop. Kernels behind a wait that was
//! stopped store and signal nothing more. A queue that waits by itself is let go by the word itself, once the stream has
//! failed and other ranks have been told: what is behind it runs, for nobody to take as an answer.

use super::engine::{Engine, Waiter, Waiting};
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

/// The waits of a stream that its device does.
pub(super) struct DeviceWaits<D: Driver> {
    /// `None`: the queue itself.
    kernel: Option<D::Kernel>,
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
    _place: Option<Waiter<D>>,
}

impl<D: Driver> DeviceWaits<D> {
    /// `None` where the thread waits.
    pub(super) fn new(engine: &Engine<D>, waiting: Waiting) -> Result<Option<Self>> {
        let kernel = match waiting {
            Waiting::Thread => return Ok(None),
            Waiting::Kernels => Some(engine.own_kernel("halo_wait", &[])?),
            Waiting::Queue => None,
        };
        Ok(Some(Self { kernel, outstanding: VecDeque::new() }))
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
        let Some(kernel) = &mut self.kernel else {
            let begin = queue.mark()?;
            for word in &waits.words {
                // SAFETY: kernels reach the word, and the caller holds it.
                unsafe { queue.wait_word(address(word), value) }?;
            }
            let (end, waits) = (queue.mark()?, waits.clone());
            self.outstanding.push_back(Outstanding { begin, end, waits, value, since: None, _place: None });
            return Ok(true);
        };
        let Some(place) = engine.reserve_waiter() else { return Ok(false) };
        let begin = queue.mark()?;
        for group in waits.words.chunks(WORDS) {
            let words = (0..WORDS).map(|word| group.get(word).map_or(std::ptr::null(), address));
            let pointers = words.chain([flags.stop(), flags.failed()]).map(Value::Pointer);
            let arguments: Vec<Value> = pointers.chain([Value::U32(value)]).collect();
            // SAFETY: the arguments are those of the kernel's text, where pointers to words may be null; the
            // caller holds the words, and the flags live as long as the queue.
            unsafe { queue.launch("a wait", kernel, &arguments, [1, 1, 1]) }?;
        }
        let (end, waits) = (queue.mark()?, waits.clone());
        self.outstanding.push_back(Outstanding {
            begin,
            end,
            waits,
            value,
            since: None,
            _place: Some(place),
        });
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
            let error = first.error(status, gave_up);
            // In this order: who sees what a queue sends by itself then sees that this rank has failed.
            status.fail(error.clone());
            match self.kernel {
                Some(_) => flags.raise(),
                None => self.outstanding.iter().for_each(Outstanding::let_go),
            }
            self.outstanding.clear();
            return Err(error);
        }
        Ok(())
    }
}

impl<D: Driver> Outstanding<D> {
    /// Brings the words to what the queue waits for.
    fn let_go(&self) {
        let late = self.waits.words.iter().filter(|word| !word.cell().reached(self.value));
        late.for_each(|word| word.cell().store(self.value));
    }

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
