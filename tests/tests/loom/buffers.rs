//! When a sender may fill a buffer: two buffers in turn, clear-to-send, credits.

use crate::checker::{Flaw, holds, is_refuted};
use crate::flag::{Buffer, Faulty, Flag, NO_FAULT, RELAXED_LOAD, RELAXED_STORE, Shipped};
use crate::protocol::{clear_to_send, credit_granted, credit_needed, phase};
use loom::thread;
use std::sync::Arc;

/// Two ranks that send to each other in every epoch, ready sends into `N` buffers used in turn.
fn ready_both_ways<F: Flag, const N: usize>(last: u32, epochs: u32) {
    type Inbox<F, const N: usize> = [Buffer<F>; N];
    let inboxes: Arc<[Inbox<F, N>; 2]> = Arc::new([(); 2].map(|()| [(); N].map(|()| Buffer::after(last))));
    fn rank<F: Flag, const N: usize>(own: &Inbox<F, N>, peer: &Inbox<F, N>, last: u32, epochs: u32) {
        for epoch in (1..=epochs).map(|epoch| last.wrapping_add(epoch)) {
            peer[phase(epoch) % N].fill(epoch);
            own[phase(epoch) % N].take(epoch);
        }
    }
    let other = thread::spawn({
        let inboxes = inboxes.clone();
        move || rank(&inboxes[1], &inboxes[0], last, epochs)
    });
    rank(&inboxes[0], &inboxes[1], last, epochs);
    other.join().unwrap();
}

/// One rank that sends to another, which answers with no payload but says when it is ready.
#[derive(Clone, Copy)]
struct OneWay {
    buffers: usize,
    /// What the receiver says as it starts to receive an epoch; nothing if `None`.
    announced: Option<fn(u32) -> u32>,
    /// What the sender waits for before it fills the buffer.
    needed: fn(u32) -> u32,
    last: u32,
    epochs: u32,
}

impl OneWay {
    fn run(self) {
        let Self { buffers, announced, needed, last, epochs } = self;
        let inbox: Vec<Buffer<Shipped>> = (0..buffers).map(|_| Buffer::after(last)).collect();
        let shared = Arc::new((inbox, Shipped::at(last)));
        let numbers = move || (1..=epochs).map(move |epoch| last.wrapping_add(epoch));
        let receiver = thread::spawn({
            let shared = shared.clone();
            move || {
                let (inbox, ready) = &*shared;
                for epoch in numbers() {
                    if let Some(announced) = announced {
                        ready.set(announced(epoch));
                    }
                    inbox[phase(epoch) % buffers].take(epoch);
                }
            }
        });
        let (inbox, ready) = &*shared;
        for epoch in numbers() {
            if announced.is_some() {
                ready.wait(needed(epoch));
            }
            inbox[phase(epoch) % buffers].fill(epoch);
        }
        receiver.join().unwrap();
    }
}

const CLEAR_TO_SEND: OneWay =
    OneWay { buffers: 1, announced: Some(clear_to_send), needed: clear_to_send, last: 0, epochs: 3 };
const CREDITS: OneWay =
    OneWay { buffers: 2, announced: Some(credit_granted), needed: credit_needed, last: 0, epochs: 5 };

#[test]
fn two_buffers_make_ready_sends_safe_between_ranks_that_send_to_each_other() {
    holds(2, || ready_both_ways::<Shipped, 2>(0, 4));
}

#[test]
fn two_buffers_are_safe_across_the_wrap() {
    holds(2, || ready_both_ways::<Shipped, 2>(u32::MAX - 1, 3));
}

#[test]
fn one_buffer_without_clear_to_send_is_overwritten() {
    is_refuted(Flaw::Payload, 2, || ready_both_ways::<Shipped, 1>(0, 2));
}

#[test]
fn a_clear_to_send_makes_one_buffer_safe() {
    holds(2, || CLEAR_TO_SEND.run());
    holds(2, || OneWay { last: u32::MAX - 1, ..CLEAR_TO_SEND }.run());
}

#[test]
fn a_send_that_does_not_wait_for_its_clear_to_send_overwrites() {
    is_refuted(Flaw::Payload, 2, || OneWay { announced: None, epochs: 2, ..CLEAR_TO_SEND }.run());
}

#[test]
fn a_send_that_takes_the_last_clear_to_send_for_this_one_overwrites() {
    let needed = |epoch: u32| clear_to_send(epoch.wrapping_sub(1));
    is_refuted(Flaw::Payload, 2, move || OneWay { needed, epochs: 2, ..CLEAR_TO_SEND }.run());
}

#[test]
fn credits_make_two_buffers_safe_one_way() {
    holds(2, || CREDITS.run());
    holds(2, || OneWay { last: u32::MAX - 3, ..CREDITS }.run());
}

#[test]
fn one_way_without_credits_overwrites() {
    is_refuted(Flaw::Payload, 2, || OneWay { announced: None, ..CREDITS }.run());
}

#[test]
fn a_credit_too_few_overwrites() {
    let needed = |epoch: u32| credit_needed(epoch).wrapping_sub(1);
    is_refuted(Flaw::Payload, 2, move || OneWay { needed, ..CREDITS }.run());
}

#[test]
fn a_credit_granted_too_early_overwrites() {
    let announced = |epoch: u32| credit_granted(epoch).wrapping_add(1);
    is_refuted(Flaw::Payload, 2, move || OneWay { announced: Some(announced), ..CREDITS }.run());
}

/// The other side of the threshold: one credit more than granted is never there.
#[test]
fn a_sender_that_wants_more_than_is_granted_waits_for_ever() {
    let needed = |epoch: u32| credit_granted(epoch).wrapping_add(1);
    is_refuted(Flaw::Deadlock, 2, move || OneWay { needed, ..CREDITS }.run());
}

#[test]
fn payload_is_ordered_by_its_word() {
    holds(2, || ready_both_ways::<Faulty<NO_FAULT>, 2>(0, 2));
    is_refuted(Flaw::Race, 2, || ready_both_ways::<Faulty<RELAXED_STORE>, 2>(0, 1));
    is_refuted(Flaw::Race, 2, || ready_both_ways::<Faulty<RELAXED_LOAD>, 2>(0, 1));
}
