//! Collectives on a stream: reductions against serial ones in the documented order, barriers that nobody
//! passes before all have come, several of both in flight, and what is refused.

use super::Done;
use super::order::{Exchanged, ring};
use super::refusals::{is_last, verdict};
use crate::random::mix;
use crate::{Random, Sample, Scenario, delay, stream_of};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use streamhalo::comm::Error;
use streamhalo::comm::collective::{AllReduce, Barrier};
use streamhalo::comm::device::{Buffer, Extents};
use streamhalo::{HaloError, Op, Pattern, Rows, RowsMut, Stream, Tile, World};

/// The operations of a reduction.
pub const OPS: [Op; 4] = [Op::Sum, Op::Min, Op::Max, Op::Replace];

/// What a rank gives in an epoch: of very different size, so that every other order of addition gives
/// other bits, and of both signs.
fn given<T: Sample>(rank: usize, element: usize, epoch: u32) -> T {
    let bits = mix((rank as u64) << 40 ^ (element as u64) << 16 ^ u64::from(epoch));
    T::from_bits(bits >> (bits % 48))
}

/// The reduction as its documentation says, one after the other: with 2ⁿ + k ranks first those of k pairs,
/// then neighbours, and the neighbours of what comes of it.
fn reduced<T: Sample>(values: &[T], op: Op) -> T {
    let pairs = values.len() - (1 << values.len().ilog2());
    let (paired, single) = values.split_at(2 * pairs);
    let unite =
        |values: &[T]| -> Vec<T> { values.chunks(2).map(|pair| pair[0].combined(op, pair[1])).collect() };
    let mut parts = unite(paired);
    parts.extend_from_slice(single);
    while parts.len() > 1 {
        parts = unite(&parts);
    }
    parts[0]
}

/// What kernels have found wrong.
#[derive(Debug, Clone, Default)]
struct Wrong(Arc<Mutex<Vec<String>>>);

impl Wrong {
    fn add(&self, what: String) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(what);
    }

    fn assert_none(&self) {
        let found = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        assert!(found.is_empty(), "{}", found[..found.len().min(5)].join("\n"));
    }
}

/// A reduction with its memory: `elements` of a longer array, so that its neighbours can be checked too.
struct Reduced<T> {
    stream: Stream,
    input: Buffer<T>,
    /// None: in place.
    output: Option<Buffer<T>>,
    elements: usize,
    op: Op,
    allreduce: AllReduce,
    rank: usize,
    ranks: usize,
    epoch: u32,
    checksum: u64,
}

/// Elements before and behind those of the reduction, which it must leave alone.
const MARGIN: usize = 3;

impl<T: Sample> Reduced<T> {
    fn new(
        world: &World,
        stream: &Stream,
        way: Scenario,
        (elements, in_place): (usize, bool),
        op: Op,
    ) -> Result<Self, HaloError> {
        let line = Extents { points: [1, 1, elements + 2 * MARGIN], components: 1 };
        let array = || -> Result<Buffer<T>, HaloError> {
            let mut array = Buffer::zeros(world, stream, line)?;
            array.with_host_mut(line.whole(), |mut all| all.fill(T::SENTINEL))?;
            Ok(array)
        };
        let input = array()?;
        let output = if in_place { None } else { Some(array()?) };
        let inner = MARGIN..MARGIN + elements;
        let (from, to) = (input.section(inner.clone())?, output.as_ref().unwrap_or(&input).section(inner)?);
        let allreduce = AllReduce::with_backend(world, stream, way.backend, (&from, &to), op)?;
        let (rank, ranks) = (world.rank(), world.size());
        let stream = stream.clone();
        Ok(Self { stream, input, output, elements, op, allreduce, rank, ranks, epoch: 0, checksum: 0 })
    }

    /// One epoch: kernels write the input and check the output. Does not synchronise.
    fn step(&mut self, wrong: &Wrong) -> Result<(), HaloError> {
        self.fill()?;
        self.allreduce.enqueue()?;
        self.check(wrong)
    }

    fn fill(&mut self) -> Result<(), HaloError> {
        self.epoch += 1;
        let (rank, epoch) = (self.rank, self.epoch);
        let inner = Tile { start: [0, 0, MARGIN], end: [1, 1, MARGIN + self.elements] };
        let input = self.input.writer(inner)?;
        self.stream.launch_on_host("giving", inner, (input,), move |_, (mut rows,): (RowsMut<'_, T>,)| {
            for (element, value) in rows.row(0, 0).iter_mut().enumerate() {
                *value = given(rank, element, epoch);
            }
        })?;
        Ok(())
    }

    fn check(&mut self, wrong: &Wrong) -> Result<(), HaloError> {
        let (epoch, ranks, op, elements) = (self.epoch, self.ranks, self.op, self.elements);
        let expected: Vec<T> = (0..elements)
            .map(|element| {
                reduced(&(0..ranks).map(|rank| given(rank, element, epoch)).collect::<Vec<T>>(), op)
            })
            .collect();
        self.checksum = expected.iter().fold(self.checksum, |sum, value| mix(sum ^ value.bits()));
        let output = self.output.as_ref().unwrap_or(&self.input);
        let whole = output.extents().whole();
        let what = format!("{op:?} of {elements} {} by {ranks} ranks in epoch {epoch}", T::TYPE);
        let wrong = wrong.clone();
        let check = move |_: Tile, (rows,): (Rows<'_, T>,)| {
            let row = rows.row(0, 0);
            let margins = row[..MARGIN].iter().chain(&row[MARGIN + elements..]);
            if !margins.into_iter().all(|value| *value == T::SENTINEL) {
                wrong.add(format!("{what}: wrote next to its section"));
            }
            for (element, (found, expected)) in row[MARGIN..].iter().zip(&expected).enumerate() {
                if found.bits() != expected.bits() {
                    wrong.add(format!("{what}: element {element} is {found:?}, not {expected:?}"));
                }
            }
        };
        self.stream.launch_on_host("checking", whole, (output.reader(whole)?,), check)?;
        Ok(())
    }

    fn done(&self, wrong: &Wrong) -> Result<Done, HaloError> {
        self.stream.synchronize()?;
        wrong.assert_none();
        Ok(Done::of_routes(self.checksum, &self.allreduce.routes()))
    }
}

/// Reductions of one type with every operation, of some elements, in place and not, for several epochs
/// without waiting, on ranks that are late at times.
pub fn reductions<T: Sample>(world: &World, way: Scenario, sizes: &[usize]) -> Result<Done, HaloError> {
    let stream = stream_of(world, way.kind)?;
    let mut random = Random::new(world.rank() as u64);
    let wrong = Wrong::default();
    let mut done = Done::default();
    for (index, elements) in sizes.iter().enumerate() {
        for (number, op) in OPS.into_iter().enumerate() {
            let shape = (*elements, (index + number) % 2 == 0);
            let mut one = Reduced::<T>::new(world, &stream, way, shape, op)?;
            for _ in 0..5 {
                delay(&stream, &mut random);
                one.step(&wrong)?;
            }
            done.add(&one.done(&wrong)?);
        }
    }
    Ok(done)
}

/// Nanoseconds of a clock that all ranks of a machine share.
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
}

/// Barriers that another rank is late for each time: when the first has passed, the last has come.
pub fn late_ranks(world: &World, way: Scenario, epochs: usize) -> Result<Done, HaloError> {
    let stream = stream_of(world, way.kind)?;
    let mut barrier = Barrier::with_backend(world, &stream, way.backend)?;
    let clock = |times: &Arc<Mutex<Vec<u64>>>| {
        let times = times.clone();
        move || {
            times.lock().unwrap_or_else(PoisonError::into_inner).push(now());
            Ok(())
        }
    };
    let (came, passed) = (Arc::default(), Arc::default());
    for epoch in 0..epochs {
        if epoch % world.size() == world.rank() {
            stream.enqueue_host("being late", || {
                std::thread::sleep(Duration::from_micros(400));
                Ok(())
            });
        }
        stream.enqueue_host("coming", clock(&came));
        barrier.enqueue()?;
        stream.enqueue_host("passing", clock(&passed));
    }
    stream.synchronize()?;
    let times = |times: Arc<Mutex<Vec<u64>>>| times.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let all = world.all_gather(&(times(came), times(passed)))?;
    for epoch in 0..epochs {
        let last = all.iter().map(|(came, _)| came[epoch]).max().expect("there are ranks");
        let first = all.iter().map(|(_, passed)| passed[epoch]).min().expect("there are ranks");
        assert!(last <= first, "in epoch {epoch} a rank passed {} ns early, {way:?}", last - first);
    }
    Ok(Done::of_routes(epochs as u64, &barrier.routes()))
}

/// Reductions of several types, barriers and a halo exchange, one behind the other on a stream.
pub fn in_flight_together(world: &World, way: Scenario, epochs: usize) -> Result<Done, HaloError> {
    let stream = stream_of(world, way.kind)?;
    let wrong = Wrong::default();
    let mut large = Reduced::<f64>::new(world, &stream, way, (700, false), Op::Sum)?;
    let mut barrier = Barrier::with_backend(world, &stream, way.backend)?;
    let mut small = Reduced::<i32>::new(world, &stream, way, (2, true), Op::Max)?;
    let mut none = Reduced::<u8>::new(world, &stream, way, (0, false), Op::Sum)?;
    let shape = ring(world, 60);
    let mut halo = Exchanged::new(world, &stream, way.backend, shape, (&[super::CELLS], &Pattern::All))?;
    let mut random = Random::new(7 + world.rank() as u64);
    for epoch in 0..epochs {
        delay(&stream, &mut random);
        large.fill()?;
        small.step(&wrong)?;
        large.allreduce.enqueue()?;
        if epoch % 2 == 0 {
            barrier.enqueue()?;
        }
        halo.step()?;
        none.step(&wrong)?;
        large.check(&wrong)?;
    }
    let mut done = halo.done(&way)?;
    for one in [large.done(&wrong)?, small.done(&wrong)?, none.done(&wrong)?] {
        done.add(&one);
    }
    assert!(none.allreduce.routes().is_empty(), "nothing is sent where there is nothing");
    Ok(done)
}

/// Reductions that the last rank asks for wrongly.
pub fn refused(world: &World, way: Scenario) -> Result<Done, HaloError> {
    let [stream, other] = [stream_of(world, way.kind)?, stream_of(world, way.kind)?];
    let bad = is_last(world) || world.size() == 1;
    let line = Extents { points: [1, 1, 20], components: 1 };
    let array = Buffer::<f64>::zeros(world, &stream, line)?;
    let of_integers = Buffer::<i64>::zeros(world, &stream, line)?;
    let elsewhere = Buffer::<f64>::zeros(world, &other, line)?;
    let (from, to) = (array.section(0..8)?, array.section(8..16)?);
    let (integers, foreign) = (of_integers.section(0..8)?, elsewhere.section(0..8)?);
    let (shorter, shifted) = (array.section(8..15)?, array.section(7..15)?);
    let alone = [
        ((&foreign, &to), "belongs to stream"),
        ((&from, &foreign), "belongs to stream"),
        ((&from, &integers), "elements of type i64"),
        ((&from, &shorter), "bytes 0..64 of a region of 56"),
        ((&from, &shifted), "its input still uses"),
    ];
    for (sections, reason) in alone {
        let sections = if bad { sections } else { (&from, &to) };
        refuse(world, &stream, way, sections, Op::Sum, reason)?;
    }
    if world.size() > 1 {
        let fewer = (&array.section(0..7)?, &shorter);
        let alike = (&integers, &of_integers.section(8..16)?);
        for (sections, op, reason) in [
            (fewer, Op::Sum, "Sum of 7 f64, rank 0 for Sum of 8 f64"),
            (alike, Op::Sum, "Sum of 8 i64, rank 0 for Sum of 8 f64"),
            ((&from, &to), Op::Max, "Max of 8 f64, rank 0 for Sum of 8 f64"),
        ] {
            let (sections, op) = if bad { (sections, op) } else { ((&from, &to), Op::Sum) };
            refuse(world, &stream, way, sections, op, reason)?;
        }
    }
    in_flight_together(world, way, 2)
}

fn refuse(
    world: &World,
    stream: &Stream,
    way: Scenario,
    sections: (&streamhalo::comm::device::Section, &streamhalo::comm::device::Section),
    op: Op,
    expected: &str,
) -> Result<(), HaloError> {
    let made = AllReduce::with_backend(world, stream, way.backend, sections, op);
    match verdict(world, made.expect_err("it cannot be reduced"))? {
        HaloError::Communication(Error::CollectiveFailed { call: "AllReduce::new", rank, reason }) => {
            assert_eq!(rank, world.size() - 1, "{reason}");
            assert!(reason.contains(expected), "`{reason}` does not say `{expected}`");
        }
        other => panic!("{other}"),
    }
    Ok(())
}
