//! The time loop of applications whose field of cells is computed step by step.

use std::ops::Range;

use serde_json::{Map, Value};
use streamhalo::prelude::Alternating;

use super::{Geometry, Replays, Stopwatch, Stored, Times, Trial};
use crate::error::AppError;

/// A field on its way through time.
pub(crate) trait Steps<T, const D: usize> {
    /// The most steps that are taken at once.
    fn at_once(&self) -> u64 {
        1
    }

    /// Whether the ghosts of the last exchange are used up, so that the next step begins with one.
    fn needs_exchange(&self) -> bool {
        true
    }

    /// What of its steps is replayed, if anything may be.
    fn replays(&mut self) -> Option<&mut Replays> {
        None
    }

    /// Enqueues these steps, counted from 0, and makes what they compute the current generation. Exchanges ghosts first
    /// where those of the last exchange are used up: there are none at the first step.
    ///
    /// # Errors
    ///
    /// Those of the exchange and of the kernels.
    fn take(&mut self, steps: Range<u64>, stopwatch: &Stopwatch) -> Result<(), AppError>;

    /// The stream has carried out the last step: waits for what is not on it, before other ranks are waited for.
    ///
    /// # Errors
    ///
    /// Those of what is waited for.
    fn end(&mut self, _stopwatch: &Stopwatch) -> Result<(), AppError> {
        Ok(())
    }

    /// The cells, of which others see the current generation, and a trial begins with those of a checkpoint.
    fn cells(&mut self) -> &mut Alternating<T, D>;

    /// What belongs to the answer besides the cells and has been found in the steps so far, for a checkpoint. All
    /// ranks have the same.
    ///
    /// # Errors
    ///
    /// The stream's, if it has failed.
    fn carried(&self) -> Result<Map<String, Value>, AppError> {
        Ok(Map::new())
    }

    /// Takes it back from a checkpoint.
    fn carry(&mut self, _carried: &Map<String, Value>) {}

    /// Where they are.
    fn geometry(&self) -> Geometry {
        Geometry::default()
    }
}

impl Trial<'_> {
    /// Carries out `steps` steps, or what is left of them behind a checkpoint, and lets others look at the field between
    /// them. Gives the time from the first step to the barrier behind the last. Collective; blocks, and but for looks
    /// and what the steps themselves wait for it does so at the end only.
    ///
    /// # Errors
    ///
    /// That of a step or of somebody who looks, or which other rank failed.
    pub(crate) fn carry_out<T: Stored, const D: usize>(
        &self,
        steps: u64,
        field: &mut impl Steps<T, D>,
    ) -> Result<Times, AppError> {
        let Self { world, stream, between, .. } = self;
        let first = self.begin(field)?;
        let mut next_look = between.next(first);
        if next_look == first {
            self.look(first, field)?;
            next_look = between.next(first + 1);
        }
        self.capture(field)?;
        let stopwatch = Stopwatch::start(stream);
        if field.replays().is_some_and(|replays| replays.is_captured()) {
            stopwatch.read_all();
        }
        let (mut step, mut exchanges) = (first, 0_u64);
        while step < steps {
            stream.check()?; // skips whatever is enqueued once something has failed
            let until = next_look.min(steps);
            // Buffers and generations are used in turn, so that a period has an even number of exchanges.
            let may_replay = field.needs_exchange() && exchanges.is_multiple_of(2);
            let replayed = match field.replays().filter(|_| may_replay) {
                Some(replays) => replays.replay(stream, until - step)?,
                None => 0,
            };
            if replayed > 0 {
                stopwatch.leave_out(replayed);
                step += replayed;
            } else {
                exchanges += u64::from(field.needs_exchange());
                let taken = step..until.min(step.saturating_add(field.at_once()));
                stopwatch.begin_steps(taken.clone());
                step = taken.end;
                field.take(taken, &stopwatch)?;
            }
            if step == next_look {
                stream.synchronize()?;
                world.barrier()?;
                stopwatch.pause(|| self.look(next_look, field))?;
                next_look = between.next(next_look + 1);
            }
        }
        stream.synchronize()?;
        field.end(&stopwatch)?;
        world.barrier()?;
        Ok(stopwatch.stop())
    }

    /// Has those look at the field who want to after `step` steps. Collective; waits for the stream.
    fn look<T: Stored, const D: usize>(
        &self,
        step: u64,
        field: &mut impl Steps<T, D>,
    ) -> Result<(), AppError> {
        let (geometry, carried) = (field.geometry(), field.carried()?);
        self.between.look(&self.patient(), step, geometry, field.cells().now(), carried)?;
        self.go_on_together()
    }

    /// The same trial, whose ranks wait for each other as long as it takes to read or write a file, or for one of them to put a
    /// whole state together.
    pub(crate) fn patient(&self) -> Trial<'_> {
        Trial { world: self.between.patient.unwrap_or(self.world), ..*self }
    }

    /// Gives the field what a checkpoint has, where there is one, and says how many steps are finished. Collective;
    /// blocks.
    fn begin<T: Stored, const D: usize>(&self, field: &mut impl Steps<T, D>) -> Result<u64, AppError> {
        let Some(checkpoint) = self.between.from else {
            return Ok(0);
        };
        checkpoint.restore(field.cells().now_mut())?;
        field.carry(checkpoint.carried());
        self.patient().world.barrier()?;
        self.go_on_together()?;
        Ok(checkpoint.step())
    }

    /// Ranks that were patient have slept, and do not wake at the same time, which steps would count. Collective; blocks.
    fn go_on_together(&self) -> Result<(), AppError> {
        Ok(self.world.barrier()?)
    }
}
