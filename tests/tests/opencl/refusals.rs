//! What cannot be on a device is refused, with what to do instead.

use streamhalo::comm::Error;
use streamhalo::comm::device::{Buffer, Extents, opencl_devices};
use streamhalo::{
    Array, Device, Entity, GlobalGrid, KernelText, MemoryMode, Pattern, Stream, StreamHalo, StreamKind, Tile,
    World,
};
use streamhalo_tests::{in_both_memories, other_device, stream_of};

const LINE: Extents = Extents { points: [1, 1, 64], components: 1 };

static WRONG: KernelText = KernelText {
    name: "wrong",
    source: "KERNEL(wrong)(TILE, WRITES(u8, out)) {\n    POINT(i, j, k);\n    AT(out, i, j, k) = nonsense;\n}\n",
    reach: [0; 3],
};

static SIDE: KernelText = KernelText {
    name: "side",
    source: "KERNEL(side)(TILE, READS(u8, in), WRITES(u8, out)) {\n\
             POINT(i, j, k);\n\
             AT(out, i, j, k) = AT(in, i, j, k + 1);\n}\n",
    reach: [0, 0, 1],
};

fn set_up() -> Option<(World, Stream)> {
    other_device()?;
    let world = World::alone().expect("a world of one rank");
    let stream = stream_of(&world, StreamKind::Device).expect("a queue");
    Some((world, stream))
}

#[test]
fn a_device_that_is_not_there() {
    for select in ["99", "a device of nobody"] {
        let error = Device::opencl(select).expect_err("there is none").to_string();
        assert!(error.contains(&format!("`opencl:{select}`")), "{error}");
        let all = opencl_devices().unwrap_or_default();
        assert!(all.iter().all(|device| error.contains(&device.name)), "{error}");
        assert!(!all.is_empty() || error.contains("install") || error.contains("no driver"), "{error}");
    }
}

#[test]
fn devices_are_chosen_by_number_and_by_name() {
    let Some(device) = other_device() else { return };
    let all = opencl_devices().expect("there is one");
    let index = all.iter().position(|one| one.unusable().is_none()).expect("one can be used");
    for select in [index.to_string(), all[index].name.to_uppercase()] {
        let same = Device::opencl(&select).expect("the same one");
        assert_eq!(same.name(), device.name());
        let separate = same.with_memory(MemoryMode::Separate).expect("every device that can be used has it");
        assert!(separate.name().ends_with(", separate memory"), "{}", separate.name());
        let back = separate.with_memory(MemoryMode::Auto).expect("where it was");
        assert_eq!(back.name(), device.name());
    }
}

#[test]
fn a_text_that_does_not_compile() {
    let Some((world, stream)) = set_up() else { return };
    let mut buffer = Buffer::<u8>::zeros(&world, &stream, LINE).expect("memory");
    for _ in 0..2 {
        let writer = buffer.writer(LINE.whole()).expect("it is all ours");
        let refused = stream.launch_either(&WRONG, LINE.whole(), (writer,), |_, _| ());
        for error in [refused.expect_err("it is nonsense"), stream.compile(&WRONG).expect_err("as it is")] {
            match error {
                Error::KernelDidNotCompile { kernel, log, .. } => {
                    assert_eq!(kernel, "wrong");
                    assert!(log.contains("nonsense") && log.contains("wrong:3:"), "{log}");
                }
                other => panic!("{other}"),
            }
        }
    }
    let host = Device::host().stream(&world).expect("a stream");
    host.compile(&WRONG).expect("the host runs closures");
    // The stream has not failed: nothing was enqueued.
    stream.synchronize().expect("nothing fails");
}

#[test]
fn a_kernel_that_is_a_closure() {
    in_both_memories(closures);
}

fn closures() {
    let Some((world, stream)) = set_up() else { return };
    let mut buffer = Buffer::<u8>::zeros(&world, &stream, LINE).expect("memory");
    let writer = buffer.writer(LINE.whole()).expect("it is all ours");
    let refused = stream.launch("a closure", LINE.whole(), (writer,), |_, _| ());
    let device = stream.device_name().to_owned();
    assert_eq!(refused, Err(Error::NoDeviceKernel { kernel: "a closure".into(), device }));
    let writer = buffer.writer(LINE.whole()).expect("it is all ours");
    let fill = |tile: Tile, (mut rows,): (streamhalo::RowsMut<'_, u8>,)| {
        tile.rows().for_each(|(i, j)| rows.row(i, j).fill(7));
    };
    stream.launch_on_host("by the host", LINE.whole(), (writer,), fill).expect("asked for by name");
    assert_eq!(buffer.copy_out(LINE.whole()), Ok(vec![7; 64]));
    // A part of one array, from parts of itself and of another.
    let mut other = Buffer::<u8>::zeros(&world, &stream, LINE).expect("memory");
    let part = |start, end| Tile { start: [0, 0, start], end: [1, 1, end] };
    let (reader, writer) = (buffer.reader(part(4, 20)), other.writer(part(5, 30)));
    let add = |tile: Tile, (from, mut to): (streamhalo::Rows<'_, u8>, streamhalo::RowsMut<'_, u8>)| {
        let read = from.span(0, 0, tile.start[2] - 1..tile.end[2] - 1);
        to.row(0, 0).iter_mut().zip(read).for_each(|(to, from)| *to += from);
    };
    let arguments = (reader.expect("ours"), writer.expect("ours"));
    stream.launch_on_host("a part", part(5, 21), arguments, add).expect("asked for by name");
    let expected: Vec<u8> = (0..64).map(|x| if (5..21).contains(&x) { 7 } else { 0 }).collect();
    assert_eq!(other.copy_out(LINE.whole()), Ok(expected));
}

#[test]
fn points_that_a_text_must_not_read_or_write() {
    let Some((world, stream)) = set_up() else { return };
    let input = Buffer::<u8>::zeros(&world, &stream, LINE).expect("memory");
    let mut output = Buffer::<u8>::zeros(&world, &stream, LINE).expect("memory");
    let mut launch = |start: usize, end: usize, read: Tile, write: Tile| {
        let (reader, writer) = (input.reader(read)?, output.writer(write)?);
        stream.launch_either(
            &SIDE,
            Tile { start: [0, 0, start], end: [1, 1, end] },
            (reader, writer),
            |_, _| (),
        )
    };
    let part = |start, end| Tile { start: [0, 0, start], end: [1, 1, end] };
    let whole = LINE.whole();
    assert_eq!(launch(1, 63, whole, whole), Ok(()));
    for (start, end, read) in [(0, 63, whole), (1, 64, whole), (5, 10, part(5, 11)), (5, 10, part(4, 10))] {
        let refused = launch(start, end, read, whole);
        assert!(matches!(refused, Err(Error::ReadOutOfBounds { kernel: "side", .. })), "{refused:?}");
    }
    let refused = launch(5, 10, whole, part(5, 9));
    assert!(matches!(refused, Err(Error::TileOutOfBounds { .. })), "{refused:?}");
    stream.synchronize().expect("nothing that was refused has run");
}

#[test]
fn an_array_of_another_stream() {
    let Some((world, stream)) = set_up() else { return };
    let host = stream_of(&world, StreamKind::Inline).expect("a stream");
    let other = stream_of(&world, StreamKind::Device).expect("a queue");
    for (owner, used) in [(&host, &stream), (&stream, &host), (&other, &stream)] {
        let mut buffer = Buffer::<u8>::zeros(&world, owner, LINE).expect("memory");
        let writer = buffer.writer(LINE.whole()).expect("it is all ours");
        let refused = used.launch_either(&WRONG, LINE.whole(), (writer,), |_, _| ());
        let expected =
            Error::WrongStream { what: "an argument of a kernel", owner: owner.id(), used: used.id() };
        assert_eq!(refused, Err(expected));
    }
    let grid = GlobalGrid::new([8], [true]).and_then(|grid| grid.partition(&world)?.local(1));
    let mut field = Array::<u8, 1>::zeros(&grid.expect("a grid"), Entity::Cell, &host).expect("memory");
    let refused =
        StreamHalo::new(&world, &stream, "st-send", Pattern::All, 1, &mut field).expect_err("refused");
    assert!(
        refused.to_string().contains("another stream") || refused.to_string().contains("belongs to stream")
    );
}

#[test]
fn more_memory_than_the_device_has() {
    let Some((world, stream)) = set_up() else { return };
    let extents = Extents { points: [1 << 20, 1 << 20, 4], components: 1 };
    match Buffer::<u8>::zeros(&world, &stream, extents).expect_err("4 TiB") {
        Error::OutOfMemory { bytes, kind: "device", reason } => {
            assert_eq!(bytes, 1 << 42);
            assert!(reason.contains("at most"), "{reason}");
        }
        other => panic!("{other}"),
    }
}

#[test]
fn views_of_the_host() {
    in_both_memories(views);
}

fn views() {
    let Some((world, stream)) = set_up() else { return };
    let grid = GlobalGrid::new([6, 8], [true; 2]).and_then(|grid| grid.partition(&world)?.local(1));
    let mut field = Array::<i32, 2>::zeros(&grid.expect("a grid"), Entity::Cell, &stream).expect("memory");
    let refused = field.owned().map(|_| ()).expect_err("a view").to_string();
    assert!(refused.contains("with_host") && refused.contains(stream.device_name()), "{refused}");
    assert!(field.owned_mut().is_err());
    field.fill(|[y, x], _| (10 * y + x) as i32).expect("it is brought there");
    field.with_owned_mut(|mut owned| owned[[2, 3]] += 1000).expect("the same");
    let found = field.with_owned(|owned| (owned[[2, 3]], owned[[5, 7]], owned.shape().to_vec()));
    assert_eq!(found.expect("it is brought here"), (1023, 57, vec![6, 8]));
}
