//! The stream-triggered backends: one engine, driven by what each [`Protocol`] says.

use super::blocks::InBlocks;
use super::far;
use super::farewell::Farewell;
use super::matching::{Plan, PlannedRecv, PlannedSend, Rules, Target, match_all};
use super::protocol::Protocol;
use super::reach::Site;
use super::step::{BIND, START_RECVS, START_SENDS, Step, WAIT};
use super::{Exchange, ExchangeSpec, Route, Slot};
use crate::communicator::Blocks;
use crate::device::{
    Behind, Counted, Message, MoveTable, OnDevice, Rule, SignalSet, Standing, Stream, TriggeredSend, WaitSet,
    next_group,
};
use crate::error::Result;
use crate::fabric::{Executor, OpenExchange, Place, Role, Word, next_count, phase};
use std::any::Any;
use std::sync::Arc;

/// A matched exchange under a protocol.
#[derive(Debug)]
pub(super) struct Triggered {
    backend: &'static str,
    protocol: Protocol,
    plan: Plan,
    blocks: InBlocks,
    /// What goes over a wire, if the fabric has one.
    far: Option<OpenExchange>,
    /// Who carries out what goes to mapped memory.
    near: Executor,
    /// How many arrivals there are to count.
    arrivals: u32,
    standing: Standing,
    group: u64,
    readiness: Arc<SignalSet>,
    /// By phase; what packs payloads on the device, of which sends copy blocks to the host.
    packs: [Vec<Arc<MoveTable>>; 2],
    /// By phase; one for the whole group, or one a message.
    sends: [Vec<Arc<TriggeredSend>>; 2],
    /// By phase; blocks that go to the device as they come.
    coming: [Vec<(Arc<WaitSet>, Arc<MoveTable>)>; 2],
    waits: [Arc<WaitSet>; 2],
    /// By phase; arrivals that are flagged where others are counted.
    flagged: [Arc<WaitSet>; 2],
    /// Until the payloads that a wire takes have left their staging memory.
    departures: Arc<WaitSet>,
}

impl Triggered {
    /// Matches an exchange. Collective.
    pub(super) fn matched(
        site: &Site<'_>,
        spec: &ExchangeSpec,
        (backend, protocol): (&'static str, Protocol),
    ) -> Result<Box<dyn Exchange>> {
        let terms = protocol.terms;
        let arrival = if terms.counts { Role::Notification } else { Role::Completion };
        let direct = Some(protocol.direct);
        let rules = Rules { clear: terms.readiness, arrival, direct, in_blocks: true };
        let plan = match_all(site, spec, rules)?;
        let blocks = InBlocks::new(site, &plan, arrival, spec.last_epoch);
        if far::wire(site.world).is_some() {
            site.world.agree("match_exchange", blocks.as_ref().map(|_| ()))?;
        }
        let blocks = blocks?;
        let far = far::open(site, (&plan, &blocks), protocol, spec.last_epoch)?;
        let group = next_group();
        let told = plan.recvs.iter().filter(|recv| (protocol.announces)(recv));
        let starts = far.iter().flat_map(|far| &far.starts).cloned();
        let told = told.filter_map(|recv| recv.clear.near().cloned()).chain(starts).collect();
        let readiness = Arc::new(SignalSet::new(told, plan.recvs.iter().any(|recv| recv.peer_sleeps)));
        let guard = far.as_ref().map(|far| far.guard.clone());
        let carried =
            guard.map(|guard| -> Arc<dyn Any + Send + Sync> { Arc::new((guard, plan.listening.clone())) });
        // What a network interface adds to a word is one operation to itself only: near peers' processors add to the counts,
        // so that it flags what it brings.
        let flags_far = far.as_ref().is_some_and(|far| far.executor == Executor::Nic);
        let counts_far = terms.counts && !flags_far;
        let is_counted = |recv: &&PlannedRecv| if recv.is_far() { counts_far } else { terms.counts };
        let sets = [0, 1].map(|phase| {
            let buffer = phase % terms.buffers;
            let of_blocks = blocks.recvs.iter().flatten().flat_map(|recv| recv.but_last(buffer));
            let (counted, flagged): (Vec<_>, Vec<_>) = plan.recvs.iter().partition(is_counted);
            let words = |recvs: Vec<&PlannedRecv>| -> Vec<Word> {
                recvs.into_iter().map(|recv| recv.arrivals[buffer].clone()).collect()
            };
            let (mut counted, mut flagged) = (words(counted), words(flagged));
            if counts_far { &mut counted } else { &mut flagged }.extend(of_blocks);
            // Peers that never sleep need no wake-up.
            let signalled = plan.sends.iter().filter(|send| send.peer_sleeps);
            let signalled =
                signalled.filter_map(|send| protocol.completion_word(&send.target, phase).cloned()).collect();
            let (words, counted, flagged) = if counted.is_empty() {
                (flagged, None, Vec::new())
            } else {
                let last_epoch = spec.last_epoch.wrapping_sub(phase as u32);
                (vec![plan.counts[phase].clone()], Some(Counted::new(counted, last_epoch)), flagged)
            };
            let _carried = carried.clone();
            let flagged = WaitSet { _carried: carried.clone(), ..WaitSet::new(flagged, Vec::new(), group) };
            let waits = WaitSet { counted, _carried, ..WaitSet::new(words, signalled, group) };
            [waits, flagged].map(Arc::new)
        });
        let [[even, even_flagged], [odd, odd_flagged]] = sets;
        let (waits, flagged) = ([even, odd], [even_flagged, odd_flagged]);
        let of_blocks = if counts_far { blocks.more_arrivals() } else { 0 };
        let arrivals = (plan.recvs.iter().filter(is_counted).count() + of_blocks) as u32;
        let coming = [0, 1].map(|phase| {
            let coming = blocks.coming(phase % terms.buffers).into_iter().map(|([word, last], up)| {
                // Who lets go says so of the last one.
                let behind = Some(Behind { words: vec![last], needed: |epoch| epoch });
                let (alone, _carried) = (WaitSet::new(vec![word], Vec::new(), next_group()), carried.clone());
                (Arc::new(WaitSet { behind, _carried, ..alone }), up)
            });
            coming.collect()
        });
        let departures = far.iter().flat_map(|far| &far.departures).cloned().collect();
        let receivers = plan.sends.iter().filter(|send| send.is_far());
        let receivers = receivers.map(|send| send.clear.clone()).collect();
        let departures = WaitSet {
            // Receivers that are not ready are waited for by whoever carries the message, and one that has let go of an
            // epoch may take it or not. Of one that takes part in it they come to what it announces there, if it
            // announces anything.
            behind: Some(Behind { words: receivers, needed: terms.announced }),
            _carried: carried,
            ..WaitSet::new(departures, Vec::new(), group)
        };
        let standing = Standing::new(spec.last_epoch);
        let farewell = Farewell::new(site.world, &plan, terms.buffers);
        standing.at_the_end(move |counts| {
            let waited = counts.stage.last_waited(counts.epoch);
            farewell.tell((terms.announced)(waited), waited);
        });
        Ok(Box::new(Self {
            backend,
            protocol,
            arrivals,
            plan,
            blocks,
            far,
            near: site.stream.executor(),
            standing,
            group,
            readiness,
            packs: [Vec::new(), Vec::new()],
            sends: [Vec::new(), Vec::new()],
            coming,
            waits,
            flagged,
            departures: Arc::new(departures),
        }))
    }

    /// Takes a step of the epoch on the stream, and gives the epoch.
    #[inline(always)]
    fn step(&self, stream: &Stream, step: &'static Step) -> Result<u32> {
        let mut counts = self.standing.get();
        counts.stage.take(step)?;
        stream.refuse_within_operation(step.call)?;
        stream.note(&self.standing);
        self.standing.set(counts);
        Ok(counts.epoch)
    }

    fn buffer(&self, phase: usize) -> usize {
        phase % self.protocol.terms.buffers
    }

    /// What is triggered in a phase.
    fn bound(&self, moves: &[[Arc<MoveTable>; 2]], phase: usize) -> Result<Vec<Arc<TriggeredSend>>> {
        let all = self.plan.sends.iter().zip(moves).enumerate();
        let (far, near): (Vec<_>, Vec<_>) = all.partition(|(_, (send, _))| send.is_far());
        let far = far.into_iter().map(|(index, (_, moves))| self.far(index, moves[phase].clone()));
        let far = far.collect::<Result<Vec<_>>>()?;
        let near = near.into_iter().map(|(_, (send, moves))| {
            let awaits = (self.protocol.awaits)(send);
            let conditions = if awaits { vec![send.clear.clone()] } else { Vec::new() };
            (conditions, self.near(send, phase, moves[phase].clone()))
        });
        let triggered = |conditions, messages| {
            Arc::new(TriggeredSend {
                conditions,
                needed: self.protocol.terms.needed,
                messages,
                group: self.group,
                on_device: OnDevice::default(),
            })
        };
        if !self.protocol.terms.waits_for_group {
            let far = far.into_iter().map(|messages| triggered(Vec::new(), messages));
            // Those that wait for nobody go together: a device can do that in one kernel.
            let (waiting, free): (Vec<_>, Vec<_>) = near.partition(|(conditions, _)| !conditions.is_empty());
            let free: Vec<Message> = free.into_iter().map(|(_, message)| message).collect();
            let free = (!free.is_empty()).then(|| triggered(Vec::new(), free));
            let waiting =
                waiting.into_iter().map(|(conditions, message)| triggered(conditions, vec![message]));
            return Ok(far.chain(free).chain(waiting).collect());
        }
        // A wire looks at the readiness of its own peers, and knows nothing of the near ones.
        let group = |all: bool| {
            let group = self.plan.sends.iter().filter(|send| all || !send.is_far());
            group.map(|send| send.clear.clone()).collect()
        };
        let far: Vec<Message> = far.into_iter().flatten().collect();
        let near: Vec<Message> = near.map(|(_, message)| message).collect();
        let batches = [(group(false), far), (group(true), near)].into_iter();
        let batches = batches.filter(|(_, messages)| !messages.is_empty());
        Ok(batches.map(|(group, messages)| triggered(group, messages)).collect())
    }

    /// A message to memory that is mapped.
    fn near(&self, send: &PlannedSend, phase: usize, moves: Arc<MoveTable>) -> Message {
        let word = self.protocol.completion_word(&send.target, phase).cloned().expect("a near send");
        match &send.target {
            // The source's own word is stamped with the epoch, as part of the payload: it is read
            // only to say which source is missing.
            Target::Near(near) if self.protocol.terms.counts => {
                let stamp = Some(near.arrivals[self.buffer(phase)].clone());
                Message { moves, stamp, completion: (word, Rule::Increment) }
            }
            _ => Message { moves, stamp: None, completion: (word, Rule::Set) },
        }
    }

    /// A message over a wire, or its blocks: the first is moved by what packs it, unless it is copied as the others.
    fn far(&self, index: usize, moves: Arc<MoveTable>) -> Result<Vec<Message>> {
        let far = self.far.as_ref().expect("a far send goes over a wire");
        let before = (0..index).filter(|other| self.plan.sends[*other].is_far());
        let first: usize = before.map(|other| self.blocks.of_send(other)).sum();
        let staged = self.blocks.sends[index].as_ref().and_then(|send| send.staged.as_ref());
        let nothing = Arc::new(MoveTable::new(&[])?);
        let message = |block: usize| Message {
            moves: match staged {
                Some((_, copies)) => copies[block].clone(),
                None if block == 0 => moves.clone(),
                None => nothing.clone(),
            },
            stamp: None,
            completion: (far.triggers[first + block].clone(), Rule::Set),
        };
        Ok((0..self.blocks.of_send(index)).map(message).collect())
    }
}

impl Exchange for Triggered {
    fn backend(&self) -> &'static str {
        self.backend
    }

    fn epoch(&self) -> u32 {
        self.standing.get().epoch
    }

    fn send_slot(&self, message: usize, phase: usize) -> Slot {
        let send = &self.plan.sends[message];
        match &send.target {
            Target::Near(near) if send.direct => Slot::Ghosts(near.ghosts[phase].clone()),
            Target::Near(near) => Slot::Packed(near.slots[self.buffer(phase)].clone()),
            Target::Far(staging, _) => {
                let staged = self.blocks.sends[message].as_ref().and_then(|send| send.staged.as_ref());
                Slot::Packed(staged.map_or(staging, |(packed, _)| packed).clone())
            }
        }
    }

    fn recv_slot(&self, message: usize, phase: usize) -> Option<Place> {
        let recv = &self.plan.recvs[message];
        let staged = self.blocks.recvs[message].as_ref().and_then(|recv| recv.staged.as_ref());
        match staged {
            Some((unpacked, _)) => Some(unpacked.clone()),
            None => (!recv.direct).then(|| recv.slots[self.buffer(phase)].clone()),
        }
    }

    fn bind(&mut self, moves: Vec<[Arc<MoveTable>; 2]>) -> Result<()> {
        let mut counts = self.standing.get();
        counts.stage.take(&BIND)?;
        self.standing.set(counts);
        assert_eq!(moves.len(), self.plan.sends.len(), "one table of moves for each send");
        let [even, odd] = [0, 1].map(|phase| self.bound(&moves, phase));
        self.sends = [even?, odd?];
        self.packs = [0, 1].map(|phase| {
            let staged =
                |index: usize| self.blocks.sends[index].as_ref().is_some_and(|send| send.staged.is_some());
            let staged = (0..moves.len()).filter(|index| staged(*index));
            staged.map(|index| moves[index][phase].clone()).collect()
        });
        Ok(())
    }

    fn start_recvs(&mut self, stream: &Stream) -> Result<()> {
        let mut counts = self.standing.get();
        counts.stage.take(&START_RECVS)?;
        stream.refuse_within_operation(START_RECVS.call)?;
        if let Some(arm) = self.far.as_mut().and_then(|far| far.arm.as_mut()) {
            let reason = "the host queues the operations of each epoch with the network interface";
            stream.refuse_capture("an exchange over this fabric", reason)?;
            arm.arm(&stream.status().context)?;
        }
        stream.note(&self.standing);
        counts.epoch = counts.epoch.wrapping_add(1);
        self.standing.set(counts);
        let announced = self.standing.of_epoch((self.protocol.terms.announced)(counts.epoch));
        stream.write_values(&self.readiness, announced);
        Ok(())
    }

    fn start_sends(&mut self, stream: &Stream) -> Result<()> {
        let phase_of_epoch = phase(self.epoch());
        let sends = self.sends[phase_of_epoch].iter().flat_map(|send| &send.messages);
        // What is staged in blocks is packed first.
        let packs = &self.packs[phase_of_epoch];
        stream.check_views(packs.iter().chain(sends.map(|message| &message.moves)))?;
        let epoch = self.step(stream, &START_SENDS)?;
        self.packs[phase(epoch)].iter().for_each(|pack| stream.put_move(pack));
        for send in &self.sends[phase(epoch)] {
            stream.enqueue_send(send, self.standing.of_epoch(epoch));
        }
        Ok(())
    }

    fn flush(&mut self, stream: &Stream) {
        stream.wake_signalled(&self.waits[phase(self.epoch())]);
    }

    fn wait(&mut self, stream: &Stream) -> Result<()> {
        let epoch = self.step(stream, &WAIT)?;
        let phase = phase(epoch);
        for (arrived, up) in &self.coming[phase] {
            stream.wait_values(arrived, self.standing.of_epoch(epoch));
            stream.put_move(up);
        }
        let value = if self.arrivals > 0 {
            let mut counts = self.standing.get();
            let expected = next_count(counts.expected[phase], self.arrivals);
            counts.expected[phase] = expected;
            self.standing.set(counts);
            self.standing.of_count(phase, expected)
        } else {
            self.standing.of_epoch(epoch)
        };
        stream.wait_values(&self.waits[phase], value);
        if !self.flagged[phase].words.is_empty() {
            stream.wait_values(&self.flagged[phase], self.standing.of_epoch(epoch));
        }
        if !self.departures.words.is_empty() {
            stream.wait_values(&self.departures, self.standing.of_epoch(epoch));
        }
        Ok(())
    }

    fn routes(&self) -> Vec<Route> {
        let path = |send: &PlannedSend| match (send.direct, send.with_signal) {
            (true, _) => "straight into ghosts",
            (false, true) => "packed, with its signal",
            (false, false) => "packed into the peer's buffer",
        };
        let route = |send: &PlannedSend| {
            let (path, reason, executor) = match &self.far {
                Some(far) if send.is_far() => (far.path, far.reason, far.executor),
                _ => (path(send), send.reason, self.near),
            };
            let blocks = send.blocks.as_ref().map_or(1, Blocks::count);
            let reason = send.way.told(reason, blocks);
            Route { peer: send.peer, bytes: send.bytes, path, reason, executor }
        };
        self.plan.sends.iter().map(route).collect()
    }
}
