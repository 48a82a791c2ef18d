//! What an access epoch is to do, and the sends that do it.
//!
//! The operations of an epoch are compiled to one table of moves a target when the epoch is completed, with the
//! completion word of the target behind them. An epoch that does the same as one before, between the same
//! memory, uses its sends again: iterations do not compile anything.

use super::signals::Signals;
use crate::device::{Hold, Message, Mirror, Move, MoveTable, OnDevice, Rule, TriggeredSend, WaitSet};
use crate::element::{ElementType, Op};
use crate::error::Result;
use crate::fabric::Place;
use std::sync::Arc;

/// What an operation does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Put,
    Get,
    Accumulate(Op),
}

/// An operation of an access epoch that has not begun.
#[derive(Debug)]
pub(super) struct Recorded {
    pub(super) kind: Kind,
    pub(super) target: usize,
    /// Bytes from the beginning of the target's window.
    pub(super) offset: usize,
    pub(super) mirror: Mirror,
    /// Whether the copy of what is on a device is as peers left it, in the part that this rank has exposed.
    pub(super) is_exposed: bool,
    /// Keeps others from the section until the epoch is complete, or a stream orders them.
    pub(super) hold: Option<Hold>,
}

/// What makes two operations the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Key {
    kind: Kind,
    target: usize,
    offset: usize,
    /// Unique, because the table of a kept plan keeps the memory.
    address: usize,
    bytes: usize,
    element: ElementType,
}

impl Recorded {
    /// Enqueues what has to be done on the stream of its section before it is carried out.
    pub(super) fn enqueue_before(&self) {
        if self.kind != Kind::Get && !self.is_exposed {
            self.mirror.enqueue_down();
        }
    }

    /// Enqueues what has to be done there afterwards.
    pub(super) fn enqueue_behind(&self) {
        if self.kind == Kind::Get {
            self.mirror.enqueue_up();
        }
    }

    fn key(&self) -> Key {
        Key {
            kind: self.kind,
            target: self.target,
            offset: self.offset,
            address: self.mirror.place().pointer() as usize,
            bytes: self.mirror.section().bytes(),
            element: self.mirror.section().element_type(),
        }
    }

    fn as_move(&self, part: &Place) -> Result<Move> {
        let section = self.mirror.section();
        let bytes = section.bytes();
        let there = part.advance(self.offset, bytes, "an operation on a window")?;
        let here = self.mirror.place().clone();
        let (source, destination, op) = match self.kind {
            Kind::Put => (here, there, Op::Replace),
            Kind::Get => (there, here, Op::Replace),
            Kind::Accumulate(op) => (here, there, op),
        };
        Ok(Move {
            source,
            source_strides: [bytes; 2],
            destination,
            destination_strides: [bytes; 2],
            counts: [1, 1],
            run_bytes: bytes,
            element: section.element_type(),
            op,
        })
    }
}

/// The sends of an epoch to targets that have come to the same count.
#[derive(Debug)]
pub(super) struct Plan {
    targets: Vec<usize>,
    keys: Vec<Key>,
    pub(super) send: Arc<TriggeredSend>,
    /// Until the send has gone: for gets, what they bring is there then.
    pub(super) departure: Arc<WaitSet>,
}

/// The plans of the last epochs.
#[derive(Debug, Default)]
pub(super) struct Plans {
    kept: Vec<Plan>,
}

/// Plans that are kept: windows used in turn, by phase or direction, have a few.
const KEPT: usize = 8;

impl Plans {
    /// The plan for those targets, mapped and at the same count. `parts` are by rank.
    pub(super) fn of(
        &mut self,
        signals: &Signals,
        parts: &[Option<Place>],
        targets: &[usize],
        operations: &[Recorded],
    ) -> Result<&Plan> {
        let ours = || operations.iter().filter(|one| targets.contains(&one.target));
        let known = self.kept.iter().position(|plan| {
            plan.targets == targets && ours().map(Recorded::key).eq(plan.keys.iter().copied())
        });
        let index = match known {
            Some(index) => index,
            None => {
                let plan = Plan::new(signals, parts, targets, &ours)?;
                if self.kept.len() == KEPT {
                    self.kept.remove(0);
                }
                self.kept.push(plan);
                self.kept.len() - 1
            }
        };
        Ok(&self.kept[index])
    }
}

impl Plan {
    fn new<'a, I: Iterator<Item = &'a Recorded>>(
        signals: &Signals,
        parts: &[Option<Place>],
        targets: &[usize],
        operations: &dyn Fn() -> I,
    ) -> Result<Self> {
        let message = |target: usize| {
            let moves = |accumulates: bool| {
                let ours = operations().filter(|one| one.target == target);
                let ours = ours.filter(|one| matches!(one.kind, Kind::Accumulate(_)) == accumulates);
                let part = || parts[target].as_ref().expect("operations are on parts that are mapped");
                ours.map(|one| one.as_move(part())).collect::<Result<Vec<_>>>()
            };
            let moves = Arc::new(MoveTable::with_accumulates(moves(false)?, &moves(true)?)?);
            Ok(Message { moves, stamp: None, completion: (signals.completion_of(target).clone(), Rule::Set) })
        };
        let send = TriggeredSend {
            conditions: targets.iter().map(|target| signals.exposed_by(*target).clone()).collect(),
            needed: |epoch| epoch,
            messages: targets.iter().map(|target| message(*target)).collect::<Result<Vec<_>>>()?,
            group: signals.group(),
            on_device: OnDevice::default(),
        };
        let woken = targets.iter().filter(|target| signals.sleeps(**target));
        let signalled = woken.map(|target| signals.completion_of(*target).clone()).collect();
        let departure = WaitSet::new(Vec::new(), signalled, signals.group());
        Ok(Self {
            targets: targets.to_vec(),
            keys: operations().map(Recorded::key).collect(),
            send: Arc::new(send),
            departure: Arc::new(departure),
        })
    }
}
