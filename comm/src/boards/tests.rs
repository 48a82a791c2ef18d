//! Ranks that lack memory, or that come too late.

use super::*;
use crate::fabric::{Abort, Executor, LocalFabric};
use crate::world::{World, WorldOptions};
use std::sync::Barrier;

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
                    reason: "it could not map what the others had put up; has it run out of memory?".into(),
                };
                assert_eq!(gathered, Err(expected), "rank {}", world.rank());
                // The next call is one of all ranks again.
                world.barrier().expect("all come to it");
            });
        }
    });
}

/// What each rank of a world is told, by rank. Rank 0 waits for a moment only.
fn told(size: usize, rank_main: impl Fn(&World) -> Vec<Result<()>> + Sync) -> Vec<Vec<Result<()>>> {
    let (stays, rank_main) = (Barrier::new(size), &rank_main);
    std::thread::scope(|scope| {
        let start = |end: Arc<LocalFabric>| {
            let timeout = Some(Duration::from_millis(if end.rank() == 0 { 50 } else { 2_000 }));
            let (options, stays) = (WorldOptions { timeout, ..WorldOptions::default() }, &stays);
            scope.spawn(move || {
                let world = World::new(end, options).expect("it communicates with nobody");
                let told = rank_main(&world);
                // One that leaves is told of at once.
                stays.wait();
                told
            })
        };
        let ends = LocalFabric::ends(size).expect("there is memory");
        let ranks: Vec<_> = ends.into_iter().map(start).collect();
        ranks.into_iter().map(|rank| rank.join().expect("no rank panics")).collect()
    })
}

/// That others have given up waiting for that rank.
fn is_over(result: &Result<()>, late: usize) -> bool {
    matches!(result, Err(Error::CollectiveFailed { rank, reason, .. }) if *rank == late && reason.contains("given up"))
}

fn is_late(result: &Result<()>) -> bool {
    matches!(result, Err(Error::TimedOut { rank: 0, .. }))
}

#[test]
fn a_rank_that_comes_when_others_have_given_up_is_told_so() {
    let given_up = Barrier::new(2);
    let told = told(2, |world| {
        if world.rank() == 1 {
            given_up.wait();
        }
        let first = world.barrier();
        if world.rank() == 0 {
            given_up.wait();
        }
        vec![first, world.barrier(), world.all_gather(&7).map(drop)]
    });
    assert!(is_late(&told[0][0]), "{told:?}");
    assert!(told[0][1..].iter().chain(&told[1]).all(|result| is_over(result, 1)), "{told:?}");
}

/// Rank 2 comes to none of the barriers: the one that rank 0 tries again is not taken for its arrival.
#[test]
fn a_barrier_that_was_given_up_is_not_made_up_for_by_trying_again() {
    let told = told(3, |world| match world.rank() {
        // It mostly waits with rank 0.
        0 | 1 => vec![world.barrier(), world.barrier()],
        _ => Vec::new(),
    });
    assert!(is_late(&told[0][0]) && told[0][1].is_err(), "{told:?}");
    assert!(told[1].iter().all(Result::is_err), "{told:?}");
}

/// Nor where that rank has left.
#[test]
fn a_barrier_that_a_rank_has_left_is_not_made_up_for_by_trying_again() {
    let has_tried = Barrier::new(2);
    let rank_main = |end: Arc<LocalFabric>| {
        let world = World::new(end, WorldOptions::default()).expect("it communicates with nobody");
        // What is on the boards of the one that leaves.
        let mut told = vec![world.barrier(), world.barrier()];
        match world.rank() {
            0 => {
                told.extend([world.barrier(), world.barrier()]);
                has_tried.wait();
            }
            1 => {
                has_tried.wait();
                told.push(world.barrier());
            }
            _ => {}
        }
        told.split_off(2)
    };
    let told: Vec<_> = std::thread::scope(|scope| {
        let ends = LocalFabric::ends(3).expect("there is memory");
        let ranks: Vec<_> = ends.into_iter().map(|end| scope.spawn(|| rank_main(end))).collect();
        ranks.into_iter().map(|rank| rank.join().expect("no rank panics")).collect()
    });
    let left = |result: &Result<()>| matches!(result, Err(Error::PeerFailed { .. }));
    assert!(told[0].iter().chain(&told[1]).all(left), "{told:?}");
}

/// A rank that has given up, and tries again, is ahead of the others, and not missing.
#[test]
fn whoever_gives_up_as_well_names_the_rank_that_has_not_come() {
    let ends = LocalFabric::ends(3).expect("there is memory");
    let region = ends[0].allocate(Boards::bytes(3)).expect("there is memory");
    let of_rank = |end: Arc<LocalFabric>| Boards::new(end, region.clone(), 3).expect("it is long enough");
    let boards: Vec<Boards> = ends.into_iter().map(of_rank).collect();
    for (rank, round) in [(0, 1), (1, 1), (0, 2)] {
        boards[rank].rounds.set(round);
        boards[rank].board(rank).rounds.store(round, Ordering::Relaxed);
    }
    assert_eq!([0, 1].map(|rank| boards[rank].missing()), [1, 2]);
    // What others have said stands.
    boards[0].head().late.store(2 + 1, Ordering::Release);
    assert_eq!([0, 1].map(|rank| boards[rank].give_up(3, Duration::ZERO)), [Some(2); 2]);
}
