//! What a device with a memory of its own offers: the contract that every vendor's folder fulfils.
//!
//! A device is a context that all ranks of a process share, so that the memory of one rank is mapped in the
//! others. Each stream has an executor: what its thread does with the operations that it is given.

use super::Waits;
use super::operation::Operation;
use super::stream::Status;
use super::text::KernelText;
use crate::element::ElementType;
use crate::error::Result;
use crate::fabric::Executor;
use std::any::Any;
use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

/// A device besides the host.
pub(crate) trait Accelerator: Send + Sync + fmt::Debug {
    /// The kind in configurations, and what the vendor calls it.
    fn name(&self) -> &str;
    /// Tells the devices of this process apart.
    fn id(&self) -> u64;
    /// Who carries out what a stream of it has triggered, which waits so.
    fn executor(&self, waits: Waits) -> Executor;
    /// Zeroed memory that its kernels and the host address by the same pointers, aligned to 64 bytes.
    ///
    /// # Errors
    /// [`crate::Error::OutOfMemory`].
    fn allocate(&self, bytes: usize) -> Result<DeviceMemory>;
    /// Whether it computes with elements of that type.
    ///
    /// # Errors
    /// [`crate::Error::DeviceUnavailable`].
    fn check_element(&self, element: ElementType) -> Result<()>;
    /// Compiles a kernel, the first time that it is asked to.
    ///
    /// # Errors
    /// [`crate::Error::KernelDidNotCompile`].
    fn compile(&self, text: &'static KernelText) -> Result<()>;
    /// What the thread of a new stream does, which has that status and waits so.
    ///
    /// # Errors
    /// If the device has no more queues, or cannot wait so.
    fn open_queue(self: Arc<Self>, status: Arc<Status>, waits: Waits) -> Result<Box<dyn Execute>>;
}

/// What the thread of a stream does with its operations.
pub(crate) trait Execute: Send {
    /// Carries out one operation, or puts it behind what the device still has to do. An error is the stream's.
    fn run(&mut self, status: &Arc<Status>, operation: Operation);
    /// Makes progress while nothing else comes; whether more is left.
    fn idle(&mut self, status: &Arc<Status>) -> bool;
}

impl Execute for Box<dyn Execute> {
    fn run(&mut self, status: &Arc<Status>, operation: Operation) {
        (**self).run(status, operation);
    }

    fn idle(&mut self, status: &Arc<Status>) -> bool {
        (**self).idle(status)
    }
}

/// Memory of a device, which peers of the same process can map. Freed when nobody has it any more.
pub struct DeviceMemory {
    base: NonNull<u8>,
    bytes: usize,
    device: u64,
    _owner: Box<dyn Any + Send + Sync>,
}

// SAFETY: the pointer is to memory that `_owner` keeps and that any thread may address; who accesses it when is
// settled by streams and words.
unsafe impl Send for DeviceMemory {}
// SAFETY: as above; the structure itself is never changed.
unsafe impl Sync for DeviceMemory {}

impl DeviceMemory {
    /// # Safety
    /// `base` must be aligned to 64 bytes and point to `bytes` bytes that the host may read and write for as
    /// long as `owner` lives.
    pub(crate) unsafe fn new(
        base: NonNull<u8>,
        bytes: usize,
        device: u64,
        owner: Box<dyn Any + Send + Sync>,
    ) -> Self {
        Self { base, bytes, device, _owner: owner }
    }

    pub(crate) fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Size in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The device's number in this process.
    pub(crate) fn device(&self) -> u64 {
        self.device
    }
}

impl fmt::Debug for DeviceMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DeviceMemory({} bytes)", self.bytes)
    }
}
