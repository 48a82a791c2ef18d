//! Two-sided messages and collective calls over threads, and what is refused.

mod collectives;
mod leaving;

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::{Duration, Instant};
use streamhalo::comm::device::{Buffer, Extents, Section, Tile};
use streamhalo::comm::window::{ActiveOptions, Group, Window};
use streamhalo::comm::{Communicator, Error, Result, Source, Status, Tag, start_all, wait_all};
use streamhalo::{Device, ElementType, Stream, StreamKind, World, WorldOptions};
use streamhalo_tests::cases::{self, messages};
use streamhalo_tests::{Scenario, expect_all, on_ranks, until, watchdog};

const WAY: Scenario = Scenario { backend: "standard", kind: StreamKind::Inline };
const SOON: WorldOptions = WorldOptions { policy: None, timeout: Some(Duration::from_secs(2)) };
const LINE: Extents = Extents { points: [1, 1, 4000], components: 1 };

fn world_of<T: Send>(
    ranks: usize,
    options: WorldOptions,
    rank_main: impl Fn(&World, &Communicator) -> Result<T> + Sync,
) -> Vec<Result<T>> {
    let run = |world: World| rank_main(&world, &Communicator::new(&world)?);
    World::threads(ranks, options, run).expect("threads can be started")
}

fn tried<T: Send>(ranks: usize, rank_main: impl Fn(&World, &Communicator) -> Result<T> + Sync) -> Vec<T> {
    expect_all(world_of(ranks, watchdog(), rank_main))
}

fn buffer(world: &World) -> Result<(Stream, Buffer<f64>)> {
    let stream = Device::host().stream(world)?;
    let buffer = Buffer::zeros(world, &stream, LINE)?;
    Ok((stream, buffer))
}

#[test]
fn messages_arrive_as_they_were_sent() {
    for ranks in 1..=5 {
        for seed in 0..4 {
            on_ranks(ranks, |world| messages::at_random(world, WAY, seed));
        }
        on_ranks(ranks, |world| messages::ring(world, WAY));
        on_ranks(ranks, |world| messages::persistent(world, WAY));
        on_ranks(ranks, |world| messages::from_any(world, WAY));
    }
}

#[test]
fn collective_calls_give_what_is_promised() {
    for ranks in 1..=7 {
        on_ranks(ranks, |world| cases::collectives::reductions(world, WAY));
        on_ranks(ranks, |world| cases::collectives::moves(world, WAY));
        on_ranks(ranks, |world| cases::collectives::barriers(world, WAY));
    }
}

#[test]
fn ranks_and_tags_that_there_are_not() {
    tried(2, |world, communicator| {
        let (_stream, buffer) = buffer(world)?;
        let section = buffer.section(0..4)?;
        let rank = |what| Error::WrongRank { what, rank: 2, size: 2 };
        let tag = |what| Error::WrongTag { what, tag: 1 << 31, largest: Communicator::LARGEST_TAG };
        assert_eq!(communicator.send(&[1.0], 2, 0), Err(rank("Communicator::send")));
        assert_eq!(communicator.send(&[1.0], 0, 1 << 31), Err(tag("Communicator::send")));
        assert_eq!(communicator.recv(&mut [1.0], 2, 0), Err(rank("Communicator::recv")));
        assert_eq!(communicator.recv(&mut [1.0], 0, 1 << 31), Err(tag("Communicator::recv")));
        let sent: (&[f64], usize, u32) = (&[], 2, 0);
        let swapped = communicator.sendrecv(sent, &mut [0.0], 0, 0);
        assert_eq!(swapped, Err(rank("Communicator::sendrecv")));
        assert_eq!(communicator.isend(&section, 2, 0).map(|_| ()), Err(rank("Communicator::isend")));
        assert_eq!(communicator.irecv(&section, 0, 1 << 31).map(|_| ()), Err(tag("Communicator::irecv")));
        assert_eq!(communicator.iprobe(2, 0), Err(rank("Communicator::iprobe")));
        assert_eq!(communicator.probe(0, 1 << 31), Err(tag("Communicator::probe")));
        let made = communicator.send_init(&section, 2, 0).map(|_| ());
        assert_eq!(made, Err(rank("Communicator::send_init")));
        let made = communicator.rsend_init(&section, 0, 1 << 31).map(|_| ());
        assert_eq!(made, Err(tag("Communicator::rsend_init")));
        let made = communicator.recv_init(&section, 2, 0).map(|_| ());
        assert_eq!(made, Err(rank("Communicator::recv_init")));
        // The communicator still works.
        communicator.barrier()
    });
}

/// What a receive cannot take: nothing is written, the sender is not stopped, and the next message comes.
#[test]
fn messages_that_a_receive_cannot_take() {
    for elements in [10, 3000] {
        tried(2, |world, communicator| {
            let (_stream, buffer) = buffer(world)?;
            if world.rank() == 0 {
                communicator.send(&vec![1.0; elements], 1, 7)?;
                communicator.send(&vec![1_i64; elements], 1, 7)?;
                return communicator.send(&vec![2.0; elements], 1, 7);
            }
            let mut short = communicator.irecv(&buffer.section(0..9)?, Source::Any, Tag::Any)?;
            let truncated =
                Error::Truncated { sender: 0, tag: 7, message_bytes: 8 * elements, room_bytes: 72 };
            assert_eq!(short.wait(), Err(truncated.clone()));
            assert_eq!(short.wait(), Err(truncated), "it can be asked again");
            let mut floats = vec![0.0; elements];
            let (asked, found) = (ElementType::F64, ElementType::I64);
            let other = Err(Error::MessageMismatch { sender: 0, tag: 7, asked, found });
            assert_eq!(communicator.recv(&mut floats, 0, 7), other);
            assert!(buffer.copy_out(LINE.whole())?.iter().chain(&floats).all(|element| *element == 0.0));
            communicator.recv(&mut floats, 0, 7)?;
            assert!(floats.iter().all(|element| *element == 2.0));
            Ok(())
        });
    }
}

#[test]
fn sections_that_are_in_use() {
    tried(1, |world, communicator| {
        let (_stream, mut buffer) = buffer(world)?;
        let in_use = |what, start, end, by| Error::InUse { what, start, end, by };
        let mut receive = communicator.irecv(&buffer.section(10..20)?, 0, 1)?;
        let send = communicator.isend(&buffer.section(19..30)?, 0, 1).map(|_| ());
        assert_eq!(send, Err(in_use("a send", 152, 240, "a receive")));
        let another = communicator.irecv(&buffer.section(0..11)?, 0, 1).map(|_| ());
        assert_eq!(another, Err(in_use("a receive", 0, 88, "a receive")));
        assert!(matches!(buffer.view(LINE.whole()), Err(Error::InUse { .. })));
        assert!(matches!(buffer.view_mut(LINE.whole()), Err(Error::InUse { .. })));
        // Two sends may read the same memory, and others may read it too.
        let mut sends = [0, 0].map(|_| communicator.isend(&buffer.section(20..3000)?, 0, 5));
        assert!(sends.iter().all(Result::is_ok));
        assert_eq!(communicator.send(&[4.0], 0, 1), Ok(()));
        assert_eq!(receive.wait()?, Status { source: 0, tag: 1, bytes: 8 });
        assert!(buffer.view(LINE.whole()).is_ok());
        assert!(matches!(buffer.view_mut(LINE.whole()), Err(Error::InUse { .. })), "sends read it still");
        for send in &mut sends {
            let send = send.as_mut().expect("it has begun");
            assert_eq!(send.test()?, None, "nobody has received it");
            communicator.recv(&mut [0.0; 2980], 0, 5)?;
            assert_eq!(send.wait()?.bytes, 8 * 2980);
        }
        assert_eq!(buffer.view_mut(LINE.whole())?[[0, 0, 10, 0]], 4.0);
        Ok(())
    });
}

/// While the host looks at an array nothing begins that would change what it sees, nor read what it may change.
#[test]
fn views_keep_what_they_show() {
    tried(1, |world, communicator| {
        let (_stream, mut buffer) = buffer(world)?;
        let (part, beside) = (buffer.section(10..20)?, buffer.section(100..110)?);
        let window = Window::active(world, &part, ActiveOptions::default())?;
        let (group, first) = (Group::new(world, &[0])?, Tile { start: [0, 0, 0], end: [1, 1, 50] });
        let in_use = |what, start: usize, end: usize| {
            Err(Error::InUse { what, start: 8 * start, end: 8 * end, by: "a view of an array" })
        };
        let receive = |section: &Section| communicator.irecv(section, 0, 1).map(|_| ());
        let send = |section: &Section| communicator.isend(section, 0, 2).map(|_| ());

        let view = buffer.view(first)?;
        assert_eq!(receive(&part), in_use("a receive", 10, 20));
        assert_eq!(window.write(0, &[1.0]), in_use("writing one's part of a window", 10, 11));
        assert_eq!(window.read(9, &mut [1.0]), Ok(()));
        assert!(matches!(window.post(&group), Err(Error::InUse { by: "a view of an array", .. })));
        assert_eq!((send(&part), receive(&beside), view.sum()), (Ok(()), Ok(()), 0.0));
        drop(view);

        let mut view = buffer.view_mut(first)?;
        assert_eq!(send(&part), in_use("a send", 10, 20));
        assert_eq!(window.read(9, &mut [1.0]), in_use("reading one's part of a window", 19, 20));
        assert_eq!((send(&beside), view.len()), (Ok(()), 50));
        view.fill(1.0);
        drop(view);

        let seen = buffer.with_host(first, |view| (receive(&part), view.sum()))?;
        assert_eq!(seen, (in_use("a receive", 10, 20), 50.0));
        let seen = buffer.with_host_mut(first, |_| send(&part))?;
        assert_eq!(seen, in_use("a send", 10, 20));
        // An empty one shows nothing.
        let nothing = buffer.view(Tile { start: [0, 0, 10], end: [1, 1, 10] })?;
        assert_eq!((receive(&part), nothing.len()), (Ok(()), 0));
        drop(nothing);
        window.write(0, &[2.0])?;
        assert_eq!(buffer.view(first)?.sum(), 51.0);
        Ok(())
    });
}

#[test]
fn persistent_requests_out_of_order() {
    tried(1, |world, communicator| {
        let (_stream, buffer) = buffer(world)?;
        let mut send = communicator.send_init(&buffer.section(0..2)?, 0, 1)?;
        let mut receive = communicator.recv_init(&buffer.section(2..4)?, 0, 1)?;
        let out_of_order = |result: Result<()>, expected: &str| match result {
            Err(Error::OutOfOrder { call, reason }) => {
                assert_eq!(call, expected);
                assert!(reason.contains("active"), "{reason}");
            }
            other => panic!("{expected} gave {other:?}"),
        };
        out_of_order(send.wait().map(|_| ()), "PersistentRequest::wait");
        out_of_order(send.test().map(|_| ()), "PersistentRequest::test");
        for _ in 0..3 {
            receive.start()?;
            out_of_order(receive.start(), "PersistentRequest::start");
            send.start()?;
            // None of a batch is started if one cannot be.
            let mut more = [communicator.recv_init(&buffer.section(8..9)?, 0, 1)?, receive];
            out_of_order(start_all(&mut more), "start_all");
            assert!(!more[0].is_active());
            [_, receive] = more;
            send.wait()?;
            receive.wait()?;
            out_of_order(receive.wait().map(|_| ()), "PersistentRequest::wait");
        }
        Ok(())
    });
}

#[test]
fn waits_for_what_does_not_come_name_who_and_what() {
    let timed_out = |result: Result<()>, waiting: usize, expected: usize, text: &str| match result {
        Err(Error::TimedOut { rank, peer, what, .. }) => {
            assert_eq!((rank, peer), (waiting, expected), "{what}");
            assert!(what.contains(text), "`{what}` does not say `{text}`");
        }
        other => panic!("{text}: {other:?}"),
    };
    let has_given_up = AtomicBool::new(false);
    let short = WorldOptions { policy: None, timeout: Some(Duration::from_millis(500)) };
    expect_all(world_of(2, short, |world, communicator| {
        let (_stream, buffer) = buffer(world)?;
        if world.rank() == 0 {
            timed_out(communicator.recv(&mut [0.0], 1, 77).map(|_| ()), 0, 1, "with tag 77");
            timed_out(communicator.probe(1, 78).map(|_| ()), 0, 1, "with tag 78");
            timed_out(communicator.send(&vec![0.0; 5000], 1, 79), 0, 1, "with tag 79 (40000 bytes)");
            let mut request = communicator.irecv(&buffer.section(0..5)?, 1, 80)?;
            timed_out(wait_all(std::slice::from_mut(&mut request)).map(|_| ()), 0, 1, "with tag 80");
            assert!(!request.is_complete(), "it still can come");
            has_given_up.store(true, Ordering::Release);
            assert_eq!(communicator.recv(&mut [0.0], 1, 81)?.bytes, 8);
            assert_eq!(request.wait()?.bytes, 16);
        } else {
            until(&has_given_up);
            communicator.send(&[1.0], 0, 81)?;
            communicator.send(&[1.0, 2.0], 0, 80)?;
            // The late receiver gets what was given up, from memory that nobody else has.
            assert_eq!(communicator.recv(&mut vec![0.0; 5000], 0, 79)?.bytes, 40_000);
        }
        communicator.barrier()
    }));
}

/// And not the rank that waits, unless it is alone.
#[test]
fn waits_for_a_message_of_any_rank_name_another_one() {
    let short = WorldOptions { policy: None, timeout: Some(Duration::from_millis(200)) };
    for ranks in [1, 3] {
        // Nobody leaves before all have waited.
        let waited = Barrier::new(ranks);
        let told = expect_all(world_of(ranks, short, |world, communicator| {
            let (_stream, buffer) = buffer(world)?;
            let mut receive = communicator.irecv(&buffer.section(0..5)?, Source::Any, 81)?;
            let late = [
                communicator.recv(&mut [0.0], Source::Any, Tag::Any).err(),
                communicator.probe(Source::Any, 80).err(),
                receive.wait().err(),
            ];
            waited.wait();
            Ok(late)
        }));
        for (waiting, (late, another)) in told.into_iter().zip([ranks.min(2) - 1, 0, 0]).enumerate() {
            for (error, tag) in late.into_iter().zip(["with any tag", "with tag 80", "with tag 81"]) {
                let Some(Error::TimedOut { rank, peer, what, .. }) = error else {
                    panic!("{tag}: {error:?}")
                };
                assert_eq!((rank, peer), (waiting, another), "{what}");
                assert_eq!(what, format!("a message {tag}, or of any other rank,"));
            }
        }
    }
}

/// Short messages go ahead of their receiver until there is no more room; what was given up does not come.
#[test]
fn short_sends_to_a_rank_that_never_receives_end_by_their_time_out() {
    let sent = AtomicI64::new(0);
    // Rank 0 waits as long in the barrier too, while the other one receives all.
    let short = WorldOptions { policy: None, timeout: Some(Duration::from_secs(1)) };
    expect_all(world_of(2, short, |world, communicator| {
        if world.rank() == 0 {
            let send = |number| communicator.send(&[number], 1, 5).err().map(|error| (number, error));
            let (last, error) = (0..1_000_000_i64).find_map(send).expect("no room for a million");
            assert!(last > 1 && matches!(&error, Error::TimedOut { peer: 1, .. }), "{last}: {error:?}");
            sent.store(last, Ordering::Release);
        } else {
            // Serves nobody meanwhile.
            let started = Instant::now();
            while sent.load(Ordering::Acquire) == 0 {
                assert!(started.elapsed() < Duration::from_secs(60), "rank 0 goes on sending");
                std::thread::sleep(Duration::from_millis(1));
            }
            for number in 0..sent.load(Ordering::Acquire) {
                let mut found = [-1];
                communicator.recv(&mut found, 0, 5)?;
                assert_eq!(found, [number]);
            }
            assert_eq!(communicator.iprobe(0, 5)?, None);
        }
        communicator.barrier()
    }));
}

/// Requests that are dropped: what nothing has matched is taken back; what a peer writes stays held until it
/// has been written.
#[test]
fn requests_that_are_dropped() {
    tried(2, |world, communicator| {
        let (_stream, mut buffer) = buffer(world)?;
        if world.rank() == 0 {
            drop(communicator.irecv(&buffer.section(0..3000)?, 1, 5)?);
            assert!(buffer.view_mut(LINE.whole()).is_ok(), "nothing has matched it");
            communicator.barrier()?;
            // The announcement is here: the receive matches at once, and rank 1 is told where it is.
            communicator.probe(1, 5)?;
            drop(communicator.irecv(&buffer.section(0..3000)?, 1, 5)?);
            assert!(matches!(buffer.view_mut(LINE.whole()), Err(Error::InUse { .. })));
            communicator.send(&[0_u8], 1, 6)?;
            communicator.recv(&mut [0_u8], 1, 7)?;
            // Any call lets go of it once it has ended.
            drop(communicator.irecv(&buffer.section(3500..3501)?, 1, 8)?);
            assert_eq!(buffer.view_mut(LINE.whole())?[[0, 0, 2999, 0]], 6.0);
        } else {
            buffer.view_mut(LINE.whole())?.fill(6.0);
            communicator.barrier()?;
            let mut send = communicator.isend(&buffer.section(0..3000)?, 0, 5)?;
            // Without a look at what comes rank 0 stays in transfer.
            std::thread::sleep(Duration::from_millis(20));
            communicator.recv(&mut [0_u8], 0, 6)?;
            send.wait()?;
            communicator.send(&[0_u8], 0, 7)?;
        }
        communicator.barrier()
    });
}
