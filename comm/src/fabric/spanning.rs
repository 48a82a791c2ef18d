//! Fabrics that span machines: a wire to the peers far away, and mapped memory to those, if any,
//! that share this rank's.

use super::{Carrier, Executor, Fabric, Region, WaitPolicy, Wire};
use crate::error::Result;
use crate::meeting::Meeting;
use std::fmt;
use std::sync::Arc;

/// Makes a meeting of all ranks.
pub(crate) type Meet = Box<dyn Fn() -> Result<Box<dyn Meeting>> + Send + Sync>;
/// Tells all ranks of a failure.
pub(crate) type Tell = Box<dyn Fn(usize, &str) + Send + Sync>;

/// What a spanning fabric is made of.
pub(crate) struct Parts {
    pub(crate) name: &'static str,
    pub(crate) rank: usize,
    /// Gives this rank its memory, and maps that of the peers that share it.
    pub(crate) memory: Arc<dyn Fabric>,
    /// Which ranks those are, by rank; this one is.
    pub(crate) mapped: Vec<bool>,
    pub(crate) wire: Arc<dyn Wire>,
    pub(crate) executor: Executor,
    pub(crate) meet: Meet,
    pub(crate) tell: Tell,
    pub(crate) carrier: Option<Arc<Carrier>>,
}

/// One rank's end of a fabric that spans machines.
pub(crate) struct Spanning {
    parts: Parts,
}

impl Spanning {
    pub(crate) fn new(parts: Parts) -> Arc<Self> {
        Arc::new(Self { parts })
    }
}

impl Fabric for Spanning {
    fn name(&self) -> &'static str {
        self.parts.name
    }

    fn executor(&self) -> Executor {
        self.parts.executor
    }

    fn rank(&self) -> usize {
        self.parts.rank
    }

    fn size(&self) -> usize {
        self.parts.mapped.len()
    }

    fn allocate(&self, bytes: usize) -> Result<Region> {
        self.parts.memory.allocate(bytes)
    }

    fn map(&self, owner: usize, key: u64, bytes: usize) -> Result<Region> {
        self.parts.memory.map(owner, key, bytes)
    }

    fn is_mapped(&self, peer: usize) -> bool {
        self.parts.mapped[peer]
    }

    fn wire(&self) -> Option<Arc<dyn Wire>> {
        Some(self.parts.wire.clone())
    }

    fn abort(&self) -> Region {
        self.parts.memory.abort()
    }

    fn meeting(self: Arc<Self>) -> Result<Box<dyn Meeting>> {
        (self.parts.meet)()
    }

    fn wait_policy(&self) -> WaitPolicy {
        let here = self.parts.mapped.iter().filter(|mapped| **mapped).count();
        let threads = if self.parts.executor == Executor::Proxy { 2 * here } else { here };
        let policy = WaitPolicy::for_ranks(threads);
        // Nobody wakes a host that has to carry its own messages.
        WaitPolicy { sleeps: policy.sleeps && self.parts.executor == Executor::Proxy, ..policy }
    }

    fn tell_failure(&self, rank: usize, operation: &str) {
        (self.parts.tell)(rank, operation);
    }

    fn carrier(&self) -> Option<Arc<Carrier>> {
        self.parts.carrier.clone()
    }
}

impl Drop for Spanning {
    fn drop(&mut self) {
        if let Some(carrier) = &self.parts.carrier {
            carrier.stop();
        }
    }
}

impl fmt::Debug for Spanning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (rank {} of {})", self.name(), self.rank(), self.size())
    }
}
