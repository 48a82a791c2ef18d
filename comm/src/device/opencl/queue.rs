//! An in-order queue of a device.

use crate::error::{Error, Result};
use opencl3::command_queue::CommandQueue;
use opencl3::context::Context;
use opencl3::error_codes::ClError;
use opencl3::event::Event;
use opencl3::kernel::Kernel;

/// Threads of a group, along the fastest axis. All kernels have the same: some compilers make code for each.
const GROUP: usize = 64;

/// A queue whose kernels run one after the other.
pub(super) struct Queue {
    queue: CommandQueue,
    device: String,
    /// Whether something has been put on it that the device may not have been told of.
    is_dirty: bool,
}

impl Queue {
    pub(super) fn new(context: &Context, device: String) -> Result<Self> {
        let queue = CommandQueue::create_default_with_properties(context, 0, 0);
        let queue = queue.map_err(|error| failed(&device, "a queue", &error))?;
        Ok(Self { queue, device, is_dirty: false })
    }

    /// Puts a kernel on it whose arguments are set, for that many threads, fastest axis first. Does not wait; the
    /// event says how far it is.
    ///
    /// # Safety
    /// The kernel's arguments must be what its text expects, and all memory that it accesses must stay until the
    /// queue has come to rest.
    pub(super) unsafe fn launch(
        &mut self,
        what: &str,
        kernel: &Kernel,
        threads: [usize; 3],
    ) -> Result<Event> {
        let all = [threads[0].next_multiple_of(GROUP), threads[1], threads[2]];
        let group = [GROUP, 1, 1];
        let no_offset = std::ptr::null();
        // SAFETY: three sizes each, as the call is told; the rest is by the caller.
        let launched = unsafe {
            self.queue.enqueue_nd_range_kernel(kernel.get(), 3, no_offset, all.as_ptr(), group.as_ptr(), &[])
        };
        self.is_dirty = true;
        launched.map_err(|error| failed(&self.device, what, &error))
    }

    /// Makes sure that the device works on what is on it. Does not wait.
    pub(super) fn flush(&mut self) -> Result<()> {
        if std::mem::take(&mut self.is_dirty) {
            self.queue.flush().map_err(|error| failed(&self.device, "clFlush", &error))?;
        }
        Ok(())
    }

    /// Blocks until all that is on it has run.
    pub(super) fn finish(&mut self) -> Result<()> {
        self.is_dirty = false;
        self.queue.finish().map_err(|error| failed(&self.device, "what was on the queue", &error))
    }
}

fn failed(device: &str, what: &str, error: &ClError) -> Error {
    Error::DeviceUnavailable { device: device.into(), reason: format!("{what} failed: {error}") }
}
