//! Ranks that let go of what others still use: whoever waits for them is told so, at once and by name, and gets what
//! they had sent before.

use super::Done;
use super::periods::Stepped;
use crate::{Scenario, TIMEOUT, expect_all, outcomes, stream_of};
use std::time::{Duration, Instant};
use streamhalo::comm::collective::AllReduce;
use streamhalo::comm::device::{Buffer, Extents};
use streamhalo::comm::queue::{Queue, match_one};
use streamhalo::comm::window::{ActiveOptions, Group, Mode, Window};
use streamhalo::comm::{Communicator, Error, Source, Tag};
use streamhalo::{HaloError, Op, Pattern, Stream, StreamKind, World};

/// More than a packet holds, and more than libraries send without asking.
pub const LONG: usize = 40_000;
/// Less than that.
pub const SHORT: usize = 40;

fn said<T: std::fmt::Debug>(leaver: usize, result: Result<T, Error>) {
    match result {
        Err(Error::PeerFailed { rank, operation }) if operation.contains("dropped its") => {
            assert_eq!(rank, leaver, "{operation}");
        }
        other => panic!("rank {leaver} has left, and this is said of it: {other:?}"),
    }
}

/// The last rank drops its communicator; the others receive what it has sent, and nothing else.
pub fn communicators(world: &World, way: Scenario) -> Result<Done, HaloError> {
    let (size, leaver) = (world.size(), world.size() - 1);
    let stream = stream_of(world, way.kind)?;
    let communicator = Communicator::new(world)?;
    let whole = Extents { points: [1, 1, LONG], components: 1 };
    if world.rank() == leaver {
        for peer in 0..leaver {
            communicator.send(&[7_i32, peer as i32], peer, 1)?;
            communicator.send(&vec![peer as f64; LONG], peer, 2)?;
        }
        // One that is announced to all, and that none has asked for when this rank goes.
        let announced = Buffer::<f64>::zeros(world, &stream, whole)?;
        for peer in 0..leaver {
            drop(communicator.isend(&announced.section(0..LONG)?, peer, 8)?);
        }
        drop(communicator);
        world.barrier()?;
        world.barrier()?;
        return Ok(Done::default());
    }
    let mut long = vec![0.0; LONG];
    communicator.recv(&mut long, leaver, 2)?;
    assert!(long.iter().all(|element| *element == world.rank() as f64));
    let mut receive = Buffer::<f64>::zeros(world, &stream, whole)?;
    said(leaver, communicator.irecv(&receive.section(0..LONG)?, leaver, 3)?.wait());
    world.barrier()?;
    // What this rank asks of it, it does not answer; nobody waits for that when the communicator goes.
    let mut asked = Buffer::<f64>::zeros(world, &stream, whole)?;
    said(leaver, communicator.irecv(&asked.section(0..LONG)?, leaver, 8)?.wait());
    // What came before it left is still there.
    let mut short = [0; 2];
    communicator.recv(&mut short, leaver, 1)?;
    assert_eq!(short, [7, world.rank() as i32]);
    said(leaver, communicator.recv(&mut short, leaver, 1));
    said(leaver, communicator.probe(leaver, Tag::Any));
    said(leaver, communicator.send(&long, leaver, 4));
    if size == 2 {
        said(leaver, communicator.recv(&mut short, Source::Any, Tag::Any));
    }
    let mut request = communicator.recv_init(&receive.section(0..9)?, leaver, 5)?;
    said(leaver, match_one(&mut request));
    drop(request);
    assert_eq!(receive.view_mut(whole.whole())?.len(), LONG, "a request that has failed lends nothing");
    // The others still have each other.
    if let Some(other) = world.rank().checked_sub(1) {
        communicator.send(&[1_u8], other, 6)?;
    }
    if world.rank() + 1 < leaver {
        communicator.recv(&mut [0_u8], world.rank() + 1, 6)?;
    }
    let begun = Instant::now();
    drop(communicator);
    assert!(begun.elapsed() < TIMEOUT / 4, "it has waited {:?} for a rank that has left", begun.elapsed());
    if world.fabric().is_mapped(leaver) {
        assert_eq!(asked.view_mut(whole.whole())?.len(), LONG, "nobody writes it any more");
    }
    world.barrier()?;
    Ok(Done::default())
}

/// The last rank drops its window of notified accesses.
pub fn windows(world: &World, way: Scenario) -> Result<Done, HaloError> {
    let leaver = world.size() - 1;
    let window = Window::allocate::<i32>(world, &stream_of(world, way.kind)?, 100)?;
    if world.rank() == leaver {
        (0..leaver).try_for_each(|peer| window.put_notify(&[3; 50], peer, 0, 3))?;
        drop(window);
        world.barrier()?;
        return Ok(Done::default());
    }
    let mut first = window.notify_init(Source::Rank(leaver), Tag::Any, 1)?;
    first.start()?;
    assert_eq!(first.wait()?.tag, 3);
    let mut come = [0; 50];
    window.read(0, &mut come)?;
    assert_eq!(come, [3; 50]);
    first.start()?;
    said(leaver, first.wait());
    said(leaver, window.put_notify(&[1], leaver, 0, 0));
    said(leaver, window.put_notify(&[1; 90], leaver, 0, 0));
    said(leaver, window.flush(leaver));
    said(leaver, window.fetch_and_op_notify(1, leaver, 0, Op::Sum, 0));
    if leaver == 1 {
        let mut any = window.notify_init(Source::Any, Tag::Any, 1)?;
        any.start()?;
        said(leaver, any.wait());
    }
    world.barrier()?;
    Ok(Done::default())
}

/// An end of an active window of ten elements.
struct End {
    stream: Stream,
    part: Buffer<i32>,
    source: Buffer<i32>,
    window: Window,
}

impl End {
    fn new(world: &World, kind: StreamKind) -> Result<Self, HaloError> {
        let stream = stream_of(world, kind)?;
        let row = |elements| Extents { points: [1, 1, elements], components: 1 };
        let part = Buffer::<i32>::zeros(world, &stream, row(10))?;
        let mut source = Buffer::<i32>::zeros(world, &stream, row(4))?;
        source.with_host_mut(row(4).whole(), |mut view| view.fill(1 + world.rank() as i32))?;
        let window = Window::active(world, &part.section(0..10)?, ActiveOptions::default())?;
        Ok(Self { stream, part, source, window })
    }

    /// Puts to a peer, once it is exposed.
    fn access(&self, peer: &Group, mode: Mode) -> Result<(), Error> {
        self.window.start(peer, mode)?;
        self.window.put(&self.source.section(0..4)?, peer.ranks()[0], 2)?;
        match mode {
            Mode::Host => self.window.complete(),
            Mode::Stream => self.window.complete_stream(&self.stream),
        }
    }
}

/// The last rank drops its window between epochs: nobody else can have one with it, in whichever call it is waited
/// for.
pub fn epochs(world: &World, way: Scenario) -> Result<Done, HaloError> {
    let (rank, leaver) = (world.rank(), world.size() - 1);
    let end = End::new(world, way.kind)?;
    let window = &end.window;
    if leaver > 0 && (rank == 0 || rank == leaver) {
        let peer = Group::new(world, &[if rank == 0 { leaver } else { 0 }])?;
        window.post(&peer)?;
        end.access(&peer, Mode::Host)?;
        window.wait()?;
        if rank == 0 {
            window.post(&peer)?;
            said(leaver, window.wait());
            window.post(&peer)?;
            let tested = std::iter::repeat_with(|| window.test()).find(|tested| *tested != Ok(false));
            said(leaver, tested.expect("it is repeated"));
            said(leaver, end.access(&peer, Mode::Host));
            // Whoever is waited for first, it is the one that does not come.
            let all = Group::new(world, &(0..=leaver).collect::<Vec<_>>())?;
            window.post(&all)?;
            said(leaver, window.wait());
            said(leaver, end.access(&all, Mode::Host));
        }
    }
    if rank == leaver {
        drop(end);
    }
    world.barrier()?;
    Ok(Done::default())
}

/// The last rank lets go as soon as it has had all that rank 0 has for it, which may not know yet that it is done.
pub fn at_once(world: &World, way: Scenario) -> Result<Done, HaloError> {
    let (rank, leaver) = (world.rank(), world.size() - 1);
    let whole = Extents { points: [1, 1, LONG], components: 1 };
    for round in 1..=6 {
        let stream = stream_of(world, way.kind)?;
        let mut buffer = Buffer::<f64>::zeros(world, &stream, whole)?;
        buffer.with_host_mut(whole.whole(), |mut all| all.fill(f64::from(round) * rank as f64))?;
        let section = buffer.section(0..LONG)?;
        let window = Window::active(world, &section, ActiveOptions::default())?;
        let communicator = Communicator::new(world)?;
        let peer = Group::new(world, &[if rank == 0 { leaver } else { 0 }])?;
        if leaver > 0 && rank == 0 {
            window.start(&peer, Mode::Host)?;
            window.put(&section, leaver, 0)?;
            window.complete()?;
            communicator.isend(&section, leaver, 1)?.wait()?;
        } else if leaver > 0 && rank == leaver {
            window.post(&peer)?;
            window.wait()?;
            drop(window);
            assert!(buffer.copy_out(whole.whole())?.iter().all(|element| *element == 0.0));
            communicator.irecv(&section, 0, 1)?.wait()?;
            drop(communicator);
        }
        world.barrier()?;
    }
    Ok(Done::default())
}

/// The last rank drops its window while an epoch of it is still on its stream, which that carries out. Then rank 0's
/// stream waits for one more, by an access of its own or by one of the other's, and fails, and with it the world.
///
/// # Errors
/// Those of calls that must succeed.
///
/// # Panics
/// If the stream says otherwise.
pub fn streamed(world: &World, kind: StreamKind, is_origin: bool) -> Result<(), HaloError> {
    let (rank, leaver) = (world.rank(), world.size() - 1);
    let end = End::new(world, kind)?;
    let End { stream, part, window, .. } = &end;
    if rank != 0 && rank != leaver {
        return Ok(());
    }
    let peer = Group::new(world, &[leaver - rank])?;
    if rank == leaver {
        stream.enqueue_host("being late", || {
            std::thread::sleep(Duration::from_millis(50));
            Ok(())
        });
    }
    window.post_stream(&peer, stream)?;
    end.access(&peer, Mode::Stream)?;
    window.wait_stream(stream)?;
    if rank == leaver {
        let End { stream, window, part, .. } = end;
        drop(window);
        // It may see the failure of the other, which comes behind what it waits for.
        let ended = stream.synchronize();
        assert!(matches!(ended, Ok(()) | Err(Error::PeerFailed { rank: 0, .. })), "{ended:?}");
        assert_eq!(part.copy_out(part.extents().whole())?[2..6], [1; 4]);
        return Ok(());
    }
    stream.synchronize()?;
    assert_eq!(part.copy_out(part.extents().whole())?[2..6], [1 + leaver as i32; 4]);
    if is_origin {
        end.access(&peer, Mode::Stream)?;
    } else {
        window.post_stream(&peer, stream)?;
        window.wait_stream(stream)?;
    }
    said(leaver, stream.synchronize());
    Ok(())
}

/// The last rank drops a matched request while an epoch of it is still on its stream, which that carries out; it may have
/// started the next one, which may come or not. Then rank 0's stream waits for one more, and fails, and with it the world.
///
/// # Errors
/// Those of calls that must succeed.
///
/// # Panics
/// If the stream says otherwise.
pub fn requested(
    world: &World,
    kind: StreamKind,
    is_sender: bool,
    is_started: bool,
) -> Result<(), HaloError> {
    let (rank, leaver) = (world.rank(), world.size() - 1);
    let stream = stream_of(world, kind)?;
    let communicator = Communicator::new(world)?;
    if rank != 0 && rank != leaver {
        return Ok(());
    }
    let queue = Queue::new(&stream, &communicator)?;
    let line = Extents { points: [1, 1, 4], components: 1 };
    let mut buffer = Buffer::<i32>::zeros(world, &stream, line)?;
    buffer.with_host_mut(line.whole(), |mut all| all.fill(1 + rank as i32))?;
    let section = buffer.section(0..4)?;
    let sends = (rank == leaver) == is_sender;
    let mut request = match sends {
        true => communicator.send_init(&section, leaver - rank, 1)?,
        false => communicator.recv_init(&section, leaver - rank, 1)?,
    };
    match_one(&mut request)?;
    if rank == leaver {
        stream.enqueue_host("being late", || {
            std::thread::sleep(Duration::from_millis(50));
            Ok(())
        });
    }
    queue.enqueue_start(&mut request)?;
    queue.enqueue_wait(&mut request)?;
    let sender = if is_sender { leaver } else { 0 };
    if rank == leaver {
        if is_started {
            queue.enqueue_start(&mut request)?;
        }
        drop(request);
        // It may see the failure of the other, which comes behind what it waits for.
        let ended = stream.synchronize();
        assert!(matches!(ended, Ok(()) | Err(Error::PeerFailed { rank: 0, .. })), "{ended:?}");
        if !is_started {
            assert_eq!(buffer.copy_out(line.whole())?, [1 + sender as i32; 4]);
        }
        return Ok(());
    }
    queue.wait()?;
    assert_eq!(buffer.copy_out(line.whole())?, [1 + sender as i32; 4]);
    let mut one_more = || {
        queue.enqueue_start(&mut request)?;
        queue.enqueue_wait(&mut request)?;
        queue.wait()
    };
    let mut ended = one_more();
    let has_come = ended.is_ok() && is_started;
    if has_come {
        ended = one_more();
    }
    let epoch = format!("of epoch {}", if has_come { 3 } else { 2 });
    assert!(
        matches!(&ended, Err(Error::PeerFailed { operation, .. }) if operation.contains(&epoch)),
        "{ended:?}"
    );
    said(leaver, ended);
    Ok(())
}

/// An exchange that the last of some threads drops, at each moment. What is set is set by each of them.
///
/// # Panics
/// If the others are told anything else, or are not told in time.
pub fn each_exchange(ranks: usize, way: Scenario, set: &(dyn Fn() + Sync)) {
    let tried = |leave: &(dyn Fn(&World) -> Result<(), HaloError> + Sync)| {
        expect_all(outcomes(ranks, |world| {
            set();
            leave(world)
        }));
    };
    tried(&|world| exchanged(world, way, false));
    tried(&|world| exchanged_one_way(world, way));
    tried(&|world| exchanged_in_part(world, way, LONG));
    if way.backend == "standard" {
        // Short messages are taken from whoever sends them.
        tried(&|world| exchanged_in_part(world, way, SHORT));
    } else {
        // Messages that the host starts are not captured.
        tried(&|world| exchanged(world, way, true));
    }
}

/// The last rank drops its exchange while the last of two or three is still on its stream, which carries that out; and then, if
/// `is_replayed`, a period of it, which both have replayed meanwhile. The others' next exchange fails, and with it the
/// world.
///
/// # Errors
/// Those of calls that must succeed.
///
/// # Panics
/// If the others are told anything else.
pub fn exchanged(world: &World, way: Scenario, is_replayed: bool) -> Result<(), HaloError> {
    let leaver = world.size() - 1;
    let stream = stream_of(world, way.kind)?;
    let mut stepped = Stepped::new(world, &stream, way, SHORT, Pattern::All)?;
    let period = is_replayed.then(|| stepped.capture(2)).transpose()?;
    // A period begins in the generation in which it was captured.
    (0..if is_replayed { 1 } else { 2 }).try_for_each(|_| stepped.step())?;
    if world.rank() == leaver {
        stream.enqueue_host("being late", || {
            std::thread::sleep(Duration::from_millis(50));
            Ok(())
        });
    }
    stepped.step()?;
    if world.rank() == leaver {
        let Stepped { halo, cells, .. } = stepped;
        drop(halo);
        if let Some(period) = period {
            std::thread::sleep(Duration::from_millis(50));
            stream.replay(&period, 2)?;
        }
        drop(cells);
        // It may see the failure of the others, which comes behind what it waits for.
        let ended = stream.synchronize();
        assert!(matches!(ended, Ok(()) | Err(Error::PeerFailed { .. })), "{ended:?}");
        return Ok(());
    }
    if let Some(period) = period {
        stream.replay(&period, 2)?;
    }
    stream.synchronize()?;
    let ended = stepped.step().and_then(|()| Ok(stream.synchronize()?));
    match ended.expect_err("nobody exchanges with it") {
        HaloError::Communication(Error::PeerFailed { operation, .. }) => {
            assert!(operation.contains("dropped its"), "{way:?}: {operation}");
        }
        other => panic!("rank {leaver} has left, and this is said of it, {way:?}: {other:?}"),
    }
    Ok(())
}

/// The last rank drops its exchange, in which it only receives. Whoever sends to it may do so for a while, but not for ever;
/// the first that cannot fails, and with it the world.
///
/// # Errors
/// Those of calls that must succeed.
///
/// # Panics
/// If the others are told anything else.
pub fn exchanged_one_way(world: &World, way: Scenario) -> Result<(), HaloError> {
    let leaver = world.size() - 1;
    let stream = stream_of(world, way.kind)?;
    let mut stepped = Stepped::one_way(world, &stream, way, SHORT)?;
    stepped.steps(2)?;
    if world.rank() == leaver {
        let Stepped { halo, .. } = stepped;
        drop(halo);
        let ended = stream.synchronize();
        assert!(matches!(ended, Ok(()) | Err(Error::PeerFailed { .. })), "{ended:?}");
        return Ok(());
    }
    stream.synchronize()?;
    told_in_time(&mut stepped, way);
    Ok(())
}

/// Goes on until it is told that a rank has left.
fn told_in_time(stepped: &mut Stepped, way: Scenario) {
    let (stream, begun) = (stepped.stream.clone(), Instant::now());
    let ended = loop {
        let ended = stepped.step().and_then(|()| Ok(stream.synchronize()?));
        let took = begun.elapsed();
        assert!(took < TIMEOUT, "nobody has said for {took:?} that a rank has left, {way:?}: {ended:?}");
        if let Err(error) = ended {
            break error;
        }
    };
    match ended {
        HaloError::Communication(Error::PeerFailed { operation, .. }) => {
            assert!(operation.contains("dropped its"), "{way:?}: {operation}");
        }
        other => panic!("a rank has left, and this is said of it, {way:?}: {other:?}"),
    }
}

/// The last rank begins an exchange of messages, short or long, and drops it before it is finished. The others may have
/// that one or not, and no other.
///
/// # Errors
/// Those of calls that must succeed.
///
/// # Panics
/// If the others are told anything else, or are not told in time.
pub fn exchanged_in_part(world: &World, way: Scenario, columns: usize) -> Result<(), HaloError> {
    let stream = stream_of(world, way.kind)?;
    let mut stepped = Stepped::new(world, &stream, way, columns, Pattern::All)?;
    stepped.steps(2)?;
    if world.rank() + 1 == world.size() {
        let Stepped { mut halo, mut cells, .. } = stepped;
        drop(halo.begin_gather(&mut cells)?);
        drop(halo);
        // It may see the failure of the others.
        let ended = stream.synchronize();
        assert!(matches!(ended, Ok(()) | Err(Error::PeerFailed { .. })), "{ended:?}");
        return Ok(());
    }
    stream.synchronize()?;
    told_in_time(&mut stepped, way);
    Ok(())
}

/// The last rank drops a reduction, of which the others' streams then do one more: that fails, and with it the world.
///
/// # Errors
/// Those of calls that must succeed.
///
/// # Panics
/// If the others are told anything else.
pub fn reduced(world: &World, way: Scenario) -> Result<(), HaloError> {
    let leaver = world.size() - 1;
    let stream = stream_of(world, way.kind)?;
    let line = Extents { points: [1, 1, 4], components: 1 };
    let mut buffer = Buffer::<i32>::zeros(world, &stream, line)?;
    let all = buffer.section(0..4)?;
    let mut reduction = AllReduce::with_backend(world, &stream, way.backend, (&all, &all), Op::Sum)?;
    buffer.with_host_mut(line.whole(), |mut all| all.fill(1))?;
    reduction.enqueue()?;
    if world.rank() == leaver {
        drop(reduction);
        let ended = stream.synchronize();
        assert!(matches!(ended, Ok(()) | Err(Error::PeerFailed { .. })), "{ended:?}");
        return Ok(());
    }
    stream.synchronize()?;
    assert_eq!(buffer.copy_out(line.whole())?, [world.size() as i32; 4]);
    let ended = reduction.enqueue().and_then(|()| stream.synchronize());
    match ended.expect_err("nobody reduces with it") {
        Error::PeerFailed { operation, .. } => assert!(operation.contains("dropped its"), "{operation}"),
        other => panic!("rank {leaver} has left, and this is said of it, {way:?}: {other:?}"),
    }
    Ok(())
}
