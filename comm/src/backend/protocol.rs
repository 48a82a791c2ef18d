//! The stream-triggered backends: one engine, driven by what each protocol says.

use super::far;
use super::matching::{Plan, PlannedRecv, PlannedSend, Rules, Target, match_all};
use super::reach::Site;
use super::{Direct, Exchange, ExchangeSpec, Route, Slot};
use crate::device::{
    Message, MoveTable, OnDevice, Rule, SignalSet, Stage, Standing, Stream, TriggeredSend, WaitSet,
    next_group,
};
use crate::error::{Error, Result};
use crate::fabric::{Executor, OpenExchange, Place, Role, Word, next_count, phase};
use std::sync::Arc;

/// How receivers learn that payloads are there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Completion {
    /// Each sender sets a word of its own to the epoch.
    Flag,
    /// All senders count in one word.
    Count,
}

/// What makes a stream-triggered backend: what goes before, with and after the payload.
#[derive(Debug, Clone, Copy)]
pub(super) struct Protocol {
    /// What a receiver says as it starts.
    pub(super) readiness: Role,
    /// To which senders it says so.
    pub(super) announces: fn(&PlannedRecv) -> bool,
    /// From which receivers a sender waits to hear it.
    pub(super) awaits: fn(&PlannedSend) -> bool,
    /// The value that a receiver announces in an epoch.
    pub(super) announced: fn(u32) -> u32,
    /// The value that a sender needs in an epoch.
    pub(super) needed: fn(u32) -> u32,
    /// Whether no send starts before all receivers are ready.
    pub(super) waits_for_group: bool,
    /// Receive buffers used in turn.
    pub(super) buffers: usize,
    /// What must be allowed for a single pass into the ghosts.
    pub(super) direct: Direct,
    pub(super) completion: Completion,
}

impl Protocol {
    /// What says that a payload is there, in the memory of a peer that is mapped.
    fn completion_word(self, target: &Target, phase: usize) -> Option<&Word> {
        match (target, self.completion) {
            (Target::Near(near), Completion::Flag) => Some(&near.arrivals[phase % self.buffers]),
            (Target::Near(near), Completion::Count) => Some(&near.counts[phase]),
            (Target::Far(_), _) => None,
        }
    }
}

/// A matched exchange under a protocol.
#[derive(Debug)]
pub(super) struct Triggered {
    protocol: Protocol,
    plan: Plan,
    /// What goes over a wire, if the fabric has one.
    far: Option<OpenExchange>,
    /// Who carries out what goes to mapped memory.
    near: Executor,
    standing: Standing,
    group: u64,
    readiness: Arc<SignalSet>,
    /// By phase; one for the whole group, or one a message.
    sends: [Vec<Arc<TriggeredSend>>; 2],
    waits: [Arc<WaitSet>; 2],
    /// Until the payloads that a wire takes have left their staging memory.
    departures: Arc<WaitSet>,
}

/// A call and where it belongs.
#[derive(Debug)]
pub(super) struct Step {
    call: &'static str,
    needed: Stage,
    next: Stage,
    reason: &'static str,
}

pub(super) const BIND: Step =
    Step { call: "bind", needed: Stage::Unbound, next: Stage::Idle, reason: "moves are given once" };
pub(super) const START_RECVS: Step = Step {
    call: "start_recvs",
    needed: Stage::Idle,
    next: Stage::Receiving,
    reason: "bind the moves first, and wait for the last exchange",
};
pub(super) const START_SENDS: Step = Step {
    call: "start_sends",
    needed: Stage::Receiving,
    next: Stage::Sending,
    reason: "start the receives first",
};
pub(super) const WAIT: Step = Step {
    call: "wait",
    needed: Stage::Sending,
    next: Stage::Idle,
    reason: "start receives and sends first",
};

impl Stage {
    /// Takes a step, if it is its turn.
    #[inline(always)]
    pub(super) fn take(&mut self, step: &'static Step) -> Result<()> {
        if *self != step.needed {
            return Err(Error::OutOfOrder { call: step.call, reason: step.reason.into() });
        }
        *self = step.next;
        Ok(())
    }
}

impl Triggered {
    /// Matches an exchange. Collective.
    pub(super) fn matched(
        site: &Site<'_>,
        spec: &ExchangeSpec,
        protocol: Protocol,
    ) -> Result<Box<dyn Exchange>> {
        let arrival = match protocol.completion {
            Completion::Flag => Role::Completion,
            Completion::Count => Role::Notification,
        };
        let rules = Rules { clear: protocol.readiness, arrival, direct: Some(protocol.direct) };
        let plan = match_all(site, spec, rules)?;
        let far = far::open(site, &plan, protocol, spec.last_epoch)?;
        let group = next_group();
        let told = plan.recvs.iter().filter(|recv| (protocol.announces)(recv));
        let starts = far.iter().flat_map(|far| &far.starts).cloned();
        let readiness = Arc::new(SignalSet {
            words: told.filter_map(|recv| recv.clear.clone()).chain(starts).collect(),
            rule: Rule::Set,
            wakes: plan.recvs.iter().any(|recv| recv.peer_sleeps),
        });
        let carried = far.as_ref().map(|far| far.guard.clone());
        let waits = [0, 1].map(|phase| {
            let buffer = phase % protocol.buffers;
            let arrivals = plan.recvs.iter().map(|recv| recv.arrivals[buffer].clone()).collect();
            // Peers that never sleep need no wake-up.
            let signalled = plan.sends.iter().filter(|send| send.peer_sleeps);
            let signalled =
                signalled.filter_map(|send| protocol.completion_word(&send.target, phase).cloned()).collect();
            let (words, sources) = match protocol.completion {
                Completion::Flag => (arrivals, Vec::new()),
                Completion::Count if plan.recvs.is_empty() => (Vec::new(), Vec::new()),
                Completion::Count => (vec![plan.counts[phase].clone()], arrivals),
            };
            Arc::new(WaitSet { words, sources, signalled, group, _carried: carried.clone() })
        });
        let departures = far.iter().flat_map(|far| &far.departures).cloned().collect();
        let departures = WaitSet {
            words: departures,
            sources: Vec::new(),
            signalled: Vec::new(),
            group,
            _carried: carried,
        };
        Ok(Box::new(Self {
            protocol,
            plan,
            far,
            near: site.stream.executor(),
            standing: Standing::new(spec.last_epoch),
            group,
            readiness,
            sends: [Vec::new(), Vec::new()],
            waits,
            departures: Arc::new(departures),
        }))
    }

    /// Takes a step of the epoch, which it gives.
    #[inline(always)]
    fn step(&self, step: &'static Step) -> Result<u32> {
        let mut counts = self.standing.get();
        counts.stage.take(step)?;
        self.standing.set(counts);
        Ok(counts.epoch)
    }

    fn buffer(&self, phase: usize) -> usize {
        phase % self.protocol.buffers
    }

    fn message(&self, send: &PlannedSend, phase: usize, moves: Arc<MoveTable>) -> Message {
        let word = self.protocol.completion_word(&send.target, phase);
        match (word.cloned(), &send.target, self.protocol.completion) {
            // The source's own word is stamped with the epoch, as part of the payload: it is read
            // only to say which source is missing.
            (Some(count), Target::Near(near), Completion::Count) => {
                let stamp = Some(near.arrivals[self.buffer(phase)].clone());
                Message { moves, stamp, completion: (count, Rule::Increment) }
            }
            (Some(flag), ..) => Message { moves, stamp: None, completion: (flag, Rule::Set) },
            (None, ..) => {
                let far = self.far.as_ref().expect("a far send goes over a wire");
                let before = self.plan.sends.iter().take_while(|other| !std::ptr::eq(*other, send));
                let index = before.filter(|other| other.is_far()).count();
                Message { moves, stamp: None, completion: (far.triggers[index].clone(), Rule::Set) }
            }
        }
    }
}

impl Exchange for Triggered {
    fn epoch(&self) -> u32 {
        self.standing.get().epoch
    }

    fn send_slot(&self, message: usize, phase: usize) -> Slot {
        let send = &self.plan.sends[message];
        match &send.target {
            Target::Near(near) if send.direct => Slot::Ghosts(near.ghosts[phase].clone()),
            Target::Near(near) => Slot::Packed(near.slots[self.buffer(phase)].clone()),
            Target::Far(staging) => Slot::Packed(staging.clone()),
        }
    }

    fn recv_slot(&self, message: usize, phase: usize) -> Option<Place> {
        let recv = &self.plan.recvs[message];
        if recv.direct { None } else { Some(recv.slots[self.buffer(phase)].clone()) }
    }

    fn bind(&mut self, moves: Vec<[Arc<MoveTable>; 2]>) -> Result<()> {
        self.step(&BIND)?;
        assert_eq!(moves.len(), self.plan.sends.len(), "one table of moves for each send");
        self.sends = [0, 1].map(|phase| {
            let message = |(send, moves): (&PlannedSend, &[Arc<MoveTable>; 2])| {
                let awaits = (self.protocol.awaits)(send);
                let conditions = if awaits { vec![send.clear.clone()] } else { Vec::new() };
                (conditions, self.message(send, phase, moves[phase].clone()))
            };
            let all = self.plan.sends.iter().zip(&moves);
            let (far, near): (Vec<_>, Vec<_>) = all.partition(|(send, _)| send.is_far());
            let messages = near.into_iter().map(message);
            let triggered = |conditions, messages| {
                Arc::new(TriggeredSend {
                    conditions,
                    needed: self.protocol.needed,
                    messages,
                    group: self.group,
                    on_device: OnDevice::default(),
                })
            };
            if self.protocol.waits_for_group {
                // A wire looks at the readiness of its own peers, and knows nothing of the near ones.
                let group = |all: bool| {
                    let group = self.plan.sends.iter().filter(|send| all || !send.is_far());
                    group.map(|send| send.clear.clone()).collect()
                };
                let (near, far): (Vec<_>, Vec<_>) =
                    (messages.collect(), far.into_iter().map(message).collect());
                let batches = [(group(false), far), (group(true), near)];
                let batches = batches.into_iter().filter(|(_, messages)| !messages.is_empty());
                let only = |messages: Vec<(_, Message)>| messages.into_iter().map(|(_, message)| message);
                batches.map(|(group, messages)| triggered(group, only(messages).collect())).collect()
            } else {
                let far = far.into_iter().map(|send| triggered(Vec::new(), vec![message(send).1]));
                far.chain(messages.map(|(conditions, message)| triggered(conditions, vec![message])))
                    .collect()
            }
        });
        Ok(())
    }

    fn start_recvs(&mut self, stream: &Stream) -> Result<()> {
        let mut counts = self.standing.get();
        counts.stage.take(&START_RECVS)?;
        if let Some(arm) = self.far.as_mut().and_then(|far| far.arm.as_mut()) {
            let reason = "the host queues the operations of each epoch with the network interface";
            stream.refuse_capture("an exchange over this fabric", reason)?;
            arm.arm(&stream.status().context)?;
        }
        stream.note(&self.standing);
        counts.epoch = counts.epoch.wrapping_add(1);
        self.standing.set(counts);
        let announced = self.standing.of_epoch((self.protocol.announced)(counts.epoch));
        stream.write_values(&self.readiness, announced);
        Ok(())
    }

    fn start_sends(&mut self, stream: &Stream) -> Result<()> {
        let epoch = self.step(&START_SENDS)?;
        for send in &self.sends[phase(epoch)] {
            stream.enqueue_send(send, self.standing.of_epoch(epoch));
        }
        Ok(())
    }

    fn flush(&mut self, stream: &Stream) {
        stream.wake_signalled(&self.waits[phase(self.epoch())]);
    }

    fn wait(&mut self, stream: &Stream) -> Result<()> {
        let epoch = self.step(&WAIT)?;
        let phase = phase(epoch);
        let value = match self.protocol.completion {
            Completion::Flag => self.standing.of_epoch(epoch),
            Completion::Count => {
                let mut counts = self.standing.get();
                let expected = next_count(counts.expected[phase], self.plan.recvs.len() as u32);
                counts.expected[phase] = expected;
                self.standing.set(counts);
                self.standing.of_count(phase, expected)
            }
        };
        stream.wait_values(&self.waits[phase], value);
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
            let reason = send.way.told(reason);
            Route { peer: send.peer, bytes: send.bytes, path, reason, executor }
        };
        self.plan.sends.iter().map(route).collect()
    }
}
