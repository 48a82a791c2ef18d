//! Starts and waits on a queue (2026, table III): all of a batch or none, and nothing but a wait waits.

use super::Queue;
use super::pair::{Pair, Start};
use crate::communicator::{PersistentRequest, Stage};
use crate::error::{Error, Result};
use std::slice::from_mut;

impl Queue {
    /// Enqueues the start of a matched request (`MPI_Enqueue_start`). The start never blocks the stream: a
    /// receive tells its sender that it may come, and a send goes out once its receive has been started, during
    /// whatever wait of this rank comes next. Until the wait that follows is enqueued nothing else may use the
    /// request's section. Never blocks on the host, except for room among triggered operations of a network
    /// interface (2026, section V-C).
    ///
    /// # Errors
    /// Nothing is enqueued with [`Error::Unmatched`], with [`Error::OutOfOrder`] if the last start has not been
    /// waited for, with [`Error::WrongStream`] if the section is of another stream's buffer, with [`Error::InUse`] if
    /// another operation uses the section, with [`Error::NotCapturable`] within a capture, and with [`Error::Throttled`] or
    /// [`Error::TimedOut`] if there is no room. A ready send whose receive has not been started makes the stream fail with [`Error::ReceiverNotReady`] when it
    /// comes there. Over `ofi` it is the start of the receive that is refused with that, on the other rank, or the
    /// stream there that fails with it, and over `mpi` the send is harmless: see [the module](crate::queue).
    pub fn enqueue_start(&self, request: &mut PersistentRequest) -> Result<()> {
        self.start("enqueue_start", from_mut(request))
    }

    /// As [`Queue::enqueue_start`], for all of them or none (`MPI_Enqueue_startall`). Receives start before sends,
    /// in whatever order they are given; receives share one operation of the stream, and so do ready sends.
    /// Allocates only when these requests come together for the first time, in this order: the queue remembers 1024 groups.
    ///
    /// # Errors
    /// As [`Queue::enqueue_start`], by the first request that is refused.
    pub fn enqueue_start_all(&self, requests: &mut [PersistentRequest]) -> Result<()> {
        self.start("enqueue_start_all", requests)
    }

    /// Enqueues a wait that blocks the stream until the request is complete (`MPI_Enqueue_wait`): until a
    /// payload has come, or has left. What is enqueued behind it may use the section. Never blocks on the host;
    /// an inline stream is the host.
    ///
    /// # Errors
    /// Nothing is enqueued with [`Error::Unmatched`], with [`Error::OutOfOrder`] if the request has not been
    /// started since the last wait, with [`Error::WrongQueue`] if it was started on another queue, and with
    /// [`Error::NotCapturable`] within a capture. The stream fails
    /// with [`Error::TimedOut`], or with [`Error::PeerFailed`] if a rank has failed, or if the peer has dropped its request
    /// before it came to this epoch.
    pub fn enqueue_wait(&self, request: &mut PersistentRequest) -> Result<()> {
        self.wait_for("enqueue_wait", from_mut(request))
    }

    /// As [`Queue::enqueue_wait`], for all of them or none (`MPI_Enqueue_waitall`).
    ///
    /// # Errors
    /// As [`Queue::enqueue_wait`], by the first request that is refused.
    pub fn enqueue_wait_all(&self, requests: &mut [PersistentRequest]) -> Result<()> {
        self.wait_for("enqueue_wait_all", requests)
    }

    fn start(&self, call: &'static str, requests: &mut [PersistentRequest]) -> Result<()> {
        self.stream.refuse_capture_of(call)?;
        for request in requests.iter() {
            self.check(call, request, |pair| self.may_start(call, pair))?;
            if request.inner.stage.get() == Stage::Active {
                let reason =
                    format!("the {} has been started by the host; wait for it first", request.describe());
                return Err(Error::OutOfOrder { call, reason });
            }
        }
        let context = &self.stream.status().context;
        for index in 0..requests.len() {
            if let Err(error) = with(&requests[index], |pair| pair.prepare(context)) {
                for other in &requests[..index] {
                    with(other, Pair::give_up);
                }
                return Err(error);
            }
        }
        for request in requests.iter() {
            request.inner.stage.set(Stage::Enqueued);
        }
        let epoch = in_step(requests, |pair| {
            pair.enqueue_before(&self.stream);
            pair.begin(self.id)
        });
        match epoch {
            Some(epoch) if requests.len() > 1 => {
                let mut groups = self.groups.borrow_mut();
                let merged = groups.of(ids(requests), |each| through(requests, each));
                merged.enqueue_starts(&self.stream, epoch);
                through(requests, &mut |pair| self.start_regular(pair));
                merged.enqueue_wakes(&self.stream);
            }
            _ => {
                through(requests, &mut |pair| self.start_signals(pair));
                through(requests, &mut |pair| self.start_ready(pair));
                through(requests, &mut |pair| {
                    self.start_regular(pair);
                    // Whoever sleeps for it does not depend on how soon this rank waits.
                    if let Some(wakes) = pair.wakes() {
                        self.stream.wake_signalled(wakes);
                    }
                });
            }
        }
        Ok(())
    }

    fn start_signals(&self, pair: &Pair) {
        if let Start::Signals(signals) = pair.start() {
            self.stream.write_values(signals, pair.epoch());
        }
    }

    fn start_ready(&self, pair: &Pair) {
        if let Start::Ready(send) = pair.start() {
            self.stream.enqueue_ready_send(send, pair.epoch());
        }
    }

    fn start_regular(&self, pair: &Pair) {
        if let Start::Regular(send) = pair.start() {
            self.stream.enqueue_send(send, pair.epoch());
        }
    }

    fn wait_for(&self, call: &'static str, requests: &mut [PersistentRequest]) -> Result<()> {
        self.stream.refuse_capture_of(call)?;
        for request in requests.iter() {
            self.check(call, request, |pair| self.may_wait(call, pair))?;
        }
        let wait = |pair: &Pair| self.stream.wait_values(pair.waits(), pair.epoch());
        match in_step(requests, |pair| pair.epoch()) {
            Some(epoch) if requests.len() > 1 => {
                let mut groups = self.groups.borrow_mut();
                let merged = groups.of(ids(requests), |each| through(requests, each));
                merged.enqueue_waits(&self.stream, epoch);
                // Each of these may still be on the list of those that wait for their receiver.
                through(requests, &mut |pair| {
                    if matches!(pair.start(), Start::Regular(_)) {
                        wait(pair);
                    }
                });
            }
            _ => through(requests, &mut |pair| wait(pair)),
        }
        for request in requests.iter() {
            with(request, |pair| {
                pair.enqueue_behind();
                pair.end(&self.stream);
            });
            request.inner.stage.set(Stage::Inactive);
        }
        Ok(())
    }

    /// Looks whether a call may be made with a request, which it leaves as it is.
    fn check(
        &self,
        call: &'static str,
        request: &PersistentRequest,
        rule: impl FnOnce(&Pair) -> Result<()>,
    ) -> Result<()> {
        let unmatched = || Err(Error::Unmatched { call, request: request.describe() });
        request.match_state().with(|pair| rule(pair)).unwrap_or_else(unmatched)
    }

    fn may_start(&self, call: &'static str, pair: &Pair) -> Result<()> {
        let section = pair.side().section.stream().id();
        if section != self.stream.id() {
            let (owner, used) = (section, self.stream.id());
            return Err(Error::WrongStream { what: "the section of a request", owner, used });
        }
        match pair.started_on() {
            None => Ok(()),
            Some(_) => Err(Error::OutOfOrder {
                call,
                reason: format!("the {} has been started; enqueue its wait first", pair.side().describe()),
            }),
        }
    }

    fn may_wait(&self, call: &'static str, pair: &Pair) -> Result<()> {
        let request = || pair.side().describe();
        match pair.started_on() {
            Some(owner) if owner == self.id => Ok(()),
            Some(owner) => Err(Error::WrongQueue { call, request: request(), owner, used: self.id }),
            None => Err(Error::OutOfOrder {
                call,
                reason: format!("the {} has not been started since its last wait", request()),
            }),
        }
    }
}

/// Does something with the pair of a request that is matched.
fn with<T>(request: &PersistentRequest, act: impl FnOnce(&mut Pair) -> T) -> T {
    request.match_state().with(act).expect("it was checked to be matched, which lasts")
}

/// Goes through the pairs of requests that are matched.
fn through(requests: &[PersistentRequest], each: &mut dyn FnMut(&Pair)) {
    for request in requests {
        with(request, |pair| each(pair));
    }
}

fn ids(requests: &[PersistentRequest]) -> impl Iterator<Item = u64> + Clone + '_ {
    requests.iter().map(|request| with(request, |pair| pair.id()))
}

/// The epoch of them all, if it is the same.
fn in_step(requests: &[PersistentRequest], mut epoch: impl FnMut(&mut Pair) -> u32) -> Option<u32> {
    let mut common = None;
    let mut differ = false;
    for request in requests {
        let epoch = with(request, &mut epoch);
        differ |= *common.get_or_insert(epoch) != epoch;
    }
    common.filter(|_| !differ)
}
