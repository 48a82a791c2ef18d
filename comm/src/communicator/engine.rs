//! The engine of a communicator: it moves messages when it is called, and never blocks.
//!
//! A message that fits a packet is sent at once (*eager*). A longer one is announced by ready-to-send; once a
//! receive matches it, its receiver answers with clear-to-send and the place of its memory, into which the
//! sender copies it straight where that memory is mapped, or a bulk transfer of the wire carries it
//! (*rendezvous*).
//!
//! Early messages, which came before their receives, are kept by the receiver. How many of one sender there
//! may be is bounded: who is that far ahead announces short messages too. Receivers say how many they have
//! taken with what they send anyway, or with a packet of its own if those are many.

use super::blocks::Blocks;
use super::ledger::Ledger;
use super::mapped::Mapped;
use super::matching::{INTERNAL, Matching, Wanted};
use super::pipeline::Staged;
use super::pool::Pool;
use super::record::Post;
use super::slots::{Slots, Ticket};
use super::staging::Staging;
use crate::element::ElementType;
use crate::error::{Error, Result};
use crate::fabric::{Bulk, Fabric, Packets, any_other};
use crate::source::{Source, Status, Tag};
use crate::world::World;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// The longest message that is sent at once, if packets can be that long.
pub(crate) const EAGER_BYTES: usize = 8160;
/// How many early messages of one sender are kept at least.
pub(super) const AHEAD: u32 = 64;
/// After how many that it has taken a receiver says so, though it sends nothing else.
pub(super) const UNTOLD: u32 = AHEAD / 2;
/// How many messages a sender sends at once before it hears that any was taken, and how many are kept at most: of all but
/// [`AHEAD`] of them the receiver may have taken each, and not have said so.
pub(crate) const MOST_AHEAD: u32 = AHEAD + UNTOLD - 1;
/// Packets that are looked at in a row: a peer that never stops keeps nobody here. Fewer in tests, whose few ranks are to
/// have more than that.
const PACKETS: usize = if cfg!(test) { 8 } else { 256 };
/// How late an idle rank may see what wakes nobody: that other ranks than the one it waits for need it to go on, or that
/// there is room for what is to be sent.
const NAP: Duration = Duration::from_micros(500);
/// How late it may see that a copy of a device has passed.
const COPY_NAP: Duration = Duration::from_micros(20);
/// Requests, and messages without a receive, before lists have to grow.
const CAPACITY: usize = 64;
/// Posts to a peer, likewise.
const OUTBOX: usize = CAPACITY / 4;

/// One rank's end of the messages of a communicator. Any thread may call it, in turn.
#[derive(Debug)]
pub(crate) struct Engine {
    pub(super) packets: Packets,
    pub(super) core: Core,
}

/// All but the packets: what may change while a packet is looked at.
#[derive(Debug)]
pub(super) struct Core {
    pub(super) rank: usize,
    pub(super) fabric: Arc<dyn Fabric>,
    pub(super) slots: Slots,
    pub(super) matching: Matching<Message>,
    pub(super) peers: Vec<Peer>,
    /// How many posts there are in all outboxes.
    pub(super) backlog: usize,
    /// Bulk transfers that are still to begin: number, request, block.
    pub(super) beginning: Vec<(u32, u32, u32)>,
    pub(super) bulks: Vec<(Bulk, u32, u32)>,
    /// How messages of devices are staged, for which, and where if not in memory of theirs. Copies end before the
    /// memory goes.
    pub(super) staging: Staging,
    pub(super) staged: Vec<Staged>,
    pub(super) pageable: Pool,
    /// Requests with copies under way.
    pub(super) copying: Vec<u32>,
    /// Copies that calls block for.
    pub(super) transits: u32,
    pub(super) ledger: Ledger,
    pub(super) mapped: Mapped,
    pub(super) told: Vec<(usize, Vec<u8>)>,
    /// Memory for early messages.
    pub(super) spare: Vec<Vec<u8>>,
    spares: usize,
    /// What ended all.
    pub(super) failed: Option<Error>,
    /// Where messages came from, in order.
    #[cfg(test)]
    pub(super) sources: Vec<usize>,
}

/// What there is to know of a peer.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) is_mapped: bool,
    /// The longest message that is sent at once.
    pub(super) eager_bytes: usize,
    largest: usize,
    /// Eager messages that it has not said to have taken.
    pub(super) ahead: u32,
    /// Eager messages of its that were taken since this rank last said so.
    pub(super) taken: u32,
    /// The number of the next bulk transfer from it.
    pub(super) next_bulk: u32,
    /// Messages that go to it again and again.
    lasting: usize,
    /// What waits for room, in order.
    pub(super) outbox: VecDeque<Post>,
    /// The beginning of a record of which more is to come.
    pub(super) partial: Vec<u8>,
}

/// A message that has come before its receive.
#[derive(Debug)]
pub(super) enum Message {
    Whole { element: Option<ElementType>, payload: Vec<u8> },
    Announced { bytes: usize, announced: Announced },
}

/// What a sender says of a message that it keeps.
#[derive(Debug, Clone, Copy)]
pub(super) struct Announced {
    pub(super) element: Option<ElementType>,
    /// The request at its side.
    pub(super) send: u32,
    /// In which blocks it comes, if that is for the sender to say.
    pub(super) blocks: Option<Blocks>,
}

impl Message {
    fn bytes(&self) -> usize {
        match self {
            Message::Whole { payload, .. } => payload.len(),
            Message::Announced { bytes, .. } => *bytes,
        }
    }
}

impl Core {
    /// Has something sent, in order, once there is room.
    #[inline]
    pub(super) fn post(&mut self, peer: usize, post: Post) {
        self.peers[peer].outbox.push_back(post);
        self.backlog += 1;
    }

    /// An early message is not needed any more, or was none.
    pub(super) fn give_back(&mut self, payload: Vec<u8>) {
        if self.spare.len() < self.spares {
            self.spare.push(payload);
        }
    }

    /// Counts an eager message that a receive has taken.
    #[inline]
    pub(super) fn took(&mut self, source: usize) {
        let peer = &mut self.peers[source];
        peer.taken += 1;
        if peer.taken == UNTOLD {
            self.post(source, Post::Taken);
        }
    }
}

impl Engine {
    /// Connects the ranks of a world. Collective; blocks.
    pub(crate) fn connect(world: &World) -> Result<Self> {
        Ok(Self::over(world, Packets::connect(world)?, |_| true))
    }

    /// Connects those ranks of a world with each other whose memory is mapped. Collective; blocks.
    pub(crate) fn connect_mapped(world: &World) -> Result<Self> {
        let is_connected = |peer| peer == world.rank() || world.fabric().is_mapped(peer);
        Ok(Self::over(world, Packets::connect_mapped(world)?, is_connected))
    }

    fn over(world: &World, packets: Packets, is_connected: impl Fn(usize) -> bool) -> Self {
        let peer = |peer: usize| {
            let largest = if is_connected(peer) { packets.largest(peer) } else { 0 };
            Peer {
                is_mapped: packets.is_mapped(peer),
                eager_bytes: largest.min(EAGER_BYTES),
                largest,
                ahead: 0,
                taken: 0,
                next_bulk: 0,
                lasting: 0,
                outbox: VecDeque::with_capacity(OUTBOX),
                partial: Vec::new(),
            }
        };
        let core = Core {
            rank: world.rank(),
            fabric: world.shared_fabric().clone(),
            slots: Slots::with_capacity(CAPACITY),
            matching: Matching::with_capacity(CAPACITY),
            peers: (0..world.size()).map(peer).collect(),
            backlog: 0,
            beginning: Vec::new(),
            bulks: Vec::new(),
            staging: world.staging(),
            staged: Vec::new(),
            pageable: Pool::of_fabric(world.shared_fabric()),
            copying: Vec::new(),
            transits: 0,
            ledger: Ledger::default(),
            mapped: Mapped::default(),
            told: Vec::new(),
            spare: Vec::with_capacity(CAPACITY),
            spares: CAPACITY,
            failed: None,
            #[cfg(test)]
            sources: Vec::new(),
        };
        Self { packets, core }
    }

    /// Makes room for early messages, so that keeping them does not allocate: that many of so many bytes.
    pub(crate) fn reserve(&mut self, messages: usize, bytes: usize) {
        let core = &mut self.core;
        core.spares += messages;
        core.matching.reserve(core.spares);
        core.spare.reserve(core.spares);
        core.spare.extend((0..messages).map(|_| Vec::with_capacity(bytes)));
    }

    /// Makes room for a message that goes to the same memory of that peer again and again, and for one that answers it.
    pub(crate) fn reserve_send(&mut self, peer: usize) {
        self.core.mapped.reserve(1);
        let peer = &mut self.core.peers[peer];
        peer.lasting += 1;
        peer.outbox.reserve((OUTBOX + 2 * peer.lasting).saturating_sub(peer.outbox.len()));
    }

    /// That many early messages fewer than before need room, and a message less to each of these peers.
    pub(crate) fn release(&mut self, messages: usize, sends: &[usize]) {
        let core = &mut self.core;
        core.spares -= messages;
        core.spare.truncate(core.spares);
        core.mapped.release(sends.len());
        sends.iter().for_each(|peer| core.peers[*peer].lasting -= 1);
    }

    /// Whether a message of that size to that peer is sent at once.
    pub(crate) fn is_eager(&self, peer: usize, bytes: usize) -> bool {
        bytes <= self.longest_eager(peer)
    }

    /// The longest message to that peer that is sent at once.
    pub(crate) fn longest_eager(&self, peer: usize) -> usize {
        self.core.peers[peer].eager_bytes
    }

    /// Whether there is something to make progress on.
    #[inline]
    pub(crate) fn is_active(&self) -> bool {
        self.core.slots.active() > 0 || self.core.backlog > 0
    }

    /// What a receive would take that were posted now.
    pub(crate) fn find(&self, source: Source, tag: Tag) -> Option<Status> {
        let early = self.core.matching.find(Wanted { source, tag })?;
        Some(Status { source: early.source, tag: early.tag, bytes: early.message.bytes() })
    }

    /// Sends a record, in parts if it is long, in order, once there is room. Never blocks.
    pub(crate) fn tell(&mut self, peer: usize, record: Vec<u8>) -> Result<()> {
        let largest = self.core.peers[peer].largest;
        if record.len() <= largest {
            self.core.post(peer, Post::Told { part: record, more: false });
        } else {
            let mut parts = record.chunks(largest).peekable();
            while let Some(part) = parts.next() {
                let more = parts.peek().is_some();
                self.core.post(peer, Post::Told { part: part.to_vec(), more });
            }
        }
        self.flush_peer(peer)
    }

    /// Whether a record waits for room to be told to a peer, which is there to hear it.
    pub(crate) fn has_untold(&self, peer: usize) -> bool {
        let mut posts = self.core.peers[peer].outbox.iter();
        posts.any(|post| matches!(post, Post::Told { .. })) && !self.has_left(peer)
    }

    /// Takes the records that have come, in order for each source.
    pub(crate) fn take_told(&mut self) -> Vec<(usize, Vec<u8>)> {
        std::mem::take(&mut self.core.told)
    }

    /// Looks at what has come and sends what could not be sent before.
    ///
    /// # Errors
    /// What the wire says, from then on always.
    #[inline]
    pub(crate) fn progress(&mut self) -> Result<()> {
        if let Some(error) = &self.core.failed {
            return Err(error.clone());
        }
        for _ in 0..PACKETS {
            if !self.look()? {
                break;
            }
        }
        if !self.core.copying.is_empty() {
            let looked = self.core.look_at_copies();
            self.note(looked)?;
        }
        if !self.core.beginning.is_empty() || !self.core.bulks.is_empty() {
            let moved = self.move_bulks();
            self.note(moved)?;
        }
        self.flush()?;
        match &self.core.failed {
            None => Ok(()),
            Some(error) => Err(error.clone()),
        }
    }

    /// As [`Engine::progress`], once a rank has left: what it had sent before is all looked at, however many others send.
    ///
    /// # Errors
    /// As [`Engine::progress`].
    pub(crate) fn hear_out(&mut self) -> Result<()> {
        for _ in 0..self.packets.room() {
            if !self.look()? {
                break;
            }
        }
        self.progress()
    }

    /// Looks at one packet, if any has come, and answers it before the next one, which may mean a long copy.
    /// Whether there was one.
    #[inline]
    pub(crate) fn look(&mut self) -> Result<bool> {
        let core = &mut self.core;
        match self.packets.receive_one(|packet| core.arrived(&packet)) {
            Ok(true) => self.flush().map(|()| true),
            other => self.note(other),
        }
    }

    /// Sleeps until a packet may have come from that rank, or from any; at most for a nap, and never for long.
    pub(crate) fn sleep(&self, source: Option<usize>, nap: Duration) {
        let is_copying = !self.core.copying.is_empty() || self.core.transits > 0;
        let longest = if is_copying { COPY_NAP } else { NAP };
        self.packets.sleep(source, nap.min(longest));
    }

    /// Whether a peer has let go of its end.
    pub(crate) fn has_left(&self, peer: usize) -> bool {
        self.packets.has_left(peer)
    }

    /// A rank to name if no message of that one, or of any, can come any more: it has let go of its end, or all others
    /// have.
    pub(crate) fn gone(&self, source: Option<usize>) -> Option<usize> {
        if let Some(peer) = source {
            return self.has_left(peer).then_some(peer);
        }
        let mut others = (0..self.core.peers.len()).filter(|peer| *peer != self.core.rank);
        let first = others.next()?;
        (self.has_left(first) && others.all(|peer| self.has_left(peer))).then_some(first)
    }

    /// Whether a request cannot be done without its peer. Not if all that is left of it are copies of this rank's
    /// devices, or a transfer that leaves this rank: a peer that has had it may let go before this rank knows that it is
    /// done.
    pub(crate) fn needs_peer(&self, ticket: Ticket) -> bool {
        let Core { slots, bulks, .. } = &self.core;
        let (index, slot) = (slots.index(ticket), slots.get(ticket));
        let leaves = slot.is_send && bulks.iter().any(|(_, transferred, _)| *transferred == index);
        !leaves && !slot.pipeline.as_ref().is_some_and(|pipeline| pipeline.only_copies())
    }

    /// The peer that a request waits for, if it is one.
    pub(crate) fn describe_peer(&self, ticket: Ticket) -> Option<usize> {
        self.core.slots.get(ticket).peer()
    }

    /// The peer that a request waits for, or one to name where it could be any, and what the request is, for the text of
    /// an error.
    pub(crate) fn describe(&self, ticket: Ticket) -> (usize, String) {
        self.describe_as(ticket, self.core.slots.get(ticket).wanted.tag)
    }

    /// As [`Engine::describe`], with another tag than the one by which it is matched.
    pub(crate) fn describe_as(&self, ticket: Ticket, tag: Tag) -> (usize, String) {
        let slot = self.core.slots.get(ticket);
        let source = slot.wanted.source;
        let tag = match tag {
            Tag::Value(tag) if tag >= INTERNAL => "of a collective call".to_string(),
            tag => format!("with {tag}"),
        };
        let what = match (slot.is_send, slot.state, source) {
            (true, ..) => format!("the acceptance of the message {tag} ({} bytes)", slot.bytes),
            (false, _, Source::Any) => format!("a message {tag}, or of any other rank,"),
            (false, ..) => format!("the message {tag} (at most {} bytes)", slot.bytes),
        };
        (self.somebody(slot.peer()), what)
    }

    /// A rank to name where a message could have come from that one, or from any.
    pub(crate) fn somebody(&self, source: Option<usize>) -> usize {
        source.unwrap_or_else(|| any_other(self.core.rank, self.core.peers.len()))
    }
}

/// What a rank has left that has let go of its end, for the text of an error.
pub(crate) const COMMUNICATOR: &str = "this communicator";
