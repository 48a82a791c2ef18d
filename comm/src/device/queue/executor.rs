//! The executor of a device's stream: what its thread does with operations.
//!
//! Kernels, moves and signals go on the device's queue without waiting for those before them. For other ranks a
//! kernel waits where it may (`waits.rs`), and else the thread, which then carries out sends whose receivers were
//! not ready, as the host's streams do. Whatever the device may still use is held until the queue has passed it.

use super::arrival::LastWait;
use super::clock::Readings;
use super::engine::{Engine, QueuePlace, Waiting};
use super::follow::LastSignals;
use super::owed::Owed;
use super::pause::{self, NAP, Pause};
use super::times::{Times, about_put_off};
use super::waits::{DeviceWaits, Flags};
use crate::device::Signals;
use crate::device::accelerator::Execute;
use crate::device::driver::{CommandQueue, Driver, Groups, Value};
use crate::device::host::lane;
use crate::device::operation::{Operation, TriggeredSend, WaitSet};
use crate::device::status::Status;
use crate::device::text::Launch;
use crate::error::{Error, Result};
use crate::fabric::{WaitContext, Word, closing_later, progress_all};
use std::any::Any;
use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Looks for the next operation of which one is also a look at what waits on the device.
const LOOKS_A_WATCH: u32 = 16;
/// Operations whose memory is let go of together: the thread waits until the queue has passed those before the last so
/// many, and the queue never runs dry for it.
const HELD: usize = 256;

/// What a queue may still use.
pub(super) type Held = Vec<Box<dyn Any + Send>>;

/// A send whose receivers were not ready as the stream came to it.
#[derive(Debug, Clone)]
pub(super) struct Pending {
    pub(super) send: Arc<TriggeredSend>,
    pub(super) epoch: u32,
    /// The operation in a timeline.
    pub(super) number: Option<u64>,
}

/// Feeds a queue.
pub(super) struct QueueExecutor<D: Driver> {
    pub(super) engine: Arc<Engine<D>>,
    pub(super) status: Arc<Status>,
    pub(super) queue: D::Queue,
    /// Tells it from others that run the same tables.
    pub(super) id: u64,
    pub(super) flags: Flags,
    /// `None` where kernels cannot signal.
    pub(super) signal: Option<D::Kernel>,
    /// Whether the kernels that move payloads signal, where they can.
    pub(super) is_merged: bool,
    /// `None` where only the thread waits.
    pub(super) device_waits: Option<DeviceWaits<D>>,
    /// The last operation, if it was a wait that moves behind it may join.
    pub(super) last_wait: Option<LastWait>,
    /// The last operation, if it was of signals that a send behind them may take along.
    pub(super) last_signals: Option<LastSignals>,
    /// The last operation, if it was a send which may go with both, and whose receivers were not ready.
    pub(super) kept_send: Option<Pending>,
    /// Whether the queue itself stores what signals set.
    pub(super) by_queue: bool,
    /// By the text's name and source.
    kernels: HashMap<(&'static str, &'static str), D::Kernel>,
    /// Sends whose receivers are not ready.
    pub(super) pending: Vec<Pending>,
    /// Of a timeline, while one is kept.
    pub(super) times: Option<Times<D>>,
    /// Of the clock, once there was one.
    pub(super) readings: Option<Readings<D>>,
    /// What the thread has to do once the device has come there.
    pub(super) owed: Owed<<D::Queue as CommandQueue>::Mark>,
    /// What the device may still use: what has come since the last of these marks, and what is before each.
    pub(super) held: Held,
    passing: VecDeque<(<D::Queue as CommandQueue>::Mark, Held)>,
    /// How the thread waits.
    waiting: WaitContext,
    /// How often it had nothing to do.
    idles: u32,
    /// Behind the queue.
    _place: QueuePlace<D>,
}

impl<D: Driver> QueueExecutor<D> {
    pub(super) fn new(
        engine: Arc<Engine<D>>,
        status: Arc<Status>,
        signals: Signals,
        waiting: Waiting,
        place: QueuePlace<D>,
    ) -> Result<Self> {
        static NEXT_ID: AtomicU64 = AtomicU64::new(1);
        let driver = engine.driver();
        let traits = driver.traits();
        let signal = match traits.kernels_signal {
            true => Some(engine.own_kernel("halo_signal", &[])?),
            false => None,
        };
        Ok(Self {
            queue: driver.open_queue(Some(status.context.rank))?,
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            flags: Flags::new(driver)?,
            signal,
            is_merged: engine.merges(signals),
            device_waits: DeviceWaits::new(&engine, waiting)?,
            last_wait: None,
            last_signals: None,
            kept_send: None,
            by_queue: signals == Signals::Memop,
            kernels: HashMap::new(),
            pending: Vec::new(),
            times: None,
            readings: None,
            owed: Owed::new(),
            held: Held::with_capacity(HELD),
            passing: VecDeque::new(),
            waiting: WaitContext { policy: pause::policy(traits.is_gpu), ..(*status.context).clone() },
            idles: 0,
            status,
            engine,
            _place: place,
        })
    }

    pub(super) fn carry_out(&mut self, operation: Operation) -> Result<()> {
        self.make_room();
        if self.status.has_failed() {
            return Ok(());
        }
        match &operation {
            Operation::Move(moves) if moves.bytes() == 0 => return Ok(()),
            Operation::Wait(waits, _) => self.put_kept_send(Some(waits))?,
            _ => self.put_kept_send(None)?,
        }
        // Asked once: other ranks may say so meanwhile.
        let goes_now = matches!(&operation, Operation::Send(send, epoch) if send.is_clear(*epoch));
        let arrives = match &operation {
            Operation::Move(moves) => self.put_kept_back(Some(moves))?,
            Operation::Signal(..) if self.last_signals.is_none() => self.put_wait_alone().map(|()| false)?,
            Operation::Send(..) if goes_now => self.put_wait_alone().map(|()| false)?,
            Operation::Send(send, epoch) if self.keep_back(send, *epoch)? => return Ok(()),
            _ => self.put_kept_back(None)?,
        };
        if !goes_now {
            self.put_signals()?;
        }
        // As a wait is put on the queue, it may turn out that one before it is in vain.
        if self.status.has_failed() {
            return Ok(());
        }
        match operation {
            Operation::Move(moves) => {
                if arrives {
                    return Ok(());
                }
                self.holding(moves, |own, moves| own.put_moves(moves))
            }
            Operation::Launch(launch) => self.holding(launch, |own, launch| own.launch(launch)),
            Operation::Signal(signals, value) => self.post_or_keep_back(signals, value),
            Operation::Send(send, epoch) if goes_now => self.holding(send, |own, send| own.send(send, epoch)),
            Operation::Send(send, epoch) => {
                let number = self.number();
                self.timed(|own| {
                    own.pending.push(Pending { send, epoch, number });
                    Ok(Some(about_put_off(epoch)))
                })
            }
            Operation::Ready(ready, epoch) => {
                // Whether receivers have been started is asked when the stream has come to it.
                self.finish_waits()?;
                if let Some(error) = ready.not_started(self.status.context.rank, epoch) {
                    return Err(error);
                }
                self.holding(ready, |own, ready| own.send(&ready.send, epoch))
            }
            Operation::Clock(tell) => self.read_clock(tell),
            Operation::Wake(_) => self.queue.flush(),
            Operation::Wait(waits, value) => self.wait(&waits, value),
            Operation::Host(_, _name, function) => {
                self.finish()?;
                function(&mut || self.serve())
            }
            Operation::Kernel(kernel) => {
                self.finish()?;
                (kernel.run)()
            }
            Operation::Prepare(sequence) => {
                self.prepare(&sequence);
                Ok(())
            }
            Operation::Replay(replay) => self.replay(*replay),
            Operation::WaitEvent(event) => {
                self.queue.flush()?;
                let status = self.status.clone();
                lane::wait_for_event(&status, &event, &mut || self.serve())
            }
            Operation::Record(_) | Operation::Finish => unreachable!("carried out on a failed stream too"),
        }
    }

    /// Puts a kernel on the queue, of which the caller holds what it uses.
    pub(super) fn launch(&mut self, launch: &Launch) -> Result<()> {
        let kernel = match self.kernels.entry((launch.text.name, launch.text.source)) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => new.insert(self.engine.kernel(launch.text)?),
        };
        let corners = [launch.tile.start, launch.tile.end].into_iter().flatten();
        let tile: Vec<u64> = corners.map(|index| index as u64).collect();
        let places = launch.arrays.iter().map(|(_, rows)| {
            let ([z, y, x], elements) = (rows.strides(), rows.elements().expect("there is an array of them"));
            [rows.first, z, y, x, elements].map(|elements| elements as u64)
        });
        let places: Vec<[u64; 5]> = places.collect();
        // As the prelude's `TILE`, `READS`, `WRITES` and `SCALAR` have it.
        let mut arguments = vec![Value::U64s(&tile)];
        for ((region, _), place) in launch.arrays.iter().zip(&places) {
            arguments.extend([Value::Pointer(region.address().cast_const().cast()), Value::U64s(place)]);
        }
        arguments.extend(launch.scalars.iter().map(|scalar| Value::Bytes(scalar.bytes())));
        // SAFETY: the arguments are those of its macros, the launch has checked that what it reads and writes
        // lies within the arrays, and holds them.
        unsafe { self.queue.launch(launch.text.name, kernel, &arguments, Groups::ForThreads(launch.threads)) }
    }

    /// Puts all that was kept back for what could have followed on the queue.
    pub(super) fn put_all_kept_back(&mut self) -> Result<()> {
        self.put_kept_send(None)?;
        self.put_kept_back(None)?;
        self.put_signals()
    }

    /// Waits for the words and for the group's own sends.
    fn wait(&mut self, waits: &Arc<WaitSet>, value: u32) -> Result<()> {
        let epoch = waits.begin(value);
        let of_group = |pending: &Pending| pending.send.group == waits.group;
        if waits.words.is_empty() && self.owed.is_empty() && !self.pending.iter().any(of_group) {
            // What the group sends is on the queue.
            return Ok(());
        }
        let is_here = !waits.words.is_empty() && waits.words.iter().all(|word| self.is_here(word));
        if is_here && self.device_waits.is_some() {
            self.catch_up()?;
            if self.status.has_failed() {
                return Ok(());
            }
            if self.is_free() {
                return self.wait_by_device(waits, [value, epoch]);
            }
        }
        self.wait_by_thread(waits, [value, epoch])
    }

    /// Whether there are no sends that are pending, and nothing is owed: these are the thread's to carry out, which it does
    /// while it waits.
    fn is_free(&self) -> bool {
        self.pending.is_empty() && self.owed.is_empty()
    }

    /// Does what is pending or owed, until the device has no wait before it any more: as long as it has, it is in time, and
    /// the device can go on to what is behind it without the thread.
    fn catch_up(&mut self) -> Result<()> {
        if self.is_free() {
            return Ok(());
        }
        self.queue.flush()?;
        let mut pause = self.pause();
        while !self.is_free() && self.kernels_wait() {
            self.serve();
            pause.next();
        }
        Ok(())
    }

    /// As [`QueueExecutor::wait`], by the thread.
    pub(super) fn wait_by_thread(&mut self, waits: &WaitSet, [value, epoch]: [u32; 2]) -> Result<()> {
        let of_group = |pending: &Pending| pending.send.group == waits.group;
        self.queue.flush()?;
        // The time-out counts from when the stream has come to it.
        let mut pause = self.pause();
        while self.kernels_wait() {
            self.serve();
            pause.next();
        }
        if self.status.has_failed() {
            return Ok(());
        }
        for word in &waits.words {
            let waited = self.wait_for(word, value, &|| waits.gone(epoch));
            waited.map_err(|error| waits.name_the_late(error))?;
        }
        while let Some(Pending { send, epoch, .. }) = self.pending.iter().find(|one| of_group(one)).cloned() {
            for word in &send.conditions {
                self.wait_for(word, (send.needed)(epoch), &|| send.gone(epoch))?;
            }
            self.serve();
            if self.status.has_failed() {
                break;
            }
        }
        // What the group has sent has then gone: whatever carries it may be dropped.
        self.come_to(|own| own.owed.is_empty())
    }

    fn wait_for(&mut self, word: &Word, wanted: u32, gone: &dyn Fn() -> Option<Error>) -> Result<()> {
        let context = self.waiting.clone();
        let mut nap = |nap: Duration| std::thread::sleep(nap.min(NAP));
        context.wait_sleeping(word, wanted, gone, &mut || self.serve() | progress_all(), &mut nap)
    }

    /// Carries out the pending sends whose receivers have become ready, and watches the kernels that wait; whether
    /// more is left.
    pub(super) fn serve(&mut self) -> bool {
        self.watch();
        let mut i = 0;
        while i < self.pending.len() && !self.status.has_failed() {
            if self.pending[i].send.is_clear(self.pending[i].epoch) {
                let Pending { send, epoch, number } = self.pending.swap_remove(i);
                let before = self.number_times(number);
                let sent = self.holding(send, |own, send| {
                    let sent = own.put_all_kept_back().and_then(|()| own.send(send, epoch));
                    let sent = sent.and_then(|()| own.queue.flush());
                    own.number_times(before);
                    sent
                });
                sent.unwrap_or_else(|error| self.status.fail(error));
            } else {
                i += 1;
            }
        }
        if self.status.has_failed() {
            self.pending.clear();
        }
        self.kernels_wait() || !self.pending.is_empty() || !self.owed.is_empty()
    }

    /// Watches the kernels that wait, and does what is owed as far as the device has come.
    pub(super) fn watch(&mut self) {
        let watched = match &mut self.device_waits {
            Some(kernels) => kernels.watch(&self.queue, &self.flags, &self.status),
            None => Ok(()),
        };
        watched.unwrap_or_else(|error| self.status.fail(error));
        self.pay();
    }

    pub(super) fn kernels_wait(&self) -> bool {
        self.device_waits.as_ref().is_some_and(DeviceWaits::are_outstanding)
    }

    /// What the thread does between two looks at the device.
    pub(super) fn pause(&self) -> Pause {
        Pause::new(self.waiting.policy)
    }

    /// Puts what uses something on the queue, and keeps that until the queue has passed it: of what fails a part may be there.
    pub(super) fn holding<T: Send + 'static, R>(
        &mut self,
        used: T,
        put: impl FnOnce(&mut Self, &T) -> Result<R>,
    ) -> Result<R> {
        let put = put(self, &used);
        match put {
            Ok(put) => self.hold(used).map(|()| put),
            Err(_) => {
                self.held.push(Box::new(used));
                put
            }
        }
    }

    /// Keeps something until the queue has passed it.
    pub(super) fn hold(&mut self, used: impl Send + 'static) -> Result<()> {
        self.held.push(Box::new(used));
        if self.held.len() < HELD {
            return Ok(());
        }
        self.rest_until(|own| own.passing.front().is_none_or(|(mark, _)| own.queue.has_passed(mark)))?;
        if self.status.has_failed() {
            // It may never come there; what is held goes once it has come to rest.
            return Ok(());
        }
        let mut room = self.passing.pop_front().map(|(_, passed)| passed).unwrap_or_default();
        closing_later(|| room.clear());
        let used = std::mem::replace(&mut self.held, room);
        self.passing.push_back((self.queue.mark()?, used));
        Ok(())
    }

    /// Blocks until no kernel waits any more.
    ///
    /// # Errors
    /// That of a wait which was stopped.
    pub(super) fn finish_waits(&mut self) -> Result<()> {
        if self.device_waits.is_none() {
            return Ok(());
        }
        self.queue.flush()?;
        let mut pause = self.pause();
        while let Some(kernels) = &mut self.device_waits {
            kernels.watch(&self.queue, &self.flags, &self.status)?;
            if !kernels.are_outstanding() {
                break;
            }
            pause.next();
        }
        Ok(())
    }

    /// Lets the queue of a stream that has failed come past whatever it waits for. Where it waits by itself, signals that were
    /// on their way may come behind what it is let go with, and bring a word back to a lower value: so that is done as often
    /// as it takes.
    fn let_go(&mut self) {
        let mut pause = self.pause();
        let Some(waits) = &mut self.device_waits else { return };
        waits.stop(&self.flags);
        if waits.are_kernels() {
            return;
        }
        if let Ok(end) = self.queue.mark() {
            while !self.queue.has_passed(&end) && !self.queue.has_failed() {
                waits.let_go();
                pause.next();
            }
        }
        waits.forget();
    }

    /// Blocks until the queue has come to rest.
    pub(super) fn finish(&mut self) -> Result<()> {
        let waited = self.put_all_kept_back().and_then(|()| self.finish_waits());
        if let Err(error) = &waited {
            self.status.fail(error.clone());
        }
        if self.status.has_failed() {
            // Something may wait that nobody watches: what was put on the queue as a call failed.
            self.let_go();
        }
        let finished = self.queue.finish();
        match (&waited, &finished) {
            (Ok(()), Ok(())) => self.pay(),
            _ => self.owed.clear(),
        }
        closing_later(|| {
            self.held.clear();
            self.passing.clear();
        });
        waited.and(finished)?;
        // What a stream of another rank has sent behind a wait that was stopped is not to be taken for an answer.
        if self.by_queue && self.status.context.abort.failure().is_some() {
            return Err(self.status.context.peer_failure());
        }
        Ok(())
    }
}

impl<D: Driver> Execute for QueueExecutor<D> {
    fn run(&mut self, status: &Arc<Status>, operation: Operation) {
        self.pay();
        if self.times.is_some() && !status.is_recorded() {
            self.end_times().unwrap_or_else(|error| status.fail(error));
        }
        let done = match operation {
            // An event is completed on a failed stream too: who waits for it must not hang.
            Operation::Record(event) => {
                let finished = self.finish();
                event.complete();
                finished
            }
            Operation::Finish => {
                self.finish().and_then(|()| self.tell_times()).and_then(|()| self.settle_times())
            }
            _ if status.has_failed() => return,
            operation => self.carry_out(operation),
        };
        done.unwrap_or_else(|error| status.fail(error));
    }

    fn run_recorded(&mut self, status: &Arc<Status>, operation: Operation) {
        match status.recording() {
            Some(recording) => self.run_timed(status, &recording, operation),
            None => self.run(status, operation),
        }
    }

    fn idle(&mut self, status: &Arc<Status>) -> bool {
        let looked = self.look_at_kept_back();
        let flushed = looked.and_then(|keeps_back| self.queue.flush().map(|()| keeps_back));
        let keeps_back = flushed.unwrap_or_else(|error| {
            status.fail(error);
            false
        });
        self.idles = self.idles.wrapping_add(1);
        // Looks at the device are calls of its driver, behind which those of other streams queue up.
        let has_work = !self.pending.is_empty() || !self.owed.is_empty();
        if has_work || self.idles.is_multiple_of(LOOKS_A_WATCH) {
            return self.serve() || keeps_back;
        }
        self.kernels_wait() || keeps_back
    }

    fn feeds_a_gpu(&self) -> bool {
        self.engine.driver().traits().is_gpu
    }
}

impl<D: Driver> Drop for QueueExecutor<D> {
    fn drop(&mut self) {
        // Before what is held: the device may still use it. Other ranks are to hear of an error.
        self.finish().unwrap_or_else(|error| self.status.fail(error));
        // Marks go before the queue.
        closing_later(|| self.passing.clear());
        (self.times, self.readings) = (None, None);
    }
}
