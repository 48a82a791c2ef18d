//! One way of an exchange, matched and compiled: a gather or a scatter.

use crate::error::Result;
use crate::legs::Legs;
use crate::registered::Registered;
use crate::tables::{Compiler, Tables, Way};
use streamhalo_comm::World;
use streamhalo_comm::backend::{Direct, Exchange, ExchangeSpec, Route, match_exchange};
use streamhalo_comm::device::{Stream, StreamKind};
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
    /// Whether the stream has to be at rest before any rank goes on: peers will write ghosts for which they do not wait, or
    /// may have done so.
    pub(crate) comes_to_rest: bool,
}

/// The parts of a gather, in the order in which they are enqueued.
///
/// What each does is up to the backend: `standard` starts its receives with its sends, and a message whose
/// receiver is not ready in time is packed and sent while waiting. So these are what can be told apart, not what
/// message passing has calls for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum GatherStep {
    /// Telling senders that this rank is ready.
    PostReceives,
    /// Packing and sending to receivers that are ready, and the copies that the rank makes of what it owns itself.
    PostSends,
    /// Waiting for what others send; what was left is packed and sent meanwhile.
    Wait,
    /// Unpacking. Nothing, where senders write straight into ghosts.
    Unpack,
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
        let is_on_device = parts.stream.kind() == StreamKind::Device;
        let compiler = Compiler { legs, fields, way, swaps, rank: world.rank(), is_on_device };
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
            if parts.comes_to_rest {
                parts.stream.synchronize()?;
            }
            Ok((moves, compiler.tables(&incoming, &*exchange)?))
        })();
        // All ranks can start, or none does.
        world.agree("StreamHalo::new", compiled.as_ref().map(|_| ()))?;
        let (moves, tables) = compiled?;
        exchange.bind(moves)?;
        Ok(Self { exchange, tables, bytes })
    }

    /// The number of the last exchange that has begun.
    #[inline]
    pub(crate) fn epoch(&self) -> u32 {
        self.exchange.epoch()
    }

    /// Payload bytes that this rank sends in an exchange.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn backend(&self) -> &'static str {
        self.exchange.backend()
    }

    pub(crate) fn routes(&self) -> Vec<Route> {
        self.exchange.routes()
    }

    /// Begins the next one: senders are told that this rank is ready.
    #[inline]
    pub(crate) fn post_receives(&mut self, stream: &Stream) -> Result<()> {
        Ok(self.exchange.start_recvs(stream)?)
    }

    /// Packing, sends, and what the rank copies by itself meanwhile, of an exchange that has begun with that phase.
    #[inline]
    pub(crate) fn post_sends(&mut self, stream: &Stream, phase: usize) -> Result<()> {
        stream.enqueue_move(&self.tables.before[phase])?;
        self.exchange.start_sends(stream)?;
        stream.enqueue_move(&self.tables.meanwhile[phase])?;
        Ok(())
    }

    /// For a begin that is not finished at once.
    pub(crate) fn flush(&mut self, stream: &Stream) {
        self.exchange.flush(stream);
    }

    /// Waiting and unpacking. Calls back behind each step.
    #[inline]
    pub(crate) fn finish(
        &mut self,
        stream: &Stream,
        phase: usize,
        behind: &mut impl FnMut(GatherStep),
    ) -> Result<()> {
        self.exchange.wait(stream)?;
        behind(GatherStep::Wait);
        stream.enqueue_move(&self.tables.after[phase])?;
        behind(GatherStep::Unpack);
        Ok(())
    }
}
