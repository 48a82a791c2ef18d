//! Every backend between ranks whose arrays are on a GPU, in every way to wait and to signal.

use super::gpu;
use std::time::Duration;
use streamhalo::comm::device::Count;
use streamhalo::{Event, GlobalGrid, Pattern, Signals, StreamHalo, StreamKind, Waits, World};
use streamhalo_tests::cases::ALTERNATING;
use streamhalo_tests::cases::leaving::each_exchange;
use streamhalo_tests::cases::on_device::{
    IMPATIENT, Lateness, all_as_on_the_host, check_failures, check_lateness, with_a_rank_that_fails,
    with_a_rank_that_is_late,
};
use streamhalo_tests::cases::timed::timed;
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
            let by = if ways.0 == Waits::Proxy { "proxy" } else { "stream" };
            all_as_on_the_host(world, at_length, by, &ways)
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
            let mut halo = StreamHalo::new(world, &stream, way.backend, Pattern::All, 1, &mut fields)?;
            fields.fill(1)?;
            let before = (stream.synchronizations(), stream.count(Count::KernelWaits));
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
            Ok(stream.count(Count::KernelWaits) - before.1)
        });
        assert!(counts.iter().all(|count| *count > 0), "{counts:?}: {way:?}, {ways:?}");
    }
}

#[test]
fn timelines_say_when_the_gpu_did_what() {
    let Some((_, _turn)) = gpu() else { return };
    for ((way, ways), ranks) in in_all_ways().flat_map(|way| [1, 2].map(|ranks| (way, ranks))) {
        on_ranks(ranks, |world| {
            set(ways);
            timed(world, way)
        });
    }
}

#[test]
fn a_rank_that_fails_ends_the_waits_of_the_others() {
    let Some((_, _turn)) = gpu() else { return };
    for (way, ways) in in_all_ways() {
        let results = outcomes(3, |world| {
            set(ways);
            with_a_rank_that_fails(world, way)
        });
        check_failures(results, &(way, ways));
    }
}

#[test]
fn an_exchange_that_a_peer_has_dropped_ends_at_once() {
    let Some((_, _turn)) = gpu() else { return };
    for (way, ways) in in_all_ways() {
        each_exchange(2, way, &|| set(ways));
    }
}

#[test]
fn a_wait_ends_with_the_time_out() {
    let Some((_, _turn)) = gpu() else { return };
    for (way, ways) in in_all_ways() {
        let lateness = Lateness::default();
        let results = World::threads(2, IMPATIENT, |world| {
            set(ways);
            with_a_rank_that_is_late(&world, way, &lateness)
        });
        check_lateness(results.expect("threads can be started"), &(way, ways));
    }
}
