//! Ranks as threads of this process: the fabric `local`.

use std::sync::Mutex;
use std::sync::mpsc::{self, RecvTimeoutError};

use streamhalo::{World, WorldOptions};

use super::processes::allow_files_of;
use super::{PAUSE, Work, first_cause, guarded, no_thread};
use crate::error::AppError;
use crate::interrupt::Interrupt;

/// Carries out a work, as [`super::carry_out`] says.
pub(super) fn carry_out<W: Work>(
    ranks: usize,
    work: W,
    interrupt: &Interrupt,
    receive: &mut dyn FnMut(W::Report),
) -> Result<(), AppError> {
    // Each has a checkpoint open that it goes on from. What the system does not allow is told by the rank that lacks it.
    _ = allow_files_of(ranks);
    let (sender, reports) = mpsc::channel();
    let (say_done, done) = mpsc::channel();
    let done = Mutex::new(done);
    // Not a scoped thread: after Ctrl-C nobody waits for ranks that are in the middle of a kernel;
    // they end with the program.
    let starting = std::thread::Builder::new().name("ranks".to_owned());
    let host = starting.spawn(move || {
        on_threads(ranks, work.options(), |world| {
            let mut report = |report| {
                if world.rank() == 0 {
                    let is_awaited = W::is_awaited(&report);
                    // Nobody listens or answers any more only where the user has interrupted.
                    _ = sender.send(report);
                    if is_awaited {
                        _ = done.lock().map(|done| done.recv());
                    }
                }
            };
            work.on_rank(world, &mut report)
        })
    });
    let host = host.map_err(no_thread)?;
    loop {
        interrupt.check()?;
        match reports.recv_timeout(PAUSE) {
            Ok(report) => {
                let is_awaited = W::is_awaited(&report);
                receive(report);
                if is_awaited {
                    // A rank that has failed does not wait for it.
                    _ = say_done.send(());
                }
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    // Ranks that panic are caught on their own threads.
    let results = host.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    results.map(|_| ())
}

/// Runs `part` on `ranks` threads and gives what each rank made.
///
/// # Errors
///
/// [`AppError::Rank`] with the rank that failed first.
pub(crate) fn on_threads<T: Send>(
    ranks: usize,
    options: WorldOptions,
    part: impl Fn(&World) -> Result<T, AppError> + Sync,
) -> Result<Vec<T>, AppError> {
    let results = World::threads(ranks, options, |world| {
        let mut made = None;
        guarded(&world, || {
            made = Some(part(&world)?);
            Ok(())
        })
        .map(|()| made)
    })?;
    let mut made = Vec::with_capacity(ranks);
    first_cause(results.into_iter().map(|result| result.map(|one| made.extend(one))))?;
    Ok(made)
}
