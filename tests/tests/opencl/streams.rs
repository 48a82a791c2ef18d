//! Streams of a device: the contract of the host's, and kernels as text.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use streamhalo::comm::Error;
use streamhalo::comm::device::{Buffer, Extents, Scalar};
use streamhalo::{Event, KernelText, Rows, RowsMut, Stream, StreamKind, Tile, World};
use streamhalo_tests::{
    assert_panics_are_told, assert_tells_the_time, in_both_memories, other_device, stream_of,
};

const LINE: Extents = Extents { points: [1, 1, 1000], components: 1 };

/// `out = 2 * out + in + 1`, which shows how often and in which order it has run.
static NEXT: KernelText = KernelText {
    name: "next",
    source: "KERNEL(next)(TILE, READS(i64, in), WRITES(i64, out)) {\n\
             POINT(i, j, k);\n\
             AT(out, i, j, k) = 2 * AT(out, i, j, k) + AT(in, i, j, k) + 1;\n}\n",
    reach: [0; 3],
};

/// `out = out + factor * (x + shift)` and a letter, with numbers of every type.
static NUMBERS: KernelText = KernelText {
    name: "numbers",
    source: "KERNEL(numbers)(TILE, WRITES(i64, out), SCALAR(i64, factor), SCALAR(i32, shift),\n\
                             SCALAR(f32, part), SCALAR(f64, third), SCALAR(u8, letter)) {\n\
             POINT(i, j, k);\n\
             AT(out, i, j, k) += factor * ((i64)k + shift) + (i64)(1000 * part) + (i64)(3000 * third) + letter;\n}\n",
    reach: [0; 3],
};

/// Blocks of 3 rows and 5 columns, moved back to a multiple of 4 columns: `out` is how far a
/// point is from the tile's first one, times its number in a table, and says how often it has been computed.
static BLOCKS: KernelText = KernelText {
    name: "blocks",
    source: "typedef i64 number;\n\
             KERNEL(blocks)(TILE, TABLE(i32, factors), WRITES(number, out)) {\n\
             BLOCK(i, j, k, 3, 5);\n\
             for (u64 row = j; row < j + 3 && row < tile.end[1]; ++row) {\n\
             for (u64 cell = k; cell < k + 5; ++cell) {\n\
             const u64 back = tile.start[2] % 4, x = cell - back;\n\
             if (cell >= tile.start[2] + back && x < tile.end[2]) {\n\
             const u64 far = i - tile.start[0] + row - tile.start[1] + x - tile.start[2];\n\
             AT(out, i, row, x) += 1000 + (number)far * factors[x];\n}\n}\n}\n}\n",
    reach: [0; 3],
};

fn next(stream: &Stream, tile: Tile, from: &Buffer<i64>, to: &mut Buffer<i64>) -> Result<(), Error> {
    stream.launch_either(
        &NEXT,
        tile,
        (from.reader(LINE.whole())?, to.writer(LINE.whole())?),
        |tile, (from, mut to)| {
            for (i, j) in tile.rows() {
                let read = from.span(i, j, tile.start[2]..tile.end[2]);
                for (out, value) in to.row(i, j).iter_mut().zip(read) {
                    *out = 2 * *out + value + 1;
                }
            }
        },
    )
}

fn alone() -> World {
    World::alone().expect("a world of one rank")
}

fn device_stream(world: &World) -> Option<Stream> {
    other_device()?;
    Some(stream_of(world, StreamKind::Device).expect("a queue"))
}

#[test]
fn kernels_and_host_functions_run_in_order() {
    let world = alone();
    let host = stream_of(&world, StreamKind::Inline).expect("a stream");
    let run = |stream: &Stream| -> Result<(Vec<i64>, Vec<usize>), Error> {
        let [mut from, mut to] = [Buffer::zeros(&world, stream, LINE)?, Buffer::zeros(&world, stream, LINE)?];
        from.with_host_mut(LINE.whole(), |mut view| {
            view.iter_mut().enumerate().for_each(|(index, value)| *value = index as i64);
        })?;
        let log = Arc::new(Mutex::new(Vec::new()));
        for round in 0..40 {
            // Parts of rows, so that the tile's bounds matter.
            let tile = Tile { start: [0, 0, round * 7], end: [1, 1, 1000 - round * 11] };
            next(stream, tile, &from, &mut to)?;
            let log = log.clone();
            stream.enqueue_host("a log entry", move || {
                log.lock().expect("nobody panics").push(round);
                Ok(())
            });
        }
        let values = to.copy_out(LINE.whole())?;
        Ok((values, log.lock().expect("nobody panics").clone()))
    };
    let expected = run(&host).expect("nothing fails").0;
    in_both_memories(|| {
        let Some(device) = device_stream(&world) else { return };
        let (values, order) = run(&device).expect("nothing fails");
        assert_eq!(order, (0..40).collect::<Vec<_>>());
        assert_eq!(values, expected);
        assert!(values[500] != 0 && values[3] == 4, "{values:?}");
    });
}

#[test]
fn the_device_tells_the_time() {
    let world = alone();
    let Some(stream) = device_stream(&world) else { return };
    assert_tells_the_time(&stream);
}

#[test]
fn a_kernel_is_given_numbers() {
    let world = alone();
    in_both_memories(|| {
        for kind in [StreamKind::Device, StreamKind::Inline] {
            if other_device().is_none() {
                return;
            }
            let stream = stream_of(&world, kind).expect("a stream");
            let mut out = Buffer::<i64>::zeros(&world, &stream, LINE).expect("memory");
            for round in 1..4_i64 {
                let (factor, letter) = (10 * round, b'a' + round as u8);
                let scalars: [Scalar; 5] =
                    [factor.into(), (-7).into(), 0.5_f32.into(), (1.0 / 3.0).into(), letter.into()];
                let writer = out.writer(LINE.whole()).expect("it is all ours");
                let body = move |tile: Tile, (mut out,): (RowsMut<'_, i64>,)| {
                    for (x, value) in (tile.start[2]..).zip(out.row(0, 0)) {
                        *value += factor * (x as i64 - 7) + 1500 + i64::from(letter);
                    }
                };
                let launched = stream.launch_either_with(&NUMBERS, LINE.whole(), (writer,), &scalars, body);
                launched.expect("they are its parameters");
            }
            let sum = |x: i64| 60 * (x - 7) + 3 * 1500 + 3 * i64::from(b'a') + 6;
            assert_eq!(out.copy_out(LINE.whole()), Ok((0..1000).map(sum).collect()), "{kind:?}");
        }
    });
}

#[test]
fn a_thread_computes_a_block_and_reads_a_table_anywhere() {
    let world = alone();
    let extents = Extents { points: [3, 11, 40], components: 1 };
    in_both_memories(|| {
        let Some(stream) = device_stream(&world) else { return };
        let mut factors = Buffer::<i32>::zeros(&world, &stream, LINE).expect("memory");
        factors
            .with_host_mut(LINE.whole(), |mut all| {
                all.iter_mut().zip(3..).for_each(|(factor, number)| *factor = number);
            })
            .expect("it is there");
        for (start, end) in [([0; 3], extents.points), ([1, 2, 3], [2, 10, 37]), ([2, 4, 21], [3, 5, 22])] {
            let tile = Tile { start, end };
            let mut out = Buffer::<i64>::zeros(&world, &stream, extents).expect("memory");
            let arguments = (factors.reader(LINE.whole()), out.writer(extents.whole()));
            let arguments = (arguments.0.expect("ours"), arguments.1.expect("ours"));
            stream.launch_either(&BLOCKS, tile, arguments, |_, _| ()).expect("it fits");
            let found = out.copy_out(extents.whole()).expect("nothing fails");
            for (index, found) in found.into_iter().enumerate() {
                let point = [index / 440, index / 40 % 11, index % 40];
                let is_inside = (0..3).all(|axis| (start[axis]..end[axis]).contains(&point[axis]));
                let far: i64 = (0..3).map(|axis| point[axis] as i64 - start[axis] as i64).sum();
                let expected = if is_inside { 1000 + far * (point[2] as i64 + 3) } else { 0 };
                assert_eq!(found, expected, "{point:?} of {tile}");
            }
        }
    });
}

#[test]
fn tables_are_read_whole_and_blocks_have_numbers() {
    static NAMES: KernelText = KernelText {
        name: "names",
        source: "KERNEL(names)(TILE, WRITES(u8, out)) {\n    BLOCK(i, j, k, rows, 4);\n}\n",
        reach: [0; 3],
    };
    let world = alone();
    let Some(stream) = device_stream(&world) else { return };
    let factors = Buffer::<i32>::zeros(&world, &stream, LINE).expect("memory");
    let mut out = Buffer::<i64>::zeros(&world, &stream, LINE).expect("memory");
    let mut part = LINE.whole();
    part.start[2] = 1;
    let arguments = (factors.reader(part).expect("ours"), out.writer(part).expect("ours"));
    match stream.launch_either(&BLOCKS, part, arguments, |_, _| ()).expect_err("a part of a table") {
        Error::ReadOutOfBounds { kernel: "blocks", argument: 0, tile, bounds, .. } => {
            assert_eq!((*tile, *bounds), (LINE.whole(), part));
        }
        other => panic!("{other}"),
    }
    let mut bytes = Buffer::<u8>::zeros(&world, &stream, LINE).expect("memory");
    let writer = bytes.writer(part).expect("ours");
    match stream.launch_either(&NAMES, part, (writer,), |_, _| ()).expect_err("not a number") {
        Error::KernelDidNotCompile { kernel, log, .. } => {
            assert_eq!(kernel, "names");
            assert!(log.contains("`BLOCK(i, j, k, rows, 4)`"), "{log}");
        }
        other => panic!("{other}"),
    }
}

#[test]
fn arguments_that_are_not_those_of_the_text() {
    let world = alone();
    let Some(stream) = device_stream(&world) else { return };
    let mut bytes = Buffer::<u8>::zeros(&world, &stream, LINE).expect("memory");
    let mut longs = Buffer::<i64>::zeros(&world, &stream, LINE).expect("memory");
    let numbers: [Scalar; 5] = [1_i64.into(), 2.into(), 0.5_f32.into(), 0.5.into(), 7_u8.into()];
    let expected = "WRITES(i64), SCALAR(i64), SCALAR(i32), SCALAR(f32), SCALAR(f64), SCALAR(u8)";
    let mut refused = |scalars: &[Scalar], with_bytes: bool| {
        let tile = LINE.whole();
        let launched = match with_bytes {
            true => {
                let writer = bytes.writer(tile).expect("ours");
                stream.launch_either_with(&NUMBERS, tile, (writer,), scalars, |_, _| ())
            }
            false => {
                let writer = longs.writer(tile).expect("ours");
                stream.launch_either_with(&NUMBERS, tile, (writer,), scalars, |_, _| ())
            }
        };
        match launched.expect_err("other arguments") {
            Error::KernelArguments { kernel: "numbers", expected: said, given } => {
                assert_eq!(said, expected);
                given
            }
            other => panic!("{other}"),
        }
    };
    assert_eq!(refused(&[], false), "WRITES(i64)");
    assert!(refused(&numbers[1..], false).starts_with("WRITES(i64), SCALAR(i32)"));
    assert!(refused(&numbers, true).starts_with("WRITES(u8), SCALAR(i64)"));
    stream.synchronize().expect("nothing that was refused has run");
}

#[test]
fn enqueueing_does_not_wait_for_the_device() {
    let world = alone();
    let Some(stream) = device_stream(&world) else { return };
    let go = Arc::new(AtomicBool::new(false));
    let gate = go.clone();
    stream.enqueue_host("a gate", move || {
        while !gate.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
        Ok(())
    });
    let mut buffer = Buffer::<i64>::zeros(&world, &stream, LINE).expect("memory");
    let other = Buffer::<i64>::zeros(&world, &stream, LINE).expect("memory");
    for _ in 0..600 {
        // More than are held for the device at a time.
        next(&stream, LINE.whole(), &other, &mut buffer).expect("a kernel that compiles");
    }
    let event = Event::new();
    stream.record(&event);
    assert!(!event.is_complete());
    assert_eq!(stream.synchronizations(), 0);
    go.store(true, Ordering::SeqCst);
    stream.synchronize().expect("nothing fails");
    assert!(event.is_complete());
    assert_eq!(stream.synchronizations(), 1);
}

#[test]
fn the_first_error_surfaces_at_synchronize_and_the_rest_is_skipped() {
    let world = alone();
    let Some(stream) = device_stream(&world) else { return };
    let mut buffer = Buffer::<i64>::zeros(&world, &stream, LINE).expect("memory");
    let other = Buffer::<i64>::zeros(&world, &stream, LINE).expect("memory");
    next(&stream, LINE.whole(), &other, &mut buffer).expect("a kernel that compiles");
    stream.enqueue_host("reading the tide table", || Err("it is wet".into()));
    stream.enqueue_host("another one", || Err("it is late".into()));
    let ran = Arc::new(AtomicBool::new(false));
    let mark = ran.clone();
    stream.enqueue_host("a mark", move || {
        mark.store(true, Ordering::SeqCst);
        Ok(())
    });
    let event = Event::new();
    stream.record(&event);
    let expected =
        Error::OperationFailed { operation: "reading the tide table".into(), message: "it is wet".into() };
    for _ in 0..2 {
        assert_eq!(stream.synchronize(), Err(expected.clone()));
        assert_eq!(stream.check(), Err(expected.clone()));
    }
    assert!(!ran.load(Ordering::SeqCst));
    // Whoever waits for the event must not hang.
    assert!(event.is_complete());
    assert_eq!(buffer.copy_out(LINE.whole()), Err(expected.clone()));
    assert_eq!(buffer.with_host_mut(LINE.whole(), |_| ()), Err(expected));
}

#[test]
fn a_host_function_that_panics_fails_the_stream() {
    let world = alone();
    if other_device().is_some() {
        assert_panics_are_told(|| device_stream(&world).expect("a queue"));
    }
}

/// Whatever memory a device has: boxes without points are brought from nowhere.
#[test]
fn boxes_without_points() {
    in_both_memories(|| {
        let world = alone();
        let Some(stream) = device_stream(&world) else { return };
        let extents = Extents { points: [2, 3, 70], components: 1 };
        let mut buffer = Buffer::<i64>::zeros(&world, &stream, extents).expect("memory");
        for none in [
            Tile { start: [0, 1, 1], end: [1, 3, 1] },
            Tile { start: [2, 0, 0], end: [2, 3, 70] },
            Tile { start: [9; 3], end: [9, 100, 100] },
        ] {
            assert_eq!(buffer.copy_out(none), Ok(Vec::new()), "{none}");
            assert_eq!(buffer.with_host(none, |view| view.len()), Ok(0), "{none}");
            assert_eq!(buffer.with_host_mut(none, |view| view.len()), Ok(0), "{none}");
        }
    });
}

#[test]
fn events_order_streams_of_the_device_and_of_the_host() {
    let world = alone();
    if other_device().is_none() {
        return;
    }
    let of = |kind| stream_of(&world, kind).expect("a stream");
    use StreamKind::{Device, Threaded};
    for kinds in [[Device, Device], [Device, Threaded], [Threaded, Device]] {
        let [first, second] = kinds.map(of);
        for round in 0..20 {
            let (event, done) = (Event::new(), Arc::new(AtomicBool::new(false)));
            let mark = done.clone();
            first.enqueue_host("a slow one", move || {
                std::thread::sleep(std::time::Duration::from_micros(round * 30));
                mark.store(true, Ordering::SeqCst);
                Ok(())
            });
            first.record(&event);
            second.wait_event(&event);
            second.enqueue_host("a look", move || {
                if done.load(Ordering::SeqCst) { Ok(()) } else { Err("too early".into()) }
            });
        }
        second.synchronize().expect("the event orders them");
    }
}

#[test]
fn what_is_on_the_device_outlives_its_owners() {
    in_both_memories(outlives);
}

fn outlives() {
    let world = alone();
    let Some(stream) = device_stream(&world) else { return };
    for _ in 0..30 {
        let mut buffer = Buffer::<i64>::zeros(&world, &stream, LINE).expect("memory");
        let other = Buffer::<i64>::zeros(&world, &stream, LINE).expect("memory");
        for _ in 0..20 {
            next(&stream, LINE.whole(), &other, &mut buffer).expect("a kernel that compiles");
        }
    }
    drop(stream);
}

/// Points beyond an end of a line are those within, mirrored, times a factor: `sum` is that of both indices.
static MIRROR: KernelText = KernelText {
    name: "mirror",
    source: "KERNEL(mirror)(TILE, READS(i64, inside), WRITES(i64, ghosts), READS(i64, factors), SCALAR(i64, sum)) {\n\
             POINT(i, j, k);\n\
             AT(ghosts, i, j, k) = AT(factors, i, j, k) * AT(inside, i, j, (u64)sum - k);\n}\n",
    reach: [0, 0, 3],
};

/// Of one array, by a text and by the host.
#[test]
fn a_kernel_reads_the_array_that_it_writes_elsewhere() {
    let world = alone();
    let line = |start, end| Tile { start: [0, 0, start], end: [1, 1, end] };
    // What is written, what is read, and the sum of the indices of mirrored points.
    let ends = [(line(0, 2), line(2, 1000), 3), (line(998, 1000), line(0, 998), 1995)];
    in_both_memories(|| {
        if other_device().is_none() {
            return;
        }
        for (kind, by_text) in
            [(StreamKind::Device, true), (StreamKind::Device, false), (StreamKind::Inline, true)]
        {
            let stream = stream_of(&world, kind).expect("a stream");
            let mut field = Buffer::<i64>::zeros(&world, &stream, LINE).expect("memory");
            field
                .with_host_mut(LINE.whole(), |mut view| {
                    view.iter_mut().enumerate().for_each(|(index, value)| *value = index as i64);
                })
                .expect("nothing fails");
            let mut factors = Buffer::<i64>::zeros(&world, &stream, LINE).expect("memory");
            factors.with_host_mut(LINE.whole(), |mut view| view.fill(-2)).expect("nothing fails");
            for (written, read, sum) in ends {
                type Views<'a> = (Rows<'a, i64>, RowsMut<'a, i64>, Rows<'a, i64>);
                let body = move |tile: Tile, (inside, mut ghosts, factors): Views<'_>| {
                    for (k, ghost) in (tile.start[2]..).zip(ghosts.row(0, 0)) {
                        *ghost = factors.span(0, 0, k..k + 1)[0] * inside.span(0, 0, sum - k..sum - k + 1)[0];
                    }
                };
                let (inside, ghosts) = field.reader_and_writer(read, written).expect("they are within");
                let both = (inside, ghosts, factors.reader(LINE.whole()).expect("ours"));
                match by_text {
                    true => stream.launch_either_with(&MIRROR, written, both, &[(sum as i64).into()], body),
                    false => stream.launch_on_host("mirror", written, both, body),
                }
                .expect("they do not overlap");
            }
            let values = field.copy_out(LINE.whole()).expect("nothing fails");
            let expected = |k: i64| match k {
                0..2 => -2 * (3 - k),
                998.. => -2 * (1995 - k),
                _ => k,
            };
            assert!(values.iter().copied().eq((0..1000).map(expected)), "{kind:?}, {by_text}: {values:?}");
            // Too far within, of which the host looks at the first launch only, and over what is read.
            let (inside, ghosts) = field.reader_and_writer(line(2, 4), line(0, 2)).expect("they are within");
            let both = (inside, ghosts, factors.reader(LINE.whole()).expect("ours"));
            let refused = stream.launch_either_with(&MIRROR, line(0, 2), both, &[3_i64.into()], |_, _| ());
            assert_eq!(
                refused.is_err(),
                kind == StreamKind::Device,
                "of the text alone it is known: {refused:?}"
            );
            let (inside, ghosts) = field.reader_and_writer(line(1, 9), line(0, 2)).expect("they are within");
            let both = (inside, ghosts, factors.reader(LINE.whole()).expect("ours"));
            let refused = stream.launch_either_with(&MIRROR, line(0, 2), both, &[3_i64.into()], |_, _| ());
            assert_eq!(refused, Err(Error::AliasedArguments { kernel: "mirror".into() }));
        }
    });
}
