//! Packets: in order, whole, and as many as there is room for.

use super::cell::CELLS;
use super::ring::{Receiving, Sending};
use super::{Arrived, Bulk, FarPackets, Header, INLINE_BYTES, Packets, Payload, Place, WordCell};
use crate::error::Result;
use crate::{Error, World, WorldOptions};
use proptest::prelude::*;
use std::collections::{BTreeSet, VecDeque};
use std::marker::PhantomData;
use std::time::{Duration, Instant};

fn header(tag: u32) -> Header {
    Header { kind: 3, flags: 255, tag, bytes: tag ^ 7, ticket: !tag, offset: u64::from(tag) << 33 }
}

/// The payload of a packet: other bytes for each.
fn payload(number: u32, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|i| (i as u32).wrapping_mul(31).wrapping_add(number.wrapping_mul(7)) as u8).collect()
}

/// The ends of all ranks, for one thread to play all of them.
fn ends(ranks: usize, start: u32) -> Vec<Packets> {
    let ends = World::threads(ranks, WorldOptions::default(), |world| Packets::connect_from(&world, start));
    ends.expect("threads start").into_iter().map(|end| end.expect("rings fit")).collect()
}

/// A wire over which such a packet of rank 0 comes at each look, unless it is held back: then one more, and that rank lets go.
#[derive(Debug)]
struct Endless {
    header: Header,
    is_held: bool,
    has_left: bool,
}

impl FarPackets for Endless {
    fn largest(&self) -> usize {
        0
    }

    fn try_send(&mut self, _: usize, _: Header, _: Payload<'_>) -> Result<bool> {
        Ok(false)
    }

    fn receive(&mut self, take: &mut dyn FnMut(Arrived<'_>)) -> Result<()> {
        let Self { header, is_held, has_left } = *self;
        if has_left {
            return Ok(());
        }
        self.has_left = is_held;
        take(Arrived { source: 0, header, payload: std::ptr::null(), length: 0, lives: PhantomData });
        Ok(())
    }

    fn hold_back(&mut self, is_held: bool) {
        self.is_held = is_held;
    }

    fn send_bulk(&mut self, _: usize, _: u32, _: &Place, _: usize) -> Result<Bulk> {
        unreachable!("packets alone come over it")
    }

    fn recv_bulk(&mut self, _: usize, _: u32, _: &Place, _: usize) -> Result<Bulk> {
        unreachable!("packets alone come over it")
    }

    fn is_done(&mut self, _: Bulk) -> Result<bool> {
        unreachable!("packets alone come over it")
    }

    fn has_left(&self, _: usize) -> bool {
        self.has_left
    }

    fn unread(&self, _: usize) -> Result<u32> {
        Ok(0)
    }
}

impl Packets {
    /// Has such a packet of rank 0 come at each look, as over a wire; once it is held back, it sends one more and lets go.
    pub(crate) fn receive_endlessly(&mut self, header: Header) {
        self.far = Some(Box::new(Endless { header, is_held: false, has_left: false }));
    }

    /// Whether who sends over a wire has let go.
    pub(crate) fn far_has_left(&self) -> bool {
        self.far.as_ref().is_some_and(|far| far.has_left(0))
    }
}

#[test]
fn packets_of_any_length_come_in_order() {
    let ranks = World::threads(2, WorldOptions::default(), |world| {
        // The numbers of packets wrap in the second, and what cells hold of them in the last two.
        for start in [0, u32::MAX - 100, (1 << 30) - 100] {
            let mut packets = Packets::connect_from(&world, start)?;
            let peer = 1 - world.rank();
            let largest = packets.largest(peer);
            assert!(largest >= 8160);
            let lengths = [0, 1, 8, INLINE_BYTES, INLINE_BYTES + 1, 64, 65, 1000, 8160, largest];
            let (mut sent, mut received) = (0, 0);
            let all = if cfg!(miri) { 120 } else { 500 };
            while sent < all || received < all {
                if sent < all {
                    let bytes = payload(sent, lengths[sent as usize % lengths.len()]);
                    sent += u32::from(packets.try_send(peer, header(sent), Payload::Bytes(&bytes))?);
                }
                packets.receive(&mut |packet| {
                    assert_eq!((packet.source, packet.header), (peer, header(received)));
                    let length = lengths[received as usize % lengths.len()];
                    assert!(packet.to_vec() == payload(received, length), "packet {received}");
                    received += 1;
                })?;
            }
            world.barrier()?;
        }
        Ok::<_, Error>(())
    });
    assert_eq!(ranks, Ok(vec![Ok(()), Ok(())]));
}

#[test]
fn a_full_ring_takes_no_more_until_its_receiver_reads() {
    let mut ends = ends(2, u32::MAX - 20);
    let mut sent = 0;
    while ends[0].try_send(1, header(sent), Payload::None).unwrap() {
        sent += 1;
    }
    assert_eq!(sent as usize, CELLS);
    // To others, and from others, there is room still.
    assert!(ends[0].try_send(0, header(7), Payload::None).unwrap());
    assert!(ends[1].try_send(0, header(8), Payload::None).unwrap());
    let mut received = 0;
    ends[1]
        .receive(&mut |packet| {
            assert_eq!(packet.header.tag, received);
            received += 1;
        })
        .unwrap();
    assert_eq!(received, sent);
    assert!(ends[0].try_send(1, header(sent), Payload::None).unwrap());
}

#[test]
fn a_full_area_takes_no_long_payload_but_short_ones() {
    let mut ends = ends(1, 0);
    let long = vec![1; ends[0].largest(0)];
    let sent = (0..).take_while(|_| ends[0].try_send(0, header(0), Payload::Bytes(&long)).unwrap()).count();
    assert_eq!(sent, 4);
    assert!(ends[0].try_send(0, header(1), Payload::Bytes(&long[..INLINE_BYTES])).unwrap());
    assert!(ends[0].take_next(|packet| assert_eq!(packet.length(), long.len())));
    assert!(ends[0].try_send(0, header(2), Payload::Bytes(&long)).unwrap());
}

/// The cells of packets that are answered one by one, and of those that follow when nothing is answered any more.
#[test]
fn ranks_that_answer_each_other_use_two_cells_and_others_all() {
    let mut ends = ends(2, 0);
    let (mut sent, mut received) = ([0; 2], [0; 2]);
    let mut send = |ends: &mut [Packets], from: usize, bytes: usize| {
        let (ring, bytes) = (ends[from].outgoing[1 - from].as_mut().unwrap(), payload(sent[from], bytes));
        let cell = ring.cell();
        let has_room = ring.try_send(header(sent[from]), Payload::Bytes(&bytes));
        sent[from] += u32::from(has_room);
        has_room.then_some(cell)
    };
    let mut receive = |ends: &mut [Packets], rank: usize, bytes: usize| {
        ends[rank].take_next(|packet| {
            let number = received[rank];
            assert_eq!(packet.header, header(number));
            assert!(packet.to_vec() == payload(number, bytes), "packet {number}");
            received[rank] += 1;
        })
    };
    // All are used at first, and once in a long while, so that no number there grows too old.
    let all = (CELLS, 8, CELLS);
    let mut parts = vec![all, (if cfg!(miri) { 80 } else { (1 << 16) - CELLS }, 8, 2)];
    parts.extend((!cfg!(miri)).then_some(all));
    // A payload that is in the area leaves the place of a receipt, and one that fills the cell does not.
    parts.extend([(40, 100, 2), (CELLS, INLINE_BYTES, CELLS), (40, 28, 2)]);
    for (packets, bytes, cells) in parts {
        let mut used = BTreeSet::new();
        // The first may still be answered by what has gone before.
        for packet in 0..packets {
            let cell = send(&mut ends, 0, bytes).expect("there is room for what is answered");
            if packet > 1 || cells == CELLS {
                used.insert(cell);
            }
            assert!(receive(&mut ends, 1, bytes));
            assert!(send(&mut ends, 1, bytes).is_some());
            assert!(receive(&mut ends, 0, bytes));
        }
        assert_eq!(used.len(), cells, "{packets} packets of {bytes} bytes: {used:?}");
    }
    // What is told while there is nothing to read.
    assert!(!receive(&mut ends, 1, 8));
    let mut free = 0;
    while send(&mut ends, 0, 8).is_some() {
        free += 1;
    }
    assert!(free > CELLS * 3 / 4, "{free}");
    for _ in 0..free {
        assert!(receive(&mut ends, 1, 8));
    }
    assert!(!receive(&mut ends, 1, 8));
}

/// A receipt counts as it comes: a number that is kept would be that of a later packet after 2³² more.
#[test]
fn a_ring_turns_once_for_a_receipt_that_it_is_empty() {
    let (mut sending, mut receiving) = (Sending::<4>::new(256, 4), Receiving::<4>::new(256, 4));
    let [cell, number, done] = [4; 3].map(WordCell::new);
    let mut cells = Vec::new();
    for receipt in [None, None, Some(5), Some(7), None] {
        if let Some(receipt) = receipt {
            // As in the number of a packet of the other side.
            number.store(2);
            receiving.release(0, &number, || receipt, &done, &mut sending);
        }
        sending.publish(0, false, &cell);
        cells.push(sending.cell());
    }
    // Backwards from an empty ring, not for a receipt of what was not all, forwards for one that was, and on.
    assert_eq!(cells, [3, 2, 1, 2, 3]);
}

#[test]
fn one_at_a_time_serves_the_sources_in_turn() {
    let mut ends = ends(3, 0);
    for end in &mut ends {
        for tag in 0..2 {
            assert!(end.try_send(2, header(tag), Payload::None).unwrap());
        }
    }
    let mut order = Vec::new();
    while ends[2].take_next(|packet| order.push((packet.header.tag, packet.source))) {}
    assert_eq!(order, [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)]);
}

#[test]
fn who_has_left_is_known_and_what_it_sent_is_there() {
    let mut ends = ends(2, 0);
    let mut left = ends.pop().unwrap();
    assert!(left.try_send(0, header(5), Payload::Bytes(&payload(5, 100))).unwrap());
    assert!(!ends[0].has_left(1));
    drop(left);
    assert!(ends[0].has_left(1) && !ends[0].has_left(0));
    let mut came = None;
    ends[0].receive(&mut |packet| came = Some((packet.header.tag, packet.to_vec()))).unwrap();
    assert_eq!(came, Some((5, payload(5, 100))));
}

/// Its failure is told by others; but nobody reaches its memory any more.
#[test]
fn who_panics_does_not_say_that_it_has_left() {
    let mut ends = ends(2, 0);
    let left = ends.pop().unwrap();
    assert_eq!(ends[0].reach(1, || 7), Some(7));
    let panicking = std::panic::AssertUnwindSafe(move || {
        let _left = left;
        panic!("on purpose");
    });
    assert!(std::panic::catch_unwind(panicking).is_err());
    assert!(!ends[0].has_left(1));
    assert_eq!(ends[0].reach(1, || 7), None);
}

#[test]
fn a_sleeper_is_woken_by_its_packet() {
    let options = WorldOptions {
        policy: Some(crate::fabric::WaitPolicy { spins: 1, yields: 0, sleeps: true }),
        ..WorldOptions::default()
    };
    let ranks = World::threads(2, options, |world| {
        let mut packets = Packets::connect(&world)?;
        let mut elapsed = Duration::ZERO;
        world.barrier()?;
        if world.rank() == 0 {
            std::thread::sleep(Duration::from_millis(50));
            assert!(packets.try_send(1, header(0), Payload::None)?);
        } else {
            let started = Instant::now();
            while !packets.take_next(|_| {}) {
                packets.sleep(Some(0), Duration::from_secs(20));
            }
            elapsed = started.elapsed();
        }
        world.barrier()?;
        Ok::<_, Error>(elapsed)
    });
    let elapsed = *ranks.unwrap()[1].as_ref().unwrap();
    assert!(elapsed < Duration::from_secs(10), "slept {elapsed:?} although it was to be woken");
}

/// What a rank does next.
#[derive(Debug, Clone, Copy)]
enum Step {
    Send { from: usize, to: usize, bytes: usize },
    Receive { rank: usize },
    TakeNext { rank: usize },
}

const RANKS: usize = 3;

fn steps() -> impl Strategy<Value = Vec<Step>> {
    // Miri follows each byte of the longest, and would take half an hour.
    let longest = if cfg!(miri) { 4000 } else { usize::MAX };
    let length = prop_oneof![0..=INLINE_BYTES + 1, 0..2000_usize, Just(longest)];
    // Mostly between the same two ranks, or no ring would ever be full.
    let rank = || prop_oneof![4 => 0..2_usize, 1 => 0..RANKS];
    let pair = || prop_oneof![4 => (0..2_usize).prop_map(|from| (from, 1 - from)), 1 => (0..RANKS, 0..RANKS)];
    prop::collection::vec(
        prop_oneof![
            30 => (pair(), length).prop_map(|((from, to), bytes)| Step::Send { from, to, bytes }),
            1 => rank().prop_map(|rank| Step::Receive { rank }),
            20 => rank().prop_map(|rank| Step::TakeNext { rank }),
        ],
        1..if cfg!(miri) { 100 } else { 400 },
    )
}

/// Packets that have been sent: none, or so many that their count wraps, or what cells hold of it.
fn starts() -> impl Strategy<Value = u32> {
    prop_oneof![Just(0), Just(u32::MAX - 70), Just((1 << 30) - 70)]
}

/// A queue of packets that were sent, by number and length.
type Model = VecDeque<(u32, usize)>;

fn check(model: &mut [Vec<Model>], rank: usize, packet: super::Arrived<'_>) {
    let expected = model[packet.source][rank].pop_front();
    let Some((number, bytes)) = expected else { panic!("nothing was sent, {packet:?} came") };
    assert_eq!((packet.header, packet.length()), (header(number), bytes));
    assert!(packet.to_vec() == payload(number, bytes), "the payload of packet {number}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 2 } else { 150 }, ..ProptestConfig::default() })]

    /// Three ranks against a queue for each pair.
    #[test]
    fn packets_are_queues_with_bounds(steps in steps(), start in starts()) {
        let mut ends = ends(RANKS, start);
        let mut model = vec![vec![Model::new(); RANKS]; RANKS];
        for (number, step) in steps.into_iter().enumerate() {
            match step {
                Step::Send { from, to, bytes } => {
                    let (number, largest) = (number as u32, ends[from].largest(to));
                    let bytes = bytes.min(largest);
                    let sent = payload(number, bytes);
                    let has_room = ends[from].try_send(to, header(number), Payload::Bytes(&sent)).unwrap();
                    let queue = &mut model[from][to];
                    let beside = |bytes: usize| if bytes > INLINE_BYTES { bytes } else { 0 };
                    let held: usize = queue.iter().map(|(_, held)| beside(*held)).sum();
                    if queue.is_empty() {
                        prop_assert!(has_room, "an empty ring has room for every payload");
                    }
                    if queue.len() == CELLS || held + beside(bytes) > 4 * largest {
                        prop_assert!(!has_room, "a ring holds no more than its cells and its area do");
                    }
                    if has_room {
                        queue.push_back((number, bytes));
                    }
                }
                Step::Receive { rank } => {
                    ends[rank].receive(&mut |packet| check(&mut model, rank, packet)).unwrap();
                    prop_assert!(model.iter().all(|queues| queues[rank].is_empty()), "all is handed over");
                }
                Step::TakeNext { rank } => {
                    let left = |model: &[Vec<Model>]| model.iter().map(|q| q[rank].len()).sum::<usize>();
                    let before = left(&model);
                    let any = ends[rank].take_next(|packet| check(&mut model, rank, packet));
                    prop_assert_eq!((any, left(&model)), (before > 0, before.saturating_sub(1)));
                }
            }
        }
    }
}
