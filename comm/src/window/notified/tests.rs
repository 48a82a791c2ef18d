//! Matching against a list, and the lines that a ready notification costs.

use super::arrivals::{ACCUMULATE, LAST, NOTIFY, PUT, UNEXPECTED_LIMIT, flags_of};
use super::unexpected::{ANY, Entry};
use super::{Notified, NotifyRequest, State, WAITS, request};
use crate::device::Device;
use crate::element::Op;
use crate::error::Error;
use crate::fabric::{Header, INLINE_BYTES, Payload};
use crate::source::{Source, Tag};
use crate::window::Window;
use crate::world::{World, WorldOptions};
use proptest::prelude::*;
use std::mem::offset_of;

fn window(world: &World) -> Window {
    let stream = Device::host().stream(world).expect("a stream");
    Window::allocate::<u8>(world, &stream, 100).expect("memory")
}

/// The lines of memory that an object at that address lies on.
fn lines(address: usize, bytes: usize) -> std::ops::RangeInclusive<usize> {
    address / 64..=(address + bytes - 1) / 64
}

/// The paper's count (2015, section V): one line for the request, and one for the head of the unexpected queue
/// with its first entries, beside which waits are counted. Besides these a notification costs what the ring costs (where it
/// lies, this rank's own counters of it, and the line that has changed hands), and what the payload costs: where the window
/// lies, and the line that it goes to.
#[test]
fn a_ready_notification_costs_two_lines_besides_the_ring() {
    let world = World::alone().unwrap();
    let window = window(&world);
    let request = window.notify_init(Source::Any, Tag::Any, 1).unwrap();
    assert!(size_of::<NotifyRequest>() <= 32);
    let request_lines = lines((&raw const request).addr(), size_of::<NotifyRequest>());
    assert_eq!(request_lines.clone().count(), 1, "a request lies on one line");
    // The cell of the state, its flag, and the queue in it, on the first line of `Notified`.
    let notified: &Notified = window.inner().notified.as_ref().unwrap();
    assert_eq!(
        (align_of::<Notified>(), offset_of!(Notified, state), offset_of!(State, unexpected)),
        (64, 0, 0)
    );
    let cell = (&raw const notified.state).addr();
    let queue = (&raw const notified.state.borrow().unexpected).addr();
    assert!(queue - cell <= size_of::<isize>(), "the flag is in front of the queue");
    assert_eq!(lines(cell, queue - cell + size_of::<super::Unexpected>()).count(), 1);
    assert_ne!(*request_lines.start(), cell / 64);
}

/// More waits at the origins, but not for a rank that needs an answer.
#[test]
fn who_waits_for_something_else_takes_a_limited_number_of_notifications() {
    let world = World::alone().unwrap();
    let window = window(&world);
    let state = &mut *window.inner().notified.as_ref().unwrap().state.borrow_mut();
    state.packets.receive_endlessly(Header { kind: NOTIFY, flags: LAST, ..Header::default() });
    for _ in 0..UNEXPECTED_LIMIT {
        state.serve().unwrap();
    }
    assert_eq!(state.unexpected.length(), UNEXPECTED_LIMIT);
    state.take_answers((0, 0), &mut |_| panic!("it is no answer")).unwrap();
    assert_eq!(state.unexpected.length(), UNEXPECTED_LIMIT + 1);
    // What there was room for is taken, and behind it a goodbye is found.
    assert!(!state.packets.far_has_left());
    for _ in 0..10 {
        state.serve().unwrap();
    }
    assert_eq!(state.unexpected.length(), UNEXPECTED_LIMIT + 2);
    assert!(state.packets.far_has_left());
}

/// Of a flush too that it had taken, and had not answered.
#[test]
fn what_is_put_to_a_rank_that_has_left_is_no_flush_of_before() {
    let ranks = World::threads(2, WorldOptions::default(), |world| {
        let window = window(&world);
        if world.rank() == 1 {
            let notified = window.inner().notified.as_ref().unwrap();
            let mut taken = 0;
            // The accumulate and the flush.
            while taken < 2 {
                taken += u32::from(notified.state.borrow_mut().packets.take_next(|_| {}));
                std::thread::yield_now();
            }
            drop(window);
            return world.barrier();
        }
        window.accumulate_values(&[1_u8], 1, 0, Op::Sum)?;
        window.flush(1)?;
        for _ in 0..2 {
            let put = window.put_notify(&[7_u8], 1, 0, 1);
            assert!(matches!(put, Err(Error::PeerFailed { rank: 1, .. })), "{put:?}");
        }
        world.barrier()
    });
    ranks.expect("threads start").into_iter().for_each(|rank| rank.expect("it goes well"));
}

/// Here it is an access of this rank's to itself that has to be served.
#[test]
fn who_always_finds_what_it_waits_for_serves_others_by_and_by() {
    for tests in [false, true] {
        // Of threads, which serves nobody.
        let all_are_put = std::sync::Barrier::new(2);
        let ranks = World::threads(2, WorldOptions::default(), |world| {
            let window = window(&world);
            if world.rank() == 1 {
                (0..WAITS).try_for_each(|_| window.put_notify::<u8>(&[], 0, 0, 1))?;
                all_are_put.wait();
                return Ok(());
            }
            window.put_notify(&[7_u8], 0, 0, 2)?;
            all_are_put.wait();
            let length = || window.inner().notified.as_ref().unwrap().state.borrow().unexpected.length();
            let mut request = window.notify_init(Source::Rank(1), Tag::Value(1), 1)?;
            for _ in 0..WAITS {
                assert_eq!(length(), 0);
                request.start()?;
                match tests {
                    true => assert!(request.test()?.is_some()),
                    false => drop(request.wait()?),
                }
            }
            assert_eq!(length(), 1);
            Ok::<_, Error>(())
        });
        ranks.expect("threads start").into_iter().for_each(|rank| rank.expect("it goes well"));
    }
}

/// What does not fit stays, for whoever takes anything.
#[test]
fn the_short_way_takes_short_puts_of_its_tag_and_nothing_else() {
    let world = World::alone().unwrap();
    let window = window(&world);
    let notified = window.inner().notified.as_ref().unwrap();
    let awaits = |tag| notified.state.borrow_mut().await_put(0, tag, || 2);
    let at = |offset| {
        let mut value = [0_u8];
        window.read(offset, &mut value).map(|()| value[0])
    };
    assert_eq!(awaits(1), None, "nothing is there");
    for (value, bytes) in [(1, 1), (2, 8), (3, 17), (4, INLINE_BYTES), (5, 0)] {
        window.put_notify(&vec![value; bytes], 0, 3, 1).unwrap();
        let found = [awaits(2), awaits(ANY), awaits(1), awaits(1)];
        assert_eq!(found, [None, None, Some(Entry::new(0, 1)), None], "{bytes} bytes");
        let around = [at(2), at(2 + bytes), at(3 + bytes)].map(Result::unwrap);
        assert!(bytes == 0 || around == [0, value, 0], "{bytes} bytes: {around:?}");
    }

    // Cells come again, with what they had in the lap before.
    for lap in 0..40 {
        window.put_notify(&[4_u8], 0, 3, 1).unwrap();
        assert_eq!([awaits(1), awaits(1)], [Some(Entry::new(0, 1)), None], "{lap}");
    }

    // What is no put, or goes on, or is too long for a cell, or beyond the window: sent by hand, so that it is that packet.
    let ends = Some(Entry::new(0, 1));
    let packets = [
        ((NOTIFY, LAST, 3), 0, ends, Some(4)),
        ((ACCUMULATE, LAST | flags_of(Op::Sum), 3), 1, ends, Some(13)),
        ((ACCUMULATE, LAST, 3), 1, ends, Some(9)),
        ((PUT, 0, 3), 8, None, Some(9)),
        ((PUT, LAST, 3), INLINE_BYTES + 1, ends, Some(9)),
        ((PUT, LAST, 100), 1, None, None),
    ];
    for ((kind, flags, offset), bytes, notification, expected) in packets {
        let header = Header { kind, flags, tag: 1, offset, ..Header::default() };
        let payload = vec![9_u8; bytes];
        let mut state = notified.state.borrow_mut();
        assert_eq!(state.packets.try_send(0, header, Payload::Bytes(&payload)), Ok(true));
        for _ in 0..2 {
            assert_eq!(state.await_put(0, 1, || 2), None, "{header:?}");
        }
        let served = state.serve();
        assert_eq!(state.unexpected.take(request::wanted(Source::Rank(0), Tag::Value(1))), notification);
        drop(state);
        match expected {
            Some(value) => assert_eq!((served, at(3)), (Ok(true), Ok(value)), "{header:?}"),
            None => assert!(matches!(served, Err(Error::OutOfBounds { .. })), "{served:?}"),
        }
    }
    // What was beyond the window is told of once, and is no notification.
    let served = notified.state.borrow_mut().serve();
    assert_eq!((served, awaits(1)), (Ok(false), None));
}

#[derive(Debug, Clone, Copy)]
enum Step {
    Put { tag: u32, bytes: usize },
    Start { request: usize },
    Test { request: usize },
    Probe { tag: Option<u32> },
}

const REQUESTS: usize = 4;

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let bytes = prop_oneof![Just(0_usize), Just(1), Just(100)];
    prop::collection::vec(
        prop_oneof![
            3 => (0_u32..3, bytes).prop_map(|(tag, bytes)| Step::Put { tag, bytes }),
            1 => (0..REQUESTS).prop_map(|request| Step::Start { request }),
            3 => (0..REQUESTS).prop_map(|request| Step::Test { request }),
            1 => prop::option::of(0_u32..3).prop_map(|tag| Step::Probe { tag }),
        ],
        1..150,
    )
}

/// What a request is in the model: its tag, what it expects, and what has matched since it was started.
type Model = (Option<u32>, u32, Option<u32>);

proptest! {
    #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 2 } else { 200 }, ..ProptestConfig::default() })]

    #[test]
    fn requests_take_what_matches_in_the_order_of_arrival(
        steps in steps(),
        wanted in prop::collection::vec((prop::option::of(0_u32..3), 1_u32..4), REQUESTS),
    ) {
        let world = World::alone().unwrap();
        let window = window(&world);
        let tag_of = |tag: Option<u32>| tag.map_or(Tag::Any, Tag::Value);
        let source_of = |tag: Option<u32>| if tag.is_some() { Source::Any } else { Source::Rank(0) };
        let mut requests: Vec<NotifyRequest> = Vec::new();
        let mut models: Vec<Model> = Vec::new();
        for (tag, expected) in wanted {
            requests.push(window.notify_init(source_of(tag), tag_of(tag), expected).unwrap());
            models.push((tag, expected, None));
        }
        let mut waiting: Vec<u32> = Vec::new();
        let mut last = [0; REQUESTS];
        for step in steps {
            match step {
                // A rank that is alone reads its own ring only in calls on the window.
                Step::Put { .. } if waiting.len() == 60 => {}
                Step::Put { tag, bytes } => {
                    window.put_notify(&vec![tag as u8; bytes], 0, 0, tag).unwrap();
                    waiting.push(tag);
                }
                Step::Start { request } => {
                    let (_, expected, matched) = &mut models[request];
                    let is_active = matched.is_some_and(|matched| matched < *expected);
                    prop_assert_eq!(requests[request].start().is_err(), is_active);
                    if !is_active {
                        *matched = Some(0);
                    }
                }
                Step::Test { request } => {
                    let found = requests[request].test();
                    let (tag, expected, Some(matched)) = &mut models[request] else {
                        prop_assert!(found.is_err());
                        continue;
                    };
                    while *matched < *expected {
                        let next = waiting.iter().position(|waiting| tag.is_none_or(|tag| tag == *waiting));
                        let Some(next) = next else { break };
                        last[request] = waiting.remove(next);
                        *matched += 1;
                    }
                    let complete = (*matched == *expected).then_some((0, last[request]));
                    prop_assert_eq!(found.unwrap().map(|found| (found.source, found.tag)), complete);
                    prop_assert_eq!(requests[request].matched(), *matched);
                }
                Step::Probe { tag } => {
                    let first = waiting.iter().find(|waiting| tag.is_none_or(|tag| tag == **waiting));
                    let found = window.probe(source_of(tag), tag_of(tag)).unwrap();
                    prop_assert_eq!(found.map(|found| found.tag), first.copied());
                }
            }
        }
    }
}
