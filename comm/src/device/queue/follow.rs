//! Signals that are kept back for the send behind them, whose kernel posts them first.
//!
//! Most receivers that say they are ready have something to send next. Signals that had a send right behind them before are kept
//! back until the next operation comes, or none does for a while: other ranks may be waiting for them.

use super::arrival::LastWait;
use super::executor::QueueExecutor;
use super::relay::Arrived;
use crate::device::counts::Count;
use crate::device::driver::Driver;
use crate::device::operation::{SignalSet, TriggeredSend};
use crate::error::Result;
use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Looks for the next operation until signals that were kept back are put on the queue by themselves: about as long as a
/// launch takes.
const LOOKS: u32 = 32;

/// The last operation, if it was of signals that the kernel of a send could post: with their value.
pub(super) struct LastSignals {
    pub(super) signals: Arc<SignalSet>,
    pub(super) value: u32,
    /// Whether they are not on the queue yet, and for how many looks nothing has come behind them. Then a wait that is kept
    /// back is before them.
    kept_back: Option<u32>,
}

impl<D: Driver> QueueExecutor<D> {
    /// Posts signals, or keeps them back for the send that is likely to follow.
    pub(super) fn post_or_keep_back(&mut self, signals: Arc<SignalSet>, value: u32) -> Result<()> {
        let by_kernels = || signals.words.iter().all(|word| self.is_posted_by_kernels(word, signals.rule));
        let can_follow = self.is_merged && self.times.is_none() && !signals.words.is_empty() && by_kernels();
        let is_kept = can_follow && signals.goes_with_a_send.load(Ordering::Relaxed);
        if !is_kept {
            self.put_arrival(None)?;
            // What was waited for may not have come.
            if self.status.has_failed() {
                return Ok(());
            }
            self.post_all(signals.clone(), value)?;
        }
        if can_follow {
            self.last_signals = Some(LastSignals { signals, value, kept_back: is_kept.then_some(0) });
        }
        Ok(())
    }

    fn post_all(&mut self, signals: Arc<SignalSet>, value: u32) -> Result<()> {
        self.holding(signals, |own, signals| {
            own.signal(&signals.words.iter().collect::<Vec<_>>(), signals.rule, value)
        })
    }

    /// No send follows signals that are kept back, if some are: puts them on the queue.
    pub(super) fn put_signals(&mut self) -> Result<()> {
        match self.last_signals.take() {
            Some(LastSignals { signals, value, kept_back: Some(_) }) => {
                self.put_kept_back(None)?;
                if self.status.has_failed() { Ok(()) } else { self.post_all(signals, value) }
            }
            _ => Ok(()),
        }
    }

    /// Whether signals are kept back, behind which nothing has come for one look more; `None` if that is too long.
    pub(super) fn look_at_signals(&mut self) -> Option<bool> {
        match &mut self.last_signals {
            Some(LastSignals { kept_back: Some(looks), .. }) => {
                *looks += 1;
                (*looks <= LOOKS).then_some(true)
            }
            _ => Some(false),
        }
    }

    /// Puts the one kernel of a send on the queue, whose words kernels can post, with what it comes behind if that is kept back;
    /// whether there is one. Behind what is on the queue already it is made ready to do that, too, the next time.
    pub(super) fn send_behind(&mut self, send: &TriggeredSend, epoch: u32) -> Result<bool> {
        if self.relay(send, epoch)? || self.status.has_failed() {
            return Ok(true);
        }
        let (wait, last) = (self.last_wait.take(), self.last_signals.take());
        let kept_back = last.as_ref().filter(|last| last.kept_back.is_some());
        let before = kept_back.map(|last| (&last.signals, last.value.into()));
        let launched = self.launch_merged(send, (epoch.into(), before));
        let Some(last) = self.taken(launched, last)? else { return Ok(false) };
        if let Some(LastWait { waits, unpack: Some(unpack), .. }) = &wait {
            let signals = last.as_ref().map(|last| &last.signals);
            self.expect_send(send, Arrived { waits, unpack, signals })?;
        }
        match last {
            Some(LastSignals { signals, kept_back: Some(_), .. }) => self.told_before(signals)?,
            Some(LastSignals { signals, kept_back: None, .. }) => self.follow(send, &signals).map(drop)?,
            None => {}
        }
        Ok(true)
    }

    /// The last signals again, if the kernel of a send has been launched that may tell them first. Else they stay the last, and
    /// are held if a call has failed: the kernel may be on the queue all the same.
    pub(super) fn taken(
        &mut self,
        launched: Result<bool>,
        last: Option<LastSignals>,
    ) -> Result<Option<Option<LastSignals>>> {
        match launched {
            Ok(true) => return Ok(Some(last)),
            Ok(false) => self.last_signals = last,
            Err(_) => self.held.extend(last.map(|last| Box::new(last.signals) as Box<dyn Any + Send>)),
        }
        launched.map(|_| None)
    }

    /// The kernel of a send has been put on the queue that tells these signals first.
    pub(super) fn told_before(&mut self, signals: Arc<SignalSet>) -> Result<()> {
        self.status.count(Count::MergedSignals, 1);
        signals.words.iter().for_each(|word| word.observe());
        self.hold(signals)
    }

    /// Makes the one kernel of a send that posts those signals first; whether there can be one.
    pub(super) fn follow(&mut self, send: &TriggeredSend, signals: &Arc<SignalSet>) -> Result<bool> {
        let is_there = self.with_merged(send, |(engine, ..), merged| {
            merged.follow(engine, send, signals)?;
            Ok(merged.is_there())
        })?;
        signals.goes_with_a_send.store(is_there, Ordering::Relaxed);
        Ok(is_there)
    }
}
