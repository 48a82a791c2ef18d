//! An opened device: its memory and its compiler.

use super::choice::FoundDevice;
use super::exported::{self, ExportedMemory};
use super::graph::Graphs;
use super::queue::Queue;
use crate::device::MemoryMode;
use crate::device::accelerator::{Accelerator, DeviceMemory, Reach};
use crate::device::driver::{Driver, MemoryKind, Traits, next_id};
use crate::device::queue::OWN_KERNELS;
use crate::device::text::KernelText;
use crate::error::{Error, Result};
use crate::fabric::Region;
use opencl3::command_queue::CommandQueue;
use opencl3::device::Device;
use opencl3::error_codes::ClError;
use opencl3::kernel::{CL_KERNEL_EXEC_INFO_SVM_PTRS, Kernel, set_kernel_exec_info};
use opencl3::memory::{
    CL_MEM_READ_WRITE, CL_MEM_SVM_ATOMICS, CL_MEM_SVM_FINE_GRAIN_BUFFER, svm_alloc, svm_free,
};
use opencl3::program::Program;
use opencl3::types::CL_FALSE;
use std::ffi::c_void;
use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

/// Macros and types that the texts of kernels are written with.
const PRELUDE: &str = include_str!("prelude.cl");

/// A device, with the context that all its memory and queues are in.
pub(super) struct OpenclDriver {
    id: u64,
    name: String,
    traits: Traits,
    /// The device's number.
    index: usize,
    found: FoundDevice,
    device: Device,
    context: Arc<opencl3::context::Context>,
    /// The kernels that streams need themselves.
    own: &'static KernelText,
    /// For memory that the host does not write, before any stream uses it.
    apart: CommandQueue,
    /// How its queues record, if they do.
    graphs: Option<Graphs>,
}

/// Memory of the host.
#[derive(Clone)]
#[repr(align(64))]
struct Line(#[expect(dead_code, reason = "only its address is used")] [u8; 64]);

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

impl OpenclDriver {
    /// The device with that number, whose arrays are or are not in memory that the host does not address.
    pub(super) fn new(index: usize, device: Device, found: FoundDevice, separate: bool) -> Result<Self> {
        let refused = |error: ClError| Error::DeviceUnavailable {
            device: found.name.clone(),
            reason: format!("it cannot be opened: {error}"),
        };
        let context = opencl3::context::Context::from_device(&device).map_err(refused)?;
        let apart = CommandQueue::create_default_with_properties(&context, 0, 0).map_err(refused)?;
        let graphs = Graphs::of(&device, &found);
        Ok(Self {
            id: next_id(),
            name: format!("opencl, {}{}", found.name, if separate { ", separate memory" } else { "" }),
            traits: Traits {
                compute_units: found.compute_units,
                group_threads: super::queue::GROUP,
                most_group_threads: super::queue::GROUP,
                is_gpu: found.kind == "GPU",
                has_doubles: found.has_doubles,
                host_reaches: !separate,
                kernels_signal: found.has_atomics,
                has_memory_operations: false,
                queues: u32::MAX,
                has_graphs: graphs.is_some(),
                launches_block: false,
                keeps_times: false,
            },
            index,
            found,
            device,
            context: Arc::new(context),
            own: &OWN_KERNELS,
            apart,
            graphs,
        })
    }

    /// The same with other kernels in place of the streams' own: tests see what mistakes in them would do.
    #[cfg(test)]
    pub(super) fn with_own_kernels(self, own: &'static KernelText) -> Self {
        Self { own, ..self }
    }

    /// Shared virtual memory that has been zeroed.
    fn shared(&self, bytes: usize, reach: Reach) -> Result<DeviceMemory> {
        let fine = match reach {
            Reach::Kernels => 0,
            _ if self.traits.kernels_signal => CL_MEM_SVM_FINE_GRAIN_BUFFER | CL_MEM_SVM_ATOMICS,
            _ => CL_MEM_SVM_FINE_GRAIN_BUFFER,
        };
        let size = bytes.max(64).next_multiple_of(64);
        // SAFETY: the context lives; size and alignment are such as the call allows.
        let base = unsafe { svm_alloc(self.context.get(), CL_MEM_READ_WRITE | fine, size, 64) };
        let base = base.map_err(|_| {
            let reason = format!("{} has no more; use fewer cells or ranks", self.name);
            Error::OutOfMemory { bytes, kind: "device", reason }
        })?;
        let base = NonNull::new(base.cast::<u8>()).expect("an allocation that has not failed");
        let allocation = Allocation { context: self.context.clone(), base };
        if reach == Reach::Kernels {
            // SAFETY: the memory has just been allocated with `size` bytes, a multiple of the pattern's.
            let zeroed =
                unsafe { self.apart.enqueue_svm_mem_fill(base.as_ptr().cast(), &[0_u64], size, &[]) };
            let zeroed = zeroed.and_then(|_| self.apart.finish());
            zeroed.map_err(|error| self.failed("clEnqueueSVMMemFill", &error))?;
        } else {
            // SAFETY: as above, and the host may write it at any time.
            unsafe { base.as_ptr().write_bytes(0, size) };
        }
        // SAFETY: aligned as asked for, and there until the allocation is dropped.
        Ok(unsafe { DeviceMemory::new(base, bytes, self.id, reach, Box::new(allocation)) })
    }

    /// Memory of the host that kernels do not address.
    fn of_host(&self, bytes: usize) -> DeviceMemory {
        let mut lines = vec![Line([0; 64]); bytes.div_ceil(64).max(1)];
        let base = NonNull::new(lines.as_mut_ptr().cast::<u8>()).expect("vectors are not null");
        // SAFETY: lines are aligned, there are enough of them, and nobody else has the vector.
        unsafe { DeviceMemory::new(base, bytes, self.id, Reach::Host, Box::new(lines)) }
    }

    fn failed(&self, call: &str, error: &ClError) -> Error {
        Error::DeviceUnavailable { device: self.name.clone(), reason: format!("{call} failed: {error}") }
    }

    /// What its compiler is told: a language that has atomics at the scope of all devices. Contraction of products
    /// and sums is off in the prelude, and nothing here allows what changes values.
    fn options(&self) -> String {
        let mut options = format!("-cl-std={}", self.found.language());
        if self.traits.has_doubles {
            options += " -DHAS_F64";
        }
        if self.traits.kernels_signal {
            options += " -DHAS_ATOMICS";
        }
        options
    }
}

impl Driver for OpenclDriver {
    type Queue = Queue;
    type Program = Program;
    type Kernel = Kernel;

    fn name(&self) -> &str {
        &self.name
    }

    fn id(&self) -> u64 {
        self.id
    }

    fn traits(&self) -> &Traits {
        &self.traits
    }

    fn with_memory(&self, mode: MemoryMode) -> Result<Option<Arc<dyn Accelerator>>> {
        let separate = self.found.separates(mode)?;
        if separate != self.traits.host_reaches {
            return Ok(None);
        }
        super::reopen(self.index, self.device, self.found.clone(), separate).map(Some)
    }

    fn allocate(&self, bytes: usize, kind: MemoryKind) -> Result<DeviceMemory> {
        if bytes as u64 > self.found.largest_bytes {
            let most = self.found.largest_bytes;
            let reason = format!(
                "{} allocates at most {most} bytes at once; use fewer cells, or more ranks",
                self.name
            );
            return Err(Error::OutOfMemory { bytes, kind: "device", reason });
        }
        match kind {
            MemoryKind::Exportable => {
                let memory = ExportedMemory::new(bytes)?;
                let reach = if self.traits.host_reaches { Reach::Both } else { Reach::Kernels };
                Ok(memory.of_device(self.id, reach))
            }
            MemoryKind::Device if !self.traits.host_reaches => self.shared(bytes, Reach::Kernels),
            _ if self.found.has_fine_grained_memory => self.shared(bytes, Reach::Both),
            _ => Ok(self.of_host(bytes)),
        }
    }

    unsafe fn copy_apart(&self, source: *const u8, destination: *mut u8, bytes: usize) -> Result<()> {
        let (source, destination) = (source.cast(), destination.cast());
        // SAFETY: by the caller, who has both until the queue has come to rest below.
        let copied = unsafe { self.apart.enqueue_svm_mem_cpy(CL_FALSE, destination, source, bytes, &[]) };
        let copied = copied.and_then(|_| self.apart.finish());
        copied.map_err(|error| self.failed("clEnqueueSVMMemcpy", &error))
    }

    fn identity(&self) -> std::result::Result<String, String> {
        exported::unusable().map_or(Ok(()), Err)?;
        // Of both ways to allocate arrays, so that ranks need not agree on one.
        let reason =
            "its kernels do not address all memory of the host, which is all that processes can share";
        self.found.has_system_memory.then(|| "opencl, memory of the host".into()).ok_or(reason.into())
    }

    fn register(&self, region: &Region) -> Result<DeviceMemory> {
        let base = NonNull::new(region.base()).expect("regions are never null");
        // SAFETY: the region's memory, aligned as regions are, which it keeps; kernels address all of the host's.
        Ok(unsafe { DeviceMemory::new(base, region.bytes(), self.id, Reach::Both, Box::new(region.clone())) })
    }

    fn export(&self, memory: &DeviceMemory) -> Result<Vec<u8>> {
        let exported = memory.owner::<ExportedMemory>().expect("memory that was allocated to be exported");
        Ok(exported.handle())
    }

    fn import(&self, handle: &[u8]) -> Result<DeviceMemory> {
        let reach = if self.traits.host_reaches { Reach::Both } else { Reach::Kernels };
        let refused = |reason| Error::DeviceUnavailable { device: self.name.clone(), reason };
        Ok(ExportedMemory::open(handle).map_err(refused)?.of_device(self.id, reach))
    }

    fn own_program(&self) -> Result<Program> {
        self.build(self.own)
    }

    fn build(&self, text: &KernelText) -> Result<Program> {
        let (kernel, device) = (text.name.to_owned(), self.found.name.clone());
        let wrong = |log: String| Error::KernelDidNotCompile { kernel, device, log };
        // Lines are counted from the text's own first.
        let source = format!("{PRELUDE}\n#line 1 \"{}\"\n{}", text.name, text.source);
        let mut program = match Program::create_from_source(&self.context, &source) {
            Ok(program) => program,
            Err(error) => return Err(wrong(error.to_string())),
        };
        match program.build(&[self.device.id()], &self.options()) {
            Ok(()) => Ok(program),
            Err(error) => {
                let log = program.get_build_log(self.device.id()).unwrap_or_default();
                Err(wrong(if log.trim().is_empty() { error.to_string() } else { log.trim().into() }))
            }
        }
    }

    fn kernel(&self, program: &Program, name: &str, reaches: &[*const c_void]) -> Result<Kernel> {
        let kernel = Kernel::create(program, name);
        let kernel = kernel.map_err(|error| self.failed("clCreateKernel", &error))?;
        if !reaches.is_empty() {
            let (size, first) = (size_of_val(reaches), reaches.as_ptr().cast());
            // SAFETY: the list has that size and is copied by the call.
            let set =
                unsafe { set_kernel_exec_info(kernel.get(), CL_KERNEL_EXEC_INFO_SVM_PTRS, size, first) };
            set.map_err(|code| self.failed("clSetKernelExecInfo", &code.into()))?;
        }
        Ok(kernel)
    }

    fn open_queue(&self, _rank: Option<usize>) -> Result<Queue> {
        Queue::new(&self.context, self.name.clone(), self.graphs)
    }
}

impl fmt::Debug for OpenclDriver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OpenclDriver({})", self.name)
    }
}
