//! The counters of a ring with one sender and one receiver.
//!
//! A ring has cells of one cache line in the receiver's memory. A cell holds the number of its packet, counted
//! from 1, which the sender stores last: who sees the number sees the packet. Payloads that do not fit into a
//! cell lie in an area beside the cells, so that no byte of a payload can be taken for a number. They are
//! contiguous, and follow each other in the order of the packets; both sides compute where from their lengths.
//!
//! The receiver says how many packets it is done with, not for each, in a word of the sender's memory. That makes room.
//!
//! It also says how many it has read in its own packets to the sender, unless their payload takes the place. A sender that
//! knows by this, as it sends a packet, that nothing else is in the ring turns round: the packet behind this one goes to the
//! cell that the one before it was in. Two ranks that answer each other use two cells, which are still in their nearest
//! caches, and those that send many at once use all. The number of a packet says which way the next one goes.
//!
//! This file is what the model checker checks: it has all that orders the two sides, and no memory of its own.

use super::{WordCell, has_reached, store_fence};

/// The unit of the area: payloads begin on a cache line.
const LINE_BYTES: u32 = 64;

/// Where a payload lies in the area, as a number of bytes since the ring began, and where it ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Span {
    start: u32,
    end: u32,
}

/// The span of the next payload, after those that end at `head`. It does not go over the end of the area.
/// The area is a power of two, so that the numbers may wrap.
#[inline(always)]
fn next_span(head: u32, bytes: u32, area_bytes: u32) -> Span {
    let rounded = bytes.next_multiple_of(LINE_BYTES);
    let to_the_end = area_bytes - (head & (area_bytes - 1));
    let start = if rounded <= to_the_end { head } else { head.wrapping_add(to_the_end) };
    Span { start, end: start.wrapping_add(rounded) }
}

/// Has the sender reach memory of the receiver's by itself, unless the receiver has let go of the ring, as it says in
/// `left`. Either this side sees that, or the receiver, which looks behind it, sees in `reaching` that it has to wait.
#[inline]
pub(crate) fn reach<R>(left: &WordCell, reaching: &WordCell, access: impl FnOnce() -> R) -> Option<R> {
    reaching.store(1);
    store_fence();
    let result = (left.load() == 0).then(access);
    reaching.store(0);
    result
}

/// Whether the sender reaches for nothing any more, once the receiver has let go with a fence behind.
pub(crate) fn is_out_of_reach(reaching: &WordCell) -> bool {
    reaching.load() == 0
}

/// Bits of a number that are below the count of packets.
const SAID_BITS: u32 = 2;
/// The next packet is in the cell before that of this one, and not behind it.
const BACKWARDS: u32 = 1;
/// The packet has a receipt with it: how many packets of the ring that goes the other way its sender has read.
const RECEIPT: u32 = 2;
/// After so many packets the sender goes round all cells, so that no number there grows so old that it seems new.
const ROUND: u32 = 1 << 16;

/// The number of a packet before anything is said with it: what the cells hold before they are used.
#[inline(always)]
pub(crate) fn number_of(packet: u32) -> u32 {
    packet << SAID_BITS
}

/// The sender's counters.
#[derive(Debug)]
pub(crate) struct Sending<const CELLS: usize> {
    area_bytes: u32,
    sent: u32,
    cells: Walk<CELLS>,
    /// Whether the receiver has read all that was sent: a receipt has said so since.
    is_empty: bool,
    /// Packets of the ring that goes the other way that this side has read, and of which receipts have gone.
    read_back: u32,
    told_back: u32,
    /// Packets that the receiver was done with when this side looked last.
    freed: u32,
    head: u32,
    /// Up to where the area is free again.
    tail: u32,
    /// What `head` was after each packet, by its number.
    heads: [u32; CELLS],
}

impl<const CELLS: usize> Sending<CELLS> {
    /// The counters before the first packet, of which `start` have been sent already.
    pub(crate) fn new(area_bytes: u32, start: u32) -> Self {
        assert!(CELLS.is_power_of_two() && area_bytes.is_power_of_two() && area_bytes >= 4 * LINE_BYTES);
        let [sent, read_back, told_back, freed] = [start; 4];
        let (cells, heads) = (Walk::new(start), [0; CELLS]);
        Self { area_bytes, sent, cells, is_empty: true, read_back, told_back, freed, head: 0, tail: 0, heads }
    }

    /// The longest payload for which there is always room once the receiver has read everything. It need not
    /// have said so of a quarter of the area, and up to another quarter is left out before the end.
    #[inline(always)]
    pub(crate) fn largest(&self) -> usize {
        self.area_bytes as usize / 4
    }

    /// The cell of the next packet.
    #[inline(always)]
    pub(crate) fn cell(&self) -> usize {
        self.cells.cell as usize
    }

    /// Packets sent, modulo 2³².
    #[inline(always)]
    pub(crate) fn sent(&self) -> u32 {
        self.sent
    }

    /// Whether the receiver has said that it is done with the first `sent` packets.
    pub(crate) fn is_done(&mut self, sent: u32, done: &WordCell) -> bool {
        if !has_reached(self.freed, sent) {
            self.look(done);
        }
        has_reached(self.freed, sent)
    }

    /// How many packets the receiver has not said to be done with.
    pub(crate) fn unread(&mut self, done: &WordCell) -> u32 {
        self.is_done(self.sent, done);
        self.sent.wrapping_sub(self.freed)
    }

    /// Whether there is a cell for the next packet, and `bytes` of the area: then the byte of the area where
    /// they go. The receiver is done with that memory.
    #[inline(always)]
    pub(crate) fn room(&mut self, bytes: u32, done: &WordCell) -> Option<usize> {
        if self.has_room(bytes) {
            return Some(self.position(bytes));
        }
        self.look(done);
        self.has_room(bytes).then(|| self.position(bytes))
    }

    #[inline(always)]
    fn has_room(&self, bytes: u32) -> bool {
        let has_cell = self.sent.wrapping_sub(self.freed) < CELLS as u32;
        let end = next_span(self.head, bytes, self.area_bytes).end;
        has_cell && (bytes == 0 || end.wrapping_sub(self.tail) <= self.area_bytes)
    }

    #[inline(always)]
    fn position(&self, bytes: u32) -> usize {
        (next_span(self.head, bytes, self.area_bytes).start & (self.area_bytes - 1)) as usize
    }

    /// Reads what the receiver is done with.
    #[cold]
    fn look(&mut self, done: &WordCell) {
        let freed = done.load();
        if freed != self.freed {
            self.freed = freed;
            self.tail = self.heads[freed.wrapping_sub(1) as usize % CELLS];
        }
    }

    /// Reads what the receiver is done with while there is nothing to send, where the next packets may need it.
    #[inline(always)]
    pub(crate) fn look_ahead(&mut self, done: &WordCell) {
        if self.sent.wrapping_sub(self.freed) >= CELLS as u32 / 2 {
            self.look(done);
        }
    }

    /// The receipt that the next packet may have with it, if there is anything new to say.
    #[inline(always)]
    pub(crate) fn receipt(&self) -> Option<u32> {
        (self.read_back != self.told_back).then_some(self.read_back)
    }

    /// Says that the next packet is there, `bytes` of it in the area, and whether [`Sending::receipt`] is with it. There was
    /// [`Sending::room`] for it.
    #[inline(always)]
    pub(crate) fn publish(&mut self, bytes: u32, has_receipt: bool, cell: &WordCell) {
        if bytes > 0 {
            self.head = next_span(self.head, bytes, self.area_bytes).end;
        }
        // All cells but this one are free then, on either side of it.
        if self.is_empty && self.sent % ROUND >= CELLS as u32 {
            self.cells.turn();
        }
        self.is_empty = false;
        let index = self.sent as usize % CELLS;
        self.sent = self.sent.wrapping_add(1);
        let said = self.cells.way() | if has_receipt { RECEIPT } else { 0 };
        // The receiver waits for this, and not for the rest.
        cell.store(number_of(self.sent) | said);
        self.heads[index] = self.head;
        self.cells.go_on();
        if has_receipt {
            self.told_back = self.read_back;
        }
    }
}

/// The receiver's counters.
#[derive(Debug)]
pub(crate) struct Receiving<const CELLS: usize> {
    area_bytes: u32,
    read: u32,
    cells: Walk<CELLS>,
    tail: u32,
    /// What the sender knows of the two.
    told: u32,
    told_tail: u32,
}

impl<const CELLS: usize> Receiving<CELLS> {
    /// As [`Sending::new`].
    pub(crate) fn new(area_bytes: u32, start: u32) -> Self {
        Self { area_bytes, read: start, cells: Walk::new(start), tail: 0, told: start, told_tail: 0 }
    }

    /// The cell of the next packet.
    #[inline(always)]
    pub(crate) fn cell(&self) -> usize {
        self.cells.cell as usize
    }

    /// The value that the next packet's cell comes to.
    #[inline(always)]
    pub(crate) fn awaited(&self) -> u32 {
        number_of(self.read.wrapping_add(1))
    }

    /// Whether the next packet is there.
    #[inline(always)]
    pub(crate) fn has_come(&self, cell: &WordCell) -> bool {
        cell.reached(self.awaited())
    }

    /// The byte of the area where the next packet's payload begins, if `bytes` of it are there.
    #[inline(always)]
    pub(crate) fn position(&self, bytes: u32) -> usize {
        (next_span(self.tail, bytes, self.area_bytes).start & (self.area_bytes - 1)) as usize
    }

    /// Tells the sender what this side is done with, exactly.
    #[inline(always)]
    pub(crate) fn tell(&mut self, done: &WordCell) {
        (self.told, self.told_tail) = (self.read, self.tail);
        done.store(self.read);
    }

    /// Tells the sender while there is nothing to read: between a packet and its answer, the answer would wait behind
    /// it in the core's store buffer.
    #[inline(always)]
    pub(crate) fn tell_ahead(&mut self, done: &WordCell) {
        if self.read.wrapping_sub(self.told) >= CELLS.div_ceil(4) as u32 {
            self.tell(done);
        }
    }

    /// Goes on to the next packet: the sender may write over this one, `bytes` of which were in the area, and whose number is
    /// in `cell`. Takes the receipt of what went `back`, if there is one. Tells the sender when what it knows nothing of has
    /// become much.
    #[inline(always)]
    pub(crate) fn release(
        &mut self,
        bytes: u32,
        cell: &WordCell,
        receipt: impl FnOnce() -> u32,
        done: &WordCell,
        back: &mut Sending<CELLS>,
    ) {
        let number = cell.load();
        if number & RECEIPT != 0 {
            // At once: a number that is kept would be reached again.
            back.is_empty = receipt() == back.sent;
        }
        if number & BACKWARDS != self.cells.way() {
            self.cells.turn();
        }
        self.cells.go_on();
        self.read = self.read.wrapping_add(1);
        back.read_back = self.read;
        let mut many = self.read.wrapping_sub(self.told) >= CELLS as u32 / 2;
        if bytes > 0 {
            self.tail = next_span(self.tail, bytes, self.area_bytes).end;
            many |= self.tail.wrapping_sub(self.told_tail) >= self.area_bytes / 4;
        }
        if many {
            self.tell(done);
        }
    }
}

/// Which cells packets are in, one after the other.
#[derive(Debug)]
struct Walk<const CELLS: usize> {
    /// That of the next packet.
    cell: u32,
    /// From there to that of the packet behind it.
    step: u32,
}

impl<const CELLS: usize> Walk<CELLS> {
    fn new(start: u32) -> Self {
        Self { cell: start & (CELLS as u32 - 1), step: 1 }
    }

    #[inline(always)]
    fn go_on(&mut self) {
        self.cell = self.cell.wrapping_add(self.step) & (CELLS as u32 - 1);
    }

    /// [`BACKWARDS`] or nothing.
    #[inline(always)]
    fn way(&self) -> u32 {
        self.step >> 31
    }

    /// Goes on the other way. A branch to elsewhere, and no number that the next cell is computed from: so a core asks for
    /// the lines of many packets at once, before it has seen what they say.
    #[cold]
    fn turn(&mut self) {
        self.step = self.step.wrapping_neg();
    }
}
