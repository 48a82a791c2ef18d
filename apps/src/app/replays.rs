//! Steps that a stream replays: a period of them is captured before the clock runs, and enqueued by one call from then on.

use serde_json::Value;
use streamhalo::comm::Error;
use streamhalo::comm::device::Period;
use streamhalo::{HaloError, Stream, World};

use super::{Application, Outcome, Steps, Stopwatch, Stored, Trial};
use crate::config::RunConfig;
use crate::error::{AppError, counted};

/// Periods of which one begins step by step: readings of the clock are no part of a period, and what is read stands for the
/// others. So many that a run takes no longer for it.
const OF_PERIODS: u64 = 64;

/// How many exchanges are enqueued one by one then.
const ONE_BY_ONE: usize = 2;

/// What a result says of it: who replays, and why nobody does, or not the stream itself.
pub(crate) const REPLAYED_BY: &str = "replayed_by";

/// The period of a field's steps, if `run.replay` asks for one.
#[derive(Debug, Default)]
pub(crate) struct Replays {
    /// How many it has; 0 for none.
    steps: u64,
    /// As captured; or why it is not.
    period: Option<Result<Period, String>>,
    /// How often it has been time for one.
    due: u64,
    replayed_steps: u64,
}

impl Replays {
    /// Of so many exchanges, each of which is there for so many steps.
    pub(crate) fn new(exchanges: usize, steps_per_exchange: usize) -> Self {
        Self { steps: exchanges.saturating_mul(steps_per_exchange) as u64, ..Self::default() }
    }

    /// Steps that have been replayed so far.
    pub(crate) fn replayed_steps(&self) -> u64 {
        self.replayed_steps
    }

    /// Goes on from so many of a field before.
    pub(crate) fn go_on_from(&mut self, replayed_steps: u64) {
        self.replayed_steps += replayed_steps;
    }

    /// Whether there is a period to replay.
    pub(super) fn is_captured(&self) -> bool {
        matches!(self.period, Some(Ok(_)))
    }

    /// Enqueues a period, if it has no more steps than are left. Gives how many it has, and 0 where steps are to be
    /// enqueued one by one.
    pub(super) fn replay(&mut self, stream: &Stream, left: u64) -> Result<u64, AppError> {
        let Some(Ok(period)) = self.period.as_ref().filter(|_| self.steps <= left) else { return Ok(0) };
        self.due += 1;
        if self.due % OF_PERIODS == 1 {
            return Ok(0);
        }
        stream.replay(period, 1)?;
        self.replayed_steps += self.steps;
        Ok(self.steps)
    }

    /// Says in an outcome what has become of it, on all ranks. Collective.
    ///
    /// # Errors
    ///
    /// Which rank failed.
    pub(crate) fn note(&self, trial: &Trial<'_>, outcome: &mut Outcome) -> Result<(), AppError> {
        if self.steps == 0 {
            return Ok(());
        }
        let by = match &self.period {
            Some(Ok(_)) if self.replayed_steps == 0 => {
                let steps = counted(self.steps as usize, "step");
                format!("nobody: there were never {steps} left before a look at the field, or the end")
            }
            Some(Ok(period)) => match period.reason() {
                None => period.executor().to_string(),
                Some(reason) => format!("{}, since {reason}", period.executor()),
            },
            Some(Err(reason)) => format!("nobody: {reason}"),
            None => "nobody".to_owned(),
        };
        // A rank whose messages go another way than those of others may be the only one that cannot.
        let (mut by, steps): (Vec<_>, Vec<_>) =
            trial.world.all_gather(&(by, self.replayed_steps))?.into_iter().unzip();
        by.sort();
        by.dedup();
        outcome.measured.insert(REPLAYED_BY.to_owned(), Value::from(by.join("; ")));
        outcome.measured.insert("replayed_steps".to_owned(), Value::from(steps.into_iter().min()));
        Ok(())
    }
}

/// That an application can replay what `run.replay` asks for, and has enough steps for it.
///
/// # Errors
///
/// [`AppError::Usage`] with the reason, and what to change.
pub(super) fn check(config: &RunConfig, application: &dyn Application) -> Result<(), AppError> {
    if config.run.replay == 0 {
        return Ok(());
    }
    let refused = |reason| AppError::usage("run.replay", format!("`{}` {reason}", config.app.name));
    application.check_replay().map_err(|reason| refused(format!("cannot be replayed: {reason}")))?;
    let needed = (ONE_BY_ONE + config.run.replay).saturating_mul(config.run.exchange_every);
    if needed as u64 <= config.app.steps {
        return Ok(());
    }
    let found = counted(config.app.steps as usize, "step");
    Err(refused(format!(
        "has {found} of the {needed} that a period needs: those of {ONE_BY_ONE} exchanges come before it; give a \
         smaller `run.replay`, or a larger `app.steps`"
    )))
}

impl Trial<'_> {
    /// Captures the period of a field that is to be replayed. Collective; blocks.
    pub(super) fn capture<T: Stored, const D: usize>(
        &self,
        field: &mut impl Steps<T, D>,
    ) -> Result<(), AppError> {
        let steps = field.replays().map_or(0, |replays| replays.steps);
        if steps == 0 {
            return Ok(());
        }
        let stopwatch = Stopwatch::of_nothing(self.stream);
        let period = captured(self.world, self.stream, || {
            let mut step = 0;
            while step < steps {
                let taken = step..steps.min(step + field.at_once());
                step = taken.end;
                field.take(taken, &stopwatch)?;
            }
            Ok(())
        })?;
        if let Some(replays) = field.replays() {
            replays.period = Some(period);
        }
        Ok(())
    }
}

/// Captures a period, or gives the reason why it cannot be, as with exchanges of `standard`. No rank replays before all have
/// come to here: a device that makes a period ready may wait for what is on it. Collective; blocks.
pub(crate) fn captured(
    world: &World,
    stream: &Stream,
    enqueue: impl FnOnce() -> Result<(), AppError>,
) -> Result<Result<Period, String>, AppError> {
    let period = match stream.capture(|_| enqueue()) {
        Ok(period) => Ok(period),
        Err(AppError::Halo(error)) => match *error {
            HaloError::Communication(error @ Error::NotCapturable { .. }) => Err(error.to_string()),
            other => return Err(other.into()),
        },
        Err(other) => return Err(other),
    };
    stream.synchronize()?;
    world.barrier()?;
    Ok(period)
}
