//! Exchanges and reductions that a rank lets go of, at each moment.

use super::{LONG, SHORT};
use crate::cases::periods::Stepped;
use crate::{Scenario, TIMEOUT, expect_all, outcomes, stream_of};
use std::time::{Duration, Instant};
use streamhalo::comm::Error;
use streamhalo::comm::collective::AllReduce;
use streamhalo::comm::device::{Buffer, Extents};
use streamhalo::{HaloError, Op, Pattern, World};

/// An exchange that the last of some threads drops, at each moment. What is set is set by each of them.
///
/// # Panics
/// If the others are told anything else, or are not told in time.
pub fn each_exchange(ranks: usize, way: Scenario, set: &(dyn Fn() + Sync)) {
    let tried = |leave: &(dyn Fn(&World) -> Result<(), HaloError> + Sync)| {
        expect_all(outcomes(ranks, |world| {
            set();
            leave(world)
        }));
    };
    tried(&|world| exchanged(world, way, false));
    tried(&|world| exchanged_one_way(world, way));
    tried(&|world| exchanged_in_part(world, way, LONG));
    if way.backend == "standard" {
        // Short messages are taken from whoever sends them.
        tried(&|world| exchanged_in_part(world, way, SHORT));
    } else {
        // Messages that the host starts are not captured.
        tried(&|world| exchanged(world, way, true));
    }
}

/// The last rank drops its exchange while the last of two or three is still on its stream, which carries that out; and then, if
/// `is_replayed`, a period of it, which both have replayed meanwhile. The others' next exchange fails, and with it the
/// world.
///
/// # Errors
/// Those of calls that must succeed.
///
/// # Panics
/// If the others are told anything else.
pub fn exchanged(world: &World, way: Scenario, is_replayed: bool) -> Result<(), HaloError> {
    let leaver = world.size() - 1;
    let stream = stream_of(world, way.kind)?;
    let mut stepped = Stepped::new(world, &stream, way, SHORT, Pattern::All)?;
    let period = is_replayed.then(|| stepped.capture(2)).transpose()?;
    // A period begins in the generation in which it was captured.
    (0..if is_replayed { 1 } else { 2 }).try_for_each(|_| stepped.step())?;
    if world.rank() == leaver {
        stream.enqueue_host("being late", || {
            std::thread::sleep(Duration::from_millis(50));
            Ok(())
        });
    }
    stepped.step()?;
    if world.rank() == leaver {
        let Stepped { halo, cells, .. } = stepped;
        drop(halo);
        if let Some(period) = period {
            std::thread::sleep(Duration::from_millis(50));
            stream.replay(&period, 2)?;
        }
        drop(cells);
        // It may see the failure of the others, which comes behind what it waits for.
        let ended = stream.synchronize();
        assert!(matches!(ended, Ok(()) | Err(Error::PeerFailed { .. })), "{ended:?}");
        return Ok(());
    }
    if let Some(period) = period {
        stream.replay(&period, 2)?;
    }
    stream.synchronize()?;
    let ended = stepped.step().and_then(|()| Ok(stream.synchronize()?));
    match ended.expect_err("nobody exchanges with it") {
        HaloError::Communication(Error::PeerFailed { operation, .. }) => {
            assert!(operation.contains("dropped its"), "{way:?}: {operation}");
        }
        other => panic!("rank {leaver} has left, and this is said of it, {way:?}: {other:?}"),
    }
    Ok(())
}

/// The last rank drops its exchange, in which it only receives. Whoever sends to it may do so for a while, but not for ever;
/// the first that cannot fails, and with it the world.
///
/// # Errors
/// Those of calls that must succeed.
///
/// # Panics
/// If the others are told anything else.
pub fn exchanged_one_way(world: &World, way: Scenario) -> Result<(), HaloError> {
    let leaver = world.size() - 1;
    let stream = stream_of(world, way.kind)?;
    let mut stepped = Stepped::one_way(world, &stream, way, SHORT)?;
    stepped.steps(2)?;
    if world.rank() == leaver {
        let Stepped { halo, .. } = stepped;
        drop(halo);
        let ended = stream.synchronize();
        assert!(matches!(ended, Ok(()) | Err(Error::PeerFailed { .. })), "{ended:?}");
        return Ok(());
    }
    stream.synchronize()?;
    told_in_time(&mut stepped, way);
    Ok(())
}

/// Goes on until it is told that a rank has left.
fn told_in_time(stepped: &mut Stepped, way: Scenario) {
    let (stream, begun) = (stepped.stream.clone(), Instant::now());
    let ended = loop {
        let ended = stepped.step().and_then(|()| Ok(stream.synchronize()?));
        let took = begun.elapsed();
        assert!(took < TIMEOUT, "nobody has said for {took:?} that a rank has left, {way:?}: {ended:?}");
        if let Err(error) = ended {
            break error;
        }
    };
    match ended {
        HaloError::Communication(Error::PeerFailed { operation, .. }) => {
            assert!(operation.contains("dropped its"), "{way:?}: {operation}");
        }
        other => panic!("a rank has left, and this is said of it, {way:?}: {other:?}"),
    }
}

/// The last rank begins an exchange of messages, short or long, and drops it before it is finished. The others may have
/// that one or not, and no other.
///
/// # Errors
/// Those of calls that must succeed.
///
/// # Panics
/// If the others are told anything else, or are not told in time.
pub fn exchanged_in_part(world: &World, way: Scenario, columns: usize) -> Result<(), HaloError> {
    let stream = stream_of(world, way.kind)?;
    let mut stepped = Stepped::new(world, &stream, way, columns, Pattern::All)?;
    stepped.steps(2)?;
    if world.rank() + 1 == world.size() {
        let Stepped { mut halo, mut cells, .. } = stepped;
        std::mem::forget(halo.begin_gather(&mut cells)?);
        drop(halo);
        // It may see the failure of the others.
        let ended = stream.synchronize();
        assert!(matches!(ended, Ok(()) | Err(Error::PeerFailed { .. })), "{ended:?}");
        return Ok(());
    }
    stream.synchronize()?;
    told_in_time(&mut stepped, way);
    Ok(())
}

/// The last rank drops a reduction, of which the others' streams then do one more: that fails, and with it the world.
///
/// # Errors
/// Those of calls that must succeed.
///
/// # Panics
/// If the others are told anything else.
pub fn reduced(world: &World, way: Scenario) -> Result<(), HaloError> {
    let leaver = world.size() - 1;
    let stream = stream_of(world, way.kind)?;
    let line = Extents { points: [1, 1, 4], components: 1 };
    let mut buffer = Buffer::<i32>::zeros(world, &stream, line)?;
    let all = buffer.section(0..4)?;
    let mut reduction = AllReduce::with_backend(world, &stream, way.backend, (&all, &all), Op::Sum)?;
    buffer.with_host_mut(line.whole(), |mut all| all.fill(1))?;
    reduction.enqueue()?;
    if world.rank() == leaver {
        drop(reduction);
        let ended = stream.synchronize();
        assert!(matches!(ended, Ok(()) | Err(Error::PeerFailed { .. })), "{ended:?}");
        return Ok(());
    }
    stream.synchronize()?;
    assert_eq!(buffer.copy_out(line.whole())?, [world.size() as i32; 4]);
    let ended = reduction.enqueue().and_then(|()| stream.synchronize());
    match ended.expect_err("nobody reduces with it") {
        Error::PeerFailed { operation, .. } => assert!(operation.contains("dropped its"), "{operation}"),
        other => panic!("rank {leaver} has left, and this is said of it, {way:?}: {other:?}"),
    }
    Ok(())
}
