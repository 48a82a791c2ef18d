//! Numbers for whatever completes: one queue tells of everything, and several threads look.

use crate::error::{Error, Result};
use crate::fabric::ofi::{Completion, Endpoint};
use crate::fabric::{Progress, register};
use crate::locks::lock;
use std::rc::Rc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

/// Completions taken from the queue at once.
const AT_ONCE: usize = 16;

/// Sorts completions by the numbers that operations were posted with, and arrivals by the numbers
/// that came with them.
#[derive(Debug)]
pub(super) struct Hub {
    endpoint: Endpoint,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    /// By number: how often it has completed.
    counts: Vec<Arc<AtomicU32>>,
    /// What has failed first: whoever looks may be one that does not wait for it.
    failure: Option<Error>,
}

/// A number, and how often what bears it has completed, wrapping.
#[derive(Debug, Clone)]
pub(super) struct Number {
    pub(super) number: u32,
    count: Arc<AtomicU32>,
}

impl Number {
    /// How often.
    pub(super) fn count(&self) -> u32 {
        self.count.load(Ordering::Acquire)
    }
}

impl Hub {
    pub(super) fn new(endpoint: Endpoint) -> Arc<Self> {
        Arc::new(Self { endpoint, known: Mutex::default() })
    }

    pub(super) fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// A number that nothing else bears. They are not used twice: what is late has nobody's.
    pub(super) fn number(&self) -> Number {
        let Known { counts, .. } = &mut *lock(&self.known);
        let count = Arc::new(AtomicU32::new(0));
        counts.push(count.clone());
        Number { number: counts.len() as u32 - 1, count }
    }

    /// Counts what has completed. Another thread may be at it, and then this one has nothing to do.
    ///
    /// # Errors
    /// What the endpoint's queue says of an operation that failed: once it has, for ever.
    pub(super) fn poll(&self) -> Result<()> {
        let Ok(mut known) = self.known.try_lock() else { return Ok(()) };
        let Known { counts, failure } = &mut *known;
        if let Some(failure) = failure {
            return Err(failure.clone());
        }
        let mut completions = [const { Completion::Nothing }; AT_ONCE];
        loop {
            let found = match self.endpoint.poll(&mut completions) {
                Ok(found) => found,
                Err(error) => return Err(failure.insert(error).clone()),
            };
            for completion in &completions[..found] {
                let number = match *completion {
                    Completion::Done(token)
                    | Completion::Received { token, .. }
                    | Completion::Cancelled(token) => token.number(),
                    Completion::Arrived { data } => data as u32,
                    Completion::Nothing => continue,
                };
                if let Some(count) = counts.get(number as usize) {
                    count.fetch_add(1, Ordering::Release);
                }
            }
            if found < AT_ONCE {
                return Ok(());
            }
        }
    }
}

/// Polls while the thread that has made it waits for whatever it may be.
#[derive(Debug)]
pub(super) struct Polled(Arc<Hub>);

impl Polled {
    pub(super) fn while_waiting(hub: &Arc<Hub>) -> Rc<Self> {
        let polled = Rc::new(Self(hub.clone()));
        register(&polled);
        polled
    }
}

impl Progress for Polled {
    fn progress(&self) -> bool {
        // The hub tells what has failed again.
        let _ = self.0.poll();
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fabric::ofi::{EndpointOptions, LocalSlice, MemoryRegion, PeerAddress, Posted, RemotePlace};
    use crate::fabric::over_ofi::target::{Target, register};
    use crate::fabric::{Fabric, LocalFabric, progress_all};
    use std::time::{Duration, Instant};

    /// More than a connection takes while nobody reads.
    const BYTES: usize = 32 << 20;

    /// Two ends of a connection, and what the first may write to the other.
    struct Ends {
        hub: Arc<Hub>,
        other: Arc<Hub>,
        source: LocalSlice,
        there: MemoryRegion,
    }

    impl Ends {
        /// None without the provider.
        fn of(provider: &str) -> Option<Self> {
            let (provider, source) = (Some(provider.into()), Some("127.0.0.1".into()));
            let options = EndpointOptions { provider, source, ..EndpointOptions::default() };
            let ends = [Endpoint::open(&options).ok()?, Endpoint::open(&options).ok()?];
            for address in [ends[0].address(), ends[1].address()] {
                ends.iter().for_each(|end| assert!(end.insert(&address).is_ok()));
            }
            let memory = LocalFabric::alone(0).expect("there is memory");
            let regions = ends.each_ref().map(|end| {
                let region = memory.allocate(BYTES).expect("there is memory");
                let place = region.place(0, BYTES, "a message").expect("in bounds");
                register(end, &place, BYTES, None).expect("it can be registered")
            });
            let [here, there] = regions;
            let source = here.slice(0, BYTES, "a message").expect("in bounds");
            let [hub, other] = ends.map(Hub::new);
            Some(Self { hub, other, source, there })
        }

        fn target(&self) -> RemotePlace {
            Target::of(&self.there, 0).at(PeerAddress(1))
        }

        /// Whether there was room.
        fn write(&self, target: RemotePlace, number: &Number) -> bool {
            // SAFETY: nobody looks at either place, and both are kept for as long as their ends.
            let posted = unsafe { self.hub.endpoint().write(&self.source, target, number.number) };
            posted.expect("it can be posted") == Posted::Yes
        }

        fn poll(&self) {
            self.hub.poll().expect("nothing has failed");
        }
    }

    fn until(what: &str, mut so: impl FnMut() -> bool) {
        let end = Instant::now() + Duration::from_secs(20);
        while !so() {
            assert!(Instant::now() < end, "waited too long for {what}");
        }
    }

    #[test]
    fn a_peer_comes_through_while_this_thread_waits_for_something_else() {
        let Some(ends) = Ends::of("tcp") else { return println!("skipped: no provider `tcp`") };
        let (target, done) = (ends.target(), ends.hub.number());
        let _polled = Polled::while_waiting(&ends.other);
        let waits = || {
            ends.poll();
            progress_all();
        };
        until("a connection", || (waits(), ends.write(target, &done)).1);
        until("the write", || (waits(), done.count() == 1).1);
    }

    #[test]
    fn what_a_broken_connection_has_not_carried_has_failed_for_whoever_looks() {
        for provider in ["tcp", "net"] {
            let Some(ends) = Ends::of(provider) else {
                println!("skipped: no provider `{provider}`");
                continue;
            };
            let target = ends.target();
            let numbers = [ends.hub.number(), ends.hub.number(), ends.hub.number()];
            let both = || (ends.poll(), ends.other.poll().expect("nothing has failed"));
            until("a connection", || (both(), ends.write(target, &numbers[0])).1);
            until("the first write", || (both(), numbers[0].count() == 1).1);
            until("room", || ends.write(target, &numbers[1]));
            until("room", || ends.write(target, &numbers[2]));
            let Ends { hub, other, there, source: _source } = ends;
            drop((there, other));
            let mut failed = None;
            until("the failure", || {
                failed = hub.poll().err();
                failed.is_some()
            });
            let said = failed.as_ref().map(ToString::to_string).unwrap_or_default();
            assert!(said.contains("a write to rank 1 failed"), "{provider}: {said}");
            // Who has looked first may not have waited for it.
            (0..10).for_each(|_| assert_eq!(hub.poll().err(), failed));
            // Of the first of both the system may have taken all.
            assert_eq!(numbers[2].count(), 0, "{provider}: it has not left");
        }
    }
}
