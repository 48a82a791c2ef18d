//! Waits that kernels, or the queue itself, do in place of the stream's thread.
//!
//! A kernel that waits occupies a compute unit. So there are fewer of them at a time than the device has compute
//! units, over all its streams: those that they wait for always find one. What a kernel cannot do is left to the
//! thread: it looks at the abort word and at the clock, and tells a kernel to stop. Kernels behind a wait that was
//! stopped store and signal nothing more. A queue that waits by itself is let go by the word itself, once the stream has
//! failed and other ranks have been told: what is behind it runs, for nobody to take as an answer.

use super::awaited::{Awaited, Current, Number, PeriodWaits, Place};
use super::engine::{Engine, Waiter, Waiting};
use super::merged::MergedSend;
use super::ready::Onto;
use super::relay::{Receivers, Sent};
use crate::device::accelerator::DeviceMemory;
use crate::device::driver::{CommandQueue, Driver, Groups, MemoryKind, Value};
use crate::device::moves::MoveTable;
use crate::device::operation::WaitSet;
use crate::device::status::Status;
use crate::error::{Error, Result};
use crate::fabric::{GaveUp, Grace, Word};
use std::collections::VecDeque;
use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Words that a kernel is given as such; of more it reads a table.
pub(super) const WORDS: usize = 4;
/// Threads of a kernel that waits, each for words of its own.
const THREADS: usize = 32;
/// Waits of kernels of which one has a mark behind it, by which the queue knows how far the device has come: each takes a call
/// of the driver.
const A_MARK: u32 = 16;
/// Looks of which one may ask the driver whether the queue has failed, and after what time it does: others wait meanwhile to
/// put something on theirs.
const A_QUERY: (u32, Duration) = (64, Duration::from_millis(1));

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
    kernels: Option<Kernels<D>>,
    outstanding: VecDeque<Outstanding<D>>,
    /// How often it was looked whether the first of them is over, and when the driver was asked last.
    looks: u32,
    asked: Instant,
    /// What is being put on the queue, with its value: it stays here if that fails, when the queue may wait already.
    unwatched: Option<(Arc<WaitSet>, u32)>,
    /// What the queue itself was let go with.
    stopped: Vec<Outstanding<D>>,
}

/// The kernels of a stream that wait, without those of periods.
struct Kernels<D: Driver> {
    wait: D::Kernel,
    current: Current,
    /// How many there were.
    put: u32,
}

/// What was put on the queue for a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Launched {
    Nothing,
    Wait,
    /// And the moves behind it.
    Arrival,
    /// And the send behind these.
    Relay,
}

/// What the kernel of a wait does, too.
#[derive(Clone, Copy)]
pub(super) enum Then<'a> {
    Nothing,
    Moves,
    MovesAndSend(&'a Arc<MoveTable>, Sent<'a>),
}

type Mark<D> = <<D as Driver>::Queue as CommandQueue>::Mark;

/// Where on the queue something waits.
enum Span<D: Driver> {
    /// Between two marks. What is before the first does not count as waiting.
    Marks([Mark<D>; 2]),
    /// A kernel with that number, which says so once it waits, with a mark behind some.
    Kernel(u32, Option<Mark<D>>),
}

struct Outstanding<D: Driver> {
    span: Span<D>,
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
        let kernels = match waiting {
            Waiting::Thread => return Ok(None),
            Waiting::Kernels => {
                let (wait, current) = (engine.own_kernel("halo_wait", &[])?, Current::new(engine.driver())?);
                Some(Kernels { wait, current, put: 0 })
            }
            Waiting::Queue => None,
        };
        Ok(Some(Self {
            kernels,
            outstanding: VecDeque::new(),
            looks: 0,
            asked: Instant::now(),
            unwatched: None,
            stopped: Vec::new(),
        }))
    }

    /// Whether kernels of the stream still wait.
    pub(super) fn are_outstanding(&self) -> bool {
        !self.outstanding.is_empty()
    }

    /// Puts a wait on the queue, if the device can spare a compute unit, with the moves behind it as one kernel if that can
    /// be, and then with a send for which that kernel has been made. The caller holds the set, whose words kernels can reach.
    pub(super) fn launch(
        &mut self,
        onto: &mut Onto<'_, D>,
        (waits, [value, epoch]): (&Arc<WaitSet>, [u32; 2]),
        unpack: Option<&Arc<MoveTable>>,
        sent: Option<Sent<'_>>,
    ) -> Result<Launched> {
        let awaited = Awaited::Set(waits.clone(), [value, epoch]);
        let Some(kernels) = &mut self.kernels else {
            let begin = onto.queue.mark()?;
            self.unwatched = Some((waits.clone(), value));
            for word in &waits.words {
                // SAFETY: kernels reach the word, and the caller holds it.
                unsafe { onto.queue.wait_word(address(word), value) }?;
            }
            let span = Span::Marks([begin, onto.queue.mark()?]);
            self.watch_one(Outstanding::new(span, awaited, None));
            return Ok(Launched::Wait);
        };
        let Some(place) = place_of(&self.outstanding, onto.engine) else { return Ok(Launched::Nothing) };
        let (then, launched) = match (unpack, sent) {
            (Some(unpack), sent) if onto.joins(waits, unpack, true)? => match sent {
                Some(sent) => (Then::MovesAndSend(unpack, sent), Launched::Relay),
                None => (Then::Moves, Launched::Arrival),
            },
            _ => (Then::Nothing, Launched::Wait),
        };
        // Zero says that none waits.
        let (number, has_mark) = (kernels.put.wrapping_add(1).max(1), kernels.put.is_multiple_of(A_MARK));
        kernels.put = number;
        let at = kernels.current.place(number);
        self.unwatched = Some((waits.clone(), value));
        self.put(onto, waits, (value.into(), at), then)?;
        let end = has_mark.then(|| onto.queue.mark()).transpose()?;
        let mut awaited = awaited;
        if let (Launched::Relay, Some(Receivers { waits, needed, .. })) =
            (launched, sent.and_then(|sent| sent.receivers))
        {
            // One behind the other: the kernel waits for both.
            self.watch_one(Outstanding::new(Span::Kernel(number, None), awaited, Some(place.clone())));
            awaited = Awaited::Set(waits.clone(), [needed.value; 2]);
        }
        self.watch_one(Outstanding::new(Span::Kernel(number, end), awaited, Some(place)));
        Ok(launched)
    }

    fn watch_one(&mut self, one: Outstanding<D>) {
        self.outstanding.push_back(one);
        self.unwatched = None;
    }

    /// Has nothing wait any more, watched or not. The stream has failed, and other ranks have been told.
    pub(super) fn stop(&mut self, flags: &Flags) {
        match self.kernels {
            Some(_) => {
                flags.raise();
                self.outstanding.clear();
            }
            None => {
                self.stopped.extend(self.outstanding.drain(..));
                self.let_go();
            }
        }
    }

    /// Brings all words that the queue itself waited for to what lets it go.
    pub(super) fn let_go(&self) {
        self.stopped.iter().for_each(Outstanding::let_go);
        self.unwatched.iter().for_each(|(waits, value)| let_go(waits, *value));
    }

    /// The queue has come past all of them.
    pub(super) fn forget(&mut self) {
        self.stopped.clear();
        self.unwatched = None;
    }

    /// Whether kernels wait, and not the queue itself.
    pub(super) fn are_kernels(&self) -> bool {
        self.kernels.is_some()
    }

    /// Puts a kernel on the queue that waits for all words of a set, which the caller holds, and does what it has been made to
    /// do behind that.
    pub(super) fn put(
        &mut self,
        onto: &mut Onto<'_, D>,
        waits: &Arc<WaitSet>,
        (value, place): (Number, Place),
        then: Then<'_>,
    ) -> Result<()> {
        let (flags, id) = ([onto.flags.stop(), onto.flags.failed()].map(Value::Pointer), onto.id);
        match then {
            Then::Nothing => {}
            Then::Moves => {
                return onto
                    .with_arrival(waits, |queue, arrival| arrival.launch(queue, flags, (value, place)));
            }
            Then::MovesAndSend(unpack, sent) => {
                return onto.with_arrival(waits, |queue, arrival| {
                    let make = |_: &mut D::Queue| unreachable!("made before");
                    let behind = (&*arrival, flags, (value, place));
                    sent.send.on_device.with(id, queue, make, |queue, merged: &mut MergedSend<D>| {
                        merged.relay(queue, behind, (unpack, waits, sent))
                    })
                });
            }
        }
        let behind = flags.into_iter().chain(value.arguments()).chain(place.arguments());
        if waits.words.len() > WORDS {
            return onto.with_table(waits, |queue, table| {
                let words = [table.words.value(), Value::U64(waits.words.len() as u64)];
                let arguments: Vec<Value> = words.into_iter().chain(behind).collect();
                // SAFETY: the arguments are those of the kernel's text; the table is held with the set, and the flags and
                // the place live as long as the queue.
                unsafe {
                    queue.launch("a wait", &mut table.kernel, &arguments, Groups::ForThreads([THREADS, 1, 1]))
                }
            });
        }
        let kernels = self.kernels.as_mut().expect("asked before");
        let words = (0..WORDS).map(|word| waits.words.get(word).map_or(std::ptr::null(), address));
        let arguments: Vec<Value> = words.map(Value::Pointer).chain(behind).collect();
        // SAFETY: as above, where pointers to words may be null too.
        unsafe {
            onto.queue.launch("a wait", &mut kernels.wait, &arguments, Groups::ForThreads([THREADS, 1, 1]))
        }
    }

    /// A place for the kernels of a period.
    pub(super) fn place(&self, engine: &Arc<Engine<D>>) -> Option<Arc<Waiter<D>>> {
        place_of(&self.outstanding, engine)
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
        let awaited = Awaited::Period(waits, wanted);
        self.outstanding.push_back(Outstanding::new(Span::Marks(marks), awaited, Some(place)));
    }

    /// Lets go of those that have ended, and stops all if another rank has failed or one lasts too long: the error
    /// of the stream then.
    pub(super) fn watch(&mut self, queue: &D::Queue, flags: &Flags, status: &Status) -> Result<()> {
        while let Some(first) = self.outstanding.front_mut() {
            self.looks = self.looks.wrapping_add(1);
            let asks = self.looks.is_multiple_of(A_QUERY.0) && self.asked.elapsed() >= A_QUERY.1;
            if asks {
                self.asked = Instant::now();
            }
            if first.is_over(queue, asks) {
                self.outstanding.pop_front();
                continue;
            }
            let context = &status.context;
            let current = first.current(queue, self.kernels.as_ref());
            let current = current.filter(|number| !first.awaited.has_come(*number));
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
    fn new(span: Span<D>, awaited: Awaited, place: Option<Arc<Waiter<D>>>) -> Self {
        Self { span, awaited, seen: None, grace: Grace::default(), place }
    }

    /// Whether nothing waits there any more, nor will. An error of the device ends it too, and surfaces as the queue comes
    /// to rest.
    fn is_over(&self, queue: &D::Queue, asks: bool) -> bool {
        match &self.span {
            Span::Marks([_, end]) => queue.has_passed(end),
            Span::Kernel(_, Some(end)) => (self.awaited.has_come(1) || asks) && queue.has_passed(end),
            Span::Kernel(_, None) => self.awaited.has_come(1) || asks && queue.has_failed(),
        }
    }

    /// The number of the wait that the device has come to last, from 1, if it has come to one.
    fn current(&self, queue: &D::Queue, kernels: Option<&Kernels<D>>) -> Option<usize> {
        match (&self.span, &self.awaited) {
            (Span::Kernel(number, _), _) => {
                kernels.is_some_and(|kernels| kernels.current.number() == *number).then_some(1)
            }
            (Span::Marks([begin, _]), _) if !queue.has_passed(begin) => None,
            (_, Awaited::Set(..)) => Some(1),
            (_, Awaited::Period(waits, _)) => waits.current(),
        }
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
        waits.name_the_late(status.context.give_up(gave_up, late, value))
    }
}

/// A place for kernels that wait: the queue runs one at a time, so that all on it need but one.
fn place_of<D: Driver>(
    outstanding: &VecDeque<Outstanding<D>>,
    engine: &Arc<Engine<D>>,
) -> Option<Arc<Waiter<D>>> {
    let known = outstanding.back().and_then(|one| one.place.clone());
    known.or_else(|| engine.reserve_waiter().map(Arc::new))
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
