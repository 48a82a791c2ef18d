//! What ranks tell each other of the messages of an exchange: where to write, and under which number.

use crate::error::Result;
use crate::fabric::ofi::{Endpoint, MemoryRegion, PeerAddress, RemotePlace};
use crate::fabric::{FarExchange, FarMessage, Place, Word};
use crate::world::World;
use serde::{Deserialize, Serialize};
use std::ptr::NonNull;
use std::sync::Arc;

/// A place that the teller lets the other side write to.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) struct Target {
    key: u64,
    address: u64,
    /// What comes with the completion of a write, or the tag of a message.
    pub(super) number: u32,
}

impl Target {
    /// The beginning of a region.
    pub(super) fn of(region: &MemoryRegion, number: u32) -> Self {
        Self { key: region.key(), address: region.remote_base(), number }
    }

    /// Nothing to write to: a number only.
    pub(super) fn number(number: u32) -> Self {
        Self { key: 0, address: 0, number }
    }

    pub(super) fn at(self, peer: PeerAddress) -> RemotePlace {
        RemotePlace { peer, key: self.key, address: self.address }
    }
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Told {
    peer: usize,
    tag: u32,
    /// For a receive: its buffers. For a send: where its receiver's readiness comes to.
    targets: Vec<Target>,
}

/// The other sides' targets, in the order of this rank's sends and receives.
#[derive(Debug)]
pub(super) struct Targets {
    /// The receivers' buffers.
    pub(super) sends: Vec<Vec<Target>>,
    /// Where the senders hear that this rank is ready.
    pub(super) recvs: Vec<Vec<Target>>,
}

type Sides = Vec<(usize, u32)>;
type OwnTargets = (Vec<Vec<Target>>, Vec<Vec<Target>>);

/// The peers and tags of an exchange's messages.
pub(super) fn sides_of(exchange: &FarExchange) -> (Sides, Sides) {
    let sends = exchange.sends.iter().map(|send| (send.peer, send.tag)).collect();
    (sends, exchange.recvs.iter().map(|recv| (recv.peer, recv.tag)).collect())
}

/// The peers and tags of two-sided messages.
pub(super) fn sides_of_messages(messages: &[FarMessage]) -> Sides {
    messages.iter().map(|message| (message.peer, message.tag)).collect()
}

/// Tells all ranks this one's targets, by message, and finds those of the other sides. Collective.
pub(super) fn tell(
    world: &World,
    call: &'static str,
    (sends, recvs): &(Sides, Sides),
    own: Result<OwnTargets>,
) -> Result<Targets> {
    let named = |sides: &Sides, targets: Vec<Vec<Target>>| -> Vec<Told> {
        let all = sides.iter().zip(targets);
        all.map(|(&(peer, tag), targets)| Told { peer, tag, targets }).collect()
    };
    let all = world.agree(call, own.map(|own| (named(sends, own.0), named(recvs, own.1))))?;
    let rank = world.rank();
    let find = |told: &[Told], tag: u32| {
        let found = told.iter().find(|told| (told.peer, told.tag) == (rank, tag));
        found.expect("matching has found both sides").targets.clone()
    };
    Ok(Targets {
        sends: sends.iter().map(|&(peer, tag)| find(&all[peer].1, tag)).collect(),
        recvs: recvs.iter().map(|&(peer, tag)| find(&all[peer].0, tag)).collect(),
    })
}

/// Registers the bytes at a place.
pub(super) fn register(
    endpoint: &Endpoint,
    place: &Place,
    bytes: usize,
    counter: Option<&crate::fabric::ofi::Counter>,
) -> Result<MemoryRegion> {
    let base = NonNull::new(place.pointer()).expect("regions are never null");
    let memory = Arc::new(place.region().clone());
    // SAFETY: the place was checked to hold that many bytes of a region that is kept, and to whose bytes
    // no references are formed.
    unsafe { MemoryRegion::register(endpoint, base, bytes, memory, counter) }
}

/// Registers a word, for atomic operations on its value.
pub(super) fn register_word(
    endpoint: &Endpoint,
    word: &Word,
    counter: Option<&crate::fabric::ofi::Counter>,
) -> Result<MemoryRegion> {
    let base = NonNull::from(word.cell()).cast();
    // SAFETY: a word begins with its value, of four bytes, and is kept; it consists of atomics.
    unsafe { MemoryRegion::register(endpoint, base, size_of::<u32>(), Arc::new(word.clone()), counter) }
}
