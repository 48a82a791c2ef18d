//! Sleeping on a word of memory that other processes may share.

use super::sync::AtomicU32;
use super::word::Sleep;
use std::time::Duration;

/// Sleeps in the kernel for at most a bounded time, so that the sleeper looks at the abort word
/// and at its time-out now and then.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Futex {
    /// The longest single sleep.
    pub(crate) nap: Duration,
}

impl Futex {
    /// Wakes only: for those that write words and never sleep on them.
    pub(crate) const WAKER: Futex = Futex { nap: Duration::ZERO };
}

impl Sleep for Futex {
    fn sleep(&self, word: &AtomicU32, seen: u32) {
        use rustix::thread::futex;
        let nap = futex::Timespec {
            tv_sec: self.nap.as_secs() as i64,
            tv_nsec: i64::from(self.nap.subsec_nanos()),
        };
        // Not private: the word may be shared between processes. Every outcome (woken, value
        // changed, interrupted, timed out) means the same to the caller: look again.
        let _ = futex::wait(word, futex::Flags::empty(), seen, Some(&nap));
    }

    #[cold]
    #[inline(never)]
    fn wake(&self, word: &AtomicU32) {
        use rustix::thread::futex;
        // Waking a mapped word cannot fail; if it did, the sleeper's nap ends by itself.
        let _ = futex::wake(word, futex::Flags::empty(), u32::MAX >> 1);
    }
}
