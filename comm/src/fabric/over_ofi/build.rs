//! Making an exchange of triggered operations: its counters, regions and entries.

use super::entries::{Count, Entry, Value, Work};
use super::target::{Target, register, register_word};
use super::triggered::SETS;
use crate::error::Result;
use crate::fabric::ofi::{
    Counter, DeferredAtomic, DeferredCounterAdd, DeferredWrite, Endpoint, MemoryRegion, PeerAddress,
    RemotePlace,
};
use crate::fabric::{Abort, Bells, Doorbell, FarExchange, FarRecv, FarSend, PerMessage, Terms, Word, phase};
use crate::world::World;
use std::sync::Arc;

/// What an exchange consists of.
pub(super) struct Built {
    /// Every counter, and what it comes to.
    pub(super) counters: Vec<(Counter, Count)>,
    /// What peers write to.
    pub(super) regions: Vec<MemoryRegion>,
    /// The entries of an epoch, as often as epochs may be queued.
    pub(super) sets: Vec<Vec<Entry>>,
    /// What comes to each buffer, in the order of the receives.
    pub(super) arrivals: Vec<Counter>,
}

/// Adds to a counter when a stream posts a word.
struct Bell {
    counter: Counter,
    abort: Abort,
    rank: usize,
}

impl Doorbell for Bell {
    fn ring(&self, _value: u32) {
        if let Err(error) = self.counter.add(1) {
            self.abort.raise(self.rank, &error.to_string());
        }
    }
}

/// Makes the bells of a rank.
#[derive(Debug)]
struct Foundry {
    abort: Abort,
    rank: usize,
}

impl Foundry {
    fn bell(&self, counter: Counter) -> Bell {
        Bell { counter, abort: self.abort.clone(), rank: self.rank }
    }
}

/// Makes counters, regions and entries.
#[derive(Debug)]
struct Builder {
    endpoint: Endpoint,
    /// This rank as its own peer.
    own: PeerAddress,
    terms: Terms,
    start: u64,
    counters: Vec<(Counter, Count)>,
    regions: Vec<MemoryRegion>,
    sets: Vec<Vec<Entry>>,
    arrivals: Vec<Counter>,
}

impl Builder {
    fn counter(&mut self, comes_to: Count) -> Result<Counter> {
        let counter = Counter::open(&self.endpoint)?;
        if self.start != 0 {
            counter.set(self.start)?;
        }
        self.counters.push((counter.clone(), comes_to));
        Ok(counter)
    }

    /// A word of this rank as the target of the interface's own operations.
    fn own_word(&mut self, word: &Word) -> Result<RemotePlace> {
        let region = register_word(&self.endpoint, word, None)?;
        let place = region.remote(self.own, 0);
        self.regions.push(region);
        Ok(place)
    }

    /// The same entry in every set of a phase, or of both.
    fn each_set(&mut self, of: Option<usize>, mut make: impl FnMut() -> Result<Entry>) -> Result<()> {
        let first = self.terms.last_epoch;
        for (set, entries) in (0u32..).zip(&mut self.sets) {
            if of.is_none_or(|of| phase(first.wrapping_add(set)) == of) {
                entries.push(make()?);
            }
        }
        Ok(())
    }

    /// A word is set by an atomic operation, in every set. None is added to: processors may do that at the same time, with
    /// which the interface's operations are not atomic (fi_atomic(3)).
    fn set_word(
        &mut self,
        of: Option<usize>,
        value: Value,
        target: RemotePlace,
        (trigger, threshold): (&Counter, Count),
        done: Count,
    ) -> Result<()> {
        let completed = self.counter(done)?;
        self.each_set(of, || {
            let atomic = DeferredAtomic::new(target, trigger, &completed)?;
            Ok(Entry::new(Work::Atomic(atomic, value), threshold, done))
        })
    }

    /// A payload comes to a buffer: its region's counter sets the word that the stream waits for.
    fn recv(&mut self, recv: &FarRecv, buffer: usize) -> Result<Target> {
        let (of, uses) = match self.terms.buffers {
            1 => (None, Count::Epochs(1)),
            _ => (Some(buffer), Count::Phases(1)),
        };
        let arrived = self.counter(uses)?;
        self.arrivals.push(arrived.clone());
        let region = register(&self.endpoint, &recv.slots[buffer], recv.bytes, Some(&arrived))?;
        let target = Target::of(&region, 0);
        self.regions.push(region);
        let word = self.own_word(&recv.arrivals[buffer])?;
        self.set_word(of, Value::Epoch, word, (&arrived, uses), uses)?;
        Ok(target)
    }

    /// A send: written when its trigger says so, and then its departure is set.
    fn send(
        &mut self,
        send: &FarSend,
        buffers: &[Target],
        peer: PeerAddress,
        triggers: [(&Counter, Count); 2],
        departure: &Word,
    ) -> Result<()> {
        let source = register(&self.endpoint, &send.staging, send.bytes, None)?;
        let source = source.slice(0, send.bytes, "a message")?;
        let sent = self.counter(Count::Epochs(1))?;
        for (of, (trigger, threshold)) in triggers.into_iter().enumerate() {
            let target = buffers[of % buffers.len()].at(peer);
            self.each_set(Some(of), || {
                let write = DeferredWrite::new(&source, target, trigger, &sent)?;
                Ok(Entry::new(Work::Write(write), threshold, Count::Epochs(1)))
            })?;
        }
        let word = self.own_word(departure)?;
        let each = Count::Epochs(1);
        self.set_word(None, Value::Epoch, word, (&sent, each), each)
    }
}

/// The trigger counters of a send, by phase, with what they come to.
type Triggers = [(Counter, Count); 2];

/// One rank's side of an exchange: all that peers may reach.
#[derive(Debug)]
pub(super) struct TriggeredHalf {
    builder: Builder,
    foundry: Foundry,
    sends: Vec<FarSend>,
    recvs: Vec<FarRecv>,
    /// The words that the stream posts are doorbells.
    pub(super) bells: Bells,
    triggers: Vec<Triggers>,
    /// Where peers write to.
    pub(super) told: PerMessage<Vec<Target>>,
}

impl TriggeredHalf {
    /// Makes the counters, which begin at `start`, and the entries of what comes in. Does not communicate.
    pub(super) fn new(
        world: &World,
        (endpoint, own): (&Endpoint, PeerAddress),
        exchange: FarExchange,
        mut bells: Bells,
        start: u64,
    ) -> Result<Self> {
        let FarExchange { terms, sends, recvs, .. } = exchange;
        let mut builder = Builder {
            endpoint: endpoint.clone(),
            own,
            terms,
            start,
            counters: Vec::new(),
            regions: Vec::new(),
            sets: (0..SETS).map(|_| Vec::new()).collect(),
            arrivals: Vec::new(),
        };
        let foundry = Foundry { abort: world.fabric().abort(), rank: world.rank() };
        let triggers = make_triggers(&mut builder, &sends, &mut bells, &foundry)?;
        let mut heard = Vec::new();
        for (send, triggers) in sends.iter().zip(&triggers) {
            heard.push(hear(&mut builder, send, triggers)?);
        }
        let mut buffers = Vec::new();
        for recv in &recvs {
            let made = (0..terms.buffers).map(|buffer| builder.recv(recv, buffer));
            buffers.push(made.collect::<Result<Vec<_>>>()?);
        }
        let told = PerMessage { sends: heard, recvs: buffers };
        Ok(Self { builder, foundry, sends, recvs, bells, triggers, told })
    }

    /// Makes the entries of what goes out, with what the peers have told.
    pub(super) fn complete(
        self,
        peers: &[PeerAddress],
        theirs: PerMessage<Vec<Target>>,
    ) -> Result<(Built, Bells)> {
        let Self { mut builder, foundry, sends, recvs, mut bells, triggers, .. } = self;
        let PerMessage { sends: buffers, recvs: ears } = theirs;
        for (index, (send, triggers)) in sends.iter().zip(&triggers).enumerate() {
            let [even, odd] = triggers;
            let triggers = [(&even.0, even.1), (&odd.0, odd.1)];
            builder.send(send, &buffers[index], peers[send.peer], triggers, &bells.departures[index])?;
        }
        let each = Count::Epochs(1);
        if recvs.iter().any(|recv| recv.announces) {
            let ready = builder.counter(each)?;
            bells.start = bells.start.with_doorbell(Arc::new(foundry.bell(ready.clone())));
            for (recv, ears) in recvs.iter().zip(&ears).filter(|(recv, _)| recv.announces) {
                let target = ears[0].at(peers[recv.peer]);
                builder.set_word(None, Value::Announced, target, (&ready, each), each)?;
            }
        }
        let Builder { counters, regions, sets, arrivals, .. } = builder;
        Ok((Built { counters, regions, sets, arrivals }, bells))
    }
}

/// Every send's trigger counters; the stream's words ring them.
fn make_triggers(
    builder: &mut Builder,
    sends: &[FarSend],
    bells: &mut Bells,
    foundry: &Foundry,
) -> Result<Vec<Triggers>> {
    let terms = builder.terms;
    // Sends are packed in order: the last one's bell says that all are. Blocks are to go while later ones are copied.
    let in_batch = |send: &FarSend| terms.waits_for_group || !(send.awaits || send.block.is_some());
    let last = sends.iter().rposition(in_batch);
    let batch = match last {
        None => None,
        Some(last) => {
            let exposures = if terms.waits_for_group { sends.len() as u64 } else { 0 };
            let comes_to = Count::Epochs(exposures + 1);
            let trigger = builder.counter(comes_to)?;
            ring(&mut bells.triggers[last], foundry.bell(trigger.clone()));
            Some((trigger, comes_to))
        }
    };
    let mut made = Vec::new();
    for (index, send) in sends.iter().enumerate() {
        made.push(match &batch {
            Some(batch) if in_batch(send) => [batch.clone(), batch.clone()],
            _ if !send.awaits => {
                let each = Count::Epochs(1);
                let trigger = builder.counter(each)?;
                ring(&mut bells.triggers[index], foundry.bell(trigger.clone()));
                [(trigger.clone(), each), (trigger, each)]
            }
            _ if terms.buffers == 1 => {
                let both = Count::Epochs(2);
                let trigger = builder.counter(both)?;
                ring(&mut bells.triggers[index], foundry.bell(trigger.clone()));
                [(trigger.clone(), both), (trigger, both)]
            }
            _ => {
                // A credit may come an epoch before the trigger: the phases must not be mixed up.
                let both = Count::Phases(2);
                let triggers = [(builder.counter(both)?, both), (builder.counter(both)?, both)];
                let bells_of = [foundry.bell(triggers[0].0.clone()), foundry.bell(triggers[1].0.clone())];
                let word = bells.triggers[index].clone();
                bells.triggers[index] = word.with_doorbell(Arc::new(ByPhase(bells_of)));
                triggers
            }
        });
    }
    Ok(made)
}

/// Rings one of two bells, by the phase of the epoch.
struct ByPhase([Bell; 2]);

impl Doorbell for ByPhase {
    fn ring(&self, epoch: u32) {
        self.0[phase(epoch)].ring(epoch);
    }
}

fn ring(word: &mut Word, bell: Bell) {
    *word = word.clone().with_doorbell(Arc::new(bell));
}

/// Where a send's receiver says that it is ready; nothing if it never does.
fn hear(builder: &mut Builder, send: &FarSend, triggers: &Triggers) -> Result<Vec<Target>> {
    if !send.awaits {
        return Ok(Vec::new());
    }
    let counter = match builder.terms.buffers {
        1 => triggers[0].0.clone(),
        _ => {
            let credits = builder.counter(Count::Epochs(1))?;
            for (of, (trigger, both)) in triggers.iter().enumerate() {
                builder.each_set(Some(of), || {
                    let add = DeferredCounterAdd::new(trigger, 1, &credits)?;
                    // It is through once the trigger has come too.
                    Ok(Entry::new(Work::Credit(add, trigger.clone()), Count::Credits, *both))
                })?;
            }
            credits
        }
    };
    let region = register_word(&builder.endpoint, &send.clear, Some(&counter))?;
    let target = Target::of(&region, 0);
    builder.regions.push(region);
    Ok(vec![target])
}
