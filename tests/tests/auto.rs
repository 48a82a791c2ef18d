//! The backend `auto`: what is measured, when, and who decides.

use std::collections::BTreeMap;
use streamhalo::comm::backend::{AUTO, Direct, ExchangeShape, Measured, backend_names};
use streamhalo::{Array, Entity, GlobalGrid, HaloError, Pattern, Stream, StreamHalo, StreamKind, World};
use streamhalo_tests::cases::auto::{chosen, told};
use streamhalo_tests::{KINDS, each_way, on_ranks, same_on_all, stream_of};

/// An exchange of rows of that length around a ring.
fn ring(world: &World, stream: &Stream, row: usize) -> Result<StreamHalo, HaloError> {
    let grid = GlobalGrid::new([2 * world.size(), row], [true, false])?;
    let grid = grid.partition_as(world, [world.size(), 1])?.local(1)?;
    let mut array = Array::<f64, 2>::zeros(&grid, Entity::Cell, stream)?;
    StreamHalo::new(world, stream, AUTO, Pattern::Faces, 1, &mut array)
}

#[test]
fn ranks_agree_on_what_is_measured_and_on_what_is_said() {
    for ranks in [1, 2, 3, 4] {
        on_ranks(ranks, |world| each_way().try_for_each(|way| chosen(world, way).map(|_| ())));
    }
}

#[test]
fn a_shape_is_measured_once() {
    for kind in KINDS {
        let found = on_ranks(3, |world| {
            let stream = stream_of(world, kind)?;
            let first = ring(world, &stream, 100)?.backend();
            // 808 and 1024 bytes are one size.
            assert_eq!((ring(world, &stream, 128)?.backend(), world.measured().len()), (first, 1));
            // Parts of the world keep what they measure for it.
            if let Some(part) = world.first(2)? {
                ring(&part, &stream, 128)?;
                ring(&part, &stream, 128)?;
            }
            ring(world, &stream, 100)?;
            assert_eq!(world.measured().len(), if world.rank() < 2 { 2 } else { 1 });
            ring(world, &stream, 129)?;
            let shapes: Vec<ExchangeShape> =
                world.measured().iter().map(|measured| measured.shape().clone()).collect();
            Ok((first, shapes.first().cloned(), shapes.last().cloned()))
        });
        let (backend, first, last) = same_on_all(found);
        assert!(backend_names().any(|name| name == backend));
        let stream = format!("host, {}", kind.name());
        let of = |bytes| ExchangeShape {
            fabric: "local".into(),
            library: None,
            stream: stream.clone(),
            ranks: 3,
            near: 2,
            far: 0,
            bytes,
            direct: Direct::WhenClear,
        };
        assert_eq!((first, last), (Some(of(1024)), Some(of(2048))));
    }
}

#[test]
fn what_the_first_rank_is_told_holds() {
    let found = on_ranks(2, |world| {
        let stream = stream_of(world, StreamKind::Inline)?;
        ring(world, &stream, 10)?;
        let shape = world.measured()[0].shape().clone();
        world.set_measured(vec![told(&shape, if world.rank() == 0 { "active-rma" } else { "notified" })]);
        let first = ring(world, &stream, 10)?.backend();
        assert_eq!(world.measured()[0].fastest(), first, "what this rank was told is not what holds");
        // A rank that was told nothing follows, and remembers.
        world.set_measured(if world.rank() == 0 { vec![told(&shape, "st-rsend")] } else { Vec::new() });
        Ok((first, ring(world, &stream, 10)?.backend(), world.measured()[0].fastest().to_owned()))
    });
    assert_eq!(same_on_all(found), ("active-rma", "st-rsend", "st-rsend".to_owned()));
}

#[test]
fn nothing_on_the_stream_is_waited_for_recorded_or_captured() {
    on_ranks(2, |world| {
        let stream = stream_of(world, StreamKind::Threaded)?;
        stream.record_timeline(1000)?;
        let grid = GlobalGrid::new([4, 300], [true, false])?.partition_as(world, [2, 1])?.local(1)?;
        let mut array = Array::<f64, 2>::zeros(&grid, Entity::Cell, &stream)?;
        let mut halo = StreamHalo::new(world, &stream, "st-send", Pattern::Faces, 1, &mut array)?;
        // What is on the stream of one rank ends when the other one has come further.
        if world.rank() == 0 {
            halo.enqueue_gather(&mut array)?;
        }
        ring(world, &stream, 300)?;
        if world.rank() == 1 {
            halo.enqueue_gather(&mut array)?;
        }
        stream.synchronize()?;
        let timeline = stream.take_timeline().expect("it was recorded");
        assert!(timeline.spans.len() < 20 && timeline.dropped == 0, "{}", timeline.spans.len());
        assert_eq!(world.measured().len(), 1);
        let made = stream.capture(|stream| ring(world, stream, 600).map(|_| ()));
        assert!(made.is_ok() && world.measured().len() == 2, "{made:?}");
        Ok(())
    });
}

#[test]
fn times_that_cannot_be_are_refused() {
    let shape = same_on_all(on_ranks(2, |world| {
        ring(world, &stream_of(world, StreamKind::Inline)?, 10)?;
        Ok(world.measured()[0].shape().clone())
    }));
    let refused = |times: &[(&str, f64)]| {
        let times: BTreeMap<String, f64> = times.iter().map(|(name, time)| ((*name).into(), *time)).collect();
        Measured::new(shape.clone(), times).expect_err("it cannot be")
    };
    assert!(refused(&[]).contains("no backend"));
    assert!(refused(&[("st-recv", 1.0)]).contains("`st-recv`"));
    for time in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        assert!(refused(&[("st-send", 1.0), ("notified", time)]).contains("`notified` takes"));
    }
}

#[test]
fn what_was_measured_is_said_in_a_sentence() {
    let shape = ExchangeShape {
        fabric: "shm+mpi".into(),
        library: Some("MPICH".into()),
        stream: "host, inline".into(),
        ranks: 4,
        near: 1,
        far: 2,
        bytes: 4096,
        direct: Direct::Never,
    };
    let times = [("st-send", 2.104), ("notified", 1.0), ("standard", 10.0)];
    let times = || times.iter().map(|(name, time)| ((*name).to_owned(), *time)).collect();
    let of = |shape| Measured::new(shape, times()).expect("it is right").to_string();
    assert_eq!(
        of(shape.clone()),
        "`notified` for 1 message a rank and 2 over a wire, up to 4096 bytes: 1.00 us; st-send 2.10, standard 10.00"
    );
    assert_eq!(
        of(ExchangeShape { far: 0, bytes: 1 << 20, ..shape }),
        "`notified` for 1 message a rank, the longest at least 1048576 bytes: 1.00 us; st-send 2.10, standard 10.00"
    );
}
