//! Signals. Ctrl-C is noted by a handler, and asked about wherever the program waits.
//!
//! Nothing is torn down in the handler itself. Whoever waits for ranks looks at the note, and the
//! error that it becomes ends the processes of ranks and leaves earlier results as they are. A later
//! signal ends the program at once, wherever it is: the user does not want to wait for that either.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::iterator::Signals;

use crate::error::AppError;

/// From now on a file that becomes longer than this process may write (`ulimit -f`) is an error of whoever writes it, as a
/// full disk is, and does not end the program.
pub fn survive_file_size_limits() {
    // Any handler keeps the system from ending it. One that is refused changes nothing.
    _ = signal_hook::flag::register(SIGXFSZ, Arc::default());
}

/// Signals that come so soon after the first one are the same wish: `timeout` sends one to the program and another one to
/// its process group.
const SAME: Duration = Duration::from_millis(500);

/// Whether the user has asked the program to stop.
#[derive(Clone, Debug)]
pub(crate) struct Interrupt {
    /// The signal that came last; 0 before there was one.
    signal: Arc<AtomicUsize>,
}

impl Interrupt {
    /// From now on the first SIGINT or SIGTERM does not end the program but is noted. One that comes later than
    /// half a second after it ends the program with the exit status that shells give for it.
    ///
    /// # Errors
    ///
    /// [`AppError::Signals`] where the system refuses the handlers, or the thread that tells signals apart by time.
    pub(crate) fn watch() -> Result<Self, AppError> {
        let signal = Arc::new(AtomicUsize::new(0));
        for number in [SIGINT, SIGTERM] {
            signal_hook::flag::register_usize(number, signal.clone(), number as usize)
                .map_err(AppError::Signals)?;
        }
        let mut signals = Signals::new([SIGINT, SIGTERM]).map_err(AppError::Signals)?;
        let end_at_once = move || {
            let mut first = None;
            for number in signals.forever() {
                if first.get_or_insert_with(Instant::now).elapsed() > SAME {
                    signal_hook::low_level::exit(128 + number);
                }
            }
        };
        let starting = thread::Builder::new().name("signals".to_owned());
        starting.spawn(end_at_once).map_err(AppError::Signals)?;
        Ok(Self { signal })
    }

    /// None that is ever noted: signals end the program as the system does it.
    pub(crate) fn left_to_the_system() -> Self {
        Self { signal: Arc::new(AtomicUsize::new(0)) }
    }

    /// A signal of that number, or none for 0, without a handler.
    #[cfg(test)]
    pub(crate) fn that_came(signal: usize) -> Self {
        Self { signal: Arc::new(AtomicUsize::new(signal)) }
    }

    /// The number of the signal that came last, if one has.
    pub(crate) fn signal(&self) -> Option<usize> {
        Some(self.signal.load(Ordering::Relaxed)).filter(|signal| *signal != 0)
    }

    /// Whether a signal has come.
    pub(crate) fn has_come(&self) -> bool {
        self.signal().is_some()
    }

    /// Turns a signal into an error.
    ///
    /// # Errors
    ///
    /// [`AppError::Interrupted`] once a signal has come.
    pub(crate) fn check(&self) -> Result<(), AppError> {
        self.signal().map_or(Ok(()), |signal| Err(AppError::Interrupted { signal }))
    }
}
