//! Counting notifications: one wait for all sources.

use crate::checker::{Flaw, holds, is_refuted};
use crate::flag::{Buffer, Flag, Shipped, set_all};
use crate::protocol::{next_count, phase};
use crate::word::store_fence;
use loom::thread;
use std::sync::Arc;

const SOURCES: usize = 2;

/// What the receiver and its two sources share.
struct Shared {
    /// By phase, unless there is one only.
    counts: Vec<Shipped>,
    /// Of each source, by phase; their own words are not waited for.
    inbox: [[Buffer<Shipped>; 2]; SOURCES],
    /// What the receiver sends to each source in every epoch: the credit of a pair that sends both
    /// ways.
    replies: [Shipped; SOURCES],
}

/// Both sources may be an epoch ahead of each other: each goes on as soon as the receiver's own
/// message has come.
fn notify(counters: usize, first_count: u32, epochs: u32) {
    let shared = Arc::new(Shared {
        counts: (0..counters).map(|_| Shipped::at(first_count)).collect(),
        inbox: [(); SOURCES].map(|()| [(); 2].map(|()| Buffer::after(0))),
        replies: [(); SOURCES].map(|()| Shipped::at(0)),
    });
    let sources = [0, 1].map(|source| {
        let shared = shared.clone();
        thread::spawn(move || {
            for epoch in 1..=epochs {
                shared.inbox[source][phase(epoch)].write(epoch);
                let count = &shared.counts[phase(epoch) % counters];
                count.cell.increment();
                store_fence();
                count.wake();
                shared.replies[source].wait(epoch);
            }
        })
    });
    let mut expected = vec![first_count; counters];
    for epoch in 1..=epochs {
        set_all(&[&shared.replies[0], &shared.replies[1]], epoch);
        let expected = &mut expected[phase(epoch) % counters];
        *expected = next_count(*expected, SOURCES as u32);
        shared.counts[phase(epoch) % counters].wait(*expected);
        for inbox in &shared.inbox {
            inbox[phase(epoch)].read(epoch);
        }
    }
    sources.into_iter().for_each(|source| source.join().unwrap());
}

#[test]
fn one_counter_by_phase_waits_for_all_sources() {
    holds(2, || notify(2, 0, 2));
}

#[test]
fn counters_work_across_the_wrap() {
    holds(1, || notify(2, u32::MAX, 3));
}

#[test]
fn one_counter_takes_a_fast_source_for_a_slow_one() {
    is_refuted(Flaw::Payload, 2, || notify(1, 0, 2));
}
