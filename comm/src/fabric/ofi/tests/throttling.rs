//! More to send than there are triggered entries, or than a provider's ring takes; and failures.

use super::two::{Meeting, has, run_two};
use super::*;
use crate::Error;
use crate::fabric::ofi::work::DeferredWrite;
use crate::fabric::throttling::Budget;
use std::collections::VecDeque;

#[test]
fn an_exhausted_budget_is_refilled_as_entries_complete() {
    if has("sockets", true) {
        run_two("throttling::exhausted");
    }
}

/// Adaptive throttling: each message takes an entry from whichever has completed first.
#[test]
#[ignore = "a rank of the test above"]
fn exhausted() {
    const MESSAGES: usize = 64;
    const ENTRIES: usize = 4;
    let Some(meeting) = Meeting::join() else { return };
    let (endpoint, peer) = connected(&meeting, &sockets());
    let trigger = Counter::open(&endpoint).expect("a counter can be made");
    let arrived = Counter::open(&endpoint).expect("a counter can be made");
    let ghost = Words::new(&endpoint, MESSAGES, Some(&arrived));
    let payload = Words::new(&endpoint, MESSAGES, None);
    ghost.tell(&meeting, "ghost");
    let there = hear(&meeting, "ghost", peer);
    let budget = Budget::new(ENTRIES);
    let mut outstanding: VecDeque<(Counter, DeferredWrite)> = VecDeque::new();
    let mut waited = 0;
    for message in 0..MESSAGES {
        while !budget.try_reserve(1) {
            waited += 1;
            wait("an entry to complete", || outstanding[0].1.is_done());
            outstanding.pop_front();
            budget.release(1);
        }
        payload.store(message, 100 + message as u64);
        let sent = Counter::open(&endpoint).expect("a counter can be made");
        let source = payload.region.slice(8 * message, 8, "a message").expect("in bounds");
        let mut write = DeferredWrite::new(&source, at(there, message), &trigger, &sent).expect("an entry");
        queued(write.arm(message as u64 + 1, 1));
        outstanding.push_back((sent, write));
        assert!(budget.in_use() <= ENTRIES && outstanding.len() == budget.in_use());
        trigger.add(1).expect("triggered");
    }
    assert_eq!(waited, MESSAGES - ENTRIES, "the budget was exhausted for every message but the first");
    wait("all messages", || arrived.read() == MESSAGES as u64);
    for message in 0..MESSAGES {
        assert_eq!(ghost.load(message), 100 + message as u64);
    }
    meet(&meeting, &endpoint, "end");
}

#[test]
fn a_full_ring_is_kicked() {
    if has("sockets", true) {
        run_two("throttling::full_ring");
    }
}

/// A batch that does not fit the provider's ring stops half-way, until its trigger is kicked.
#[test]
#[ignore = "a rank of the test above"]
fn full_ring() {
    const MESSAGES: usize = 2000;
    let Some(meeting) = Meeting::join() else { return };
    let (endpoint, peer) = connected(&meeting, &sockets());
    let counter = || Counter::open(&endpoint).expect("a counter can be made");
    let (trigger, sent, arrived) = (counter(), counter(), counter());
    let ghost = Words::new(&endpoint, MESSAGES, Some(&arrived));
    let payload = Words::new(&endpoint, MESSAGES, None);
    ghost.tell(&meeting, "ghost");
    let there = hear(&meeting, "ghost", peer);
    let mut writes = Vec::new();
    for message in 0..MESSAGES {
        payload.store(message, 1 + message as u64);
        let source = payload.region.slice(8 * message, 8, "a message").expect("in bounds");
        let mut write = DeferredWrite::new(&source, at(there, message), &trigger, &sent).expect("an entry");
        queued(write.arm(1, MESSAGES as u64));
        writes.push(write);
    }
    meet(&meeting, &endpoint, "start");
    trigger.add(1).expect("triggered");
    let mut kicks = 0;
    let mut last = 0;
    wait("the whole batch", || {
        let now = sent.read();
        if now == last {
            trigger.kick().expect("kicked");
            kicks += 1;
        }
        last = now;
        now == MESSAGES as u64
    });
    println!("rank {} kicked {kicks} times", meeting.rank);
    wait("all messages", || arrived.read() == MESSAGES as u64);
    for message in 0..MESSAGES {
        assert_eq!(ghost.load(message), 1 + message as u64);
    }
    meet(&meeting, &endpoint, "end");
}

#[test]
fn a_failed_write_names_its_peer() {
    if has("sockets", true) {
        run_two("throttling::failure");
    }
}

#[test]
#[ignore = "a rank of the test above"]
fn failure() {
    let Some(meeting) = Meeting::join() else { return };
    let (endpoint, peer) = connected(&meeting, &sockets());
    let trigger = Counter::open(&endpoint).expect("a counter can be made");
    let sent = Counter::open(&endpoint).expect("a counter can be made");
    let words = Words::new(&endpoint, 1, None);
    let source = words.region.slice(0, 8, "a message").expect("in bounds");
    if meeting.rank == 0 {
        let nowhere = RemotePlace { peer, key: 0xdead_beef, address: 0 };
        let mut write = DeferredWrite::new(&source, nowhere, &trigger, &sent).expect("an entry");
        queued(write.arm(1, 1));
        trigger.add(1).expect("triggered");
        let mut found = None;
        wait("the failure", || {
            found = endpoint.poll(&mut [Completion::Nothing; 4]).err();
            found.is_some()
        });
        let Some(Error::Libfabric { call: "fi_cq_read", reason }) = found else { panic!("{found:?}") };
        assert!(reason.contains("a triggered write of 8 bytes to rank 1 failed"), "{reason}");
        println!("{reason}");
        assert_eq!((sent.read(), write.is_done()), (0, false), "it is not counted as complete");
    }
    meeting.tell("end", b"here");
    meeting.hear("end");
}
