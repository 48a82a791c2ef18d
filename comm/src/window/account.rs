//! The account of what is queued ahead of streams, and who makes room when it is full (2023, section 5.2).

use crate::device::{SignalSet, Stream, StreamKind};
use crate::error::{Error, Result};
use crate::fabric::Throttling;
use crate::fabric::throttling::Budget;
use crate::fabric::{Role, Word};
use crate::world::World;
use std::collections::VecDeque;
use std::sync::Arc;

/// Operations and signals of stream epochs that streams have not come to.
#[derive(Debug)]
pub(super) struct Account {
    world: World,
    throttling: Throttling,
    budget: Budget,
    streams: Vec<Queued>,
}

/// What is queued on one stream.
#[derive(Debug)]
struct Queued {
    stream: u64,
    /// Set by the stream to the number of the last batch that it is through with.
    through: Word,
    signal: Arc<SignalSet>,
    /// The number of the last batch that was queued.
    last: u32,
    /// The number of the last batch of each side that the stream is not through with, if there is one.
    last_of: [Option<u32>; 2],
    /// By number, the oldest first: how many entries they take.
    batches: VecDeque<(u32, usize)>,
}

/// Batches of a stream that are given back one by one; behind these they are together, so that no host that
/// runs far ahead needs memory for it.
const BATCHES: usize = 64;

/// What a batch is of. The two are independent: origins must complete an exposure before a stream is through with it, and
/// may first wait for accesses of this rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Exposure,
    Access,
}

/// Entries for a batch that is about to be queued; given back unless it is.
#[derive(Debug)]
#[must_use]
pub(super) struct Reserved(usize);

impl Account {
    pub(super) fn new(world: &World, throttling: Throttling, entries: usize) -> Self {
        Self { world: world.clone(), throttling, budget: Budget::new(entries), streams: Vec::new() }
    }

    /// How many entries are in use.
    pub(super) fn in_use(&mut self) -> usize {
        self.reap();
        self.budget.in_use()
    }

    /// Gives back the entries of what streams are through with.
    fn reap(&mut self) {
        for queued in &mut self.streams {
            while let Some((number, entries)) = queued.batches.front() {
                if !queued.through.cell().reached(*number) {
                    break;
                }
                self.budget.release(*entries);
                queued.batches.pop_front();
            }
            let Queued { through, last_of, .. } = queued;
            for last in last_of {
                last.take_if(|last| through.cell().reached(*last));
            }
        }
    }

    /// Takes entries for a batch that is to go on a stream. Blocks or refuses where there is no room, as the
    /// policy says.
    pub(super) fn reserve(
        &mut self,
        call: &'static str,
        stream: &Stream,
        entries: usize,
    ) -> Result<Reserved> {
        self.reap();
        if stream.kind() != StreamKind::Inline && self.streams.iter().all(|one| one.stream != stream.id()) {
            self.streams.retain(|queued| !queued.batches.is_empty());
            self.streams.push(Queued::new(&self.world, stream.id())?);
        }
        if self.budget.try_reserve(entries) {
            return Ok(Reserved(entries));
        }
        if self.throttling == Throttling::Application || entries > self.budget.limit() {
            return Err(self.budget.refusal(call, entries));
        }
        let context = self.world.wait_context().clone();
        let (rank, limit) = (self.world.rank(), self.budget.limit());
        let waited = context.poll(
            &mut || {
                self.reap();
                let may_take = self.throttling == Throttling::Adaptive || self.budget.in_use() == 0;
                Ok(may_take && self.budget.try_reserve(entries))
            },
            &|waited| Error::TimedOut {
                rank,
                peer: rank,
                what: format!("room for {entries} of {limit} entries on the streams"),
                wanted: entries as u32,
                found: 0,
                waited,
            },
        );
        // A stream that has failed says more than the wait that ended with it.
        stream.check()?;
        waited.map(|()| Reserved(entries))
    }

    /// Blocks until streams are through with all that was queued of those sides: before the host goes on with them.
    pub(super) fn drain(&mut self, sides: &[Side]) -> Result<()> {
        self.reap();
        if self.has_none(sides) {
            return Ok(());
        }
        let context = self.world.wait_context().clone();
        let rank = self.world.rank();
        let mut drained = || {
            self.reap();
            Ok(self.has_none(sides))
        };
        context.poll(&mut drained, &|waited| Error::TimedOut {
            rank,
            peer: rank,
            what: "the window's epochs on streams".into(),
            wanted: 0,
            found: 1,
            waited,
        })
    }

    fn has_none(&self, sides: &[Side]) -> bool {
        self.streams.iter().all(|queued| sides.iter().all(|side| queued.last_of[*side as usize].is_none()))
    }

    /// Counts a batch of those sides that was queued until the stream has come to here.
    pub(super) fn queued(&mut self, stream: &Stream, sides: &[Side], reserved: Reserved) {
        let queued = self.streams.iter_mut().find(|queued| queued.stream == stream.id());
        let Some(queued) = queued else {
            // On an inline stream all has run already.
            self.budget.release(reserved.0);
            return;
        };
        queued.last = queued.last.wrapping_add(1);
        let number = queued.last;
        sides.iter().for_each(|side| queued.last_of[*side as usize] = Some(number));
        match queued.batches.len() {
            BATCHES => {
                let newest = &mut queued.batches[BATCHES - 1];
                *newest = (number, newest.1 + reserved.0);
            }
            _ => queued.batches.push_back((number, reserved.0)),
        }
        stream.write_values(&queued.signal, queued.last);
    }

    /// Gives back what was reserved for a batch that is not queued after all.
    pub(super) fn cancel(&mut self, reserved: Reserved) {
        self.budget.release(reserved.0);
    }
}

impl Queued {
    fn new(world: &World, stream: u64) -> Result<Self> {
        let rank = world.rank();
        let through = world.fabric().allocate(64)?.word(0, Role::Departure, rank, rank)?;
        let signal = SignalSet::new(vec![through.clone()], false);
        Ok(Self {
            stream,
            through,
            signal: Arc::new(signal),
            last: 0,
            last_of: [None; 2],
            batches: VecDeque::with_capacity(BATCHES),
        })
    }
}
