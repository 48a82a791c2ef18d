//! Wires: what carries messages to peers whose memory is not mapped.
//!
//! A stream writes and waits for words of its own rank only, whatever lies behind them. It posts a
//! *doorbell* when a payload is packed or a receive begins; the executor of the wire (the network
//! interface, a progress thread, or the host) carries the message out and sets the words that the
//! stream waits for. So a wire needs no operation of its own on the stream, and the protocols of the
//! backends are the same as over mapped memory.

use super::protocol::{clear_to_send, credit_granted, credit_needed};
use super::region::{Place, Word};
use super::{Executor, FarPackets, Role};
use crate::device::{Accelerator, Takes, Vendor};
use crate::error::Result;
use crate::world::World;
use std::any::Any;
use std::fmt;
use std::sync::Arc;

/// What a fabric offers for peers whose memory is not mapped.
pub trait Wire: Send + Sync + fmt::Debug {
    /// Its progress thread, if it has one of its own.
    fn carrier(&self) -> Option<Arc<super::Carrier>> {
        None
    }

    /// Whether it takes payloads from, and brings them to, a GPU's memory at such addresses.
    #[allow(private_interfaces, reason = "what a wire is made of is this crate's")]
    fn takes(&self, vendor: Vendor) -> Takes;

    /// Whether payloads of active target epochs go into windows, of which [`Wire::takes`] may say less than of messages.
    fn has_windows(&self) -> bool {
        false
    }

    /// Makes the far part of an exchange ready to be triggered. Collective over `world`: every rank
    /// calls it, also with nothing to send; blocks. Fails on all ranks or on none.
    ///
    /// # Errors
    /// What the wire cannot do, or has no more room for.
    fn open(&self, world: &World, exchange: FarExchange) -> Result<OpenExchange>;

    /// Makes one message between this rank and a peer ready to be triggered, as far as this rank can alone:
    /// gives what the peer is to be told, and a half that what the peer tells completes. Not collective; does
    /// not communicate.
    ///
    /// The exchange has one send or one receive, one buffer, and flags its arrivals; the peer's has the other
    /// side of the message with the same terms, of which announced and needed are the epoch. A sender posts the
    /// trigger only, a receiver the start only.
    ///
    /// # Errors
    /// As [`Wire::open`].
    fn begin_pair(&self, world: &World, exchange: FarExchange) -> Result<(Vec<u8>, Box<dyn HalfOpen>)>;

    /// Connects all ranks for packets. Collective over `world`: every rank calls it; blocks. Each call makes
    /// packets of their own.
    ///
    /// # Errors
    /// As [`Wire::open`].
    fn open_packets(&self, world: &World) -> Result<Box<dyn FarPackets>>;

    /// Makes persistent two-sided messages that the host starts and waits for. Collective, as
    /// [`Wire::open`].
    ///
    /// # Errors
    /// As [`Wire::open`].
    fn open_two_sided(&self, world: &World, messages: FarMessages) -> Result<Box<dyn Persistent>>;
}

/// What a protocol says about its far messages.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Terms {
    /// What a receiver says as it starts.
    pub(crate) readiness: Role,
    /// The value that a receiver announces in an epoch.
    pub(crate) announced: fn(u32) -> u32,
    /// The value that a sender needs in an epoch.
    pub(crate) needed: fn(u32) -> u32,
    /// Whether no send starts before all receivers are ready.
    pub(crate) waits_for_group: bool,
    /// Receive buffers used in turn.
    pub(crate) buffers: usize,
    /// Whether arrivals are counted in one word, rather than flagged one by one, by those that are one operation to all who
    /// count: processors, and no network interface.
    pub(crate) counts: bool,
    pub(crate) room: Room,
    /// The epoch before the first.
    pub(crate) last_epoch: u32,
}

/// What a wire keeps free for an exchange, if there are a few entries only for what it has queued.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Room {
    /// An epoch of it, at any time, whatever other exchanges have begun. It is refused where there is no room for that.
    Kept,
    /// Nothing, as ranks begin one such exchange after the other. It is refused where there would be no room now.
    Found,
    /// Nothing: it waits until others leave room. One side cannot refuse it, as the other may have been made by then.
    Shared,
}

impl Terms {
    /// Each message waits for its receiver's clear-to-send, which says that the buffer has been unpacked: one is enough.
    pub(crate) const CLEAR_TO_SEND: Self = Self {
        readiness: Role::ClearToSend,
        announced: clear_to_send,
        needed: clear_to_send,
        waits_for_group: false,
        buffers: 1,
        counts: false,
        room: Room::Kept,
        last_epoch: 0,
    };

    /// Messages go into two buffers in turn, and at most one ahead of what their receiver has unpacked, as it says by
    /// credits where nothing else does.
    pub(crate) const READY: Self = Self {
        readiness: Role::Credit,
        announced: credit_granted,
        needed: credit_needed,
        buffers: 2,
        ..Self::CLEAR_TO_SEND
    };
}

/// The messages of an exchange that go over a wire, from one rank's side.
#[derive(Debug)]
pub struct FarExchange {
    pub(crate) terms: Terms,
    pub(crate) sends: Vec<FarSend>,
    pub(crate) recvs: Vec<FarRecv>,
    /// Where arrivals are counted, by phase, unless a network interface brings them.
    pub(crate) counts: [Word; 2],
    /// The device in whose memory payloads lie on this side, if they are not the host's.
    pub(crate) device: Option<Arc<dyn Accelerator>>,
}

/// A message to a peer.
#[derive(Debug, Clone)]
pub(crate) struct FarSend {
    pub(crate) peer: usize,
    pub(crate) tag: u32,
    /// Which of its message's blocks it is, from 0, if that comes in several.
    pub(crate) block: Option<u32>,
    pub(crate) bytes: usize,
    /// Where the stream packs it.
    pub(crate) staging: Place,
    /// Whether it waits until its receiver is ready.
    pub(crate) awaits: bool,
    /// The word that the wire sets then.
    pub(crate) clear: Word,
}

/// A message from a peer.
#[derive(Debug, Clone)]
pub(crate) struct FarRecv {
    pub(crate) peer: usize,
    pub(crate) tag: u32,
    /// As [`FarSend::block`].
    pub(crate) block: Option<u32>,
    pub(crate) bytes: usize,
    /// Where it arrives, by phase; with one buffer the first.
    pub(crate) slots: [Place; 2],
    /// Set to the epoch once it is there, by buffer.
    pub(crate) arrivals: [Word; 2],
    /// Whether the sender is told that this rank is ready.
    pub(crate) announces: bool,
}

/// The far part of an exchange, ready to be triggered.
#[derive(Debug)]
pub struct OpenExchange {
    /// Posted with the announced value as receives start.
    pub(crate) starts: Vec<Word>,
    /// Posted with the epoch once the payload is packed, one a send.
    pub(crate) triggers: Vec<Word>,
    /// Come to the epoch once the staging memory may be packed again.
    pub(crate) departures: Vec<Word>,
    /// Who executes it.
    pub(crate) executor: Executor,
    /// How its messages travel, and why so.
    pub(crate) path: &'static str,
    pub(crate) reason: &'static str,
    /// Where the host has to queue the operations of an epoch before a stream comes to them.
    pub(crate) arm: Option<Box<dyn Arm>>,
    /// Of a receive whose sender is not told that this rank is ready, where what comes then is not put aside.
    pub(crate) early: Option<Arc<dyn Early>>,
    /// Ends the exchange when dropped: with the last of its operations that are still on a stream.
    pub(crate) guard: Arc<dyn Any + Send + Sync>,
    /// Keeps the wire, which goes last.
    pub(crate) _fabric: Arc<dyn super::Fabric>,
}

/// A message of which one side is made.
pub trait HalfOpen: fmt::Debug {
    /// Makes the other, with what the peer has told. Not collective; may block until the peer is connected,
    /// which it need not call anything for.
    ///
    /// # Errors
    /// As [`Wire::open`].
    fn complete(self: Box<Self>, theirs: &[u8]) -> Result<OpenExchange>;
}

/// Queues what the network interface is to carry out once a stream triggers it.
pub(crate) trait Arm: fmt::Debug {
    /// Queues the operations of the next epoch, all or none. May wait for room, as the wire's
    /// throttling says, but never for this epoch's triggers.
    ///
    /// # Errors
    /// That there is no room, if the application is to make some; what the library says.
    fn arm(&mut self, context: &super::WaitContext) -> Result<()>;
}

/// Knows how many messages have come, whether or not this rank was ready for them.
pub(crate) trait Early: Send + Sync + fmt::Debug {
    /// So many, wrapping. What has only just come may be missing. Any thread may ask.
    ///
    /// # Errors
    /// What the library says.
    fn come(&self) -> Result<u32>;
}

/// Two-sided messages with peers, from one rank's side.
#[derive(Debug, Clone)]
pub struct FarMessages {
    pub(crate) sends: Vec<FarMessage>,
    pub(crate) recvs: Vec<FarMessage>,
    /// As [`FarExchange::device`].
    pub(crate) device: Option<Arc<dyn Accelerator>>,
}

/// A persistent two-sided message.
#[derive(Debug, Clone)]
pub(crate) struct FarMessage {
    pub(crate) peer: usize,
    pub(crate) tag: u32,
    pub(crate) bytes: usize,
    /// Where it comes from or goes to.
    pub(crate) place: Place,
}

/// Persistent two-sided messages, which the host starts and tests.
pub trait Persistent: fmt::Debug {
    /// Starts all receives, then all sends. The payloads must stay until all are complete.
    ///
    /// # Errors
    /// What the library says.
    fn start(&mut self) -> Result<()>;
    /// Whether all that was started is complete. Does not block.
    ///
    /// # Errors
    /// What the library says.
    fn test(&mut self) -> Result<bool>;
    /// A message that is not complete: its peer, and whether it is a send.
    fn late(&self) -> Option<(usize, bool)>;
    /// How its messages travel, and why so.
    fn path(&self) -> (&'static str, &'static str);
}
