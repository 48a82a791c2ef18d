//! The executor of a stream of OpenCL: what its thread does with operations.
//!
//! Kernels, moves and signals go on the device's queue without waiting for those before them. For other ranks a
//! kernel waits where it may (`waits.rs`), and else the thread, which then carries out sends whose receivers were
//! not ready, as the host's streams do. Whatever the device may still use is held until the queue has come to
//! rest.

use super::context::Context;
use super::moves::DeviceTable;
use super::queue::Queue;
use super::waits::{Flags, KernelWaits, address};
use crate::device::accelerator::{Accelerator, Execute};
use crate::device::host::lane;
use crate::device::moves::MoveTable;
use crate::device::operation::{Operation, Rule, TriggeredSend, WaitSet};
use crate::device::stream::Status;
use crate::device::text::Launch;
use crate::error::Result;
use crate::fabric::{WaitContext, WaitPolicy, Word, store_fence};
use opencl3::kernel::Kernel;
use std::any::Any;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ffi::c_void;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

/// How the thread waits: the device may need its core.
const GIVES_WAY: WaitPolicy = WaitPolicy { spins: 32, yields: 8, sleeps: true };
/// The longest nap while it waits: kernels wake nobody.
const NAP: Duration = Duration::from_micros(50);
/// Words that one kernel signals.
const WORDS: usize = 4;
/// Operations that may use memory before the thread waits for the queue.
const HELD: usize = 512;

/// Feeds a queue.
pub(super) struct QueueExecutor {
    context: Arc<Context>,
    status: Arc<Status>,
    queue: Queue,
    /// Tells it from others that run the same tables.
    id: u64,
    flags: Flags,
    /// `None` where kernels cannot signal.
    signal: Option<Kernel>,
    /// `None` where only the thread waits.
    kernel_waits: Option<KernelWaits>,
    /// By the text's name and source.
    kernels: HashMap<(&'static str, &'static str), Kernel>,
    /// Sends whose receivers are not ready.
    pending: Vec<(Arc<TriggeredSend>, u32)>,
    /// What the device may still use.
    held: Vec<Box<dyn Any + Send>>,
    /// How the thread waits.
    waiting: WaitContext,
}

impl QueueExecutor {
    pub(super) fn new(context: Arc<Context>, status: Arc<Status>, by_kernels: bool) -> Result<Self> {
        static NEXT_ID: AtomicU64 = AtomicU64::new(1);
        let signal =
            if context.found().has_atomics { Some(context.own_kernel("halo_signal")?) } else { None };
        Ok(Self {
            queue: context.queue()?,
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            flags: Flags::new(&context)?,
            signal,
            kernel_waits: if by_kernels { Some(KernelWaits::new(&context)?) } else { None },
            kernels: HashMap::new(),
            pending: Vec::new(),
            held: Vec::new(),
            waiting: WaitContext { policy: GIVES_WAY, ..(*status.context).clone() },
            status,
            context,
        })
    }

    fn carry_out(&mut self, operation: Operation) -> Result<()> {
        match operation {
            Operation::Move(moves) if moves.bytes() == 0 => Ok(()),
            Operation::Move(moves) => {
                self.put_moves(&moves)?;
                self.hold(moves)
            }
            Operation::Launch(launch) => self.launch(launch),
            Operation::Signal(signals, value) => {
                self.signal(&signals.words.iter().collect::<Vec<_>>(), signals.rule, value)?;
                self.hold(signals)
            }
            Operation::Send(send, epoch) if send.is_clear(epoch) => {
                self.send(&send, epoch)?;
                self.hold(send)
            }
            Operation::Send(send, epoch) => {
                self.pending.push((send, epoch));
                Ok(())
            }
            Operation::Ready(ready, epoch) => {
                // Whether receivers have been started is asked when the stream has come to it.
                self.finish_waits()?;
                if let Some(error) = ready.not_started(self.status.context.rank, epoch) {
                    return Err(error);
                }
                self.send(&ready.send, epoch)?;
                self.hold(ready)
            }
            Operation::Wake(_) => self.queue.flush(),
            Operation::Wait(waits, value) => self.wait(&waits, value),
            Operation::Host(_, _name, function) => {
                self.finish()?;
                function()
            }
            Operation::WaitEvent(event) => {
                self.queue.flush()?;
                let status = self.status.clone();
                lane::wait_for_event(&status, &event, &mut || self.serve())
            }
            Operation::Record(_) | Operation::Finish => unreachable!("carried out on a failed stream too"),
        }
    }

    /// Puts moves on the queue, of which the caller holds the table.
    fn put_moves(&mut self, table: &MoveTable) -> Result<()> {
        let mut known = table.on_device.lock().unwrap_or_else(PoisonError::into_inner);
        let index = match known.iter().position(|(id, _)| *id == self.id) {
            Some(index) => index,
            None => {
                let compiled = DeviceTable::compile(&self.context, &self.flags, table)?;
                known.push((self.id, Arc::new(compiled)));
                known.len() - 1
            }
        };
        let compiled = known[index].1.downcast_ref::<DeviceTable>();
        compiled.expect("executors have a number each").launch(&mut self.queue)?;
        table.observe();
        Ok(())
    }

    fn launch(&mut self, launch: Box<Launch>) -> Result<()> {
        let kernel = match self.kernels.entry((launch.text.name, launch.text.source)) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => new.insert(self.context.kernel(launch.text)?),
        };
        let failed = |error| self.context.failed("setting a kernel's argument", &error);
        let tile = [launch.tile.start, launch.tile.end].map(|point| point.map(|index| index as u64));
        // SAFETY: as the prelude's `TILE` has it.
        unsafe { kernel.set_arg(0, &tile) }.map_err(failed)?;
        for (index, (region, extents)) in (0..).zip(&launch.arrays) {
            let pointer: *const c_void = region.base().cast_const().cast();
            // SAFETY: as the prelude's `READS` and `WRITES` have it; the launch holds the memory.
            unsafe { kernel.set_arg_svm_pointer(1 + 2 * index, pointer) }.map_err(failed)?;
            let [z, y, x] = extents.points.map(|points| points as u64);
            let shape = [z, y, x, extents.components as u64];
            // SAFETY: as above.
            unsafe { kernel.set_arg(2 + 2 * index, &shape) }.map_err(failed)?;
        }
        let [planes, rows, points] = launch.tile.extents();
        // SAFETY: the arguments are those of its macros, the launch has checked that what it reads and writes
        // lies within the arrays, and holds them.
        unsafe { self.queue.launch(launch.text.name, kernel, [points, rows, planes]) }?;
        self.hold(launch)
    }

    /// Posts to words, behind what is on the queue: by kernels where they can, and else by the thread once the
    /// queue has come to rest. The caller holds the words.
    fn signal(&mut self, words: &[&Word], rule: Rule, value: u32) -> Result<()> {
        let (here, elsewhere): (Vec<&Word>, Vec<&Word>) =
            words.iter().copied().partition(|word| self.is_posted_by_kernels(word));
        here.iter().for_each(|word| word.observe());
        self.post_by_kernels(&here, rule, value)?;
        if !elsewhere.is_empty() {
            self.finish()?;
            elsewhere.iter().for_each(|word| rule.post(word, value));
            store_fence();
            elsewhere.iter().for_each(|word| word.wake());
        }
        Ok(())
    }

    fn is_posted_by_kernels(&self, word: &Word) -> bool {
        self.signal.is_some() && !word.rings() && self.is_here(word)
    }

    fn post_by_kernels(&mut self, words: &[&Word], rule: Rule, value: u32) -> Result<()> {
        let failed = |error| self.context.failed("setting a signal's argument", &error);
        for group in words.chunks(WORDS) {
            let kernel = self.signal.as_ref().expect("asked before");
            let posted =
                (0..WORDS).map(|index| group.get(index).map_or(std::ptr::null(), |word| address(word)));
            for (index, pointer) in (0..).zip(posted.chain([self.flags.failed()])) {
                // SAFETY: the kernel's text has pointers there, and those to words may be null; the flags live as
                // long as the queue.
                unsafe { kernel.set_arg_svm_pointer(index, pointer) }.map_err(failed)?;
            }
            let (value, increments) = match rule {
                Rule::Set => (value, 0_u32),
                Rule::Increment => (1, 1),
            };
            for (index, number) in (WORDS as u32 + 1..).zip([value, increments]) {
                // SAFETY: the kernel's text has two numbers of that size there.
                unsafe { kernel.set_arg(index, &number) }.map_err(failed)?;
            }
            // SAFETY: the arguments are set, and the caller holds the words.
            unsafe { self.queue.launch("a signal", kernel, [1, 1, 1]) }?;
        }
        Ok(())
    }

    /// Whether kernels can reach a word.
    fn is_here(&self, word: &Word) -> bool {
        word.region().on_device().is_some_and(|memory| memory.device() == self.context.id())
    }

    /// Moves the payloads and signals their completion, message by message. The caller holds the send.
    fn send(&mut self, send: &TriggeredSend, epoch: u32) -> Result<()> {
        for message in &send.messages {
            if message.moves.bytes() > 0 {
                self.put_moves(&message.moves)?;
            }
            if let Some(stamp) = &message.stamp {
                // A part of the payload, of which nobody is told.
                if self.is_posted_by_kernels(stamp) {
                    self.post_by_kernels(&[stamp], Rule::Set, epoch)?;
                } else {
                    self.finish()?;
                    stamp.cell().store(epoch);
                }
            }
            let (word, rule) = &message.completion;
            self.signal(&[word], *rule, epoch)?;
        }
        Ok(())
    }

    /// Waits for the words and for the group's own sends.
    fn wait(&mut self, waits: &Arc<WaitSet>, value: u32) -> Result<()> {
        let is_here = !waits.words.is_empty() && waits.words.iter().all(|word| self.is_here(word));
        // Sends that are pending are the thread's to carry out, which it does while it waits.
        if let Some(kernels) = self.kernel_waits.as_mut().filter(|_| is_here && self.pending.is_empty())
            && kernels.launch(&self.context, &mut self.queue, &self.flags, waits, value)?
        {
            self.status.kernel_waits.fetch_add(1, Ordering::Relaxed);
            return self.hold(waits.clone());
        }
        self.queue.flush()?;
        // The time-out counts from when the stream has come to it.
        while self.kernels_wait() {
            self.serve();
            std::thread::sleep(NAP);
        }
        if self.status.has_failed() {
            return Ok(());
        }
        for word in &waits.words {
            self.wait_for(word, value).map_err(|error| waits.name_the_late(error, word))?;
        }
        let of_group = |(send, _): &&(Arc<TriggeredSend>, u32)| send.group == waits.group;
        while let Some((send, epoch)) = self.pending.iter().find(of_group).cloned() {
            for word in &send.conditions {
                self.wait_for(word, (send.needed)(epoch))?;
            }
            self.serve();
            if self.status.has_failed() {
                break;
            }
        }
        Ok(())
    }

    fn wait_for(&mut self, word: &Word, wanted: u32) -> Result<()> {
        let is_there = || word.cell().reached(wanted);
        if is_there() {
            return Ok(());
        }
        let context = self.waiting.clone();
        let mut nap = |nap: Duration| std::thread::sleep(nap.min(NAP));
        let waited = context.wait_until(&mut || is_there(), &mut || self.serve(), &mut nap);
        waited.map_err(|gave_up| context.give_up(gave_up, word, wanted))
    }

    /// Carries out the pending sends whose receivers have become ready, and watches the kernels that wait; whether
    /// more is left.
    fn serve(&mut self) -> bool {
        let watched = match &mut self.kernel_waits {
            Some(kernels) => kernels.watch(&self.flags, &self.status),
            None => Ok(()),
        };
        watched.unwrap_or_else(|error| self.status.fail(error));
        let mut i = 0;
        while i < self.pending.len() && !self.status.has_failed() {
            let (send, epoch) = &self.pending[i];
            if send.is_clear(*epoch) {
                let (send, epoch) = self.pending.swap_remove(i);
                let sent = self.send(&send, epoch).and_then(|()| self.queue.flush());
                let sent = sent.and_then(|()| self.hold(send));
                sent.unwrap_or_else(|error| self.status.fail(error));
            } else {
                i += 1;
            }
        }
        if self.status.has_failed() {
            self.pending.clear();
        }
        self.kernels_wait() || !self.pending.is_empty()
    }

    fn kernels_wait(&self) -> bool {
        self.kernel_waits.as_ref().is_some_and(KernelWaits::are_outstanding)
    }

    /// Keeps something until the queue has come to rest.
    fn hold(&mut self, used: impl Send + 'static) -> Result<()> {
        self.held.push(Box::new(used));
        if self.held.len() < HELD { Ok(()) } else { self.finish() }
    }

    /// Blocks until no kernel waits any more.
    ///
    /// # Errors
    /// That of a wait which was stopped.
    fn finish_waits(&mut self) -> Result<()> {
        if self.kernel_waits.is_none() {
            return Ok(());
        }
        self.queue.flush()?;
        while let Some(kernels) = &mut self.kernel_waits {
            kernels.watch(&self.flags, &self.status)?;
            if !kernels.are_outstanding() {
                break;
            }
            std::thread::sleep(NAP);
        }
        Ok(())
    }

    /// Blocks until the queue has come to rest.
    fn finish(&mut self) -> Result<()> {
        let waited = self.finish_waits();
        let finished = self.queue.finish();
        self.held.clear();
        waited.and(finished)
    }
}

impl Execute for QueueExecutor {
    fn run(&mut self, status: &Arc<Status>, operation: Operation) {
        let done = match operation {
            // An event is completed on a failed stream too: who waits for it must not hang.
            Operation::Record(event) => {
                let finished = self.finish();
                event.complete();
                finished
            }
            Operation::Finish => self.finish(),
            _ if status.has_failed() => return,
            operation => self.carry_out(operation),
        };
        done.unwrap_or_else(|error| status.fail(error));
    }

    fn idle(&mut self, status: &Arc<Status>) -> bool {
        self.queue.flush().unwrap_or_else(|error| status.fail(error));
        self.serve()
    }
}

impl Drop for QueueExecutor {
    fn drop(&mut self) {
        // Before what is held: the device may still use it. Other ranks are to hear of an error.
        self.finish().unwrap_or_else(|error| self.status.fail(error));
    }
}
