//! Active target epochs over threads, at length, and what a rank does to its peers in them.

use std::sync::mpsc;
use std::time::Duration;
use streamhalo::comm::Error;
use streamhalo::comm::device::Buffer;
use streamhalo::comm::fabric::{Event, Role, Throttling, WaitPolicy};
use streamhalo::comm::timeline::{Activity, Lane, Span};
use streamhalo::comm::window::{ActiveOptions, Group, Mode, Window};
use streamhalo::{HaloError, StreamKind, World, WorldOptions};
use streamhalo_tests::cases::active::{self, Ring};
use streamhalo_tests::cases::misused::Alone;
use streamhalo_tests::{KINDS, Scenario, TIMEOUT, expect_all, on_ranks, stream_of, watchdog};

fn ways() -> [Scenario; 2] {
    KINDS.map(|kind| Scenario { backend: "standard", kind })
}

#[test]
fn rings() {
    for ranks in [1, 2, 3, 4] {
        for way in ways() {
            for elements in [1, 5, 9_000] {
                on_ranks(ranks, |world| active::ring(world, way, elements));
            }
            on_ranks(ranks, |world| active::opposite_orders(world, way));
            on_ranks(ranks, |world| active::large(world, way));
        }
    }
}

#[test]
fn accumulates() {
    for ranks in [1, 2, 4] {
        for way in ways() {
            on_ranks(ranks, |world| active::accumulates::<u8>(world, way, 70));
            on_ranks(ranks, |world| active::accumulates::<i32>(world, way, 3_000));
            on_ranks(ranks, |world| active::accumulates::<i64>(world, way, 7));
            on_ranks(ranks, |world| active::accumulates::<f32>(world, way, 33));
            on_ranks(ranks, |world| active::accumulates::<f64>(world, way, 40));
        }
    }
}

#[test]
fn groups_of_any_kind() {
    for ranks in [1, 2, 3, 5] {
        for way in ways() {
            for seed in 0..10 {
                on_ranks(ranks, |world| active::at_random(world, way, seed));
            }
        }
    }
}

#[test]
fn kernels_use_sections_until_a_stream_completes_their_epoch() {
    for ranks in [1, 2, 3] {
        for way in ways() {
            on_ranks(ranks, |world| active::kernels_ahead(world, way));
        }
    }
}

/// Its targets have come to different counts, so that there is a send for each and a wait for either.
#[test]
fn whoever_sleeps_for_a_send_is_woken_before_another_is_waited_for() {
    let policy = WaitPolicy { spins: 1, yields: 1, sleeps: true };
    for kind in KINDS {
        let options = WorldOptions { policy: Some(policy), ..watchdog() };
        let ranks = World::threads(2, options, |world| {
            let alone = Alone::new(&world, kind, 1)?;
            let Alone { stream, window, all, .. } = &alone;
            let own = Group::new(&world, &[world.rank()])?;
            let mut kept = Vec::new();
            for group in [&own, all] {
                window.post_stream(group, stream)?;
                window.start(group, Mode::Stream)?;
                stream.record_timeline(100)?;
                window.complete_stream(stream)?;
                stream.synchronize()?;
                kept.push(stream.take_timeline().expect("one is kept"));
                window.wait_stream(stream)?;
            }
            stream.synchronize()?;
            let is_one = |span: &&Span| span.name == "wake-up" || span.activity == Activity::Wait;
            let spans = kept[1].spans.iter().filter(|span| span.lane == Lane::Stream(0)).filter(is_one);
            let found: Vec<_> = spans.map(|span| span.activity).collect();
            assert_eq!(found, [Activity::Signal, Activity::Wait, Activity::Wait], "{:?}", kept[1].spans);
            Ok::<(), HaloError>(())
        });
        expect_all(ranks.expect("threads can be started"));
    }
}

#[test]
fn little_room() {
    for ranks in [1, 2, 4] {
        on_ranks(ranks, |world| active::throttled(world, ways()[1]));
    }
}

/// What a rank does to one peer in an epoch, in the order in which it does it.
fn roles(events: &[Event], to: usize) -> Vec<Role> {
    events.iter().filter(|event| event.to == to).map(|event| event.role).collect()
}

#[test]
fn an_epoch_is_one_exposure_its_puts_and_one_completion() {
    let ranks = World::recorded_threads(4, watchdog(), |world, recording| {
        for kind in KINDS {
            let stream = stream_of(&world, kind)?;
            let mut ring = Ring::new(&world, &stream, 50, ActiveOptions::default())?;
            recording.take();
            for epoch in 0..6 {
                if epoch % 2 == 0 {
                    ring.step_stream()?
                } else {
                    ring.step_host(false)?
                }
                ring.finish()?;
                let events = recording.take();
                for peer in 0..4 {
                    let expected = match (peer + 4 - world.rank()) % 4 {
                        1 | 3 => vec![Role::Exposure, Role::Payload, Role::Completion],
                        _ => vec![],
                    };
                    assert_eq!(roles(&events, peer), expected, "rank {} to {peer}: {events:?}", world.rank());
                }
                // Both exposures go out together, before any put.
                let of = |role: Role| events.iter().filter(move |event| event.role == role).count();
                assert!(events[..2].iter().all(|event| event.role == Role::Exposure), "{events:?}");
                assert_eq!((of(Role::Payload), of(Role::Completion)), (2, 2));
                assert!(events.iter().all(|event| event.role != Role::Payload || event.bytes == 400));
            }
        }
        Ok::<(), HaloError>(())
    });
    expect_all(ranks.expect("threads can be started"));
}

/// How many signals the streams of four ranks take to expose their windows to groups, epoch after epoch, and how many
/// words that tells.
fn exposures(groups: impl Fn(usize) -> Vec<Vec<usize>> + Sync) -> Vec<Vec<[usize; 2]>> {
    let ranks = World::recorded_threads(4, watchdog(), |world, recording| {
        let stream = stream_of(&world, StreamKind::Inline)?;
        let part = Buffer::<i32>::zeros(&world, &stream, active::row(4))?;
        let window = Window::active(&world, &part.section(0..4)?, ActiveOptions::default())?;
        let mut counts = Vec::new();
        for group in groups(world.rank()) {
            let group = Group::new(&world, &group)?;
            recording.take();
            stream.record_timeline(100)?;
            window.post_stream(&group, &stream)?;
            window.start(&group, Mode::Stream)?;
            window.complete_stream(&stream)?;
            window.wait_stream(&stream)?;
            stream.synchronize()?;
            let timeline = stream.take_timeline().expect("one is kept");
            // Where ranks outnumber the cores, whoever sleeps is also woken.
            let is_signal = |span: &&Span| {
                span.activity == Activity::Signal
                    && span.name != "wake-up"
                    && matches!(span.lane, Lane::Stream(_))
            };
            let told = recording.take();
            counts.push([
                timeline.spans.iter().filter(is_signal).count(),
                told.iter().filter(|event| event.role == Role::Exposure).count(),
            ]);
        }
        Ok::<_, HaloError>(counts)
    });
    expect_all(ranks.expect("threads can be started"))
}

#[test]
fn ranks_that_have_come_to_the_same_epoch_are_told_by_one_signal() {
    // All others, one of them, and those that are left.
    let groups = |rank: usize| {
        let others = |without: usize| (0..4).filter(|peer| ![rank, without].contains(peer)).collect();
        let partner = rank ^ 1;
        vec![others(rank), vec![partner], others(rank), others(partner), others(rank)]
    };
    for counts in exposures(groups) {
        // The partner is an epoch ahead in the third one, until the others have caught up.
        assert_eq!(counts, [[1, 3], [1, 1], [2, 3], [1, 2], [1, 3]], "signals, and words");
    }
}

#[test]
fn each_policy_makes_room_in_its_own_way() {
    /// Epochs that fit; each is a post to one rank, and two puts to it with their completion.
    const EPOCHS: usize = 3;
    for throttling in Throttling::ALL {
        on_ranks(1, |world| {
            let stream = stream_of(world, StreamKind::Threaded)?;
            let entries = 4 * EPOCHS;
            let mut ring = Ring::new(world, &stream, 4, ActiveOptions { throttling, entries })?;
            let mut gates = Vec::new();
            for _ in 0..EPOCHS {
                let (open, opened) = mpsc::channel::<()>();
                stream.enqueue_host("a gate", move || opened.recv().map_err(|error| error.to_string()));
                ring.step_stream()?;
                gates.push(open);
            }
            assert_eq!(ring.window().entries_in_use(), entries);
            let open = |gates: &[mpsc::Sender<()>]| {
                gates.iter().for_each(|gate| gate.send(()).expect("the stream waits for it"));
            };
            let patience = match throttling {
                // Section 5.2.1: the application waits.
                Throttling::Application => {
                    let refused = ring.post_stream().expect_err("there is no room");
                    let call = "post_stream";
                    let expected = Error::Throttled { call, entries: 1, in_use: entries, limit: entries };
                    assert_eq!(refused, HaloError::Communication(expected));
                    open(&gates);
                    stream.synchronize()?;
                    ring.step_stream()?;
                    return ring.finish();
                }
                // Section 5.2.2: the host waits for all that was posted, and so for gates that are still closed.
                Throttling::Static => Duration::from_millis(50),
                // Section 5.2.3: the first epoch is enough.
                _ => TIMEOUT / 2,
            };
            let (made, was_made) = mpsc::channel();
            let opener = std::thread::spawn(move || {
                // The host has found no room by then.
                std::thread::sleep(Duration::from_millis(200));
                open(&gates[..1]);
                let is_late = was_made.recv_timeout(patience).is_err();
                open(&gates[1..]);
                is_late
            });
            ring.post_stream()?;
            let in_use = ring.window().entries_in_use();
            // The opener does not listen any more where it was late.
            _ = made.send(());
            let waited_for_all = opener.join().expect("it does not panic");
            match throttling {
                Throttling::Static => assert!(waited_for_all && in_use <= 1, "{in_use} entries are in use"),
                _ => assert!(!waited_for_all && in_use > 4, "{in_use} entries are in use"),
            }
            ring.access_stream()?;
            ring.wait_stream()?;
            ring.finish()?;
            assert_eq!(ring.window().entries_in_use(), 0);
            Ok(())
        });
    }
}

/// What an operation does with the part while that is exposed goes on until its own epoch is complete.
#[test]
fn an_operation_on_an_exposed_part_outlives_the_exposure() {
    on_ranks(2, |world| {
        let mut alone = Alone::new(world, StreamKind::Inline, 4)?;
        let whole = alone.part.extents().whole();
        for (mode, by) in
            [Mode::Host, Mode::Stream].into_iter().flat_map(|mode| [(mode, "a get"), (mode, "a put")])
        {
            let Alone { stream, part, window, none, .. } = &mut alone;
            if world.rank() == 1 {
                window.post(&Group::new(world, &[0])?)?;
                window.wait()?;
                continue;
            }
            let section = part.section(0..2)?;
            window.post(none)?;
            window.start(&Group::new(world, &[1])?, mode)?;
            match by {
                "a get" => window.get(&section, 1, 0)?,
                _ => window.put(&section, 1, 0)?,
            }
            // Two operations of a rank do not share what one of them writes.
            let other = window.get(&part.section(1..3)?, 1, 1);
            assert!(
                matches!(other, Err(Error::InUse { what: "a get", by: found, .. }) if found == by),
                "{other:?}"
            );
            window.wait()?;
            let refused = part.view_mut(whole).map(|_| ());
            assert!(matches!(refused, Err(Error::InUse { by: found, .. }) if found == by), "{refused:?}");
            assert_eq!(part.view(whole).is_ok(), by == "a put", "{by}");
            assert_eq!(
                window.post(none),
                Err(Error::InUse { what: "an exposure epoch", start: 0, end: 16, by })
            );
            match mode {
                Mode::Host => window.complete()?,
                Mode::Stream => window.complete_stream(stream)?,
            }
            part.view_mut(whole)?;
        }
        Ok(())
    });
}

/// The host ends an access epoch while an exposure is on its stream, or the other way round, and the other rank waits for
/// just that.
#[test]
fn the_host_goes_on_beside_its_stream() {
    for accesses in [true, false] {
        on_ranks(2, |world| {
            let mut alone = Alone::new(world, StreamKind::Threaded, 4)?;
            let Alone { stream, part, source, window, .. } = &mut alone;
            let peer = Group::new(world, &[1 - world.rank()])?;
            source.view_mut(source.extents().whole())?.fill(5);
            if accesses {
                window.post_stream(&peer, stream)?;
                window.wait_stream(stream)?;
            }
            window.start(&peer, if accesses { Mode::Host } else { Mode::Stream })?;
            window.put(&source.section(0..2)?, peer.ranks()[0], 1)?;
            if accesses {
                window.complete()?;
            } else {
                window.complete_stream(stream)?;
                window.post(&peer)?;
                window.wait()?;
            }
            stream.synchronize()?;
            assert_eq!(part.copy_out(part.extents().whole())?, [0, 5, 5, 0]);
            Ok(())
        });
    }
}

/// It waits for its stream where both are at the same part.
#[test]
fn what_is_put_from_the_part_is_what_came_there() {
    on_ranks(2, |world| {
        let mut alone = Alone::new(world, StreamKind::Threaded, 4)?;
        let Alone { stream, part, source, window, .. } = &mut alone;
        let (peer, whole) = (Group::new(world, &[1 - world.rank()])?, part.extents().whole());
        if world.rank() == 0 {
            window.post_stream(&peer, stream)?;
            window.wait_stream(stream)?;
            window.start(&peer, Mode::Host)?;
            window.put(&part.section(0..2)?, 1, 2)?;
            window.complete()?;
            return Ok(());
        }
        source.view_mut(whole)?.fill(5);
        window.post(&peer)?;
        window.start(&peer, Mode::Host)?;
        window.put(&source.section(0..2)?, 0, 0)?;
        std::thread::sleep(Duration::from_millis(50));
        window.complete()?;
        window.wait()?;
        assert_eq!(part.copy_out(whole)?, [0, 0, 5, 5]);
        Ok(())
    });
}
