//! Two rings of packets that answer each other: a sender that turns round writes over nothing that was not read.

use crate::checker::{Flaw, holds, is_refuted};
use crate::payload::Payload;
use crate::ring::{Receiving, Sending, number_of};
use crate::word::WordCell;
use loom::thread;
use std::sync::Arc;

const CELLS: usize = 4;
/// No ring turns while the first of its cells are used.
const START: u32 = CELLS as u32;

struct Ring {
    cells: [Payload; CELLS],
    receipts: [Payload; CELLS],
    numbers: [WordCell; CELLS],
    done: WordCell,
}

impl Ring {
    fn new() -> Self {
        let number = |index: usize| WordCell::new(number_of(START + 1 + index as u32 - CELLS as u32));
        Self {
            cells: [(); CELLS].map(|()| Payload::new(0)),
            receipts: [(); CELLS].map(|()| Payload::new(0)),
            numbers: [0, 1, 2, 3].map(number),
            done: WordCell::new(START),
        }
    }
}

/// Packets after those that are answered.
const LEFT: usize = 5;

/// One rank: what goes out, and what comes in.
struct Rank {
    out: Sending<CELLS>,
    into: Receiving<CELLS>,
    sent: u32,
    read: u32,
    /// How much more than it has read it says it has.
    forged: u32,
}

impl Rank {
    fn new(forged: u32) -> Self {
        let area_bytes = 256;
        Self {
            out: Sending::new(area_bytes, START),
            into: Receiving::new(area_bytes, START),
            sent: 0,
            read: 0,
            forged,
        }
    }

    fn send(&mut self, ring: &Ring) {
        self.sent += 1;
        while self.out.room(0, &ring.done).is_none() {
            thread::yield_now();
        }
        let (cell, receipt) = (self.out.cell(), self.out.receipt());
        ring.cells[cell].write(self.sent);
        if let Some(read) = receipt {
            ring.receipts[cell].write(read + self.forged);
        }
        self.out.publish(0, receipt.is_some(), &ring.numbers[cell]);
    }

    fn receive(&mut self, ring: &Ring) {
        self.read += 1;
        let cell = self.into.cell();
        while !self.into.has_come(&ring.numbers[cell]) {
            thread::yield_now();
        }
        ring.cells[cell].read(self.read);
        let receipt = || ring.receipts[cell].get();
        self.into.release(0, &ring.numbers[cell], receipt, &ring.done, &mut self.out);
    }
}

/// Packets to and fro, of which some are on their way at once; the answering rank says it has read so many more than it has.
fn answer(forged: u32) {
    let rings = Arc::new([Ring::new(), Ring::new()]);
    let answering = {
        let rings = rings.clone();
        thread::spawn(move || {
            let mut rank = Rank::new(forged);
            rank.receive(&rings[0]);
            rank.send(&rings[1]);
            rank.receive(&rings[0]);
            rank.send(&rings[1]);
            for _ in 0..LEFT {
                rank.receive(&rings[0]);
            }
        })
    };
    let mut rank = Rank::new(0);
    let before = rank.out.cell();
    rank.send(&rings[0]);
    rank.receive(&rings[1]);
    // The first was read, so that the third goes where it was.
    rank.send(&rings[0]);
    assert!(forged > 0 || rank.out.cell() == before);
    rank.send(&rings[0]);
    rank.receive(&rings[1]);
    // The third may not have been read. Then cells are used again that the word for what is done frees.
    for _ in 3..2 + LEFT {
        rank.send(&rings[0]);
    }
    answering.join().unwrap();
}

#[test]
fn packets_that_answer_each_other_are_read_as_sent() {
    holds(2, || answer(0));
}

#[test]
fn a_receipt_for_what_was_not_read_is_refuted() {
    // The receiver may also find a number that it does not wait for, and wait for ever.
    is_refuted(Flaw::Payload, 2, || answer(1));
}
