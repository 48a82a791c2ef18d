//! Packets over libfabric: tagged messages.

use super::hub::{Hub, Number};
use super::office::{self, BULKS, Office, PACKETS};
use super::target::register;
use crate::error::Result;
use crate::fabric::messaging::{Label, Messaging};
use crate::fabric::ofi::{LocalSlice, MemoryRegion, PeerAddress, Posted};
use crate::fabric::{Fabric, LocalFabric, Place, Region};
use std::ops::Range;
use std::sync::Arc;

pub(super) use crate::fabric::messaging::FRAME_BYTES;

/// The bits of a tag that say the channel, the source and the number of a bulk transfer, each.
const FIELD_BITS: u32 = 15;
/// How many there may be of each.
pub(super) const LIMIT: usize = 1 << FIELD_BITS;
/// The longest message, where a provider has no shorter one.
const LONGEST: usize = 1 << 30;
/// Regions that stay registered though nothing is on its way from or to them.
const REGISTERED: usize = 64;

/// Messages of one channel.
#[derive(Debug)]
pub(super) struct OfiMessaging {
    hub: Arc<Hub>,
    office: Arc<Office>,
    peers: Vec<PeerAddress>,
    channel: u16,
    /// Registered memory that transfers were from or to, the last used last.
    registered: Vec<(Region, MemoryRegion)>,
    /// Numbers that nothing bears just now.
    numbers: Vec<(Number, u32)>,
    /// For messages of no bytes.
    nothing: Place,
}

/// Memory that messages come from or go to.
#[derive(Debug)]
pub(super) struct Memory {
    place: Place,
    /// Registered when it is first needed.
    region: Option<MemoryRegion>,
    done: Option<Number>,
    /// How often an operation was posted.
    uses: u32,
}

/// A message under way.
#[derive(Debug)]
pub(super) enum Operation {
    Posted {
        peer: PeerAddress,
        done: Number,
        after: u32,
    },
    /// One that the office takes in.
    Awaited(Label, Place),
    Ended,
}

impl OfiMessaging {
    pub(super) fn new(
        hub: &Arc<Hub>,
        office: &Arc<Office>,
        peers: &[PeerAddress],
        channel: u16,
    ) -> Result<Self> {
        let memory = LocalFabric::alone(0)?;
        let nothing = memory.allocate(64)?.place(0, 64, "a message of no bytes")?;
        office.open(channel)?;
        Ok(Self {
            hub: hub.clone(),
            office: office.clone(),
            peers: peers.to_vec(),
            channel,
            registered: Vec::new(),
            numbers: Vec::new(),
            nothing,
        })
    }

    fn tag(&self, label: Label) -> u64 {
        match label {
            Label::Bulk { source, number } => {
                let number = u64::from(number) % LIMIT as u64;
                let of = u64::from(self.channel) << FIELD_BITS | source as u64;
                PACKETS | BULKS | of << FIELD_BITS | number
            }
            label => office::tag(label),
        }
    }

    /// The whole region of a place, registered. Repeated transfers find it so.
    fn region(&mut self, place: &Place) -> Result<MemoryRegion> {
        let region = place.region();
        let found = self.registered.iter().position(|(known, _)| {
            known.is_same(region) && known.key() == region.key() && known.bytes() == region.bytes()
        });
        if let Some(found) = found {
            let found = self.registered.remove(found);
            let memory = found.1.clone();
            self.registered.push(found);
            return Ok(memory);
        }
        // Two are of this entry: what nobody else holds is not to be kept.
        self.registered.retain(|(known, _)| known.holders() > 2);
        if self.registered.len() >= REGISTERED {
            self.registered.remove(0);
        }
        let whole = region.place(0, region.bytes(), "a region")?;
        let memory = register(self.hub.endpoint(), &whole, region.bytes(), None)?;
        self.registered.push((region.clone(), memory.clone()));
        Ok(memory)
    }
}

impl Messaging for OfiMessaging {
    type Memory = Memory;
    type Operation = Operation;

    fn prepare(&mut self, place: &Place, bytes: usize) -> Result<Memory> {
        let place = if bytes == 0 { self.nothing.clone() } else { place.clone() };
        let region = Some(self.region(&place)?);
        let (done, uses) = self.numbers.pop().unzip();
        Ok(Memory { place, region, done, uses: uses.unwrap_or(0) })
    }

    fn own(&mut self, place: &Place) -> Memory {
        Memory { place: place.clone(), region: None, done: None, uses: 0 }
    }

    fn release(&mut self, memory: Memory) {
        self.numbers.extend(memory.done.map(|done| (done, memory.uses)));
    }

    fn longest(&self) -> usize {
        self.hub.endpoint().longest_message().min(LONGEST)
    }

    fn channel(&self) -> u16 {
        self.channel
    }

    unsafe fn send(
        &mut self,
        memory: &mut Memory,
        part: Range<usize>,
        peer: usize,
        label: Label,
    ) -> Result<Option<Operation>> {
        let peer = self.peers[peer];
        let (slice, number) = memory.slice(&self.hub, part)?;
        // SAFETY: passed on to the caller.
        let posted = unsafe { self.hub.endpoint().send_tagged(&slice, peer, self.tag(label), number) }?;
        Ok(memory.noted(posted, peer))
    }

    unsafe fn receive(
        &mut self,
        memory: &mut Memory,
        part: Range<usize>,
        label: Label,
    ) -> Result<Option<Operation>> {
        let Label::Bulk { source, .. } = label else {
            return Ok(Some(Operation::Awaited(label, memory.place.clone())));
        };
        let peer = self.peers[source];
        let (slice, number) = memory.slice(&self.hub, part)?;
        // SAFETY: passed on to the caller.
        let posted = unsafe { self.hub.endpoint().receive_tagged(&slice, peer, self.tag(label), number) }?;
        Ok(memory.noted(posted, peer))
    }

    fn progress(&mut self) -> Result<()> {
        self.office.sort()
    }

    fn is_complete(&mut self, operation: &mut Operation) -> Result<bool> {
        Ok(match operation {
            Operation::Posted { done, after, .. } => done.count().wrapping_sub(*after).cast_signed() >= 0,
            Operation::Awaited(label, into) => self.office.take(self.channel, *label, into),
            Operation::Ended => true,
        })
    }

    fn cancel(&mut self, operation: &mut Operation) {
        match operation {
            Operation::Posted { peer, done, .. } => self.hub.endpoint().cancel(*peer, done.number),
            awaited => *awaited = Operation::Ended,
        }
    }

    fn is_lost(&self) -> bool {
        // Its calls return, whatever has become of peers.
        false
    }
}

impl Memory {
    /// A part of it, and what completes an operation with it.
    fn slice(&mut self, hub: &Hub, part: Range<usize>) -> Result<(LocalSlice, u32)> {
        let region = match &self.region {
            Some(region) => region,
            None => {
                let bytes = self.place.region().bytes();
                self.region.insert(register(hub.endpoint(), &self.place, bytes, None)?)
            }
        };
        let done = self.done.get_or_insert_with(|| hub.number());
        let slice = region.slice(self.place.offset() + part.start, part.len(), "a message")?;
        Ok((slice, done.number))
    }

    /// The operation, if the provider has taken it.
    fn noted(&mut self, posted: Posted, peer: PeerAddress) -> Option<Operation> {
        let done = self.done.clone().filter(|_| posted == Posted::Yes)?;
        self.uses = self.uses.wrapping_add(1);
        Some(Operation::Posted { peer, done, after: self.uses })
    }
}

impl Drop for OfiMessaging {
    fn drop(&mut self) {
        self.office.close(self.channel);
    }
}
