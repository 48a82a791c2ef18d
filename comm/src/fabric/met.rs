//! Ranks that have met at a rendezvous.

use super::rendezvous::{Rendezvous, RendezvousOptions};
use super::spanning::Bootstrap;
use super::{Abort, Carrier, Fabric, LocalFabric, Parted, Partings};
use crate::error::Result;
use crate::meeting::Meeting;
use std::net::IpAddr;
use std::sync::Arc;

/// One rank's end.
pub(super) struct Met {
    rendezvous: Arc<Rendezvous>,
    /// Told to the others as it is raised: a stream, or a progress thread, may fail while the rank's own thread makes no call.
    abort: Abort,
}

impl Met {
    /// Meets the others. Collective; blocks.
    pub(super) fn join(options: &RendezvousOptions) -> Result<Arc<Self>> {
        Self::at(Rendezvous::join(options)?)
    }

    fn at(rendezvous: Arc<Rendezvous>) -> Result<Arc<Self>> {
        let heard = LocalFabric::alone(rendezvous.rank())?.abort();
        // Streams may outlive the world, and the rendezvous must not.
        let teller = Arc::downgrade(&rendezvous);
        let abort = heard.telling(move |rank, text| {
            if let Some(rendezvous) = teller.upgrade() {
                rendezvous.tell_failure(rank, text);
            }
        });
        rendezvous.on_failure(Box::new(move |rank, text| heard.raise(rank, text)));
        Ok(Arc::new(Self { rendezvous, abort }))
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

    fn abort(&self) -> Abort {
        self.abort.clone()
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::{Device, StreamKind, StreamOptions};
    use crate::error::Error;
    use crate::fabric::rendezvous::JobKey;
    use crate::fabric::spanning::Spanning;
    use crate::world::{World, WorldOptions};
    use std::net::{Ipv4Addr, TcpListener};
    use std::sync::Barrier;
    use std::time::Duration;

    /// Longer than anything here takes, on a busy machine too.
    const AMPLE: Option<Duration> = Some(Duration::from_secs(20));

    #[test]
    fn a_stream_that_fails_is_told_of_while_its_rank_makes_no_call() {
        for failing in [0, 1] {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("there is a free port");
            let address = listener.local_addr().expect("it has an address").to_string();
            let key = JobKey::from_hex(&"07".repeat(JobKey::BYTES)).expect("it has the right length");
            let (mut listener, are_told) = (Some(listener), Barrier::new(3));
            std::thread::scope(|scope| {
                for rank in 0..3 {
                    let (address, key, are_told) = (address.clone(), key.clone(), &are_told);
                    let options = RendezvousOptions { address, rank, size: 3, key, timeout: AMPLE };
                    let listener = listener.take();
                    scope.spawn(move || {
                        let rendezvous = match listener {
                            Some(listener) => Rendezvous::from_listener(listener, &options),
                            None => Rendezvous::join(&options),
                        };
                        let met = Met::at(rendezvous.expect("the ranks meet")).expect("there is memory");
                        let fabric = Arc::new(Spanning::of_strangers(met).expect("there is memory"));
                        let options = WorldOptions { timeout: AMPLE, ..WorldOptions::default() };
                        let world = World::new(fabric, options).expect("it communicates with nobody");
                        let options = StreamOptions { kind: StreamKind::Threaded, threads: 1 };
                        let stream = Device::host().stream_with(&world, options).expect("it starts");
                        world.barrier().expect("all come to it");
                        if rank == failing {
                            stream.enqueue_host("a fall", || Err("over".into()));
                            are_told.wait();
                        } else {
                            let ended = world.barrier();
                            are_told.wait();
                            let Err(Error::PeerFailed { rank, operation }) = &ended else {
                                panic!("{ended:?}")
                            };
                            assert_eq!(*rank, failing);
                            assert!(operation.contains("over"), "{operation}");
                        }
                    });
                }
            });
        }
    }
}
