//! Periods depend on the ghosts and generations that they were captured with.

use super::*;

const GHOSTS: &str = "which ghosts of a field may be read";
const GENERATION: &str = "which generation of a field is current";
const FILLED_AHEAD: &str = "which exchange fills ghosts of a field ahead";

/// Fails unless a replay is refused because one of these is another than at the capture.
fn refused(rank: &Rank<'_>, period: &Period, changed: &[&str]) {
    match rank.stream.replay(period, 1) {
        Err(Error::OutOfOrder { call: "replay", reason }) => {
            let is_told = |what: &&str| reason.starts_with(&format!("{what} is another than at the capture"));
            assert!(changed.iter().any(is_told), "{reason}, {rank:?}");
        }
        replayed => panic!("{replayed:?}, {rank:?}"),
    }
}

#[test]
fn periods_are_replayed_only_while_their_ghosts_may_be_read() {
    on_each_number(|rank| {
        let mut field = rank.field()?;
        let mut seen = rank.array()?;
        let mut halo = rank.halo(&mut field)?;
        halo.gather(&mut field)?;
        let period = rank.stream.capture(|_| rank.copy(field.now(), &mut seen, false))?;
        rank.stream.replay(&period, 2)?;
        field.swap();
        refused(rank, &period, &[GENERATION]);
        halo.gather(&mut field)?;
        field.swap();
        // The generation that it reads, and peers may be writing its ghosts.
        refused(rank, &period, &[GHOSTS]);
        let in_flight = halo.begin_gather(&mut field)?;
        refused(rank, &period, &[GHOSTS]);
        in_flight.finish()?;
        rank.stream.replay(&period, 1)?;
        // What comes to be current again has not been exchanged.
        field.swap();
        field.swap();
        refused(rank, &period, &[GHOSTS]);
        rank.stream.synchronize()?;
        Ok(())
    });
}

/// Replays let peers write ahead as well.
#[test]
fn a_period_keeps_what_it_lets_peers_do() {
    on_each_number(|rank| {
        let mut field = rank.field()?;
        let mut first = rank.halo(&mut field)?;
        let second = rank.halo(&mut field)?;
        let captured: Result<Period, HaloError> = rank.stream.capture(|_| {
            for _ in 0..2 {
                first.enqueue_gather(&mut field)?;
                field.swap();
            }
            Ok(())
        });
        drop((first, second));
        let mut second = rank.halo(&mut field)?;
        let Ok(period) = captured else {
            assert_eq!(second.gather(&mut field), Ok(()), "nobody is left who could replay, {rank:?}");
            return Ok(());
        };
        assert_eq!(second.gather(&mut field), Err(filled_ahead("gather")), "{rank:?}");
        rank.stream.replay(&period, 3)?;
        rank.stream.synchronize()?;
        drop((period, second));
        let mut second = rank.halo(&mut field)?;
        field.now_mut().fill(|_, _| rank.number())?;
        second.gather(&mut field)?;
        rank.assert_filled(field.now())?;
        Ok(())
    });
}

#[test]
fn a_capture_leaves_fields_as_they_were() {
    on_each_number(|rank| {
        let mut field = rank.field()?;
        let mut halo = rank.halo(&mut field)?;
        let in_flight = Err(ghosts_in_flight());
        for is_refused in [true, false] {
            let captured: Result<Period, HaloError> = rank.stream.capture(|stream| {
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
                "the field is in the other generation in the end: {captured:?}, {rank:?}"
            );
            assert_eq!(field.now().copy_with_ghosts().map(drop), in_flight, "{rank:?}");
        }
        field.now_mut().fill(|_, _| rank.number())?;
        halo.gather(&mut field)?;
        rank.assert_filled(field.now())?;
        Ok(())
    });
}

/// Bounds depend on what a capture notes and puts back.
#[test]
fn kernels_take_arguments_of_their_own_capture() {
    on_each_number(|rank| {
        let tile = rank.whole();
        let mut field = rank.field()?;
        let mut halo = rank.halo(&mut field)?;
        let look = |tile: Tile, (cells,): (Rows<'_, f64>,)| {
            tile.rows().for_each(|(i, j)| assert!(cells.row(i, j).iter().all(|cell| *cell == 0.0)));
        };
        let mut kept = None;
        {
            let (halo, field, kept) = (&mut halo, &mut field, &mut kept);
            let captured: Result<Period, HaloError> = rank.stream.capture(move |stream| {
                halo.enqueue_gather(field)?;
                let reader = field.now().reader()?;
                *kept = Some(reader.clone());
                Ok(stream.launch("look", tile, (reader,), look)?)
            });
            assert!(captured.is_err(), "one exchange is an odd number");
        }
        let Some(kept) = kept else { return Ok(()) };
        match rank.stream.launch("look", tile, (kept,), look) {
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
            rank.stream.capture(|stream| stream.launch("look", tile, (reader.clone(),), look));
        match captured {
            Err(Error::NotCapturable { what, reason }) => {
                assert!(what.contains("`look`") && reason.contains("made before the capture"), "{reason}");
            }
            other => panic!("{other:?}"),
        }
        rank.stream.launch("look", tile, (reader,), look)?;
        Ok(rank.stream.synchronize()?)
    });
}

#[test]
fn periods_are_not_replayed_beside_an_exchange_that_has_come_to_write_ahead() {
    on_each_number(|rank| {
        let mut field = rank.field()?;
        let mut seen = rank.array()?;
        let mut other = rank.builder().swaps_per_exchange(0).build(1, &mut field)?;
        let captured: Result<Period, HaloError> = rank.stream.capture(|_| {
            other.enqueue_gather(&mut field)?;
            rank.copy(field.now(), &mut seen, false)?;
            other.enqueue_gather(&mut field)
        });
        let Ok(period) = captured else { return Ok(()) };
        rank.stream.replay(&period, 1)?;
        let mut ahead = rank.halo(&mut field)?;
        refused(rank, &period, &[GHOSTS, FILLED_AHEAD]);
        // The same ghosts may be read as then, but not when the next exchange has begun.
        ahead.gather(&mut field)?;
        refused(rank, &period, &[FILLED_AHEAD]);
        Ok(())
    });
}
