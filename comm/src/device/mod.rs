//! Devices: what runs work, and in which order.
//!
//! A [`Stream`] is a FIFO of operations. A [`Buffer`] is memory that lives where its stream does. The host is
//! a device; others have a folder each, and [`KernelText`] for kernels.

mod accelerator;
mod buffer;
mod host;
mod moves;
mod opencl;
mod operation;
mod recorded;
mod section;
mod stream;
mod text;

pub use accelerator::DeviceMemory;
pub use buffer::{Buffer, Extents};
pub use host::kernel::{Argument, Arguments, Memory, Reader, Rows, RowsMut, Tile, Writer};
pub(crate) use host::lane::progress;
pub use moves::{Move, MoveTable, Purpose};
pub use opencl::{FoundDevice, found as opencl_devices};
pub(crate) use operation::{Message, ReadySend, Rule, SignalSet, TriggeredSend, WaitSet, next_group};
pub use section::Section;
pub(crate) use section::{Hold, Intent};
pub use stream::{Event, Stream, StreamKind, StreamOptions};
pub use text::KernelText;

use crate::error::Result;
use crate::world::World;
use accelerator::Accelerator;
use std::sync::Arc;

/// A device: the host's cores, or one with a memory of its own. Clones are the same device.
#[derive(Debug, Clone)]
pub struct Device {
    /// `None`: the host.
    accelerator: Option<Arc<dyn Accelerator>>,
    waits: Waits,
}

/// Who waits for other ranks in a stream of a device besides the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Waits {
    /// Kernels on a GPU, and the stream's thread on the host's own cores, of which the ranks need all.
    #[default]
    Auto,
    /// Kernels: the device goes on without the host. Where as many wait as the device has compute units but one,
    /// or sends have to be served meanwhile, the stream's thread does.
    Kernel,
    /// The stream's thread.
    Proxy,
}

impl Waits {
    /// The name in configurations.
    pub const fn name(self) -> &'static str {
        match self {
            Waits::Auto => "auto",
            Waits::Kernel => "kernel",
            Waits::Proxy => "proxy",
        }
    }

    /// The one of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        [Waits::Auto, Waits::Kernel, Waits::Proxy].into_iter().find(|waits| waits.name() == name)
    }
}

impl Device {
    /// The host.
    pub fn host() -> Self {
        Self { accelerator: None, waits: Waits::Auto }
    }

    /// A device of OpenCL: the one with that number in [`opencl_devices`], or the first whose name, platform or
    /// vendor contains `select`, whatever the case of its letters; with an empty `select` the first that can be
    /// used. All ranks of a process that choose the same device share its memory.
    ///
    /// # Errors
    /// [`crate::Error::DeviceUnavailable`] if there is no OpenCL here, if no device is meant, or if the one that
    /// is meant lacks what streams need.
    pub fn opencl(select: &str) -> Result<Self> {
        Ok(Self { accelerator: Some(opencl::open(select)?), waits: Waits::Auto })
    }

    /// The same device, whose streams wait so. On the host it changes nothing.
    pub fn with_waits(self, waits: Waits) -> Self {
        Self { waits, ..self }
    }

    /// `host`, or the device as its vendor calls it.
    pub fn name(&self) -> &str {
        self.accelerator.as_ref().map_or("host", |accelerator| accelerator.name())
    }

    /// A stream on which each operation runs as it is enqueued, with one thread; on other devices than the host
    /// a queue of the device.
    ///
    /// # Errors
    /// As [`Device::stream_with`].
    pub fn stream(&self, world: &World) -> Result<Stream> {
        self.stream_with(world, StreamOptions::default())
    }

    /// A stream as told. The options are for the host; the streams of other devices are all of one kind.
    ///
    /// # Errors
    /// If the system refuses the threads, or the device another queue.
    pub fn stream_with(&self, world: &World, options: StreamOptions) -> Result<Stream> {
        Stream::open(world, options, self.accelerator.clone(), self.waits)
    }
}
