//! Devices: what runs work, and in which order.
//!
//! A [`Stream`] is a FIFO of operations. A [`Buffer`] is memory that lives where its stream does.

mod buffer;
mod host;
mod moves;
mod recorded;
mod section;
mod stream;

pub use buffer::{Buffer, Extents};
pub use host::kernel::{Argument, Arguments, Reader, Rows, RowsMut, Tile, Writer};
pub(crate) use host::lane::progress;
pub use moves::{Move, MoveTable, Purpose};
pub use section::Section;
pub(crate) use section::{Hold, Intent};
pub use stream::{Event, Stream, StreamKind, StreamOptions};
pub(crate) use stream::{Message, ReadySend, Rule, SignalSet, TriggeredSend, WaitSet, next_group};

use crate::error::Result;
use crate::world::World;

/// A device: the host's cores.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Device {
    /// The cores that the process may use.
    Host,
}

impl Device {
    /// The host.
    pub fn host() -> Self {
        Device::Host
    }

    /// A stream on which each operation runs as it is enqueued, with one thread.
    ///
    /// # Errors
    /// None on the host; kept for devices that can run out of streams.
    pub fn stream(self, world: &World) -> Result<Stream> {
        self.stream_with(world, StreamOptions::default())
    }

    /// A stream as told.
    ///
    /// # Errors
    /// If the system refuses the threads.
    pub fn stream_with(self, world: &World, options: StreamOptions) -> Result<Stream> {
        match self {
            Device::Host => Stream::host(world, options),
        }
    }
}
