//! Packets: what ranks tell each other outside of matched exchanges, on every fabric.
//!
//! Between two ranks packets keep their order and are delivered once. There is room for a bounded number:
//! a sender finds none while its receiver does not read. What moves between ranks whose memory is mapped
//! goes through a ring of cache lines in the receiver's memory; a wire carries the rest.

mod cell;
mod connect;
mod mapped;
mod ring;
#[cfg(test)]
mod tests;

use super::memory::{combine, copy_short};
use super::region::Place;
use super::word::{WordCell, has_reached, store_fence};
use super::{Memory, Recording, Word};
use crate::element::{ElementType, Op, with_type};
use crate::error::Result;
use mapped::{Incoming, Outgoing};
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

pub(crate) use cell::{INLINE_BYTES, Opening};

/// What a packet says besides its payload. Whoever sends and receives it gives the meanings; kinds and flags
/// are below 256.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Header {
    pub(crate) kind: u16,
    pub(crate) flags: u16,
    pub(crate) tag: u32,
    /// Of the message, which need not be in the packet.
    pub(crate) bytes: u32,
    pub(crate) ticket: u32,
    pub(crate) offset: u64,
}

/// The payload of a packet that is sent.
#[derive(Debug, Clone, Copy)]
pub enum Payload<'a> {
    None,
    Bytes(&'a [u8]),
    /// That many bytes from there.
    Place(&'a Place, usize),
}

/// A packet that has come. Its payload is there until the receiver goes on to the next one.
#[derive(Debug, Clone, Copy)]
pub struct Arrived<'a> {
    pub(crate) source: usize,
    pub(crate) header: Header,
    pub(super) payload: *const u8,
    pub(super) length: usize,
    pub(super) lives: PhantomData<&'a ()>,
}

/// A bulk transfer that has begun, over a wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Bulk(pub(crate) u64);

/// What a wire offers for packets to ranks whose memory is not mapped. Any thread may call it, in turn.
pub trait FarPackets: Send + fmt::Debug {
    /// The longest payload of a packet.
    fn largest(&self) -> usize;
    /// Sends a packet if there is room. Never blocks.
    fn try_send(&mut self, peer: usize, header: Header, payload: Payload<'_>) -> Result<bool>;
    /// Hands over what has come. Never blocks.
    fn receive(&mut self, take: &mut dyn FnMut(Arrived<'_>)) -> Result<()>;
    /// Has peers find no more room than they know of, whatever is read, or find it again. What they had room for still
    /// comes, and so do goodbyes, which need none.
    fn hold_back(&mut self, is_held: bool);
    /// Begins to send bytes that lie at a place, which must stay as they are until it is done, to a peer that
    /// receives them with the same number. Numbers that are in use between two ranks in one direction differ in
    /// their last 14 bits: they are taken one after the other. Never blocks.
    fn send_bulk(&mut self, peer: usize, number: u32, place: &Place, bytes: usize) -> Result<Bulk>;
    /// Begins to receive them; as [`FarPackets::send_bulk`].
    fn recv_bulk(&mut self, peer: usize, number: u32, place: &Place, bytes: usize) -> Result<Bulk>;
    /// Whether it is done, after which the number may be used again. Never blocks. True once only.
    fn is_done(&mut self, bulk: Bulk) -> Result<bool>;
    /// Whether a peer has let go of its packets: nothing comes from it any more, and it reads nothing. Known once
    /// [`FarPackets::receive`] has handed over all that it had sent, and all bulk transfers from it are complete.
    fn has_left(&self, peer: usize) -> bool;
    /// How many of the packets that were sent to it a peer that has left had not read.
    fn unread(&self, peer: usize) -> Result<u32>;
}

/// One rank's end of the packets of a world. Belongs to one thread at a time.
#[derive(Debug)]
pub(crate) struct Packets {
    /// By peer; none where its memory is not mapped.
    outgoing: Vec<Option<Outgoing>>,
    incoming: Vec<Incoming>,
    /// Which of them is looked at first.
    next: usize,
    /// Whether this rank's waits sleep, so that peers wake it.
    sleeps: bool,
    far: Option<Box<dyn FarPackets>>,
}

impl Packets {
    /// The longest payload of a packet to that peer.
    pub(crate) fn largest(&self, peer: usize) -> usize {
        match (&self.outgoing[peer], &self.far) {
            (Some(ring), _) => ring.largest(),
            (None, Some(far)) => far.largest(),
            (None, None) => unreachable!("a peer that is not mapped has a wire"),
        }
    }

    /// Whether that peer's memory is mapped; bulk transfers are for the others.
    #[inline]
    pub(crate) fn is_mapped(&self, peer: usize) -> bool {
        self.outgoing[peer].is_some()
    }

    /// Who is to be told of what this rank stores into that peer's memory.
    #[inline]
    pub(crate) fn observer(&self, peer: usize) -> Option<&Arc<Recording>> {
        self.outgoing[peer].as_ref().and_then(Outgoing::observer)
    }

    /// Whether a peer has let go of its end: it sends no more than what is there already, and reads no more. That
    /// of a peer over a wire is known once all that it had sent was handed over.
    #[inline]
    pub(crate) fn has_left(&self, peer: usize) -> bool {
        match &self.outgoing[peer] {
            Some(ring) => ring.peer_has_left(),
            None => self.far.as_ref().is_some_and(|far| far.has_left(peer)),
        }
    }

    /// How many of the packets that were sent to it a peer that has left had not read.
    ///
    /// # Errors
    /// What the wire says.
    pub(crate) fn unread(&mut self, peer: usize) -> Result<u32> {
        match (&mut self.outgoing[peer], &self.far) {
            (Some(ring), _) => Ok(ring.unread()),
            (None, Some(far)) => far.unread(peer),
            (None, None) => Ok(0),
        }
    }

    /// Has this rank reach memory of a mapped peer by itself, unless the peer has let go of its end: then `None`.
    #[inline]
    pub(crate) fn reach<R>(&self, peer: usize, access: impl FnOnce() -> R) -> Option<R> {
        self.outgoing[peer].as_ref()?.reach(access)
    }

    /// Which peers may reach this rank's memory by themselves.
    pub(crate) fn reaches(&self) -> Reaches {
        Reaches(self.incoming.iter().map(|ring| ring.reaching().clone()).collect())
    }

    /// Sends a packet if there is room, `payload` being at most as long as is possible. Never blocks.
    ///
    /// # Errors
    /// What the wire says; none to mapped peers.
    #[inline(always)]
    pub(crate) fn try_send(&mut self, peer: usize, header: Header, payload: Payload<'_>) -> Result<bool> {
        match &mut self.outgoing[peer] {
            Some(ring) => Ok(ring.try_send(header, payload)),
            None => self.far().try_send(peer, header, payload),
        }
    }

    /// Hands over what has come, in order for each source, but no more than a ring holds from any: a source
    /// that never stops keeps nobody here. Never blocks.
    ///
    /// # Errors
    /// What the wire says.
    pub(crate) fn receive(&mut self, take: &mut dyn FnMut(Arrived<'_>)) -> Result<()> {
        for ring in &mut self.incoming {
            let back = self.outgoing[ring.source()].as_mut().expect(BOTH_WAYS);
            let mut left = cell::CELLS;
            while left > 0 && ring.take(take, back) {
                left -= 1;
            }
        }
        self.receive_far(take)
    }

    /// Hands over the next packet of any mapped source, if one has come; they are served in turn. Never blocks.
    #[inline]
    pub(crate) fn take_next(&mut self, mut take: impl FnMut(Arrived<'_>)) -> bool {
        let Self { outgoing, incoming, next, .. } = self;
        for _ in 0..incoming.len() {
            let index = *next;
            *next = if index + 1 == incoming.len() { 0 } else { index + 1 };
            let ring = &mut incoming[index];
            let back = outgoing[ring.source()].as_mut().expect(BOTH_WAYS);
            if ring.take(&mut take, back) {
                return true;
            }
        }
        false
    }

    /// How many packets of mapped sources there may be at a time. After as many calls of [`Packets::take_next`] all have been
    /// handed over that were there before the first.
    pub(crate) fn room(&self) -> usize {
        cell::CELLS * self.incoming.len()
    }

    /// Hands over one packet if one has come, or what a wire has; whether there was any. The sources are
    /// served in turn. Never blocks.
    ///
    /// # Errors
    /// What the wire says.
    #[inline]
    pub(crate) fn receive_one(&mut self, mut take: impl FnMut(Arrived<'_>)) -> Result<bool> {
        if self.take_next(&mut take) {
            return Ok(true);
        }
        let mut any = false;
        self.receive_far(&mut |packet| {
            any = true;
            take(packet);
        })?;
        Ok(any)
    }

    /// What comes from that rank and what goes to it, if it is mapped. Who is told something mostly answers: see
    /// [`Outgoing::expect_to_send`].
    #[inline(always)]
    pub(crate) fn rings_with(&mut self, peer: usize) -> Option<(&mut Incoming, &mut Outgoing)> {
        let index = self.ring_from(peer)?;
        Some((&mut self.incoming[index], self.outgoing[peer].as_mut()?))
    }

    /// What goes to that peer, if it is mapped.
    #[inline(always)]
    pub(crate) fn ring_to(&mut self, peer: usize) -> Option<&mut Outgoing> {
        self.outgoing[peer].as_mut()
    }

    #[inline(always)]
    fn ring_from(&self, source: usize) -> Option<usize> {
        // Where all are mapped, the rings lie by rank.
        match self.incoming.get(source) {
            Some(ring) if ring.source() == source => Some(source),
            _ => self.incoming.iter().position(|ring| ring.source() == source),
        }
    }

    /// Hands over what has come over the wire, if there is one. Never blocks.
    ///
    /// # Errors
    /// What the wire says.
    pub(crate) fn receive_far(&mut self, take: &mut dyn FnMut(Arrived<'_>)) -> Result<()> {
        self.far.as_mut().map_or(Ok(()), |far| far.receive(take))
    }

    /// Has peers over the wire, if there is one, find no more room than they know of, or find it again.
    pub(crate) fn hold_back_far(&mut self, is_held: bool) {
        if let Some(far) = &mut self.far {
            far.hold_back(is_held);
        }
    }

    /// Whether there is a wire, to some peers.
    #[inline]
    pub(crate) fn has_far(&self) -> bool {
        self.far.is_some()
    }

    /// How many packets have been sent to a mapped peer, modulo 2³².
    #[inline]
    pub(crate) fn sent(&self, peer: usize) -> u32 {
        self.outgoing[peer].as_ref().map_or(0, Outgoing::sent)
    }

    /// Whether a mapped peer has said that it has read as many packets as had been sent to it then. It says so
    /// after some more have come, so that the answer may be late; once it has left it is exact.
    pub(crate) fn has_read(&mut self, peer: usize, sent: u32) -> bool {
        self.outgoing[peer].as_mut().is_some_and(|ring| ring.peer_has_read(sent))
    }

    /// The bulk transfers of the wire.
    ///
    /// # Panics
    /// Where there is no wire: every peer is mapped.
    pub(crate) fn far(&mut self) -> &mut dyn FarPackets {
        self.far.as_deref_mut().expect("a peer that is not mapped has a wire")
    }

    /// Sleeps until something may have come from that peer, or from any; at most for a nap.
    pub(crate) fn sleep(&self, source: Option<usize>, nap: Duration) {
        let ring = source.and_then(|source| self.incoming.iter().find(|ring| ring.source() == source));
        match ring {
            Some(ring) if self.sleeps => ring.sleep(nap),
            _ => std::thread::sleep(nap.min(SHORT_NAP)),
        }
    }
}

const BOTH_WAYS: &str = "rings are made in both directions";

/// What peers say while they reach this rank's memory by themselves ([`Packets::reach`]). Outlives the packets.
#[derive(Debug)]
pub(crate) struct Reaches(Vec<Word>);

impl Reaches {
    /// Whether none does, nor will. To be asked once the packets were dropped.
    pub(crate) fn are_over(&self) -> bool {
        self.0.iter().all(|reaching| ring::is_out_of_reach(reaching.cell()))
    }
}

/// How long a rank sleeps at once where nothing wakes it.
const SHORT_NAP: Duration = Duration::from_micros(50);

impl Arrived<'_> {
    /// This packet, to a compiler that knows who has sent it.
    #[inline(always)]
    pub(crate) fn known_from(self, source: usize) -> Self {
        Self { source, ..self }
    }

    /// Bytes of payload.
    #[inline]
    pub(crate) fn length(&self) -> usize {
        self.length
    }

    /// Copies the payload to a place that has room for it.
    ///
    /// # Errors
    /// [`crate::Error::OutOfBounds`] if it has not.
    #[inline]
    pub(crate) fn copy_to(&self, place: &Place) -> Result<()> {
        place.check(self.length, "the payload of a packet")?;
        // SAFETY: both hold `length` bytes: the packet until the receiver goes on, the place by `check`. A
        // packet lies in memory that nothing else is in.
        unsafe { std::ptr::copy_nonoverlapping(self.payload, place.pointer(), self.length) };
        Ok(())
    }

    /// Copies the first bytes of the payload, as many as there is room for and as there are.
    #[inline]
    pub(crate) fn copy_into(&self, bytes: &mut [u8]) -> usize {
        let length = self.length.min(bytes.len());
        // SAFETY: both hold `length` bytes, and the slice is this rank's alone.
        unsafe { std::ptr::copy_nonoverlapping(self.payload, bytes.as_mut_ptr(), length) };
        length
    }

    /// Stores the payload in memory of this rank, from that byte on; false if it has no room there.
    #[inline(always)]
    pub(crate) fn store(&self, memory: &Memory, offset: usize) -> bool {
        let Some(to) = memory.find(offset, self.length) else { return false };
        // SAFETY: both hold `length` bytes; a packet lies in memory that nothing else is in.
        unsafe { copy_short(self.payload, to, self.length) };
        true
    }

    /// Combines each element in memory of this rank, from that byte on, with one of the payload.
    ///
    /// # Errors
    /// [`crate::Error::OutOfBounds`] if there are not that many.
    pub(crate) fn combine(&self, memory: &Memory, offset: usize, element: ElementType, op: Op) -> Result<()> {
        let to = memory.at(offset, self.length, "an accumulate into a window")?;
        let elements = self.length / element.bytes();
        // SAFETY: both hold that many elements, of which any bits are values, as above.
        with_type!(element, T => unsafe { combine(self.payload.cast::<T>(), to.cast(), elements, op) });
        Ok(())
    }

    /// Copies the payload out.
    #[cfg(test)]
    pub(crate) fn to_vec(self) -> Vec<u8> {
        let mut bytes = vec![0; self.length];
        self.copy_into(&mut bytes);
        bytes
    }
}
