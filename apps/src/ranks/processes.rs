//! Ranks as processes of this program on this machine: the fabric `shm`, and fabrics whose ranks can
//! meet at a rendezvous.

use std::cell::{Cell, RefCell};
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use streamhalo::World;
use streamhalo::comm::Error;
use streamhalo::comm::fabric::FABRIC_VARIABLE;
use streamhalo::comm::fabric::shm::{Exit, Job, SEGMENT_VARIABLE, end_with_launcher, tell_launcher};

use super::rendezvous::{self, Rendezvous};
use super::{PAUSE, Work, cause, guarded, no_thread};
use crate::error::{AppError, ranks_of};
use crate::interrupt::Interrupt;

/// What rank 0 is told on its standard input, behind its work, when whoever leads is through with a report.
const DONE: &[u8] = b".";

/// Carries out a work, as [`super::carry_out`] says. Dropping the job on any way out of here ends
/// its processes.
pub(super) fn carry_out<W: Work>(
    fabric: &str,
    ranks: usize,
    work: &W,
    interrupt: &Interrupt,
    receive: &mut dyn FnMut(W::Report),
) -> Result<(), AppError> {
    let failed = |message: String| AppError::Rank { rank: 0, message };
    let program =
        std::env::current_exe().map_err(|error| failed(format!("its program cannot be found: {error}")))?;
    let mut told = serde_json::to_vec(work).expect("a work is plain data");
    told.push(b'\n');
    make_room_for_pipes(ranks)?;
    let rendezvous = rendezvous::is_for(fabric).then(Rendezvous::on_this_machine).transpose()?;
    let mut job = Job::start(ranks, &mut |rank| {
        let mut command = Command::new(&program);
        command.args(["worker", W::NAME]).env(FABRIC_VARIABLE, fabric).stdin(Stdio::piped());
        if let Some(rendezvous) = &rendezvous {
            rendezvous.tell(&mut command);
        }
        command.stdout(if rank == 0 { Stdio::piped() } else { Stdio::null() });
        command
    })?;
    let mut pipes: Vec<ChildStdin> = Vec::with_capacity(ranks);
    for rank in job.ranks() {
        let mut pipe = rank.stdin.take().expect("ranks were started with a pipe");
        // It fails for a rank that has ended already, which the wait below finds.
        _ = pipe.write_all(&told);
        pipes.push(pipe);
    }
    // The others are told nothing more.
    pipes.truncate(1);
    let pipe = job.ranks()[0].stdout.take().expect("rank 0 was started with a pipe");
    let reports = read_reports::<W>(pipe)?;
    // The job's wait looks at its processes between two calls, and this is what it calls.
    let (receive, broken) = (RefCell::new(receive), Cell::new(None));
    let answers = RefCell::new(pipes);
    let ended = Cell::new(false);
    let take = |line: Told<W>| match line {
        Ok(report) => {
            let is_awaited = W::is_awaited(&report);
            (receive.borrow_mut())(report);
            if is_awaited {
                // It fails for a rank that has ended already.
                answers.borrow_mut().iter_mut().for_each(|rank| _ = rank.write_all(DONE));
            }
        }
        Err(message) => {
            broken.set(Some(message));
            // Nobody knows whether it waits: at the end of its input it does not.
            answers.borrow_mut().clear();
        }
    };
    let exit = job.wait(&|| {
        if ended.get() {
            std::thread::sleep(PAUSE);
        } else {
            match reports.recv_timeout(PAUSE) {
                Ok(line) => take(line),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => ended.set(true),
            }
        }
        interrupt.has_come()
    })?;
    // A terminal sends Ctrl-C to ranks too: that they ended by it is no failure of theirs.
    interrupt.check()?;
    reports.into_iter().for_each(&take);
    if let Exit::Failed { rank, reason: message, .. } = exit {
        return Err(AppError::Rank { rank, message });
    }
    broken.take().map_or(Ok(()), |message| Err(failed(message)))
}

/// Has the system allow this process a descriptor for each rank, whose pipe it has until all are started. They inherit that.
fn make_room_for_pipes(ranks: usize) -> Result<(), AppError> {
    // What this process has open beside them is a few files.
    const OTHERS: usize = 16;
    let needed = (ranks + OTHERS) as u64;
    if let Some(most) = getrlimit(Resource::Nofile).maximum.filter(|most| *most < needed) {
        let ranks = ranks_of(ranks);
        let message = format!(
            "{ranks} that are processes take {needed} open files of the one that starts them, and the system allows it \
             {most}: ask for fewer, or raise its limit (`ulimit -n`)"
        );
        return Err(AppError::CommandLine { message });
    }
    allow_files_of(ranks)
}

/// Has the system allow this process a file for each rank and some more, or as many as it may.
pub(super) fn allow_files_of(ranks: usize) -> Result<(), AppError> {
    const MORE: usize = 64;
    let limit = getrlimit(Resource::Nofile);
    let wanted = limit.maximum.unwrap_or(u64::MAX).min((ranks + MORE) as u64);
    if limit.current.is_none_or(|most| most >= wanted) {
        return Ok(());
    }
    setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), ..limit })
        .map_err(|error| Error::System { call: "setrlimit", reason: error.to_string() }.into())
}

/// A report of rank 0, a line of its standard output, or why it cannot be read.
type Told<W> = Result<<W as Work>::Report, String>;

/// Reads reports from a rank's pipe as they come, so that a long one does not fill it.
fn read_reports<W: Work>(pipe: ChildStdout) -> Result<Receiver<Told<W>>, AppError> {
    let (sender, reports) = mpsc::channel();
    let starting = std::thread::Builder::new().name("reports".to_owned());
    let reading = starting.spawn(move || {
        for line in BufReader::new(pipe).lines() {
            let report = line.map_err(|error| format!("its reports cannot be read: {error}"));
            let report = report.and_then(|line| {
                serde_json::from_str(&line).map_err(|error| format!("its report is not one: {error}"))
            });
            if sender.send(report).is_err() {
                return;
            }
        }
    });
    reading.map_err(no_thread)?;
    Ok(reports)
}

/// The process of a rank: learns its work from the standard input and does its part. Answers with
/// the exit status.
///
/// # Errors
///
/// Where the process was not started as a rank. What goes wrong later is told to the other ranks,
/// and to the process that started them, which prints it.
pub fn rank_main<W: Work>() -> Result<u8, AppError> {
    if std::env::var_os(SEGMENT_VARIABLE).is_none() {
        let message = "is what `streamhalo run` starts the processes of ranks with";
        return Err(AppError::usage("worker", message));
    }
    end_with_launcher()?;
    let failed = |message: String| AppError::Rank { rank: 0, message };
    let mut told = String::new();
    let read = std::io::stdin().read_line(&mut told);
    read.map_err(|error| failed(format!("its work cannot be read: {error}")))?;
    let work: W =
        serde_json::from_str(&told).map_err(|error| failed(format!("its work is not one: {error}")))?;
    let fabric = std::env::var(FABRIC_VARIABLE).unwrap_or_else(|_| "shm".to_owned());
    let world = World::over(&fabric, work.options())?;
    let mut say = |report: W::Report| {
        if world.rank() == 0 {
            let is_awaited = W::is_awaited(&report);
            let mut text = serde_json::to_vec(&report).expect("a report is plain data");
            text.push(b'\n');
            let mut output = std::io::stdout();
            // Nobody listens any more only where the program that started this one has ended, and
            // then this one is about to.
            _ = output.write_all(&text).and_then(|()| output.flush());
            if is_awaited {
                _ = std::io::stdin().read_exact(&mut [0; DONE.len()]);
            }
        }
    };
    let result = guarded(&world, || work.on_rank(&world, &mut say));
    let result = result.map_err(|error| cause(world.rank(), error));
    // Any rank does: the one that the others wait for may be silent.
    if let Err(AppError::Rank { rank, message }) = &result {
        tell_launcher(*rank, message)?;
    }
    Ok(u8::from(result.is_err()))
}
