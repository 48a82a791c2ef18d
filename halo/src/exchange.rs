//! One way of an exchange, matched and compiled: a gather or a scatter.

use crate::error::Result;
use crate::legs::Legs;
use crate::tables::{Compiler, Registered, Tables, Way};
use streamhalo_comm::World;
use streamhalo_comm::backend::{Direct, Exchange, ExchangeSpec, Route, match_exchange};
use streamhalo_comm::device::Stream;
use streamhalo_comm::fabric::phase;
use streamhalo_grid::Subdomain;

/// What an exchange is made of.
pub(crate) struct Parts<'a, const D: usize> {
    pub(crate) world: &'a World,
    pub(crate) stream: &'a Stream,
    pub(crate) backend: &'a str,
    pub(crate) subdomain: &'a Subdomain<D>,
    pub(crate) legs: &'a Legs<D>,
    pub(crate) fields: &'a [Registered],
    pub(crate) swaps: usize,
    pub(crate) last_epoch: u32,
    pub(crate) direct: Direct,
}

/// A matched exchange with its moves.
#[derive(Debug)]
pub(crate) struct Compiled {
    exchange: Box<dyn Exchange>,
    tables: Tables,
    bytes: usize,
}

impl Compiled {
    /// Matches and compiles. Collective.
    pub(crate) fn new<const D: usize>(parts: &Parts<'_, D>, way: Way) -> Result<Self> {
        let Parts { world, legs, fields, swaps, .. } = *parts;
        let compiler = Compiler { legs, fields, way, swaps, rank: world.rank() };
        let direct = if way == Way::Gather { parts.direct } else { Direct::Never };
        let tag = world.next_tag();
        let (outgoing, incoming) = (compiler.envelopes(true), compiler.envelopes(false));
        let sends = outgoing.iter().map(|envelope| compiler.message(envelope, true, tag, direct));
        let recvs = incoming.iter().map(|envelope| compiler.message(envelope, false, tag, direct));
        let spec =
            ExchangeSpec { sends: sends.collect(), recvs: recvs.collect(), last_epoch: parts.last_epoch };
        let bytes = spec.sends.iter().map(|message| message.bytes).sum();
        let mut exchange = match_exchange(world, parts.stream, parts.backend, spec)?;
        let compiled = (|| -> Result<_> {
            let mut moves = Vec::new();
            for (message, envelope) in outgoing.iter().enumerate() {
                let peer =
                    parts.subdomain.partition().subdomain(envelope.peer, parts.subdomain.halo_width())?;
                let table =
                    |phase| compiler.send_moves(envelope, &exchange.send_slot(message, phase), &peer, phase);
                moves.push([table(0)?, table(1)?]);
            }
            Ok((moves, compiler.tables(&incoming, &*exchange)?))
        })();
        // All ranks can start, or none does.
        world.agree("StreamHalo::new", compiled.as_ref().map(|_| ()))?;
        let (moves, tables) = compiled?;
        exchange.bind(moves)?;
        Ok(Self { exchange, tables, bytes })
    }

    /// The number of the next exchange.
    pub(crate) fn next_epoch(&self) -> u32 {
        self.exchange.epoch().wrapping_add(1)
    }

    /// Payload bytes that this rank sends in an exchange.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn routes(&self) -> Vec<Route> {
        self.exchange.routes()
    }

    /// Receives, packing, sends, and what the rank copies by itself meanwhile.
    pub(crate) fn begin(&mut self, stream: &Stream) -> Result<()> {
        let phase = phase(self.next_epoch());
        self.exchange.start_recvs(stream)?;
        stream.enqueue_move(&self.tables.before[phase]);
        self.exchange.start_sends(stream)?;
        stream.enqueue_move(&self.tables.meanwhile[phase]);
        Ok(())
    }

    /// For a begin that is not finished at once.
    pub(crate) fn flush(&mut self, stream: &Stream) {
        self.exchange.flush(stream);
    }

    /// Waiting and unpacking.
    pub(crate) fn finish(&mut self, stream: &Stream) -> Result<()> {
        let phase = phase(self.exchange.epoch());
        self.exchange.wait(stream)?;
        stream.enqueue_move(&self.tables.after[phase]);
        Ok(())
    }
}
