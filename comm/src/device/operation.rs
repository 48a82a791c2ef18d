//! What can be on a stream.

use super::MoveTable;
use super::moves::OnDevice;
use super::sequence::{Replay, Sequence};
use super::status::Event;
use super::text::Launch;
use crate::error::{Error, Result};
use crate::fabric::{Word, store_fence};
use crate::timeline::Activity;
use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// One operation.
pub(crate) enum Operation {
    Move(Arc<MoveTable>),
    Signal(Arc<SignalSet>, u32),
    Send(Arc<TriggeredSend>, u32),
    Ready(Arc<ReadySend>, u32),
    Wake(Arc<WaitSet>),
    Wait(Arc<WaitSet>, u32),
    Host(Activity, String, HostFunction),
    /// Tells when the stream came to it.
    Clock(TellTime),
    Record(Event),
    WaitEvent(Event),
    /// A kernel of the host.
    Kernel(Arc<HostKernel>),
    /// A kernel as text.
    Launch(Arc<Launch>),
    /// A period is made ready for replays, by a device.
    Prepare(Arc<Sequence>),
    /// A period, so many times.
    Replay(Box<Replay>),
    /// The device comes to rest, whatever has failed.
    Finish,
}

/// A host function on a stream. One that waits for other ranks calls what it is given, again and again: that carries out
/// the stream's sends whose receivers have become ready meanwhile, for which those ranks may wait.
pub(crate) type HostFunction = Box<dyn FnOnce(&mut dyn FnMut() -> bool) -> Result<()> + Send>;

/// Is told a time, in nanoseconds of [`crate::timeline::now_ns`].
pub(crate) type TellTime = Box<dyn FnOnce(u64) + Send>;

/// A kernel that the host runs, as often as it is asked to.
pub(crate) struct HostKernel<F: ?Sized = dyn Fn() -> Result<()> + Send + Sync> {
    pub(crate) name: String,
    pub(crate) run: F,
}

/// How an epoch becomes what a word is set to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rule {
    /// The word becomes the value.
    Set,
    /// The word becomes one more.
    Increment,
}

impl Rule {
    #[inline(always)]
    pub(crate) fn post(self, word: &Word, value: u32) {
        match self {
            Rule::Set => word.post(value),
            Rule::Increment => word.post_increment(),
        }
    }
}

/// Words that are written together.
#[derive(Debug)]
pub(crate) struct SignalSet {
    pub(crate) words: Vec<Word>,
    pub(crate) rule: Rule,
    /// Whether anyone may sleep on them.
    pub(crate) wakes: bool,
    /// Whether a device has a kernel of a send that posts them first.
    pub(crate) goes_with_a_send: AtomicBool,
}

impl SignalSet {
    /// A signal of words that become a value.
    pub(crate) fn new(words: Vec<Word>, wakes: bool) -> Self {
        Self { words, rule: Rule::Set, wakes, goes_with_a_send: AtomicBool::new(false) }
    }

    #[inline]
    pub(crate) fn run(&self, value: u32) {
        for word in &self.words {
            self.rule.post(word, value);
        }
        if self.wakes {
            store_fence();
            self.words.iter().for_each(Word::wake);
        }
    }
}

/// Words that are waited for together, and the sends that must have gone out as well.
#[derive(Debug)]
pub(crate) struct WaitSet {
    pub(crate) words: Vec<Word>,
    /// Who the word depends on, where all sources count in one.
    pub(crate) counted: Option<Counted>,
    /// What else its end depends on, where others than the stream wait for it.
    pub(crate) behind: Option<Behind>,
    /// What the group's sends signal. A send that goes out at once leaves waking sleepers to the
    /// wait, so that its stores drain while the stream does something else.
    pub(crate) signalled: Vec<Word>,
    /// The group of the sends.
    pub(crate) group: u64,
    /// What carries the group's messages, for as long as the wait may still be on a stream.
    pub(crate) _carried: Option<Arc<dyn Any + Send + Sync>>,
    pub(crate) on_device: OnDevice,
}

/// Words whose writers have let go, if they say that these come to less than `needed(epoch)`, of what is waited for in
/// that epoch.
#[derive(Debug, Clone)]
pub(crate) struct Behind {
    pub(crate) words: Vec<Word>,
    pub(crate) needed: fn(u32) -> u32,
}

/// Who counts in a word, and for which epoch.
#[derive(Debug)]
pub(crate) struct Counted {
    /// One word a source, which comes to the epoch.
    pub(crate) sources: Vec<Word>,
    /// The epoch of the wait that a stream came to last: the next one is for the second one behind it.
    epoch: AtomicU32,
}

impl Counted {
    /// Of epochs of one phase.
    pub(crate) fn new(sources: Vec<Word>, last_epoch: u32) -> Self {
        Self { sources, epoch: AtomicU32::new(last_epoch) }
    }
}

impl WaitSet {
    /// For words, on which alone it depends, with what the group has signalled.
    pub(crate) fn new(words: Vec<Word>, signalled: Vec<Word>, group: u64) -> Self {
        let on_device = OnDevice::default();
        Self { words, counted: None, behind: None, signalled, group, _carried: None, on_device }
    }

    /// A stream comes to a wait for that value: its epoch. Waits of one set are on one stream.
    #[inline]
    pub(crate) fn begin(&self, value: u32) -> u32 {
        match &self.counted {
            None => value,
            Some(counted) => {
                let epoch = counted.epoch.load(Ordering::Relaxed).wrapping_add(2);
                counted.epoch.store(epoch, Ordering::Relaxed);
                epoch
            }
        }
    }

    /// The error if a rank has let go of its end without what makes this wait of that epoch end.
    pub(crate) fn gone(&self, epoch: u32) -> Option<Error> {
        let words = self.counted.as_ref().map_or(&self.words, |counted| &counted.sources);
        let behind = || {
            let Behind { words, needed } = self.behind.as_ref()?;
            words.iter().find_map(|word| word.gone(needed(epoch)))
        };
        words.iter().find_map(|word| word.gone(epoch)).or_else(behind)
    }

    /// Wakes whoever sleeps on what the group has signalled.
    #[inline(always)]
    pub(crate) fn wake_signalled(&self) {
        if !self.signalled.is_empty() {
            store_fence();
            self.signalled.iter().for_each(Word::wake);
        }
    }
}

/// A number for sends that are waited for together, which no others of this process have.
pub(crate) fn next_group() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Payload and completion of a send.
#[derive(Debug, Clone)]
pub(crate) struct Message {
    /// Packs straight to where the payload goes.
    pub(crate) moves: Arc<MoveTable>,
    /// Set to the epoch as part of the payload, for nobody to wait on.
    pub(crate) stamp: Option<Word>,
    /// Written once the payload is there.
    pub(crate) completion: (Word, Rule),
}

/// Sends that are carried out once their receivers are ready, whenever a stream has come to them:
/// what a network interface does with a triggered operation, done by the stream's executor.
#[derive(Debug)]
pub(crate) struct TriggeredSend {
    /// Words that must have come to `needed(epoch)`.
    pub(crate) conditions: Vec<Word>,
    pub(crate) needed: fn(u32) -> u32,
    pub(crate) messages: Vec<Message>,
    /// Whose wait has to see it gone.
    pub(crate) group: u64,
    pub(crate) on_device: OnDevice,
}

impl Message {
    /// What it posts, and how: stamps are parts of the payload.
    pub(crate) fn words(&self) -> impl Iterator<Item = (&Word, Rule)> {
        let (completion, rule) = &self.completion;
        self.stamp.iter().map(|stamp| (stamp, Rule::Set)).chain([(completion, *rule)])
    }

    /// Says that the payload is there.
    #[inline(always)]
    pub(super) fn complete(&self, epoch: u32) {
        if let Some(stamp) = &self.stamp {
            stamp.cell().store(epoch);
        }
        let (word, rule) = &self.completion;
        rule.post(word, epoch);
    }
}

impl TriggeredSend {
    /// Whether all receivers are ready.
    #[inline(always)]
    pub(crate) fn is_clear(&self, epoch: u32) -> bool {
        let needed = (self.needed)(epoch);
        self.conditions.iter().all(|word| word.cell().reached(needed))
    }

    /// The error if a receiver has let go of its end, and will not be ready.
    pub(crate) fn gone(&self, epoch: u32) -> Option<Error> {
        let needed = (self.needed)(epoch);
        self.conditions.iter().find_map(|word| word.gone(needed))
    }

    /// Moves the payloads and signals their completion, message by message, without waking those
    /// who sleep for it: see [`WaitSet::wake_signalled`].
    #[inline]
    pub(crate) fn run(&self, epoch: u32) {
        for message in &self.messages {
            message.moves.run();
            message.complete(epoch);
        }
    }

    /// Wakes those who sleep for the completion.
    pub(crate) fn wake(&self) {
        store_fence();
        for message in &self.messages {
            message.completion.0.wake();
        }
    }
}

/// Sends whose receivers have been started already, as the application promises: they go out together when a
/// stream comes to them, or the stream fails.
#[derive(Debug)]
pub(crate) struct ReadySend {
    /// Its conditions are by message.
    pub(crate) send: TriggeredSend,
    /// The tags, by message.
    pub(crate) tags: Vec<u32>,
}

impl ReadySend {
    /// The first receiver that has not been started.
    pub(crate) fn not_started(&self, rank: usize, epoch: u32) -> Option<Error> {
        let needed = (self.send.needed)(epoch);
        let mut receivers = self.send.conditions.iter().zip(&self.tags);
        let late = receivers.find(|(word, _)| !word.cell().reached(needed))?;
        Some(Error::ReceiverNotReady { rank, peer: late.0.from, tag: *late.1 })
    }
}
