//! Timelines of a device's stream: the device says when it came to marks in front of and behind each operation.
//!
//! Periods are carried out operation by operation meanwhile, and not as graphs.

use super::clock::DeviceClock;
use super::executor::QueueExecutor;
use crate::device::accelerator::Execute;
use crate::device::driver::{CommandQueue, Driver};
use crate::device::moves::Purpose;
use crate::device::operation::{Message, Operation, TriggeredSend};
use crate::device::recorded::about;
use crate::device::status::Status;
use crate::error::Result;
use crate::timeline::{Activity, Draft, Recording};
use std::collections::VecDeque;
use std::sync::Arc;

type Mark<D> = <<D as Driver>::Queue as CommandQueue>::Mark;

/// What is known of a device's times.
pub(super) struct Times<D: Driver> {
    recording: Recording,
    clock: DeviceClock<D>,
    /// What the device has not come to the end of.
    pending: VecDeque<(Draft, [Mark<D>; 2])>,
    /// The operation that is carried out.
    number: Option<u64>,
}

impl<D: Driver> QueueExecutor<D> {
    /// Carries out one operation, and notes what was done.
    pub(super) fn run_timed(&mut self, status: &Arc<Status>, recording: &Recording, operation: Operation) {
        if matches!(operation, Operation::Finish) {
            // The host puts it there to wait, and says so itself.
            return self.run(status, operation);
        }
        let number = Some(recording.begin());
        if let Err(error) = self.put_all_kept_back().and_then(|()| self.begin_times(recording)) {
            status.fail(error);
        }
        match operation {
            Operation::Replay(replay) if !status.has_failed() => {
                // The error of a stream that has failed is there already.
                let _ = replay.each(|sequence, moved| {
                    sequence
                        .operations(moved)
                        .for_each(|operation| self.run_one_timed(status, operation, number));
                    if status.has_failed() { Err(()) } else { Ok(()) }
                });
            }
            operation => self.run_one_timed(status, operation, number),
        }
        self.settle_times().unwrap_or_else(|error| status.fail(error));
    }

    fn run_one_timed(&mut self, status: &Arc<Status>, operation: Operation, number: Option<u64>) {
        if status.has_failed() {
            return self.run(status, operation);
        }
        let before = self.number_times(number);
        // What sends do is noted as it is put on the queue.
        let is_send = matches!(operation, Operation::Send(..) | Operation::Ready(..));
        let draft = (!is_send).then(|| about(&operation));
        let noted = self.timed(|own| {
            // Where the program is, the device need not come to rest.
            if !matches!(operation, Operation::Host(Activity::Mark, ..)) {
                own.run(status, operation);
            }
            Ok(draft)
        });
        // It is to begin when the device could.
        let noted = noted.and_then(|()| self.queue.flush());
        self.number_times(before);
        noted.unwrap_or_else(|error| status.fail(error));
    }

    /// Puts something on the queue, and notes it as what `put` says that it was: if a timeline is kept, and it says so.
    pub(super) fn timed(&mut self, put: impl FnOnce(&mut Self) -> Result<Option<Draft>>) -> Result<()> {
        if self.times.is_none() {
            return put(self).map(drop);
        }
        let begin = self.queue.timed_mark()?;
        let draft = put(self)?;
        if let (Some(draft), Some(_)) = (draft, &self.times) {
            let end = self.queue.timed_mark()?;
            if let Some(times) = &mut self.times {
                let operation = times.number;
                times.pending.push_back((Draft { operation, ..draft }, [begin, end]));
            }
        }
        Ok(())
    }

    /// What is put on the queue from here on belongs to that operation; gives the one before.
    pub(super) fn number_times(&mut self, number: Option<u64>) -> Option<u64> {
        self.times.as_mut().and_then(|times| std::mem::replace(&mut times.number, number))
    }

    /// The operation that is carried out, if a timeline is kept.
    pub(super) fn number(&self) -> Option<u64> {
        self.times.as_ref().and_then(|times| times.number)
    }

    /// Keeps times from here on, for that recording.
    fn begin_times(&mut self, recording: &Recording) -> Result<()> {
        if self.times.as_ref().is_some_and(|times| times.recording.is(recording)) {
            return Ok(());
        }
        self.end_times()?;
        // A send that was put off may have gone since the stream was at rest.
        self.queue.finish()?;
        self.queue.keep_times(true)?;
        let (recording, clock) = (recording.clone(), DeviceClock::new(&mut self.queue)?);
        self.times = Some(Times { recording, clock, pending: VecDeque::new(), number: None });
        Ok(())
    }

    /// Notes what the device has come to the end of.
    pub(super) fn settle_times(&mut self) -> Result<()> {
        let Self { times: Some(times), queue, .. } = self else { return Ok(()) };
        let has_passed = |(_, [_, end]): &&(Draft, [Mark<D>; 2])| queue.has_passed(end);
        while times.pending.front().filter(has_passed).is_some()
            && let Some((draft, [begin, end])) = times.pending.pop_front()
        {
            let (begin_ns, end_ns) = (times.clock.at(queue, &begin)?, times.clock.at(queue, &end)?);
            times.recording.note(false, draft, begin_ns, end_ns.max(begin_ns));
            times.clock.pass(end, end_ns);
        }
        Ok(())
    }

    /// Keeps times no longer. Nothing but what was put on it since the timeline was taken is on the queue.
    pub(super) fn end_times(&mut self) -> Result<()> {
        match self.times.take() {
            None => Ok(()),
            Some(_) => self.queue.finish().and_then(|()| self.queue.keep_times(false)),
        }
    }
}

/// A part of a message, its payload or what tells of it.
pub(super) fn about_message(message: &Message, epoch: u32, activity: Activity, name: &'static str) -> Draft {
    let peer = match message.moves.purpose() {
        Purpose::Pack(peer) => peer,
        _ => message.completion.0.to,
    };
    let (peer, bytes) = (Some(peer), Some(message.moves.bytes()));
    Draft { peer, bytes, value: Some(epoch), ..Draft::new(activity, name) }
}

/// All messages of a send, which are one kernel.
pub(super) fn about_merged(send: &TriggeredSend, epoch: u32) -> Draft {
    let bytes = send.messages.iter().map(|message| message.moves.bytes()).sum();
    Draft { bytes: Some(bytes), value: Some(epoch), ..Draft::new(Activity::Trigger, "pack and signal") }
}

/// That a send is carried out later.
pub(super) fn about_put_off(epoch: u32) -> Draft {
    Draft { value: Some(epoch), ..Draft::new(Activity::Deferred, "send put off, receiver not ready") }
}
