//! Tables of moves: what a device makes of them is what the host makes of them, bit for bit.

use std::sync::Arc;
use streamhalo::comm::device::{Buffer, Extents, Move, MoveTable};
use streamhalo::comm::{Element, Error};
use streamhalo::{ElementType, Op, Stream, StreamKind, World};
use streamhalo_tests::{Random, Sample, in_both_memories, other_device, stream_of, value};

const ELEMENTS: usize = 600;

/// A move in elements: where it begins in either array, strides, counts and the length of its runs.
#[derive(Debug, Clone, Copy)]
struct Plan {
    source: usize,
    destination: usize,
    strides: [[usize; 2]; 2],
    counts: [usize; 2],
    run: usize,
}

impl Plan {
    fn random(random: &mut Random) -> Self {
        let (run, counts) = (random.between(1, 9), [random.between(1, 3), random.between(1, 4)]);
        let mut strides = [[0; 2]; 2];
        for one in &mut strides {
            one[1] = run + random.below(4);
            one[0] = one[1] * counts[1] + random.below(5);
        }
        let reach = |one: [usize; 2]| (counts[0] - 1) * one[0] + (counts[1] - 1) * one[1] + run;
        let (source, destination) =
            (random.below(ELEMENTS - reach(strides[0])), random.below(ELEMENTS - reach(strides[1])));
        Self { source, destination, strides, counts, run }
    }

    fn of<T: Element>(&self, from: &Buffer<T>, to: &Buffer<T>, op: Op) -> Result<Move, Error> {
        let bytes = size_of::<T>();
        Ok(Move {
            source: from.region().place(self.source * bytes, 0, "a source")?,
            source_strides: self.strides[0].map(|stride| stride * bytes),
            destination: to.region().place(self.destination * bytes, 0, "a destination")?,
            destination_strides: self.strides[1].map(|stride| stride * bytes),
            counts: self.counts,
            run_bytes: self.run * bytes,
            element: T::TYPE,
            op,
        })
    }
}

/// What the stages make of an array, on a stream, twice without a pause. The arrays live where the others do.
fn result<T: Sample>(
    world: &World,
    stream: &Stream,
    arrays: [&Stream; 2],
    stages: &[Vec<Plan>],
    op: Op,
    start: impl Fn(usize, usize) -> T,
) -> Result<Vec<u64>, Error> {
    let extents = Extents { points: [1, 1, ELEMENTS], components: 1 };
    let [mut from, mut to] =
        [Buffer::<T>::zeros(world, arrays[0], extents)?, Buffer::zeros(world, arrays[1], extents)?];
    for (array, buffer) in [&mut from, &mut to].into_iter().enumerate() {
        buffer.with_host_mut(extents.whole(), |mut view| {
            view.iter_mut().enumerate().for_each(|(index, element)| *element = start(array, index));
        })?;
    }
    let moves = |stage: &Vec<Plan>| stage.iter().map(|plan| plan.of(&from, &to, op)).collect();
    let table = MoveTable::new(&stages.iter().map(moves).collect::<Result<Vec<Vec<Move>>, _>>()?)?;
    let table = Arc::new(table);
    (0..2).for_each(|_| stream.enqueue_move(&table).expect("nobody looks"));
    stream.synchronize()?;
    Ok(to.copy_out(extents.whole())?.into_iter().map(Sample::bits).collect())
}

/// Compares the host and the device, to which either array or both belong.
fn check<T: Sample>(seed: u64, op: Op, start: impl Fn(usize, usize) -> T) {
    let world = World::alone().expect("a world of one rank");
    let mut random = Random::new(seed);
    // One stage each where moves replace: those of one stage do not overlap.
    let stages: Vec<Vec<Plan>> = match op {
        Op::Replace => (0..6).map(|_| vec![Plan::random(&mut random)]).collect(),
        _ => (0..2).map(|_| (0..8).map(|_| Plan::random(&mut random)).collect()).collect(),
    };
    let host = stream_of(&world, StreamKind::Inline).expect("a stream");
    let on = |stream: &Stream, arrays: [&Stream; 2]| {
        result::<T>(&world, stream, arrays, &stages, op, &start).expect("moves that fit")
    };
    let expected = on(&host, [&host; 2]);
    in_both_memories(|| {
        let device = stream_of(&world, StreamKind::Device).expect("a stream");
        for arrays in [[&device; 2], [&host, &device], [&device, &host]] {
            assert_eq!(on(&device, arrays), expected, "{op:?} of {}, {arrays:?}, {stages:?}", T::TYPE);
        }
    });
}

#[test]
fn moves_of_any_shape_and_type_give_the_bits_of_the_host() {
    if other_device().is_none() {
        return;
    }
    let made = |array: usize, index: usize| [array, index];
    for seed in 0..12 {
        for op in [Op::Replace, Op::Sum, Op::Min, Op::Max] {
            check::<u8>(seed, op, |array, index| value(1, &made(array, index), 0, 3));
            check::<i32>(seed, op, |array, index| value(2, &made(array, index), 0, 3));
            check::<i64>(seed, op, |array, index| value(3, &made(array, index), 0, 3));
            check::<f32>(seed, op, |array, index| value(4, &made(array, index), 0, 3));
            check::<f64>(seed, op, |array, index| value(5, &made(array, index), 0, 3));
        }
    }
}

#[test]
fn sums_of_integers_wrap() {
    if other_device().is_none() {
        return;
    }
    check::<u8>(40, Op::Sum, |_, index| 200_u8.wrapping_add(index as u8));
    check::<i32>(41, Op::Sum, |_, index| i32::MAX - index as i32);
    check::<i64>(42, Op::Sum, |_, index| i64::MIN + index as i64);
}

#[test]
fn sums_are_taken_in_the_order_of_the_moves() {
    if other_device().is_none() {
        return;
    }
    // Values of very different size: every other order of addition gives other bits.
    let sized = |array: usize, index: usize| {
        let bits: i64 = value(1, &[array, index], 0, 6);
        (bits % 1000 + 1) as f64 * 10_f64.powi((bits / 1000 % 30) as i32 - 15)
    };
    (50..60).for_each(|seed| check::<f64>(seed, Op::Sum, sized));
}

/// Also by several operations, and where one comes back.
#[test]
fn reductions_of_a_stage_are_in_their_order() {
    if other_device().is_none() {
        return;
    }
    let world = World::alone().expect("a world of one rank");
    for kind in [StreamKind::Inline, StreamKind::Device] {
        let stream = stream_of(&world, kind).expect("a stream");
        let extents = Extents { points: [1, 1, 3], components: 1 };
        let mut given = Buffer::<i32>::zeros(&world, &stream, extents).expect("memory");
        given
            .with_host_mut(extents.whole(), |mut view| {
                view.iter_mut().zip([5, 2, 7]).for_each(|(slot, number)| *slot = number);
            })
            .expect("it fits");
        let taken = Buffer::<i32>::zeros(&world, &stream, extents).expect("memory");
        let one = |source, op| {
            let plan = Plan { source, destination: 0, strides: [[1, 1]; 2], counts: [1, 1], run: 1 };
            plan.of(&given, &taken, op).expect("it fits")
        };
        let stage = vec![one(0, Op::Sum), one(1, Op::Min), one(2, Op::Sum)];
        stream.enqueue_move(&Arc::new(MoveTable::new(&[stage]).expect("it fits"))).expect("nobody looks");
        assert_eq!(taken.copy_out(extents.whole()).expect("it ran")[0], 9, "{stream:?}");
    }
}

#[test]
fn a_reduction_that_is_not_aligned_is_refused_by_its_place() {
    if other_device().is_none() {
        return;
    }
    let world = World::alone().expect("a world of one rank");
    let stream = stream_of(&world, StreamKind::Device).expect("a stream");
    let extents = Extents { points: [1, 1, 8], components: 1 };
    let [from, to] = [(); 2].map(|()| Buffer::<i32>::zeros(&world, &stream, extents).expect("memory"));
    let plan = Plan { source: 0, destination: 2, strides: [[1, 1]; 2], counts: [1, 1], run: 1 };
    let mut one = plan.of(&from, &to, Op::Sum).expect("it fits");
    one.destination = to.region().place(6, 0, "a place").expect("it fits");
    stream.enqueue_move(&Arc::new(MoveTable::new(&[vec![one]]).expect("it fits"))).expect("nobody looks");
    let expected = Error::Misaligned { what: "a reduction", offset: 6, element: ElementType::I32 };
    assert_eq!(stream.synchronize(), Err(expected));
}

#[test]
fn what_is_no_number_is_ignored() {
    if other_device().is_none() {
        return;
    }
    let odd = |array: usize, index: usize| match (3 * array + index) % 7 {
        0 => f64::NAN,
        1 => -0.0,
        2 => 0.0,
        3 => f64::NEG_INFINITY,
        4 => f64::MIN_POSITIVE / 4.0,
        5 => -1.5,
        _ => f64::INFINITY,
    };
    for seed in 70..76 {
        for op in [Op::Min, Op::Max] {
            check::<f64>(seed, op, odd);
            check::<f32>(seed, op, |array, index| odd(array, index) as f32);
        }
    }
}

/// Without a pause: each move to the host takes what is on the device when the stream comes to it, and each move back
/// what the one before has brought.
#[test]
fn moves_across_are_in_the_order_of_the_stream() {
    if other_device().is_none() {
        return;
    }
    const TIMES: usize = 40;
    let world = World::alone().expect("a world of one rank");
    let host = stream_of(&world, StreamKind::Inline).expect("a stream");
    in_both_memories(|| {
        let device = stream_of(&world, StreamKind::Device).expect("a stream");
        let row = |stream, points| {
            let extents = Extents { points: [1, 1, points], components: 1 };
            Buffer::<i64>::zeros(&world, stream, extents).expect("memory")
        };
        let (mut numbers, now) = (row(&device, TIMES), row(&device, 1));
        numbers
            .with_host_mut(numbers.extents().whole(), |mut view| {
                view.iter_mut().enumerate().for_each(|(index, number)| *number = index as i64 + 1);
            })
            .expect("nothing fails");
        let (sum, last, sum_of_last) = (row(&host, 1), row(&host, 1), row(&device, 1));
        let table = |from: &Buffer<i64>, source, to: &Buffer<i64>, op| {
            let plan = Plan { source, destination: 0, strides: [[1, 1]; 2], counts: [1, 1], run: 1 };
            let one = plan.of(from, to, op).expect("it fits");
            Arc::new(MoveTable::new(&[vec![one]]).expect("it fits"))
        };
        let out = table(&now, 0, &sum, Op::Sum);
        let (replaced, back) = (table(&now, 0, &last, Op::Replace), table(&last, 0, &sum_of_last, Op::Sum));
        for index in 0..TIMES {
            device.enqueue_move(&table(&numbers, index, &now, Op::Replace)).expect("nobody looks");
            device.enqueue_move(&out).expect("nobody looks");
            if index % 3 == 0 {
                device.enqueue_move(&replaced).expect("nobody looks");
                device.enqueue_move(&back).expect("nobody looks");
            }
        }
        device.synchronize().expect("nothing fails");
        let found = [&sum, &sum_of_last].map(|one| one.copy_out(one.extents().whole()).expect("one")[0]);
        let numbers = 1..=TIMES as i64;
        assert_eq!(found, [numbers.clone().sum::<i64>(), numbers.step_by(3).sum::<i64>()]);
    });
}

#[test]
fn moves_that_a_device_has_no_part_in_or_both_ways_at_once_are_refused() {
    if other_device().is_none() {
        return;
    }
    let world = World::alone().expect("a world of one rank");
    let extents = Extents { points: [1, 1, 8], components: 1 };
    for is_both_ways in [false, true] {
        let [host, device] =
            [StreamKind::Inline, StreamKind::Device].map(|kind| stream_of(&world, kind).expect("a stream"));
        let on = |stream| Buffer::<u8>::zeros(&world, stream, extents).expect("8 bytes");
        let [here, other, there] = [&host, &host, &device].map(on);
        let plan = Plan { source: 0, destination: 0, strides: [[8, 8]; 2], counts: [1, 1], run: 8 };
        let one = |from, to| vec![plan.of(from, to, Op::Replace).expect("it fits")];
        let stages = if is_both_ways {
            vec![one(&here, &there), one(&there, &other)]
        } else {
            vec![one(&here, &other)]
        };
        device.enqueue_move(&Arc::new(MoveTable::new(&stages).expect("it fits"))).expect("nobody looks");
        let expected =
            Error::WrongDevice { what: "the memory of a move", device: device.device_name().into() };
        assert_eq!(device.synchronize(), Err(expected));
    }
}
