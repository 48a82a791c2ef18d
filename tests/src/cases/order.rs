//! When things happen: exchanges in flight together, begun in different orders, slow ranks, ranks
//! that block elsewhere, and the wrap of the epochs' number.

use super::Done;
use super::primitives::near_the_wrap;
use crate::{FieldSet, FieldSpec, Oracle, Origin, Random, Scenario, delay, stream_of, ways_of};
use std::fmt::Debug;
use std::time::Duration;
use streamhalo::{
    Array, Entity, GlobalGrid, HaloError, LocalGrid, Op, Pattern, Stream, StreamHalo, StreamKind, World,
};

/// Cells, ranks on each axis, and whether both axes are periodic.
pub type Shape = ([usize; 2], [usize; 2], bool);

/// A field set with its exchange on a stream of its own grid.
#[derive(Debug)]
pub struct Exchanged {
    /// What is exchanged.
    pub fields: FieldSet<2>,
    /// The exchange.
    pub halo: StreamHalo,
    epoch: u32,
}

impl Exchanged {
    /// One layer deep.
    pub fn new(
        world: &World,
        stream: &Stream,
        backend: &str,
        (cells, layout, periodic): Shape,
        (specs, pattern): (&[FieldSpec], &Pattern),
    ) -> Result<Self, HaloError> {
        let grid = GlobalGrid::new(cells, [periodic; 2])?.partition_as(world, layout)?.local(1)?;
        let mut fields = FieldSet::new(&grid, stream, specs, pattern, [1, 1])?;
        let halo = StreamHalo::new(world, stream, backend, pattern.clone(), 1, &mut fields)?;
        Ok(Self { fields, halo, epoch: 0 })
    }

    /// Begins an epoch.
    pub fn fill(&mut self) -> Result<(), HaloError> {
        self.epoch += 1;
        self.fields.fill(self.epoch)
    }

    /// Ends an epoch.
    pub fn check(&mut self) -> Result<(), HaloError> {
        self.fields.check(self.epoch)?;
        self.fields.swap();
        Ok(())
    }

    /// One whole epoch.
    pub fn step(&mut self) -> Result<(), HaloError> {
        self.fill()?;
        self.halo.enqueue_gather(&mut self.fields)?;
        self.check()
    }

    /// Waits, and fails if a check has found something.
    pub fn done(&self, context: &dyn Debug) -> Result<Done, HaloError> {
        self.fields.assert_right(context)?;
        Ok(Done::new(self.fields.checksum(), &self.halo))
    }
}

/// A row of ranks that meet at both ends.
pub fn ring(world: &World, row: usize) -> Shape {
    ([2 * world.size(), row], [world.size(), 1], true)
}

/// Two exchanges that even and odd ranks begin, and finish, in opposite orders.
pub fn opposite_orders(
    world: &World,
    way: Scenario,
    row: usize,
    specs: &[FieldSpec],
) -> Result<Done, HaloError> {
    let stream = stream_of(world, way.kind)?;
    let make = || Exchanged::new(world, &stream, way.backend, ring(world, row), (specs, &Pattern::All));
    let (mut a, mut b) = (make()?, make()?);
    for epoch in 1..=5 {
        a.fill()?;
        b.fill()?;
        // In turn, so that both ranks are first at times.
        let swapped = (world.rank() + epoch as usize).is_multiple_of(2);
        let [first, second] = if swapped { [&mut b, &mut a] } else { [&mut a, &mut b] };
        let one = first.halo.begin_gather(&mut first.fields)?;
        let two = second.halo.begin_gather(&mut second.fields)?;
        one.check_owned(epoch)?;
        if epoch % 3 == 0 {
            two.finish()?;
            one.finish()?;
        } else {
            one.finish()?;
            two.finish()?;
        }
        a.check()?;
        b.check()?;
    }
    let mut done = a.done(&(way, row))?;
    done.add(&b.done(&(way, row))?);
    Ok(done)
}

/// Rank 0 meets the others, or exchanges something else, while its messages are on their way; the
/// others first finish. Whatever blocks a rank must send what it has begun.
pub fn blocked_elsewhere(world: &World, way: Scenario, row: usize) -> Result<Done, HaloError> {
    let stream = stream_of(world, way.kind)?;
    let cells = [super::CELLS];
    let make = |backend| Exchanged::new(world, &stream, backend, ring(world, row), (&cells, &Pattern::All));
    let mut one = make(way.backend)?;
    let mut others = ways_of(way.kind).map(|other| make(other.backend)).collect::<Result<Vec<_>, _>>()?;
    for _ in 0..2 {
        one.fill()?;
        let in_flight = one.halo.begin_gather(&mut one.fields)?;
        if world.rank() == 0 {
            world.barrier()?;
            others.iter_mut().try_for_each(Exchanged::step)?;
            in_flight.finish()?;
        } else {
            in_flight.finish()?;
            stream.synchronize()?;
            world.barrier()?;
            others.iter_mut().try_for_each(Exchanged::step)?;
        }
        one.check()?;
        one.fill()?;
        let in_flight = one.halo.begin_gather(&mut one.fields)?;
        if world.rank() == 0 {
            others.iter_mut().try_for_each(Exchanged::step)?;
            stream.synchronize()?;
            in_flight.finish()?;
        } else {
            in_flight.finish()?;
            stream.synchronize()?;
            others.iter_mut().try_for_each(Exchanged::step)?;
        }
        one.check()?;
    }
    for other in &others {
        other.fields.assert_right(&(way, row))?;
    }
    one.done(&(way, row))
}

/// Exchanges on two streams of a rank, which interleave.
pub fn two_streams(world: &World, way: Scenario, kinds: [StreamKind; 2]) -> Result<Done, HaloError> {
    let streams = [stream_of(world, kinds[0])?, stream_of(world, kinds[1])?];
    let one_way = Pattern::Offsets(vec![vec![1, 0]]);
    let mut all = Vec::new();
    for stream in &streams {
        for (specs, pattern) in [(super::CELLS, &Pattern::All), (super::ALTERNATING, &one_way)] {
            all.push(Exchanged::new(world, stream, way.backend, ring(world, 60), (&[specs], pattern))?);
        }
    }
    for epoch in 0..8 {
        if epoch % 2 == 0 {
            all.iter_mut().try_for_each(Exchanged::step)?;
            continue;
        }
        all.iter_mut().try_for_each(Exchanged::fill)?;
        let in_flight = all
            .iter_mut()
            .map(|one| one.halo.begin_gather(&mut one.fields))
            .collect::<Result<Vec<_>, _>>()?;
        in_flight.into_iter().rev().try_for_each(|one| one.finish())?;
        all.iter_mut().try_for_each(Exchanged::check)?;
    }
    let mut done = Done::default();
    for one in &all {
        done.add(&one.done(&(way, kinds))?);
    }
    Ok(done)
}

/// A chain, a ring or a plane of ranks with one that is slow.
pub fn slow_rank(
    world: &World,
    way: Scenario,
    shape: Shape,
    (specs, pattern): (&[FieldSpec], &Pattern),
    (slow, epochs): (usize, usize),
) -> Result<Done, HaloError> {
    let stream = stream_of(world, way.kind)?;
    let mut one = Exchanged::new(world, &stream, way.backend, shape, (specs, pattern))?;
    let mut random = Random::new(slow as u64);
    for _ in 0..epochs {
        one.fill()?;
        // Before the pack, and between the wait and the reading of ghosts.
        let pause = if world.rank() == slow { random.below(4) } else { 0 };
        pause_for(&stream, pause % 2 * 120);
        one.halo.enqueue_gather(&mut one.fields)?;
        pause_for(&stream, pause / 2 * 120);
        one.check()?;
    }
    one.done(&(way, shape, pattern, slow))
}

fn pause_for(stream: &Stream, microseconds: usize) {
    if microseconds > 0 {
        stream.enqueue_host("a pause", move || {
            std::thread::sleep(Duration::from_micros(microseconds as u64));
            Ok(())
        });
    }
}

/// Operations that are still on the stream when their exchange is dropped, on ranks of which one is slow.
pub fn dropped_early(world: &World, way: Scenario, row: usize) -> Result<Done, HaloError> {
    let stream = stream_of(world, way.kind)?;
    let one = Exchanged::new(world, &stream, way.backend, ring(world, row), (&[super::CELLS], &Pattern::All));
    let mut one = one?;
    for _ in 0..4 {
        pause_for(&stream, if world.rank() == 0 { 3_000 } else { 0 });
        one.step()?;
    }
    let Exchanged { fields, halo, .. } = one;
    let mut done = Done::new(0, &halo);
    drop(halo);
    fields.assert_right(&(way, row))?;
    done.checksum = fields.checksum();
    Ok(done)
}

/// Many epochs, in which every rank is late at times.
pub fn random_delays(
    world: &World,
    way: Scenario,
    shape: Shape,
    specs: &[FieldSpec],
    epochs: usize,
) -> Result<Done, HaloError> {
    let stream = stream_of(world, way.kind)?;
    let mut one = Exchanged::new(world, &stream, way.backend, shape, (specs, &Pattern::All))?;
    let mut random = Random::new(world.rank() as u64);
    for _ in 0..epochs {
        if random.once_in(4) {
            delay(&stream, &mut random);
        }
        one.step()?;
    }
    one.done(&way)
}

/// Gathers and scatters whose epochs go past 2³².
pub fn wrap(
    world: &World,
    way: Scenario,
    row: usize,
    spec: FieldSpec,
    pattern: &Pattern,
) -> Result<Done, HaloError> {
    let stream = stream_of(world, way.kind)?;
    let (cells, layout, _) = ring(world, row);
    let grid: LocalGrid<2> = GlobalGrid::new(cells, [true; 2])?.partition_as(world, layout)?.local(1)?;
    let mut fields = FieldSet::new(&grid, &stream, &[spec], pattern, [1, 1])?;
    let mut sums = Array::<i64, 2>::zeros(&grid, Entity::Cell, &stream)?;
    let builder = || StreamHalo::builder(world, &stream).backend(way.backend).pattern(pattern.clone());
    let mut halo = near_the_wrap(world, || builder().build(1, &mut fields))?;
    let mut scatter = near_the_wrap(world, || builder().scatter(Op::Sum).build(1, &mut sums))?;
    let mut random = Random::new(world.rank() as u64);
    // Each owned entry is the epoch, and each ghost that is sent adds it once more.
    let oracle = Oracle::new(grid.subdomain(), Entity::Cell, pattern, [1, 1]);
    let of_rank = |rank| {
        let there = oracle.of_rank(rank);
        let adds =
            |local: &[usize; 2]| matches!(there.origin(*local), Origin::Owned { .. } | Origin::Ghost { .. });
        there.entries().filter(adds).count() as i64
    };
    let contributions: i64 = (0..world.size()).map(of_rank).sum();
    for epoch in 1..=14 {
        delay(&stream, &mut random);
        fields.fill(epoch)?;
        halo.enqueue_gather(&mut fields)?;
        fields.check(epoch)?;
        fields.swap();
        sums.fill_with_ghosts(|_, _| i64::from(epoch))?;
        scatter.enqueue_scatter(&mut sums)?;
        let total: i64 = sums.with_owned(|owned| owned.iter().sum())?;
        let totals: i64 = world.all_gather(&total)?.iter().sum();
        assert_eq!(totals, i64::from(epoch) * contributions, "in {epoch}, {way:?}");
    }
    fields.assert_right(&(way, row, pattern))?;
    Ok(Done::new(fields.checksum(), &halo))
}
