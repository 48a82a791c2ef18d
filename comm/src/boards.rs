//! Boards: a meeting in memory that all ranks have from the start, one board per rank.

use crate::error::{Error, Result};
use crate::fabric::{Fabric, Region, Role, WaitContext, Word, has_reached, phase};
use crate::meeting::{Meeting, left};
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

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
}

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
        // Any rank can be the last to arrive; `name_the_late` says which.
        let arrived = region.word(0, Role::Barrier, rank, rank)?;
        Ok(Self { fabric, region, arrived, rank, size, rounds: Cell::new(0) })
    }

    fn board(&self, rank: usize) -> &Board {
        crate::fabric::shared_struct(&self.region, (rank + 1) * size_of::<Board>())
    }

    /// Says which rank a barrier waits for: its word only counts them.
    fn name_the_late(&self, mut error: Error) -> Error {
        if let Error::TimedOut { peer, .. } = &mut error {
            let rounds = |rank: usize| self.board(rank).rounds.load(Ordering::Relaxed);
            *peer = (0..self.size).find(|rank| rounds(*rank) != self.rounds.get()).unwrap_or(*peer);
        }
        error
    }

    /// The error that says which rank has left, and will not come to this barrier.
    fn gone(&self) -> Option<Error> {
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
        self.rounds.set(self.rounds.get().wrapping_add(1));
        let round = self.rounds.get();
        let own = self.board(self.rank);
        own.rounds.store(round, Ordering::Relaxed);
        own.calls[phase(round)].store(call as u32, Ordering::Relaxed);
        self.arrived.post_increment();
        crate::fabric::store_fence();
        self.arrived.wake();
        let all = round.wrapping_mul(self.size as u32);
        let waited = context.wait(&self.arrived, all, &|| self.gone(), &mut crate::device::progress);
        waited.map_err(|error| self.name_the_late(error))?;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fabric::{Abort, Executor, LocalFabric};
    use crate::world::{World, WorldOptions};
    use std::time::Duration;

    /// An end of `local` which lacks memory for what others have put up.
    #[derive(Debug)]
    struct Narrow {
        inner: Arc<LocalFabric>,
        boards: Region,
        is_full: bool,
    }

    impl Fabric for Narrow {
        fn name(&self) -> &'static str {
            self.inner.name()
        }

        fn executor(&self) -> Executor {
            self.inner.executor()
        }

        fn rank(&self) -> usize {
            self.inner.rank()
        }

        fn size(&self) -> usize {
            self.inner.size()
        }

        fn allocate(&self, bytes: usize) -> Result<Region> {
            self.inner.allocate(bytes)
        }

        fn map(&self, owner: usize, key: u64, bytes: usize) -> Result<Region> {
            match self.is_full {
                true => Err(Error::System { call: "mmap", reason: "it is full".into() }),
                false => self.inner.map(owner, key, bytes),
            }
        }

        fn abort(&self) -> Abort {
            self.inner.abort()
        }

        fn meeting(self: Arc<Self>) -> Result<Box<dyn Meeting>> {
            let (boards, size) = (self.boards.clone(), self.size());
            Ok(Box::new(Boards::new(self, boards, size)?))
        }
    }

    #[test]
    fn what_one_rank_cannot_read_fails_on_all() {
        let ends = LocalFabric::ends(3).expect("there is memory");
        let boards = ends[0].allocate(Boards::bytes(3)).expect("there is memory");
        let options = WorldOptions { timeout: Some(Duration::from_secs(20)), ..WorldOptions::default() };
        std::thread::scope(|scope| {
            for inner in ends {
                let (boards, is_full) = (boards.clone(), inner.rank() == 1);
                scope.spawn(move || {
                    let world = World::new(Arc::new(Narrow { inner, boards, is_full }), options)
                        .expect("it communicates with nobody");
                    let gathered = world.all_gather(&world.rank());
                    let expected = Error::CollectiveFailed {
                        call: "all_gather",
                        rank: 1,
                        reason: "it could not map what the others had put up; has it run out of memory?"
                            .into(),
                    };
                    assert_eq!(gathered, Err(expected), "rank {}", world.rank());
                    // The next call is one of all ranks again.
                    world.barrier().expect("all come to it");
                });
            }
        });
    }
}
