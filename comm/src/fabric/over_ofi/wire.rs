//! The wire of the fabric `ofi`: one endpoint, and every rank a peer of it.

use super::hub::Hub;
use super::proxied::Proxied;
use super::tagged::Tagged;
use super::target::{Target, register};
use super::throttling::Allowance;
use super::triggered::Triggered;
use crate::error::{Error, Result};
use crate::fabric::ofi::{Endpoint, Library, MemoryRegion, PeerAddress, Posted};
use crate::fabric::{
    Abort, Bells, Carrier, Executor, FarExchange, FarMessages, Keep, OpenExchange, Persistent, Wire,
};
use crate::world::World;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// A cache line.
const SCRATCH_BYTES: usize = 64;

/// One rank's end.
pub(super) struct OfiWire {
    hub: Arc<Hub>,
    /// By rank.
    peers: Vec<PeerAddress>,
    /// Carries exchanges where the network interface cannot, and looks after it where it can.
    carrier: Arc<Carrier>,
    executor: Executor,
    allowance: Allowance,
    /// Where anybody may write anything, to make a connection.
    scratch: MemoryRegion,
    scratches: Vec<Target>,
    connected: Mutex<Vec<bool>>,
    /// What peers may still write to.
    keep: Keep<Vec<MemoryRegion>>,
}

impl OfiWire {
    /// The library, with its version.
    pub(super) fn engine(&self) -> String {
        let endpoint = self.hub.endpoint();
        let version = Library::load().map(|library| library.version()).unwrap_or_default();
        format!("libfabric {version}, provider {} ({})", endpoint.provider(), endpoint.domain())
    }

    /// Makes all ranks each other's peers. Collective.
    pub(super) fn new(world: &World, endpoint: Result<Endpoint>) -> Result<Arc<Self>> {
        const CALL: &str = "connecting libfabric's endpoints";
        let own = endpoint.and_then(|endpoint| {
            let place = world.fabric().allocate(SCRATCH_BYTES)?.place(0, SCRATCH_BYTES, "a scratch")?;
            let scratch = register(&endpoint, &place, SCRATCH_BYTES, None)?;
            let allowance = Allowance::from_env(endpoint.provider())?;
            Ok((endpoint, scratch, allowance))
        });
        let told = own.as_ref().map(|(endpoint, scratch, _)| {
            (endpoint.provider().to_owned(), endpoint.address(), Target::of(scratch, 0))
        });
        let all = world.agree(CALL, told)?;
        let (endpoint, scratch, allowance) = own?;
        let other = all.iter().position(|(provider, ..)| *provider != all[0].0);
        let peers: Result<Vec<PeerAddress>> = match other {
            Some(rank) => Err(super::unavailable(format!(
                "rank {rank} has opened provider `{}` and rank 0 `{}`; name one for all with {}",
                all[rank].0,
                all[0].0,
                super::PROVIDER_VARIABLE
            ))),
            None => all.iter().map(|(_, address, _)| endpoint.insert(address)).collect(),
        };
        world.agree(CALL, peers.as_ref().map(|_| ()))?;
        let executor = if endpoint.has_triggered() { Executor::Nic } else { Executor::Proxy };
        let abort = Abort::new(world.fabric().abort());
        let carrier = Carrier::new(world.rank(), Executor::Proxy, abort);
        let connected = Mutex::new(vec![false; world.size()]);
        let scratches = all.into_iter().map(|(.., scratch)| scratch).collect();
        let (hub, peers) = (Hub::new(endpoint), peers?);
        Ok(Arc::new(Self {
            hub,
            peers,
            carrier,
            executor,
            allowance,
            scratch,
            scratches,
            connected,
            keep: Keep::new(),
        }))
    }

    /// Writes to ranks that nothing was written to before: providers connect with the first operation,
    /// which may take a while. Ranks write to themselves as well.
    fn connect(&self, world: &World, ranks: impl Iterator<Item = usize>) -> Result<()> {
        let mut connected = self.connected.lock().unwrap_or_else(PoisonError::into_inner);
        let mut new: Vec<usize> = ranks.chain([world.rank()]).filter(|rank| !connected[*rank]).collect();
        new.sort_unstable();
        new.dedup();
        for rank in new {
            let source = self.scratch.slice(0, 4, "a scratch")?;
            let target = self.scratches[rank].at(self.peers[rank]);
            let done = self.hub.number();
            let mut posted = false;
            let mut written = || {
                if !posted {
                    // SAFETY: what is written is of no matter, and both ends are kept as long as the wire.
                    let post = unsafe { self.hub.endpoint().write(&source, target, done.number) }?;
                    posted = post == Posted::Yes;
                }
                self.hub.poll()?;
                Ok(done.count() > 0)
            };
            world.wait_context().poll(&mut written, Duration::ZERO, &|waited| Error::TimedOut {
                rank: world.rank(),
                peer: rank,
                what: "a connection".into(),
                wanted: 1,
                found: 0,
                seconds: waited.as_secs(),
            })?;
            connected[rank] = true;
        }
        Ok(())
    }

    pub(super) fn executor(&self) -> Executor {
        self.executor
    }
}

impl Wire for OfiWire {
    fn carrier(&self) -> Option<Arc<Carrier>> {
        (self.executor == Executor::Proxy).then(|| self.carrier.clone())
    }

    fn open(&self, world: &World, exchange: FarExchange) -> Result<OpenExchange> {
        const CALL: &str = "opening an exchange over libfabric";
        let sends = exchange.sends.iter().map(|send| send.peer);
        let connected = self.connect(world, sends.chain(exchange.recvs.iter().map(|recv| recv.peer)));
        let bells = connected.and_then(|()| Bells::new(world, &exchange));
        let done = self.keep.done(world.size());
        let all = world.agree(CALL, bells.as_ref().map(|_| done))?;
        self.keep.take(world.size(), &all.iter().map(Vec::as_slice).collect::<Vec<_>>());
        let mut bells = bells?;
        let nic = self.executor == Executor::Nic;
        let opened = if nic {
            Triggered::open(
                world,
                &self.hub,
                &self.peers,
                exchange,
                &mut bells,
                (&self.allowance, &self.keep),
            )
            .and_then(|made| Ok((self.carrier.carry(Box::new(made.clone()))?, Some(Box::new(made) as _))))
        } else {
            Proxied::open(world, &self.hub, &self.peers, exchange, &bells, &self.keep)
                .and_then(|made| Ok((self.carrier.carry(Box::new(made))?, None)))
        };
        // Nobody sends before all can receive.
        world.agree(CALL, opened.as_ref().map(|_| ()))?;
        let (load, arm) = opened?;
        Ok(OpenExchange {
            starts: vec![bells.start],
            triggers: bells.triggers,
            departures: bells.departures,
            executor: self.executor,
            path: if nic { "packed, triggered write" } else { "packed, write with data" },
            reason: "the peer's memory is not mapped",
            arm,
            _fabric: world.shared_fabric().clone(),
            guard: Arc::new((load, world.shared_fabric().clone())),
        })
    }

    fn open_two_sided(&self, world: &World, messages: FarMessages) -> Result<Box<dyn Persistent>> {
        let ranks = messages.sends.iter().chain(&messages.recvs).map(|message| message.peer);
        let connected = self.connect(world, ranks);
        world.agree("connecting libfabric's endpoints", connected)?;
        let made = Tagged::open(world, &self.hub, &self.peers, &messages);
        world.agree("making tagged messages over libfabric", made.as_ref().map(|_| ()))?;
        Ok(Box::new(made?))
    }
}

impl Drop for OfiWire {
    fn drop(&mut self) {
        self.carrier.stop();
    }
}

impl std::fmt::Debug for OfiWire {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let endpoint = self.hub.endpoint();
        write!(f, "OfiWire({}, {})", endpoint.provider(), self.executor)
    }
}
