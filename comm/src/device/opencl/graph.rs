//! Command buffers: kernels that were recorded, for a queue to run with one call (`cl_khr_command_buffer`).
//!
//! The loader of OpenCL does not know the extension's functions, and the driver is asked for them by name.

use super::choice::FoundDevice;
use libloading::Library;
use opencl3::device::Device;
use opencl3::error_codes::{CL_SUCCESS, ClError};
use opencl3::kernel::{Kernel, clone_kernel};
use opencl3::types::{cl_command_queue, cl_event, cl_int, cl_kernel, cl_platform_id, cl_uint};
use std::ffi::{CStr, c_char, c_void};
use std::ptr::{null, null_mut};

const EXTENSION: &str = "cl_khr_command_buffer";
/// The loader's library, which is there already where there is a device.
const LOADER: &str = "libOpenCL.so.1";
/// `CL_DEVICE_COMMAND_BUFFER_CAPABILITIES_KHR` and the one that lets a buffer be enqueued again before it has run.
const SIMULTANEOUS_USE: u64 = 1 << 2;
/// `CL_COMMAND_BUFFER_FLAGS_KHR`, `CL_COMMAND_BUFFER_SIMULTANEOUS_USE_KHR` and the end of the list.
const PROPERTIES: [u64; 3] = [0x1293, 1, 0];

type CommandBuffer = *mut c_void;
type Create =
    unsafe extern "C" fn(cl_uint, *const cl_command_queue, *const u64, *mut cl_int) -> CommandBuffer;
type Enqueue = unsafe extern "C" fn(
    cl_uint,
    *mut cl_command_queue,
    CommandBuffer,
    cl_uint,
    *const cl_event,
    *mut cl_event,
) -> cl_int;
type Record = unsafe extern "C" fn(
    CommandBuffer,
    cl_command_queue,
    *const u64,
    cl_kernel,
    cl_uint,
    *const usize,
    *const usize,
    *const usize,
    cl_uint,
    *const cl_uint,
    *mut cl_uint,
    *mut *mut c_void,
) -> cl_int;
type OfOne = unsafe extern "C" fn(CommandBuffer) -> cl_int;
type Address = unsafe extern "C" fn(cl_platform_id, *const c_char) -> *mut c_void;

/// The extension's functions.
#[derive(Clone, Copy)]
pub(super) struct Graphs {
    create: Create,
    record: Record,
    finalize: OfOne,
    enqueue: Enqueue,
    release: OfOne,
}

/// A command buffer.
pub(super) struct Graph {
    functions: Graphs,
    buffer: CommandBuffer,
    /// Kernels of its own: PoCL 3.1 asks for a kernel's arguments as a buffer is enqueued, not as it is recorded.
    kernels: Vec<Kernel>,
}

// SAFETY: handles of the driver, which any thread may use while no other does.
unsafe impl Send for Graph {}

impl Graphs {
    /// The functions of a device that has them, and lets a buffer be enqueued again before it has run.
    pub(super) fn of(device: &Device, found: &FoundDevice) -> Option<Self> {
        if !found.has_command_buffers {
            return None;
        }
        let platform = device.platform().ok()?;
        // SAFETY: the library is loaded already, or could not be: nothing of it is initialised again.
        let loader = unsafe { Library::new(LOADER) }.ok()?;
        // SAFETY: the type is that of OpenCL 1.2.
        let address =
            unsafe { loader.get::<Address>(c"clGetExtensionFunctionAddressForPlatform".to_bytes()) };
        let address = *address.ok()?;
        let function = |name: &CStr| {
            // SAFETY: the platform is the device's; the name ends in zero.
            let found = unsafe { address(platform, name.as_ptr()) };
            (!found.is_null()).then_some(found)
        };
        let (create, record) =
            (function(c"clCreateCommandBufferKHR")?, function(c"clCommandNDRangeKernelKHR")?);
        let (finalize, enqueue) =
            (function(c"clFinalizeCommandBufferKHR")?, function(c"clEnqueueCommandBufferKHR")?);
        let release = function(c"clReleaseCommandBufferKHR")?;
        Some(Self {
            // SAFETY: the type is that of the extension's function, here and below; drivers are never unloaded.
            create: unsafe { std::mem::transmute::<*mut c_void, Create>(create) },
            // SAFETY: as above.
            record: unsafe { std::mem::transmute::<*mut c_void, Record>(record) },
            // SAFETY: as above.
            finalize: unsafe { std::mem::transmute::<*mut c_void, OfOne>(finalize) },
            // SAFETY: as above.
            enqueue: unsafe { std::mem::transmute::<*mut c_void, Enqueue>(enqueue) },
            // SAFETY: as above.
            release: unsafe { std::mem::transmute::<*mut c_void, OfOne>(release) },
        })
    }

    /// An empty one, for a queue that lives.
    pub(super) fn create(self, queue: cl_command_queue) -> Result<Graph, ClError> {
        let mut code = CL_SUCCESS;
        // SAFETY: one queue, as the call is told, a list that ends in zero, and a place for the code.
        let buffer = unsafe { (self.create)(1, &queue, PROPERTIES.as_ptr(), &mut code) };
        check(code).map(|()| Graph { functions: self, buffer, kernels: Vec::new() })
    }
}

impl Graph {
    /// Records a kernel with the arguments that are set, for that many threads and as many a group.
    ///
    /// # Safety
    /// As of a launch.
    pub(super) unsafe fn record(
        &mut self,
        kernel: &Kernel,
        [all, group]: [&[usize; 3]; 2],
    ) -> Result<(), ClError> {
        let (buffer, all, group) = (self.buffer, all.as_ptr(), group.as_ptr());
        let own = Kernel::new(clone_kernel(kernel.get())?);
        let kernel = own.get();
        self.kernels.push(own);
        // SAFETY: three sizes each, as the call is told; no queue but its own, and nothing to wait for; the rest is by the
        // caller.
        check(unsafe {
            (self.functions.record)(
                buffer,
                null_mut(),
                null(),
                kernel,
                3,
                null(),
                all,
                group,
                0,
                null(),
                null_mut(),
                null_mut(),
            )
        })
    }

    /// Ends recording.
    pub(super) fn finalize(&mut self) -> Result<(), ClError> {
        // SAFETY: it lives.
        check(unsafe { (self.functions.finalize)(self.buffer) })
    }

    /// Puts it on the queue that it was made for.
    ///
    /// # Safety
    /// As of launches of all its kernels.
    pub(super) unsafe fn enqueue(&mut self) -> Result<cl_event, ClError> {
        let mut event = null_mut();
        // SAFETY: no queues besides its own; a place for the event; the rest is by the caller.
        let code = unsafe { (self.functions.enqueue)(0, null_mut(), self.buffer, 0, null(), &mut event) };
        check(code).map(|()| event)
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        // SAFETY: it lives; the driver keeps it until it has run. There is nobody to tell of a failure.
        let _ = unsafe { (self.functions.release)(self.buffer) };
    }
}

/// Whether a device has the extension, with buffers that can be enqueued again before they have run.
pub(super) fn has_command_buffers(device: &Device) -> bool {
    device.extensions().is_ok_and(|names| names.split_whitespace().any(|name| name == EXTENSION))
        && device.device_command_buffer_capabilities_khr().is_ok_and(|able| able & SIMULTANEOUS_USE != 0)
}

fn check(code: cl_int) -> Result<(), ClError> {
    if code == CL_SUCCESS { Ok(()) } else { Err(ClError(code)) }
}
