//! A reduction whose result all ranks get, on their streams.

use super::rounds::{RoundMoves, Rounds};
use super::turns::{self, Turn};
use super::{AT_ONCE_BYTES, BACKEND};
use crate::backend::{Exchange, Route, Slot, check_named};
use crate::device::{Buffer, DeviceMemory, Extents, Intent, Move, MoveTable, Section, Stream};
use crate::element::{ElementType, Op};
use crate::error::{Error, Result};
use crate::fabric::Place;
use crate::world::World;
use std::sync::Arc;

/// A reduction of one section of every rank into one of every rank, matched once.
///
/// Values are combined in an order that depends on the number of ranks only, as a tree over neighbouring ranks:
/// neighbours first, then pairs of neighbours, and so on. Where there are 2ⁿ + k ranks, ranks 2i and 2i + 1 with
/// i < k are combined first and then count as one. So the result has the same bits on every rank, backend, fabric
/// and device, whatever is added: those that [`Communicator::allreduce`](crate::Communicator::allreduce) gives.
/// With [`Op::Replace`] it is the section of the last rank.
///
/// Small sections of up to four ranks go from all to all in one round. Otherwise it takes log₂ of the ranks
/// rounds of pairwise exchanges (recursive doubling), and two more where the number of ranks is no power of two.
/// Sections may live on the stream's device, whose kernels then combine them.
/// The host does not take part: on a network with triggered operations one round triggers the next through the
/// stream.
///
/// ```
/// use streamhalo_comm::collective::AllReduce;
/// use streamhalo_comm::device::{Buffer, Device, Extents};
/// use streamhalo_comm::{Error, Op, World, WorldOptions};
///
/// fn rank_main(world: World) -> Result<Vec<f64>, Error> {
///     let stream = Device::host().stream(&world)?;
///     let two = Extents { points: [1, 1, 2], components: 1 };
///     let mut own = Buffer::<f64>::zeros(&world, &stream, two)?;
///     let sum = Buffer::<f64>::zeros(&world, &stream, two)?;
///     let (from, to) = (own.section(0..2)?, sum.section(0..2)?);
///     let mut allreduce = AllReduce::new(&world, &stream, &from, &to, Op::Sum)?;
///     own.view_mut(two.whole())?.fill(1.0 + world.rank() as f64);
///     allreduce.enqueue()?; // and what follows on the stream finds the sum
///     sum.copy_out(two.whole())
/// }
///
/// # fn main() -> Result<(), Error> {
/// let ranks = World::threads(3, WorldOptions::default(), rank_main)?;
/// assert_eq!(ranks, [Ok(vec![6.0; 2]), Ok(vec![6.0; 2]), Ok(vec![6.0; 2])]);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct AllReduce {
    stream: Stream,
    input: Section,
    output: Section,
    rounds: Rounds,
    /// Puts the result where it belongs, by phase, where the last round has not.
    closing: [Arc<MoveTable>; 2],
}

/// What a rank tells the others, who must say the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
struct Asked {
    elements: usize,
    element: ElementType,
    op: Op,
}

impl AllReduce {
    /// Matches a reduction of `input` into `output`, both of as many elements of one type on every rank: the
    /// same section, to reduce in place, or two that do not overlap. Collective; blocks. Sections without
    /// elements are allowed; nothing is sent then.
    ///
    /// # Errors
    /// [`Error::CollectiveFailed`], the same on every rank, if a section belongs to another stream, if the two
    /// differ in their size or type or overlap in part, or if a rank asks for something else than rank 0; else
    /// as [`match_exchange`](crate::backend::match_exchange).
    pub fn new(world: &World, stream: &Stream, input: &Section, output: &Section, op: Op) -> Result<Self> {
        Self::with_backend(world, stream, BACKEND, (input, output), op)
    }

    /// As [`AllReduce::new`], from the first section into the second, with messages that another
    /// [backend](crate::backend::BACKENDS) carries. With `standard` the host waits in each
    /// [`enqueue`](AllReduce::enqueue).
    ///
    /// # Errors
    /// As [`AllReduce::new`].
    pub fn with_backend(
        world: &World,
        stream: &Stream,
        backend: &str,
        (input, output): (&Section, &Section),
        op: Op,
    ) -> Result<Self> {
        const CALL: &str = "AllReduce::new";
        let own = ask(world, stream, (input, output), op).map(|asked| (asked, backend.to_string()));
        let told: Vec<(Asked, String)> = world.agree(CALL, own)?;
        let asked = told[0].0;
        if let Some((rank, (other, _))) = told.iter().enumerate().find(|(_, (other, _))| *other != asked) {
            let reason = format!("it asked for {other}, rank 0 for {asked}");
            return Err(Error::CollectiveFailed { call: CALL, rank, reason });
        }
        // Before any round: sections without elements have none.
        check_named(told.iter().map(|(_, name)| name.as_str()))?;
        let mut build = Build { world, stream, backend, asked, rounds: Rounds::none() };
        let closing = build.all(input.place(), output.place())?;
        let rounds = build.rounds;
        Ok(Self { stream: stream.clone(), input: input.clone(), output: output.clone(), rounds, closing })
    }

    /// Enqueues the reduction (`enqueue_allreduce`): what precedes it on the stream may write the input, and
    /// what follows may read the output and write both. All ranks enqueue it equally often, and in the same
    /// order among the collectives of their world. Does not block, except that an inline stream carries it out
    /// at once and another one may first have to [make room](crate::device::StreamKind::Threaded).
    ///
    /// # Errors
    /// [`Error::InUse`] if an operation that has begun outside of the stream still uses a section; the stream's
    /// error if it has failed already; that the network interface has no room, where the application is to
    /// make some. Nothing has been sent then, and it may be called again. What fails later surfaces at
    /// [`Stream::synchronize`].
    #[doc(alias = "enqueue_allreduce")]
    pub fn enqueue(&mut self) -> Result<()> {
        // Operations on the stream are in order already, so the sections are not kept from those.
        drop(self.output.hold_in_order(Intent::Write, "an allreduce")?);
        if !self.is_in_place() {
            drop(self.input.hold_in_order(Intent::Read, "an allreduce")?);
        }
        let phase = self.rounds.enqueue(&self.stream)?;
        if self.closing[phase].nests() > 0 {
            self.stream.put_move(&self.closing[phase]);
        }
        self.input.leave(Intent::Read);
        self.output.leave(Intent::Write);
        Ok(())
    }

    /// How each message of this rank travels, round by round.
    pub fn routes(&self) -> Vec<Route> {
        self.rounds.routes()
    }

    fn is_in_place(&self) -> bool {
        is_same(self.input.place(), self.output.place())
    }
}

fn is_same(one: &Place, other: &Place) -> bool {
    one.region().is_same(other.region()) && one.offset() == other.offset()
}

/// What this rank asks for, if its own sections allow it.
fn ask(world: &World, stream: &Stream, (input, output): (&Section, &Section), op: Op) -> Result<Asked> {
    stream.check_world(world, "an allreduce")?;
    for (what, section) in [("the input of an allreduce", input), ("the output of an allreduce", output)] {
        if section.stream().id() != stream.id() {
            return Err(Error::WrongStream { what, owner: section.stream().id(), used: stream.id() });
        }
    }
    if input.element_type() != output.element_type() {
        let (asked, found) = (input.element_type(), output.element_type());
        return Err(Error::ElementMismatch { what: "the output of an allreduce", asked, found });
    }
    let bytes = |section: &Section| section.place().offset()..section.place().offset() + section.bytes();
    let (from, to) = (bytes(input), bytes(output));
    if input.elements() != output.elements() {
        return Err(Error::OutOfBounds {
            what: "the result of an allreduce",
            start: 0,
            end: input.bytes(),
            region_bytes: output.bytes(),
        });
    }
    let overlap =
        input.place().region().is_same(output.place().region()) && from.start < to.end && to.start < from.end;
    if overlap && from != to {
        let (start, end) = (to.start, to.end);
        return Err(Error::InUse { what: "the output of an allreduce", start, end, by: "its input" });
    }
    Ok(Asked { elements: input.elements(), element: input.element_type(), op })
}

/// Makes the rounds of a reduction.
#[derive(Debug)]
struct Build<'a> {
    world: &'a World,
    stream: &'a Stream,
    backend: &'a str,
    asked: Asked,
    rounds: Rounds,
}

impl Build<'_> {
    /// Adds all rounds; gives the moves behind the last.
    fn all(&mut self, input: &Place, output: &Place) -> Result<[Arc<MoveTable>; 2]> {
        let (rank, ranks) = (self.world.rank(), self.world.size());
        // Where the value is that this rank has so far, by phase.
        let mut value = [input.clone(), input.clone()];
        let at_once = ranks <= turns::AT_ONCE_RANKS && self.bytes() <= AT_ONCE_BYTES;
        let turns = if self.bytes() == 0 { Vec::new() } else { turns::allreduce(rank, ranks, at_once) };
        for turn in turns {
            let others = || (0..ranks).filter(|other| *other != rank).collect::<Vec<_>>();
            let (to, from) = match turn {
                Turn::Rest => (vec![], vec![]),
                Turn::Fold(peer) | Turn::Spread(peer) => (vec![peer], vec![]),
                Turn::Unite(peer) | Turn::Learn(peer) => (vec![], vec![peer]),
                Turn::Swap(peer) => (vec![peer], vec![peer]),
                Turn::All => (others(), others()),
            };
            let message = (self.asked.element, self.asked.elements);
            let exchange = Rounds::matched(self.world, self.stream, self.backend, message, (&to, &from))?;
            // A rank that finds something wrong from here on would leave the others waiting.
            let moves = self.moves(&*exchange, turn, (&to, &from), &mut value, [input, output]);
            self.world.agree("AllReduce::new", moves.as_ref().map(|_| ()))?;
            self.rounds.push(exchange, to.is_empty() && from.is_empty(), moves?)?;
        }
        by_phase(|phase| match is_same(&value[phase], output) {
            true => Ok(Vec::new()),
            false => Ok(vec![self.step(&value[phase], output, Op::Replace)]),
        })
    }

    fn bytes(&self) -> usize {
        self.asked.elements * self.asked.element.bytes()
    }

    /// The moves of a round; `value` then says where its outcome is.
    fn moves(
        &self,
        exchange: &dyn Exchange,
        turn: Turn,
        (to, from): (&[usize], &[usize]),
        value: &mut [Place; 2],
        [input, output]: [&Place; 2],
    ) -> Result<RoundMoves> {
        let sent = |message: usize, phase: usize| match exchange.send_slot(message, phase) {
            Slot::Packed(place) => place,
            Slot::Ghosts(_) => unreachable!("the receiver has said `Direct::Never`"),
        };
        let pack = |message: usize| {
            by_phase(|phase| Ok(vec![self.step(&value[phase], &sent(message, phase), Op::Replace)]))
        };
        let sends = (0..to.len()).map(pack).collect::<Result<Vec<_>>>()?;
        let rank = self.world.rank();
        let landings = self.landings(exchange, from, input)?;
        let combine = |value: &mut Place, phase: usize| -> Vec<Vec<Move>> {
            let slot =
                |message: usize| exchange.recv_slot(message, phase).expect("packed messages have a slot");
            let arrived = |message: usize| landings.get(message).cloned().unwrap_or_else(|| slot(message));
            let mut moves = Vec::new();
            if !landings.is_empty() {
                let bring = |(message, landing)| self.step(&slot(message), landing, Op::Replace);
                moves.push(landings.iter().enumerate().flat_map(bring).collect());
            }
            match turn {
                Turn::Rest | Turn::Fold(_) | Turn::Spread(_) => {}
                Turn::Learn(_) => *value = arrived(0),
                // The higher rank's value comes second on both sides, into the lower one's. Only the input
                // of a reduction that is not in place must not be changed.
                Turn::Swap(peer) if peer < rank => {
                    moves.push(self.step(value, &arrived(0), self.asked.op));
                    *value = arrived(0);
                }
                Turn::Swap(_) | Turn::Unite(_) => {
                    if is_same(value, input) && !is_same(input, output) {
                        moves.push(self.step(value, output, Op::Replace));
                        *value = output.clone();
                    }
                    moves.push(self.step(&arrived(0), value, self.asked.op));
                }
                Turn::All => {
                    if !is_same(input, output) {
                        moves.push(self.step(input, output, Op::Replace));
                    }
                    let place = |from: usize| match from.cmp(&rank) {
                        std::cmp::Ordering::Less => arrived(from),
                        std::cmp::Ordering::Equal => output.clone(),
                        std::cmp::Ordering::Greater => arrived(from - 1),
                    };
                    for (low, high) in turns::order(self.world.size()) {
                        moves.push(self.step(&place(high), &place(low), self.asked.op));
                    }
                    *value = place(0);
                }
            }
            moves
        };
        let [even, odd] = value;
        let tables = [combine(even, 0), combine(odd, 1)];
        let then = by_phase(|phase| Ok(tables[phase].clone()))?;
        Ok(RoundMoves { sends, then })
    }

    /// Where messages that come to the host's memory are brought to the device's first, whose kernels combine them:
    /// none if they come to memory like that of the input.
    fn landings(&self, exchange: &dyn Exchange, from: &[usize], input: &Place) -> Result<Vec<Place>> {
        let device = |place: &Place| place.region().on_device().map(DeviceMemory::device);
        let is_far = |message: usize| {
            let slot = exchange.recv_slot(message, 0).expect("packed messages have a slot");
            device(&slot) != device(input)
        };
        if !(0..from.len()).any(is_far) {
            return Ok(Vec::new());
        }
        let line = Extents { points: [1, 1, self.bytes()], components: 1 };
        let landing = || -> Result<Place> {
            Buffer::<u8>::zeros(self.world, self.stream, line)?.region().place(0, self.bytes(), "a landing")
        };
        from.iter().map(|_| landing()).collect()
    }

    /// A stage of its own: the stages of a table run one after the other.
    fn step(&self, source: &Place, destination: &Place, op: Op) -> Vec<Move> {
        let bytes = self.bytes();
        vec![Move {
            source: source.clone(),
            source_strides: [bytes; 2],
            destination: destination.clone(),
            destination_strides: [bytes; 2],
            counts: [1, 1],
            run_bytes: bytes,
            element: self.asked.element,
            op,
        }]
    }
}

/// Tables of the moves of both phases.
fn by_phase(stages: impl Fn(usize) -> Result<Vec<Vec<Move>>>) -> Result<[Arc<MoveTable>; 2]> {
    let table = |phase| MoveTable::new(&stages(phase)?).map(Arc::new);
    Ok([table(0)?, table(1)?])
}

impl std::fmt::Display for Asked {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?} of {} {}", self.op, self.elements, self.element)
    }
}
