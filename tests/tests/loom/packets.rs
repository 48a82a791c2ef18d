//! Rings of packets: what is read is what was sent, and nothing is written over before it was read.

use crate::WordCell;
use crate::checker::{Flaw, holds, is_refuted};
use crate::payload::Payload;
use crate::ring::{Receiving, Sending, number_of};
use crate::sync::{AtomicU32, Ordering};
use loom::thread;
use std::sync::Arc;

const CELLS: usize = 2;
const LINE_BYTES: usize = 64;
const LINES: usize = 4;

/// A ring: its cells with their words, the area, and the word in the sender's memory.
struct Ring<W> {
    numbers: [W; CELLS],
    cells: [Payload; CELLS],
    area: [Payload; LINES],
    done: W,
}

impl<W> Ring<W> {
    /// Ready for packets from number `start` on.
    fn at(start: u32, word: impl Fn(u32) -> W) -> Self {
        let before = |index: usize| {
            let ahead = (index as u32).wrapping_sub(start) % CELLS as u32;
            start.wrapping_add(ahead).wrapping_add(1).wrapping_sub(CELLS as u32)
        };
        Self {
            numbers: [0, 1].map(|index| word(before(index))),
            cells: [(); CELLS].map(|()| Payload::new(0)),
            area: [(); LINES].map(|()| Payload::new(0)),
            done: word(start),
        }
    }
}

/// The two sides of a ring.
trait Sides: 'static {
    type Word: Send + Sync;
    type Sender: Send;
    type Receiver;
    fn ring(start: u32) -> Ring<Self::Word>;
    fn sides(start: u32) -> (Self::Sender, Self::Receiver);
    /// Sends a packet, if there is room.
    fn try_send(sender: &mut Self::Sender, ring: &Ring<Self::Word>, packet: u32) -> bool;
    /// Reads that packet, if it is there.
    fn try_receive(receiver: &mut Self::Receiver, ring: &Ring<Self::Word>, packet: u32) -> bool;
}

/// The shipped counters, and what `mapped.rs` does with them.
struct Shipped;

/// Bytes of a packet in the area: one or two lines, so that some do not fit before its end, and then two packets
/// have no room in it at once.
fn beside(packet: u32) -> u32 {
    LINE_BYTES as u32 * if packet.is_multiple_of(3) { 1 } else { 2 }
}

impl Sides for Shipped {
    type Word = WordCell;
    type Sender = Sending<CELLS>;
    /// With what would go back: nothing does.
    type Receiver = (Receiving<CELLS>, Sending<CELLS>);

    fn ring(start: u32) -> Ring<WordCell> {
        Ring::at(start, |packet| WordCell::new(number_of(packet)))
    }

    fn sides(start: u32) -> (Self::Sender, Self::Receiver) {
        let area_bytes = (LINES * LINE_BYTES) as u32;
        let sending = || Sending::new(area_bytes, start);
        (sending(), (Receiving::new(area_bytes, start), sending()))
    }

    fn try_send(sender: &mut Self::Sender, ring: &Ring<WordCell>, packet: u32) -> bool {
        let bytes = beside(packet);
        sender.look_ahead(&ring.done);
        let Some(position) = sender.room(bytes, &ring.done) else { return false };
        let cell = sender.cell();
        ring.cells[cell].write(packet);
        for line in 0..bytes as usize / LINE_BYTES {
            ring.area[position / LINE_BYTES + line].write(packet);
        }
        assert_eq!(sender.receipt(), None, "nothing has come from the other side");
        sender.publish(bytes, false, &ring.numbers[cell]);
        true
    }

    fn try_receive((receiver, back): &mut Self::Receiver, ring: &Ring<WordCell>, packet: u32) -> bool {
        let cell = receiver.cell();
        if !receiver.has_come(&ring.numbers[cell]) {
            receiver.tell_ahead(&ring.done);
            return false;
        }
        ring.cells[cell].read(packet);
        let bytes = beside(packet);
        for line in 0..bytes as usize / LINE_BYTES {
            ring.area[receiver.position(bytes) / LINE_BYTES + line].read(packet);
        }
        let receipt = || unreachable!("no packet has one");
        receiver.release(bytes, &ring.numbers[cell], receipt, &ring.done, back);
        true
    }
}

/// None: the same rules as the shipped ones, to show that it is the fault that is refuted.
const NO_FAULT: u8 = 0;
/// The packet is not ordered before its number.
const RELAXED_PUBLISH: u8 = 1;
/// The number is not ordered before the packet.
const RELAXED_LOOK: u8 = 2;
/// The receiver says that it is done before it has read.
const RELEASED_EARLY: u8 = 3;
/// The reads are not ordered before the word that says so.
const RELAXED_RELEASE: u8 = 4;
/// The sender does not ask for room.
const NO_ROOM_ASKED: u8 = 5;

/// The rules of a ring without an area, of which a fault leaves one out.
struct Faulty<const FAULT: u8>;

impl<const FAULT: u8> Sides for Faulty<FAULT> {
    type Word = AtomicU32;
    type Sender = u32;
    type Receiver = u32;

    fn ring(start: u32) -> Ring<AtomicU32> {
        Ring::at(start, AtomicU32::new)
    }

    fn sides(start: u32) -> (u32, u32) {
        (start, start)
    }

    fn try_send(sent: &mut u32, ring: &Ring<AtomicU32>, packet: u32) -> bool {
        let done = ring.done.load(Ordering::Acquire);
        if FAULT != NO_ROOM_ASKED && sent.wrapping_sub(done) == CELLS as u32 {
            return false;
        }
        let cell = *sent as usize % CELLS;
        ring.cells[cell].write(packet);
        *sent = sent.wrapping_add(1);
        let order = if FAULT == RELAXED_PUBLISH { Ordering::Relaxed } else { Ordering::Release };
        ring.numbers[cell].store(*sent, order);
        true
    }

    fn try_receive(read: &mut u32, ring: &Ring<AtomicU32>, packet: u32) -> bool {
        let cell = *read as usize % CELLS;
        let order = if FAULT == RELAXED_LOOK { Ordering::Relaxed } else { Ordering::Acquire };
        if ring.numbers[cell].load(order) != read.wrapping_add(1) {
            return false;
        }
        *read = read.wrapping_add(1);
        if FAULT == RELEASED_EARLY {
            ring.done.store(*read, Ordering::Release);
        }
        ring.cells[cell].read(packet);
        let order = if FAULT == RELAXED_RELEASE { Ordering::Relaxed } else { Ordering::Release };
        ring.done.store(*read, order);
        true
    }
}

/// Sends packets through a ring whose counters begin at `start`.
fn send_all<S: Sides>(start: u32, packets: u32) {
    let ring = Arc::new(S::ring(start));
    let (mut sender, mut receiver) = S::sides(start);
    let sending = {
        let ring = ring.clone();
        thread::spawn(move || {
            for packet in 1..=packets {
                while !S::try_send(&mut sender, &ring, packet) {
                    thread::yield_now();
                }
            }
        })
    };
    for packet in 1..=packets {
        while !S::try_receive(&mut receiver, &ring, packet) {
            thread::yield_now();
        }
    }
    sending.join().unwrap();
}

#[test]
fn packets_go_through_a_ring_that_is_smaller() {
    holds(2, || send_all::<Shipped>(0, 6));
}

#[test]
fn packets_are_counted_across_the_wrap() {
    holds(2, || send_all::<Shipped>(u32::MAX - 1, 4));
}

#[test]
fn the_rules_without_a_fault_hold() {
    holds(2, || send_all::<Faulty<NO_FAULT>>(0, 4));
}

#[test]
fn a_number_that_does_not_order_its_packet_is_refuted() {
    is_refuted(Flaw::Payload, 2, || send_all::<Faulty<RELAXED_PUBLISH>>(0, 1));
}

#[test]
fn a_look_that_does_not_order_the_packet_is_refuted() {
    is_refuted(Flaw::Payload, 2, || send_all::<Faulty<RELAXED_LOOK>>(0, 1));
}

#[test]
fn a_cell_that_is_released_before_it_is_read_is_refuted() {
    is_refuted(Flaw::Payload, 2, || send_all::<Faulty<RELEASED_EARLY>>(0, 3));
}

#[test]
fn a_release_that_does_not_order_the_reads_is_refuted() {
    is_refuted(Flaw::Race, 2, || send_all::<Faulty<RELAXED_RELEASE>>(0, 3));
}

#[test]
fn a_sender_that_does_not_ask_for_room_is_refuted() {
    // The receiver may also find a number that it does not wait for, and wait for ever.
    is_refuted(Flaw::Payload, 2, || send_all::<Faulty<NO_ROOM_ASKED>>(0, 3));
}
