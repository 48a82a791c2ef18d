//! Round trips of a message that is packed, sent, received and unpacked on a stream (2026, section VI-A).
//!
//! Rank 0 sends and rank 1 receives, then back: two exchanges in one direction each. The stream-triggered
//! backends enqueue all round trips of a batch and synchronise once, or replay periods of them that were captured; `standard`
//! synchronises before each send, as it must.

use super::answers::{Answers, given, said};
use super::figure::{Figure, gigabytes_per_second};
use super::micro::{MicroBench, divided};
use super::streams::{Replayed, captured};
use super::turns::{Subject, in_turns};
use super::what::{Row, Run, Value};
use std::sync::Arc;
use streamhalo::comm::backend::{AUTO, Direct, Exchange, ExchangeSpec, MessageSpec, Slot, match_exchange};
use streamhalo::comm::device::{Buffer, Extents, Move, MoveTable};
use streamhalo::comm::fabric::{Place, phase};
use streamhalo::comm::{ElementType, Op};
use streamhalo::{HaloError, Stream, World};

use crate::error::AppError;
use crate::run::executors_of_all;

pub(super) const ROW: Row = Row {
    name: "pingpong",
    title: "round trips of a packed message on a stream",
    value: Value::Time,
    note: "Times are per round trip: pack, send, receive and unpack on both ranks.",
    varies: None,
    run: Run::Sizes(measure),
};

/// Measures all backends at one size. Collective over two ranks.
fn measure(bench: &MicroBench, world: &World, bytes: usize) -> Result<Vec<Figure>, AppError> {
    let opened = bench.streams.open(world, bench.options())?;
    let contestants = opened.contestants(&bench.contestants);
    let mut pairs = Vec::new();
    for one in &contestants {
        let mut pair = Pair::new(world, one.stream, one.backend, bytes)?;
        pair.capture(world, bench.streams.replay)?;
        pair.check(bench.answers(world, one.backend))?;
        pairs.push(pair);
    }
    let timings = in_turns(world, bench.seconds, &mut pairs)?;
    let mut figures = Vec::new();
    for ((one, pair), timing) in contestants.iter().zip(&pairs).zip(timings) {
        let executor = executors_of_all(world, one.backend, &pair.out.exchange.routes())?;
        let figure = timing.figure(bench, (one.backend, executor), bytes);
        let figure = Figure {
            // The shape of an exchange decides, which is that of both ways.
            chosen_backend: (one.backend == AUTO).then(|| pair.out.exchange.backend().to_owned()),
            replayed: pair.replayed.as_ref().map(|(_, trips)| *trips),
            signal: one.signal.map(|signal| signal.name().to_owned()),
            ..figure
        };
        let rate = gigabytes_per_second(2.0 * bytes as f64, figure.median_us);
        figures.push(figure.with("gb_per_s", rate));
    }
    Ok(divided("ratio_to_standard", "standard", figures))
}

/// An exchange that goes one way, from this rank or to it.
struct OneWay {
    exchange: Box<dyn Exchange>,
    /// By phase; of the receiver.
    unpack: Option<[Arc<MoveTable>; 2]>,
}

/// What a rank sends, what it receives, and both ways.
struct Pair {
    stream: Stream,
    own: Buffer<u8>,
    theirs: Buffer<u8>,
    out: OneWay,
    back: OneWay,
    begins: bool,
    replayed: Replayed,
}

impl Pair {
    fn new(world: &World, stream: &Stream, backend: &str, bytes: usize) -> Result<Self, HaloError> {
        let line = Extents { points: [1, 1, bytes], components: 1 };
        let own = Buffer::zeros(world, stream, line)?;
        let theirs = Buffer::zeros(world, stream, line)?;
        let ends = [own.place([0; 3])?, theirs.place([0; 3])?];
        // The exchanges of both directions are matched in the same order on both ranks.
        let mut ways = Vec::new();
        for from in [0, 1] {
            ways.push(OneWay::new(world, stream, backend, (from, bytes), &ends)?);
        }
        let [first, second] =
            <[OneWay; 2]>::try_from(ways).unwrap_or_else(|_| unreachable!("two are pushed"));
        let begins = world.rank() == 0;
        let (out, back) = if begins { (first, second) } else { (second, first) };
        Ok(Self { stream: stream.clone(), own, theirs, out, back, begins, replayed: None })
    }

    /// Has so many round trips be replayed together, if they can be captured. Collective.
    fn capture(&mut self, world: &World, trips: usize) -> Result<(), AppError> {
        let stream = self.stream.clone();
        self.replayed = captured(world, &stream, trips, || self.enqueue(trips, true))?;
        Ok(())
    }

    /// Some round trips whose every byte is compared.
    fn check(&mut self, answers: Answers<'_>) -> Result<(), AppError> {
        let (whole, rank) = (self.own.extents().whole(), answers.world.rank());
        for round in 1..=3 {
            self.own.with_host_mut(whole, |mut own| {
                let own = own.iter_mut().enumerate();
                own.for_each(|(index, byte)| *byte = given(said(rank, round, index)));
            })?;
            self.repeat(self.step())?;
            let found = self.theirs.copy_out(whole)?;
            answers.compare_all(&found, |index| said(1 - rank, round, index))?;
        }
        Ok(())
    }
}

impl OneWay {
    fn new(
        world: &World,
        stream: &Stream,
        backend: &str,
        (from, bytes): (usize, usize),
        [own, theirs]: &[Place; 2],
    ) -> Result<Self, HaloError> {
        let sends = world.rank() == from;
        let message = MessageSpec {
            peer: 1 - world.rank(),
            tag: world.next_tag(),
            elements: vec![(ElementType::U8, bytes)],
            bytes,
            run_bytes: bytes,
            direct: Direct::Never,
            ghosts: Vec::new(),
        };
        let mut spec = ExchangeSpec { sends: Vec::new(), recvs: Vec::new(), last_epoch: 0 };
        if sends { &mut spec.sends } else { &mut spec.recvs }.push(message);
        let mut exchange = match_exchange(world, stream, backend, spec)?;
        let table = |source: &Place, destination: &Place| {
            let whole = Move {
                source: source.clone(),
                source_strides: [bytes; 2],
                destination: destination.clone(),
                destination_strides: [bytes; 2],
                counts: [1, 1],
                run_bytes: bytes,
                element: ElementType::U8,
                op: Op::Replace,
            };
            MoveTable::new(&[vec![whole]]).map(Arc::new)
        };
        let unpack = if sends {
            let pack = |phase| match exchange.send_slot(0, phase) {
                Slot::Packed(place) => table(own, &place),
                Slot::Ghosts(_) => unreachable!("the receiver has said `Direct::Never`"),
            };
            let moves = [pack(0)?, pack(1)?];
            exchange.bind(vec![moves])?;
            None
        } else {
            let slot = |phase| exchange.recv_slot(0, phase).expect("packed messages have a slot");
            let moves = [table(&slot(0), theirs)?, table(&slot(1), theirs)?];
            exchange.bind(Vec::new())?;
            Some(moves)
        };
        Ok(Self { exchange, unpack })
    }

    /// Packs and sends, or waits for the message and unpacks it.
    fn carry_out(&mut self, stream: &Stream) -> Result<(), HaloError> {
        self.exchange.start_sends(stream)?;
        self.exchange.wait(stream)?;
        if let Some(unpack) = &self.unpack {
            stream.enqueue_move(&unpack[phase(self.exchange.epoch())])?;
        }
        Ok(())
    }
}

impl Pair {
    /// Enqueues round trips. A receive is started before the message that its sender answers, so that no send that is
    /// enqueued finds its receiver not ready; or behind it, where sends that are replayed wait for their receivers and who
    /// starts one later keeps nobody waiting.
    fn enqueue(&mut self, times: usize, is_behind: bool) -> Result<(), HaloError> {
        let Self { stream, out, back, begins, .. } = self;
        for time in 0..times {
            out.exchange.start_recvs(stream)?;
            if !*begins {
                if time == 0 {
                    back.exchange.start_recvs(stream)?;
                }
                back.carry_out(stream)?;
            }
            // Who answers starts that of the next round trip.
            let starts = *begins || time + 1 < times;
            if starts && !is_behind {
                back.exchange.start_recvs(stream)?;
            }
            out.carry_out(stream)?;
            if starts && is_behind {
                back.exchange.start_recvs(stream)?;
            }
            if *begins {
                back.carry_out(stream)?;
            }
        }
        Ok(())
    }
}

impl Subject for Pair {
    fn step(&self) -> usize {
        self.replayed.as_ref().map_or(1, |(_, trips)| *trips)
    }

    fn repeat(&mut self, times: usize) -> Result<(), HaloError> {
        match &self.replayed {
            Some((period, trips)) => self.stream.replay(period, (times / trips) as u64)?,
            None => self.enqueue(times, false)?,
        }
        Ok(self.stream.synchronize()?)
    }
}
