//! Senders that reach the receiver's memory by themselves: once that has let go and has waited for those that are in the
//! middle of it, the memory is its own.

use crate::checker::{Flaw, holds, is_refuted};
use crate::ring::{is_out_of_reach, reach};
use crate::sync::{Ordering, fence};
use crate::word::{WordCell, store_fence};
use loom::cell::UnsafeCell;
use loom::thread;
use std::sync::Arc;

/// What the receiver has lent, the word in which it says that it lets go, and the one in which the sender says that it
/// is at the memory.
struct Lent {
    memory: UnsafeCell<u32>,
    left: WordCell,
    reaching: WordCell,
}

// SAFETY: that accesses are ordered is what the models check: loom fails a model in which two are not.
unsafe impl Sync for Lent {}

impl Lent {
    fn write(&self) {
        // SAFETY: see `Sync` above.
        self.memory.with_mut(|place| unsafe { *place += 1 });
    }
}

/// The rules of the two sides.
trait Sides: 'static {
    /// The sender's access, unless the receiver has let go; whether it has made it.
    fn access(lent: &Lent) -> bool;
    /// The receiver lets go, and waits.
    fn leave(lent: &Lent);
}

struct Shipped;

impl Sides for Shipped {
    fn access(lent: &Lent) -> bool {
        reach(&lent.left, &lent.reaching, || lent.write()).is_some()
    }

    /// What is done where the ends of rings are dropped, and then a window's part.
    fn leave(lent: &Lent) {
        lent.left.store(1);
        store_fence();
        while !is_out_of_reach(&lent.reaching) {
            thread::yield_now();
        }
    }
}

/// None: the same rules as the shipped ones, to show that it is the fault that is refuted.
const NO_FAULT: u8 = 0;
/// The sender does not look whether the receiver has let go.
const NO_LOOK: u8 = 1;
/// The sender looks before it says that it is at the memory.
const LOOK_FIRST: u8 = 2;
const NO_SENDERS_FENCE: u8 = 3;
const NO_RECEIVERS_FENCE: u8 = 4;
/// The receiver does not wait.
const NO_WAIT: u8 = 5;

struct Faulty<const FAULT: u8>;

impl<const FAULT: u8> Sides for Faulty<FAULT> {
    fn access(lent: &Lent) -> bool {
        let looked = (FAULT == LOOK_FIRST).then(|| lent.left.load());
        lent.reaching.store(1);
        if FAULT != NO_SENDERS_FENCE {
            fence(Ordering::SeqCst);
        }
        let may_access = FAULT == NO_LOOK || looked.unwrap_or_else(|| lent.left.load()) == 0;
        if may_access {
            lent.write();
        }
        lent.reaching.store(0);
        may_access
    }

    fn leave(lent: &Lent) {
        lent.left.store(1);
        if FAULT != NO_RECEIVERS_FENCE {
            fence(Ordering::SeqCst);
        }
        while FAULT != NO_WAIT && lent.reaching.load() != 0 {
            thread::yield_now();
        }
    }
}

/// The sender makes that many accesses, while the receiver lets go and uses the memory.
fn lets_go<S: Sides>(accesses: usize) {
    let memory = UnsafeCell::new(0);
    let lent = Arc::new(Lent { memory, left: WordCell::new(0), reaching: WordCell::new(0) });
    let sender = {
        let lent = lent.clone();
        thread::spawn(move || (0..accesses).filter(|_| S::access(&lent)).count())
    };
    S::leave(&lent);
    lent.write();
    let made = sender.join().unwrap();
    lent.memory.with(|place| {
        // SAFETY: the sender has ended.
        assert_eq!(unsafe { *place } as usize, made + 1);
    });
}

#[test]
fn memory_is_the_receivers_once_it_has_let_go() {
    holds(3, || lets_go::<Shipped>(1));
    holds(2, || lets_go::<Shipped>(2));
    holds(3, || lets_go::<Faulty<NO_FAULT>>(1));
}

#[test]
fn the_sender_must_look_behind_what_it_says() {
    is_refuted(Flaw::Race, 2, || lets_go::<Faulty<NO_LOOK>>(1));
    is_refuted(Flaw::Race, 2, || lets_go::<Faulty<LOOK_FIRST>>(1));
}

#[test]
fn both_need_a_fence() {
    is_refuted(Flaw::Race, 2, || lets_go::<Faulty<NO_SENDERS_FENCE>>(1));
    is_refuted(Flaw::Race, 2, || lets_go::<Faulty<NO_RECEIVERS_FENCE>>(1));
}

#[test]
fn the_receiver_must_wait() {
    is_refuted(Flaw::Race, 2, || lets_go::<Faulty<NO_WAIT>>(1));
}
