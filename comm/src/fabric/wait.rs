//! Waiting on words: spin, then yield, then sleep; and stop when another rank has failed.

use super::grace::Grace;
use super::hook::Hook;
use super::region::Word;
use super::{Abort, Futex};
use crate::error::{Error, Result};
use std::thread::available_parallelism;
use std::time::{Duration, Instant};

#[cfg(test)]
mod tests;

/// How a rank waits. Spinning answers soonest; yielding and sleeping let ranks outnumber cores.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WaitPolicy {
    /// Looks before the first yield; `u32::MAX`: never yields, sleeps or makes a system call.
    pub spins: u32,
    /// Yields before the first sleep.
    pub yields: u32,
    /// Whether a rank that has waited long sleeps until it is woken. Otherwise it naps for some
    /// microseconds at a time, and its peers need not look whether it sleeps, which costs them a
    /// memory fence with every signal.
    pub sleeps: bool,
}

impl WaitPolicy {
    /// For that many ranks on this machine: one rank per core spins about a microsecond, more
    /// ranks than cores give way soon.
    pub fn for_ranks(ranks: usize) -> Self {
        Self::for_threads(ranks, available_parallelism().map_or(1, usize::from))
    }

    /// For that many threads that wait on that many cores.
    pub(crate) fn for_threads(threads: usize, cores: usize) -> Self {
        if threads <= cores {
            Self { spins: 1000, yields: 200, sleeps: false }
        } else {
            Self { spins: 64, yields: 64, sleeps: true }
        }
    }

    /// Spins for ever.
    pub const SPIN: Self = Self { spins: u32::MAX, yields: 0, sleeps: false };
}

/// What every wait of a rank needs to know.
#[derive(Debug, Clone)]
pub struct WaitContext {
    pub(crate) rank: usize,
    pub(crate) policy: WaitPolicy,
    pub(crate) timeout: Option<Duration>,
    pub(crate) abort: Abort,
    /// Whether a look may call a library, which takes its time, and not only read memory.
    pub(crate) calls: bool,
}

/// The longest single sleep: how late a failure of another rank may be seen.
const NAP: Duration = Duration::from_millis(20);
/// The longest single sleep while operations of this rank still wait for other words.
const SHORT_NAP: Duration = Duration::from_micros(200);
/// After how long a rank yields whose looks call a library: if all ranks went on for as many looks as others, no core
/// would be left to the one that they wait for.
const LOOKING: Duration = Duration::from_micros(20);
/// Looks between two readings of the clock of a rank that never yields.
const SPINS_BETWEEN_CHECKS: u32 = 1 << 14;

impl WaitContext {
    /// Blocks until `word` has come to `wanted`. Meanwhile it calls `serve` now and then, which makes progress on what
    /// else this rank has to do and says whether more is left; and `gone`, which gives the error if a rank has let go of
    /// its end, so that what is waited for will not come: the word, or what is waited for together with it.
    pub(crate) fn wait(
        &self,
        word: &Word,
        wanted: u32,
        gone: &dyn Fn() -> Option<Error>,
        serve: &mut dyn FnMut() -> bool,
    ) -> Result<()> {
        let mut sleep = |nap: Duration| word.cell().sleep_unless_reached(wanted, &Futex { nap });
        self.wait_sleeping(word, wanted, gone, serve, &mut sleep)
    }

    /// As [`WaitContext::wait`], for a word whose writer wakes nobody.
    pub(crate) fn wait_sleeping(
        &self,
        word: &Word,
        wanted: u32,
        gone: &dyn Fn() -> Option<Error>,
        serve: &mut dyn FnMut() -> bool,
        sleep: &mut dyn FnMut(Duration),
    ) -> Result<()> {
        let is_there = || word.cell().reached(wanted);
        if is_there() {
            return Ok(());
        }
        let limits = (self.timeout, None);
        self.wait_within(limits, &mut || is_there(), gone, serve, sleep)
            .map_err(|gave_up| self.give_up(gave_up, word, wanted))
    }

    /// The loop behind every wait: `done` ends it, `sleep` sleeps where whatever `done` looks at
    /// will wake it. Gives the time waited on failure.
    pub(crate) fn wait_until(
        &self,
        done: &mut dyn FnMut() -> bool,
        serve: &mut dyn FnMut() -> bool,
        sleep: &mut dyn FnMut(Duration),
    ) -> Result<(), GaveUp> {
        self.wait_within((self.timeout, None), done, &|| None, serve, sleep)
    }

    /// As [`WaitContext::wait_until`], with a time-out of its own, for how long it looks before it yields, and the error
    /// if somebody has left without whom it is in vain. Inlined: whoever calls it knows what it looks at, of which every
    /// look counts.
    #[inline(always)]
    fn wait_within(
        &self,
        (timeout, looking): (Option<Duration>, Option<Duration>),
        done: &mut dyn FnMut() -> bool,
        gone: &dyn Fn() -> Option<Error>,
        serve: &mut dyn FnMut() -> bool,
        sleep: &mut dyn FnMut(Duration),
    ) -> Result<(), GaveUp> {
        let mut grace = Grace::default();
        // A system call for the clock is made by neither: it is read without one.
        let mut started: Option<Instant> = None;
        let mut yields = 0;
        // Looked at is what is waited for in any case, however a rank waits.
        let spins = self.policy.spins.clamp(1, SPINS_BETWEEN_CHECKS);
        loop {
            let more = serve();
            // Pending operations want attention sooner than a whole spin.
            let looking = looking.map(|looking| (Instant::now(), looking));
            for _ in 0..if more { 16.min(spins) } else { spins } {
                if done() {
                    return Ok(());
                }
                if looking.is_some_and(|(since, looking)| since.elapsed() > looking) {
                    break;
                }
                std::hint::spin_loop();
            }
            if self.abort.failure().is_some() {
                // A verdict of all ranks that came before the failure is that of this one too.
                return if done() { Ok(()) } else { Err(GaveUp::Failed(self.peer_failure())) };
            }
            if let Some(error) = gone() {
                // What it did before it left is there now.
                if done() {
                    return Ok(());
                }
                if grace.is_over() {
                    return Err(GaveUp::Failed(error));
                }
            }
            let waited = started.get_or_insert_with(Instant::now).elapsed();
            if timeout.is_some_and(|timeout| waited >= timeout) {
                return Err(GaveUp::TimedOut(waited));
            }
            if self.policy.spins == u32::MAX {
                continue;
            }
            if yields < self.policy.yields {
                yields += 1;
                std::thread::yield_now();
            } else if self.policy.sleeps {
                sleep(if more { SHORT_NAP } else { NAP });
            } else {
                std::thread::sleep(SHORT_NAP / 4);
            }
        }
    }

    /// Blocks until `done` says so, looking again and again: for what wakes nobody. `late` makes the
    /// error of a time-out.
    pub(crate) fn poll(
        &self,
        done: &mut dyn FnMut() -> Result<bool>,
        late: &dyn Fn(Duration) -> Error,
    ) -> Result<()> {
        self.poll_longer(Duration::ZERO, done, &|| None, late)
    }

    /// As [`WaitContext::poll`], with a time-out that comes `grace` later than that of other waits; `gone` as in
    /// [`WaitContext::wait`].
    pub(crate) fn poll_longer(
        &self,
        grace: Duration,
        done: &mut dyn FnMut() -> Result<bool>,
        gone: &dyn Fn() -> Option<Error>,
        late: &dyn Fn(Duration) -> Error,
    ) -> Result<()> {
        let mut sleep = |nap: Duration| std::thread::sleep(nap.min(SHORT_NAP / 4));
        self.poll_any(done, grace, gone, &mut sleep, late)
    }

    /// As [`WaitContext::poll`], for what wakes whoever sleeps in `sleep`; `gone` as in [`WaitContext::wait`].
    pub(crate) fn poll_sleeping(
        &self,
        done: &mut dyn FnMut() -> Result<bool>,
        gone: &dyn Fn() -> Option<Error>,
        sleep: &mut dyn FnMut(Duration),
        late: &dyn Fn(Duration) -> Error,
    ) -> Result<()> {
        self.poll_any(done, Duration::ZERO, gone, sleep, late)
    }

    fn poll_any(
        &self,
        done: &mut dyn FnMut() -> Result<bool>,
        grace: Duration,
        gone: &dyn Fn() -> Option<Error>,
        sleep: &mut dyn FnMut(Duration),
        late: &dyn Fn(Duration) -> Error,
    ) -> Result<()> {
        let mut failed = None;
        let mut ended = || match done() {
            Ok(ended) => ended,
            Err(error) => {
                failed = Some(error);
                true
            }
        };
        let limits =
            (self.timeout.map(|timeout| timeout.saturating_add(grace)), self.calls.then_some(LOOKING));
        let waited = self.wait_within(limits, &mut ended, gone, &mut crate::device::progress, sleep);
        match (failed, waited) {
            (Some(error), _) => Err(error),
            (None, Ok(())) => Ok(()),
            (None, Err(GaveUp::Failed(error))) => Err(error),
            (None, Err(GaveUp::TimedOut(waited))) => Err(late(waited)),
        }
    }

    /// The error of a wait on `word` that ended without it.
    pub(crate) fn give_up(&self, gave_up: GaveUp, word: &Word, wanted: u32) -> Error {
        match gave_up {
            GaveUp::Failed(error) => error,
            GaveUp::TimedOut(waited) => Error::TimedOut {
                rank: self.rank,
                peer: word.from,
                what: word.role.of(wanted),
                wanted,
                found: word.cell().load(),
                waited,
            },
        }
    }

    /// The error of a wait for one thing that `peer` has not done in time; `None` where it is no other rank's.
    #[cold]
    pub(crate) fn late(
        &self,
        peer: impl Into<Option<usize>>,
        what: impl Into<String>,
        waited: Duration,
    ) -> Error {
        let (rank, peer) = (self.rank, peer.into().unwrap_or(self.rank));
        Error::TimedOut { rank, peer, what: what.into(), wanted: 1, found: 0, waited }
    }

    /// The error that says that a rank has dropped its end of something: or has failed, which it says first.
    #[cold]
    pub(crate) fn left(&self, rank: usize, something: &str) -> Error {
        let left = || (rank, format!("it has dropped its end of {something}"));
        let (rank, operation) = self.abort.failure().unwrap_or_else(left);
        Error::PeerFailed { rank, operation }
    }

    /// The error that says which other rank has failed.
    pub(crate) fn peer_failure(&self) -> Error {
        let (rank, operation) =
            self.abort.failure().unwrap_or((self.rank, "an operation that it did not name".into()));
        Error::PeerFailed { rank, operation }
    }
}

/// A rank to name where any other one than this could have done something: this one where it is alone.
pub(crate) fn any_other(rank: usize, ranks: usize) -> usize {
    (0..ranks).find(|other| *other != rank).unwrap_or(rank)
}

/// Why a wait ended without what it waited for.
#[derive(Debug)]
pub(crate) enum GaveUp {
    /// Another rank has failed, or left.
    Failed(Error),
    TimedOut(Duration),
}

impl Word {
    /// The rank that writes it, if it has let go of its end and the word will not come to `wanted`.
    #[inline]
    pub(crate) fn leaver(&self, wanted: u32) -> Option<usize> {
        let denies = self.parting().is_some_and(|parting| parting.denies(self.cell(), wanted));
        denies.then_some(self.from)
    }

    /// The error of a wait for `wanted`, if its writer has let go.
    pub(crate) fn gone(&self, wanted: u32) -> Option<Error> {
        self.leaver(wanted).map(|rank| Error::PeerFailed {
            rank,
            operation: format!("it has dropped its end, without {} of epoch {wanted}", self.role),
        })
    }

    /// Tells whoever waits on it that this rank lets go, and that the word comes to `last` and no further.
    pub(crate) fn part(&self, last: u32) {
        self.parting().expect("it was made with one").leave(last);
        super::store_fence();
        self.wake();
    }

    /// Stores a value without looking for sleepers; [`Word::wake`] must follow.
    #[inline(always)]
    pub(crate) fn post(&self, value: u32) {
        match self.hook() {
            None => self.cell().store(value),
            Some(hook) => self.post_hooked(hook, value),
        }
    }

    #[cold]
    fn post_hooked(&self, hook: &Hook, value: u32) {
        match hook {
            Hook::Observed(observer) => {
                observer.signalled(self.role, self.to);
                self.cell().store(value);
            }
            Hook::Doorbell(doorbell) => {
                self.cell().store(value);
                doorbell.ring(value);
            }
        }
    }

    /// Whether posting it rings a bell of the host's.
    pub(crate) fn rings(&self) -> bool {
        matches!(self.hook(), Some(Hook::Doorbell(_)))
    }

    /// Tells who observes it that a device posts it.
    pub(crate) fn observe(&self) {
        if let Some(Hook::Observed(observer)) = self.hook() {
            observer.signalled(self.role, self.to);
        }
    }

    /// Adds one without looking for sleepers; [`Word::wake`] must follow.
    #[inline(always)]
    pub(crate) fn post_increment(&self) {
        if let Some(Hook::Observed(observer)) = self.hook() {
            observer.signalled(self.role, self.to);
        }
        self.cell().increment();
    }

    /// Stores a value and wakes whoever sleeps on it: for those that execute what a stream has
    /// triggered.
    pub(crate) fn set(&self, value: u32) {
        self.cell().set(value, &Futex::WAKER);
    }

    /// Adds one and wakes, as [`Word::set`].
    pub(crate) fn increment(&self) {
        self.cell().increment();
        super::store_fence();
        self.wake();
    }

    /// Wakes sleepers; a [`store_fence`] lies between the post and this.
    #[inline(always)]
    pub(crate) fn wake(&self) {
        self.cell().wake_sleepers(&Futex::WAKER);
    }
}
