//! What exchanges of arrays on a device are tried with, whoever drives it, once for all suites of devices.

use super::periods::{Stepped, periods};
use super::{CELLS, cases_for};
use crate::{FieldSet, Scenario, TIMEOUT, on_ranks, stream_of, ways_of};
use std::collections::BTreeSet;
use std::fmt::Debug;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use streamhalo::comm::Error;
use streamhalo::{
    GlobalGrid, HaloError, Pattern, Period, Stream, StreamHalo, StreamKind, World, WorldOptions,
};

/// Every case in every way on a device, which must give what the host gives. `by` executes what is triggered, unless it is
/// the stream, where a case compares with streams of the host.
///
/// # Errors
/// Those of the cases.
///
/// # Panics
/// On a rank that gets another answer, or another executor.
pub fn all_as_on_the_host(
    world: &World,
    at_length: bool,
    by: &str,
    context: &dyn Debug,
) -> Result<(), HaloError> {
    for case in cases_for(world.size(), at_length) {
        // All backends give the same on the host, which is tested there.
        let on_host = Scenario { kind: StreamKind::Inline, backend: "standard" };
        let expected = case.run(world, on_host)?;
        for way in ways_of(StreamKind::Device) {
            let found = case.run(world, way)?;
            assert_eq!(found.checksum, expected.checksum, "`{}`, {way:?}, {context:?}", case.name);
            let by = if way.backend == "standard" { "host" } else { by };
            let allowed = BTreeSet::from([by.to_owned(), "stream".to_owned()]);
            let executors = found.executors;
            assert!(executors.is_subset(&allowed), "{executors:?} in `{}`, {way:?}, {context:?}", case.name);
        }
    }
    Ok(())
}

/// Replays on worlds of so many ranks, with so many columns and a pattern, after `set` on each rank: the cells that steps
/// give.
///
/// # Panics
/// If they are others.
pub fn replays_as_steps(worlds: &[(usize, usize, Pattern)], set: impl Fn() + Sync) {
    for (ranks, columns, pattern) in worlds {
        on_ranks(*ranks, |world| {
            set();
            ways_of(StreamKind::Device).try_for_each(|way| periods(world, way, *columns, pattern).map(|_| ()))
        });
    }
}

/// A gather along the first axis, from whose set-up all ranks come.
fn gathering(world: &World, way: Scenario) -> Result<(Stream, FieldSet<2>, StreamHalo), HaloError> {
    let (stream, size) = (stream_of(world, way.kind)?, world.size());
    let grid = GlobalGrid::new([3 * size, 20], [true; 2])?.partition_as(world, [size, 1])?.local(1)?;
    let mut fields = FieldSet::new(&grid, &stream, &[CELLS], &Pattern::All, [1, 1])?;
    let halo = StreamHalo::new(world, &stream, way.backend, Pattern::All, 1, &mut fields)?;
    fields.fill(1)?;
    Ok((stream, fields, halo))
}

/// A period that has been replayed once.
fn replaying(world: &World, way: Scenario) -> Result<(Stepped, Period), HaloError> {
    let stream = stream_of(world, way.kind)?;
    let mut stepped = Stepped::new(world, &stream, way, 20, Pattern::All)?;
    let period = stepped.capture(2)?;
    stream.replay(&period, 1)?;
    stream.synchronize()?;
    Ok((stepped, period))
}

fn fail(stream: &Stream) -> Result<(), HaloError> {
    stream.enqueue_host("reading the tide table", || Err("it is wet".into()));
    Ok(stream.synchronize()?)
}

/// Rank 1 fails while the others wait for it.
pub fn with_a_rank_that_fails(world: &World, way: Scenario) -> Result<(), HaloError> {
    let (stream, mut fields, mut halo) = gathering(world, way)?;
    if world.rank() == 1 {
        return fail(&stream);
    }
    halo.enqueue_gather(&mut fields)?;
    Ok(stream.synchronize()?)
}

/// The same while they replay a period.
pub fn replays_with_a_rank_that_fails(world: &World, way: Scenario) -> Result<(), HaloError> {
    let (Stepped { stream, .. }, period) = &replaying(world, way)?;
    if world.rank() == 1 {
        return fail(stream);
    }
    stream.replay(period, 1000)?;
    Ok(stream.synchronize()?)
}

/// Rank 1 says what it failed with, and the others that it did.
///
/// # Panics
/// If one says something else.
pub fn check_failures(results: Vec<Result<(), HaloError>>, context: &dyn Debug) {
    for (rank, result) in results.into_iter().enumerate() {
        match (rank, result.expect_err("rank 1 fails")) {
            (1, HaloError::Communication(Error::OperationFailed { operation, .. })) => {
                assert_eq!(operation, "reading the tide table");
            }
            (0 | 2, HaloError::Communication(Error::PeerFailed { rank: 1, operation })) => {
                assert!(operation.contains("tide table"), "{operation}");
            }
            (rank, error) => panic!("rank {rank}, {context:?}: {error}"),
        }
    }
}

/// Of worlds in which a rank comes late.
pub const IMPATIENT: WorldOptions = WorldOptions { timeout: Some(PATIENCE), policy: None };
/// They are made in that time too, on a machine that has other things to do.
const PATIENCE: Duration = Duration::from_millis(700);

/// What ranks of one process share that wait for one that is late.
#[derive(Debug, Default)]
pub struct Lateness {
    has_ended: AtomicBool,
}

impl Lateness {
    /// On rank 0 of two, which says nothing, until the other one has waited in vain; or, if that never ends, for much
    /// longer than its patience.
    fn of(&self, world: &World, wait: impl FnOnce() -> Result<(), HaloError>) -> Result<(), HaloError> {
        if world.rank() == 0 {
            let since = Instant::now();
            while !self.has_ended.load(Ordering::Relaxed) && since.elapsed() < TIMEOUT {
                std::thread::sleep(PATIENCE / 100);
            }
            return Ok(());
        }
        let waited = wait();
        self.has_ended.store(true, Ordering::Relaxed);
        waited
    }
}

/// Rank 0 of two does not take part in an exchange that the other one waits for.
pub fn with_a_rank_that_is_late(world: &World, way: Scenario, lateness: &Lateness) -> Result<(), HaloError> {
    let (stream, mut fields, mut halo) = gathering(world, way)?;
    lateness.of(world, || {
        halo.enqueue_gather(&mut fields)?;
        Ok(stream.synchronize()?)
    })
}

/// The same while the other one replays a period.
pub fn replays_with_a_rank_that_is_late(
    world: &World,
    way: Scenario,
    lateness: &Lateness,
) -> Result<(), HaloError> {
    let (Stepped { stream, .. }, period) = &replaying(world, way)?;
    lateness.of(world, || {
        stream.replay(period, 1000)?;
        Ok(stream.synchronize()?)
    })
}

/// Rank 1 names the rank that is late.
///
/// # Panics
/// If it does not.
pub fn check_lateness(mut results: Vec<Result<(), HaloError>>, context: &dyn Debug) {
    match results.remove(1).expect_err("nothing comes") {
        HaloError::Communication(Error::TimedOut { rank: 1, peer: 0, .. }) => {}
        error => panic!("{context:?}: {error}"),
    }
}
