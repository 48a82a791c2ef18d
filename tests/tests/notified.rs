//! Notified access over threads: the cases of every fabric at length, receivers that never read, peers that
//! leave, memory that is in use, and what is told to an observer.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use streamhalo::comm::device::{Buffer, Extents};
use streamhalo::comm::fabric::{Event, Role, WaitPolicy};
use streamhalo::comm::window::{Notification, Window};
use streamhalo::comm::{Error, Source, Tag};
use streamhalo::{Device, HaloError, Op, StreamKind, World, WorldOptions};
use streamhalo_tests::cases::{Done, misused, notify};
use streamhalo_tests::{Scenario, TIMEOUT, on_ranks, stream_of, watchdog};

const WAY: Scenario = Scenario { backend: "standard", kind: StreamKind::Inline };

fn on_some_ranks(case: impl Fn(&World, Scenario) -> Result<Done, HaloError> + Sync) {
    for ranks in [1, 2, 3, 5] {
        on_ranks(ranks, |world| case(world, WAY).map(|_| ()));
    }
}

#[test]
fn puts_go_to_and_fro() {
    on_some_ranks(notify::ping_pong);
}

#[test]
fn notifications_are_matched_by_source_and_tag() {
    on_some_ranks(notify::wildcards);
}

#[test]
fn a_request_counts() {
    for elements in [1, 8, 9, 5_000] {
        on_some_ranks(|world, way| notify::counting(world, way, elements));
    }
}

#[test]
fn gets_read_before_they_notify() {
    on_some_ranks(notify::gets);
}

#[test]
fn accesses_of_a_rank_happen_in_order() {
    for seed in 0..8 {
        on_some_ranks(|world, way| notify::in_order(world, way, seed));
    }
}

#[test]
fn accesses_that_notify_nobody_are_there_once_they_are_flushed() {
    on_some_ranks(notify::silent);
}

#[test]
fn accesses_that_notify_are_there_behind_a_fence() {
    on_some_ranks(notify::fenced);
}

/// Whenever the target goes: it has had all that is flushed.
#[test]
fn a_flush_of_a_target_that_has_taken_all_and_left_is_no_error() {
    for round in 0..200 {
        on_ranks(2, |world| {
            let stream = stream_of(world, WAY.kind)?;
            let window = Window::allocate::<i64>(world, &stream, 1)?;
            if world.rank() == 1 {
                let mut request = window.notify_init(Source::Any, Tag::Value(9), 1)?;
                request.start()?;
                request.wait()?;
                return Ok(());
            }
            window.accumulate_values(&[1_i64], 1, 0, Op::Sum)?;
            window.put_notify(&[1_i64; 0], 1, 0, 9)?;
            (0..50 * round).for_each(|_| std::hint::spin_loop());
            window.flush(1)?;
            Ok(window.flush(1)?)
        });
    }
}

/// What has been flushed is not on its way any more: memory that is mapped is reached without the target, which is busy.
#[test]
fn flushed_elements_are_read_without_the_target() {
    let turn = AtomicUsize::new(0);
    on_ranks(2, |world| {
        let stream = stream_of(world, WAY.kind)?;
        let window = Window::allocate::<i64>(world, &stream, 2)?;
        if world.rank() == 1 {
            let mut request = window.notify_init(Source::Any, Tag::Value(9), 1)?;
            request.start()?;
            request.wait()?;
            until(&turn, 1);
        } else {
            window.accumulate_values(&[5_i64], 1, 0, Op::Sum)?;
            window.flush(1)?;
            window.put_notify(&[1_i64], 1, 1, 9)?;
            let mut found = [0_i64];
            window.get_values(&mut found, 1, 0)?;
            turn.store(1, Ordering::SeqCst);
            assert_eq!(found, [5]);
        }
        Ok(world.barrier()?)
    });
}

/// A put that goes straight to memory does not overtake one that is in a packet.
#[test]
fn silent_puts_stay_behind_packets_that_are_not_read() {
    on_ranks(2, |world| {
        let stream = stream_of(world, WAY.kind)?;
        let window = Window::allocate::<i64>(world, &stream, 1)?;
        if world.rank() == 0 {
            window.put_notify(&[1_i64], 1, 0, 9)?;
            window.put_values(&[2_i64], 1, 0)?;
        }
        world.barrier()?;
        if world.rank() == 0 {
            window.flush(1)?;
        }
        world.barrier()?;
        let mut found = [0_i64];
        window.read(0, &mut found)?;
        assert_eq!(found, [2 * world.rank() as i64]);
        Ok(world.barrier()?)
    });
}

#[test]
fn a_target_that_never_serves_is_reported() {
    on_ranks(2, |world| misused::never_served(world, WAY).map(|_| ()));
}

#[test]
fn accumulates_are_atomic() {
    on_some_ranks(|world, way| notify::accumulates::<u8>(world, way, 40_000));
    on_some_ranks(|world, way| notify::accumulates::<i32>(world, way, 3_000));
    on_some_ranks(|world, way| notify::accumulates::<i64>(world, way, 1));
    on_some_ranks(|world, way| notify::accumulates::<f32>(world, way, 9));
    on_some_ranks(|world, way| notify::accumulates::<f64>(world, way, 500));
    on_some_ranks(notify::atomics);
}

#[test]
fn ranks_that_send_to_each_other_more_than_rings_hold_do_not_deadlock() {
    on_some_ranks(notify::more_than_rings_hold);
}

#[test]
fn wrong_arguments_are_refused() {
    on_some_ranks(notify::refusals);
}

/// Waits that fail soon; not so soon that a busy machine ends those that set a test up.
fn impatient() -> WorldOptions {
    WorldOptions { timeout: Some(Duration::from_millis(1_500)), ..watchdog() }
}

fn bytes(world: &World) -> Result<Window, Error> {
    Window::allocate::<u8>(world, &Device::host().stream(world)?, 100)
}

#[test]
fn a_receiver_that_never_reads_is_reported() {
    let turn = AtomicUsize::new(0);
    let ranks = World::threads(2, impatient(), |world| {
        let window = bytes(&world)?;
        if world.rank() == 1 {
            // Not in a wait, which would serve rank 0.
            until(&turn, 1);
            return Ok(0);
        }
        let put = |sent| window.put_notify(&[1_u8], 1, 0, sent).err().map(|error| (sent, error));
        let (sent, error) = (0..).find_map(put).expect("a ring is bounded");
        turn.store(1, Ordering::SeqCst);
        match error {
            Error::TimedOut { rank: 0, peer: 1, what, .. } => assert!(what.contains("room"), "{what}"),
            other => return Err(other),
        }
        Ok(sent)
    });
    assert_eq!(ranks.unwrap()[0], Ok(16));
}

#[test]
fn a_notification_that_does_not_come_is_reported() {
    let turn = AtomicUsize::new(0);
    let ranks = World::threads(3, impatient(), |world| {
        let window = bytes(&world)?;
        let mut told = Vec::new();
        if world.rank() == 0 {
            for source in [Source::Rank(2), Source::Any] {
                let mut request = window.notify_init(source, Tag::Value(5), 2)?;
                request.start()?;
                match request.wait() {
                    Err(Error::TimedOut { rank: 0, peer, what, .. }) => told.push((peer, what)),
                    other => panic!("{other:?}"),
                }
            }
            turn.store(1, Ordering::SeqCst);
        } else {
            if world.rank() == 2 {
                window.put_notify::<u8>(&[], 0, 0, 5)?;
            }
            until(&turn, 1);
        }
        Ok::<_, Error>(told)
    });
    let told = ranks.unwrap().remove(0).unwrap();
    assert_eq!(told[0].0, 2);
    assert!(told[0].1.contains("2 notifications from rank 2 with tag 5, of which 1 had come"), "{told:?}");
    assert!(told[1].1.contains("2 notifications from any rank with tag 5, of which 0 had come"), "{told:?}");
}

#[test]
fn a_peer_that_has_left_is_reported_but_not_what_it_sent_before() {
    let ranks = World::threads(2, watchdog(), |world| {
        let window = bytes(&world)?;
        if world.rank() == 1 {
            window.put_notify(&[7_u8; 50], 0, 0, 3)?;
            drop(window);
            world.barrier()?;
            return Ok::<_, Error>(Vec::new());
        }
        world.barrier()?;
        let mut first = window.notify_init(Source::Rank(1), Tag::Any, 1)?;
        first.start()?;
        assert_eq!(first.wait()?.tag, 3);
        first.start()?;
        let mut any = window.notify_init(Source::Any, Tag::Any, 1)?;
        any.start()?;
        Ok(vec![
            first.wait().map(|_| ()),
            any.wait().map(|_| ()),
            window.put_notify(&[1_u8], 1, 0, 0),
            window.put_notify(&[1_u8; 90], 1, 0, 0),
            window.fetch_and_op_notify(1_u8, 1, 0, Op::Sum, 0).map(|_| ()),
        ])
    });
    let results = ranks.unwrap().remove(0).unwrap();
    assert_eq!(results.len(), 5);
    for result in &results {
        assert!(
            matches!(result, Err(Error::PeerFailed { rank: 1, operation }) if operation.contains("dropped")),
            "{result:?}"
        );
    }
}

/// A put that is under way when the target drops its window, and accesses that begin behind that.
#[test]
fn a_window_that_is_dropped_is_written_by_nobody() {
    const ELEMENTS: usize = 1 << 22;
    // Copies come to the very first elements last.
    const EARLY: usize = ELEMENTS / 16;
    const LATE: [usize; 4] = [0, 0, ELEMENTS - EARLY, 0];
    let (has_dropped, has_ended) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let trial = |world: &World, number: usize| {
        let whole = Extents { points: [1, 1, ELEMENTS], components: 1 };
        let buffer = Buffer::<i64>::zeros(world, &stream_of(world, StreamKind::Inline)?, whole)?;
        let window = Window::over(world, &buffer.section(0..ELEMENTS)?)?;
        if world.rank() == 0 {
            // Its target may have left before it is notified.
            let under_way = window.put_notify(&vec![1_i64; ELEMENTS], 1, 0, 0);
            assert!(matches!(under_way, Ok(()) | Err(Error::PeerFailed { rank: 1, .. })), "{under_way:?}");
            until(&has_dropped, number);
            let mut got = [5_i64; 100];
            let put = window.put_notify(&[2_i64; 100], 1, 0, 0);
            for result in [put, window.get_notify(&mut got, 1, 0, 0)] {
                assert!(matches!(result, Err(Error::PeerFailed { rank: 1, .. })), "{result:?}");
            }
            assert_eq!(got, [5; 100]);
            has_ended.store(number, Ordering::SeqCst);
            return Ok(());
        }
        let mut found = [0_i64];
        while found == [0] {
            std::thread::yield_now();
            window.read(EARLY, &mut found)?;
        }
        drop(window);
        let view = buffer.view(whole.whole())?;
        assert_eq!(view[LATE], 1, "the put is still under way");
        has_dropped.store(number, Ordering::SeqCst);
        until(&has_ended, number);
        assert_eq!((view[[0; 4]], view[LATE]), (1, 1));
        Ok(())
    };
    on_ranks(2, |world| (1..=4).try_for_each(|number| trial(world, number)));
}

/// Takes its time to be dropped.
struct Slow(Duration);

impl Drop for Slow {
    fn drop(&mut self) {
        std::thread::sleep(self.0);
    }
}

/// What rank 0 is told as it waits for a notification or an answer of rank 1, which ends in some way, and drops other things
/// slowly before it can say so.
fn told(gets: bool, slow: Duration, end: impl Fn() -> Result<(), Error> + Sync) -> Error {
    let (told, waits) = (Mutex::new(None), AtomicBool::new(false));
    let ranks = || {
        World::threads(2, watchdog(), |world| {
            let _slow = (world.rank() == 1).then(|| Slow(slow));
            let window = bytes(&world)?;
            if world.rank() == 1 {
                while !waits.load(Ordering::Relaxed) {
                    std::thread::yield_now();
                }
                std::thread::sleep(Duration::from_millis(50));
                return end();
            }
            waits.store(true, Ordering::Relaxed);
            let ended = if gets {
                window.fetch_and_op_notify(1_u8, 1, 0, Op::Sum, 0).map(drop)
            } else {
                let mut request = window.notify_init(Source::Rank(1), Tag::Any, 1)?;
                request.start()?;
                request.wait().map(drop)
            };
            *told.lock().expect("nobody panics with it") = ended.clone().err();
            ended
        })
    };
    _ = catch_unwind(AssertUnwindSafe(ranks));
    told.into_inner().expect("nobody panics with it").expect("rank 1 does nothing")
}

#[test]
fn why_a_rank_fails_is_told_before_what_it_drops() {
    for gets in [false, true] {
        let is_named = |error: &Error, expected| match error {
            Error::PeerFailed { rank: 1, operation } => operation.contains(expected),
            other => panic!("{other:?}"),
        };
        let returned = || Err(Error::System { call: "this test", reason: "the tide is out".into() });
        // The short time in which it is listened for is taken from it by a busy machine, but not every time.
        let mut returned = (0..5).map(|_| told(gets, Duration::from_millis(5), returned));
        assert!(returned.any(|error| is_named(&error, "the tide is out")), "gets: {gets}");
        // Longer than anybody listens for it.
        let panicked = told(gets, Duration::from_millis(200), || panic!("it is unwell"));
        assert!(is_named(&panicked, "panicked"), "{panicked:?}");
    }
}

#[test]
fn a_rank_that_fails_ends_the_waits_of_others() {
    let ranks = World::threads(2, watchdog(), |world| {
        let window = bytes(&world)?;
        if world.rank() == 1 {
            return Err(Error::System { call: "this test", reason: "on purpose".into() });
        }
        let mut request = window.notify_init(Source::Rank(1), Tag::Any, 1)?;
        request.start()?;
        request.wait().map(|_| ())
    });
    assert!(matches!(ranks.unwrap()[0], Err(Error::PeerFailed { rank: 1, .. })));
}

/// What a loop comes to that looks until there is something; nothing if that takes too long.
fn looks<T>(mut look: impl FnMut() -> Result<Option<T>, Error>) -> Result<Option<T>, Error> {
    let since = Instant::now();
    loop {
        match look() {
            Ok(None) if since.elapsed() < TIMEOUT / 4 => std::thread::yield_now(),
            ended => return ended,
        }
    }
}

#[test]
fn loops_that_test_end_with_the_source() {
    let turn = AtomicUsize::new(0);
    on_ranks(3, |world| {
        let window = bytes(world)?;
        if world.rank() == 1 {
            return [3, 5].iter().try_for_each(|tag| Ok(window.put_notify(&[7_u8; 50], 0, 0, *tag)?));
        }
        if world.rank() == 2 {
            until(&turn, 1);
            return Ok(());
        }
        let ended = |result: Result<Option<Notification>, Error>, by: usize| {
            assert!(matches!(result, Err(Error::PeerFailed { rank, .. }) if rank == by), "{result:?}");
        };
        let mut request = window.notify_init(Source::Rank(1), Tag::Value(3), 1)?;
        request.start()?;
        assert_eq!(looks(|| request.test())?, Some(Notification { source: 1, tag: 3 }));
        request.start()?;
        ended(looks(|| request.test()), 1);
        assert_eq!(window.probe(Source::Rank(1), Tag::Value(3))?, None);
        // Rank 2 is still there.
        let mut any = window.notify_init(Source::Any, Tag::Value(4), 1)?;
        any.start()?;
        assert_eq!((any.test()?, window.probe(Source::Any, Tag::Value(4))?), (None, None));
        turn.store(1, Ordering::SeqCst);
        ended(looks(|| any.test()), 1);
        assert_eq!(window.probe(Source::Any, Tag::Any)?, Some(Notification { source: 1, tag: 5 }));
        Ok(())
    });
}

#[test]
fn who_tests_for_one_rank_serves_the_others() {
    on_ranks(3, |world| {
        let stream = stream_of(world, StreamKind::Inline)?;
        let window = Window::allocate::<i64>(world, &stream, 1)?;
        let told = |by: usize| -> Result<(), HaloError> {
            let mut request = window.notify_init(Source::Rank(by), Tag::Any, 1)?;
            request.start()?;
            assert!(looks(|| request.test())?.is_some());
            Ok(())
        };
        match world.rank() {
            0 => told(1)?,
            1 => {
                told(2)?;
                window.put_notify::<i64>(&[], 0, 0, 1)?;
            }
            _ => {
                assert_eq!(window.fetch_and_op_notify(1_i64, 0, 0, Op::Sum, 9)?, 0);
                // More than a ring has room for.
                (0..40).try_for_each(|_| window.put_notify::<i64>(&[], 0, 0, 2))?;
                window.put_notify::<i64>(&[], 1, 0, 2)?;
            }
        }
        Ok(world.barrier()?)
    });
}

#[test]
fn loops_that_test_and_probe_end_with_a_rank_that_fails() {
    let ranks = World::threads(2, watchdog(), |world| {
        let window = bytes(&world)?;
        if world.rank() == 1 {
            world.fail("on purpose");
            // It does not leave.
            std::mem::forget(window);
            return Ok::<_, Error>(Vec::new());
        }
        let mut request = window.notify_init(Source::Rank(1), Tag::Any, 1)?;
        request.start()?;
        Ok(vec![looks(|| request.test()), looks(|| window.probe(Source::Rank(1), Tag::Any))])
    });
    let failure = Err(Error::PeerFailed { rank: 1, operation: "on purpose".into() });
    assert_eq!(ranks.unwrap().remove(0).unwrap(), [failure.clone(), failure]);
}

#[test]
fn memory_of_a_window_is_in_use_until_it_is_dropped() {
    on_ranks(2, |world| {
        let stream = stream_of(world, StreamKind::Inline)?;
        let whole = Extents { points: [1, 1, 100], components: 1 };
        let mut buffer = Buffer::<f64>::zeros(world, &stream, whole)?;
        let window = Window::over(world, &buffer.section(10..60)?)?;
        window.put_notify(&[world.rank() as f64], 1 - world.rank(), 49, 0)?;
        let mut request = window.notify_init(Source::Any, Tag::Any, 1)?;
        request.start()?;
        request.wait()?;
        assert!(matches!(buffer.view(whole.whole()), Err(Error::InUse { .. })));
        assert!(matches!(buffer.view_mut(whole.whole()), Err(Error::InUse { .. })));
        let overlapping = Window::over(world, &buffer.section(59..61)?);
        assert!(
            matches!(&overlapping, Err(Error::CollectiveFailed { reason, .. }) if reason.contains("a window"))
        );
        let beside = Window::over(world, &buffer.section(60..100)?)?;
        drop((window, beside));
        // Requests keep a window as its clones do: they take what peers have sent.
        assert_eq!(request.matched(), 1);
        assert!(matches!(buffer.view(whole.whole()), Err(Error::InUse { .. })));
        drop(request);
        assert_eq!(buffer.view(whole.whole())?[[0, 0, 59, 0]], (1 - world.rank()) as f64);
        Ok(())
    });
}

#[test]
fn element_types_must_agree() {
    let ranks = World::threads(2, watchdog(), |world| {
        let stream = Device::host().stream(&world)?;
        if world.rank() == 0 {
            Window::allocate::<f64>(&world, &stream, 1).map(|_| ())
        } else {
            Window::allocate::<i64>(&world, &stream, 1).map(|_| ())
        }
    });
    for result in ranks.unwrap() {
        assert!(matches!(result, Err(Error::CollectiveFailed { rank: 1, .. })), "{result:?}");
    }
}

#[test]
fn an_access_is_one_put_and_one_notification() {
    let ranks = World::recorded_threads(2, watchdog(), |world, recording| {
        let window = bytes(&world)?;
        recording.take();
        let mut told = Vec::new();
        if world.rank() == 0 {
            for elements in [0, 1, 32, 33, 100] {
                window.put_notify(&vec![1_u8; elements], 1, 0, 0)?;
                let of = |event: Event| (event.role, event.to, event.bytes);
                told.push((elements, recording.take().into_iter().map(of).collect::<Vec<_>>()));
            }
        }
        world.barrier()?;
        Ok::<_, Error>(told)
    });
    for (elements, events) in ranks.unwrap().remove(0).unwrap() {
        let put = (elements > 0).then_some((Role::Payload, 1, elements));
        let expected: Vec<_> = put.into_iter().chain([(Role::Notification, 1, 0)]).collect();
        assert_eq!(events, expected, "{elements} elements");
    }
}

/// Lets the other rank come to there, in no wait of the world's.
fn until(turn: &AtomicUsize, wanted: usize) {
    let since = Instant::now();
    while turn.load(Ordering::SeqCst) != wanted {
        assert!(since.elapsed() < TIMEOUT, "the other rank is not as far as turn {wanted}");
        std::thread::yield_now();
    }
}

#[test]
fn a_short_put_travels_inside_its_notification() {
    // Even while rank 0 is to put, odd while rank 1 is to look. Neither is in a wait of the world's meanwhile, which
    // would take in what has come.
    let turn = AtomicUsize::new(0);
    on_ranks(2, |world| {
        let window = Window::allocate::<u8>(world, &stream_of(world, StreamKind::Inline)?, 400)?;
        let mut request = window.notify_init(Source::Rank(0), Tag::Any, 1)?;
        for (index, elements) in [1, 32, 33, 100].into_iter().enumerate() {
            let offset = 100 * index;
            until(&turn, 2 * index + world.rank());
            if world.rank() == 0 {
                window.put_notify(&vec![7_u8; elements], 1, offset, 0)?;
            } else {
                let mut found = vec![0_u8; elements];
                window.read(offset, &mut found)?;
                let before = if elements <= 32 { 0 } else { 7 };
                assert_eq!(found, vec![before; elements], "before the notification is read");
                request.start()?;
                request.wait()?;
                window.read(offset, &mut found)?;
                assert_eq!(found, vec![7; elements]);
            }
            turn.fetch_add(1, Ordering::SeqCst);
        }
        Ok(())
    });
}

#[test]
fn ranks_that_sleep_are_woken() {
    let policy = WaitPolicy { spins: 1, yields: 0, sleeps: true };
    let options = WorldOptions { policy: Some(policy), ..watchdog() };
    let started = Instant::now();
    let ranks = World::threads(4, options, |world| {
        notify::ping_pong(&world, WAY)?;
        notify::counting(&world, WAY, 5).map(|_| ())
    });
    ranks.unwrap().into_iter().for_each(|result: Result<(), HaloError>| result.unwrap());
    assert!(started.elapsed() < Duration::from_secs(20), "{:?}", started.elapsed());
}
