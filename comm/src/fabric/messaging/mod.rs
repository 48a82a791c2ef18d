//! Packets and bulk transfers over any library that sends and receives messages without blocking.
//!
//! A rank posts a ring of receives that packets of any peer come to, and takes what has come in the order
//! of posting: that is the order in which each peer has sent ([`ring`]). A peer may be [`WINDOW`] packets
//! ahead of what this rank has read; it is told now and then how many that are, with a message of its own
//! kind, which unread packets do not hold up. So what a library keeps for receivers that are late is
//! bounded. A bulk transfer is a message straight from and to where it lies ([`bulks`]).
//!
//! Who lets go of its packets says so in a last one to each peer, which comes behind all that it has sent. It waits
//! for nobody: what is still to be sent goes on without it ([`Mail`]'s drop).
//!
//! The state is shared by whoever has the packets and the carrier, which goes round to it. Where one thread
//! only may call the library, what others send waits for that thread's next round.

mod bulks;
mod goodbye;
mod ring;
mod state;
#[cfg(test)]
mod tests;

pub(crate) use state::{FRAME_BYTES, State};

use super::carrier::{Carried, Carrier, Load};
use super::packet::{Arrived, Bulk, FarPackets, Header, Payload};
use super::region::Place;
use super::{Abort, Executor, Fabric};
use crate::error::{Error, Result};
use crate::locks::try_lock;
use crate::world::World;
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::ThreadId;

/// Packets that a peer may send before it is told that some were read.
pub(crate) const WINDOW: u32 = 32;
/// The longest message that carries a packet.
pub(crate) const PACKET_BYTES: usize = 8192;
/// How long one is that carries a credit.
pub(crate) const CREDIT_BYTES: usize = 12;

/// What messages are for. Those of different labels do not meet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Label {
    Packet,
    /// How many packets were read.
    Credit,
    /// A part of a bulk transfer, by its sender and its number.
    Bulk {
        source: usize,
        number: u32,
    },
}

/// What a packet and a credit begin with.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct Envelope {
    pub(crate) source: u32,
    /// Bytes of payload.
    pub(crate) length: u16,
    /// See [`Messaging::channel`].
    pub(crate) channel: u16,
}

impl Envelope {
    /// That it is one of a world of `ranks`. On some networks anybody may send a packet, who need not have joined it.
    fn check(self, ranks: usize) -> Result<()> {
        let Envelope { source, length, .. } = self;
        if (source as usize) < ranks && usize::from(length) <= state::LARGEST {
            return Ok(());
        }
        let reason = format!("it says that rank {source} of {ranks} has sent {length} bytes");
        Err(Error::System { call: "taking a packet", reason })
    }
}

/// What a library offers for messages between the ranks of a world. Nothing here blocks.
///
/// Messages with the same label from the same rank are received in the order in which they were sent, by
/// the receives of that label in the order of posting. Completions may come in any order.
pub(crate) trait Messaging: Send + fmt::Debug {
    /// What the library has to know of memory that messages come from or go to.
    type Memory: Send + fmt::Debug;
    /// A message under way.
    type Operation: Send + fmt::Debug;

    /// Makes the bytes at a place ready for messages. The region may be used for others as well.
    fn prepare(&mut self, place: &Place, bytes: usize) -> Result<Self::Memory>;
    /// Makes a region ready for messages that is used again and again, and for nothing else.
    fn own(&mut self, place: &Place) -> Self::Memory;
    /// Takes back what was prepared, when all its operations are complete.
    fn release(&mut self, memory: Self::Memory);
    /// The longest message, the same on all ranks.
    fn longest(&self) -> usize;
    /// What these packets and credits say that they are of, where a library does not tell them from those of
    /// others; the same on all ranks.
    fn channel(&self) -> u16 {
        0
    }

    /// Begins to send a part of the memory; `None` while the library has no room.
    ///
    /// # Safety
    /// The bytes must stay, unchanged, until the operation is complete.
    unsafe fn send(
        &mut self,
        memory: &mut Self::Memory,
        part: Range<usize>,
        peer: usize,
        label: Label,
    ) -> Result<Option<Self::Operation>>;

    /// Begins to receive to a part of the memory: from the source of a bulk transfer, any other message from
    /// whoever sends it; `None` while the library has no room.
    ///
    /// # Safety
    /// The memory must stay, and be left alone, until the operation is complete.
    unsafe fn receive(
        &mut self,
        memory: &mut Self::Memory,
        part: Range<usize>,
        label: Label,
    ) -> Result<Option<Self::Operation>>;

    /// Looks what has completed, where the library tells of all at once.
    fn progress(&mut self) -> Result<()> {
        Ok(())
    }
    /// Whether an operation is complete. Once it is, nobody asks again.
    fn is_complete(&mut self, operation: &mut Self::Operation) -> Result<bool>;
    /// Asks for the end of a receive, which then completes soon.
    fn cancel(&mut self, operation: &mut Self::Operation);
    /// Whether the library must not be called any more, and may still be at the memory.
    fn is_lost(&self) -> bool;
}

/// The packets of one rank, for whoever has opened them.
pub(crate) struct Mail<M: Messaging> {
    shared: Arc<Mutex<State<M>>>,
    /// The thread that alone may call the library, if it is one.
    only: Option<ThreadId>,
    rank: usize,
    abort: Abort,
    /// How often bulk transfers were asked for since the last round.
    asked: usize,
    /// Whether peers are not to be told of room.
    is_held: bool,
    /// Which peers have let go of theirs, by rank.
    left: Vec<bool>,
    /// Takes the state off the carrier.
    _load: Load,
    /// Keeps the wire. One that the host drives is not dropped by the thread of a stream.
    _fabric: Option<Arc<dyn Fabric>>,
}

/// The share of the carrier.
struct Carriage<M: Messaging>(Arc<Mutex<State<M>>>);

impl<M: Messaging + 'static> Mail<M> {
    /// Has the carrier go round to packets that were made by the calling thread.
    pub(crate) fn open(
        world: &World,
        carrier: &Arc<Carrier>,
        shared: Arc<Mutex<State<M>>>,
    ) -> Result<Box<dyn FarPackets>> {
        let load = carrier.carry(Box::new(Carriage(shared.clone())))?;
        let by_host = carrier.executor() == Executor::Host;
        Ok(Box::new(Self {
            shared,
            only: by_host.then(|| std::thread::current().id()),
            rank: world.rank(),
            abort: world.fabric().abort(),
            asked: 0,
            is_held: false,
            left: vec![false; world.size()],
            _load: load,
            _fabric: (!by_host).then(|| world.shared_fabric().clone()),
        }))
    }
}

impl<M: Messaging> Mail<M> {
    /// Whether the calling thread may call the library.
    fn may_call(&self) -> bool {
        self.only.is_none_or(|only| only == std::thread::current().id())
    }

    /// The state, which another thread leaves alone soon unless the job has failed: it may then be in a
    /// call that never returns.
    fn state(&self) -> Result<MutexGuard<'_, State<M>>> {
        loop {
            if let Some(state) = try_lock(&self.shared) {
                return Ok(state);
            }
            if let Some((rank, operation)) = self.abort.failure() {
                return Err(Error::PeerFailed { rank, operation });
            }
            std::thread::yield_now();
        }
    }
}

impl<M: Messaging + 'static> FarPackets for Mail<M> {
    fn largest(&self) -> usize {
        state::LARGEST
    }

    fn try_send(&mut self, peer: usize, header: Header, payload: Payload<'_>) -> Result<bool> {
        let mut state = self.state()?;
        let may_call = self.may_call();
        if !state.has_room(peer) {
            if may_call {
                state.round()?;
            }
            if !state.has_room(peer) {
                return Ok(false);
            }
        }
        state.queue(peer, header, payload)?;
        if may_call {
            state.flush()?;
        }
        Ok(true)
    }

    fn receive(&mut self, take: &mut dyn FnMut(Arrived<'_>)) -> Result<()> {
        self.asked = 0;
        // Who goes round at this moment leaves what has come to the next call.
        let Some(mut state) = try_lock(&self.shared) else { return Ok(()) };
        state.hold_back(self.is_held);
        let may_call = self.may_call();
        if may_call {
            state.round()?;
        }
        let has_read = state.read(take);
        if has_read && may_call {
            state.give_room()?;
        }
        while let Some(peer) = state.next_departed() {
            self.left[peer] = true;
        }
        Ok(())
    }

    fn hold_back(&mut self, is_held: bool) {
        self.is_held = is_held;
    }

    fn send_bulk(&mut self, peer: usize, number: u32, place: &Place, bytes: usize) -> Result<Bulk> {
        let may_call = self.may_call();
        self.state()?.begin_bulk(
            Label::Bulk { source: self.rank, number },
            Some(peer),
            place,
            bytes,
            may_call,
        )
    }

    fn recv_bulk(&mut self, peer: usize, number: u32, place: &Place, bytes: usize) -> Result<Bulk> {
        let may_call = self.may_call();
        self.state()?.begin_bulk(Label::Bulk { source: peer, number }, None, place, bytes, may_call)
    }

    fn is_done(&mut self, bulk: Bulk) -> Result<bool> {
        let mut state = self.state()?;
        if state.take_done(bulk) {
            return Ok(true);
        }
        // Who asks for all of them after it has received has just gone round; who only asks has not.
        let asked = self.asked + 1;
        let is_due = asked > state.bulks_under_way();
        if is_due && self.may_call() {
            state.round()?;
        }
        let is_done = is_due && state.take_done(bulk);
        drop(state);
        self.asked = if is_due { 0 } else { asked };
        Ok(is_done)
    }

    fn has_left(&self, peer: usize) -> bool {
        self.left[peer]
    }

    fn unread(&self, peer: usize) -> Result<u32> {
        Ok(self.state()?.unread(peer))
    }
}

impl<M: Messaging> Drop for Mail<M> {
    fn drop(&mut self) {
        // After a failure nobody waits for this rank, and the library may be in a call that never returns.
        if self.abort.failure().is_some() {
            return;
        }
        let may_call = self.may_call();
        let Ok(mut state) = self.state() else { return };
        // What cannot be said now nobody hears: peers then wait until they are out of time.
        if state.say_goodbye().is_ok() && may_call {
            let _ = state.flush();
        }
    }
}

impl<M: Messaging> Carried for Carriage<M> {
    fn progress(&mut self) -> Result<bool> {
        // Whoever is at it goes round, and a wait of this very thread may be inside of that. What is on its
        // way moves in the calls of its owner; a thread's naps are short enough where that does something else.
        try_lock(&self.0).map_or(Ok(()), |mut state| state.round())?;
        Ok(false)
    }

    fn is_quiet(&self) -> bool {
        try_lock(&self.0).is_some_and(|state| state.is_quiet())
    }
}

impl<M: Messaging> fmt::Debug for Mail<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Mail(rank {})", self.rank)
    }
}
