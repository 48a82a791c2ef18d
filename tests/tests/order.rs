//! When things happen: exchanges in flight together, begun in different orders, on several streams,
//! with slow ranks and ranks that run ahead, for hundreds of epochs and past the wrap of their number.

use std::time::Duration;
use streamhalo::ElementType::{F64, I32, U8};
use streamhalo::comm::Error;
use streamhalo::{
    Array, Device, Entity, GlobalGrid, HaloError, Pattern, Rows, StreamHalo, StreamKind, StreamOptions, Tile,
    World,
};
use streamhalo_tests::cases::order::{
    Exchanged, Shape, blocked_elsewhere, opposite_orders, random_delays, slow_rank, two_streams, wrap,
};
use streamhalo_tests::cases::{ALTERNATING, CELLS, Done, offsets};
use streamhalo_tests::{FieldSpec, KINDS, Scenario, each_way, on_ranks, outcomes, stream_of};

/// Sizes of rows of cells whose messages are inline, packed, direct, and beyond the eager limit.
const ROWS: [usize; 4] = [8, 30, 200, 1_100];

/// Runs a case in every way, on threads.
fn in_every_way(ranks: usize, case: impl Fn(&World, Scenario) -> Result<Done, HaloError> + Sync) {
    on_ranks(ranks, |world| each_way().try_for_each(|way| case(world, way).map(|_| ())));
}

#[test]
fn two_exchanges_begun_in_different_orders_do_not_deadlock() {
    for row in ROWS {
        for (specs, ranks) in [([CELLS], 2), ([ALTERNATING], 2), ([CELLS], 3)] {
            in_every_way(ranks, |world, way| opposite_orders(world, way, row, &specs));
        }
    }
}

#[test]
fn a_rank_that_blocks_elsewhere_still_sends_what_it_has_begun() {
    for row in ROWS {
        for ranks in [2, 3] {
            in_every_way(ranks, |world, way| blocked_elsewhere(world, way, row));
        }
    }
}

/// What the dropping of a stream waits for may be what this rank has begun on another.
#[test]
fn a_stream_that_is_dropped_is_waited_for_with_progress_on_others() {
    for way in each_way().filter(|way| way.kind == StreamKind::Inline && way.backend != "standard") {
        on_ranks(2, |world| {
            let inline = stream_of(world, StreamKind::Inline)?;
            let threaded = stream_of(world, StreamKind::Threaded)?;
            let shape = ([8, 200], [2, 1], true);
            let new = |stream| Exchanged::new(world, stream, way.backend, shape, (&[CELLS], &Pattern::All));
            let (mut first, mut second) = (new(&inline)?, new(&threaded)?);
            if world.rank() == 1 {
                // So that what is sent to it has to wait.
                std::thread::sleep(Duration::from_millis(30));
                first.step()?;
                second.step()?;
                return Ok(());
            }
            first.fill()?;
            let in_flight = first.halo.begin_gather(&mut first.fields)?;
            second.step()?;
            drop((second, threaded));
            in_flight.finish()?;
            Ok(())
        });
    }
}

#[test]
fn exchanges_on_two_streams_of_a_rank_interleave() {
    for kinds in [[KINDS[0], KINDS[0]], [KINDS[0], KINDS[1]], [KINDS[1], KINDS[1]]] {
        on_ranks(3, |world| {
            let mut ways = each_way().filter(|way| way.kind == StreamKind::Inline);
            ways.try_for_each(|way| two_streams(world, way, kinds).map(|_| ()))
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
fn kernels_get_no_ghosts_of_others_while_an_exchange_is_in_flight() {
    for way in each_way() {
        let results = outcomes(2, |world| {
            let stream = stream_of(world, way.kind)?;
            let grid = GlobalGrid::new([6, 7], [true; 2])?.partition_as(world, [2, 1])?.local(1)?;
            let mut field = Array::<f64, 2>::zeros(&grid, Entity::Cell, &stream)?;
            field.fill(|[_, x], _| x as f64)?;
            let mut halo = StreamHalo::new(world, &stream, way.backend, Pattern::All, 1, &mut field)?;
            let owned = grid.owned(Entity::Cell).tile();
            // Of three rows the other rank gets two.
            let inner = Tile { start: [0, 2, 1], end: [1, 3, 8] };
            let mut in_flight = halo.begin_gather(&mut field)?;
            let refused = in_flight.writer()?;
            let whole = Tile { start: [0; 3], end: [1, 5, 9] };
            let refused = stream.launch("write ghosts", whole, (refused,), |_, _| ());
            let expected = Error::TileOutOfBounds {
                kernel: "write ghosts".into(),
                argument: 0,
                array: Box::new(whole),
                tile: Box::new(whole),
                bounds: Box::new(inner),
            };
            assert_eq!(refused, Err(expected));
            // The rank has the axis x to itself, and fills the ghosts along it as the exchange begins.
            stream.launch("read own ghosts", owned, (in_flight.reader()?,), |tile, (rows,)| {
                tile.rows().for_each(|(i, j)| {
                    assert_eq!(rows.row(i, j), [6.0, 0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 0.0]);
                });
            })?;
            in_flight.finish()?;
            stream.launch("read all", owned, (field.reader()?,), |_, (rows,)| {
                assert_eq!(rows.span(0, 0, 0..9).len(), 9);
            })?;
            stream.synchronize()?;
            world.barrier()?;
            let in_flight = halo.begin_gather(&mut field)?;
            let read = |_: Tile, (rows,): (Rows<'_, f64>,)| assert!(!rows.span(0, 0, 1..3).is_empty());
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
fn with_a_slow_rank(shape: Shape, specs: &[FieldSpec], pattern: &Pattern, slow: usize) {
    in_every_way(shape.1.iter().product(), |world, way| {
        slow_rank(world, way, shape, (specs, pattern), (slow, 60))
    });
}

#[test]
fn one_way_chains_with_a_slow_rank() {
    for (row, specs) in [(8, CELLS), (30, CELLS), (60, ALTERNATING)] {
        for slow in 0..3 {
            with_a_slow_rank(([6, row], [3, 1], false), &[specs], &offsets(&[&[1, 0]]), slow);
        }
    }
    with_a_slow_rank(([6, 12], [3, 1], true), &[CELLS], &offsets(&[&[-1, 0]]), 1);
}

#[test]
fn pairs_of_one_and_of_two_ways_in_one_exchange_with_a_slow_rank() {
    // Along y both ways, along x one way; and three offsets none of which has its opposite.
    let mixed = offsets(&[&[0, 1], &[1, 0], &[-1, 0]]);
    let turning = offsets(&[&[0, 1], &[1, 0], &[-1, -1]]);
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
        in_every_way(4, |world, way| random_delays(world, way, ([8, 12], layout, true), specs, 250));
    }
}

#[test]
fn epochs_wrap() {
    for pattern in [Pattern::All, offsets(&[&[1, 0]]), offsets(&[&[1, 0], &[-1, 1]])] {
        for (row, specs) in [(8, CELLS), (60, CELLS), (60, ALTERNATING)] {
            in_every_way(3, |world, way| wrap(world, way, row, specs, &pattern));
        }
    }
}
