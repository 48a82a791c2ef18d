//! Ranks that have met at a rendezvous.

use super::rendezvous::{Rendezvous, RendezvousOptions};
use super::spanning::Bootstrap;
use super::{Abort, Carrier, Fabric, LocalFabric, Parted, Partings, Region};
use crate::error::Result;
use crate::meeting::Meeting;
use std::net::IpAddr;
use std::sync::Arc;

/// One rank's end.
pub(super) struct Met {
    rendezvous: Arc<Rendezvous>,
    memory: Arc<LocalFabric>,
}

impl Met {
    /// Meets the others. Collective; blocks.
    pub(super) fn join(options: &RendezvousOptions) -> Result<Arc<Self>> {
        let rendezvous = Rendezvous::join(options)?;
        let memory = LocalFabric::alone(options.rank)?;
        let abort = Abort::new(memory.abort());
        rendezvous.on_failure(Box::new(move |rank, text| abort.raise(rank, text)));
        Ok(Arc::new(Self { rendezvous, memory }))
    }
}

impl Bootstrap for Met {
    fn rank(&self) -> usize {
        self.rendezvous.rank()
    }

    fn size(&self) -> usize {
        self.rendezvous.size()
    }

    fn meeting(&self) -> Result<Box<dyn Meeting>> {
        Ok(self.rendezvous.meeting())
    }

    fn local_address(&self) -> Option<IpAddr> {
        Some(self.rendezvous.local_address())
    }

    fn abort(&self) -> Region {
        self.memory.abort()
    }

    fn tell_failure(&self, rank: usize, operation: &str) {
        self.rendezvous.tell_failure(rank, operation);
    }

    fn partings(&self) -> &Arc<Partings> {
        self.rendezvous.partings()
    }

    fn tell_parting(&self, peer: usize, parted: &Parted) {
        self.rendezvous.tell_parting(peer, parted);
    }

    fn carrier(&self) -> Option<Arc<Carrier>> {
        None
    }
}
