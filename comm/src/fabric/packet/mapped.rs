//! Rings in mapped memory: one for each ordered pair of ranks, in the receiver's memory.
//!
//! A rank has one region with a block for each peer whose memory is mapped, itself included. The block holds
//! the ring that the peer writes, and a line in which the peer says what it has read of the ring that goes
//! the other way.

use super::cell::{BEFORE_RECEIPT_BYTES, CELLS, CELLS_BYTES, Cells, Head, INLINE_BYTES, InRing, Opening};
use super::ring::{Receiving, Sending, number_of, reach};
use super::{Arrived, Header, Payload};
use crate::error::Result;
use crate::fabric::memory::{copy_short, expect_to_write};
use crate::fabric::{Futex, Recording, Region, Role, Word, store_fence};
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::Duration;

/// The lines behind the area, with what the peer says of the ring that goes the other way: how many packets it is done
/// with, and [`LEFT`] once it has let go of its end, which is looked at for each packet and therefore not beside the former.
/// Beside that is what this rank says to the peer: 1 while it reaches the peer's memory by itself.
const ANSWERS_BYTES: usize = 128;
const LEFT_OFFSET: usize = 64;
/// What is said there: a rank that panics says no more than that nobody is to reach its memory, as its failure is told.
const LEFT: u32 = 1;
const OUT_OF_REACH: u32 = 2;
const REACHING_OFFSET: usize = 72;

/// The size of the payload area of a ring in a world of that many ranks: less where there are many rings.
pub(super) fn area_bytes(ranks: usize) -> u32 {
    match ranks {
        0..=8 => 1 << 16,
        9..=16 => 1 << 15,
        17..=32 => 1 << 14,
        33..=64 => 1 << 13,
        _ => 1 << 12,
    }
}

/// The size of a peer's block.
pub(super) fn block_bytes(area_bytes: u32) -> usize {
    CELLS_BYTES + area_bytes as usize + ANSWERS_BYTES
}

/// A block of a region.
#[derive(Debug, Clone)]
pub(super) struct Block {
    region: Region,
    start: usize,
    area_bytes: u32,
}

impl Block {
    /// The `index`-th one.
    pub(super) fn new(region: &Region, index: usize, area_bytes: u32) -> Result<Self> {
        let start = index * block_bytes(area_bytes);
        region.place(start, block_bytes(area_bytes), "a ring of packets")?;
        Ok(Self { region: region.clone(), start, area_bytes })
    }

    fn cells(&self) -> Cells {
        let base = NonNull::new(self.region.base()).expect("regions are never null");
        // SAFETY: the block lies in the region by `new`.
        let first = unsafe { base.add(self.start) };
        // SAFETY: a block begins with its cells; whoever uses them holds its region.
        unsafe { Cells::new(first) }
    }

    fn area(&self) -> NonNull<u8> {
        self.cells().end()
    }

    /// What rank `from` says to rank `to` in this block.
    fn answers(&self, from: usize, to: usize) -> Result<Answers> {
        let start = self.start + CELLS_BYTES + self.area_bytes as usize;
        let word = |offset| self.region.word(start + offset, Role::Credit, from, to);
        let reaching = self.region.word(start + REACHING_OFFSET, Role::Credit, to, from)?;
        Ok(Answers { done: word(0)?, left: word(LEFT_OFFSET)?, reaching })
    }

    /// Prepares the block of a peer for packets from number `start` on. Before the peer knows the region.
    pub(super) fn prepare(&self, peer: usize, start: u32) -> Result<()> {
        for number in (0..CELLS as u32).map(|ahead| start.wrapping_add(ahead)) {
            let cell = self.cells().at(number as usize % CELLS);
            cell.number().store(number_of(number.wrapping_add(1).wrapping_sub(CELLS as u32)));
        }
        let done = self.answers(peer, self.region.owner())?.done;
        done.cell().store(start);
        Ok(())
    }
}

#[derive(Debug)]
struct Answers {
    done: Word,
    left: Word,
    /// The sender's.
    reaching: Word,
}

/// The sender's end of a ring.
#[derive(Debug)]
pub(crate) struct Outgoing {
    cells: Cells,
    area: NonNull<u8>,
    sending: Sending<CELLS>,
    /// Whether the receiver's waits may sleep until they are woken.
    peer_sleeps: bool,
    is_observed: bool,
    ring: Region,
    /// The receiver's, in this rank's memory.
    answers: Answers,
}

/// The receiver's end of a ring. What is looked at for every packet lies on one line.
#[repr(C, align(64))]
#[derive(Debug)]
pub(crate) struct Incoming {
    cells: Cells,
    receiving: Receiving<CELLS>,
    source: u32,
    area: NonNull<u8>,
    /// In the sender's memory.
    answers: Answers,
    _ring: Region,
}

// SAFETY: the pointers are to the memory of regions that the ends hold, and any thread may address it.
unsafe impl Send for Outgoing {}
// SAFETY: as above.
unsafe impl Send for Incoming {}

impl Outgoing {
    /// The end of a ring that lies in the receiver's block, and of which the receiver speaks in `own`.
    pub(super) fn new(ring: &Block, own: &Block, peer_sleeps: bool, start: u32) -> Result<Self> {
        let sending = Sending::new(ring.area_bytes, start);
        let answers = own.answers(ring.region.owner(), own.region.owner())?;
        let (cells, area) = (ring.cells(), ring.area());
        let (ring, is_observed) = (ring.region.clone(), ring.region.observer().is_some());
        Ok(Self { cells, area, sending, peer_sleeps, is_observed, ring, answers })
    }

    pub(super) fn largest(&self) -> usize {
        self.sending.largest()
    }

    pub(super) fn observer(&self) -> Option<&Arc<Recording>> {
        if self.is_observed { self.ring.observer() } else { None }
    }

    /// How many packets have been sent, modulo 2³².
    #[inline(always)]
    pub(crate) fn sent(&self) -> u32 {
        self.sending.sent()
    }

    pub(super) fn peer_has_read(&mut self, sent: u32) -> bool {
        self.sending.is_done(sent, self.answers.done.cell())
    }

    /// How many packets the peer has not said to have read: exact once it has left.
    pub(super) fn unread(&mut self) -> u32 {
        self.sending.unread(self.answers.done.cell())
    }

    /// The cell of the next packet.
    #[cfg(test)]
    pub(super) fn cell(&self) -> usize {
        self.sending.cell()
    }

    /// Whether somebody is to be told of what is sent, or the peer has let go of its end.
    #[inline(always)]
    pub(crate) fn is_watched(&self) -> bool {
        self.is_observed || self.peer_has_left()
    }

    /// Asks for the line of the next packet, which the receiver looks at meanwhile.
    #[inline(always)]
    pub(crate) fn expect_to_send(&self) {
        expect_to_write(self.cells.at(self.sending.cell()).line());
    }

    /// What can be done ahead of the next packets while there is nothing to do.
    #[inline(always)]
    pub(crate) fn look_ahead(&mut self) {
        self.sending.look_ahead(self.answers.done.cell());
    }

    /// Whether the peer has let go of its end.
    #[inline(always)]
    pub(super) fn peer_has_left(&self) -> bool {
        self.answers.left.cell().load() == LEFT
    }

    /// As [`super::Packets::reach`].
    pub(super) fn reach<R>(&self, access: impl FnOnce() -> R) -> Option<R> {
        reach(self.answers.left.cell(), self.answers.reaching.cell(), access)
    }

    /// As [`super::Packets::try_send`]. Inlined, so that the header goes through registers: written in parts and
    /// read as a whole, it would wait in the core's store buffer.
    #[inline(always)]
    pub(crate) fn try_send(&mut self, header: Header, payload: Payload<'_>) -> bool {
        let (source, length) = match payload {
            Payload::None => (std::ptr::null(), 0),
            Payload::Bytes(bytes) => (bytes.as_ptr(), bytes.len()),
            Payload::Place(place, bytes) => {
                assert!(place.offset() + bytes <= place.region().bytes(), "a payload lies in its region");
                (place.pointer().cast_const(), bytes)
            }
        };
        assert!((header.kind | header.flags) < 256, "kinds and flags of packets are below 256");
        let beside = if length <= INLINE_BYTES { 0 } else { length as u32 };
        assert!(beside as usize <= self.largest(), "{length} bytes are too long for a packet");
        let Some(position) = self.sending.room(beside, self.answers.done.cell()) else { return false };
        let cell = self.cells.at(self.sending.cell());
        if beside == 0 {
            // SAFETY: the payload fits the cell, which the receiver is done with; callers give `length`
            // readable bytes, which are not of this ring.
            unsafe { copy_short(source, cell.inline(), length) };
        } else {
            // SAFETY: a payload's span lies in the area.
            let beside = unsafe { self.area.add(position) };
            // SAFETY: the receiver is done with the span; otherwise as above.
            unsafe { std::ptr::copy_nonoverlapping(source, beside.as_ptr(), length) };
        }
        // SAFETY: the receiver is done with the cell, and looks at it again once its number has come.
        unsafe { cell.set_head(Head::new(header, length)) };
        let has_place = beside > 0 || length <= BEFORE_RECEIPT_BYTES;
        let receipt = self.sending.receipt().filter(|_| has_place);
        if let Some(receipt) = receipt {
            // SAFETY: as above; the payload is elsewhere or ends before it.
            unsafe { cell.set_receipt(receipt) };
        }
        let number = cell.number();
        self.sending.publish(beside, receipt.is_some(), number);
        if self.peer_sleeps {
            store_fence();
            number.wake_sleepers(&Futex::WAKER);
        }
        true
    }
}

impl Incoming {
    /// The end of a ring that lies in `own`, the block of the peer that sends, which has a block for answers.
    pub(super) fn new(own: &Block, peers: &Block, start: u32) -> Result<Self> {
        let receiving = Receiving::new(own.area_bytes, start);
        let (cells, area, source) = (own.cells(), own.area(), peers.region.owner() as u32);
        let answers = peers.answers(own.region.owner(), peers.region.owner())?;
        Ok(Self { cells, receiving, source, area, answers, _ring: own.region.clone() })
    }

    #[inline(always)]
    fn cell(&self) -> InRing {
        self.cells.at(self.receiving.cell())
    }

    pub(super) fn source(&self) -> usize {
        self.source as usize
    }

    /// What the sender says while it reaches this rank's memory by itself.
    pub(super) fn reaching(&self) -> &Word {
        &self.answers.reaching
    }

    /// Looks for the next packet so often, after what can be done ahead of it and of the next one that goes `back`; whether it
    /// has come. Not inlined: what lies between an arrival and its answer is then a return, and no loop that is woven into it.
    #[inline(never)]
    fn search(&mut self, looks: u32, back: &mut Outgoing) -> bool {
        self.tell_ahead();
        back.look_ahead();
        let cell = self.cell();
        (0..looks).any(|_| {
            // Looks take the line from the sender, which has asked for it and is about to write it: one for each pause
            // takes less time than more, or fewer, do.
            std::hint::spin_loop();
            self.receiving.has_come(cell.number())
        })
    }

    /// The next packet, if it is there; until it is released.
    #[inline(always)]
    pub(crate) fn peek(&self) -> Option<Arrived<'_>> {
        let cell = self.cell();
        if !self.receiving.has_come(cell.number()) {
            return None;
        }
        // SAFETY: its packet has come.
        let head = unsafe { cell.head() };
        let length = head.length();
        let payload = if length <= INLINE_BYTES {
            cell.inline().cast_const()
        } else {
            // SAFETY: a payload's span lies in the area.
            let beside = unsafe { self.area.add(self.receiving.position(length as u32)) };
            beside.as_ptr().cast_const()
        };
        Some(Arrived { source: self.source(), header: head.header(), payload, length, lives: PhantomData })
    }

    /// The next packet, if it is there now or within so many looks, begins so, and has its payload in its cell. Any other
    /// stays for [`Incoming::peek`]. Who sends it is mostly answered: the line of the next packet that goes `back` is asked
    /// for, and not sooner than there is little left to do before it is written, as this end's looks take it away again.
    #[inline(always)]
    pub(crate) fn await_short(
        &mut self,
        opening: Opening,
        looks: impl FnOnce() -> u32,
        back: &mut Outgoing,
    ) -> Option<Arrived<'_>> {
        let cell = self.cell();
        if !self.receiving.has_come(cell.number()) && !self.search(looks(), back) {
            return None;
        }
        back.expect_to_send();
        // SAFETY: its packet has come.
        let head = unsafe { cell.head() };
        if head.opening() != opening {
            return None;
        }
        let length = head.length();
        if length > INLINE_BYTES {
            return None;
        }
        let payload = cell.inline().cast_const();
        Some(Arrived { source: self.source(), header: head.header(), payload, length, lives: PhantomData })
    }

    /// Goes on to the next packet, from one whose payload was that long: it counts for the next receipt that goes `back`, and a
    /// receipt that has come with it is taken.
    #[inline(always)]
    pub(crate) fn release(&mut self, length: usize, back: &mut Outgoing) {
        let beside = if length <= INLINE_BYTES { 0 } else { length as u32 };
        let cell = self.cell();
        // SAFETY: the packet has come, and this is called only if its number says that it has a receipt.
        let receipt = || unsafe { cell.receipt() };
        self.receiving.release(beside, cell.number(), receipt, self.answers.done.cell(), &mut back.sending);
    }

    /// The same, from one that [`Incoming::await_short`] has given.
    #[inline(always)]
    pub(crate) fn release_short(&mut self, back: &mut Outgoing) {
        self.release(0, back);
    }

    /// What can be done ahead of the next packets while there is none.
    #[inline(always)]
    pub(crate) fn tell_ahead(&mut self) {
        self.receiving.tell_ahead(self.answers.done.cell());
    }

    /// Hands over the next packet, if it is there. Who sends it is mostly answered by what goes `back`.
    #[inline(always)]
    pub(super) fn take(
        &mut self,
        take: &mut (impl FnMut(Arrived<'_>) + ?Sized),
        back: &mut Outgoing,
    ) -> bool {
        let Some(packet) = self.peek() else {
            self.tell_ahead();
            return false;
        };
        back.expect_to_send();
        let length = packet.length;
        take(packet);
        self.release(length, back);
        true
    }

    /// Sleeps until the next packet may be there.
    pub(super) fn sleep(&self, nap: Duration) {
        self.cell().number().sleep_unless_reached(self.receiving.awaited(), &Futex { nap });
    }
}

impl Drop for Incoming {
    fn drop(&mut self) {
        // Whether what was sent has been read is exact from now on.
        self.receiving.tell(self.answers.done.cell());
        let left = if std::thread::panicking() { OUT_OF_REACH } else { LEFT };
        // With the fence that `ring::is_out_of_reach` relies on.
        self.answers.left.set(left);
    }
}
