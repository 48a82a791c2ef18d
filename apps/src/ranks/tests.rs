//! What becomes of ranks that misbehave. Processes take the same way, and are tested from outside.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use streamhalo::{Alternating, Device, Entity, GlobalGrid, World, WorldOptions};

use super::{Work, carry_out, cause, guarded, patient};
use crate::error::AppError;
use crate::interrupt::Interrupt;

/// What the last rank does, while the others wait for it.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
enum Last {
    Joins,
    Panics,
    PanicsInAKernel,
    GivesAnError,
    NeverComes,
}

impl Work for Last {
    const NAME: &'static str = "test";

    type Report = (usize, u32);

    fn options(&self) -> WorldOptions {
        // Nobody waits in vain but for one that never comes.
        let timeout = match self {
            Self::NeverComes => Duration::from_millis(300),
            _ => Duration::from_secs(20),
        };
        WorldOptions { timeout: Some(timeout), ..WorldOptions::default() }
    }

    fn on_rank(&self, world: &World, report: &mut dyn FnMut((usize, u32))) -> Result<(), AppError> {
        for count in 0..3 {
            report((world.rank(), count));
        }
        if world.rank() + 1 == world.size() {
            match self {
                Self::Joins => {}
                Self::Panics => panic!("out of cheese"),
                Self::PanicsInAKernel => return panic_in_a_kernel(world),
                Self::GivesAnError => {
                    return Err(GlobalGrid::new([0], [true]).map(|_| ()).unwrap_err().into());
                }
                Self::NeverComes => {
                    // The others have given up by then, on a busy machine too.
                    std::thread::sleep(Duration::from_secs(2));
                    return Ok(());
                }
            }
        }
        Ok(world.barrier()?)
    }
}

fn panic_in_a_kernel(world: &World) -> Result<(), AppError> {
    let stream = Device::host().stream(world)?;
    let grid = GlobalGrid::new([world.size(), 4], [true; 2])?.partition(world)?.local(1)?;
    let mut cells = Alternating::<u8, 2>::zeros(&grid, Entity::Cell, &stream)?;
    let tile = grid.owned(Entity::Cell).tile();
    stream.launch("life", tile, cells.now_and_next()?, |_, _| panic!("out of cheese"))?;
    assert!(stream.check().is_err(), "an inline stream has run it");
    Ok(stream.synchronize()?)
}

fn outcome(ranks: usize, last: Last, interrupt: &Interrupt) -> (Result<(), String>, Vec<(usize, u32)>) {
    let mut reports = Vec::new();
    let result = carry_out("local", ranks, last, interrupt, &mut |report| reports.push(report));
    (result.map_err(|error| error.to_string()), reports)
}

#[test]
fn reports_are_those_of_rank_0_in_order() {
    for ranks in [1, 3] {
        let (result, reports) = outcome(ranks, Last::Joins, &Interrupt::that_came(0));
        assert_eq!((result, reports), (Ok(()), vec![(0, 0), (0, 1), (0, 2)]));
    }
}

#[test]
fn the_rank_that_failed_first_is_named_with_what_it_did() {
    for (last, message) in [
        (Last::Panics, "rank 2 failed: it panicked: out of cheese"),
        (Last::PanicsInAKernel, "rank 2 failed: kernel `life` panicked on rank 2: out of cheese"),
        (Last::GivesAnError, "rank 2 failed: axis 0 has 0 cells"),
        (Last::NeverComes, "failed: rank "),
    ] {
        let (result, _) = outcome(3, last, &Interrupt::that_came(0));
        let found = result.expect_err("the last rank misbehaves");
        assert!(found.contains(message), "{last:?}: {found}");
    }
}

/// An error that all ranks have names one of them, and any of them may be the first to tell it.
#[test]
fn whoever_tells_what_another_rank_could_not_do_names_that_rank() {
    let results = World::threads(3, WorldOptions::default(), |world| {
        if world.rank() == 0 {
            return guarded(&world, || Err(AppError::Rank { rank: 1, message: "no cheese".to_owned() }));
        }
        Ok(world.barrier()?)
    });
    let errors = results.expect("threads can be started").into_iter().enumerate();
    let causes = errors.map(|(rank, result)| cause(rank, result.expect_err("nobody goes on")).to_string());
    assert_eq!(causes.collect::<Vec<_>>(), ["rank 1 failed: no cheese"; 3]);
}

#[test]
fn an_interruption_does_not_wait_for_ranks() {
    let (result, _) = outcome(2, Last::NeverComes, &Interrupt::that_came(2));
    assert_eq!(result, Err("interrupted; earlier results are untouched".to_owned()));
}

#[test]
fn other_fabrics_start_nothing() {
    let result = carry_out("mpi", 2, Last::Joins, &Interrupt::that_came(0), &mut |_| {});
    assert!(result.expect_err("is none of ours").to_string().contains("are started by an MPI launcher"));
}

/// Reports that are awaited, and what was done in which order. Each rank goes on behind rank 0.
#[derive(Clone, Default, Serialize, Deserialize)]
struct Awaited {
    #[serde(skip)]
    events: Arc<Mutex<Vec<&'static str>>>,
}

impl Awaited {
    fn note(&self, event: &'static str) {
        self.events.lock().expect("nobody panics").push(event);
    }
}

impl Work for Awaited {
    const NAME: &'static str = "test";

    type Report = bool;

    fn options(&self) -> WorldOptions {
        WorldOptions { timeout: Some(Duration::from_millis(1_500)), ..WorldOptions::default() }
    }

    fn is_awaited(report: &bool) -> bool {
        *report
    }

    fn on_rank(&self, world: &World, report: &mut dyn FnMut(bool)) -> Result<(), AppError> {
        let patient = patient(world)?;
        report(false);
        report(true);
        patient.barrier()?;
        self.note("a rank goes on");
        Ok(())
    }
}

#[test]
fn ranks_go_on_once_the_leader_is_through_and_wait_as_long_as_it_takes() {
    let work = Awaited::default();
    let receive = &mut |report| {
        // Longer than any other wait of these ranks may be.
        std::thread::sleep(Duration::from_millis(if report { 2_000 } else { 0 }));
        work.note(if report { "through" } else { "told" });
    };
    carry_out("local", 2, work.clone(), &Interrupt::that_came(0), receive).expect("nobody gives up");
    let events = work.events.lock().expect("nobody panics");
    assert_eq!(*events, ["told", "through", "a rank goes on", "a rank goes on"]);
}
