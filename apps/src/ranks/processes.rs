//! Ranks as processes of this program: the fabric `shm`.

use std::cell::{Cell, RefCell};
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{ChildStdout, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};

use streamhalo::World;
use streamhalo::comm::fabric::shm::{Exit, Job, SEGMENT_VARIABLE};

use super::{PAUSE, Work, guarded, no_thread};
use crate::error::AppError;
use crate::interrupt::Interrupt;

/// Carries out a work, as [`super::carry_out`] says. Dropping the job on any way out of here ends
/// its processes.
pub(super) fn carry_out<W: Work>(
    ranks: usize,
    work: &W,
    interrupt: &Interrupt,
    receive: &mut dyn FnMut(W::Report),
) -> Result<(), AppError> {
    let failed = |message: String| AppError::Rank { rank: 0, message };
    let program =
        std::env::current_exe().map_err(|error| failed(format!("its program cannot be found: {error}")))?;
    let told = serde_json::to_vec(work).expect("a work is plain data");
    let mut job = Job::start(ranks, &mut |rank| {
        let mut command = Command::new(&program);
        command.args(["worker", W::NAME]).stdin(Stdio::piped());
        command.stdout(if rank == 0 { Stdio::piped() } else { Stdio::null() });
        command
    })?;
    for rank in job.ranks() {
        if let Some(mut pipe) = rank.stdin.take() {
            // It fails for a rank that has ended already, which the wait below finds.
            _ = pipe.write_all(&told);
        }
    }
    let pipe = job.ranks()[0].stdout.take().expect("rank 0 was started with a pipe");
    let reports = read_reports::<W>(pipe)?;
    // The job's wait looks at its processes between two calls, and this is what it calls.
    let (receive, broken) = (RefCell::new(receive), Cell::new(None));
    let ended = Cell::new(false);
    let exit = job.wait(&|| {
        if ended.get() {
            std::thread::sleep(PAUSE);
        } else {
            match reports.recv_timeout(PAUSE) {
                Ok(Ok(report)) => (receive.borrow_mut())(report),
                Ok(Err(message)) => broken.set(Some(message)),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => ended.set(true),
            }
        }
        interrupt.has_come()
    })?;
    // A terminal sends Ctrl-C to ranks too: that they ended by it is no failure of theirs.
    interrupt.check()?;
    if let Exit::Failed { rank, reason, .. } = exit {
        return Err(AppError::Rank { rank, message: reason });
    }
    for report in reports {
        match report {
            Ok(report) => (receive.borrow_mut())(report),
            Err(message) => broken.set(Some(message)),
        }
    }
    broken.take().map_or(Ok(()), |message| Err(failed(message)))
}

/// Reads reports from a rank's pipe as they come, so that a long one does not fill it.
fn read_reports<W: Work>(pipe: ChildStdout) -> Result<Receiver<Result<W::Report, String>>, AppError> {
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
/// and the process that started them prints it.
pub fn rank_main<W: Work>() -> Result<u8, AppError> {
    if std::env::var_os(SEGMENT_VARIABLE).is_none() {
        return Err(AppError::Usage {
            flag: "worker".to_owned(),
            message: "is what `streamhalo run` starts the processes of ranks with".to_owned(),
        });
    }
    let failed = |message: String| AppError::Rank { rank: 0, message };
    let mut told = String::new();
    let read = std::io::stdin().read_to_string(&mut told);
    read.map_err(|error| failed(format!("its work cannot be read: {error}")))?;
    let work: W =
        serde_json::from_str(&told).map_err(|error| failed(format!("its work is not one: {error}")))?;
    let world = World::from_env_with(work.options())?;
    let mut output = std::io::stdout();
    let mut report = |report: W::Report| {
        if world.rank() == 0 {
            let mut line = serde_json::to_vec(&report).expect("a report is plain data");
            line.push(b'\n');
            // Nobody listens any more only where the program that started this one has ended, and
            // then this one is about to.
            _ = output.write_all(&line).and_then(|()| output.flush());
        }
    };
    let result = guarded(&world, || work.on_rank(&world, &mut report));
    Ok(u8::from(result.is_err()))
}
