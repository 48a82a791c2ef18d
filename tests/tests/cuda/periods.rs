//! Periods that are captured on a GPU's stream and replayed by graphs: the same cells as without, and nobody of the host in
//! the loop.

use super::gpu;
use streamhalo::comm::fabric::Executor;
use streamhalo::{Pattern, Signals, StreamKind, Waits};
use streamhalo_tests::cases::offsets;
use streamhalo_tests::cases::on_device::{check_failures, replays_as_steps, replays_with_a_rank_that_fails};
use streamhalo_tests::cases::periods::{Stepped, without_the_host};
use streamhalo_tests::{Scenario, on_ranks, outcomes, set_signals, set_waits, stream_of, ways_of};

const WAYS: [Signals; 2] = [Signals::Kernel, Signals::Merged];

fn triggered() -> impl Iterator<Item = (Scenario, Signals)> {
    let ways = ways_of(StreamKind::Device).filter(|way| way.backend != "standard");
    ways.flat_map(|way| WAYS.map(|signals| (way, signals)))
}

#[test]
fn replays_give_what_steps_give() {
    let Some((_, _turn)) = gpu() else { return };
    for signals in [Signals::Kernel, Signals::Merged, Signals::Memop] {
        let worlds = [
            (1, 20, Pattern::All),
            (2, 1_100, Pattern::All),
            (2, 700, offsets(&[&[1, 0], &[-1, 1]])),
            (4, 40, Pattern::All),
        ];
        replays_as_steps(&worlds, || set_signals(signals));
    }
}

#[test]
fn a_hundred_replayed_exchanges_without_the_host() {
    let Some((_, _turn)) = gpu() else { return };
    for (way, signals) in triggered() {
        let periods = on_ranks(2, |world| {
            set_waits(Waits::Kernel);
            set_signals(signals);
            let (period, graphs) = without_the_host(world, way, true)?;
            let period = period.expect("it is captured");
            assert_eq!(
                (period.executor(), period.reason()),
                (Executor::Stream, None),
                "{way:?}, {signals:?}"
            );
            Ok(graphs)
        });
        assert_eq!(periods, [10, 10], "{way:?}, {signals:?}");
    }
}

#[test]
fn memory_operations_are_replayed_by_the_thread() {
    let Some((_, _turn)) = gpu() else { return };
    let reasons = on_ranks(2, |world| {
        set_signals(Signals::Memop);
        let way = Scenario { backend: "st-rsend", kind: StreamKind::Device };
        let stream = stream_of(world, way.kind)?;
        let period = Stepped::new(world, &stream, way, 20, Pattern::All)?.capture(2)?;
        assert_eq!(period.executor(), Executor::Proxy);
        Ok(period.reason().map(str::to_owned))
    });
    assert!(reasons.iter().flatten().all(|reason| reason.contains("memop")), "{reasons:?}");
}

#[test]
fn a_rank_that_fails_ends_the_replays_of_the_others() {
    let Some((_, _turn)) = gpu() else { return };
    for (way, signals) in triggered() {
        let results = outcomes(2, |world| {
            set_waits(Waits::Kernel);
            set_signals(signals);
            replays_with_a_rank_that_fails(world, way)
        });
        check_failures(results, &(way, signals));
    }
}
