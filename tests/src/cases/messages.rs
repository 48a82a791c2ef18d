//! Two-sided messages between all ranks.

use super::Done;
use crate::{Random, Scenario, stream_of, value};
use streamhalo::comm::device::{Buffer, Extents, Section};
use streamhalo::comm::{Communicator, Source, Status, Tag, start_all, wait_all};
use streamhalo::{Element, HaloError, Stream, World};

/// Lengths that packets carry in a line, beside it, and not at all.
const LENGTHS: [usize; 8] = [0, 1, 8, 9, 500, 2040, 2041, 20_000];

fn line(elements: usize) -> Extents {
    Extents { points: [1, 1, elements], components: 1 }
}

/// A buffer whose elements say whose they are.
fn filled(world: &World, stream: &Stream, elements: usize, salt: usize) -> Result<Buffer<i32>, HaloError> {
    let mut buffer = Buffer::zeros(world, stream, line(elements))?;
    for (index, element) in buffer.view_mut(line(elements).whole())?.iter_mut().enumerate() {
        *element = content(salt, index);
    }
    Ok(buffer)
}

fn content(salt: usize, index: usize) -> i32 {
    value(salt, &[index], 0, 3)
}

fn sum<T: Element + Into<f64>>(elements: &[T]) -> u64 {
    elements.iter().fold(0, |sum, element| crate::random::mix(sum ^ (*element).into().to_bits()))
}

/// A message of a plan that all ranks know.
struct Planned {
    from: usize,
    to: usize,
    tag: u32,
    elements: usize,
    by_wildcard: bool,
}

fn plan(ranks: usize, seed: u64, messages: usize) -> Vec<Planned> {
    let mut random = Random::new(seed);
    let mut next = || Planned {
        from: random.below(ranks),
        to: random.below(ranks),
        tag: random.below(3) as u32,
        elements: random.pick(&LENGTHS),
        by_wildcard: random.once_in(4),
    };
    // A message that is received from any rank has a tag of its own: which of several comes first is open.
    let messages = (0..messages).map(|_| next()).enumerate();
    messages
        .map(|(number, message)| match message.by_wildcard {
            true => Planned { tag: 100 + number as u32, ..message },
            false => message,
        })
        .collect()
}

/// Many messages of every length at once, some to the rank itself, some received from any rank.
pub fn at_random(world: &World, way: Scenario, seed: u64) -> Result<Done, HaloError> {
    let stream = stream_of(world, way.kind)?;
    let communicator = Communicator::new(world)?;
    let plan = plan(world.size(), seed, 60);
    let rank = world.rank();
    let mut random = Random::new(seed ^ (rank as u64 + 1));
    let (mut receives, mut sends, mut into, mut from) = (vec![], vec![], vec![], vec![]);
    for (number, message) in plan.iter().enumerate() {
        if message.to == rank {
            let buffer = Buffer::<i32>::zeros(world, &stream, line(message.elements + 3))?;
            let section = buffer.section(0..message.elements + 3)?;
            let source = if message.by_wildcard { Source::Any } else { Source::Rank(message.from) };
            receives.push(communicator.irecv(&section, source, message.tag)?);
            into.push((number, buffer));
        }
        if random.once_in(5) {
            std::thread::sleep(std::time::Duration::from_micros(50));
        }
        if message.from == rank {
            let buffer = filled(world, &stream, message.elements, number)?;
            sends.push(communicator.isend(&buffer.section(0..message.elements)?, message.to, message.tag)?);
            from.push(buffer);
        }
    }
    let statuses = wait_all(&mut receives)?;
    wait_all(&mut sends)?;
    let mut done = Done::default();
    for ((number, buffer), status) in into.iter().zip(statuses) {
        let &Planned { from, tag, elements, .. } = &plan[*number];
        assert_eq!(status, Status { source: from, tag, bytes: 4 * elements }, "message {number}, {way:?}");
        let found = buffer.copy_out(line(elements + 3).whole())?;
        let expected: Vec<i32> = (0..elements).map(|index| content(*number, index)).chain([0; 3]).collect();
        assert!(found == expected, "message {number} of {elements} elements, {way:?}");
        done.checksum = done.checksum.wrapping_add(sum(&found));
    }
    Ok(done)
}

/// Slices round a ring, by blocking calls: one rank after the other, and all at once.
pub fn ring(world: &World, _way: Scenario) -> Result<Done, HaloError> {
    let communicator = Communicator::new(world)?;
    let (rank, size) = (world.rank(), world.size());
    let (left, right) = ((rank + size - 1) % size, (rank + 1) % size);
    let mut done = Done::default();
    for elements in LENGTHS {
        let own: Vec<f64> = (0..elements).map(|index| (rank * 1000 + index) as f64).collect();
        let mut others = vec![-1.0; elements + 1];
        let status = communicator.sendrecv((&own, right, 4), &mut others, left, 4)?;
        assert_eq!(status, Status { source: left, tag: 4, bytes: 8 * elements });
        assert_eq!(others.pop(), Some(-1.0), "what is behind the message stays as it is");
        let expected: Vec<f64> = (0..elements).map(|index| (left * 1000 + index) as f64).collect();
        assert_eq!(others, expected);
        // A token that every rank adds to.
        let mut token = vec![0_i64; elements];
        if rank > 0 {
            let found = communicator.probe(left, Tag::Any)?;
            assert_eq!(found, Status { source: left, tag: 5, bytes: 8 * elements });
            communicator.recv(&mut token, Source::Any, 5)?;
        }
        token.iter_mut().for_each(|element| *element += rank as i64 + 1);
        if rank + 1 < size {
            communicator.send(&token, right, 5)?;
        }
        assert!(token.iter().all(|element| *element == ((rank + 1) * (rank + 2) / 2) as i64));
        done.checksum = done.checksum.wrapping_add(sum(&others));
    }
    assert_eq!(communicator.iprobe(Source::Any, Tag::Any)?, None);
    Ok(done)
}

/// Requests that are started again and again, in both directions between all ranks.
pub fn persistent(world: &World, way: Scenario) -> Result<Done, HaloError> {
    let stream = stream_of(world, way.kind)?;
    let communicator = Communicator::new(world)?;
    let (rank, size) = (world.rank(), world.size());
    let mut done = Done::default();
    for elements in [3, 2500] {
        let mut own = Buffer::<i32>::zeros(world, &stream, line(size * elements))?;
        let others = Buffer::<i32>::zeros(world, &stream, line(size * elements))?;
        let part = |buffer: &Buffer<i32>, peer: usize| -> Result<Section, HaloError> {
            Ok(buffer.section(peer * elements..(peer + 1) * elements)?)
        };
        let mut receives = Vec::new();
        let mut sends = Vec::new();
        for peer in 0..size {
            let tag = elements as u32;
            receives.push(communicator.recv_init(&part(&others, peer)?, peer, tag)?);
            sends.push(match peer % 2 {
                0 => communicator.send_init(&part(&own, peer)?, peer, tag)?,
                _ => communicator.rsend_init(&part(&own, peer)?, peer, tag)?,
            });
        }
        for round in 0..6 {
            let whole = line(size * elements).whole();
            for (index, element) in own.view_mut(whole)?.iter_mut().enumerate() {
                *element = content(rank + 100 * round, index);
            }
            start_all(&mut receives)?;
            // Ready sends need it.
            communicator.barrier()?;
            start_all(&mut sends)?;
            for (peer, request) in receives.iter_mut().enumerate() {
                assert_eq!(request.wait()?.source, peer);
            }
            for request in &mut sends {
                while request.test()?.is_none() {}
            }
            let found = others.copy_out(whole)?;
            for (index, element) in found.iter().enumerate() {
                let (peer, index) = (index / elements, index % elements + rank * elements);
                assert_eq!(*element, content(peer + 100 * round, index), "from rank {peer}, {way:?}");
            }
            done.checksum = done.checksum.wrapping_add(sum(&found));
        }
    }
    Ok(done)
}

/// Rank 0 receives whatever comes; the messages of each rank come in order, also those that came before.
pub fn from_any(world: &World, way: Scenario) -> Result<Done, HaloError> {
    const EACH: usize = 100;
    let (one, two) = (Communicator::new(world)?, Communicator::new(world)?);
    let (rank, size) = (world.rank(), world.size());
    let elements = |number: usize| if number % 10 == 3 { 3000 } else { 1 };
    if rank > 0 {
        for number in 0..EACH {
            let values = vec![(rank * EACH + number) as i64; elements(number)];
            one.send(&values, 0, (number % 3) as u32)?;
            if number % 20 == 0 {
                two.send(&[number as u8], 0, (number % 3) as u32)?;
            }
        }
        return Ok(Done::default());
    }
    let mut counts = vec![0; size];
    let mut values = vec![0_i64; 3000];
    for _ in 0..EACH * (size - 1) {
        let status = one.recv(&mut values, Source::Any, Tag::Any)?;
        let number = counts[status.source];
        counts[status.source] += 1;
        assert_eq!((status.tag, status.bytes), ((number % 3) as u32, 8 * elements(number)), "{way:?}");
        let expected = (status.source * EACH + number) as i64;
        assert!(values[..elements(number)].iter().all(|value| *value == expected), "{way:?}");
    }
    // What the other communicator carries has waited.
    for source in 1..size {
        for number in (0..EACH).step_by(20) {
            let mut value = [0_u8];
            two.recv(&mut value, source, Tag::Any)?;
            assert_eq!(usize::from(value[0]), number);
        }
    }
    assert_eq!(one.iprobe(Source::Any, Tag::Any)?, None);
    Ok(Done::default())
}
