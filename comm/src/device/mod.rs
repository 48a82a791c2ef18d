//! Devices: what runs work, and in which order.
//!
//! A [`Stream`] is a FIFO of operations. A [`Buffer`] is memory that lives where its stream does. The host is
//! a device; others have a folder each for what their vendor's runtime offers (`driver.rs`), of which `queue/` makes
//! streams, and [`KernelText`] for kernels.

mod accelerator;
mod at_home;
mod buffer;
mod capture;
#[cfg(test)]
mod conformance;
mod copier;
mod copies;
mod counts;
mod crossing;
mod cuda;
mod driver;
mod gpu;
mod hip;
mod host;
mod host_state;
mod lent;
mod mirror;
mod moves;
mod of_rank;
mod opencl;
mod operation;
mod panics;
mod peers;
mod period;
mod pitched;
mod queue;
mod raised;
mod recorded;
mod section;
mod select;
mod sequence;
mod shown;
mod standing;
mod status;
mod stream;
mod stream_kind;
mod text;
mod tile;
mod uses;
mod ways;
mod wires;

pub(crate) use accelerator::Accelerator;
pub use accelerator::DeviceMemory;
#[cfg(test)]
pub(crate) use accelerator::tests::AnyCalls;
pub use buffer::{Buffer, Extents};
pub use copier::{Copier, HostMemory};
pub(crate) use copies::{Copies, CopyDirection, CopyMark};
pub use counts::Count;
pub use cuda::{
    Capability, FoundGpu, compile as compile_for_cuda, compiler as cuda_compiler, found as cuda_devices,
};
pub(crate) use driver::MemoryKind;
pub use hip::{FoundHipDevice, compile as compile_for_hip, found as hip_devices};
pub use host::ahead::{ask_for_later_line, ask_for_line};
pub use host::kernel::{Argument, Arguments, Memory, Reader, Writer};
pub(crate) use host::lane::progress;
pub use host::rows::{Each, Plane, PlaneMut, Rows, RowsMut, Windows};
pub use host::store_way::{StoreWay, Way};
pub use host::streaming::{PastCaches, PastRow, past_caches};
pub use host_state::{HostState, WeakHostState};
pub use lent::{Lent, of_dimensions};
pub(crate) use mirror::{Mirror, Mirrors};
pub(crate) use moves::OnDevice;
pub use moves::{Move, MoveTable, Purpose};
pub use opencl::{FoundDevice, found as opencl_devices};
pub(crate) use operation::{
    Behind, Counted, HostKernel, Message, ReadySend, Rule, SignalSet, TriggeredSend, WaitSet, next_group,
};
pub(crate) use peers::Sharing;
pub use period::Period;
pub use pitched::Pitched;
pub use section::Section;
#[cfg(test)]
pub(crate) use section::left_of;
pub(crate) use section::{Hold, Intent};
pub(crate) use standing::{Stage, Standing};
pub use status::Event;
pub use stream::Stream;
pub use stream_kind::{StreamKind, StreamOptions};
pub use text::{KernelText, Scalar};
pub use tile::Tile;
pub(crate) use ways::Ways;
pub use ways::{MemoryMode, Peers, Signals, Waits};
pub use wires::Wires;
pub(crate) use wires::{Addresses, Takes, Vendor, Wiring};

use crate::error::Result;
use crate::world::World;
use std::sync::Arc;

/// A device: the host's cores, or one with a memory of its own. Clones are the same device.
#[derive(Debug, Clone)]
pub struct Device {
    /// `None`: the host.
    accelerator: Option<Arc<dyn Accelerator>>,
    ways: Ways,
    /// See [`Device::shared_out`].
    shared_out: Arc<[String]>,
}

impl Device {
    fn of(accelerator: Option<Arc<dyn Accelerator>>) -> Self {
        Self { accelerator, ways: Ways::default(), shared_out: Arc::default() }
    }

    /// The host.
    pub fn host() -> Self {
        Self::of(None)
    }

    /// A device of OpenCL: the one with that number in [`opencl_devices`], or the first whose name, platform or
    /// vendor contains `select`, whatever the case of its letters; with an empty `select` the first that can be
    /// used. All ranks of a process that choose the same device share its memory.
    ///
    /// # Errors
    /// [`crate::Error::DeviceUnavailable`] if there is no OpenCL here, if no device is meant, or if the one that
    /// is meant lacks what streams need.
    pub fn opencl(select: &str) -> Result<Self> {
        Ok(Self::of(Some(opencl::open(select, MemoryMode::Auto)?)))
    }

    /// A GPU of NVIDIA: the one with that number in [`cuda_devices`], or the first whose name, or address on the bus,
    /// contains `select`, whatever the case of its letters; with an empty `select` the first that can be used. All
    /// ranks of a process that choose the same GPU share its memory. Blocks until the driver has started it.
    ///
    /// # Errors
    /// [`crate::Error::DeviceUnavailable`] if there is no driver here, one older than CUDA 12.0 (525), or no GPU; if no
    /// device is meant; or if the one that is meant lacks what streams need.
    pub fn cuda(select: &str) -> Result<Self> {
        Ok(Self::of(Some(cuda::open(select)?)))
    }

    /// A GPU of AMD's, in builds with the feature `hip`: the one with that number in [`hip_devices`], or the first
    /// whose name or architecture contains `select`, whatever the case of its letters; with an empty `select` the
    /// first. All ranks of a process that choose the same device share its memory.
    ///
    /// # Errors
    /// [`crate::Error::DeviceUnavailable`] if the program was built without HIP, if there is no runtime of it or no
    /// GPU, or if none is meant.
    pub fn hip(select: &str) -> Result<Self> {
        Ok(Self::of(Some(hip::open(select)?)))
    }

    /// The same device, whose streams wait so. On the host it changes nothing.
    pub fn with_waits(self, waits: Waits) -> Self {
        Self { ways: Ways { waits, ..self.ways }, ..self }
    }

    /// The same device, whose streams signal so. On the host it changes nothing.
    pub fn with_signals(self, signals: Signals) -> Self {
        Self { ways: Ways { signals, ..self.ways }, ..self }
    }

    /// The same device, of whose streams other ranks reach the arrays so. On the host it changes nothing.
    pub fn with_peers(self, peers: Peers) -> Self {
        Self { ways: Ways { peers, ..self.ways }, ..self }
    }

    /// The same device, of whose streams' arrays wires are given that. On the host it changes nothing.
    pub fn with_wires(self, wires: Wires) -> Self {
        Self { ways: Ways { wires, ..self.ways }, ..self }
    }

    /// Why other processes of this machine cannot reach its arrays, if so; the host's they can.
    pub fn unreached_by_processes(&self) -> Option<String> {
        self.accelerator.as_ref().and_then(|accelerator| accelerator.identity().err())
    }

    /// Why no wire takes the addresses of its arrays, whichever library carries it, if so.
    pub fn unknown_to_wires(&self) -> Option<&'static str> {
        let is_opencls = |accelerator: &Arc<dyn Accelerator>| accelerator.addresses() == Addresses::Opencl;
        self.accelerator.as_ref().filter(|accelerator| is_opencls(accelerator)).map(|_| wires::OF_OPENCL)
    }

    /// The same device, with arrays where `mode` says. Ranks that exchange have one mode. On the host it changes
    /// nothing.
    ///
    /// # Errors
    /// [`crate::Error::DeviceUnavailable`] if the device has no such memory.
    pub fn with_memory(self, mode: MemoryMode) -> Result<Self> {
        let changed =
            self.accelerator.as_ref().map_or(Ok(None), |accelerator| accelerator.with_memory(mode))?;
        Ok(Self { accelerator: changed.or(self.accelerator), ..self })
    }

    /// `host`, or the name that its vendor gives the device, behind its kind.
    pub fn name(&self) -> &str {
        self.accelerator.as_ref().map_or("host", |accelerator| accelerator.name())
    }

    /// The devices, this one among them, of which [`Device::of_rank`] gives each rank of a node one: their addresses on the
    /// bus, or their numbers where those are not known. Empty if there was no choice.
    pub fn shared_out(&self) -> &[String] {
        &self.shared_out
    }

    /// Whether it computes on cores of its own, not on the host's.
    pub fn is_gpu(&self) -> bool {
        self.accelerator.as_ref().is_some_and(|accelerator| accelerator.is_gpu())
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
    /// If the system refuses the threads, or the device another queue. [`crate::Error::DeviceUnavailable`] for what this device
    /// cannot do on this world's fabric: a stream of a device's kind on the host, or waits, signals or addresses for wires
    /// as the device was asked for.
    pub fn stream_with(&self, world: &World, options: StreamOptions) -> Result<Stream> {
        Stream::open(world, options, self.accelerator.clone(), self.ways)
    }
}
