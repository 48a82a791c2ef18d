//! Timelines: what comes before what, on every backend and kind of stream. No test looks at how long anything takes.

use std::sync::Barrier;
use streamhalo::comm::Error;
use streamhalo::comm::device::{Buffer, Extents};
use streamhalo::comm::timeline::{Activity, Lane, Span, Timeline};
use streamhalo::prelude::*;
use streamhalo_tests::{KINDS, Scenario, each_way, on_ranks, stream_of};

const STREAM: Lane = Lane::Stream(0);
const STEPS: usize = 6;
/// Room for all spans of a test.
const ENOUGH: usize = 10_000;

/// What a rank has recorded, and the payload bytes of one exchange.
struct Recorded {
    timeline: Timeline,
    bytes: usize,
}

/// Exchanges of one field of two generations, each followed by a kernel; `overlaps` puts another one between the
/// halves of the exchange.
fn record(
    world: &World,
    scenario: Scenario,
    layout: [usize; 2],
    overlaps: bool,
) -> Result<Recorded, HaloError> {
    let stream = stream_of(world, scenario.kind)?;
    let grid = GlobalGrid::new([12, 10], [true, true])?.partition_as(world, layout)?.local(1)?;
    let mut cells = Alternating::<f64, 2>::zeros(&grid, Entity::Cell, &stream)?;
    let mut halo = StreamHalo::new(world, &stream, scenario.backend, Pattern::All, 1, &mut cells)?;
    let owned = grid.owned(Entity::Cell).tile();
    world.barrier()?;
    stream.record_timeline(ENOUGH)?;
    for step in 0..STEPS {
        stream.mark(&format!("step {step}"));
        if overlaps {
            let mut in_flight = halo.begin_gather(&mut cells)?;
            stream.launch(
                "inner",
                owned,
                in_flight.now_and_next()?,
                |_, (_, _): (Rows<'_, f64>, RowsMut<'_, f64>)| {},
            )?;
            in_flight.finish()?;
        } else {
            halo.enqueue_gather(&mut cells)?;
        }
        stream.launch(
            "kernel",
            owned,
            cells.now_and_next()?,
            |tile, (now, mut next): (Rows<'_, f64>, RowsMut<'_, f64>)| {
                for (i, j) in tile.rows() {
                    next.row(i, j).copy_from_slice(now.span(i, j, tile.start[2]..tile.end[2]));
                }
            },
        )?;
        cells.swap();
    }
    stream.mark("end");
    stream.synchronize()?;
    let timeline = stream.take_timeline().expect("one is kept");
    world.barrier()?;
    Ok(Recorded { timeline, bytes: halo.bytes_per_exchange() })
}

/// The spans of a lane with one of these activities, in order.
fn those<'a>(timeline: &'a Timeline, lane: Lane, activities: &[Activity]) -> Vec<&'a Span> {
    let spans = timeline.spans.iter();
    spans.filter(|span| span.lane == lane && activities.contains(&span.activity)).collect()
}

/// Whether it is a part of a send that was put off, and so comes when a receiver is ready.
fn is_late(span: &Span, timeline: &Timeline) -> bool {
    let put_off = those(timeline, STREAM, &[Activity::Deferred]);
    matches!(span.activity, Activity::Pack | Activity::Trigger)
        && put_off.iter().any(|other| other.operation == span.operation)
}

fn check_order(timeline: &Timeline, case: &str) {
    assert_eq!(timeline.dropped, 0, "{case}");
    let lane: Vec<&Span> = timeline.spans.iter().filter(|span| span.lane == STREAM).collect();
    let mut last: Option<&Span> = None;
    for span in &lane {
        assert!(span.begin_ns <= span.end_ns, "{case}: {span:?}");
        let outer = lane.iter().find(|outer| {
            outer.activity == Activity::Wait && outer.begin_ns <= span.begin_ns && span.end_ns <= outer.end_ns
        });
        if is_late(span, timeline) && outer.is_some() {
            continue;
        }
        if let Some(last) = last {
            assert!(last.end_ns <= span.begin_ns, "{case}: {span:?} overlaps {last:?}");
            assert!(
                last.operation <= span.operation || is_late(span, timeline),
                "{case}: {span:?} was enqueued before {last:?}"
            );
        }
        if !is_late(span, timeline) {
            last = Some(span);
        }
    }
    let enqueued = those(timeline, Lane::Host, &[Activity::Enqueue, Activity::Mark]);
    for (number, call) in enqueued.iter().enumerate() {
        assert_eq!(call.operation, Some(number as u64), "{case}: {call:?}");
        let first = lane.iter().find(|span| span.operation == call.operation);
        let first = first.unwrap_or_else(|| panic!("{case}: nothing was done of {call:?}"));
        assert!(call.begin_ns <= first.begin_ns, "{case}: {first:?} came before {call:?}");
    }
    let numbers = lane.iter().filter_map(|span| span.operation).max();
    assert_eq!(numbers, Some(enqueued.len() as u64 - 1), "{case}");
}

/// Every payload is in place before the wait for it ends.
fn check_messages(ranks: &[Recorded], scenario: Scenario, case: &str) {
    let waits: Vec<Vec<&Span>> = ranks
        .iter()
        .map(|rank| match scenario.backend {
            "standard" => those(&rank.timeline, Lane::Host, &[Activity::Wait]),
            _ => those(&rank.timeline, STREAM, &[Activity::Wait]),
        })
        .collect();
    for (rank, recorded) in ranks.iter().enumerate() {
        assert_eq!(waits[rank].len(), STEPS, "{case}: rank {rank} waits once for each exchange");
        let packs = those(&recorded.timeline, STREAM, &[Activity::Pack]);
        let bytes: usize = packs.iter().filter_map(|span| span.bytes).sum();
        assert_eq!(bytes, STEPS * recorded.bytes, "{case}: rank {rank}");
        for (peer, waits_of_peer) in waits.iter().enumerate() {
            let of_peer: Vec<_> = packs.iter().filter(|span| span.peer == Some(peer)).collect();
            assert_eq!(of_peer.len(), if peer == rank { 0 } else { STEPS }, "{case}: {rank} to {peer}");
            for (exchange, pack) in of_peer.into_iter().enumerate() {
                let wait = waits_of_peer[exchange];
                assert!(pack.end_ns <= wait.end_ns, "{case}: {pack:?} on {rank}, but {wait:?} on {peer}");
            }
        }
        let unpacks = those(&recorded.timeline, STREAM, &[Activity::Unpack]);
        for (wait, unpack) in waits[rank].iter().zip(&unpacks) {
            assert!(wait.end_ns <= unpack.begin_ns, "{case}: {unpack:?} before {wait:?} had ended");
        }
        assert_eq!(unpacks.len(), STEPS, "{case}");
    }
}

/// Only `standard` makes the host wait between the first step and the end.
fn check_host(timeline: &Timeline, scenario: Scenario, case: &str) {
    let marks = those(timeline, Lane::Host, &[Activity::Mark]);
    let (first, end) = (marks.first().expect("is there"), marks.last().expect("is there"));
    let waits = timeline.spans.iter().filter(|span| span.is_host_waiting());
    let waits = waits.filter(|span| first.begin_ns <= span.begin_ns && span.begin_ns < end.begin_ns);
    let expected = if scenario.backend == "standard" { 2 * STEPS } else { 0 };
    assert_eq!(waits.count(), expected, "{case}");
}

#[test]
fn what_depends_on_something_comes_after_it() {
    for scenario in each_way() {
        for layout in [[1, 1], [2, 1], [2, 2]] {
            for overlaps in [false, true] {
                let case = format!("{scenario:?}, {layout:?}, overlaps: {overlaps}");
                let ranks = layout.iter().product();
                let ranks = on_ranks(ranks, |world| record(world, scenario, layout, overlaps));
                for recorded in &ranks {
                    check_order(&recorded.timeline, &case);
                    check_host(&recorded.timeline, scenario, &case);
                }
                check_messages(&ranks, scenario, &case);
            }
        }
    }
}

#[test]
fn a_kernel_between_both_halves_lies_between_sending_and_waiting() {
    for scenario in each_way() {
        let ranks = on_ranks(2, |world| record(world, scenario, [2, 1], true));
        for Recorded { timeline, .. } in &ranks {
            let kernels = those(timeline, STREAM, &[Activity::Kernel]);
            let inner: Vec<_> = kernels.iter().filter(|span| span.name == "inner").collect();
            let lane = if scenario.backend == "standard" { Lane::Host } else { STREAM };
            let waits = those(timeline, lane, &[Activity::Wait]);
            let sends = those(timeline, STREAM, &[Activity::Pack, Activity::Deferred]);
            let begun: Vec<_> = sends.iter().filter(|span| !is_late(span, timeline)).collect();
            assert_eq!((inner.len(), waits.len(), begun.len()), (STEPS, STEPS, STEPS), "{scenario:?}");
            for ((kernel, wait), send) in inner.iter().zip(&waits).zip(&begun) {
                assert!(send.end_ns <= kernel.begin_ns, "{scenario:?}: {kernel:?} before {send:?}");
                // The host that waits for messages itself has only enqueued the kernel.
                if lane == STREAM {
                    assert!(kernel.end_ns <= wait.begin_ns, "{scenario:?}: {wait:?} before {kernel:?}");
                }
            }
        }
    }
}

#[test]
fn a_send_whose_receiver_is_late_is_put_off_and_carried_out_in_the_wait() {
    let begun = Barrier::new(2);
    let timelines = on_ranks(2, |world| {
        let stream = stream_of(world, KINDS[0])?;
        let grid = GlobalGrid::new([8, 8], [true, true])?.partition_as(world, [2, 1])?.local(1)?;
        let mut cells = Array::<f64, 2>::zeros(&grid, Entity::Cell, &stream)?;
        let mut halo = StreamHalo::new(world, &stream, "st-send", Pattern::All, 1, &mut cells)?;
        stream.record_timeline(ENOUGH)?;
        if world.rank() == 0 {
            let in_flight = halo.begin_gather(&mut cells)?;
            begun.wait();
            in_flight.finish()?;
        } else {
            begun.wait();
            halo.gather(&mut cells)?;
        }
        Ok(stream.take_timeline().expect("one is kept"))
    });
    let put_off = those(&timelines[0], STREAM, &[Activity::Deferred]);
    assert_eq!(put_off.len(), 1, "its receiver had not begun");
    let parts = those(&timelines[0], STREAM, &[Activity::Pack, Activity::Trigger]);
    assert_eq!(parts.iter().map(|span| span.operation).collect::<Vec<_>>(), [put_off[0].operation; 2]);
    let wait = those(&timelines[0], STREAM, &[Activity::Wait])[0];
    for part in parts {
        assert!(wait.begin_ns <= part.begin_ns && part.end_ns <= wait.end_ns, "{part:?} in {wait:?}");
        assert_eq!(part.peer, Some(1));
    }
    assert_eq!(those(&timelines[1], STREAM, &[Activity::Deferred]).len(), 0, "its receiver had begun");
}

/// Enqueues functions with these names.
fn functions(stream: &Stream, names: impl IntoIterator<Item = usize>) {
    names.into_iter().for_each(|name| stream.enqueue_host(&name.to_string(), || Ok(())));
}

#[test]
fn nothing_is_kept_unless_it_is_asked_for() {
    let world = World::alone().expect("a world of one rank");
    for kind in KINDS {
        let stream = stream_of(&world, kind).expect("the system has threads");
        functions(&stream, 0..3);
        stream.mark("nowhere");
        assert!(!stream.is_recorded() && stream.take_timeline().is_none(), "{kind:?}");

        stream.record_timeline(ENOUGH).expect("there is memory");
        functions(&stream, 3..5);
        let timeline = stream.take_timeline().expect("one is kept");
        let names = |timeline: &Timeline| -> Vec<String> {
            let spans = those(timeline, STREAM, &Activity::ALL);
            spans.iter().map(|span| span.name.clone().into_owned()).collect()
        };
        assert_eq!(names(&timeline), ["3", "4"], "{kind:?}: not what came before");
        functions(&stream, 5..7);
        assert!(!stream.is_recorded() && stream.take_timeline().is_none(), "{kind:?}: nor what comes after");

        stream.record_timeline(ENOUGH).expect("there is memory");
        functions(&stream, 7..8);
        let timeline = stream.take_timeline().expect("one is kept");
        assert_eq!(names(&timeline), ["7"], "{kind:?}");
        assert!(timeline.spans.iter().all(|span| span.operation == Some(0)), "{kind:?}: counted anew");
    }
}

#[test]
fn what_there_is_no_room_for_is_counted() {
    let world = World::alone().expect("a world of one rank");
    for kind in KINDS {
        let stream = stream_of(&world, kind).expect("the system has threads");
        stream.record_timeline(8).expect("there is memory");
        functions(&stream, 0..50);
        let timeline = stream.take_timeline().expect("one is kept");
        assert_eq!((timeline.spans.len(), timeline.dropped), (8, 92), "{kind:?}: two for each function");
        let last = timeline.spans.iter().rfind(|span| span.lane == STREAM);
        assert_eq!(last.map(|span| &*span.name), Some("49"), "{kind:?}: the newest are kept");
    }
}

#[test]
fn streams_of_a_rank_can_share_a_timeline() {
    let world = World::alone().expect("a world of one rank");
    for kind in KINDS {
        let [first, second, third] =
            [(); 3].map(|()| stream_of(&world, kind).expect("the system has threads"));
        first.record_timeline(ENOUGH).expect("there is memory");
        second.join_timeline(&first).expect("nothing has failed");
        second.join_timeline(&third).expect("without effect");
        functions(&first, 0..1);
        functions(&second, 1..3);
        functions(&third, 3..4);
        second.synchronize().expect("nothing fails");
        let timeline = first.take_timeline().expect("one is kept");
        let of_lane = |lane| those(&timeline, lane, &[Activity::Function]).len();
        assert_eq!([STREAM, Lane::Stream(1), Lane::Stream(2)].map(of_lane), [1, 2, 0], "{kind:?}");
        let waits: Vec<_> = timeline.spans.iter().filter(|span| span.is_host_waiting()).collect();
        assert_eq!(waits.iter().map(|span| span.stream).collect::<Vec<_>>(), [1], "{kind:?}");
    }
}

#[test]
fn a_stream_that_fails_leaves_its_timeline() {
    for kind in KINDS {
        // It fails with its stream.
        let world = World::alone().expect("a world of one rank");
        let stream = stream_of(&world, kind).expect("the system has threads");
        let row = Extents { points: [1, 1, 4], components: 1 };
        let mut buffer = Buffer::<f64>::zeros(&world, &stream, row).expect("there is memory");
        stream.record_timeline(ENOUGH).expect("there is memory");
        let writer = buffer.writer(row.whole()).expect("is within");
        let fails = |_: Tile, _: (RowsMut<'_, f64>,)| panic!("on purpose");
        stream.launch("fails", row.whole(), (writer,), fails).expect("is enqueued");
        functions(&stream, 0..3);
        let timeline = stream.take_timeline().expect("one is kept");
        let done = those(&timeline, STREAM, &Activity::ALL);
        assert_eq!(done.iter().map(|span| &*span.name).collect::<Vec<_>>(), ["fails"], "{kind:?}");
        let failed = stream.record_timeline(ENOUGH).expect_err("it has failed");
        assert!(matches!(failed, Error::KernelPanicked { .. }), "{kind:?}: {failed}");
    }
}

/// The bytes that a rank has copied within a field and sent in one exchange, as many as others like it, and how many its
/// ghosts have.
fn into_ghosts<const D: usize>(
    world: &World,
    cells: [usize; D],
    layout: [usize; D],
) -> Result<(usize, usize), HaloError> {
    let stream = Device::host().stream(world)?;
    let grid = GlobalGrid::new(cells, [true; D])?.partition_as(world, layout)?.local(1)?;
    let mut field = Array::<f64, D>::zeros(&grid, Entity::Cell, &stream)?;
    let mut halo = StreamHalo::new(world, &stream, "st-send", Pattern::All, 1, &mut field)?;
    world.barrier()?;
    stream.record_timeline(ENOUGH)?;
    halo.gather(&mut field)?;
    let timeline = stream.take_timeline().expect("one is kept");
    let copies = those(&timeline, STREAM, &[Activity::Copy]);
    let copied: usize = copies.iter().filter_map(|span| span.bytes).sum();
    let owned: usize = grid.owned(Entity::Cell).len();
    let all: usize = grid.owned(Entity::Cell).extents().iter().map(|cells| cells + 2).product();
    Ok((copied + halo.bytes_per_exchange(), (all - owned) * size_of::<f64>()))
}

/// Of fields that are too large for the caches, whose folds are made part by part.
#[test]
fn each_ghost_is_stored_once() {
    for layout in [[1, 1], [1, 2], [2, 1], [2, 2]] {
        on_ranks(layout.iter().product(), |world| {
            let (stored, ghosts) = into_ghosts(world, [700, 640], layout)?;
            assert_eq!(stored, ghosts, "{layout:?}");
            Ok(())
        });
    }
    for layout in [[1, 1, 1], [1, 1, 2], [1, 2, 1], [2, 1, 1], [1, 2, 2]] {
        on_ranks(layout.iter().product(), |world| {
            let (stored, ghosts) = into_ghosts(world, [40, 72, 64], layout)?;
            assert_eq!(stored, ghosts, "{layout:?}");
            Ok(())
        });
    }
}
