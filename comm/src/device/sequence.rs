//! Operations that are carried out again and again: what a capture has made of a period.

use super::moves::{MoveTable, OnDevice};
use super::operation::{HostKernel, Operation, SignalSet, TriggeredSend, WaitSet};
use super::text::Launch;
use crate::error::Result;
use std::fmt;
use std::sync::{Arc, OnceLock};

/// One operation of a period.
pub(crate) enum Step {
    Move(Arc<MoveTable>),
    Signal(Arc<SignalSet>, Due),
    Send(Arc<TriggeredSend>, Due),
    Wake(Arc<WaitSet>),
    Wait(Arc<WaitSet>, Due),
    Kernel(Arc<HostKernel>),
    Launch(Arc<Launch>),
}

/// A value at the capture, and the count that it goes with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Due {
    pub(crate) value: u32,
    pub(crate) count: usize,
}

impl Due {
    /// The value once counts have moved on since the capture.
    pub(crate) fn after(self, moved: &[u32]) -> u32 {
        self.value.wrapping_add(moved[self.count])
    }
}

/// The operations of a period, which keep what they use.
pub(crate) struct Sequence {
    pub(crate) steps: Vec<Step>,
    /// How far each count moves on in a period.
    pub(crate) strides: Vec<u32>,
    pub(crate) on_device: OnDevice,
    /// What the stream of a device has made of it: nothing, if the device replays it, or why the stream's thread
    /// does.
    pub(crate) prepared: OnceLock<Result<Option<String>>>,
}

impl Sequence {
    pub(super) fn new(steps: Vec<Step>, strides: Vec<u32>) -> Self {
        Self { steps, strides, on_device: OnDevice::default(), prepared: OnceLock::new() }
    }

    /// Whether the device replays it.
    pub(crate) fn is_recorded(&self) -> bool {
        matches!(self.prepared.get(), Some(Ok(None)))
    }

    /// The operations of a period, counts having moved on since the capture.
    pub(crate) fn operations<'a>(&'a self, moved: &'a [u32]) -> impl Iterator<Item = Operation> + 'a {
        self.steps.iter().map(move |step| match step {
            Step::Move(moves) => Operation::Move(moves.clone()),
            Step::Signal(signals, due) => Operation::Signal(signals.clone(), due.after(moved)),
            Step::Send(send, due) => Operation::Send(send.clone(), due.after(moved)),
            Step::Wake(waits) => Operation::Wake(waits.clone()),
            Step::Wait(waits, due) => Operation::Wait(waits.clone(), due.after(moved)),
            Step::Kernel(kernel) => Operation::Kernel(kernel.clone()),
            Step::Launch(launch) => Operation::Launch(launch.clone()),
        })
    }

    /// Tells who observes it what a device stores and signals in a period.
    pub(crate) fn observe(&self) {
        for step in &self.steps {
            match step {
                Step::Move(moves) => moves.observe(),
                Step::Signal(signals, _) => signals.words.iter().for_each(|word| word.observe()),
                Step::Send(send, _) => {
                    for message in &send.messages {
                        message.moves.observe();
                        message.completion.0.observe();
                    }
                }
                Step::Wake(_) | Step::Wait(..) | Step::Kernel(_) | Step::Launch(_) => {}
            }
        }
    }
}

impl fmt::Debug for Sequence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sequence({} operations)", self.steps.len())
    }
}

/// A period that is carried out so many times.
pub(crate) struct Replay {
    pub(crate) sequence: Arc<Sequence>,
    /// How far the counts have moved on since the capture.
    pub(crate) moved: Vec<u32>,
    pub(crate) times: u64,
}

impl Replay {
    /// Hands `run` each period with how far counts have moved on, until it says that this was the last.
    pub(crate) fn each<E>(
        mut self,
        mut run: impl FnMut(&Sequence, &[u32]) -> Result<(), E>,
    ) -> Result<(), E> {
        for _ in 0..self.times {
            run(&self.sequence, &self.moved)?;
            for (moved, stride) in self.moved.iter_mut().zip(&self.sequence.strides) {
                *moved = moved.wrapping_add(*stride);
            }
        }
        Ok(())
    }
}
