//! Starts and waits of several requests in one operation of the stream each.
//!
//! Receives share one operation that sets all their words, ready sends one that moves all their payloads, and
//! whatever is waited for by words is waited for together (2026, section V-A). Regular sends share nothing: each
//! goes out when its own receiver has been started (section V-B).

use super::pair::{Pair, Start};
use crate::device::{Behind, OnDevice, ReadySend, SignalSet, Stream, TriggeredSend, WaitSet};
use crate::fabric::clear_to_send;
use std::any::Any;
use std::rc::Weak;
use std::sync::Arc;

/// How many groups of requests are remembered: requests that are started in ever new orders make ever new groups. More of
/// them in turn are merged again each time.
const REMEMBERED: usize = 1024;

/// What some pairs have together.
#[derive(Debug)]
pub(super) struct Merged {
    members: Vec<u64>,
    /// Dead once the member is freed.
    lives: Vec<Weak<()>>,
    signals: Option<Arc<SignalSet>>,
    ready: Option<Arc<ReadySend>>,
    wakes: Option<Arc<WaitSet>>,
    waits: Option<Arc<WaitSet>>,
}

/// The groups that were started or waited for together.
#[derive(Debug, Default)]
pub(super) struct Groups(Vec<Merged>);

impl Groups {
    /// The group of those members, which `pairs` goes through. Allocates when they first come together.
    pub(super) fn of(
        &mut self,
        members: impl Iterator<Item = u64> + Clone,
        pairs: impl FnOnce(&mut dyn FnMut(&Pair)),
    ) -> &Merged {
        let known = self.0.iter().position(|group| group.members.iter().copied().eq(members.clone()));
        let index = known.unwrap_or_else(|| {
            self.forget_freed();
            if self.0.len() == REMEMBERED {
                self.0.remove(0);
            }
            self.0.push(Merged::new(members.collect(), pairs));
            self.0.len() - 1
        });
        &self.0[index]
    }

    /// Forgets groups of which a member has been freed, with the memory and the wires that they keep.
    pub(super) fn forget_freed(&mut self) {
        self.0.retain(|group| group.lives.iter().all(|life| life.strong_count() > 0));
    }
}

impl Merged {
    fn new(members: Vec<u64>, pairs: impl FnOnce(&mut dyn FnMut(&Pair))) -> Self {
        let mut signals = SignalSet::new(Vec::new(), false);
        let send = TriggeredSend {
            conditions: Vec::new(),
            needed: clear_to_send,
            messages: Vec::new(),
            // It goes out at once or not at all: nobody waits for it.
            group: 0,
            on_device: OnDevice::default(),
        };
        let mut ready = ReadySend { send, tags: Vec::new() };
        let (mut words, mut signalled, mut lives, mut carried) = (vec![], vec![], vec![], vec![]);
        let mut behind = Vec::new();
        pairs(&mut |pair| {
            match pair.start() {
                Start::Signals(one) => {
                    signals.words.extend(one.words.iter().cloned());
                    signals.wakes |= one.wakes;
                }
                Start::Ready(one) => {
                    ready.send.conditions.extend(one.send.conditions.iter().cloned());
                    ready.send.messages.extend(one.send.messages.iter().cloned());
                    ready.tags.extend(&one.tags);
                }
                Start::Regular(_) => {}
            }
            lives.push(pair.life());
            carried.extend(pair.waits()._carried.clone());
            words.extend(pair.waits().words.iter().cloned());
            behind.extend(pair.waits().behind.iter().flat_map(|behind| behind.words.iter().cloned()));
            signalled.extend(pair.wakes().iter().flat_map(|wakes| wakes.signalled.iter().cloned()));
        });
        // As long as the wait is on a stream, what carries the messages has to live.
        let carried: Option<Arc<dyn Any + Send + Sync>> =
            if carried.is_empty() { None } else { Some(Arc::new(carried)) };
        let behind = Some(Behind { words: behind, needed: clear_to_send });
        let waits = WaitSet { behind, _carried: carried, ..WaitSet::new(words, Vec::new(), 0) };
        let waits = (!waits.words.is_empty()).then(|| Arc::new(waits));
        Self {
            members,
            lives,
            signals: (!signals.words.is_empty()).then(|| Arc::new(signals)),
            ready: (!ready.tags.is_empty()).then(|| Arc::new(ready)),
            wakes: (!signalled.is_empty()).then(|| Arc::new(WaitSet::new(Vec::new(), signalled, 0))),
            waits,
        }
    }

    /// Enqueues the starts of all but the regular sends.
    pub(super) fn enqueue_starts(&self, stream: &Stream, epoch: u32) {
        if let Some(signals) = &self.signals {
            stream.write_values(signals, epoch);
        }
        if let Some(ready) = &self.ready {
            stream.enqueue_ready_send(ready, epoch);
        }
    }

    /// Enqueues waking those who sleep for what has been sent.
    pub(super) fn enqueue_wakes(&self, stream: &Stream) {
        if let Some(wakes) = &self.wakes {
            stream.wake_signalled(wakes);
        }
    }

    /// Enqueues the waits for words.
    pub(super) fn enqueue_waits(&self, stream: &Stream, epoch: u32) {
        if let Some(waits) = &self.waits {
            stream.wait_values(waits, epoch);
        }
    }
}
