//! What streams do on a queue that waits and signals by itself: on one that is a thread of the host, and has no
//! kernels.

use super::Engine;
use crate::device::accelerator::{Accelerator, DeviceMemory, Reach};
use crate::device::driver::{CommandQueue, Driver, MemoryKind, Traits, Value, next_id};
use crate::device::operation::{Rule, SignalSet, WaitSet, next_group};
use crate::device::text::KernelText;
use crate::device::{Buffer, Extents, Signals, Stream, StreamOptions, Waits, Ways};
use crate::error::{Error, Result};
use crate::fabric::{Executor, LocalFabric, Region, Role, Word};
use crate::timeline::now_ns;
use crate::world::{World, WorldOptions};
use std::collections::HashMap;
use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

/// A device with memory operations only, whose kernels fault if there are any.
#[derive(Debug)]
struct Threads {
    id: u64,
    traits: Traits,
    /// How often queues have come to rest because they were told to.
    rests: Arc<AtomicU64>,
}

#[repr(align(64))]
struct Line(#[allow(dead_code, reason = "only its size and place matter")] [u64; 8]);

impl Driver for Threads {
    type Queue = ThreadQueue;
    type Program = ();
    type Kernel = ();

    fn name(&self) -> &str {
        "threads"
    }

    fn id(&self) -> u64 {
        self.id
    }

    fn traits(&self) -> &Traits {
        &self.traits
    }

    fn allocate(&self, bytes: usize, _kind: MemoryKind) -> Result<DeviceMemory> {
        let lines: Vec<Line> = (0..bytes.div_ceil(64).max(1)).map(|_| Line([0; 8])).collect();
        let mut lines = lines.into_boxed_slice();
        let base = NonNull::new(lines.as_mut_ptr().cast()).expect("it is never empty");
        // SAFETY: aligned and that long, and in the box until it is dropped.
        Ok(unsafe { DeviceMemory::new(base, bytes, self.id, Reach::Both, Box::new(lines)) })
    }

    fn build(&self, _text: &KernelText) -> Result<()> {
        Ok(())
    }

    fn kernel(&self, (): &(), _name: &str, _reaches: &[*const c_void]) -> Result<()> {
        Ok(())
    }

    fn open_queue(&self) -> Result<ThreadQueue> {
        let (sender, commands) = channel::<Command>();
        let done = Arc::new(AtomicU64::new(0));
        let counter = done.clone();
        std::thread::spawn(move || {
            for command in commands {
                command();
                counter.fetch_add(1, Ordering::Release);
            }
        });
        let (times, rests) = (Arc::default(), self.rests.clone());
        Ok(ThreadQueue { sender, put: 0, done, faulted: Vec::new(), times, rests })
    }
}

type Command = Box<dyn FnOnce() + Send>;

struct ThreadQueue {
    sender: Sender<Command>,
    put: u64,
    done: Arc<AtomicU64>,
    faulted: Vec<String>,
    /// Of timed marks.
    times: Arc<Mutex<HashMap<u64, u64>>>,
    rests: Arc<AtomicU64>,
}

impl ThreadQueue {
    fn put(&mut self, command: impl FnOnce() + Send + 'static) -> Result<()> {
        self.put += 1;
        self.sender.send(Box::new(command)).expect("the thread runs as long as the queue");
        Ok(())
    }
}

/// A word of memory by its address, that the test keeps.
fn atomic(address: usize) -> &'static AtomicU32 {
    // SAFETY: the address of an aligned word that the test holds until its streams have come to rest.
    unsafe { AtomicU32::from_ptr(address as *mut u32) }
}

impl CommandQueue for ThreadQueue {
    type Kernel = ();
    type Mark = u64;
    type Graph = ();

    unsafe fn launch(&mut self, what: &str, (): &mut (), _: &[Value<'_>], _: [usize; 3]) -> Result<()> {
        self.faulted.push(what.to_owned());
        Ok(())
    }

    unsafe fn copy(&mut self, _: *const u8, _: *mut u8, _: usize) -> Result<()> {
        panic!("nothing is copied")
    }

    fn mark(&mut self) -> Result<u64> {
        Ok(self.put)
    }

    fn timed_mark(&mut self) -> Result<u64> {
        let (times, number) = (self.times.clone(), self.put + 1);
        self.put(move || {
            times.lock().expect("nobody panics").insert(number, now_ns());
        })?;
        Ok(number)
    }

    fn nanoseconds(&self, first: &u64, second: &u64) -> Result<i64> {
        let times = self.times.lock().expect("nobody panics");
        Ok(times[second].cast_signed() - times[first].cast_signed())
    }

    fn has_passed(&self, mark: &u64) -> bool {
        self.done.load(Ordering::Acquire) >= *mark
    }

    unsafe fn write_word(&mut self, word: *const c_void, value: u32) -> Result<()> {
        let address = word as usize;
        self.put(move || atomic(address).store(value, Ordering::Release))
    }

    unsafe fn wait_word(&mut self, word: *const c_void, value: u32) -> Result<()> {
        let address = word as usize;
        self.put(move || {
            while (atomic(address).load(Ordering::Acquire).wrapping_sub(value) as i32) < 0 {
                std::thread::sleep(Duration::from_micros(50));
            }
        })
    }

    fn flush(&mut self) -> Result<()> {
        Ok(())
    }

    fn finish(&mut self) -> Result<()> {
        self.rests.fetch_add(1, Ordering::Relaxed);
        let (sender, done) = mpsc::channel();
        self.put(move || sender.send(()).expect("somebody waits"))?;
        done.recv().expect("the thread runs as long as the queue");
        if self.faulted.is_empty() {
            return Ok(());
        }
        let (device, reason) = ("threads".into(), "ILLEGAL_ADDRESS".into());
        Err(Error::KernelFaulted { kernels: self.faulted.clone(), device, reason })
    }
}

fn device(has_memory_operations: bool) -> Arc<dyn Accelerator> {
    device_with(has_memory_operations, &Arc::default())
}

fn device_with(has_memory_operations: bool, rests: &Arc<AtomicU64>) -> Arc<dyn Accelerator> {
    let traits = Traits {
        compute_units: 1,
        group_threads: 1,
        is_gpu: true,
        has_doubles: true,
        host_reaches: true,
        kernels_signal: true,
        has_memory_operations,
        waiting_queues: 2,
        has_graphs: false,
        keeps_times: true,
    };
    Arc::new(
        Engine::new(Threads { id: next_id(), traits, rests: rests.clone() })
            .expect("there is nothing to compile"),
    )
}

/// A world of one rank that has little patience.
fn world() -> World {
    let options = WorldOptions { timeout: Some(Duration::from_millis(200)), ..WorldOptions::default() };
    World::new(LocalFabric::ends(1).expect("memory").remove(0), options).expect("a world")
}

/// By memory operations, and waiting so.
fn open(world: &World, device: &Arc<dyn Accelerator>, waits: Waits) -> Result<Stream> {
    let ways = Ways { waits, signals: Signals::Memop, ..Ways::default() };
    Stream::open(world, StreamOptions::default(), Some(device.clone()), ways)
}

fn words(region: &Region) -> [Word; 3] {
    [0, 64, 128].map(|offset| region.word(offset, Role::Completion, 0, 0).expect("it is in the region"))
}

fn wait_for(words: &[&Word]) -> Arc<WaitSet> {
    Arc::new(WaitSet::new(words.iter().map(|word| (*word).clone()).collect(), Vec::new(), next_group()))
}

fn set(word: &Word) -> Arc<SignalSet> {
    Arc::new(SignalSet { words: vec![word.clone()], rule: Rule::Set, wakes: true })
}

#[test]
fn a_queue_waits_and_signals_in_its_order_without_a_kernel() {
    let world = world();
    let stream = open(&world, &device(true), Waits::Auto).expect("a queue");
    assert_eq!(stream.executor(), Executor::Stream);
    let region = stream.allocate(&world, 192).expect("memory");
    let [first, second, told] = words(&region);
    first.cell().store(u32::MAX);
    second.cell().store(u32::MAX);
    // Past the wrap.
    stream.wait_values(&wait_for(&[&first, &second]), 1);
    stream.write_values(&set(&told), 7);
    second.set(1);
    first.set(0);
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(told.cell().load(), 0, "one has not come");
    first.set(2);
    stream.synchronize().expect("all have come");
    assert_eq!((told.cell().load(), stream.kernel_waits()), (7, 1));
}

#[test]
fn a_queue_tells_the_time_and_does_not_come_to_rest_for_it() {
    let (world, rests) = (world(), Arc::default());
    let stream = open(&world, &device_with(true, &rests), Waits::Auto).expect("a queue");
    let region = stream.allocate(&world, 192).expect("memory");
    let [awaited, told, _] = words(&region);
    let (sender, times) = channel();
    let read_clock = || {
        let sender = sender.clone();
        stream.enqueue_clock(move |at_ns| sender.send(at_ns).expect("somebody listens"));
    };
    // The first one compares the clocks.
    read_clock();
    stream.synchronize().expect("nothing fails");
    let (started, so_far) = (times.try_recv().expect("it was told"), rests.load(Ordering::Relaxed));
    read_clock();
    stream.wait_values(&wait_for(&[&awaited]), 1);
    read_clock();
    stream.write_values(&set(&told), 7);
    std::thread::sleep(Duration::from_millis(50));
    let let_go = now_ns();
    awaited.set(1);
    while !told.cell().reached(7) {
        std::thread::yield_now();
    }
    assert_eq!(rests.load(Ordering::Relaxed), so_far, "the queue was made to rest");
    stream.synchronize().expect("nothing fails");
    let [before, behind] = [(); 2].map(|()| times.try_recv().expect("it was told"));
    assert!(started <= before && before < let_go - 10_000_000, "{started} {before} {let_go}");
    // By half of what the comparison may have taken.
    assert!(let_go <= behind + 5_000_000 && behind <= now_ns(), "{let_go} {behind}");
}

#[test]
fn a_queue_does_not_run_dry_for_what_it_uses() {
    const SIGNALS: u32 = 2000;
    let (world, rests) = (world(), Arc::default());
    let stream = open(&world, &device_with(true, &rests), Waits::Auto).expect("a queue");
    let region = stream.allocate(&world, 192).expect("memory");
    let [told, ..] = words(&region);
    let (signals, so_far) = (set(&told), rests.load(Ordering::Relaxed));
    (1..=SIGNALS).for_each(|value| stream.write_values(&signals, value));
    while !told.cell().reached(SIGNALS) {
        std::thread::yield_now();
    }
    assert_eq!(rests.load(Ordering::Relaxed), so_far, "the queue was made to rest");
    assert!(Arc::strong_count(&signals) < SIGNALS as usize / 2, "what it has passed is let go of");
    stream.synchronize().expect("nothing fails");
    assert_eq!(Arc::strong_count(&signals), 1);
}

#[test]
fn a_queue_that_is_let_go_has_failed_and_so_has_whoever_hears_of_it() {
    let (world, device) = (world(), device(true));
    let [late, other] = [(); 2].map(|()| open(&world, &device, Waits::Auto).expect("a queue"));
    let region = late.allocate(&world, 192).expect("memory");
    let [never, told, _] = words(&region);
    late.wait_values(&wait_for(&[&never]), 5);
    late.write_values(&set(&told), 7);
    // Later, so that it has patience left.
    std::thread::sleep(Duration::from_millis(100));
    other.wait_values(&wait_for(&[&told]), 7);
    let timed_out = late.synchronize();
    assert!(matches!(timed_out, Err(Error::TimedOut { wanted: 5, found: 0, .. })), "{timed_out:?}");
    let deceived = other.synchronize();
    assert!(matches!(deceived, Err(Error::PeerFailed { rank: 0, .. })), "{deceived:?}");
}

#[test]
fn no_more_queues_wait_than_the_hardware_serves() {
    let (world, device) = (world(), device(true));
    let first = open(&world, &device, Waits::Auto).expect("a queue");
    let second = open(&world, &device, Waits::Auto).expect("a queue");
    let refused = open(&world, &device, Waits::Auto).expect_err("one too many").to_string();
    assert!(refused.contains("serves 2 streams") && refused.contains("proxy"), "{refused}");
    open(&world, &device, Waits::Proxy).expect("nothing waits on it");
    drop(first);
    open(&world, &device, Waits::Auto).expect("there is room again");
    drop(second);
}

#[test]
fn a_queue_without_memory_operations_refuses_to_wait_by_them() {
    let refused = open(&world(), &device(false), Waits::Auto).expect_err("it has none").to_string();
    assert!(refused.contains("no memory operations"), "{refused}");
}

static FAULTY: KernelText = KernelText {
    name: "faulty",
    source: "KERNEL(faulty)(TILE, WRITES(u8, out)) {\n    POINT(i, j, k);\n    AT(out, i, j, k + 99) = 7;\n}\n",
    reach: [0; 3],
};

#[test]
fn a_kernel_that_faults_is_named_by_the_streams_next_call_and_nothing_runs_behind_it() {
    let (world, device) = (world(), device(true));
    let stream = open(&world, &device, Waits::Auto).expect("a queue");
    let other = open(&world, &device, Waits::Auto).expect("a queue");
    let region = stream.allocate(&world, 192).expect("memory");
    let [told, by_other, _] = words(&region);
    let line = Extents { points: [1, 1, 8], components: 1 };
    let mut buffer = Buffer::<u8>::zeros(&world, &stream, line).expect("memory");
    let writer = buffer.writer(line.whole()).expect("it is ours");
    stream.launch_either(&FAULTY, line.whole(), (writer,), |_, _| ()).expect("it compiles");
    for _ in 0..2 {
        let faulted = stream.synchronize();
        assert!(
            matches!(&faulted, Err(Error::KernelFaulted { kernels, .. }) if *kernels == ["faulty"]),
            "{faulted:?}"
        );
        stream.write_values(&set(&told), 7);
    }
    assert_eq!(told.cell().load(), 0, "what is behind it is skipped");
    // The process goes on: another stream says that the rank has failed, and does not wait for it.
    other.write_values(&set(&by_other), 7);
    let deceived = other.synchronize();
    assert!(matches!(deceived, Err(Error::PeerFailed { rank: 0, .. })), "{deceived:?}");
}
