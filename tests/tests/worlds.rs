//! Worlds: collectives, sub-worlds, and what ranks say of ranks that are late, fail or panic.

use std::ffi::OsString;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::{Barrier, Mutex};
use std::time::Duration;
use streamhalo::comm::Error;
use streamhalo::comm::device::{Buffer, Extents};
use streamhalo::{
    Array, Entity, GlobalGrid, HaloError, Pattern, StreamHalo, StreamKind, World, WorldOptions,
};
use streamhalo_tests::cases::worlds::{many_tags, parts, world_and_part};
use streamhalo_tests::{
    Scenario, at_once, each_way, expect_all, on_ranks, outcomes, same_on_all, stream_of, watchdog,
};

/// Waits end soon, so that a test can wait for that; not so soon that a busy machine ends others.
const SOON: WorldOptions = WorldOptions { policy: None, timeout: Some(PATIENCE) };
const PATIENCE: Duration = Duration::from_secs(2);

fn errors<T: std::fmt::Debug>(results: Vec<Result<T, HaloError>>) -> Vec<Option<Error>> {
    let error = |result: Result<T, HaloError>| match result {
        Ok(_) => None,
        Err(HaloError::Communication(error)) => Some(error),
        Err(other) => panic!("{other}"),
    };
    results.into_iter().map(error).collect()
}

/// Rank `late` of `ranks` makes the exchange and keeps it, but never takes part in it.
fn without(ranks: usize, late: usize, way: Scenario) -> Vec<Option<Error>> {
    let results = World::threads(ranks, SOON, |world| -> Result<(), HaloError> {
        let stream = stream_of(&world, way.kind)?;
        let grid = GlobalGrid::new([2 * ranks, 40], [true; 2])?.partition_as(&world, [ranks, 1])?.local(1)?;
        let mut field = Array::<f64, 2>::zeros(&grid, Entity::Cell, &stream)?;
        let mut halo = StreamHalo::new(&world, &stream, way.backend, Pattern::All, 1, &mut field)?;
        if world.rank() != late {
            halo.gather(&mut field)?;
        } else {
            std::thread::sleep(2 * PATIENCE);
        }
        Ok(())
    });
    errors(results.expect("threads can be started"))
}

#[test]
fn a_time_out_says_who_waits_for_whom_and_for_what() {
    let cases: Vec<_> = each_way().flat_map(|way| [(way, 0), (way, 1)]).collect();
    at_once(&cases, |(way, late)| {
        let error = without(2, *late, *way).remove(1 - late).expect("the other rank waits in vain");
        let Error::TimedOut { rank, peer, what, .. } = &error else { panic!("{error}, {way:?}") };
        assert_eq!((*rank, *peer), (1 - late, *late), "{error}, {way:?}");
        let expected = match way.backend {
            "standard" => "the message with tag 0",
            "notified" => "the notification",
            _ => "the completion",
        };
        // Backends may say more, such as how many sources are counted in one word.
        assert!(what.contains(expected), "{what}, {way:?}");
        assert!(error.to_string().contains(&format!("rank {rank} waited")), "{error}");
    });
}

#[test]
fn of_several_sources_that_count_in_one_word_the_late_one_is_named() {
    at_once(&[1, 2], |late| {
        let way = Scenario { backend: "notified", kind: StreamKind::Inline };
        let seen = without(3, *late, way);
        let timed_out: Vec<_> = seen
            .iter()
            .flatten()
            .filter_map(|error| match error {
                Error::TimedOut { peer, .. } => Some(*peer),
                Error::PeerFailed { rank, .. } if rank != late => None,
                other => panic!("{other}"),
            })
            .collect();
        assert!(!timed_out.is_empty() && timed_out.iter().all(|peer| peer == late), "{seen:?}");
        assert_eq!(seen.iter().flatten().count(), 2);
    });
}

#[test]
fn a_barrier_that_times_out_names_a_rank_that_is_missing() {
    at_once(&[0, 2], |missing| {
        // It stays until the others have given up: one that leaves is told of at once.
        let over = Barrier::new(3);
        let results = World::threads(3, SOON, |world| {
            (0..5).try_for_each(|_| world.barrier())?;
            let result = if world.rank() == *missing { Ok(()) } else { world.barrier() };
            over.wait();
            result
        });
        let results = results.expect("threads can be started");
        let mut timed_out = 0;
        for (rank, result) in results.into_iter().enumerate().filter(|(rank, _)| rank != missing) {
            match result.expect_err("a rank is missing") {
                Error::TimedOut { rank: waiting, peer, what, .. } => {
                    assert_eq!((waiting, peer, &*what), (rank, *missing, "the barrier"));
                    timed_out += 1;
                }
                Error::PeerFailed { rank: failed, operation } => {
                    assert_ne!(failed, *missing, "{operation}");
                }
                // Another one has given up long before.
                Error::CollectiveFailed { rank, reason, .. } => assert_eq!(rank, *missing, "{reason}"),
                other => panic!("{other}"),
            }
        }
        assert!(timed_out > 0);
    });
}

#[test]
fn a_rank_that_fails_ends_the_waits_of_the_others() {
    for way in each_way() {
        let results = outcomes(3, |world| {
            let stream = stream_of(world, way.kind)?;
            let grid = GlobalGrid::new([6, 40], [true; 2])?.partition_as(world, [3, 1])?.local(1)?;
            let mut field = Array::<f64, 2>::zeros(&grid, Entity::Cell, &stream)?;
            let mut halo = StreamHalo::new(world, &stream, way.backend, Pattern::All, 1, &mut field)?;
            for step in 0.. {
                if world.rank() == 2 && step == 3 {
                    return Err(HaloError::BadOffset { offset: vec![7], reason: "the tide is out".into() });
                }
                halo.gather(&mut field)?;
            }
            Ok(())
        });
        for error in errors(results.into_iter().take(2).collect::<Vec<Result<(), _>>>()) {
            match error.expect("the others cannot go on") {
                Error::PeerFailed { rank: 2, operation } => {
                    assert!(operation.contains("the tide is out"), "{operation}");
                }
                other => panic!("{other}, {way:?}"),
            }
        }
    }
}

#[test]
fn a_rank_that_panics_ends_the_waits_of_the_others_and_is_not_lost() {
    let seen = Mutex::new(Vec::new());
    let ranks = || {
        World::threads(3, watchdog(), |world| {
            assert!(world.rank() != 1, "rank 1 is unwell");
            let waited = world.barrier();
            seen.lock().expect("this rank does not panic").push(waited.clone());
            waited
        })
    };
    let panic = catch_unwind(AssertUnwindSafe(ranks)).expect_err("the panic goes on in the caller");
    assert_eq!(panic.downcast_ref::<&str>(), Some(&"rank 1 is unwell"));
    let seen = seen.into_inner().expect("no rank panicked with it");
    assert_eq!(seen.len(), 2);
    for result in seen {
        assert!(
            matches!(&result, Err(Error::PeerFailed { rank: 1, operation }) if operation.contains("panicked")),
            "{result:?}"
        );
    }
}

#[test]
fn the_first_failure_is_the_one_that_all_see() {
    let results = outcomes(4, |world| -> Result<(), HaloError> {
        if world.rank() == 3 {
            world.fail("looking for the chart");
            world.fail("something else");
        }
        again_and_again(world)
    });
    for error in errors(results) {
        let expected = Error::PeerFailed { rank: 3, operation: "looking for the chart".into() };
        assert_eq!(error, Some(expected));
    }
}

#[test]
fn collectives_again_and_again() {
    for ranks in [1, 2, 3, 5, 8] {
        on_ranks(ranks, |world| {
            let rank = world.rank();
            for round in 0..60_usize {
                // Of another length on every rank, and empty on some.
                let own = vec![rank as u32; (round * 7 + rank * 5) % 90];
                let all = world.all_gather(&own)?;
                let expected: Vec<_> = (0..ranks).map(|r| vec![r as u32; (round * 7 + r * 5) % 90]).collect();
                assert_eq!(all, expected);
                assert_eq!(world.all_max((round + rank) as f64)?, (round + ranks - 1) as f64);
                (0..10).try_for_each(|_| world.barrier())?;
                let own = if rank > 0 && round % 3 == 0 {
                    Err(format!("rank {rank} in {round}"))
                } else {
                    Ok(rank)
                };
                let expected = if ranks > 1 && round % 3 == 0 {
                    let reason = format!("rank 1 in {round}");
                    Err(Error::CollectiveFailed { call: "rounding", rank: 1, reason })
                } else {
                    Ok((0..ranks).collect())
                };
                assert_eq!(world.agree("rounding", own), expected);
                assert_eq!(world.next_tag(), round as u32);
            }
            assert_eq!(world.all_max(f64::NEG_INFINITY)?, f64::NEG_INFINITY);
            Ok(())
        });
    }
}

#[test]
fn the_first_ranks_are_a_world() {
    on_ranks(4, |world| each_way().try_for_each(|way| parts(world, way).map(|_| ())));
}

#[test]
fn sub_worlds_that_cannot_be() {
    let errors = on_ranks(2, |world| Ok([0, 3].map(|asked| world.first(asked).expect_err("no such world"))));
    let [none, many] = same_on_all(errors);
    assert!(matches!(none, Error::BadWorldSize { asked: 0, .. }), "{none}");
    assert!(matches!(many, Error::BadWorldSize { asked: 3, .. }), "{many}");
    let empty = World::threads(0, SOON, |_| Ok::<(), Error>(()));
    assert!(matches!(empty, Err(Error::BadWorldSize { asked: 0, .. })), "{empty:?}");
}

#[test]
fn a_failure_in_a_sub_world_is_seen_by_all() {
    let results = outcomes(3, |world| {
        match world.first(2)? {
            Some(part) if part.rank() == 1 => part.fail("finding the key"),
            Some(part) => again_and_again(&part)?,
            None => {}
        }
        again_and_again(world)
    });
    for error in errors(results) {
        assert_eq!(error, Some(Error::PeerFailed { rank: 1, operation: "finding the key".into() }));
    }
}

/// Barriers until another rank has failed, or for long if that is not seen.
fn again_and_again(world: &World) -> Result<(), HaloError> {
    Ok((0..200_000).try_for_each(|_| world.barrier())?)
}

#[test]
fn exchanges_of_a_world_and_of_a_part_do_not_block_each_other() {
    for row in [40, 1_100] {
        on_ranks(2, |world| each_way().try_for_each(|way| world_and_part(world, way, row).map(|_| ())));
    }
}

#[test]
fn tags_tell_the_exchanges_of_a_world_apart() {
    on_ranks(2, |world| each_way().try_for_each(|way| many_tags(world, way).map(|_| ())));
}

#[test]
fn results_come_by_rank() {
    let results = World::threads(5, SOON, |world| {
        if world.rank() == 3 {
            Err(Error::System { call: "three", reason: "of five".into() })
        } else {
            Ok(world.rank())
        }
    });
    let results = results.expect("threads can be started");
    assert_eq!(results[3], Err(Error::System { call: "three", reason: "of five".into() }));
    let others = results.into_iter().filter(Result::is_ok).collect();
    assert_eq!(expect_all(others), [0, 1, 2, 4]);
}

/// A rank whose value cannot be told comes to the call all the same.
#[cfg(unix)]
#[test]
fn a_value_that_cannot_be_told_fails_on_all_ranks() {
    use std::os::unix::ffi::OsStringExt;
    let results = outcomes(3, |world| {
        let name = if world.rank() == 1 { vec![b'a', 0xff] } else { vec![b'a'] };
        let told = world.all_gather(&PathBuf::from(OsString::from_vec(name)));
        world.barrier()?;
        Ok(told)
    });
    for result in results {
        match result.expect("the world goes on") {
            Err(Error::CollectiveFailed { call: "all_gather", rank: 1, reason }) => {
                assert!(reason.starts_with("its value cannot be told"), "{reason}");
            }
            other => panic!("{other:?}"),
        }
    }
}

/// Who waits in a barrier for one that tells something is no more served than who waits for it to tell something else.
#[test]
fn calls_that_differ_fail_on_all_ranks() {
    for ranks in [2, 3] {
        let results = outcomes(ranks, |world| match world.rank() {
            0 => Ok(world.barrier()),
            1 => Ok(world.all_gather(&20_u32).map(drop)),
            _ => Ok(world.agree("StreamHalo::new", Ok::<_, String>(20_u32)).map(drop)),
        });
        for (rank, result) in results.into_iter().enumerate() {
            // Of a part of another call it says which.
            let (own, other) = [("barrier", 1), ("all_gather", 0), ("StreamHalo::new", 0)][rank];
            match result.expect("the world goes on") {
                Err(Error::CollectiveFailed { call, rank, reason }) if (call, rank) == (own, other) => {
                    assert!(reason.contains("another call"), "{reason}");
                }
                other => panic!("{other:?}"),
            }
        }
    }
}

#[test]
fn worlds_of_different_numbers_of_ranks_are_refused_on_all_ranks() {
    let failed = Error::CollectiveFailed {
        call: "World::first",
        rank: 1,
        reason: "it asked for 2 ranks, rank 0 for 1".into(),
    };
    for result in outcomes(3, |world| Ok(world.first(1 + usize::from(world.rank() > 0)).map(drop))) {
        assert_eq!(result.expect("the world goes on"), Err(failed.clone()));
    }
}

#[test]
fn more_ranks_than_memory_can_count_are_refused() {
    let results = World::threads(usize::MAX, SOON, |_| Ok::<_, Error>(()));
    assert!(matches!(results, Err(Error::OutOfMemory { .. })), "{results:?}");
}

/// The kernel would give page after page, and end the process when there are none left.
#[test]
fn memory_that_the_machine_does_not_have_is_refused() {
    let told = std::fs::read_to_string("/proc/meminfo").expect("Linux has it");
    let available = told.lines().find_map(|line| line.strip_prefix("MemAvailable:")).expect("it is told");
    let available: usize = available.trim().trim_end_matches(" kB").parse().expect("a number");
    let points = [1, 1, available * 1024 + (1 << 30)];
    let refused = outcomes(1, |world| {
        let stream = stream_of(world, StreamKind::Inline)?;
        Ok(Buffer::<u8>::zeros(world, &stream, Extents { points, components: 1 }).map(drop)?)
    });
    assert!(matches!(errors(refused)[0], Some(Error::OutOfMemory { bytes, .. }) if bytes == points[2]));
}

/// What its peers fail with is the failure of a rank that has left, and not theirs.
#[test]
fn a_rank_that_leaves_early_is_the_one_that_all_name() {
    for way in each_way() {
        let results = outcomes(3, |world| -> Result<(), HaloError> {
            let stream = stream_of(world, way.kind)?;
            let grid = GlobalGrid::new([9], [true])?.partition(world)?.local(1)?;
            let mut cells = Array::<f64, 1>::zeros(&grid, Entity::Cell, &stream)?;
            let mut halo = StreamHalo::new(world, &stream, way.backend, Pattern::All, 1, &mut cells)?;
            let exchanges = if world.rank() == 1 { 3 } else { 5 };
            for _ in 0..exchanges {
                halo.gather(&mut cells)?;
            }
            // The first to notice waits for rank 1 itself, the others hear of it.
            if world.rank() == 1 { Ok(()) } else { world.barrier().map_err(HaloError::from) }
        });
        for (rank, error) in errors(results).into_iter().enumerate() {
            match error {
                None => assert_eq!(rank, 1, "{way:?}"),
                Some(error) => {
                    assert!(matches!(error, Error::PeerFailed { rank: 1, .. }), "{rank}: {error}, {way:?}")
                }
            }
        }
    }
}

/// Not only exchanges notice, but calls of all ranks too, such as those that set exchanges up.
#[test]
fn a_rank_that_leaves_is_not_waited_for_by_collective_calls() {
    let results = outcomes(3, |world| -> Result<(), HaloError> {
        world.barrier()?;
        if world.rank() == 1 {
            return Ok(());
        }
        let stream = stream_of(world, StreamKind::Inline)?;
        let grid = GlobalGrid::new([9], [true])?.partition(world)?.local(1)?;
        let mut cells = Array::<f64, 1>::zeros(&grid, Entity::Cell, &stream)?;
        StreamHalo::new(world, &stream, "st-send", Pattern::All, 1, &mut cells).map(drop)
    });
    for (rank, error) in errors(results).into_iter().enumerate() {
        let expected = "it has left the world, and comes to no more calls of all its ranks".to_owned();
        let expected = Error::PeerFailed { rank: 1, operation: expected };
        assert_eq!(error, (rank != 1).then_some(expected));
    }
}
