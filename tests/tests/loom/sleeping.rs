//! No wake-up is lost.

use crate::checker::{Flaw, holds, is_refuted};
use crate::flag::{
    Faulty, Flag, NO_FAULT, NO_SLEEPER_FENCE, NO_WRITER_FENCE, Shipped, WRITER_CLEARS, set_all,
};
use crate::word::store_fence;
use loom::thread;
use std::sync::Arc;

/// One writer, and sleepers that wait for every epoch in turn.
fn epochs<F: Flag>(sleepers: usize, first: u32, epochs: u32) {
    let flag = Arc::new(F::at(first));
    let sleep = |flag: Arc<F>| {
        thread::spawn(move || (1..=epochs).for_each(|epoch| flag.wait(first.wrapping_add(epoch))))
    };
    let threads: Vec<_> = (0..sleepers).map(|_| sleep(flag.clone())).collect();
    for epoch in 1..=epochs {
        flag.set(first.wrapping_add(epoch));
    }
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

#[test]
fn a_sleeper_is_woken_in_every_epoch() {
    holds(3, || epochs::<Shipped>(1, 0, 3));
}

#[test]
fn a_sleeper_is_woken_across_the_wrap() {
    holds(3, || epochs::<Shipped>(1, u32::MAX - 1, 3));
}

#[test]
fn two_sleepers_are_woken_in_every_epoch() {
    holds(2, || epochs::<Shipped>(2, 0, 2));
}

/// Who waits for a later epoch is not disturbed by earlier ones.
#[test]
fn a_sleeper_may_skip_epochs() {
    holds(3, || {
        let flag = Arc::new(Shipped::at(0));
        let sleeper = thread::spawn({
            let flag = flag.clone();
            move || flag.wait(2)
        });
        flag.set(1);
        flag.set(2);
        sleeper.join().unwrap();
    });
}

/// One fence serves all words of a batch, and two ranks that sleep on different ones.
#[test]
fn a_batch_wakes_the_sleepers_of_all_its_words() {
    holds(2, || {
        let words = Arc::new([Shipped::at(0), Shipped::at(0)]);
        let sleepers = [0, 1].map(|index| {
            let words = words.clone();
            thread::spawn(move || (1..=2).for_each(|epoch| words[index].wait(epoch)))
        });
        for epoch in 1..=2 {
            set_all(&[&words[0], &words[1]], epoch);
        }
        sleepers.into_iter().for_each(|sleeper| sleeper.join().unwrap());
    });
}

/// The barrier of `collective.rs`: all increment one word and sleep on it.
#[test]
fn a_barrier_lets_all_ranks_through() {
    fn arrive(word: &Shipped, arrivals: u32) {
        word.cell.increment();
        store_fence();
        word.wake();
        word.wait(arrivals);
    }
    fn barriers(ranks: u32, rounds: u32) {
        let word = Arc::new(Shipped::at(0));
        let rank = |word: Arc<Shipped>| move || (1..=rounds).for_each(|round| arrive(&word, round * ranks));
        let others: Vec<_> = (1..ranks).map(|_| thread::spawn(rank(word.clone()))).collect();
        rank(word)();
        others.into_iter().for_each(|other| other.join().unwrap());
    }
    holds(3, || barriers(2, 3));
    holds(1, || barriers(3, 2));
}

/// The variants below differ from this in one rule each.
#[test]
fn the_variant_without_a_fault_holds() {
    holds(3, || epochs::<Faulty<NO_FAULT>>(1, 0, 3));
    holds(2, || epochs::<Faulty<NO_FAULT>>(2, 0, 2));
}

#[test]
fn a_writer_that_clears_the_mark_loses_a_wake_up() {
    is_refuted(Flaw::Deadlock, 3, || epochs::<Faulty<WRITER_CLEARS>>(1, 0, 2));
}

#[test]
fn a_writer_without_a_fence_loses_a_wake_up() {
    is_refuted(Flaw::Deadlock, 2, || epochs::<Faulty<NO_WRITER_FENCE>>(1, 0, 1));
}

#[test]
fn a_sleeper_without_a_fence_loses_a_wake_up() {
    is_refuted(Flaw::Deadlock, 2, || epochs::<Faulty<NO_SLEEPER_FENCE>>(1, 0, 1));
}

/// A batch whose fence comes before its last store.
#[test]
fn a_batch_with_a_store_after_its_fence_loses_a_wake_up() {
    is_refuted(Flaw::Deadlock, 2, || {
        let words = Arc::new([Shipped::at(0), Shipped::at(0)]);
        let sleeper = thread::spawn({
            let words = words.clone();
            move || words[1].wait(1)
        });
        words[0].cell.store(1);
        store_fence();
        words[1].cell.store(1);
        words.iter().for_each(Shipped::wake);
        sleeper.join().unwrap();
    });
}
