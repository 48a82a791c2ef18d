//! Waits that kernels, or the queue itself, do in place of the stream's thread.
//!
//! A kernel that waits occupies a compute unit. So there are fewer of them at a time than the device has compute
//! units, over all its streams: those that they wait for always find one. What a kernel cannot do is left to the
//! thread: it looks at the abort word and at the clock, and tells a kernel to stop. Kernels behind a wait that was
//! stopped store and signal nothing more. A queue that waits by itself is let go by the word itself, once the stream has
//! failed and other ranks have been told: what is behind it runs, for nobody to take as an answer.

use super::engine::{Engine, Waiter, Waiting};
use super::moves::{Argument, Compiler};
use crate::device::accelerator::DeviceMemory;
use crate::device::driver::{CommandQueue, Driver, MemoryKind, Value};
use crate::device::operation::WaitSet;
use crate::device::sequence::Due;
use crate::device::status::Status;
use crate::error::{Error, Result};
use crate::fabric::{GaveUp, Grace, Word};
use std::collections::VecDeque;
use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

/// Words that a kernel is given as such; of more it reads a table.
const WORDS: usize = 4;
/// Threads of a kernel that waits, each for words of its own.
const THREADS: usize = 32;

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
    /// What is being put on the queue, with its value: it stays here if that fails, when the queue may wait already.
    unwatched: Option<(Arc<WaitSet>, u32)>,
}

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

/// Where a kernel says which wait of a period it does, and its number.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    at: *const c_void,
    number: u32,
}

impl Place {
    /// Of a wait that is no part of a period.
    const NONE: Self = Self { at: std::ptr::null(), number: 0 };
}

/// The waits of a period, in their order.
pub(super) struct PeriodWaits {
    sets: Vec<(Arc<WaitSet>, Due)>,
    /// Where kernels say which of them is waiting, counted from 1.
    current: DeviceMemory,
}

impl PeriodWaits {
    pub(super) fn new<D: Driver>(driver: &D) -> Result<Self> {
        let current = driver.allocate(size_of::<AtomicU32>(), MemoryKind::Pinned)?;
        Ok(Self { sets: Vec::new(), current })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.sets.is_empty()
    }

    pub(super) fn add(&mut self, waits: Arc<WaitSet>, due: Due) -> Place {
        self.sets.push((waits, due));
        Place { at: self.current.base().as_ptr().cast_const().cast(), number: self.sets.len() as u32 }
    }

    /// The value and the epoch of each, once counts have moved on so far since the capture.
    fn begin(&self, moved: &[u32]) -> Vec<[u32; 2]> {
        let wanted = self.sets.iter().map(|(waits, due)| (waits, due.after(moved)));
        wanted.map(|(waits, value)| [value, waits.begin(value)]).collect()
    }

    /// The number of the wait that a kernel is doing, from 1.
    fn current(&self) -> usize {
        // SAFETY: aligned memory that the host reaches and that lives as long as `self`, used as an atomic by all.
        unsafe { AtomicU32::from_ptr(self.current.base().as_ptr().cast()) }.load(Ordering::Acquire) as usize
    }
}

/// A wait for more words than a kernel is given, compiled for a device.
struct Table<D: Driver> {
    kernel: D::Kernel,
    words: Argument,
}

/// With what waits are put on a queue: its executor's number, and what the device may still use.
pub(super) struct Onto<'a, D: Driver> {
    pub(super) engine: &'a Arc<Engine<D>>,
    pub(super) queue: &'a mut D::Queue,
    pub(super) id: u64,
    pub(super) flags: &'a Flags,
}

impl<D: Driver> Onto<'_, D> {
    /// Makes a wait ready for the device's kernels, where they are not given its words as such.
    pub(super) fn compile(&mut self, waits: &WaitSet) -> Result<()> {
        if waits.words.len() > WORDS { self.with_table(waits, |_, _| Ok(())) } else { Ok(()) }
    }

    fn with_table(
        &mut self,
        waits: &WaitSet,
        run: impl FnOnce(&mut D::Queue, &mut Table<D>) -> Result<()>,
    ) -> Result<()> {
        let Self { engine, queue, id, .. } = self;
        let compile = |_: &mut &mut D::Queue| {
            let regions = waits.words.iter().map(Word::region);
            let compiler = Compiler::new(engine, regions)?;
            let addresses: Vec<u64> = waits.words.iter().map(|word| address(word) as u64).collect();
            Ok(Table { words: compiler.upload(&addresses)?, kernel: compiler.kernel("halo_wait_all")? })
        };
        waits.on_device.with(*id, queue, compile, |queue, table| run(queue, table))
    }
}

/// What is being waited for.
enum Awaited {
    /// With its value and its epoch.
    Set(Arc<WaitSet>, [u32; 2]),
    /// The waits of a period, with those of each.
    Period(Arc<PeriodWaits>, Vec<[u32; 2]>),
}

impl Awaited {
    /// The wait with that number, with its value and its epoch; of a period the last one that there is, at most.
    fn get(&self, number: usize) -> (&Arc<WaitSet>, [u32; 2]) {
        match self {
            Awaited::Set(waits, wanted) => (waits, *wanted),
            Awaited::Period(waits, wanted) => {
                let index = number.clamp(1, waits.sets.len()) - 1;
                (&waits.sets[index].0, wanted[index])
            }
        }
    }

    /// The number of the wait that a kernel is doing, if one is; the device has come to all of it.
    fn current(&self) -> Option<usize> {
        match self {
            Awaited::Set(..) => Some(1),
            Awaited::Period(waits, _) => Some(waits.current()).filter(|number| *number > 0),
        }
    }
}

type Mark<D> = <<D as Driver>::Queue as CommandQueue>::Mark;

struct Outstanding<D: Driver> {
    /// What is before it on the queue does not count as waiting.
    begin: Mark<D>,
    end: Mark<D>,
    awaited: Awaited,
    /// The wait that was last seen to run, and when first.
    seen: Option<(usize, Instant)>,
    /// From when on a rank is known to have left without what is waited for.
    grace: Grace,
    place: Option<Arc<Waiter<D>>>,
}

impl<D: Driver> DeviceWaits<D> {
    /// `None` where the thread waits.
    pub(super) fn new(engine: &Engine<D>, waiting: Waiting) -> Result<Option<Self>> {
        let kernel = match waiting {
            Waiting::Thread => return Ok(None),
            Waiting::Kernels => Some(engine.own_kernel("halo_wait", &[])?),
            Waiting::Queue => None,
        };
        Ok(Some(Self { kernel, outstanding: VecDeque::new(), unwatched: None }))
    }

    /// Whether kernels of the stream still wait.
    pub(super) fn are_outstanding(&self) -> bool {
        !self.outstanding.is_empty()
    }

    /// Puts a wait on the queue, if the device can spare a compute unit; whether it could. The caller holds the
    /// set, whose words kernels can reach.
    pub(super) fn launch(
        &mut self,
        onto: &mut Onto<'_, D>,
        waits: &Arc<WaitSet>,
        [value, epoch]: [u32; 2],
    ) -> Result<bool> {
        if !self.are_kernels() {
            let begin = onto.queue.mark()?;
            self.unwatched = Some((waits.clone(), value));
            for word in &waits.words {
                // SAFETY: kernels reach the word, and the caller holds it.
                unsafe { onto.queue.wait_word(address(word), value) }?;
            }
            let (end, awaited) = (onto.queue.mark()?, Awaited::Set(waits.clone(), [value, epoch]));
            self.watch_one(Outstanding::new([begin, end], awaited, None));
            return Ok(true);
        }
        let Some(place) = onto.engine.reserve_waiter().map(Arc::new) else { return Ok(false) };
        let begin = onto.queue.mark()?;
        self.unwatched = Some((waits.clone(), value));
        self.put(onto, waits, value.into(), Place::NONE)?;
        let (end, awaited) = (onto.queue.mark()?, Awaited::Set(waits.clone(), [value, epoch]));
        self.watch_one(Outstanding::new([begin, end], awaited, Some(place)));
        Ok(true)
    }

    fn watch_one(&mut self, one: Outstanding<D>) {
        self.outstanding.push_back(one);
        self.unwatched = None;
    }

    /// Has nothing wait any more, watched or not. The stream has failed, and other ranks have been told.
    pub(super) fn stop(&mut self, flags: &Flags) {
        match self.kernel {
            Some(_) => flags.raise(),
            None => {
                self.outstanding.iter().for_each(Outstanding::let_go);
                self.unwatched.iter().for_each(|(waits, value)| let_go(waits, *value));
            }
        }
        self.outstanding.clear();
    }

    /// Whether kernels wait, and not the queue itself.
    pub(super) fn are_kernels(&self) -> bool {
        self.kernel.is_some()
    }

    /// Puts a kernel on the queue that waits for all words of a set, which the caller holds.
    pub(super) fn put(
        &mut self,
        onto: &mut Onto<'_, D>,
        waits: &WaitSet,
        value: Number,
        place: Place,
    ) -> Result<()> {
        let flags = [onto.flags.stop(), onto.flags.failed()].map(Value::Pointer);
        let place = [Value::Pointer(place.at), Value::U32(place.number)];
        let behind = flags.into_iter().chain(value.arguments()).chain(place);
        if waits.words.len() > WORDS {
            return onto.with_table(waits, |queue, table| {
                let words = [table.words.value(), Value::U64(waits.words.len() as u64)];
                let arguments: Vec<Value> = words.into_iter().chain(behind).collect();
                // SAFETY: the arguments are those of the kernel's text, where the place may be null; the table is held with
                // the set, and the flags live as long as the queue.
                unsafe { queue.launch("a wait", &mut table.kernel, &arguments, [THREADS, 1, 1]) }
            });
        }
        let kernel = self.kernel.as_mut().expect("asked before");
        let words = (0..WORDS).map(|word| waits.words.get(word).map_or(std::ptr::null(), address));
        let arguments: Vec<Value> = words.map(Value::Pointer).chain(behind).collect();
        // SAFETY: as above, where pointers to words may be null too.
        unsafe { onto.queue.launch("a wait", kernel, &arguments, [THREADS, 1, 1]) }
    }

    /// A place for the kernels of a period: the queue runs one at a time, so that all periods on it need but one.
    pub(super) fn place(&self, engine: &Arc<Engine<D>>) -> Option<Arc<Waiter<D>>> {
        let of_period = |one: &&Outstanding<D>| matches!(one.awaited, Awaited::Period(..));
        let known = self.outstanding.iter().rev().find(of_period).and_then(|one| one.place.clone());
        known.or_else(|| engine.reserve_waiter().map(Arc::new))
    }

    /// Watches a period that is on the queue between two marks.
    pub(super) fn watch_period(
        &mut self,
        marks: [Mark<D>; 2],
        waits: Arc<PeriodWaits>,
        moved: &[u32],
        place: Arc<Waiter<D>>,
    ) {
        let wanted = waits.begin(moved);
        self.outstanding.push_back(Outstanding::new(marks, Awaited::Period(waits, wanted), Some(place)));
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
            let current = if runs { first.awaited.current() } else { None };
            let since = current.map(|number| match first.seen {
                Some((seen, since)) if seen == number => (number, since),
                _ => (number, Instant::now()),
            });
            first.seen = since;
            let waited = since.map(|(_, since)| since.elapsed()).unwrap_or_default();
            let gone = current.and_then(|number| {
                let (waits, [_, epoch]) = first.awaited.get(number);
                waits.gone(epoch)
            });
            let gave_up = if context.abort.failure().is_some() {
                GaveUp::Failed(context.peer_failure())
            } else if let Some(error) = gone.filter(|_| first.grace.is_over()) {
                GaveUp::Failed(error)
            } else if context.timeout.is_some_and(|timeout| waited >= timeout) {
                GaveUp::TimedOut(waited)
            } else {
                return Ok(());
            };
            let error = first.error(status, gave_up);
            // In this order: who sees what a queue sends by itself then sees that this rank has failed.
            status.fail(error.clone());
            self.stop(flags);
            return Err(error);
        }
        Ok(())
    }
}

impl<D: Driver> Outstanding<D> {
    fn new([begin, end]: [Mark<D>; 2], awaited: Awaited, place: Option<Arc<Waiter<D>>>) -> Self {
        Self { begin, end, awaited, seen: None, grace: Grace::default(), place }
    }

    fn let_go(&self) {
        let (waits, [value, _]) = self.awaited.get(1);
        let_go(waits, value);
    }

    fn error(&self, status: &Status, gave_up: GaveUp) -> Error {
        let (waits, [value, _]) = self.awaited.get(self.seen.map_or(1, |(number, _)| number));
        let late = waits.words.iter().find(|word| !word.cell().reached(value));
        // If all have come meanwhile, any is as good as another.
        let late = late.or(waits.words.first()).expect("a kernel waits for something");
        waits.name_the_late(status.context.give_up(gave_up, late, value), late)
    }
}

/// Brings words to what a queue waits for.
fn let_go(waits: &WaitSet, value: u32) {
    let late = waits.words.iter().filter(|word| !word.cell().reached(value));
    late.for_each(|word| word.cell().store(value));
}

/// A word as kernels see it.
pub(super) fn address(word: &Word) -> *const c_void {
    std::ptr::from_ref(word.cell()).cast()
}
