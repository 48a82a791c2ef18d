//! An opened device: its memory and its programs.

use super::choice::FoundDevice;
use super::executor::QueueExecutor;
use super::queue::Queue;
use crate::device::Waits;
use crate::device::accelerator::{Accelerator, DeviceMemory, Execute};
use crate::device::stream::Status;
use crate::device::text::KernelText;
use crate::element::ElementType;
use crate::error::{Error, Result};
use crate::fabric::Executor;
use opencl3::device::Device;
use opencl3::error_codes::ClError;
use opencl3::kernel::Kernel;
use opencl3::memory::{
    CL_MEM_READ_WRITE, CL_MEM_SVM_ATOMICS, CL_MEM_SVM_FINE_GRAIN_BUFFER, svm_alloc, svm_free,
};
use opencl3::program::Program;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ffi::c_void;
use std::fmt;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Macros and types that the texts of kernels are written with.
const PRELUDE: &str = include_str!("prelude.cl");
/// The kernels that streams need themselves.
const OWN_KERNELS: &str = include_str!("kernels.cl");

/// What all streams of a device share.
pub(super) struct Context {
    id: u64,
    name: String,
    found: FoundDevice,
    device: Device,
    context: Arc<opencl3::context::Context>,
    own: Program,
    /// By the text's name and source.
    programs: Mutex<HashMap<(&'static str, &'static str), Program>>,
    /// Counts the kernels of all streams that wait. `None` only while it is made.
    waiters: Option<DeviceMemory>,
}

/// An allocation, which keeps its context.
struct Allocation {
    context: Arc<opencl3::context::Context>,
    base: NonNull<u8>,
}

// SAFETY: the pointer is only used to free the memory, which any thread may do.
unsafe impl Send for Allocation {}
// SAFETY: as above.
unsafe impl Sync for Allocation {}

impl Drop for Allocation {
    fn drop(&mut self) {
        // SAFETY: allocated in this context. Operations hold what they use until the queue has come to rest, so
        // that no kernel uses it any more. There is nobody to tell of a failure.
        let _ = unsafe { svm_free(self.context.get(), self.base.as_ptr().cast()) };
    }
}

impl Context {
    pub(super) fn new(index: usize, (device, found): (Device, FoundDevice)) -> Result<Self> {
        let refused = |error: ClError| Error::DeviceUnavailable {
            device: found.name.clone(),
            reason: format!("it cannot be opened: {error}"),
        };
        let context = opencl3::context::Context::from_device(&device).map_err(refused)?;
        let own = build(&context, &device, &found, "streams", &options(&found), OWN_KERNELS)?;
        let mut opened = Self {
            id: index as u64,
            name: format!("opencl, {}", found.name),
            found,
            device,
            context: Arc::new(context),
            own,
            programs: Mutex::default(),
            waiters: None,
        };
        opened.waiters = Some(opened.allocate(size_of::<AtomicU32>())?);
        Ok(opened)
    }

    /// Whether kernels are to wait. On the host's own cores they would take them from the ranks.
    fn waits_by_kernels(&self, waits: Waits) -> bool {
        let can = self.found.has_atomics && self.found.compute_units > 1;
        can && match waits {
            Waits::Auto => self.found.kind == "GPU",
            Waits::Kernel => true,
            Waits::Proxy => false,
        }
    }

    pub(super) fn found(&self) -> &FoundDevice {
        &self.found
    }

    /// Where kernels that have waited count themselves out.
    pub(super) fn waiters(&self) -> *const c_void {
        self.waiters.as_ref().expect("made with the context").base().as_ptr().cast_const().cast()
    }

    /// Counts a kernel in that will wait, unless the others could then not go on; whether it may.
    pub(super) fn reserve_waiter(&self) -> bool {
        // SAFETY: aligned memory of the device that lives as long as `self`, used as an atomic by all.
        let waiters = unsafe { AtomicU32::from_ptr(self.waiters().cast_mut().cast()) };
        let most = self.found.compute_units.saturating_sub(1);
        let counted = |waiting: u32| (waiting < most).then(|| waiting + 1);
        waiters.fetch_update(Ordering::Acquire, Ordering::Relaxed, counted).is_ok()
    }

    /// A kernel of the streams' own.
    pub(super) fn own_kernel(&self, name: &str) -> Result<Kernel> {
        Kernel::create(&self.own, name).map_err(|error| self.failed("clCreateKernel", &error))
    }

    /// A kernel of a text that has been compiled.
    pub(super) fn kernel(&self, text: &'static KernelText) -> Result<Kernel> {
        let programs = self.programs.lock().unwrap_or_else(PoisonError::into_inner);
        let program = programs.get(&(text.name, text.source)).expect("a launch compiles its text first");
        Kernel::create(program, text.name).map_err(|error| self.failed("clCreateKernel", &error))
    }

    /// An error of the device.
    pub(super) fn failed(&self, call: &str, error: &ClError) -> Error {
        Error::DeviceUnavailable { device: self.name.clone(), reason: format!("{call} failed: {error}") }
    }

    pub(super) fn queue(&self) -> Result<Queue> {
        Queue::new(&self.context, self.name.clone())
    }
}

/// What its compiler is told: a language that has atomics at the scope of all devices. Contraction of products
/// and sums is off in the prelude, and nothing here allows what changes values.
fn options(found: &FoundDevice) -> String {
    let mut options = format!("-cl-std={}", found.language());
    if found.has_doubles {
        options += " -DHAS_F64";
    }
    if found.has_atomics {
        options += " -DHAS_ATOMICS";
    }
    options
}

/// Compiles a text behind the prelude, with lines counted from its own first.
fn build(
    context: &opencl3::context::Context,
    device: &Device,
    found: &FoundDevice,
    kernel: &str,
    options: &str,
    text: &str,
) -> Result<Program> {
    let wrong =
        |log: String| Error::KernelDidNotCompile { kernel: kernel.into(), device: found.name.clone(), log };
    let source = format!("{PRELUDE}\n#line 1 \"{kernel}\"\n{text}");
    let mut program =
        Program::create_from_source(context, &source).map_err(|error| wrong(error.to_string()))?;
    match program.build(&[device.id()], options) {
        Ok(()) => Ok(program),
        Err(error) => {
            let log = program.get_build_log(device.id()).unwrap_or_default();
            Err(wrong(if log.trim().is_empty() { error.to_string() } else { log.trim().into() }))
        }
    }
}

impl Accelerator for Context {
    fn name(&self) -> &str {
        &self.name
    }

    fn id(&self) -> u64 {
        self.id
    }

    fn executor(&self, waits: Waits) -> Executor {
        if self.waits_by_kernels(waits) { Executor::Stream } else { Executor::Proxy }
    }

    fn allocate(&self, bytes: usize) -> Result<DeviceMemory> {
        let failed = |reason: String| Error::OutOfMemory { bytes, kind: "device", reason };
        if bytes as u64 > self.found.largest_bytes {
            return Err(failed(format!(
                "{} allocates at most {} bytes at once; use fewer cells, or more ranks",
                self.name, self.found.largest_bytes
            )));
        }
        let mut flags = CL_MEM_READ_WRITE | CL_MEM_SVM_FINE_GRAIN_BUFFER;
        if self.found.has_atomics {
            flags |= CL_MEM_SVM_ATOMICS;
        }
        let size = bytes.max(64).next_multiple_of(64);
        // SAFETY: the context lives; size and alignment are such as the call allows.
        let base = unsafe { svm_alloc(self.context.get(), flags, size, 64) };
        let base =
            base.map_err(|_| failed(format!("{} has no more; use fewer cells or ranks", self.name)))?;
        let base = NonNull::new(base.cast::<u8>()).expect("an allocation that has not failed");
        let allocation = Allocation { context: self.context.clone(), base };
        // SAFETY: the memory has just been allocated with `size` bytes, and the host may write it at any time.
        unsafe { base.as_ptr().write_bytes(0, size) };
        // SAFETY: aligned as asked for, and there until the allocation is dropped.
        Ok(unsafe { DeviceMemory::new(base, bytes, self.id, Box::new(allocation)) })
    }

    fn check_element(&self, element: ElementType) -> Result<()> {
        if element == ElementType::F64 && !self.found.has_doubles {
            let reason = "it does not compute with f64; use f32, or another device".into();
            return Err(Error::DeviceUnavailable { device: self.name.clone(), reason });
        }
        Ok(())
    }

    fn compile(&self, text: &'static KernelText) -> Result<()> {
        // Held while it is compiled: ranks that ask for the same text would compile it as often.
        let mut programs = self.programs.lock().unwrap_or_else(PoisonError::into_inner);
        if let Entry::Vacant(new) = programs.entry((text.name, text.source)) {
            let options = options(&self.found);
            new.insert(build(&self.context, &self.device, &self.found, text.name, &options, text.source)?);
        }
        Ok(())
    }

    fn open_queue(self: Arc<Self>, status: Arc<Status>, waits: Waits) -> Result<Box<dyn Execute>> {
        if waits == Waits::Kernel && !self.waits_by_kernels(waits) {
            let reason = "kernels cannot wait on it: it has no atomic operations at the scope of all devices, or \
                          only one compute unit; let the thread wait";
            return Err(Error::DeviceUnavailable { device: self.name.clone(), reason: reason.into() });
        }
        let by_kernels = self.waits_by_kernels(waits);
        Ok(Box::new(QueueExecutor::new(self, status, by_kernels)?))
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Context({})", self.name)
    }
}
