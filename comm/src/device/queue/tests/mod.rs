//! What streams do on a queue that waits and signals by itself: on one that is a thread of the host, and has no
//! kernels.

mod joined;

use super::engine::Engine;
use super::threads::Threads;
use crate::device::accelerator::Accelerator;
use crate::device::moves::OnDevice;
use crate::device::operation::{Message, Operation, Rule, SignalSet, TriggeredSend, WaitSet, next_group};
use crate::device::sequence::{Due, Replay, Sequence, Step};
use crate::device::text::KernelText;
use crate::device::{Buffer, Count, Extents, Move, MoveTable, Signals, Stream, StreamOptions, Waits, Ways};
use crate::element::{ElementType, Op};
use crate::error::{Error, Result};
use crate::fabric::{Executor, LocalFabric, Progress, Region, Role, Word, register};
use crate::timeline::now_ns;
use crate::world::{World, WorldOptions};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

fn device(change: impl FnOnce(&mut Threads)) -> Arc<dyn Accelerator> {
    let mut threads = Threads::new();
    change(&mut threads);
    threads.open()
}

fn resting(rests: &Arc<AtomicU64>) -> Arc<dyn Accelerator> {
    device(|threads| threads.rests = rests.clone())
}

/// A world of one rank that waits for so long.
fn world_with(timeout: Duration) -> World {
    let options = WorldOptions { timeout: Some(timeout), ..WorldOptions::default() };
    World::new(LocalFabric::ends(1).expect("memory").remove(0), options).expect("a world")
}

/// One whose waits do not come to their time-out, on a busy machine either.
fn world() -> World {
    world_with(Duration::from_secs(20))
}

/// One whose time-out is waited for. It is longer than a busy machine stops a thread for: other waits come in time.
fn impatient() -> World {
    world_with(Duration::from_secs(1))
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
    Arc::new(SignalSet::new(vec![word.clone()], true))
}

#[test]
fn a_queue_waits_and_signals_in_its_order_without_a_kernel() {
    let world = world();
    let stream = open(&world, &device(|_| ()), Waits::Auto).expect("a queue");
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
    assert_eq!((told.cell().load(), stream.count(Count::KernelWaits)), (7, 1));
}

#[test]
fn a_queue_tells_the_time_and_does_not_come_to_rest_for_it() {
    let (world, rests) = (world(), Arc::default());
    let stream = open(&world, &resting(&rests), Waits::Auto).expect("a queue");
    let region = stream.allocate(&world, 192).expect("memory");
    let [awaited, told, begun] = words(&region);
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
    stream.write_values(&set(&begun), 1);
    stream.wait_values(&wait_for(&[&awaited]), 1);
    read_clock();
    stream.write_values(&set(&told), 7);
    // The queue may be late: only behind its first reading is the time between the two certain.
    until("the queue", || begun.cell().reached(1));
    std::thread::sleep(Duration::from_millis(50));
    let let_go = now_ns();
    awaited.set(1);
    until("the signal", || told.cell().reached(7));
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
    let stream = open(&world, &resting(&rests), Waits::Auto).expect("a queue");
    let region = stream.allocate(&world, 192).expect("memory");
    let [told, ..] = words(&region);
    let (signals, so_far) = (set(&told), rests.load(Ordering::Relaxed));
    (1..=SIGNALS).for_each(|value| stream.write_values(&signals, value));
    until("the last signal", || told.cell().reached(SIGNALS));
    assert_eq!(rests.load(Ordering::Relaxed), so_far, "the queue was made to rest");
    assert!(Arc::strong_count(&signals) < SIGNALS as usize / 2, "what it has passed is let go of");
    stream.synchronize().expect("nothing fails");
    assert_eq!(Arc::strong_count(&signals), 1);
}

#[test]
fn a_queue_that_is_let_go_has_failed_and_so_has_whoever_hears_of_it() {
    let (world, device) = (world_with(Duration::from_secs(2)), device(|_| ()));
    let [late, other] = [(); 2].map(|()| open(&world, &device, Waits::Auto).expect("a queue"));
    let region = late.allocate(&world, 192).expect("memory");
    let [never, told, _] = words(&region);
    late.wait_values(&wait_for(&[&never]), 5);
    late.write_values(&set(&told), 7);
    // Later, so that it has patience left.
    std::thread::sleep(Duration::from_millis(1500));
    other.wait_values(&wait_for(&[&told]), 7);
    let timed_out = late.synchronize();
    assert!(matches!(timed_out, Err(Error::TimedOut { wanted: 5, found: 0, .. })), "{timed_out:?}");
    let deceived = other.synchronize();
    assert!(matches!(deceived, Err(Error::PeerFailed { rank: 0, .. })), "{deceived:?}");
}

/// As a peer's signal that was on its way does.
#[test]
fn a_queue_is_let_go_as_often_as_signals_bring_it_back() {
    let (sender, told) = channel();
    // On a thread of its own, which would never end.
    std::thread::spawn(move || {
        let (world, device) = (impatient(), device(|_| ()));
        let stream = open(&world, &device, Waits::Auto).expect("a queue");
        let region = stream.allocate(&world, 192).expect("memory");
        let [never, ..] = words(&region);
        stream.wait_values(&wait_for(&[&never]), 5);
        stream.write_values(&set(&never), 5);
        stream.wait_values(&wait_for(&[&never]), 7);
        sender.send(stream.synchronize()).expect("somebody listens");
    });
    let ended = told.recv_timeout(Duration::from_secs(10)).expect("it ends");
    assert!(matches!(ended, Err(Error::TimedOut { wanted: 5, .. })), "{ended:?}");
}

#[test]
fn no_more_queues_wait_than_the_hardware_serves() {
    let (world, device) = (world(), device(|_| ()));
    let first = open(&world, &device, Waits::Auto).expect("a queue");
    let second = open(&world, &device, Waits::Auto).expect("a queue");
    // Those that do not wait would be held up as well.
    let queue = |waits| open(&world, &device, waits).map(|_| ());
    let lane = || device.clone().open_lane().map(|_| ());
    for refused in [queue(Waits::Auto), queue(Waits::Proxy), lane()] {
        let refused = refused.expect_err("one too many").to_string();
        assert!(refused.contains("serves 2 streams") && refused.contains("proxy"), "{refused}");
    }
    drop(first);
    lane().expect("there is room again");
    let copies = device.clone().open_lane().expect("there still is");
    queue(Waits::Auto).expect_err("copies take a place");
    drop((second, copies));
    let many = [(); 4].map(|()| open(&world, &device, Waits::Proxy).expect("nothing waits"));
    queue(Waits::Auto).expect_err("the others may be behind it");
    drop(many);
    queue(Waits::Auto).expect("there is room again");
}

#[test]
fn a_queue_without_memory_operations_refuses_to_wait_by_them() {
    let refused =
        open(&world(), &device(|threads| threads.traits.has_memory_operations = false), Waits::Auto)
            .expect_err("it has none")
            .to_string();
    assert!(refused.contains("no memory operations"), "{refused}");
}

#[test]
fn kernels_that_move_signal_on_a_gpu_unless_told_otherwise() {
    let merges = |is_gpu, kernels_signal| {
        let mut threads = Threads::new();
        (threads.traits.is_gpu, threads.traits.kernels_signal) = (is_gpu, kernels_signal);
        let engine = Engine::new(threads).expect("there is nothing to compile");
        Signals::ALL.map(|signals| engine.merges(signals))
    };
    // Automatic, by kernels, merged, and by the queue.
    assert_eq!(merges(true, true), [true, false, true, false]);
    assert_eq!(merges(false, true), [false, false, true, false]);
    // One that cannot is not asked to; who asks by name is refused as the stream is opened.
    assert!(!merges(true, false)[0]);
}

/// Sets a word if the thread that it lives on waits for something else by then, as a message does that goes on meanwhile.
struct Peer(Word, Instant);

impl Progress for Peer {
    fn progress(&self) -> bool {
        if self.1 <= Instant::now() {
            self.0.set(1);
        }
        true
    }
}

#[test]
fn a_dropped_stream_goes_on_with_what_its_rank_has_begun() {
    let world = world();
    let stream = open(&world, &device(|_| ()), Waits::Auto).expect("a queue");
    let region = stream.allocate(&world, 192).expect("memory");
    let [awaited, ..] = words(&region);
    let peer = Rc::new(Peer(awaited.clone(), Instant::now() + Duration::from_millis(30)));
    register(&peer);
    stream.wait_values(&wait_for(&[&awaited]), 1);
    drop(stream);
    assert_eq!(world.barrier(), Ok(()), "it has not waited in vain");
}

static FAULTY: KernelText = KernelText {
    name: "faulty",
    source: "KERNEL(faulty)(TILE, WRITES(u8, out)) {\n    POINT(i, j, k);\n    AT(out, i, j, k + 99) = 7;\n}\n",
    reach: [0; 3],
};

#[test]
fn a_kernel_that_faults_is_named_by_the_streams_next_call_and_nothing_runs_behind_it() {
    let (world, device) = (world(), device(|_| ()));
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

#[test]
fn what_the_thread_owes_behind_a_kernel_that_faults_is_told_to_nobody() {
    let (world, device) = (world(), device(|_| ()));
    let stream = open(&world, &device, Waits::Auto).expect("a queue");
    // Words that no kernel reaches.
    let region = world.fabric().allocate(192).expect("memory");
    let [told, ..] = words(&region);
    let line = Extents { points: [1, 1, 8], components: 1 };
    let mut buffer = Buffer::<u8>::zeros(&world, &stream, line).expect("memory");
    let writer = buffer.writer(line.whole()).expect("it is ours");
    stream.launch_either(&FAULTY, line.whole(), (writer,), |_, _| ()).expect("it compiles");
    stream.write_values(&set(&told), 7);
    let faulted = stream.synchronize();
    assert!(matches!(&faulted, Err(Error::KernelFaulted { .. })), "{faulted:?}");
    assert_eq!(told.cell().load(), 0, "what it stands for has not been done");
}

#[test]
fn what_waits_behind_a_kernel_that_faults_ends_with_it() {
    let world = world();
    let stream = open_with_kernels(&world, |_| ());
    let region = stream.allocate(&world, 192).expect("memory");
    let [here, never, _] = words(&region);
    here.set(1);
    let line = Extents { points: [1, 1, 8], components: 1 };
    let mut buffer = Buffer::<u8>::zeros(&world, &stream, line).expect("memory");
    // The first has a mark behind it, the second has none.
    stream.wait_values(&wait_for(&[&here]), 1);
    let writer = buffer.writer(line.whole()).expect("it is ours");
    stream.launch_either(&FAULTY, line.whole(), (writer,), |_, _| ()).expect("it compiles");
    stream.wait_values(&wait_for(&[&never]), 1);
    let faulted = stream.synchronize();
    assert!(
        matches!(&faulted, Err(Error::KernelFaulted { kernels, .. }) if *kernels == ["faulty"]),
        "{faulted:?}"
    );
}

/// A period that waits for a word.
fn period(word: &Word) -> Arc<Sequence> {
    Arc::new(Sequence::new(vec![Step::Wait(wait_for(&[word]), Due { value: 1, count: 0 })], vec![1]))
}

/// Kernels wait in it, and it has graphs.
fn open_with_kernels(world: &World, change: impl FnOnce(&mut Threads)) -> Stream {
    let device = device(|threads| {
        (threads.traits.compute_units, threads.traits.has_graphs) = (4, true);
        change(threads);
    });
    Stream::open(world, StreamOptions::default(), Some(device), Ways::default()).expect("a queue")
}

/// A watchdog of the test's.
fn until(what: &str, is_so: impl Fn() -> bool) {
    let since = Instant::now();
    while !is_so() {
        assert!(since.elapsed() < Duration::from_secs(10), "{what} has not come");
        std::thread::sleep(Duration::from_micros(50));
    }
}

#[test]
fn tables_are_not_copied_in_the_order_of_a_queue() {
    let world = world();
    let stream = open_with_kernels(&world, |_| ());
    let region = stream.allocate(&world, 1024).expect("memory");
    let words: Vec<Word> =
        (0..16).map(|line| region.word(64 * line, Role::Completion, 0, 0).expect("it is there")).collect();
    // The queue copies nothing: it would fault.
    stream.wait_values(&wait_for(&words.iter().collect::<Vec<_>>()), 1);
    let period = period(&words[0]);
    stream.put(Operation::Prepare(period.clone()));
    until("the period", || period.prepared.get().is_some());
    words.iter().for_each(|word| word.set(1));
    stream.put(Operation::Replay(Box::new(Replay { sequence: period, moved: vec![0], times: 1 })));
    stream.synchronize().expect("they have come");
    assert_eq!((stream.count(Count::KernelWaits), stream.count(Count::Graphs)), (1, 1));
}

#[test]
fn a_graph_is_put_on_a_queue_only_where_there_is_room() {
    let (world, crowded) = (world(), Arc::<AtomicU64>::default());
    let stream = open_with_kernels(&world, |threads| {
        // The marks of a graph take no place there.
        (threads.room, threads.crowded) = (4, crowded.clone());
    });
    let region = stream.allocate(&world, 192).expect("memory");
    let [word, ..] = words(&region);
    let period = period(&word);
    stream.put(Operation::Prepare(period.clone()));
    stream.put(Operation::Replay(Box::new(Replay { sequence: period, moved: vec![0], times: 20 })));
    until("two replays, of two kernels each", || stream.count(Count::Graphs) == 2);
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(stream.count(Count::Graphs), 2, "there is no room for a third");
    word.set(20);
    stream.synchronize().expect("it has come");
    assert_eq!((stream.count(Count::Graphs), crowded.load(Ordering::Relaxed)), (20, 0));
}

#[test]
fn a_graph_has_no_more_kernels_than_a_queue_takes() {
    let world = world();
    for (kernels, is_graph) in [(256, true), (257, false)] {
        let stream = open_with_kernels(&world, |_| ());
        let region = stream.allocate(&world, 192).expect("memory");
        let [word, ..] = words(&region);
        word.set(10);
        let wait = |_| Step::Wait(wait_for(&[&word]), Due { value: 1, count: 0 });
        let period = Arc::new(Sequence::new((0..kernels).map(wait).collect(), vec![1]));
        stream.put(Operation::Prepare(period.clone()));
        stream.synchronize().expect("it is prepared");
        let reason = period.prepared.get().cloned().expect("it was prepared").expect("nothing fails");
        assert_eq!((period.is_recorded(), reason.is_none()), (is_graph, is_graph), "{kernels}: {reason:?}");
        assert!(reason.is_none_or(|reason| reason.contains("256 kernels")));
        stream.put(Operation::Replay(Box::new(Replay { sequence: period, moved: vec![0], times: 2 })));
        stream.synchronize().expect("either carries it out");
        assert_eq!(stream.count(Count::Graphs), if is_graph { 2 } else { 0 });
    }
}

#[test]
fn what_waits_as_a_call_fails_is_let_go() {
    for (way, signals, is_graph) in [
        ("a wait of the queue", Signals::Memop, false),
        ("a wait of a kernel", Signals::Kernel, false),
        ("a wait of a graph", Signals::Kernel, true),
    ] {
        let (sender, told) = channel();
        // On a thread of its own, which would never end.
        std::thread::spawn(move || {
            let world = world();
            let device = device(|threads| {
                (threads.traits.compute_units, threads.traits.has_graphs, threads.marks_fail) =
                    (4, true, true);
            });
            let ways = Ways { signals, ..Ways::default() };
            let stream = Stream::open(&world, StreamOptions::default(), Some(device), ways).expect("a queue");
            let region = stream.allocate(&world, 192).expect("memory");
            let [never, ..] = words(&region);
            if is_graph {
                let period = period(&never);
                stream.put(Operation::Prepare(period.clone()));
                stream.put(Operation::Replay(Box::new(Replay {
                    sequence: period,
                    moved: vec![0],
                    times: 1,
                })));
            } else {
                stream.wait_values(&wait_for(&[&never]), 1);
            }
            sender.send(stream.synchronize()).expect("somebody listens");
        });
        let failed =
            told.recv_timeout(Duration::from_secs(10)).unwrap_or_else(|_| panic!("{way} still waits"));
        let reason = failed.expect_err("it has no mark behind it").to_string();
        assert!(reason.contains("it makes no marks"), "{way}: {reason}");
    }
}

#[test]
fn the_thread_waits_where_a_launch_lasts_until_its_kernel_has_ended() {
    let world = world();
    let blocking = device(|threads| {
        (threads.traits.launches_block, threads.traits.has_graphs, threads.traits.compute_units) =
            (true, true, 4);
    });
    for signals in [Signals::Kernel, Signals::Memop] {
        let ways = Ways { signals, ..Ways::default() };
        let open = |ways| Stream::open(&world, StreamOptions::default(), Some(blocking.clone()), ways);
        let stream = open(ways).expect("a queue");
        assert_eq!(stream.executor(), Executor::Proxy, "{signals:?}");
        let refused = open(Ways { waits: Waits::Kernel, ..ways }).expect_err("nobody could stop them");
        assert!(refused.to_string().contains("LAUNCH_BLOCKING"), "{refused}");
        let region = stream.allocate(&world, 192).expect("memory");
        let [word, ..] = words(&region);
        let period = period(&word);
        stream.put(Operation::Prepare(period.clone()));
        word.set(1);
        stream.wait_values(&wait_for(&[&word]), 1);
        stream.synchronize().expect("it has come");
        assert_eq!(stream.count(Count::KernelWaits), 0, "{signals:?}");
        let reason = period.prepared.get().cloned().expect("it was prepared").expect("nothing fails");
        assert!(reason.as_ref().is_some_and(|reason| reason.contains("a launch lasts")), "{reason:?}");
    }
}
