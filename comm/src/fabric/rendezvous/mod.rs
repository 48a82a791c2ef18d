//! The rendezvous: ranks on any machines meet at an address, without a launcher that could tell them
//! of each other.
//!
//! Rank 0 listens; every other rank connects to it, and both prove that they know the job's key.
//! The connections stay, for the collective calls of set-up and for telling failures: rank 0 gathers
//! what the ranks say and sends it to all. Nothing here is on the exchange path.

mod centre;
mod frame;
mod gate;
mod gathering;
mod handshake;
mod inbox;
mod join;
mod key;
mod link;
mod options;
mod port;
mod socket;
mod star;
#[cfg(test)]
mod tests;

pub use key::JobKey;
pub use options::{ADDRESS_VARIABLE, KEY_FILE_VARIABLE, KEY_VARIABLE, RendezvousOptions};
pub use port::ReservedPort;

use crate::error::{Error, Result};
use crate::fabric::{MOST_RANKS, Parted, Partings};
use crate::meeting::Meeting;
use centre::Centre;
use frame::{Call, Head, Round};
use inbox::{Failure, Inbox};
use link::Link;
use star::Star;
use std::fmt;
use std::net::{IpAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How long rank 0's verdict may take once a rank has waited too long.
const GRACE: Duration = Duration::from_secs(1);
/// How long goodbyes may take.
const FAREWELL: Duration = Duration::from_secs(1);

/// Is told of the first failure: the rank, and what happened to it.
pub(crate) type OnFailure = Box<dyn Fn(usize, &str) + Send + Sync>;

/// One rank's end of a rendezvous. Dropping it says goodbye, and waits up to a second until that is
/// heard; it is told as a failure of this rank if its thread panics.
pub(crate) struct Rendezvous {
    options: RendezvousOptions,
    local_address: IpAddr,
    inbox: Arc<Inbox>,
    uplink: Uplink,
    /// Meetings of all ranks, which have the even numbers.
    meetings: AtomicU64,
    /// Meetings that rank 0 has named, which have the odd ones.
    named: AtomicU64,
}

/// How this rank talks to rank 0.
enum Uplink {
    Centre(Arc<Centre>),
    Link(Arc<Link>),
}

impl Rendezvous {
    /// Meets the other ranks. Blocks until all have come. Collective: as far as the network allows
    /// it fails on all ranks or on none.
    ///
    /// # Errors
    /// [`Error::RendezvousFailed`], which says who did not come, or what does not fit;
    /// [`Error::BadWorldSize`] if this rank cannot be one of so many.
    pub(crate) fn join(options: &RendezvousOptions) -> Result<Arc<Self>> {
        check_rank(options)?;
        if options.rank == 0 {
            let listener = socket::listen(&options.address).map_err(failed(options))?;
            return Self::from_listener(listener, options);
        }
        let inbox = Arc::new(Inbox::default());
        let (link, address) = join::as_rank(options, &inbox).map_err(failed(options))?;
        Ok(Self::new(options, inbox, Uplink::Link(link), address))
    }

    /// As [`Rendezvous::join`], for a rank 0 that listens already, so that its port is known to be its
    /// own before the others are started. The address of the options is for messages only.
    ///
    /// # Errors
    /// As [`Rendezvous::join`].
    pub(crate) fn from_listener(listener: TcpListener, options: &RendezvousOptions) -> Result<Arc<Self>> {
        check_rank(options)?;
        assert_eq!(options.rank, 0, "only rank 0 listens");
        let inbox = Arc::new(Inbox::default());
        let (centre, address) = join::as_centre(listener, options, &inbox).map_err(failed(options))?;
        Ok(Self::new(options, inbox, Uplink::Centre(centre), address))
    }

    fn new(
        options: &RendezvousOptions,
        inbox: Arc<Inbox>,
        uplink: Uplink,
        local_address: IpAddr,
    ) -> Arc<Self> {
        let options = options.clone();
        Arc::new(Self {
            options,
            local_address,
            inbox,
            uplink,
            meetings: AtomicU64::new(0),
            named: AtomicU64::new(0),
        })
    }

    /// This rank, from 0.
    pub(crate) fn rank(&self) -> usize {
        self.options.rank
    }

    /// How many ranks there are.
    pub(crate) fn size(&self) -> usize {
        self.options.size
    }

    /// The own address on the way to rank 0, which names the interface that the others can reach. On
    /// rank 0's machine it is the one that ranks of other machines reach rank 0 at, if there are any.
    pub(crate) fn local_address(&self) -> IpAddr {
        self.local_address
    }

    /// Calls `told` with the first failure of any rank that this one hears of, and what happened to
    /// it: on a thread of the rendezvous, or at once if it has heard of one already. `told` must
    /// not hold the rendezvous, which could then never be dropped.
    pub(crate) fn on_failure(&self, told: OnFailure) {
        self.inbox.on_failure(told);
    }

    /// Tells all ranks that one has failed: this rank or one that it could not reach. Does not block.
    /// The first failure is the one that all see.
    pub(crate) fn tell_failure(&self, rank: usize, text: &str) {
        let failure = Failure { rank, text: text.into() };
        match &self.uplink {
            Uplink::Centre(centre) => centre.fail(failure),
            Uplink::Link(link) => {
                link.send(frame::encode(&Head::Failed { rank: rank as u32, text: text.into() }, &[]));
                self.inbox.fail(failure);
            }
        }
    }

    /// What partings of other ranks come to.
    pub(crate) fn partings(&self) -> &Arc<Partings> {
        &self.inbox.partings
    }

    /// Tells a rank that this one lets go of words of its. Does not block.
    pub(crate) fn tell_parting(&self, peer: usize, parted: &Parted) {
        match &self.uplink {
            Uplink::Centre(centre) => centre.tell_parting(0, peer, parted),
            Uplink::Link(link) => {
                let (from, to) = (self.rank() as u32, peer as u32);
                link.send(frame::encode(&Head::Parted { from, to, parted: parted.clone() }, &[]));
            }
        }
    }

    /// A new meeting of all ranks. Does not communicate, but all ranks make as many.
    pub(crate) fn meeting(self: &Arc<Self>) -> Box<dyn Meeting> {
        let number = 2 * self.meetings.fetch_add(1, Ordering::Relaxed);
        Box::new(Star::new(self.clone(), number, self.size()))
    }

    fn name_meeting(&self) -> u64 {
        2 * self.named.fetch_add(1, Ordering::Relaxed) + 1
    }

    fn arrive(&self, round: Round, ranks: usize, call: Call, data: &[u8]) {
        match &self.uplink {
            Uplink::Centre(centre) => centre.arrive(0, round, ranks, call, data.to_vec()),
            Uplink::Link(link) => {
                link.send(frame::encode(&Head::Arrive { round, ranks: ranks as u32, call }, data));
            }
        }
    }

    /// This rank lets go of a meeting of that many ranks.
    fn leave(&self, meeting: u64, ranks: usize) {
        match &self.uplink {
            Uplink::Centre(centre) => centre.leave_meeting(0, meeting, ranks),
            Uplink::Link(link) => {
                link.send(frame::encode(&Head::LeftMeeting { meeting, ranks: ranks as u32 }, &[]));
            }
        }
    }

    fn late(&self, round: Round, waited: Duration) {
        match &self.uplink {
            Uplink::Centre(centre) => centre.late(round, waited),
            Uplink::Link(link) => link.send(frame::encode(&Head::Late { round, waited }, &[])),
        }
    }

    /// Ends the connections without a word, as a process that is killed does.
    #[cfg(test)]
    fn vanish(&self) {
        self.inbox.close();
        match &self.uplink {
            Uplink::Centre(centre) => centre.links().iter().for_each(|link| link.cut()),
            Uplink::Link(link) => link.cut(),
        }
    }
}

impl Drop for Rendezvous {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.tell_failure(self.rank(), "its own code, which panicked");
        }
        self.inbox.close();
        match &self.uplink {
            Uplink::Centre(centre) => close_links(&centre.say_goodbye()),
            Uplink::Link(link) => {
                link.say_goodbye();
                close_links(std::slice::from_ref(link));
            }
        }
    }
}

/// Waits until what was said on them is heard, but not for a peer that does not listen.
fn close_links(links: &[Arc<Link>]) {
    let deadline = Instant::now() + FAREWELL;
    links.iter().for_each(|link| link.close(deadline));
}

fn check_rank(options: &RendezvousOptions) -> Result<()> {
    let reason = if options.size > MOST_RANKS {
        format!("no more than {MOST_RANKS} ranks can meet")
    } else if options.rank >= options.size {
        format!("rank {} cannot be one of them: ranks run from 0", options.rank)
    } else {
        return Ok(());
    };
    Err(Error::BadWorldSize { asked: options.size, reason })
}

fn failed(options: &RendezvousOptions) -> impl Fn(String) -> Error {
    |reason| Error::RendezvousFailed { rank: options.rank, address: options.address.clone(), reason }
}

impl fmt::Debug for Rendezvous {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Rendezvous(rank {} of {} at {})", self.rank(), self.size(), self.options.address)
    }
}
