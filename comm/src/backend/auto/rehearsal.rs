//! Rehearsals: what an exchange takes by each backend, found out on memory of its own.
//!
//! Messages go to the same peers and are as long, up to a limit above which backends differ by what they copy only; each is
//! one run of bytes. They are on a stream like the caller's, so that nothing on that one is waited for, recorded or
//! captured. Backends take turns, so that a machine that slows down slows all alike.

use super::super::{BACKENDS, BackendRow, Exchange, ExchangeSpec, Ground, MessageSpec, Slot};
use super::unless_refused;
use crate::device::{Buffer, Extents, Move, MoveTable, Stream};
use crate::element::ElementType;
use crate::error::{Error, Result};
use crate::fabric::phase;
use crate::world::World;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Turns that are timed.
const TURNS: usize = 7;
/// What the slowest backend may take of a turn, about.
const TURN_SECONDS: f64 = 1e-3;
/// Exchanges of a turn, at most.
const MOST_EXCHANGES: usize = 64;

/// How long room on a network interface is waited for, and how often it is looked for.
const PATIENCE: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_millis(1);

/// Microseconds of an exchange by each of the backends, the same on every rank: of the slowest. Messages have `most_bytes`
/// at most. Collective; blocks.
pub(super) fn rehearse(
    ground: &Ground<'_>,
    spec: &ExchangeSpec,
    most_bytes: usize,
) -> Result<BTreeMap<String, f64>> {
    let world = ground.world;
    let own = ground.stream.another(world).and_then(|stream| {
        let scratch = Scratch::new(world, &stream, spec, most_bytes)?;
        Ok((stream, scratch))
    });
    world.agree("match_exchange", own.as_ref().map(|_| ()))?;
    let (stream, scratch) = own?;
    let sharings = ground.sharings.clone();
    let ground = &Ground { world, stream: &stream, sharings, is_rehearsal: true };
    let mut rehearsals = Vec::with_capacity(BACKENDS.len());
    for row in BACKENDS {
        if let Some(rehearsal) = unless_refused(world, Rehearsal::new(ground, &scratch, row))? {
            rehearsals.push((row.name, rehearsal));
        }
    }
    let time = |rehearsal: &mut Rehearsal, times| -> Result<f64> {
        world.barrier()?;
        // Caches are full of what the one before has moved.
        let started = rehearsal.repeat(&stream, 1).map(|()| Instant::now());
        let elapsed = started.and_then(|started| {
            rehearsal.repeat(&stream, times)?;
            Ok(started.elapsed())
        });
        // No rank goes on alone.
        world.agree("match_exchange", elapsed.as_ref().map(|_| ()))?;
        Ok(elapsed?.as_secs_f64() / times as f64)
    };
    // The first time touches all memory of both phases, the second one shows how long a turn is.
    let mut slowest: f64 = 0.0;
    for (_, rehearsal) in &mut rehearsals {
        time(rehearsal, 1)?;
        slowest = slowest.max(time(rehearsal, 1)?);
    }
    let times = (TURN_SECONDS / world.all_max(slowest)?) as usize;
    let times = times.clamp(1, MOST_EXCHANGES);
    let mut seconds = vec![[0.0; TURNS]; rehearsals.len()];
    for turn in 0..TURNS {
        for ((_, rehearsal), seconds) in rehearsals.iter_mut().zip(&mut seconds) {
            seconds[turn] = time(rehearsal, times)?;
        }
    }
    let median = |turns: &mut [f64; TURNS]| {
        turns.sort_by(f64::total_cmp);
        turns[TURNS / 2]
    };
    let own: Vec<f64> = seconds.iter_mut().map(median).collect();
    let all = world.all_gather(&own)?;
    let slowest = |backend: usize| all.iter().map(|rank| rank[backend]).fold(0.0, f64::max);
    let names = rehearsals.iter().map(|(name, _)| *name).enumerate();
    Ok(names.map(|(index, name)| (name.into(), 1e6 * slowest(index))).collect())
}

/// Memory that is exchanged, and how.
struct Scratch {
    spec: ExchangeSpec,
    /// What every send is packed from.
    sent: Buffer<u8>,
    /// Ghosts of the receives, by phase.
    received: Vec<[Buffer<u8>; 2]>,
}

impl Scratch {
    fn new(world: &World, stream: &Stream, spec: &ExchangeSpec, most_bytes: usize) -> Result<Self> {
        let buffer = |bytes: usize| {
            let extents = Extents { points: [1, 1, bytes.max(1)], components: 1 };
            Buffer::zeros(world, stream, extents)
        };
        let bytes_of = |message: &MessageSpec| message.bytes.min(most_bytes);
        let message = |message: &MessageSpec| MessageSpec {
            elements: vec![(ElementType::U8, bytes_of(message))],
            bytes: bytes_of(message),
            run_bytes: message.run_bytes.min(bytes_of(message)),
            ghosts: Vec::new(),
            ..message.clone()
        };
        let longest = spec.sends.iter().map(bytes_of).max().unwrap_or(0);
        let ghosts = |recv: &MessageSpec| Ok([buffer(bytes_of(recv))?, buffer(bytes_of(recv))?]);
        let received = spec.recvs.iter().map(ghosts).collect::<Result<Vec<[Buffer<u8>; 2]>>>()?;
        let recv = |(recv, ghosts): (&MessageSpec, &[Buffer<u8>; 2])| MessageSpec {
            ghosts: vec![ghosts.each_ref().map(|ghosts| ghosts.region().clone())],
            ..message(recv)
        };
        let spec = ExchangeSpec {
            sends: spec.sends.iter().map(message).collect(),
            recvs: spec.recvs.iter().zip(&received).map(recv).collect(),
            last_epoch: 0,
        };
        Ok(Self { spec, sent: buffer(longest)?, received })
    }
}

/// A backend at it.
struct Rehearsal {
    exchange: Box<dyn Exchange>,
    /// By phase.
    unpacks: [Arc<MoveTable>; 2],
}

impl Rehearsal {
    /// Matches and compiles. Collective; blocks.
    fn new(ground: &Ground<'_>, scratch: &Scratch, row: &'static BackendRow) -> Result<Self> {
        let mut exchange = ground.make(row, scratch.spec.clone())?;
        let tables = scratch.tables(&*exchange);
        ground.world.agree("match_exchange", tables.as_ref().map(|_| ()))?;
        let (packs, unpacks) = tables?;
        exchange.bind(packs)?;
        Ok(Self { exchange, unpacks })
    }

    /// So many exchanges, until the stream has done them.
    fn repeat(&mut self, stream: &Stream, times: usize) -> Result<()> {
        let Self { exchange, unpacks } = self;
        for _ in 0..times {
            let begun = Instant::now();
            loop {
                match exchange.start_recvs(stream) {
                    // The application is to make room on the network interface, which learns a little later what is through.
                    Err(Error::Throttled { .. }) if begun.elapsed() < PATIENCE => {
                        stream.synchronize()?;
                        std::thread::sleep(LOOK);
                    }
                    started => break started?,
                }
            }
            exchange.start_sends(stream)?;
            exchange.wait(stream)?;
            stream.put_move(&unpacks[phase(exchange.epoch())]);
        }
        stream.synchronize()
    }
}

/// Of each send, and of all receives, by phase.
type Tables = (Vec<[Arc<MoveTable>; 2]>, [Arc<MoveTable>; 2]);

impl Scratch {
    fn tables(&self, exchange: &dyn Exchange) -> Result<Tables> {
        let pack = |(message, send): (usize, &MessageSpec), phase| {
            let to = match exchange.send_slot(message, phase) {
                Slot::Packed(place) => place,
                Slot::Ghosts(fields) => fields[0].place(0, send.bytes, "ghosts of a rehearsal")?,
            };
            MoveTable::new(&[vec![Move::of_bytes(self.sent.place([0; 3])?, to, send.bytes)]]).map(Arc::new)
        };
        let packs = self.spec.sends.iter().enumerate().map(|send| Ok([pack(send, 0)?, pack(send, 1)?]));
        let unpack = |phase| {
            let recvs = self.spec.recvs.iter().zip(&self.received).enumerate();
            let arrived =
                recvs.filter_map(|(message, recv)| Some((exchange.recv_slot(message, phase)?, recv)));
            let moves = arrived.map(|(from, (recv, ghosts))| {
                Ok(Move::of_bytes(from, ghosts[phase].place([0; 3])?, recv.bytes))
            });
            MoveTable::new(&[moves.collect::<Result<Vec<Move>>>()?]).map(Arc::new)
        };
        Ok((packs.collect::<Result<_, Error>>()?, [unpack(0)?, unpack(1)?]))
    }
}
