//! Messages and collective calls of buffers on a device, with ends on the host and on devices in any combination.
//! Without a device all ends are on the host, which `other_device` says.

use super::Done;
use crate::{Random, Scenario, other_device, stream_of, value};
use streamhalo::comm::device::{Buffer, Extents};
use streamhalo::comm::{
    Communicator, Error, PersistentRequest, Request, Source, Staging, StagingMemory, StagingScheme, Status,
    Tag, start_all, wait_all,
};
use streamhalo::{Element, HaloError, Op, Stream, StreamKind, World};

/// From none to several blocks, and lengths beside what blocks are rounded to.
const LENGTHS: [usize; 8] = [0, 1, 9, 500, 2041, 17_001, 20_000, 90_003];

fn line(elements: usize) -> Extents {
    Extents { points: [1, 1, elements], components: 1 }
}

fn content(salt: usize, index: usize) -> i32 {
    value(salt, &[index], 0, 3)
}

/// Where the ends of messages are.
struct Places {
    host: Stream,
    device: Option<Stream>,
}

impl Places {
    fn new(world: &World) -> Result<Self, HaloError> {
        let device = other_device().map(|_| stream_of(world, StreamKind::Device)).transpose()?;
        Ok(Self { host: stream_of(world, StreamKind::Inline)?, device })
    }

    fn stream(&self, on_device: bool) -> &Stream {
        self.device.as_ref().filter(|_| on_device).unwrap_or(&self.host)
    }

    fn filled<T: Element>(
        &self,
        world: &World,
        on_device: bool,
        elements: usize,
        content: impl Fn(usize) -> T,
    ) -> Result<Buffer<T>, HaloError> {
        let mut buffer = Buffer::zeros(world, self.stream(on_device), line(elements))?;
        buffer.with_host_mut(line(elements).whole(), |mut values| {
            values.iter_mut().enumerate().for_each(|(index, value)| *value = content(index));
        })?;
        Ok(buffer)
    }
}

fn all<T: Element>(buffer: &Buffer<T>) -> Result<Vec<T>, HaloError> {
    Ok(buffer.copy_out(buffer.extents().whole())?)
}

fn checksum(values: &[i32]) -> u64 {
    values.iter().fold(0, |sum, value| crate::random::mix(sum ^ u64::from(value.cast_unsigned())))
}

/// Any way of staging, often one that cuts short messages too.
fn any_staging(random: &mut Random) -> Staging {
    Staging {
        memory: random.pick(&StagingMemory::ALL),
        scheme: random.pick(&StagingScheme::ALL),
        blocks: 1 + random.below(7) as u32,
        threshold_bytes: random.pick(&[0, 1000, 64 * 1024]),
        first: random.pick(&[0.25, 0.5, 1.0, 2.0]),
        last: random.pick(&[0.5, 1.5, 3.0]),
    }
}

/// Many messages at once between hosts and devices, some to the rank itself, some received from any rank, by ranks that
/// stage them in different ways; into more room than they need.
pub fn at_random(world: &World, _way: Scenario, seed: u64) -> Result<Done, HaloError> {
    let places = Places::new(world)?;
    let communicator = Communicator::new(world)?;
    let (rank, size) = (world.rank(), world.size());
    // What all ranks know.
    let mut plan = Random::new(seed);
    let mut own = Random::new(seed ^ (rank as u64 + 1));
    let (mut receives, mut sends, mut into, mut from) = (vec![], vec![], vec![], vec![]);
    for number in 0..50 {
        let (sender, receiver) = (plan.below(size), plan.below(size));
        let (elements, by_wildcard) = (plan.pick(&LENGTHS), plan.once_in(4));
        let ends = [plan.once_in(2), plan.once_in(2)];
        // Several with one tag, which must not overtake each other.
        let tag = if by_wildcard { 100 + number as u32 } else { plan.below(3) as u32 };
        if own.once_in(5) {
            communicator.set_staging(any_staging(&mut own))?;
        }
        if receiver == rank {
            let buffer = places.filled(world, ends[0], elements + 3, |_| -7)?;
            let source = if by_wildcard { Source::Any } else { Source::Rank(sender) };
            receives.push(communicator.irecv(&buffer.section(0..elements + 3)?, source, tag)?);
            into.push((number, Status { source: sender, tag, bytes: 4 * elements }, buffer));
        }
        if sender == rank {
            let buffer = places.filled(world, ends[1], elements, |index| content(number, index))?;
            sends.push(communicator.isend(&buffer.section(0..elements)?, receiver, tag)?);
            from.push(buffer);
        }
    }
    let statuses = wait_all(&mut receives)?;
    wait_all(&mut sends)?;
    let mut done = Done::default();
    for ((number, expected, buffer), status) in into.iter().zip(statuses) {
        assert_eq!(status, *expected, "message {number}");
        let elements = status.bytes / 4;
        let found = all(buffer)?;
        assert!(found.ends_with(&[-7; 3]), "message {number}: what is behind it stays as it is");
        let wanted = (0..elements).map(|index| content(*number, index));
        assert!(found[..elements].iter().copied().eq(wanted), "message {number} of {elements} elements");
        done.checksum = done.checksum.wrapping_add(checksum(&found));
    }
    Ok(done)
}

/// Messages that are found by probing, before there is a receive for them, and are blocking calls.
pub fn probed(world: &World, _way: Scenario) -> Result<Done, HaloError> {
    let places = Places::new(world)?;
    let communicator = Communicator::new(world)?;
    let (rank, size) = (world.rank(), world.size());
    let (left, right) = ((rank + size - 1) % size, (rank + 1) % size);
    let mut done = Done::default();
    for (round, elements) in LENGTHS.into_iter().enumerate() {
        let own = places.filled(world, true, elements, |index| content(100 * round + rank, index))?;
        let others = places.filled(world, round % 3 > 0, elements, |_| 0)?;
        let mut sending = communicator.isend(&own.section(0..elements)?, right, 4)?;
        let found = communicator.probe(left, Tag::Any)?;
        assert_eq!(found, Status { source: left, tag: 4, bytes: 4 * elements });
        let status = communicator.recv_section(&others.section(0..elements)?, Source::Any, 4)?;
        assert_eq!(status, found);
        sending.wait()?;
        let both = (&own.section(0..elements)?, right, 5);
        communicator.sendrecv_sections(both, &others.section(0..elements)?, left, 5)?;
        let values = all(&others)?;
        assert!((0..elements).all(|index| values[index] == content(100 * round + left, index)));
        done.checksum = done.checksum.wrapping_add(checksum(&values));
    }
    assert_eq!(communicator.iprobe(Source::Any, Tag::Any)?, None);
    Ok(done)
}

/// Requests that are started again and again, with other contents, between all ranks.
pub fn persistent(world: &World, _way: Scenario) -> Result<Done, HaloError> {
    let places = Places::new(world)?;
    let communicator = Communicator::new(world)?;
    communicator.set_staging(Staging { blocks: 3, ..Staging::default() })?;
    let (rank, size) = (world.rank(), world.size());
    let mut done = Done::default();
    for elements in [0, 5, 30_001] {
        let tag = elements as u32;
        let (mut own, mut others, mut requests) = (vec![], vec![], vec![]);
        for peer in 0..size {
            own.push(places.filled(world, (rank + peer) % 2 == 0, elements, |_| 0)?);
            others.push(places.filled(world, peer % 2 == 0, elements, |_| 0)?);
            requests.push(communicator.recv_init(&others[peer].section(0..elements)?, peer, tag)?);
            requests.push(communicator.send_init(&own[peer].section(0..elements)?, peer, tag)?);
        }
        for epoch in 0..4 {
            for (peer, buffer) in own.iter_mut().enumerate() {
                buffer.with_host_mut(line(elements).whole(), |mut values| {
                    let contents = (0..).map(|index| content(1000 * epoch + 10 * rank + peer, index));
                    values.iter_mut().zip(contents).for_each(|(value, content)| *value = content);
                })?;
            }
            start_all(&mut requests)?;
            requests.iter_mut().try_for_each(|request: &mut PersistentRequest| request.wait().map(|_| ()))?;
            for (peer, buffer) in others.iter().enumerate() {
                let found = all(buffer)?;
                let salt = 1000 * epoch + 10 * peer + rank;
                assert!((0..elements).all(|index| found[index] == content(salt, index)), "from {peer}");
                done.checksum = done.checksum.wrapping_add(checksum(&found));
            }
        }
    }
    Ok(done)
}

/// Every collective call on sections of a device, against the same on slices of the host.
pub fn collectives(world: &World, _way: Scenario) -> Result<Done, HaloError> {
    let mut done = Done::default();
    for memory in StagingMemory::ALL {
        world.set_staging(Staging { memory, ..Staging::default() })?;
        done.checksum ^= collectives_of(world, |value| value)?;
        done.checksum ^= collectives_of(world, |value| f64::from(value) / 3.0)?;
        done.checksum ^= collectives_of(world, |value| value as u8)?;
    }
    Ok(done)
}

fn collectives_of<T: Element + Into<f64>>(
    world: &World,
    element: impl Fn(i32) -> T + Copy,
) -> Result<u64, HaloError> {
    let places = Places::new(world)?;
    let communicator = Communicator::new(world)?;
    let (rank, size) = (world.rank(), world.size());
    let mut sum = 0_u64;
    for elements in [0, 3, 4_100, 30_000] {
        // Some ranks are on their hosts.
        let on_device = (rank + elements) % 3 != 0;
        let own = |salt: usize| move |index| element(content(salt + rank, index));
        let buffer = |salt: usize| places.filled(world, on_device, elements, own(salt));
        let host = |salt: usize| (0..elements).map(own(salt)).collect::<Vec<T>>();
        let mut check = |what: &str, found: &Buffer<T>, expected: &[T]| -> Result<(), HaloError> {
            let found = all(found)?;
            assert!(found == expected, "{what} of {elements} {}", T::TYPE);
            let mixed =
                found.iter().fold(sum, |sum, value| crate::random::mix(sum ^ (*value).into().to_bits()));
            sum = mixed;
            Ok(())
        };
        let whole = |buffer: &Buffer<T>| buffer.section(0..buffer.extents().points[2]);
        let root = elements % size;
        let (given, mut expected) = (buffer(10)?, host(10));
        communicator.broadcast_section(&whole(&given)?, root)?;
        communicator.broadcast(&mut expected, root)?;
        check("a broadcast", &given, &expected)?;
        let (given, mut expected) = (buffer(20)?, host(20));
        communicator.reduce_section(&whole(&given)?, Op::Sum, root)?;
        communicator.reduce(&mut expected, Op::Sum, root)?;
        check("a reduction", &given, &expected)?;
        let (given, mut expected) = (buffer(30)?, host(30));
        communicator.allreduce_section(&whole(&given)?, Op::Max)?;
        communicator.allreduce(&mut expected, Op::Max)?;
        check("an allreduce", &given, &expected)?;
        let gathered = places.filled(world, !on_device, size * elements, |_| element(0))?;
        let mut expected = vec![element(0); size * elements];
        communicator.allgather_section(&whole(&buffer(40)?)?, &whole(&gathered)?)?;
        communicator.allgather(&host(40), &mut expected)?;
        check("an allgather", &gathered, &expected)?;
        let neighbours = [(rank + size - 1) % size, (rank + 1) % size];
        let even = elements / 2 * 2;
        let received = places.filled(world, on_device, even, |_| element(0))?;
        let mut expected = vec![element(0); even];
        let sent = buffer(50)?.section(0..even)?;
        communicator.neighbour_alltoall_section(&neighbours, &sent, &neighbours, &whole(&received)?)?;
        communicator.neighbour_alltoall(&neighbours, &host(50)[..even], &neighbours, &mut expected)?;
        check("an exchange with neighbours", &received, &expected)?;
    }
    Ok(sum)
}

/// What does not fit is refused on the receiver's side alone; nothing else may use what is on its way, and a request
/// that is dropped keeps others out until it has ended.
pub fn refusals(world: &World, _way: Scenario) -> Result<Done, HaloError> {
    const LONG: usize = 40_000;
    let places = Places::new(world)?;
    let communicator = Communicator::new(world)?;
    let (rank, size) = (world.rank(), world.size());
    let (left, right) = ((rank + size - 1) % size, (rank + 1) % size);
    let own = places.filled(world, true, LONG, |index| content(rank, index))?;
    let mut others = places.filled(world, true, LONG, |_| 0)?;
    let send =
        |tag| -> Result<Request, HaloError> { Ok(communicator.isend(&own.section(0..LONG)?, right, tag)?) };
    let mut sending = [send(1)?, send(2)?, send(3)?];
    let short = communicator.recv_section(&others.section(0..LONG - 1)?, left, 1);
    let (message_bytes, room_bytes) = (4 * LONG, 4 * (LONG - 1));
    assert_eq!(short, Err(Error::Truncated { sender: left, tag: 1, message_bytes, room_bytes }));
    let floats = places.filled(world, true, LONG, |_| 0.0_f32)?;
    let other = communicator.recv_section(&floats.section(0..LONG)?, left, 2);
    assert!(matches!(other, Err(Error::MessageMismatch { .. })), "{other:?}");
    // The one behind them is whole.
    let mut receiving = communicator.irecv(&others.section(0..LONG)?, left, 3)?;
    assert!(matches!(others.writer(line(LONG).whole()).map(|_| ()), Err(Error::InUse { .. })));
    receiving.wait()?;
    wait_all(&mut sending)?;
    assert!(others.writer(line(LONG).whole()).is_ok(), "nothing is on its way any more");
    let found = all(&others)?;
    assert!((0..LONG).all(|index| found[index] == content(left, index)));
    // One that nobody waits for.
    drop(send(4)?);
    communicator.recv_section(&others.section(0..LONG)?, left, 4)?;
    communicator.barrier()?;
    assert!(matches!(
        communicator.set_staging(Staging { blocks: 0, ..Staging::default() }),
        Err(Error::WrongStaging { .. })
    ));
    Ok(Done { checksum: checksum(&found), ..Done::default() })
}
