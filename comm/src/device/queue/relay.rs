//! Sends by the kernel that waits for what has come: it moves what has arrived, and answers it or passes it on.
//!
//! Round trips, rings and trees do little else. A launch takes longer than such a kernel has to do, and a driver takes the
//! launches of all ranks of a process one by one. The kernel is the one group of threads that waits (`arrival.rs`), so that it
//! sends little, too.
//!
//! A wait is kept back for the moves behind it, and both for the send, if one was behind them before. A send whose receivers
//! are not ready is kept back, too: if its group's wait comes next, the stream is to wait for them, and so the kernel does.

use super::arrival::{Arrival, LastWait, MOST_CHUNKS};
use super::awaited::{Number, Place};
use super::engine::Engine;
use super::executor::{Pending, QueueExecutor};
use super::merged::{Before, MergedSend, nests_of};
use super::moves::{Argument, Moves};
use super::ready::words_of;
use super::waits::Launched;
use crate::device::counts::Count;
use crate::device::driver::{CommandQueue, Driver, Groups, Value};
use crate::device::moves::MoveTable;
use crate::device::operation::{Message, SignalSet, TriggeredSend, WaitSet};
use crate::error::Result;
use crate::fabric::Word;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

/// What a send comes behind, in the order of the stream.
#[derive(Clone, Copy)]
pub(super) struct Arrived<'a> {
    pub(super) waits: &'a Arc<WaitSet>,
    pub(super) unpack: &'a Arc<MoveTable>,
    pub(super) signals: Option<&'a Arc<SignalSet>>,
}

/// A send with its epoch, the signals before it, and its receivers if they have to be waited for.
#[derive(Clone, Copy)]
pub(super) struct Sent<'a> {
    pub(super) send: &'a TriggeredSend,
    pub(super) epoch: Number,
    pub(super) before: Option<Before<'a>>,
    pub(super) receivers: Option<Receivers<'a>>,
}

/// What the words of receivers have to come to, and where the kernel says that it waits for them, if it is not where it says so
/// of what arrives.
#[derive(Clone, Copy)]
pub(super) struct Receivers<'a> {
    pub(super) waits: &'a Arc<WaitSet>,
    pub(super) needed: Number,
    pub(super) place: Option<Place>,
}

/// The wait for the receivers of a send.
pub(super) fn receivers(send: &TriggeredSend) -> Arc<WaitSet> {
    Arc::new(WaitSet::new(send.conditions.clone(), Vec::new(), send.group))
}

/// A send behind something, as long as that is there.
pub(super) struct Relay<D: Driver> {
    waits: Weak<WaitSet>,
    unpack: Weak<MoveTable>,
    signals: Option<Weak<SignalSet>>,
    /// `None`: one kernel cannot do all of it.
    made: Option<Made<D>>,
}

struct Made<D: Driver> {
    kernel: D::Kernel,
    moves: Moves,
    /// Those of the send, if it has to wait for any, and their words as the kernel reads them.
    receivers: Option<(Arc<WaitSet>, Argument)>,
}

impl<D: Driver> Relay<D> {
    fn is_behind(&self, arrived: Arrived<'_>) -> bool {
        self.waits.as_ptr() == Arc::as_ptr(arrived.waits)
            && self.unpack.as_ptr() == Arc::as_ptr(arrived.unpack)
            && self.signals.as_ref().map(Weak::as_ptr) == arrived.signals.map(Arc::as_ptr)
    }

    fn is_alive(&self) -> bool {
        let has_signals = self.signals.as_ref().is_none_or(|signals| signals.strong_count() > 0);
        has_signals && self.waits.strong_count() > 0 && self.unpack.strong_count() > 0
    }
}

impl<D: Driver> MergedSend<D> {
    /// What the kernel that also does what comes before the send may have to wait for, if there is such a kernel.
    fn receivers_of(&self, arrived: Arrived<'_>) -> Option<Option<Arc<WaitSet>>> {
        let relay = self.relays.iter().find(|one| one.is_behind(arrived))?;
        relay.made.as_ref().map(|made| made.receivers.as_ref().map(|(waits, _)| waits.clone()))
    }

    /// Makes the kernel that also does what comes before the send, of which one group of so many threads does the waits and
    /// the moves; whether there can be one.
    fn relay_behind(
        &mut self,
        (engine, send, threads): (&Engine<D>, &TriggeredSend, usize),
        arrived: Arrived<'_>,
    ) -> Result<bool> {
        if self.send.is_none() {
            return Ok(false);
        }
        if let Some(known) = self.relays.iter().find(|one| one.is_behind(arrived)) {
            return Ok(known.made.is_some());
        }
        let Arrived { waits, unpack, signals } = arrived;
        if let Some(signals) = signals {
            self.follow(engine, send, signals)?;
        }
        let told = signals.iter().flat_map(|signals| &signals.words);
        let words = waits.words.iter().chain(told).chain(&send.conditions).map(Word::region);
        let mut compiler = Self::compiler(engine, send, unpack.regions.iter().chain(words))?;
        let made = match compiler.by_one_group(nests_of(send), MOST_CHUNKS, Some(threads))? {
            None => None,
            Some(moves) => {
                let receivers = (!send.conditions.is_empty()).then(|| receivers(send));
                let receivers =
                    receivers.map(|waits| words_of(&compiler, &waits).map(|words| (waits, words)));
                let (kernel, receivers) = (compiler.kernel("halo_relay")?, receivers.transpose()?);
                Some(Made { kernel, moves, receivers })
            }
        };
        let is_there = made.is_some();
        let (waits, unpack) = (Arc::downgrade(waits), Arc::downgrade(unpack));
        self.relays.retain(Relay::is_alive);
        self.relays.push(Relay { waits, unpack, signals: signals.map(Arc::downgrade), made });
        Ok(is_there)
    }

    /// Puts it on a queue. It and what it comes behind must be held until the queue has come to rest.
    pub(super) fn relay(
        &mut self,
        queue: &mut D::Queue,
        (arrival, flags, (value, place)): (&Arrival<D>, [Value<'static>; 2], (Number, Place)),
        (unpack, waits, sent): (&Arc<MoveTable>, &Arc<WaitSet>, Sent<'_>),
    ) -> Result<()> {
        let arrived = Arrived { waits, unpack, signals: sent.before.map(|(signals, _)| signals) };
        let last = self.numbers(sent.epoch, sent.before);
        let Self { send: Some(send), relays, .. } = self else { unreachable!("asked before") };
        let relay = relays.iter_mut().find(|one| one.is_behind(arrived)).and_then(|one| one.made.as_mut());
        let relay = relay.expect("asked before");
        // Chunks are as long as those of what arrives.
        let [pieces, chunks, count, ..] = &relay.moves.arguments[..] else { unreachable!("four of them") };
        let sends = [pieces, chunks, count].into_iter().chain(&send.notices).map(Argument::value);
        let awaited = sent.receivers.zip(relay.receivers.as_ref());
        let (words, needed, waits_at) = match awaited {
            Some((sent, (waits, words))) => (
                [words.value(), Value::U64(waits.words.len() as u64)],
                sent.needed,
                sent.place.unwrap_or(place),
            ),
            None => ([Value::Pointer(std::ptr::null()), Value::U64(0)], 0.into(), place),
        };
        let [_, number] = waits_at.arguments();
        let receivers = words.into_iter().chain(needed.arguments()).chain([number]);
        let arguments = arrival.arguments(flags, (value, place)).chain(receivers);
        let arguments: Vec<Value> = arguments.chain(sends).chain(last).collect();
        // SAFETY: the arguments are those of the kernel's text; the tables are held with `self` and the arrival, what they
        // point into by the caller, and the flags and the place live as long as the queue.
        unsafe {
            queue.launch("a wait with a send", &mut relay.kernel, &arguments, Groups::One(arrival.threads()))
        }
    }
}

impl<D: Driver> QueueExecutor<D> {
    /// A send of which one kernel does all comes behind what it may go with. Makes the kernel that does both, for the next
    /// time, and has it waited for; whether there can be one.
    pub(super) fn expect_send(&mut self, send: &TriggeredSend, arrived: Arrived<'_>) -> Result<bool> {
        if !send.conditions.iter().all(|word| self.is_here(word)) {
            return Ok(false);
        }
        let threads = self.onto().with_arrival(arrived.waits, |_, arrival| Ok(arrival.threads()))?;
        let is_there = self.with_merged(send, |(engine, ..), merged| {
            merged.relay_behind((engine, send, threads), arrived)
        })?;
        if is_there {
            self.onto().expect_send(arrived.waits, arrived.unpack, true)?;
            if let Some(signals) = arrived.signals {
                signals.goes_with_a_send.store(true, Ordering::Relaxed);
            }
        }
        Ok(is_there)
    }

    /// Puts a send on the queue with what was kept back for it: a wait, moves, and signals. If its receivers are not ready,
    /// the kernel waits for them. Whether it is; what was kept back is in any case, but for the signals.
    pub(super) fn relay(&mut self, send: &TriggeredSend, epoch: u32) -> Result<bool> {
        let Some(LastWait { waits, unpack: Some(unpack), kept_back: Some(_), .. }) = &self.last_wait else {
            return Ok(false);
        };
        let (waits, unpack) = (waits.clone(), unpack.clone());
        let last = self.last_signals.take();
        let signals = last.as_ref().map(|last| &last.signals);
        let arrived = Arrived { waits: &waits, unpack: &unpack, signals };
        let known = self.with_merged(send, |_, merged| Ok(merged.receivers_of(arrived)))?;
        let needed = Number::from((send.needed)(epoch));
        let receivers = known.as_ref().and_then(Option::as_ref).filter(|_| !send.is_clear(epoch));
        let receivers = receivers.map(|waits| Receivers { waits, needed, place: None });
        let before = last.as_ref().map(|last| (&last.signals, last.value.into()));
        let sent = known.as_ref().map(|_| Sent { send, epoch: epoch.into(), before, receivers });
        let launched = self.put_arrival(sent).map(|launched| launched == Launched::Relay);
        let Some(last) = self.taken(launched, last)? else { return Ok(false) };
        self.status.count(Count::Relays, 1);
        if let Some(waits) = known.flatten() {
            self.hold(waits)?;
        }
        match last {
            Some(last) => self.told_before(last.signals).map(|()| true),
            None => Ok(true),
        }
    }

    /// A send comes whose receivers are not ready: keeps it back, if one kernel can do it with what is kept back already.
    /// Whether it does.
    pub(super) fn keep_back(&mut self, send: &Arc<TriggeredSend>, epoch: u32) -> Result<bool> {
        let Some(LastWait { waits, unpack: Some(unpack), kept_back, .. }) = &self.last_wait else {
            return Ok(false);
        };
        let is_alone = self.pending.is_empty() && self.owed.is_empty();
        let mut words = send.messages.iter().flat_map(Message::words);
        if !is_alone || !words.all(|(word, rule)| self.can_post(word, rule)) {
            return Ok(false);
        }
        let (waits, unpack, is_kept) = (waits.clone(), unpack.clone(), kept_back.is_some());
        let signals = self.last_signals.as_ref().map(|last| last.signals.clone());
        let arrived = Arrived { waits: &waits, unpack: &unpack, signals: signals.as_ref() };
        let is_known = self.with_merged(send, |_, merged| Ok(merged.receivers_of(arrived).is_some()))?;
        if is_known && is_kept {
            self.kept_send = Some(Pending { send: send.clone(), epoch, number: None });
            return Ok(true);
        }
        self.expect_send(send, arrived).map(|_| false)
    }

    /// The next operation comes, or none does, behind a send that was kept back, if one was: the wait of its group, which it is
    /// to go before, or anything else, which its receivers do not hold up.
    pub(super) fn put_kept_send(&mut self, waits: Option<&WaitSet>) -> Result<()> {
        let Some(one) = self.kept_send.take().filter(|_| !self.status.has_failed()) else { return Ok(()) };
        let goes = waits.is_some_and(|waits| waits.group == one.send.group) || one.send.is_clear(one.epoch);
        if goes && self.holding(one.send.clone(), |own, send| own.relay(send, one.epoch))? {
            self.has_merged(&one.send);
            return Ok(());
        }
        self.put_kept_back(None)?;
        self.put_signals()?;
        self.pending.push(one);
        Ok(())
    }
}
