//! What packets are on their way, and who may send how many.

use super::bulks::Bulks;
use super::goodbye::{GOODBYE, Goodbye};
use super::ring::{Ring, Slot};
use super::{CREDIT_BYTES, Envelope, Label, Messaging, PACKET_BYTES, WINDOW};
use crate::error::Result;
use crate::fabric::LocalFabric;
use crate::fabric::packet::{Arrived, Bulk, Header, Payload};
use crate::fabric::region::Place;
use crate::world::World;
use std::collections::VecDeque;
use std::marker::PhantomData;
use std::sync::Arc;

/// What goes before the payload of a packet.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct Frame {
    envelope: Envelope,
    header: Header,
}

/// How many of a peer's packets a rank has read, wrapping.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct Credit {
    envelope: Envelope,
    read: u32,
}

/// How long that is.
pub(crate) const FRAME_BYTES: usize = size_of::<Frame>();
const _: () = assert!(size_of::<Credit>() == CREDIT_BYTES && LARGEST <= u16::MAX as usize);
/// The longest payload of a packet.
pub(super) const LARGEST: usize = PACKET_BYTES - FRAME_BYTES;
/// A peer is told of that many at once.
const BATCH: u32 = WINDOW / 2;
/// Receives that are posted, at most: more packets wait in the library.
const SLOTS: usize = 64;
/// How often receives are looked at that were asked to end.
const TRIES: usize = 1000;

/// What was sent to a peer and came from it. All numbers wrap.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Peer {
    pub(super) sent: u32,
    /// Of which it has read so many.
    heard: u32,
    pub(super) read: u32,
    /// Of which it was told.
    told: u32,
    /// Messages of any kind, in each direction.
    messages: [u32; 2],
    /// Bulk transfers to it that were begun, and from it that are complete.
    pub(super) bulks: [u32; 2],
    /// What it has said when it let go of its packets.
    pub(super) goodbye: Option<Goodbye>,
}

/// The packets of one rank.
#[derive(Debug)]
pub(crate) struct State<M: Messaging> {
    pub(super) library: M,
    rank: usize,
    memory: Arc<LocalFabric>,
    pub(super) peers: Vec<Peer>,
    /// The peers that the wire reaches.
    pub(super) far: Vec<usize>,
    /// Who has sent so much that was read that it is to be told.
    owed: Vec<usize>,
    /// Nobody is told for now.
    is_held: bool,
    /// Who has said goodbye, and may still have bulk transfers under way.
    pub(super) leaving: Vec<usize>,
    /// Packets of which this rank has not heard that they were read.
    unheard: u32,
    packets: Ring<M>,
    credits: Ring<M>,
    free: Vec<Slot<M>>,
    /// What could not be sent yet, in order: the bytes, and to whom.
    outgoing: VecDeque<(Slot<M>, usize, usize)>,
    sending: Vec<(Slot<M>, M::Operation)>,
    bulks: Bulks<M>,
}

impl<M: Messaging> State<M> {
    /// Posts the receives of this rank.
    pub(crate) fn new(world: &World, mut library: M) -> Result<Self> {
        let memory = LocalFabric::alone(world.rank())?;
        let peers = (0..world.size()).filter(|peer| !world.fabric().is_mapped(*peer)).collect::<Vec<_>>();
        let far = peers.len();
        let slots = (far * WINDOW as usize).clamp(1, SLOTS);
        let packets = Ring::new(&mut library, &memory, (Label::Packet, slots, PACKET_BYTES))?;
        let told_at_once = (far * (WINDOW / BATCH) as usize).clamp(1, SLOTS);
        let credits = Ring::new(&mut library, &memory, (Label::Credit, told_at_once, CREDIT_BYTES))?;
        let mut made = Self {
            library,
            rank: world.rank(),
            memory,
            peers: vec![Peer::default(); world.size()],
            far: peers,
            owed: Vec::with_capacity(far),
            is_held: false,
            leaving: Vec::new(),
            unheard: 0,
            packets,
            credits,
            free: Vec::new(),
            outgoing: VecDeque::new(),
            sending: Vec::new(),
            bulks: Bulks::new(),
        };
        made.packets.post(&mut made.library)?;
        made.credits.post(&mut made.library)?;
        Ok(made)
    }

    /// The library's part.
    pub(crate) fn library(&mut self) -> &mut M {
        &mut self.library
    }

    /// Whether a peer may be sent one more.
    pub(super) fn has_room(&self, peer: usize) -> bool {
        let Peer { sent, heard, .. } = self.peers[peer];
        sent.wrapping_sub(heard) < WINDOW
    }

    fn envelope(&self, length: usize) -> Envelope {
        Envelope { source: self.rank as u32, length: length as u16, channel: self.library.channel() }
    }

    fn slot(&mut self) -> Result<Slot<M>> {
        match self.free.pop() {
            Some(slot) => Ok(slot),
            // So many are on their way for the first time.
            None => Slot::new(&mut self.library, &self.memory, PACKET_BYTES),
        }
    }

    /// Puts a packet into the queue, for which there is room.
    pub(super) fn queue(&mut self, peer: usize, header: Header, payload: Payload<'_>) -> Result<()> {
        let (source, length) = match payload {
            Payload::None => (std::ptr::null(), 0),
            Payload::Bytes(bytes) => (bytes.as_ptr(), bytes.len()),
            Payload::Place(place, bytes) => {
                place.advance(0, bytes, "the payload of a packet")?;
                (place.pointer().cast_const(), bytes)
            }
        };
        assert!(length <= LARGEST, "a packet has at most {LARGEST} bytes of payload, not {length}");
        let slot = self.slot()?;
        let frame = Frame { envelope: self.envelope(length), header };
        let base = slot.place.pointer();
        // SAFETY: a slot is aligned to 64 bytes, has room for a frame, and nobody else uses this one.
        unsafe { base.cast::<Frame>().write(frame) };
        if length > 0 {
            // SAFETY: a slot is longer than a frame.
            let behind = unsafe { base.add(FRAME_BYTES) };
            // SAFETY: the payload is that long, which was checked to find room, and is not in a slot.
            unsafe { std::ptr::copy_nonoverlapping(source, behind, length) };
        }
        self.peers[peer].sent = self.peers[peer].sent.wrapping_add(1);
        self.unheard += 1;
        self.outgoing.push_back((slot, peer, FRAME_BYTES + length));
        Ok(())
    }

    /// Sends what is in the queue, as far as the library has room.
    pub(super) fn flush(&mut self) -> Result<()> {
        while let Some((mut slot, peer, bytes)) = self.outgoing.pop_front() {
            // SAFETY: the slot is used again only once the operation has completed.
            let sent = unsafe { self.library.send(&mut slot.memory, 0..bytes, peer, Label::Packet) }?;
            let Some(operation) = sent else {
                self.outgoing.push_front((slot, peer, bytes));
                break;
            };
            self.sending.push((slot, operation));
            self.count(peer, 0);
        }
        Ok(())
    }

    fn count(&mut self, peer: usize, direction: usize) {
        let count = &mut self.peers[peer].messages[direction];
        *count = count.wrapping_add(1);
    }

    /// Does what can be done now.
    pub(crate) fn round(&mut self) -> Result<()> {
        self.library.progress()?;
        for index in (0..self.sending.len()).rev() {
            if self.library.is_complete(&mut self.sending[index].1)? {
                self.free.push(self.sending.swap_remove(index).0);
            }
        }
        self.give_room()?;
        while let Some(place) = self.packets.arrive(&mut self.library)? {
            // SAFETY: a packet has come to this place, which begins with its envelope.
            let envelope = unsafe { place.pointer().cast::<Envelope>().read() };
            envelope.check(self.peers.len())?;
            self.count(envelope.source as usize, 1);
        }
        self.hear()?;
        self.flush()?;
        let Self { bulks, library, peers, rank, .. } = self;
        bulks.progress(library, &mut |label, to| {
            let (peer, direction) = match (to, label) {
                (Some(peer), _) => (peer, 0),
                (None, Label::Bulk { source, .. }) => (source, 1),
                (None, _) => (*rank, 1),
            };
            let peer = &mut peers[peer];
            peer.messages[direction] = peer.messages[direction].wrapping_add(1);
            if direction == 1 {
                peer.bulks[1] = peer.bulks[1].wrapping_add(1);
            }
        })
    }

    /// Takes note of what peers have read.
    fn hear(&mut self) -> Result<()> {
        // Nobody says anything before that.
        if self.unheard < BATCH {
            return Ok(());
        }
        while let Some(place) = self.credits.arrive(&mut self.library)? {
            // SAFETY: a credit has come to this place.
            let Credit { envelope, read } = unsafe { place.pointer().cast::<Credit>().read() };
            envelope.check(self.peers.len())?;
            let source = envelope.source;
            self.credits.pass();
            let heard = std::mem::replace(&mut self.peers[source as usize].heard, read);
            self.unheard -= read.wrapping_sub(heard);
            self.count(source as usize, 1);
        }
        self.credits.post(&mut self.library)
    }

    /// Posts receives in place of what was read, and tells peers of it that may need the room.
    pub(super) fn give_room(&mut self) -> Result<()> {
        self.packets.post(&mut self.library)?;
        while !self.is_held
            && let Some(peer) = self.owed.pop()
        {
            let read = self.peers[peer].read;
            let mut slot = self.slot()?;
            let credit = Credit { envelope: self.envelope(0), read };
            // SAFETY: a slot is aligned, has room for it, and nobody else uses this one.
            unsafe { slot.place.pointer().cast::<Credit>().write(credit) };
            // SAFETY: the slot is used again only once the operation has completed.
            let sent = unsafe { self.library.send(&mut slot.memory, 0..CREDIT_BYTES, peer, Label::Credit) }?;
            match sent {
                None => {
                    self.free.push(slot);
                    self.owed.push(peer);
                    break;
                }
                Some(operation) => {
                    self.sending.push((slot, operation));
                    self.peers[peer].told = read;
                    self.count(peer, 0);
                }
            }
        }
        Ok(())
    }

    /// Whether peers are not to be told of room.
    pub(super) fn hold_back(&mut self, is_held: bool) {
        self.is_held = is_held;
    }

    /// Hands over what has come; whether there was anything.
    pub(super) fn read(&mut self, take: &mut dyn FnMut(Arrived<'_>)) -> bool {
        let mut has_read = false;
        while let Some(place) = self.packets.unread() {
            // SAFETY: a packet has come to this place, which begins with its frame.
            let Frame { envelope, header } = unsafe { place.pointer().cast::<Frame>().read() };
            // SAFETY: a slot is longer than a frame.
            let payload = unsafe { place.pointer().add(FRAME_BYTES) };
            let (source, length) = (envelope.source as usize, envelope.length.into());
            if header.kind == GOODBYE {
                self.hear_goodbye(source, header);
            } else {
                take(Arrived { source, header, payload, length, lives: PhantomData });
            }
            self.packets.pass();
            let peer = &mut self.peers[source];
            peer.read = peer.read.wrapping_add(1);
            // Once: it is told of all that is read until then.
            if peer.read.wrapping_sub(peer.told) == BATCH {
                self.owed.push(source);
            }
            has_read = true;
        }
        has_read
    }

    /// Notes a bulk transfer, and begins it if this thread may call the library.
    pub(super) fn begin_bulk(
        &mut self,
        label: Label,
        to: Option<usize>,
        place: &Place,
        bytes: usize,
        may_call: bool,
    ) -> Result<Bulk> {
        let place = place.advance(0, bytes, "a bulk transfer")?;
        let bulk = self.bulks.begin(&mut self.library, (label, to), &place, bytes)?;
        if let Some(peer) = to {
            let begun = &mut self.peers[peer].bulks[0];
            *begun = begun.wrapping_add(1);
        }
        if may_call {
            self.round()?;
        }
        Ok(bulk)
    }

    /// Whether a bulk transfer is done, which then is forgotten.
    pub(super) fn take_done(&mut self, bulk: Bulk) -> bool {
        self.bulks.take_done(bulk)
    }

    /// How many bulk transfers are not complete.
    pub(super) fn bulks_under_way(&self) -> usize {
        self.bulks.len()
    }

    /// Whether nothing is on its way to a peer.
    pub(super) fn is_quiet(&self) -> bool {
        self.outgoing.is_empty() && self.sending.is_empty() && self.bulks.is_quiet()
    }

    /// How many messages were sent to each rank, and how many have come from it, but for those with none.
    /// Where two ranks agree, nothing is on its way between them.
    pub(crate) fn messages(&self) -> [Vec<(usize, u32)>; 2] {
        [0, 1].map(|direction| {
            let all = self.peers.iter().map(|peer| peer.messages[direction]).enumerate();
            all.filter(|(_, count)| *count != 0).collect()
        })
    }

    /// Reads what nobody will.
    pub(crate) fn discard(&mut self) -> Result<()> {
        loop {
            self.round()?;
            if !self.read(&mut |_| ()) {
                return Ok(());
            }
        }
    }

    /// Ends all receives, and leaves the memory of what does not end to whoever may still be at it: a send
    /// cannot be called back, and after a failure nothing is.
    pub(crate) fn end(&mut self) {
        let Self { library, packets, credits, bulks, sending, .. } = self;
        let tries = if library.is_lost() {
            0
        } else {
            packets.cancel(library);
            credits.cancel(library);
            bulks.cancel(library);
            TRIES
        };
        for _ in 0..tries {
            // What cannot be asked has not ended.
            let _ = library.progress();
            sending.retain_mut(|(_, operation)| !library.is_complete(operation).unwrap_or(false));
            let ended = [packets.has_ended(library), credits.has_ended(library), bulks.has_ended(library)];
            if ended == [true; 3] && sending.is_empty() {
                return;
            }
            std::thread::yield_now();
        }
        packets.forget();
        credits.forget();
        bulks.forget();
        sending.drain(..).for_each(|(slot, _)| std::mem::forget(slot.place));
    }
}

impl<M: Messaging> Drop for State<M> {
    fn drop(&mut self) {
        self.end();
    }
}
