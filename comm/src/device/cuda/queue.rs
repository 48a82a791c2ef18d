//! A stream of CUDA as an in-order queue.

use super::context::Context;
use super::graph::Graph;
use super::program::Kernel;
use super::sys::{self, CUevent, CUresult, CUstream, Failure, check};
use crate::device::driver::{CommandQueue, Groups, Value};
use crate::device::gpu::{Grid, Packed, Running, launches_block};
use crate::error::{Error, Result};
use crate::locks::lock;
use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::{Arc, Mutex};

/// What has the driver end each kernel within its launch.
pub(super) const LAUNCH_BLOCKING: &str = "CUDA_LAUNCH_BLOCKING";

/// A queue whose commands run one after the other.
pub(super) struct Queue {
    context: Arc<Context>,
    stream: CUstream,
    /// The one of [`super::streams`] that it is on.
    side: Option<usize>,
    packed: Packed,
    running: Running,
    /// Events of marks that nobody has any more.
    spare: Spare,
    /// The kernels of a graph that is being recorded.
    recorded: Option<Vec<String>>,
}

// SAFETY: a handle of the driver, which any thread may use.
unsafe impl Send for Queue {}

/// A point of a queue.
pub(super) struct Mark {
    event: CUevent,
    /// How many commands are before it.
    put: u64,
    /// Whether the event keeps its time.
    is_timed: bool,
    spare: Spare,
}

// SAFETY: as of a queue.
unsafe impl Send for Mark {}

/// Events to be recorded again, by their handles' addresses: those that keep no times, and those that do.
type Spare = Arc<Mutex<[Vec<usize>; 2]>>;

impl Drop for Mark {
    fn drop(&mut self) {
        let mut spare = lock(&self.spare);
        spare[usize::from(self.is_timed)].push(self.event as usize);
    }
}

impl Queue {
    pub(super) fn new(context: Arc<Context>, side: Option<usize>) -> Result<Self> {
        let taken =
            context.enter().and_then(|_current| context.streams().take(side, || context.make_stream()));
        let (stream, side) = taken.map_err(|failure| context.failed(failure))?;
        Ok(Self {
            context,
            stream,
            side,
            packed: Packed::default(),
            running: Running::new(launches_block(LAUNCH_BLOCKING)),
            spare: Spare::default(),
            recorded: None,
        })
    }

    /// Calls the driver for this queue. An error that a kernel has made is told with those that may have.
    fn call(&self, what: &str, call: impl FnOnce() -> Result<(), Failure>) -> Result<()> {
        self.context.enter().and_then(|_current| call()).map_err(|failure| self.failed(what, failure))
    }

    fn mark_with(&mut self, is_timed: bool) -> Result<Mark> {
        let mut spare = lock(&self.spare);
        let mut event = spare[usize::from(is_timed)].pop().map_or(null_mut(), |address| address as CUevent);
        drop(spare);
        let stream = self.stream;
        self.running.put += 1;
        let flags = match is_timed {
            true => sys::CUevent_flags::CU_EVENT_DEFAULT,
            false => sys::CUevent_flags::CU_EVENT_DISABLE_TIMING,
        };
        self.call("a mark", || {
            if event.is_null() {
                // SAFETY: a handle is written.
                check("cuEventCreate", unsafe { sys::cuEventCreate(&mut event, flags as u32) })?;
            }
            // SAFETY: both handles live; nobody else has the event.
            check("cuEventRecord", unsafe { sys::cuEventRecord(event, stream) })
        })?;
        Ok(Mark { event, put: self.running.put, is_timed, spare: self.spare.clone() })
    }

    fn failed(&self, what: &str, failure: Failure) -> Error {
        let kernels = self.running.names();
        if failure.is_a_kernels() && !kernels.is_empty() {
            let more = match kernels.len() {
                1 => "",
                _ => "; with CUDA_LAUNCH_BLOCKING=1 in the environment it is known which one",
            };
            let reason = format!("{:?}{more}", failure.code);
            return Error::KernelFaulted { kernels, device: self.context.name().into(), reason };
        }
        match self.context.failed(failure) {
            Error::DeviceUnavailable { device, reason } => {
                Error::DeviceUnavailable { device, reason: format!("{what}: {reason}") }
            }
            other => other,
        }
    }
}

impl CommandQueue for Queue {
    type Kernel = Kernel;
    type Mark = Mark;
    type Graph = Graph;

    unsafe fn launch(
        &mut self,
        what: &str,
        kernel: &mut Kernel,
        arguments: &[Value<'_>],
        groups: Groups,
    ) -> Result<()> {
        let Some(Grid { blocks: [bx, by, bz], threads: [tx, ty, tz] }) = Grid::of(groups) else {
            let reason = format!("{what}: {groups} are more than a launch can have; use more ranks");
            return Err(Error::DeviceUnavailable { device: self.context.name().into(), reason });
        };
        self.packed.set(arguments);
        let (buffer, mut bytes) = (self.packed.pointer().cast::<c_void>(), self.packed.bytes());
        // A list of keys and values, ended by its own key.
        let mut extra = [
            std::ptr::without_provenance_mut(sys::CU_LAUNCH_PARAM_BUFFER_POINTER_AS_INT as usize),
            buffer,
            std::ptr::without_provenance_mut(sys::CU_LAUNCH_PARAM_BUFFER_SIZE_AS_INT as usize),
            (&raw mut bytes).cast::<c_void>(),
            std::ptr::without_provenance_mut(sys::CU_LAUNCH_PARAM_END_AS_INT as usize),
        ];
        let (stream, extra, none) = (self.stream, extra.as_mut_ptr(), null_mut());
        // Before, so that an error of the launch itself has it too.
        match &mut self.recorded {
            None => self.running.add(what),
            Some(kernels) => kernels.push(what.to_owned()),
        }
        self.call(what, || {
            // SAFETY: the arguments are those of the kernel's text, by the caller, and lie as its parameters do; the
            // list and what it points to outlive the call, which copies them.
            let launched =
                unsafe { sys::cuLaunchKernel(kernel.0, bx, by, bz, tx, ty, tz, 0, stream, none, extra) };
            check("cuLaunchKernel", launched)
        })?;
        self.running.has_launched();
        Ok(())
    }

    unsafe fn copy(&mut self, source: *const u8, destination: *mut u8, bytes: usize) -> Result<()> {
        let (source, destination) = (source.addr() as u64, destination.addr() as u64);
        self.running.put += 1;
        self.call("a copy", || {
            // SAFETY: by the caller. With unified addresses the driver sees by itself which side is where.
            check("cuMemcpyAsync", unsafe { sys::cuMemcpyAsync(destination, source, bytes, self.stream) })
        })
    }

    fn mark(&mut self) -> Result<Mark> {
        self.mark_with(false)
    }

    fn timed_mark(&mut self) -> Result<Mark> {
        self.mark_with(true)
    }

    fn nanoseconds(&self, first: &Mark, second: &Mark) -> Result<i64> {
        let mut milliseconds = 0.0;
        self.call("the time of a mark", || {
            // SAFETY: a number is written; both events live, and have been recorded.
            let code = unsafe { (sys::elapsed_time()?)(&mut milliseconds, first.event, second.event) };
            check("cuEventElapsedTime", code)
        })?;
        Ok((f64::from(milliseconds) * 1e6) as i64)
    }

    fn has_passed(&self, mark: &Mark) -> bool {
        let Ok(_current) = self.context.enter() else { return true };
        // SAFETY: the event lives as long as the queue.
        match unsafe { sys::cuEventQuery(mark.event) } {
            CUresult::CUDA_ERROR_NOT_READY => false,
            CUresult::CUDA_SUCCESS => {
                self.running.passed(mark.put);
                true
            }
            // The next call of the stream says what has failed.
            _ => true,
        }
    }

    fn has_failed(&self) -> bool {
        let Ok(_current) = self.context.enter() else { return true };
        // SAFETY: the stream lives, and nothing is being recorded on it.
        let code = unsafe { sys::cuStreamQuery(self.stream) };
        !matches!(code, CUresult::CUDA_SUCCESS | CUresult::CUDA_ERROR_NOT_READY)
    }

    unsafe fn write_word(&mut self, word: *const c_void, value: u32) -> Result<()> {
        self.running.put += 1;
        // By default the store is behind a fence for the whole system.
        let (address, flags) =
            (word.addr() as u64, sys::CUstreamWriteValue_flags::CU_STREAM_WRITE_VALUE_DEFAULT);
        self.call("a signal", || {
            // SAFETY: by the caller.
            let put = unsafe { sys::cuStreamWriteValue32_v2(self.stream, address, value, flags as u32) };
            check("cuStreamWriteValue32", put)
        })
    }

    unsafe fn wait_word(&mut self, word: *const c_void, value: u32) -> Result<()> {
        // Compared as `word.rs` does: what lies between both as a signed number.
        self.running.put += 1;
        let (address, flags) = (word.addr() as u64, sys::CUstreamWaitValue_flags::CU_STREAM_WAIT_VALUE_GEQ);
        self.call("a wait", || {
            // SAFETY: by the caller.
            let put = unsafe { sys::cuStreamWaitValue32_v2(self.stream, address, value, flags as u32) };
            check("cuStreamWaitValue32", put)
        })
    }

    fn begin_graph(&mut self) -> Result<()> {
        // Other threads may go on with what waits for the device or allocates.
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        self.call("a graph", || {
            // SAFETY: the stream lives, and only this thread uses it.
            check("cuStreamBeginCapture", unsafe { sys::cuStreamBeginCapture_v2(self.stream, mode) })
        })?;
        self.recorded = Some(Vec::new());
        Ok(())
    }

    fn end_graph(&mut self) -> Result<Graph> {
        let kernels = self.recorded.take().unwrap_or_default();
        let mut graph = null_mut();
        let stream = self.stream;
        self.call("a graph", || {
            // SAFETY: a handle is written.
            check("cuStreamEndCapture", unsafe { sys::cuStreamEndCapture(stream, &mut graph) })
        })?;
        Graph::new(&self.context, graph, kernels)
    }

    unsafe fn launch_graph(&mut self, graph: &mut Graph) -> Result<()> {
        self.running.add_graph(graph.kernels(), graph.length());
        self.call("a graph", || {
            // SAFETY: both live; the rest is by the caller.
            check("cuGraphLaunch", unsafe { sys::cuGraphLaunch(graph.raw(), self.stream) })
        })?;
        self.running.has_launched();
        Ok(())
    }

    fn is_full(&self) -> bool {
        self.running.is_full()
    }

    fn flush(&mut self) -> Result<()> {
        // The driver tells the device at once.
        Ok(())
    }

    fn finish(&mut self) -> Result<()> {
        self.call("what was on the queue", || {
            // SAFETY: the stream lives.
            check("cuStreamSynchronize", unsafe { sys::cuStreamSynchronize(self.stream) })
        })?;
        self.running.passed(self.running.put);
        Ok(())
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        let Ok(_current) = self.context.enter() else { return };
        let mut spare = lock(&self.spare);
        for event in spare.iter_mut().flat_map(|events| events.drain(..)) {
            // SAFETY: made by this queue; its marks are gone. There is nobody to tell of a failure.
            unsafe { sys::cuEventDestroy_v2(event as CUevent) };
        }
        let mut streams = self.context.streams();
        // SAFETY: the stream lives.
        let rests = unsafe { sys::cuStreamQuery(self.stream) } == CUresult::CUDA_SUCCESS;
        let unwanted = match rests {
            true => streams.give_back(self.stream, self.side),
            false => {
                streams.lose(self.side);
                Some(self.stream)
            }
        };
        if let Some(stream) = unwanted {
            // SAFETY: nobody else has the stream, which the driver keeps until it has come to rest.
            unsafe { sys::cuStreamDestroy_v2(stream) };
        }
    }
}
