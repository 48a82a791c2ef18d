//! Messages of a communicator and notified accesses: ranks, tags and elements that cannot be meant, sections in use,
//! and a receiver that never reads.

use super::line;
use crate::cases::Done;
use crate::{Scenario, stream_of, watchdog};
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use streamhalo::comm::device::Buffer;
use streamhalo::comm::window::Window;
use streamhalo::comm::{Communicator, Error, Source, Tag, start_all};
use streamhalo::{ElementType, HaloError, Op, World, WorldOptions};

/// All that is refused of a communicator.
pub fn messages(world: &World, way: Scenario) -> Result<Done, HaloError> {
    let communicator = Communicator::new(world)?;
    addresses(world, way, &communicator)?;
    sections_in_use(world, way, &communicator)?;
    contents(world, &communicator)?;
    Ok(Done::default())
}

/// Ranks that are none, and tags that are too large.
fn addresses(world: &World, way: Scenario, communicator: &Communicator) -> Result<(), HaloError> {
    let (rank, size, largest) = (world.rank(), world.size(), Communicator::LARGEST_TAG);
    let mut element = [0_u8];
    let stream = stream_of(world, way.kind)?;
    let buffer = Buffer::<u8>::zeros(world, &stream, line(1))?;
    let section = buffer.section(0..1)?;
    for (peer, tag) in [(size, 1), (usize::MAX, 1), (rank, largest + 1), (rank, u32::MAX)] {
        let expected = |what| match tag {
            1 => Error::WrongRank { what, rank: peer, size },
            _ => Error::WrongTag { what, tag, largest },
        };
        let calls = [
            ("Communicator::send", communicator.send(&[1_u8], peer, tag)),
            ("Communicator::recv", communicator.recv(&mut element, peer, tag).map(drop)),
            ("Communicator::probe", communicator.probe(peer, tag).map(drop)),
            ("Communicator::iprobe", communicator.iprobe(peer, tag).map(drop)),
            ("Communicator::isend", communicator.isend(&section, peer, tag).map(drop)),
            ("Communicator::irecv", communicator.irecv(&section, peer, tag).map(drop)),
            ("Communicator::send_init", communicator.send_init(&section, peer, tag).map(drop)),
            ("Communicator::rsend_init", communicator.rsend_init(&section, peer, tag).map(drop)),
            ("Communicator::recv_init", communicator.recv_init(&section, peer, tag).map(drop)),
        ];
        for (call, found) in calls {
            assert_eq!(found, Err(expected(call)));
        }
    }
    Ok(())
}

/// Sections that a message which has begun still uses.
fn sections_in_use(world: &World, way: Scenario, communicator: &Communicator) -> Result<(), HaloError> {
    let me = world.rank();
    let stream = stream_of(world, way.kind)?;
    let mut buffer = Buffer::<u8>::zeros(world, &stream, line(8))?;
    let in_use = |result: Result<(), Error>, expected: &str| match result {
        Err(Error::InUse { by, .. }) => assert_eq!(by, expected),
        other => panic!("{other:?} instead of in use by {expected}"),
    };
    let mut receive = communicator.irecv(&buffer.section(0..4)?, me, 1)?;
    in_use(communicator.irecv(&buffer.section(3..5)?, me, 2).map(drop), "a receive");
    in_use(communicator.isend(&buffer.section(3..5)?, me, 2).map(drop), "a receive");
    in_use(buffer.copy_out(line(8).whole()).map(drop), "a receive");
    // The first of them could begin.
    let [free, taken] = [buffer.section(6..8)?, buffer.section(3..5)?];
    let mut all = [communicator.send_init(&free, me, 9)?, communicator.recv_init(&taken, me, 9)?];
    in_use(start_all(&mut all), "a receive");
    assert!(all.iter().all(|request| !request.is_active()), "one has been started");
    drop(all);
    let mut send = communicator.isend(&buffer.section(4..8)?, me, 1)?;
    receive.wait()?;
    send.wait()?;
    buffer.with_host_mut(line(8).whole(), |_| ())?;
    Ok(())
}

/// Messages that are longer than their receive, or of another type, which the receiver alone is told. What comes behind
/// them is not touched.
fn contents(world: &World, communicator: &Communicator) -> Result<(), HaloError> {
    let (rank, size) = (world.rank(), world.size());
    let (next, previous) = ((rank + 1) % size, (rank + size - 1) % size);
    communicator.send(&[1_i64, 2], next, 3)?;
    communicator.send(&[1_i64, 2], next, 3)?;
    communicator.send(&[5_i64], next, 3)?;
    let truncated = Error::Truncated { sender: previous, tag: 3, message_bytes: 16, room_bytes: 8 };
    assert_eq!(communicator.recv(&mut [0_i64], previous, 3).map(drop), Err(truncated));
    let (asked, found) = (ElementType::F64, ElementType::I64);
    let mismatch = Error::MessageMismatch { sender: previous, tag: 3, asked, found };
    assert_eq!(communicator.recv(&mut [0_f64; 4], previous, 3).map(drop), Err(mismatch));
    let mut right = [0_i64];
    communicator.recv(&mut right, previous, 3)?;
    assert_eq!(right, [5]);
    Ok(())
}

/// A file by which one rank of this machine tells the others that they need not sleep on: not in a wait of theirs, which
/// would read what has come.
struct Told(PathBuf);

impl Told {
    /// Rank 0 names it. Collective.
    fn new(world: &World) -> Result<Self, HaloError> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos());
        let path = std::env::temp_dir().join(format!("streamhalo-told-{}-{now}", std::process::id()));
        Ok(Self(world.all_gather(&path)?.swap_remove(0)))
    }

    fn tell(&self) {
        std::fs::write(&self.0, "").expect("the folder of temporary files can be written");
    }

    fn sleep(&self) {
        let since = Instant::now();
        while !self.0.exists() {
            assert!(since.elapsed() < PATIENCE, "nobody says that it has given up");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// By whom has told it, once all know.
    fn forget(self) {
        std::fs::remove_file(self.0).expect("it is there");
    }
}

/// How long a rank that never reads sleeps at most.
const PATIENCE: Duration = Duration::from_secs(20);

/// Rank 0 notifies the last one, which does not read, until that has no room: reported within the time-out. Once it
/// reads, all that was accepted is there.
pub fn full_ring(world: &World, way: Scenario) -> Result<Done, HaloError> {
    /// More than any ring holds.
    const MANY: u32 = 100_000;
    // The window too has to be made in that time, on a machine that has other things to do.
    let soon = WorldOptions { timeout: Some(Duration::from_millis(1_500)), ..watchdog() };
    let (rank, last) = (world.rank(), world.size() - 1);
    let stream = stream_of(world, way.kind)?;
    let told = Told::new(world)?;
    let hasty = world.first_with(world.size(), soon)?.expect("all ranks are in it");
    let window = Window::allocate::<u8>(&hasty, &stream, 1)?;
    if last == 0 {
        return Ok(Done::default());
    }
    let mut accepted = 0;
    if rank == 0 {
        let full = (0..MANY).find_map(|sent| {
            accepted = sent;
            window.put_notify(&[7_u8], last, 0, 4).err()
        });
        match full {
            Some(Error::TimedOut { rank: 0, peer, what, .. }) => {
                assert_eq!(peer, last);
                assert!(what.contains("room"), "{what}");
            }
            other => panic!("{other:?} instead of a ring that is full"),
        }
        told.tell();
    } else {
        told.sleep();
    }
    let accepted = world.all_gather(&accepted)?.swap_remove(0);
    if rank == last {
        let mut request = window.notify_init(Source::Rank(0), Tag::Value(4), accepted)?;
        request.start()?;
        assert_eq!(request.wait()?.tag, 4);
        let mut come = [0_u8];
        window.read(0, &mut come)?;
        assert_eq!(come, [7]);
        assert_eq!(window.probe(Source::Any, Tag::Any)?, None, "what was refused is not sent later");
    }
    world.barrier()?;
    if rank == 0 {
        told.forget();
    }
    Ok(Done::default())
}

/// Accesses of rank 0 that the last one has to answer, which serves nobody: reported within the time-out. They happen once it
/// does, and answers that nobody waits for any more are not taken for later ones. Of two ranks, since each access has to be
/// waited for.
pub fn never_served(world: &World, way: Scenario) -> Result<Done, HaloError> {
    let soon = WorldOptions { timeout: Some(Duration::from_secs(1)), ..watchdog() };
    if world.size() != 2 {
        return Ok(Done::default());
    }
    let stream = stream_of(world, way.kind)?;
    let told = Told::new(world)?;
    let hasty = world.first_with(world.size(), soon)?.expect("all ranks are in it");
    let window = Window::allocate::<i64>(&hasty, &stream, 2)?;
    let waited = |tag| window.notify_init(Source::Any, Tag::Value(tag), 1);
    if world.rank() == 1 {
        told.sleep();
        world.barrier()?;
        for tag in [4, 5, 6, 7, 8] {
            let mut request = waited(tag)?;
            request.start()?;
            assert_eq!(request.wait()?.tag, tag);
        }
        let mut come = [0_i64; 2];
        window.read(0, &mut come)?;
        assert_eq!(come, [150, 12], "each has happened once");
        world.barrier()?;
        return Ok(Done::default());
    }
    // What is asked for is still on its way, and so cannot be read past the target where its memory is mapped.
    window.put_notify(&[50_i64], 1, 0, 4)?;
    let mut unread = [-1_i64];
    let late = [
        window.fetch_and_op_notify(2_i64, 1, 1, Op::Sum, 5).err(),
        window.compare_and_swap_notify(0_i64, 9, 1, 1, 6).err(),
        window.get_notify(&mut unread, 1, 0, 7).err(),
        window.accumulate_values(&[100_i64], 1, 0, Op::Sum).and_then(|()| window.flush(1)).err(),
    ];
    for error in late {
        match error {
            Some(Error::TimedOut { rank: 0, peer: 1, what, .. }) => {
                assert!(what.contains("answer"), "{what}")
            }
            other => panic!("{other:?} instead of an answer that does not come"),
        }
    }
    assert_eq!(unread, [-1]);
    told.tell();
    world.barrier()?;
    let before = window.fetch_and_op_notify(10_i64, 1, 1, Op::Sum, 8)?;
    assert_eq!(before, 2, "an answer to this, and to nothing before");
    assert_eq!(unread, [-1], "whoever has given up gets nothing any more");
    window.flush(1)?;
    world.barrier()?;
    told.forget();
    Ok(Done::default())
}
