//! A matched pair from one rank's side: its words, its epochs, and what its starts and waits put on a stream.
//!
//! Between ranks whose memory is mapped a pair has two words and no buffers. The receiver's start sets the
//! sender's *clear-to-send* to the epoch. The sender's start moves the payload from its section straight into the
//! receiver's, once clear-to-send has come, and then sets the receiver's *arrival* to the epoch. A word only
//! grows, and a start follows the wait for the last one, so that the words of an epoch cannot be taken for those
//! of another.

use super::early::EarlySends;
use super::record::{Direction, Record, Side};
use super::words::End;
use crate::backend::Route;
use crate::device::{
    Behind, Hold, Intent, Message, Mirror, Move, MoveTable, OnDevice, ReadySend, Rule, SignalSet, Stream,
    TriggeredSend, WaitSet, next_group,
};
use crate::error::Result;
use crate::fabric::{Executor, OpenExchange, Place, Role, WaitContext, Word, clear_to_send};
use crate::world::World;
use std::any::Any;
use std::rc::{Rc, Weak};
use std::sync::Arc;

/// What a start puts on a stream.
#[derive(Debug)]
pub(super) enum Start {
    /// Words to be set: a receiver's clear-to-send, or what triggers a wire.
    Signals(Arc<SignalSet>),
    /// A send that goes out once its receiver has been started.
    Regular(Arc<TriggeredSend>),
    /// A send whose receiver must have been started.
    Ready(Arc<ReadySend>),
}

/// How far a pair has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Idle,
    Started { queue: u64 },
}

/// One rank's half of two requests that belong to each other for good.
#[derive(Debug)]
pub(crate) struct Pair {
    /// Of the pair, and the group of its sends.
    id: u64,
    side: Side,
    /// Where the fabric finds the message.
    mirror: Mirror,
    /// Of the message, which may be shorter than the section of a receive.
    bytes: usize,
    epoch: u32,
    stage: Stage,
    start: Start,
    waits: Arc<WaitSet>,
    /// What a peer sleeps on until it is woken.
    wakes: Option<Arc<WaitSet>>,
    hold: Option<Hold>,
    /// The stream that the last wait is on, and how often the host had waited for it by then.
    waited: Option<(Stream, u64)>,
    /// Ends with the pair.
    life: Rc<()>,
    /// Whether the wire has what it needs for the next epoch.
    is_armed: bool,
    /// What carries it, if the peer's memory is not mapped.
    wire: Option<OpenExchange>,
    end: Option<End>,
    /// Where ready sends may come too soon without their sender knowing.
    early: Option<EarlySends>,
}

impl Pair {
    /// Joins this rank's side with what the other one has told, which fits it.
    pub(super) fn near(
        world: &World,
        (side, mirror): (Side, Mirror),
        own: Word,
        told: &Record,
    ) -> Result<Self> {
        let id = next_group();
        let (rank, peer) = (world.rank(), side.peer);
        let (region, offset) = told.word.map(world, peer)?;
        let (start, words, signalled) = match side.direction {
            Direction::Receive => {
                let clear = region.word_with_parting(offset, Role::ClearToSend, rank, peer)?;
                let signals = SignalSet::new(vec![clear], told.sleeps);
                (Start::Signals(Arc::new(signals)), vec![own], Vec::new())
            }
            Direction::Send { ready } => {
                let arrival = region.word_with_parting(offset, Role::Completion, rank, peer)?;
                let signalled = if told.sleeps { vec![arrival.clone()] } else { Vec::new() };
                let (region, offset) = told.section.map(world, peer)?;
                let destination = region.place(offset, side.section.bytes(), "the section of a receive")?;
                let moves = Arc::new(MoveTable::new(&[vec![payload(&mirror, destination)]])?);
                let send = TriggeredSend {
                    conditions: vec![own],
                    needed: clear_to_send,
                    messages: vec![Message { moves, stamp: None, completion: (arrival, Rule::Set) }],
                    group: id,
                    on_device: OnDevice::default(),
                };
                let start = if ready {
                    Start::Ready(Arc::new(ReadySend { send, tags: vec![side.tag] }))
                } else {
                    Start::Regular(Arc::new(send))
                };
                (start, Vec::new(), signalled)
            }
        };
        let wakes = (!signalled.is_empty()).then(|| Arc::new(WaitSet::new(Vec::new(), signalled, id)));
        let bytes = if side.direction.is_send() { side.section.bytes() } else { told.bytes() };
        let waits = WaitSet::new(words, Vec::new(), id);
        let mut pair = Self::new(id, (side, mirror), bytes, world.last_epoch(), (start, waits))?;
        pair.wakes = wakes;
        Ok(pair)
    }

    /// Joins this rank's side with what a wire has made of both.
    pub(super) fn far(
        (side, mirror): (Side, Mirror),
        bytes: usize,
        mut end: End,
        mut open: OpenExchange,
    ) -> Result<Self> {
        let (own, receiver) = (end.own.clone(), end.own.to);
        let (signals, words, behind) = match side.direction {
            Direction::Receive => (std::mem::take(&mut open.starts), vec![own], None),
            Direction::Send { .. } => {
                let behind = Some(Behind { words: vec![own], needed: clear_to_send });
                (std::mem::take(&mut open.triggers), std::mem::take(&mut open.departures), behind)
            }
        };
        let signals = SignalSet::new(signals, false);
        let id = next_group();
        // Waits that are on a stream outlive the pair.
        let _carried: Option<Arc<dyn Any + Send + Sync>> =
            Some(Arc::new((open.guard.clone(), end.listening.take())));
        let waits = WaitSet { behind, _carried, ..WaitSet::new(words, Vec::new(), id) };
        let last_epoch = end.last_epoch;
        let early = open.early.take();
        let early = early.map(|come| EarlySends::new(come, (side.peer, receiver), side.tag, last_epoch));
        let start = Start::Signals(Arc::new(signals));
        let mut pair = Self::new(id, (side, mirror), bytes, last_epoch, (start, waits))?;
        pair.early = early;
        pair.wire = Some(open);
        pair.end = Some(end);
        Ok(pair)
    }

    fn new(
        id: u64,
        (side, mirror): (Side, Mirror),
        bytes: usize,
        last_epoch: u32,
        (start, waits): (Start, WaitSet),
    ) -> Result<Self> {
        Ok(Self {
            id,
            side,
            mirror: mirror.first(bytes)?,
            bytes,
            epoch: last_epoch,
            stage: Stage::Idle,
            start,
            waits: Arc::new(waits),
            wakes: None,
            hold: None,
            waited: None,
            life: Rc::default(),
            is_armed: false,
            wire: None,
            end: None,
            early: None,
        })
    }

    /// Dead once the pair is.
    pub(super) fn life(&self) -> Weak<()> {
        Rc::downgrade(&self.life)
    }

    pub(super) fn side(&self) -> &Side {
        &self.side
    }

    /// How its messages travel.
    pub(super) fn route(&self) -> Route {
        let (path, reason, executor) = match &self.wire {
            Some(wire) => (wire.path, wire.reason, wire.executor),
            None if self.mirror.is_copy() => (
                "from copy to section",
                "the peer's memory is mapped, and this section is on a device",
                Executor::Proxy,
            ),
            None => ("from section to section", "the peer's memory is mapped", Executor::Stream),
        };
        Route { peer: self.side.peer, bytes: self.bytes, path, reason: reason.into(), executor }
    }

    pub(super) fn wakes(&self) -> Option<&Arc<WaitSet>> {
        self.wakes.as_ref()
    }

    pub(super) fn id(&self) -> u64 {
        self.id
    }

    pub(super) fn epoch(&self) -> u32 {
        self.epoch
    }

    /// Enqueues what comes before its start: a payload that is on a device goes to the host, and the stream looks
    /// whether one that is to come is there already.
    pub(super) fn enqueue_before(&self, stream: &Stream) {
        if self.side.direction.is_send() {
            self.mirror.enqueue_down();
        }
        if let Some(early) = &self.early {
            early.enqueue_check(stream);
        }
    }

    /// Enqueues what comes behind its wait: a payload for a device goes there.
    pub(super) fn enqueue_behind(&self) {
        if !self.side.direction.is_send() {
            self.mirror.enqueue_up();
        }
    }

    pub(super) fn start(&self) -> &Start {
        &self.start
    }

    pub(super) fn waits(&self) -> &Arc<WaitSet> {
        &self.waits
    }

    /// The queue that it has been started on and not been waited for.
    pub(crate) fn started_on(&self) -> Option<u64> {
        match self.stage {
            Stage::Idle => None,
            Stage::Started { queue } => Some(queue),
        }
    }

    /// Keeps the application from the section, for a start that may still be given up.
    pub(super) fn prepare(&mut self, context: &WaitContext) -> Result<()> {
        let (intent, by) = match self.side.direction {
            Direction::Receive => (Intent::Write, "a receive on a queue"),
            Direction::Send { .. } => (Intent::Read, "a send on a queue"),
        };
        if let Some(early) = &self.early {
            early.check(self.epoch.wrapping_add(1))?;
        }
        self.hold = Some(self.side.section.hold_in_order(intent, by)?);
        let arm = self.wire.as_mut().and_then(|wire| wire.arm.as_mut());
        if let Some(arm) = arm.filter(|_| !self.is_armed)
            && let Err(error) = arm.arm(context)
        {
            self.hold = None;
            return Err(error);
        }
        // What was armed for a start that is given up serves the next one.
        self.is_armed = true;
        Ok(())
    }

    /// The word in the peer's memory that this side writes, if that is mapped.
    fn told(&self) -> Option<&Word> {
        match (&self.wire, &self.start) {
            (Some(_), _) => None,
            (None, Start::Signals(signals)) => signals.words.first(),
            (None, Start::Regular(send)) => Some(&send.messages[0].completion.0),
            (None, Start::Ready(ready)) => Some(&ready.send.messages[0].completion.0),
        }
    }

    /// Gives the start up.
    pub(super) fn give_up(&mut self) {
        self.hold = None;
    }

    /// Goes on to the next epoch, which is returned; what it takes is enqueued by the caller.
    pub(super) fn begin(&mut self, queue: u64) -> u32 {
        self.stage = Stage::Started { queue };
        self.is_armed = false;
        self.epoch = self.epoch.wrapping_add(1);
        self.epoch
    }

    /// Ends the epoch, whose wait is on that stream: what the application does with the section is behind it.
    pub(super) fn end(&mut self, stream: &Stream) {
        self.stage = Stage::Idle;
        self.hold.take().into_iter().for_each(Hold::leave);
        self.waited = Some((stream.clone(), stream.rests()));
    }

    /// Whether the host knows that nothing of it is under way any more.
    pub(crate) fn check_free(&self) -> Result<(), &'static str> {
        match (&self.stage, &self.waited) {
            (Stage::Started { .. }, _) => Err("has been started: enqueue its wait, and call `Queue::wait`"),
            (Stage::Idle, Some((stream, before))) if stream.rests() == *before => {
                Err("may not be complete: call `Queue::wait` first")
            }
            _ => Ok(()),
        }
    }
}

impl Drop for Pair {
    /// Tells the peer the last epoch that this side completes; what was started beyond may come or not. A rank that panics
    /// tells its failure instead, later. A section whose start was never waited for is held for ever, as the peer may still
    /// write to it.
    fn drop(&mut self) {
        if !std::thread::panicking() {
            let waited = self.epoch.wrapping_sub(u32::from(self.stage != Stage::Idle));
            self.told().inspect(|word| word.part(waited));
            self.end.iter_mut().for_each(|end| end.ends_at(waited));
        }
        if self.stage != Stage::Idle {
            self.hold.take().into_iter().for_each(Hold::keep);
        }
    }
}

/// The whole section, to there.
fn payload(mirror: &Mirror, destination: Place) -> Move {
    let section = mirror.section();
    Move {
        element: section.element_type(),
        ..Move::of_bytes(mirror.place().clone(), destination, section.bytes())
    }
}
