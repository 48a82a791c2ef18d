//! Misuse of `StreamHalo`: the exact error, the same on every rank where the call is collective,
//! with nothing enqueued, so that the right call still works afterwards.

use streamhalo::ElementType::{F64, U8};
use streamhalo::comm::Error;
use streamhalo::grid::{Field, Fields, GridError};
use streamhalo::{
    Alternating, Array, Entity, GlobalGrid, HaloError, LocalGrid, Op, Pattern, Stream, StreamHalo,
    StreamKind, World,
};
use streamhalo_tests::cases::leaving::each_exchange;
use streamhalo_tests::cases::misused::begun_twice;
use streamhalo_tests::{FieldSet, FieldSpec, Scenario, each_way, on_ranks, outcomes, same_on_all, stream_of};

const INLINE: StreamKind = StreamKind::Inline;

fn grid(world: &World) -> Result<LocalGrid<2>, HaloError> {
    Ok(GlobalGrid::new([8, 9], [true; 2])?.partition_as(world, [world.size(), 1])?.local(2)?)
}

fn array(world: &World, stream: &Stream) -> Result<Array<f64, 2>, HaloError> {
    Ok(Array::zeros(&grid(world)?, Entity::Cell, stream)?)
}

/// The error with which all ranks are refused, on one, two and three ranks.
fn refusal(make: impl Fn(&World, &Stream) -> Result<StreamHalo, HaloError> + Sync) -> HaloError {
    same_on_all(
        [1, 2, 3]
            .map(|ranks| {
                same_on_all(on_ranks(ranks, |world| {
                    let stream = stream_of(world, INLINE)?;
                    let error = make(world, &stream).expect_err("what cannot be exchanged is refused");
                    world.barrier()?;
                    Ok(error)
                }))
            })
            .to_vec(),
    )
}

/// The same where only rank 1 of three asks for something unusable.
fn refusal_of_rank_1(make: impl Fn(&World, &Stream, bool) -> Result<StreamHalo, HaloError> + Sync) -> String {
    let error = same_on_all(on_ranks(3, |world| {
        let stream = stream_of(world, INLINE)?;
        let error = make(world, &stream, world.rank() == 1).expect_err("rank 1 asks for what cannot be");
        world.barrier()?;
        Ok(error)
    }));
    match error {
        HaloError::Communication(Error::CollectiveFailed { call: "StreamHalo::new", rank: 1, reason }) => {
            reason
        }
        other => panic!("{other:?} instead of a failure of rank 1"),
    }
}

#[test]
fn an_exchange_that_a_peer_has_dropped_ends_at_once() {
    for way in each_way() {
        for ranks in [2, 3] {
            each_exchange(ranks, way, &|| ());
        }
    }
}

fn offsets(given: &[&[i32]]) -> Pattern {
    Pattern::Offsets(given.iter().map(|offset| offset.to_vec()).collect())
}

#[test]
fn offsets_that_are_none() {
    for bad in [&[0, 0][..], &[2, 0], &[0, -2], &[1], &[0, 0, 1], &[]] {
        let error = refusal(|world, stream| {
            StreamHalo::new(world, stream, "st-send", offsets(&[&[0, 1], bad]), 1, &mut array(world, stream)?)
        });
        assert!(matches!(&error, HaloError::BadOffset { offset, .. } if offset == bad), "{error}");
    }
    let twice = refusal(|world, stream| {
        let pattern = offsets(&[&[0, 1], &[1, 1], &[0, 1]]);
        StreamHalo::new(world, stream, "st-send", pattern, 1, &mut array(world, stream)?)
    });
    assert!(matches!(&twice, HaloError::BadOffset { offset, .. } if offset == &[0, 1]), "{twice}");
    let reason = refusal_of_rank_1(|world, stream, odd| {
        let pattern = if odd { offsets(&[&[0, 5]]) } else { Pattern::All };
        StreamHalo::new(world, stream, "st-send", pattern, 1, &mut array(world, stream)?)
    });
    assert!(reason.contains("[0, 5]"), "{reason}");
}

#[test]
fn no_fields() {
    let error = refusal(|world, stream| {
        StreamHalo::new(world, stream, "st-send", Pattern::All, 1, &mut Vec::<Array<f64, 2>>::new())
    });
    assert_eq!(error, HaloError::NoFields);

    let reason = refusal_of_rank_1(|world, stream, odd| {
        let mut fields = if odd { vec![] } else { vec![array(world, stream)?] };
        StreamHalo::new(world, stream, "st-send", Pattern::All, 1, &mut fields)
    });
    assert_eq!(reason, HaloError::NoFields.to_string());
}

#[test]
fn fields_that_cannot_be_exchanged_together() {
    let other_grid = refusal(|world, stream| {
        let other = GlobalGrid::new([8, 10], [true; 2])?.partition_as(world, [world.size(), 1])?.local(2)?;
        let mut fields = (array(world, stream)?, Array::<u8, 2>::zeros(&other, Entity::Cell, stream)?);
        StreamHalo::new(world, stream, "st-send", Pattern::All, 1, &mut fields)
    });
    let reason = "it has a grid of [8, 10] cells, field 0 a grid of [8, 9] cells".into();
    assert_eq!(other_grid, HaloError::MixedFields { index: 1, reason });
    let other_halo = refusal(|world, stream| {
        let other = GlobalGrid::new([8, 9], [true; 2])?.partition_as(world, [world.size(), 1])?.local(1)?;
        let first = array(world, stream)?;
        let mut fields = (first, array(world, stream)?, Array::<u8, 2>::zeros(&other, Entity::Cell, stream)?);
        StreamHalo::new(world, stream, "st-send", Pattern::All, 1, &mut fields)
    });
    let reason = "it has a halo of [1, 1], field 0 a halo of [2, 2]".into();
    assert_eq!(other_halo, HaloError::MixedFields { index: 2, reason });
}

#[test]
fn fields_of_another_stream() {
    let refused = |ranks: usize| {
        on_ranks(ranks, |world| {
            let [stream, other] = [stream_of(world, INLINE)?, stream_of(world, INLINE)?];
            let mut fields = (array(world, &stream)?, array(world, &other)?);
            let error = StreamHalo::new(world, &stream, "st-send", Pattern::All, 1, &mut fields)
                .expect_err("fields live on one stream");
            world.barrier()?;
            Ok((error, other.id(), stream.id()))
        })
    };
    let (error, owner, used) = refused(1).remove(0);
    let expected = Error::WrongStream { what: "a field of an exchange", owner, used };
    assert_eq!(error, HaloError::Communication(expected.clone()));
    // Streams have other numbers on other ranks: the verdict is that of the first.
    let (errors, numbers): (Vec<_>, Vec<_>) =
        refused(2).into_iter().map(|(error, owner, used)| (error, (owner, used))).unzip();
    let (owner, used) = numbers[0];
    let reason = Error::WrongStream { what: "a field of an exchange", owner, used }.to_string();
    assert_eq!(
        same_on_all(errors),
        Error::CollectiveFailed { call: "StreamHalo::new", rank: 0, reason }.into()
    );
}

#[test]
fn widths_that_the_grid_does_not_have() {
    let wide = refusal(|world, stream| {
        StreamHalo::new(world, stream, "st-send", Pattern::All, [2, 3], &mut array(world, stream)?)
    });
    let expected = GridError::ExchangeTooWide { axis: 1, width: 3, halo_width: 2 };
    assert_eq!(wide, HaloError::Grid(expected));
    let reason = refusal_of_rank_1(|world, stream, odd| {
        let width = if odd { [3, 1] } else { [1, 1] };
        StreamHalo::new(world, stream, "st-send", Pattern::All, width, &mut array(world, stream)?)
    });
    assert!(reason.contains("axis 0"), "{reason}");
}

#[test]
fn an_exchange_of_no_layers_is_refused() {
    let none = same_on_all(on_ranks(2, |world| {
        let stream = stream_of(world, INLINE)?;
        let grid = GlobalGrid::new([8, 8], [true; 2])?.partition(world)?.local(1)?;
        let mut nodes = Array::<f64, 2>::zeros(&grid, Entity::Node, &stream)?;
        let refused = StreamHalo::new(world, &stream, "st-send", Pattern::All, 0, &mut nodes).map(drop);
        // Along one axis there may be none, and a pattern may be without neighbours.
        StreamHalo::new(world, &stream, "st-send", Pattern::All, [1, 0], &mut nodes)?;
        StreamHalo::new(world, &stream, "st-send", Pattern::Offsets(Vec::new()), 1, &mut nodes)?;
        Ok(refused.expect_err("nodes that ranks share would stay as they are"))
    }));
    assert_eq!(none, HaloError::NoLayers { width: vec![0, 0] });
    assert!(none.to_string().contains("width [0, 0]"), "{none}");
}

#[test]
fn subdomains_that_are_too_thin_name_the_axis() {
    let cut = |world: &World, cells| GlobalGrid::new(cells, [true; 2])?.partition_as(world, [1, 2]);
    let thin = same_on_all(on_ranks(2, |world| Ok(cut(world, [9, 5])?.local(3).expect_err("2 cells"))));
    let expected = GridError::SubdomainTooThin {
        axis: 1,
        thinnest_cells: 2,
        halo_width: 3,
        layout: vec![1, 2],
        fitting: Some(vec![2, 1]),
    };
    assert_eq!(thin, expected);
    // Whoever let the layout be chosen hears of one that fits, if there is one.
    for (width, fits) in [(3, Some(vec![3, 2])), (4, None)] {
        let error = same_on_all(on_ranks(6, |world| {
            let chosen = GlobalGrid::new([4, 6], [true; 2])?.partition(world)?;
            Ok(chosen.local([1, width]).expect_err("2 cells"))
        }));
        let GridError::SubdomainTooThin { axis: 1, thinnest_cells: 2, layout, fitting, .. } = &error else {
            panic!("{error}")
        };
        assert_eq!((layout, fitting), (&vec![2, 3], &fits));
        assert_eq!(error.to_string().contains("[3, 2]"), fits.is_some(), "{error}");
    }
    // As thin as the halo will do for cells, but nodes need one entry more from the neighbour.
    let nodes = same_on_all(on_ranks(2, |world| {
        let stream = stream_of(world, INLINE)?;
        let grid = cut(world, [9, 4])?.local(2)?;
        let mut cells = Array::<f64, 2>::zeros(&grid, Entity::Cell, &stream)?;
        StreamHalo::new(world, &stream, "st-send", Pattern::All, 2, &mut cells)?;
        let nodes = Array::<f64, 2>::zeros(&grid, Entity::Node, &stream)?;
        let refused = StreamHalo::new(world, &stream, "st-send", Pattern::All, 2, &mut (cells, nodes));
        Ok(refused.expect_err("2 nodes where 3 are needed"))
    }));
    let GridError::TooFewOwned { entity: Entity::Node, axis: 1, width: 2, thinnest: 2, needed: 3, .. } =
        (match nodes {
            HaloError::Grid(error) => error,
            other => panic!("{other}"),
        })
    else {
        panic!("another error than too few owned entries")
    };
}

/// What all of three ranks say where rank 1 asks for another exchange than the others.
fn disagreement(make: impl Fn(&World, &Stream, bool) -> Result<StreamHalo, HaloError> + Sync) -> [String; 2] {
    let error = same_on_all(on_ranks(3, |world| {
        let stream = stream_of(world, INLINE)?;
        let odd = world.rank() == 1;
        let error = make(world, &stream, odd).expect_err("ranks that disagree are refused");
        // What all agree on can still be made and used.
        let mut field = array(world, &stream)?;
        StreamHalo::new(world, &stream, "st-rsend", Pattern::All, 1, &mut field)?.gather(&mut field)?;
        Ok(error)
    }));
    match error {
        HaloError::RanksDisagree { rank: 1, found, expected } => [found, expected],
        other => panic!("{other:?} instead of a disagreement of rank 1"),
    }
}

#[test]
fn ranks_that_ask_for_different_exchanges() {
    let new = |world: &World, stream: &Stream, pattern, width: usize, fields: &mut dyn Fields<2>| {
        StreamHalo::new(world, stream, "notified", pattern, width, &mut Borrowed(fields))
    };
    let [found, expected] = disagreement(|world, stream, odd| {
        new(world, stream, Pattern::All, if odd { 2 } else { 1 }, &mut array(world, stream)?)
    });
    assert_eq!([found, expected], ["width [2, 2]", "width [1, 1]"], "nothing that is the same is told");
    disagreement(|world, stream, odd| {
        let pattern = if odd { Pattern::Faces } else { Pattern::All };
        new(world, stream, pattern, 1, &mut array(world, stream)?)
    });
    let [found, expected] = disagreement(|world, stream, odd| {
        let mut float = Array::<f32, 2>::zeros(&grid(world)?, Entity::Cell, stream)?;
        if odd {
            new(world, stream, Pattern::All, 1, &mut float)
        } else {
            new(world, stream, Pattern::All, 1, &mut array(world, stream)?)
        }
    });
    assert!(found.contains("f32") && expected.contains("f64"), "{found}, {expected}");
    disagreement(|world, stream, odd| {
        let entity = if odd { Entity::Node } else { Entity::Face(0) };
        new(world, stream, Pattern::All, 1, &mut Array::<f64, 2>::zeros(&grid(world)?, entity, stream)?)
    });
    disagreement(|world, stream, odd| {
        let components = if odd { 2 } else { 1 };
        let mut field = Array::<f64, 2>::with_components(&grid(world)?, Entity::Cell, components, stream)?;
        new(world, stream, Pattern::All, 1, &mut field)
    });
    disagreement(|world, stream, odd| {
        let mut fields: Vec<_> =
            (0..if odd { 2 } else { 1 }).map(|_| array(world, stream)).collect::<Result<_, _>>()?;
        new(world, stream, Pattern::All, 1, &mut fields)
    });
    disagreement(|world, stream, odd| {
        let mut field = Alternating::<f64, 2>::zeros(&grid(world)?, Entity::Cell, stream)?;
        (0..if odd { 3 } else { 2 }).for_each(|_| field.swap());
        new(world, stream, Pattern::All, 1, &mut field)
    });
    disagreement(|world, stream, odd| {
        // Single passes are placed by the halo width of the arrays.
        let halo = if odd { 2 } else { 1 };
        let grid = GlobalGrid::new([9, 40], [true; 2])?.partition_as(world, [3, 1])?.local(halo)?;
        new(world, stream, Pattern::All, 1, &mut Array::<f64, 2>::zeros(&grid, Entity::Cell, stream)?)
    });
    disagreement(|world, stream, odd| {
        let grid = GlobalGrid::new([9, 9], [true, odd])?.partition_as(world, [3, 1])?.local(1)?;
        new(world, stream, Pattern::All, 1, &mut Array::<f64, 2>::zeros(&grid, Entity::Cell, stream)?)
    });
    let build = |world: &World, stream: &Stream, op: Option<Op>, swaps| {
        let builder = StreamHalo::builder(world, stream).swaps_per_exchange(swaps);
        let builder = op.into_iter().fold(builder, |builder, op| builder.scatter(op));
        builder.build(1, &mut array(world, stream)?)
    };
    disagreement(|world, stream, odd| build(world, stream, Some(if odd { Op::Sum } else { Op::Max }), 1));
    disagreement(|world, stream, odd| build(world, stream, odd.then_some(Op::Min), 1));
    disagreement(|world, stream, odd| build(world, stream, None, if odd { 0 } else { 1 }));
}

/// Fields behind a reference of any kind.
struct Borrowed<'a>(&'a mut dyn Fields<2>);

impl Fields<2> for Borrowed<'_> {
    fn each(&mut self, visit: &mut dyn FnMut(&mut dyn Field<2>)) {
        self.0.each(visit);
    }
}

#[test]
fn backends_that_are_unknown_or_differ() {
    let unknown = refusal(|world, stream| {
        StreamHalo::new(world, stream, "st_send", Pattern::All, 1, &mut array(world, stream)?)
    });
    assert!(
        matches!(&unknown, HaloError::Communication(Error::UnknownBackend { name, known })
            if name == "st_send" && known.contains("st-send, ")),
        "{unknown}"
    );
    assert!(unknown.to_string().ends_with("; did you mean `st-send`?"), "{unknown}");
    let differ = same_on_all(on_ranks(3, |world| {
        let stream = stream_of(world, INLINE)?;
        let backend = if world.rank() == 2 { "st-send" } else { "st-rsend" };
        let refused = StreamHalo::new(world, &stream, backend, Pattern::All, 1, &mut array(world, &stream)?);
        Ok(refused.expect_err("backends differ"))
    }));
    let (found, expected) = ("backend `st-send`".into(), "backend `st-rsend`".into());
    assert_eq!(differ, HaloError::RanksDisagree { rank: 2, found, expected });
}

/// Makes an exchange of two fields in every way, and lets `misuse` do what it refuses. Then it must
/// still work.
fn in_every_way(
    specs: [FieldSpec; 2],
    misuse: impl Fn(&mut StreamHalo, &mut FieldSet<2>, &Stream, &World, Scenario) -> Result<(), HaloError> + Sync,
) {
    on_ranks(2, |world| {
        for way in each_way() {
            let stream = stream_of(world, way.kind)?;
            let mut fields = FieldSet::new(&grid(world)?, &stream, &specs, &Pattern::All, [1, 1])?;
            let mut halo = StreamHalo::new(world, &stream, way.backend, Pattern::All, 1, &mut fields)?;
            for epoch in 1..=4 {
                fields.fill(epoch)?;
                misuse(&mut halo, &mut fields, &stream, world, way)?;
                halo.enqueue_gather(&mut fields)?;
                fields.check(epoch)?;
                fields.swap();
            }
            fields.assert_right(&way)?;
        }
        Ok(())
    });
}

const ARRAYS: [FieldSpec; 2] =
    [FieldSpec::array(F64, Entity::Cell, 1), FieldSpec::array(U8, Entity::Node, 2)];
const PAIRS: [FieldSpec; 2] =
    [FieldSpec::alternating(F64, Entity::Cell, 1), FieldSpec::alternating(U8, Entity::Node, 2)];

#[test]
fn other_fields_than_those_that_were_matched() {
    in_every_way(ARRAYS, |halo, fields, stream, world, _| {
        let other = |call, found: &str, expected: &str, result: Result<(), HaloError>| {
            let (found, expected) = (found.into(), expected.into());
            assert_eq!(result, Err(HaloError::OtherFields { call, found, expected }));
        };
        let mut alike = FieldSet::new(&grid(world)?, stream, &ARRAYS, &Pattern::All, [1, 1])?;
        let another = "another array as field 0 (1 component(s) of f64 per cell)";
        let own = "its own there (1 component(s) of f64 per cell)";
        other("enqueue_gather", another, own, halo.enqueue_gather(&mut alike));
        other("gather", another, own, halo.gather(&mut alike));
        let (call, two) = ("enqueue_gather", "2 field(s)");
        other(call, "1 field(s)", two, halo.enqueue_gather(&mut array(world, stream)?));
        other(call, "3 field(s)", two, halo.enqueue_gather(&mut (&mut *fields, array(world, stream)?)));
        other(call, "0 field(s)", two, halo.enqueue_gather(&mut Vec::<Array<f64, 2>>::new()));
        Ok(())
    });
}

#[test]
fn a_field_in_the_wrong_generation() {
    in_every_way(PAIRS, |halo, fields, _, _, _| {
        fields.swap();
        let error = halo.enqueue_gather(fields).expect_err("the other generation is due");
        assert!(
            matches!(error, HaloError::WrongGeneration { index: 0, found, expected, epoch, swaps: 1 }
                if found != expected && found == (epoch % 2) as usize && epoch <= 4),
            "{error:?}"
        );
        fields.swap();
        Ok(())
    });
}

#[test]
fn a_scatter_that_was_not_asked_for() {
    in_every_way(ARRAYS, |halo, fields, _, _, _| {
        assert_eq!(halo.enqueue_scatter(fields), Err(HaloError::NoScatter));
        assert_eq!(halo.scatter(fields), Err(HaloError::NoScatter));
        Ok(())
    });
}

#[test]
fn an_exchange_that_is_begun_twice() {
    on_ranks(2, |world| each_way().try_for_each(|way| begun_twice(world, way).map(drop)));
}

#[test]
fn a_field_that_is_swapped_in_flight_is_another_than_is_filled() {
    on_ranks(2, |world| {
        for way in each_way() {
            let stream = stream_of(world, way.kind)?;
            let cells = Alternating::<f64, 2>::zeros(&grid(world)?, Entity::Cell, &stream)?;
            // Nothing is wrong with the other one.
            let mut fields = (cells, array(world, &stream)?);
            let mut halo = StreamHalo::new(world, &stream, way.backend, Pattern::All, 1, &mut fields)?;
            for epoch in [1, 3] {
                let mut in_flight = halo.begin_gather(&mut fields)?;
                in_flight.0.swap();
                match in_flight.finish() {
                    Err(HaloError::WrongGeneration {
                        index: 0, found: 1, expected: 0, epoch: found, ..
                    }) => {
                        assert_eq!(found, epoch);
                    }
                    other => panic!("{other:?}, {way:?}"),
                }
                // The generation that it began with has been filled all the same.
                fields.0.swap();
                fields.0.now().copy_with_ghosts()?;
                // The next exchange is about the other generation, and the one behind it about this one again.
                fields.0.swap();
                halo.gather(&mut fields)?;
                fields.0.now().copy_with_ghosts()?;
                fields.0.swap();
            }
        }
        Ok(())
    });
}

#[test]
fn what_is_of_another_world_is_refused() {
    let refused = outcomes(2, |world| {
        let alone = World::alone()?;
        let home = if world.rank() == 1 { &alone } else { world };
        let stream = stream_of(home, INLINE)?;
        if world.rank() == 1 {
            let expected = GridError::Communication(Error::OtherWorld { what: "a buffer" });
            assert_eq!(array(world, &stream).map(drop), Err(HaloError::Grid(expected)));
        }
        // An exchange of it would be one of this rank with itself.
        let mut field = array(home, &stream)?;
        StreamHalo::new(world, &stream, "st-send", Pattern::All, 1, &mut field).map(drop)
    });
    for error in refused {
        let said = error.expect_err("rank 1's cells are of another world").to_string();
        assert!(said.contains("a field of an exchange was made with things of two worlds"), "{said}");
    }
}

#[test]
fn one_rank_that_is_refused_lets_the_other_wait_until_it_does_the_right_thing() {
    in_every_way(PAIRS, |halo, fields, _, world, _| {
        if world.rank() == 1 {
            fields.swap();
            assert!(matches!(halo.begin_gather(fields), Err(HaloError::WrongGeneration { .. })));
            fields.swap();
        }
        Ok(())
    });
}

#[test]
fn ranks_that_tell_each_other_values_of_different_types_are_refused() {
    // As long as each other, both.
    let results = outcomes(2, |world| match world.rank() {
        0 => Ok(world.all_gather(&77_u64).map(drop)?),
        _ => Ok(world.all_gather(&-3_i64).map(drop)?),
    });
    for (rank, result) in results.into_iter().enumerate() {
        match result {
            Err(HaloError::Communication(Error::CollectiveFailed { rank: other, reason, .. })) => {
                assert!(
                    other == 1 - rank && reason.contains("`i64`") && reason.contains("`u64`"),
                    "{reason}"
                );
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_stream_that_has_failed_fails_the_next_collective_call_too() {
    for ranks in [1, 2] {
        let results = outcomes(ranks, |world| {
            let stream = stream_of(world, INLINE)?;
            let mut field = array(world, &stream)?;
            let tile = field.owned_box().tile();
            stream.launch("unwell", tile, (field.writer()?,), |_, _| panic!("on purpose"))?;
            Ok(world.barrier()?)
        });
        for result in results {
            match result {
                Err(HaloError::Communication(Error::PeerFailed { operation, .. })) => {
                    assert!(operation.contains("kernel `unwell` panicked"), "{operation}");
                }
                other => panic!("{other:?}"),
            }
        }
    }
}

#[test]
fn a_world_whose_ranks_make_different_calls_says_so() {
    let results = outcomes(2, |world| {
        let stream = stream_of(world, INLINE)?;
        if world.rank() == 0 {
            StreamHalo::new(world, &stream, "st-send", Pattern::All, 1, &mut array(world, &stream)?)
                .map(|_| ())
        } else {
            Ok(world.all_gather(&"something else".to_string()).map(|_| ())?)
        }
    });
    let failed = |result: &Result<(), HaloError>| {
        matches!(
            result,
            Err(HaloError::Communication(Error::CollectiveFailed { .. } | Error::PeerFailed { .. }))
        )
    };
    assert!(results.iter().any(failed), "{results:?}");
}
