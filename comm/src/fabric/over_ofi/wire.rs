//! The wire of the fabric `ofi`: one endpoint, and every rank a peer of it.

use super::half::{Half, Pair};
use super::hub::{Hub, Polled};
use super::machine::Machine;
use super::office::Office;
use super::packets::{self, OfiMessaging};
use super::tagged::Tagged;
use super::target::{Target, register};
use super::throttling::Allowance;
use crate::device::{Takes, Vendor};
use crate::error::Result;
use crate::fabric::messaging::{Mail, State};
use crate::fabric::ofi::{Endpoint, Library, MemoryRegion, PeerAddress, Posted};
use crate::fabric::{
    Carrier, Executor, FarExchange, FarMessages, FarPackets, HalfOpen, Keep, OpenExchange, Persistent, Sides,
    Wire, tell,
};
use crate::locks::lock;
use crate::world::World;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// A cache line.
const SCRATCH_BYTES: usize = 64;

/// One rank's end.
#[derive(Debug)]
pub(super) struct OfiWire {
    core: Arc<Core>,
}

/// What everything that is made over the wire stands on.
pub(super) struct Core {
    pub(super) hub: Arc<Hub>,
    /// By rank.
    pub(super) peers: Vec<PeerAddress>,
    /// Carries exchanges where the network interface cannot, and looks after it where it can.
    pub(super) carrier: Arc<Carrier>,
    pub(super) executor: Executor,
    pub(super) allowance: Allowance,
    /// Where anybody may write anything, to make a connection.
    scratch: MemoryRegion,
    scratches: Vec<Target>,
    connected: Mutex<Vec<bool>>,
    /// What peers may still write to.
    keep: Keep<Vec<MemoryRegion>>,
    /// What peers may still write to of what ranks have not made together.
    kept: Mutex<Vec<Arc<Vec<MemoryRegion>>>>,
    office: Mutex<Option<Arc<Office>>>,
    /// Packets that are opened have the next one, or a greater.
    next_channel: AtomicUsize,
}

impl OfiWire {
    /// The library, with its version.
    pub(super) fn engine(&self) -> String {
        let endpoint = self.core.hub.endpoint();
        let version = Library::load().map(|library| library.version()).unwrap_or_default();
        format!("libfabric {version}, provider {} ({})", endpoint.provider(), endpoint.domain())
    }

    /// Makes all ranks each other's peers. Collective.
    pub(super) fn new(world: &World, machine: &Machine, endpoint: Result<Endpoint>) -> Result<Arc<Self>> {
        const CALL: &str = "connecting libfabric's endpoints";
        let own = endpoint.and_then(|endpoint| {
            let place = world.fabric().allocate(SCRATCH_BYTES)?.place(0, SCRATCH_BYTES, "a scratch")?;
            let scratch = register(&endpoint, &place, SCRATCH_BYTES, None)?;
            Ok((endpoint, scratch))
        });
        let told = own.as_ref().map(|(endpoint, scratch)| {
            let [provider, domain] = [endpoint.provider(), endpoint.domain()].map(str::to_owned);
            (provider, domain, endpoint.address(), Target::of(scratch, 0))
        });
        let all = world.agree(CALL, told)?;
        let (endpoint, scratch) = own?;
        let other = all.iter().position(|(provider, ..)| *provider != all[0].0);
        let peers: Result<Vec<PeerAddress>> = match other {
            Some(rank) => Err(super::unavailable(format!(
                "rank {rank} has opened provider `{}` and rank 0 `{}`; name one for all with {}",
                all[rank].0,
                all[0].0,
                super::PROVIDER_VARIABLE
            ))),
            None => all.iter().map(|(.., address, _)| endpoint.insert(address)).collect(),
        };
        let sharing = machine.sharing(|rank| &all[rank].1);
        let made = peers.and_then(|peers| Ok((peers, Allowance::from_env(endpoint.provider(), sharing)?)));
        world.agree(CALL, made.as_ref().map(|_| ()))?;
        let (peers, allowance) = made?;
        let executor = if endpoint.has_triggered() { Executor::Nic } else { Executor::Proxy };
        let carrier = Carrier::new(world.rank(), Executor::Proxy, world.fabric().abort());
        let connected = Mutex::new(vec![false; world.size()]);
        let scratches = all.into_iter().map(|(.., scratch)| scratch).collect();
        let hub = Hub::new(endpoint);
        let core = Core {
            hub,
            peers,
            carrier,
            executor,
            allowance,
            scratch,
            scratches,
            connected,
            keep: Keep::new(),
            kept: Mutex::default(),
            office: Mutex::default(),
            next_channel: AtomicUsize::new(0),
        };
        Ok(Arc::new(Self { core: Arc::new(core) }))
    }

    pub(super) fn executor(&self) -> Executor {
        self.core.executor
    }
}

impl Core {
    /// Keeps what peers may write to until this rank leaves.
    pub(super) fn keep_for_ever(&self, regions: Arc<Vec<MemoryRegion>>) {
        lock(&self.kept).push(regions);
    }

    /// Writes to ranks that nothing was written to before: providers connect with the first operation,
    /// which may take a while. Ranks write to themselves as well. Those of peers may need this rank's answers for as
    /// long, so that whoever then waits for them goes on polling.
    pub(super) fn connect(&self, world: &World, ranks: impl Iterator<Item = usize>) -> Result<()> {
        // Not locked while this waits: what the thread goes on with meanwhile may connect as well.
        let is_new = |rank: &usize| !lock(&self.connected)[*rank];
        let mut new: Vec<usize> = ranks.chain([world.rank()]).filter(is_new).collect();
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
            let context = world.wait_context();
            context.poll(&mut written, &|waited| context.late(rank, "a connection", waited))?;
            lock(&self.connected)[rank] = true;
        }
        Ok(())
    }

    /// Where packets come in, from the first time that any are wanted.
    fn office(&self, rank: usize) -> Result<Arc<Office>> {
        let mut office = lock(&self.office);
        match &*office {
            Some(office) => Ok(office.clone()),
            None => Ok(office.insert(Office::new(&self.hub, rank)?).clone()),
        }
    }

    /// This rank's part of the packets of a channel.
    fn packets(&self, world: &World, office: &Arc<Office>, channel: usize) -> Result<Box<dyn FarPackets>> {
        if channel.max(self.peers.len()) >= packets::LIMIT {
            return Err(super::unavailable(format!(
                "packets were opened {channel} times between {} ranks, and {} are the most of each; \
                 make communicators and windows once and keep them",
                self.peers.len(),
                packets::LIMIT
            )));
        }
        let library = OfiMessaging::new(&self.hub, office, &self.peers, channel as u16)?;
        Mail::open(world, &self.carrier, Arc::new(Mutex::new(State::new(world, library)?)))
    }
}

impl Wire for OfiWire {
    fn carrier(&self) -> Option<Arc<Carrier>> {
        (self.core.executor == Executor::Proxy).then(|| self.core.carrier.clone())
    }

    fn takes(&self, _vendor: Vendor) -> Takes {
        let endpoint = self.core.hub.endpoint();
        match endpoint.has_hmem() {
            true => {
                let because =
                    format!("libfabric's provider `{}` registers it (FI_HMEM)", endpoint.provider());
                Takes::Yes { because, no_puts: None }
            }
            false => Takes::No(format!(
                "libfabric is not asked to register memory of GPUs, which no GPU has tried here ({}=1 has it asked)",
                super::HMEM_VARIABLE
            )),
        }
    }

    fn open(&self, world: &World, exchange: FarExchange) -> Result<OpenExchange> {
        const CALL: &str = "opening an exchange over libfabric";
        let core = &self.core;
        let sides = Sides::of(&exchange);
        let _polled = Polled::while_waiting(&core.hub);
        let sends = exchange.sends.iter().map(|send| send.peer);
        let connected = core.connect(world, sends.chain(exchange.recvs.iter().map(|recv| recv.peer)));
        let done = core.keep.done(world.size());
        let all = world.agree(CALL, connected.map(|()| done))?;
        core.keep.take(world.size(), &all.iter().map(Vec::as_slice).collect::<Vec<_>>());
        let half = Half::new(world, core, exchange);
        let told = half.as_ref().map(|half| half.told().clone()).map_err(Clone::clone);
        let theirs = tell(world, CALL, &sides, told);
        // Its own error first: whoever asked can tell by its kind that the fabric does not take it.
        let (half, theirs) = (half?, theirs?);
        let opened = half.complete(world, core, theirs, false);
        // Nobody sends before all can receive.
        let agreed = world.agree(CALL, opened.as_ref().map(|_| ()));
        let (opened, regions) = opened?;
        agreed?;
        core.keep.add(world.size(), regions);
        Ok(opened)
    }

    fn begin_pair(&self, world: &World, exchange: FarExchange) -> Result<(Vec<u8>, Box<dyn HalfOpen>)> {
        let (told, pair) = Pair::begin(world, &self.core, exchange)?;
        Ok((told, Box::new(pair)))
    }

    fn open_packets(&self, world: &World) -> Result<Box<dyn FarPackets>> {
        const CALL: &str = "connecting ranks for packets over libfabric";
        let core = &self.core;
        let far = (0..world.size()).filter(|peer| !world.fabric().is_mapped(*peer));
        let _polled = Polled::while_waiting(&core.hub);
        let connected = core.connect(world, far).and_then(|()| core.office(world.rank()));
        let told = connected.as_ref().map(|_| core.next_channel.load(Ordering::Relaxed));
        // The same on all ranks, whichever worlds they have been in.
        let channel = world.agree(CALL, told)?.into_iter().max().unwrap_or(0);
        core.next_channel.store(channel + 1, Ordering::Relaxed);
        let made = core.packets(world, &connected?, channel);
        // Nobody sends before all keep what comes.
        world.agree(CALL, made.as_ref().map(|_| ()))?;
        made
    }

    fn open_two_sided(&self, world: &World, messages: FarMessages) -> Result<Box<dyn Persistent>> {
        let core = &self.core;
        let ranks = messages.sends.iter().chain(&messages.recvs).map(|message| message.peer);
        let _polled = Polled::while_waiting(&core.hub);
        let connected = core.connect(world, ranks);
        world.agree("connecting libfabric's endpoints", connected)?;
        let made = Tagged::open(world, &core.hub, &core.peers, &messages);
        world.agree("making tagged messages over libfabric", made.as_ref().map(|_| ()))?;
        Ok(Box::new(made?))
    }
}

impl Drop for OfiWire {
    fn drop(&mut self) {
        self.core.carrier.stop();
    }
}

impl std::fmt::Debug for Core {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let endpoint = self.hub.endpoint();
        write!(f, "Core({}, {})", endpoint.provider(), self.executor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fabric::ofi::EndpointOptions;
    use crate::fabric::{Progress, register as go_on_with};
    use std::cell::Cell;
    use std::rc::Rc;
    use std::sync::mpsc::channel;
    use std::time::Duration;

    /// Connects once more whenever its thread waits, as a message does whose other side has just been told.
    struct Connects {
        world: World,
        core: Arc<Core>,
        is_at_it: Cell<bool>,
        connected: Cell<u32>,
    }

    impl Progress for Connects {
        fn progress(&self) -> bool {
            if !self.is_at_it.replace(true) {
                let connected = self.core.connect(&self.world, std::iter::once(0));
                assert_eq!(connected, Ok(()));
                self.connected.set(self.connected.get() + 1);
                self.is_at_it.set(false);
            }
            false
        }
    }

    #[test]
    fn what_goes_on_while_a_rank_is_connected_may_connect_too() {
        let (tell, told) = channel();
        // A thread that hangs is left behind.
        std::thread::spawn(move || {
            let world = World::alone().expect("it can be made");
            let (provider, source) = (Some("tcp".into()), Some("127.0.0.1".into()));
            let options = EndpointOptions { provider, source, ..EndpointOptions::default() };
            let Ok(endpoint) = Endpoint::open(&options) else { return tell.send(None) };
            let machine = Machine::of(&world).expect("it is its own");
            let wire = OfiWire::new(&world, &machine, Ok(endpoint)).expect("it is alone");
            let (core, own) = (wire.core.clone(), world.clone());
            let (is_at_it, connected) = (Cell::new(false), Cell::new(0));
            let connects = Rc::new(Connects { world: own, core, is_at_it, connected });
            go_on_with(&connects);
            assert_eq!(wire.core.connect(&world, std::iter::once(0)), Ok(()));
            tell.send(Some(connects.connected.get()))
        });
        match told.recv_timeout(Duration::from_secs(20)).expect("it comes back") {
            Some(connected) => assert!(connected > 0),
            None => println!("skipped: no provider `tcp`"),
        }
    }
}
