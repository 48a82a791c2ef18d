//! Fabrics: what the wire between ranks can do.
//!
//! Where a rank's memory is mapped into its peers (`local`, `shm`), the executor of a stream stores payloads and
//! signals straight into it ([`Executor::Stream`]). Between other ranks a [`Wire`] carries them, over MPI or
//! libfabric. A new fabric is one file, or folder, and one row of [`FABRICS`].

mod abort;
mod bells;
mod bytes;
mod carrier;
pub(crate) mod claims;
mod exported;
mod flag;
mod futex;
mod grace;
mod hook;
mod keep;
mod local;
mod memory;
mod messaging;
mod met;
mod mpi;
mod observer;
mod ofi;
mod over_mpi;
mod over_ofi;
mod packet;
mod partings;
mod per_message;
mod progress;
mod protocol;
mod region;
pub mod rendezvous;
mod role;
pub mod shm;
mod spanning;
mod sync;
pub(crate) mod throttling;
mod wait;
mod wire;
mod word;

pub(crate) use abort::EXITED;
pub(crate) use abort::{Abort, to_blame};
pub(crate) use bells::Bells;
pub(crate) use bytes::{bytes_of, bytes_of_mut, elements_of_mut};
pub use carrier::Carrier;
pub(crate) use carrier::HostRounds;
pub(crate) use exported::{closing_later, export, import, register as register_for};
pub use flag::FlagPair;
pub(crate) use futex::Futex;
pub(crate) use grace::Grace;
pub(crate) use hook::Doorbell;
pub(crate) use keep::Keep;
pub use local::LocalFabric;
pub(crate) use memory::Memory;
pub use mpi::{FoundLibrary, Launched, installed as mpi_libraries, launched};
pub use observer::{Event, Recording, RecordingFabric};
pub use ofi::{Provider, providers as libfabric_providers};
pub use over_ofi::{
    COUNTER_START_VARIABLE, DOMAIN_VARIABLE, ENTRIES_VARIABLE, HMEM_VARIABLE, PROVIDER_VARIABLE,
    THROTTLING_VARIABLE,
};
pub(crate) use packet::{
    Arrived, Bulk, FarPackets, Header, INLINE_BYTES, Opening, Packets, Payload, Reaches,
};
pub(crate) use partings::{Listening, Parted, Partings};
pub(crate) use per_message::{PerMessage, Sides, tell};
pub(crate) use progress::{Progress, progress_all, register};
pub use protocol::phase;
pub(crate) use protocol::{clear_to_send, next_count};
pub(crate) use region::{LINE, shared_struct};
pub use region::{Place, Region, Word};
pub use role::Role;
pub use throttling::Throttling;
pub use wait::WaitPolicy;
pub(crate) use wait::{GaveUp, WaitContext, any_other};
pub use wire::Wire;
pub(crate) use wire::{
    Arm, Early, FarExchange, FarMessage, FarMessages, FarRecv, FarSend, HalfOpen, OpenExchange, Persistent,
    Room, Terms,
};
pub(crate) use word::{has_reached, store_fence};

use crate::device::DeviceMemory;
use crate::error::{Error, Result};
use crate::meeting::Meeting;
use crate::names::did_you_mean;
use crate::world::WorldOptions;
use std::fmt;
use std::sync::Arc;

/// Who carries out what a stream has triggered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Executor {
    /// The stream's own executor: peer memory is mapped.
    Stream,
    /// The network interface, by triggered operations.
    Nic,
    /// A progress thread.
    Proxy,
    /// The host: for `standard` it synchronises the stream first, else it makes progress in its waits.
    Host,
}

impl fmt::Display for Executor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Executor::Stream => "stream",
            Executor::Nic => "nic",
            Executor::Proxy => "proxy",
            Executor::Host => "host",
        })
    }
}

/// A transport between the ranks of a job.
pub trait Fabric: Send + Sync + fmt::Debug {
    /// The name in configurations.
    fn name(&self) -> &'static str;
    /// Who executes triggered operations.
    fn executor(&self) -> Executor;
    /// This rank.
    fn rank(&self) -> usize;
    /// How many ranks there are.
    fn size(&self) -> usize;
    /// Zeroed memory that peers can address, aligned to 64 bytes. Not collective.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    fn allocate(&self, bytes: usize) -> Result<Region>;
    /// Whether peers map the memory of devices. Otherwise messages from and to it are staged through the host's, or a
    /// [`Wire`] takes them.
    fn reaches_devices(&self) -> bool {
        false
    }
    /// Whether peers whose memory is mapped are processes, and so can map that of devices by handles, where these have
    /// them. Two ranks see it alike.
    fn takes_handles(&self) -> bool {
        false
    }
    /// Makes memory of a device a region of this rank, which peers can map where the fabric reaches devices. Not
    /// collective.
    fn adopt(&self, memory: Arc<DeviceMemory>) -> Region {
        Region::private(memory, self.rank())
    }
    /// Maps a region of `owner` by the key and the size, in bytes, that it gave out. Not collective.
    ///
    /// # Errors
    /// [`Error::System`] if there is no such region any more.
    fn map(&self, owner: usize, key: u64, bytes: usize) -> Result<Region>;
    /// Whether a peer's memory is mapped into this rank; otherwise the [`Fabric::wire`] carries
    /// messages to it. Two ranks see it alike.
    fn is_mapped(&self, _peer: usize) -> bool {
        true
    }
    /// What carries messages to peers whose memory is not mapped, on every rank or on none.
    fn wire(&self) -> Option<Arc<dyn Wire>> {
        None
    }
    /// The abort word, from the start.
    fn abort(&self) -> Abort;
    /// Where all ranks meet. Once; does not communicate.
    ///
    /// # Errors
    /// If the memory for it is too small.
    fn meeting(self: Arc<Self>) -> Result<Box<dyn Meeting>>;
    /// How ranks wait unless they are told.
    fn wait_policy(&self) -> WaitPolicy {
        WaitPolicy::for_ranks(self.size())
    }
    /// Tells the ranks of other machines that this one has failed, if the abort word does not.
    fn tell_failure(&self, _rank: usize, _operation: &str) {}
    /// What partings of peers over the wire come to, where there is one.
    fn partings(&self) -> Option<&Arc<Partings>> {
        None
    }
    /// Tells a peer over the wire that this rank lets go of words of its. Does not block.
    fn tell_parting(&self, _peer: usize, _parted: &Parted) {}
    /// The library that carries messages, with its version, if it is one of the machine's.
    fn engine(&self) -> Option<String> {
        None
    }
    /// Who carries what streams have triggered, if that is neither the stream nor the network.
    fn carriers(&self) -> Vec<Arc<Carrier>> {
        Vec::new()
    }
}

/// One row of the registry of fabrics.
#[derive(Debug, Clone, Copy)]
pub struct FabricRow {
    /// The name in configurations.
    pub name: &'static str,
    /// What it is, in a line.
    pub summary: &'static str,
    /// Who executes triggered operations on it.
    pub executor: Executor,
    /// Whether peers map the memory of devices, as [`Fabric::reaches_devices`] says.
    pub reaches_devices: bool,
    /// Whether they map it by handles, where devices have them, as [`Fabric::takes_handles`] says.
    pub takes_handles: bool,
    /// Why it cannot be used on this machine or in this build, if so.
    pub unusable: fn() -> Option<String>,
    /// Joins the ranks that a launcher has started. Collective over them.
    join: fn(&WorldOptions) -> Result<Arc<dyn Fabric>>,
}

/// A job of more ranks is refused: it is a slip, and what is made for each of them would take more memory than there is.
pub const MOST_RANKS: usize = 1 << 20;

/// Names the fabric to use, where a launcher leaves the choice.
pub const FABRIC_VARIABLE: &str = "STREAMHALO_FABRIC";

/// What tells a process its place among others: those of `streamhalo launch`, or those that meet at an address.
const OF_A_RANK: [&str; 4] =
    [shm::SIZE_VARIABLE, shm::SEGMENT_VARIABLE, shm::RANK_VARIABLE, rendezvous::ADDRESS_VARIABLE];

/// The name of the fabric that this process was started for.
pub(crate) fn of_launcher() -> String {
    if std::env::var_os(shm::SEGMENT_VARIABLE).is_some() {
        return "shm".into();
    }
    match (std::env::var(FABRIC_VARIABLE), mpi::launched()) {
        (Ok(name), _) => name,
        // One of several is not left alone where it is not said where they meet.
        (Err(_), _) if OF_A_RANK.iter().any(|variable| std::env::var_os(variable).is_some()) => "ofi".into(),
        // MPI knows how many there are where its launcher does not say so.
        (Err(_), Some(launched)) if launched.ranks != Some(1) => "mpi".into(),
        (Err(_), _) => "local".into(),
    }
}

/// Refuses to leave a process alone, over the fabric of that name, that was started as one of several.
pub(crate) fn check_alone(name: &str) -> Result<()> {
    let value = |variable: &str| Some(std::env::var_os(variable)?.to_string_lossy().into_owned());
    let told = OF_A_RANK.iter().find_map(|variable| Some((variable, value(variable)?)));
    let Some((variable, told)) = told.filter(|told| *told != (&shm::SIZE_VARIABLE, "1".into())) else {
        return Ok(());
    };
    let theirs = if value(shm::SEGMENT_VARIABLE).is_some() { "`shm`" } else { "`ofi` or `shm+ofi`" };
    Err(unavailable(
        name,
        format!(
            "this process was started as one of several ({variable}={told}), each of which would be alone over it; \
             use {theirs}, or take that variable out of its environment"
        ),
    ))
}

/// The fabric of that name, between the ranks that a launcher has started. Collective over them.
///
/// # Errors
/// [`Error::FabricUnavailable`] if there is no such fabric, if it cannot be used here, or if nothing
/// has started ranks for it.
pub(crate) fn join(name: &str, options: &WorldOptions) -> Result<Arc<dyn Fabric>> {
    let row = FABRICS.iter().find(|row| row.name == name).ok_or_else(|| Error::FabricUnavailable {
        name: name.into(),
        reason: format!(
            "there is none of that name; the fabrics are {}{}",
            FABRICS.iter().map(|row| row.name).collect::<Vec<_>>().join(", "),
            did_you_mean(name, FABRICS.iter().map(|row| row.name))
        ),
    })?;
    (row.join)(options)
}

/// An error for ranks that were started otherwise than a fabric needs.
pub(crate) fn unavailable(name: &str, reason: impl Into<String>) -> Error {
    Error::FabricUnavailable { name: name.into(), reason: reason.into() }
}

/// Every fabric that this version knows.
pub const FABRICS: &[FabricRow] = &[
    FabricRow {
        name: "local",
        summary: "ranks are threads of one process",
        executor: Executor::Stream,
        reaches_devices: true,
        takes_handles: false,
        unusable: || None,
        join: local::join,
    },
    FabricRow {
        name: "shm",
        summary: "ranks are processes of one machine, sharing memory",
        executor: Executor::Stream,
        reaches_devices: false,
        takes_handles: true,
        unusable: || None,
        join: shm::join,
    },
    FabricRow {
        name: "mpi",
        summary: "any MPI library, found at run time",
        executor: Executor::Proxy,
        reaches_devices: false,
        takes_handles: false,
        unusable: over_mpi::unusable,
        join: over_mpi::join,
    },
    FabricRow {
        name: "shm+mpi",
        summary: "shm between the ranks of a node, mpi between nodes",
        executor: Executor::Proxy,
        reaches_devices: false,
        takes_handles: true,
        unusable: over_mpi::unusable,
        join: |options| shm::within_nodes("shm+mpi", over_mpi::launched(options)?, options),
    },
    FabricRow {
        name: "ofi",
        summary: "libfabric, with triggered operations where the provider has them",
        executor: Executor::Nic,
        reaches_devices: false,
        takes_handles: false,
        unusable: over_ofi::unusable,
        join: over_ofi::join,
    },
    FabricRow {
        name: "shm+ofi",
        summary: "shm between the ranks of a node, ofi between nodes",
        executor: Executor::Nic,
        reaches_devices: false,
        takes_handles: true,
        unusable: over_ofi::unusable,
        join: |options| shm::within_nodes("shm+ofi", over_ofi::launched(options)?, options),
    },
];

/// By how much the `index`-th large region starts off its page. Without it two generations of an
/// array lie a multiple of 4096 bytes apart, and a load of one stalls behind a store to the other
/// whose address ends in the same 12 bits.
pub(crate) fn skew(bytes: usize, index: u64) -> usize {
    const STEP: u64 = 33 * 64;
    if bytes < SKEWED_BYTES { 0 } else { (index * STEP % SKEWED_BYTES as u64) as usize }
}

/// What begins so far apart looks alike to a processor. Smaller memory is not skewed, and none by as much.
pub(crate) const SKEWED_BYTES: usize = 4096;
