//! Exchanges that the network interface carries out: deferred work (2026, section V; 2023 active RMA,
//! section 5.1).
//!
//! A send is a deferred write whose trigger counter the stream adds to. Its completion counter triggers
//! an atomic operation on the word that the stream waits for. The receiver's buffer has a counter, bound
//! to its memory region, which triggers the same there: no further message tells that the payload has
//! come. Clear-to-send is an atomic operation on a word of the sender, whose region is bound to the
//! trigger counter: so a write goes out at twice the number of its epoch, once both have been there.
//! Ready sends of a batch share one trigger; so do all puts of an access epoch, which waits for the
//! exposures of the whole group.

use super::entries::{Count, Entry, Value, Work};
use super::hub::Hub;
use super::throttling::{Allowance, Throttling};
use super::told::{Target, Targets, register, register_word, sides_of, tell};
use crate::error::{Error, Result};
use crate::fabric::carrier::Carried;
use crate::fabric::ofi::{
    Change, Counter, DeferredAtomic, DeferredCounterAdd, DeferredWrite, Endpoint, MemoryRegion, PeerAddress,
    Posted, RemotePlace, Width,
};
use crate::fabric::{
    Abort, Arm, Bells, Doorbell, FarExchange, FarRecv, FarSend, Keep, Terms, WaitContext, Word, phase,
};
use crate::world::World;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Epochs that may be queued at once where there is room; even, so that a set is of one phase.
const SETS: u64 = 8;
/// How long nothing may move before the provider is asked to look again.
const STILL: Duration = Duration::from_millis(10);
/// How often the completion queue, which tells of errors only, is looked at.
const LOOK: Duration = Duration::from_millis(1);

/// An exchange, shared by the host, which arms it, and by the thread that looks after it.
#[derive(Debug, Clone)]
pub(super) struct Triggered {
    shared: Arc<Mutex<State>>,
}

#[derive(Debug)]
struct State {
    hub: Arc<Hub>,
    terms: Terms,
    allowance: Allowance,
    sets: Vec<Vec<Entry>>,
    /// What each of them takes of the budget.
    entries: usize,
    /// Epochs queued so far, and how many of them before counters were last set back.
    number: u64,
    set_back: u64,
    /// Epochs whose entries are not all complete, the oldest first.
    queued: VecDeque<u64>,
    /// Every counter, and what it comes to.
    counters: Vec<(Counter, Count)>,
    _regions: Arc<Vec<MemoryRegion>>,
    looked: Instant,
    moved: Instant,
}

/// Adds to a counter when a stream posts a word.
struct Bell {
    counter: Counter,
    abort: Abort,
    rank: usize,
}

impl Doorbell for Bell {
    fn ring(&self, _value: u32) {
        if let Err(error) = self.counter.add(1) {
            self.abort.raise(self.rank, &error.to_string());
        }
    }
}

/// Makes counters, regions and entries.
struct Builder<'a> {
    endpoint: &'a Endpoint,
    terms: Terms,
    start: u64,
    counters: Vec<(Counter, Count)>,
    regions: Vec<MemoryRegion>,
    sets: Vec<Vec<Entry>>,
}

impl Builder<'_> {
    fn counter(&mut self, comes_to: Count) -> Result<Counter> {
        let counter = Counter::open(self.endpoint)?;
        if self.start != 0 {
            counter.set(self.start)?;
        }
        self.counters.push((counter.clone(), comes_to));
        Ok(counter)
    }

    /// A word of this rank as the target of the interface's own operations.
    fn own_word(&mut self, word: &Word) -> Result<RemotePlace> {
        let region = register_word(self.endpoint, word, None)?;
        let place = region.remote(self.endpoint.own(), 0);
        self.regions.push(region);
        Ok(place)
    }

    /// The same entry in every set of a phase, or of both.
    fn each_set(&mut self, of: Option<usize>, mut make: impl FnMut() -> Result<Entry>) -> Result<()> {
        let first = self.terms.last_epoch;
        for (set, entries) in (0u32..).zip(&mut self.sets) {
            if of.is_none_or(|of| phase(first.wrapping_add(set)) == of) {
                entries.push(make()?);
            }
        }
        Ok(())
    }

    /// An atomic operation on a word, in every set.
    fn set_word(
        &mut self,
        of: Option<usize>,
        (change, value): (Change, Value),
        target: RemotePlace,
        (trigger, threshold): (&Counter, Count),
        done: Count,
    ) -> Result<()> {
        let completed = self.counter(done)?;
        self.each_set(of, || {
            let atomic = DeferredAtomic::new(change, Width::U32, 1, target, trigger, &completed)?;
            Ok(Entry::new(Work::Atomic(atomic, value), threshold, done))
        })
    }

    /// A payload comes to a buffer: its region's counter sets the word that the stream waits for.
    fn recv(&mut self, recv: &FarRecv, counts: &[Word; 2], buffer: usize) -> Result<Target> {
        let (of, uses) = match self.terms.buffers {
            1 => (None, Count::Epochs(1)),
            _ => (Some(buffer), Count::Phases(1)),
        };
        let arrived = self.counter(uses)?;
        let region = register(self.endpoint, &recv.slots[buffer], recv.bytes, Some(&arrived))?;
        let target = Target::of(&region, 0);
        self.regions.push(region);
        let word = self.own_word(&recv.arrivals[buffer])?;
        self.set_word(of, (Change::Set, Value::Epoch), word, (&arrived, uses), uses)?;
        if self.terms.counts {
            let count = self.own_word(&counts[buffer])?;
            self.set_word(of, (Change::Add, Value::Fixed), count, (&arrived, uses), uses)?;
        }
        Ok(target)
    }

    /// A send: written when its trigger says so, and then its departure is set.
    fn send(
        &mut self,
        send: &FarSend,
        buffers: &[Target],
        peer: PeerAddress,
        triggers: [(&Counter, Count); 2],
        departure: &Word,
    ) -> Result<()> {
        let source = register(self.endpoint, &send.staging, send.bytes, None)?;
        let source = source.slice(0, send.bytes, "a message")?;
        let sent = self.counter(Count::Epochs(1))?;
        for (of, (trigger, threshold)) in triggers.into_iter().enumerate() {
            let target = buffers[of % buffers.len()].at(peer);
            self.each_set(Some(of), || {
                let write = DeferredWrite::new(&source, target, trigger, &sent)?;
                Ok(Entry::new(Work::Write(write), threshold, Count::Epochs(1)))
            })?;
        }
        let word = self.own_word(departure)?;
        let each = Count::Epochs(1);
        self.set_word(None, (Change::Set, Value::Epoch), word, (&sent, each), each)
    }
}

/// The trigger counters of a send, by phase, with what they come to.
type Triggers = [(Counter, Count); 2];

impl Triggered {
    /// Makes all counters and entries, and exchanges where peers write to. Collective. The words in
    /// `bells` that the stream posts become doorbells.
    pub(super) fn open(
        world: &World,
        hub: &Arc<Hub>,
        peers: &[PeerAddress],
        exchange: FarExchange,
        bells: &mut Bells,
        (allowance, keep): (&Allowance, &Keep<Vec<MemoryRegion>>),
    ) -> Result<Self> {
        let sides = sides_of(&exchange);
        let FarExchange { terms, sends, recvs, counts, .. } = exchange;
        let mut builder = Builder {
            endpoint: hub.endpoint(),
            terms,
            start: allowance.counter_start,
            counters: Vec::new(),
            regions: Vec::new(),
            sets: (0..SETS).map(|_| Vec::new()).collect(),
        };
        let mut triggers = Vec::new();
        let own = (|| {
            triggers = make_triggers(&mut builder, &sends, bells, &bell(world))?;
            let mut heard = Vec::new();
            for (send, triggers) in sends.iter().zip(&triggers) {
                heard.push(hear(&mut builder, send, triggers)?);
            }
            let mut buffers = Vec::new();
            for recv in &recvs {
                let made = (0..terms.buffers).map(|buffer| builder.recv(recv, &counts, buffer));
                buffers.push(made.collect::<Result<Vec<_>>>()?);
            }
            Ok((heard, buffers))
        })();
        let Targets { sends: buffers, recvs: ears } =
            tell(world, "opening an exchange over libfabric", &sides, own)?;
        for (index, (send, triggers)) in sends.iter().zip(&triggers).enumerate() {
            let [even, odd] = triggers;
            let triggers = [(&even.0, even.1), (&odd.0, odd.1)];
            builder.send(send, &buffers[index], peers[send.peer], triggers, &bells.departures[index])?;
        }
        let each = Count::Epochs(1);
        if recvs.iter().any(|recv| recv.announces) {
            let ready = builder.counter(each)?;
            bells.start = bells.start.clone().with_doorbell(Arc::new(bell(world)(ready.clone())));
            for (recv, ears) in recvs.iter().zip(&ears).filter(|(recv, _)| recv.announces) {
                let target = ears[0].at(peers[recv.peer]);
                builder.set_word(None, (Change::Set, Value::Announced), target, (&ready, each), each)?;
            }
        }
        let Builder { counters, regions, sets, .. } = builder;
        let entries = sets.iter().map(Vec::len).max().unwrap_or(0);
        if entries > allowance.budget.limit() {
            return Err(super::unavailable(format!(
                "an epoch of this exchange takes {entries} triggered operations, and {} may be outstanding; \
                 use fewer neighbours for a rank, or a provider without triggered operations",
                allowance.budget.limit()
            )));
        }
        let regions = Arc::new(regions);
        keep.add(world.size(), regions.clone());
        let state = State {
            hub: hub.clone(),
            terms,
            allowance: allowance.clone(),
            sets,
            entries,
            number: 0,
            set_back: 0,
            queued: VecDeque::with_capacity(SETS as usize),
            counters,
            _regions: regions,
            looked: Instant::now(),
            moved: Instant::now(),
        };
        Ok(Self { shared: Arc::new(Mutex::new(state)) })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Makes what adds to a counter of this rank.
fn bell(world: &World) -> impl Fn(Counter) -> Bell {
    let (abort, rank) = (Abort::new(world.fabric().abort()), world.rank());
    move |counter| Bell { counter, abort: abort.clone(), rank }
}

/// Every send's trigger counters; the stream's words ring them.
fn make_triggers(
    builder: &mut Builder<'_>,
    sends: &[FarSend],
    bells: &mut Bells,
    bell: &impl Fn(Counter) -> Bell,
) -> Result<Vec<Triggers>> {
    let terms = builder.terms;
    // Sends are packed in order: the last one's bell says that all are.
    let in_batch = |send: &FarSend| terms.waits_for_group || !send.awaits;
    let last = sends.iter().rposition(in_batch);
    let batch = match last {
        None => None,
        Some(last) => {
            let exposures = if terms.waits_for_group { sends.len() as u64 } else { 0 };
            let comes_to = Count::Epochs(exposures + 1);
            let trigger = builder.counter(comes_to)?;
            ring(&mut bells.triggers[last], bell(trigger.clone()));
            Some((trigger, comes_to))
        }
    };
    let mut made = Vec::new();
    for (index, send) in sends.iter().enumerate() {
        made.push(match &batch {
            Some(batch) if in_batch(send) => [batch.clone(), batch.clone()],
            _ if terms.buffers == 1 => {
                let both = Count::Epochs(2);
                let trigger = builder.counter(both)?;
                ring(&mut bells.triggers[index], bell(trigger.clone()));
                [(trigger.clone(), both), (trigger, both)]
            }
            _ => {
                // A credit may come an epoch before the trigger: the phases must not be mixed up.
                let both = Count::Phases(2);
                let triggers = [(builder.counter(both)?, both), (builder.counter(both)?, both)];
                let bells_of = [bell(triggers[0].0.clone()), bell(triggers[1].0.clone())];
                let word = bells.triggers[index].clone();
                bells.triggers[index] = word.with_doorbell(Arc::new(ByPhase(bells_of)));
                triggers
            }
        });
    }
    Ok(made)
}

/// Rings one of two bells, by the phase of the epoch.
struct ByPhase([Bell; 2]);

impl Doorbell for ByPhase {
    fn ring(&self, epoch: u32) {
        self.0[phase(epoch)].ring(epoch);
    }
}

fn ring(word: &mut Word, bell: Bell) {
    *word = word.clone().with_doorbell(Arc::new(bell));
}

/// Where a send's receiver says that it is ready; nothing if it never does.
fn hear(builder: &mut Builder<'_>, send: &FarSend, triggers: &Triggers) -> Result<Vec<Target>> {
    if !send.awaits {
        return Ok(Vec::new());
    }
    let counter = match builder.terms.buffers {
        1 => triggers[0].0.clone(),
        _ => {
            let credits = builder.counter(Count::Epochs(1))?;
            for (of, (trigger, both)) in triggers.iter().enumerate() {
                builder.each_set(Some(of), || {
                    let add = DeferredCounterAdd::new(trigger, 1, &credits)?;
                    // It is through once the trigger has come too.
                    Ok(Entry::new(Work::Credit(add, trigger.clone()), Count::Credits, *both))
                })?;
            }
            credits
        }
    };
    let region = register_word(builder.endpoint, &send.clear, Some(&counter))?;
    let target = Target::of(&region, 0);
    builder.regions.push(region);
    Ok(vec![target])
}

impl State {
    /// Gives back the entries of epochs that are through.
    fn reap(&mut self) {
        while let Some(&oldest) = self.queued.front() {
            if !self.sets[(oldest % SETS) as usize].iter().all(Entry::is_done) {
                return;
            }
            self.queued.pop_front();
            self.allowance.budget.release(self.entries);
            self.moved = Instant::now();
        }
    }

    /// Takes room for one more epoch.
    fn take_room(&mut self) -> bool {
        self.reap();
        self.queued.len() < SETS as usize && self.allowance.budget.try_reserve(self.entries)
    }

    /// Whether counters must be set back before another epoch.
    fn is_at_the_end(&self) -> bool {
        let epochs = self.number - self.set_back + 2;
        let largest = self.counters.iter().map(|(counter, count)| {
            let start = self.allowance.counter_start;
            (start + count.after(epochs)).checked_sub(counter.largest())
        });
        self.number.is_multiple_of(2) && largest.flatten().next().is_some()
    }

    /// Takes from every counter what it has counted. What comes meanwhile is not lost: nothing is
    /// queued, and additions are atomic.
    fn set_counters_back(&mut self) -> Result<()> {
        for entry in self.sets.iter_mut().flatten() {
            entry.settle()?;
        }
        let epochs = self.number - self.set_back;
        // Where counters were made to start is not where they go back to.
        let start = std::mem::take(&mut self.allowance.counter_start);
        for (counter, count) in &self.counters {
            counter.add((start + count.after(epochs)).wrapping_neg())?;
        }
        self.set_back = self.number;
        Ok(())
    }

    /// Queues the entries of the next epoch, for which there is room. Gives the first that found none
    /// with the provider.
    fn queue(&mut self, from: usize) -> Result<Option<usize>> {
        let number = self.number + 1;
        let (epochs, start) = (number - self.set_back, self.allowance.counter_start);
        let set = &mut self.sets[(number % SETS) as usize];
        for (index, entry) in set.iter_mut().enumerate().skip(from) {
            if entry.arm(self.terms, number, epochs, start)? == Posted::NoRoom {
                return Ok(Some(index));
            }
        }
        self.number = number;
        self.queued.push_back(number);
        self.moved = Instant::now();
        Ok(None)
    }
}

impl Drop for State {
    fn drop(&mut self) {
        self.reap();
        // After a failure some never complete: their memory is not freed, but the account is.
        self.allowance.budget.release(self.entries * self.queued.len());
    }
}

impl Triggered {
    /// Waits until something is so, that the thread or the network brings about.
    fn wait(&self, context: &WaitContext, is_so: impl Fn(&mut State) -> Result<bool>) -> Result<()> {
        context.poll(&mut || is_so(&mut self.state()), Duration::ZERO, &|waited| Error::TimedOut {
            rank: context.rank,
            peer: context.rank,
            what: "room for triggered operations".into(),
            wanted: 1,
            found: 0,
            seconds: waited.as_secs(),
        })
    }
}

impl Arm for Triggered {
    fn arm(&mut self, context: &WaitContext) -> Result<()> {
        if self.state().is_at_the_end() {
            self.wait(context, |state| {
                state.reap();
                Ok(state.queued.is_empty())
            })?;
            self.state().set_counters_back()?;
        }
        let (has_room, throttling) = {
            let mut state = self.state();
            (state.take_room(), state.allowance.throttling)
        };
        match throttling {
            _ if has_room => {}
            Throttling::Application => {
                return Err(Error::OutOfOrder {
                    call: "start_recvs",
                    reason: "no triggered operations are left, and the application is to make room; \
                             synchronise the stream, then start again"
                        .into(),
                });
            }
            Throttling::Static => {
                self.wait(context, |state| {
                    state.reap();
                    Ok(state.queued.is_empty() && state.take_room())
                })?;
            }
            Throttling::Adaptive => self.wait(context, |state| Ok(state.take_room()))?,
        }
        let next = std::cell::Cell::new(0);
        self.wait(context, |state| {
            let left = state.queue(next.get())?;
            next.set(left.unwrap_or_default());
            Ok(left.is_none())
        })
    }
}

impl Carried for Triggered {
    /// Looks after the exchange: finds errors, gives back entries, and asks a provider to look again
    /// that has stopped.
    fn progress(&mut self) -> Result<bool> {
        let mut state = self.state();
        if state.looked.elapsed() < LOOK {
            return Ok(false);
        }
        state.looked = Instant::now();
        state.hub.poll()?;
        state.reap();
        if !state.queued.is_empty() && state.moved.elapsed() > STILL {
            state.moved = Instant::now();
            for (counter, _) in &state.counters {
                counter.kick()?;
            }
        }
        Ok(false)
    }
    fn is_quiet(&self) -> bool {
        let mut state = self.state();
        state.reap();
        state.queued.is_empty()
    }
}
