//! Exchanges and worlds that end at odd moments, and in odd threads.

use super::modes::{Outcome, small_grid};
use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;
use streamhalo::comm::backend::{Direct, ExchangeSpec, MessageSpec, Slot, match_exchange};
use streamhalo::comm::device::{Buffer, Extents, Move, MoveTable};
use streamhalo::comm::queue::{Queue, match_one};
use streamhalo::comm::window::{ActiveOptions, Group, Window};
use streamhalo::comm::{Communicator, Error, Source, Tag};
use streamhalo::prelude::*;
use streamhalo::{ElementType, Op, StreamKind};
use streamhalo_tests::stream_of;

const BYTES: usize = 64;

fn message(peer: usize) -> MessageSpec {
    MessageSpec {
        peer,
        tag: 1,
        elements: vec![(ElementType::U8, BYTES)],
        bytes: BYTES,
        run_bytes: BYTES,
        direct: Direct::Never,
        ghosts: Vec::new(),
    }
}

/// Rank 0 exposes its memory to the last rank, which never puts anything there.
pub(crate) fn begun(world: &World) -> Outcome {
    let stream = stream_of(world, StreamKind::Inline)?;
    let (rank, last) = (world.rank(), world.size() - 1);
    let to = |is_there: bool, peer| if is_there { vec![message(peer)] } else { Vec::new() };
    let spec = ExchangeSpec { sends: to(rank == last, 0), recvs: to(rank == 0, last), last_epoch: 0 };
    let mut exchange = match_exchange(world, &stream, "active-rma", spec)?;
    let extents = Extents { points: [1, 1, BYTES], components: 1 };
    let sent = Buffer::<u8>::zeros(world, &stream, extents)?;
    let copy = |phase| -> Result<Arc<MoveTable>, Error> {
        let Slot::Packed(place) = exchange.send_slot(0, phase) else { panic!("there are no ghosts") };
        let one = Move::of_bytes(sent.place([0; 3])?, place, BYTES);
        Ok(Arc::new(MoveTable::new(&[vec![one]])?))
    };
    let moves = if rank == last { vec![[copy(0)?, copy(1)?]] } else { Vec::new() };
    exchange.bind(moves)?;
    if rank == 0 {
        exchange.start_recvs(&stream)?;
    }
    // Whoever carries it goes round meanwhile.
    std::thread::sleep(Duration::from_millis(20));
    world.barrier()?;
    drop(exchange);
    // Others are made, and freed, all the same.
    let (stream, grid) = small_grid(world, StreamKind::Inline)?;
    let mut cells = Array::<f64, 2>::zeros(&grid, Entity::Cell, &stream)?;
    for _ in 0..2 {
        StreamHalo::new(world, &stream, "active-rma", Pattern::All, 1, &mut cells)?.gather(&mut cells)?;
    }
    Ok(())
}

/// What a thread drops as it ends, in this order.
type Kept = Option<(StreamHalo, Array<f64, 2>, World)>;

pub(crate) fn at_thread_end() -> Outcome {
    thread_local! {
        static KEPT: RefCell<Kept> = const { RefCell::new(None) };
    }
    // What is first looked at lives longest: longer than what the library keeps for the thread.
    KEPT.with_borrow_mut(|kept| {
        let world = World::from_env()?;
        let (stream, grid) = small_grid(&world, StreamKind::Inline)?;
        let mut cells = Array::<f64, 2>::zeros(&grid, Entity::Cell, &stream)?;
        let mut halo = StreamHalo::new(&world, &stream, "st-send", Pattern::All, 1, &mut cells)?;
        halo.gather(&mut cells)?;
        *kept = Some((halo, cells, world));
        Ok(())
    })
}

pub(crate) fn in_other_thread() -> Outcome {
    drop(World::from_env()?);
    let made = std::thread::spawn(|| World::from_env().map(drop)).join().expect("it does not panic");
    match made {
        Err(Error::FabricUnavailable { reason, .. }) => println!("refused: {reason}"),
        other => return Err(format!("another thread makes a world: {other:?}").into()),
    }
    Ok(())
}

/// The last rank ends its process with status 0 while rank 0 waits for it, and is told so.
pub(crate) fn quit(world: &World, wait: &str) -> Outcome {
    let (rank, last) = (world.rank(), world.size() - 1);
    let stream = stream_of(world, StreamKind::Inline)?;
    let communicator = Communicator::new(world)?;
    let line = Extents { points: [1, 1, 40_000], components: 1 };
    let buffer = Buffer::<f64>::zeros(world, &stream, line)?;
    let section = buffer.section(0..40_000)?;
    let notified = Window::allocate::<f64>(world, &stream, 8)?;
    let active = Window::active(world, &section, ActiveOptions::default())?;
    let queue = Queue::new(&stream);
    let mut request = if rank == 0 {
        communicator.recv_init(&section, last, 1)?
    } else {
        communicator.send_init(&section, 0, 1)?
    };
    if wait == "queue" && [0, last].contains(&rank) {
        match_one(&mut request)?;
    }
    world.barrier()?;
    if rank == last {
        // It is waited for by then.
        std::thread::sleep(Duration::from_millis(300));
        std::process::exit(0);
    }
    let mut values = vec![0.0; 40_000];
    let waited = match wait {
        "message" => communicator.recv(&mut values, last, 2).map(drop),
        "room" => communicator.send(&values, last, 2),
        "notification" => {
            let mut notification = notified.notify_init(Source::Any, Tag::Any, 1)?;
            notification.start()?;
            notification.wait().map(drop)
        }
        "epoch" => {
            active.post(&Group::new(world, &[last])?)?;
            active.wait()
        }
        "queue" => {
            queue.enqueue_start(&mut request)?;
            queue.enqueue_wait(&mut request)?;
            queue.wait()
        }
        "match" => match_one(&mut request),
        "barrier" => world.barrier(),
        "allreduce" => communicator.allreduce(&mut values, Op::Sum),
        other => return Err(format!("nobody waits for `{other}`").into()),
    };
    match waited {
        Err(Error::PeerFailed { rank: blamed, operation }) if blamed == last => {
            println!("rank {rank} was told: {operation}");
            Ok(())
        }
        other => Err(format!("rank {last} has ended, and this is said of it: {other:?}").into()),
    }
}

/// The last rank sends all that the others want of it, and ends its process with status 0. They have what they want, and drop
/// their worlds.
pub(crate) fn quit_late(world: &World) -> Outcome {
    let last = world.size() - 1;
    let communicator = Communicator::new(world)?;
    if world.rank() == last {
        (0..last).try_for_each(|peer| communicator.send(&[7_i32], peer, 1))?;
        std::process::exit(0);
    }
    let mut come = [0_i32];
    communicator.recv(&mut come, last, 1)?;
    assert_eq!(come, [7]);
    Ok(())
}
