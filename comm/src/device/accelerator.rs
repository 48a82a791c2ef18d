//! What streams and buffers want of a device with a memory of its own. Vendors give less: see `driver.rs`.
//!
//! A device is a context that all ranks of a process share, so that the memory of one rank is mapped in the
//! others. Each stream has an executor: what its thread does with the operations that it is given.

use super::copies::Lane;
use super::driver::MemoryKind;
use super::operation::Operation;
use super::status::Status;
use super::text::KernelText;
use super::{Addresses, MemoryMode, Vendor, Ways};
use crate::element::ElementType;
use crate::error::Result;
use crate::fabric::{Executor, Region};
use std::any::Any;
use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

/// A device besides the host.
pub(crate) trait Accelerator: Send + Sync + fmt::Debug {
    /// The kind in configurations, and what the vendor calls it.
    fn name(&self) -> &str;
    /// As [`super::driver::Driver::id`].
    fn id(&self) -> u64;
    /// Whether its kernels leave the host's cores alone.
    fn is_gpu(&self) -> bool;
    /// Who carries out what a stream of it has triggered, which signals and waits so.
    fn executor(&self, ways: Ways) -> Executor;
    /// Whether the host addresses the memory where kernels are fastest.
    fn host_reaches(&self) -> bool;
    /// Whether its kernels tell other ranks of what they have stored.
    #[cfg(test)]
    fn kernels_signal(&self) -> bool;
    /// The same device with its arrays elsewhere; `None` if they are there already.
    ///
    /// # Errors
    /// [`crate::Error::DeviceUnavailable`] if it has no such memory.
    fn with_memory(&self, mode: MemoryMode) -> Result<Option<Arc<dyn Accelerator>>>;
    /// Zeroed memory, aligned to 64 bytes.
    ///
    /// # Errors
    /// [`crate::Error::OutOfMemory`].
    fn allocate(&self, bytes: usize, kind: MemoryKind) -> Result<DeviceMemory>;
    /// As [`super::driver::Driver::identity`].
    ///
    /// # Errors
    /// Why no other process can reach its memory.
    fn identity(&self) -> std::result::Result<String, String>;
    /// As [`super::driver::Driver::reaches`].
    ///
    /// # Errors
    /// Why not, and what to do.
    fn reaches(&self, identity: &str) -> std::result::Result<(), String>;
    /// As [`super::driver::Driver::register`].
    ///
    /// # Errors
    /// [`crate::Error::DeviceUnavailable`].
    fn register(&self, region: &Region) -> Result<DeviceMemory>;
    /// As [`super::driver::Driver::export`].
    ///
    /// # Errors
    /// [`crate::Error::DeviceUnavailable`].
    fn export(&self, memory: &DeviceMemory) -> Result<Vec<u8>>;
    /// As [`super::driver::Driver::import`].
    ///
    /// # Errors
    /// [`crate::Error::DeviceUnavailable`].
    fn import(&self, handle: &[u8]) -> Result<DeviceMemory>;
    /// As [`super::driver::Driver::addresses`].
    fn addresses(&self) -> Addresses;
    /// As [`super::driver::Driver::within`].
    ///
    /// # Errors
    /// [`crate::Error::DeviceUnavailable`], and the call is left out.
    fn within(&self, call: &mut dyn FnMut()) -> Result<()>;
    /// A queue for copies.
    ///
    /// # Errors
    /// If the device has no more queues, or one that waits might hold it up.
    fn open_lane(self: Arc<Self>) -> Result<Box<dyn Lane>>;
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
    /// What the thread of a new stream does, which has that status and signals and waits so.
    ///
    /// # Errors
    /// If the device has no more queues, or cannot signal or wait so.
    fn open_queue(self: Arc<Self>, status: Arc<Status>, ways: Ways) -> Result<Box<dyn Execute>>;
}

/// What the thread of a stream does with its operations.
pub(crate) trait Execute: Send {
    /// Carries out one operation, or puts it behind what the device still has to do. An error is the stream's.
    fn run(&mut self, status: &Arc<Status>, operation: Operation);
    /// As [`Execute::run`], while a timeline is kept, which has what was done.
    fn run_recorded(&mut self, status: &Arc<Status>, operation: Operation);
    /// Makes progress while nothing else comes; whether more is left.
    fn idle(&mut self, status: &Arc<Status>) -> bool;
    /// Whether the thread feeds a device that computes on no core of the host's, and has one to itself.
    fn feeds_a_gpu(&self) -> bool {
        false
    }
}

impl Execute for Box<dyn Execute> {
    fn run(&mut self, status: &Arc<Status>, operation: Operation) {
        (**self).run(status, operation);
    }

    fn run_recorded(&mut self, status: &Arc<Status>, operation: Operation) {
        (**self).run_recorded(status, operation);
    }

    fn idle(&mut self, status: &Arc<Status>) -> bool {
        (**self).idle(status)
    }

    fn feeds_a_gpu(&self) -> bool {
        (**self).feeds_a_gpu()
    }
}

/// Memory of a device, which peers of the same process can map. Freed when nobody has it any more.
pub struct DeviceMemory {
    base: NonNull<u8>,
    bytes: usize,
    device: u64,
    reach: Reach,
    kernels_add: bool,
    vendor: Option<Vendor>,
    owner: Box<dyn Any + Send + Sync>,
}

/// Who addresses memory by its pointers; the queues of a device copy from and to all of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reach {
    /// Kernels and the host, at the same time.
    Both,
    /// The device's kernels.
    Kernels,
    /// The host.
    Host,
}

// SAFETY: the pointer is to memory that `owner` keeps and that any thread may address; who accesses it when is
// settled by streams and words.
unsafe impl Send for DeviceMemory {}
// SAFETY: as above; the structure itself is never changed.
unsafe impl Sync for DeviceMemory {}

impl DeviceMemory {
    /// # Safety
    /// `base` must be aligned to 64 bytes and point to `bytes` bytes that whoever `reach` names may read and write
    /// for as long as `owner` lives.
    pub(crate) unsafe fn new(
        base: NonNull<u8>,
        bytes: usize,
        device: u64,
        reach: Reach,
        owner: Box<dyn Any + Send + Sync>,
    ) -> Self {
        Self { base, bytes, device, reach, kernels_add: true, vendor: None, owner }
    }

    /// The same memory, kept by something that keeps `self` besides.
    pub(crate) fn kept_by(self, owner: impl FnOnce(Self) -> Box<dyn Any + Send + Sync>) -> Self {
        let Self { base, bytes, device, reach, kernels_add, vendor, .. } = self;
        Self { base, bytes, device, reach, kernels_add, vendor, owner: owner(self) }
    }

    /// The same memory, to whose words kernels do not add, as others do who would not see it as one operation.
    pub(crate) fn without_additions(self) -> Self {
        Self { kernels_add: false, ..self }
    }

    /// The same memory, which is that of a GPU.
    pub(crate) fn of_vendor(self, vendor: Vendor) -> Self {
        Self { vendor: Some(vendor), ..self }
    }

    /// Of the GPU whose memory it is, if it is one's.
    pub(crate) fn vendor(&self) -> Option<Vendor> {
        self.vendor
    }

    /// Whether kernels may add to words in it.
    pub(crate) fn kernels_add(&self) -> bool {
        self.kernels_add
    }

    /// What keeps it, if that is of the type.
    pub(crate) fn owner<T: 'static>(&self) -> Option<&T> {
        self.owner.downcast_ref()
    }

    /// Whether the host may read and write it.
    pub(crate) fn host_reaches(&self) -> bool {
        self.reach != Reach::Kernels
    }

    /// Whether kernels may read and write it.
    pub(crate) fn kernels_reach(&self) -> bool {
        self.reach != Reach::Host
    }

    /// Its address, which is a number to those that do not reach it.
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

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::fabric::Place;
    use std::sync::atomic::{AtomicBool, Ordering};

    /// A device that makes calls within it, and nothing else.
    #[derive(Debug, Default)]
    pub(crate) struct AnyCalls(AtomicBool);

    impl AnyCalls {
        /// Whether one is being made.
        pub(crate) fn is_in_call(&self) -> bool {
            self.0.load(Ordering::Relaxed)
        }
    }

    impl Accelerator for AnyCalls {
        fn within(&self, call: &mut dyn FnMut()) -> Result<()> {
            self.0.store(true, Ordering::Relaxed);
            call();
            self.0.store(false, Ordering::Relaxed);
            Ok(())
        }
        fn name(&self) -> &str {
            "a device that makes calls"
        }
        fn id(&self) -> u64 {
            unreachable!()
        }
        fn is_gpu(&self) -> bool {
            unreachable!()
        }
        fn executor(&self, _: Ways) -> Executor {
            unreachable!()
        }
        fn host_reaches(&self) -> bool {
            unreachable!()
        }
        fn kernels_signal(&self) -> bool {
            unreachable!()
        }
        fn with_memory(&self, _: MemoryMode) -> Result<Option<Arc<dyn Accelerator>>> {
            unreachable!()
        }
        fn allocate(&self, _: usize, _: MemoryKind) -> Result<DeviceMemory> {
            unreachable!()
        }
        fn identity(&self) -> std::result::Result<String, String> {
            unreachable!()
        }
        fn reaches(&self, _: &str) -> std::result::Result<(), String> {
            unreachable!()
        }
        fn register(&self, _: &Region) -> Result<DeviceMemory> {
            unreachable!()
        }
        fn export(&self, _: &DeviceMemory) -> Result<Vec<u8>> {
            unreachable!()
        }
        fn import(&self, _: &[u8]) -> Result<DeviceMemory> {
            unreachable!()
        }
        fn addresses(&self) -> Addresses {
            unreachable!()
        }
        fn open_lane(self: Arc<Self>) -> Result<Box<dyn Lane>> {
            unreachable!()
        }
        fn check_element(&self, _: ElementType) -> Result<()> {
            unreachable!()
        }
        fn compile(&self, _: &'static KernelText) -> Result<()> {
            unreachable!()
        }
        fn open_queue(self: Arc<Self>, _: Arc<Status>, _: Ways) -> Result<Box<dyn Execute>> {
            unreachable!()
        }
    }

    /// Messages of no bytes have places, too, which may be in a device's memory.
    #[test]
    fn nothing_is_copied_where_the_host_reaches_nothing() {
        let base = NonNull::<u64>::dangling().cast();
        // SAFETY: of no bytes.
        let memory = unsafe { DeviceMemory::new(base, 0, 1, Reach::Kernels, Box::new(())) };
        // SAFETY: as above.
        let region = unsafe { Region::new(base, 0, 0, 7, Arc::new(memory)) };
        let place = || region.place(0, 0, "nothing").expect("it is in the region");
        let [one, other]: [Place; 2] = [place(), place()];
        assert!(one.write(&[]).is_ok() && one.read(&mut []).is_ok() && one.copy_from(&other, 0).is_ok());
        assert!(one.write(&[1]).is_err(), "there is no room");
    }
}
