//! What streams of a device do to words and to memory of other ranks.

use super::choice::{self, FoundDevice};
use super::context::Context;
use crate::device::accelerator::Accelerator;
use crate::device::{Buffer, Device, Extents, Move, MoveTable, Stream, StreamOptions, Waits, next_group};
use crate::device::{Rule, SignalSet, WaitSet};
use crate::element::{ElementType, Op};
use crate::error::Error;
use crate::fabric::{Executor, LocalFabric, Region, Role, Word};
use crate::world::{World, WorldOptions};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

const LINE: Extents = Extents { points: [1, 1, 64], components: 1 };

/// The device may have one compute unit only for kernels that wait: tests whose kernels do take turns.
static TURNS: Mutex<()> = Mutex::new(());

/// A world of one rank that has little patience, and its stream; `None` where there is no device.
fn set_up(waits: Waits) -> Option<(World, Stream)> {
    let device = match Device::opencl("") {
        Err(Error::DeviceUnavailable { reason, .. }) => {
            println!("skipped: tests on a device of OpenCL: {reason}");
            return None;
        }
        device => device.expect("there is one").with_waits(waits),
    };
    let options = WorldOptions { timeout: Some(Duration::from_millis(300)), ..WorldOptions::default() };
    let end = LocalFabric::ends(1).expect("memory").remove(0);
    let world = World::new(end, options).expect("a world");
    let stream = device.stream(&world).expect("a queue");
    Some((world, stream))
}

fn word(region: &Region, line: usize) -> Word {
    region.word(64 * line, Role::Completion, 0, 0).expect("it is in the region")
}

fn wait_set(words: Vec<Word>) -> Arc<WaitSet> {
    let group = next_group();
    Arc::new(WaitSet { words, sources: Vec::new(), signalled: Vec::new(), group, _carried: None })
}

fn signals(words: Vec<Word>, rule: Rule) -> Arc<SignalSet> {
    Arc::new(SignalSet { words, rule, wakes: true })
}

/// A table that copies the whole of one buffer to another.
fn copy(from: &Buffer<u8>, to: &Buffer<u8>) -> Arc<MoveTable> {
    let one = Move {
        source: from.place([0; 3]).expect("the first"),
        source_strides: [64; 2],
        destination: to.place([0; 3]).expect("the first"),
        destination_strides: [64; 2],
        counts: [1, 1],
        run_bytes: 64,
        element: ElementType::U8,
        op: Op::Replace,
    };
    Arc::new(MoveTable::new(&[vec![one]]).expect("it fits"))
}

/// A buffer of ones and one of zeros.
fn buffers(world: &World, stream: &Stream) -> [Buffer<u8>; 2] {
    let [mut ones, zeros] = [0, 1].map(|_| Buffer::zeros(world, stream, LINE).expect("memory"));
    ones.with_host_mut(LINE.whole(), |mut view| view.fill(1)).expect("nothing has failed");
    [ones, zeros]
}

#[test]
fn behind_a_wait_that_is_stopped_nothing_is_stored_or_signalled() {
    let _turn = TURNS.lock().unwrap_or_else(PoisonError::into_inner);
    for waits in [Waits::Kernel, Waits::Proxy] {
        let Some((world, stream)) = set_up(waits) else { return };
        let region = stream.allocate(&world, 256).expect("memory");
        let [ones, zeros] = buffers(&world, &stream);
        let [never, told] = [0, 1].map(|line| word(&region, line));
        stream.wait_values(&wait_set(vec![never]), 1);
        stream.enqueue_move(&copy(&ones, &zeros));
        stream.write_values(&signals(vec![told.clone()], Rule::Set), 7);
        let late = stream.synchronize();
        assert!(matches!(late, Err(Error::TimedOut { wanted: 1, found: 0, .. })), "{late:?}");
        assert_eq!(stream.kernel_waits(), u64::from(waits == Waits::Kernel));
        let start = zeros.place([0; 3]).expect("the first");
        assert_eq!((told.cell().load(), start.region().read_bytes(0, 64)), (0, Ok(vec![0; 64])), "{waits:?}");
    }
}

#[test]
fn a_wait_of_many_words_is_for_all_of_them() {
    let _turn = TURNS.lock().unwrap_or_else(PoisonError::into_inner);
    for waits in [Waits::Kernel, Waits::Proxy] {
        // More than one kernel waits for; the last comes late, and past the wrap.
        for last in 0..9 {
            let Some((world, stream)) = set_up(waits) else { return };
            let region = stream.allocate(&world, 1024).expect("memory");
            let words: Vec<Word> = (0..9).map(|line| word(&region, line)).collect();
            words.iter().for_each(|word| word.cell().store(u32::MAX));
            let [ones, zeros] = buffers(&world, &stream);
            stream.wait_values(&wait_set(words.clone()), 2);
            stream.enqueue_move(&copy(&ones, &zeros));
            let others = words.iter().enumerate().filter(|(line, _)| *line != last);
            others.for_each(|(_, word)| word.set(3));
            std::thread::sleep(Duration::from_millis(20));
            let so_far = zeros.region().read_bytes(0, 64).expect("it is there");
            assert_eq!(so_far, [0; 64], "word {last}, {waits:?}");
            words[last].set(2);
            stream.synchronize().expect("all have come");
            assert_eq!(zeros.copy_out(LINE.whole()), Ok(vec![1; 64]));
        }
    }
}

#[test]
fn words_are_posted_behind_the_moves_wherever_they_are() {
    let Some((world, stream)) = set_up(Waits::Auto) else { return };
    let here = stream.allocate(&world, 512).expect("memory");
    let on_host = world.fabric().allocate(512).expect("memory");
    let words: Vec<Word> =
        [&here, &on_host].into_iter().flat_map(|region| (0..6).map(|line| word(region, line))).collect();
    let [ones, zeros] = buffers(&world, &stream);
    stream.enqueue_move(&copy(&ones, &zeros));
    stream.write_values(&signals(words.clone(), Rule::Set), 7);
    for _ in 0..3 {
        stream.write_values(&signals(words.clone(), Rule::Increment), 0);
    }
    stream.synchronize().expect("nothing fails");
    for word in &words {
        assert_eq!(word.cell().load(), 10, "{word:?}");
    }
    assert_eq!(zeros.copy_out(LINE.whole()), Ok(vec![1; 64]));
}

/// A stream of the device as it would be with less.
fn set_up_with(change: impl Fn(&mut FoundDevice), waits: Waits) -> Option<(World, Result<Stream, Error>)> {
    let (world, _) = set_up(Waits::Auto)?;
    let (_, (device, mut found)) = choice::choose("").expect("there is one");
    change(&mut found);
    let context: Arc<dyn Accelerator> =
        Arc::new(Context::new(1000, (device, found)).expect("it can be opened"));
    let stream = Stream::open(&world, StreamOptions::default(), Some(context), waits);
    Some((world, stream))
}

#[test]
fn a_device_without_doubles_refuses_them() {
    let lost = |found: &mut FoundDevice| found.has_doubles = false;
    let Some((world, stream)) = set_up_with(lost, Waits::Auto) else { return };
    let stream = stream.expect("it has queues");
    let refused = Buffer::<f64>::zeros(&world, &stream, LINE).expect_err("it does not compute with them");
    let Error::DeviceUnavailable { reason, .. } = refused else { panic!("{refused}") };
    assert!(reason.contains("f64"), "{reason}");
    assert!(Buffer::<f32>::zeros(&world, &stream, LINE).is_ok());
}

#[test]
fn a_device_without_atomics_has_the_thread_signal_and_wait() {
    let lost = |found: &mut FoundDevice| found.has_atomics = false;
    let Some((world, stream)) = set_up_with(lost, Waits::Auto) else { return };
    let stream = stream.expect("it has queues");
    assert_eq!(stream.executor(), Executor::Proxy);
    let region = stream.allocate(&world, 256).expect("memory");
    let [awaited, told] = [0, 1].map(|line| word(&region, line));
    let [ones, zeros] = buffers(&world, &stream);
    stream.wait_values(&wait_set(vec![awaited.clone()]), 5);
    stream.enqueue_move(&copy(&ones, &zeros));
    stream.write_values(&signals(vec![told.clone()], Rule::Set), 7);
    std::thread::sleep(Duration::from_millis(10));
    assert_eq!(told.cell().load(), 0);
    awaited.set(5);
    stream.synchronize().expect("it has come");
    assert_eq!((told.cell().load(), stream.kernel_waits()), (7, 0));
    assert_eq!(zeros.copy_out(LINE.whole()), Ok(vec![1; 64]));
    let (_, refused) = set_up_with(lost, Waits::Kernel).expect("as before");
    let Err(Error::DeviceUnavailable { reason, .. }) = refused else { panic!("{refused:?}") };
    assert!(reason.contains("kernels cannot wait on it"), "{reason}");
}
