//! Writers that let go of a word: what they have left on their streams still comes, and nothing else is waited for.

use crate::checker::{DENIED, Flaw, holds, is_refuted};
use crate::sync::{AtomicU32, Ordering};
use crate::word::{Parting, WordCell, has_reached};
use loom::thread;
use std::sync::Arc;

/// What a writer leaves behind a word.
trait Goodbye: Send + Sync + 'static {
    fn none() -> Self;
    fn leave(&self, last: u32);
    fn denies(&self, cell: &WordCell, wanted: u32) -> bool;
}

impl Goodbye for Parting {
    fn none() -> Self {
        Parting::none()
    }

    fn leave(&self, last: u32) {
        self.leave(last);
    }

    fn denies(&self, cell: &WordCell, wanted: u32) -> bool {
        self.denies(cell, wanted)
    }
}

/// The rules of `word.rs`, of which a fault leaves one out.
struct Faulty<const FAULT: u8> {
    last: AtomicU32,
    has_left: AtomicU32,
}

/// None: the same as the shipped one, to show that it is the fault that is refuted.
const NO_FAULT: u8 = 0;
/// The writer says that it has let go before it says how far it has come.
const HASTY: u8 = 1;
/// What the writer has done is not ordered before what it says.
const RELAXED: u8 = 2;
/// Whoever waits does not look at the word again.
const NO_LAST_LOOK: u8 = 3;

impl<const FAULT: u8> Goodbye for Faulty<FAULT> {
    fn none() -> Self {
        Self { last: AtomicU32::new(0), has_left: AtomicU32::new(0) }
    }

    fn leave(&self, last: u32) {
        if FAULT != HASTY {
            self.last.store(last, Ordering::Relaxed);
        }
        self.has_left.store(1, if FAULT == RELAXED { Ordering::Relaxed } else { Ordering::Release });
        if FAULT == HASTY {
            self.last.store(last, Ordering::Relaxed);
        }
    }

    fn denies(&self, cell: &WordCell, wanted: u32) -> bool {
        self.has_left.load(Ordering::Acquire) != 0
            && !has_reached(self.last.load(Ordering::Relaxed), wanted)
            && (FAULT == NO_LAST_LOOK || !cell.reached(wanted))
    }
}

/// The writer has carried out one epoch itself, counts it or not, and leaves `on_stream` more to a stream.
fn leaves<G: Goodbye>(first_counts: bool, on_stream: u32) {
    let shared = Arc::new((WordCell::new(0), G::none()));
    let last = u32::from(first_counts) + on_stream;
    let writer = {
        let shared = shared.clone();
        thread::spawn(move || {
            let (cell, parting) = &*shared;
            cell.store(1);
            let stream = (on_stream > 0).then(|| {
                let shared = shared.clone();
                thread::spawn(move || shared.0.store(1 + on_stream))
            });
            parting.leave(last);
            stream.into_iter().for_each(|stream| stream.join().unwrap());
        })
    };
    let (cell, parting) = &*shared;
    assert!(!parting.denies(cell, last.max(1)), "{DENIED}");
    writer.join().unwrap();
    assert!(!parting.denies(cell, last.max(1)), "{DENIED}");
    assert!(parting.denies(cell, last.max(1) + 1), "nobody says that the writer has let go");
}

#[test]
fn what_still_comes_is_not_denied() {
    holds(2, || leaves::<Parting>(true, 0));
    holds(2, || leaves::<Parting>(true, 1));
    holds(2, || leaves::<Faulty<NO_FAULT>>(true, 1));
}

#[test]
fn what_has_come_is_not_denied() {
    holds(2, || leaves::<Parting>(false, 0));
    holds(2, || leaves::<Faulty<NO_FAULT>>(false, 0));
}

#[test]
fn a_writer_must_say_how_far_it_has_come_before_it_says_goodbye() {
    is_refuted(Flaw::Denial, 2, || leaves::<Faulty<HASTY>>(true, 1));
}

#[test]
fn a_goodbye_is_ordered_behind_what_was_done() {
    is_refuted(Flaw::Denial, 2, || leaves::<Faulty<RELAXED>>(false, 0));
}

#[test]
fn whoever_waits_looks_at_the_word_again() {
    is_refuted(Flaw::Denial, 2, || leaves::<Faulty<NO_LAST_LOOK>>(false, 0));
}
