//! Rounds of matched exchanges, one after the other on a stream.

use crate::backend::{Direct, Exchange, ExchangeSpec, MessageSpec, Route, match_exchange};
use crate::device::{MoveTable, Standing, Stream};
use crate::element::ElementType;
use crate::error::Result;
use crate::fabric::phase;
use crate::world::World;
use std::sync::Arc;

/// A round: messages, and what is done with them once they have come.
#[derive(Debug)]
struct Round {
    exchange: Box<dyn Exchange>,
    /// Of a rank that has no messages in it nothing is enqueued.
    is_idle: bool,
    /// By phase.
    then: [Arc<MoveTable>; 2],
}

/// All rounds of a collective, matched once.
#[derive(Debug)]
pub(super) struct Rounds {
    rounds: Vec<Round>,
    /// Those whose receives have been started for the epoch that is being enqueued.
    started: usize,
    /// Also of a rank that has no messages at all.
    standing: Standing,
}

/// The moves of a round, by phase: those of each send, and those behind the wait.
#[derive(Debug)]
pub(super) struct RoundMoves {
    pub(super) sends: Vec<[Arc<MoveTable>; 2]>,
    pub(super) then: [Arc<MoveTable>; 2],
}

impl Rounds {
    pub(super) fn none() -> Self {
        Self { rounds: Vec::new(), started: 0, standing: Standing::idle() }
    }

    /// Matches a round, in which messages of that many elements go to and come from some ranks. Collective;
    /// blocks.
    pub(super) fn matched(
        world: &World,
        stream: &Stream,
        backend: &str,
        (element, elements): (ElementType, usize),
        (to, from): (&[usize], &[usize]),
    ) -> Result<Box<dyn Exchange>> {
        let tag = world.next_tag();
        let bytes = elements * element.bytes();
        let message = |peer: &usize| MessageSpec {
            peer: *peer,
            tag,
            elements: vec![(element, elements)],
            bytes,
            run_bytes: bytes,
            direct: Direct::Never,
            ghosts: Vec::new(),
        };
        let (sends, recvs) = (to.iter().map(message).collect(), from.iter().map(message).collect());
        match_exchange(world, stream, backend, ExchangeSpec { sends, recvs, last_epoch: world.last_epoch() })
    }

    /// Adds a matched round behind the others.
    pub(super) fn push(
        &mut self,
        mut exchange: Box<dyn Exchange>,
        is_idle: bool,
        moves: RoundMoves,
    ) -> Result<()> {
        exchange.bind(moves.sends)?;
        self.rounds.push(Round { exchange, is_idle, then: moves.then });
        Ok(())
    }

    /// Enqueues all rounds, and gives the phase of the epoch. If it fails nothing has been sent, and it
    /// may be called again, unless it is the stream that has failed.
    pub(super) fn enqueue(&mut self, stream: &Stream) -> Result<usize> {
        stream.check()?;
        // All receives first: whoever is ahead finds every receiver ready, and where the network interface
        // has no room for more operations nothing has been sent yet.
        while let Some(round) = self.rounds.get_mut(self.started) {
            if !round.is_idle
                && let Err(error) = round.exchange.start_recvs(stream)
            {
                // A capture that fails sets all of them back.
                self.started = if stream.status().is_captured() { 0 } else { self.started };
                return Err(error);
            }
            self.started += 1;
        }
        self.started = 0;
        stream.note(&self.standing);
        let phase = phase(self.standing.begin());
        for round in self.rounds.iter_mut().filter(|round| !round.is_idle) {
            round.exchange.start_sends(stream)?;
            round.exchange.wait(stream)?;
            if round.then[phase].nests() > 0 {
                stream.put_move(&round.then[phase]);
            }
        }
        Ok(phase)
    }

    pub(super) fn routes(&self) -> Vec<Route> {
        self.rounds.iter().flat_map(|round| round.exchange.routes()).collect()
    }
}
