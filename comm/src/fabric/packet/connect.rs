//! Connecting the ranks of a world for packets.

use super::Packets;
use super::mapped::{Block, Incoming, Outgoing, area_bytes, block_bytes};
use crate::error::{Error, Result};
use crate::fabric::Region;
use crate::world::World;

const CALL: &str = "connecting the ranks for packets";

/// The region with the rings from peers, as its rank tells the others of it.
#[derive(serde::Serialize, serde::Deserialize)]
struct RingRegion {
    key: u64,
    /// Whether its waits may sleep until they are woken.
    sleeps: bool,
    /// The peers that have a block in its region, in order.
    mapped: Vec<usize>,
}

impl Packets {
    /// Connects every rank with every rank, itself included. Collective; blocks.
    ///
    /// # Errors
    /// [`Error::CollectiveFailed`], on all ranks, if one has no memory for its rings or cannot map another's;
    /// what the wire says.
    pub(crate) fn connect(world: &World) -> Result<Self> {
        let mut packets = Self::connect_from(world, 0)?;
        // Not every library makes what a wire needs for a rank that is alone.
        if let (2.., Some(wire)) = (world.size(), world.fabric().wire()) {
            packets.far = Some(wire.open_packets(world)?);
        }
        Ok(packets)
    }

    /// As [`Packets::connect`], but only those ranks with each other whose memory is mapped.
    ///
    /// # Errors
    /// [`Error::CollectiveFailed`], as [`Packets::connect`].
    pub(crate) fn connect_mapped(world: &World) -> Result<Self> {
        // Messages of exchanges are few and short, and memory that is used again sooner is still at hand.
        Self::connect_over(world, 0, area_bytes(world.size()).min(1 << 15))
    }

    /// As [`Packets::connect`] without the wire, as if `start` packets had been sent from each to each rank.
    pub(super) fn connect_from(world: &World, start: u32) -> Result<Self> {
        Self::connect_over(world, start, area_bytes(world.size()))
    }

    /// As [`Packets::connect_from`], with that many bytes for the payloads of each ring.
    fn connect_over(world: &World, start: u32, area: u32) -> Result<Self> {
        let (fabric, rank, size) = (world.fabric(), world.rank(), world.size());
        let sleeps = world.wait_context().policy.sleeps;
        let mapped: Vec<usize> = (0..size).filter(|peer| *peer == rank || fabric.is_mapped(*peer)).collect();
        let region = fabric.allocate(mapped.len() * block_bytes(area)).and_then(|region| {
            for (index, peer) in mapped.iter().enumerate() {
                Block::new(&region, index, area)?.prepare(*peer, start)?;
            }
            Ok(region)
        });
        let own =
            region.as_ref().map(|region| RingRegion { key: region.key(), sleeps, mapped: mapped.clone() });
        let all = world.agree(CALL, own)?;
        let region = region?;

        let connected = mapped.iter().enumerate().map(|(index, &peer)| {
            let own = Block::new(&region, index, area)?;
            let peers = if peer == rank {
                own.clone()
            } else {
                let told = &all[peer];
                let bytes = told.mapped.len() * block_bytes(area);
                let index = told.mapped.iter().position(|other| *other == rank);
                let index = index.ok_or_else(|| one_sided(rank, peer))?;
                let region: Region = fabric.map(peer, told.key, bytes)?;
                Block::new(&region, index, area)?
            };
            let outgoing = Outgoing::new(&peers, &own, all[peer].sleeps, start)?;
            Ok((peer, outgoing, Incoming::new(&own, &peers, start)?))
        });
        let connected = connected.collect::<Result<Vec<_>>>();
        world.agree(CALL, connected.as_ref().map(|_| ()))?;

        let mut packets = Self {
            outgoing: (0..size).map(|_| None).collect(),
            incoming: Vec::with_capacity(mapped.len()),
            next: 0,
            sleeps,
            far: None,
        };
        for (peer, outgoing, incoming) in connected? {
            packets.outgoing[peer] = Some(outgoing);
            packets.incoming.push(incoming);
        }
        Ok(packets)
    }
}

fn one_sided(rank: usize, peer: usize) -> Error {
    Error::System {
        call: CALL,
        reason: format!("rank {rank} maps the memory of rank {peer}, which does not map rank {rank}'s"),
    }
}
