//! Which ranks reach the memory of each other's devices, and what of it this one has mapped.

use crate::device::{Sharing, Stream};
use crate::error::Result;
use crate::fabric::Region;
use crate::world::World;
use std::collections::HashMap;

/// Where an exchange is matched.
pub(super) struct Site<'a> {
    pub(super) world: &'a World,
    pub(super) stream: &'a Stream,
    pub(super) reach: &'a Reach,
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
}

impl Reach {
    /// Says it to all: `sharings` are those of all ranks, `peers` those that this one sends to. Collective where devices
    /// differ.
    pub(super) fn agree(
        world: &World,
        stream: &Stream,
        sharings: Vec<Sharing>,
        peers: impl Iterator<Item = usize>,
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
                _ => None,
            };
            let mine: Vec<_> = peers.filter_map(|peer| Some((peer, why(peer)?))).collect();
            unreached = world.all_gather(&mine)?;
        }
        let is_one = is_alike && mapped.iter().all(|mapped| *mapped);
        Ok(Self { own, sharings, mapped, is_one, unreached })
    }

    /// Whether kernels add to words that kernels of several ranks add to: where all are of one device, which sees that as
    /// one operation.
    pub(super) fn kernels_add(&self) -> bool {
        self.is_one
    }

    /// Why messages of this rank are staged, whoever the peer is.
    pub(super) fn staged_stream(&self) -> Option<&str> {
        match &self.sharings[self.own] {
            Sharing::Staged(reason) => Some(reason),
            _ => None,
        }
    }

    /// Why messages from a rank to another are staged through the host's memory, if they are.
    pub(super) fn why_staged(&self, sender: usize, receiver: usize) -> Option<String> {
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
        staged(first).or_else(|| staged(second)).or_else(pair).or_else(|| self.why_far(sender, receiver))
    }

    /// Why messages of arrays that are mapped by handles are staged between this rank and one far away.
    fn why_far(&self, sender: usize, receiver: usize) -> Option<String> {
        let peer = if sender == self.own { receiver } else { sender };
        let is_far = self.is_by_handles(self.own) && self.mapped.get(peer).is_some_and(|mapped| !mapped);
        is_far.then(|| format!("rank {peer} shares no memory with this one"))
    }

    /// Whether arrays of a rank are in memory that only those map who reach its device.
    pub(super) fn is_by_handles(&self, rank: usize) -> bool {
        matches!(self.sharings[rank], Sharing::ByHandles(_))
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

/// Why a message travels as it does, if it is staged because of that.
pub(super) fn staged(because: Option<&str>, reason: &str) -> String {
    match because {
        None => reason.into(),
        Some(because) => format!("{reason}; staged through the host's memory, because {because}"),
    }
}
