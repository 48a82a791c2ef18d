//! Collective calls of communicators against what one rank computes from all values.

use super::Done;
use crate::random::mix;
use crate::{Sample, Scenario, value};
use std::time::{Duration, SystemTime};
use streamhalo::comm::Communicator;
use streamhalo::{Element, HaloError, Op, World};

/// None, one, some, and enough to be reduced in parts.
const LENGTHS: [usize; 4] = [0, 1, 37, 33_000];

/// Values of very different size, so that every other order of addition gives other bits.
fn own<T: Sample>(rank: usize, elements: usize) -> Vec<T> {
    (0..elements).map(|index| value(rank, &[index], 1, 5)).collect()
}

fn uneven(rank: usize, elements: usize) -> Vec<f64> {
    let scaled = |index| {
        let bits: i64 = value(rank, &[index], 1, 5);
        (bits % 1000 + 1) as f64 * 10_f64.powi((bits / 1000 % 30) as i32 - 15)
    };
    (0..elements).map(scaled).collect()
}

/// The order that is promised: where there are 2ⁿ + k ranks k pairs of neighbours are combined first, and then all neighbours,
/// and the neighbours of what comes of it.
fn expected<T: Element>(op: Op, mut values: Vec<Vec<T>>) -> Vec<T> {
    let combined = |left: &[T], right: &[T]| -> Vec<T> {
        left.iter().zip(right).map(|(left, right)| T::combine(op, *left, *right)).collect()
    };
    let unite = |values: &[Vec<T>]| values.chunks(2).map(|pair| combined(&pair[0], &pair[1])).collect();
    let pairs = values.len() - (1 << values.len().ilog2());
    let single = values.split_off(2 * pairs);
    values = unite(&values);
    values.extend(single);
    while values.len() > 1 {
        values = unite(&values);
    }
    values.remove(0)
}

fn bits<T: Element>(elements: &[T]) -> u64 {
    // Numbers are written so that other bits give another text.
    elements.iter().fold(7, |sum, element| {
        format!("{element:?}").bytes().fold(sum, |sum, byte| mix(sum ^ u64::from(byte)))
    })
}

fn reduces<T: Element>(
    communicator: &Communicator,
    own: impl Fn(usize, usize) -> Vec<T>,
    op: Op,
) -> Result<Done, HaloError> {
    let (rank, size) = (communicator.rank(), communicator.size());
    let mut done = Done::default();
    for elements in LENGTHS {
        let expected = expected(op, (0..size).map(|rank| own(rank, elements)).collect());
        let mut reduced = own(rank, elements);
        communicator.allreduce(&mut reduced, op)?;
        assert!(reduced == expected, "{op:?} of {elements} {}", T::TYPE);
        done.checksum = mix(done.checksum ^ bits(&reduced));
        let root = elements % size;
        let mut reduced = own(rank, elements);
        communicator.reduce(&mut reduced, op, root)?;
        let expected = if rank == root { expected } else { own(rank, elements) };
        assert!(reduced == expected, "{op:?} of {elements} {} for rank {root}", T::TYPE);
    }
    Ok(done)
}

/// Every operation on every element type; sums of floats in the order that is promised.
pub fn reductions(world: &World, _way: Scenario) -> Result<Done, HaloError> {
    let communicator = Communicator::new(world)?;
    let mut done = reduces::<f64>(&communicator, uneven, Op::Sum)?;
    let single = |rank, elements| uneven(rank, elements).into_iter().map(|value| value as f32).collect();
    done.add(&reduces::<f32>(&communicator, single, Op::Sum)?);
    for op in [Op::Sum, Op::Min, Op::Max] {
        done.add(&reduces::<u8>(&communicator, own, op)?);
        done.add(&reduces::<i32>(&communicator, own, op)?);
    }
    done.add(&reduces::<i64>(&communicator, own, Op::Max)?);
    let with_nan = |rank, elements| {
        let mut values = uneven(rank, elements);
        values.iter_mut().skip(rank).step_by(3).for_each(|value| *value = f64::NAN);
        values
    };
    let mut least = with_nan(world.rank(), 5);
    communicator.allreduce(&mut least, Op::Min)?;
    let all: Vec<Vec<f64>> = (0..world.size()).map(|rank| with_nan(rank, 5)).collect();
    for (index, least) in least.into_iter().enumerate() {
        let expected = all.iter().map(|values| values[index]).fold(f64::NAN, f64::min);
        assert_eq!(least.to_bits(), expected.to_bits(), "NaN is ignored, unless there is nothing else");
    }
    Ok(done)
}

/// Broadcasts, gathers, barriers, and blocks between neighbours.
pub fn moves(world: &World, way: Scenario) -> Result<Done, HaloError> {
    let communicator = Communicator::new(world)?;
    let (rank, size) = (world.rank(), world.size());
    let mut done = Done::default();
    for (round, elements) in LENGTHS.into_iter().enumerate() {
        for root in [0, size / 2, size - 1] {
            let mut values: Vec<f64> = own(rank, elements);
            communicator.broadcast(&mut values, root)?;
            assert!(values == own::<f64>(root, elements), "{elements} of rank {root}, {way:?}");
        }
        let mut gathered = vec![0_i32; size * elements];
        communicator.allgather(&own(rank, elements), &mut gathered)?;
        let expected: Vec<i32> = (0..size).flat_map(|rank| own(rank, elements)).collect();
        assert!(gathered == expected, "{elements} of every rank, {way:?}");
        // Of every rank another number, of the first none.
        let uneven = |rank: usize| own::<i64>(rank, rank * elements / 3);
        for root in [0, size - 1] {
            let parts = communicator.gather(&uneven(rank), root)?;
            let expected = (rank == root).then(|| (0..size).map(uneven).collect());
            assert!(parts == expected, "{elements} of every rank for rank {root}, {way:?}");
        }
        // To the right twice, to the left, and to itself.
        let (left, right) = ((rank + size - 1) % size, (rank + 1) % size);
        let sent: Vec<u8> = own(rank + 10 * round, 4 * elements);
        let mut received = vec![0_u8; 4 * elements];
        let (to, from) = ([right, right, left, rank], [left, left, right, rank]);
        communicator.neighbour_alltoall(&to, &sent, &from, &mut received)?;
        let block = |rank: usize, index: usize| -> Vec<u8> {
            own::<u8>(rank + 10 * round, 4 * elements)[index * elements..][..elements].to_vec()
        };
        // Between two ranks blocks are matched in order: on two ranks right and left are the same.
        let mut taken = vec![0; size];
        for (index, from) in from.into_iter().enumerate() {
            let (left, right) = ((from + size - 1) % size, (from + 1) % size);
            let to_here: Vec<usize> = [right, right, left, from]
                .into_iter()
                .enumerate()
                .filter(|(_, to)| *to == rank)
                .map(|(index, _)| index)
                .collect();
            let expected = block(from, to_here[taken[from]]);
            taken[from] += 1;
            assert!(received[index * elements..][..elements] == expected, "block {index}, {way:?}");
        }
        communicator.barrier()?;
        done.checksum = mix(done.checksum ^ bits(&gathered)).wrapping_add(bits(&received));
    }
    communicator.neighbour_alltoall::<f64>(&[], &[], &[], &mut [])?;
    Ok(done)
}

/// No rank leaves a barrier before the last one has come, by the clock that the ranks of a machine share: whoever comes last
/// says when, and the others when they left.
pub fn barriers(world: &World, _way: Scenario) -> Result<Done, HaloError> {
    let communicator = Communicator::new(world)?;
    let now = || {
        let since = SystemTime::UNIX_EPOCH.elapsed().expect("it is later than 1970");
        i64::try_from(since.as_nanos()).expect("and earlier than 2262")
    };
    for late in 0..world.size() {
        communicator.barrier()?;
        let mut came = [0];
        if world.rank() == late {
            std::thread::sleep(Duration::from_millis(3));
            came = [now()];
        }
        communicator.barrier()?;
        let left = now();
        communicator.broadcast(&mut came, late)?;
        assert!(
            left >= came[0],
            "rank {} has left {} ns before rank {late} came",
            world.rank(),
            came[0] - left
        );
    }
    Ok(Done::default())
}
