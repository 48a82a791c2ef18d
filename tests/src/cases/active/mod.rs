//! Active target epochs of windows: the example of the paper (2023, figure 9), gets, accumulates, groups of
//! any kind, windows in flight together, and hosts that run far ahead of their streams.

mod ring;

pub use ring::{Faults, Ring, fill, row};

use super::Done;
use crate::{Random, Sample, Scenario, delay, stream_of};
use ring::sample;
use std::ops::Range;
use streamhalo::comm::Error;
use streamhalo::comm::device::Buffer;
use streamhalo::comm::fabric::Throttling;
use streamhalo::comm::window::{ActiveOptions, Group, Mode, Window};
use streamhalo::{HaloError, Op, StreamKind, World};

/// Figure 9 (b), with one synchronisation at the end, and (a).
pub fn ring(world: &World, way: Scenario, elements: usize) -> Result<Done, HaloError> {
    let stream = stream_of(world, way.kind)?;
    let mut ring = Ring::new(world, &stream, elements, ActiveOptions::default())?;
    let mut random = Random::new(world.rank() as u64);
    for _ in 0..12 {
        delay(&stream, &mut random);
        ring.step_stream()?;
    }
    assert_eq!(stream.synchronizations(), 0, "the host has waited");
    ring.finish()?;
    assert_eq!(stream.synchronizations(), 1);
    for epoch in 0..4 {
        ring.step_host(epoch % 2 == 1)?;
    }
    // Both in turn: the words count on.
    for _ in 0..3 {
        ring.step_stream()?;
        ring.finish()?;
        ring.step_host(false)?;
    }
    ring.finish()?;
    Ok(Done::default())
}

/// Windows whose epochs are in flight together, completed in opposite orders on odd ranks.
pub fn opposite_orders(world: &World, way: Scenario) -> Result<Done, HaloError> {
    let streams = [stream_of(world, way.kind)?, stream_of(world, way.kind)?];
    let make = |index: usize| Ring::new(world, &streams[index % 2], 100 + index, ActiveOptions::default());
    let mut rings = (0..4).map(make).collect::<Result<Vec<_>, _>>()?;
    let mut order: Vec<usize> = (0..rings.len()).collect();
    if world.rank() % 2 == 1 {
        order.reverse();
    }
    for _ in 0..6 {
        for index in &order {
            rings[*index].post_stream()?;
        }
        for index in &order {
            rings[*index].access_stream()?;
        }
        for index in order.iter().rev() {
            rings[*index].wait_stream()?;
        }
        order.rotate_left(1);
    }
    rings.iter().try_for_each(Ring::finish)?;
    Ok(Done::default())
}

/// Every rank accumulates into every part, its own too, with every operation, in one epoch.
pub fn accumulates<T: Sample>(world: &World, way: Scenario, elements: usize) -> Result<Done, HaloError> {
    let ops = [Op::Sum, Op::Min, Op::Max];
    let (rank, ranks) = (world.rank(), world.size());
    let stream = stream_of(world, way.kind)?;
    // A place for each operation, and one for each rank that replaces.
    let places = ops.len() + ranks;
    let mut part = Buffer::<T>::zeros(world, &stream, row(places * elements))?;
    let mut source = Buffer::<T>::zeros(world, &stream, row(elements))?;
    let window = Window::active(world, &part.section(0..places * elements)?, ActiveOptions::default())?;
    let all = Group::new(world, &(0..ranks).collect::<Vec<_>>())?;
    // Sums of them are exact in every type.
    let small = |rank: usize, epoch: u32, i: usize| T::from_bits(sample::<i64>(rank, epoch, i) as u64 % 1000);
    let faults = Faults::default();
    for epoch in 1..=4 {
        fill(&stream, &mut part, move |i| small(ranks + rank, epoch, i))?;
        fill(&stream, &mut source, move |i| small(rank, epoch, i))?;
        let section = source.section(0..elements)?;
        let on_stream = epoch % 2 == 0;
        if on_stream {
            window.post_stream(&all, &stream)?;
            window.start(&all, Mode::Stream)?;
        } else {
            stream.synchronize()?;
            window.post(&all)?;
            window.start(&all, Mode::Host)?;
        }
        for target in 0..ranks {
            for (place, op) in ops.into_iter().enumerate() {
                window.accumulate(&section, target, place * elements, op)?;
            }
            // In their order: the replacement is what the sum finds.
            let own = (ops.len() + rank) * elements;
            window.accumulate(&section, target, own, Op::Replace)?;
            window.accumulate(&section, target, own, Op::Sum)?;
        }
        if on_stream {
            window.complete_stream(&stream)?;
            window.wait_stream(&stream)?;
        } else {
            window.complete()?;
            window.wait()?;
        }
        let what = format!("{} in epoch {epoch}", T::TYPE);
        faults.check(&stream, &part, 0..places * elements, what, move |i| {
            let (place, element) = (i / elements, i % elements);
            let own = small(ranks + rank, epoch, i);
            match ops.get(place) {
                Some(op) => (0..ranks).fold(own, |sum, from| sum.combined(*op, small(from, epoch, element))),
                None => {
                    let from = small(place - ops.len(), epoch, element);
                    from.plus(from)
                }
            }
        })?;
    }
    stream.synchronize()?;
    faults.assert_none(&(rank, T::TYPE));
    Ok(Done::default())
}

/// Puts and gets that take a while, by the first rank, which the epochs of the others have to wait for: these
/// do nothing else meanwhile.
pub fn large(world: &World, way: Scenario) -> Result<Done, HaloError> {
    const ELEMENTS: usize = 200_000;
    let (rank, ranks) = (world.rank(), world.size());
    let first_target = usize::from(ranks > 1);
    let stream = stream_of(world, way.kind)?;
    // What is put to this rank, and what is got from it.
    let mut part = Buffer::<i64>::zeros(world, &stream, row(2 * ELEMENTS))?;
    let mut source = Buffer::<i64>::zeros(world, &stream, row(ELEMENTS))?;
    let mut got = Buffer::<i64>::zeros(world, &stream, row(ELEMENTS))?;
    let window = Window::active(world, &part.section(0..2 * ELEMENTS)?, ActiveOptions::default())?;
    let origin = Group::new(world, if rank >= first_target { &[0] } else { &[] })?;
    let targets: Vec<usize> = if rank == 0 { (first_target..ranks).collect() } else { Vec::new() };
    let targets = Group::new(world, &targets)?;
    let faults = Faults::default();
    for epoch in 1..=3 {
        fill(&stream, &mut part, move |i| i as i64 * 3 + rank as i64 + i64::from(epoch))?;
        fill(&stream, &mut source, move |i| i as i64 * 5 + i64::from(epoch))?;
        fill(&stream, &mut got, |_| 0)?;
        window.post_stream(&origin, &stream)?;
        window.start(&targets, Mode::Stream)?;
        for target in targets.ranks() {
            window.put(&source.section(0..ELEMENTS)?, *target, 0)?;
        }
        if rank == 0 {
            window.get(&got.section(0..ELEMENTS)?, ranks - 1, ELEMENTS)?;
        }
        window.complete_stream(&stream)?;
        if rank == 0 {
            faults.check(&stream, &got, 0..ELEMENTS, format!("got in epoch {epoch}"), move |i| {
                (i + ELEMENTS) as i64 * 3 + (ranks - 1) as i64 + i64::from(epoch)
            })?;
        }
        window.wait_stream(&stream)?;
        if rank >= first_target {
            faults.check(&stream, &part, 0..ELEMENTS, format!("put in epoch {epoch}"), move |i| {
                i as i64 * 5 + i64::from(epoch)
            })?;
        }
    }
    stream.synchronize()?;
    faults.assert_none(&rank);
    Ok(Done::default())
}

/// Epochs between random groups, with operations of random kind, size and place, by hosts and streams.
pub fn at_random(world: &World, way: Scenario, seed: u64) -> Result<Done, HaloError> {
    const SLOT: usize = 700;
    let (rank, ranks) = (world.rank(), world.size());
    let stream = stream_of(world, way.kind)?;
    // A slot for each origin; that of the rank with the highest number is missing in the part of rank 0.
    let slots = |target: usize| if target == 0 && ranks > 1 { ranks - 1 } else { ranks };
    let mut part = Buffer::<i64>::zeros(world, &stream, row(slots(rank) * SLOT))?;
    let mut source = Buffer::<i64>::zeros(world, &stream, row(SLOT))?;
    let mut got = Buffer::<i64>::zeros(world, &stream, row(ranks * SLOT))?;
    let window = Window::active(world, &part.section(0..slots(rank) * SLOT)?, ActiveOptions::default())?;
    let mut random = Random::new(seed);
    let mut own = Random::new(seed ^ (rank as u64 + 1) << 32);
    let faults = Faults::default();
    for epoch in 1..=12 {
        // What every origin does to every target: nothing, be in the group only, put, get or accumulate.
        let plan: Vec<Vec<(usize, Range<usize>)>> = (0..ranks)
            .map(|origin| {
                (0..ranks)
                    .map(|target| {
                        let start = random.below(SLOT);
                        let end = random.between(start, SLOT);
                        let has_slot = origin < slots(target);
                        let choices: &[usize] = if has_slot { &[0, 1, 2, 2, 3, 4] } else { &[0, 1] };
                        (random.pick(choices), start..end)
                    })
                    .collect()
            })
            .collect();
        let by_stream: Vec<bool> = (0..ranks).map(|_| random.once_in(2)).collect();
        fill(&stream, &mut part, move |i| sample(ranks + rank, epoch, i))?;
        fill(&stream, &mut source, move |i| sample(rank, epoch, i))?;
        fill(&stream, &mut got, |_| 0)?;
        let origins: Vec<usize> = (0..ranks).filter(|origin| plan[*origin][rank].0 > 0).collect();
        let targets: Vec<usize> = (0..ranks).rev().filter(|target| plan[rank][*target].0 > 0).collect();
        let (origins, targets) = (Group::new(world, &origins)?, Group::new(world, &targets)?);
        delay(&stream, &mut own);
        let on_stream = by_stream[rank];
        if on_stream {
            window.post_stream(&origins, &stream)?;
            window.start(&targets, Mode::Stream)?;
        } else {
            stream.synchronize()?;
            window.post(&origins)?;
            window.start(&targets, Mode::Host)?;
        }
        for (target, (kind, range)) in plan[rank].iter().enumerate() {
            let there = rank * SLOT + range.start;
            match kind {
                2 => window.put(&source.section(range.clone())?, target, there)?,
                3 => {
                    let here = target * SLOT;
                    window.get(&got.section(here + range.start..here + range.end)?, target, there)?;
                }
                4 => window.accumulate(&source.section(range.clone())?, target, there, Op::Sum)?,
                _ => {}
            }
        }
        if on_stream {
            window.complete_stream(&stream)?;
            window.wait_stream(&stream)?;
        } else {
            window.complete()?;
            window.wait()?;
        }
        let what = format!("part in epoch {epoch}");
        let to_me: Vec<_> = plan.iter().map(|targets| targets[rank].clone()).collect();
        faults.check(&stream, &part, 0..slots(rank) * SLOT, what, move |i| {
            let (origin, element) = (i / SLOT, i % SLOT);
            let (before, put): (i64, i64) = (sample(ranks + rank, epoch, i), sample(origin, epoch, element));
            match &to_me[origin] {
                (2, range) if range.contains(&element) => put,
                (4, range) if range.contains(&element) => before.wrapping_add(put),
                _ => before,
            }
        })?;
        let what = format!("got in epoch {epoch}");
        let mine = plan[rank].clone();
        faults.check(&stream, &got, 0..ranks * SLOT, what, move |i| {
            let (target, element) = (i / SLOT, i % SLOT);
            match &mine[target] {
                (3, range) if range.contains(&element) => {
                    sample(ranks + target, epoch, rank * SLOT + element)
                }
                _ => 0,
            }
        })?;
    }
    stream.synchronize()?;
    faults.assert_none(&(rank, seed, &window));
    Ok(Done::default())
}

/// Kernels may use the sections of an epoch on their stream until it is completed (2023, section 4.4): what they have written
/// by then is put. The host may not.
pub fn kernels_ahead(world: &World, way: Scenario) -> Result<Done, HaloError> {
    const SLOT: usize = 4;
    let (rank, ranks) = (world.rank(), world.size());
    let (next, previous) = ((rank + 1) % ranks, (rank + ranks - 1) % ranks);
    let neighbours = if next == previous { vec![next] } else { vec![next, previous] };
    let neighbours = Group::new(world, &neighbours)?;
    let stream = stream_of(world, way.kind)?;
    let mut part = Buffer::<i64>::zeros(world, &stream, row(2 * SLOT))?;
    let mut source = Buffer::<i64>::zeros(world, &stream, row(SLOT))?;
    let mut got = Buffer::<i64>::zeros(world, &stream, row(SLOT))?;
    let window = Window::active(world, &part.section(0..2 * SLOT)?, ActiveOptions::default())?;
    let faults = Faults::default();
    for epoch in 1..=3 {
        fill(&stream, &mut part, move |i| sample(ranks + rank, epoch, i))?;
        fill(&stream, &mut got, |_| 7)?;
        window.post_stream(&neighbours, &stream)?;
        window.start(&neighbours, Mode::Stream)?;
        window.put(&source.section(0..SLOT)?, next, 0)?;
        window.get(&got.section(0..SLOT)?, next, SLOT)?;
        let refused = source.with_host_mut(row(SLOT).whole(), |_| ());
        assert!(matches!(refused, Err(Error::InUse { by: "a put", .. })), "{refused:?}");
        let refused = got.copy_out(row(SLOT).whole());
        assert!(matches!(refused, Err(Error::InUse { by: "a get", .. })), "{refused:?}");
        fill(&stream, &mut source, move |i| sample(rank, epoch, i))?;
        faults.check(&stream, &got, 0..SLOT, format!("not got yet in epoch {epoch}"), |_| 7)?;
        fill(&stream, &mut got, |_| 8)?;
        window.complete_stream(&stream)?;
        window.wait_stream(&stream)?;
        faults.check(&stream, &part, 0..2 * SLOT, format!("part in epoch {epoch}"), move |i| match i {
            ..SLOT => sample(previous, epoch, i),
            _ => sample(ranks + rank, epoch, i),
        })?;
        faults.check(&stream, &got, 0..SLOT, format!("got in epoch {epoch}"), move |i| {
            sample(ranks + next, epoch, SLOT + i)
        })?;
    }
    stream.synchronize()?;
    faults.assert_none(&(rank, &window));
    Ok(Done::default())
}

/// A host that runs far ahead of its stream, with room for one epoch and a bit.
pub fn throttled(world: &World, way: Scenario) -> Result<Done, HaloError> {
    for throttling in Throttling::ALL {
        let kind = if way.kind == StreamKind::Inline { StreamKind::Threaded } else { way.kind };
        let stream = stream_of(world, kind)?;
        // Signals of post, then operations and signals of complete.
        let neighbours = if world.size() > 2 { 2 } else { 1 };
        let entries = neighbours + (2 + neighbours) + 1;
        let mut ring = Ring::new(world, &stream, 300, ActiveOptions { throttling, entries })?;
        let mut refused = 0;
        for _ in 0..15 {
            stream.enqueue_host("a pause", || {
                std::thread::sleep(std::time::Duration::from_micros(200));
                Ok(())
            });
            let mut synchronized = |result: Result<(), HaloError>| match result {
                Err(HaloError::Communication(Error::Throttled { .. })) => {
                    refused += 1;
                    stream.synchronize()?;
                    Ok(true)
                }
                other => other.map(|()| false),
            };
            let result = ring.post_stream();
            if synchronized(result)? {
                ring.post_stream()?;
            }
            ring.window.start(&ring.group, Mode::Stream)?;
            ring.puts()?;
            if synchronized(ring.window.complete_stream(&stream).map_err(HaloError::from))? {
                ring.window.complete_stream(&stream)?;
            }
            assert!(ring.window.entries_in_use() <= entries);
            ring.wait_stream()?;
        }
        ring.finish()?;
        assert_eq!(ring.window.entries_in_use(), 0, "{throttling:?}, {way:?}");
        assert_eq!(refused > 0, throttling == Throttling::Application, "{refused} refused, {throttling:?}");
    }
    Ok(Done::default())
}
