//! Exchanges of which one side is made, whoever carries them out.

use super::target::Target;
use super::triggered::Triggered;
use super::wire::Core;
use super::{build, proxied, refuse_too_long};
use crate::error::{Error, Result};
use crate::fabric::ofi::MemoryRegion;
use crate::fabric::{Arm, Bells, Early, Executor, FarExchange, HalfOpen, OpenExchange, PerMessage, Terms};
use crate::world::World;
use std::sync::Arc;

/// This rank's side of an exchange.
#[derive(Debug)]
pub(super) enum Half {
    /// One that the network interface carries out.
    Triggered(Terms, Box<build::TriggeredHalf>),
    /// One that a thread does.
    Proxied(Box<proxied::ProxiedHalf>),
}

impl Half {
    /// Registers what peers may write to. Does not communicate.
    ///
    /// # Errors
    /// [`Error::FabricUnavailable`] if the provider does not take messages that are so long.
    pub(super) fn new(world: &World, core: &Core, exchange: FarExchange) -> Result<Self> {
        let lengths = exchange.sends.iter().map(|send| (send.peer, send.bytes));
        refuse_too_long(core.hub.endpoint(), lengths)?;
        let bells = Bells::new(world, &exchange)?;
        let (hub, terms) = (&core.hub, exchange.terms);
        Ok(match core.executor {
            Executor::Nic => {
                let start = core.allowance.counter_start;
                let ends = (hub.endpoint(), core.peers[world.rank()]);
                let half = build::TriggeredHalf::new(world, ends, exchange, bells, start)?;
                Half::Triggered(terms, Box::new(half))
            }
            _ => Half::Proxied(Box::new(proxied::ProxiedHalf::new(hub, exchange, bells)?)),
        })
    }

    /// What peers are told.
    pub(super) fn told(&self) -> &PerMessage<Vec<Target>> {
        match self {
            Half::Triggered(_, half) => &half.told,
            Half::Proxied(half) => &half.told,
        }
    }

    fn bells(&mut self) -> &mut Bells {
        match self {
            Half::Triggered(_, half) => &mut half.bells,
            Half::Proxied(half) => &mut half.bells,
        }
    }

    /// The exchange, with what the peers have told; and what they may write to, for as long as they may. Does not
    /// communicate. `ends_with_arrivals`: see [`proxied::Proxied::until_arrived`].
    pub(super) fn complete(
        self,
        world: &World,
        core: &Core,
        theirs: PerMessage<Vec<Target>>,
        ends_with_arrivals: bool,
    ) -> Result<(OpenExchange, Arc<Vec<MemoryRegion>>)> {
        let (load, arm, early, bells, regions) = match self {
            Half::Triggered(terms, half) => {
                let (built, bells) = half.complete(&core.peers, theirs)?;
                let (made, regions) =
                    Triggered::new(world.wait_context(), &core.hub, terms, built, &core.allowance)?;
                let load = core.carrier.carry(Box::new(made.clone()))?;
                let early = Arc::new(made.clone()) as Arc<dyn Early>;
                (load, Some(Box::new(made) as Box<dyn Arm>), Some(early), bells, regions)
            }
            Half::Proxied(half) => {
                let early = half.arrivals().map(|arrivals| Arc::new(arrivals) as Arc<dyn Early>);
                let (made, bells, regions) = half.complete(&core.peers, theirs)?;
                let made = if ends_with_arrivals { made.until_arrived() } else { made };
                (core.carrier.carry(Box::new(made))?, None, early, bells, regions)
            }
        };
        let opened = OpenExchange {
            starts: vec![bells.start],
            triggers: bells.triggers,
            departures: bells.departures,
            executor: core.executor,
            path: if arm.is_some() { "packed, triggered write" } else { "packed, write with data" },
            reason: "the peer's memory is not mapped",
            arm,
            early,
            _fabric: world.shared_fabric().clone(),
            guard: Arc::new((load, world.shared_fabric().clone())),
        };
        Ok((opened, regions))
    }
}

/// One side of a single message.
#[derive(Debug)]
pub(super) struct Pair {
    world: World,
    core: Arc<Core>,
    peer: usize,
    /// Of a send: the other is a receive.
    is_send: bool,
    /// Whether nothing comes but after this rank has said that it is ready.
    announces: bool,
    half: Half,
}

impl Pair {
    /// One side of a message, and what the peer is to be told. Does not communicate.
    pub(super) fn begin(world: &World, core: &Arc<Core>, exchange: FarExchange) -> Result<(Vec<u8>, Self)> {
        let sends = exchange.sends.iter().map(|send| (send.peer, true, false));
        let recvs = exchange.recvs.iter().map(|recv| (recv.peer, false, recv.announces));
        let (peer, is_send, announces) = sends.chain(recvs).next().expect("a pair has one message");
        let half = Half::new(world, core, exchange)?;
        let PerMessage { sends, recvs } = half.told();
        let told = if is_send { &sends[0] } else { &recvs[0] };
        let told = postcard::to_stdvec(told)
            .map_err(|error| Error::System { call: "encoding a message", reason: error.to_string() })?;
        Ok((told, Self { world: world.clone(), core: core.clone(), peer, is_send, announces, half }))
    }
}

impl HalfOpen for Pair {
    fn complete(self: Box<Self>, theirs: &[u8]) -> Result<OpenExchange> {
        let Self { world, core, peer, is_send, announces, mut half } = *self;
        let theirs: Vec<Target> = postcard::from_bytes(theirs)
            .map_err(|error| Error::System { call: "decoding a message", reason: error.to_string() })?;
        core.connect(&world, std::iter::once(peer))?;
        if is_send {
            // It starts with its trigger.
            let bells = half.bells();
            bells.start = bells.triggers[0].clone();
        }
        let [sends, recvs] =
            [is_send, !is_send].map(|has_one| if has_one { vec![theirs.clone()] } else { vec![] });
        let (mut opened, regions) = half.complete(&world, &core, PerMessage { sends, recvs }, announces)?;
        opened.path = if opened.arm.is_some() { "triggered write" } else { "write with data" };
        if is_send {
            opened.starts.clear();
        }
        // What is asked for comes when it may.
        opened.early = opened.early.filter(|_| !is_send && !announces);
        if !announces {
            // The peer may say that it is ready, or send to who always is, when this rank has let go.
            core.keep_for_ever(regions);
        }
        Ok(opened)
    }
}
