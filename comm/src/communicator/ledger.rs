//! What has become of staged messages: a record of their steps, each with those that it waits for.

use crate::error::Result;
use crate::room::room_for;

/// What a step of a staged message does (2023 paper on Intel GPUs, figure 2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StagedAction {
    /// Copies a block from the device to the host: D2H in the figure.
    CopyDown,
    /// Brings a block from one rank's host memory to the other's: MPI in the figure. The sender's step ends when the
    /// fabric is done with its memory; the receiver's is there when the block is.
    Transfer,
    /// Copies a block from the host to the device: H2D in the figure.
    CopyUp,
}

/// A step of a staged message, on one rank.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StagedStep {
    /// Which staged message of the rank, counted from 0 since the record began.
    pub message: u64,
    /// Which block of it, from 0.
    pub block: u32,
    /// How many it has.
    pub blocks: u32,
    /// What is done with the block.
    pub action: StagedAction,
    /// How long it is, in bytes.
    pub bytes: usize,
    /// What this step waits for: indices of earlier steps in the record. Copies wait on the device, for those before
    /// them in its queue of that direction; all else is waited for by the host.
    pub after: Vec<usize>,
    /// When it began, counted in beginnings and ends of steps of the record.
    pub begun: u64,
    /// When the host saw that it had ended, in the same count; `None` if it has not.
    pub ended: Option<u64>,
}

/// A step in the ledger; none where none is kept.
pub(super) type StepIndex = Option<Step>;

/// A step of one of the records that the ledger has kept.
#[derive(Debug, Clone, Copy)]
pub(super) struct Step {
    record: u64,
    index: usize,
}

/// The steps of staged messages, while they are recorded.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    steps: Option<Vec<StagedStep>>,
    /// Which record this is.
    record: u64,
    room: usize,
    clock: u64,
    messages: u64,
}

impl Ledger {
    /// Keeps a record from here on, of at most so many steps.
    pub(super) fn begin_record(&mut self, room: usize) -> Result<()> {
        let steps = Some(room_for(room, "a record of staged messages")?);
        *self = Self { steps, record: self.record + 1, room, clock: 0, messages: 0 };
        Ok(())
    }

    /// What has been recorded since; nothing is any more.
    pub(super) fn take(&mut self) -> Vec<StagedStep> {
        self.steps.take().unwrap_or_default()
    }

    /// A number for a message whose steps will follow.
    pub(super) fn message(&mut self) -> u64 {
        self.messages += 1;
        self.messages - 1
    }

    /// A step begins, after others.
    pub(super) fn begin(
        &mut self,
        (message, block, blocks): (u64, u32, u32),
        action: StagedAction,
        bytes: usize,
        after: [StepIndex; 2],
    ) -> StepIndex {
        let steps = self.steps.as_mut()?;
        if steps.len() == self.room {
            return None;
        }
        let begun = self.clock;
        self.clock += 1;
        // What began before the record is not in it.
        let known = after.into_iter().flatten().filter(|step| step.record == self.record);
        let after = known.map(|step| step.index).collect();
        steps.push(StagedStep { message, block, blocks, action, bytes, after, begun, ended: None });
        Some(Step { record: self.record, index: steps.len() - 1 })
    }

    /// A step is seen to have ended.
    pub(super) fn end(&mut self, step: StepIndex) {
        let (Some(step), Some(steps)) = (step, &mut self.steps) else { return };
        let Some(step) = steps.get_mut(step.index).filter(|_| step.record == self.record) else { return };
        step.ended = Some(self.clock);
        self.clock += 1;
    }
}
