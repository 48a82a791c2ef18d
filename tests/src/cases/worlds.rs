//! Worlds and parts of them, and what tells the exchanges of a world apart.

use super::Done;
use super::order::{Exchanged, ring};
use crate::{FieldSet, FieldSpec, Random, Scenario, stream_of};
use streamhalo::ElementType::F64;
use streamhalo::{Entity, GlobalGrid, HaloError, Pattern, Stream, StreamHalo, World};

/// Some epochs of an exchange over all ranks of a world.
pub fn exchange(world: &World, stream: &Stream, way: Scenario, epochs: u32) -> Result<Done, HaloError> {
    exchange_by(world, stream, way, epochs).map(|(done, _)| done)
}

/// As [`exchange`], with the backend that has carried it out.
pub fn exchange_by(
    world: &World,
    stream: &Stream,
    way: Scenario,
    epochs: u32,
) -> Result<(Done, &'static str), HaloError> {
    let grid = GlobalGrid::new([2 * world.size(), 30], [true; 2])?;
    let grid = grid.partition_as(world, [world.size(), 1])?.local(1)?;
    let specs = [FieldSpec::array(F64, Entity::Node, 1)];
    let mut fields = FieldSet::new(&grid, stream, &specs, &Pattern::All, [1, 1])?;
    let mut halo = StreamHalo::new(world, stream, way.backend, Pattern::All, 1, &mut fields)?;
    for epoch in 1..=epochs {
        fields.fill(epoch)?;
        halo.enqueue_gather(&mut fields)?;
        fields.check(epoch)?;
    }
    fields.assert_right(&(way, world))?;
    Ok((Done::new(fields.checksum(), &halo), halo.backend()))
}

/// The whole world, its first ranks, and parts of those parts, at the same time.
pub fn parts(world: &World, way: Scenario) -> Result<Done, HaloError> {
    let stream = stream_of(world, way.kind)?;
    let mut done = Done::default();
    for ranks in 1..=world.size() {
        let part = world.first(ranks)?;
        assert_eq!(part.is_some(), world.rank() < ranks);
        let Some(part) = part else { continue };
        assert_eq!((part.rank(), part.size()), (world.rank(), ranks));
        done.add(&exchange(&part, &stream, way, 3)?);
        if let Some(pair) = part.first(ranks.div_ceil(2))? {
            done.add(&exchange(&pair, &stream, way, 2)?);
            assert_eq!(pair.all_gather(&pair.rank())?, (0..pair.size()).collect::<Vec<_>>());
        }
        part.barrier()?;
    }
    done.add(&exchange(world, &stream, way, 3)?);
    Ok(done)
}

/// Exchanges of a world and of a part of it with the same ranks, in flight together and begun in
/// opposite orders.
pub fn world_and_part(world: &World, way: Scenario, row: usize) -> Result<Done, HaloError> {
    let part = world.first(world.size())?.expect("all ranks are in it");
    let stream = stream_of(world, way.kind)?;
    let make = |world: &World| {
        Exchanged::new(world, &stream, way.backend, ring(world, row), (&[super::CELLS], &Pattern::All))
    };
    let mut both = [make(world)?, make(&part)?];
    for _ in 0..3 {
        both.iter_mut().try_for_each(Exchanged::fill)?;
        let [one, two] = &mut both;
        let [one, two] = if world.rank() % 2 == 1 { [two, one] } else { [one, two] };
        let first = one.halo.begin_gather(&mut one.fields)?;
        let second = two.halo.begin_gather(&mut two.fields)?;
        first.finish()?;
        second.finish()?;
        both.iter_mut().try_for_each(Exchanged::check)?;
    }
    let mut done = both[0].done(&way)?;
    done.add(&both[1].done(&way)?);
    Ok(done)
}

/// Many exchanges of one world between the same ranks, finished in another order than begun.
pub fn many_tags(world: &World, way: Scenario) -> Result<Done, HaloError> {
    let stream = stream_of(world, way.kind)?;
    let size = world.size();
    let grid = GlobalGrid::new([2 * size, 6], [true; 2])?.partition_as(world, [size, 1])?.local(1)?;
    let specs = [super::CELLS];
    let make = |_| FieldSet::new(&grid, &stream, &specs, &Pattern::All, [1, 1]);
    let mut sets = (0..5).map(make).collect::<Result<Vec<_>, _>>()?;
    let make =
        |fields: &mut FieldSet<2>| StreamHalo::new(world, &stream, way.backend, Pattern::All, 1, fields);
    let mut halos = sets.iter_mut().map(make).collect::<Result<Vec<_>, _>>()?;
    let mut random = Random::new(3);
    for epoch in 1..=5 {
        for (number, set) in (0..).zip(&mut sets) {
            set.fill(epoch * 10 + number)?;
        }
        let begin = halos.iter_mut().zip(&mut sets).map(|(halo, set)| halo.begin_gather(set));
        let mut in_flight = begin.collect::<Result<Vec<_>, _>>()?;
        while !in_flight.is_empty() {
            in_flight.swap_remove(random.below(in_flight.len())).finish()?;
        }
        drop(in_flight);
        for (number, set) in (0..).zip(&sets) {
            set.check(epoch * 10 + number)?;
        }
    }
    let mut done = Done::default();
    for (set, halo) in sets.iter().zip(&halos) {
        set.assert_right(&way)?;
        done.add(&Done::new(set.checksum(), halo));
    }
    Ok(done)
}
