//! Windows with active target epochs, over threads: every misuse down to its error, and what they do.

use std::time::Duration;
use streamhalo::comm::device::Buffer;
use streamhalo::comm::fabric::{Event, Executor, Role, Throttling};
use streamhalo::comm::window::{ActiveOptions, Group, Mode, Window};
use streamhalo::comm::{Error, Result};
use streamhalo::{HaloError, Op, StreamKind, World, WorldOptions};
use streamhalo_tests::cases::active::{Ring, row};
use streamhalo_tests::cases::leaving::{epochs, streamed};
use streamhalo_tests::cases::misused::{self, Alone, refused};
use streamhalo_tests::{KINDS, Scenario, at_once, expect_all, on_ranks, stream_of, watchdog};

/// Epochs that differ in one thing from the one before, each of which does what it says, on a stream and by the
/// host: none takes the plan of another.
#[test]
fn epochs_that_are_almost_the_same() {
    on_ranks(3, |world| {
        for mode in [Mode::Host, Mode::Stream] {
            let alone = Alone::new(world, StreamKind::Inline, 8)?;
            let Alone { stream, source, part, window, all, .. } = &alone;
            let (me, whole) = (world.rank(), part.extents().whole());
            let mut source_of = Buffer::<i32>::zeros(world, stream, row(8))?;
            let start = [10, 20, 30, 40, 50, 60, 70, 80].map(|value: i32| value + me as i32);
            source_of.view_mut(whole)?.iter_mut().zip(start).for_each(|(to, from)| *to = from);
            let mut expected = vec![0; 8];
            let right = (me + 1) % 3;
            // From which element, to which rank, to which element, how many; the operation.
            type Step = (usize, usize, usize, usize, Option<Op>);
            let steps: [Step; 8] = [
                (0, right, 0, 2, None),
                (0, right, 4, 2, None),
                (0, me, 4, 2, None),
                (2, me, 4, 2, None),
                (2, me, 4, 3, None),
                (2, me, 4, 3, Some(Op::Sum)),
                (2, me, 4, 3, Some(Op::Max)),
                (3, me, 4, 3, Some(Op::Max)),
            ];
            for (from, target, to, count, op) in steps {
                match mode {
                    Mode::Host => window.post(all)?,
                    Mode::Stream => window.post_stream(all, stream)?,
                }
                window.start(all, mode)?;
                let section = source_of.section(from..from + count)?;
                match op {
                    None => window.put(&section, target, to)?,
                    Some(op) => window.accumulate(&section, target, to, op)?,
                }
                match mode {
                    Mode::Host => window.complete().and_then(|()| window.wait())?,
                    Mode::Stream => {
                        window.complete_stream(stream).and_then(|()| window.wait_stream(stream))?
                    }
                }
                let origin = if target == me { me } else { (me + 2) % 3 };
                for i in 0..count {
                    let sent = start[from + i] - me as i32 + origin as i32;
                    let was: i32 = expected[to + i];
                    expected[to + i] = match op {
                        None => sent,
                        Some(Op::Sum) => was + sent,
                        Some(_) => was.max(sent),
                    };
                }
                assert_eq!(part.copy_out(whole)?, expected, "{from}, {target}, {to}, {count}, {op:?}");
            }
            // The same the other way.
            window.post(all)?;
            window.start(all, Mode::Host)?;
            window.put(&source.section(0..2)?, right, 0)?;
            window.complete().and_then(|()| window.wait())?;
            window.post(all)?;
            window.start(all, Mode::Host)?;
            window.get(&source.section(0..2)?, right, 4)?;
            window.complete().and_then(|()| window.wait())?;
            assert_eq!(part.copy_out(whole)?[..2], [0, 0]);
            assert!(source.copy_out(whole)?[0] > 0, "nothing was got");
        }
        Ok(())
    });
}

#[test]
fn what_makes_no_epochs_is_refused_between_those_that_work() {
    for ranks in [1, 3] {
        for kind in KINDS {
            on_ranks(ranks, |world| misused::epochs(world, Scenario { backend: "none", kind }));
        }
    }
}

/// What a rank does to one peer in an epoch, in the order in which it does it.
fn roles(events: &[Event], to: usize) -> Vec<Role> {
    events.iter().filter(|event| event.to == to).map(|event| event.role).collect()
}

#[test]
fn several_operations_to_a_target_have_one_completion() {
    let ranks = World::recorded_threads(2, watchdog(), |world, recording| {
        let Alone { stream, source, window, .. } = Alone::new(&world, StreamKind::Inline, 8)?;
        let other = Group::new(&world, &[1 - world.rank()])?;
        for operations in [0, 1, 3] {
            recording.take();
            window.post_stream(&other, &stream)?;
            window.start(&other, Mode::Stream)?;
            for offset in 0..operations {
                window.put(&source.section(offset..offset + 1)?, 1 - world.rank(), 2 * offset)?;
            }
            window.complete_stream(&stream)?;
            window.wait_stream(&stream)?;
            stream.synchronize()?;
            let payload = if operations > 0 { &[Role::Payload][..] } else { &[] };
            let expected = [&[Role::Exposure], payload, &[Role::Completion]].concat();
            assert_eq!(roles(&recording.take(), 1 - world.rank()), expected);
        }
        Ok::<(), HaloError>(())
    });
    expect_all(ranks.expect("threads can be started"));
}

#[test]
fn groups_that_are_none() {
    on_ranks(3, |world| {
        let bad = |ranks: &[usize], because: &str| match Group::new(world, ranks) {
            Err(Error::BadGroup { ranks: asked, reason }) => {
                assert_eq!(asked, ranks);
                assert!(reason.contains(because), "{reason}");
            }
            other => panic!("{other:?} instead of a bad group"),
        };
        bad(&[0, 3], "rank 3 is not one");
        bad(&[1, 2, 1], "rank 1 is named twice");
        let all = Group::new(world, &[2, 0, 1])?;
        assert_eq!(
            (all.ranks(), all.size(), all.contains(2), all.contains(3)),
            (&[2, 0, 1][..], 3, true, false)
        );
        // A group of a larger world than the window's.
        if let Some(pair) = world.first(2)? {
            let alone = Alone::new(&pair, StreamKind::Inline, 4)?;
            let error = Error::BadGroup {
                ranks: vec![2, 0, 1],
                reason: "the window's world has 2 ranks, and rank 2 is not one".into(),
            };
            assert_eq!(alone.window.post(&all), Err(error.clone()));
            assert_eq!(alone.window.post_stream(&all, &alone.stream), Err(error.clone()));
            assert_eq!(alone.window.start(&all, Mode::Host), Err(error));
            alone.epoch(Mode::Host)?;
        }
        Ok(())
    });
}

#[test]
fn windows_that_cannot_be_had() {
    on_ranks(3, |world| {
        let stream = stream_of(world, StreamKind::Inline)?;
        let ints = Buffer::<i32>::zeros(world, &stream, row(4))?;
        let floats = Buffer::<f32>::zeros(world, &stream, row(4))?;
        let section = if world.rank() == 2 { floats.section(0..4)? } else { ints.section(0..4)? };
        match Window::active(world, &section, ActiveOptions::default()) {
            Err(Error::CollectiveFailed { call: "Window::active", rank: 2, reason }) => {
                assert!(reason.contains("a window has one type"), "{reason}");
            }
            other => panic!("{other:?} instead of another type on rank 2"),
        }
        // A window without epochs has none.
        let window = Window::over(world, &ints.section(0..4)?)?;
        let all = Group::new(world, &[0, 1, 2])?;
        refused(window.post(&all), "post", "make it with `Window::active`");
        refused(window.start(&all, Mode::Host), "start", "make it with `Window::active`");
        refused(window.put(&floats.section(0..4)?, 0, 0), "put", "make it with `Window::active`");
        Ok(())
    });
}

#[test]
fn one_rank_has_no_part() {
    on_ranks(2, |world| {
        let alone = Alone::new(world, StreamKind::Inline, 4 * world.rank())?;
        assert_eq!((alone.window.elements(0), alone.window.elements(1)), (0, 4));
        alone.window.post(&alone.all)?;
        alone.window.start(&alone.all, Mode::Host)?;
        let bytes = 4 * alone.source.extents().points[2];
        let section = alone.source.section(0..bytes / 4)?;
        let expected = match bytes {
            0 => Ok(()),
            _ => Err(Error::OutOfBounds { what: "put", start: 0, end: 16, region_bytes: 0 }),
        };
        assert_eq!(alone.window.put(&section, 0, 0), expected);
        alone.window.put(&section, 1, 0)?;
        alone.window.complete()?;
        Ok(alone.window.wait()?)
    });
}

#[test]
fn who_executes() {
    on_ranks(2, |world| {
        let alone = Alone::new(world, StreamKind::Inline, 1)?;
        assert_eq!(alone.window.executor(0, Mode::Stream), Executor::Stream);
        assert_eq!(alone.window.executor(1, Mode::Host), Executor::Host);
        Ok(())
    });
}

/// Neither sections nor streams, which a window of their own world then takes.
#[test]
fn what_is_of_another_world_is_refused() {
    on_ranks(2, |world| {
        let other = Alone::new(&World::alone()?, StreamKind::Inline, 4)?;
        let alone = Alone::new(world, StreamKind::Inline, 4)?;
        let Alone { stream, window, all, .. } = &alone;
        let refused = |what| Err(Error::OtherWorld { what });
        let section = other.source.section(0..4)?;
        window.post_stream(all, stream)?;
        window.start(all, Mode::Stream)?;
        for refusal in [
            window.put(&section, 0, 0),
            window.get(&section, 0, 0),
            window.accumulate(&section, 0, 0, Op::Sum),
        ] {
            assert_eq!(refusal, refused("an operation of a window"));
        }
        assert_eq!(window.complete_stream(&other.stream), refused("an epoch of a window"));
        window.complete_stream(stream)?;
        window.wait_stream(stream)?;
        Ok(other.epoch(Mode::Stream)?)
    });
}

/// Either kind of stream in either mode.
fn ways() -> Vec<(StreamKind, Mode)> {
    KINDS.iter().flat_map(|kind| [Mode::Host, Mode::Stream].map(|mode| (*kind, mode))).collect()
}

/// What the ranks get if waits end soon; not so soon that a busy machine ends those that set a test up.
fn impatient<T: Send>(
    ranks: usize,
    rank_main: impl Fn(&World) -> Result<T, HaloError> + Sync,
) -> Vec<Result<T, HaloError>> {
    let options = WorldOptions { timeout: Some(Duration::from_secs(2)), ..watchdog() };
    World::threads(ranks, options, |world| rank_main(&world)).expect("threads can be started")
}

fn times_out(result: Option<&Result<(), HaloError>>, waiting: usize, late: usize, awaited: &str) {
    match result {
        Some(Err(HaloError::Communication(Error::TimedOut { rank, peer, what, wanted, found, .. }))) => {
            assert_eq!((*rank, *peer, what.as_str(), *wanted, *found), (waiting, late, awaited, 2, 1));
        }
        other => panic!("{other:?} instead of a time-out"),
    }
}

#[test]
fn an_origin_that_never_completes_is_named() {
    at_once(&ways(), |&(kind, mode)| {
        let results = impatient(3, |world| {
            let alone = Alone::new(world, kind, 1)?;
            alone.epoch(mode)?;
            alone.stream.synchronize()?;
            if world.rank() > 0 {
                // Its window stays as it is.
                std::mem::forget(alone);
                return Ok(());
            }
            let late = Group::new(world, &[2])?;
            match mode {
                Mode::Host => {
                    alone.window.post(&late)?;
                    let ended = alone.window.wait();
                    // The late one may come yet.
                    let view = alone.part.view(alone.part.extents().whole());
                    assert!(matches!(view, Err(Error::InUse { .. })), "{view:?}");
                    assert!(matches!(alone.window.post(&late), Err(Error::InUse { .. })));
                    ended?;
                }
                Mode::Stream => {
                    alone.window.post_stream(&late, &alone.stream)?;
                    alone.window.wait_stream(&alone.stream)?;
                }
            }
            Ok(alone.stream.synchronize()?)
        });
        times_out(results.first(), 0, 2, "the completion of epoch 2");
    });
}

#[test]
fn a_target_that_never_exposes_is_named() {
    at_once(&ways(), |&(kind, mode)| {
        let results = impatient(3, |world| {
            let alone = Alone::new(world, kind, 1)?;
            alone.epoch(mode)?;
            alone.stream.synchronize()?;
            if world.rank() != 1 {
                // Its window stays as it is.
                std::mem::forget(alone);
                return Ok(());
            }
            alone.window.start(&Group::new(world, &[0])?, mode)?;
            alone.window.put(&alone.source.section(0..1)?, 0, 0)?;
            match mode {
                Mode::Host => alone.window.complete()?,
                Mode::Stream => alone.window.complete_stream(&alone.stream)?,
            }
            Ok(alone.stream.synchronize()?)
        });
        times_out(results.get(1), 1, 0, "the exposure of epoch 2");
    });
}

#[test]
fn a_window_that_is_dropped_with_an_open_epoch_fails_its_world() {
    for is_exposed in [true, false] {
        let results = World::threads(2, watchdog(), |world| {
            let alone = Alone::new(&world, StreamKind::Inline, 1)?;
            if world.rank() == 1 {
                match is_exposed {
                    true => alone.window.post(&alone.all)?,
                    false => alone.window.start(&alone.all, Mode::Stream)?,
                }
                return Ok(());
            }
            let result = match is_exposed {
                true => alone.window.post(&Group::new(&world, &[1])?).and_then(|()| alone.window.wait()),
                false => alone.epoch(Mode::Host),
            };
            let kind = if is_exposed { "exposure" } else { "access" };
            let operation = format!("it dropped a window with an open {kind} epoch of the ranks [0, 1]");
            assert_eq!(result, Err(Error::PeerFailed { rank: 1, operation }));
            Ok::<(), HaloError>(())
        });
        expect_all(results.expect("threads can be started"));
    }
}

/// The host's waits, and those of streams.
#[test]
fn a_window_that_is_dropped_between_epochs_ends_the_waits_for_it() {
    for kind in KINDS {
        for ranks in [1, 2, 3] {
            on_ranks(ranks, |world| epochs(world, Scenario { backend: "st-rsend", kind }));
        }
        for is_origin in [true, false] {
            for ranks in [2, 3] {
                let left = World::threads(ranks, watchdog(), |world| streamed(&world, kind, is_origin));
                expect_all(left.expect("threads can be started"));
            }
        }
    }
}

/// The same exposure, whether the sends to both were to go together or not.
#[test]
fn a_target_that_an_epoch_has_failed_for_is_accessed_in_the_next_one() {
    for is_together in [true, false] {
        let left = World::threads(3, watchdog(), |world| {
            let alone = Alone::new(&world, StreamKind::Inline, 4)?;
            let Alone { part, mut source, window, .. } = alone;
            let of = |ranks| Group::new(&world, ranks);
            let put = |source: &Buffer<i32>, target| window.put(&source.section(0..4)?, target, 0);
            let whole = source.extents().whole();
            match world.rank() {
                0 => {
                    if !is_together {
                        // Who leaves has come to another count.
                        window.start(&of(&[1])?, Mode::Host)?;
                        window.complete()?;
                    }
                    world.barrier()?;
                    window.start(&of(&[1, 2])?, Mode::Host)?;
                    put(&source, 1)?;
                    let failed = window.complete();
                    assert!(matches!(failed, Err(Error::PeerFailed { rank: 2, .. })), "{failed:?}");
                    world.barrier()?;
                    source.view_mut(whole)?.fill(7);
                    window.start(&of(&[1])?, Mode::Host)?;
                    put(&source, 1)?;
                    window.complete()?;
                }
                1 => {
                    if !is_together {
                        window.post(&of(&[0])?)?;
                        window.wait()?;
                    }
                    window.post(&of(&[0])?)?;
                    world.barrier()?;
                    if !is_together {
                        // The epoch that fails comes to this rank.
                        window.wait()?;
                        window.post(&of(&[0])?)?;
                    }
                    world.barrier()?;
                    window.wait()?;
                    assert_eq!(part.copy_out(whole)?, [7; 4]);
                }
                _ => {
                    drop(window);
                    world.barrier()?;
                    world.barrier()?;
                }
            }
            Ok::<(), HaloError>(())
        });
        expect_all(left.expect("threads can be started"));
    }
}

#[test]
fn more_than_there_is_room_for() {
    on_ranks(2, |world| {
        for throttling in Throttling::ALL {
            let stream = stream_of(world, StreamKind::Threaded)?;
            let mut ring = Ring::new(world, &stream, 10, ActiveOptions { throttling, entries: 2 })?;
            ring.post_stream()?;
            // Two puts and a signal never fit; the epoch stays open and the host ends it otherwise.
            let throttled = |result: Result<(), HaloError>| match result {
                Err(HaloError::Communication(Error::Throttled { call, entries, limit, .. })) => {
                    assert_eq!((call, entries, limit), ("complete_stream", 3, 2));
                }
                other => panic!("{other:?} instead of a refusal"),
            };
            throttled(ring.access_stream());
            refused(ring.window().complete(), "complete", "complete_stream");
            std::mem::forget(ring);
        }
        Ok(())
    });
}

#[test]
fn an_error_says_what_to_do() {
    let throttled =
        |entries| Error::Throttled { call: "post_stream", entries, in_use: 3, limit: 4 }.to_string();
    assert!(throttled(2).ends_with("3 of 4 are in use. Synchronise the stream, then call it again"));
    assert!(throttled(5).ends_with("Use fewer operations an epoch, or allow more entries"));
}
