//! Epochs of a window: two words a pair, each with its own count, and accumulates that only those order.

use crate::checker::{Flaw, OTHER_EPOCH, holds, is_refuted};
use crate::flag::{Flag, Shipped, set_all};
use crate::sync::{AtomicU32, Ordering};
use loom::thread;
use std::sync::Arc;

/// How origins combine what they send with what is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Combine {
    Atomically,
    /// Reads, then writes.
    InTwoSteps,
}

/// Which of its rules a target keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Target {
    Sound,
    /// Exposes its part before it is done with it.
    ExposesEarly,
    /// Takes the completion of one origin for that of all.
    WaitsForOne,
}

struct Pair {
    exposure: Shipped,
    completion: Shipped,
}

/// A target and two origins, of which the second takes part in every other epoch only: the words of its pair
/// count on by one in these.
fn epochs(epochs: u32, combine: Combine, target: Target) {
    let pairs = Arc::new([(); 2].map(|()| Pair { exposure: Shipped::at(0), completion: Shipped::at(0) }));
    let element = Arc::new(AtomicU32::new(0));
    let takes_part = |origin: usize, epoch: u32| origin == 0 || epoch.is_multiple_of(2);
    let origins = [0, 1].map(|origin| {
        let (pairs, element) = (pairs.clone(), element.clone());
        thread::spawn(move || {
            let mut count = 0;
            for _ in (1..=epochs).filter(|epoch| takes_part(origin, *epoch)) {
                count += 1;
                pairs[origin].exposure.wait(count);
                match combine {
                    Combine::Atomically => {
                        element.fetch_add(1, Ordering::Relaxed);
                    }
                    Combine::InTwoSteps => {
                        let before = element.load(Ordering::Relaxed);
                        element.store(before + 1, Ordering::Relaxed);
                    }
                }
                pairs[origin].completion.set(count);
            }
        })
    });
    let mut counts = [0; 2];
    for epoch in 1..=epochs {
        let group: Vec<usize> = (0..2).filter(|origin| takes_part(*origin, epoch)).collect();
        group.iter().for_each(|origin| counts[*origin] += 1);
        let expose = || {
            // Ranks at the same count are told together.
            for origin in &group {
                set_all(&[&pairs[*origin].exposure], counts[*origin]);
            }
        };
        if target == Target::ExposesEarly {
            expose();
        }
        element.store(100 * epoch, Ordering::Relaxed);
        if target != Target::ExposesEarly {
            expose();
        }
        for origin in group.iter().take(if target == Target::WaitsForOne { 1 } else { 2 }) {
            pairs[*origin].completion.wait(counts[*origin]);
        }
        assert_eq!(element.load(Ordering::Relaxed), 100 * epoch + group.len() as u32, "{OTHER_EPOCH}");
    }
    origins.into_iter().for_each(|origin| origin.join().unwrap());
}

#[test]
fn what_all_origins_accumulate_is_there() {
    holds(1, || epochs(2, Combine::Atomically, Target::Sound));
}

#[test]
fn accumulates_in_two_steps_lose_some() {
    is_refuted(Flaw::Payload, 2, || epochs(2, Combine::InTwoSteps, Target::Sound));
}

#[test]
fn a_part_that_is_exposed_early_loses_some() {
    is_refuted(Flaw::Payload, 2, || epochs(1, Combine::Atomically, Target::ExposesEarly));
}

#[test]
fn one_origin_does_not_complete_for_all() {
    is_refuted(Flaw::Payload, 2, || epochs(2, Combine::Atomically, Target::WaitsForOne));
}
