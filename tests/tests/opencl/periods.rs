//! Periods that are captured on a device's stream: replayed by the device where its kernels wait, and by the stream's
//! thread elsewhere, to the same cells.

use super::exchanges::{TURNS, WAYS};
use std::sync::PoisonError;
use streamhalo::comm::Error;
use streamhalo::comm::device::{Buffer, Extents};
use streamhalo::comm::fabric::Executor;
use streamhalo::{HaloError, Pattern, StreamKind, Waits, World};
use streamhalo_tests::cases::offsets;
use streamhalo_tests::cases::on_device::{
    IMPATIENT, Lateness, check_failures, check_lateness, replays_as_steps, replays_with_a_rank_that_fails,
    replays_with_a_rank_that_is_late,
};
use streamhalo_tests::cases::periods::{Stepped, without_the_host};
use streamhalo_tests::{
    Scenario, in_both_memories, in_memory, on_ranks, other_device, outcomes, set_signals, set_waits,
    stream_of, ways_of,
};

fn triggered() -> impl Iterator<Item = Scenario> {
    ways_of(StreamKind::Device).filter(|way| way.backend != "standard")
}

#[test]
fn replays_give_what_steps_give() {
    if other_device().is_none() {
        return;
    }
    let _turn = TURNS.lock().unwrap_or_else(PoisonError::into_inner);
    for (memory, waits, signals) in WAYS {
        in_memory(memory, || {
            let worlds = [
                (1, 20, Pattern::All),
                (2, 20, Pattern::All),
                (2, 700, offsets(&[&[1, 0], &[-1, 1]])),
                (3, 40, Pattern::All),
            ];
            replays_as_steps(&worlds, || {
                set_waits(waits);
                set_signals(signals);
            });
        });
    }
}

/// The one compute unit for kernels that wait goes to one of the ranks; of the other one the thread replays.
#[test]
fn a_hundred_exchanges_without_the_host() {
    if other_device().is_none() {
        return;
    }
    let _turn = TURNS.lock().unwrap_or_else(PoisonError::into_inner);
    in_both_memories(|| {
        for waits in [Waits::Kernel, Waits::Proxy] {
            for (way, is_captured) in
                triggered().flat_map(|way| [false, true].map(|captured| (way, captured)))
            {
                let periods = on_ranks(2, |world| {
                    set_waits(waits);
                    let (period, graphs) = without_the_host(world, way, is_captured)?;
                    Ok((period.map(|period| (period.executor(), period.reason().map(str::to_owned))), graphs))
                });
                let graphs: u64 = periods.iter().map(|(_, graphs)| graphs).sum();
                assert_eq!(graphs > 0, is_captured && waits == Waits::Kernel, "{graphs}: {way:?}, {waits:?}");
                for (executor, reason) in periods.into_iter().filter_map(|(period, _)| period) {
                    match waits {
                        Waits::Kernel => assert_eq!((executor, reason), (Executor::Stream, None), "{way:?}"),
                        _ => {
                            let reason = reason.expect("the thread replays");
                            assert_eq!(executor, Executor::Proxy);
                            assert!(reason.contains("thread waits for other ranks"), "{reason}");
                        }
                    }
                }
            }
        }
    });
}

#[test]
fn kernels_of_the_host_are_no_part_of_a_period() {
    if other_device().is_none() {
        return;
    }
    on_ranks(2, |world| {
        let way = Scenario { backend: "notified", kind: StreamKind::Device };
        let stream = stream_of(world, way.kind)?;
        let mut stepped = Stepped::new(world, &stream, way, 20, Pattern::All)?;
        let tile = stepped.tile();
        let captured = stream.capture(|stream| {
            stepped.steps(2)?;
            let reader = stepped.cells.now().reader()?;
            Ok::<(), HaloError>(stream.launch_on_host("a look", tile, (reader,), |_, _| ())?)
        });
        let error = captured.expect_err("the device would have to rest").to_string();
        assert!(error.contains("kernel `a look`") && error.contains("launch_either"), "{error}");
        stepped.steps(2)?;
        stepped.assert_after(2, &way)
    });
}

#[test]
fn a_rank_that_fails_or_is_late_ends_the_replays_of_the_others() {
    if other_device().is_none() {
        return;
    }
    let _turn = TURNS.lock().unwrap_or_else(PoisonError::into_inner);
    for (way, waits) in triggered().flat_map(|way| [Waits::Kernel, Waits::Proxy].map(|waits| (way, waits))) {
        let results = outcomes(3, |world| {
            set_waits(waits);
            replays_with_a_rank_that_fails(world, way)
        });
        check_failures(results, &(way, waits));
        let lateness = Lateness::default();
        let results = World::threads(2, IMPATIENT, |world| {
            set_waits(waits);
            replays_with_a_rank_that_is_late(&world, way, &lateness)
        });
        check_lateness(results.expect("threads can be started"), &(way, waits));
    }
}

/// While another exchange is in flight, whose sends the thread serves, a graph would hold it up.
#[test]
fn an_exchange_that_is_in_flight_is_served_during_replays() {
    if other_device().is_none() {
        return;
    }
    let _turn = TURNS.lock().unwrap_or_else(PoisonError::into_inner);
    for way in triggered() {
        on_ranks(2, |world| {
            set_waits(Waits::Kernel);
            let stream = stream_of(world, way.kind)?;
            let mut stepped = Stepped::new(world, &stream, way, 20, Pattern::All)?;
            let mut other = Stepped::new(world, &stream, way, 30, Pattern::All)?;
            let period = stepped.capture(2)?;
            for _ in 0..3 {
                if world.rank() == 0 {
                    // Its receiver comes late.
                    std::thread::sleep(std::time::Duration::from_millis(5));
                }
                let in_flight = other.halo.begin_gather(&mut other.cells)?;
                stream.replay(&period, 2)?;
                in_flight.finish()?;
                other.compute()?;
            }
            other.assert_after(3, &way)?;
            stepped.assert_after(12, &way)
        });
    }
}

#[test]
fn a_period_with_two_exchanges_in_flight_is_the_threads() {
    if other_device().is_none() {
        return;
    }
    let _turn = TURNS.lock().unwrap_or_else(PoisonError::into_inner);
    for way in triggered() {
        on_ranks(2, |world| {
            set_waits(Waits::Kernel);
            let stream = stream_of(world, way.kind)?;
            let new = |columns| Stepped::new(world, &stream, way, columns, Pattern::All);
            let [one, other] = &mut [new(20)?, new(30)?];
            let [one, other] = if world.rank() == 0 { [one, other] } else { [other, one] };
            let period = stream.capture(|_| {
                for _ in 0..2 {
                    let first = one.halo.begin_gather(&mut one.cells)?;
                    let second = other.halo.begin_gather(&mut other.cells)?;
                    first.finish()?;
                    second.finish()?;
                    one.compute()?;
                    other.compute()?;
                }
                Ok::<(), HaloError>(())
            })?;
            // Those without conditions can go out at once.
            let is_served = matches!(way.backend, "st-send" | "active-rma");
            assert_eq!(period.executor() == Executor::Proxy, is_served, "{way:?}: {:?}", period.reason());
            stream.replay(&period, 3)?;
            one.assert_after(6, &way)?;
            other.assert_after(6, &way)
        });
    }
}

/// A queue that keeps times takes the place of the stream's while it is recorded, and what was captured then outlives it.
#[test]
fn a_period_that_was_captured_while_times_were_kept_is_in_order_with_the_stream() {
    if other_device().is_none() {
        return;
    }
    static SLOW: streamhalo::KernelText = streamhalo::KernelText {
        name: "slow",
        source: "KERNEL(slow)(TILE, WRITES(i64, out)) {\n\
                 POINT(i, j, k);\n\
                 i64 number = AT(out, i, j, k);\n\
                 for (int turn = 0; turn < 30000000; ++turn) number = number * 6364136223846793005 + 1;\n\
                 AT(out, i, j, k) = number | 1;\n}\n",
        reach: [0; 3],
    };
    on_ranks(1, |world| {
        set_waits(Waits::Kernel);
        let stream = stream_of(world, StreamKind::Device)?;
        let one = Extents { points: [1; 3], components: 1 };
        let mut cells = Buffer::<i64>::zeros(world, &stream, one)?;
        stream.record_timeline(100)?;
        let period = stream.capture(|stream| {
            let writer = (cells.writer(one.whole())?,);
            stream.launch_either(&SLOW, one.whole(), writer, |_, (mut out,)| out.row(0, 0)[0] |= 1)
        })?;
        stream.take_timeline().expect("it has been recorded");
        stream.replay(&period, 1)?;
        assert_eq!(cells.copy_out(one.whole())?[0] & 1, 1, "the copy has come before the kernel");
        Ok(())
    });
}

#[test]
fn a_kernel_that_does_not_compile_leaves_the_stream_as_it_was() {
    if other_device().is_none() {
        return;
    }
    static WRONG: streamhalo::KernelText = streamhalo::KernelText {
        name: "wrong",
        source: "KERNEL(wrong)(TILE, READS(i64, now), WRITES(i64, next)) {\n    nonsense;\n}\n",
        reach: [0; 3],
    };
    on_ranks(1, |world| {
        let way = Scenario { backend: "st-rsend", kind: StreamKind::Device };
        let stream = stream_of(world, way.kind)?;
        let mut stepped = Stepped::new(world, &stream, way, 20, Pattern::All)?;
        let tile = stepped.tile();
        let captured = stream.capture(|stream| {
            let arguments = stepped.cells.now_and_next()?;
            Ok::<(), HaloError>(stream.launch_either(&WRONG, tile, arguments, |_, _| ())?)
        });
        let error = captured.expect_err("it is nonsense");
        assert!(matches!(error, HaloError::Communication(Error::KernelDidNotCompile { .. })), "{error}");
        stepped.steps(2)?;
        stepped.assert_after(2, &way)
    });
}
