//! What every driver does, as tests that take it: `driver_tests!` makes them of a function that opens a device, or
//! says why there is none.

use super::accelerator::DeviceMemory;
use super::driver::{CommandQueue, Driver, MemoryKind, Value};
use super::text::KernelText;
use crate::error::Error;
use crate::fabric::{Fabric, LocalFabric};
use std::ffi::c_void;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Devices may have one compute unit only for kernels that wait: tests whose kernels do take turns.
static TURNS: Mutex<()> = Mutex::new(());

/// Long enough for any kernel of a test, on any machine.
const PATIENCE: Duration = Duration::from_secs(20);

static TWICE: KernelText = KernelText {
    name: "twice",
    source: "KERNEL(twice)(TILE, READS(i32, in), WRITES(i32, out)) {\n\
             POINT(i, j, k);\n\
             AT(out, i, j, k) = 2 * AT(in, i, j, k) + (i32)(i + 3 * j + 7 * k);\n}\n",
    reach: [0; 3],
};

static WRONG: KernelText = KernelText {
    name: "wrong",
    source: "KERNEL(wrong)(TILE, WRITES(u8, out)) {\n    POINT(i, j, k);\n    AT(out, i, j, k) = nonsense;\n}\n",
    reach: [0; 3],
};

/// Tests of the driver that a function opens. `None` leaves them out; the function prints why.
macro_rules! driver_tests {
    ($open:path) => {
        $crate::device::conformance::driver_tests!($open;
            memory_is_zeroed_and_copied, memory_is_used_again_without_what_was_in_it, kernels_compute_each_point_once,
            commands_of_a_queue_run_in_order, kernels_of_two_queues_tell_each_other, every_queue_can_wait_at_once,
            queues_store_and_wait_for_words_themselves, graphs_repeat_what_was_recorded, what_is_wrong_is_refused,
            memory_of_the_host_is_registered, memory_is_exported_and_imported);
    };
    ($open:path; $($name:ident),*) => {
        $(#[test]
        fn $name() {
            if let Some(driver) = $open() {
                $crate::device::conformance::$name(&driver);
            }
        })*
    };
}
pub(super) use driver_tests;

fn pinned<D: Driver>(driver: &D, bytes: usize) -> DeviceMemory {
    driver.allocate(bytes, MemoryKind::Pinned).expect("memory of the host")
}

fn on_device<D: Driver>(driver: &D, bytes: usize) -> DeviceMemory {
    driver.allocate(bytes, MemoryKind::Device).expect("memory")
}

/// The whole of some memory of the host, which the device does not use at the time.
fn shown<T: Copy>(memory: &DeviceMemory) -> Vec<T> {
    let first = memory.base().as_ptr().cast::<T>();
    // SAFETY: memory of the host, as long as that, in which any bits are a value of the types that tests use.
    unsafe { std::slice::from_raw_parts(first, memory.bytes() / size_of::<T>()) }.to_vec()
}

fn fill<T: Copy>(memory: &DeviceMemory, values: &[T]) {
    assert!(size_of_val(values) <= memory.bytes());
    // SAFETY: memory of the host that is as long, which nobody else uses at the time.
    unsafe { std::ptr::copy_nonoverlapping(values.as_ptr(), memory.base().as_ptr().cast(), values.len()) };
}

fn copy<Q: CommandQueue>(queue: &mut Q, from: &DeviceMemory, to: &DeviceMemory) {
    let bytes = from.bytes().min(to.bytes());
    // SAFETY: both are as long, and the tests keep them until the queue has come to rest.
    unsafe { queue.copy(from.base().as_ptr(), to.base().as_ptr(), bytes) }.expect("a copy");
}

pub(super) fn memory_is_zeroed_and_copied<D: Driver>(driver: &D) {
    let mut queue = driver.open_queue().expect("a queue");
    for bytes in [1, 64, 1000, 3 << 20] {
        let (start, end) = (pinned(driver, bytes), pinned(driver, bytes));
        let [first, second] = [0, 1].map(|_| on_device(driver, bytes));
        for memory in [&start, &end, &first, &second] {
            assert!((memory.base().as_ptr() as usize).is_multiple_of(64) && memory.bytes() == bytes);
        }
        let pattern: Vec<u8> = (0..bytes).map(|index| (index * 31 % 251) as u8).collect();
        fill(&start, &pattern);
        copy(&mut queue, &first, &end);
        queue.finish().expect("nothing fails");
        assert_eq!(shown::<u8>(&end), vec![0; bytes]);
        copy(&mut queue, &start, &first);
        copy(&mut queue, &first, &second);
        copy(&mut queue, &second, &end);
        queue.finish().expect("nothing fails");
        assert!(shown::<u8>(&end) == pattern, "{bytes} bytes");
    }
}

pub(super) fn memory_is_used_again_without_what_was_in_it<D: Driver>(driver: &D) {
    let mut queue = driver.open_queue().expect("a queue");
    for kind in [MemoryKind::Device, MemoryKind::Pinned] {
        let end = pinned(driver, 4096);
        for _ in 0..4 {
            let memory = driver.allocate(4096, kind).expect("memory");
            copy(&mut queue, &memory, &end);
            queue.finish().expect("nothing fails");
            assert_eq!(shown::<u8>(&end), vec![0; 4096], "{kind:?}");
            fill(&end, &[7_u8; 4096]);
            copy(&mut queue, &end, &memory);
            queue.finish().expect("nothing fails");
        }
    }
}

pub(super) fn kernels_compute_each_point_once<D: Driver>(driver: &D) {
    let program = driver.build(&TWICE).expect("it is right");
    let mut kernel = driver.kernel(&program, "twice", &[]).expect("it is in the text");
    let mut queue = driver.open_queue().expect("a queue");
    // A launch of one row, of several planes, and of more rows than some devices have groups for along an axis.
    for (shape, start, end) in [
        ([1, 1, 300], [0, 0, 0], [1, 1, 300]),
        ([4, 9, 70], [1, 2, 3], [4, 8, 69]),
        ([2, 263_000, 1], [0, 0, 0], [2, 263_000, 1]),
    ] {
        let points: usize = shape.iter().product();
        let [host, input, output] =
            [pinned(driver, 4 * points), on_device(driver, 4 * points), on_device(driver, 4 * points)];
        let values: Vec<i32> = (0..points as i32).collect();
        fill(&host, &values);
        copy(&mut queue, &host, &input);
        let wide = |sizes: [usize; 3]| sizes.map(|size| size as u64);
        let tile: Vec<u64> = wide(start).into_iter().chain(wide(end)).collect();
        let extents: Vec<u64> = wide(shape).into_iter().chain([1]).collect();
        let address = |memory: &DeviceMemory| Value::Pointer(memory.base().as_ptr().cast_const().cast());
        let arguments = [
            Value::U64s(&tile),
            address(&input),
            Value::U64s(&extents),
            address(&output),
            Value::U64s(&extents),
        ];
        let [planes, rows, columns]: [usize; 3] = std::array::from_fn(|axis| end[axis] - start[axis]);
        // SAFETY: the arguments are those of the text, and the memory is kept until the queue has come to rest.
        unsafe { queue.launch("twice", &mut kernel, &arguments, [columns, rows, planes]) }.expect("a launch");
        copy(&mut queue, &output, &host);
        queue.finish().expect("nothing fails");
        let found = shown::<i32>(&host);
        for (index, (found, value)) in found.into_iter().zip(values).enumerate() {
            let at = [index / shape[2] / shape[1], index / shape[2] % shape[1], index % shape[2]];
            let is_inside = (0..3).all(|axis| (start[axis]..end[axis]).contains(&at[axis]));
            let expected = if is_inside { 2 * value + (at[0] + 3 * at[1] + 7 * at[2]) as i32 } else { 0 };
            assert_eq!(found, expected, "{at:?} of {shape:?}");
        }
    }
}

/// Words that all sides address, each on a line of its own.
struct Words(DeviceMemory);

impl Words {
    fn new<D: Driver>(driver: &D) -> Self {
        Self(pinned(driver, 64 * 64))
    }

    fn raw(&self, line: usize) -> *const c_void {
        self.0.base().as_ptr().cast_const().wrapping_add(64 * line).cast()
    }

    fn address(&self, line: usize) -> Value<'_> {
        Value::Pointer(self.raw(line))
    }

    fn at(&self, line: usize) -> &AtomicU32 {
        assert!(line < 64);
        let word = self.0.base().as_ptr().wrapping_add(64 * line).cast();
        // SAFETY: aligned memory of the host that lives as long as `self`, used as an atomic by all.
        unsafe { AtomicU32::from_ptr(word) }
    }
}

/// Of the words, by lines: what kernels that wait look at.
const STOP: usize = 62;
const FAILED: usize = 63;

/// The kernels of streams that wait and signal, on words.
struct Signals<'a, D: Driver> {
    words: &'a Words,
    wait: D::Kernel,
    signal: D::Kernel,
}

impl<'a, D: Driver> Signals<'a, D> {
    fn new(driver: &D, program: &D::Program, words: &'a Words) -> Self {
        let kernel = |name| driver.kernel(program, name, &[]).expect("streams have it");
        Self { words, wait: kernel("halo_wait"), signal: kernel("halo_signal") }
    }

    fn wait(&mut self, queue: &mut D::Queue, line: usize, value: u32) {
        self.wait_on(queue, line, [Value::Pointer(std::ptr::null()), Value::U32(value)]);
    }

    /// For what a count and a value make.
    fn wait_on(&mut self, queue: &mut D::Queue, line: usize, [base, value]: [Value<'_>; 2]) {
        let none = Value::Pointer(std::ptr::null());
        let [word, stop, failed] = [line, STOP, FAILED].map(|line| self.words.address(line));
        let arguments = [word, none, none, none, stop, failed, base, value, none, Value::U32(0)];
        // SAFETY: the arguments are those of the text; tests keep the words until the queue has come to rest.
        unsafe { queue.launch("a wait", &mut self.wait, &arguments, [1; 3]) }.expect("a launch");
    }

    fn signal(&mut self, queue: &mut D::Queue, line: usize, value: u32, increments: bool) {
        self.signal_on(queue, line, [Value::Pointer(std::ptr::null()), Value::U32(value)], increments);
    }

    fn signal_on(
        &mut self,
        queue: &mut D::Queue,
        line: usize,
        [base, value]: [Value<'_>; 2],
        increments: bool,
    ) {
        let none = Value::Pointer(std::ptr::null());
        let [word, failed] = [line, FAILED].map(|line| self.words.address(line));
        let arguments = [word, none, none, none, failed, base, value, Value::U32(increments.into())];
        // SAFETY: as above.
        unsafe { queue.launch("a signal", &mut self.signal, &arguments, [1; 3]) }.expect("a launch");
    }
}

/// Until something is so; a watchdog of the test's.
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let since = Instant::now();
    while !is_so() {
        assert!(since.elapsed() < PATIENCE, "{what} has not come");
        std::thread::sleep(Duration::from_micros(50));
    }
}

/// Whether kernels of it can wait and signal, and how many at a time.
fn waiters<D: Driver>(driver: &D) -> usize {
    let traits = driver.traits();
    if !traits.kernels_signal {
        println!(
            "skipped: kernels that wait on {}: it has no atomic operations of all devices",
            driver.name()
        );
        return 0;
    }
    traits.compute_units.saturating_sub(1) as usize
}

pub(super) fn commands_of_a_queue_run_in_order<D: Driver>(driver: &D) {
    if waiters(driver) == 0 {
        return;
    }
    let _turn = TURNS.lock().unwrap_or_else(PoisonError::into_inner);
    let program = driver.own_program().expect("it compiles");
    let words = Words::new(driver);
    let mut signals = Signals::new(driver, &program, &words);
    let mut queue = driver.open_queue().expect("a queue");
    let before = queue.mark().expect("a mark");
    signals.wait(&mut queue, 0, 3);
    let behind = queue.mark().expect("a mark");
    signals.signal(&mut queue, 1, 5, false);
    signals.signal(&mut queue, 1, 2, true);
    let end = queue.mark().expect("a mark");
    queue.flush().expect("nothing fails");
    until("what is before the wait", || queue.has_passed(&before));
    std::thread::sleep(Duration::from_millis(20));
    let so_far = [queue.has_passed(&behind), queue.has_passed(&end)];
    let told = words.at(1).load(Ordering::Acquire);
    // Before the checks: kernels that wait outlast a test that fails, and the queue waits for them.
    words.at(0).store(3, Ordering::Release);
    assert_eq!((so_far, told), ([false; 2], 0));
    until("the end", || queue.has_passed(&end));
    assert_eq!((queue.has_passed(&behind), words.at(1).load(Ordering::Acquire)), (true, 7));
    queue.finish().expect("nothing fails");
    // Stopped, a wait says so, and nothing behind it signals.
    signals.wait(&mut queue, 2, 1);
    signals.signal(&mut queue, 3, 1, false);
    queue.flush().expect("nothing fails");
    words.at(STOP).store(1, Ordering::Release);
    queue.finish().expect("nothing fails");
    assert_eq!([FAILED, 3].map(|line| words.at(line).load(Ordering::Acquire)), [1, 0]);
}

pub(super) fn kernels_of_two_queues_tell_each_other<D: Driver>(driver: &D) {
    if waiters(driver) == 0 {
        return;
    }
    let _turn = TURNS.lock().unwrap_or_else(PoisonError::into_inner);
    let program = driver.own_program().expect("it compiles");
    let words = Words::new(driver);
    let mut signals = Signals::new(driver, &program, &words);
    let (mut one, mut other) = (driver.open_queue().expect("a queue"), driver.open_queue().expect("a queue"));
    let [source, target] = [0, 1].map(|_| on_device(driver, 1 << 16));
    let [start, end] = [0, 1].map(|_| pinned(driver, 1 << 16));
    // Values go past the wrap of the words.
    words.at(0).store(u32::MAX - 2, Ordering::Release);
    for round in 0..8_u32 {
        let value = round.wrapping_add(u32::MAX - 1);
        fill(&start, &[round as u8 + 1; 1 << 16]);
        signals.wait(&mut other, 0, value);
        copy(&mut other, &target, &end);
        other.flush().expect("nothing fails");
        copy(&mut one, &start, &source);
        copy(&mut one, &source, &target);
        signals.signal(&mut one, 0, value, false);
        one.flush().expect("nothing fails");
        for queue in [&mut one, &mut other] {
            queue.finish().expect("nothing fails");
        }
        assert!(shown::<u8>(&end).iter().all(|byte| *byte == round as u8 + 1), "round {round}");
    }
}

pub(super) fn every_queue_can_wait_at_once<D: Driver>(driver: &D) {
    let most = waiters(driver).min(driver.traits().waiting_queues as usize).min(16);
    if most == 0 {
        return;
    }
    let _turn = TURNS.lock().unwrap_or_else(PoisonError::into_inner);
    let program = driver.own_program().expect("it compiles");
    let words = Words::new(driver);
    let mut signals = Signals::new(driver, &program, &words);
    let mut queues: Vec<D::Queue> = (0..=most).map(|_| driver.open_queue().expect("a queue")).collect();
    // Each of the first waits for what comes after the wait of the next one; the last does not wait.
    for (line, queue) in queues.iter_mut().enumerate() {
        if line < most {
            signals.wait(queue, line + 1, 1);
        }
        signals.signal(queue, line, 1, false);
        queue.flush().expect("nothing fails");
    }
    let since = Instant::now();
    while words.at(0).load(Ordering::Acquire) == 0 && since.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_micros(50));
    }
    let has_come = words.at(0).load(Ordering::Acquire) == 1;
    // Whatever waits is let go, so that queues can be closed.
    words.at(STOP).store(1, Ordering::Release);
    queues.iter_mut().for_each(|queue| queue.finish().expect("nothing fails"));
    assert!(has_come, "{most} kernels that wait keep one from running that does not");
}

pub(super) fn queues_store_and_wait_for_words_themselves<D: Driver>(driver: &D) {
    if !driver.traits().has_memory_operations {
        return;
    }
    let words = Words::new(driver);
    let mut queue = driver.open_queue().expect("a queue");
    for start in [0, (1 << 31) - 2, u32::MAX - (1 << 20) - 2, u32::MAX - 3, u32::MAX] {
        words.at(0).store(start, Ordering::Release);
        for step in 1..=5_u32 {
            let value = start.wrapping_add(step);
            words.at(1).store(0, Ordering::Release);
            // SAFETY: words of the host's memory that kernels reach, kept until the queue has come to rest.
            unsafe { queue.wait_word(words.raw(0), value) }.expect("a wait");
            // SAFETY: as above.
            unsafe { queue.write_word(words.raw(1), 1000 + step) }.expect("a store");
            queue.flush().expect("nothing fails");
            std::thread::sleep(Duration::from_millis(2));
            let so_far = words.at(1).load(Ordering::Acquire);
            words.at(0).store(value, Ordering::Release);
            queue.finish().expect("nothing fails");
            assert_eq!((so_far, words.at(1).load(Ordering::Acquire)), (0, 1000 + step), "{start} + {step}");
        }
    }
}

/// The arguments of a recorded kernel stay what they were; what it finds in memory does not.
pub(super) fn graphs_repeat_what_was_recorded<D: Driver>(driver: &D) {
    if !driver.traits().has_graphs || waiters(driver) == 0 {
        println!("skipped: graphs on {}: it has none, or no kernels that signal", driver.name());
        return;
    }
    let _turn = TURNS.lock().unwrap_or_else(PoisonError::into_inner);
    let program = driver.own_program().expect("it compiles");
    let words = Words::new(driver);
    let mut signals = Signals::new(driver, &program, &words);
    let mut queue = driver.open_queue().expect("a queue");
    let kernel = |name| driver.kernel(&program, name, &[]).expect("streams have it");
    let (mut set, mut move_on) = (kernel("halo_set"), kernel("halo_move_on"));
    let counts = on_device(driver, 8);
    let strides = pinned(driver, 8);
    fill(&strides, &[5_u32, 7]);
    let [counts, strides]: [*const c_void; 2] =
        [&counts, &strides].map(|memory| memory.base().as_ptr().cast_const().cast());
    let second = Value::Pointer(counts.wrapping_byte_add(4));
    queue.begin_graph().expect("it has graphs");
    // Once word 0 has come to the first count and 3, word 1 becomes the second count and 1000.
    signals.wait_on(&mut queue, 0, [Value::Pointer(counts), Value::U32(3)]);
    signals.signal_on(&mut queue, 1, [second, Value::U32(1000)], false);
    let arguments = [Value::Pointer(counts), Value::Pointer(strides), Value::U64(2)];
    // SAFETY: the arguments are those of the text, and the memory stays until the queue has come to rest.
    unsafe { queue.launch("counts", &mut move_on, &arguments, [2, 1, 1]) }.expect("a launch");
    let mut graph = queue.end_graph().expect("it is complete");
    queue.finish().expect("there is nothing on it");
    assert_eq!(words.at(1).load(Ordering::Acquire), 0, "recording runs nothing");
    // Other kernels in between, with other arguments.
    signals.signal(&mut queue, 2, 77, false);
    for (index, start) in [10_u32, u32::MAX - 20].into_iter().enumerate() {
        words.at(0).store(start, Ordering::Release);
        words.at(1).store(0, Ordering::Release);
        for (count, moved) in [(0, start), (1, 100)] {
            let arguments = [Value::Pointer(counts), Value::U32(count), Value::U32(moved)];
            // SAFETY: as above.
            unsafe { queue.launch("a count", &mut set, &arguments, [1; 3]) }.expect("a launch");
        }
        for _ in 0..4 {
            // SAFETY: as above; the graph outlives what is on the queue.
            unsafe { queue.launch_graph(&mut graph) }.expect("a launch");
        }
        let behind = queue.mark().expect("a mark");
        queue.flush().expect("nothing fails");
        for replay in 0..4_u32 {
            std::thread::sleep(Duration::from_millis(5));
            let so_far = words.at(1).load(Ordering::Acquire);
            let has_passed = queue.has_passed(&behind);
            words.at(0).store(start.wrapping_add(5 * replay + 3), Ordering::Release);
            let last = if replay == 0 { 0 } else { 1100 + 7 * (replay - 1) };
            assert_eq!((so_far, has_passed), (last, false), "replay {replay} from {start}, {index}");
            until("the signal", || words.at(1).load(Ordering::Acquire) == 1100 + 7 * replay);
        }
        queue.finish().expect("nothing fails");
    }
    assert_eq!(words.at(2).load(Ordering::Acquire), 77);
}

pub(super) fn what_is_wrong_is_refused<D: Driver>(driver: &D) {
    match driver.build(&WRONG).err().expect("it is nonsense") {
        Error::KernelDidNotCompile { kernel, log, .. } => {
            assert_eq!(kernel, "wrong");
            assert!(log.contains("nonsense") && log.contains("wrong:3:"), "{log}");
        }
        other => panic!("{other}"),
    }
    let program = driver.build(&TWICE).expect("it is right");
    let refused = driver.kernel(&program, "thrice", &[]).err().expect("there is no such kernel");
    assert!(matches!(refused, Error::DeviceUnavailable { .. }), "{refused}");
    let bytes = 1 << 44;
    let refused = driver.allocate(bytes, MemoryKind::Device).expect_err("16 TiB");
    assert!(matches!(refused, Error::OutOfMemory { bytes: asked, .. } if asked == bytes), "{refused}");
    assert!(driver.allocate(64, MemoryKind::Device).is_ok(), "the device goes on");
}

/// Whether other processes can reach its memory.
fn is_shared<D: Driver>(driver: &D) -> bool {
    match driver.identity() {
        Ok(identity) => {
            assert_eq!(driver.identity(), Ok(identity.clone()), "always the same");
            assert_eq!(driver.reaches(&identity), Ok(()), "its own");
            assert!(driver.reaches("another device").is_err());
            true
        }
        Err(reason) => {
            println!("skipped: memory of {} between processes: {reason}", driver.name());
            false
        }
    }
}

pub(super) fn memory_of_the_host_is_registered<D: Driver>(driver: &D) {
    if !is_shared(driver) {
        return;
    }
    let fabric = LocalFabric::ends(1).expect("memory").remove(0);
    let (region, bytes) = (fabric.allocate(3 * 4096).expect("memory"), 3 * 4096);
    let registered = driver.register(&region).expect("memory of the host");
    assert_eq!((registered.base().as_ptr(), registered.bytes()), (region.base(), bytes));
    assert!(registered.host_reaches() && registered.kernels_reach() && registered.device() == driver.id());
    let mut queue = driver.open_queue().expect("a queue");
    let (memory, pattern) = (on_device(driver, bytes), vec![5_u8; bytes]);
    fill(&registered, &pattern);
    copy(&mut queue, &registered, &memory);
    queue.finish().expect("nothing fails");
    fill(&registered, &vec![0_u8; bytes]);
    copy(&mut queue, &memory, &registered);
    queue.finish().expect("nothing fails");
    assert_eq!(region.read_bytes(0, bytes), Ok(pattern));
    // Kernels wait for its words and signal them.
    if waiters(driver) == 0 {
        return;
    }
    let _turn = TURNS.lock().unwrap_or_else(PoisonError::into_inner);
    fill(&registered, &vec![0_u8; bytes]);
    let program = driver.own_program().expect("it compiles");
    let words = Words(registered);
    let mut signals = Signals::new(driver, &program, &words);
    signals.wait(&mut queue, 0, 3);
    signals.signal(&mut queue, 1, 7, false);
    queue.flush().expect("nothing fails");
    std::thread::sleep(Duration::from_millis(20));
    let so_far = words.at(1).load(Ordering::Acquire);
    words.at(0).store(3, Ordering::Release);
    queue.finish().expect("nothing fails");
    assert_eq!((so_far, words.at(1).load(Ordering::Acquire)), (0, 7));
}

pub(super) fn memory_is_exported_and_imported<D: Driver>(driver: &D) {
    if !is_shared(driver) {
        return;
    }
    let mut queue = driver.open_queue().expect("a queue");
    let exportable = |bytes| driver.allocate(bytes, MemoryKind::Exportable).expect("memory");
    for bytes in [1, 64, 5000, 9 << 20] {
        // Others before it and behind it, which must stay what they are.
        let [before, memory, behind] = [bytes, bytes, 64].map(exportable);
        let (end, start) = (pinned(driver, bytes), pinned(driver, bytes));
        let pattern: Vec<u8> = (0..bytes).map(|index| (index * 37 % 251) as u8).collect();
        fill(&start, &pattern);
        // One allocation exported twice, and each handle imported twice.
        let handles = [0, 1].map(|_| driver.export(&memory).expect("a handle"));
        let imports: Vec<DeviceMemory> =
            [0, 0, 1, 1].iter().map(|which| driver.import(&handles[*which]).expect("it is there")).collect();
        for imported in &imports {
            assert!(
                imported.bytes() == bytes && imported.device() == driver.id() && imported.kernels_reach()
            );
            copy(&mut queue, imported, &end);
            queue.finish().expect("nothing fails");
            assert_eq!(shown::<u8>(&end), vec![0; bytes], "{bytes} bytes");
        }
        copy(&mut queue, &start, &imports[3]);
        for seen in [&imports[0], &memory] {
            copy(&mut queue, seen, &end);
            queue.finish().expect("nothing fails");
            assert!(shown::<u8>(&end) == pattern, "{bytes} bytes");
        }
        drop(imports);
        copy(&mut queue, &memory, &end);
        queue.finish().expect("nothing fails");
        assert!(shown::<u8>(&end) == pattern, "it outlives what was imported");
        for other in [&before, &behind] {
            copy(&mut queue, other, &end);
            queue.finish().expect("nothing fails");
            assert!(shown::<u8>(&end)[..bytes.min(other.bytes())].iter().all(|byte| *byte == 0));
        }
    }
    let refused = driver.import(b"no handle").expect_err("it is none");
    assert!(matches!(refused, Error::DeviceUnavailable { .. }), "{refused}");
}
