//! Ready sends over libfabric that come before their receive has been started: what the receiver can tell.
//!
//! It knows how many payloads have come. The start of an epoch whose payload is there already is one too late: no
//! sender may send before the receive has been started, by the stream that it was enqueued on. So it is asked twice: as
//! the host enqueues the start, which is then refused, and as the stream comes to it, which then fails.

use crate::device::{HostKernel, Stream, StreamKind};
use crate::error::{Error, Result};
use crate::fabric::{Early, has_reached};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// What a receive can tell of its sender.
#[derive(Debug, Clone)]
struct Arrivals {
    come: Arc<dyn Early>,
    sender: usize,
    receiver: usize,
    tag: u32,
    /// That before the first, at which none has come.
    last_epoch: u32,
}

impl Arrivals {
    /// Refuses the start of an epoch whose payload has come.
    fn check(&self, epoch: u32) -> Result<()> {
        if has_reached(self.come.come()?.wrapping_add(self.last_epoch), epoch) {
            return Err(Error::ReceiverNotReady { rank: self.sender, peer: self.receiver, tag: self.tag });
        }
        Ok(())
    }
}

/// The checks of a receive.
pub(super) struct EarlySends {
    arrivals: Arrivals,
    /// Made once, so that starts do not allocate; it counts the epochs that streams have come to.
    on_stream: Arc<HostKernel>,
}

impl EarlySends {
    pub(super) fn new(
        come: Arc<dyn Early>,
        (sender, receiver): (usize, usize),
        tag: u32,
        last_epoch: u32,
    ) -> Self {
        let arrivals = Arrivals { come, sender, receiver, tag, last_epoch };
        let (theirs, last) = (arrivals.clone(), AtomicU32::new(last_epoch));
        let run = move || theirs.check(last.fetch_add(1, Ordering::Relaxed).wrapping_add(1));
        let name = format!("looking for a ready send from rank {sender} with tag {tag}");
        Self { arrivals, on_stream: Arc::new(HostKernel { name, run }) }
    }

    /// Refuses the start of an epoch whose payload has come by now.
    pub(super) fn check(&self, epoch: u32) -> Result<()> {
        self.arrivals.check(epoch)
    }

    /// Has the stream fail if the payload of the next epoch has come when it gets there. An inline stream is there.
    pub(super) fn enqueue_check(&self, stream: &Stream) {
        if stream.kind() != StreamKind::Inline {
            stream.enqueue_kernel(&self.on_stream);
        }
    }
}

impl std::fmt::Debug for EarlySends {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "EarlySends({:?})", self.arrivals)
    }
}
