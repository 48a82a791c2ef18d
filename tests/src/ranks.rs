//! Worlds with a watchdog, and the ways in which an exchange can be carried out.

use crate::Random;
use std::cell::Cell;
use std::fmt::Debug;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use streamhalo::comm::Error;
use streamhalo::comm::backend::BACKENDS;
use streamhalo::{
    Device, HaloError, MemoryMode, Peers, Signals, Stream, StreamKind, StreamOptions, Waits, Wires, World,
    WorldOptions,
};

/// After how long a wait fails: an error that says who waits for whom, instead of a hang.
pub const TIMEOUT: Duration = Duration::from_secs(20);

/// Both kinds of host stream.
pub const KINDS: [StreamKind; 2] = [StreamKind::Inline, StreamKind::Threaded];

/// Worlds whose waits end.
pub fn watchdog() -> WorldOptions {
    WorldOptions { timeout: Some(TIMEOUT), ..WorldOptions::default() }
}

/// One way to carry out an exchange.
#[derive(Debug, Clone, Copy)]
pub struct Scenario {
    /// The backend's name.
    pub backend: &'static str,
    /// The kind of stream.
    pub kind: StreamKind,
}

/// Every backend on both kinds of stream.
pub fn each_way() -> impl Iterator<Item = Scenario> {
    BACKENDS.iter().flat_map(|row| KINDS.map(|kind| Scenario { backend: row.name, kind }))
}

/// Every backend on one kind of stream.
pub fn ways_of(kind: StreamKind) -> impl Iterator<Item = Scenario> {
    BACKENDS.iter().map(move |row| Scenario { backend: row.name, kind })
}

/// Opens the device of a kind that a text selects: [`Device::opencl`], [`Device::cuda`] or [`Device::hip`].
pub type OpenDevice = fn(&str) -> Result<Device, Error>;

static OPEN: Mutex<OpenDevice> = Mutex::new(Device::opencl);

fn open_device() -> Result<Device, Error> {
    let open = *OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    open("")
}

/// The device that tests with a memory of its own run on: the first of OpenCL that can be used, unless another kind
/// was asked for ([`device_in_turn`]). `None` where there is none, which is printed as a part that was left out.
pub fn other_device() -> Option<Device> {
    match open_device() {
        Ok(device) => Some(device),
        Err(Error::DeviceUnavailable { device, reason }) => {
            let what = match device.as_str() {
                "cuda" => "a GPU of CUDA",
                "hip" => "a GPU of AMD's",
                _ => "a device of OpenCL",
            };
            println!("skipped: tests on {what}: {reason}");
            None
        }
        Err(error) => panic!("there is a device, but {error}"),
    }
}

/// A device of another kind, and that no other test of this process uses it: the hardware has few queues for streams
/// that wait. `None` as of [`other_device`].
pub fn device_in_turn(open: OpenDevice) -> Option<(Device, MutexGuard<'static, ()>)> {
    static TURNS: Mutex<()> = Mutex::new(());
    let turn = TURNS.lock().unwrap_or_else(PoisonError::into_inner);
    set_device(open);
    Some((other_device()?, turn))
}

/// What [`other_device`] opens from now on.
pub(crate) fn set_device(open: OpenDevice) {
    *OPEN.lock().unwrap_or_else(PoisonError::into_inner) = open;
}

/// A world of one rank, and a stream of [`other_device`] and of the host.
pub fn alone() -> (World, [Stream; 2]) {
    let world = World::alone().expect("a world of one rank");
    let of = |kind| stream_of(&world, kind).expect("a stream");
    let streams = [of(StreamKind::Device), of(StreamKind::Inline)];
    (world, streams)
}

thread_local! {
    static WAITS: Cell<Waits> = const { Cell::new(Waits::Auto) };
    pub(crate) static MEMORY: Cell<MemoryMode> = const { Cell::new(MemoryMode::Auto) };
    static SIGNALS: Cell<Signals> = const { Cell::new(Signals::Kernel) };
    static PEERS: Cell<Peers> = const { Cell::new(Peers::Auto) };
    static WIRES: Cell<Wires> = const { Cell::new(Wires::Auto) };
}

/// How the streams of a device that [`stream_of`] makes on this thread from now on wait.
pub fn set_waits(waits: Waits) {
    WAITS.set(waits);
}

/// How the streams of a device that [`stream_of`] makes on this thread from now on signal.
pub fn set_signals(signals: Signals) {
    SIGNALS.set(signals);
}

/// How other ranks reach the arrays of the streams of a device that [`stream_of`] makes on this thread from now on.
pub fn set_peers(peers: Peers) {
    PEERS.set(peers);
}

/// What wires are given of the arrays of the streams of a device that [`stream_of`] makes on this thread from now on.
pub fn set_wires(wires: Wires) {
    WIRES.set(wires);
}

/// Runs a test with arrays of [`stream_of`] where the host addresses them, and then where it does not; also on the
/// ranks of [`outcomes`] and [`on_ranks`].
pub fn in_both_memories(mut test: impl FnMut()) {
    [MemoryMode::Shared, MemoryMode::Separate].into_iter().for_each(|mode| in_memory(mode, &mut test));
}

/// As [`in_both_memories`], in one.
pub fn in_memory(mode: MemoryMode, test: impl FnOnce()) {
    MEMORY.set(mode);
    test();
    MEMORY.set(MemoryMode::Auto);
}

/// A stream of that kind with one thread for kernels; [`StreamKind::Device`] is on [`other_device`].
pub fn stream_of(world: &World, kind: StreamKind) -> Result<Stream, HaloError> {
    if kind == StreamKind::Device {
        let device = open_device()?.with_waits(WAITS.get()).with_signals(SIGNALS.get());
        let device = device.with_peers(PEERS.get()).with_wires(WIRES.get());
        return Ok(device.with_memory(MEMORY.get())?.stream(world)?);
    }
    Ok(Device::host().stream_with(world, StreamOptions { kind, threads: 1 })?)
}

/// Runs `rank_main` on that many ranks and gives each rank's own result.
pub fn outcomes<T: Send>(
    ranks: usize,
    rank_main: impl Fn(&World) -> Result<T, HaloError> + Sync,
) -> Vec<Result<T, HaloError>> {
    let memory = MEMORY.get();
    let rank_main = |world: World| {
        MEMORY.set(memory);
        rank_main(&world)
    };
    World::threads(ranks, watchdog(), rank_main).expect("threads can be started")
}

/// Runs `rank_main` on that many ranks, none of which may fail.
///
/// # Panics
/// With the errors of all ranks, if any has one.
pub fn on_ranks<T: Send>(ranks: usize, rank_main: impl Fn(&World) -> Result<T, HaloError> + Sync) -> Vec<T> {
    expect_all(outcomes(ranks, rank_main))
}

/// The values of all ranks.
///
/// # Panics
/// With the errors of all ranks, if any has one.
pub fn expect_all<T, E: std::fmt::Display>(results: Vec<Result<T, E>>) -> Vec<T> {
    let errors: Vec<String> = results
        .iter()
        .enumerate()
        .filter_map(|(rank, result)| result.as_ref().err().map(|error| format!("rank {rank}: {error}")))
        .collect();
    assert!(errors.is_empty(), "{}", errors.join("\n"));
    results.into_iter().filter_map(Result::ok).collect()
}

/// The one value that all ranks have.
///
/// # Panics
/// If they differ.
pub fn same_on_all<T: PartialEq + Debug>(values: Vec<T>) -> T {
    for (rank, value) in values.iter().enumerate() {
        assert_eq!(*value, values[0], "rank {rank} has another verdict than rank 0");
    }
    values.into_iter().next().expect("a world has at least one rank")
}

/// Runs tests that mostly wait at the same time.
pub fn at_once<T: Sync>(cases: &[T], test: impl Fn(&T) + Sync) {
    let test = &test;
    std::thread::scope(|scope| {
        for case in cases {
            scope.spawn(move || test(case));
        }
    });
}

/// Lets another rank come to where it says so, in no wait of the world's, which would serve it.
///
/// # Panics
/// If it never does.
pub fn until(flag: &AtomicBool) {
    let since = Instant::now();
    while !flag.load(Ordering::Acquire) {
        assert!(since.elapsed() < TIMEOUT, "the other rank does not say that it has come so far");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Enqueues a pause of random length, mostly none.
pub fn delay(stream: &Stream, random: &mut Random) {
    let pause = match random.below(8) {
        0 => Duration::from_micros(300),
        1 | 2 => Duration::from_micros(30),
        _ => return,
    };
    stream.enqueue_host("a pause", move || {
        std::thread::sleep(pause);
        Ok(())
    });
}
