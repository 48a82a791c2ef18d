//! Signals and sends on a device's queue: payloads that kernels move, and words that kernels, the queue or the thread post
//! behind them.

use super::awaited::Number;
use super::engine::Engine;
use super::executor::QueueExecutor;
use super::merged::{Before, MergedSend};
use super::owed::Debt;
use super::times::{about_merged, about_message};
use super::waits::{Flags, address};
use crate::device::accelerator::DeviceMemory;
use crate::device::counts::Count;
use crate::device::driver::{CommandQueue, Driver, Groups, Value};
use crate::device::operation::{Message, Rule, TriggeredSend};
use crate::error::Result;
use crate::fabric::Word;
use crate::timeline::Activity;

/// Words that one kernel signals.
pub(super) const WORDS: usize = 4;

impl<D: Driver> QueueExecutor<D> {
    /// Posts to words, behind what is on the queue and what the thread owes: by kernels where they can, and else by
    /// the thread once the device has come there. The caller holds the words.
    pub(super) fn signal(&mut self, words: &[&Word], rule: Rule, value: u32) -> Result<()> {
        // Where kernels add to a word the thread may not: additions of theirs and of the host's are not one operation.
        if rule == Rule::Increment
            && !self.owed.is_empty()
            && words.iter().any(|word| self.can_post(word, rule))
        {
            self.pay_all()?;
            if self.status.has_failed() {
                return Ok(());
            }
        }
        let (here, elsewhere): (Vec<&Word>, Vec<&Word>) =
            words.iter().copied().partition(|word| self.is_posted_by_kernels(word, rule));
        here.iter().for_each(|word| word.observe());
        self.post_by_kernels(&here, rule, value.into())?;
        elsewhere.into_iter().try_for_each(|word| self.owe(Debt::Post(word.clone(), rule, value)))
    }

    pub(super) fn is_posted_by_kernels(&self, word: &Word, rule: Rule) -> bool {
        self.owed.is_empty() && self.can_post(word, rule)
    }

    /// Whether kernels can post to a word at all.
    pub(super) fn can_post(&self, word: &Word, rule: Rule) -> bool {
        let adds = || word.region().on_device().is_some_and(DeviceMemory::kernels_add);
        self.signal.is_some() && !word.rings() && self.is_here(word) && (rule == Rule::Set || adds())
    }

    pub(super) fn post_by_kernels(&mut self, words: &[&Word], rule: Rule, number: Number) -> Result<()> {
        if self.by_queue && rule == Rule::Set {
            for word in words {
                // SAFETY: kernels reach the word, and the caller holds it.
                unsafe { self.queue.write_word(address(word), number.value) }?;
            }
            return Ok(());
        }
        let (number, increments) = match rule {
            Rule::Set => (number, 0),
            Rule::Increment => (1.into(), 1),
        };
        for group in words.chunks(WORDS) {
            let kernel = self.signal.as_mut().expect("asked before");
            let posted =
                (0..WORDS).map(|index| group.get(index).map_or(std::ptr::null(), |word| address(word)));
            let pointers = posted.chain([self.flags.failed()]).map(Value::Pointer);
            let arguments: Vec<Value> =
                pointers.chain(number.arguments()).chain([Value::U32(increments)]).collect();
            // SAFETY: the arguments are those of the kernel's text, where pointers to words may be null; the
            // caller holds the words, and the flags live as long as the queue.
            unsafe { self.queue.launch("a signal", kernel, &arguments, Groups::ForThreads([1, 1, 1])) }?;
        }
        Ok(())
    }

    /// Whether kernels can reach a word.
    pub(super) fn is_here(&self, word: &Word) -> bool {
        word.region().on_device().is_some_and(|memory| memory.device() == self.engine.driver().id())
    }

    /// Moves the payloads and signals their completion, message by message: those between copies of the host's by the
    /// thread. The caller holds the send.
    pub(super) fn send(&mut self, send: &TriggeredSend, epoch: u32) -> Result<()> {
        let mut is_merged = false;
        if self.is_merged {
            self.timed(|own| {
                is_merged = own.send_merged(send, epoch)?;
                Ok(is_merged.then(|| about_merged(send, epoch)))
            })?;
        }
        if is_merged {
            return Ok(());
        }
        self.put_all_kept_back()?;
        if self.status.has_failed() {
            return Ok(());
        }
        for message in &send.messages {
            let (word, rule) = &message.completion;
            self.timed(|own| {
                own.send_payload(message, epoch)?;
                Ok(Some(about_message(message, epoch, Activity::Pack, "pack")))
            })?;
            self.timed(|own| {
                own.signal(&[word], *rule, epoch)?;
                Ok(Some(about_message(message, epoch, Activity::Trigger, word.role.name())))
            })?;
        }
        Ok(())
    }

    fn send_payload(&mut self, message: &Message, epoch: u32) -> Result<()> {
        if message.moves.is_of_host() {
            self.owe(Debt::Moves(message.moves.clone()))?;
        } else if message.moves.bytes() > 0 {
            self.put_moves(&message.moves)?;
        }
        match &message.stamp {
            None => Ok(()),
            // A part of the payload, of which nobody is told.
            Some(stamp) if self.is_posted_by_kernels(stamp, Rule::Set) => {
                self.post_by_kernels(&[stamp], Rule::Set, epoch.into())
            }
            Some(stamp) => self.owe(Debt::Stamp(stamp.clone(), epoch)),
        }
    }

    /// Signals the completion of a message behind its payload, by kernels; the caller holds the words.
    pub(super) fn post_message(&mut self, message: &Message, epoch: Number) -> Result<()> {
        if let Some(stamp) = &message.stamp {
            self.post_by_kernels(&[stamp], Rule::Set, epoch)?;
        }
        let (word, rule) = &message.completion;
        self.post_by_kernels(&[word], *rule, epoch)
    }

    /// Moves all payloads and signals them in one kernel, if that can do it; whether it could. The caller holds the
    /// send.
    fn send_merged(&mut self, send: &TriggeredSend, epoch: u32) -> Result<bool> {
        let mut words = send.messages.iter().flat_map(Message::words);
        if !words.all(|(word, rule)| self.is_posted_by_kernels(word, rule)) {
            return Ok(false);
        }
        let sent = self.send_behind(send, epoch)?;
        if sent && !self.status.has_failed() {
            self.has_merged(send);
        }
        Ok(sent)
    }

    /// All of a send is on the queue as one kernel.
    pub(super) fn has_merged(&self, send: &TriggeredSend) {
        self.status.count(Count::MergedSends, 1);
        for message in &send.messages {
            message.moves.observe();
            message.completion.0.observe();
        }
    }

    /// Puts the one kernel of a send on the queue, whose words kernels can post, with the signals before it; whether there is
    /// one.
    pub(super) fn launch_merged(
        &mut self,
        send: &TriggeredSend,
        numbers: (Number, Option<Before<'_>>),
    ) -> Result<bool> {
        self.with_merged(send, |on, merged| merged.launch(on, send, numbers))
    }

    /// Compiles the one kernel of a send, whose words kernels can post; whether there is one.
    pub(super) fn compile_merged(&mut self, send: &TriggeredSend) -> Result<bool> {
        self.with_merged(send, |_, merged| Ok(merged.is_there()))
    }

    pub(super) fn with_merged<R>(
        &mut self,
        send: &TriggeredSend,
        use_it: impl FnOnce((&Engine<D>, &mut D::Queue, &Flags), &mut MergedSend<D>) -> Result<R>,
    ) -> Result<R> {
        send.on_device.with(
            self.id,
            &mut self.queue,
            |_| MergedSend::compile(&self.engine, send),
            |queue, merged| use_it((&self.engine, queue, &self.flags), merged),
        )
    }
}
