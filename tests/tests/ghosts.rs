//! Who may use ghosts, and when: peers that write them ahead, several exchanges of one field, periods, and arrays that are
//! exchanged for others. Nothing is read that peers may write at the time, and whoever asks for it is told.

use std::cell::RefCell;
use std::rc::Rc;
use std::thread::sleep;
use std::time::Duration;
use streamhalo::comm::Error;
use streamhalo::grid::{Field, Fields, GridError, Subdomain};
use streamhalo::{
    Alternating, Array, Entity, GlobalGrid, HaloError, LocalGrid, Op, Pattern, Period, Rows, RowsMut, Stream,
    StreamHalo, StreamKind, Tile, World,
};
use streamhalo_tests::{Scenario, each_way, on_ranks, stream_of, ways_of};

/// Long enough for messages that go straight into ghosts.
const COLUMNS: usize = 60;
/// How long a kernel takes that peers are to overtake.
const SLOW: Duration = Duration::from_millis(30);

/// Two rows to each rank.
fn rows(world: &World) -> Result<LocalGrid<2>, HaloError> {
    let grid = GlobalGrid::new([2 * world.size(), COLUMNS], [true; 2])?;
    Ok(grid.partition_as(world, [world.size(), 1])?.local(1)?)
}

/// Everything that a rank has of a field.
fn whole(subdomain: &Subdomain<2>) -> Tile {
    let [height, width] = subdomain.extents(Entity::Cell);
    Tile { start: [0; 3], end: [1, height, width] }
}

/// Enqueues filling a tile, in a while if that is asked for.
fn fill(
    stream: &Stream,
    cells: &mut Array<f64, 2>,
    tile: Tile,
    value: f64,
    is_slow: bool,
) -> Result<(), HaloError> {
    let body = move |tile: Tile, (mut out,): (RowsMut<'_, f64>,)| {
        sleep(if is_slow { SLOW } else { Duration::ZERO });
        tile.rows().for_each(|(i, j)| out.row(i, j).fill(value));
    };
    Ok(stream.launch("fill", tile, (cells.writer()?,), body)?)
}

/// Enqueues copying all, ghosts included, in a while if that is asked for.
fn copy(
    stream: &Stream,
    from: &Array<f64, 2>,
    to: &mut Array<f64, 2>,
    is_slow: bool,
) -> Result<(), HaloError> {
    let body = move |tile: Tile, (from, mut to): (Rows<'_, f64>, RowsMut<'_, f64>)| {
        sleep(if is_slow { SLOW } else { Duration::ZERO });
        tile.rows().for_each(|(i, j)| to.row(i, j).copy_from_slice(from.row(i, j)));
    };
    let tile = whole(from.grid().subdomain());
    Ok(stream.launch("copy", tile, (from.reader()?, to.writer()?), body)?)
}

/// The ghosts above and below, each of which is one number. Blocks.
fn above_and_below(cells: &Array<f64, 2>) -> Result<[f64; 2], HaloError> {
    let all = cells.copy_with_ghosts()?;
    let number = |row: usize| {
        let first = all[[row, 1]];
        let owned = 1..all.shape()[1] - 1;
        assert!(owned.into_iter().all(|column| all[[row, column]] == first), "one number: {all:?}");
        first
    };
    Ok([number(0), number(all.shape()[0] - 1)])
}

/// The numbers of the ranks above and below.
fn neighbours(world: &World) -> [f64; 2] {
    let (rank, size) = (world.rank(), world.size());
    [(rank + size - 1) % size, (rank + 1) % size].map(|rank| rank as f64)
}

/// A rank that neighbours itself, two that have each other on both sides, and three.
fn on_each_number(rank_main: impl Fn(&World, Scenario) -> Result<(), HaloError> + Sync) {
    for ranks in 1..=3 {
        on_ranks(ranks, |world| each_way().try_for_each(|way| rank_main(world, way)));
    }
}

fn filled_ahead(call: &'static str) -> HaloError {
    HaloError::GhostsFilledAhead { call, index: 0 }
}

#[test]
fn an_exchange_is_made_behind_the_kernels_of_all_ranks() {
    for way in ways_of(StreamKind::Threaded) {
        for slow in 0..2 {
            on_ranks(2, |world| {
                let stream = stream_of(world, way.kind)?;
                let grid = rows(world)?;
                let owned = grid.owned(Entity::Cell).tile();
                let is_slow = world.rank() == slow;
                let mut field = Alternating::<f64, 2>::zeros(&grid, Entity::Cell, &stream)?;
                let mut seen = Array::<f64, 2>::zeros(&grid, Entity::Cell, &stream)?;
                // Ghosts that a kernel still fills when the peer has made the exchange.
                let everything = whole(grid.subdomain());
                fill(&stream, field.now_mut(), everything, -1.0, is_slow)?;
                fill(&stream, field.now_mut(), owned, world.rank() as f64, false)?;
                let make =
                    |field: &mut _| StreamHalo::new(world, &stream, way.backend, Pattern::All, 1, field);
                let mut halo = make(&mut field)?;
                halo.gather(&mut field)?;
                assert_eq!(above_and_below(field.now())?, neighbours(world), "{way:?}");
                // And ghosts that a kernel still reads when it has made another one.
                copy(&stream, field.now(), &mut seen, is_slow)?;
                fill(&stream, field.now_mut(), owned, 10.0 + world.rank() as f64, false)?;
                drop(halo);
                make(&mut field)?.gather(&mut field)?;
                assert_eq!(above_and_below(&seen)?, neighbours(world), "{way:?}");
                assert_eq!(above_and_below(field.now())?, neighbours(world).map(|rank| 10.0 + rank));
                Ok(())
            });
        }
    }
}

/// The second one does not write ahead, and waits for the first.
#[test]
fn two_exchanges_of_an_alternating_field() {
    on_each_number(|world, way| {
        let stream = stream_of(world, way.kind)?;
        let grid = rows(world)?;
        let owned = grid.owned(Entity::Cell).tile();
        let mut field = Alternating::<f64, 2>::zeros(&grid, Entity::Cell, &stream)?;
        let new = |pattern, field: &mut _| StreamHalo::new(world, &stream, way.backend, pattern, 1, field);
        let mut first = new(Pattern::All, &mut field)?;
        let mut second = new(Pattern::Faces, &mut field)?;
        let mut seen = Array::<f64, 2>::zeros(&grid, Entity::Cell, &stream)?;
        for step in 0..6 {
            let is_slow = way.kind == StreamKind::Threaded && world.rank() == step % world.size();
            let number = |half: usize, rank: f64| (10 * (2 * step + half)) as f64 + rank;
            for half in 0..2 {
                fill(&stream, field.now_mut(), owned, number(half, world.rank() as f64), false)?;
                if half == 0 {
                    let refused = second.enqueue_gather(&mut field);
                    assert_eq!(refused, Err(filled_ahead("enqueue_gather")), "{way:?}");
                    let refused = second.begin_gather(&mut field).map(drop);
                    assert_eq!(refused, Err(filled_ahead("begin_gather")), "{way:?}");
                    first.enqueue_gather(&mut field)?;
                } else {
                    second.enqueue_gather(&mut field)?;
                }
                // Ranks that do not sleep are ahead of those that do.
                copy(&stream, field.now(), &mut seen, is_slow)?;
                if step % 2 == 0 || half == 1 {
                    let expected = neighbours(world).map(|rank| number(half, rank));
                    assert_eq!(above_and_below(&seen)?, expected, "step {step}.{half}, {way:?}");
                }
            }
            field.swap();
        }
        drop(first);
        // This rank does not know yet whether all have let go of it.
        let refused = second.enqueue_gather(&mut field);
        assert_eq!(refused, Err(filled_ahead("enqueue_gather")), "{way:?}");
        drop(second);
        let mut second = new(Pattern::Faces, &mut field)?;
        for step in 6..8 {
            fill(&stream, field.now_mut(), owned, world.rank() as f64, false)?;
            second.gather(&mut field)?;
            assert_eq!(above_and_below(field.now())?, neighbours(world), "step {step}, {way:?}");
            field.swap();
        }
        Ok(())
    });
}

/// As arrays of their own, generations are as they are within the field, wherever they are moved to.
#[test]
fn generations_that_are_exchanged_for_themselves() {
    on_each_number(|world, way| {
        let stream = stream_of(world, way.kind)?;
        let grid = rows(world)?;
        let mut field = Alternating::<f64, 2>::zeros(&grid, Entity::Cell, &stream)?;
        let new =
            |array: &mut Array<f64, 2>| StreamHalo::new(world, &stream, way.backend, Pattern::All, 1, array);
        let mut before = new(field.now_mut())?;
        before.gather(field.now_mut())?;
        let mut halo = StreamHalo::new(world, &stream, way.backend, Pattern::All, 1, &mut field)?;
        let mut behind = new(field.now_mut())?;
        field.now_mut().fill(|_, _| world.rank() as f64)?;
        let mut elsewhere = Array::<f64, 2>::zeros(&grid, Entity::Cell, &stream)?;
        for one in [&mut before, &mut behind] {
            assert_eq!(one.gather(field.now_mut()), Err(filled_ahead("enqueue_gather")), "{way:?}");
            std::mem::swap(field.now_mut(), &mut elsewhere);
            assert_eq!(one.gather(&mut elsewhere), Err(filled_ahead("enqueue_gather")), "{way:?}");
            let ghosts = elsewhere.copy_with_ghosts().map(drop);
            assert_eq!(ghosts, Err(GridError::GhostsInFlight { call: "copy_with_ghosts" }), "{way:?}");
            std::mem::swap(field.now_mut(), &mut elsewhere);
        }
        halo.gather(&mut field)?;
        for one in [&mut before, &mut behind] {
            one.gather(field.now_mut())?;
            assert_eq!(above_and_below(field.now())?, neighbours(world), "{way:?}");
        }
        let everything = whole(grid.subdomain());
        let refused = fill(&stream, field.now_mut(), everything, 0.0, false);
        assert!(
            matches!(refused, Err(HaloError::Communication(Error::TileOutOfBounds { .. }))),
            "{refused:?}"
        );
        Ok(())
    });
}

/// Or of streams, or grids, for all that types say.
#[test]
fn generations_of_other_shapes_are_refused() {
    on_ranks(2, |world| {
        let stream = stream_of(world, StreamKind::Inline)?;
        let grid = rows(world)?;
        let wider = GlobalGrid::new([4, COLUMNS], [true; 2])?.partition_as(world, [2, 1])?.local(2)?;
        let others = [
            Array::zeros(&wider, Entity::Cell, &stream)?,
            Array::zeros(&grid, Entity::Node, &stream)?,
            Array::with_components(&grid, Entity::Cell, 2, &stream)?,
            Array::zeros(&grid, Entity::Cell, &stream_of(world, StreamKind::Inline)?)?,
        ];
        for mut other in others {
            let mut field = Alternating::<f64, 2>::zeros(&grid, Entity::Cell, &stream)?;
            field.swap();
            std::mem::swap(field.now_mut(), &mut other);
            field.swap();
            let refused = StreamHalo::new(world, &stream, "st-rsend", Pattern::All, 1, &mut field).map(drop);
            assert!(matches!(refused, Err(HaloError::MixedFields { index: 0, .. })), "{refused:?}");
        }
        Ok(())
    });
}

#[test]
fn periods_are_replayed_only_while_their_ghosts_may_be_read() {
    on_each_number(|world, way| {
        let stream = stream_of(world, way.kind)?;
        let grid = rows(world)?;
        let mut field = Alternating::<f64, 2>::zeros(&grid, Entity::Cell, &stream)?;
        let mut seen = Array::<f64, 2>::zeros(&grid, Entity::Cell, &stream)?;
        let mut halo = StreamHalo::new(world, &stream, way.backend, Pattern::All, 1, &mut field)?;
        let refused = |replayed, what: &str| match replayed {
            Err(Error::OutOfOrder { call: "replay", reason }) => {
                assert!(reason.starts_with(what), "{reason}, {way:?}");
            }
            other => panic!("{other:?}, {way:?}"),
        };
        let ghosts = "which ghosts of a field may be read is another than";
        let generation = "which generation of a field is current is another than";
        halo.gather(&mut field)?;
        let period: Period = stream.capture(|stream| copy(stream, field.now(), &mut seen, false))?;
        stream.replay(&period, 2)?;
        field.swap();
        refused(stream.replay(&period, 1), generation);
        halo.gather(&mut field)?;
        field.swap();
        // The generation that it reads, and peers may be writing its ghosts.
        refused(stream.replay(&period, 1), ghosts);
        let in_flight = halo.begin_gather(&mut field)?;
        refused(stream.replay(&period, 1), ghosts);
        in_flight.finish()?;
        stream.replay(&period, 1)?;
        // What comes to be current again has not been exchanged.
        field.swap();
        field.swap();
        refused(stream.replay(&period, 1), ghosts);
        stream.synchronize()?;
        Ok(())
    });
}

/// Replays let peers write ahead as well.
#[test]
fn a_period_keeps_what_it_lets_peers_do() {
    on_each_number(|world, way| {
        let stream = stream_of(world, way.kind)?;
        let grid = rows(world)?;
        let mut field = Alternating::<f64, 2>::zeros(&grid, Entity::Cell, &stream)?;
        let new = |field: &mut _| StreamHalo::new(world, &stream, way.backend, Pattern::All, 1, field);
        let mut first = new(&mut field)?;
        let second = new(&mut field)?;
        let captured: Result<Period, HaloError> = stream.capture(|_| {
            for _ in 0..2 {
                first.enqueue_gather(&mut field)?;
                field.swap();
            }
            Ok(())
        });
        drop(first);
        drop(second);
        let mut second = new(&mut field)?;
        let Ok(period) = captured else {
            assert_eq!(second.gather(&mut field), Ok(()), "nobody is left who could replay, {way:?}");
            return Ok(());
        };
        assert_eq!(second.gather(&mut field), Err(filled_ahead("enqueue_gather")), "{way:?}");
        stream.replay(&period, 3)?;
        stream.synchronize()?;
        drop(period);
        drop(second);
        let mut second = new(&mut field)?;
        field.now_mut().fill(|_, _| world.rank() as f64)?;
        second.gather(&mut field)?;
        assert_eq!(above_and_below(field.now())?, neighbours(world), "{way:?}");
        Ok(())
    });
}

#[test]
fn a_capture_leaves_fields_as_they_were() {
    on_each_number(|world, way| {
        let stream = stream_of(world, way.kind)?;
        let grid = rows(world)?;
        let mut field = Alternating::<f64, 2>::zeros(&grid, Entity::Cell, &stream)?;
        let mut halo = StreamHalo::new(world, &stream, way.backend, Pattern::All, 1, &mut field)?;
        let in_flight = Err(GridError::GhostsInFlight { call: "copy_with_ghosts" });
        for is_refused in [true, false] {
            let captured: Result<Period, HaloError> = stream.capture(|stream| {
                halo.enqueue_gather(&mut field)?;
                if is_refused {
                    // As one exchange is.
                    return Ok(());
                }
                field.swap();
                halo.enqueue_gather(&mut field)?;
                stream.check()?;
                Ok(())
            });
            assert!(
                matches!(captured, Err(HaloError::Communication(Error::NotCapturable { .. }))),
                "the field is in the other generation in the end: {captured:?}, {way:?}"
            );
            assert_eq!(field.now().copy_with_ghosts().map(drop), in_flight, "{way:?}");
        }
        field.now_mut().fill(|_, _| world.rank() as f64)?;
        halo.gather(&mut field)?;
        assert_eq!(above_and_below(field.now())?, neighbours(world), "{way:?}");
        Ok(())
    });
}

/// What is in flight is the array, wherever it is then.
#[test]
fn an_array_that_is_replaced_in_flight_can_be_used_again() {
    on_each_number(|world, way| {
        let stream = stream_of(world, way.kind)?;
        let grid = rows(world)?;
        let mut cells = Array::<f64, 2>::zeros(&grid, Entity::Cell, &stream)?;
        let mut other = Array::<f64, 2>::zeros(&grid, Entity::Cell, &stream)?;
        let mut halo = StreamHalo::new(world, &stream, way.backend, Pattern::All, 1, &mut cells)?;
        cells.fill(|_, _| world.rank() as f64)?;
        let mut in_flight = halo.begin_gather(&mut cells)?;
        std::mem::swap(&mut *in_flight, &mut other);
        let finished = in_flight.finish();
        assert!(matches!(finished, Err(HaloError::OtherFields { call: "finish", .. })), "{finished:?}");
        assert_eq!(above_and_below(&cells)?, [0.0; 2], "nobody has written it, {way:?}");
        std::mem::swap(&mut cells, &mut other);
        assert_eq!(above_and_below(&cells)?, neighbours(world), "{way:?}");
        halo.gather(&mut cells)?;
        Ok(())
    });
}

/// Where they are to be scattered kernels write them, and no peer does ahead.
#[test]
fn ghosts_of_alternating_fields_can_be_scattered() {
    on_each_number(|world, way| {
        let stream = stream_of(world, way.kind)?;
        let grid = rows(world)?;
        let mut field = Alternating::<f64, 2>::zeros(&grid, Entity::Cell, &stream)?;
        let pattern = Pattern::Offsets(vec![vec![-1, 0], vec![1, 0]]);
        let builder = StreamHalo::builder(world, &stream).backend(way.backend).pattern(pattern);
        let mut halo = builder.scatter(Op::Sum).build(1, &mut field)?;
        for step in 1..5 {
            fill(&stream, field.now_mut(), whole(grid.subdomain()), f64::from(step), false)?;
            halo.scatter(&mut field)?;
            let twice = 2.0 * f64::from(step);
            let are_all = field.now().with_owned(|owned| owned.iter().all(|cell| *cell == twice))?;
            assert!(are_all, "each row is beside one other rank's, {way:?}");
            halo.gather(&mut field)?;
            assert_eq!(above_and_below(field.now())?, [2.0 * f64::from(step); 2], "{way:?}");
            field.swap();
        }
        Ok(())
    });
}

/// What a rank has dropped others may still have: all do what all of them can.
#[test]
fn an_exchange_that_one_rank_has_let_go_of_is_there_for_all() {
    on_ranks(2, |world| {
        for way in each_way() {
            let stream = stream_of(world, way.kind)?;
            let grid = rows(world)?;
            let mut field = Alternating::<f64, 2>::zeros(&grid, Entity::Cell, &stream)?;
            let builder = || StreamHalo::builder(world, &stream).backend(way.backend);
            let new = |swaps: usize, field: &mut dyn Fields<2>| {
                builder().swaps_per_exchange(swaps).build(1, &mut Behind(field))
            };
            let first = Some(new(1, &mut field)?);
            let first = first.filter(|_| world.rank() == 0);
            let mut second = new(2, &mut field)?;
            assert_eq!(second.gather(&mut field), Err(filled_ahead("enqueue_gather")), "{way:?}");
            drop((first, second));
            // Now nobody has it, and all know.
            let mut second = new(2, &mut field)?;
            let everything = whole(grid.subdomain());
            fill(&stream, field.now_mut(), everything, -1.0, false)?;
            field.now_mut().fill(|_, _| world.rank() as f64)?;
            second.gather(&mut field)?;
            assert_eq!(above_and_below(field.now())?, neighbours(world), "{way:?}");
            let mut third = new(1, &mut field)?;
            assert_eq!(second.gather(&mut field), Err(filled_ahead("enqueue_gather")), "{way:?}");
            third.gather(&mut field)?;
            second.gather(&mut field)?;
        }
        Ok(())
    });
}

/// Bounds depend on what a capture notes and puts back.
#[test]
fn kernels_take_arguments_of_their_own_capture() {
    on_each_number(|world, way| {
        let stream = stream_of(world, way.kind)?;
        let grid = rows(world)?;
        let tile = whole(grid.subdomain());
        let mut field = Alternating::<f64, 2>::zeros(&grid, Entity::Cell, &stream)?;
        let mut halo = StreamHalo::new(world, &stream, way.backend, Pattern::All, 1, &mut field)?;
        let look = |tile: Tile, (cells,): (Rows<'_, f64>,)| {
            tile.rows().for_each(|(i, j)| assert!(cells.row(i, j).iter().all(|cell| *cell == 0.0)));
        };
        let mut kept = None;
        {
            let (halo, field, kept) = (&mut halo, &mut field, &mut kept);
            let captured: Result<Period, HaloError> = stream.capture(move |stream| {
                halo.enqueue_gather(field)?;
                let reader = field.now().reader()?;
                *kept = Some(reader.clone());
                Ok(stream.launch("look", tile, (reader,), look)?)
            });
            assert!(captured.is_err(), "one exchange is an odd number");
        }
        let Some(kept) = kept else { return Ok(()) };
        match stream.launch("look", tile, (kept,), look) {
            Err(Error::OutOfOrder { call: "launch", reason }) => {
                assert!(
                    reason.contains("`look`") && reason.contains("in a capture that has ended"),
                    "{reason}"
                );
            }
            other => panic!("{other:?}"),
        }
        halo.gather(&mut field)?;
        let reader = field.now().reader()?;
        let captured: Result<Period, Error> =
            stream.capture(|stream| stream.launch("look", tile, (reader.clone(),), look));
        match captured {
            Err(Error::NotCapturable { what, reason }) => {
                assert!(what.contains("`look`") && reason.contains("made before the capture"), "{reason}");
            }
            other => panic!("{other:?}"),
        }
        stream.launch("look", tile, (reader,), look)?;
        Ok(stream.synchronize()?)
    });
}

#[test]
fn periods_are_not_replayed_beside_an_exchange_that_has_come_to_write_ahead() {
    on_each_number(|world, way| {
        let stream = stream_of(world, way.kind)?;
        let grid = rows(world)?;
        let mut field = Alternating::<f64, 2>::zeros(&grid, Entity::Cell, &stream)?;
        let mut seen = Array::<f64, 2>::zeros(&grid, Entity::Cell, &stream)?;
        let builder = || StreamHalo::builder(world, &stream).backend(way.backend);
        let mut other = builder().swaps_per_exchange(0).build(1, &mut field)?;
        let captured: Result<Period, HaloError> = stream.capture(|stream| {
            other.enqueue_gather(&mut field)?;
            copy(stream, field.now(), &mut seen, false)?;
            other.enqueue_gather(&mut field)
        });
        let Ok(period) = captured else { return Ok(()) };
        stream.replay(&period, 1)?;
        let mut ahead = builder().build(1, &mut field)?;
        let refused = |what: &str| match stream.replay(&period, 1) {
            Err(Error::OutOfOrder { call: "replay", reason }) => {
                assert!(reason.starts_with(what), "{reason}")
            }
            replayed => panic!("{replayed:?}, {way:?}"),
        };
        refused("which ");
        // The same ghosts may be read as then, but not when the next exchange has begun.
        ahead.gather(&mut field)?;
        refused("which exchange fills ghosts of a field ahead is another than");
        Ok(())
    });
}

/// Whatever becomes of its fields meanwhile.
#[test]
fn what_is_in_flight_is_so_until_it_is_finished() {
    on_each_number(|world, way| {
        let stream = stream_of(world, way.kind)?;
        let grid = rows(world)?;
        let mut field = Alternating::<f64, 2>::zeros(&grid, Entity::Cell, &stream)?;
        field.now_mut().fill(|_, _| world.rank() as f64)?;
        let new = |swaps: usize, field: &mut _| {
            let builder = StreamHalo::builder(world, &stream).backend(way.backend);
            builder.swaps_per_exchange(swaps).build(1, field)
        };
        let mut before = new(0, &mut field)?;
        let mut other = new(0, &mut field)?;
        let mut in_flight = before.begin_gather(&mut field)?;
        in_flight.swap();
        in_flight.swap();
        let refused = |call| Err(HaloError::FieldInFlight { call, index: 0 });
        assert_eq!(other.gather(&mut *in_flight), refused("enqueue_gather"), "{way:?}");
        assert_eq!(new(1, &mut *in_flight).map(drop), refused("StreamHalo::new"), "{way:?}");
        assert!(in_flight.now().copy_with_ghosts().is_err(), "{way:?}");
        in_flight.finish()?;
        assert_eq!(above_and_below(field.now())?, neighbours(world), "{way:?}");
        other.gather(&mut field)?;
        // Taken back with the capture, it is finished before what comes next.
        let in_flight = before.begin_gather(&mut field)?;
        let captured = stream.capture(|_| in_flight.finish());
        assert!(
            matches!(captured, Err(HaloError::Communication(Error::NotCapturable { .. }))),
            "{captured:?}"
        );
        assert_eq!(other.gather(&mut field), refused("enqueue_gather"), "{way:?}");
        before.gather(&mut field)?;
        other.gather(&mut field)?;
        assert_eq!(above_and_below(field.now())?, neighbours(world), "{way:?}");
        Ok(())
    });
}

/// Callers see the steps of a gather, and may look at fields that they share.
#[test]
fn ghosts_are_in_flight_within_a_gather() {
    on_each_number(|world, way| {
        let stream = stream_of(world, way.kind)?;
        let cells = Array::<f64, 2>::zeros(&rows(world)?, Entity::Cell, &stream)?;
        let mut shared = Shared(Rc::new(RefCell::new(cells)));
        let cells = shared.0.clone();
        let mut halo = StreamHalo::new(world, &stream, way.backend, Pattern::All, 1, &mut shared)?;
        let mut steps = 0;
        halo.enqueue_gather_in_steps(&mut shared, |step| {
            steps += 1;
            let copied = cells.borrow().copy_with_ghosts().map(drop);
            assert_eq!(
                copied,
                Err(GridError::GhostsInFlight { call: "copy_with_ghosts" }),
                "{step:?}, {way:?}"
            );
        })?;
        assert_eq!(steps, 4);
        cells.borrow().copy_with_ghosts()?;
        Ok(())
    });
}

/// A field that the caller has elsewhere too.
struct Shared(Rc<RefCell<Array<f64, 2>>>);

impl Fields<2> for Shared {
    fn each(&mut self, visit: &mut dyn FnMut(&mut dyn Field<2>)) {
        visit(&mut *self.0.borrow_mut());
    }
}

/// A capture puts back what it has noted of its own stream, and of no other.
#[test]
fn generations_of_two_streams_are_kept_apart() {
    on_each_number(|world, way| {
        let (own, other) = (stream_of(world, way.kind)?, stream_of(world, way.kind)?);
        let grid = rows(world)?;
        let mut field = Alternating::<f64, 2>::zeros(&grid, Entity::Cell, &own)?;
        let mut ahead = StreamHalo::new(world, &own, way.backend, Pattern::All, 1, &mut field)?;
        ahead.gather(&mut field)?;
        field.swap();
        let mut array = Array::<f64, 2>::zeros(&grid, Entity::Cell, &other)?;
        std::mem::swap(field.now_mut(), &mut array);
        let mut halo = StreamHalo::new(world, &other, way.backend, Pattern::All, 1, field.now_mut())?;
        let captured: Result<Period, HaloError> = own.capture(|_| {
            field.swap();
            field.swap();
            std::mem::forget(halo.begin_gather(field.now_mut())?);
            Ok(())
        });
        assert!(captured.is_ok(), "nothing of its own stream has changed: {captured:?}");
        let copied = field.now().copy_with_ghosts().map(drop);
        assert_eq!(copied, Err(GridError::GhostsInFlight { call: "copy_with_ghosts" }), "{way:?}");
        halo.gather(field.now_mut())?;
        Ok(())
    });
}

/// Fields behind a reference of any kind.
struct Behind<'a>(&'a mut dyn Fields<2>);

impl Fields<2> for Behind<'_> {
    fn each(&mut self, visit: &mut dyn FnMut(&mut dyn Field<2>)) {
        self.0.each(visit);
    }
}
