//! How other ranks reach the memory of a stream: arrays, receive buffers, and the words that announce payloads.

use super::accelerator::Accelerator;
use super::driver::MemoryKind;
use super::{Peers, Stream};
use crate::error::Result;
use crate::fabric::{self, Fabric, Region};
use crate::world::World;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// What a rank tells the others of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Sharing {
    /// As all memory of the fabric: the host's, or that of the device with that number in this process.
    ByFabric(Option<u64>),
    /// By handles of the device with that identity. Words are memory of the fabric, which kernels address too.
    ByHandles(String),
    /// Not at all: messages are staged through the host's memory, for that reason.
    Staged(String),
}

impl Sharing {
    /// How a stream on the device, or on the host, shares its memory.
    pub(super) fn of(fabric: &dyn Fabric, device: Option<&Arc<dyn Accelerator>>, peers: Peers) -> Self {
        let Some(device) = device else { return Sharing::ByFabric(None) };
        let unreached = || format!("the fabric `{}` does not reach the device's", fabric.name());
        match peers {
            Peers::Staged => Sharing::Staged("`device.peers` is `staged`".into()),
            Peers::Auto if fabric.reaches_devices() => Sharing::ByFabric(Some(device.id())),
            Peers::Auto if fabric.takes_handles() => match device.identity() {
                Ok(identity) => Sharing::ByHandles(identity),
                Err(reason) => Sharing::Staged(format!("{}: {reason}", unreached())),
            },
            Peers::Auto => Sharing::Staged(unreached()),
        }
    }
}

impl Stream {
    /// Zeroed memory where the stream lives, for arrays. Peers can map it unless messages are staged.
    ///
    /// # Errors
    /// [`crate::Error::OutOfMemory`].
    pub(crate) fn allocate(&self, world: &World, bytes: usize) -> Result<Region> {
        let fabric = world.fabric();
        let Some(device) = self.accelerator() else { return fabric.allocate(bytes) };
        let on_device = || Ok(Arc::new(device.allocate(bytes, MemoryKind::Device)?));
        match self.sharing() {
            Sharing::ByFabric(_) => Ok(fabric.adopt(on_device()?)),
            Sharing::ByHandles(_) => fabric::export(fabric, &**device, bytes),
            Sharing::Staged(_) => Ok(Region::private(on_device()?, world.rank())),
        }
    }

    /// Zeroed memory that the host addresses too, for messages that it carries.
    ///
    /// # Errors
    /// As [`Stream::allocate`].
    pub(crate) fn allocate_pinned(&self, world: &World, bytes: usize) -> Result<Region> {
        self.allocate_words(world, bytes, true)
    }

    /// Zeroed memory that the host addresses too, for words that ranks poll, to which kernels add only if `kernels_add`.
    ///
    /// # Errors
    /// As [`Stream::allocate`].
    pub(crate) fn allocate_words(&self, world: &World, bytes: usize, kernels_add: bool) -> Result<Region> {
        let fabric = world.fabric();
        match (self.accelerator(), self.sharing()) {
            (None, _) | (_, Sharing::Staged(_)) => fabric.allocate(bytes),
            (Some(device), Sharing::ByFabric(_)) => {
                let memory = device.allocate(bytes, MemoryKind::Pinned)?;
                let memory = if kernels_add { memory } else { memory.without_additions() };
                Ok(fabric.adopt(Arc::new(memory)))
            }
            (Some(device), Sharing::ByHandles(_)) => {
                fabric::register_for(&**device, &fabric.allocate(bytes)?, kernels_add)
            }
        }
    }

    /// Maps what a peer whose memory the stream's device reaches got of [`Stream::allocate`].
    ///
    /// # Errors
    /// As [`Fabric::map`]; what the device says.
    pub(crate) fn map(&self, world: &World, peer: usize, key: u64, bytes: usize) -> Result<Region> {
        let fabric = world.fabric();
        match (self.accelerator(), self.sharing()) {
            (Some(device), Sharing::ByHandles(_)) => fabric::import(fabric, &**device, (peer, key, bytes)),
            _ => fabric.map(peer, key, bytes),
        }
    }

    /// Maps what a peer got of [`Stream::allocate_words`], or of its fabric.
    ///
    /// # Errors
    /// As [`Stream::map`].
    pub(crate) fn map_words(
        &self,
        world: &World,
        peer: usize,
        (key, bytes): (u64, usize),
        kernels_add: bool,
    ) -> Result<Region> {
        let region = world.fabric().map(peer, key, bytes)?;
        match (self.accelerator(), self.sharing()) {
            (Some(device), Sharing::ByHandles(_)) => fabric::register_for(&**device, &region, kernels_add),
            _ => Ok(region),
        }
    }

    /// Whether the host addresses what [`Stream::allocate`] gives.
    pub(crate) fn host_reaches(&self) -> bool {
        self.accelerator().is_none_or(|accelerator| accelerator.host_reaches())
    }
}
