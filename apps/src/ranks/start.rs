//! Who starts the ranks over a fabric: this program, or a launcher that has started this process too.

use std::process::{Command, Stdio};

use serde_json::Value;
use streamhalo::WorldOptions;
use streamhalo::comm::Error;
use streamhalo::comm::fabric::shm::SEGMENT_VARIABLE;
use streamhalo::comm::fabric::{self, FABRICS};

use super::launched::without_a_world;
use super::{Launched, Work, carry_out, rendezvous};
use crate::error::AppError;
use crate::interrupt::Interrupt;

/// The worker that prints why a fabric cannot be used.
pub(crate) const LOOK: &str = "look";

/// What a command has made of its command line, before there are ranks.
pub(crate) trait Prepared {
    /// What it was asked to do. All ranks of a launcher must be asked the same.
    fn asked(&self) -> Value;
    /// The most ranks that it needs, behind the flag or key that says so, if one can.
    fn most_ranks(&self) -> (Option<&'static str>, usize);
    /// How ranks of a launcher wait for each other until they have agreed on what they were asked.
    fn options(&self) -> WorldOptions {
        WorldOptions::default()
    }
    /// Does what concerns only who leads, such as keeping others from the folder of results.
    ///
    /// # Errors
    ///
    /// What keeps it from leading.
    fn prepare_to_lead(&mut self) -> Result<(), AppError> {
        Ok(())
    }
}

/// The ranks that a command works with.
pub(crate) enum Ranks {
    /// Those that this program starts itself, over the fabric of that name.
    Own(String),
    /// Those that a launcher has started.
    Launched(Launched),
}

impl Ranks {
    /// The ranks over `fabric`, which have agreed on what they have prepared. Collective over the ranks
    /// of a launcher, if one has started this process.
    ///
    /// `fabric` is a guess where preparing has failed.
    ///
    /// # Errors
    ///
    /// What `prepared` has, or that there can be no such ranks. Ranks of a launcher have it together; all
    /// but one of them as [`AppError::Told`].
    pub(crate) fn gather<P: Prepared>(
        command: &'static str,
        fabric: Option<&str>,
        prepared: Result<P, AppError>,
    ) -> Result<(Self, P), AppError> {
        if std::env::var_os(SEGMENT_VARIABLE).is_some() {
            return Err(prepared.err().unwrap_or(AppError::Launcher {
                command,
                launcher: "`streamhalo launch`".to_owned(),
                reason: "it starts its own ranks; call it directly, with `--fabric shm`".to_owned(),
            }));
        }
        let launcher = Launcher::of_this_process();
        // Where nobody knows which fabric is meant, ranks of a launcher still have to meet.
        let fabric = fabric.filter(|name| FABRICS.iter().any(|row| row.name == *name));
        let fabric = fabric.unwrap_or(if launcher.mpi.is_some() { "mpi" } else { "local" });
        match launcher.starts(command, fabric) {
            Ok(Starts::Launcher) => Self::gather_launched(command, fabric, prepared),
            Ok(Starts::Command) => {
                let mut prepared = prepared?;
                check_usable(fabric)?;
                prepared.prepare_to_lead()?;
                Ok((Self::Own(fabric.to_owned()), prepared))
            }
            Err(refused) => {
                let error = prepared.err().unwrap_or(refused);
                match launcher.ranks() {
                    Some(2..) if launcher.mpi.is_some() => {
                        Self::gather_launched::<P>(command, "mpi", Err(error))
                    }
                    _ => Err(without_a_world(error, false)),
                }
            }
        }
    }

    fn gather_launched<P: Prepared>(
        command: &'static str,
        fabric: &str,
        prepared: Result<P, AppError>,
    ) -> Result<(Self, P), AppError> {
        let (launched, prepared) = Launched::gather(command, fabric, prepared)?;
        Ok((Self::Launched(launched), prepared))
    }

    /// Whether this process is the one that prints and writes.
    pub(crate) fn lead_here(&self) -> bool {
        match self {
            Self::Own(_) => true,
            Self::Launched(launched) => launched.leads(),
        }
    }

    /// Watches for Ctrl-C. A launcher does so for the ranks that it has started, and ends them all.
    ///
    /// # Errors
    ///
    /// [`AppError::Signals`].
    pub(crate) fn interrupt(&self) -> Result<Interrupt, AppError> {
        match self {
            Self::Own(_) => Interrupt::watch(),
            Self::Launched(_) => Ok(Interrupt::left_to_the_system()),
        }
    }

    /// Has the first `ranks` ranks do a work, and hands on reports where this process leads. Collective
    /// over the ranks of a launcher.
    ///
    /// # Errors
    ///
    /// As [`carry_out`].
    pub(crate) fn carry_out<W: Work>(
        &self,
        ranks: usize,
        work: W,
        interrupt: &Interrupt,
        receive: &mut dyn FnMut(W::Report),
    ) -> Result<(), AppError> {
        match self {
            Self::Own(fabric) => carry_out(fabric, ranks, work, interrupt, receive),
            Self::Launched(launched) => launched.carry_out(ranks, &work, receive),
        }
    }

    /// The end of a command, with its exit status. Collective over the ranks of a launcher: all get the
    /// status of the one that leads.
    ///
    /// # Errors
    ///
    /// What went wrong; on all but one of the ranks of a launcher [`AppError::Told`].
    pub(crate) fn conclude(&self, outcome: Result<u8, AppError>) -> Result<u8, AppError> {
        match self {
            Self::Own(_) => outcome,
            Self::Launched(launched) => launched.conclude(outcome),
        }
    }
}

/// Whether the ranks over `fabric` are those of whoever has started this process.
pub(crate) fn are_launched(command: &'static str, fabric: &str) -> bool {
    matches!(Launcher::of_this_process().starts(command, fabric), Ok(Starts::Launcher))
}

/// Whether something else than this program starts ranks: a launcher, or whoever starts them one by one.
pub(crate) fn are_started_by_others() -> bool {
    Launcher::of_this_process().has_started_ranks()
}

/// Refuses a fabric that cannot be used here.
fn check_usable(name: &str) -> Result<(), AppError> {
    // What libfabric's providers install for signals would end this program before it has cleaned up.
    let reason = if rendezvous::is_for(name) { ask_a_child(name)? } else { unusable(name) };
    reason.map_or(Ok(()), |reason| {
        Err(AppError::from(Error::FabricUnavailable { name: name.to_owned(), reason }))
    })
}

/// Why a fabric cannot be used here, if so.
pub(crate) fn unusable(name: &str) -> Option<String> {
    FABRICS.iter().find(|row| row.name == name).and_then(|row| (row.unusable)())
}

/// The same, by a process that looks and ends.
fn ask_a_child(name: &str) -> Result<Option<String>, AppError> {
    let asked = std::env::current_exe()
        .and_then(|program| Command::new(program).args(["worker", LOOK, name]).stdin(Stdio::null()).output());
    let asked = asked.map_err(|error| AppError::Rank {
        rank: 0,
        message: format!("no process can be started that looks for the fabric `{name}`: {error}"),
    })?;
    let said = String::from_utf8_lossy(&asked.stdout).trim().to_owned();
    Ok(match (asked.status.success(), said) {
        (true, said) if said.is_empty() => None,
        (true, said) => Some(said),
        (false, _) => Some(format!("a process that looked for it ended with {}", asked.status)),
    })
}

/// Tells the other ranks of a launcher that this one cannot go on.
///
/// # Errors
///
/// `error`, or [`AppError::Told`] where another rank prints it.
pub(crate) fn refuse(error: AppError) -> Result<u8, AppError> {
    Ranks::gather::<Nothing>("streamhalo", None, Err(error)).map(|_| 0)
}

/// What a command line that is not understood asks for.
enum Nothing {}

impl Prepared for Nothing {
    fn asked(&self) -> Value {
        match *self {}
    }

    fn most_ranks(&self) -> (Option<&'static str>, usize) {
        match *self {}
    }
}

/// Who starts the ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Starts {
    /// This command.
    Command,
    /// Whoever has started this process.
    Launcher,
}

/// What has started this process as a rank, if anything has.
#[derive(Clone, Debug)]
struct Launcher {
    mpi: Option<fabric::Launched>,
    /// How many ranks meet at the rendezvous that the environment names.
    rendezvous: Option<usize>,
}

impl Launcher {
    fn of_this_process() -> Self {
        Self { mpi: fabric::launched(), rendezvous: rendezvous::ranks() }
    }

    fn ranks(&self) -> Option<usize> {
        self.rendezvous.or_else(|| self.mpi.as_ref()?.ranks)
    }

    /// Whether this process is one of the ranks that were asked for. One process alone, as a shell in an interactive step of
    /// Slurm is, starts them itself where it can; one that is told of a rendezvous is a rank even so.
    fn has_started_ranks(&self) -> bool {
        self.rendezvous.is_some() || self.mpi.as_ref().is_some_and(|by| by.ranks != Some(1))
    }

    fn starts(&self, command: &'static str, fabric: &str) -> Result<Starts, AppError> {
        if fabric.ends_with("mpi") {
            return match self.mpi {
                Some(_) => Ok(Starts::Launcher),
                None => Err(AppError::NotLaunched { command, fabric: fabric.to_owned() }),
            };
        }
        if rendezvous::is_for(fabric) && self.has_started_ranks() {
            return Ok(Starts::Launcher);
        }
        match self.ranks() {
            Some(ranks @ 2..) if !rendezvous::is_for(fabric) => {
                let (launcher, fabrics) = match &self.mpi {
                    Some(by) => (format!("a launcher ({})", by.evidence), "`mpi` or `shm+mpi`"),
                    None => ("a rendezvous".to_owned(), "`ofi` or `shm+ofi`"),
                };
                Err(AppError::Launcher {
                    command,
                    launcher,
                    reason: format!(
                        "over `{fabric}` each of the {ranks} processes would start ranks of its own and do \
                         the same; choose {fabrics}, or start one process"
                    ),
                })
            }
            _ => Ok(Starts::Command),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn launcher(mpi: Option<usize>, rendezvous: Option<usize>) -> Launcher {
        let mpi = mpi.map(|ranks| fabric::Launched {
            ranks: Some(ranks),
            rank: Some(0),
            evidence: format!("PMI_SIZE={ranks}"),
        });
        Launcher { mpi, rendezvous }
    }

    fn starts(mpi: Option<usize>, rendezvous: Option<usize>, fabric: &str) -> Result<Starts, String> {
        launcher(mpi, rendezvous).starts("streamhalo run", fabric).map_err(|error| error.to_string())
    }

    #[test]
    fn a_command_starts_ranks_unless_a_launcher_has() {
        for fabric in ["local", "shm"] {
            assert_eq!(starts(None, None, fabric), Ok(Starts::Command));
            assert_eq!(starts(Some(1), None, fabric), Ok(Starts::Command));
        }
        for fabric in ["mpi", "shm+mpi"] {
            assert_eq!(starts(Some(1), None, fabric), Ok(Starts::Launcher));
            assert_eq!(starts(Some(4), None, fabric), Ok(Starts::Launcher));
        }
        for fabric in ["ofi", "shm+ofi"] {
            assert_eq!(starts(None, None, fabric), Ok(Starts::Command));
            assert_eq!(starts(Some(4), None, fabric), Ok(Starts::Launcher));
            assert_eq!(starts(None, Some(4), fabric), Ok(Starts::Launcher));
            // An interactive step of Slurm is one task, which has started nothing yet.
            assert_eq!(starts(Some(1), None, fabric), Ok(Starts::Command));
            assert_eq!(starts(Some(1), Some(4), fabric), Ok(Starts::Launcher));
            assert_eq!(starts(Some(1), Some(1), fabric), Ok(Starts::Launcher));
        }
    }

    #[test]
    fn what_cannot_be_is_refused_with_what_to_do() {
        let message = starts(Some(4), None, "local").expect_err("would be done four times");
        assert!(message.contains("PMI_SIZE=4") && message.contains("choose `mpi`"), "{message}");
        let message = starts(None, Some(4), "shm").expect_err("the same");
        assert!(message.contains("a rendezvous") && message.contains("choose `ofi`"), "{message}");
        let message = starts(None, None, "shm+mpi").expect_err("nobody has started ranks");
        assert!(message.contains("no MPI launcher has started this process"), "{message}");
    }
}
