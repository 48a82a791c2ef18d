//! Kernels and queues that wait for words and signal them.

use super::{copy, fill, on_device, pinned, shown};
use crate::device::accelerator::DeviceMemory;
use crate::device::driver::{CommandQueue, Driver, Groups, Value};
use crate::locks::lock;
use std::ffi::c_void;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// Devices may have one compute unit only for kernels that wait: tests whose kernels do take turns.
static TURNS: Mutex<()> = Mutex::new(());

/// Long enough for any kernel of a test, on any machine.
const PATIENCE: Duration = Duration::from_secs(20);

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
const CURRENT: usize = 61;
const FAILED: usize = 63;

/// The kernels of streams that wait and signal, on words.
struct Signals<D: Driver> {
    program: D::Program,
    words: Words,
    wait: D::Kernel,
    signal: D::Kernel,
}

impl<D: Driver> Signals<D> {
    /// In turn with other tests; `None` where kernels cannot wait.
    fn in_turn(driver: &D, words: Words) -> Option<(Self, MutexGuard<'static, ()>)> {
        if waiters(driver) == 0 {
            return None;
        }
        let turn = lock(&TURNS);
        let program = driver.own_program().expect("it compiles");
        let kernel = |name| driver.kernel(&program, name, &[]).expect("streams have it");
        let (wait, signal) = (kernel("halo_wait"), kernel("halo_signal"));
        Some((Self { program, words, wait, signal }, turn))
    }

    fn at(&self, line: usize) -> &AtomicU32 {
        self.words.at(line)
    }

    fn wait(&mut self, queue: &mut D::Queue, line: usize, value: u32) {
        self.wait_on(queue, line, [Value::Pointer(std::ptr::null()), Value::U32(value)]);
    }

    /// For what a count and a value make.
    fn wait_on(&mut self, queue: &mut D::Queue, line: usize, [base, value]: [Value<'_>; 2]) {
        let none = Value::Pointer(std::ptr::null());
        let [word, stop, failed, current] =
            [line, STOP, FAILED, CURRENT].map(|line| self.words.address(line));
        let arguments = [word, none, none, none, stop, failed, base, value, current, Value::U32(1)];
        // SAFETY: the arguments are those of the text; tests keep the words until the queue has come to rest.
        unsafe { queue.launch("a wait", &mut self.wait, &arguments, Groups::ForThreads([1; 3])) }
            .expect("a launch");
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
        unsafe { queue.launch("a signal", &mut self.signal, &arguments, Groups::ForThreads([1; 3])) }
            .expect("a launch");
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

pub(in crate::device) fn commands_of_a_queue_run_in_order<D: Driver>(driver: &D) {
    let Some((mut signals, _turn)) = Signals::in_turn(driver, Words::new(driver)) else { return };
    let mut queue = driver.open_queue(None).expect("a queue");
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
    let told = signals.at(1).load(Ordering::Acquire);
    // Before the checks: kernels that wait outlast a test that fails, and the queue waits for them.
    signals.at(0).store(3, Ordering::Release);
    assert_eq!((so_far, told), ([false; 2], 0));
    until("the end", || queue.has_passed(&end));
    assert_eq!((queue.has_passed(&behind), signals.at(1).load(Ordering::Acquire)), (true, 7));
    queue.finish().expect("nothing fails");
    // Stopped, a wait says so, and nothing behind it signals.
    signals.wait(&mut queue, 2, 1);
    signals.signal(&mut queue, 3, 1, false);
    queue.flush().expect("nothing fails");
    signals.at(STOP).store(1, Ordering::Release);
    queue.finish().expect("nothing fails");
    assert_eq!([FAILED, 3].map(|line| signals.at(line).load(Ordering::Acquire)), [1, 0]);
}

pub(in crate::device) fn copies_apart_do_not_wait_for_kernels<D: Driver>(driver: &D) {
    let Some((mut signals, _turn)) = Signals::in_turn(driver, Words::new(driver)) else { return };
    let (start, end, memory) = (pinned(driver, 5000), pinned(driver, 5000), on_device(driver, 5000));
    let mut queue = driver.open_queue(None).expect("a queue");
    fill(&start, &[7_u8; 5000]);
    signals.wait(&mut queue, 0, 1);
    copy(&mut queue, &memory, &end);
    queue.flush().expect("nothing fails");
    let is_in_time = std::thread::scope(|scope| {
        // SAFETY: both have that many bytes; the queue copies one of them only once the word has come.
        let copy = || unsafe { driver.copy_apart(start.base().as_ptr(), memory.base().as_ptr(), 5000) };
        let copying = scope.spawn(move || copy().expect("nothing fails"));
        let since = Instant::now();
        while !copying.is_finished() && since.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_micros(50));
        }
        let is_in_time = copying.is_finished();
        // In any case: else nothing here would end.
        signals.at(0).store(1, Ordering::Release);
        is_in_time
    });
    queue.finish().expect("nothing fails");
    assert!(is_in_time, "it has waited for a kernel");
    assert_eq!(shown::<u8>(&end), vec![7; 5000]);
}

pub(in crate::device) fn kernels_of_two_queues_tell_each_other<D: Driver>(driver: &D) {
    let Some((mut signals, _turn)) = Signals::in_turn(driver, Words::new(driver)) else { return };
    let (mut one, mut other) =
        (driver.open_queue(None).expect("a queue"), driver.open_queue(None).expect("a queue"));
    let [source, target] = [0, 1].map(|_| on_device(driver, 1 << 16));
    let [start, end] = [0, 1].map(|_| pinned(driver, 1 << 16));
    // Values go past the wrap of the words.
    signals.at(0).store(u32::MAX - 2, Ordering::Release);
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

pub(in crate::device) fn every_queue_can_wait_at_once<D: Driver>(driver: &D) {
    // One does not wait.
    let most = waiters(driver).min(driver.traits().queues as usize - 1).min(16);
    if most == 0 {
        return;
    }
    let Some((mut signals, _turn)) = Signals::in_turn(driver, Words::new(driver)) else { return };
    let mut queues: Vec<D::Queue> = (0..=most).map(|_| driver.open_queue(None).expect("a queue")).collect();
    // Each of the first waits for what comes after the wait of the next one; the last does not wait.
    for (line, queue) in queues.iter_mut().enumerate() {
        if line < most {
            signals.wait(queue, line + 1, 1);
        }
        signals.signal(queue, line, 1, false);
        queue.flush().expect("nothing fails");
    }
    let since = Instant::now();
    while signals.at(0).load(Ordering::Acquire) == 0 && since.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_micros(50));
    }
    let has_come = signals.at(0).load(Ordering::Acquire) == 1;
    // Whatever waits is let go, so that queues can be closed.
    signals.at(STOP).store(1, Ordering::Release);
    queues.iter_mut().for_each(|queue| queue.finish().expect("nothing fails"));
    assert!(has_come, "{most} kernels that wait keep one from running that does not");
}

/// As `piece` and `chunk` of the text have it: one run of so many words of four bytes, and so many chunks of it.
fn moves_of(ends: [&DeviceMemory; 2], (chunks, length): (u64, usize), all: usize) -> Vec<u64> {
    let [source, destination] = ends.map(|memory| memory.base().as_ptr() as u64);
    let piece = [source, destination, 0, 0, 0, 0, 1 | (all as u64) << 32, all as u64 | 4 << 32];
    piece.into_iter().chain((0..chunks).map(|chunk| (chunk * length as u64) << 32)).collect()
}

/// That entry of a table of long numbers.
fn entry_of(table: &DeviceMemory, entry: usize) -> Value<'static> {
    let first = table.base().as_ptr().cast_const().cast::<u64>();
    Value::Pointer(first.wrapping_add(entry).cast())
}

/// A kernel moves, tells words that it has, and before that others what was to be told before; or nothing, once a wait was
/// stopped.
pub(in crate::device) fn a_send_tells_what_was_to_be_told_before<D: Driver>(driver: &D) {
    let Some((signals, _turn)) = Signals::in_turn(driver, Words::new(driver)) else { return };
    let mut queue = driver.open_queue(None).expect("a queue");
    let mut send = driver.kernel(&signals.program, "halo_send", &[]).expect("streams have it");
    let group = driver.traits().group_threads;
    for groups in [1, 3] {
        let (length, all) = (4 * group, 4 * group * groups - 3);
        let [source, destination] = [(); 2].map(|()| pinned(driver, size_of::<u32>() * all));
        let numbers: Vec<u32> = (0..all as u32).map(|number| 7 * number + groups as u32).collect();
        fill(&source, &numbers);
        let tables = pinned(driver, 256);
        let moves = moves_of([&source, &destination], (groups as u64, length), all);
        // Words 0 and 1 are told before, and 2 behind; of each whether it becomes one more.
        let notices = [(0, 0), (1, 1), (2, 0)].map(|(line, more)| [signals.words.raw(line) as u64, more]);
        fill(&tables, &[&moves[..], &[0], notices.as_flattened()].concat());
        let (chunks, done) = (8, 8 + groups);
        for (stopped, told_before, expected) in
            [(0, 2, [41, 101, 42]), (0, 0, [40, 100, 42]), (0, 1, [41, 100, 42]), (1, 2, [40, 100, 40])]
        {
            fill(&destination, &vec![0_u32; all]);
            [40, 100, 40]
                .into_iter()
                .enumerate()
                .for_each(|(line, value)| signals.at(line).store(value, Ordering::Release));
            signals.at(FAILED).store(stopped, Ordering::Release);
            let null = Value::Pointer(std::ptr::null());
            let moves = [entry_of(&tables, 0), entry_of(&tables, chunks), Value::U32(groups as u32)];
            let tells =
                [entry_of(&tables, done), entry_of(&tables, done + 5), Value::U64(1), null, Value::U32(42)];
            let before = [entry_of(&tables, done + 1), Value::U64(told_before), null, Value::U32(41)];
            let arguments =
                [&[signals.words.address(FAILED)][..], &moves, &[Value::U32(length as u32)], &tells, &before]
                    .concat();
            // SAFETY: the arguments are those of the text, and the memory stays until the queue has come to rest.
            unsafe {
                queue.launch("a send", &mut send, &arguments, Groups::ForThreads([groups * group, 1, 1]))
            }
            .expect("a launch");
            queue.finish().expect("nothing fails");
            let found = [0, 1, 2].map(|line| signals.at(line).load(Ordering::Acquire));
            assert_eq!(found, expected, "{groups} groups, {told_before} words before, stopped: {stopped}");
            let moved = if stopped == 0 { numbers.clone() } else { vec![0; all] };
            assert!(shown::<u32>(&destination) == moved, "{groups} groups, stopped: {stopped}");
        }
    }
}

/// A kernel waits for a word, and then moves what has arrived, chunk by chunk.
pub(in crate::device) fn what_has_arrived_is_moved_behind_the_wait<D: Driver>(driver: &D) {
    let Some((signals, _turn)) = Signals::in_turn(driver, Words::new(driver)) else { return };
    let mut queue = driver.open_queue(None).expect("a queue");
    let mut arrive = driver.kernel(&signals.program, "halo_arrive", &[]).expect("streams have it");
    let group = driver.traits().group_threads;
    let length = 4 * group;
    let all = 5 * length - 3;
    let [source, destination] = [(); 2].map(|()| pinned(driver, size_of::<u32>() * all));
    fill(&destination, &vec![0_u32; all]);
    // Behind the moves the word that is waited for.
    let tables = pinned(driver, 128);
    let word = signals.words.raw(0) as u64;
    fill(&tables, &[&moves_of([&source, &destination], (5, length), all)[..], &[word]].concat());
    let table = |entry: usize| entry_of(&tables, entry);
    let numbers = |epoch: u32| -> Vec<u32> { (0..all as u32).map(|number| number + 1000 * epoch).collect() };
    let mut launch = |queue: &mut D::Queue, epoch: u32| {
        let [stop, failed, current] = [STOP, FAILED, CURRENT].map(|line| signals.words.address(line));
        let wait = [table(13), Value::U64(1), stop, failed, Value::Pointer(std::ptr::null())];
        let number = [Value::U32(epoch), current, Value::U32(7)];
        let moves = [table(0), table(8), Value::U32(5), Value::U32(length as u32)];
        let arguments = [&wait[..], &number, &moves].concat();
        // SAFETY: the arguments are those of the text, and the memory stays until the queue has come to rest.
        unsafe { queue.launch("a wait", &mut arrive, &arguments, Groups::ForThreads([group, 1, 1])) }
            .expect("a launch");
        queue.flush().expect("nothing fails");
    };
    for epoch in 1..=3 {
        fill(&source, &numbers(epoch));
        launch(&mut queue, epoch);
        until("the wait", || signals.at(CURRENT).load(Ordering::Acquire) == 7);
        let before = if epoch == 1 { vec![0; all] } else { numbers(epoch - 1) };
        assert!(shown::<u32>(&destination) == before, "it has not waited for epoch {epoch}");
        signals.at(CURRENT).store(0, Ordering::Release);
        signals.at(0).store(epoch, Ordering::Release);
        queue.finish().expect("nothing fails");
        assert!(shown::<u32>(&destination) == numbers(epoch), "epoch {epoch} was not moved");
    }
    // Stopped, it moves nothing.
    signals.at(STOP).store(1, Ordering::Release);
    fill(&source, &numbers(9));
    launch(&mut queue, 4);
    queue.finish().expect("nothing fails");
    assert!(shown::<u32>(&destination) == numbers(3), "what has not arrived was moved");
    assert_eq!(signals.at(FAILED).load(Ordering::Acquire), 1);
}

pub(in crate::device) fn queues_store_and_wait_for_words_themselves<D: Driver>(driver: &D) {
    if !driver.traits().has_memory_operations {
        return;
    }
    let words = Words::new(driver);
    let mut queue = driver.open_queue(None).expect("a queue");
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
pub(in crate::device) fn graphs_repeat_what_was_recorded<D: Driver>(driver: &D) {
    if !driver.traits().has_graphs {
        println!("skipped: graphs on {}: it has none", driver.name());
        return;
    }
    let Some((mut signals, _turn)) = Signals::in_turn(driver, Words::new(driver)) else { return };
    let mut queue = driver.open_queue(None).expect("a queue");
    let kernel = |name| driver.kernel(&signals.program, name, &[]).expect("streams have it");
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
    let current = signals.words.address(CURRENT);
    let arguments = [Value::Pointer(counts), Value::Pointer(strides), Value::U64(2), current];
    // SAFETY: the arguments are those of the text, and the memory stays until the queue has come to rest.
    unsafe { queue.launch("counts", &mut move_on, &arguments, Groups::ForThreads([2, 1, 1])) }
        .expect("a launch");
    let mut graph = queue.end_graph().expect("it is complete");
    queue.finish().expect("there is nothing on it");
    assert_eq!(signals.at(1).load(Ordering::Acquire), 0, "recording runs nothing");
    // Other kernels in between, with other arguments.
    signals.signal(&mut queue, 2, 77, false);
    for (index, start) in [10_u32, u32::MAX - 20].into_iter().enumerate() {
        signals.at(0).store(start, Ordering::Release);
        signals.at(1).store(0, Ordering::Release);
        for (count, moved) in [(0, start), (1, 100)] {
            let arguments = [Value::Pointer(counts), Value::U32(count), Value::U32(moved)];
            // SAFETY: as above.
            unsafe { queue.launch("a count", &mut set, &arguments, Groups::ForThreads([1; 3])) }
                .expect("a launch");
        }
        for _ in 0..4 {
            // SAFETY: as above; the graph outlives what is on the queue.
            unsafe { queue.launch_graph(&mut graph) }.expect("a launch");
        }
        let behind = queue.mark().expect("a mark");
        queue.flush().expect("nothing fails");
        for replay in 0..4_u32 {
            std::thread::sleep(Duration::from_millis(5));
            let so_far = signals.at(1).load(Ordering::Acquire);
            let has_passed = queue.has_passed(&behind);
            signals.at(0).store(start.wrapping_add(5 * replay + 3), Ordering::Release);
            let last = if replay == 0 { 0 } else { 1100 + 7 * (replay - 1) };
            assert_eq!((so_far, has_passed), (last, false), "replay {replay} from {start}, {index}");
            until("the signal", || signals.at(1).load(Ordering::Acquire) == 1100 + 7 * replay);
        }
        queue.finish().expect("nothing fails");
    }
    assert_eq!(signals.at(2).load(Ordering::Acquire), 77);
}

/// Kernels wait for words in that memory, and signal them.
pub(super) fn kernels_use_words<D: Driver>(driver: &D, queue: &mut D::Queue, memory: DeviceMemory) {
    let Some((mut signals, _turn)) = Signals::in_turn(driver, Words(memory)) else { return };
    signals.wait(queue, 0, 3);
    signals.signal(queue, 1, 7, false);
    queue.flush().expect("nothing fails");
    std::thread::sleep(Duration::from_millis(20));
    let so_far = signals.at(1).load(Ordering::Acquire);
    signals.at(0).store(3, Ordering::Release);
    queue.finish().expect("nothing fails");
    assert_eq!((so_far, signals.at(1).load(Ordering::Acquire)), (0, 7));
}

/// A kernel waits for what arrives, moves it, tells what was to be told before the send, waits for the receivers, and sends.
pub(in crate::device) fn what_has_arrived_is_passed_on<D: Driver>(driver: &D) {
    let Some((signals, _turn)) = Signals::in_turn(driver, Words::new(driver)) else { return };
    let mut queue = driver.open_queue(None).expect("a queue");
    let mut relay = driver.kernel(&signals.program, "halo_relay", &[]).expect("streams have it");
    // More than one group's chunk, in the largest group that there may be.
    let group = driver.traits().most_group_threads;
    let (length, all) = (4 * group, 6 * group - 3);
    let [arrived, unpacked, sent] = [(); 3].map(|()| pinned(driver, size_of::<u32>() * all));
    // Moves, and addresses of what is awaited, of receivers, and of what is told before and behind.
    let [data, receiver, other_receiver, before, behind] = [0, 1, 2, 3, 4];
    let tables = pinned(driver, 512);
    let addresses = [data, receiver, other_receiver].map(|line| signals.words.raw(line) as u64);
    let notices = [before, behind].map(|line| [signals.words.raw(line) as u64, 0]);
    let parts = [
        &moves_of([&arrived, &unpacked], (2, length), all)[..],
        &moves_of([&unpacked, &sent], (2, length), all),
        &addresses,
        notices.as_flattened(),
    ];
    fill(&tables, &parts.concat());
    let table = |entry: usize| entry_of(&tables, entry);
    let (null, count) = (Value::Pointer(std::ptr::null()), [Value::U32(2), Value::U32(length as u32)]);
    let mut launch = |queue: &mut D::Queue, epoch: u32, receivers: u64| {
        let [stop, failed, current] = [STOP, FAILED, CURRENT].map(|line| signals.words.address(line));
        let wait = [table(20), Value::U64(1), stop, failed, null, Value::U32(epoch), current, Value::U32(7)];
        let receivers = [table(21), Value::U64(receivers), null, Value::U32(epoch + 100), Value::U32(8)];
        let moved = [table(0), table(8), count[0], count[1]];
        let sends = [table(10), table(18), count[0], table(25), Value::U64(1), null, Value::U32(epoch + 200)];
        let first = [table(23), Value::U64(1), null, Value::U32(epoch + 300)];
        let arguments = [&wait[..], &moved, &receivers, &sends, &first].concat();
        // SAFETY: the arguments are those of the text, and the memory stays until the queue has come to rest.
        unsafe { queue.launch("a wait", &mut relay, &arguments, Groups::One(group)) }.expect("a launch");
        queue.flush().expect("nothing fails");
    };
    let numbers = |epoch: u32| -> Vec<u32> { (0..all as u32).map(|number| number + 1000 * epoch).collect() };
    let says = |number: u32| signals.at(CURRENT).load(Ordering::Acquire) == number;
    let word = |line: usize| signals.at(line).load(Ordering::Acquire);
    fill(&unpacked, &vec![0_u32; all]);
    fill(&sent, &vec![0_u32; all]);
    let ready = |epoch: u32| {
        [receiver, other_receiver]
            .iter()
            .for_each(|line| signals.at(*line).store(epoch + 100, Ordering::Release));
    };
    // The receivers are late, ready before what arrives, and not asked.
    for (epoch, receivers, is_late) in [(1, 2, true), (2, 2, false), (3, 0, false)] {
        fill(&arrived, &numbers(epoch));
        if !is_late && receivers > 0 {
            ready(epoch);
        }
        launch(&mut queue, epoch, receivers);
        until("the wait", || says(7));
        assert!(
            shown::<u32>(&unpacked)[0] != 1000 * epoch && word(before) != epoch + 300,
            "{epoch}: it has not waited"
        );
        signals.at(data).store(epoch, Ordering::Release);
        if is_late {
            until("the receivers", || says(8));
            until("what they have to be told first", || word(before) == epoch + 300);
            assert_eq!(word(behind), 0, "they are not ready");
            assert!(shown::<u32>(&sent)[0] == 0, "they are not ready");
            ready(epoch);
        }
        queue.finish().expect("nothing fails");
        assert_eq!((word(before), word(behind)), (epoch + 300, epoch + 200));
        assert!(is_late || says(7), "{epoch}: it says that it waits for receivers that are ready");
        assert!(
            [&unpacked, &sent].iter().all(|memory| shown::<u32>(memory) == numbers(epoch)),
            "epoch {epoch}"
        );
        signals.at(CURRENT).store(0, Ordering::Release);
    }
    // Stopped while it waits for them it sends nothing.
    fill(&arrived, &numbers(9));
    signals.at(data).store(4, Ordering::Release);
    launch(&mut queue, 4, 1);
    until("the receivers", || says(8));
    signals.at(STOP).store(1, Ordering::Release);
    queue.finish().expect("nothing fails");
    assert!(shown::<u32>(&sent) == numbers(3), "receivers that are not ready were sent to");
    assert_eq!((word(before), word(behind), word(FAILED)), (304, 203, 1));
    // And stopped while it waits for what arrives, or once another wait was, nothing at all.
    launch(&mut queue, 5, 0);
    queue.finish().expect("nothing fails");
    signals.at(STOP).store(0, Ordering::Release);
    signals.at(data).store(6, Ordering::Release);
    launch(&mut queue, 6, 0);
    queue.finish().expect("nothing fails");
    assert!(shown::<u32>(&sent) == numbers(3));
    assert_eq!((word(before), word(behind)), (304, 203));
}
