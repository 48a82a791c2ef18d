//! The calls of an exchange, each of which has its turn.

use crate::device::Stage;
use crate::error::{Error, Result};

/// A call and where it belongs.
#[derive(Debug)]
pub(super) struct Step {
    pub(super) call: &'static str,
    needed: Stage,
    next: Stage,
    reason: &'static str,
}

pub(super) const BIND: Step =
    Step { call: "bind", needed: Stage::Unbound, next: Stage::Idle, reason: "moves are given once" };
pub(super) const START_RECVS: Step = Step {
    call: "start_recvs",
    needed: Stage::Idle,
    next: Stage::Receiving,
    reason: "bind the moves first, and wait for the last exchange",
};
pub(super) const START_SENDS: Step = Step {
    call: "start_sends",
    needed: Stage::Receiving,
    next: Stage::Sending,
    reason: "start the receives first",
};
pub(super) const WAIT: Step = Step {
    call: "wait",
    needed: Stage::Sending,
    next: Stage::Idle,
    reason: "start receives and sends first",
};

impl Stage {
    /// The last epoch that has been waited for.
    pub(super) fn last_waited(self, epoch: u32) -> u32 {
        epoch.wrapping_sub(u32::from(matches!(self, Stage::Receiving | Stage::Sending)))
    }

    /// Takes a step, if it is its turn.
    #[inline(always)]
    pub(super) fn take(&mut self, step: &'static Step) -> Result<()> {
        if *self != step.needed {
            return Err(Error::OutOfOrder { call: step.call, reason: step.reason.into() });
        }
        *self = step.next;
        Ok(())
    }
}
