//! A barrier between streams.

use super::rounds::{RoundMoves, Rounds};
use super::{BACKEND, turns};
use crate::backend::{Route, check_named};
use crate::device::{MoveTable, Stream};
use crate::element::ElementType;
use crate::error::Result;
use crate::world::World;
use std::sync::Arc;

/// A barrier between the streams of all ranks, matched once.
///
/// Up to four ranks signal each other all at once; more of them in ⌈log₂ ranks⌉ rounds, by dissemination or,
/// where their number is a power of two, by recursive doubling. The host does not take part: on a network with
/// triggered operations one round triggers the next through the stream.
///
/// ```
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicUsize, Ordering};
/// use streamhalo_comm::collective::Barrier;
/// use streamhalo_comm::device::Device;
/// use streamhalo_comm::{Error, World, WorldOptions};
///
/// # fn main() -> Result<(), Error> {
/// let come = Arc::new(AtomicUsize::new(0));
/// let ranks = World::threads(3, WorldOptions::default(), |world| {
///     let stream = Device::host().stream(&world)?;
///     let mut barrier = Barrier::new(&world, &stream)?;
///     let (come, all) = (come.clone(), come.clone());
///     stream.enqueue_host("coming", move || {
///         come.fetch_add(1, Ordering::Relaxed);
///         Ok(())
///     });
///     barrier.enqueue()?;
///     stream.enqueue_host("counting", move || match all.load(Ordering::Relaxed) {
///         3 => Ok(()),
///         fewer => Err(format!("only {fewer} have come")),
///     });
///     stream.synchronize()
/// })?;
/// assert_eq!(ranks, [Ok(()), Ok(()), Ok(())]);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Barrier {
    stream: Stream,
    rounds: Rounds,
}

impl Barrier {
    /// Matches a barrier between the streams that the ranks of `world` give. Collective; blocks.
    ///
    /// # Errors
    /// As [`match_exchange`](crate::backend::match_exchange), the same on every rank.
    pub fn new(world: &World, stream: &Stream) -> Result<Self> {
        Self::with_backend(world, stream, BACKEND)
    }

    /// As [`Barrier::new`], with signals that another [backend](crate::backend::BACKENDS) carries. With
    /// `standard` the host waits in each [`enqueue`](Barrier::enqueue).
    ///
    /// # Errors
    /// As [`Barrier::new`].
    pub fn with_backend(world: &World, stream: &Stream, backend: &str) -> Result<Self> {
        // A signal of its own would do, but what backends carry are messages: of one byte, which nobody fills.
        let signal = (ElementType::U8, 1);
        let nothing = Arc::new(MoveTable::new(&[])?);
        let nothing = [nothing.clone(), nothing];
        // Before any round: one rank alone has none.
        let own = stream.check_world(world, "a barrier").map(|()| backend.to_string());
        let told: Vec<String> = world.agree("Barrier::new", own)?;
        check_named(told.iter().map(String::as_str))?;
        let mut rounds = Rounds::none();
        for (to, from) in turns::barrier(world.rank(), world.size()) {
            let exchange = Rounds::matched(world, stream, backend, signal, (&to, &from))?;
            let moves = RoundMoves { sends: vec![nothing.clone(); to.len()], then: nothing.clone() };
            rounds.push(exchange, false, moves)?;
        }
        Ok(Self { stream: stream.clone(), rounds })
    }

    /// Enqueues the barrier (`enqueue_barrier`): what follows on the stream runs once the streams of all ranks
    /// have come to it. All ranks enqueue it equally often, and in the same order among the collectives of
    /// their world. Does not block, except that an inline stream carries it out at once and another one may first have to
    /// [make room](crate::device::StreamKind::Threaded).
    ///
    /// # Errors
    /// The stream's error if it has failed already; that the network interface has no room, where the
    /// application is to make some: nothing has been signalled then, and it may be called again. What fails
    /// later surfaces at [`Stream::synchronize`].
    #[doc(alias = "enqueue_barrier")]
    pub fn enqueue(&mut self) -> Result<()> {
        self.rounds.enqueue(&self.stream).map(|_| ())
    }

    /// How each signal of this rank travels, round by round.
    pub fn routes(&self) -> Vec<Route> {
        self.rounds.routes()
    }
}
