//! After set-up and a few exchanges, nothing on the exchange path allocates or frees: not on the
//! rank's thread, and not on that of a threaded stream.
//!
//! A program of its own, without the test harness: its allocator counts the whole process.

use std::alloc::{GlobalAlloc, Layout, System};
use std::backtrace::Backtrace;
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Barrier, Mutex};
use std::time::Duration;
use streamhalo::comm::backend::backend_names;
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
    /// Whether this thread is busy describing a call.
    static DESCRIBES: Cell<bool> = const { Cell::new(false) };
}

fn count(call: &str, bytes: usize) {
    if !COUNTS.load(Ordering::Relaxed) || DESCRIBES.get() {
        return;
    }
    if CALLS.fetch_add(1, Ordering::Relaxed) == 0 {
        DESCRIBES.set(true);
        let thread = std::thread::current();
        let name = thread.name().unwrap_or("a thread without a name").to_string();
        let first = format!("{name}: {call} of {bytes} bytes\n{}", Backtrace::force_capture());
        *FIRST.lock().unwrap() = Some(first);
        DESCRIBES.set(false);
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

/// The gather and the scatter of one object have epochs, and so generations, of their own.
fn run<F: Step>(backend: &str, kind: StreamKind, layout: [usize; 3]) {
    let all = Barrier::new(layout.iter().product());
    let options = WorldOptions { timeout: Some(Duration::from_secs(60)), ..WorldOptions::default() };
    let rank_main = |world: World| -> Result<(), HaloError> {
        let stream = Device::host().stream_with(&world, StreamOptions { kind, threads: 1 })?;
        let grid = GlobalGrid::new([8, 8, 8], [true, true, true])?.partition_as(&world, layout)?.local(1)?;
        for way in [Way::Gather, Way::BeginAndFinish, Way::Scatter] {
            let mut field = F::make(&grid, &stream)?;
            let mut halo = StreamHalo::builder(&world, &stream)
                .backend(backend)
                .pattern(Pattern::All)
                .scatter(Op::Sum)
                .build(1, &field)?;
            exchange(&mut halo, &mut field, way, WARM_UP)?;
            let result = counted(&all, || exchange(&mut halo, &mut field, way, EXCHANGES));
            let calls = CALLS.swap(0, Ordering::Relaxed);
            let first = FIRST.lock().unwrap().take();
            if let Some(first) = first {
                let case = format!("{backend}, {kind:?}, {}, {way:?}, {layout:?}", F::NAME);
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
    let mut passed = 0;
    for backend in backend_names() {
        for kind in [StreamKind::Inline, StreamKind::Threaded] {
            for layout in [[2, 1, 1], [2, 2, 1]] {
                run::<Array<f64, 3>>(backend, kind, layout);
                run::<Alternating<f64, 3>>(backend, kind, layout);
                passed += 2;
            }
        }
    }
    // What runners of tests look for.
    println!("test result: ok. {passed} passed; 0 failed; 0 ignored; 0 measured; 0 filtered out");
}
