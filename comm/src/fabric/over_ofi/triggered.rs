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

use super::build::Built;
use super::entries::{Count, Entry};
use super::hub::Hub;
use super::throttling::Allowance;
use crate::error::{Error, Result};
use crate::fabric::carrier::Carried;
use crate::fabric::ofi::{Counter, MemoryRegion, Posted};
use crate::fabric::throttling::{Budget, Throttling};
use crate::fabric::{Arm, Early, Room, Terms, WaitContext};
use crate::locks::lock;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// Epochs that may be queued at once where there is room; even, so that a set is of one phase.
pub(super) const SETS: u64 = 8;
/// How long nothing may move before the provider is asked to look again.
const STILL: Duration = Duration::from_millis(10);
/// How often the completion queue, which tells of errors only, is looked at.
const LOOK: Duration = Duration::from_millis(1);
/// For how long an exchange that is made waits for the entries of one that has been dropped, and may not be through.
const PATIENCE: Duration = Duration::from_secs(1);

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
    /// Epochs for which there is room beside those that others keep: it comes to its next one once what was queued ahead is
    /// through.
    kept: usize,
    /// Epochs that have room: those that are queued, and one that is about to be.
    placed: usize,
    /// Epochs whose entries are taken from the budget: those, and from the first one on those that are kept.
    held: usize,
    /// Epochs queued so far, and how many of them before counters were last set back.
    number: u64,
    set_back: u64,
    /// Epochs whose entries are not all complete, the oldest first.
    queued: VecDeque<u64>,
    /// Every counter, and what it comes to.
    counters: Vec<(Counter, Count)>,
    /// What comes to each buffer.
    arrivals: Vec<Counter>,
    _regions: Arc<Vec<MemoryRegion>>,
    looked: Instant,
    moved: Instant,
}

impl Triggered {
    /// An exchange of what was built; and what peers may write to, for as long as they may.
    ///
    /// # Errors
    /// [`crate::Error::FabricUnavailable`] if an epoch of it has no room: beside those that other exchanges keep, or, where it
    /// shares room with them, ever.
    pub(super) fn new(
        context: &WaitContext,
        hub: &Arc<Hub>,
        terms: Terms,
        built: Built,
        allowance: &Allowance,
    ) -> Result<(Self, Arc<Vec<MemoryRegion>>)> {
        let Built { counters, regions, sets, arrivals } = built;
        let entries = sets.iter().map(Vec::len).max().unwrap_or(0);
        match terms.room {
            Room::Shared if entries <= allowance.budget.limit() => {}
            Room::Shared => return Err(refusal(allowance, entries)),
            Room::Found => {
                keep(context, allowance, entries)?;
                allowance.budget.let_go(entries);
            }
            Room::Kept => keep(context, allowance, entries)?,
        }
        let regions = Arc::new(regions);
        let state = State {
            hub: hub.clone(),
            terms,
            allowance: allowance.clone(),
            sets,
            entries,
            kept: usize::from(terms.room == Room::Kept),
            placed: 0,
            held: 0,
            number: 0,
            set_back: 0,
            queued: VecDeque::with_capacity(SETS as usize),
            counters,
            arrivals,
            _regions: regions.clone(),
            looked: Instant::now(),
            moved: Instant::now(),
        };
        Ok((Self { shared: Arc::new(Mutex::new(state)) }, regions))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.shared)
    }
}

/// Keeps room for an epoch. It is not waited for here, where all ranks are: what has been queued ahead may need what peers
/// do next.
fn keep(context: &WaitContext, allowance: &Allowance, entries: usize) -> Result<()> {
    let budget = &allowance.budget;
    let (mut is_kept, begun) = (false, Instant::now());
    let mut is_decided = || {
        is_kept = budget.try_keep(entries);
        Ok(is_kept || entries > budget.limit() || begun.elapsed() > PATIENCE)
    };
    context.poll(&mut is_decided, &|_| refusal(allowance, entries))?;
    if is_kept { Ok(()) } else { Err(refusal(allowance, entries)) }
}

fn room_for(entries: usize, budget: &Budget) -> String {
    let (in_use, limit, variable) = (budget.in_use(), budget.limit(), super::ENTRIES_VARIABLE);
    format!("room for {entries} triggered operations where {in_use} of {limit} ({variable}) are outstanding")
}

fn refusal(allowance: &Allowance, entries: usize) -> Error {
    let budget = &allowance.budget;
    super::unavailable(format!(
        "an epoch of this exchange takes {entries} triggered operations, and {} may be outstanding, {} of which other exchanges \
         keep; drop exchanges that are done with, use fewer neighbours for a rank, fewer ranks for a network interface, or a \
         provider without triggered operations ({} says how many there may be)",
        budget.limit(),
        budget.kept(),
        super::ENTRIES_VARIABLE
    ))
}

impl State {
    /// Gives back the entries of epochs that are through.
    fn reap(&mut self) {
        while let Some(&oldest) = self.queued.front() {
            if !self.sets[(oldest % SETS) as usize].iter().all(Entry::is_done) {
                return;
            }
            self.queued.pop_front();
            self.placed -= 1;
            if self.held > self.placed.max(self.kept) {
                self.held -= 1;
                self.allowance.budget.release(self.entries);
            }
            self.moved = Instant::now();
        }
    }

    /// Takes room for one more epoch.
    fn take_room(&mut self) -> bool {
        self.reap();
        if self.queued.len() == SETS as usize {
            return false;
        }
        if self.placed == self.held {
            if !self.allowance.budget.try_reserve(self.entries) {
                return false;
            }
            self.held += 1;
        }
        self.placed += 1;
        true
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
        self.allowance.budget.let_go(self.entries * self.kept);
        self.allowance.budget.release(self.entries * self.held);
    }
}

impl Triggered {
    /// What an epoch takes, and of which account.
    fn account(&self) -> (usize, Arc<Budget>) {
        let state = self.state();
        (state.entries, state.allowance.budget.clone())
    }

    /// Waits until something is so, that the thread or the network brings about.
    fn wait(&self, context: &WaitContext, is_so: impl Fn(&mut State) -> Result<bool>) -> Result<()> {
        context.poll(&mut || is_so(&mut self.state()), &|waited| {
            let (entries, budget) = self.account();
            context.late(None, room_for(entries, &budget), waited)
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
                let (entries, budget) = self.account();
                return Err(budget.refusal("start_recvs", entries));
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

impl Early for Triggered {
    fn come(&self) -> Result<u32> {
        let state = self.state();
        let counted = state.arrivals.iter().map(|counter| counter.read() - state.allowance.counter_start);
        Ok((state.set_back + counted.sum::<u64>()) as u32)
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
