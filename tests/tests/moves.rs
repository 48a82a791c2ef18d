//! Tables of strided moves against a model that goes element by element.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use streamhalo::comm::backend::{Direct, Exchange, ExchangeSpec, MessageSpec, Slot, match_exchange};
use streamhalo::comm::collective::AllReduce;
use streamhalo::comm::device::{Buffer, Extents, Move, MoveTable};
use streamhalo::comm::fabric::Place;
use streamhalo::comm::window::{ActiveOptions, Window};
use streamhalo::comm::{Communicator, Error};
use streamhalo::{Element, ElementType, HaloError, Op, Stream, Tile, World};
use streamhalo_tests::{KINDS, Random, Sample, on_ranks, stream_of};

const BYTES: usize = 48 * 1024;
const EXTENTS: Extents = Extents { points: [1, 1, BYTES], components: 1 };
const EIGHT: Extents = Extents { points: [1, 1, 8], components: 1 };

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

/// Two elements.
fn two(source: Place, destination: Place) -> Result<Arc<MoveTable>, Error> {
    let one = Move::of_bytes(source, destination, 16);
    Ok(Arc::new(MoveTable::new(&[vec![one]])?))
}

/// What a view shows is not written meanwhile, by a table of moves either, nor what it lends for writing read; what lies
/// beside it is.
#[test]
fn what_the_host_looks_at_is_not_moved_to() -> Result<(), HaloError> {
    let world = World::alone()?;
    for kind in KINDS {
        let stream = stream_of(&world, kind)?;
        let mut ones = Buffer::<i64>::zeros(&world, &stream, EIGHT)?;
        ones.view_mut(EIGHT.whole())?.fill(1);
        let cells = Buffer::<i64>::zeros(&world, &stream, EIGHT)?;
        let places = [0, 1, 2, 4, 6].map(|first| ones.place([0, 0, first]));
        let places = places.into_iter().collect::<Result<Vec<_>, _>>()?;
        let from = |source: usize, first: usize| {
            let source = places.iter().find(|place| place.offset() == 8 * source).expect("one of them");
            two(source.clone(), cells.place([0, 0, first])?)
        };
        let table = |first| from(0, first);
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
        assert_eq!(cells.copy_out(EIGHT.whole())?, [1, 1, 1, 1, 1, 1, 0, 0]);

        let seen = ones.view(part)?;
        stream.enqueue_move(&from(0, 2)?)?;
        drop(seen);
        let firsts = [0, 1, 2, 4].map(|first| from(first, 6)).into_iter().collect::<Result<Vec<_>, _>>()?;
        let mut lent = ones.view_mut(part)?;
        let moved: Vec<_> = firsts.iter().map(|table| stream.enqueue_move(table).is_ok()).collect();
        assert_eq!(moved, [true, false, false, true], "cells 2 and 3 are written by the host");
        lent.fill(2);
        drop(lent);
        stream.enqueue_move(&firsts[1])?;
        assert_eq!(cells.copy_out(EIGHT.whole())?, [1, 1, 1, 1, 1, 1, 1, 2]);
    }
    Ok(())
}

type Call = Box<dyn FnMut() -> Result<(), Error>>;

thread_local! {
    /// What a kernel finds beside its arguments.
    static BESIDE: RefCell<Option<Call>> = const { RefCell::new(None) };
}

/// What it gives from within a kernel that writes all of an array, on an inline stream. The array keeps what that has written.
fn from_within(
    stream: &Stream,
    cells: &mut Buffer<i64>,
    call: impl FnMut() -> Result<(), Error> + 'static,
) -> Result<Result<(), Error>, HaloError> {
    BESIDE.set(Some(Box::new(call)));
    let found = Arc::new(Mutex::new(None));
    let (told, tile) = (found.clone(), cells.extents().whole());
    stream.launch("meddling", tile, (cells.writer(tile)?,), move |_, (mut rows,)| {
        rows.row(0, 0).fill(3);
        let called = BESIDE.with_borrow_mut(|call| call.as_mut().map(|call| call()));
        *told.lock().unwrap() = called;
    })?;
    BESIDE.take();
    assert_eq!(cells.copy_out(tile)?, [3; 8]);
    Ok(found.lock().unwrap().take().expect("it was called"))
}

/// They would write what the kernel has, and neither tables nor sections have a borrow of it.
#[test]
fn a_kernel_that_runs_here_and_now_cannot_use_its_array_otherwise() -> Result<(), HaloError> {
    let world = World::alone()?;
    let stream = stream_of(&world, KINDS[0])?;
    let mut cells = Buffer::<i64>::zeros(&world, &stream, EIGHT)?;
    let twos = Buffer::<i64>::zeros(&world, &stream, EIGHT)?;
    let table = two(cells.place([0, 0, 4])?, cells.place([0; 3])?)?;
    let meddles = |found: Result<(), Error>, name| {
        assert!(matches!(&found, Err(Error::OutOfOrder { call, .. }) if *call == name), "{name}: {found:?}");
    };

    let (own, moves) = (stream.clone(), table.clone());
    let found = from_within(&stream, &mut cells, move || own.enqueue_move(&moves))?;
    meddles(found, "enqueue_move");
    stream.enqueue_move(&table)?;

    let period =
        stream.capture(|stream| stream.enqueue_move(&two(twos.place([0; 3])?, cells.place([0; 3])?)?))?;
    let own = stream.clone();
    let found = from_within(&stream, &mut cells, move || own.replay(&period, 1))?;
    meddles(found, "replay");

    let communicator = Communicator::new(&world)?;
    communicator.send(&[7_i64; 2], 0, 5)?;
    let section = cells.section(0..2)?;
    let receive = section.clone();
    let by = communicator.clone();
    let found = from_within(&stream, &mut cells, move || by.irecv(&receive, 0, 5)?.wait().map(|_| ()))?;
    meddles(found, "a receive");
    communicator.irecv(&section, 0, 5)?.wait()?;
    assert_eq!(cells.copy_out(EIGHT.whole())?, [7, 7, 3, 3, 3, 3, 3, 3]);

    let window = Window::active(&world, &section, ActiveOptions::default())?;
    let found = from_within(&stream, &mut cells, move || window.write(0, &[8_i64; 2]))?;
    meddles(found, "writing one's part of a window");

    let mut sum = AllReduce::new(&world, &stream, &twos.section(0..2)?, &section, Op::Sum)?;
    let found = from_within(&stream, &mut cells, move || sum.enqueue())?;
    meddles(found, "an allreduce");
    Ok(())
}

/// An exchange of two cells with the other of two ranks: those from 4 on go there.
fn exchange_of(
    world: &World,
    stream: &Stream,
    backend: &str,
    cells: &Buffer<i64>,
) -> Result<Box<dyn Exchange>, Error> {
    let message = MessageSpec {
        peer: 1 - world.rank(),
        tag: 0,
        elements: vec![(ElementType::I64, 2)],
        bytes: 16,
        run_bytes: 16,
        direct: Direct::Never,
        ghosts: Vec::new(),
    };
    let spec = ExchangeSpec { sends: vec![message.clone()], recvs: vec![message], last_epoch: 0 };
    let mut exchange = match_exchange(world, stream, backend, spec)?;
    let pack = |phase| match exchange.send_slot(0, phase) {
        Slot::Packed(place) => two(cells.place([0, 0, 4])?, place),
        Slot::Ghosts(_) => unreachable!("it is never direct"),
    };
    let packs = [pack(0)?, pack(1)?];
    exchange.bind(vec![packs])?;
    Ok(exchange)
}

#[test]
fn exchanges_pack_neither_what_a_kernel_writes_nor_what_is_lent_to_be_written() {
    for backend in ["standard", "st-send"] {
        on_ranks(2, |world| {
            let stream = stream_of(world, KINDS[0])?;
            let mut cells = Buffer::<i64>::zeros(world, &stream, EIGHT)?;
            let exchange = Rc::new(RefCell::new(exchange_of(world, &stream, backend, &cells)?));
            let is_refused = |cells: &mut Buffer<i64>, call, step: fn(&mut dyn Exchange, &Stream) -> _| {
                let (own, meant) = (stream.clone(), exchange.clone());
                let found = from_within(&stream, cells, move || step(&mut **meant.borrow_mut(), &own))?;
                let is_that = matches!(&found, Err(Error::OutOfOrder { call: refused, reason })
                    if *refused == call && reason.contains("running"));
                assert!(is_that, "{backend}: {found:?}");
                Ok::<(), HaloError>(())
            };
            is_refused(&mut cells, "start_recvs", |exchange, stream| exchange.start_recvs(stream))?;
            exchange.borrow_mut().start_recvs(&stream)?;
            is_refused(&mut cells, "start_sends", |exchange, stream| exchange.start_sends(stream))?;
            let part = |first| Tile { start: [0, 0, first], end: [1, 1, first + 2] };
            let lent = cells.view_mut(part(5))?;
            let refused = exchange.borrow_mut().start_sends(&stream);
            assert!(
                matches!(refused, Err(Error::InUse { start: 40, end: 56, .. })),
                "{backend}: {refused:?}"
            );
            drop(lent);
            let _beside = cells.view_mut(part(2))?;
            exchange.borrow_mut().start_sends(&stream)?;
            drop(_beside);
            is_refused(&mut cells, "wait", |exchange, stream| exchange.wait(stream))?;
            exchange.borrow_mut().wait(&stream)?;
            let arrived = exchange.borrow().recv_slot(0, 1).expect("it is packed");
            stream.enqueue_move(&two(arrived, cells.place([0; 3])?)?)?;
            assert_eq!(cells.copy_out(EIGHT.whole())?, [3; 8]);
            Ok(())
        });
    }
}

#[test]
fn places_beyond_what_can_be_counted_are_out_of_bounds() -> Result<(), HaloError> {
    let world = World::alone()?;
    let stream = stream_of(&world, KINDS[0])?;
    let line = Buffer::<f64>::zeros(&world, &stream, EIGHT)?;
    for far in [8, 1 << 58, 1 << 60, 1 << 61, 1 << 63, usize::MAX] {
        for point in [[far, 0, 0], [0, far, 0], [0, 0, far], [far; 3]] {
            let refused = line.place(point);
            // A place may be at the end.
            assert!(point == [0, 0, 8] || matches!(refused, Err(Error::OutOfBounds { .. })), "{point:?}");
        }
    }
    Ok(())
}
