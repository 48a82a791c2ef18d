//! Periods that are captured and replayed on the host's streams: the same cells as without, and what is refused.

use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use streamhalo::comm::Error;
use streamhalo::comm::collective::{AllReduce, Barrier};
use streamhalo::comm::device::{Buffer, Extents};
use streamhalo::comm::fabric::Executor;
use streamhalo::comm::queue::Queue;
use streamhalo::{Device, Event, HaloError, Pattern, Period, Stream, StreamKind, World, WorldOptions};
use streamhalo_tests::cases::offsets;
use streamhalo_tests::cases::periods::{Stepped, periods, without_the_host};
use streamhalo_tests::{
    KINDS, Scenario, at_once, each_way, on_ranks, outcomes, stream_of, until, watchdog, ways_of,
};

use std::time::Duration;

#[test]
fn replays_give_what_steps_give() {
    for ranks in 1..=3 {
        for columns in [3, 40, 1_100] {
            on_ranks(ranks, |world| {
                each_way().try_for_each(|way| periods(world, way, columns, &Pattern::All).map(|_| ()))
            });
        }
        // Credits of receivers go one way.
        let pattern = offsets(&[&[1, 0], &[-1, 1]]);
        on_ranks(ranks, |world| each_way().try_for_each(|way| periods(world, way, 40, &pattern).map(|_| ())));
    }
}

#[test]
fn a_hundred_exchanges_without_the_host() {
    for way in ways_of(StreamKind::Threaded).filter(|way| way.backend != "standard") {
        for is_captured in [false, true] {
            on_ranks(2, |world| {
                let (period, _) = without_the_host(world, way, is_captured)?;
                assert_eq!(period.map(|period| period.executor()), is_captured.then_some(Executor::Stream));
                Ok(())
            });
        }
    }
}

/// What is refused by name; with a capture of something else before and behind.
fn refused(
    stream: &Stream,
    stepped: &mut Stepped,
    mut enqueue: impl FnMut(&Stream, &mut Stepped) -> Result<(), HaloError>,
) -> String {
    let captured: Result<Period, HaloError> = stream.capture(|stream| {
        stepped.steps(2)?;
        enqueue(stream, stepped)
    });
    match captured.expect_err("it is refused") {
        HaloError::Communication(error @ Error::NotCapturable { .. }) => error.to_string(),
        error => panic!("{error}"),
    }
}

#[test]
fn what_cannot_be_captured_is_refused_by_name() {
    for kind in KINDS {
        on_ranks(2, |world| {
            let stream = stream_of(world, kind)?;
            let way = Scenario { backend: "st-rsend", kind };
            let mut stepped = Stepped::new(world, &stream, way, 20, Pattern::All)?;
            let other = Stepped::new(world, &stream, way, 20, Pattern::All)?;
            let mut other = Some(other);
            let event = Event::new();
            let mut said = Vec::new();
            said.push(refused(&stream, &mut stepped, |stream, _| {
                stream.enqueue_host("reading the tide table", || Ok(()));
                Ok(())
            }));
            said.push(refused(&stream, &mut stepped, |stream, _| {
                stream.enqueue_clock(|_| ());
                Ok(())
            }));
            said.push(refused(&stream, &mut stepped, |stream, _| {
                stream.record(&event);
                Ok(())
            }));
            said.push(refused(&stream, &mut stepped, |stream, _| {
                stream.wait_event(&event);
                Ok(())
            }));
            said.push(refused(&stream, &mut stepped, |stream, _| Ok(stream.synchronize()?)));
            said.push(refused(&stream, &mut stepped, |stream, _| {
                stream.capture(|_| Ok::<(), HaloError>(())).map(|_| ())
            }));
            // Although its error is not passed on.
            said.push(refused(&stream, &mut stepped, |stream, stepped| {
                let _ = stepped.owned();
                stream.check()?;
                Ok(())
            }));
            let period = stepped.capture(2)?;
            said.push(refused(&stream, &mut stepped, |stream, _| Ok(stream.replay(&period, 1)?)));
            said.push(refused(&stream, &mut stepped, |_, _| {
                let other = other.as_mut().expect("it is there");
                other.steps(3)
            }));
            said.push(refused(&stream, &mut stepped, |_, _| {
                let Stepped { halo, cells, .. } = other.as_mut().expect("it is there");
                // Never finished.
                std::mem::forget(halo.begin_gather(cells)?);
                Ok(())
            }));
            for (said, part) in said.iter().zip([
                "host function `reading the tide table` cannot be captured",
                "a reading of the clock cannot be captured",
                "an event cannot be captured",
                "an event cannot be captured",
                "waiting for the stream cannot be captured",
                "a capture cannot be captured: the stream is captured already",
                "waiting for the stream cannot be captured",
                "a replay cannot be captured",
                "an even number of each exchange: 2 or 4",
                "an exchange that is begun only cannot be captured: finish it within the period",
            ]) {
                assert!(said.contains(part), "{said}, and not {part}");
            }
            // Nothing was carried out, and all goes on.
            stream.replay(&period, 2)?;
            stepped.steps(3)?;
            stepped.assert_after(7, &kind)?;
            let other = other.as_mut().expect("it is there");
            other.steps(3)?;
            other.assert_after(3, &kind)
        });
    }
}

#[test]
fn an_exchange_that_began_before_is_not_finished_within() {
    on_ranks(2, |world| {
        let way = Scenario { backend: "st-send", kind: StreamKind::Threaded };
        let stream = stream_of(world, way.kind)?;
        let mut stepped = Stepped::new(world, &stream, way, 20, Pattern::All)?;
        let period = stepped.capture(2)?;
        let in_flight = stepped.halo.begin_gather(&mut stepped.cells)?;
        match stream.replay(&period, 1).expect_err("its exchange is in flight") {
            Error::OutOfOrder { call: "replay", reason } => assert!(reason.contains("in flight"), "{reason}"),
            error => panic!("{error}"),
        }
        in_flight.finish()?;
        stepped.compute()?;
        let view = stepped.cells.now().owned()?;
        match stream.replay(&period, 1).expect_err("a view would change") {
            Error::OutOfOrder { call: "replay", reason } => {
                assert!(reason.contains("drop the view"), "{reason}")
            }
            error => panic!("{error}"),
        }
        drop(view);
        match stream.replay(&period, 1).expect_err("it begins in the other generation") {
            Error::OutOfOrder { call: "replay", reason } => {
                assert!(reason.contains("enqueue one more"), "{reason}");
            }
            error => panic!("{error}"),
        }
        stepped.step()?;
        stream.replay(&period, 0)?;
        stream.replay(&period, 1)?;
        stepped.assert_after(4, &way)
    });
}

#[test]
fn a_period_belongs_to_its_stream() {
    let world = World::alone().expect("a world of one rank");
    let [one, other] = [0, 1].map(|_| Device::host().stream(&world).expect("a stream"));
    let period = one.capture(|_| Ok::<(), Error>(())).expect("nothing is in it");
    let expected = Error::WrongStream { what: "a period", owner: one.id(), used: other.id() };
    assert_eq!(other.replay(&period, 1), Err(expected));
    assert_eq!((one.replay(&period, 1), period.operations(), period.reason()), (Ok(()), 0, None));
}

#[test]
fn collectives_are_replayed_and_queues_are_not() {
    for kind in KINDS {
        on_ranks(3, |world| {
            let stream = stream_of(world, kind)?;
            let extents = Extents { points: [1, 1, 1], components: 1 };
            let mut own = Buffer::<i64>::zeros(world, &stream, extents)?;
            own.with_host_mut(extents.whole(), |mut view| view.fill(world.rank() as i64 + 1))?;
            let section = own.section(0..1)?;
            let op = streamhalo::Op::Sum;
            let mut sum = AllReduce::new(world, &stream, &section, &section, op)?;
            let mut barrier = Barrier::new(world, &stream)?;
            let capture = |count: usize, sum: &mut AllReduce, barrier: &mut Barrier| {
                stream.capture(|_| {
                    (0..count).try_for_each(|_| {
                        sum.enqueue()?;
                        barrier.enqueue()
                    })
                })
            };
            assert!(matches!(capture(1, &mut sum, &mut barrier), Err(Error::NotCapturable { .. })));
            let period = capture(2, &mut sum, &mut barrier)?;
            let queue = Queue::new(&stream);
            let refused = stream.capture(|_| queue.enqueue_start_all(&mut []));
            assert!(
                matches!(&refused, Err(Error::NotCapturable { what, .. }) if what == "enqueue_start_all"),
                "{refused:?}"
            );
            sum.enqueue()?;
            sum.enqueue()?;
            barrier.enqueue()?;
            barrier.enqueue()?;
            stream.replay(&period, 2)?;
            // 1 + 2 + 3, and three times that with each sum.
            assert_eq!(own.copy_out(extents.whole())?, [6 * 3_i64.pow(5)], "{kind:?}");
            Ok(())
        });
    }
}

#[test]
fn a_period_keeps_what_it_uses() {
    for way in each_way().filter(|way| way.backend != "standard") {
        on_ranks(2, |world| {
            let stream = stream_of(world, way.kind)?;
            let mut twin = Stepped::new(world, &stream, way, 30, Pattern::All)?;
            let extents = Extents { points: [1, 1, 1], components: 1 };
            let mut total = Buffer::<i64>::zeros(world, &stream, extents)?;
            let mut stepped = Stepped::new(world, &stream, way, 30, Pattern::All)?;
            let add_up = |stepped: &mut Stepped, stream: &Stream, total: &mut Buffer<i64>| {
                for _ in 0..2 {
                    stepped.step()?;
                    let (reader, writer) = (stepped.cells.now().reader()?, total.writer(extents.whole())?);
                    let tile = stepped.tile();
                    stream.launch(
                        "add up",
                        extents.whole(),
                        (reader, writer),
                        move |one, (cells, mut total)| {
                            let row = total.row(one.start[0], one.start[1]);
                            for (i, j) in tile.rows() {
                                row[0] += cells.span(i, j, tile.start[2]..tile.end[2]).iter().sum::<i64>();
                            }
                        },
                    )?;
                }
                Ok::<(), HaloError>(())
            };
            let period = stream.capture(|stream| add_up(&mut stepped, stream, &mut total))?;
            drop(stepped);
            world.barrier()?;
            stream.replay(&period, 4)?;
            let found = total.copy_out(extents.whole())?[0];
            let mut expected = 0;
            for _ in 0..8 {
                twin.step()?;
                expected += twin.owned()?.iter().sum::<i64>();
            }
            assert_eq!(found, expected, "{way:?}");
            Ok(())
        });
    }
}

/// Rank 1 fails, or is late, while the others replay.
fn replay_with_a_rank_that(fails: bool, way: Scenario) -> Vec<Result<(), HaloError>> {
    // It is set up, captured and replayed in that time too, on a machine that has other things to do.
    let soon = WorldOptions { timeout: Some(Duration::from_secs(2)), policy: None };
    let options = if fails { watchdog() } else { soon };
    let is_over = AtomicBool::new(false);
    let results = World::threads(2, options, |world| {
        let stream = stream_of(&world, way.kind)?;
        let mut stepped = Stepped::new(&world, &stream, way, 20, Pattern::All)?;
        let period = stepped.capture(2)?;
        stream.replay(&period, 2)?;
        stream.synchronize()?;
        if world.rank() == 1 {
            if fails {
                stream.enqueue_host("reading the tide table", || Err("it is wet".into()));
                return Ok(stream.synchronize()?);
            }
            until(&is_over);
            return Ok(());
        }
        let replayed = stream.replay(&period, 1_000_000).and_then(|()| stream.synchronize());
        is_over.store(true, Ordering::Release);
        Ok(replayed?)
    });
    results.expect("threads can be started")
}

#[test]
fn a_rank_that_fails_or_is_late_ends_the_replays_of_the_others() {
    let ways: Vec<_> = each_way().filter(|way| way.backend != "standard").collect();
    at_once(&ways, |&way| {
        match replay_with_a_rank_that(true, way).remove(0).expect_err("rank 1 fails") {
            HaloError::Communication(Error::PeerFailed { rank: 1, .. }) => {}
            error => panic!("{way:?}: {error}"),
        }
        match replay_with_a_rank_that(false, way).remove(0).expect_err("nothing comes") {
            HaloError::Communication(Error::TimedOut { rank: 0, peer: 1, .. }) => {}
            error => panic!("{way:?}: {error}"),
        }
    });
}

#[test]
fn a_timeline_has_all_that_is_replayed() {
    for kind in KINDS {
        let spans = on_ranks(2, |world| {
            let way = Scenario { backend: "notified", kind };
            let stream = stream_of(world, kind)?;
            let mut stepped = Stepped::new(world, &stream, way, 20, Pattern::All)?;
            let period = stepped.capture(2)?;
            stream.record_timeline(1000)?;
            stream.replay(&period, 3)?;
            let timeline = stream.take_timeline().expect("it keeps one");
            stepped.assert_after(6, &way)?;
            let kernels = timeline.spans.iter().filter(|span| span.name == "spread");
            Ok(kernels.count())
        });
        assert_eq!(spans, [6, 6], "{kind:?}");
    }
}

#[test]
fn a_panic_within_a_capture_leaves_the_stream_as_it_was() {
    let results = outcomes(1, |world| {
        let way = Scenario { backend: "st-rsend", kind: StreamKind::Inline };
        let stream = stream_of(world, way.kind)?;
        let mut stepped = Stepped::new(world, &stream, way, 20, Pattern::All)?;
        let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _ = stream.capture(|_| {
                stepped.steps(2)?;
                if stepped.stream.id() == stream.id() {
                    panic!("a panic of the application's");
                }
                Ok::<(), HaloError>(())
            });
        }));
        assert!(caught.is_err());
        stepped.steps(3)?;
        stepped.assert_after(3, &way)
    });
    results.into_iter().for_each(|result| result.expect("the stream goes on"));
}

thread_local! {
    /// What a kernel finds beside its arguments.
    static BESIDE: RefCell<Option<Buffer<i64>>> = const { RefCell::new(None) };
}

/// A kernel that is launched has its arrays borrowed until it has run; one that is replayed here and now does not.
#[test]
fn a_kernel_of_a_period_that_is_replayed_cannot_use_arrays_beside_its_own() -> Result<(), HaloError> {
    let world = World::alone()?;
    let stream = Device::host().stream(&world)?;
    let line = Extents { points: [1, 1, 4], components: 1 };
    BESIDE.set(Some(Buffer::zeros(&world, &stream, line)?));
    let refusals = Arc::new(Mutex::new(Vec::new()));
    let period = BESIDE.with_borrow_mut(|beside| {
        let beside = beside.as_mut().expect("it is there");
        let refusals = refusals.clone();
        stream.capture::<Error>(|stream| {
            let writer = beside.writer(line.whole())?;
            stream.launch("meddling", line.whole(), (writer,), move |_, (mut rows,)| {
                rows.row(0, 0)[0] += 1;
                BESIDE.with_borrow_mut(|beside| {
                    let beside = beside.as_mut().expect("it is there");
                    let view = beside.view(line.whole()).map(drop);
                    let writer = beside.writer(line.whole()).map(drop);
                    let copy = beside.copy_out(line.whole()).map(drop);
                    refusals.lock().unwrap().extend([view, writer, copy]);
                });
            })
        })
    })?;
    stream.replay(&period, 2)?;
    let refusals = std::mem::take(&mut *refusals.lock().unwrap());
    assert_eq!(refusals.len(), 6);
    for refused in refusals {
        assert!(
            matches!(&refused, Err(Error::OutOfOrder { reason, .. }) if reason.contains("is being replayed")),
            "{refused:?}"
        );
    }
    let cells = BESIDE.take().expect("it is there").copy_out(line.whole())?;
    assert_eq!(cells, [2, 0, 0, 0], "what was refused before is not afterwards");
    Ok(())
}
