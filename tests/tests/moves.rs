//! Tables of strided moves against a model that goes element by element.

use std::cell::RefCell;
use std::sync::{Arc, Mutex};
use streamhalo::comm::Error;
use streamhalo::comm::device::{Buffer, Extents, Move, MoveTable};
use streamhalo::{Element, ElementType, HaloError, Op, Stream, Tile, World};
use streamhalo_tests::{KINDS, Random, Sample, on_ranks, stream_of};

const BYTES: usize = 48 * 1024;
const EXTENTS: Extents = Extents { points: [1, 1, BYTES], components: 1 };

/// A move between two of the buffers, by number.
#[derive(Debug, Clone)]
struct Plan {
    source: (usize, usize),
    destination: (usize, usize),
    source_strides: [usize; 2],
    destination_strides: [usize; 2],
    counts: [usize; 2],
    run_bytes: usize,
    op: Op,
}

impl Plan {
    /// The bytes from the first to the last of an end with those strides.
    fn reach(&self, strides: [usize; 2]) -> usize {
        (self.counts[0] - 1) * strides[0] + (self.counts[1] - 1) * strides[1] + self.run_bytes
    }

    fn compile<T: Element>(&self, buffers: &[Buffer<u8>]) -> Result<Move, Error> {
        let place = |(buffer, offset): (usize, usize)| buffers[buffer].place([0, 0, offset]);
        Ok(Move {
            source: place(self.source)?,
            source_strides: self.source_strides,
            destination: place(self.destination)?,
            destination_strides: self.destination_strides,
            counts: self.counts,
            run_bytes: self.run_bytes,
            element: T::TYPE,
            op: self.op,
        })
    }

    /// What the move means, one element after the other.
    fn run<T: Sample>(&self, memory: &mut [Vec<u8>]) {
        for i in 0..self.counts[0] {
            for j in 0..self.counts[1] {
                let at = |start: usize, strides: [usize; 2]| start + i * strides[0] + j * strides[1];
                let from = at(self.source.1, self.source_strides);
                let to = at(self.destination.1, self.destination_strides);
                for offset in (0..self.run_bytes).step_by(size_of::<T>()) {
                    let other = load::<T>(&memory[self.source.0], from + offset);
                    let own = load::<T>(&memory[self.destination.0], to + offset);
                    store(&mut memory[self.destination.0], to + offset, own.combined(self.op, other));
                }
            }
        }
    }
}

fn load<T: Sample>(memory: &[u8], at: usize) -> T {
    let mut bits = [0; 8];
    bits[..size_of::<T>()].copy_from_slice(&memory[at..at + size_of::<T>()]);
    T::of_bits(u64::from_le_bytes(bits))
}

fn store<T: Sample>(memory: &mut [u8], at: usize, value: T) {
    memory[at..at + size_of::<T>()].copy_from_slice(&value.bits().to_le_bytes()[..size_of::<T>()]);
}

/// Strides with or without gaps, and with the axes in either order of size.
fn strides(random: &mut Random, counts: [usize; 2], run_bytes: usize, unit: usize) -> [usize; 2] {
    let gaps = [0, 1].map(|_| unit * random.pick(&[0, 0, 1, 2, 7, 16]));
    let near = run_bytes + gaps[0];
    if random.once_in(4) { [near, near * counts[0] + gaps[1]] } else { [near * counts[1] + gaps[1], near] }
}

/// Moves of one stage: what they write does not overlap, except that reductions may write again
/// what reductions before them wrote. Sources are in the first buffer, or (from the second stage
/// on) where the stage before has written.
fn stage<T: Element>(random: &mut Random, number: usize) -> Vec<Plan> {
    let unit = size_of::<T>();
    let (from, to) = (number % 3, (number + 1) % 3);
    let mut plans: Vec<Plan> = Vec::new();
    let mut next = random.below(8) * unit;
    for _ in 0..random.between(1, 6) {
        let run_bytes = match random.below(3) {
            0 => unit * random.between(1, 4),
            1 => random.between(1, 400).next_multiple_of(unit),
            _ => random.pick(&[8, 16, 24, 32, 56, 64, 72, 128, 136, 192, 200, 256]),
        };
        let counts = [random.between(1, 4), random.between(1, 5)];
        let source_strides = strides(random, counts, run_bytes, unit);
        let op = random.pick(&[Op::Replace, Op::Replace, Op::Sum, Op::Min, Op::Max]);
        let mut plan = Plan {
            source: (from, 0),
            destination: (to, next),
            source_strides,
            destination_strides: strides(random, counts, run_bytes, unit),
            counts,
            run_bytes,
            op,
        };
        let source_room = (BYTES - plan.reach(source_strides)) / unit;
        plan.source.1 = unit * random.below(source_room);
        // Moves of one shape, which the table may carry out together; of reductions some write
        // the same again.
        for copy in 0..random.pick(&[1, 1, 2, 3]) {
            let again = op != Op::Replace && copy > 0 && random.once_in(2);
            if !again {
                plan.destination.1 = next;
                next += plan.reach(plan.destination_strides).next_multiple_of(unit) + unit * random.below(3);
            }
            assert!(next <= BYTES, "a stage fits into a buffer");
            plans.push(plan.clone());
            plan.source.1 = unit * random.below(source_room);
        }
    }
    plans
}

/// The two ends of the same rows, as the two faces of an axis are: what one writes lies between
/// what the other writes.
fn two_ends<T: Element>(random: &mut Random, number: usize) -> Vec<Plan> {
    let unit = size_of::<T>();
    let run_bytes = random.between(1, 80).next_multiple_of(unit);
    let counts = [random.between(1, 3), random.between(2, 6)];
    let row = 2 * run_bytes + unit * random.below(10);
    let strides = [row * counts[1], row];
    let first = Plan {
        source: (number % 3, 0),
        destination: ((number + 1) % 3, 0),
        source_strides: strides,
        destination_strides: strides,
        counts,
        run_bytes,
        op: Op::Replace,
    };
    let (low, high) = (0, row - run_bytes);
    let end = |source, destination| Plan {
        source: (first.source.0, source),
        destination: (first.destination.0, destination),
        ..first.clone()
    };
    vec![end(high, low), end(low, high)]
}

/// Moves that differ in one thing only, none of which may be carried out as the others are.
fn nearly_alike<T: Element>(random: &mut Random, number: usize) -> Vec<Plan> {
    let unit = size_of::<T>();
    let run_bytes = unit * random.between(1, 6);
    let counts = [random.between(1, 3), random.between(1, 3)];
    // Room for one run more, and for runs and strides one element longer.
    let inner = run_bytes + unit * random.between(1, 3);
    let strides = [(inner + unit) * (counts[1] + 1), inner];
    let same = Plan {
        source: (number % 3, 0),
        destination: ((number + 1) % 3, 0),
        source_strides: strides,
        destination_strides: strides,
        counts,
        run_bytes,
        op: Op::Replace,
    };
    let mut plans = Vec::new();
    let mut next = 0;
    for _ in 0..10 {
        let mut plan = same.clone();
        match random.below(9) {
            0 => plan.counts[0] += 1,
            1 => plan.counts[1] += 1,
            2 => plan.source_strides[0] += unit,
            3 => plan.source_strides[1] += unit,
            4 => plan.destination_strides[0] += unit,
            5 => plan.destination_strides[1] += unit,
            6 => plan.run_bytes += unit,
            7 => plan.op = Op::Sum,
            _ => {}
        }
        plan.source.1 = unit * random.below(500);
        plan.destination.1 = next;
        next += plan.reach(plan.destination_strides);
        plans.push(plan);
    }
    plans
}

/// Two stages: the second has a move of the same shape as one of the first, and reads what another
/// one of the first has written.
fn chained<T: Element>(random: &mut Random) -> [Vec<Plan>; 2] {
    let unit = size_of::<T>();
    let run_bytes = unit * random.between(1, 4);
    let row = |source: (usize, usize), destination: (usize, usize), runs: usize| Plan {
        source,
        destination,
        source_strides: [0, run_bytes + unit],
        destination_strides: [0, run_bytes + 2 * unit],
        counts: [1, runs],
        run_bytes,
        op: Op::Replace,
    };
    let far = 100 * unit;
    [vec![row((0, far), (1, 0), 3), row((0, 3 * far), (1, 2 * far), 4)], vec![row((1, 2 * far), (2, far), 3)]]
}

fn check<T: Sample>(world: &World, stream: &Stream, seed: u64) -> Result<(), HaloError> {
    let mut random = Random::new(seed);
    let mut buffers =
        (0..3).map(|_| Buffer::<u8>::zeros(world, stream, EXTENTS)).collect::<Result<Vec<_>, _>>()?;
    let mut memory = Vec::new();
    for buffer in &mut buffers {
        let mut bytes = vec![0; BYTES];
        (0..BYTES)
            .step_by(size_of::<T>())
            .for_each(|at| store(&mut bytes, at, T::from_bits(random.next_u64())));
        buffer.view_mut(EXTENTS.whole())?.iter_mut().zip(&bytes).for_each(|(byte, other)| *byte = *other);
        memory.push(bytes);
    }
    let mut stages = Vec::new();
    if random.once_in(2) {
        stages.extend(chained::<T>(&mut random));
    }
    for number in stages.len()..stages.len() + random.between(1, 4) {
        stages.push(match random.below(4) {
            0 => two_ends::<T>(&mut random, number),
            1 => nearly_alike::<T>(&mut random, number),
            _ => stage::<T>(&mut random, number),
        });
    }
    let compile = |plan: &Plan| plan.compile::<T>(&buffers);
    let moves =
        stages.iter().map(|stage| stage.iter().map(compile).collect()).collect::<Result<Vec<_>, _>>()?;
    let table = Arc::new(MoveTable::new(&moves)?);
    let bytes = |plan: &Plan| plan.counts[0] * plan.counts[1] * plan.run_bytes;
    assert_eq!(table.bytes(), stages.iter().flatten().map(bytes).sum::<usize>());
    assert!(table.nests() <= stages.iter().map(Vec::len).sum());
    for run in 0..2 {
        stream.enqueue_move(&table).expect("nobody looks");
        stages.iter().flatten().for_each(|plan| plan.run::<T>(&mut memory));
        for (number, (buffer, expected)) in buffers.iter().zip(&memory).enumerate() {
            let found = buffer.copy_out(EXTENTS.whole())?;
            let wrong = (0..BYTES).find(|at| found[*at] != expected[*at]);
            assert_eq!(
                wrong,
                None,
                "first wrong byte of buffer {number} after run {run} with seed {seed} and {}: {stages:#?}",
                T::TYPE
            );
        }
    }
    Ok(())
}

#[test]
fn tables_do_what_their_moves_say() {
    on_ranks(1, |world| {
        for kind in KINDS {
            let stream = stream_of(world, kind)?;
            for seed in 0..12 {
                check::<u8>(world, &stream, seed)?;
                check::<i32>(world, &stream, seed)?;
                check::<i64>(world, &stream, seed)?;
                check::<f32>(world, &stream, seed)?;
                check::<f64>(world, &stream, seed)?;
            }
        }
        Ok(())
    });
}

#[test]
fn runs_of_every_length() {
    on_ranks(1, |world| {
        let stream = stream_of(world, KINDS[0])?;
        let extents = Extents { points: [1, 1, 3 * 1024], ..EXTENTS };
        let mut source = Buffer::<u8>::zeros(world, &stream, extents)?;
        source.view_mut(extents.whole())?.iter_mut().zip(0..).for_each(|(byte, at)| *byte = (at % 251) as u8);
        let buffers = [source, Buffer::zeros(world, &stream, extents)?];
        let contents = |number: usize| buffers[number].copy_out(extents.whole());
        for run_bytes in 1..=400 {
            for counts in [[1, 1], [1, 3], [2, 3]] {
                let strides = [run_bytes * counts[1] + 14, run_bytes + 3];
                let plan = Plan {
                    source: (0, run_bytes),
                    destination: (1, 5),
                    source_strides: strides,
                    destination_strides: strides.map(|stride| stride + 2 * counts[1]),
                    counts,
                    run_bytes,
                    op: Op::Replace,
                };
                let table = Arc::new(MoveTable::new(&[vec![plan.compile::<u8>(&buffers)?]])?);
                let mut expected = [contents(0)?, contents(1)?];
                plan.run::<u8>(&mut expected);
                stream.enqueue_move(&table).expect("nobody looks");
                assert!(contents(1)? == expected[1], "{plan:?}");
            }
        }
        Ok(())
    });
}

#[test]
fn moves_that_leave_their_region_are_refused() {
    on_ranks(1, |world| {
        let stream = stream_of(world, KINDS[0])?;
        let buffers =
            (0..2).map(|_| Buffer::<u8>::zeros(world, &stream, EXTENTS)).collect::<Result<Vec<_>, _>>()?;
        let good = Plan {
            source: (0, BYTES - 80),
            destination: (1, BYTES - 88),
            source_strides: [40, 16],
            destination_strides: [48, 16],
            counts: [2, 3],
            run_bytes: 8,
            op: Op::Sum,
        };
        let table = |plan: &Plan| MoveTable::new(&[vec![plan.compile::<f64>(&buffers)?]]);
        table(&good)?;
        let far_source = table(&Plan { source: (0, BYTES - 72), ..good.clone() });
        let what = "the source of a move";
        let expected = Error::OutOfBounds { what, start: BYTES - 72, end: BYTES + 8, region_bytes: BYTES };
        assert_eq!(far_source.map(|_| ()), Err(expected));
        let far_destination = table(&Plan { destination: (1, BYTES - 87), ..good.clone() });
        let what = "the destination of a move";
        let expected = Error::OutOfBounds { what, start: BYTES - 87, end: BYTES + 1, region_bytes: BYTES };
        assert_eq!(far_destination.map(|_| ()), Err(expected));
        // So are strides whose sums no number holds.
        for far in [[usize::MAX - 7, 0], [0, usize::MAX / 2 + 8], [usize::MAX; 2]] {
            for plan in [
                Plan { source_strides: far, ..good.clone() },
                Plan { destination_strides: far, ..good.clone() },
            ] {
                assert!(matches!(table(&plan), Err(Error::OutOfBounds { .. })), "{plan:?}");
            }
        }
        let halves = table(&Plan { run_bytes: 4, ..good.clone() });
        assert!(
            matches!(halves, Err(Error::OutOfBounds { what: "a move of whole elements", .. })),
            "{halves:?}"
        );
        // Nothing to move: nowhere to go wrong.
        for counts in [[0, 3], [2, 0]] {
            let empty = MoveTable::new(&[vec![Plan { counts, ..good.clone() }.compile::<f64>(&buffers)?]])?;
            assert_eq!((empty.bytes(), empty.nests()), (0, 0));
        }
        Ok(())
    });
}

/// What a view shows is not written meanwhile, by a table of moves either; what lies beside it is.
#[test]
fn what_the_host_looks_at_is_not_moved_to() -> Result<(), HaloError> {
    let world = World::alone()?;
    let line = Extents { points: [1, 1, 8], components: 1 };
    for kind in KINDS {
        let stream = stream_of(&world, kind)?;
        let mut ones = Buffer::<i64>::zeros(&world, &stream, line)?;
        ones.view_mut(line.whole())?.fill(1);
        let cells = Buffer::<i64>::zeros(&world, &stream, line)?;
        let table = |first: usize| {
            let one = Move {
                source: ones.place([0; 3])?,
                source_strides: [0; 2],
                destination: cells.place([0, 0, first])?,
                destination_strides: [0; 2],
                counts: [1, 1],
                run_bytes: 16,
                element: ElementType::I64,
                op: Op::Replace,
            };
            Ok::<_, Error>(Arc::new(MoveTable::new(&[vec![one]])?))
        };
        let tables = [table(0)?, table(1)?, table(2)?, table(4)?];
        let part = Tile { start: [0, 0, 2], end: [1, 1, 4] };
        let view = cells.view(part)?;
        let moved = tables.each_ref().map(|table| stream.enqueue_move(table).is_ok());
        assert_eq!(moved, [true, false, false, true], "cells 2 and 3 are viewed");
        let refused = stream.enqueue_move(&tables[2]).expect_err("as before");
        assert_eq!(refused, Error::InUse { what: "a move", start: 16, end: 32, by: "a view of an array" });
        assert_eq!(view.iter().copied().collect::<Vec<_>>(), [0, 0]);
        drop(view);
        stream.enqueue_move(&tables[2])?;
        assert_eq!(cells.copy_out(line.whole())?, [1, 1, 1, 1, 1, 1, 0, 0]);
    }
    Ok(())
}

thread_local! {
    /// What a kernel finds beside its arguments.
    static BESIDE: RefCell<Option<(Stream, Arc<MoveTable>)>> = const { RefCell::new(None) };
}

/// It would write what the kernel has, and a table has no borrow of it.
#[test]
fn a_kernel_that_runs_here_and_now_cannot_enqueue_moves_behind_itself() -> Result<(), HaloError> {
    let world = World::alone()?;
    let stream = stream_of(&world, KINDS[0])?;
    let line = Extents { points: [1, 1, 8], components: 1 };
    let mut cells = Buffer::<i64>::zeros(&world, &stream, line)?;
    let one = Move {
        source: cells.place([0, 0, 4])?,
        source_strides: [0; 2],
        destination: cells.place([0; 3])?,
        destination_strides: [0; 2],
        counts: [1, 1],
        run_bytes: 16,
        element: ElementType::I64,
        op: Op::Replace,
    };
    let table = Arc::new(MoveTable::new(&[vec![one]])?);
    BESIDE.set(Some((stream.clone(), table.clone())));
    let found = Arc::new(Mutex::new(None));
    let told = found.clone();
    let writer = cells.writer(line.whole())?;
    stream.launch("meddling", line.whole(), (writer,), move |_, (mut rows,)| {
        rows.row(0, 0).fill(3);
        let moved =
            BESIDE.with_borrow(|beside| beside.as_ref().map(|(stream, table)| stream.enqueue_move(table)));
        *told.lock().unwrap() = moved;
    })?;
    let found = found.lock().unwrap().take();
    assert!(matches!(found, Some(Err(Error::OutOfOrder { call: "enqueue_move", .. }))), "{found:?}");
    stream.enqueue_move(&table)?;
    BESIDE.take();
    assert_eq!(cells.copy_out(line.whole())?, [3; 8]);
    Ok(())
}
