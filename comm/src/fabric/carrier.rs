//! Carriers: who executes what streams have triggered, where neither the stream itself nor the
//! network interface does.
//!
//! A carrier goes round the exchanges that it carries, looks at the words that streams have posted,
//! and calls the library. It is a progress thread ([`Executor::Proxy`]), which the rank's own thread
//! helps while it waits, or, where the library may be called by one thread only, the host in its waits
//! alone ([`Executor::Host`]).

use super::progress::Progress;
use super::{Abort, Executor};
use crate::error::{Error, Result};
use crate::locks::lock;
use crate::pinning::unpinned;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Something that a carrier carries.
pub(crate) trait Carried: Send {
    /// Does what can be done now; whether anything is under way. An error ends the job.
    fn progress(&mut self) -> Result<bool>;

    /// Whether nothing is on its way any more that this side has begun, so that it may be dropped.
    fn is_quiet(&self) -> bool;

    /// Whether it makes calls that may not return once a peer is out of reach. The rank's own thread then
    /// leaves it to the other one, or its waits would not end in time.
    fn may_block(&self) -> bool {
        false
    }
}

/// Rounds without anything under way before the thread naps.
const IDLE_ROUNDS: u32 = 500;
/// How late an idle thread may see what a stream has posted.
const NAP: Duration = Duration::from_micros(50);
/// How long a thread may take to end: longer than what it calls last.
const PATIENCE: Duration = Duration::from_secs(20);

/// Carries the exchanges of one rank.
pub struct Carrier {
    rank: usize,
    executor: Executor,
    abort: Abort,
    loads: Mutex<Vec<Carriage>>,
    next_load: AtomicU64,
    stop: AtomicBool,
    /// Rounds that the rank's own thread has gone.
    helped: AtomicU64,
    thread: Mutex<Option<JoinHandle<()>>>,
}

struct Carriage {
    number: u64,
    load: Box<dyn Carried>,
    /// Whether streams post to it.
    is_exchange: bool,
    /// Its exchange has been dropped.
    is_leaving: bool,
}

/// Takes what is carried off its carrier when dropped, as soon as it is quiet.
#[derive(Debug)]
pub(crate) struct Load {
    carrier: Arc<Carrier>,
    number: u64,
}

impl Carrier {
    /// A carrier that carries nothing yet, by a thread of its own or by the host.
    pub(crate) fn new(rank: usize, executor: Executor, abort: Abort) -> Arc<Self> {
        Arc::new(Self {
            rank,
            executor,
            abort,
            loads: Mutex::default(),
            next_load: AtomicU64::new(0),
            stop: AtomicBool::new(false),
            helped: AtomicU64::new(0),
            thread: Mutex::default(),
        })
    }

    /// Who carries.
    pub(crate) fn executor(&self) -> Executor {
        self.executor
    }

    /// Carries one more, and starts the thread if there is to be one.
    ///
    /// # Errors
    /// [`Error::System`] if the system refuses the thread.
    pub(crate) fn carry(self: &Arc<Self>, load: Box<dyn Carried>) -> Result<Load> {
        let number = self.push(load, true);
        let mut thread = lock(&self.thread);
        if self.executor == Executor::Proxy && thread.is_none() {
            let (carrier, unpinned) = (self.clone(), unpinned());
            let name = format!("rank {} proxy", self.rank);
            let started = std::thread::Builder::new().name(name).spawn(move || {
                unpinned();
                if let Err(panic) = catch_unwind(AssertUnwindSafe(|| carrier.work())) {
                    // Finds that what is carried is not as it should be, and says so.
                    carrier.round(false);
                    resume_unwind(panic);
                }
            });
            let started = started.map_err(|error| Error::System {
                call: "starting the progress thread",
                reason: error.to_string(),
            })?;
            *thread = Some(started);
        }
        Ok(Load { carrier: self.clone(), number })
    }

    /// Carries something for as long as there are rounds, without starting a thread for it.
    pub(crate) fn add(&self, load: Box<dyn Carried>) {
        self.push(load, false);
    }

    fn push(&self, load: Box<dyn Carried>, is_exchange: bool) -> u64 {
        let number = self.next_load.fetch_add(1, Ordering::Relaxed);
        self.loads().push(Carriage { number, load, is_exchange, is_leaving: false });
        number
    }

    fn loads(&self) -> MutexGuard<'_, Vec<Carriage>> {
        lock(&self.loads)
    }

    /// Goes round once; whether anything is under way. Another thread may be at it, and then this one
    /// has nothing to do. What may block is left out where `is_helper` says that another thread does it.
    fn round(&self, is_helper: bool) -> bool {
        let mut under_way = false;
        let mut loads = match self.loads.try_lock() {
            Ok(loads) => loads,
            Err(TryLockError::WouldBlock) => return true,
            Err(TryLockError::Poisoned(poisoned)) => {
                if !self.stop.load(Ordering::Acquire) {
                    // By one of our own bugs: who waits for what is carried would wait in vain.
                    self.fail(
                        &mut poisoned.into_inner(),
                        "what carries its messages has panicked",
                        is_helper,
                    );
                }
                return false;
            }
        };
        if self.stop.load(Ordering::Acquire) {
            return false;
        }
        let mut does_all = true;
        for carriage in loads.iter_mut() {
            // For what was dropped nobody waits: it goes on as often as an idle thread looks.
            let is_awaited = !carriage.is_leaving;
            if is_helper && carriage.load.may_block() {
                does_all &= !is_awaited;
                under_way |= is_awaited;
                continue;
            }
            match carriage.load.progress() {
                Ok(more) => under_way |= more && is_awaited,
                Err(error) => {
                    self.fail(&mut loads, &error.to_string(), is_helper);
                    return false;
                }
            }
        }
        loads.retain(|carriage| !(carriage.is_leaving && carriage.load.is_quiet()));
        if is_helper && does_all {
            self.helped.fetch_add(1, Ordering::Relaxed);
        }
        // Nobody tells the host when another thread's stream posts: it has to come back soon.
        under_way || (self.executor == Executor::Host && loads.iter().any(|carriage| carriage.is_exchange))
    }

    /// Ends the job. There are no more rounds: what is carried besides exchanges tells the others now, as the host may not
    /// come to it for long.
    fn fail(&self, loads: &mut [Carriage], operation: &str, is_helper: bool) {
        self.abort.raise(self.rank, operation);
        self.stop.store(true, Ordering::Release);
        for carriage in loads.iter_mut().filter(|carriage| !carriage.is_exchange) {
            if !(is_helper && carriage.load.may_block()) {
                // Nobody else can be told of a failure to tell.
                let _ = carriage.load.progress();
            }
        }
    }

    fn work(&self) {
        let (mut idle, mut helped) = (0, 0);
        while !self.stop.load(Ordering::Acquire) {
            if self.round(false) {
                idle = 0;
            } else {
                idle = (idle + 1).min(IDLE_ROUNDS);
            }
            // While the rank waits it goes round itself, and may need this core for that.
            let now = self.helped.load(Ordering::Relaxed);
            let is_helped = now != std::mem::replace(&mut helped, now);
            if idle < IDLE_ROUNDS && !is_helped {
                // The rank may share its core with this thread.
                std::thread::yield_now();
            } else {
                std::thread::sleep(NAP);
            }
        }
    }

    /// Ends the thread, unless the job has failed: it may then be in a call that never returns. So it may where a
    /// library waits for a peer that has gone without a word, which is a failure as well.
    pub(crate) fn stop(&self) {
        let has_failed = || self.abort.failure().is_some();
        if !self.stop_until(Instant::now() + PATIENCE, &has_failed) && self.abort.failure().is_none() {
            let seconds = PATIENCE.as_secs();
            self.abort.raise(self.rank, &format!("its progress thread has not returned for {seconds} s"));
        }
        if self.abort.failure().is_none() {
            self.loads().clear();
        }
    }

    /// Asks the thread to end; whether it has by then. Nobody waits any more once `is_vain` says so.
    pub(crate) fn stop_until(&self, end: Instant, is_vain: &dyn Fn() -> bool) -> bool {
        self.stop.store(true, Ordering::Release);
        let mut thread = lock(&self.thread);
        while thread.as_ref().is_some_and(|thread| !thread.is_finished()) {
            if is_vain() || Instant::now() > end {
                return false;
            }
            std::thread::sleep(NAP);
        }
        // Its panic, if any, is one of ours and was printed by the thread.
        thread.take().map(JoinHandle::join);
        true
    }
}

/// The waits of a rank's own thread, which go round too: it is there, and the other one may have to
/// share its core.
#[derive(Debug)]
pub(crate) struct HostRounds(pub(crate) Vec<Arc<Carrier>>);

impl Progress for HostRounds {
    fn progress(&self) -> bool {
        self.0.iter().fold(false, |more, carrier| carrier.round(carrier.executor == Executor::Proxy) | more)
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        // After a failure the thread may hold the lock in a call that never returns.
        let loads = if self.carrier.abort.failure().is_some() {
            self.carrier.loads.try_lock().ok()
        } else {
            Some(self.carrier.loads())
        };
        if let Some(mut loads) = loads {
            for carriage in loads.iter_mut().filter(|carriage| carriage.number == self.number) {
                carriage.is_leaving = true;
            }
            // This may be a stream's thread; what the host carries goes with its next round.
            if self.carrier.executor != Executor::Host {
                loads.retain(|carriage| !(carriage.is_leaving && carriage.load.is_quiet()));
            }
        }
    }
}

impl fmt::Debug for Carrier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Carrier(rank {}, {})", self.rank, self.executor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::World;
    use std::sync::mpsc::{Sender, channel};
    use std::thread::{available_parallelism, spawn};

    fn cores() -> usize {
        available_parallelism().expect("it is known").get()
    }

    struct Counting(Sender<usize>);

    impl Carried for Counting {
        fn progress(&mut self) -> Result<bool> {
            // Nobody listens after the first time.
            let _ = self.0.send(cores());
            Ok(false)
        }

        fn is_quiet(&self) -> bool {
            true
        }
    }

    /// Fails, or panics, as it is first looked at.
    struct Failing {
        panics: bool,
    }

    impl Carried for Failing {
        fn progress(&mut self) -> Result<bool> {
            assert!(!self.panics, "on purpose");
            Err(Error::System { call: "a test", reason: "on purpose".into() })
        }

        fn is_quiet(&self) -> bool {
            false
        }
    }

    /// Says what has failed, once it sees that.
    struct News(Abort, Sender<String>);

    impl Carried for News {
        fn progress(&mut self) -> Result<bool> {
            if let Some((_, operation)) = self.0.failure() {
                // Nobody listens after the first time.
                let _ = self.1.send(operation);
            }
            Ok(false)
        }

        fn is_quiet(&self) -> bool {
            true
        }
    }

    #[test]
    fn a_failure_of_what_is_carried_is_told_though_the_host_does_nothing() {
        for (panics, said) in [(false, "on purpose"), (true, "has panicked")] {
            let world = World::alone().expect("it can be made");
            let abort = world.wait_context().abort.clone();
            let carrier = Carrier::new(0, Executor::Proxy, abort.clone());
            let (tell, told) = channel();
            carrier.add(Box::new(News(abort, tell)));
            let _load = carrier.carry(Box::new(Failing { panics })).expect("it can be started");
            let operation = told.recv_timeout(Duration::from_secs(10)).expect("it is told");
            assert!(operation.contains(said), "{operation}");
        }
    }

    #[test]
    fn its_thread_does_not_share_the_core_that_the_rank_is_pinned_to() {
        let pinned = spawn(|| {
            let all = cores();
            let world = World::alone().expect("it can be made");
            let _pinned = world.pin().expect("it may");
            let carrier = Carrier::new(0, Executor::Proxy, world.wait_context().abort.clone());
            let (tell, told) = channel();
            let _load = carrier.carry(Box::new(Counting(tell))).expect("it can be started");
            assert_eq!(told.recv(), Ok(all));
            carrier.stop();
        });
        pinned.join().expect("it does not panic");
    }
}
