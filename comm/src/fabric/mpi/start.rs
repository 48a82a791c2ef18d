//! Initialising MPI, and ending it with the process.

use super::abi::{Constants, Handle};
use super::table::{RECORD, Table};
use super::{Mpi, unavailable};
use crate::error::{Error, Result};
use crate::fabric::{Abort, Carrier, EXITED};
use crate::locks::lock;
use std::ffi::{c_int, c_void};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::{Duration, Instant};

/// Caps the level of thread support that is asked for: `single`, `funneled`, `serialized` or `multiple`.
pub(crate) const THREADS_VARIABLE: &str = "STREAMHALO_MPI_THREADS";

/// Which threads may call MPI.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ThreadLevel {
    /// There is one thread only.
    Single,
    /// The one that initialised.
    Funneled,
    /// Any, one at a time.
    Serialized,
    /// Any, at any time.
    Multiple,
}

impl ThreadLevel {
    const ALL: [ThreadLevel; 4] =
        [ThreadLevel::Single, ThreadLevel::Funneled, ThreadLevel::Serialized, ThreadLevel::Multiple];

    /// The level that an MPI value means; a value between two levels grants the lower one.
    fn of(value: c_int, constants: &Constants) -> Self {
        let mut granted = Self::ALL.iter().zip(constants.thread_levels).filter(|(_, level)| *level <= value);
        granted.next_back().map_or(ThreadLevel::Single, |(level, _)| *level)
    }

    fn value(self, constants: &Constants) -> c_int {
        constants.thread_levels[self as usize]
    }

    /// The level to ask for by the value of [`THREADS_VARIABLE`].
    fn asked(value: Option<&str>) -> Result<Self> {
        let Some(value) = value else { return Ok(ThreadLevel::Multiple) };
        Self::ALL.into_iter().find(|level| level.to_string() == value).ok_or_else(|| Error::BadEnvironment {
            variable: THREADS_VARIABLE,
            value: value.to_owned(),
            reason: "it is one of single, funneled, serialized and multiple".to_owned(),
        })
    }
}

impl fmt::Display for ThreadLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ThreadLevel::Single => "single",
            ThreadLevel::Funneled => "funneled",
            ThreadLevel::Serialized => "serialized",
            ThreadLevel::Multiple => "multiple",
        })
    }
}

/// What there is once MPI is initialised.
#[derive(Debug, Default)]
pub(crate) struct Started {
    level: OnceLock<Result<ThreadLevel>>,
    handlers: OnceLock<Handlers>,
}

/// Our error handler, as MPI knows it for communicators and for windows.
#[derive(Debug, Clone, Copy)]
struct Handlers {
    communicators: Handle,
    windows: Handle,
}

/// Whether the job has failed, so that others may never come to what waits for all.
static POISONED: AtomicBool = AtomicBool::new(false);
/// Whether they may never come to finalise either, as those do whose process has ended with status 0.
static BROKEN: AtomicBool = AtomicBool::new(false);
/// Worlds that are not dropped yet, or had failed when they were.
static WORLDS: Mutex<Vec<Entered>> = Mutex::new(Vec::new());

/// Where a world tells its failures, who calls MPI for it, and who tells its ranks when the process ends.
#[derive(Debug)]
struct Entered {
    abort: Abort,
    carrier: Arc<Carrier>,
    last: Arc<dyn LastWord>,
}

/// Tells the other ranks of a world.
pub(crate) trait LastWord: fmt::Debug + Send + Sync {
    /// That the process of this one ends with status 0 and without dropping it. Waits a moment at most.
    fn tell_exit(&self);
}

fn worlds() -> MutexGuard<'static, Vec<Entered>> {
    lock(&WORLDS)
}

/// How long a job that has failed lives on: launchers lose what was written last to those whose job is
/// ended, and the other ranks have something to say as well.
const LAST_WORDS: Duration = Duration::from_millis(300);
/// For how long a process that ends the job waits until the library has.
const PATIENCE: Duration = Duration::from_secs(2);

#[cfg(target_env = "gnu")]
unsafe extern "C" {
    /// As `atexit`, for a function that is told the status.
    fn on_exit(function: extern "C" fn(c_int, *mut c_void), argument: *mut c_void) -> c_int;
}

impl Mpi {
    /// Initialises MPI if the application has not, asking for all the thread support there is, and returns
    /// which is granted. What is initialised here is finalised when the process exits. Collective over all
    /// processes of the job if it initialises.
    ///
    /// # Errors
    /// [`Error::FabricUnavailable`] if the library is not the launcher's, or if MPI was finalised;
    /// [`Error::BadEnvironment`]; [`Error::Mpi`].
    pub(crate) fn start(&'static self) -> Result<ThreadLevel> {
        self.started.level.get_or_init(|| self.initialise()).clone()
    }

    fn initialise(&'static self) -> Result<ThreadLevel> {
        let table = &self.table;
        if self.finalized()? {
            return Err(unavailable(
                "MPI was finalised in this process, and it cannot be initialised twice; make worlds before MPI_Finalize"
                    .to_owned(),
            ));
        }
        if self.initialized()? {
            let mut level = 0;
            // SAFETY: MPI is initialised; the place lives through the call.
            unsafe { table.query_thread(&raw mut level) }?;
            self.make_handlers()?;
            return Ok(ThreadLevel::of(level, &self.constants));
        }
        if let Some(reason) = self.launcher.mismatch(self.path(), &self.library_version()?) {
            return Err(unavailable(reason));
        }
        let asked = ThreadLevel::asked(std::env::var(THREADS_VARIABLE).ok().as_deref())?;
        let mut level = 0;
        let none = std::ptr::null_mut();
        // SAFETY: MPI is not initialised; without arguments it takes none of the command line; the place lives
        // through the call.
        unsafe { table.init_thread(none, none.cast(), asked.value(&self.constants), &raw mut level) }?;
        // SAFETY: registers a function without conditions. It cannot be refused within the 32 places that
        // a system has at least; where it is, the process ends without finalising.
        #[cfg(target_env = "gnu")]
        unsafe {
            on_exit(end, std::ptr::null_mut())
        };
        // SAFETY: as above. Other systems' C libraries do not tell the status.
        #[cfg(not(target_env = "gnu"))]
        unsafe {
            libc::atexit(end_without_status)
        };
        self.make_handlers()?;
        // The predefined communicators end the job on an error, unless they are told not to.
        self.handle_errors(self.constants.comm_world)?;
        self.handle_errors(self.constants.comm_self)?;
        Ok(ThreadLevel::of(level, &self.constants))
    }

    fn make_handlers(&self) -> Result<()> {
        let (mut communicators, mut windows) = (0, 0);
        // SAFETY: MPI is initialised; the function stays, as the library of it is never closed.
        unsafe { self.table.comm_create_errhandler(RECORD, &raw mut communicators) }?;
        // SAFETY: as above.
        unsafe { self.table.win_create_errhandler(RECORD, &raw mut windows) }?;
        // Made once: `start` comes here once.
        let _ = self.started.handlers.set(Handlers { communicators, windows });
        Ok(())
    }

    fn handlers(&self, call: &'static str) -> Result<Handlers> {
        self.started
            .handlers
            .get()
            .copied()
            .ok_or_else(|| Error::OutOfOrder { call, reason: "MPI has to be started first".to_owned() })
    }

    /// Makes errors on a communicator come back as results.
    pub(super) fn handle_errors(&self, comm: Handle) -> Result<()> {
        let handler = self.handlers("MPI_Comm_set_errhandler")?.communicators;
        // SAFETY: the handler is one for communicators; the caller's handle is one of a communicator.
        unsafe { self.table.comm_set_errhandler(comm, handler) }
    }

    /// Makes errors on a window come back as results.
    pub(super) fn handle_window_errors(&self, window: Handle) -> Result<()> {
        let handler = self.handlers("MPI_Win_set_errhandler")?.windows;
        // SAFETY: the handler is one for windows; the caller's handle is one of a window.
        unsafe { self.table.win_set_errhandler(window, handler) }
    }

    /// Whether the calling thread is the one that initialised MPI.
    ///
    /// # Errors
    /// [`Error::Mpi`].
    pub(crate) fn is_main_thread(&self) -> Result<bool> {
        let mut flag = 0;
        // SAFETY: the place lives through the call; the caller has started MPI, else it is an error.
        unsafe { self.table.is_thread_main(&raw mut flag) }?;
        Ok(flag != 0)
    }

    /// Whether MPI can be called: it is initialised, and not finalised.
    pub(crate) fn is_running(&self) -> bool {
        self.initialized().unwrap_or(false) && !self.finalized().unwrap_or(true)
    }

    /// Whether MPI was initialised, by the application or here.
    ///
    /// # Errors
    /// [`Error::Mpi`].
    pub(crate) fn initialized(&self) -> Result<bool> {
        let mut flag = 0;
        // SAFETY: the place lives through the call, which is allowed at any time.
        unsafe { self.table.initialized(&raw mut flag) }?;
        Ok(flag != 0)
    }

    fn finalized(&self) -> Result<bool> {
        let mut flag = 0;
        // SAFETY: the place lives through the call, which is allowed at any time.
        unsafe { self.table.finalized(&raw mut flag) }?;
        Ok(flag != 0)
    }

    /// Notes that the job has failed. What would wait for other ranks is then left out, and a process whose
    /// MPI was initialised here ends the whole job when it exits: finalising would hang.
    pub(crate) fn poison(&self) {
        BROKEN.store(true, Ordering::Release);
        POISONED.store(true, Ordering::Release);
    }

    /// As [`Mpi::poison`], by what a rank has done. One whose process has ended with status 0 finalises, and so can this one.
    pub(crate) fn poison_by(&self, operation: &str) {
        if operation == EXITED {
            POISONED.store(true, Ordering::Release);
        } else {
            self.poison();
        }
    }

    /// Notes that a world begins, where its failures are told, who calls MPI for it, and who tells its ranks that this process
    /// ends well. One that ends with an error while it has a world leaves the others in the middle of something, and ends
    /// the job.
    pub(crate) fn enter(&self, abort: Abort, carrier: Arc<Carrier>, last: Arc<dyn LastWord>) {
        worlds().push(Entered { abort, carrier, last });
    }

    /// Notes that a world is dropped.
    pub(crate) fn leave(&self, abort: &Abort) {
        match abort.failure() {
            // Nobody has waited for its progress thread: the end of the process does.
            Some((_, operation)) => self.poison_by(&operation),
            None => worlds().retain(|world| !world.abort.is(abort)),
        }
    }

    /// Whether [`Mpi::poison`] was called, or a world has failed. Nothing should be called then that can
    /// be left out: another thread may be in a call that never returns, and keep the library to itself.
    pub(crate) fn is_poisoned(&self) -> bool {
        POISONED.load(Ordering::Acquire) || worlds().iter().any(|world| world.abort.failure().is_some())
    }

    /// Ends all processes of the job at once.
    pub(crate) fn abort(&self, code: i32) -> Result<()> {
        // SAFETY: does not return where it can end the processes.
        unsafe { self.table.abort(self.constants.comm_world, code) }
    }
}

/// Whether others may never come to finalise.
fn is_broken() -> bool {
    let by_other = |world: &Entered| world.abort.failure().is_some_and(|(_, operation)| operation != EXITED);
    BROKEN.load(Ordering::Acquire) || worlds().iter().any(by_other)
}

/// Whether nobody calls MPI any more for worlds that were not dropped, within some patience.
fn have_stopped() -> bool {
    let end = Instant::now() + PATIENCE;
    // Not with the list locked: what a carrier does last may look at it.
    let carriers: Vec<_> = worlds().iter().map(|world| world.carrier.clone()).collect();
    let have_stopped = carriers.iter().all(|carrier| carrier.stop_until(end, &is_broken));
    if !have_stopped {
        // There is nobody left to return an error to.
        eprintln!(
            "this process ends while the progress thread of a world that was not dropped is in a call of MPI: the job \
             is ended; drop worlds before the process exits"
        );
    }
    have_stopped
}

/// Tells whoever may wait for this process, which ends well, that it waits in vain.
fn tell_exit(mpi: &Mpi) {
    let all_may_call = matches!(mpi.started.level.get(), Some(Ok(ThreadLevel::Multiple)));
    if !all_may_call && !mpi.is_main_thread().unwrap_or(false) {
        return;
    }
    // Whoever has ended before has told.
    let untold: Vec<_> = worlds()
        .iter()
        .filter(|world| world.abort.failure().is_none())
        .map(|world| world.last.clone())
        .collect();
    untold.iter().for_each(|last| last.tell_exit());
}

#[cfg(not(target_env = "gnu"))]
extern "C" fn end_without_status() {
    end(0, std::ptr::null_mut());
}

/// Runs when the process exits.
extern "C" fn end(status: c_int, _argument: *mut c_void) {
    let Ok(mpi) = Mpi::get() else { return };
    if !mpi.is_running() {
        return;
    }
    if is_broken() || (status != 0 && !worlds().is_empty()) || !have_stopped() {
        std::thread::sleep(LAST_WORDS);
        let status = if status == 0 { 1 } else { status };
        // Another thread may be in a call that never returns, and keep the library to itself.
        let _ = std::thread::Builder::new().spawn(move || {
            std::thread::sleep(PATIENCE);
            // SAFETY: ends the process; the launcher sees the status and ends the others.
            unsafe { libc::_exit(status) }
        });
        let _ = mpi.abort(status);
        return;
    }
    tell_exit(mpi);
    let table: &Table = &mpi.table;
    // SAFETY: MPI is running, was initialised here, and nothing of ours runs after the process's exit. There is
    // nobody left to tell of an error.
    let _ = unsafe { table.finalize() };
}

#[cfg(test)]
mod tests {
    use super::super::abi::Abi;
    use super::*;

    #[test]
    fn levels_are_ordered_and_named() {
        assert!(ThreadLevel::ALL.is_sorted());
        assert_eq!(ThreadLevel::asked(None), Ok(ThreadLevel::Multiple));
        assert_eq!(ThreadLevel::asked(Some("funneled")), Ok(ThreadLevel::Funneled));
        let error = ThreadLevel::asked(Some("many")).expect_err("is no level");
        assert!(matches!(error, Error::BadEnvironment { variable: THREADS_VARIABLE, .. }), "{error}");
    }

    #[test]
    fn levels_have_other_values_in_the_standard_abi() {
        for abi in [Abi::Standard, Abi::Mpich] {
            let constants = abi.constants(|_| None).expect("are known");
            for level in ThreadLevel::ALL {
                assert_eq!(ThreadLevel::of(level.value(&constants), &constants), level);
            }
        }
    }
}
