//! What is in flight stays so whatever becomes of its fields, until it is finished.

use super::*;
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use streamhalo::GatherStep;

/// What is in flight is the array, wherever it is then.
#[test]
fn an_array_that_is_replaced_in_flight_can_be_used_again() {
    on_each_number(|rank| {
        let mut cells = rank.array()?;
        let mut other = rank.array()?;
        let mut halo = rank.halo(&mut cells)?;
        cells.fill(|_, _| rank.number())?;
        let mut in_flight = halo.begin_gather(&mut cells)?;
        std::mem::swap(&mut *in_flight, &mut other);
        let finished = in_flight.finish();
        assert!(matches!(finished, Err(HaloError::OtherFields { call: "finish", .. })), "{finished:?}");
        assert_eq!(above_and_below(&cells)?, [0.0; 2], "nobody has written it, {rank:?}");
        std::mem::swap(&mut cells, &mut other);
        rank.assert_filled(&cells)?;
        halo.gather(&mut cells)?;
        Ok(())
    });
}

/// Whatever becomes of its fields meanwhile.
#[test]
fn what_is_in_flight_is_so_until_it_is_finished() {
    on_each_number(|rank| {
        let mut field = rank.field()?;
        field.now_mut().fill(|_, _| rank.number())?;
        let new = |swaps, field: &mut _| rank.builder().swaps_per_exchange(swaps).build(1, field);
        let mut before = new(0, &mut field)?;
        let mut other = new(0, &mut field)?;
        let mut in_flight = before.begin_gather(&mut field)?;
        in_flight.swap();
        in_flight.swap();
        let refused = |call| Err(HaloError::FieldInFlight { call, index: 0 });
        assert_eq!(other.gather(&mut *in_flight), refused("gather"), "{rank:?}");
        assert_eq!(new(1, &mut *in_flight).map(drop), refused("StreamHalo::new"), "{rank:?}");
        assert!(in_flight.now().copy_with_ghosts().is_err(), "{rank:?}");
        in_flight.finish()?;
        rank.assert_filled(field.now())?;
        other.gather(&mut field)?;
        // Taken back with the capture, it is finished before what comes next.
        let in_flight = before.begin_gather(&mut field)?;
        let captured = rank.stream.capture(|_| in_flight.finish());
        assert!(
            matches!(captured, Err(HaloError::Communication(Error::NotCapturable { .. }))),
            "{captured:?}"
        );
        assert_eq!(other.gather(&mut field), refused("gather"), "{rank:?}");
        before.gather(&mut field)?;
        other.gather(&mut field)?;
        rank.assert_filled(field.now())?;
        Ok(())
    });
}

/// Also in a field that peers fill ahead, and that was swapped meanwhile.
#[test]
fn what_is_forgotten_in_flight_is_finished_before_the_next_gather() {
    on_each_number(|rank| {
        let mut field = rank.field()?;
        let mut halo = rank.halo(&mut field)?;
        field.now_mut().fill(|_, _| -1.0)?;
        let mut in_flight = halo.begin_gather(&mut field)?;
        in_flight.swap();
        std::mem::forget(in_flight);
        field.now_mut().fill(|_, _| rank.number())?;
        halo.gather(&mut field)?;
        rank.assert_filled(field.now())
    });
}

/// Peers that have come on with it write the ghosts of the generation that it leaves, whatever is in flight there.
#[test]
fn the_exchange_that_fills_ahead_comes_behind_what_is_in_flight() {
    on_each_number(|rank| {
        let mut field = rank.field()?;
        let mut ahead = rank.halo(&mut field)?;
        let mut other = rank.builder().swaps_per_exchange(0).build(1, &mut field)?;
        field.now_mut().fill(|_, _| rank.number())?;
        let refused = Err(HaloError::FieldInFlight { call: "enqueue_gather", index: 0 });
        ahead.enqueue_gather(&mut field)?;
        let mut in_flight = other.begin_gather(&mut field)?;
        in_flight.swap();
        assert_eq!(ahead.enqueue_gather(&mut *in_flight), refused, "{rank:?}");
        in_flight.swap();
        in_flight.finish()?;
        let copied = field.now().copy_with_ghosts().map(drop);
        assert_eq!(copied, Err(ghosts_in_flight()), "swapped since it began: {rank:?}");
        for _ in 0..2 {
            field.swap();
            field.now_mut().fill(|_, _| rank.number())?;
            ahead.gather(&mut field)?;
            rank.assert_filled(field.now())?;
        }
        std::mem::forget(other.begin_gather(&mut field)?);
        field.swap();
        assert_eq!(ahead.enqueue_gather(&mut field), refused, "{rank:?}");
        drop(other);
        ahead.gather(&mut field)?;
        rank.assert_filled(field.now())
    });
}

/// Callers see the steps of a gather, and may look at fields that they share.
#[test]
fn ghosts_are_in_flight_within_a_gather() {
    on_each_number(|rank| {
        let mut shared = Shared(Rc::new(RefCell::new(rank.array()?)));
        let cells = shared.0.clone();
        let mut halo = rank.halo(&mut shared)?;
        let mut steps = 0;
        halo.enqueue_gather_in_steps(&mut shared, |step| {
            steps += 1;
            let copied = cells.borrow().copy_with_ghosts().map(drop);
            assert_eq!(copied, Err(ghosts_in_flight()), "{step:?}, {rank:?}");
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
    on_each_number(|rank| {
        let mut field = rank.field()?;
        let mut ahead = rank.halo(&mut field)?;
        ahead.gather(&mut field)?;
        field.swap();
        // Of the same place, with a stream of its own.
        let other = Rank::new(rank.world, rank.way)?;
        *field.now_mut() = other.array()?;
        let mut halo = other.halo(field.now_mut())?;
        let captured: Result<Period, HaloError> = rank.stream.capture(|_| {
            field.swap();
            field.swap();
            std::mem::forget(halo.begin_gather(field.now_mut())?);
            Ok(())
        });
        assert!(captured.is_ok(), "nothing of its own stream has changed: {captured:?}");
        assert_eq!(field.now().copy_with_ghosts().map(drop), Err(ghosts_in_flight()), "{rank:?}");
        halo.gather(field.now_mut())?;
        Ok(())
    });
}

/// A send whose receiver is late reads them when that is ready, and not in turn with the host or with kernels.
#[test]
fn owned_entries_are_not_lent_for_writing_while_they_may_be_sent() {
    on_each_number(|rank| {
        let rank = &Rank::with_rows(rank.world, rank.way, 4)?;
        let mut cells = rank.array()?;
        let mut halo = rank.halo(&mut cells)?;
        cells.fill(|_, _| rank.number())?;
        let refused = |call| Err(GridError::OwnedInFlight { call });
        let mut in_flight = halo.begin_gather(&mut cells)?;
        assert_eq!(in_flight.owned_mut().map(|_| ()), refused("owned_mut"), "{rank:?}");
        assert_eq!(in_flight.with_owned_mut(|_| ()), refused("with_owned_mut"), "{rank:?}");
        assert_eq!(in_flight.fill(|_, _| -1.0), refused("fill"), "{rank:?}");
        assert!(in_flight.owned()?.iter().all(|cell| *cell == rank.number()), "{rank:?}");
        let sent_rows = usize::from(rank.world.size() > 1);
        let mut inner = rank.owned();
        (inner.start[1], inner.end[1]) = (inner.start[1] + sent_rows, inner.end[1] - sent_rows);
        for side in [0, 1].into_iter().take(2 * sent_rows) {
            let mut tile = inner;
            (tile.start[1], tile.end[1]) = (tile.start[1] - side, tile.end[1] + 1 - side);
            let expected = Error::TileOutOfBounds {
                kernel: "fill".into(),
                argument: 0,
                array: Box::new(rank.whole()),
                tile: Box::new(tile),
                bounds: Box::new(inner),
            };
            let filled = rank.fill(&mut in_flight, tile, -1.0, false);
            assert_eq!(filled, Err(HaloError::Communication(expected)), "{rank:?}");
        }
        rank.fill(&mut in_flight, inner, -1.0, false)?;
        std::mem::forget(in_flight);
        assert!(rank.fill(&mut cells, rank.whole(), -1.0, false).is_err(), "{rank:?}");
        rank.fill(&mut cells, inner, -1.0, false)?;
        assert_eq!(cells.fill(|_, _| -1.0), refused("fill"), "{rank:?}");
        drop(halo);
        cells.fill(|_, _| -1.0)?;
        rank.assert_filled(&cells)
    });
}

/// Its peers need the rest of the exchange.
#[test]
fn a_callback_that_panics_does_not_keep_a_gather_from_its_end() {
    on_each_number(|rank| {
        let mut cells = rank.array()?;
        let mut halo = rank.halo(&mut cells)?;
        for panics_at in [GatherStep::PostReceives, GatherStep::PostSends, GatherStep::Unpack] {
            cells.fill(|_, _| rank.number())?;
            let gather = || halo.enqueue_gather_in_steps(&mut cells, |step| assert_ne!(step, panics_at));
            let panicked = catch_unwind(AssertUnwindSafe(gather));
            assert!(panicked.is_err(), "it goes on: {rank:?}");
            rank.stream.synchronize()?;
            rank.assert_filled(&cells)?;
        }
        halo.gather(&mut cells)
    });
}

/// And not with what follows from its failure.
#[test]
fn an_exchange_that_has_failed_is_refused_with_its_error() {
    for way in each_way() {
        on_ranks(1, |world| {
            let rank = Rank::new(world, way)?;
            let mut cells = rank.array()?;
            let mut halo = rank.builder().scatter(Op::Sum).build(1, &mut cells)?;
            rank.stream.enqueue_host("reading the tide table", || Err("it is wet".into()));
            let expected = Error::OperationFailed {
                operation: "reading the tide table".into(),
                message: "it is wet".into(),
            };
            for _ in 0..3 {
                let gathered = halo.gather(&mut cells);
                assert_eq!(gathered, Err(HaloError::Communication(expected.clone())), "{rank:?}");
                let scattered = halo.scatter(&mut cells);
                assert_eq!(scattered, Err(HaloError::Communication(expected.clone())), "{rank:?}");
                let copied = cells.copy_with_ghosts().map(drop);
                assert_eq!(copied, Err(GridError::Communication(expected.clone())), "{rank:?}");
            }
            Ok(())
        });
    }
}

/// Also the second half of a gather, whether its caller saw it fail or not, and whatever comes next.
#[test]
fn a_gather_in_halves_that_has_failed_is_refused_with_its_error() {
    for way in each_way() {
        for is_dropped in [false, true] {
            on_ranks(2, |world| {
                let rank = Rank::new(world, way)?;
                let mut cells = rank.array()?;
                let mut halo = rank.builder().scatter(Op::Sum).build(1, &mut cells)?;
                if world.rank() == 1 {
                    // Without its part of the gather.
                    return Ok(());
                }
                let in_flight = halo.begin_gather(&mut cells)?;
                let finished = if is_dropped {
                    drop(in_flight);
                    Ok(())
                } else {
                    in_flight.finish()
                };
                let failed = rank.stream.synchronize();
                assert!(matches!(failed, Err(Error::PeerFailed { rank: 1, .. })), "{failed:?}, {rank:?}");
                let expected = failed.map_err(HaloError::Communication);
                assert!(finished.is_ok() || finished == expected, "{finished:?}, {rank:?}");
                for _ in 0..2 {
                    let begun = halo.begin_gather(&mut cells).map(drop);
                    assert!(begun.is_ok() || begun == expected, "{begun:?}, {rank:?}");
                    assert_eq!(halo.gather(&mut cells), expected, "{rank:?}");
                    assert_eq!(halo.scatter(&mut cells), expected, "{rank:?}");
                }
                Ok(())
            });
        }
    }
}
