//! An in-order queue of a device.

use super::graph::{Graph, Graphs};
use crate::device::driver::{CommandQueue, Groups, Value};
use crate::error::{Error, Result};
use opencl3::command_queue::CL_QUEUE_PROFILING_ENABLE;
use opencl3::context::Context;
use opencl3::error_codes::ClError;
use opencl3::event::{CL_COMPLETE, Event};
use opencl3::kernel::{Kernel, set_kernel_arg};
use opencl3::types::CL_FALSE;
use std::sync::Arc;

/// Threads of a group, along the fastest axis. All kernels have the same: some compilers make code for each.
pub(super) const GROUP: usize = 64;

/// A queue whose commands run one after the other.
pub(super) struct Queue {
    queue: opencl3::command_queue::CommandQueue,
    /// The one that keeps no times, while another does; graphs belong to it.
    other: Option<opencl3::command_queue::CommandQueue>,
    context: Arc<Context>,
    device: String,
    /// Whether something has been put on it that the device may not have been told of.
    is_dirty: bool,
    /// What was put on it last.
    last: Option<Arc<Event>>,
    graphs: Option<Graphs>,
    /// What is being recorded.
    recorded: Option<Graph>,
}

impl Queue {
    pub(super) fn new(context: &Arc<Context>, device: String, graphs: Option<Graphs>) -> Result<Self> {
        let queue = open(context, &device, 0)?;
        let context = context.clone();
        Ok(Self { queue, other: None, context, device, is_dirty: false, last: None, graphs, recorded: None })
    }

    fn put(&mut self, what: &str, enqueued: opencl3::Result<Event>) -> Result<()> {
        self.is_dirty = true;
        self.last = Some(Arc::new(enqueued.map_err(|error| failed(&self.device, what, &error))?));
        Ok(())
    }
}

impl CommandQueue for Queue {
    type Kernel = Kernel;
    /// The command before it; `None` before the first.
    type Mark = Option<Arc<Event>>;
    type Graph = Graph;

    unsafe fn launch(
        &mut self,
        what: &str,
        kernel: &mut Kernel,
        arguments: &[Value<'_>],
        groups: Groups,
    ) -> Result<()> {
        let threads = match groups {
            Groups::ForThreads(threads) => threads,
            Groups::One(threads) => [threads, 1, 1],
        };
        for (index, argument) in (0..).zip(arguments) {
            let set = match argument {
                // SAFETY: the kernel's text has a pointer there, by the caller.
                Value::Pointer(pointer) => unsafe { kernel.set_arg_svm_pointer(index, *pointer) },
                _ => {
                    let (first, bytes) = argument.bytes();
                    // SAFETY: the argument has that many bytes, which the call copies.
                    unsafe { set_kernel_arg(kernel.get(), index, bytes, first) }.map_err(ClError)
                }
            };
            set.map_err(|error| failed(&self.device, &format!("argument {index} of {what}"), &error))?;
        }
        let all = [threads[0].next_multiple_of(GROUP), threads[1], threads[2]];
        let group = [GROUP, 1, 1];
        if let Some(graph) = &mut self.recorded {
            // SAFETY: by the caller.
            let recorded = unsafe { graph.record(kernel, [&all, &group]) };
            return recorded.map_err(|error| failed(&self.device, what, &error));
        }
        let no_offset = std::ptr::null();
        // SAFETY: three sizes each, as the call is told; the rest is by the caller.
        let launched = unsafe {
            self.queue.enqueue_nd_range_kernel(kernel.get(), 3, no_offset, all.as_ptr(), group.as_ptr(), &[])
        };
        self.put(what, launched)
    }

    unsafe fn copy(&mut self, source: *const u8, destination: *mut u8, bytes: usize) -> Result<()> {
        let (source, destination) = (source.cast(), destination.cast());
        // SAFETY: by the caller.
        let copied = unsafe { self.queue.enqueue_svm_mem_cpy(CL_FALSE, destination, source, bytes, &[]) };
        self.put("a copy", copied)
    }

    fn mark(&mut self) -> Result<Self::Mark> {
        Ok(self.last.clone())
    }

    fn has_passed(&self, mark: &Self::Mark) -> bool {
        // Errors are numbers below that of what has run.
        let has_run = |event: &Arc<Event>| {
            event.command_execution_status().map_or(true, |status| status.0 <= CL_COMPLETE)
        };
        mark.as_ref().is_none_or(has_run)
    }

    fn has_failed(&self) -> bool {
        // Errors are negative, also of commands behind one that has failed.
        let has_failed = |event: &Arc<Event>| {
            event.command_execution_status().map_or(true, |status| status.0 < CL_COMPLETE)
        };
        self.last.as_ref().is_some_and(has_failed)
    }

    fn keep_times(&mut self, keeps: bool) -> Result<()> {
        if keeps && self.other.is_none() {
            let timed = open(&self.context, &self.device, CL_QUEUE_PROFILING_ENABLE)?;
            self.other = Some(std::mem::replace(&mut self.queue, timed));
        } else if !keeps && let Some(plain) = self.other.take() {
            self.queue = plain;
        }
        self.last = None;
        Ok(())
    }

    fn timed_mark(&mut self) -> Result<Self::Mark> {
        // SAFETY: it waits for no other events.
        let marked = unsafe { self.queue.enqueue_marker_with_wait_list(&[]) };
        self.put("a mark", marked)?;
        self.mark()
    }

    fn nanoseconds(&self, first: &Self::Mark, second: &Self::Mark) -> Result<i64> {
        let at = |mark: &Self::Mark| {
            let marker = mark.as_ref().expect("a timed mark is a command");
            marker.profiling_command_end().map_err(|error| failed(&self.device, "the time of a mark", &error))
        };
        Ok(at(second)?.cast_signed() - at(first)?.cast_signed())
    }

    fn begin_graph(&mut self) -> Result<()> {
        let plain = self.other.as_ref().unwrap_or(&self.queue);
        let graph = self.graphs.expect("the device has graphs").create(plain.get());
        self.recorded = Some(graph.map_err(|error| failed(&self.device, "a command buffer", &error))?);
        Ok(())
    }

    fn end_graph(&mut self) -> Result<Graph> {
        let mut graph = self.recorded.take().expect("it has been begun");
        graph.finalize().map_err(|error| failed(&self.device, "a command buffer", &error))?;
        Ok(graph)
    }

    unsafe fn launch_graph(&mut self, graph: &mut Graph) -> Result<()> {
        // SAFETY: by the caller.
        let enqueued = unsafe { graph.enqueue() };
        self.put("a command buffer", enqueued.map(Event::new))
    }

    fn flush(&mut self) -> Result<()> {
        if std::mem::take(&mut self.is_dirty) {
            self.queue.flush().map_err(|error| failed(&self.device, "clFlush", &error))?;
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<()> {
        self.is_dirty = false;
        let last = self.last.take();
        self.queue.finish().map_err(|error| failed(&self.device, "what was on the queue", &error))?;
        // How a command has ended is known of its event only: that of the last says whether any has failed.
        let status =
            last.map_or(Ok(CL_COMPLETE), |last| last.command_execution_status().map(|status| status.0));
        match status {
            Ok(status) if status < CL_COMPLETE => {
                Err(failed(&self.device, "a command on the queue", &ClError(status)))
            }
            Ok(_) => Ok(()),
            Err(error) => Err(failed(&self.device, "asking how what was on the queue has ended", &error)),
        }
    }
}

fn open(context: &Context, device: &str, properties: u64) -> Result<opencl3::command_queue::CommandQueue> {
    let queue = opencl3::command_queue::CommandQueue::create_default_with_properties(context, properties, 0);
    queue.map_err(|error| failed(device, "a queue", &error))
}

fn failed(device: &str, what: &str, error: &ClError) -> Error {
    Error::DeviceUnavailable { device: device.into(), reason: format!("{what} failed: {error}") }
}
