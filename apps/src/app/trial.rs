//! One run of an application: what a rank is given, and what it gives back.

use std::time::Instant;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use streamhalo::comm::Communicator;
use streamhalo::comm::backend::AUTO;
use streamhalo::comm::fabric::Executor;
use streamhalo::{Stream, StreamHalo, World};

use super::{Answer, Between, Times};
use crate::config::Primitive;
use crate::error::AppError;
use crate::run::executors_or;

/// The key of results that says which backend `auto` was.
pub(crate) const CHOSEN_BACKEND: &str = "chosen_backend";

/// What one rank needs to run an application once.
#[derive(Debug)]
pub struct Trial<'a> {
    /// The ranks.
    pub world: &'a World,
    /// This rank's stream.
    pub stream: &'a Stream,
    /// The backend's name.
    pub backend: &'a str,
    /// Ranks per axis, slowest axis first.
    pub layout: &'a [usize],
    /// Whether the final state is wanted.
    pub wants_state: bool,
    /// Who looks at the field between steps: nobody by default.
    pub(crate) between: Between<'a>,
}

/// What a trial gives, of all ranks together.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Outcome {
    /// Seconds from the barrier before the first step to that after the last: the largest of all
    /// ranks, as are the other times. They need not be of one rank, so that `halo_s` and `compute_s`
    /// can add up to more than this.
    pub solve_s: f64,
    /// How many steps that was, where it is not all of a run's once: of one that goes on, or that repeats them.
    pub timed_steps: Option<u64>,
    /// Seconds on exchanges.
    pub halo_s: f64,
    /// Seconds on kernels.
    pub compute_s: f64,
    /// Seconds before that.
    pub setup_s: f64,
    /// Payload of one exchange: the sum of all ranks.
    pub bytes_per_exchange: u64,
    /// Messages of one exchange: the sum of all ranks.
    pub messages_per_exchange: u64,
    /// Who carried its messages out: `stream`, `nic`, `proxy` or `host`, or several of them as in
    /// `stream+proxy`.
    pub executor: String,
    /// What was computed.
    pub answer: Answer,
    /// What the application has measured besides, such as times of its own: shown with its result, but
    /// no part of the answer.
    pub measured: Map<String, Value>,
}

impl Outcome {
    /// Notes how many billions of something that was so often done in each step were done in a second.
    pub(crate) fn note_rate(&mut self, name: &str, in_a_step: f64, steps: u64) {
        if self.solve_s > 0.0 && steps > 0 {
            let rate = 1e-9 * (in_a_step * steps as f64) / self.solve_s;
            self.measured.insert(name.to_owned(), Value::from(rate));
        }
    }
}

impl Trial<'_> {
    /// What `set_up` makes, and the seconds until every rank has it. Collective; blocks.
    pub(crate) fn set_up<T>(
        &self,
        set_up: impl FnOnce() -> Result<T, AppError>,
    ) -> Result<(T, f64), AppError> {
        let started = Instant::now();
        let made = set_up()?;
        self.world.barrier()?;
        Ok((made, started.elapsed().as_secs_f64()))
    }

    /// Brings together what the ranks have measured. Collective; blocks.
    ///
    /// # Errors
    ///
    /// Which rank failed.
    pub fn outcome(
        &self,
        setup_s: f64,
        times: Times,
        halo: &StreamHalo,
        answer: Answer,
    ) -> Result<Outcome, AppError> {
        let routes = halo.routes();
        let executor = executors_or(self.executor(), self.world, self.backend, &routes)?;
        let messages = (halo.bytes_per_exchange(), routes.len());
        let mut outcome = self.outcome_of(setup_s, times, messages, executor, answer)?;
        if self.backend == AUTO {
            outcome.measured.insert(CHOSEN_BACKEND.to_owned(), halo.backend().into());
        }
        Ok(outcome)
    }

    /// As [`Trial::outcome`], of an application whose messages the host carries out: this rank has sent so many
    /// bytes in so many messages in each step. Collective; blocks.
    ///
    /// # Errors
    ///
    /// Which rank failed.
    pub fn outcome_by_host(
        &self,
        setup_s: f64,
        times: Times,
        (bytes, messages): (usize, usize),
        answer: Answer,
    ) -> Result<Outcome, AppError> {
        self.outcome_of(setup_s, times, (bytes, messages), Executor::Host.to_string(), answer)
    }

    /// What the host carries messages out by: what the backend's name stands for.
    pub(crate) fn primitive(&self) -> Primitive {
        Primitive::of_backend(self.backend).expect("the configuration takes no other")
    }

    /// Who carries out what the stream triggers.
    fn executor(&self) -> Executor {
        if self.stream.is_on_host() { self.world.fabric().executor() } else { self.stream.executor() }
    }

    fn outcome_of(
        &self,
        setup_s: f64,
        times: Times,
        (bytes, messages): (usize, usize),
        executor: String,
        answer: Answer,
    ) -> Result<Outcome, AppError> {
        Ok(Outcome {
            solve_s: self.world.all_max(times.solve_s)?,
            timed_steps: None,
            halo_s: self.world.all_max(times.halo_s)?,
            compute_s: self.world.all_max(times.compute_s)?,
            setup_s: self.world.all_max(setup_s)?,
            bytes_per_exchange: self.all_sum(bytes as u64)?,
            messages_per_exchange: self.all_sum(messages as u64)?,
            executor,
            answer,
            measured: Map::new(),
        })
    }

    /// The sum, modulo 2⁶⁴, of the ranks' values. Collective; blocks.
    ///
    /// # Errors
    ///
    /// Which rank failed.
    pub fn all_sum(&self, value: u64) -> Result<u64, AppError> {
        Ok(self.world.all_gather(&value)?.into_iter().fold(0, u64::wrapping_add))
    }

    /// Average, minimum and maximum over the ranks. Collective; blocks.
    ///
    /// # Errors
    ///
    /// Which rank failed.
    pub fn over_ranks(&self, own: f64) -> Result<Value, AppError> {
        let all = self.world.all_gather(&own)?;
        let mean = all.iter().sum::<f64>() / all.len() as f64;
        let (min, max) =
            all.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(min, max), s| (min.min(*s), max.max(*s)));
        Ok(json!({ "mean": mean, "min": min, "max": max }))
    }

    /// Brings every rank's bytes to rank 0, by rank; the others get nothing. Collective; blocks.
    ///
    /// # Errors
    ///
    /// Which rank failed.
    pub fn gather(&self, own: &[u8]) -> Result<Vec<Vec<u8>>, AppError> {
        Ok(Communicator::new(self.world)?.gather(own, 0)?.unwrap_or_default())
    }

    /// The whole of something on rank 0, which it puts together from every rank's bytes, by rank; the others get nothing, and
    /// wait for it as long as it takes. Collective; blocks.
    ///
    /// # Errors
    ///
    /// Which rank failed.
    pub fn whole(
        &self,
        own: &[u8],
        put_together: impl FnOnce(Vec<Vec<u8>>) -> Vec<u8>,
    ) -> Result<Option<Vec<u8>>, AppError> {
        let patient = self.patient();
        let parts = patient.gather(own)?;
        let whole = (self.world.rank() == 0).then(|| put_together(parts));
        patient.world.barrier()?;
        Ok(whole)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ranks::{on_threads, patient};
    use std::time::Duration;
    use streamhalo::{Device, WorldOptions};

    /// Each key with what it is of these ranks' values.
    #[test]
    fn averages_and_extremes_are_of_all_ranks() {
        for (own, [mean, min, max]) in
            [([3.0, 0.5, 7.0], [3.5, 0.5, 7.0]), ([-2.0, -5.0, -0.5], [-2.5, -5.0, -0.5])]
        {
            let found = on_threads(3, WorldOptions::default(), |world| {
                let stream = Device::host().stream(world)?;
                let between = Between::default();
                let (backend, layout) = ("standard", &[3]);
                let trial = Trial { world, stream: &stream, backend, layout, wants_state: false, between };
                trial.over_ranks(own[world.rank()])
            });
            let expected = json!({ "mean": mean, "min": min, "max": max });
            assert_eq!(found.expect("nothing fails"), [&expected; 3].map(Value::clone));
        }
    }

    #[test]
    fn gathers_whatever_the_ranks_have_and_waits_for_rank_0_to_put_it_together() {
        let of_rank = |rank: usize| vec![rank as u8 + 1; [0, 2 << 20, (1 << 20) + 3][rank]];
        let impatient =
            WorldOptions { timeout: Some(Duration::from_millis(1_500)), ..WorldOptions::default() };
        let wholes = on_threads(3, WorldOptions::default(), |world| {
            let stream = Device::host().stream(world)?;
            let patient = patient(world)?;
            let world = &world.first_with(3, impatient)?.expect("it is of all ranks");
            let between = Between { patient: Some(&patient), ..Between::default() };
            let (backend, layout) = ("standard", &[3]);
            let trial = Trial { world, stream: &stream, backend, layout, wants_state: false, between };
            let whole = trial.whole(&of_rank(world.rank()), |parts| {
                std::thread::sleep(Duration::from_secs(2));
                parts.concat()
            })?;
            assert_eq!(trial.all_sum(u64::MAX)?, u64::MAX.wrapping_mul(3));
            Ok(whole)
        });
        let wholes = wholes.expect("nothing fails");
        assert!(wholes[0] == Some([0, 1, 2].map(of_rank).concat()), "rank 0 has all");
        assert_eq!(wholes[1..], [None, None]);
    }
}
