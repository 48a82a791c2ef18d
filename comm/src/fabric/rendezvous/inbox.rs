//! What a rank has been told: whether all have come, verdicts of collective calls, failures.

use super::OnFailure;
use super::frame::{Frame, Head, Round, Verdict};
use crate::fabric::Partings;
use crate::locks::lock;
use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The first failure of any rank that this one has heard of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Failure {
    pub(super) rank: usize,
    pub(super) text: String,
}

/// A verdict, and the data that goes with it.
pub(super) type Outcome = (Verdict, Vec<u8>);

/// The inbox of one rank. The threads that read fill it.
#[derive(Default)]
pub(super) struct Inbox {
    state: Mutex<State>,
    changed: Condvar,
    /// Counts changes, so that who spins need not take the lock.
    changes: AtomicU64,
    /// This rank is about to go: ends of connections are no failures any more.
    closing: AtomicBool,
    pub(super) partings: Arc<Partings>,
}

#[derive(Default)]
struct State {
    /// Whether all ranks have come: rank 0's address, or why not. `None`: not known yet.
    started: Option<Result<IpAddr, String>>,
    outcomes: HashMap<Round, Outcome>,
    failure: Option<Failure>,
    centre_left: bool,
    on_failure: Option<Arc<OnFailure>>,
}

/// What a rank that waits for a verdict finds.
#[derive(Debug)]
pub(super) enum Found {
    Outcome(Outcome),
    Failure(Failure),
    /// Rank 0 has said goodbye.
    CentreLeft,
}

impl Inbox {
    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    fn tell_change(&self) {
        self.changes.fetch_add(1, Ordering::Release);
        self.changed.notify_all();
    }

    /// All ranks have come, or not; the first word counts.
    pub(super) fn start(&self, started: Result<IpAddr, String>) {
        self.lock().started.get_or_insert(started);
        self.tell_change();
    }

    /// Whether all have come, as far as is known after at most `nap`.
    pub(super) fn started(&self, nap: Duration) -> Option<Result<IpAddr, String>> {
        let state = self.lock();
        if state.started.is_some() {
            return state.started.clone();
        }
        let (state, _) = self.changed.wait_timeout(state, nap).unwrap_or_else(PoisonError::into_inner);
        state.started.clone()
    }

    pub(super) fn deliver(&self, round: Round, outcome: Outcome) {
        self.lock().outcomes.insert(round, outcome);
        self.tell_change();
    }

    /// A rank has failed. Only the first failure counts.
    pub(super) fn fail(&self, failure: Failure) {
        let mut state = self.lock();
        if state.failure.is_some() {
            return;
        }
        state.failure = Some(failure.clone());
        let on_failure = state.on_failure.clone();
        // It may come back here, so the lock is free by then.
        drop(state);
        if let Some(on_failure) = on_failure {
            on_failure(failure.rank, &failure.text);
        }
        self.tell_change();
    }

    pub(super) fn on_failure(&self, on_failure: OnFailure) {
        let on_failure = Arc::new(on_failure);
        let mut state = self.lock();
        state.on_failure = Some(on_failure.clone());
        let failure = state.failure.clone();
        drop(state);
        if let Some(failure) = failure {
            on_failure(failure.rank, &failure.text);
        }
    }

    /// Ends of connections are no failures from now on.
    pub(super) fn close(&self) {
        self.closing.store(true, Ordering::Release);
        // Dropped without the lock: it may hold what comes back here.
        let _on_failure = self.lock().on_failure.take();
    }

    pub(super) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Acquire)
    }

    /// Takes what rank 0 has sent to another rank.
    pub(super) fn take(&self, frame: Frame) {
        match frame.head {
            Head::Start { address } => self.start(Ok(address)),
            Head::Closed { reason } => self.start(Err(reason)),
            Head::Verdict { round, verdict } => self.deliver(round, (verdict, frame.body)),
            Head::Failed { rank, text } => self.fail(Failure { rank: rank as usize, text }),
            Head::Goodbye => {
                self.lock().centre_left = true;
                self.tell_change();
            }
            Head::Parted { from, parted, .. } => self.partings.hear(from as usize, &parted),
            // Those are for rank 0.
            Head::GaveUp { .. } | Head::Arrive { .. } | Head::LeftMeeting { .. } | Head::Late { .. } => {}
        }
    }

    /// The connection to rank 0 has ended.
    pub(super) fn centre_ended(&self) {
        if self.is_closing() || self.lock().centre_left {
            return;
        }
        self.start(Err("rank 0 is gone: the connection to it ended before all ranks had come".into()));
        self.fail(Failure { rank: 0, text: "it is gone: the connection to it ended".into() });
    }

    /// A look for the verdict of a round: cheap as long as nothing has changed since the last one.
    pub(super) fn watch(&self, round: Round) -> Watch<'_> {
        Watch { inbox: self, round, seen: None, found: None }
    }
}

/// Who waits for one verdict.
pub(super) struct Watch<'a> {
    inbox: &'a Inbox,
    round: Round,
    seen: Option<u64>,
    found: Option<Found>,
}

impl Watch<'_> {
    /// Whether the wait is over.
    pub(super) fn look(&mut self) -> bool {
        let changes = self.inbox.changes.load(Ordering::Acquire);
        if self.found.is_none() && self.seen != Some(changes) {
            self.seen = Some(changes);
            self.look_inside(&mut self.inbox.lock());
        }
        self.found.is_some()
    }

    fn look_inside(&mut self, state: &mut State) {
        // A call that has a verdict ends with it, even if a failure came afterwards.
        if let Some(outcome) = state.outcomes.remove(&self.round) {
            self.found = Some(Found::Outcome(outcome));
        } else if let Some(failure) = &state.failure {
            self.found = Some(Found::Failure(failure.clone()));
        } else if state.centre_left {
            self.found = Some(Found::CentreLeft);
        }
    }

    /// Sleeps until something has changed, at most that long.
    pub(super) fn sleep(&mut self, nap: Duration) {
        let mut state = self.inbox.lock();
        self.look_inside(&mut state);
        if self.found.is_none() {
            let _ = self.inbox.changed.wait_timeout(state, nap);
        }
    }

    pub(super) fn found(self) -> Option<Found> {
        self.found
    }
}

impl fmt::Debug for Inbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Inbox")
    }
}
