//! The backends and the primitives below them between two ranks that are threads, at sizes that miri can follow: it sees
//! data races, and memory that is used against the rules, which other tests only meet by what they happen to spoil.

use std::time::Duration;
use streamhalo::comm::backend::backend_names;
use streamhalo::comm::fabric::WaitPolicy;
use streamhalo::comm::{ElementType, Op};
use streamhalo::{Entity, HaloError, World, WorldOptions};
use streamhalo_tests::cases::{
    Done, GatherCase, ScatterCase, active, collectives, notify, queues, stream_collectives,
};
use streamhalo_tests::{FieldSpec, KINDS, Scenario, expect_all};

/// Runs it on two ranks with either kind of stream. Miri takes its time.
fn on_two(run: impl Fn(&World, Scenario) -> Result<Done, HaloError> + Sync, backend: &'static str) {
    // A rank that looks gives the others no time there.
    let policy = WaitPolicy { spins: 1, yields: u32::MAX, sleeps: false };
    let options = WorldOptions { policy: Some(policy), timeout: Some(Duration::from_secs(600)) };
    for kind in KINDS {
        let way = Scenario { backend, kind };
        let ranks = World::threads(2, options, |world| run(&world, way).map(|_| ()));
        expect_all(ranks.expect("threads start"));
    }
}

#[test]
fn gathers() {
    let field = FieldSpec::alternating(ElementType::F64, Entity::Cell, 1);
    let case = GatherCase { epochs: 3, ..GatherCase::new([2, 4], [1, 2], field) };
    backend_names().for_each(|backend| on_two(|world, way| case.run_way(world, way), backend));
}

#[test]
fn scatters() {
    let case = ScatterCase::new([2, 4], [1, 2]);
    let value = |rank, local: [usize; 2], _| (100 * rank + 10 * local[0] + local[1]) as i32;
    let run = |world: &World, way| case.check_op(world, [way].into_iter(), Op::Sum, value);
    backend_names().for_each(|backend| on_two(run, backend));
}

#[test]
fn notified_access() {
    on_two(|world, way| notify::counting(world, way, 7), "notified");
    on_two(notify::gets, "notified");
    on_two(|world, way| notify::accumulates::<f64>(world, way, 5), "notified");
}

#[test]
fn active_targets() {
    on_two(|world, way| active::ring(world, way, 5), "active-rma");
}

#[test]
fn matched_requests() {
    for ready in [false, true] {
        on_two(|world, way| queues::halo(world, way, [1, 2], ([2, 3], 3, ready)), "st-send");
    }
}

#[test]
fn enqueued_messages() {
    on_two(|world, way| queues::operations(world, way, 3), "st-send");
}

#[test]
fn collective_calls() {
    on_two(collectives::barriers, "standard");
    on_two(|world, way| stream_collectives::reductions::<f64>(world, way, &[3]), "standard");
}
