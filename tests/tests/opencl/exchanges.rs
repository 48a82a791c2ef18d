//! Every backend between ranks whose arrays are on a device: the cases of the conformance suites, with the
//! answers of the host.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};
use streamhalo::ElementType::{F64, U8};
use streamhalo::comm::device::Count;
use streamhalo::{
    Device, Entity, GlobalGrid, HaloError, MemoryMode, Pattern, Signals, StreamHalo, StreamKind, Waits, World,
};
use streamhalo_tests::cases::leaving::each_exchange;
use streamhalo_tests::cases::on_device::{
    IMPATIENT, Lateness, all_as_on_the_host, check_failures, check_lateness, with_a_rank_that_fails,
    with_a_rank_that_is_late,
};
use streamhalo_tests::cases::{ALTERNATING, CELLS};
use streamhalo_tests::{
    FieldSet, FieldSpec, Scenario, expect_all, in_both_memories, in_memory, on_ranks, other_device, outcomes,
    set_signals, set_waits, stream_of, ways_of,
};

/// The device may have one compute unit only for kernels that wait: tests whose kernels do take turns.
pub(super) static TURNS: Mutex<()> = Mutex::new(());

/// Where arrays are, who waits for other ranks, and how is signalled: each of them once, at least.
pub(super) const WAYS: [(MemoryMode, Waits, Signals); 3] = [
    (MemoryMode::Shared, Waits::Kernel, Signals::Kernel),
    (MemoryMode::Separate, Waits::Kernel, Signals::Merged),
    (MemoryMode::Separate, Waits::Proxy, Signals::Kernel),
];

fn turn() -> MutexGuard<'static, ()> {
    TURNS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// All cases, or those that are tried over every fabric, in every way on that many ranks. The device of continuous integration works on two kernels at a
/// time: four ranks are more than that.
fn all_cases(ranks: usize, waits: Waits, at_length: bool) {
    if other_device().is_none() {
        return;
    }
    let _turn = (waits == Waits::Kernel).then(turn);
    for (memory, signals, at_length) in [
        (MemoryMode::Shared, Signals::Kernel, at_length),
        (MemoryMode::Separate, Signals::Kernel, at_length && ranks == 2),
        (MemoryMode::Separate, Signals::Merged, false),
    ] {
        in_memory(memory, || cases_on(ranks, waits, signals, at_length));
    }
}

fn cases_on(ranks: usize, waits: Waits, signals: Signals, at_length: bool) {
    on_ranks(ranks, |world| {
        set_waits(waits);
        set_signals(signals);
        let by = if waits == Waits::Kernel { "stream" } else { "proxy" };
        all_as_on_the_host(world, at_length, by, &(waits, signals))
    });
}

#[test]
fn one_rank() {
    all_cases(1, Waits::Proxy, true);
}

#[test]
fn two_ranks() {
    all_cases(2, Waits::Proxy, true);
}

#[test]
fn three_ranks() {
    all_cases(3, Waits::Kernel, false);
}

#[test]
fn more_ranks_than_the_device_has_workers() {
    all_cases(4, Waits::Proxy, false);
}

#[test]
fn two_ranks_whose_kernels_wait() {
    all_cases(2, Waits::Kernel, false);
}

/// As many waits as there are compute units would starve the kernels that they wait for.
#[test]
fn more_ranks_than_the_device_has_workers_whose_kernels_wait() {
    all_cases(4, Waits::Kernel, true);
}

#[test]
fn kernels_wait_where_the_device_can_spare_a_compute_unit() {
    if other_device().is_none() {
        return;
    }
    let _turn = turn();
    let ways = [(Waits::Kernel, "stream"), (Waits::Proxy, "proxy")];
    in_both_memories(|| ways.into_iter().for_each(|(waits, by)| kernels_wait(waits, by)));
}

fn kernels_wait(waits: Waits, by: &str) {
    let counts = on_ranks(2, |world| {
        set_waits(waits);
        let stream = stream_of(world, StreamKind::Device)?;
        let grid = GlobalGrid::new([8, 50], [true; 2])?.partition_as(world, [2, 1])?.local(1)?;
        let mut fields = FieldSet::new(&grid, &stream, &[ALTERNATING], &Pattern::All, [1, 1])?;
        let mut halo = StreamHalo::new(world, &stream, "st-rsend", Pattern::All, 1, &mut fields)?;
        for epoch in 1..=30 {
            fields.fill(epoch)?;
            halo.enqueue_gather(&mut fields)?;
            fields.check(epoch)?;
            fields.swap();
        }
        assert_eq!(
            stream.synchronizations(),
            3,
            "filling both generations has waited for it, and making the exchange"
        );
        fields.assert_right(&waits)?;
        assert_eq!(halo.routes()[0].executor.to_string(), by);
        Ok(stream.count(Count::KernelWaits))
    });
    let all: u64 = counts.iter().sum();
    // One compute unit always stays free, so that not every wait of both ranks can be a kernel's.
    assert!(if waits == Waits::Kernel { all > 0 } else { all == 0 }, "{counts:?} with {waits:?}");
}

#[test]
fn only_standard_waits_for_the_stream() {
    if other_device().is_none() {
        return;
    }
    in_both_memories(who_waits);
}

fn who_waits() {
    on_ranks(2, |world| with_nobody_that_waits(world, ""));
}

/// Five gathers of every backend, for which only `standard` synchronises the stream; the reason of every route ends so.
pub(super) fn with_nobody_that_waits(world: &World, reason: &str) -> Result<(), HaloError> {
    for way in ways_of(StreamKind::Device) {
        let stream = stream_of(world, way.kind)?;
        let grid = GlobalGrid::new([8, 50], [true; 2])?.partition_as(world, [2, 1])?.local(1)?;
        let specs = [CELLS, FieldSpec::array(U8, Entity::Cell, 3)];
        let mut fields = FieldSet::new(&grid, &stream, &specs, &Pattern::All, [1, 1])?;
        let mut halo = StreamHalo::new(world, &stream, way.backend, Pattern::All, 1, &mut fields)?;
        let before = stream.synchronizations();
        for epoch in 1..=5 {
            fields.fill(epoch)?;
            halo.enqueue_gather(&mut fields)?;
            fields.check(epoch)?;
        }
        let expected = if way.backend == "standard" { 5 } else { 0 };
        assert_eq!(stream.synchronizations() - before, expected, "{way:?}");
        fields.assert_right(&way)?;
        for route in halo.routes() {
            let by = if way.backend == "standard" { "host" } else { "proxy" };
            assert_eq!(route.executor.to_string(), by, "{way:?}");
            assert!(route.reason.ends_with(reason), "{}", route.reason);
        }
    }
    Ok(())
}

#[test]
fn messages_of_every_path_arrive() {
    if other_device().is_none() {
        return;
    }
    // Words and payloads are on the same lines where the host addresses both.
    let mut expected = BTreeSet::from([
        "packed into the peer's buffer",
        "packed, eager",
        "packed, rendezvous",
        "packed, with its signal",
        "straight into ghosts",
    ]);
    in_both_memories(|| {
        assert_eq!(paths_of_messages(), expected);
        expected.remove("packed, with its signal");
    });
}

fn paths_of_messages() -> BTreeSet<&'static str> {
    let paths = on_ranks(2, |world| {
        let mut paths = BTreeSet::new();
        for way in ways_of(StreamKind::Device) {
            for (row, spec) in [(8, CELLS), (40, ALTERNATING), (2_000, CELLS)] {
                let case = streamhalo_tests::cases::GatherCase::new([4, row], [2, 1], spec);
                paths.extend(case.run_way(world, way)?.paths);
            }
        }
        Ok(paths)
    });
    paths.into_iter().next().expect("the first rank's")
}

fn in_both_ways() -> impl Iterator<Item = (Scenario, Waits)> {
    ways_of(StreamKind::Device).flat_map(|way| [Waits::Proxy, Waits::Kernel].map(|waits| (way, waits)))
}

#[test]
fn a_rank_that_fails_ends_the_waits_of_the_others() {
    if other_device().is_none() {
        return;
    }
    let _turn = turn();
    in_both_memories(|| {
        for (way, waits) in in_both_ways() {
            let results = outcomes(3, |world| {
                set_waits(waits);
                with_a_rank_that_fails(world, way)
            });
            check_failures(results, &(way, waits));
        }
    });
}

#[test]
fn an_exchange_that_a_peer_has_dropped_ends_at_once() {
    if other_device().is_none() {
        return;
    }
    let _turn = turn();
    in_both_memories(|| {
        for (way, waits) in in_both_ways() {
            each_exchange(2, way, &|| set_waits(waits));
        }
    });
}

#[test]
fn a_wait_ends_with_the_time_out() {
    if other_device().is_none() {
        return;
    }
    let _turn = turn();
    for (way, waits) in in_both_ways() {
        let lateness = Lateness::default();
        let results = World::threads(2, IMPATIENT, |world| {
            set_waits(waits);
            with_a_rank_that_is_late(&world, way, &lateness)
        });
        check_lateness(results.expect("threads can be started"), &(way, waits));
    }
}

#[test]
fn ranks_on_different_devices_do_not_match() {
    let Some(device) = other_device() else { return };
    let names = [device.name().to_owned(), "host".to_owned()];
    for way in ways_of(StreamKind::Device) {
        let results = outcomes(2, |world| {
            let device = if world.rank() == 0 { Device::opencl("")? } else { Device::host() };
            let stream = device.stream(world)?;
            let grid = GlobalGrid::new([8, 20], [true; 2])?.partition_as(world, [2, 1])?.local(1)?;
            let mut fields = FieldSet::new(
                &grid,
                &stream,
                &[FieldSpec::array(F64, Entity::Cell, 1)],
                &Pattern::All,
                [1, 1],
            )?;
            StreamHalo::new(world, &stream, way.backend, Pattern::All, 1, &mut fields).map(|_| ())
        });
        for result in results {
            let said = result.expect_err("one device for all").to_string();
            assert!(names.iter().all(|name| said.contains(name)), "{said}");
        }
    }
}

#[test]
fn ranks_of_threads_that_come_later_share_the_device() {
    if other_device().is_none() {
        return;
    }
    for _ in 0..3 {
        let results = World::threads(2, streamhalo_tests::watchdog(), |world| {
            let way = Scenario { backend: "notified", kind: StreamKind::Device };
            streamhalo_tests::cases::GatherCase::new([4, 9], [1, 2], CELLS).run_way(&world, way)
        });
        let done = expect_all(results.expect("threads can be started"));
        assert_eq!(done.len(), 2);
    }
}

#[test]
fn ranks_whose_arrays_are_elsewhere_do_not_match() {
    if other_device().is_none() {
        return;
    }
    let results = outcomes(2, |world| {
        let modes = [MemoryMode::Shared, MemoryMode::Separate];
        let stream = Device::opencl("")?.with_memory(modes[world.rank()])?.stream(world)?;
        let grid = GlobalGrid::new([8, 20], [true; 2])?.partition_as(world, [2, 1])?.local(1)?;
        let mut fields = FieldSet::new(&grid, &stream, &[CELLS], &Pattern::All, [1, 1])?;
        StreamHalo::new(world, &stream, "st-send", Pattern::All, 1, &mut fields).map(|_| ())
    });
    for result in results {
        let said = result.expect_err("one memory for all").to_string();
        assert!(said.contains("separate memory"), "{said}");
    }
}

#[test]
fn payloads_and_signals_are_one_kernel_where_they_can() {
    if other_device().is_none() {
        return;
    }
    in_both_memories(|| {
        for (signals, each) in [(Signals::Kernel, 0), (Signals::Merged, 5)] {
            on_ranks(3, |world| {
                set_signals(signals);
                for way in ways_of(StreamKind::Device) {
                    let stream = stream_of(world, way.kind)?;
                    let grid = GlobalGrid::new([9, 50], [true; 2])?.partition_as(world, [3, 1])?.local(1)?;
                    let mut fields = FieldSet::new(&grid, &stream, &[ALTERNATING], &Pattern::All, [1, 1])?;
                    let mut halo =
                        StreamHalo::new(world, &stream, way.backend, Pattern::All, 1, &mut fields)?;
                    let sends = halo.routes().len() as u64;
                    for epoch in 1..=5 {
                        fields.fill(epoch)?;
                        halo.enqueue_gather(&mut fields)?;
                        fields.check(epoch)?;
                        fields.swap();
                    }
                    fields.assert_right(&way)?;
                    assert_eq!(sends, 2);
                    // Sends wait for their receivers one by one; those that wait for nobody, or for all, go together.
                    let kernels = match way.backend {
                        "standard" => 0,
                        "st-send" => each * sends,
                        _ => each,
                    };
                    assert_eq!(stream.count(Count::MergedSends), kernels, "{way:?}, {sends} sends");
                }
                Ok(())
            });
        }
    });
}
