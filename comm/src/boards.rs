//! Boards: a meeting in memory that all ranks have from the start, one board per rank.

use crate::error::{Error, Result};
use crate::fabric::{Fabric, Region, Role, WaitContext, Word, has_reached, phase};
use crate::meeting::{Meeting, is_over, left};
use std::cell::{Cell, OnceCell};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

#[cfg(test)]
mod tests;

/// The boards of one world: where ranks meet that map each other's memory.
#[derive(Debug)]
pub(crate) struct Boards {
    fabric: Arc<dyn Fabric>,
    region: Region,
    arrived: Word,
    rank: usize,
    size: usize,
    /// Barriers passed; the word counts arrivals, `size` for each.
    rounds: Cell<u32>,
    /// Why this rank has given up a barrier. It arrives at no other one: its arrivals would be taken for those of a rank that
    /// has left.
    failed: OnceCell<Error>,
}

/// In front of the boards, in zeroed shared memory.
#[repr(C, align(64))]
struct Head {
    /// The word that counts arrivals.
    _arrived: AtomicU64,
    /// How long a rank has waited that then gave up.
    waited_ms: AtomicU64,
    /// Behind that: for which one, counted from 1. Zero as long as none has.
    late: AtomicU32,
}

const _: () = assert!(size_of::<Head>() == size_of::<Board>());

/// What a rank has put up for the others: a region with its data. In zeroed shared memory.
#[repr(C, align(64))]
struct Board {
    key: AtomicU64,
    region_bytes: AtomicU64,
    data_bytes: AtomicU64,
    /// Barriers that the rank has arrived at: read only to say who is missing.
    rounds: AtomicU32,
    /// In which call, by the parity of the number of the barrier: a rank is at most one of them ahead of another.
    calls: [AtomicU32; 2],
    /// Whether it has dropped its end, and comes to no more of them.
    has_left: AtomicU32,
}

/// What ranks come to a barrier for.
#[derive(Debug, Clone, Copy)]
enum Call {
    Barrier = 1,
    Gather,
    /// They have read what the others had put up.
    Gathered,
    /// They could not, which is the verdict of all.
    Unread,
}

impl Call {
    fn name(self) -> &'static str {
        match self {
            Call::Barrier => "barrier",
            Call::Gather | Call::Gathered | Call::Unread => "all_gather",
        }
    }
}

impl Boards {
    /// How much memory the boards of that many ranks need.
    pub(crate) const fn bytes(size: usize) -> usize {
        size.saturating_add(1).saturating_mul(size_of::<Board>())
    }

    /// The boards in zeroed memory that the first `size` ranks of the fabric share.
    pub(crate) fn new(fabric: Arc<dyn Fabric>, region: Region, size: usize) -> Result<Self> {
        let rank = fabric.rank();
        region.place(0, Self::bytes(size), "the boards of a world")?;
        // Any rank can be the last to arrive; `missing` says which.
        let arrived = region.word(0, Role::Barrier, rank, rank)?;
        Ok(Self { fabric, region, arrived, rank, size, rounds: Cell::new(0), failed: OnceCell::new() })
    }

    fn board(&self, rank: usize) -> &Board {
        crate::fabric::shared_struct(&self.region, (rank + 1) * size_of::<Board>())
    }

    fn head(&self) -> &Head {
        crate::fabric::shared_struct(&self.region, 0)
    }

    /// A rank that a barrier waits for: its word only counts them.
    fn missing(&self) -> usize {
        let rounds = |rank: usize| self.board(rank).rounds.load(Ordering::Relaxed);
        (0..self.size).find(|rank| !has_reached(rounds(*rank), self.rounds.get())).unwrap_or(self.rank)
    }

    /// Ends this barrier, and all that would follow, for every rank: a rank that came to it later would take the count of
    /// the one for that of another. The rank that it was for; `None` if all have come meanwhile.
    fn give_up(&self, all: u32, waited: Duration) -> Option<usize> {
        let missing = self.late().map_or_else(|| self.missing(), |(rank, _)| rank);
        if self.arrived.cell().take_back(all.wrapping_sub(self.size as u32), all) {
            self.head().waited_ms.store(waited.as_millis() as u64, Ordering::Relaxed);
            self.head().late.store(missing as u32 + 1, Ordering::Release);
            crate::fabric::store_fence();
            self.arrived.wake();
        }
        (!self.arrived.cell().reached(all)).then_some(missing)
    }

    /// For which rank others have waited so long that they gave up, if they have.
    #[inline]
    fn late(&self) -> Option<(usize, Duration)> {
        let late = self.head().late.load(Ordering::Acquire).checked_sub(1)?;
        Some((late as usize, Duration::from_millis(self.head().waited_ms.load(Ordering::Relaxed))))
    }

    /// Why a rank will not come to this barrier: others have given up, or it has left.
    fn gone(&self, call: Call) -> Option<Error> {
        if let Some((rank, waited)) = self.late() {
            return Some(is_over(call.name(), rank, waited));
        }
        let rank = (0..self.size).find(|rank| {
            let board = self.board(*rank);
            // In this order: whoever has left has said before how far it came.
            board.has_left.load(Ordering::Acquire) != 0
                && !has_reached(board.rounds.load(Ordering::Relaxed), self.rounds.get())
        })?;
        Some(left(rank))
    }

    /// Blocks until all ranks have come to it in this call.
    fn meet(&self, context: &WaitContext, call: Call) -> Result<()> {
        if let Some(error) = self.failed.get() {
            return Err(error.clone());
        }
        self.rounds.set(self.rounds.get().wrapping_add(1));
        let round = self.rounds.get();
        let own = self.board(self.rank);
        own.rounds.store(round, Ordering::Relaxed);
        own.calls[phase(round)].store(call as u32, Ordering::Relaxed);
        self.arrived.post_increment();
        crate::fabric::store_fence();
        self.arrived.wake();
        // Behind the count, whose line it shares: this rank has it now.
        if let Some((rank, waited)) = self.late() {
            return Err(is_over(call.name(), rank, waited));
        }
        let all = round.wrapping_mul(self.size as u32);
        match context.wait(&self.arrived, all, &|| self.gone(call), &mut crate::device::progress) {
            Err(Error::TimedOut { rank, what, wanted, found, waited, .. }) => {
                if let Some(peer) = self.give_up(all, waited) {
                    return Err(Error::TimedOut { rank, peer, what, wanted, found, waited });
                }
            }
            Err(error) => return Err(self.failed.get_or_init(|| error).clone()),
            Ok(()) => {}
        }
        let call_of = |rank: usize| self.board(rank).calls[phase(round)].load(Ordering::Relaxed);
        let first = |is_meant: &dyn Fn(u32) -> bool| (0..self.size).find(|rank| is_meant(call_of(*rank)));
        let (rank, reason) = if let Some(rank) = first(&|other| other == Call::Unread as u32) {
            (rank, "it could not map what the others had put up; has it run out of memory?")
        } else if let Some(rank) = first(&|other| other != call as u32) {
            (rank, "it made another call; do all ranks make the same calls?")
        } else {
            return Ok(());
        };
        Err(Error::CollectiveFailed { call: call.name(), rank, reason: reason.into() })
    }

    fn read(&self, rank: usize) -> Result<Vec<u8>> {
        let board = self.board(rank);
        let region_bytes = board.region_bytes.load(Ordering::Relaxed) as usize;
        if region_bytes == 0 {
            return Err(Error::CollectiveFailed {
                call: "all_gather",
                rank,
                reason: "it had no memory for what it wanted to say".into(),
            });
        }
        let region = self.fabric.map(rank, board.key.load(Ordering::Relaxed), region_bytes)?;
        region.read_bytes(0, board.data_bytes.load(Ordering::Relaxed) as usize)
    }
}

impl Drop for Boards {
    fn drop(&mut self) {
        self.board(self.rank).has_left.store(1, Ordering::Release);
    }
}

impl Meeting for Boards {
    fn barrier(&self, context: &WaitContext) -> Result<()> {
        self.meet(context, Call::Barrier)
    }

    fn all_gather(&self, context: &WaitContext, data: &[u8]) -> Result<Vec<Vec<u8>>> {
        // Without memory for the data this rank still has to arrive, or the others would wait:
        // it puts up nothing, which all of them see.
        let region = self.fabric.allocate(data.len().max(1)).and_then(|region| {
            region.write_bytes(0, data)?;
            Ok(region)
        });
        let own = self.board(self.rank);
        if let Ok(region) = &region {
            own.key.store(region.key(), Ordering::Relaxed);
            own.data_bytes.store(data.len() as u64, Ordering::Relaxed);
        }
        own.region_bytes.store(region.as_ref().map_or(0, |region| region.bytes() as u64), Ordering::Relaxed);
        self.meet(context, Call::Gather)?;
        let gathered = (0..self.size).map(|rank| self.read(rank)).collect::<Result<Vec<_>>>();
        // What was not put up all see alike.
        let call = match &gathered {
            Ok(_) | Err(Error::CollectiveFailed { .. }) => Call::Gathered,
            Err(_) => Call::Unread,
        };
        // The data must stay until all have read it.
        self.meet(context, call)?;
        drop(region);
        gathered
    }

    fn first(&self, context: &WaitContext, ranks: usize) -> Result<Option<Box<dyn Meeting>>> {
        // Rank 0 makes the boards, and tells their key; a text behind it says why there are none.
        let made = if self.rank == 0 { Some(self.fabric.allocate(Self::bytes(ranks))) } else { None };
        let (key, reason) = match &made {
            Some(Ok(region)) => (region.key(), String::new()),
            Some(Err(error)) => (0, error.to_string()),
            None => (0, String::new()),
        };
        let told = self.all_gather(context, &[&key.to_le_bytes(), reason.as_bytes()].concat())?;
        let failed =
            |reason: &str| Error::CollectiveFailed { call: "World::first", rank: 0, reason: reason.into() };
        let (key, reason) = told[0].split_first_chunk::<8>().ok_or_else(|| {
            failed("it said something else than this rank; do all ranks make the same calls?")
        })?;
        let key = u64::from_le_bytes(*key);
        if !reason.is_empty() {
            return Err(failed(&String::from_utf8_lossy(reason)));
        }
        let boards = (self.rank < ranks).then(|| {
            let region = match made.clone() {
                Some(region) => region?,
                None => self.fabric.map(0, key, Self::bytes(ranks))?,
            };
            Self::new(self.fabric.clone(), region, ranks)
        });
        let boards = boards.transpose();
        // Rank 0 keeps the boards until all have mapped them. Whoever has not says why: the others would wait for it there.
        let reason = boards.as_ref().err().map(ToString::to_string).unwrap_or_default();
        let reasons = self.all_gather(context, reason.as_bytes())?;
        match reasons.iter().position(|reason| !reason.is_empty()) {
            None => Ok(boards?.map(|boards| Box::new(boards) as Box<dyn Meeting>)),
            Some(rank) => {
                let reason = String::from_utf8_lossy(&reasons[rank]).into_owned();
                Err(Error::CollectiveFailed { call: "World::first", rank, reason })
            }
        }
    }
}
