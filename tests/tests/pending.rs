//! What is still on a stream: whoever uses a section outside of it waits for what would be disturbed, and for nothing else.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};
use std::thread::sleep;
use std::time::{Duration, Instant};
use streamhalo::comm::collective::AllReduce;
use streamhalo::comm::device::{
    Buffer, Extents, Reader, Rows, RowsMut, Section, StreamOptions, Tile, Writer,
};
use streamhalo::comm::queue::{OperationQueue, Queue, match_all};
use streamhalo::comm::window::{ActiveOptions, Group, Mode, Window};
use streamhalo::comm::{Communicator, Error, Result, start_all};
use streamhalo::{Device, Op, Stream, StreamKind, World};
use streamhalo_tests::{expect_all, watchdog};

const LINE: Extents = Extents { points: [1, 1, 100], components: 1 };
/// Longer than what is sent at once.
const LONG: Extents = Extents { points: [1, 1, 5000], components: 1 };
/// How long a kernel takes that is to be found on the stream.
const SLOW: Duration = Duration::from_millis(30);

fn tried(ranks: usize, rank_main: impl Fn(&Rank) -> Result<()> + Sync) {
    let run = |world: World| {
        let options = StreamOptions { kind: StreamKind::Threaded, threads: 1 };
        let stream = Device::host().stream_with(&world, options)?;
        let communicator = Communicator::new(&world)?;
        rank_main(&Rank { world, stream, communicator })
    };
    expect_all(World::threads(ranks, watchdog(), run).expect("threads can be started"));
}

struct Rank {
    world: World,
    stream: Stream,
    communicator: Communicator,
}

impl Rank {
    fn zeros(&self) -> Result<Buffer<f64>> {
        Buffer::zeros(&self.world, &self.stream, LINE)
    }

    /// Enqueues filling an array, in a while.
    fn fill(&self, buffer: &mut Buffer<f64>, value: f64) -> Result<()> {
        let writer = (buffer.writer(LINE.whole())?,);
        self.stream.launch("fill", LINE.whole(), writer, move |_, (mut out,): (RowsMut<'_, f64>,)| {
            sleep(SLOW);
            out.row(0, 0).fill(value);
        })
    }

    /// Enqueues copying an array, in a while.
    fn copy(&self, from: &Buffer<f64>, to: &mut Buffer<f64>) -> Result<()> {
        let arguments = (from.reader(LINE.whole())?, to.writer(LINE.whole())?);
        let copy = |_, (from, mut to): (Rows<'_, f64>, RowsMut<'_, f64>)| {
            sleep(SLOW);
            to.row(0, 0).copy_from_slice(from.row(0, 0));
        };
        self.stream.launch("copy", LINE.whole(), arguments, copy)
    }

    /// What a section has for somebody who receives it.
    fn sent(&self, section: &Section) -> Result<Vec<f64>> {
        let mut found = vec![f64::NAN; section.elements()];
        let mut send = self.communicator.isend(section, self.world.rank(), 1)?;
        self.communicator.recv(&mut found, self.world.rank(), 1)?;
        send.wait()?;
        Ok(found)
    }
}

#[test]
fn messages_wait_for_kernels() {
    tried(1, |rank| {
        let (mut cells, mut seen) = (rank.zeros()?, rank.zeros()?);
        let part = cells.section(90..100)?;
        rank.fill(&mut cells, 1.0)?;
        assert_eq!(rank.sent(&part)?, [1.0; 10]);
        rank.communicator.send(&[2.0; 10], 0, 2)?;
        rank.copy(&cells, &mut seen)?;
        rank.communicator.irecv(&part, 0, 2)?.wait()?;
        assert_eq!(seen.copy_out(LINE.whole())?, [1.0; 100], "the kernel read before the message came");
        let mut requests = [
            rank.communicator.recv_init(&seen.section(0..10)?, 0, 3)?,
            rank.communicator.send_init(&part, 0, 3)?,
        ];
        for value in [3.0, 4.0] {
            rank.fill(&mut cells, value)?;
            rank.fill(&mut seen, -1.0)?;
            start_all(&mut requests)?;
            requests.iter_mut().try_for_each(|request| request.wait().map(|_| ()))?;
            assert_eq!(seen.copy_out(LINE.whole())?[..11], [[value; 10].as_slice(), &[-1.0]].concat());
        }
        rank.fill(&mut cells, 5.0)?;
        let gathered = rank.zeros()?;
        rank.communicator.allgather_section(&part, &gathered.section(0..10)?)?;
        assert_eq!(gathered.copy_out(LINE.whole())?[..10], [5.0; 10]);
        Ok(())
    });
}

/// Enqueues copying a tile.
fn copied(stream: &Stream, tile: Tile, from: Reader<'_, f64>, to: Writer<'_, f64>) -> Result<()> {
    stream.launch("copy", tile, (from, to), |tile, (from, mut to): (Rows<'_, f64>, RowsMut<'_, f64>)| {
        to.row(0, 0).copy_from_slice(&from.row(0, 0)[..tile.extents()[2]]);
    })
}

/// Of arguments that were made before the message began, and of periods that were captured before.
#[test]
fn kernels_and_replays_are_refused_what_a_message_uses() {
    tried(1, |rank| {
        let (cells, mut other) = (rank.zeros()?, rank.zeros()?);
        let part = cells.section(90..100)?;
        let (before, whole) = (Tile { start: [0; 3], end: [1, 1, 90] }, LINE.whole());
        let period = rank
            .stream
            .capture(|_| copied(&rank.stream, whole, cells.reader(whole)?, other.writer(whole)?))?;
        let [early, part_of_it] = [cells.reader(whole)?, cells.reader(before)?];
        let receive = rank.communicator.irecv(&part, 0, 2)?;
        let in_use = |result: Result<()>| {
            assert!(matches!(&result, Err(Error::InUse { start: 0, end: 800, .. })), "{result:?}");
        };
        in_use(copied(&rank.stream, whole, early.clone(), other.writer(whole)?));
        in_use(rank.stream.replay(&period, 1));
        copied(&rank.stream, before, part_of_it, other.writer(before)?)?;
        // One that is sent may be read.
        rank.communicator.send(&[2.0; 10], 0, 2)?;
        drop(receive);
        let mut send = rank.communicator.isend(&part, 0, 3)?;
        copied(&rank.stream, whole, early, other.writer(whole)?)?;
        rank.stream.replay(&period, 1)?;
        rank.communicator.recv(&mut [0.0; 10], 0, 3)?;
        send.wait().map(drop)
    });
}

#[test]
fn windows_wait_for_kernels() {
    tried(1, |rank| {
        let (mut cells, mut source, mut seen) = (rank.zeros()?, rank.zeros()?, rank.zeros()?);
        let (part, alone) = (cells.section(0..10)?, Group::new(&rank.world, &[0])?);
        rank.fill(&mut cells, 1.0)?;
        let window = Window::over(&rank.world, &part)?;
        let mut found = [0.0; 10];
        window.read(0, &mut found)?;
        assert_eq!(found, [1.0; 10]);
        drop(window);

        let window = Window::active(&rank.world, &part, ActiveOptions::default())?;
        let from = source.section(20..30)?;
        let put = || {
            window.start(&alone, Mode::Host)?;
            window.put(&from, 0, 0)?;
            window.post(&alone)?;
            window.complete()?;
            window.wait()
        };
        rank.copy(&cells, &mut seen)?;
        put()?;
        assert_eq!(seen.copy_out(LINE.whole())?, [1.0; 100], "the kernel read before the window was exposed");
        rank.fill(&mut source, 2.0)?;
        put()?;
        window.read(0, &mut found)?;
        assert_eq!(found, [2.0; 10]);
        rank.fill(&mut cells, 3.0)?;
        window.read(0, &mut found)?;
        assert_eq!(found, [3.0; 10]);
        rank.copy(&cells, &mut seen)?;
        window.write(0, &[4.0; 10])?;
        assert_eq!(seen.copy_out(LINE.whole())?, [3.0; 100], "the kernel read before the host wrote");
        Ok(())
    });
}

/// Operations that hold their sections until the stream has them in order.
#[test]
fn messages_wait_for_what_is_enqueued() {
    tried(2, |rank| {
        let (mut cells, mut slow) = (rank.zeros()?, rank.zeros()?);
        let (part, peer) = (cells.section(0..10)?, 1 - rank.world.rank());
        let value = 1.0 + rank.world.rank() as f64;
        let expected = [3.0 - value; 10];

        let mut sum = AllReduce::new(&rank.world, &rank.stream, &part, &part, Op::Sum)?;
        rank.fill(&mut cells, value)?;
        sum.enqueue()?;
        assert_eq!(rank.sent(&part)?, [3.0; 10]);

        rank.fill(&mut cells, value)?;
        let other = cells.section(50..60)?;
        let operations = OperationQueue::new(&rank.stream, &rank.communicator)?;
        operations.enqueue_send(&part, peer, 4)?;
        operations.enqueue_recv(&other, peer, 4)?;
        operations.enqueue_start()?;
        operations.enqueue_wait()?;
        assert_eq!(rank.sent(&other)?, expected);

        rank.fill(&mut cells, value)?;
        let queue = Queue::new(&rank.stream);
        let mut requests =
            [rank.communicator.recv_init(&other, peer, 5)?, rank.communicator.send_init(&part, peer, 5)?];
        match_all(&mut requests)?;
        queue.enqueue_start_all(&mut requests)?;
        queue.enqueue_wait_all(&mut requests)?;
        assert_eq!(rank.sent(&other)?, expected);

        // No kernel touches what is received: the stream is late for other reasons.
        let (own, got) = (rank.zeros()?.section(0..10)?, rank.zeros()?.section(0..10)?);
        let window = Window::active(&rank.world, &own, ActiveOptions::default())?;
        let both = Group::new(&rank.world, &[peer])?;
        rank.fill(&mut cells, 10.0 * value)?;
        window.post_stream(&both, &rank.stream)?;
        window.start(&both, Mode::Stream)?;
        window.put(&part, peer, 0)?;
        window.complete_stream(&rank.stream)?;
        window.wait_stream(&rank.stream)?;
        assert_eq!(rank.sent(&own)?, [10.0 * (3.0 - value); 10]);

        rank.fill(&mut slow, 0.0)?;
        window.post_stream(&both, &rank.stream)?;
        window.start(&both, Mode::Stream)?;
        window.get(&got, peer, 0)?;
        window.complete_stream(&rank.stream)?;
        let found = rank.sent(&got)?;
        window.wait_stream(&rank.stream)?;
        assert_eq!(found, [10.0 * value; 10], "what this rank has put there");
        rank.stream.synchronize()
    });
}

#[test]
fn messages_wait_for_replays() {
    tried(1, |rank| {
        let mut cells = rank.zeros()?;
        let part = cells.section(0..10)?;
        let period = rank.stream.capture(|stream| {
            let writer = (cells.writer(LINE.whole())?,);
            stream.launch("add one", LINE.whole(), writer, |_, (mut out,): (RowsMut<'_, f64>,)| {
                sleep(SLOW / 4);
                out.row(0, 0).iter_mut().for_each(|cell| *cell += 1.0);
            })
        })?;
        assert_eq!(rank.sent(&part)?, [0.0; 10], "nothing has been replayed");
        rank.stream.replay(&period, 4)?;
        assert_eq!(rank.sent(&part)?, [4.0; 10]);
        Ok(())
    });
}

/// A kernel that cannot end before the messages have come is in nobody's way that it does not meet.
#[test]
fn nothing_else_waits() {
    tried(1, |rank| {
        let (cells, mut seen) = (rank.zeros()?, rank.zeros()?);
        let (is_open, beside) = (Arc::new(AtomicBool::new(false)), cells.section(50..100)?);
        let gate = is_open.clone();
        let tile = streamhalo::Tile { start: [0; 3], end: [1, 1, 50] };
        let arguments = (cells.reader(tile)?, seen.writer(tile)?);
        rank.stream.launch("wait", tile, arguments, move |_, _: (Rows<'_, f64>, RowsMut<'_, f64>)| {
            let begun = Instant::now();
            while !gate.load(Ordering::Acquire) {
                assert!(begun.elapsed() < Duration::from_secs(10), "somebody waits for this kernel");
                std::hint::spin_loop();
            }
        })?;
        let before = rank.stream.synchronizations();
        // What it reads may be sent, and what lies beside it may be written.
        assert_eq!(rank.sent(&cells.section(0..100)?)?, [0.0; 100]);
        rank.communicator.send(&[1.0; 50], 0, 2)?;
        rank.communicator.irecv(&beside, 0, 2)?.wait()?;
        assert_eq!(rank.sent(&seen.section(50..100)?)?, [0.0; 50]);
        assert_eq!(rank.stream.synchronizations(), before);
        is_open.store(true, Ordering::Release);
        assert_eq!(cells.copy_out(LINE.whole())?[50..], [1.0; 50]);
        Ok(())
    });
}

#[test]
fn a_stream_that_fails_meanwhile_is_told_of() {
    let run = |world: World| {
        let options = StreamOptions { kind: StreamKind::Threaded, threads: 1 };
        let stream = Device::host().stream_with(&world, options)?;
        let communicator = Communicator::new(&world)?;
        let mut cells = Buffer::<f64>::zeros(&world, &stream, LINE)?;
        let writer = (cells.writer(LINE.whole())?,);
        stream.launch("break", LINE.whole(), writer, |_, _: (RowsMut<'_, f64>,)| {
            sleep(SLOW);
            panic!("on purpose");
        })?;
        communicator.isend(&cells.section(0..10)?, 0, 1).map(|_| ())
    };
    let outcomes = World::threads(1, watchdog(), run).expect("threads can be started");
    assert!(
        matches!(&outcomes[0], Err(Error::KernelPanicked { kernel, .. }) if kernel == "break"),
        "{outcomes:?}"
    );
}

/// A dropped message keeps the last use of its stream, which comes to an end once it is swept away: by then the thread of the
/// stream may wait for another message, and needs the engine for it.
#[test]
fn a_stream_ends_with_the_dropped_message_that_used_it_last() {
    let (told, ended) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let is_dropped = Barrier::new(2);
        tried(2, |rank| {
            let Rank { world, communicator, .. } = rank;
            let mut cells = rank.zeros()?;
            let small = cells.section(0..1)?;
            if world.rank() == 1 {
                // A message that had gone would keep nothing.
                is_dropped.wait();
                let into = Buffer::<f64>::zeros(world, &rank.stream, LONG)?;
                communicator.recv_section(&into.section(0..LONG.points[2])?, 0, 5)?;
                world.barrier()?;
                // Rank 0 sweeps meanwhile.
                sleep(10 * SLOW);
                communicator.send(&[7.0], 0, 7)?;
                return communicator.recv_section(&small, 0, 6).map(|_| ());
            }
            {
                let options = StreamOptions { kind: StreamKind::Threaded, threads: 1 };
                let stream = Device::host().stream_with(world, options)?;
                let buffer = Buffer::<f64>::zeros(world, &stream, LONG)?;
                let first = Buffer::<f64>::zeros(world, &stream, LINE)?.section(0..1)?;
                let operations = OperationQueue::new(&stream, communicator)?;
                operations.enqueue_recv(&first, 1, 7)?;
                operations.enqueue_start()?;
                operations.enqueue_wait()?;
                drop(communicator.isend(&buffer.section(0..LONG.points[2])?, 1, 5)?);
            }
            is_dropped.wait();
            world.barrier()?;
            rank.fill(&mut cells, 6.0)?;
            communicator.isend(&small, 1, 6)?.wait().map(|_| ())
        });
        told.send(()).expect("somebody listens");
    });
    ended.recv_timeout(Duration::from_secs(60)).expect("both ranks end");
}
