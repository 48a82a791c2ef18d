//! When things happen: exchanges in flight together, begun in different orders, on several streams,
//! with slow ranks and ranks that run ahead, for hundreds of epochs and past the wrap of their number.

use streamhalo::ElementType::{F64, I32, U8};
use streamhalo::comm::Error;
use streamhalo::{
    Array, Device, Entity, GlobalGrid, HaloError, LocalGrid, Op, Pattern, Rows, Stream, StreamHalo,
    StreamKind, StreamOptions, Tile, World,
};
use streamhalo_tests::{
    FieldSet, FieldSpec, KINDS, Random, Scenario, delay, each_way, on_ranks, outcomes, stream_of,
};

const CELLS: FieldSpec = FieldSpec::array(F64, Entity::Cell, 1);
const ALTERNATING: FieldSpec = FieldSpec::alternating(F64, Entity::Cell, 1);

/// A field set with its exchange on a stream of its own grid.
struct Exchanged {
    fields: FieldSet<2>,
    halo: StreamHalo,
    epoch: u32,
}

impl Exchanged {
    fn new(
        world: &World,
        stream: &Stream,
        backend: &str,
        (cells, layout, periodic): ([usize; 2], [usize; 2], bool),
        (specs, pattern): (&[FieldSpec], &Pattern),
    ) -> Result<Self, HaloError> {
        let grid = GlobalGrid::new(cells, [periodic; 2])?.partition_as(world, layout)?.local(1)?;
        let fields = FieldSet::new(&grid, stream, specs, pattern, [1, 1])?;
        let halo = StreamHalo::new(world, stream, backend, pattern.clone(), 1, &fields)?;
        Ok(Self { fields, halo, epoch: 0 })
    }

    fn fill(&mut self) -> Result<(), HaloError> {
        self.epoch += 1;
        self.fields.fill(self.epoch)
    }

    fn check(&mut self) -> Result<(), HaloError> {
        self.fields.check(self.epoch)?;
        self.fields.swap();
        Ok(())
    }

    /// One whole epoch.
    fn step(&mut self) -> Result<(), HaloError> {
        self.fill()?;
        self.halo.enqueue_gather(&mut self.fields)?;
        self.check()
    }
}

fn offsets(given: &[[i32; 2]]) -> Pattern {
    Pattern::Offsets(given.iter().map(|offset| offset.to_vec()).collect())
}

/// Sizes of rows of cells whose messages are inline, packed, direct, and beyond the eager limit.
const ROWS: [usize; 4] = [8, 30, 200, 1_100];

#[test]
fn two_exchanges_begun_in_different_orders_do_not_deadlock() {
    for row in ROWS {
        for (specs, ranks) in [([CELLS], 2), ([ALTERNATING], 2), ([CELLS], 3)] {
            on_ranks(ranks, |world| {
                for way in each_way() {
                    let stream = stream_of(world, way.kind)?;
                    let shape = ([3 * ranks, row], [ranks, 1], true);
                    let make = || Exchanged::new(world, &stream, way.backend, shape, (&specs, &Pattern::All));
                    let (mut a, mut b) = (make()?, make()?);
                    for epoch in 1..=5 {
                        a.fill()?;
                        b.fill()?;
                        // Even and odd ranks begin and finish in opposite orders, in turn.
                        let swapped = (world.rank() + epoch as usize).is_multiple_of(2);
                        let [first, second] = if swapped { [&mut b, &mut a] } else { [&mut a, &mut b] };
                        let one = first.halo.begin_gather(&mut first.fields)?;
                        let two = second.halo.begin_gather(&mut second.fields)?;
                        one.check_owned(epoch)?;
                        if epoch % 3 == 0 {
                            two.finish()?;
                            one.finish()?;
                        } else {
                            one.finish()?;
                            two.finish()?;
                        }
                        a.check()?;
                        b.check()?;
                    }
                    a.fields.assert_right(&(way, row))?;
                    b.fields.assert_right(&(way, row))?;
                }
                Ok(())
            });
        }
    }
}

/// Rank 0 meets the others, or exchanges something else, while its messages are on their way; the
/// others first finish. Whatever blocks a rank must send what it has begun.
#[test]
fn a_rank_that_blocks_elsewhere_still_sends_what_it_has_begun() {
    for row in ROWS {
        for ranks in [2, 3] {
            on_ranks(ranks, |world| {
                for way in each_way() {
                    let stream = stream_of(world, way.kind)?;
                    let shape = ([3 * ranks, row], [ranks, 1], true);
                    let make =
                        |backend| Exchanged::new(world, &stream, backend, shape, (&[CELLS], &Pattern::All));
                    let mut one = make(way.backend)?;
                    let mut others = each_way()
                        .filter(|other| other.kind == way.kind)
                        .map(|other| make(other.backend))
                        .collect::<Result<Vec<_>, _>>()?;
                    for _ in 0..2 {
                        one.fill()?;
                        let in_flight = one.halo.begin_gather(&mut one.fields)?;
                        if world.rank() == 0 {
                            world.barrier()?;
                            others.iter_mut().try_for_each(Exchanged::step)?;
                            in_flight.finish()?;
                        } else {
                            in_flight.finish()?;
                            stream.synchronize()?;
                            world.barrier()?;
                            others.iter_mut().try_for_each(Exchanged::step)?;
                        }
                        one.check()?;
                        one.fill()?;
                        let in_flight = one.halo.begin_gather(&mut one.fields)?;
                        if world.rank() == 0 {
                            others.iter_mut().try_for_each(Exchanged::step)?;
                            stream.synchronize()?;
                            in_flight.finish()?;
                        } else {
                            in_flight.finish()?;
                            stream.synchronize()?;
                            others.iter_mut().try_for_each(Exchanged::step)?;
                        }
                        one.check()?;
                    }
                    one.fields.assert_right(&(way, row))?;
                    for other in &others {
                        other.fields.assert_right(&(way, row))?;
                    }
                }
                Ok(())
            });
        }
    }
}

#[test]
fn exchanges_on_two_streams_of_a_rank_interleave() {
    for kinds in [[KINDS[0], KINDS[0]], [KINDS[0], KINDS[1]], [KINDS[1], KINDS[1]]] {
        on_ranks(3, |world| {
            for way in each_way().filter(|way| way.kind == StreamKind::Inline) {
                let streams = [stream_of(world, kinds[0])?, stream_of(world, kinds[1])?];
                let mut all = Vec::new();
                for stream in &streams {
                    for (specs, pattern) in [(CELLS, Pattern::All), (ALTERNATING, offsets(&[[1, 0]]))] {
                        let shape = ([9, 60], [3, 1], true);
                        all.push(Exchanged::new(world, stream, way.backend, shape, (&[specs], &pattern))?);
                    }
                }
                for epoch in 0..8 {
                    if epoch % 2 == 0 {
                        all.iter_mut().try_for_each(Exchanged::step)?;
                        continue;
                    }
                    all.iter_mut().try_for_each(Exchanged::fill)?;
                    let in_flight = all
                        .iter_mut()
                        .map(|one| one.halo.begin_gather(&mut one.fields))
                        .collect::<Result<Vec<_>, _>>()?;
                    in_flight.into_iter().rev().try_for_each(|one| one.finish())?;
                    all.iter_mut().try_for_each(Exchanged::check)?;
                }
                for one in &all {
                    one.fields.assert_right(&(way, kinds))?;
                }
            }
            Ok(())
        });
    }
}

#[test]
fn ranks_may_have_streams_of_different_kinds() {
    on_ranks(3, |world| {
        for way in each_way() {
            let kind = if world.rank() == 1 { way.kind } else { StreamKind::Inline };
            let stream = Device::host().stream_with(world, StreamOptions { kind, threads: world.rank() })?;
            let shape = ([9, 50], [3, 1], true);
            let mut one = Exchanged::new(world, &stream, way.backend, shape, (&[CELLS], &Pattern::All))?;
            (0..6).try_for_each(|_| one.step())?;
            one.fields.assert_right(&way)?;
        }
        Ok(())
    });
}

/// Kernels that are launched while ghosts may be written.
#[test]
fn kernels_get_owned_entries_only_while_an_exchange_is_in_flight() {
    for way in each_way() {
        let results = outcomes(2, |world| {
            let stream = stream_of(world, way.kind)?;
            let grid = GlobalGrid::new([6, 7], [true; 2])?.partition_as(world, [2, 1])?.local(1)?;
            let mut field = Array::<f64, 2>::zeros(&grid, Entity::Cell, &stream)?;
            let mut halo = StreamHalo::new(world, &stream, way.backend, Pattern::All, 1, &field)?;
            let owned = grid.owned(Entity::Cell).tile();
            let mut in_flight = halo.begin_gather(&mut field)?;
            let refused = in_flight.writer()?;
            let whole = Tile { start: [0; 3], end: [1, 5, 9] };
            let refused = stream.launch("write ghosts", whole, (refused,), |_, _| ());
            let expected = Error::TileOutOfBounds {
                kernel: "write ghosts".into(),
                tile: Box::new(whole),
                bounds: Box::new(owned),
            };
            assert_eq!(refused, Err(expected));
            stream.launch("read owned", owned, (in_flight.reader()?,), |tile, (rows,)| {
                tile.rows().for_each(|(i, j)| assert_eq!(rows.row(i, j).len(), 7));
            })?;
            in_flight.finish()?;
            stream.launch("read all", owned, (field.reader()?,), |_, (rows,)| {
                assert_eq!(rows.span(0, 0, 0..9).len(), 9);
            })?;
            stream.synchronize()?;
            world.barrier()?;
            let in_flight = halo.begin_gather(&mut field)?;
            let read = |tile: Tile, (rows,): (Rows<'_, f64>,)| {
                tile.rows().for_each(|(i, j)| assert!(!rows.span(i, j, 0..3).is_empty()));
            };
            if world.rank() == 1 {
                stream.launch("read ghosts", owned, (in_flight.reader()?,), read)?;
            }
            in_flight.finish()?;
            stream.synchronize()?;
            // What rank 1 had to send may have come before its kernel.
            world.barrier()?;
            Ok(())
        });
        for (rank, result) in results.into_iter().enumerate() {
            match (rank, result.expect_err("the kernel of rank 1 reads ghosts")) {
                (1, HaloError::Communication(Error::KernelPanicked { kernel, rank: 1, message })) => {
                    assert_eq!(kernel, "read ghosts");
                    assert!(message.contains("ghosts"), "{message}");
                }
                (0, HaloError::Communication(Error::PeerFailed { rank: 1, operation })) => {
                    assert!(operation.contains("read ghosts"), "{operation}");
                }
                (rank, error) => panic!("rank {rank}, {way:?}: {error}"),
            }
        }
    }
}

/// A chain, a ring or a plane of ranks whose messages go one way, with a rank that is slow.
fn with_a_slow_rank(
    shape: ([usize; 2], [usize; 2], bool),
    specs: &[FieldSpec],
    pattern: &Pattern,
    slow: usize,
) {
    on_ranks(shape.1.iter().product(), |world| {
        for way in each_way() {
            let stream = stream_of(world, way.kind)?;
            let mut one = Exchanged::new(world, &stream, way.backend, shape, (specs, pattern))?;
            let mut random = Random::new(slow as u64);
            for _ in 0..60 {
                one.fill()?;
                // Before the pack, and between the wait and the reading of ghosts.
                let pause = if world.rank() == slow { random.below(4) } else { 0 };
                pause_for(&stream, pause % 2 * 120);
                one.halo.enqueue_gather(&mut one.fields)?;
                pause_for(&stream, pause / 2 * 120);
                one.check()?;
            }
            one.fields.assert_right(&(way, shape, pattern, slow))?;
        }
        Ok(())
    });
}

fn pause_for(stream: &Stream, microseconds: usize) {
    if microseconds > 0 {
        stream.enqueue_host("a pause", move || {
            std::thread::sleep(std::time::Duration::from_micros(microseconds as u64));
            Ok(())
        });
    }
}

#[test]
fn one_way_chains_with_a_slow_rank() {
    for (row, specs) in [(8, CELLS), (30, CELLS), (60, ALTERNATING)] {
        for slow in 0..3 {
            with_a_slow_rank(([6, row], [3, 1], false), &[specs], &offsets(&[[1, 0]]), slow);
        }
    }
    with_a_slow_rank(([6, 12], [3, 1], true), &[CELLS], &offsets(&[[-1, 0]]), 1);
}

#[test]
fn pairs_of_one_and_of_two_ways_in_one_exchange_with_a_slow_rank() {
    // Along y both ways, along x one way; and three offsets none of which has its opposite.
    let mixed = offsets(&[[0, 1], [1, 0], [-1, 0]]);
    let turning = offsets(&[[0, 1], [1, 0], [-1, -1]]);
    for (pattern, periodic) in [(&mixed, false), (&turning, true), (&turning, false)] {
        for (specs, slow) in [(CELLS, 0), (ALTERNATING, 3)] {
            with_a_slow_rank(([8, 60], [2, 2], periodic), &[specs], pattern, slow);
        }
    }
}

#[test]
fn symmetric_exchanges_with_a_slow_rank() {
    for (row, specs) in [(8, CELLS), (30, CELLS), (60, ALTERNATING), (60, CELLS)] {
        with_a_slow_rank(([6, row], [3, 1], true), &[specs], &Pattern::All, 1);
    }
}

#[test]
fn hundreds_of_epochs_with_random_delays() {
    let specs = [
        [FieldSpec::array(U8, Entity::Cell, 1), FieldSpec::array(I32, Entity::Node, 1)],
        [FieldSpec::alternating(U8, Entity::Cell, 1), FieldSpec::alternating(F64, Entity::Face(0), 2)],
    ];
    for (layout, specs) in [([2, 2], &specs[0]), ([4, 1], &specs[1])] {
        on_ranks(4, |world| {
            for way in each_way() {
                let stream = stream_of(world, way.kind)?;
                let shape = ([8, 12], layout, true);
                let mut one = Exchanged::new(world, &stream, way.backend, shape, (specs, &Pattern::All))?;
                let mut random = Random::new(world.rank() as u64);
                for _ in 0..250 {
                    if random.once_in(4) {
                        delay(&stream, &mut random);
                    }
                    one.step()?;
                }
                one.fields.assert_right(&way)?;
            }
            Ok(())
        });
    }
}

#[test]
fn epochs_wrap() {
    for pattern in [Pattern::All, offsets(&[[1, 0]]), offsets(&[[1, 0], [-1, 1]])] {
        for (row, specs) in [(8, CELLS), (60, CELLS), (60, ALTERNATING)] {
            on_ranks(3, |world| {
                for way in each_way() {
                    wrap(world, way, row, specs, &pattern)?;
                }
                Ok(())
            });
        }
    }
}

fn wrap(
    world: &World,
    way: Scenario,
    row: usize,
    spec: FieldSpec,
    pattern: &Pattern,
) -> Result<(), HaloError> {
    let stream = stream_of(world, way.kind)?;
    let grid: LocalGrid<2> = GlobalGrid::new([9, row], [true; 2])?.partition_as(world, [3, 1])?.local(1)?;
    let mut fields = FieldSet::new(&grid, &stream, &[spec], pattern, [1, 1])?;
    let mut sums = Array::<i64, 2>::zeros(&grid, Entity::Cell, &stream)?;
    let builder = |world, stream| {
        StreamHalo::builder(world, stream)
            .backend(way.backend)
            .pattern(pattern.clone())
            .last_epoch(u32::MAX - 5)
    };
    let mut halo = builder(world, &stream).build(1, &fields)?;
    let mut scatter = builder(world, &stream).scatter(Op::Sum).build(1, &sums)?;
    let mut random = Random::new(world.rank() as u64);
    for epoch in 1..=14 {
        delay(&stream, &mut random);
        fields.fill(epoch)?;
        halo.enqueue_gather(&mut fields)?;
        fields.check(epoch)?;
        fields.swap();
        sums.fill_with_ghosts(|_, _| i64::from(epoch))?;
        scatter.enqueue_scatter(&mut sums)?;
        let total: i64 = sums.owned()?.iter().sum();
        let totals: i64 = world.all_gather(&total)?.iter().sum();
        // Each ghost adds the epoch once more, so the sum is as many epochs as there are entries.
        let per_epoch = totals / i64::from(epoch);
        assert!(
            totals % i64::from(epoch) == 0 && per_epoch > (9 * row) as i64,
            "{totals} in {epoch}, {way:?}"
        );
        let shares = world.all_gather(&per_epoch)?;
        assert!(shares.iter().all(|share| *share == shares[0]));
    }
    fields.assert_right(&(way, row, pattern))
}
