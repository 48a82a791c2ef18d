//! Fabrics that span machines: a wire to the peers far away, and mapped memory to those, if any,
//! that share this rank's.

use super::{
    Abort, Carrier, Executor, Fabric, LocalFabric, Parted, Partings, Region, WaitContext, WaitPolicy, Wire,
};
use crate::error::Result;
use crate::meeting::Meeting;
use crate::pinning::usable;
use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// What ranks of any machines start from: they know each other, meet, and hear of failures.
pub(crate) trait Bootstrap: Send + Sync {
    fn rank(&self) -> usize;
    fn size(&self) -> usize;
    /// A new meeting of all ranks. Collective, but for the first.
    fn meeting(&self) -> Result<Box<dyn Meeting>>;
    /// A meeting that ranks come to when they are done. Collective.
    fn farewell(&self) -> Result<Box<dyn Meeting>> {
        self.meeting()
    }
    /// This rank's own address on the network that ranks have met over, if it is known.
    fn local_address(&self) -> Option<IpAddr> {
        None
    }
    /// This rank's abort word, which failures of others come to as well.
    fn abort(&self) -> Abort;
    /// Tells all ranks of a failure.
    fn tell_failure(&self, rank: usize, operation: &str);
    /// What partings of other ranks come to.
    fn partings(&self) -> &Arc<Partings>;
    /// Tells a rank that this one lets go of words of its. Does not block.
    fn tell_parting(&self, peer: usize, parted: &Parted);
    /// Who has to call what the bootstrap is made of, if it does not run by itself.
    fn carrier(&self) -> Option<Arc<Carrier>>;
    /// Ends what only all can end together: all have come to this meeting, and nobody tells anything any more.
    /// Collective.
    fn end(&self, _meeting: &dyn Meeting, _context: &WaitContext) {}
}

/// What a wire ends in the same way.
type End = dyn Fn(&dyn Meeting, &WaitContext) + Send + Sync;

/// Where peers write to this rank's memory, they may be at it when this rank has ended its last
/// exchange: dropping this meets them once more, for a limited time, and then lets the wire end what only
/// all can end together.
pub(crate) struct Farewell {
    bootstrap: Arc<dyn Bootstrap>,
    meeting: Mutex<Box<dyn Meeting>>,
    /// How long a rank waits for the others before it goes.
    timeout: Option<Duration>,
    end: Box<End>,
}

impl Farewell {
    /// A meeting of its own for that. Collective.
    pub(crate) fn new(
        bootstrap: Arc<dyn Bootstrap>,
        timeout: Option<Duration>,
        end: impl Fn(&dyn Meeting, &WaitContext) + Send + Sync + 'static,
    ) -> Result<Arc<Self>> {
        let meeting = Mutex::new(bootstrap.farewell()?);
        Ok(Arc::new(Self { bootstrap, meeting, timeout, end: Box::new(end) }))
    }

    /// How this rank waits for the others, unless it has failed.
    fn context(&self) -> Option<WaitContext> {
        let abort = self.bootstrap.abort();
        if std::thread::panicking() || abort.failure().is_some() {
            return None;
        }
        let (rank, policy) = (self.bootstrap.rank(), WaitPolicy { spins: 64, yields: 64, sleeps: false });
        Some(WaitContext { rank, policy, timeout: self.timeout, abort, calls: true })
    }
}

impl Drop for Farewell {
    fn drop(&mut self) {
        let Some(context) = self.context() else { return };
        let meeting = &**self.meeting.get_mut().unwrap_or_else(PoisonError::into_inner);
        // Who has left before cannot be met, and needs nothing any more.
        if meeting.barrier(&context).is_ok() {
            (self.end)(meeting, &context);
            self.bootstrap.end(meeting, &context);
        }
    }
}

/// One rank's end of a fabric that spans machines.
pub(crate) struct Spanning {
    pub(crate) name: &'static str,
    pub(crate) bootstrap: Arc<dyn Bootstrap>,
    /// The library that messages between nodes go through, even if there is but one node.
    pub(crate) engine: Option<String>,
    /// Gives this rank its memory, and maps that of the peers that share it.
    pub(crate) memory: Arc<dyn Fabric>,
    /// Which ranks those are, by rank; this one is.
    pub(crate) mapped: Vec<bool>,
    /// How many cores those may use together, each of which a launcher may have bound to its own.
    pub(crate) cores: usize,
    /// Before the wire goes, all ranks have to be done with it.
    pub(crate) farewell: Option<Arc<Farewell>>,
    /// None on the way to one.
    pub(crate) wire: Option<Arc<dyn Wire>>,
    pub(crate) executor: Executor,
}

impl Spanning {
    /// A fabric of ranks that can meet, and nothing else yet.
    pub(crate) fn of_strangers(bootstrap: Arc<dyn Bootstrap>) -> Result<Self> {
        let (rank, size) = (bootstrap.rank(), bootstrap.size());
        Ok(Self {
            name: "bootstrap",
            bootstrap,
            engine: None,
            memory: LocalFabric::alone(rank)?,
            mapped: (0..size).map(|peer| peer == rank).collect(),
            cores: usable(),
            farewell: None,
            wire: None,
            executor: Executor::Host,
        })
    }
}

impl Fabric for Spanning {
    fn name(&self) -> &'static str {
        self.name
    }

    fn executor(&self) -> Executor {
        self.executor
    }

    fn rank(&self) -> usize {
        self.bootstrap.rank()
    }

    fn size(&self) -> usize {
        self.mapped.len()
    }

    fn allocate(&self, bytes: usize) -> Result<Region> {
        self.memory.allocate(bytes)
    }

    fn takes_handles(&self) -> bool {
        self.memory.takes_handles()
    }

    fn map(&self, owner: usize, key: u64, bytes: usize) -> Result<Region> {
        self.memory.map(owner, key, bytes)
    }

    fn is_mapped(&self, peer: usize) -> bool {
        self.mapped[peer]
    }

    fn wire(&self) -> Option<Arc<dyn Wire>> {
        self.wire.clone()
    }

    fn abort(&self) -> Abort {
        self.bootstrap.abort()
    }

    fn meeting(self: Arc<Self>) -> Result<Box<dyn Meeting>> {
        self.bootstrap.meeting()
    }

    fn wait_policy(&self) -> WaitPolicy {
        let here = self.mapped.iter().filter(|mapped| **mapped).count();
        policy(self.executor, here, self.cores)
    }

    fn tell_failure(&self, rank: usize, operation: &str) {
        self.bootstrap.tell_failure(rank, operation);
    }

    fn partings(&self) -> Option<&Arc<Partings>> {
        Some(self.bootstrap.partings())
    }

    fn tell_parting(&self, peer: usize, parted: &Parted) {
        // Why a rank fails is told before what it drops.
        match self.bootstrap.abort().failure() {
            Some((rank, operation)) => self.bootstrap.tell_failure(rank, &operation),
            None => self.bootstrap.tell_parting(peer, parted),
        }
    }

    fn engine(&self) -> Option<String> {
        self.engine.clone()
    }

    fn carriers(&self) -> Vec<Arc<Carrier>> {
        let wire = self.wire.as_ref().and_then(|wire| wire.carrier());
        self.bootstrap.carrier().into_iter().chain(wire).collect()
    }
}

/// How the ranks of a node wait that may use so many cores together.
fn policy(executor: Executor, here: usize, cores: usize) -> WaitPolicy {
    let threads = if executor == Executor::Proxy { 2 * here } else { here };
    let policy = WaitPolicy::for_threads(threads, cores);
    // Nobody wakes a host that has to carry its own messages, or that waits for what a network interface writes.
    let is_woken = matches!(executor, Executor::Proxy | Executor::Stream);
    WaitPolicy { sleeps: policy.sleeps && is_woken, ..policy }
}

impl fmt::Debug for Spanning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (rank {} of {})", self.name(), self.rank(), self.size())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_that_outnumber_their_cores_sleep_where_somebody_wakes_them() {
        let sleep = |executor, here, cores| policy(executor, here, cores).sleeps;
        let executors = [Executor::Stream, Executor::Proxy, Executor::Nic, Executor::Host];
        assert_eq!(executors.map(|executor| sleep(executor, 4, 2)), [true, true, false, false]);
        assert_eq!(executors.map(|executor| sleep(executor, 4, 8)), [false; 4]);
        // Progress threads want cores too.
        assert_eq!(executors.map(|executor| sleep(executor, 4, 4)), [false, true, false, false]);
    }
}
