//! An opened device: its memory and its compiler.

use super::compiler;
use super::devices;
use super::library::{GraphFunctions, Library, MemoryOperations, Runtime, SUCCESS};
use super::memory::{self, Memory};
use super::processes;
use super::queue::{Queue, blocks_launches};
use super::words;
use crate::device::accelerator::DeviceMemory;
use crate::device::driver::{Driver, MemoryKind, Traits, next_id};
use crate::device::gpu::{self, BLOCK, Imports, ONE_BLOCK};
use crate::device::hip::FoundHipDevice;
use crate::device::select::index_of;
use crate::device::text::KernelText;
use crate::device::{Addresses, Vendor};
use crate::error::{Error, Result};
use crate::fabric::Region;
use hip_sys::hiprt;
use std::ffi::{CString, c_int, c_void};
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

/// While it lives, calls of this thread are for a device; then for the one before again.
#[must_use]
pub(super) struct Current {
    library: &'static Library,
    /// `None` if it is the same.
    before: Option<c_int>,
    /// Not `Send`.
    of_thread: PhantomData<*const ()>,
}

impl Drop for Current {
    fn drop(&mut self) {
        if let Some(before) = self.before {
            // SAFETY: a device that the runtime has told. There is nobody to tell of a failure.
            let _ = unsafe { (self.library.runtime.hipSetDevice)(before) };
        }
    }
}

/// What all that belongs to a device needs of it.
pub(super) struct Context {
    library: &'static Library,
    index: c_int,
    pub(super) id: u64,
    name: String,
    found: FoundHipDevice,
    /// A stream for what is done at set-up. The one that HIP has by itself waits for all others, and so for kernels
    /// that wait for ranks.
    pub(super) set_up: hiprt::hipStream_t,
    pub(super) memory: Memory,
    pub(super) imports: Imports,
    /// Why kernels do not share words in memory of the host that is locked, if so.
    unshared: Option<String>,
}

// SAFETY: HIP's streams may be used by any thread.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

impl Context {
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn found(&self) -> &FoundHipDevice {
        &self.found
    }

    pub(super) fn index(&self) -> c_int {
        self.index
    }

    pub(super) fn runtime(&self) -> &Runtime {
        &self.library.runtime
    }

    /// Makes it the device that this thread's calls are for, until what this gives is dropped: the application may have
    /// another one.
    pub(super) fn enter(&self) -> Result<Current> {
        let mut before: c_int = 0;
        // SAFETY: a number is written.
        self.check("hipGetDevice", unsafe { (self.runtime().hipGetDevice)(&mut before) })?;
        let before = (before != self.index).then_some(before);
        if before.is_some() {
            self.stay()?;
        }
        Ok(Current { library: self.library, before, of_thread: PhantomData })
    }

    /// Makes it the device that this thread's calls are for, on the thread of a stream.
    pub(super) fn stay(&self) -> Result<()> {
        // SAFETY: the device is one of those that were counted.
        self.check("hipSetDevice", unsafe { (self.runtime().hipSetDevice)(self.index) })
    }

    /// A stream in the order of no other one, not even of the one that HIP has by itself.
    pub(super) fn new_stream(&self) -> Result<hiprt::hipStream_t> {
        let _current = self.enter()?;
        let mut stream = std::ptr::null_mut();
        let create = self.runtime().hipStreamCreateWithFlags;
        // SAFETY: a place for the answer.
        self.check("a queue", unsafe { create(&mut stream, hiprt::hipStreamNonBlocking) })?;
        Ok(stream)
    }

    pub(super) fn unshared(&self) -> Option<&str> {
        self.unshared.as_deref()
    }

    pub(super) fn memory_operations(&self) -> Option<MemoryOperations> {
        self.library.memory_operations
    }

    pub(super) fn graphs(&self) -> Option<GraphFunctions> {
        self.library.graphs
    }

    /// What a number that a call has returned means.
    pub(super) fn describe(&self, code: u32) -> String {
        self.library.describe(code)
    }

    /// # Errors
    /// That `what` has failed, if the code says so.
    pub(super) fn check(&self, what: &str, code: u32) -> Result<()> {
        if code == SUCCESS {
            return Ok(());
        }
        let reason = format!("{what} failed: {}", self.library.describe(code));
        Err(Error::DeviceUnavailable { device: self.name.clone(), reason })
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        self.free_spare();
        if !self.set_up.is_null() {
            // SAFETY: nothing uses it any more. There is nobody to tell of a failure.
            let _ = unsafe { (self.runtime().hipStreamDestroy)(self.set_up) };
        }
    }
}

/// A device, opened.
pub(super) struct HipDriver {
    context: Arc<Context>,
    traits: Traits,
}

impl HipDriver {
    pub(super) fn new(library: &'static Library, index: usize, found: FoundHipDevice) -> Result<Self> {
        let mut context = Context {
            library,
            index: index as c_int,
            id: next_id(),
            name: format!("hip, {}", found.name),
            found,
            set_up: std::ptr::null_mut(),
            memory: Memory::default(),
            imports: Imports::default(),
            unshared: None,
        };
        context.set_up = context.new_stream()?;
        context.unshared = processes::try_locking(&context).err();
        let context = Arc::new(context);
        let has_memory_operations = words::are_there(&context)?;
        let traits = Traits {
            compute_units: context.found.compute_units,
            group_threads: BLOCK,
            most_group_threads: ONE_BLOCK,
            is_gpu: true,
            has_doubles: true,
            host_reaches: false,
            kernels_signal: true,
            has_memory_operations,
            // Each has a queue of the hardware to itself.
            queues: u32::MAX,
            has_graphs: library.graphs.is_some(),
            launches_block: blocks_launches(),
            keeps_times: true,
        };
        Ok(Self { context, traits })
    }
}

impl Driver for HipDriver {
    type Queue = Queue;
    type Program = Arc<Module>;
    type Kernel = Function;

    fn name(&self) -> &str {
        &self.context.name
    }

    fn id(&self) -> u64 {
        self.context.id
    }

    fn traits(&self) -> &Traits {
        &self.traits
    }

    fn allocate(&self, bytes: usize, kind: MemoryKind) -> Result<DeviceMemory> {
        memory::allocate(&self.context, bytes, kind)
    }

    unsafe fn copy_apart(&self, source: *const u8, destination: *mut u8, bytes: usize) -> Result<()> {
        // SAFETY: by the caller.
        unsafe { self.context.copy_apart(source, destination, bytes) }
    }

    fn identity(&self) -> std::result::Result<String, String> {
        processes::identity(&self.context)
    }

    fn reaches(&self, identity: &str) -> std::result::Result<(), String> {
        processes::reaches(&self.context, identity)
    }

    fn register(&self, region: &Region) -> Result<DeviceMemory> {
        gpu::register(&self.context, self.context.id, region)
    }

    fn export(&self, memory: &DeviceMemory) -> Result<Vec<u8>> {
        processes::export(&self.context, memory)
    }

    fn import(&self, handle: &[u8]) -> Result<DeviceMemory> {
        gpu::import(&self.context, self.context.id, handle)
    }

    fn addresses(&self) -> Addresses {
        Addresses::Of(Vendor::Hip(self.context.index()))
    }

    fn within(&self, call: &mut dyn FnMut()) -> Result<()> {
        let _current = self.context.enter()?;
        call();
        Ok(())
    }

    fn build(&self, text: &KernelText) -> Result<Arc<Module>> {
        Module::build(&self.context, text)
    }

    fn kernel(&self, program: &Arc<Module>, name: &str, _reaches: &[*const c_void]) -> Result<Function> {
        program.function(name)
    }

    fn open_queue(&self, _rank: Option<usize>) -> Result<Queue> {
        Queue::new(self.context.clone())
    }
}

impl fmt::Debug for HipDriver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HipDriver({})", self.context.name)
    }
}

/// Code that has been loaded.
pub(super) struct Module {
    context: Arc<Context>,
    raw: hiprt::hipModule_t,
}

// SAFETY: HIP's modules may be used by any thread.
unsafe impl Send for Module {}
// SAFETY: as above.
unsafe impl Sync for Module {}

impl Module {
    /// Compiles a text and loads it.
    pub(super) fn build(context: &Arc<Context>, text: &KernelText) -> Result<Arc<Self>> {
        let code = compiler::compile(context.library, &context.found.architecture, text)?;
        let mut module = Self { context: context.clone(), raw: std::ptr::null_mut() };
        let _current = context.enter()?;
        // SAFETY: a place for the answer, and a whole code object, of which the call makes a copy.
        let loaded = unsafe { (context.runtime().hipModuleLoadData)(&mut module.raw, code.as_ptr().cast()) };
        context.check(&format!("loading `{}`", text.name), loaded)?;
        Ok(Arc::new(module))
    }

    pub(super) fn function(self: &Arc<Self>, name: &str) -> Result<Function> {
        let mut raw = std::ptr::null_mut();
        let text = CString::new(name).expect("names of kernels have no zero bytes");
        // The runtime looks for it on the thread's device, which has to be the module's.
        let _current = self.context.enter()?;
        // SAFETY: a place for the answer, a module that is loaded, and a name that ends in zero.
        let code =
            unsafe { (self.context.runtime().hipModuleGetFunction)(&mut raw, self.raw, text.as_ptr()) };
        self.context.check(&format!("looking for the kernel `{name}`"), code)?;
        Ok(Function { raw, _module: self.clone() })
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        if let (false, Ok(_current)) = (self.raw.is_null(), self.context.enter()) {
            // SAFETY: loaded, and no function of it is left. There is nobody to tell of a failure.
            let _ = unsafe { (self.context.runtime().hipModuleUnload)(self.raw) };
        }
    }
}

/// A kernel of a module.
pub(super) struct Function {
    raw: hiprt::hipFunction_t,
    _module: Arc<Module>,
}

// SAFETY: HIP's functions may be used by any thread.
unsafe impl Send for Function {}

impl Function {
    pub(super) fn raw(&self) -> hiprt::hipFunction_t {
        self.raw
    }
}

/// The library, and the device that is meant, with its number.
pub(super) fn choose(select: &str) -> Result<(&'static Library, usize, FoundHipDevice)> {
    let library = Library::load()?;
    let mut all = devices::list(library)?;
    let asked = if select.is_empty() { "hip".to_owned() } else { format!("hip:{select}") };
    let index = index_of(&asked, select, &all)?;
    Ok((library, index, all.swap_remove(index)))
}
