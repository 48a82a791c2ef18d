//! Which ranks reach the memory of each other's devices, and what of it this one has mapped.

use crate::device::{Accelerator, Sharing, Stream, Wiring};
use crate::error::Result;
use crate::fabric::Region;
use crate::world::World;
use std::collections::HashMap;
use std::sync::Arc;

/// Where an exchange is matched.
pub(super) struct Site<'a> {
    pub(super) world: &'a World,
    pub(super) stream: &'a Stream,
    pub(super) reach: &'a Reach,
}

impl Site<'_> {
    /// Zeroed memory from which a wire takes messages, or where it brings them.
    ///
    /// # Errors
    /// [`crate::Error::OutOfMemory`].
    pub(super) fn allocate_for_wire(&self, bytes: usize) -> Result<Region> {
        match self.reach.direct_wire() {
            Some(_) => self.stream.allocate_for_wire(self.world, bytes),
            None => self.world.fabric().allocate(bytes),
        }
    }

    /// The device whose memory a wire is given addresses of, if it is.
    pub(super) fn device_of_wire(&self) -> Option<Arc<dyn Accelerator>> {
        self.reach.direct_wire().and_then(|_| self.stream.accelerator().cloned())
    }
}

/// What all ranks know of who reaches whom.
pub(super) struct Reach {
    own: usize,
    sharings: Vec<Sharing>,
    /// By rank, whether its host's memory is mapped here.
    mapped: Vec<bool>,
    /// Whether all ranks are on one device, and reach it.
    is_one: bool,
    /// By rank, those that it would send to and does not reach, each with the reason.
    unreached: Vec<Vec<(usize, String)>>,
    /// What a wire is given of this rank's payloads.
    wiring: Wiring,
    /// Whether a wire that has windows puts them there.
    puts: bool,
}

impl Reach {
    /// Says it to all: `sharings` are those of all ranks, `peers` those that this one sends to. Collective where devices
    /// differ. `puts`: see [`super::BackendRow`].
    pub(super) fn agree(
        world: &World,
        stream: &Stream,
        sharings: Vec<Sharing>,
        (peers, puts): (impl Iterator<Item = usize>, bool),
    ) -> Result<Self> {
        let own = world.rank();
        let mapped: Vec<bool> = (0..sharings.len()).map(|peer| world.fabric().is_mapped(peer)).collect();
        let is_alike =
            !matches!(sharings[0], Sharing::Staged(_)) && sharings.iter().all(|other| *other == sharings[0]);
        let mut unreached = Vec::new();
        if !is_alike {
            let why = |peer: usize| match (stream.accelerator(), sharings.get(peer)?) {
                (Some(device), Sharing::ByHandles(identity)) if peer != own && mapped[peer] => {
                    device.reaches(identity).err()
                }
                // Devices of one name are not one device, and their addresses are numbers to each other's threads.
                (Some(device), Sharing::ByFabric(Some(number))) if *number != device.id() => Some(
                    "it is another device of this process; between processes (`shm`) kernels may reach it"
                        .into(),
                ),
                _ => None,
            };
            let mine: Vec<_> = peers.filter_map(|peer| Some((peer, why(peer)?))).collect();
            unreached = world.all_gather(&mine)?;
        }
        let is_one = is_alike && mapped.iter().all(|mapped| *mapped);
        let puts = puts && world.fabric().wire().is_some_and(|wire| wire.has_windows());
        Ok(Self { own, sharings, mapped, is_one, unreached, wiring: stream.wiring().clone(), puts })
    }

    /// Whether kernels add to words that kernels of several ranks add to: where all are of one device, which sees that as
    /// one operation.
    pub(super) fn kernels_add(&self) -> bool {
        self.is_one
    }

    /// Why messages of this rank to those whose memory is mapped are staged, whoever the peer is.
    pub(super) fn staged_stream(&self) -> Option<&str> {
        match &self.sharings[self.own] {
            Sharing::Staged(reason) => Some(reason),
            _ => None,
        }
    }

    /// Why a wire is given copies in the host's memory, if it is.
    fn staged_wire(&self) -> Option<&str> {
        self.wiring.why_staged(self.puts)
    }

    /// Why a wire is given addresses of the device's memory, if it is.
    pub(super) fn direct_wire(&self) -> Option<&str> {
        match &self.wiring {
            Wiring::Direct { because, .. } if self.staged_wire().is_none() => Some(because),
            _ => None,
        }
    }

    /// Where peers, or a wire, put messages to this rank.
    pub(super) fn inbox(&self) -> Inbox {
        match (self.staged_stream(), self.direct_wire()) {
            (Some(_), None) => Inbox::Hosts,
            (Some(_), Some(_)) => Inbox::OfWire,
            (None, _) => Inbox::OfPeers,
        }
    }

    /// Whether messages to and from a peer go over a wire.
    pub(super) fn is_far(&self, peer: usize) -> bool {
        self.mapped.get(peer).is_some_and(|mapped| !mapped)
    }

    /// Why messages from a rank to another are staged through the host's memory, if they are.
    pub(super) fn why_staged(&self, sender: usize, receiver: usize) -> Option<String> {
        let peer = if sender == self.own { receiver } else { sender };
        // Each side of a wire settles that for itself.
        if self.is_far(peer) {
            return self.staged_wire().map(str::to_owned);
        }
        let named = |rank: usize, reason: &str| match rank == self.own {
            true => reason.to_owned(),
            false => format!("rank {rank}'s are: {reason}"),
        };
        let staged = |rank: usize| match self.sharings.get(rank)? {
            Sharing::Staged(reason) => Some(named(rank, reason)),
            _ => None,
        };
        // The reason of this rank first.
        let [first, second] = if receiver == self.own { [receiver, sender] } else { [sender, receiver] };
        let pair = || {
            let (_, reason) = self.unreached.get(sender)?.iter().find(|(peer, _)| *peer == receiver)?;
            Some(format!("rank {sender}'s device does not reach that of rank {receiver}: {reason}"))
        };
        staged(first).or_else(|| staged(second)).or_else(pair)
    }

    /// By way of which memory a message goes to another rank, if that is to be said.
    pub(super) fn way(&self, receiver: usize) -> Way {
        match (self.why_staged(self.own, receiver), self.direct_wire()) {
            (Some(because), _) => Way::Staged(because),
            (None, Some(because)) if !self.mapped[receiver] => Way::Direct(because.to_owned()),
            (None, _) => Way::Plain,
        }
    }

    /// Whether arrays of a rank are in memory that only those map who reach its device.
    pub(super) fn is_by_handles(&self, rank: usize) -> bool {
        matches!(self.sharings[rank], Sharing::ByHandles(_))
    }
}

/// Where messages to a rank are put.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Inbox {
    /// In memory of the host, beside its words.
    Hosts,
    /// In memory of its device that peers map, or of its host if it has none.
    OfPeers,
    /// In memory of its device that only a wire is told of.
    OfWire,
}

/// By way of which memory a message goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Way {
    /// There is nothing to be said of it.
    Plain,
    /// A wire has addresses of the device's, and why.
    Direct(String),
    /// By way of the host's, and why.
    Staged(String),
}

impl Way {
    pub(super) fn is_staged(&self) -> bool {
        matches!(self, Way::Staged(_))
    }

    /// Why a message travels as it does, in so many blocks, with what is to be said of its way.
    pub(super) fn told(&self, reason: &str, blocks: u32) -> String {
        let reason = match blocks {
            1 => reason.into(),
            _ => format!("{reason}, in {blocks} blocks"),
        };
        match self {
            Way::Plain => reason,
            Way::Direct(because) => {
                format!("{reason}; straight from and to the device's memory, because {because}")
            }
            Way::Staged(because) => format!("{reason}; staged through the host's memory, because {because}"),
        }
    }
}

/// Memory of peers, each piece mapped once.
pub(super) struct Mapped<'a> {
    site: &'a Site<'a>,
    known: HashMap<(usize, u64), Region>,
}

impl<'a> Mapped<'a> {
    /// `own` is this rank's, which is not mapped again where devices would have to.
    pub(super) fn new(site: &'a Site<'a>, own: [&Region; 2]) -> Self {
        let rank = site.world.rank();
        let own = own.into_iter().filter(|_| site.reach.is_by_handles(rank));
        Self { site, known: own.map(|region| ((rank, region.key()), region.clone())).collect() }
    }

    /// A peer's memory of its device or, if it has none, of its fabric.
    pub(super) fn of_device(&mut self, peer: usize, told: (u64, usize)) -> Result<Region> {
        match self.site.reach.is_by_handles(peer) {
            true => self.find(peer, told, |site| site.stream.map(site.world, peer, told.0, told.1)),
            false => self.of_host(peer, told),
        }
    }

    /// A peer's memory that its host reaches.
    pub(super) fn of_host(&mut self, peer: usize, told: (u64, usize)) -> Result<Region> {
        let adds = self.site.reach.kernels_add();
        self.find(peer, told, |site| site.stream.map_words(site.world, peer, told, adds))
    }

    fn find(
        &mut self,
        peer: usize,
        (key, _): (u64, usize),
        map: impl FnOnce(&Site<'_>) -> Result<Region>,
    ) -> Result<Region> {
        if let Some(known) = self.known.get(&(peer, key)) {
            return Ok(known.clone());
        }
        let region = map(self.site)?;
        self.known.insert((peer, key), region.clone());
        Ok(region)
    }
}
