//! Tables of moves: what a device makes of them is what the host makes of them, bit for bit.

use std::sync::Arc;
use streamhalo::comm::device::{Buffer, Extents, Move, MoveTable};
use streamhalo::comm::{Element, Error};
use streamhalo::{Op, Stream, StreamKind, World};
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

/// What the stages make of an array, on a stream of that kind.
fn result<T: Sample>(
    world: &World,
    stream: &Stream,
    stages: &[Vec<Plan>],
    op: Op,
    start: impl Fn(usize, usize) -> T,
) -> Result<Vec<u64>, Error> {
    let extents = Extents { points: [1, 1, ELEMENTS], components: 1 };
    let [mut from, mut to] =
        [Buffer::<T>::zeros(world, stream, extents)?, Buffer::zeros(world, stream, extents)?];
    for (array, buffer) in [&mut from, &mut to].into_iter().enumerate() {
        buffer.with_host_mut(extents.whole(), |mut view| {
            view.iter_mut().enumerate().for_each(|(index, element)| *element = start(array, index));
        })?;
    }
    let moves = |stage: &Vec<Plan>| stage.iter().map(|plan| plan.of(&from, &to, op)).collect();
    let table = MoveTable::new(&stages.iter().map(moves).collect::<Result<Vec<Vec<Move>>, _>>()?)?;
    stream.enqueue_move(&Arc::new(table));
    Ok(to.copy_out(extents.whole())?.into_iter().map(Sample::bits).collect())
}

/// Compares the host and the device.
fn check<T: Sample>(seed: u64, op: Op, start: impl Fn(usize, usize) -> T) {
    let world = World::alone().expect("a world of one rank");
    let mut random = Random::new(seed);
    // One stage each where moves replace: those of one stage do not overlap.
    let stages: Vec<Vec<Plan>> = match op {
        Op::Replace => (0..6).map(|_| vec![Plan::random(&mut random)]).collect(),
        _ => (0..2).map(|_| (0..8).map(|_| Plan::random(&mut random)).collect()).collect(),
    };
    let on = |kind| {
        let stream = stream_of(&world, kind).expect("a stream");
        result::<T>(&world, &stream, &stages, op, &start).expect("moves that fit")
    };
    let expected = on(StreamKind::Inline);
    in_both_memories(|| {
        assert_eq!(on(StreamKind::Device), expected, "{op:?} of {}, {stages:?}", T::TYPE);
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

#[test]
fn memory_of_the_host_is_refused_on_the_device() {
    if other_device().is_none() {
        return;
    }
    let world = World::alone().expect("a world of one rank");
    let extents = Extents { points: [1, 1, 8], components: 1 };
    let [host, device] =
        [StreamKind::Inline, StreamKind::Device].map(|kind| stream_of(&world, kind).expect("a stream"));
    let here = Buffer::<u8>::zeros(&world, &host, extents).expect("8 bytes");
    let there = Buffer::<u8>::zeros(&world, &device, extents).expect("8 bytes");
    let plan = Plan { source: 0, destination: 0, strides: [[8, 8]; 2], counts: [1, 1], run: 8 };
    let table =
        MoveTable::new(&[vec![plan.of(&here, &there, Op::Replace).expect("it fits")]]).expect("it fits");
    device.enqueue_move(&Arc::new(table));
    let expected = Error::WrongDevice { what: "the memory of a move", device: device.device_name().into() };
    assert_eq!(device.synchronize(), Err(expected));
}
