//! What streams of a device do to words and to memory of other ranks.

use super::choice::{self, FoundDevice};
use super::driver::OpenclDriver;
use crate::device::accelerator::{Accelerator, DeviceMemory};
use crate::device::conformance::driver_tests;
use crate::device::next_group;
use crate::device::queue::Engine;
use crate::device::{
    Buffer, Count, Device, Extents, MemoryMode, Move, MoveTable, Stream, StreamOptions, Waits, Ways,
};
use crate::device::{Rule, SignalSet, WaitSet};
use crate::element::{ElementType, Op};
use crate::error::Error;
use crate::fabric::{Executor, LocalFabric, Region, Role, Word, export, import, register_for};
use crate::locks::lock;
use crate::world::{World, WorldOptions};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const LINE: Extents = Extents { points: [1, 1, 64], components: 1 };

/// The device may have one compute unit only for kernels that wait: tests whose kernels do take turns.
pub(super) static TURNS: Mutex<()> = Mutex::new(());

/// Where arrays are.
const MODES: [MemoryMode; 2] = [MemoryMode::Shared, MemoryMode::Separate];

/// A world of one rank, whose waits do not come to their time-out, and its stream; `None` where there is no device.
fn set_up(waits: Waits, mode: MemoryMode) -> Option<(World, Stream)> {
    set_up_with(Duration::from_secs(20), waits, mode)
}

/// As [`set_up`], with a world that waits for so long.
fn set_up_with(timeout: Duration, waits: Waits, mode: MemoryMode) -> Option<(World, Stream)> {
    let device = match Device::opencl("") {
        Err(Error::DeviceUnavailable { reason, .. }) => {
            println!("skipped: tests on a device of OpenCL: {reason}");
            return None;
        }
        device => device.expect("there is one").with_waits(waits).with_memory(mode).expect("it has both"),
    };
    let options = WorldOptions { timeout: Some(timeout), ..WorldOptions::default() };
    let end = LocalFabric::ends(1).expect("memory").remove(0);
    let world = World::new(end, options).expect("a world");
    let stream = device.stream(&world).expect("a queue");
    Some((world, stream))
}

fn word(region: &Region, line: usize) -> Word {
    region.word(64 * line, Role::Completion, 0, 0).expect("it is in the region")
}

fn wait_set(words: Vec<Word>) -> Arc<WaitSet> {
    Arc::new(WaitSet::new(words, Vec::new(), next_group()))
}

fn signals(words: Vec<Word>, rule: Rule) -> Arc<SignalSet> {
    Arc::new(SignalSet { rule, ..SignalSet::new(words, true) })
}

/// A table that copies 64 bytes.
fn copy(from: &Region, to: &Region) -> Arc<MoveTable> {
    let one = Move {
        source: from.place(0, 64, "a source").expect("they are there"),
        source_strides: [64; 2],
        destination: to.place(0, 64, "a destination").expect("they are there"),
        destination_strides: [64; 2],
        counts: [1, 1],
        run_bytes: 64,
        element: ElementType::U8,
        op: Op::Replace,
    };
    Arc::new(MoveTable::new(&[vec![one]]).expect("it fits"))
}

/// A buffer of ones, and zeros that the host can look at while the stream waits.
fn buffers(world: &World, stream: &Stream) -> (Buffer<u8>, Region) {
    let mut ones = Buffer::zeros(world, stream, LINE).expect("memory");
    ones.with_host_mut(LINE.whole(), |mut view| view.fill(1)).expect("nothing has failed");
    (ones, stream.allocate_pinned(world, 64).expect("memory"))
}

#[test]
fn behind_a_wait_that_is_stopped_nothing_is_stored_or_signalled() {
    let _turn = lock(&TURNS);
    for (waits, mode) in
        [Waits::Kernel, Waits::Proxy].into_iter().flat_map(|waits| MODES.map(|mode| (waits, mode)))
    {
        let timeout = Duration::from_millis(500);
        let Some((world, stream)) = set_up_with(timeout, waits, mode) else { return };
        let region = stream.allocate_pinned(&world, 256).expect("memory");
        let (ones, zeros) = buffers(&world, &stream);
        let [never, told] = [0, 1].map(|line| word(&region, line));
        stream.wait_values(&wait_set(vec![never]), 1);
        stream.put_move(&copy(ones.region(), &zeros));
        stream.write_values(&signals(vec![told.clone()], Rule::Set), 7);
        let late = stream.synchronize();
        assert!(matches!(late, Err(Error::TimedOut { wanted: 1, found: 0, .. })), "{late:?}");
        assert_eq!(stream.count(Count::KernelWaits), u64::from(waits == Waits::Kernel));
        assert_eq!(
            (told.cell().load(), zeros.read_bytes(0, 64)),
            (0, Ok(vec![0; 64])),
            "{waits:?}, {mode:?}"
        );
    }
}

#[test]
fn a_wait_of_many_words_is_for_all_of_them() {
    let _turn = lock(&TURNS);
    for waits in [Waits::Kernel, Waits::Proxy] {
        // More than a kernel is given as such; the last comes late, and past the wrap.
        for last in 0..9 {
            let Some((world, stream)) = set_up(waits, MODES[last % 2]) else { return };
            let region = stream.allocate_pinned(&world, 1024).expect("memory");
            let words: Vec<Word> = (0..9).map(|line| word(&region, line)).collect();
            words.iter().for_each(|word| word.cell().store(u32::MAX));
            let (ones, zeros) = buffers(&world, &stream);
            stream.wait_values(&wait_set(words.clone()), 2);
            stream.put_move(&copy(ones.region(), &zeros));
            let others = words.iter().enumerate().filter(|(line, _)| *line != last);
            others.for_each(|(_, word)| word.set(3));
            std::thread::sleep(Duration::from_millis(20));
            let so_far = zeros.read_bytes(0, 64).expect("it is there");
            assert_eq!(so_far, [0; 64], "word {last}, {waits:?}");
            words[last].set(2);
            stream.synchronize().expect("all have come");
            assert_eq!(zeros.read_bytes(0, 64), Ok(vec![1; 64]));
        }
    }
}

#[test]
fn words_are_posted_behind_the_moves_wherever_they_are() {
    for mode in MODES {
        let Some((world, stream)) = set_up(Waits::Auto, mode) else { return };
        let here = stream.allocate_pinned(&world, 512).expect("memory");
        let on_host = world.fabric().allocate(512).expect("memory");
        let words: Vec<Word> =
            [&here, &on_host].into_iter().flat_map(|region| (0..6).map(|line| word(region, line))).collect();
        let (ones, zeros) = buffers(&world, &stream);
        stream.put_move(&copy(ones.region(), &zeros));
        stream.write_values(&signals(words.clone(), Rule::Set), 7);
        for _ in 0..3 {
            stream.write_values(&signals(words.clone(), Rule::Increment), 0);
        }
        stream.synchronize().expect("nothing fails");
        for word in &words {
            assert_eq!(word.cell().load(), 10, "{word:?}");
        }
        assert_eq!(zeros.read_bytes(0, 64), Ok(vec![1; 64]));
    }
}

#[test]
#[cfg(debug_assertions)]
fn the_host_does_not_touch_separate_memory() {
    let Some((world, stream)) = set_up(Waits::Auto, MemoryMode::Separate) else { return };
    let region = stream.allocate(&world, 64).expect("memory");
    let touched = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| region.read_bytes(0, 64)));
    let panic = touched.expect_err("a bug of ours");
    let said = panic.downcast_ref::<String>().expect("a message");
    assert!(said.contains("not the host's to read and write"), "{said}");
}

/// The device as it would be with less; `None` where there is none.
pub(super) fn device_with(change: impl Fn(&mut FoundDevice)) -> Option<Arc<dyn Accelerator>> {
    set_up(Waits::Auto, MemoryMode::Auto)?;
    let (index, (device, mut found)) = choice::choose("").expect("there is one");
    change(&mut found);
    let separate = found.separates(MemoryMode::Auto).expect("it says itself");
    let driver = OpenclDriver::new(index, device, found, separate).expect("it can be opened");
    Some(Arc::new(Engine::new(driver).expect("its own kernels compile")))
}

/// One whose kernels signal, if the device is so; else says what is left out.
pub(super) fn device_that_signals(what: &str) -> Option<Arc<dyn Accelerator>> {
    let device = device_with(|_| ())?;
    if !device.kernels_signal() {
        println!("skipped: {what}: kernels of {} do not signal", device.name());
        return None;
    }
    Some(device)
}

/// A stream of that.
pub(super) fn stream_of(
    world: &World,
    device: &Arc<dyn Accelerator>,
    ways: impl Into<Ways>,
) -> Result<Stream, Error> {
    Stream::open(world, StreamOptions::default(), Some(device.clone()), ways)
}

fn without_atomics(found: &mut FoundDevice) {
    found.has_atomics = false;
}

pub(super) fn without_fine_grain(found: &mut FoundDevice) {
    (found.has_atomics, found.has_fine_grained_memory) = (false, false);
}

#[test]
fn a_device_without_doubles_refuses_them() {
    let Some(device) = device_with(|found| found.has_doubles = false) else { return };
    let world = World::alone().expect("a world of one rank");
    let stream = stream_of(&world, &device, Waits::Auto).expect("it has queues");
    let refused = Buffer::<f64>::zeros(&world, &stream, LINE).expect_err("it does not compute with them");
    let Error::DeviceUnavailable { reason, .. } = refused else { panic!("{refused}") };
    assert!(reason.contains("f64"), "{reason}");
    assert!(Buffer::<f32>::zeros(&world, &stream, LINE).is_ok());
}

#[test]
fn a_device_without_atomics_has_the_thread_signal_and_wait() {
    for lost in [without_atomics, without_fine_grain] {
        let Some(device) = device_with(lost) else { return };
        let world = World::alone().expect("a world of one rank");
        let stream = stream_of(&world, &device, Waits::Auto).expect("it has queues");
        assert_eq!(stream.executor(), Executor::Proxy);
        let region = stream.allocate_pinned(&world, 256).expect("memory");
        let [awaited, told] = [0, 1].map(|line| word(&region, line));
        let (ones, zeros) = buffers(&world, &stream);
        stream.wait_values(&wait_set(vec![awaited.clone()]), 5);
        stream.put_move(&copy(ones.region(), &zeros));
        stream.write_values(&signals(vec![told.clone()], Rule::Set), 7);
        std::thread::sleep(Duration::from_millis(10));
        assert_eq!((told.cell().load(), zeros.read_bytes(0, 64)), (0, Ok(vec![0; 64])));
        awaited.set(5);
        stream.synchronize().expect("it has come");
        assert_eq!((told.cell().load(), stream.count(Count::KernelWaits)), (7, 0));
        assert_eq!(zeros.read_bytes(0, 64), Ok(vec![1; 64]));
        let refused = stream_of(&world, &device, Waits::Kernel);
        let Err(Error::DeviceUnavailable { reason, .. }) = refused else { panic!("{refused:?}") };
        assert!(reason.contains("kernels cannot wait on it"), "{reason}");
    }
}

#[test]
fn memory_that_the_device_has_not_is_refused() {
    let Some(device) = device_with(without_fine_grain) else { return };
    assert!(!device.host_reaches() && device.name().ends_with(", separate memory"), "{device:?}");
    let refused = device.with_memory(MemoryMode::Shared).map(|_| ()).expect_err("it cannot").to_string();
    assert!(refused.contains("fine-grained") && refused.contains("`separate`"), "{refused}");
    assert!(device.with_memory(MemoryMode::Separate).expect("it is").is_none());
}

/// Where kernels do not reach memory of the host, whatever its shape queues copy, and the bits are the same.
#[test]
fn the_host_is_shown_any_points_without_fine_grained_memory() {
    let Some(device) = device_with(without_fine_grain) else { return };
    let world = World::alone().expect("a world of one rank");
    let stream = stream_of(&world, &device, Waits::Auto).expect("it has queues");
    let extents = Extents { points: [3, 4, 5], components: 2 };
    let mut buffer = Buffer::<i32>::zeros(&world, &stream, extents).expect("memory");
    let mut expected = vec![0; 120];
    let boxes =
        [([0, 0, 0], [3, 4, 5]), ([1, 1, 1], [3, 3, 4]), ([0, 2, 0], [3, 3, 5]), ([2, 3, 4], [3, 4, 5])];
    for (round, (start, end)) in (1..).zip(boxes) {
        let points = crate::device::Tile { start, end };
        buffer
            .with_host_mut(points, |mut view| view.iter_mut().for_each(|value| *value += round))
            .expect("room");
        for (i, j) in points.rows() {
            let row = (i * 4 + j) * 5;
            expected[2 * (row + start[2])..2 * (row + end[2])].iter_mut().for_each(|value| *value += round);
        }
    }
    assert_eq!(buffer.copy_out(extents.whole()), Ok(expected));
}

/// Memory files of that many bytes that this process has open.
fn open_files(bytes: usize) -> usize {
    let all = std::fs::read_dir("/proc/self/fd").expect("Linux has it").filter_map(Result::ok);
    // Others are opened and closed meanwhile.
    let sizes = all.filter_map(|file| std::fs::metadata(file.path()).ok());
    sizes.filter(|file| file.len() == bytes as u64).count()
}

#[test]
fn exported_memory_is_kept_until_all_have_closed_it() {
    // As no other test has.
    const BYTES: usize = 77 * 4096;
    let Some(device) = device_with(|_| ()) else { return };
    let ends = LocalFabric::ends(2).expect("memory");
    let own = export(&*ends[0], &*device, BYTES).expect("memory");
    let map = |bytes| import(&*ends[1], &*device, (0, own.key(), bytes));
    let imports = [map(BYTES).expect("it is there"), map(BYTES).expect("it is there")];
    assert_eq!((imports[0].owner(), imports[0].key(), open_files(BYTES)), (0, own.key(), 3));
    assert!(matches!(map(BYTES - 4096), Err(Error::System { .. })), "another size");
    own.write_bytes(0, &[7; BYTES]).expect("it is as long");
    let key = own.key();
    drop(own);
    let [first, second] = imports;
    drop(first);
    // Whoever exports next looks, and finds it in use.
    drop(export(&*ends[0], &*device, 64).expect("memory"));
    assert_eq!((open_files(BYTES), second.read_bytes(BYTES - 1, 1)), (2, Ok(vec![7])));
    drop(second);
    drop(export(&*ends[0], &*device, 64).expect("memory"));
    assert_eq!(open_files(BYTES), 0);
    assert!(import(&*ends[1], &*device, (0, key, BYTES)).is_err(), "it is gone");
}

#[test]
fn kernels_do_not_add_to_words_that_others_add_to() {
    let Some(device) = device_that_signals("kernels that add to words") else { return };
    let world = World::alone().expect("a world of one rank");
    let stream = stream_of(&world, &device, Ways::default()).expect("it has queues");
    for kernels_add in [true, false] {
        let region = world.fabric().allocate(256).expect("memory");
        let region = register_for(&*device, &region, kernels_add).expect("memory of the host");
        assert_eq!(region.on_device().map(DeviceMemory::kernels_add), Some(kernels_add));
        for rule in [Rule::Set, Rule::Increment] {
            stream.write_values(&signals(vec![word(&region, 0)], rule), 7);
        }
        stream.synchronize().expect("nothing fails");
        assert_eq!(word(&region, 0).cell().load(), 8, "whoever it is");
    }
}

/// What all drivers do, with the first device that can be used; `None`, which is said, where there is none.
fn driver(separate: bool) -> Option<OpenclDriver> {
    match choice::choose("") {
        Ok((index, (device, found))) => {
            Some(OpenclDriver::new(index, device, found, separate).expect("it can be opened"))
        }
        Err(Error::DeviceUnavailable { reason, .. }) => {
            println!("skipped: tests on a device of OpenCL: {reason}");
            None
        }
        Err(error) => panic!("there is a device, but {error}"),
    }
}

mod shared {
    fn driver() -> Option<super::OpenclDriver> {
        super::driver(false)
    }

    super::driver_tests!(driver);
}

mod separate {
    fn driver() -> Option<super::OpenclDriver> {
        super::driver(true)
    }

    super::driver_tests!(driver);
}
