//! An opened GPU: its context, its memory and its compiler.

use super::choice::FoundGpu;
use super::memory;
use super::nvrtc::{self, Nvrtc};
use super::processes::{self, Shared};
use super::program::{Kernel, Program, kernels_in};
use super::queue::{LAUNCH_BLOCKING, Queue};
use super::streams::{Streams, side_of};
use super::sys::{self, CUcontext, CUdevice, CUdeviceptr, CUmemoryPool, CUstream, Failure, check};
use crate::device::accelerator::DeviceMemory;
use crate::device::driver::{Driver, MemoryKind, Traits, next_id};
use crate::device::gpu::Chunks;
use crate::device::gpu::{self, BLOCK, ONE_BLOCK};
use crate::device::text::KernelText;
use crate::device::{Addresses, Vendor};
use crate::error::{Error, Result};
use crate::fabric::Region;
use crate::locks::lock;
use std::ffi::c_void;
use std::fmt;
use std::marker::PhantomData;
use std::ptr::null_mut;
use std::sync::{Arc, Mutex, MutexGuard};

/// The kernels that streams need themselves, compiled from `queue/kernels.h` by `make-ptx`: PTX 8.0 for compute
/// capability 7.0, which every driver and GPU takes that is not refused.
pub(super) const OWN_PTX: &str = concat!(include_str!("streams.ptx"), "\0");

/// The primary context of a GPU, which all ranks of the process share, also with other libraries. Stays open as long as
/// the process: so do the devices that have been opened.
pub(super) struct Context {
    name: String,
    driver: String,
    memory_bytes: u64,
    handle: CUcontext,
    pool: CUmemoryPool,
    /// For what belongs to no stream: allocations, which are in its order. Nothing on it ever waits for a rank.
    own_stream: CUstream,
    /// Of queues.
    streams: Mutex<Streams<CUstream>>,
    /// What streams are used with first.
    scratch: CUdeviceptr,
    pinned: Chunks,
    shared: Shared,
}

// SAFETY: handles of the driver, which any thread may use; what changes is behind a lock.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

/// While it lives, calls of this thread are for a context; then for the one before again.
pub(super) struct Current(PhantomData<*const ()>);

impl Drop for Current {
    fn drop(&mut self) {
        let mut popped = null_mut();
        // SAFETY: pushed when this was made, by the same thread: it is not `Send`. There is nobody to tell of a
        // failure.
        unsafe { sys::cuCtxPopCurrent_v2(&mut popped) };
    }
}

impl Context {
    fn open(device: CUdevice, found: &FoundGpu) -> Result<Self, Failure> {
        let mut handle = null_mut();
        // SAFETY: a handle is written.
        check("cuDevicePrimaryCtxRetain", unsafe { sys::cuDevicePrimaryCtxRetain(&mut handle, device) })?;
        let mut context = Self {
            name: format!("cuda, {}", found.name),
            driver: found.driver.clone(),
            memory_bytes: found.memory_bytes,
            handle,
            pool: null_mut(),
            own_stream: null_mut(),
            streams: Mutex::new(Streams::new(queues() as usize)),
            scratch: 0,
            pinned: Chunks::default(),
            shared: Shared::default(),
        };
        let current = context.enter()?;
        let own_stream = new_stream()?;
        let pool = memory::pool(device)?;
        drop(current);
        (context.own_stream, context.pool) = (own_stream, pool);
        context.scratch = memory::take(&context, SCRATCH)?;
        context.lock_first_pages()?;
        Ok(context)
    }

    /// Makes the calls of this thread be for it.
    ///
    /// # Errors
    /// What the driver says.
    pub(super) fn enter(&self) -> Result<Current, Failure> {
        // SAFETY: the context lives as long as the process.
        check("cuCtxPushCurrent", unsafe { sys::cuCtxPushCurrent_v2(self.handle) })?;
        Ok(Current(PhantomData))
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// The driver's CUDA.
    pub(super) fn driver(&self) -> &str {
        &self.driver
    }

    /// How much memory the GPU has.
    pub(super) fn memory_bytes(&self) -> u64 {
        self.memory_bytes
    }

    pub(super) fn pool(&self) -> CUmemoryPool {
        self.pool
    }

    pub(super) fn own_stream(&self) -> CUstream {
        self.own_stream
    }

    /// The host's memory that is locked for it.
    pub(super) fn pinned(&self) -> &Chunks {
        &self.pinned
    }

    pub(super) fn shared(&self) -> &Shared {
        &self.shared
    }

    /// A stream that is not in order with any other, and was used: whatever the driver gives it then, in the order of such
    /// uses, it has. Waits for nothing else. The caller has entered.
    pub(super) fn make_stream(&self) -> Result<CUstream, Failure> {
        let stream = new_stream()?;
        // SAFETY: memory of that size, in which everybody writes zeros, and a stream that nobody else has.
        let used = unsafe { sys::cuMemsetD8Async(self.scratch, 0, SCRATCH, stream) };
        // SAFETY: as above.
        let finish = || check("cuStreamSynchronize", unsafe { sys::cuStreamSynchronize(stream) });
        match check("cuMemsetD8Async", used).and_then(|()| finish()) {
            Ok(()) => Ok(stream),
            Err(failure) => {
                // SAFETY: as above. The first failure is the one to tell.
                unsafe { sys::cuStreamDestroy_v2(stream) };
                Err(failure)
            }
        }
    }

    /// The streams of queues. Who makes one has entered.
    pub(super) fn streams(&self) -> MutexGuard<'_, Streams<CUstream>> {
        lock(&self.streams)
    }

    /// Blocks until what belongs to no stream is done. The caller has entered.
    pub(super) fn finish_own(&self) -> Result<(), Failure> {
        // SAFETY: the stream lives as long as the context.
        check("cuStreamSynchronize", unsafe { sys::cuStreamSynchronize(self.own_stream) })
    }

    /// An error of the device, for which no kernel is to blame that is known.
    pub(super) fn failed(&self, failure: Failure) -> Error {
        let mut reason = failure.to_string();
        if failure.is_a_kernels() {
            reason +=
                ": a kernel of another stream has failed, and the device does nothing more for this process";
        }
        Error::DeviceUnavailable { device: self.name.clone(), reason }
    }
}

/// How many streams have a queue of their own, but for the one of what belongs to none.
fn queues() -> u32 {
    connections(std::env::var("CUDA_DEVICE_MAX_CONNECTIONS").ok().as_deref()) - 1
}

/// How many queues the hardware has for this process, by the environment: more streams share them, and one that waits
/// holds up those that it shares with (CUDA's guide, "CUDA Environment Variables").
fn connections(told: Option<&str>) -> u32 {
    let told = told.and_then(|told| told.trim().parse::<u32>().ok());
    told.filter(|told| (1..=32).contains(told)).unwrap_or(8)
}

/// Bytes of what streams are used with first.
const SCRATCH: usize = 64;

/// A stream that is not in order with any other. The caller has entered.
fn new_stream() -> Result<CUstream, Failure> {
    let mut stream = null_mut();
    let flags = sys::CUstream_flags::CU_STREAM_NON_BLOCKING as u32;
    // SAFETY: a handle is written.
    check("cuStreamCreate", unsafe { sys::cuStreamCreate(&mut stream, flags) })?;
    Ok(stream)
}

/// A GPU.
pub(super) struct CudaDriver {
    id: u64,
    device: CUdevice,
    traits: Traits,
    found: FoundGpu,
    context: Arc<Context>,
}

impl CudaDriver {
    pub(super) fn new(device: CUdevice, found: FoundGpu) -> Result<Self> {
        let context = Context::open(device, &found).map_err(|failure| Error::DeviceUnavailable {
            device: found.name.clone(),
            reason: format!("it cannot be opened: {failure}"),
        })?;
        Ok(Self {
            id: next_id(),
            device,
            traits: Traits {
                compute_units: found.multiprocessors,
                group_threads: BLOCK,
                most_group_threads: ONE_BLOCK,
                is_gpu: true,
                has_doubles: true,
                host_reaches: false,
                kernels_signal: true,
                // All devices have those of 32 bits in the second version of the interface ("Stream memory
                // operations"); wider ones do not.
                has_memory_operations: true,
                queues: queues(),
                has_graphs: true,
                launches_block: gpu::launches_block(LAUNCH_BLOCKING),
                keeps_times: true,
            },
            found,
            context: Arc::new(context),
        })
    }

    fn refused(&self, reason: String) -> Error {
        Error::DeviceUnavailable { device: self.context.name().into(), reason }
    }
}

impl Driver for CudaDriver {
    type Queue = Queue;
    type Program = Program;
    type Kernel = Kernel;

    fn name(&self) -> &str {
        self.context.name()
    }

    fn id(&self) -> u64 {
        self.id
    }

    fn traits(&self) -> &Traits {
        &self.traits
    }

    fn allocate(&self, bytes: usize, kind: MemoryKind) -> Result<DeviceMemory> {
        match kind {
            MemoryKind::Device => memory::of_device(&self.context, self.id, bytes),
            MemoryKind::Exportable => processes::exportable(&self.context, self.id, bytes),
            MemoryKind::Pinned => memory::of_host(&self.context, self.id, bytes),
        }
    }

    unsafe fn copy_apart(&self, source: *const u8, destination: *mut u8, bytes: usize) -> Result<()> {
        // SAFETY: by the caller.
        unsafe { self.context.copy_apart(source, destination, bytes) }
            .map_err(|failure| self.context.failed(failure))
    }

    fn identity(&self) -> std::result::Result<String, String> {
        processes::identity(self.device)
    }

    fn reaches(&self, identity: &str) -> std::result::Result<(), String> {
        processes::reaches(self.device, identity)
    }

    fn register(&self, region: &Region) -> Result<DeviceMemory> {
        gpu::register(&self.context, self.id, region)
    }

    fn export(&self, memory: &DeviceMemory) -> Result<Vec<u8>> {
        processes::export(&self.context, memory)
    }

    fn import(&self, handle: &[u8]) -> Result<DeviceMemory> {
        gpu::import(&self.context, self.id, handle)
    }

    fn addresses(&self) -> Addresses {
        Addresses::Of(Vendor::Cuda(self.device))
    }

    fn within(&self, call: &mut dyn FnMut()) -> Result<()> {
        let _current = self.context.enter().map_err(|failure| self.context.failed(failure))?;
        call();
        Ok(())
    }

    fn build(&self, text: &KernelText) -> Result<Program> {
        let compiler = Nvrtc::load().map_err(|reason| self.refused(reason))?;
        let target = compiler.target(self.found.capability).map_err(|reason| self.refused(reason))?;
        let code = nvrtc::build(compiler, &self.found.name, text, target)?;
        Program::load(&self.context, text.name, &code, &[text.name])
    }

    fn own_program(&self) -> Result<Program> {
        Program::load(&self.context, "streams", OWN_PTX.as_bytes(), &kernels_in(OWN_PTX))
    }

    fn kernel(&self, program: &Program, name: &str, _reaches: &[*const c_void]) -> Result<Kernel> {
        program.kernel(name).ok_or_else(|| self.refused(format!("it has no kernel `{name}`")))
    }

    fn open_queue(&self, rank: Option<usize>) -> Result<Queue> {
        Queue::new(self.context.clone(), rank.map(side_of))
    }
}

impl fmt::Debug for CudaDriver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CudaDriver({})", self.context.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_says_how_many_queues_the_hardware_has() {
        for (told, expected) in
            [(None, 8), (Some("32"), 32), (Some(" 1 "), 1), (Some("0"), 8), (Some("many"), 8)]
        {
            assert_eq!(connections(told), expected, "{told:?}");
        }
    }
}
