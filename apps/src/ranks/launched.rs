//! Ranks that a launcher has started: every process of this program is one of them, and all make the
//! world together, once.
//!
//! All ranks prepare alike and compare what they were asked ([`super::agreement`]). Then rank 0 leads:
//! it alone verifies, prints and writes. The others do their part of each work, or wait for the next one
//! where a work is for fewer ranks.

use std::fmt;
use std::time::Duration;

use streamhalo::comm::Error;
use streamhalo::comm::fabric;
use streamhalo::{World, WorldOptions};

use super::agreement::{Said, verdict};
use super::{Prepared, Work, cause, communication, guarded, message_of, patient, rendezvous};
use crate::error::{AppError, ranks_of};

/// One of the ranks.
pub(crate) struct Launched {
    /// All ranks. They wait for each other as long as it takes: rank 0 may be computing a reference, or
    /// the first ranks may be at work that is not for all.
    world: World,
    command: &'static str,
}

/// How long other ranks leave it to rank 0 to print what went wrong before a world was made. A launcher
/// ends them when rank 0 has ended.
const BEFORE: Duration = Duration::from_secs(1);
/// How long a rank that has failed leaves it to rank 0, which may be deep in a kernel.
const OF_THE_CAUSE: Duration = Duration::from_secs(5);
/// How long all others do.
const OF_OTHERS: Duration = Duration::from_secs(10);
/// How much longer each rank waits than the one before it, for that one to have ended all: several can
/// have failed at once.
const BETWEEN: Duration = Duration::from_millis(500);
/// The last rank that waits longer than the one before it.
const LAST_BETWEEN: usize = 9;

impl Launched {
    /// Makes the world over `fabric` and lets its ranks agree on what they have prepared. Collective.
    ///
    /// # Errors
    ///
    /// On all ranks if it is one on any of them.
    pub(super) fn gather<P: Prepared>(
        command: &'static str,
        fabric: &str,
        prepared: Result<P, AppError>,
    ) -> Result<(Self, P), AppError> {
        let options = prepared.as_ref().map_or_else(|_| WorldOptions::default(), Prepared::options);
        let world = match World::over(fabric, options) {
            Ok(world) => world,
            Err(error) => {
                let same_on_all = matches!(error, Error::CollectiveFailed { .. });
                let error = match prepared {
                    Err(own) => own,
                    Ok(_) => match error {
                        Error::CollectiveFailed { rank, .. } => stranger(rank),
                        other => no_meeting(command, fabric, other),
                    },
                };
                return Err(without_a_world(error, same_on_all));
            }
        };
        let own =
            prepared.and_then(|prepared| check_size(command, &prepared, world.size()).map(|()| prepared));
        let met = Self { world, command };
        let mut prepared = met.agree(own)?;
        // Rank 0 may read a large checkpoint now.
        let world = patient(&met.world).map_err(|error| met.failed(error.into()))?;
        let launched = Self { world, command };
        // Afterwards, as it may make a folder.
        let checked = if launched.leads() { prepared.prepare_to_lead() } else { Ok(()) };
        let prepared = launched.agree(checked.map(|()| prepared))?;
        Ok((launched, prepared))
    }

    /// One verdict on what every rank has prepared.
    fn agree<P: Prepared>(&self, own: Result<P, AppError>) -> Result<P, AppError> {
        let said = Said::new(self.command, own.as_ref().map(Prepared::asked));
        let all = match self.world.all_gather(&said) {
            Ok(all) => all,
            Err(Error::CollectiveFailed { rank, .. }) => return Err(self.told(stranger(rank))),
            Err(error) => return Err(self.failed(error.into())),
        };
        match (verdict(&all), own) {
            (Ok(()), own) => own,
            (Err((rank, _)), Err(error)) if rank == self.world.rank() => Err(self.told(error)),
            (Err((_, error)), _) => Err(self.told(error)),
        }
    }

    /// Whether this rank is the one that prints and writes.
    pub(crate) fn leads(&self) -> bool {
        self.world.rank() == 0
    }

    /// Has the first `ranks` ranks do a work; returns on the others once they have begun. Collective.
    ///
    /// # Errors
    ///
    /// [`AppError::Rank`] with the rank that failed first, which ends all.
    pub(super) fn carry_out<W: Work>(
        &self,
        ranks: usize,
        work: &W,
        receive: &mut dyn FnMut(W::Report),
    ) -> Result<(), AppError> {
        let own = self.world.rank();
        let done = match self.world.first_with(ranks, work.options()) {
            Ok(None) => Ok(()),
            Ok(Some(world)) => guarded(&world, || {
                work.on_rank(&world, &mut |report| {
                    if own == 0 {
                        receive(report);
                    }
                })
            }),
            Err(error) => Err(error.into()),
        };
        done.map_err(|error| cause(own, error))
    }

    /// Gives all ranks the exit status of rank 0, or ends all where one has failed. Collective.
    ///
    /// # Errors
    ///
    /// What went wrong, on the rank that is to print it; [`AppError::Told`] on the others.
    pub(super) fn conclude(&self, outcome: Result<u8, AppError>) -> Result<u8, AppError> {
        let status = outcome.and_then(|status| Ok(self.world.all_gather(&status)?[0]));
        status.map_err(|error| self.failed(error))
    }

    /// An error that every rank has: rank 0 prints it.
    fn told(&self, error: AppError) -> AppError {
        if self.leads() { error } else { AppError::Told { status: error.exit_status() } }
    }

    /// An error that this rank has, and others may not know. Rank 0 prints it and ends the job. The
    /// others print it only where rank 0 does not in some time, as a rank that ends ends all of them,
    /// rank 0 before it has printed.
    fn failed(&self, error: AppError) -> AppError {
        let own = self.world.rank();
        self.world.fail(&message_of(own, &error));
        // What rank 0 alone has done, such as to write files, is told as where it has started the ranks itself.
        if self.leads() && communication(&error).is_none() {
            return error;
        }
        let error = cause(own, error);
        if own != 0 {
            let is_cause = matches!(&error, AppError::Rank { rank, .. } if *rank == own);
            let since = if is_cause { OF_THE_CAUSE } else { OF_OTHERS };
            std::thread::sleep(since + BETWEEN * own.min(LAST_BETWEEN) as u32);
        }
        error
    }
}

/// Who has started them: a line of what a run uses.
impl fmt::Display for Launched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ranks = ranks_of(self.world.size());
        match rendezvous::ranks() {
            Some(_) => write!(f, "ranks:    {ranks}, started one by one"),
            None => write!(f, "launcher: has started {ranks}"),
        }
    }
}

/// A rank whose first message is none that it should be.
fn stranger(rank: usize) -> AppError {
    let what = "it runs another version of the program, or over another fabric".to_owned();
    AppError::Differs { rank, what }
}

/// Why there is no world. Over libfabric ranks of a launcher meet through MPI, which nobody has asked for.
fn no_meeting(command: &'static str, fabric: &str, error: Error) -> AppError {
    match (error, fabric::launched()) {
        (Error::FabricUnavailable { name, reason }, Some(by))
            if name == "mpi" && rendezvous::is_for(fabric) =>
        {
            let launcher = format!("a launcher ({})", by.evidence);
            AppError::MeetsThroughMpi { command, fabric: fabric.to_owned(), launcher, reason }
        }
        (error, _) => error.into(),
    }
}

/// Refuses what is for more ranks than there are.
fn check_size(command: &str, prepared: &impl Prepared, size: usize) -> Result<(), AppError> {
    let (flag, ranks) = prepared.most_ranks();
    if ranks <= size {
        return Ok(());
    }
    let (found, way) = match rendezvous::ranks() {
        Some(_) => {
            (format!("they were started with `--world-size {size}`"), format!("`--world-size {ranks}`"))
        }
        None => (format!("the launcher has started {size}"), format!("`mpiexec -n {ranks} {command} ...`")),
    };
    let few = format!("{}, but {found}; start them with {way}", ranks_of(ranks));
    Err(match flag {
        Some(flag) => AppError::usage(flag, format!("asks for {few}, or ask for fewer")),
        None => AppError::CommandLine { message: format!("`{command}` takes {few}") },
    })
}

/// An error of a process that is no rank of a world. Where the launcher says that it is not the first of
/// its processes, that one is given the time to print.
pub(super) fn without_a_world(error: AppError, same_on_all: bool) -> AppError {
    match fabric::launched().and_then(|by| by.rank) {
        None | Some(0) => error,
        Some(_) if same_on_all => AppError::Told { status: error.exit_status() },
        Some(_) => {
            std::thread::sleep(BEFORE);
            error
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    /// What is for two ranks, by a flag or because there is nothing else.
    struct ForTwo(Option<&'static str>);

    impl Prepared for ForTwo {
        fn asked(&self) -> Value {
            Value::Null
        }

        fn most_ranks(&self) -> (Option<&'static str>, usize) {
            (self.0, 2)
        }
    }

    #[test]
    fn who_is_too_few_is_told_how_more_are_started() {
        check_size("streamhalo bench pingpong", &ForTwo(None), 2).expect("are enough");
        let refused = |flag| {
            let error = check_size("streamhalo bench it", &ForTwo(flag), 1).expect_err("are too few");
            (error.exit_status(), error.to_string())
        };
        let by_flag = "--ranks: asks for 2 ranks, but the launcher has started 1; start them with `mpiexec -n 2 streamhalo \
                       bench it ...`, or ask for fewer";
        assert_eq!(refused(Some("--ranks")), (2, by_flag.to_owned()));
        let alone = "`streamhalo bench it` takes 2 ranks, but the launcher has started 1; start them with `mpiexec -n 2 \
                     streamhalo bench it ...`";
        assert_eq!(refused(None), (2, alone.to_owned()));
    }
}
