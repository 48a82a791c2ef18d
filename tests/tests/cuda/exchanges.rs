//! Every backend between ranks whose arrays are on a GPU, in every way to wait and to signal.

use super::gpu;
use std::collections::BTreeSet;
use std::time::Duration;
use streamhalo::comm::Error;
use streamhalo::{
    Event, GlobalGrid, HaloError, Pattern, Signals, StreamHalo, StreamKind, Waits, World, WorldOptions,
};
use streamhalo_tests::cases::{ALTERNATING, CELLS, cases_for};
use streamhalo_tests::{FieldSet, Scenario, on_ranks, outcomes, set_signals, set_waits, stream_of, ways_of};

/// Who waits, and how is signalled; with memory operations the queue waits too.
type Ways = (Waits, Signals);

const ON_THE_GPU: [Ways; 3] =
    [(Waits::Kernel, Signals::Kernel), (Waits::Kernel, Signals::Merged), (Waits::Auto, Signals::Memop)];
const OTHERS: [Ways; 2] = [(Waits::Proxy, Signals::Kernel), (Waits::Kernel, Signals::Memop)];

fn all_ways() -> impl Iterator<Item = Ways> {
    ON_THE_GPU.into_iter().chain(OTHERS)
}

fn in_all_ways() -> impl Iterator<Item = (Scenario, Ways)> {
    ways_of(StreamKind::Device).flat_map(|way| all_ways().map(move |ways| (way, ways)))
}

fn set((waits, signals): Ways) {
    set_waits(waits);
    set_signals(signals);
}

fn all_cases(ranks: usize, at_length: bool) {
    let Some((_, _turn)) = gpu() else { return };
    for ways in all_ways() {
        on_ranks(ranks, |world| {
            set(ways);
            for case in cases_for(ranks, at_length) {
                for way in ways_of(StreamKind::Device) {
                    let found = case.run(world, way)?;
                    let expected = case.run(world, Scenario { kind: StreamKind::Inline, ..way })?;
                    assert_eq!(found.checksum, expected.checksum, "`{}`, {way:?}, {ways:?}", case.name);
                    let of_stream = if ways.0 == Waits::Proxy { "proxy" } else { "stream" };
                    let by = if way.backend == "standard" { "host" } else { of_stream };
                    let allowed = BTreeSet::from([by.to_owned(), "stream".to_owned()]);
                    assert!(found.executors.is_subset(&allowed), "{:?} in `{}`", found.executors, case.name);
                }
            }
            Ok(())
        });
    }
}

#[test]
fn one_rank() {
    all_cases(1, true);
}

#[test]
fn two_ranks() {
    all_cases(2, true);
}

#[test]
fn three_ranks() {
    all_cases(3, false);
}

#[test]
fn four_ranks() {
    all_cases(4, true);
}

/// Nobody waits for a stream until its last exchange is done, and the GPU does all waits but `standard`'s.
#[test]
fn a_hundred_exchanges_without_the_host() {
    let Some((_, _turn)) = gpu() else { return };
    let ways = ways_of(StreamKind::Device).filter(|way| way.backend != "standard");
    for (way, ways) in ways.flat_map(|way| ON_THE_GPU.map(|ways| (way, ways))) {
        let counts = on_ranks(2, |world| {
            set(ways);
            let stream = stream_of(world, way.kind)?;
            let grid = GlobalGrid::new([8, 50], [true; 2])?.partition_as(world, [2, 1])?.local(1)?;
            let mut fields = FieldSet::new(&grid, &stream, &[ALTERNATING], &Pattern::All, [1, 1])?;
            let mut halo = StreamHalo::new(world, &stream, way.backend, Pattern::All, 1, &fields)?;
            fields.fill(1)?;
            let before = (stream.synchronizations(), stream.kernel_waits());
            for _ in 0..100 {
                halo.enqueue_gather(&mut fields)?;
                fields.swap();
            }
            let done = Event::new();
            stream.record(&done);
            // Asleep, but for a look.
            while !done.is_complete() && stream.check().is_ok() {
                std::thread::sleep(Duration::from_millis(20));
            }
            assert_eq!(stream.synchronizations(), before.0, "{way:?}, {ways:?}");
            stream.synchronize()?;
            Ok(stream.kernel_waits() - before.1)
        });
        assert!(counts.iter().all(|count| *count > 0), "{counts:?}: {way:?}, {ways:?}");
    }
}

#[test]
fn a_rank_that_fails_ends_the_waits_of_the_others() {
    let Some((_, _turn)) = gpu() else { return };
    for (way, ways) in in_all_ways() {
        let results = outcomes(3, |world| {
            set(ways);
            let stream = stream_of(world, way.kind)?;
            let grid = GlobalGrid::new([9, 20], [true; 2])?.partition_as(world, [3, 1])?.local(1)?;
            let mut fields = FieldSet::new(&grid, &stream, &[CELLS], &Pattern::All, [1, 1])?;
            let mut halo = StreamHalo::new(world, &stream, way.backend, Pattern::All, 1, &fields)?;
            if world.rank() == 1 {
                stream.enqueue_host("reading the tide table", || Err("it is wet".into()));
                return stream.synchronize().map_err(HaloError::from);
            }
            fields.fill(1)?;
            halo.enqueue_gather(&mut fields)?;
            Ok(stream.synchronize()?)
        });
        for (rank, result) in results.into_iter().enumerate() {
            match (rank, result.expect_err("rank 1 fails")) {
                (1, HaloError::Communication(Error::OperationFailed { .. })) => {}
                (0 | 2, HaloError::Communication(Error::PeerFailed { rank: 1, .. })) => {}
                (rank, error) => panic!("rank {rank}, {way:?}, {ways:?}: {error}"),
            }
        }
    }
}

#[test]
fn a_wait_ends_with_the_time_out() {
    let Some((_, _turn)) = gpu() else { return };
    let options = WorldOptions { timeout: Some(Duration::from_millis(300)), ..WorldOptions::default() };
    for (way, ways) in in_all_ways() {
        let results = World::threads(2, options, |world| {
            set(ways);
            let stream = stream_of(&world, way.kind)?;
            let grid = GlobalGrid::new([8, 20], [true; 2])?.partition_as(&world, [2, 1])?.local(1)?;
            let mut fields = FieldSet::new(&grid, &stream, &[CELLS], &Pattern::All, [1, 1])?;
            let mut halo = StreamHalo::new(&world, &stream, way.backend, Pattern::All, 1, &fields)?;
            if world.rank() == 0 {
                std::thread::sleep(Duration::from_millis(900));
                return Ok(());
            }
            fields.fill(1)?;
            halo.enqueue_gather(&mut fields)?;
            stream.synchronize()?;
            Ok::<(), HaloError>(())
        });
        match results.expect("threads can be started").remove(1).expect_err("nothing comes") {
            HaloError::Communication(Error::TimedOut { rank: 1, peer: 0, .. }) => {}
            error => panic!("{way:?}, {ways:?}: {error}"),
        }
    }
}
