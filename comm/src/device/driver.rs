//! What a vendor's runtime offers: the contract that every vendor's folder fulfils, and that `queue/` makes streams
//! of.
//!
//! Pointers to a device's memory may be numbers to the host: see [`super::accelerator::Reach`].

use super::accelerator::{Accelerator, DeviceMemory};
use super::text::KernelText;
use super::{Addresses, MemoryMode};
use crate::error::{Error, Result};
use crate::fabric::Region;
use std::ffi::c_void;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A device, opened.
pub(crate) trait Driver: fmt::Debug + Send + Sync + Sized + 'static {
    /// A queue of it.
    type Queue: CommandQueue<Kernel = Self::Kernel>;
    /// A text, compiled.
    type Program: Send + Sync;
    /// A kernel of a program. Whoever launches it has it alone.
    type Kernel: Send;

    /// The kind in configurations, and what the vendor calls it: `opencl, pthread-...`.
    fn name(&self) -> &str;
    /// Tells the devices of this process apart, whoever made them: [`next_id`].
    fn id(&self) -> u64;
    /// What it can do.
    fn traits(&self) -> &Traits;
    /// The same device with its arrays elsewhere, if `mode` says that they are not where they should be.
    ///
    /// # Errors
    /// [`Error::DeviceUnavailable`] if it has no such memory: by default, if the host is to share it.
    fn with_memory(&self, mode: MemoryMode) -> Result<Option<Arc<dyn Accelerator>>> {
        if mode == MemoryMode::Shared && !self.traits().host_reaches {
            let reason = "the host does not address its memory; choose `separate` or `auto`".into();
            return Err(Error::DeviceUnavailable { device: self.name().into(), reason });
        }
        Ok(None)
    }
    /// Zeroed memory, aligned to 64 bytes.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    fn allocate(&self, bytes: usize, kind: MemoryKind) -> Result<DeviceMemory>;
    /// Copies from memory of the host that is [`MemoryKind::Pinned`] to memory of the device, in the order of no queue, and
    /// blocks until that is done. Waits for no kernel.
    ///
    /// # Errors
    /// [`Error::DeviceUnavailable`].
    ///
    /// # Safety
    /// Both sides must have that many bytes, and nobody else uses them meanwhile.
    unsafe fn copy_apart(&self, source: *const u8, destination: *mut u8, bytes: usize) -> Result<()>;
    /// What processes of this machine tell each other of their devices, to see whether these reach each other's memory
    /// ([`Driver::reaches`]): the same for the same device. Where there is none the three functions behind it are not
    /// called.
    ///
    /// # Errors
    /// Why no other process can reach its memory.
    fn identity(&self) -> std::result::Result<String, String> {
        Err("its driver gives no handles of memory to other processes".into())
    }
    /// Whether its kernels reach memory that other processes have allocated on the device of that identity.
    ///
    /// # Errors
    /// Why not, and what to do.
    fn reaches(&self, identity: &str) -> std::result::Result<(), String> {
        if self.identity().is_ok_and(|own| own == identity) {
            Ok(())
        } else {
            Err("it is another device".into())
        }
    }
    /// Lets kernels address memory of the host, at the host's addresses, for as long as what this gives lives; that
    /// keeps the region. No other region lies on its pages. May wait for kernels of this process.
    ///
    /// # Errors
    /// [`Error::DeviceUnavailable`].
    fn register(&self, _region: &Region) -> Result<DeviceMemory> {
        unreachable!("the device has no identity")
    }
    /// The handle of memory that is [`MemoryKind::Exportable`], for [`Driver::import`] in any process of this machine.
    /// The memory must live until all that has been imported is dropped.
    ///
    /// # Errors
    /// [`Error::DeviceUnavailable`].
    fn export(&self, _memory: &DeviceMemory) -> Result<Vec<u8>> {
        unreachable!("the device has no identity")
    }
    /// Memory of another process, or of this one, by its handle. May be imported several times. May wait for kernels of
    /// this process.
    ///
    /// # Errors
    /// [`Error::DeviceUnavailable`] if the handle is none, or the process has ended.
    fn import(&self, _handle: &[u8]) -> Result<DeviceMemory> {
        unreachable!("the device has no identity")
    }
    /// What those who have to use its memory's addresses need to know.
    fn addresses(&self) -> Addresses {
        if self.traits().host_reaches { Addresses::Hosts } else { Addresses::Opencl }
    }
    /// Calls something that may use such addresses: of the device, wherever the vendor has one current in a thread.
    ///
    /// # Errors
    /// [`Error::DeviceUnavailable`], and the call is left out.
    fn within(&self, call: &mut dyn FnMut()) -> Result<()> {
        call();
        Ok(())
    }
    /// Compiles a text behind the vendor's prelude: see [`KernelText`], and `queue/kernels.h` for what streams'
    /// own kernels need besides.
    ///
    /// # Errors
    /// [`Error::KernelDidNotCompile`] with the compiler's log and the text's lines.
    fn build(&self, text: &KernelText) -> Result<Self::Program>;
    /// The kernels that streams need themselves, for a driver that has them compiled already.
    ///
    /// # Errors
    /// As [`Driver::build`].
    fn own_program(&self) -> Result<Self::Program> {
        self.build(&super::queue::OWN_KERNELS)
    }
    /// A kernel of that name, and the allocations that it reaches by addresses which are not arguments.
    ///
    /// # Errors
    /// [`Error::DeviceUnavailable`].
    fn kernel(&self, program: &Self::Program, name: &str, reaches: &[*const c_void]) -> Result<Self::Kernel>;
    /// A queue whose commands run one after the other, for a rank if it waits for others: those of neighbours are better not
    /// read by one unit of the hardware.
    ///
    /// # Errors
    /// [`Error::DeviceUnavailable`] if there are no more.
    fn open_queue(&self, rank: Option<usize>) -> Result<Self::Queue>;
}

/// What a device can do.
#[derive(Debug, Clone)]
pub(crate) struct Traits {
    /// How many groups of threads run at a time: the kernels that wait are fewer.
    pub(crate) compute_units: u32,
    /// How many threads a group has, of kernels that are launched for that many or more in one row.
    pub(crate) group_threads: usize,
    /// How many a group has of kernels that are one group.
    pub(crate) most_group_threads: usize,
    /// Whether its kernels leave the host's cores alone.
    pub(crate) is_gpu: bool,
    /// Whether it computes with `f64`.
    pub(crate) has_doubles: bool,
    /// Whether the host reaches [`MemoryKind::Device`]; else queues copy, and nothing else does.
    pub(crate) host_reaches: bool,
    /// Whether kernels release to, and acquire from, the host and other ranks by atomic operations.
    pub(crate) kernels_signal: bool,
    /// Whether queues store and wait for words themselves: [`CommandQueue::write_word`].
    pub(crate) has_memory_operations: bool,
    /// How many queues there may be of which none that waits holds up another.
    pub(crate) queues: u32,
    /// Whether its queues record kernels, to launch them together: [`CommandQueue::begin_graph`].
    pub(crate) has_graphs: bool,
    /// Whether a launch lasts until its kernel has ended, as environments of drivers can ask for: nobody could look at the
    /// clock while a kernel waits.
    pub(crate) launches_block: bool,
    /// Whether timed marks can be put on its queues at any time: else only between [`CommandQueue::keep_times`].
    pub(crate) keeps_times: bool,
}

/// Where memory is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MemoryKind {
    /// Where kernels are fastest.
    Device,
    /// Where kernels are fastest, for arrays and messages that other processes reach: [`Driver::export`]. Only of devices that have a
    /// [`Driver::identity`].
    Exportable,
    /// The host's, for words that ranks poll and for what the host is shown. Kernels reach it too, at the same time
    /// and by the same pointers, unless the memory says otherwise ([`super::accelerator::Reach`]): then
    /// [`Traits::kernels_signal`] is false.
    Pinned,
}

/// A queue of a device, whose commands run one after the other.
pub(crate) trait CommandQueue: Send {
    /// As [`Driver::Kernel`].
    type Kernel;
    /// A point between its commands.
    type Mark: Send;
    /// Kernels that were recorded, in their order.
    type Graph: Send;

    /// Puts a kernel on it. Does not wait.
    ///
    /// # Errors
    /// [`Error::DeviceUnavailable`], which names `what`.
    ///
    /// # Safety
    /// The arguments must be those of the kernel's text, and all memory that it accesses must stay until the
    /// queue has come to rest.
    unsafe fn launch(
        &mut self,
        what: &str,
        kernel: &mut Self::Kernel,
        arguments: &[Value<'_>],
        groups: Groups,
    ) -> Result<()>;
    /// Puts a copy on it, between memory of the device or of the host on either side. Does not wait.
    ///
    /// # Errors
    /// [`Error::DeviceUnavailable`].
    ///
    /// # Safety
    /// Both sides must have that many bytes, do not overlap, and stay until the queue has come to rest.
    unsafe fn copy(&mut self, source: *const u8, destination: *mut u8, bytes: usize) -> Result<()>;
    /// The point behind all that is on it so far.
    ///
    /// # Errors
    /// [`Error::DeviceUnavailable`].
    fn mark(&mut self) -> Result<Self::Mark>;
    /// Whether the device has come there, or failed before. Does not wait.
    fn has_passed(&self, mark: &Self::Mark) -> bool;
    /// Whether something on it has failed, so that it comes to rest without what is behind. Does not wait.
    fn has_failed(&self) -> bool;
    /// Begins or ends to keep times of marks. Only while the queue is at rest.
    ///
    /// # Errors
    /// [`Error::DeviceUnavailable`].
    fn keep_times(&mut self, _keeps: bool) -> Result<()> {
        Ok(())
    }
    /// As [`CommandQueue::mark`], of which the device notes when it comes there. Only while times are kept, or where
    /// they [always are](Traits::keeps_times).
    ///
    /// # Errors
    /// [`Error::DeviceUnavailable`].
    fn timed_mark(&mut self) -> Result<Self::Mark>;
    /// How much later the device came to the second of two timed marks of this queue, which have both been passed, in
    /// nanoseconds.
    ///
    /// # Errors
    /// [`Error::DeviceUnavailable`].
    fn nanoseconds(&self, first: &Self::Mark, second: &Self::Mark) -> Result<i64>;
    /// Puts a store to a word on it, behind all that it has stored before, for the host and all devices. Does not
    /// wait. Only where the device [has such operations](Traits::has_memory_operations).
    ///
    /// # Errors
    /// [`crate::Error::DeviceUnavailable`].
    ///
    /// # Safety
    /// The word must be one that kernels reach, and stay until the queue has come to rest.
    unsafe fn write_word(&mut self, _word: *const c_void, _value: u32) -> Result<()> {
        unreachable!("the device has no memory operations")
    }
    /// Lets what comes behind wait until a word has come to a value, across the wrap. Does not wait itself. As
    /// [`CommandQueue::write_word`].
    ///
    /// # Errors
    /// [`crate::Error::DeviceUnavailable`].
    ///
    /// # Safety
    /// As [`CommandQueue::write_word`].
    unsafe fn wait_word(&mut self, _word: *const c_void, _value: u32) -> Result<()> {
        unreachable!("the device has no memory operations")
    }
    /// Begins to record: kernels that are launched from here on become a graph, with their arguments as they are then,
    /// and nothing else is asked of the queue meanwhile. Only where the device [has graphs](Traits::has_graphs).
    ///
    /// # Errors
    /// [`crate::Error::DeviceUnavailable`].
    fn begin_graph(&mut self) -> Result<()> {
        unreachable!("the device has no graphs")
    }
    /// Ends recording, whatever has failed meanwhile. May take long, but waits for nothing on the queue.
    ///
    /// # Errors
    /// [`crate::Error::DeviceUnavailable`].
    fn end_graph(&mut self) -> Result<Self::Graph> {
        unreachable!("the device has no graphs")
    }
    /// Puts the kernels of a graph on it, with one call. Does not wait.
    ///
    /// # Errors
    /// [`crate::Error::DeviceUnavailable`].
    ///
    /// # Safety
    /// The graph must have been recorded by this queue; it, and all memory that its kernels access, must stay until the
    /// queue has come to rest.
    unsafe fn launch_graph(&mut self, _graph: &mut Self::Graph) -> Result<()> {
        unreachable!("the device has no graphs")
    }
    /// Whether so much is on it that calls which put more there might wait for the device.
    fn is_full(&self) -> bool {
        false
    }
    /// Makes sure that the device works on what is on it. Does not wait.
    ///
    /// # Errors
    /// [`Error::DeviceUnavailable`].
    fn flush(&mut self) -> Result<()>;
    /// Blocks until all that is on it has run.
    ///
    /// # Errors
    /// The first of what has run: [`Error::DeviceUnavailable`].
    fn finish(&mut self) -> Result<()>;
}

/// What a kernel is launched as.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Groups {
    /// As many groups as have that many threads or more, fastest axis first.
    ForThreads([usize; 3]),
    /// One of so many threads, [`Traits::most_group_threads`] at most: only of kernels that are meant for it.
    One(usize),
}

impl fmt::Display for Groups {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ForThreads(threads) => write!(f, "{threads:?} threads"),
            Self::One(threads) => write!(f, "{threads} threads of one group"),
        }
    }
}

/// An argument of a kernel.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Value<'a> {
    /// An address in memory of the device, or null.
    Pointer(*const c_void),
    U32(u32),
    U64(u64),
    /// A structure of such numbers.
    U64s(&'a [u64]),
    /// A number of an element's type.
    Bytes(&'a [u8]),
}

impl Value<'_> {
    /// Where the bytes of the argument are, and how many: what runtimes copy at a launch.
    pub(crate) fn bytes(&self) -> (*const c_void, usize) {
        match self {
            Value::Pointer(pointer) => (std::ptr::from_ref(pointer).cast(), size_of_val(pointer)),
            Value::U32(number) => (std::ptr::from_ref(number).cast(), size_of_val(number)),
            Value::U64(number) => (std::ptr::from_ref(number).cast(), size_of_val(number)),
            Value::Bytes(bytes) => (bytes.as_ptr().cast(), bytes.len()),
            Value::U64s(numbers) => (numbers.as_ptr().cast(), size_of_val(*numbers)),
        }
    }
}

/// A number for a device that no other one of this process has.
pub(crate) fn next_id() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}
