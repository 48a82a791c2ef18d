//! Peers that fill ghosts ahead, and what other exchanges of a field may do then.

use super::*;

#[test]
fn an_exchange_is_made_behind_the_kernels_of_all_ranks() {
    for way in ways_of(StreamKind::Threaded) {
        for slow in 0..2 {
            on_ranks(2, |world| {
                let rank = Rank::new(world, way)?;
                let owned = rank.owned();
                let is_slow = world.rank() == slow;
                let mut field = rank.field()?;
                let mut seen = rank.array()?;
                // Ghosts that a kernel still fills when the peer has made the exchange.
                rank.fill(field.now_mut(), rank.whole(), -1.0, is_slow)?;
                rank.fill(field.now_mut(), owned, rank.number(), false)?;
                let mut halo = rank.halo(&mut field)?;
                halo.gather(&mut field)?;
                rank.assert_filled(field.now())?;
                // And ghosts that a kernel still reads when it has made another one.
                rank.copy(field.now(), &mut seen, is_slow)?;
                rank.fill(field.now_mut(), owned, 10.0 + rank.number(), false)?;
                drop(halo);
                rank.halo(&mut field)?.gather(&mut field)?;
                rank.assert_filled(&seen)?;
                assert_eq!(above_and_below(field.now())?, rank.neighbours().map(|number| 10.0 + number));
                Ok(())
            });
        }
    }
}

/// The second one does not write ahead, and waits for the first.
#[test]
fn two_exchanges_of_an_alternating_field() {
    on_each_number(|rank| {
        let owned = rank.owned();
        let mut field = rank.field()?;
        let new = |pattern, field: &mut _| rank.builder().pattern(pattern).build(1, field);
        let mut first = new(Pattern::All, &mut field)?;
        let mut second = new(Pattern::Faces, &mut field)?;
        let mut seen = rank.array()?;
        for step in 0..6 {
            let is_slow =
                rank.way.kind == StreamKind::Threaded && rank.world.rank() == step % rank.world.size();
            let number = |half: usize, own: f64| (10 * (2 * step + half)) as f64 + own;
            for half in 0..2 {
                rank.fill(field.now_mut(), owned, number(half, rank.number()), false)?;
                if half == 0 {
                    let refused = second.enqueue_gather(&mut field);
                    assert_eq!(refused, Err(filled_ahead("enqueue_gather")), "{rank:?}");
                    let refused = second.begin_gather(&mut field).map(drop);
                    assert_eq!(refused, Err(filled_ahead("begin_gather")), "{rank:?}");
                    first.enqueue_gather(&mut field)?;
                } else {
                    second.enqueue_gather(&mut field)?;
                }
                // Ranks that do not sleep are ahead of those that do.
                rank.copy(field.now(), &mut seen, is_slow)?;
                if step % 2 == 0 || half == 1 {
                    let expected = rank.neighbours().map(|own| number(half, own));
                    assert_eq!(above_and_below(&seen)?, expected, "step {step}.{half}, {rank:?}");
                }
            }
            field.swap();
        }
        drop(first);
        // This rank does not know yet whether all have let go of it.
        let refused = second.enqueue_gather(&mut field);
        assert_eq!(refused, Err(filled_ahead("enqueue_gather")), "{rank:?}");
        drop(second);
        let mut second = new(Pattern::Faces, &mut field)?;
        for step in 6..8 {
            rank.fill(field.now_mut(), owned, rank.number(), false)?;
            second.gather(&mut field)?;
            assert_eq!(above_and_below(field.now())?, rank.neighbours(), "step {step}, {rank:?}");
            field.swap();
        }
        Ok(())
    });
}

/// As arrays of their own, generations are as they are within the field, wherever they are moved to.
#[test]
fn generations_that_are_exchanged_for_themselves() {
    on_each_number(|rank| {
        let mut field = rank.field()?;
        let mut before = rank.halo(field.now_mut())?;
        before.gather(field.now_mut())?;
        let mut halo = rank.halo(&mut field)?;
        let mut behind = rank.halo(field.now_mut())?;
        field.now_mut().fill(|_, _| rank.number())?;
        let mut elsewhere = rank.array()?;
        for one in [&mut before, &mut behind] {
            assert_eq!(one.gather(field.now_mut()), Err(filled_ahead("gather")), "{rank:?}");
            std::mem::swap(field.now_mut(), &mut elsewhere);
            assert_eq!(one.gather(&mut elsewhere), Err(filled_ahead("gather")), "{rank:?}");
            assert_eq!(elsewhere.copy_with_ghosts().map(drop), Err(ghosts_in_flight()), "{rank:?}");
            std::mem::swap(field.now_mut(), &mut elsewhere);
        }
        halo.gather(&mut field)?;
        for one in [&mut before, &mut behind] {
            one.gather(field.now_mut())?;
            rank.assert_filled(field.now())?;
        }
        let refused = rank.fill(field.now_mut(), rank.whole(), 0.0, false);
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
        let rank = Rank::new(world, Scenario { backend: "st-rsend", kind: StreamKind::Inline })?;
        let Rank { stream, grid, .. } = &rank;
        let wider = GlobalGrid::new([4, COLUMNS], [true; 2])?.partition_as(world, [2, 1])?.local(2)?;
        let others = [
            Array::zeros(&wider, Entity::Cell, stream)?,
            Array::zeros(grid, Entity::Node, stream)?,
            Array::with_components(grid, Entity::Cell, 2, stream)?,
            Array::zeros(grid, Entity::Cell, &stream_of(world, StreamKind::Inline)?)?,
        ];
        for mut other in others {
            let mut field = rank.field()?;
            field.swap();
            std::mem::swap(field.now_mut(), &mut other);
            field.swap();
            let refused = rank.halo(&mut field).map(drop);
            assert!(matches!(refused, Err(HaloError::MixedGenerations { index: 0 })), "{refused:?}");
        }
        Ok(())
    });
}

/// One rank has let go of the exchange that fills its field, and the other passes a field that nothing fills: that one still
/// has the exchange, and could write what the new one lets be read.
#[test]
fn fields_that_other_exchanges_fill_are_other_fields() {
    on_ranks(2, |world| {
        for way in each_way() {
            let rank = Rank::new(world, way)?;
            let mut field = rank.field()?;
            let mut first = rank.halo(&mut field)?;
            first.gather(&mut field)?;
            field.swap();
            let mut other = rank.field()?;
            other.swap();
            let refused = if world.rank() == 0 {
                drop(first);
                rank.halo(&mut field).map(drop)
            } else {
                rank.halo(&mut other).map(drop)
            };
            let Err(HaloError::RanksDisagree { rank: 1, found, expected }) = refused else {
                panic!("{refused:?}, {rank:?}")
            };
            assert!(
                !found.contains("fills ahead") && expected.contains("fills ahead"),
                "{found}, {expected}"
            );
            // What all of them have can be made.
            rank.halo(&mut field)?;
            rank.halo(&mut other)?.gather(&mut other)?;
        }
        Ok(())
    });
}

/// What a rank has dropped others may still have: all do what all of them can.
#[test]
fn an_exchange_that_one_rank_has_let_go_of_is_there_for_all() {
    on_ranks(2, |world| {
        for way in each_way() {
            let rank = Rank::new(world, way)?;
            let mut field = rank.field()?;
            let new = |swaps, field: &mut _| rank.builder().swaps_per_exchange(swaps).build(1, field);
            let first = Some(new(1, &mut field)?);
            let first = first.filter(|_| world.rank() == 0);
            let mut second = new(2, &mut field)?;
            assert_eq!(second.gather(&mut field), Err(filled_ahead("gather")), "{rank:?}");
            drop((first, second));
            // Now nobody has it, and all know.
            let mut second = new(2, &mut field)?;
            rank.fill(field.now_mut(), rank.whole(), -1.0, false)?;
            field.now_mut().fill(|_, _| rank.number())?;
            second.gather(&mut field)?;
            rank.assert_filled(field.now())?;
            let mut third = new(1, &mut field)?;
            assert_eq!(second.gather(&mut field), Err(filled_ahead("gather")), "{rank:?}");
            third.gather(&mut field)?;
            second.gather(&mut field)?;
        }
        Ok(())
    });
}

/// Where they are to be scattered kernels write them, and no peer does ahead.
#[test]
fn ghosts_of_alternating_fields_can_be_scattered() {
    on_each_number(|rank| {
        let mut field = rank.field()?;
        let pattern = Pattern::Offsets(vec![vec![-1, 0], vec![1, 0]]);
        let mut halo = rank.builder().pattern(pattern).scatter(Op::Sum).build(1, &mut field)?;
        for step in 1..5 {
            rank.fill(field.now_mut(), rank.whole(), f64::from(step), false)?;
            halo.scatter(&mut field)?;
            let twice = 2.0 * f64::from(step);
            let are_all = field.now().with_owned(|owned| owned.iter().all(|cell| *cell == twice))?;
            assert!(are_all, "each row is beside one other rank's, {rank:?}");
            halo.gather(&mut field)?;
            assert_eq!(above_and_below(field.now())?, [twice; 2], "{rank:?}");
            field.swap();
        }
        Ok(())
    });
}
