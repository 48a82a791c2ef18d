//! What is in flight stays so whatever becomes of its fields, until it is finished.

use super::*;
use std::cell::RefCell;
use std::rc::Rc;

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
        assert_eq!(other.gather(&mut *in_flight), refused("enqueue_gather"), "{rank:?}");
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
        assert_eq!(other.gather(&mut field), refused("enqueue_gather"), "{rank:?}");
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
