//! Streams that keep a [`Timeline`]: what happens to their operations, on the host's side and on the executor's.
//!
//! An operation comes through here twice: as the host enqueues it ([`put`]), and as the executor carries it out
//! ([`run`]). Streams that keep none never do: the word that says so is the one that says whether they have failed.

use super::host::lane;
use super::moves::Purpose;
use super::operation::{Operation, TriggeredSend};
use super::status::Status;
use super::stream::Stream;
use crate::error::Result;
use crate::fabric::{Role, Word};
use crate::timeline::{Activity, Draft, Recording, Timeline, now_ns};
use std::sync::Arc;

impl Stream {
    /// Keeps a timeline of this stream and of the host's calls from here on, with room for that many spans of about
    /// a hundred bytes each. An exchange of a rank takes some ten, and as many for the host. An earlier timeline of
    /// the stream is lost. Blocks until all that was enqueued has run.
    ///
    /// # Errors
    /// [`OutOfMemory`](crate::Error::OutOfMemory); those of [`Stream::synchronize`].
    pub fn record_timeline(&self, spans: usize) -> Result<()> {
        self.begin_recording(|| Recording::new(self.status().context.rank, spans))
    }

    /// Adds this stream to the timeline of another one of its rank; without effect if that keeps none. Blocks until
    /// all that was enqueued has run.
    ///
    /// # Errors
    /// Those of [`Stream::synchronize`].
    pub fn join_timeline(&self, other: &Stream) -> Result<()> {
        match other.status().recording() {
            None => Ok(()),
            Some(recording) => self.begin_recording(|| Ok(recording.join())),
        }
    }

    fn begin_recording(&self, recording: impl FnOnce() -> Result<Recording>) -> Result<()> {
        self.drain();
        self.check()?;
        self.status().record(Some(recording()?));
        Ok(())
    }

    /// Stops keeping a timeline of this stream, and gives what there is of all streams that share it; `None` if it
    /// keeps none. Blocks until all that was enqueued has run or, on a stream that has failed, was skipped; its error
    /// surfaces at [`Stream::synchronize`] as ever.
    pub fn take_timeline(&self) -> Option<Timeline> {
        self.drain();
        let recording = self.status().recording()?;
        self.status().record(None);
        Some(recording.take())
    }

    /// Whether it keeps a timeline.
    pub fn is_recorded(&self) -> bool {
        self.status().is_recorded()
    }

    /// Marks this point in a timeline: where the host is, and where the stream comes to it. Nothing happens if none
    /// is kept. Does not block.
    pub fn mark(&self, name: &str) {
        if self.is_recorded() {
            self.put(Operation::Host(Activity::Mark, name.to_owned(), Box::new(|_| Ok(()))));
        }
    }

    /// Does something that keeps the host, and notes it if a timeline is kept.
    #[inline]
    pub(crate) fn by_host<T>(&self, activity: Activity, name: &'static str, act: impl FnOnce() -> T) -> T {
        if !self.is_recorded() {
            return act();
        }
        let begin_ns = now_ns();
        let result = act();
        if let Some(recording) = self.status().recording() {
            recording.note(true, Draft::new(activity, name), begin_ns, now_ns());
        }
        result
    }
}

/// Enqueues an operation, and notes that the host did.
#[cold]
pub(super) fn put(stream: &Stream, operation: Operation) {
    let Some(recording) = stream.status().recording() else { return stream.put_recorded(operation) };
    let mut draft = about(&operation);
    if draft.activity != Activity::Mark {
        draft.activity = Activity::Enqueue;
    }
    draft.operation = Some(recording.enqueue());
    let begin_ns = now_ns();
    stream.put_recorded(operation);
    recording.note(true, draft, begin_ns, now_ns());
}

/// Carries an operation out, and notes what was done. Those that a failed stream skips are not noted.
#[cold]
pub(super) fn run(status: &Arc<Status>, operation: Operation) {
    let Some(recording) = status.recording() else { return lane::run(status, operation) };
    let number = Some(recording.begin());
    if status.has_failed() {
        return lane::run(status, operation);
    }
    match operation {
        Operation::Replay(replay) => {
            // The error of a stream that has failed is there already.
            let _ = replay.each(|sequence, moved| {
                let operations = sequence.operations(moved);
                operations.for_each(|operation| carry_out(status, &recording, operation, number));
                if status.has_failed() { Err(()) } else { Ok(()) }
            });
        }
        operation => carry_out(status, &recording, operation, number),
    }
}

/// As [`run`], of the operation with that number or a part of it.
fn carry_out(status: &Arc<Status>, recording: &Recording, operation: Operation, number: Option<u64>) {
    if status.has_failed() {
        return lane::run(status, operation);
    }
    let mut draft = about(&operation);
    draft.operation = number;
    let begin_ns = now_ns();
    match operation {
        Operation::Send(send, epoch) if send.is_clear(epoch) => {
            return self::send(status, &send, epoch, number);
        }
        Operation::Ready(ready, epoch) if ready.not_started(status.context.rank, epoch).is_none() => {
            return self::send(status, &ready.send, epoch, number);
        }
        Operation::Send(send, epoch) => {
            draft.name = "send put off, receiver not ready".into();
            lane::defer(status, &send, epoch, number);
        }
        other => lane::run(status, other),
    }
    recording.note(false, draft, begin_ns, now_ns());
}

/// Carries a send out whose receivers are ready, and notes both parts of each message.
#[cold]
pub(super) fn send(status: &Status, send: &TriggeredSend, epoch: u32, number: Option<u64>) {
    let Some(recording) = status.recording() else { return send.run(epoch) };
    for message in &send.messages {
        let word = &message.completion.0;
        let peer = match message.moves.purpose() {
            Purpose::Pack(peer) => peer,
            _ => word.to,
        };
        let part = |activity, name| Draft {
            operation: number,
            peer: Some(peer),
            bytes: Some(message.moves.bytes()),
            value: Some(epoch),
            ..Draft::new(activity, name)
        };
        let begin_ns = now_ns();
        message.moves.run();
        let packed_ns = now_ns();
        message.complete(epoch);
        let end_ns = now_ns();
        recording.note(false, part(Activity::Pack, "pack"), begin_ns, packed_ns);
        recording.note(false, part(Activity::Trigger, word.role.name()), packed_ns, end_ns);
    }
}

/// What there is to say of an operation.
pub(super) fn about(operation: &Operation) -> Draft {
    match operation {
        Operation::Move(moves) => {
            let (activity, peer) = match moves.purpose() {
                Purpose::Copy => (Activity::Copy, None),
                Purpose::Pack(peer) => (Activity::Pack, Some(peer)),
                Purpose::Unpack => (Activity::Unpack, None),
            };
            Draft { peer, bytes: Some(moves.bytes()), ..Draft::new(activity, activity.name()) }
        }
        Operation::Signal(signals, value) => {
            let name = signals.words.first().map_or("no signal needed", |word| word.role.name());
            Draft { value: Some(*value), ..Draft::new(Activity::Signal, name) }
        }
        Operation::Send(_, epoch) => Draft { value: Some(*epoch), ..Draft::new(Activity::Deferred, "send") },
        Operation::Ready(_, epoch) => {
            Draft { value: Some(*epoch), ..Draft::new(Activity::Trigger, "ready send") }
        }
        Operation::Wake(_) => Draft::new(Activity::Signal, "wake-up"),
        Operation::Wait(waits, value) => {
            Draft { value: Some(*value), ..Draft::new(Activity::Wait, wait_for(waits.words.first())) }
        }
        Operation::Kernel(kernel) => Draft::new(Activity::Kernel, kernel.name.clone()),
        Operation::Replay(_) => Draft::new(Activity::Function, "replay"),
        Operation::Host(activity, name, _) => Draft::new(*activity, name.clone()),
        Operation::Clock(_) => Draft::new(Activity::Function, "clock"),
        Operation::Record(_) => Draft::new(Activity::Function, "event"),
        Operation::Launch(launch) => Draft::new(Activity::Kernel, launch.text.name),
        Operation::Prepare(_) => Draft::new(Activity::Function, "prepare a period"),
        Operation::Finish => Draft::new(Activity::Function, "come to rest"),
        Operation::WaitEvent(_) => Draft::new(Activity::Wait, "wait for an event"),
    }
}

fn wait_for(word: Option<&Word>) -> &'static str {
    match word.map(|word| word.role) {
        Some(Role::Completion) => "wait for completions",
        Some(Role::Notification) => "wait for notifications",
        Some(Role::Departure) => "wait for departures",
        Some(Role::Exposure) => "wait for exposures",
        Some(Role::ClearToSend) => "wait for clear-to-send",
        Some(_) => "wait",
        None => "nothing to wait for",
    }
}
