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

/// The ends of a world, rank 0 of which waits for a moment only.
fn ends(size: usize) -> Vec<(Arc<LocalFabric>, WorldOptions)> {
    let options = |rank| {
        let timeout = Some(Duration::from_millis(if rank == 0 { 50 } else { 20_000 }));
        WorldOptions { timeout, ..WorldOptions::default() }
    };
    let ends = LocalFabric::ends(size).expect("there is memory");
    ends.into_iter().map(|end| (end.clone(), options(end.rank()))).collect()
}

fn is_over(result: Result<()>, late: usize) {
    let error = result.expect_err("others have given up");
    let Error::CollectiveFailed { rank, reason, .. } = &error else { panic!("{error}") };
    assert_eq!(*rank, late, "{error}");
    assert!(reason.contains("for it, and given up"), "{error}");
}

#[test]
fn a_rank_that_comes_when_others_have_given_up_is_told_so() {
    let given_up = Barrier::new(2);
    std::thread::scope(|scope| {
        for (end, options) in ends(2) {
            let given_up = &given_up;
            scope.spawn(move || {
                let world = World::new(end, options).expect("it communicates with nobody");
                for _ in 0..3 {
                    world.barrier().expect("all come to it");
                }
                if world.rank() == 0 {
                    let late = world.barrier();
                    assert!(matches!(late, Err(Error::TimedOut { rank: 0, peer: 1, .. })), "{late:?}");
                    given_up.wait();
                } else {
                    given_up.wait();
                    is_over(world.barrier(), 1);
                }
                is_over(world.barrier(), 1);
                is_over(world.all_gather(&7).map(drop), 1);
            });
        }
    });
}

/// Rank 2 comes to none of the barriers that follow: the one that rank 0 tries again is not taken for its arrival.
#[test]
fn a_barrier_that_was_given_up_is_not_made_up_for_by_trying_again() {
    let over = Barrier::new(3);
    std::thread::scope(|scope| {
        for (end, options) in ends(3) {
            let over = &over;
            scope.spawn(move || {
                let world = World::new(end, options).expect("it communicates with nobody");
                world.barrier().expect("all come to it");
                match world.rank() {
                    0 => {
                        let late = world.barrier();
                        assert!(matches!(late, Err(Error::TimedOut { rank: 0, .. })), "{late:?}");
                        is_over(world.barrier(), 2);
                    }
                    // It waits with rank 0.
                    1 => (0..2).for_each(|_| is_over(world.barrier(), 2)),
                    _ => {}
                }
                over.wait();
            });
        }
    });
}
