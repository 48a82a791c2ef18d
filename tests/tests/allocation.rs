//! After set-up and a few exchanges, nothing on the exchange path allocates or frees, nor on that of queues and of
//! collective calls: not on the rank's thread, and not on that of a threaded stream. Nor do kernels on an inline stream.
//!
//! A program of its own, without the test harness: its allocator counts the whole process.

use std::alloc::{GlobalAlloc, Layout, System};
use std::backtrace::Backtrace;
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Barrier, Mutex};
use std::time::Duration;
use streamhalo::comm::backend::backend_names;
use streamhalo::comm::device::{Buffer, Extents};
use streamhalo::comm::queue::{Queue, match_all};
use streamhalo::comm::window::{ActiveOptions, Group, Mode, Window};
use streamhalo::comm::{Communicator, PersistentRequest};
use streamhalo::grid::Fields;
use streamhalo::prelude::*;
use streamhalo::{StreamKind, StreamOptions, WorldOptions};

const WARM_UP: usize = 8;
const EXCHANGES: usize = 1000;
/// A stream holds this many exchanges at most before the host waits for it, so that enqueueing
/// never has to wait for room.
const BATCH: usize = 50;

/// Counts what is asked of the system's allocator while the ranks exchange.
struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;
static COUNTS: AtomicBool = AtomicBool::new(false);
static CALLS: AtomicUsize = AtomicUsize::new(0);
/// Who made the first of them.
static FIRST: Mutex<Option<String>> = Mutex::new(None);

thread_local! {
    /// Whether this thread's calls do not count: it describes one, or it is the one that starts the ranks, and may not
    /// have come to waiting for them when they are on their way.
    static IS_LEFT_OUT: Cell<bool> = const { Cell::new(false) };
}

fn count(call: &str, bytes: usize) {
    if !COUNTS.load(Ordering::Relaxed) || IS_LEFT_OUT.get() {
        return;
    }
    if CALLS.fetch_add(1, Ordering::Relaxed) == 0 {
        IS_LEFT_OUT.set(true);
        let thread = std::thread::current();
        let name = thread.name().unwrap_or("a thread without a name").to_string();
        let first = format!("{name}: {call} of {bytes} bytes\n{}", Backtrace::force_capture());
        *FIRST.lock().unwrap() = Some(first);
        IS_LEFT_OUT.set(false);
    }
}

// SAFETY: every call goes to the system's allocator as it is.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count("allocation", layout.size());
        // SAFETY: by the caller.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count("allocation", layout.size());
        // SAFETY: by the caller.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        count("reallocation", bytes);
        // SAFETY: by the caller.
        unsafe { System.realloc(block, layout, bytes) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        count("release", layout.size());
        // SAFETY: by the caller.
        unsafe { System.dealloc(block, layout) }
    }
}

/// Runs `work` on every rank, and counts from when the first begins until the last has ended.
fn counted<T>(all: &Barrier, work: impl FnOnce() -> T) -> T {
    if all.wait().is_leader() {
        COUNTS.store(true, Ordering::Relaxed);
    }
    all.wait();
    let result = work();
    if all.wait().is_leader() {
        COUNTS.store(false, Ordering::Relaxed);
    }
    all.wait();
    result
}

/// One way to exchange.
#[derive(Debug, Clone, Copy)]
enum Way {
    Gather,
    BeginAndFinish,
    Scatter,
}

/// A field that is swapped after every exchange, if it alternates.
trait Step: Fields<3> {
    const NAME: &'static str;
    fn make(grid: &LocalGrid<3>, stream: &Stream) -> Result<Self, HaloError>
    where
        Self: Sized;
    fn swap_generations(&mut self);
}

impl Step for Array<f64, 3> {
    const NAME: &'static str = "Array";

    fn make(grid: &LocalGrid<3>, stream: &Stream) -> Result<Self, HaloError> {
        Ok(Array::zeros(grid, Entity::Cell, stream)?)
    }

    fn swap_generations(&mut self) {}
}

impl Step for Alternating<f64, 3> {
    const NAME: &'static str = "Alternating";

    fn make(grid: &LocalGrid<3>, stream: &Stream) -> Result<Self, HaloError> {
        Ok(Alternating::zeros(grid, Entity::Cell, stream)?)
    }

    fn swap_generations(&mut self) {
        self.swap();
    }
}

fn exchange<F: Step>(
    halo: &mut StreamHalo,
    field: &mut F,
    way: Way,
    exchanges: usize,
) -> Result<(), HaloError> {
    for exchange in 1..=exchanges {
        match way {
            Way::Gather => halo.enqueue_gather(field)?,
            Way::BeginAndFinish => halo.begin_gather(field)?.finish()?,
            Way::Scatter => halo.enqueue_scatter(field)?,
        }
        field.swap_generations();
        if exchange % BATCH == 0 {
            halo.stream().synchronize()?;
        }
    }
    Ok(halo.stream().synchronize()?)
}

/// The gather and the scatter of one object have epochs, and so generations, of their own. The stream may keep a
/// timeline, with room for so many spans.
fn run<F: Step>(backend: &str, kind: StreamKind, layout: [usize; 3], spans: Option<usize>) {
    let all = Barrier::new(layout.iter().product());
    let options = WorldOptions { timeout: Some(Duration::from_secs(60)), ..WorldOptions::default() };
    let rank_main = |world: World| -> Result<(), HaloError> {
        let stream = Device::host().stream_with(&world, StreamOptions { kind, threads: 1 })?;
        let grid = GlobalGrid::new([8, 8, 8], [true, true, true])?.partition_as(&world, layout)?.local(1)?;
        for way in [Way::Gather, Way::BeginAndFinish, Way::Scatter] {
            let mut field = F::make(&grid, &stream)?;
            let builder = StreamHalo::builder(&world, &stream).backend(backend).pattern(Pattern::All);
            // Peers write no ghosts ahead of gathers that scatters go with.
            let mut halo = match way {
                Way::Gather | Way::BeginAndFinish => builder,
                Way::Scatter => builder.scatter(Op::Sum),
            }
            .build(1, &mut field)?;
            spans.map_or(Ok(()), |spans| stream.record_timeline(spans))?;
            exchange(&mut halo, &mut field, way, WARM_UP)?;
            let result = counted(&all, || exchange(&mut halo, &mut field, way, EXCHANGES));
            let calls = CALLS.swap(0, Ordering::Relaxed);
            let first = FIRST.lock().unwrap().take();
            if let Some(first) = first {
                let case = format!("{backend}, {kind:?}, {}, {way:?}, {layout:?}, {spans:?}", F::NAME);
                panic!(
                    "{case}: {calls} calls of the allocator in {EXCHANGES} exchanges; the first by {first}"
                );
            }
            result?;
        }
        Ok(())
    };
    let ranks = layout.iter().product();
    for result in World::threads(ranks, options, rank_main).unwrap() {
        result.unwrap_or_else(|error| panic!("{backend}, {kind:?}, {}, {layout:?}: {error}", F::NAME));
    }
}

/// Exchanges of one world at a time: more than there are regions that engines keep for messages of any kind.
const MANY: usize = 70;

/// Exchanges with messages that are announced, all of which begin before the first is finished.
fn run_many(backend: &str) {
    let all = Barrier::new(2);
    let options = WorldOptions { timeout: Some(Duration::from_secs(60)), ..WorldOptions::default() };
    let rank_main = |world: World| -> Result<(), HaloError> {
        let stream = Device::host().stream(&world)?;
        let grid = GlobalGrid::new([4, 48, 48], [true; 3])?.partition_as(&world, [2, 1, 1])?.local(1)?;
        let fields = (0..MANY).map(|_| Array::<f64, 3>::zeros(&grid, Entity::Cell, &stream));
        let mut fields = fields.collect::<Result<Vec<_>, _>>()?;
        let builder = || StreamHalo::builder(&world, &stream).backend(backend);
        let halos = fields.iter_mut().map(|field| builder().build(1, field));
        let mut halos = halos.collect::<Result<Vec<_>, _>>()?;
        let mut exchange = |times: usize| -> Result<(), HaloError> {
            for _ in 0..times {
                let mut begun = [const { None }; MANY];
                for ((halo, field), begun) in halos.iter_mut().zip(&mut fields).zip(&mut begun) {
                    *begun = Some(halo.begin_gather(field)?);
                }
                begun.into_iter().flatten().try_for_each(|begun| begun.finish())?;
                stream.synchronize()?;
            }
            Ok(())
        };
        exchange(WARM_UP)?;
        let result = counted(&all, || exchange(EXCHANGES / MANY));
        let calls = CALLS.swap(0, Ordering::Relaxed);
        if let Some(first) = FIRST.lock().unwrap().take() {
            panic!("{MANY} exchanges, {backend}: {calls} calls of the allocator; the first by {first}");
        }
        result
    };
    for result in World::threads(2, options, rank_main).unwrap() {
        result.unwrap_or_else(|error| panic!("{MANY} exchanges, {backend}: {error}"));
    }
}

/// Epochs of persistent requests on a queue between two ranks: receives and sends in batches and alone.
fn start_and_wait(queue: &Queue, requests: &mut [PersistentRequest], epochs: usize) -> Result<(), HaloError> {
    for epoch in 1..=epochs {
        let (receives, sends) = requests.split_at_mut(3);
        if epoch % 2 == 0 {
            queue.enqueue_start_all(receives)?;
            queue.enqueue_start_all(sends)?;
            queue.enqueue_wait_all(requests)?;
        } else {
            sends.iter_mut().try_for_each(|send| queue.enqueue_start(send))?;
            receives.iter_mut().try_for_each(|receive| queue.enqueue_start(receive))?;
            requests.iter_mut().try_for_each(|request| queue.enqueue_wait(request))?;
        }
        if epoch % BATCH == 0 {
            queue.wait()?;
        }
    }
    Ok(queue.wait()?)
}

fn run_queues(kind: StreamKind) {
    let all = Barrier::new(2);
    let options = WorldOptions { timeout: Some(Duration::from_secs(60)), ..WorldOptions::default() };
    let rank_main = |world: World| -> Result<(), HaloError> {
        let stream = Device::host().stream_with(&world, StreamOptions { kind, threads: 1 })?;
        let (communicator, peer) = (Communicator::new(&world)?, 1 - world.rank());
        let queue = Queue::new(&stream);
        let extents = Extents { points: [2, 3, 100], components: 1 };
        let buffer = Buffer::<f64>::zeros(&world, &stream, extents)?;
        let mut requests = Vec::new();
        for tag in 0..3_u32 {
            let section = buffer.section(tag as usize * 100..(tag as usize + 1) * 100)?;
            requests.push(communicator.recv_init(&section, peer, tag)?);
        }
        for tag in 0..3_u32 {
            let section = buffer.section(300 + tag as usize * 100..400 + tag as usize * 100)?;
            requests.push(communicator.send_init(&section, peer, tag)?);
        }
        match_all(&mut requests)?;
        start_and_wait(&queue, &mut requests, WARM_UP)?;
        let result = counted(&all, || start_and_wait(&queue, &mut requests, EXCHANGES));
        let calls = CALLS.swap(0, Ordering::Relaxed);
        if let Some(first) = FIRST.lock().unwrap().take() {
            panic!(
                "queues, {kind:?}: {calls} calls of the allocator in {EXCHANGES} epochs; the first by {first}"
            );
        }
        result
    };
    for result in World::threads(2, options, rank_main).unwrap() {
        result.unwrap_or_else(|error| panic!("queues, {kind:?}: {error}"));
    }
}

/// Epochs of a ring of windows, on a stream or by the host.
fn epochs(
    (window, neighbours): (&Window, &Group),
    source: &Buffer<f64>,
    stream: &Stream,
    (epochs, mode): (usize, Mode),
) -> Result<(), HaloError> {
    for epoch in 1..=epochs {
        match mode {
            Mode::Host => window.post(neighbours)?,
            Mode::Stream => window.post_stream(neighbours, stream)?,
        }
        window.start(neighbours, mode)?;
        for (index, target) in neighbours.ranks().iter().enumerate() {
            window.put(&source.section(0..8)?, *target, 16 * index)?;
            window.accumulate(&source.section(8..12)?, *target, 16 * index + 8, Op::Sum)?;
        }
        match mode {
            Mode::Host => window.complete().and_then(|()| window.wait())?,
            Mode::Stream => window.complete_stream(stream).and_then(|()| window.wait_stream(stream))?,
        }
        if epoch % BATCH == 0 {
            stream.synchronize()?;
        }
    }
    Ok(stream.synchronize()?)
}

/// Epochs of a window that do the same as those before.
fn run_window(kind: StreamKind, ranks: usize) {
    let all = Barrier::new(ranks);
    let options = WorldOptions { timeout: Some(Duration::from_secs(60)), ..WorldOptions::default() };
    let rank_main = |world: World| -> Result<(), HaloError> {
        let stream = Device::host().stream_with(&world, StreamOptions { kind, threads: 1 })?;
        let row = |elements| Extents { points: [1, 1, elements], components: 1 };
        let part = Buffer::<f64>::zeros(&world, &stream, row(32))?;
        let source = Buffer::<f64>::zeros(&world, &stream, row(12))?;
        let window = Window::active(&world, &part.section(0..32)?, ActiveOptions::default())?;
        let (left, right) = ((world.rank() + ranks - 1) % ranks, (world.rank() + 1) % ranks);
        let neighbours = if left == right { vec![left] } else { vec![left, right] };
        let neighbours = Group::new(&world, &neighbours)?;
        let window = (&window, &neighbours);
        for mode in [Mode::Stream, Mode::Host] {
            epochs(window, &source, &stream, (WARM_UP, mode))?;
            let result = counted(&all, || epochs(window, &source, &stream, (EXCHANGES, mode)));
            let calls = CALLS.swap(0, Ordering::Relaxed);
            if let Some(first) = FIRST.lock().unwrap().take() {
                panic!("a window, {kind:?}, {mode:?}, {ranks} ranks: {calls} calls; the first by {first}");
            }
            result?;
        }
        Ok(())
    };
    for result in World::threads(ranks, options, rank_main).unwrap() {
        result.unwrap_or_else(|error| panic!("a window, {kind:?}, {ranks} ranks: {error}"));
    }
}

/// Every collective call of the host, with vectors of that many elements for each rank.
fn call_all(communicator: &Communicator, vectors: &mut [Vec<f64>; 3], calls: usize) -> Result<(), HaloError> {
    let (rank, ranks) = (communicator.rank(), communicator.size());
    let [own, all, received] = vectors;
    let (left, right) = ((rank + ranks - 1) % ranks, (rank + 1) % ranks);
    for call in 0..calls {
        communicator.barrier()?;
        communicator.broadcast(own, call % ranks)?;
        own[0] = rank as f64;
        communicator.reduce(own, Op::Sum, call % ranks)?;
        communicator.allreduce(own, Op::Max)?;
        communicator.allgather(own, all)?;
        let neighbours = [left, right];
        let elements = own.len() / 2;
        communicator.neighbour_alltoall(&neighbours, &own[..2 * elements], &neighbours, received)?;
    }
    Ok(())
}

fn run_collectives(ranks: usize) {
    let all = Barrier::new(ranks);
    let options = WorldOptions { timeout: Some(Duration::from_secs(60)), ..WorldOptions::default() };
    let rank_main = |world: World| -> Result<(), HaloError> {
        // A rank whose set-up never had to wait allocates nothing when it does for the first time: rank 0 comes last
        // to all but the last barrier, to which it comes first.
        let late = |is_late: bool| {
            if is_late {
                std::thread::sleep(Duration::from_millis(5));
            }
        };
        late(world.rank() == 0);
        let communicator = Communicator::new(&world)?;
        late(world.rank() == 0);
        communicator.barrier()?;
        counted(&all, || {
            late(world.rank() != 0);
            communicator.barrier()
        })?;
        // What goes in one packet; what is announced; and what is reduced in parts.
        for elements in [2, 2_000, 10_000] {
            let mut vectors = [elements, elements * ranks, elements].map(|elements| vec![1.0; elements]);
            call_all(&communicator, &mut vectors, WARM_UP)?;
            let result = counted(&all, || call_all(&communicator, &mut vectors, EXCHANGES / 20));
            let calls = CALLS.swap(0, Ordering::Relaxed);
            if let Some(first) = FIRST.lock().unwrap().take() {
                panic!(
                    "collective calls, {ranks} ranks, {elements} elements: {calls} calls; the first by {first}"
                );
            }
            result?;
        }
        Ok(())
    };
    for result in World::threads(ranks, options, rank_main).unwrap() {
        result.unwrap_or_else(|error| panic!("collective calls, {ranks} ranks: {error}"));
    }
}

/// Steps of a kernel, which an inline stream runs at once, with nothing to keep.
fn run_kernels() {
    let all = Barrier::new(1);
    let rank_main = |world: World| -> Result<(), HaloError> {
        let stream = Device::host().stream(&world)?;
        let grid = GlobalGrid::new([4, 8, 8], [true; 3])?.partition(&world)?.local(1)?;
        let mut field = Alternating::<f64, 3>::zeros(&grid, Entity::Cell, &stream)?;
        let tile = grid.owned(Entity::Cell).tile();
        let mut steps = |count: usize| -> Result<(), HaloError> {
            for _ in 0..count {
                stream.launch("add 1", tile, field.now_and_next()?, |tile, (now, mut next)| {
                    for (z, y) in tile.rows() {
                        let from = now.span(z, y, tile.start[2]..tile.end[2]);
                        next.row(z, y).iter_mut().zip(from).for_each(|(to, from)| *to = from + 1.0);
                    }
                })?;
                field.swap();
            }
            Ok(stream.synchronize()?)
        };
        steps(WARM_UP)?;
        let result = counted(&all, || steps(EXCHANGES));
        let calls = CALLS.swap(0, Ordering::Relaxed);
        if let Some(first) = FIRST.lock().unwrap().take() {
            panic!("kernels: {calls} calls of the allocator in {EXCHANGES} steps; the first by {first}");
        }
        result?;
        let expected = (WARM_UP + EXCHANGES) as f64;
        assert!(field.now().owned()?.iter().all(|&cell| cell == expected), "steps are missing");
        Ok(())
    };
    for result in World::threads(1, WorldOptions::default(), rank_main).unwrap() {
        result.unwrap_or_else(|error| panic!("kernels: {error}"));
    }
}

/// The counter sees allocations of any thread, or a count of 0 would mean nothing.
fn counts_what_is_allocated() {
    let all = Barrier::new(1);
    counted(&all, || std::thread::spawn(|| drop(std::hint::black_box(vec![0_u8; 100]))).join().unwrap());
    assert!(CALLS.swap(0, Ordering::Relaxed) > 0, "allocations are not counted");
    assert!(FIRST.lock().unwrap().take().is_some_and(|first| first.contains("allocation")));
    counted(&all, || std::hint::black_box(1));
    assert_eq!(CALLS.swap(0, Ordering::Relaxed), 0, "something else than the ranks allocates");
}

fn main() {
    counts_what_is_allocated();
    IS_LEFT_OUT.set(true);
    let mut passed = 0;
    for backend in backend_names() {
        for kind in [StreamKind::Inline, StreamKind::Threaded] {
            for layout in [[2, 1, 1], [2, 2, 1]] {
                run::<Array<f64, 3>>(backend, kind, layout, None);
                run::<Alternating<f64, 3>>(backend, kind, layout, None);
                passed += 2;
            }
            // Fewer than there are: the oldest make room.
            run::<Array<f64, 3>>(backend, kind, [2, 1, 1], Some(100));
            passed += 1;
        }
        run_many(backend);
        passed += 1;
    }
    for kind in [StreamKind::Inline, StreamKind::Threaded] {
        run_queues(kind);
        passed += 1;
        for ranks in [1, 2, 4] {
            run_window(kind, ranks);
            passed += 1;
        }
    }
    for ranks in 1..=4 {
        run_collectives(ranks);
        passed += 1;
    }
    run_kernels();
    passed += 1;
    // What runners of tests look for.
    println!("test result: ok. {passed} passed; 0 failed; 0 ignored; 0 measured; 0 filtered out");
}
