//! A queue of a device: a stream of HIP's, with a queue of the hardware to itself.

use super::driver::{Context, Function, Module};
use super::graph::Graph;
use super::library::{FAULTS, NOT_READY, SUCCESS};
use super::memory;
use super::words::{Plan, plan};
use crate::device::accelerator::DeviceMemory;
use crate::device::driver::{CommandQueue, Groups, MemoryKind, Value};
use crate::device::gpu::{Grid, Packed, Running, launches_block};
use crate::device::queue::OWN_KERNELS;
use crate::error::{Error, Result};
use crate::locks::lock;
use hip_sys::hiprt;
use std::ffi::c_void;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

/// Whether the runtime ends each kernel within its launch.
pub(super) fn blocks_launches() -> bool {
    ["HIP_LAUNCH_BLOCKING", "AMD_SERIALIZE_KERNEL"].into_iter().any(launches_block)
}

/// A mask of all compute units, where the runtime counts so many: on GPUs whose units work in pairs it counts the pairs, and
/// masks have a bit for each unit. Bits of units that there are not are ignored.
fn all_units(counted: u32) -> Vec<u32> {
    vec![u32::MAX; counted.saturating_mul(2).div_ceil(32).max(1) as usize]
}

/// Keys of a launch's list (`HIP_LAUNCH_PARAM_BUFFER_POINTER` and those after it, which the bindings do not have).
const BUFFER_POINTER: usize = 1;
const BUFFER_SIZE: usize = 2;
const BUFFER_END: usize = 3;

/// A queue whose commands run one after the other.
pub(super) struct Queue {
    context: Arc<Context>,
    stream: hiprt::hipStream_t,
    /// Events that no mark has at the moment.
    events: Spare,
    packed: Packed,
    running: Running,
    /// Made when it is needed first: every few thousand million epochs.
    wait_across_wrap: Option<WaitAcrossWrap>,
    /// The kernels of a graph that is being recorded.
    recorded: Option<Vec<String>>,
}

// SAFETY: HIP's streams may be used by any thread.
unsafe impl Send for Queue {}

/// The kernel that waits where a comparison of the stream's could miss a word, and what nobody tells it.
struct WaitAcrossWrap {
    kernel: Function,
    flags: DeviceMemory,
}

/// An event, of which at most one mark knows at a time.
struct RawEvent(hiprt::hipEvent_t);

// SAFETY: HIP's events may be used by any thread.
unsafe impl Send for RawEvent {}

/// A point between the commands of a queue: an event behind what came before.
pub(super) struct Mark {
    event: Option<RawEvent>,
    /// How many commands are before it.
    put: u64,
    /// Whether the event keeps its time.
    is_timed: bool,
    events: Spare,
}

/// Events to be recorded again: those that keep no times, and those that do.
type Spare = Arc<Mutex<[Vec<RawEvent>; 2]>>;

impl Mark {
    fn event(&self) -> hiprt::hipEvent_t {
        self.event.as_ref().expect("taken only when the mark is dropped").0
    }
}

impl Drop for Mark {
    fn drop(&mut self) {
        let mut events = lock(&self.events);
        events[usize::from(self.is_timed)].extend(self.event.take());
    }
}

impl Queue {
    pub(super) fn new(context: Arc<Context>) -> Result<Self> {
        // A stream for some of the compute units has a queue of the hardware to itself. Others share four, where a
        // kernel that waits would keep from running what it waits for.
        let all_units = all_units(context.found().compute_units);
        let mut stream = std::ptr::null_mut();
        let running = Running::new(blocks_launches());
        let _current = context.enter()?;
        let create = context.runtime().hipExtStreamCreateWithCUMask;
        // SAFETY: a place for the answer, and as many words as the call is told.
        let code = unsafe { create(&mut stream, all_units.len() as u32, all_units.as_ptr()) };
        context.check("a queue", code)?;
        Ok(Self {
            context,
            stream,
            events: Arc::default(),
            packed: Packed::default(),
            running,
            wait_across_wrap: None,
            recorded: None,
        })
    }

    fn event(&mut self, is_timed: bool) -> Result<RawEvent> {
        let mut events = lock(&self.events);
        if let Some(event) = events[usize::from(is_timed)].pop() {
            return Ok(event);
        }
        drop(events);
        let flags = if is_timed { hiprt::hipEventDefault } else { hiprt::hipEventDisableTiming };
        let mut event = std::ptr::null_mut();
        // Also for the copies of messages, which are begun on threads of the application.
        let _current = self.context.enter()?;
        // SAFETY: a place for the answer.
        let code = unsafe { (self.context.runtime().hipEventCreateWithFlags)(&mut event, flags) };
        self.context.check("an event", code)?;
        Ok(RawEvent(event))
    }

    fn mark_with(&mut self, is_timed: bool) -> Result<Mark> {
        let event = self.event(is_timed)?;
        self.running.put += 1;
        // SAFETY: both live, and are of the same device.
        let code = unsafe { (self.context.runtime().hipEventRecord)(event.0, self.stream) };
        let (event, put, events) = (Some(event), self.running.put, self.events.clone());
        let mark = Mark { event, put, is_timed, events };
        self.check("an event", code)?;
        Ok(mark)
    }

    /// # Safety
    /// As of [`CommandQueue::wait_word`].
    unsafe fn wait_by_kernel(&mut self, word: *const c_void, value: u32) -> Result<()> {
        let mut wait = match self.wait_across_wrap.take() {
            Some(wait) => wait,
            None => WaitAcrossWrap {
                kernel: Module::build(&self.context, &OWN_KERNELS)?.function("halo_wait")?,
                flags: memory::allocate(&self.context, 128, MemoryKind::Pinned)?,
            },
        };
        let flags: *const c_void = wait.flags.base().as_ptr().cast_const().cast();
        let [stop, current, failed] = [0, 32, 64].map(|at| flags.wrapping_byte_add(at));
        let none = Value::Pointer(std::ptr::null());
        let [word, stop, current, failed] = [word, stop, current, failed].map(Value::Pointer);
        let arguments =
            [word, none, none, none, stop, failed, none, Value::U32(value), current, Value::U32(0)];
        // SAFETY: the arguments are those of the kernel's text; the flags live as long as the queue, and the word by the
        // caller.
        let launched =
            unsafe { self.launch("a wait", &mut wait.kernel, &arguments, Groups::ForThreads([1; 3])) };
        self.wait_across_wrap = Some(wait);
        launched
    }

    /// An error that a kernel has made is told with those that may have.
    fn check(&self, what: &str, code: u32) -> Result<()> {
        let kernels = self.running.names();
        if !FAULTS.contains(&code) || kernels.is_empty() {
            return self.context.check(what, code);
        }
        let more = match kernels.len() {
            1 => "",
            _ => "; with HIP_LAUNCH_BLOCKING=1 in the environment it is known which one",
        };
        let reason = format!("{}{more}", self.context.describe(code));
        Err(Error::KernelFaulted { kernels, device: self.context.name().into(), reason })
    }
}

impl CommandQueue for Queue {
    type Kernel = Function;
    type Mark = Mark;
    type Graph = Graph;

    unsafe fn launch(
        &mut self,
        what: &str,
        kernel: &mut Function,
        arguments: &[Value<'_>],
        groups: Groups,
    ) -> Result<()> {
        // The runtime counts threads along an axis in 32 bits, not blocks.
        let fits =
            |grid: &Grid| (0..3).all(|axis| grid.blocks[axis].checked_mul(grid.threads[axis]).is_some());
        let Some(Grid { blocks: [bx, by, bz], threads: [tx, ty, tz] }) = Grid::of(groups).filter(fits) else {
            let reason = format!("{what}: {groups} are more than a launch can have; use more ranks");
            return Err(Error::DeviceUnavailable { device: self.context.name().into(), reason });
        };
        if let Some(kernels) = &mut self.recorded {
            kernels.push(what.to_owned());
            // One pointer an argument: early versions keep only those of kernels that are recorded.
            let mut places: Vec<*mut c_void> =
                arguments.iter().map(|argument| argument.bytes().0.cast_mut()).collect();
            let (stream, places, none) = (self.stream, places.as_mut_ptr(), std::ptr::null_mut());
            self.context.stay()?;
            let launch = self.context.runtime().hipModuleLaunchKernel;
            // SAFETY: as below; the call copies the arguments.
            let code = unsafe { launch(kernel.raw(), bx, by, bz, tx, ty, tz, 0, stream, places, none) };
            return self.context.check(what, code);
        }
        self.packed.set(arguments);
        let (buffer, mut bytes) = (self.packed.pointer().cast::<c_void>(), self.packed.bytes());
        // A list of keys and values, ended by its own key.
        let key = |number: usize| std::ptr::without_provenance_mut::<c_void>(number);
        let mut extra = [
            key(BUFFER_POINTER),
            buffer,
            key(BUFFER_SIZE),
            (&raw mut bytes).cast::<c_void>(),
            key(BUFFER_END),
        ];
        // Before, so that an error of the launch itself has it too.
        self.running.add(what);
        self.context.stay()?;
        let (stream, extra, none) = (self.stream, extra.as_mut_ptr(), std::ptr::null_mut());
        let launch = self.context.runtime().hipModuleLaunchKernel;
        // SAFETY: the function is of a module that is loaded; the arguments are those of its text, by the caller, and lie
        // as its parameters do; the list and what it points to outlive the call, which copies them.
        let code = unsafe { launch(kernel.raw(), bx, by, bz, tx, ty, tz, 0, stream, none, extra) };
        self.check(what, code)?;
        self.running.has_launched();
        Ok(())
    }

    unsafe fn copy(&mut self, source: *const u8, destination: *mut u8, bytes: usize) -> Result<()> {
        let kind = hiprt::hipMemcpyKind::hipMemcpyDefault;
        self.running.put += 1;
        let _current = self.context.enter()?;
        // SAFETY: by the caller; the runtime knows of both sides what memory they are in.
        let code = unsafe {
            (self.context.runtime().hipMemcpyAsync)(
                destination.cast(),
                source.cast(),
                bytes,
                kind,
                self.stream,
            )
        };
        self.check("a copy", code)
    }

    fn mark(&mut self) -> Result<Mark> {
        self.mark_with(false)
    }

    fn timed_mark(&mut self) -> Result<Mark> {
        self.mark_with(true)
    }

    fn nanoseconds(&self, first: &Mark, second: &Mark) -> Result<i64> {
        let mut milliseconds = 0.0;
        self.context.stay()?;
        let elapsed = self.context.runtime().hipEventElapsedTime;
        // SAFETY: a number is written; both events live, and have been recorded.
        let code = unsafe { elapsed(&mut milliseconds, first.event(), second.event()) };
        self.check("the time of a mark", code)?;
        Ok((f64::from(milliseconds) * 1e6) as i64)
    }

    fn has_passed(&self, mark: &Mark) -> bool {
        // SAFETY: it lives as long as the mark.
        let code = unsafe { (self.context.runtime().hipEventQuery)(mark.event()) };
        if code == SUCCESS {
            self.running.passed(mark.put);
        }
        // Of what has failed the next call of the queue says so.
        code != NOT_READY
    }

    fn has_failed(&self) -> bool {
        // SAFETY: the stream lives, and nothing is being recorded on it.
        let code = unsafe { (self.context.runtime().hipStreamQuery)(self.stream) };
        code != SUCCESS && code != NOT_READY
    }

    unsafe fn write_word(&mut self, word: *const c_void, value: u32) -> Result<()> {
        let operations = self.context.memory_operations().expect("the device has them");
        self.running.put += 1;
        self.context.stay()?;
        // SAFETY: by the caller. What the stream has stored before is released first.
        let code = unsafe { (operations.write)(self.stream, word.cast_mut(), value, 0) };
        self.check("a signal", code)
    }

    unsafe fn wait_word(&mut self, word: *const c_void, value: u32) -> Result<()> {
        let operations = self.context.memory_operations().expect("the device has them");
        // SAFETY: words that ranks wait for are in memory of the host, aligned, and used as atomics by all.
        let found = unsafe { AtomicU32::from_ptr(word.cast_mut().cast()) }.load(Ordering::Acquire);
        match plan(found, value) {
            Plan::Nothing => Ok(()),
            // SAFETY: by the caller.
            Plan::Kernel => unsafe { self.wait_by_kernel(word, value) },
            plan => {
                self.running.put += if plan == Plan::CompareBehindWrap { 2 } else { 1 };
                self.context.stay()?;
                // SAFETY: by the caller.
                let code = unsafe { operations.put(plan, self.stream, word.cast_mut(), value) };
                self.check("a wait", code)
            }
        }
    }

    fn begin_graph(&mut self) -> Result<()> {
        let functions = self.context.graphs().expect("the device has graphs");
        // Other threads may go on with what waits for the device or allocates.
        let mode = hiprt::hipStreamCaptureMode::hipStreamCaptureModeThreadLocal;
        self.context.stay()?;
        // SAFETY: the stream lives, and only this thread uses it.
        let code = unsafe { (functions.begin)(self.stream, mode) };
        self.check("a graph", code)?;
        self.recorded = Some(Vec::new());
        Ok(())
    }

    fn end_graph(&mut self) -> Result<Graph> {
        let functions = self.context.graphs().expect("the device has graphs");
        let kernels = self.recorded.take().unwrap_or_default();
        let mut recorded = std::ptr::null_mut();
        // SAFETY: a place for the answer.
        let code = unsafe { (functions.end)(self.stream, &mut recorded) };
        self.check("a graph", code)?;
        Graph::new(&self.context, functions, recorded, kernels)
    }

    unsafe fn launch_graph(&mut self, graph: &mut Graph) -> Result<()> {
        self.running.add_graph(graph.kernels(), graph.length());
        self.context.stay()?;
        // SAFETY: by the caller; the stream lives.
        let code = unsafe { graph.launch(self.stream) };
        self.check("a graph", code)?;
        self.running.has_launched();
        Ok(())
    }

    fn is_full(&self) -> bool {
        self.running.is_full()
    }

    fn flush(&mut self) -> Result<()> {
        // The runtime rings the hardware's bell at each command.
        Ok(())
    }

    fn finish(&mut self) -> Result<()> {
        // SAFETY: it lives.
        let code = unsafe { (self.context.runtime().hipStreamSynchronize)(self.stream) };
        self.check("what was on the queue", code)?;
        self.running.passed(self.running.put);
        Ok(())
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        // SAFETY: it lives and is not used any more; the call waits for what is on it. There is nobody to tell of a
        // failure, here and below.
        let _ = unsafe { (self.context.runtime().hipStreamDestroy)(self.stream) };
        // Those of marks that are still there stay with the device.
        let mut events = lock(&self.events);
        for event in events.iter_mut().flat_map(|events| events.drain(..)) {
            // SAFETY: no mark has it.
            let _ = unsafe { (self.context.runtime().hipEventDestroy)(event.0) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mask_has_both_units_of_each_pair() {
        for counted in [0, 1, 16, 17, 40, 48, 104, 304] {
            let bits: u32 = all_units(counted).iter().map(|word| word.count_ones()).sum();
            assert!(bits >= 2 * counted && (32..2 * counted + 33).contains(&bits), "{counted}: {bits}");
        }
    }
}
