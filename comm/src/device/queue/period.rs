//! Periods as graphs of the device: what a stream replays without its thread or the host in between.
//!
//! A graph's kernels have the arguments that they were recorded with. So values that change from replay to replay are
//! the sum of two numbers: what they were at the capture, and how far the count that they go with has moved on, which is
//! in the device's memory and which the last kernel of the graph moves on. A send whose receivers have to be ready waits
//! for them behind what is before the wait of its group: there is no thread that could serve it in between, and no other
//! exchange in flight that it could hold up.

use super::awaited::{Number, PeriodWaits, Place};
use super::engine::{Engine, Waiter};
use super::executor::QueueExecutor;
use super::moves::{Argument, Compiler};
use super::ready::Onto;
use super::relay::{Arrived, Receivers, Sent, receivers};
use super::sends::WORDS;
use super::waits::Then;
use crate::device::accelerator::DeviceMemory;
use crate::device::counts::Count;
use crate::device::driver::{CommandQueue, Driver, Groups, MemoryKind, Value};
use crate::device::moves::MoveTable;
use crate::device::operation::{Message, SignalSet, TriggeredSend, WaitSet};
use crate::device::sequence::{Due, Replay, Sequence, Step};
use crate::device::text::Launch;
use crate::error::Result;
use crate::fabric::Word;
use std::collections::VecDeque;
use std::ffi::c_void;
use std::sync::Arc;

/// Graphs that may be on the queue before the thread waits for the first.
const AHEAD: usize = 64;
/// Kernels that a graph has at most. A queue takes about a thousand, and where there is no room for one more the driver lets
/// the launch wait, and with it those of other ranks, for which the kernels on the queue may be waiting.
const MOST_KERNELS: usize = 256;

/// A period that has been recorded.
struct Recorded<D: Driver> {
    graph: <D::Queue as CommandQueue>::Graph,
    counts: Counts<D>,
    waits: Arc<PeriodWaits>,
    /// Behind the replays that may still be on the queue.
    ahead: VecDeque<<D::Queue as CommandQueue>::Mark>,
}

/// How far counts have moved on since the capture, in the device's memory.
struct Counts<D: Driver> {
    memory: DeviceMemory,
    strides: Argument,
    set: D::Kernel,
    move_on: D::Kernel,
    /// What they come to with all that is on the queue.
    known: Vec<u32>,
}

/// What is recorded, in its order.
enum Act<'a> {
    Move(&'a Arc<MoveTable>),
    Signal(&'a Arc<SignalSet>, Due),
    Send(Sending<'a>),
    /// And the moves behind it, if its kernel does them, too.
    Wait(Waits, Option<&'a Arc<MoveTable>>),
    /// A wait, the moves behind it, and the send behind these.
    Relay(Waits, &'a Arc<MoveTable>, Sending<'a>),
    Launch(&'a Launch),
}

type Waits = (Arc<WaitSet>, Due);

struct Sending<'a> {
    send: &'a TriggeredSend,
    due: Due,
    /// The signals that its kernel posts first.
    before: Option<(&'a Arc<SignalSet>, Due)>,
    /// The wait for its receivers, if they have to be ready.
    receivers: Option<Waits>,
}

/// The order in which a device can carry a period out by itself, or why it cannot.
fn plan(sequence: &Sequence) -> std::result::Result<Vec<Act<'_>>, &'static str> {
    let mut acts = Vec::new();
    let mut put_off: Vec<(&TriggeredSend, Due)> = Vec::new();
    for step in &sequence.steps {
        match step {
            Step::Move(moves) if moves.bytes() == 0 => {}
            Step::Move(moves) => acts.push(Act::Move(moves)),
            Step::Launch(launch) => acts.push(Act::Launch(launch)),
            Step::Signal(signals, due) => acts.push(Act::Signal(signals, *due)),
            Step::Send(send, due) if send.conditions.is_empty() => {
                acts.push(Act::Send(Sending { send, due: *due, before: None, receivers: None }));
            }
            Step::Send(send, due) => put_off.push((send, *due)),
            Step::Wake(_) => {}
            Step::Wait(waits, due) => {
                if put_off.iter().any(|(send, _)| send.group != waits.group) {
                    return Err(
                        "two of its exchanges are in flight at a time, and the thread serves their sends",
                    );
                }
                acts.extend(put_off.drain(..).map(|(send, due)| {
                    let needed = Due { value: (send.needed)(due.value), ..due };
                    Act::Send(Sending { send, due, before: None, receivers: Some((receivers(send), needed)) })
                }));
                if !waits.words.is_empty() {
                    acts.push(Act::Wait((waits.clone(), *due), None));
                }
            }
            Step::Kernel(_) => unreachable!("kernels of the host are not captured on a device"),
        }
    }
    Ok(acts)
}

impl<D: Driver> Counts<D> {
    fn new(engine: &Engine<D>, compiler: &Compiler<'_, D>, strides: &[u32]) -> Result<Self> {
        let known = vec![0; strides.len()];
        let bytes = size_of_val(strides).max(size_of::<u32>());
        let memory = engine.driver().allocate(bytes, MemoryKind::Device)?;
        let strides = if strides.is_empty() { &[0] } else { strides };
        Ok(Self {
            memory,
            strides: compiler.upload(strides)?,
            set: engine.own_kernel("halo_set", &[])?,
            move_on: engine.own_kernel("halo_move_on", &[])?,
            known,
        })
    }

    fn start(&self) -> *const c_void {
        self.memory.base().as_ptr().cast_const().cast()
    }

    /// What a value is at each replay.
    fn number(&self, due: Due) -> Number {
        let base = self.start().wrapping_byte_add(size_of::<u32>() * due.count);
        Number { base, value: due.value }
    }

    /// Puts on a queue what brings them to `moved`, where they are not to be there already.
    fn bring(&mut self, queue: &mut D::Queue, moved: &[u32]) -> Result<()> {
        let start = Value::Pointer(self.start());
        for (index, (known, moved)) in self.known.iter_mut().zip(moved).enumerate() {
            if known != moved {
                let arguments = [start, Value::U32(index as u32), Value::U32(*moved)];
                // SAFETY: the arguments are those of the kernel's text; the memory is held with the period.
                unsafe { queue.launch("a count", &mut self.set, &arguments, Groups::ForThreads([1; 3])) }?;
                *known = *moved;
            }
        }
        Ok(())
    }

    /// Puts on a queue what moves them on by a period.
    fn move_on(&mut self, queue: &mut D::Queue, waits: &PeriodWaits) -> Result<()> {
        let (count, current) = (Value::U64(self.known.len() as u64), Value::Pointer(waits.said_at()));
        let arguments = [Value::Pointer(self.start()), self.strides.value(), count, current];
        // SAFETY: as above.
        unsafe {
            queue.launch(
                "counts",
                &mut self.move_on,
                &arguments,
                Groups::ForThreads([self.known.len().max(1), 1, 1]),
            )
        }
    }
}

impl<D: Driver> QueueExecutor<D> {
    /// Makes a period ready for replays.
    pub(super) fn prepare(&mut self, sequence: &Arc<Sequence>) {
        let prepared = self.try_prepare(sequence);
        let _ = sequence.prepared.set(prepared.map(|reason| reason.map(str::to_owned)));
        self.held.push(Box::new(sequence.clone()));
    }

    /// Records it, or says why that cannot be.
    fn try_prepare(&mut self, sequence: &Arc<Sequence>) -> Result<Option<&'static str>> {
        let acts = match plan(sequence) {
            Ok(acts) => acts,
            Err(reason) => return Ok(Some(reason)),
        };
        if let Some(reason) = self.why_not(&acts)? {
            return Ok(Some(reason));
        }
        let acts = self.joined(acts)?;
        let recorded = |own: &mut Self| own.record(&acts, sequence);
        sequence.on_device.with(self.id, self, recorded, |_, _: &mut Recorded<D>| Ok(None))
    }

    /// Why the device does not replay that by itself. Compiles what it would need.
    fn why_not(&mut self, acts: &[Act<'_>]) -> Result<Option<&'static str>> {
        if !self.engine.driver().traits().has_graphs {
            return Ok(Some("the device's driver has no graphs"));
        }
        if self.engine.driver().traits().launches_block {
            return Ok(Some("a launch lasts until its kernel has ended, as the environment asks for"));
        }
        if self.by_queue {
            return Ok(Some(
                "the device's queue stores words itself (`memop`), by values that the thread gives it",
            ));
        }
        if acts.iter().map(|act| self.kernels_of(act)).sum::<usize>() > MOST_KERNELS {
            return Ok(Some(
                "it has more than 256 kernels, for which the device's queue may have no room at a time; capture less",
            ));
        }
        for act in acts {
            let (can, waits) = match act {
                Act::Launch(_) => (true, false),
                Act::Move(table) => (self.is_all_kernels(table)?, false),
                Act::Signal(signals, _) => {
                    (signals.words.iter().all(|word| self.can_post(word, signals.rule)), false)
                }
                Act::Send(Sending { send, receivers: None, .. }) => (self.can_send(send)?, false),
                Act::Send(Sending { send, receivers: Some((waits, _)), .. }) => {
                    (self.can_send(send)? && self.can_wait(waits)?, true)
                }
                Act::Wait((waits, _), _) => (self.can_wait(waits)?, true),
                Act::Relay(..) => unreachable!("joined later"),
            };
            if !can {
                return Ok(Some(
                    "some of its words or moves are in the host's memory, and the thread's to carry out",
                ));
            }
            if waits && !self.device_waits.as_ref().is_some_and(|waits| waits.are_kernels()) {
                return Ok(Some("the stream's thread waits for other ranks, and not the device's kernels"));
            }
        }
        Ok(None)
    }

    /// How many kernels carry it out, but for reductions of several kinds in a stage.
    fn kernels_of(&self, act: &Act<'_>) -> usize {
        match act {
            Act::Launch(_) | Act::Wait(..) | Act::Relay(..) => 1,
            Act::Move(table) => table.stages.len(),
            Act::Signal(signals, _) => signals.words.len().div_ceil(WORDS),
            Act::Send(Sending { send, receivers, .. }) => {
                let parts = send.messages.iter().map(|message| 1 + message.words().count());
                usize::from(receivers.is_some()) + if self.is_merged { 1 } else { parts.sum() }
            }
        }
    }

    /// Waits and the moves behind them as one, sends with the signals before them, and both together, where one kernel can do it.
    fn joined<'a>(&mut self, acts: Vec<Act<'a>>) -> Result<Vec<Act<'a>>> {
        if !self.joins() {
            return Ok(acts);
        }
        let mut joined: Vec<Act<'a>> = Vec::with_capacity(acts.len());
        for act in acts {
            match (act, joined.last_mut()) {
                (Act::Send(sending), _) => self.join_send(sending, &mut joined)?,
                (Act::Move(unpack), Some(Act::Wait((waits, _), moved @ None)))
                    if self.onto().joins(waits, unpack, true)? =>
                {
                    *moved = Some(unpack);
                }
                (act, _) => joined.push(act),
            }
        }
        Ok(joined)
    }

    /// Behind signals, and behind what has arrived before these.
    fn join_send<'a>(&mut self, mut sending: Sending<'a>, joined: &mut Vec<Act<'a>>) -> Result<()> {
        let before = match joined.last() {
            Some(Act::Signal(signals, due)) => Some((*signals, *due)),
            _ => None,
        };
        let behind = joined.len() - usize::from(before.is_some());
        if let Some(Act::Wait((waits, due), Some(unpack))) = joined[..behind].last() {
            let arrived = Arrived { waits, unpack, signals: before.map(|(signals, _)| signals) };
            if self.expect_send(sending.send, arrived)? {
                sending.before = before;
                let one = Act::Relay((waits.clone(), *due), unpack, sending);
                joined.truncate(behind - 1);
                joined.push(one);
                return Ok(());
            }
        }
        // Receivers may be ready only once the signals have been told.
        if let Some((signals, _)) = before
            && sending.receivers.is_none()
            && self.follow(sending.send, signals)?
        {
            sending.before = before;
            joined.pop();
        }
        joined.push(Act::Send(sending));
        Ok(())
    }

    fn can_wait(&mut self, waits: &WaitSet) -> Result<bool> {
        if !waits.words.iter().all(|word| self.is_here(word)) {
            return Ok(false);
        }
        self.onto().compile(waits).map(|()| true)
    }

    fn can_send(&mut self, send: &TriggeredSend) -> Result<bool> {
        let mut words = send.messages.iter().flat_map(Message::words);
        if !words.all(|(word, rule)| self.can_post(word, rule)) {
            return Ok(false);
        }
        if self.is_merged && self.compile_merged(send)? {
            return Ok(true);
        }
        for message in send.messages.iter().filter(|message| message.moves.bytes() > 0) {
            if !self.is_all_kernels(&message.moves)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn record(&mut self, acts: &[Act<'_>], sequence: &Sequence) -> Result<Recorded<D>> {
        let engine = self.engine.clone();
        let compiler = Compiler::new(&engine, [].into_iter())?;
        let mut counts = Counts::new(&engine, &compiler, &sequence.strides)?;
        let mut waits = PeriodWaits::new(engine.driver())?;
        self.queue.begin_graph()?;
        let recorded = acts.iter().try_for_each(|act| self.record_one(act, &counts, &mut waits));
        let recorded = recorded.and_then(|()| counts.move_on(&mut self.queue, &waits));
        // In any case, so that the queue records no more.
        let graph = self.queue.end_graph();
        recorded?;
        Ok(Recorded { graph: graph?, counts, waits: Arc::new(waits), ahead: VecDeque::new() })
    }

    fn record_one(&mut self, act: &Act<'_>, counts: &Counts<D>, waits: &mut PeriodWaits) -> Result<()> {
        match act {
            Act::Move(table) => self.launch_moves(table),
            Act::Launch(launch) => self.launch(launch),
            Act::Signal(signals, due) => {
                let words: Vec<&Word> = signals.words.iter().collect();
                self.post_by_kernels(&words, signals.rule, counts.number(*due))
            }
            Act::Send(Sending { send, due, before, receivers }) => {
                if let Some(receivers) = receivers {
                    self.record_wait(receivers, Then::Nothing, (counts, waits))?;
                }
                let number = counts.number(*due);
                let before = before.map(|(signals, due)| (signals, counts.number(due)));
                if self.is_merged && self.launch_merged(send, (number, before))? {
                    return Ok(());
                }
                for message in &send.messages {
                    if message.moves.bytes() > 0 {
                        self.launch_moves(&message.moves)?;
                    }
                    self.post_message(message, number)?;
                }
                Ok(())
            }
            Act::Wait(of, moved) => {
                let then = if moved.is_some() { Then::Moves } else { Then::Nothing };
                self.record_wait(of, then, (counts, waits))
            }
            Act::Relay(of, unpack, Sending { send, due, before, receivers }) => {
                let before = before.map(|(signals, due)| (signals, counts.number(due)));
                // In their order: the kernel waits for its receivers behind what arrives.
                let place = waits.add(of.0.clone(), of.1);
                let receivers = receivers.as_ref().map(|(set, due)| Receivers {
                    waits: set,
                    needed: counts.number(*due),
                    place: Some(waits.add(set.clone(), *due)),
                });
                let sent = Sent { send, epoch: counts.number(*due), before, receivers };
                self.put_wait_of_period(of, (counts, place), Then::MovesAndSend(unpack, sent))
            }
        }
    }

    fn record_wait(
        &mut self,
        of: &Waits,
        then: Then<'_>,
        (counts, waits): (&Counts<D>, &mut PeriodWaits),
    ) -> Result<()> {
        let place = waits.add(of.0.clone(), of.1);
        self.put_wait_of_period(of, (counts, place), then)
    }

    fn put_wait_of_period(
        &mut self,
        (set, due): &Waits,
        (counts, place): (&Counts<D>, Place),
        then: Then<'_>,
    ) -> Result<()> {
        let number = counts.number(*due);
        let Self { engine, queue, id, flags, device_waits, .. } = self;
        let mut onto = Onto { engine, queue, id: *id, flags };
        let kernels = device_waits.as_mut().expect("asked before");
        kernels.put(&mut onto, set, (number, place), then)
    }

    /// Carries a period out, so many times.
    pub(super) fn replay(&mut self, replay: Replay) -> Result<()> {
        let sequence = replay.sequence.clone();
        let replayed = replay.each(|sequence, moved| {
            self.pay();
            self.make_room();
            if self.status.has_failed() || self.launch_graph(sequence, moved)? {
                return Ok(());
            }
            sequence.operations(moved).try_for_each(|operation| self.carry_out(operation))
        });
        // Whatever has failed: the queue may have some of it.
        let held = self.hold(sequence);
        replayed.and(held)
    }

    /// Has the device carry a period out by itself, if it can and may now; whether it does.
    fn launch_graph(&mut self, sequence: &Sequence, moved: &[u32]) -> Result<bool> {
        // Sends that are pending are the thread's, which a graph would hold up.
        if !sequence.is_recorded() || !self.pending.is_empty() || self.times.is_some() {
            return Ok(false);
        }
        self.put_all_kept_back()?;
        self.come_to(|own| own.owed.is_empty())?;
        let make = |_: &mut Self| unreachable!("it has been recorded");
        sequence.on_device.with(self.id, self, make, |own, recorded: &mut Recorded<D>| {
            if recorded.ahead.len() >= AHEAD
                && let Some(first) = recorded.ahead.pop_front()
            {
                own.rest_until(|own| own.queue.has_passed(&first))?;
            }
            let place: Option<Arc<Waiter<D>>> = match (&mut own.device_waits, recorded.waits.is_empty()) {
                (_, true) => None,
                (Some(kernels), false) => match kernels.place(&own.engine) {
                    Some(place) => Some(place),
                    None => return Ok(false),
                },
                (None, false) => unreachable!("asked as it was recorded"),
            };
            if own.status.has_failed() {
                return Ok(true);
            }
            recorded.counts.bring(&mut own.queue, moved)?;
            let begin = own.queue.mark()?;
            // SAFETY: recorded by this queue, of memory that the period keeps, which is held until the queue has come to
            // rest.
            unsafe { own.queue.launch_graph(&mut recorded.graph) }?;
            for (known, stride) in recorded.counts.known.iter_mut().zip(&sequence.strides) {
                *known = known.wrapping_add(*stride);
            }
            if let (Some(kernels), Some(place)) = (&mut own.device_waits, place) {
                kernels.watch_period([begin, own.queue.mark()?], recorded.waits.clone(), moved, place);
            }
            recorded.ahead.push_back(own.queue.mark()?);
            sequence.observe();
            own.status.count(Count::Graphs, 1);
            Ok(true)
        })
    }
}
