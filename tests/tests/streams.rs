//! Streams of the host: in order, with errors that surface at `synchronize` and say which operation
//! failed; kernels, and what they may be given.

use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use streamhalo::comm::Error;
use streamhalo::comm::device::{Buffer, Extents, Scalar};
use streamhalo::{
    Array, Device, Entity, Event, GlobalGrid, HaloError, KernelText, Pattern, Rows, RowsMut, Stream,
    StreamHalo, StreamKind, StreamOptions, Tile, World, WorldOptions,
};
use streamhalo_tests::{
    KINDS, Random, Sample, assert_panics_are_told, assert_tells_the_time, each_way, on_ranks, outcomes,
    stream_of,
};

fn alone() -> World {
    World::alone().expect("a world of one rank")
}

fn streams() -> [Stream; 2] {
    let world = alone();
    KINDS.map(|kind| stream_of(&world, kind).expect("the system has threads"))
}

/// A log that operations of several threads write.
#[derive(Debug, Clone, Default)]
struct Log(Arc<Mutex<Vec<usize>>>);

impl Log {
    fn enqueue(&self, stream: &Stream, entry: usize) {
        let log = self.0.clone();
        stream.enqueue_host("a log entry", move || {
            log.lock().expect("nobody panics").push(entry);
            Ok(())
        });
    }

    fn entries(&self) -> Vec<usize> {
        self.0.lock().expect("nobody panics").clone()
    }
}

#[test]
fn operations_run_in_order() {
    for stream in streams() {
        // More than fit on a threaded stream at once.
        let log = Log::default();
        (0..10_000).for_each(|entry| log.enqueue(&stream, entry));
        stream.synchronize().expect("nothing fails");
        assert_eq!(log.entries(), (0..10_000).collect::<Vec<_>>(), "{stream:?}");
        assert_eq!(stream.synchronizations(), 1);
    }
}

#[test]
fn streams_tell_the_time() {
    streams().iter().for_each(assert_tells_the_time);
}

#[test]
fn enqueueing_does_not_wait_for_the_operation_on_a_threaded_stream() {
    let stream = stream_of(&alone(), StreamKind::Threaded).expect("the system has threads");
    let go = Arc::new(AtomicBool::new(false));
    let gate = go.clone();
    stream.enqueue_host("a gate", move || {
        while !gate.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
        Ok(())
    });
    let event = Event::new();
    stream.record(&event);
    assert!(!event.is_complete());
    go.store(true, Ordering::SeqCst);
    stream.synchronize().expect("nothing fails");
    assert!(event.is_complete());
}

#[test]
fn the_first_error_surfaces_at_synchronize_and_the_rest_is_skipped() {
    for stream in streams() {
        let log = Log::default();
        log.enqueue(&stream, 1);
        stream.enqueue_host("reading the tide table", || Err("it is wet".into()));
        stream.enqueue_host("another one", || Err("it is late".into()));
        log.enqueue(&stream, 2);
        let event = Event::new();
        stream.record(&event);
        let expected = Error::OperationFailed {
            operation: "reading the tide table".into(),
            message: "it is wet".into(),
        };
        for _ in 0..2 {
            assert_eq!(stream.synchronize(), Err(expected.clone()));
            log.enqueue(&stream, 3);
        }
        assert_eq!(log.entries(), [1], "{stream:?}");
        // Whoever waits for the event must not hang.
        assert!(event.is_complete());
    }
}

#[test]
fn a_host_function_that_panics_fails_the_stream() {
    let world = alone();
    for kind in KINDS {
        assert_panics_are_told(|| stream_of(&world, kind).expect("the system has threads"));
    }
}

#[test]
fn a_failed_stream_lends_nothing() {
    let world = alone();
    for kind in KINDS {
        let stream = stream_of(&world, kind).expect("the system has threads");
        let mut buffer = Buffer::<u8>::zeros(&world, &stream, LINE).expect("8 bytes");
        stream.enqueue_host("a failure", || Err("on purpose".into()));
        let whole = LINE.whole();
        let failed = |result: Result<(), Error>| {
            assert!(matches!(result, Err(Error::OperationFailed { .. })), "{result:?}");
        };
        failed(buffer.view(whole).map(|_| ()));
        failed(buffer.view_mut(whole).map(|_| ()));
        failed(buffer.copy_out(whole).map(|_| ()));
    }
}

const LINE: Extents = Extents { points: [1, 1, 8], components: 1 };

#[test]
fn events_order_streams() {
    let world = alone();
    let threaded = || stream_of(&world, StreamKind::Threaded).expect("the system has threads");
    let inline = stream_of(&world, StreamKind::Inline).expect("an inline stream");
    for (first, second) in [(threaded(), threaded()), (threaded(), inline.clone()), (inline, threaded())] {
        let log = Log::default();
        for round in 0..50 {
            let event = Event::new();
            if round % 3 == 0 {
                first.enqueue_host("a pause", || {
                    std::thread::sleep(Duration::from_micros(200));
                    Ok(())
                });
            }
            log.enqueue(&first, 2 * round);
            first.record(&event);
            second.wait_event(&event);
            log.enqueue(&second, 2 * round + 1);
            // And back, so that rounds do not overlap.
            let back = Event::new();
            second.record(&back);
            first.wait_event(&back);
        }
        first.synchronize().expect("nothing fails");
        second.synchronize().expect("nothing fails");
        assert_eq!(log.entries(), (0..100).collect::<Vec<_>>(), "{first:?} before {second:?}");
    }
}

#[test]
fn an_event_that_no_stream_comes_to_ends_the_wait() {
    let options = WorldOptions { timeout: Some(Duration::from_millis(50)), ..WorldOptions::default() };
    let results = World::threads(1, options, |world| {
        for kind in KINDS {
            let stream = Device::host().stream_with(&world, StreamOptions { kind, threads: 1 })?;
            stream.wait_event(&Event::new());
            let error = stream.synchronize().expect_err("nothing completes the event");
            assert!(
                matches!(&error, Error::OperationFailed { operation, .. } if operation.contains("event"))
                    || matches!(error, Error::PeerFailed { rank: 0, .. }),
                "{error}"
            );
        }
        Ok::<(), Error>(())
    });
    assert!(results.expect("threads can be started")[0].is_ok());
}

/// In three ranks one kernel panics. That rank says which, the others say which rank.
#[test]
fn a_kernel_that_panics_ends_the_waits_of_all_ranks() {
    for way in each_way() {
        let results = outcomes(3, |world| {
            let stream = stream_of(world, way.kind)?;
            let grid = GlobalGrid::new([6, 40], [true; 2])?.partition_as(world, [3, 1])?.local(1)?;
            let mut field = Array::<f64, 2>::zeros(&grid, Entity::Cell, &stream)?;
            let mut halo = StreamHalo::new(world, &stream, way.backend, Pattern::All, 1, &mut field)?;
            for step in 0..100 {
                let ill = world.rank() == 1 && step == 4;
                stream.launch(
                    "stencil",
                    grid.owned(Entity::Cell).tile(),
                    (field.writer()?,),
                    move |_, _| {
                        assert!(!ill, "the flux limiter is missing");
                    },
                )?;
                halo.enqueue_gather(&mut field)?;
            }
            stream.synchronize()?;
            Ok(())
        });
        for (rank, result) in results.into_iter().enumerate() {
            let error = match result.expect_err("a kernel panicked") {
                HaloError::Communication(error) => error,
                other => panic!("{other}"),
            };
            match error {
                Error::KernelPanicked { kernel, rank: 1, message } if rank == 1 => {
                    assert_eq!((&*kernel, &*message), ("stencil", "the flux limiter is missing"));
                }
                Error::PeerFailed { rank: 1, operation } if rank != 1 => {
                    assert!(operation.contains("stencil") && operation.contains("limiter"), "{operation}");
                }
                other => panic!("rank {rank}, {way:?}: {other}"),
            }
        }
    }
}

#[test]
fn launches_that_are_refused() {
    on_ranks(1, |world| {
        for kind in KINDS {
            let [stream, other] = [stream_of(world, kind)?, stream_of(world, kind)?];
            let mut field = Buffer::<f64>::zeros(world, &stream, LINE)?;
            let mut target = Buffer::<f64>::zeros(world, &stream, LINE)?;
            let whole = LINE.whole();
            let never = |_: Tile, _: (Rows<'_, f64>, RowsMut<'_, f64>)| panic!("it was refused");
            let away = other.launch("away", whole, (field.reader(whole)?, target.writer(whole)?), never);
            let what = "an argument of a kernel";
            assert_eq!(away, Err(Error::WrongStream { what, owner: stream.id(), used: other.id() }));
            let inner = Tile { start: [0, 0, 1], end: [1, 1, 7] };
            for tile in
                [whole, Tile { start: [0, 0, 1], end: [1, 1, 8] }, Tile { start: [0, 0, 2], end: [1, 2, 3] }]
            {
                let wide = stream.launch("wide", tile, (field.reader(whole)?, target.writer(inner)?), never);
                let expected = Error::TileOutOfBounds {
                    kernel: "wide".into(),
                    argument: 1,
                    array: Box::new(whole),
                    tile: Box::new(tile),
                    bounds: Box::new(inner),
                };
                // The last of them is outside of the array.
                let is_in_array = tile.end[1] == 1;
                assert_eq!(
                    expected.to_string().ends_with(": that array has the points [0, 0, 0]..[1, 1, 8]"),
                    !is_in_array
                );
                assert_eq!(wide, Err(expected));
            }
            let outside = Tile { start: [0, 0, 1], end: [1, 1, 9] };
            assert!(matches!(field.reader(outside), Err(Error::OutOfBounds { region_bytes: 64, .. })));
            assert!(matches!(field.writer(outside), Err(Error::OutOfBounds { .. })));
            assert!(matches!(field.copy_out(outside), Err(Error::OutOfBounds { .. })));
            // Also where their points or bytes are more than a number can be.
            for end in [[1 << 32; 3], [usize::MAX; 3]] {
                let far = Tile { start: [0; 3], end };
                assert!(matches!(field.view(far).map(|_| ()), Err(Error::OutOfBounds { .. })));
                assert!(matches!(field.view_mut(far).map(|_| ()), Err(Error::OutOfBounds { .. })));
                assert!(matches!(field.with_host(far, |_| ()), Err(Error::OutOfBounds { .. })));
                assert!(matches!(field.reader(far).map(|_| ()), Err(Error::OutOfBounds { .. })));
                assert!(matches!(field.copy_out(far), Err(Error::OutOfBounds { .. })));
                let wide = stream.launch("far", far, (field.reader(whole)?, target.writer(whole)?), never);
                assert!(matches!(wide, Err(Error::TileOutOfBounds { .. })));
                // No points lie everywhere.
                let none = Tile { start: [0, 5, 1 << 40], end: [end[0], 5, end[2]] };
                assert!(field.view_mut(none)?.is_empty());
                assert!(field.with_host_mut(none, |view| view.is_empty())?);
                assert_eq!(field.copy_out(none)?, Vec::<f64>::new());
            }
            for far in [7..9, 1 << 61..(1 << 61) + 4, 0..usize::MAX] {
                assert!(matches!(field.section(far), Err(Error::OutOfBounds { .. })));
            }
            // What is not forbidden: reading an array twice, and reading elsewhere than writing.
            let both = (field.reader(whole)?, field.reader(inner)?, target.writer(inner)?);
            stream.launch("fine", inner, both, |tile, (a, b, mut out)| {
                let x = tile.start[2]..tile.end[2];
                for (out, (a, b)) in out.row(0, 0).iter_mut().zip(a.span(0, 0, x).iter().zip(b.row(0, 0))) {
                    *out = a + b + 1.0;
                }
            })?;
            assert_eq!(target.copy_out(whole)?, [0.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 0.0]);
        }
        Ok(())
    });
}

#[test]
fn kernels_cannot_leave_their_points() {
    on_ranks(1, |world| {
        let whole = LINE.whole();
        let panicked = |body: fn(Tile, (Rows<'_, u8>, RowsMut<'_, u8>))| -> Result<String, HaloError> {
            let stream = stream_of(world, StreamKind::Inline)?;
            let field = Buffer::<u8>::zeros(world, &stream, LINE)?;
            let mut target = Buffer::<u8>::zeros(world, &stream, LINE)?;
            stream.launch("stray", whole, (field.reader(whole)?, target.writer(whole)?), body)?;
            match stream.synchronize() {
                Err(Error::KernelPanicked { kernel, rank: 0, message }) if kernel == "stray" => Ok(message),
                other => panic!("{other:?}"),
            }
        };
        assert!(
            panicked(|_, (rows, _)| _ = rows.span(0, 0, 0..9))?
                .ends_with("the array has the points [0, 0, 0]..[1, 1, 8]")
        );
        assert!(panicked(|_, (rows, _)| _ = rows.row(1, 0))?.contains("(1, 0)"));
        assert!(panicked(|_, (_, mut rows)| _ = rows.row(0, 1))?.contains("(0, 1)"));
        assert!(panicked(|_, (rows, _)| _ = rows.spans::<2>(0, 0, 0..8))?.contains("2 row(s) from (0, 0)"));
        assert!(panicked(|_, (_, mut rows)| _ = rows.plane(0, 0..2))?.contains("2 rows from (0, 0)"));
        assert!(panicked(|_, (_, mut rows)| _ = rows.plane(0, 2..3))?.contains("1 rows from (0, 2)"));
        assert!(panicked(|_, (rows, _)| _ = rows.plane(0, 0..2, 0..8))?.contains("2 row(s) from (0, 0)"));
        let said = panicked(|_, (rows, _)| _ = rows.plane(0, 0..1, 0..8).rows::<1>(1))?;
        assert!(said.contains("1 rows from 1 on are not among 1"), "{said}");
        let said = panicked(|_, (rows, _)| _ = rows.plane(0, 0..1, 0..8).windows::<1>(usize::MAX))?;
        assert!(said.contains(&format!("row {} is not among 1", usize::MAX)), "{said}");
        Ok(())
    });
}

/// Several rows at once are those that come one by one.
#[test]
fn rows_come_side_by_side() {
    on_ranks(1, |world| {
        let stream = stream_of(world, StreamKind::Inline)?;
        let extents = Extents { points: [2, 5, 4], components: 2 };
        let mut field = Buffer::<u8>::zeros(world, &stream, extents)?;
        let mut target = Buffer::<u8>::zeros(world, &stream, extents)?;
        (0..).zip(field.view_mut(extents.whole())?.iter_mut()).for_each(|(number, entry)| *entry = number);
        let tile = Tile { start: [1, 1, 1], end: [2, 5, 4] };
        let arguments = (field.reader(extents.whole())?, target.writer(tile)?);
        stream.launch("side by side", tile, arguments, |_, (from, mut to)| {
            assert_eq!(from.spans::<3>(1, 2, 0..2), [2, 3, 4].map(|j| from.span(1, j, 0..2)));
            let plane = from.plane(1, 1..5, 1..4);
            let pairs: Vec<_> = plane.windows::<2>(1).collect();
            assert_eq!(pairs, [2, 3].map(|j| from.spans::<2>(1, j, 1..4)));
            assert_eq!((plane.windows::<2>(3).count(), plane.windows::<1>(4).count()), (0, 0));
            assert_eq!(plane.rows::<2>(1), pairs[0]);
            assert!(plane.each().eq([1, 2, 3, 4].map(|j| from.span(1, j, 1..4))));
            assert_eq!(to.plane(1, 1..5).count(), 4);
            for (row, [values]) in to.plane(1, 1..5).zip(plane.windows(0)) {
                row.copy_from_slice(values);
            }
        })?;
        assert_eq!(target.copy_out(tile)?, field.copy_out(tile)?);
        assert_eq!(target.copy_out(extents.whole())?.iter().filter(|value| **value > 0).count(), 4 * 3 * 2);
        Ok(())
    });
}

/// Runs a stencil on so many threads, and gives the bits.
fn stencil<T: Sample + std::ops::Add<Output = T>>(
    threads: usize,
    points: [usize; 3],
    components: usize,
    kind: StreamKind,
) -> Vec<u64> {
    let [bits] = on_ranks(1, |world| {
        let stream = Device::host().stream_with(world, StreamOptions { kind, threads })?;
        let extents = Extents { points, components };
        let mut from = Buffer::<T>::zeros(world, &stream, extents)?;
        let mut to = Buffer::<T>::zeros(world, &stream, extents)?;
        let mut random = Random::new(7);
        from.view_mut(extents.whole())?
            .iter_mut()
            .for_each(|entry| *entry = T::from_bits(random.next_u64() >> 8));
        let parts = Arc::new(AtomicUsize::new(0));
        for _ in 0..3 {
            let counter = parts.clone();
            let whole = extents.whole();
            stream.launch(
                "sum of a row",
                whole,
                (from.reader(whole)?, to.writer(whole)?),
                move |tile, (from, mut to)| {
                    counter.fetch_add(1, Ordering::Relaxed);
                    for (i, j) in tile.rows() {
                        let mut sum = T::default();
                        for (out, own) in to.row(i, j).iter_mut().zip(from.row(i, j)) {
                            sum = sum + *own;
                            *out = *out + sum;
                        }
                    }
                },
            )?;
        }
        let bits = to.copy_out(extents.whole())?.into_iter().map(Sample::bits).collect();
        let parts = parts.load(Ordering::Relaxed);
        assert!((3..=3 * threads.max(1)).contains(&parts), "{parts} parts for {threads} threads");
        Ok(bits)
    })
    .try_into()
    .expect("one rank");
    bits
}

#[test]
fn kernels_on_several_threads_give_the_same_bits() {
    for points in [[7, 5, 9], [1, 11, 6], [1, 1, 40], [2, 3, 4], [3, 1, 5]] {
        let expected = stencil::<f64>(1, points, 2, StreamKind::Inline);
        for threads in [0, 2, 3, 8] {
            for kind in KINDS {
                assert_eq!(
                    stencil::<f64>(threads, points, 2, kind),
                    expected,
                    "{points:?} on {threads} threads"
                );
            }
        }
    }
}

#[test]
fn a_panic_on_one_of_several_threads_is_the_kernels() {
    on_ranks(1, |world| {
        for kind in KINDS {
            let stream = Device::host().stream_with(world, StreamOptions { kind, threads: 3 })?;
            let extents = Extents { points: [6, 1, 4], components: 1 };
            let mut field = Buffer::<i32>::zeros(world, &stream, extents)?;
            let write = field.writer(extents.whole())?;
            stream.launch("uneven", extents.whole(), (write,), |tile, _| {
                assert_ne!(tile.start[0], 2, "plane 2")
            })?;
            let error = stream.synchronize();
            assert!(
                matches!(&error, Err(Error::KernelPanicked { kernel, .. }) if kernel == "uneven"),
                "{error:?}"
            );
        }
        Ok(())
    });
}

#[test]
fn a_kernel_is_given_as_many_as_twelve_arrays() {
    on_ranks(1, |world| {
        for kind in KINDS {
            let stream = stream_of(world, kind)?;
            let extents = Extents { points: [1, 1, 4], components: 1 };
            let whole = extents.whole();
            let mut sources = Vec::new();
            for value in 0..11_i32 {
                let mut source = Buffer::<i32>::zeros(world, &stream, extents)?;
                source.with_host_mut(whole, |mut cells| cells.fill(1 << value))?;
                sources.push(source);
            }
            let mut sum = Buffer::<i32>::zeros(world, &stream, extents)?;
            let [a, b, c, d, e, f, g, h, i, j, k] = std::array::from_fn(|index| sources[index].reader(whole));
            let arguments = (a?, b?, c?, d?, e?, f?, g?, h?, i?, j?, k?, sum.writer(whole)?);
            stream.launch("sum", whole, arguments, |_, (a, b, c, d, e, f, g, h, i, j, k, mut sum)| {
                for (x, sum) in sum.row(0, 0).iter_mut().enumerate() {
                    let at = |rows: &Rows<'_, i32>| rows.span(0, 0, x..x + 1)[0];
                    *sum = [&a, &b, &c, &d, &e, &f, &g, &h, &i, &j, &k].into_iter().map(at).sum();
                }
            })?;
            assert_eq!(sum.copy_out(whole)?, [(1 << 11) - 1; 4]);
        }
        Ok(())
    });
}

/// Of a process, whose standard error is looked at: the same test, started again.
#[test]
fn a_stream_that_has_failed_and_is_never_asked_says_so_at_its_end() {
    const KIND: &str = "STREAMHALO_TEST_STREAM";
    let fail = |stream: &Stream| {
        stream.enqueue_host("the tide", || Err("it is out".into()));
    };
    if let Ok(kind) = std::env::var(KIND) {
        let [inline, threaded] = streams();
        let (unasked, asked) = if kind == "inline" { (inline, threaded) } else { (threaded, inline) };
        [&unasked, &asked].into_iter().for_each(fail);
        asked.synchronize().expect_err("it has failed");
        return;
    }
    for kind in ["inline", "threaded"] {
        let name = "a_stream_that_has_failed_and_is_never_asked_says_so_at_its_end";
        let mut again = Command::new(std::env::current_exe().expect("this program has a file"));
        let output = again.args(["--exact", name, "--nocapture"]).env(KIND, kind).output();
        let said = String::from_utf8(output.expect("it starts").stderr).expect("is text");
        let told = "rank 0: a stream was dropped that had failed, and nobody had asked it: ";
        assert_eq!(said.matches(told).count(), 1, "{said}");
        assert!(said.contains("it is out"), "{said}");
    }
}

/// So that whoever has no GPU learns of it.
#[test]
fn the_first_launch_of_a_text_on_the_host_is_checked_as_on_a_device() {
    static SHIFT: KernelText = KernelText {
        name: "shift",
        source: "KERNEL(shift)(TILE, READS(i32, from), WRITES(i32, to), SCALAR(i32, factor)) {\n\
                 POINT(i, j, k);\n\
                 AT(to, i, j, k) = factor * AT(from, i, j, k - 1);\n}\n",
        reach: [0, 0, 1],
    };
    let world = alone();
    let stream = stream_of(&world, KINDS[0]).expect("a stream");
    let line = Extents { points: [1, 1, 8], components: 1 };
    let [from, mut to] = [(), ()].map(|()| Buffer::<i32>::zeros(&world, &stream, line).expect("memory"));
    let mut launched = |start: usize, scalars: &[Scalar]| {
        let tile = Tile { start: [0, 0, start], end: [1, 1, 7] };
        let arguments = (from.reader(line.whole())?, to.writer(line.whole())?);
        stream.launch_either_with(&SHIFT, tile, arguments, scalars, |_, _| ())
    };
    let expected = "READS(i32), WRITES(i32), SCALAR(i32)".to_owned();
    let given = "READS(i32), WRITES(i32), SCALAR(i64)".to_owned();
    let refused = Err(Error::KernelArguments { kernel: "shift", expected, given });
    assert_eq!(launched(1, &[3_i64.into()]), refused);
    match launched(0, &[3_i32.into()]) {
        Err(Error::ReadOutOfBounds { kernel: "shift", argument: 0, .. }) => {}
        other => panic!("{other:?}"),
    }
    assert_eq!(launched(1, &[3_i32.into()]), Ok(()));
    assert_eq!(launched(1, &[3_i64.into()]), Ok(()), "the host looks at the first launch that it accepts");
}
