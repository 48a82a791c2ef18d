//! Steps that a stream replays: a period of them is captured before the clock runs, and enqueued by one call from then on.

use std::ops::Range;

use serde_json::Value;
use streamhalo::comm::Error;
use streamhalo::comm::device::Period;
use streamhalo::{HaloError, Stream};

use super::{Outcome, Steps, Stopwatch, Stored, Trial};
use crate::error::AppError;

/// Periods of which one begins step by step: readings of the clock are no part of a period, and what is read stands for the
/// others. So many that a run takes no longer for it.
const OF_PERIODS: u64 = 64;

/// What a result says of it: who replays, and why nobody does, or not the stream itself.
pub(crate) const REPLAYED_BY: &str = "replayed_by";

/// The period of a field's steps, if `run.replay` asks for one.
#[derive(Debug, Default)]
pub(crate) struct Replays {
    exchanges: u64,
    steps: u64,
    period: Option<Period>,
    /// Why there is none.
    refused: Option<String>,
    /// How often it has been time for one.
    due: u64,
    replayed_steps: u64,
}

impl Replays {
    /// Of so many exchanges, each of which is there for so many steps.
    pub(crate) fn new(exchanges: usize, steps_per_exchange: usize) -> Self {
        let steps = exchanges.saturating_mul(steps_per_exchange) as u64;
        Self { exchanges: exchanges as u64, steps, ..Self::default() }
    }

    /// Steps that have been replayed so far.
    pub(crate) fn replayed_steps(&self) -> u64 {
        self.replayed_steps
    }

    /// Goes on from so many of a field before.
    pub(crate) fn go_on_from(&mut self, replayed_steps: u64) {
        self.replayed_steps += replayed_steps;
    }

    /// Enqueues a period, if it has no more steps than are left. Gives how many it has, and 0 where steps are to be
    /// enqueued one by one.
    pub(super) fn replay(&mut self, stream: &Stream, left: u64) -> Result<u64, AppError> {
        let Some(period) = self.period.as_ref().filter(|_| self.steps <= left) else { return Ok(0) };
        self.due += 1;
        if self.due % OF_PERIODS == 1 {
            return Ok(0);
        }
        stream.replay(period, 1)?;
        self.replayed_steps += self.steps;
        Ok(self.steps)
    }

    /// Says in an outcome what has become of it.
    pub(crate) fn note(&self, outcome: &mut Outcome) {
        if self.exchanges == 0 {
            return;
        }
        let by = match (&self.period, &self.refused) {
            (Some(period), _) => match period.reason() {
                None => period.executor().to_string(),
                Some(reason) => format!("{}, since {reason}", period.executor()),
            },
            (None, Some(reason)) => format!("nobody: {reason}"),
            (None, None) => "nobody".to_owned(),
        };
        outcome.measured.insert(REPLAYED_BY.to_owned(), Value::from(by));
        outcome.measured.insert("replayed_steps".to_owned(), Value::from(self.replayed_steps));
    }
}

impl Trial<'_> {
    /// Captures the period of a field that is to be replayed. What cannot be captured, as exchanges of `standard`, is enqueued
    /// step by step. On all ranks before one replays: a device that makes a period ready may wait for what is on it.
    /// Collective; blocks.
    pub(super) fn capture<T: Stored, const D: usize>(
        &self,
        field: &mut impl Steps<T, D>,
    ) -> Result<(), AppError> {
        let steps = field.replays().map_or(0, |replays| replays.steps);
        if steps == 0 {
            return Ok(());
        }
        let stopwatch = Stopwatch::of_nothing(self.stream);
        let captured = self.stream.capture(|_| {
            let mut step = 0;
            while step < steps {
                let taken = Range { start: step, end: steps.min(step + field.at_once()) };
                step = taken.end;
                field.take(taken, &stopwatch)?;
            }
            Ok::<(), AppError>(())
        });
        let (period, refused) = match captured {
            Ok(period) => (Some(period), None),
            Err(AppError::Halo(error)) => match *error {
                HaloError::Communication(error @ Error::NotCapturable { .. }) => {
                    (None, Some(error.to_string()))
                }
                other => return Err(other.into()),
            },
            Err(other) => return Err(other),
        };
        if let Some(replays) = field.replays() {
            (replays.period, replays.refused) = (period, refused);
        }
        self.stream.synchronize()?;
        Ok(self.world.barrier()?)
    }
}
