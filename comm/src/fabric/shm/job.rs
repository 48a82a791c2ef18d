//! Starting the ranks of a job as processes, and ending them together.

use super::segment::Segment;
use super::{Exit, LAUNCHER_VARIABLE, RANK_VARIABLE, SEGMENT_VARIABLE, SIZE_VARIABLE};
use crate::error::{Error, Result};
use crate::fabric::{EXITED, MOST_RANKS};
use rustix::fs::MemfdFlags;
use rustix::process::{Pid, Signal, WaitOptions};
use std::fs;
use std::os::fd::AsRawFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long the other ranks have to end by themselves after one has failed.
const GRACE: Duration = Duration::from_secs(5);

/// The processes of a job. Dropping it ends those that still run.
#[derive(Debug)]
pub struct Job {
    segment: Arc<Segment>,
    ranks: Vec<Child>,
    /// Where what ranks have started ends with the job, the children that this process had before.
    others: Option<Vec<Pid>>,
}

impl Job {
    /// Starts `size` processes. `command` makes the command of a rank; the environment that tells
    /// the process its rank is added to it. Does not wait for them. They are killed when the thread that has called
    /// this ends, so that none outlives its launcher: call it from one that lives as long as the job, such as the
    /// main thread.
    ///
    /// # Errors
    /// [`Error::BadWorldSize`] for no processes, or more than [`MOST_RANKS`]; [`Error::OutOfMemory`] or [`Error::System`]
    /// if the memory file or a process cannot be made. Those already started are ended.
    pub fn start(size: usize, command: &mut dyn FnMut(usize) -> Command) -> Result<Self> {
        Self::start_as(size, command, None)
    }

    /// As [`Job::start`], where what ranks have started ends with the job too, unless all ranks end with status 0: a rank
    /// may be a script around a program. What a rank that has ended leaves behind becomes a child of this process, so
    /// that this is for one that starts no others meanwhile. Process groups would do without that, but the terminal's
    /// Ctrl-C, Ctrl-Z and input are for one group only.
    ///
    /// # Errors
    /// As [`Job::start`], and [`Error::System`] if the system refuses.
    pub fn start_with_descendants(size: usize, command: &mut dyn FnMut(usize) -> Command) -> Result<Self> {
        rustix::process::set_child_subreaper(Some(rustix::process::getpid())).map_err(|error| {
            Error::System { call: "prctl(PR_SET_CHILD_SUBREAPER)", reason: error.to_string() }
        })?;
        Self::start_as(size, command, Some(children()))
    }

    fn start_as(
        size: usize,
        command: &mut dyn FnMut(usize) -> Command,
        others: Option<Vec<Pid>>,
    ) -> Result<Self> {
        if size == 0 {
            return Err(Error::BadWorldSize { asked: 0, reason: "a job has at least one rank".into() });
        }
        if size > MOST_RANKS {
            let reason = format!("a job has no more than {MOST_RANKS}");
            return Err(Error::BadWorldSize { asked: size, reason });
        }
        let segment = Segment::create(size, MemfdFlags::empty())?;
        let mut job = Self { segment, ranks: Vec::with_capacity(size), others };
        for rank in 0..size {
            let mut command = command(rank);
            command
                .env(SEGMENT_VARIABLE, job.segment.descriptor().as_raw_fd().to_string())
                .env(RANK_VARIABLE, rank.to_string())
                .env(SIZE_VARIABLE, size.to_string())
                .env(LAUNCHER_VARIABLE, std::process::id().to_string());
            end_with_this_process(&mut command);
            let child = command.spawn().map_err(|error| Error::System {
                call: "starting a rank",
                reason: format!("`{}`: {error}", command.get_program().display()),
            })?;
            job.ranks.push(child);
        }
        Ok(job)
    }

    /// The processes, by rank, to take their pipes.
    pub fn ranks(&mut self) -> &mut [Child] {
        &mut self.ranks
    }

    /// Blocks until all ranks have ended, or `interrupted` says true. Once a rank has failed the others are told, which ends
    /// their waits, and after five seconds they are killed. They are told as well of a rank whose process has ended with
    /// status 0 and without dropping its world, or without ever making one that they have made. If one has failed, what else
    /// ends with the job is waited for as long.
    ///
    /// # Errors
    /// [`Error::System`] if the system cannot say how a process is. That a rank failed is an [`Exit`].
    pub fn wait(&mut self, interrupted: &dyn Fn() -> bool) -> Result<Exit> {
        let mut first_failure: Option<Exit> = None;
        let mut deadline: Option<Instant> = None;
        let mut ended: Vec<Option<ExitStatus>> = vec![None; self.ranks.len()];
        loop {
            for (rank, child) in self.ranks.iter_mut().enumerate() {
                if ended[rank].is_some() {
                    continue;
                }
                let status = child.try_wait().map_err(|error| Error::System {
                    call: "waiting for a rank",
                    reason: error.to_string(),
                })?;
                let Some(status) = status else { continue };
                ended[rank] = Some(status);
                if status.success() && self.segment.is_joined(rank) {
                    // The others are told, and may be through with it: then nothing has failed.
                    self.segment.abort().raise(rank, EXITED);
                }
                if !status.success() && first_failure.is_none() {
                    let (reason, code) = describe(status);
                    self.segment.abort().raise(rank, &reason);
                    first_failure = Some(Exit::Failed { rank, reason, code });
                    deadline = Some(Instant::now() + GRACE);
                }
            }
            let worlds = |rank: usize| self.segment.worlds_of(rank);
            let most = (0..ended.len()).map(worlds).max();
            let has_ended = |rank: &usize| ended[*rank].is_some_and(|status| status.success());
            if let Some(rank) = (0..ended.len()).filter(has_ended).find(|rank| Some(worlds(*rank)) < most) {
                self.segment
                    .abort()
                    .raise(rank, "its process exited without making a world that others wait in");
            }
            let is_late = deadline.is_some_and(|deadline| Instant::now() >= deadline);
            let have_ended = ended.iter().all(Option::is_some);
            if have_ended && first_failure.is_none() {
                self.others = None;
            }
            // Scripts may have left something behind that still has something to say.
            if have_ended && (is_late || !self.others.as_deref().is_some_and(has_left_children)) {
                // The rank that raised the abort word first is the cause, whoever ended first.
                return Ok(match (first_failure, self.segment.abort().failure()) {
                    (Some(Exit::Failed { code, .. }), Some((rank, reason))) => {
                        let own = ended.get(rank).copied().flatten().filter(|status| !status.success());
                        Exit::Failed { rank, reason, code: own.map_or(code, |status| describe(status).1) }
                    }
                    (failure, _) => failure.unwrap_or(Exit::Success),
                });
            }
            if interrupted() {
                self.kill();
                return Ok(Exit::Failed { rank: 0, reason: "interrupted".into(), code: 130 });
            }
            if is_late {
                self.kill();
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Ends every process that still runs, and waits for it.
    pub fn kill(&mut self) {
        for child in &mut self.ranks {
            // Both fail only for a process that has ended already.
            let _ = child.kill();
            let _ = child.wait();
        }
        // What they leave may leave something in its turn.
        while self.others.as_deref().is_some_and(end_children) {}
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Whether children of this process still run, apart from `others`. Those that do not are waited for: nobody else does,
/// once the ranks have been.
fn has_left_children(others: &[Pid]) -> bool {
    while let Ok(Some(_)) = rustix::process::wait(WaitOptions::NOHANG) {}
    children().iter().any(|child| !others.contains(child))
}

/// Ends the children of this process, apart from `others` and those of another user, and says whether there were any.
fn end_children(others: &[Pid]) -> bool {
    let mut children = children();
    children.retain(|child| !others.contains(child));
    children.retain(|child| rustix::process::kill_process(*child, Signal::KILL).is_ok());
    // Nobody else waits for them.
    children.iter().for_each(|child| _ = rustix::process::waitpid(Some(*child), WaitOptions::empty()));
    !children.is_empty()
}

/// The children of this process.
fn children() -> Vec<Pid> {
    let threads = fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let listed = threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    let numbers = listed.flat_map(|listed| {
        listed.split_whitespace().filter_map(|number| number.parse().ok()).collect::<Vec<_>>()
    });
    numbers.filter_map(Pid::from_raw).collect()
}

fn describe(status: ExitStatus) -> (String, i32) {
    match (status.code(), status.signal()) {
        (Some(code), _) => (format!("its process exited with status {code}"), code),
        (None, Some(signal)) => (format!("its process was ended by signal {signal}"), 128 + signal),
        (None, None) => ("its process ended for a reason that the system did not give".into(), 1),
    }
}

/// Makes what the command starts end with this process, also a script around a rank: the rank, which sees to itself, has
/// that one as its parent.
fn end_with_this_process(command: &mut Command) {
    let launcher = rustix::process::getpid();
    let before = move || {
        rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
        // It may have gone before the call.
        if rustix::process::getppid() != Some(launcher) {
            return Err(rustix::io::Errno::SRCH.into());
        }
        Ok(())
    };
    // SAFETY: in the new process it makes two system calls and nothing else: it takes no lock, and neither allocates nor
    // frees.
    unsafe { command.pre_exec(before) };
}

/// Makes the calling process end when its parent does, so that no rank outlives its launcher.
pub(super) fn end_with_parent() -> Result<()> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(|error| Error::System { call: "prctl(PR_SET_PDEATHSIG)", reason: error.to_string() })?;
    // It may have gone before the call, which then waits for the end of whoever has taken its
    // place. The launcher itself need not be the parent: a shell may stand between.
    let launcher = std::env::var(LAUNCHER_VARIABLE).ok().and_then(|value| value.parse().ok());
    let Some(launcher) = launcher.and_then(Pid::from_raw) else { return Ok(()) };
    let is_gone = rustix::process::getppid() != Some(launcher)
        && rustix::process::test_kill_process(launcher) == Err(rustix::io::Errno::SRCH);
    if is_gone {
        return Err(Error::System { call: "finding the launcher", reason: "it has ended already".into() });
    }
    Ok(())
}
