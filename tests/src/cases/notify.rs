//! Notified access: the example of the paper (2015, listing 1), matching, the order of accesses, atomic ones,
//! and receivers that are slow.

use super::Done;
use crate::{Random, Sample, Scenario, stream_of, value};
use std::time::Duration;
use streamhalo::comm::device::{Buffer, Extents};
use streamhalo::comm::window::{ActiveOptions, Group, Notification, Window};
use streamhalo::comm::{Element, Error, Source, Tag};
use streamhalo::{HaloError, Op, World};

fn window<T: Element>(world: &World, way: Scenario, elements: usize) -> Result<Window, HaloError> {
    Ok(Window::allocate::<T>(world, &stream_of(world, way.kind)?, elements)?)
}

/// Blocks until that many accesses have notified this rank; the last of them.
fn await_count(window: &Window, source: Source, tag: Tag, count: u32) -> Result<Notification, Error> {
    let mut request = window.notify_init(source, tag, count)?;
    request.start()?;
    let last = request.wait()?;
    assert_eq!(request.test()?, Some(last), "a request remains complete");
    Ok(last)
}

/// Ends a case: nobody drops its window while others still use it.
fn done(world: &World) -> Result<Done, HaloError> {
    world.barrier()?;
    Ok(Done::default())
}

fn element<T: Sample>(rank: usize, index: usize, epoch: u32) -> T {
    value(rank, &[index], 0, epoch)
}

/// The paper's ping-pong, between the ranks of each pair, with puts of every length.
pub fn ping_pong(world: &World, way: Scenario) -> Result<Done, HaloError> {
    const LONGEST: usize = 9_000;
    let window = window::<f64>(world, way, 2 * LONGEST)?;
    let (rank, partner) = (world.rank(), world.rank() ^ 1);
    let partner = if partner < world.size() { partner } else { rank };
    let is_client = rank <= partner;
    let mut request = window.notify_init(Source::Rank(partner), Tag::Value(99), 1)?;
    let (mut sent, mut received) = (vec![0.0; LONGEST], vec![0.0; LONGEST]);
    for (epoch, size) in [0, 1, 3, 4, 5, 8, 100, 1_000, LONGEST, 4, 0, 2].into_iter().enumerate() {
        let epoch = epoch as u32;
        let fill = |values: &mut [f64], of: usize| {
            values.iter_mut().enumerate().for_each(|(i, value)| *value = element(of, i, epoch));
        };
        fill(&mut sent, rank);
        let mut expected = vec![0.0; size];
        fill(&mut expected, partner);
        let (mine, theirs) = if is_client { (0, LONGEST) } else { (LONGEST, 0) };
        if is_client {
            window.put_notify(&sent[..size], partner, mine, 99)?;
            window.flush(partner)?;
        }
        let theirs = if partner == rank { mine } else { theirs };
        request.start()?;
        assert_eq!(request.wait()?, Notification { source: partner, tag: 99 });
        window.read(theirs, &mut received[..size])?;
        assert!(received[..size] == expected, "{size} elements of rank {partner}");
        if !is_client {
            window.put_notify(&sent[..size], partner, mine, 99)?;
            window.flush(partner)?;
        }
    }
    request.free();
    done(world)
}

/// Rank 0 takes what all ranks have sent to it, by source and tag in another order, and by wildcards.
pub fn wildcards(world: &World, way: Scenario) -> Result<Done, HaloError> {
    const TAGS: u32 = 7;
    let window = window::<i64>(world, way, world.size() * TAGS as usize)?;
    let (rank, size) = (world.rank(), world.size());
    for tag in (0..TAGS).chain([3, 3]) {
        window.put_notify(&[i64::from(tag) + 1], 0, rank * TAGS as usize + tag as usize, tag)?;
    }
    if rank == 0 {
        // One of each source, the last tag first.
        for (source, tag) in (0..size).rev().map(|source| (source, TAGS - 1)) {
            let found = await_count(&window, Source::Rank(source), Tag::Value(tag), 1)?;
            assert_eq!(found, Notification { source, tag });
        }
        // A source's own come in order, the three with tag 3 among them at once.
        let found = await_count(&window, Source::Rank(size - 1), Tag::Value(3), 3)?;
        assert_eq!(found, Notification { source: size - 1, tag: 3 });
        let mut request = window.notify_init(Source::Rank(size - 1), Tag::Any, 1)?;
        for tag in [0, 1, 2, 4, 5] {
            request.start()?;
            assert_eq!(request.wait()?, Notification { source: size - 1, tag });
        }
        assert_eq!(window.probe(Source::Rank(size - 1), Tag::Any)?, None);
        // The others' by tag, and then all that is left.
        if size > 1 {
            let found = await_count(&window, Source::Any, Tag::Value(5), size as u32 - 1)?;
            assert_eq!(found.tag, 5);
            assert_eq!(window.probe(Source::Any, Tag::Value(5))?, None);
            let waiting = window.probe(Source::Any, Tag::Value(0))?;
            assert!(waiting.is_some_and(|waiting| waiting.source < size - 1), "{waiting:?}");
            await_count(&window, Source::Any, Tag::Any, (size as u32 - 1) * 7)?;
        }
        assert_eq!(window.probe(Source::Any, Tag::Any)?, None);
        let mut values = vec![0; size * TAGS as usize];
        window.read(0, &mut values)?;
        assert!(values.iter().enumerate().all(|(i, value)| *value == i as i64 % i64::from(TAGS) + 1));
    }
    done(world)
}

/// Every rank puts a block into every rank's part, which waits for all of them at once.
pub fn counting(world: &World, way: Scenario, elements: usize) -> Result<Done, HaloError> {
    let (rank, size) = (world.rank(), world.size());
    let window = window::<i32>(world, way, size * elements)?;
    let mut all = window.notify_init(Source::Any, Tag::Value(0), size as u32)?;
    for epoch in 0..6 {
        let block: Vec<i32> = (0..elements).map(|i| element(rank, i, epoch)).collect();
        for target in (0..size).map(|next| (rank + next) % size) {
            window.put_notify(&block, target, rank * elements, 0)?;
        }
        all.start()?;
        all.wait()?;
        assert_eq!(all.matched(), size as u32);
        let mut found = vec![0; size * elements];
        window.read(0, &mut found)?;
        for (i, value) in found.into_iter().enumerate() {
            assert_eq!(
                value,
                element::<i32>(i / elements, i % elements, epoch),
                "element {i} in epoch {epoch}"
            );
        }
        // All have read before anyone puts again.
        world.barrier()?;
    }
    done(world)
}

/// Gets of every length, whose notifications say that the elements may be overwritten.
pub fn gets(world: &World, way: Scenario) -> Result<Done, HaloError> {
    const LONGEST: usize = 20_000;
    let window = window::<f32>(world, way, LONGEST)?;
    let (rank, size) = (world.rank(), world.size());
    let (next, previous) = ((rank + 1) % size, (rank + size - 1) % size);
    for (epoch, elements) in [1, 0, 8, 9, 3_000, LONGEST].into_iter().enumerate() {
        let epoch = epoch as u32;
        let own: Vec<f32> = (0..LONGEST).map(|i| element(rank, i, epoch)).collect();
        window.write(0, &own)?;
        world.barrier()?;
        std::thread::sleep(Duration::from_micros(200 * (rank as u64 % 3)));
        let (start, mut found) = (LONGEST - elements, vec![0.0; elements]);
        window.get_notify(&mut found, next, start, epoch)?;
        await_count(&window, Source::Rank(previous), Tag::Value(epoch), 1)?;
        window.write(0, &vec![-1.0_f32; LONGEST])?;
        let expected: Vec<f32> = (start..LONGEST).map(|i| element(next, i, epoch)).collect();
        assert!(found == expected, "{elements} elements of rank {next}");
        world.barrier()?;
    }
    done(world)
}

/// Random accesses of each rank to a block of its own in every part, against plain memory: they happen in order,
/// whichever way each of them takes.
pub fn in_order(world: &World, way: Scenario, seed: u64) -> Result<Done, HaloError> {
    const BLOCK: usize = 3_000;
    let (rank, size) = (world.rank(), world.size());
    let window = window::<i64>(world, way, size * BLOCK)?;
    let mut random = Random::new(seed ^ (rank as u64) << 32);
    let mut model = vec![vec![0_i64; BLOCK]; size];
    let mut accesses = vec![0_u32; size];
    for step in 0..400 {
        let target = random.below(size);
        let block = &mut model[target];
        let length = random.pick(&[1, 1, 2, 4, 5, 60, 2_500]);
        let start = if random.once_in(2) { 0 } else { random.below(BLOCK - length + 1) };
        let (offset, part) = (rank * BLOCK + start, start..start + length);
        let values: Vec<i64> = (0..length).map(|i| element(rank, i, step)).collect();
        match random.below(6) {
            0..=2 => {
                window.put_notify(&values, target, offset, 1)?;
                block[part].copy_from_slice(&values);
            }
            3 => {
                window.accumulate_notify(&values, target, offset, Op::Sum, 1)?;
                block[part].iter_mut().zip(&values).for_each(|(own, other)| *own = own.wrapping_add(*other));
            }
            4 => {
                let found = window.fetch_and_op_notify(values[0], target, offset, Op::Max, 1)?;
                assert_eq!(found, block[start], "step {step} of seed {seed}");
                block[start] = found.max(values[0]);
            }
            _ => {
                let mut found = vec![0; length];
                window.get_notify(&mut found, target, offset, 1)?;
                assert!(found == block[part], "step {step} of seed {seed}");
            }
        }
        accesses[target] += 1;
    }
    let all = world.all_gather(&(accesses, model))?;
    for (source, (accesses, model)) in all.into_iter().enumerate() {
        if accesses[rank] > 0 {
            await_count(&window, Source::Rank(source), Tag::Value(1), accesses[rank])?;
        }
        let mut found = vec![0; BLOCK];
        window.read(source * BLOCK, &mut found)?;
        assert!(found == model[rank], "the block of rank {source} at rank {rank}, seed {seed}");
    }
    assert_eq!(window.probe(Source::Any, Tag::Any)?, None);
    done(world)
}

/// All ranks combine into the same elements of rank 0.
pub fn accumulates<T: Sample>(world: &World, way: Scenario, elements: usize) -> Result<Done, HaloError> {
    let (rank, size) = (world.rank(), world.size());
    let window = window::<T>(world, way, elements)?;
    for (epoch, op) in [Op::Sum, Op::Min, Op::Max, Op::Replace].into_iter().enumerate() {
        let epoch = epoch as u32;
        // Sums of floats are the same in every order as long as they are small whole numbers.
        let small = |bits: i64| T::from_bits(bits as u64 % (1 << 20));
        let values = |of: usize| (0..elements).map(move |i| small(element(of, i, epoch)));
        let before: Vec<T> = values(size).collect();
        window.write(0, &before)?;
        world.barrier()?;
        // The order in which ranks replace is open: only one does.
        let takes_part = |of: usize| op != Op::Replace || of + 1 == size;
        if takes_part(rank) {
            window.accumulate_notify(&values(rank).collect::<Vec<_>>(), 0, 0, op, epoch)?;
        }
        if rank == 0 {
            let sources = (0..size).filter(|of| takes_part(*of));
            await_count(&window, Source::Any, Tag::Value(epoch), sources.clone().count() as u32)?;
            let mut found = vec![T::default(); elements];
            window.read(0, &mut found)?;
            let mut expected = before;
            for of in sources {
                expected
                    .iter_mut()
                    .zip(values(of))
                    .for_each(|(own, other)| *own = T::combine(op, *own, other));
            }
            assert!(found == expected, "{op:?} of {elements} {}", T::TYPE);
        }
        world.barrier()?;
    }
    done(world)
}

/// Tickets that no two ranks share, and a lock that one rank holds at a time.
pub fn atomics(world: &World, way: Scenario) -> Result<Done, HaloError> {
    const TURNS: usize = 20;
    let window = window::<i64>(world, way, 3)?;
    let mut tickets = Vec::new();
    for _ in 0..TURNS {
        tickets.push(window.fetch_and_op_notify(1_i64, 0, 0, Op::Sum, 0)?);
        while window.compare_and_swap_notify(0_i64, 1, 0, 1, 0)? != 0 {
            std::thread::yield_now();
        }
        // Not atomic in itself, but for the lock.
        let mut count = [0_i64];
        window.get_notify(&mut count, 0, 2, 0)?;
        window.put_notify(&[count[0] + 1], 0, 2, 0)?;
        assert_eq!(window.compare_and_swap_notify(1_i64, 0, 0, 1, 0)?, 1, "only who has locked unlocks");
    }
    let mut all: Vec<i64> = world.all_gather(&tickets)?.into_iter().flatten().collect();
    all.sort_unstable();
    assert!(all.iter().copied().eq(0..(TURNS * world.size()) as i64), "{all:?}");
    let mut counted = [0];
    window.read(2, &mut counted)?;
    let expected = if world.rank() == 0 { (TURNS * world.size()) as i64 } else { 0 };
    assert_eq!(counted[0], expected);
    done(world)
}

/// Accesses that notify nobody: they happen in order, and are there once they are flushed, or once what comes behind them
/// notifies.
pub fn silent(world: &World, way: Scenario) -> Result<Done, HaloError> {
    const LONG: usize = 5_000;
    let (rank, size) = (world.rank() as i64, world.size());
    let (next, previous) = ((world.rank() + 1) % size, (rank - 1).rem_euclid(size as i64));
    let window = window::<i64>(world, way, 8 + LONG)?;
    let long = |of: i64| (0..LONG as i64).map(move |index| 1000 * index + of);
    window.put_values(&[10 + rank], next, 0)?;
    window.put_values(&long(rank).collect::<Vec<_>>(), next, 8)?;
    window.accumulate_values(&[5_i64], next, 0, Op::Sum)?;
    assert_eq!(window.fetch_and_op(100_i64, next, 0, Op::Sum)?, 15 + rank);
    assert_eq!(window.compare_and_swap(115 + rank, 7, next, 0)?, 115 + rank);
    let mut found = [0; 2];
    window.get_values(&mut found[..1], next, 0)?;
    window.get_values(&mut found[1..], next, 8 + LONG - 1)?;
    assert!(Some(found) == long(rank).next_back().map(|last| [7, last]), "{found:?}");
    window.accumulate_values(&[1_i64], 0, 1, Op::Sum)?;
    window.flush_all()?;
    world.barrier()?;
    let mut found = vec![0; 8 + LONG];
    window.read(0, &mut found)?;
    assert_eq!(found[..2], [7, if rank == 0 { size as i64 } else { 0 }]);
    assert!(found[8..].iter().copied().eq(long(previous)), "what rank {previous} put");
    assert_eq!(window.probe(Source::Any, Tag::Any)?, None, "nobody was notified");
    world.barrier()?;
    for round in 1..=20_i64 {
        window.put_values(&[round], next, 2)?;
        window.put_values(&long(round).collect::<Vec<_>>(), next, 8)?;
        window.put_notify(&[round], next, 3, 9)?;
        await_count(&window, Source::Any, Tag::Value(9), 1)?;
        window.read(0, &mut found)?;
        assert_eq!(found[2..4], [round; 2]);
        assert!(found[8..].iter().copied().eq(long(round)), "round {round}");
        world.barrier()?;
    }
    done(world)
}

/// Once all has been flushed and all ranks have met, accesses that notify have come as well, whoever reads what they have
/// made and whoever was late; their notifications are there still.
pub fn fenced(world: &World, way: Scenario) -> Result<Done, HaloError> {
    let (rank, size) = (world.rank(), world.size());
    let window = window::<f64>(world, way, 2 * size)?;
    let fence = || window.flush_all().and_then(|()| world.barrier());
    for round in 1..=6 {
        if (rank + round).is_multiple_of(2) {
            std::thread::sleep(Duration::from_millis(5));
        }
        for target in 0..size {
            window.put_notify(&[element::<f64>(rank, target, round as u32)], target, rank, 7)?;
            window.accumulate_notify(&[1.0], target, size + rank, Op::Sum, 7)?;
        }
        fence()?;
        let expected = |target: usize| {
            let put = (0..size).map(move |origin| element(origin, target, round as u32));
            put.chain((0..size).map(move |_| round as f64)).collect::<Vec<f64>>()
        };
        let mut found = vec![0.0; 2 * size];
        window.read(0, &mut found)?;
        assert_eq!(found, expected(rank), "rank {rank} in round {round}");
        for target in 0..size {
            window.get_values(&mut found, target, 0)?;
            assert_eq!(found, expected(target), "the part of rank {target} in round {round}");
        }
        fence()?;
        await_count(&window, Source::Any, Tag::Value(7), 2 * size as u32)?;
    }
    done(world)
}

/// Every rank sends more than any ring holds to a slow rank and to the next one, before it reads anything.
pub fn more_than_rings_hold(world: &World, way: Scenario) -> Result<Done, HaloError> {
    const PUTS: usize = 300;
    let (rank, size) = (world.rank(), world.size());
    let window = window::<u8>(world, way, size * PUTS)?;
    if rank == 0 {
        std::thread::sleep(Duration::from_millis(20));
    }
    let targets = [0, (rank + 1) % size];
    for i in 0..PUTS {
        for target in targets {
            window.put_notify(&[i as u8], target, rank * PUTS + i, i as u32)?;
        }
    }
    let sources = |target: usize| {
        (0..size)
            .flat_map(move |of| [0, (of + 1) % size].map(|to| (of, to)))
            .filter(move |(_, to)| *to == target)
    };
    let count = sources(rank).count() * PUTS;
    if count > 0 {
        await_count(&window, Source::Any, Tag::Any, count as u32)?;
    }
    let mut found = vec![0; size * PUTS];
    window.read(0, &mut found)?;
    for (of, _) in sources(rank) {
        assert!((0..PUTS).all(|i| found[of * PUTS + i] == i as u8), "what rank {of} put");
    }
    done(world)
}

/// What is refused, before anything is sent; then the window still works.
pub fn refusals(world: &World, way: Scenario) -> Result<Done, HaloError> {
    let size = world.size();
    // Nothing at rank 0.
    let window = window::<i32>(world, way, 10 * world.rank())?;
    let last = size - 1;
    let out_of_bounds = |result: Result<(), Error>, bytes: [usize; 3]| match result {
        Err(Error::OutOfBounds { start, end, region_bytes, .. }) => {
            assert_eq!([start, end, region_bytes], bytes)
        }
        other => panic!("{other:?}"),
    };
    out_of_bounds(window.put_notify(&[1], 0, 0, 0), [0, 4, 0]);
    out_of_bounds(window.fetch_and_op_notify(1, 0, 0, Op::Sum, 0).map(drop), [0, 4, 0]);
    out_of_bounds(window.compare_and_swap_notify(1, 2, 0, 0, 0).map(drop), [0, 4, 0]);
    out_of_bounds(window.get_notify(&mut [1, 2], last, 10 * last, 0), [40 * last, 40 * last + 8, 40 * last]);
    out_of_bounds(
        window.accumulate_notify(&[1], last, usize::MAX, Op::Sum, 0),
        [usize::MAX, usize::MAX, 40 * last],
    );
    let wrong_rank = |result: Result<(), Error>| match result {
        Err(Error::WrongRank { rank, size: found, .. }) => assert_eq!([rank, found], [size, size]),
        other => panic!("{other:?}"),
    };
    wrong_rank(window.put_notify(&[1], size, 0, 0));
    wrong_rank(window.get_notify(&mut [1], size, 0, 0));
    wrong_rank(window.accumulate_notify(&[1], size, 0, Op::Sum, 0));
    wrong_rank(window.fetch_and_op_notify(1, size, 0, Op::Sum, 0).map(drop));
    wrong_rank(window.compare_and_swap_notify(1, 2, size, 0, 0).map(drop));
    wrong_rank(window.flush(size));
    wrong_rank(window.notify_init(Source::Rank(size), Tag::Any, 1).map(|_| ()));
    wrong_rank(window.probe(Source::Rank(size), Tag::Any).map(|_| ()));
    let tag = Window::LARGEST_TAG + 1;
    for result in [
        window.put_notify::<i32>(&[], 0, 0, tag),
        window.get_notify::<i32>(&mut [], 0, 0, tag),
        window.accumulate_notify::<i32>(&[], 0, 0, Op::Sum, tag),
        window.fetch_and_op_notify(1, 0, 0, Op::Sum, tag).map(drop),
        window.compare_and_swap_notify(1, 2, 0, 0, tag).map(drop),
        window.notify_init(Source::Any, Tag::Value(tag), 1).map(|_| ()),
        window.probe(Source::Any, Tag::Value(u32::MAX)).map(|_| ()),
    ] {
        assert!(matches!(result, Err(Error::WrongTag { largest: Window::LARGEST_TAG, .. })), "{result:?}");
    }
    for result in [
        window.put_notify::<f32>(&[], 0, 0, 0),
        window.fetch_and_op_notify(1.0_f32, 0, 0, Op::Sum, 0).map(drop),
        window.compare_and_swap_notify(1.0_f32, 2.0, 0, 0, 0).map(drop),
    ] {
        assert!(matches!(result, Err(Error::ElementMismatch { .. })), "{result:?}");
    }
    for count in [0, u32::MAX] {
        let result = window.notify_init(Source::Any, Tag::Any, count);
        assert!(matches!(result, Err(Error::OutOfOrder { .. })), "{result:?}");
    }
    let mut request = window.notify_init(Source::Any, Tag::Value(8), 2)?;
    let (test, wait) = (request.test(), request.wait());
    assert!(matches!(test, Err(Error::OutOfOrder { call: "NotifyRequest::test", .. })), "{test:?}");
    assert!(matches!(wait, Err(Error::OutOfOrder { call: "NotifyRequest::wait", .. })), "{wait:?}");
    request.start()?;
    let result = request.start();
    assert!(matches!(result, Err(Error::OutOfOrder { call: "NotifyRequest::start", .. })), "{result:?}");
    // Nothing alone is something.
    for _ in 0..2 {
        window.put_notify::<i32>(&[], (world.rank() + 1) % size, 0, 8)?;
    }
    request.wait()?;
    request.start()?;
    assert_eq!((request.test()?, request.matched()), (None, 0));
    silent_refusals(&window, size)?;
    overlapping(world, way)?;
    done(world)
}

/// What is refused of accesses that notify nobody, by the name of the call. Rank 0 has no elements.
fn silent_refusals(window: &Window, size: usize) -> Result<(), HaloError> {
    let mut room = [0];
    let silent = |target: usize, room: &mut [i32]| {
        [
            ("Window::put_values", window.put_values(&[1], target, 0)),
            ("Window::get_values", window.get_values(room, target, 0)),
            ("Window::accumulate_values", window.accumulate_values(&[1], target, 0, Op::Sum)),
            ("Window::fetch_and_op", window.fetch_and_op(1, target, 0, Op::Sum).map(drop)),
            ("Window::compare_and_swap", window.compare_and_swap(1, 2, target, 0).map(drop)),
        ]
    };
    for (call, result) in silent(size, &mut room) {
        assert_eq!(result, Err(Error::WrongRank { what: call, rank: size, size }));
    }
    for (call, result) in silent(0, &mut room) {
        let is_told = matches!(result, Err(Error::OutOfBounds { start: 0, end: 4, region_bytes: 0, .. }));
        assert!(is_told, "{call}: {result:?}");
    }
    for result in [
        window.put_values::<f32>(&[], 0, 0),
        window.get_values::<f32>(&mut [], 0, 0),
        window.accumulate_values::<f32>(&[], 0, 0, Op::Sum),
        window.fetch_and_op(1.0_f32, 0, 0, Op::Sum).map(drop),
        window.compare_and_swap(1.0_f32, 2.0, 0, 0).map(drop),
    ] {
        assert!(matches!(result, Err(Error::ElementMismatch { .. })), "{result:?}");
    }
    Ok(())
}

/// Memory that a window of notified accesses has is no other's.
fn overlapping(world: &World, way: Scenario) -> Result<(), HaloError> {
    let stream = stream_of(world, way.kind)?;
    let buffer = Buffer::<i32>::zeros(world, &stream, Extents { points: [1, 1, 100], components: 1 })?;
    let window = Window::over(world, &buffer.section(10..60)?)?;
    match Window::over(world, &buffer.section(59..61)?) {
        Err(Error::CollectiveFailed { call: "Window::over", reason, .. }) => {
            assert!(reason.contains("a window"), "{reason}");
        }
        other => panic!("{:?} of memory that is a window's", other.map(drop)),
    }
    let active = Window::active(world, &buffer.section(0..11)?, ActiveOptions::default())?;
    let exposed = active.post(&Group::new(world, &[])?);
    assert!(matches!(exposed, Err(Error::InUse { by: "a window", .. })), "{exposed:?}");
    Window::over(world, &buffer.section(60..100)?)?;
    drop(window);
    Ok(Window::over(world, &buffer.section(59..61)?).map(drop)?)
}
