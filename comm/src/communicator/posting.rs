//! What leaves an engine: posts wait in the outbox of their peer, in order, until the packets have room.

use super::blocks::Blocks;
use super::engine::{Core, Engine};
use super::record::{CLEAR_TO_SEND, DELIVERED, EAGER, FLAGGED, READY_TO_SEND, Target};
use super::record::{Post, TAKEN, TOLD, message_header};
use super::slots::{Slot, State};
use crate::error::Result;
use crate::fabric::{Header, Packets, Payload, Role};
use crate::source::{Status, Tag};

impl Engine {
    /// Keeps the first error of the wire: nothing is as it should be after one.
    #[inline]
    pub(super) fn note<T>(&mut self, result: Result<T>) -> Result<T> {
        if let Err(error) = &result {
            self.core.failed.get_or_insert_with(|| error.clone());
        }
        result
    }

    #[inline]
    pub(super) fn flush(&mut self) -> Result<()> {
        if self.core.backlog == 0 {
            return Ok(());
        }
        (0..self.core.peers.len()).try_for_each(|peer| self.flush_peer(peer))
    }

    #[inline]
    pub(super) fn flush_peer(&mut self, peer: usize) -> Result<()> {
        while let Some(post) = self.core.peers[peer].outbox.pop_front() {
            let sent = self.send_post(peer, &post);
            match self.note(sent) {
                Ok(true) => self.core.backlog -= 1,
                other => {
                    self.core.peers[peer].outbox.push_front(post);
                    if self.packets.has_left(peer) {
                        self.core.tell_nobody(peer);
                    }
                    return other.map(|_| ());
                }
            }
        }
        Ok(())
    }

    /// Sends one thing if there is room.
    #[inline]
    pub(super) fn send_post(&mut self, peer: usize, post: &Post) -> Result<bool> {
        let Self { packets, core } = self;
        match post {
            Post::Eager(index) => {
                let taken = core.peers[peer].taken;
                let slot = core.slots.at(*index);
                let (tag, bytes) = (tag_of(slot), slot.bytes);
                let header = message_header(EAGER, slot.element, tag, bytes, taken);
                // Nothing is nowhere, on a device too.
                let payload = if bytes == 0 { Payload::None } else { Payload::Place(&slot.place, bytes) };
                if !packets.try_send(peer, header, payload)? {
                    return Ok(false);
                }
                core.peers[peer].taken = 0;
                if let Some(observer) = packets.observer(peer) {
                    observer.stored(peer, bytes);
                }
                let status = Status { source: core.rank, tag, bytes };
                core.slots.complete(*index, Ok(status));
            }
            Post::ReadyToSend(index) => {
                let slot = core.slots.at(*index);
                let header = message_header(READY_TO_SEND, slot.element, tag_of(slot), slot.bytes, *index);
                let blocks = slot.pipeline.as_ref().and_then(|pipeline| pipeline.announced());
                let encoded = blocks.map(Blocks::to_bytes);
                let payload = encoded.as_ref().map_or(Payload::None, |blocks| Payload::Bytes(blocks));
                if !packets.try_send(peer, header, payload)? {
                    return Ok(false);
                }
                slot.state = State::InTransfer;
                signalled(packets, Role::ReadyToSend, peer);
            }
            Post::ClearToSend { receive, send } => {
                let slot = core.slots.at(*receive);
                let target = Target::of(&slot.place);
                let mut payload = [0; Target::BYTES + Blocks::ENCODED_BYTES];
                payload[..Target::BYTES].copy_from_slice(&target.to_bytes());
                let blocks = slot.pipeline.as_ref().and_then(|pipeline| pipeline.blocks.told());
                let length = match blocks {
                    None => Target::BYTES,
                    Some(blocks) => {
                        payload[Target::BYTES..].copy_from_slice(&blocks);
                        payload.len()
                    }
                };
                let header = Header {
                    kind: CLEAR_TO_SEND,
                    tag: *receive,
                    ticket: *send,
                    offset: target.offset,
                    ..Header::default()
                };
                if !packets.try_send(peer, header, Payload::Bytes(&payload[..length]))? {
                    return Ok(false);
                }
                signalled(packets, Role::ClearToSend, peer);
            }
            Post::ClearToSendBulk { number, send, blocks } => {
                let header = Header { kind: CLEAR_TO_SEND, tag: *number, ticket: *send, ..Header::default() };
                let blocks = blocks.told();
                let payload = blocks.as_ref().map_or(Payload::None, |blocks| Payload::Bytes(blocks));
                return packets.try_send(peer, header, payload);
            }
            Post::Refused { receive, send } => {
                let header =
                    Header { kind: CLEAR_TO_SEND, flags: FLAGGED, ticket: *send, ..Header::default() };
                if !packets.try_send(peer, header, Payload::None)? {
                    return Ok(false);
                }
                core.end_refused(*receive);
            }
            Post::Delivered { send, receive, block, failed } => {
                let (flags, tag) = (if *failed { FLAGGED } else { 0 }, *block);
                let header = Header { kind: DELIVERED, flags, tag, ticket: *receive, ..Header::default() };
                if !packets.try_send(peer, header, Payload::None)? {
                    return Ok(false);
                }
                core.end_delivered(*send, *block);
            }
            Post::Taken => {
                let ticket = core.peers[peer].taken;
                let header = Header { kind: TAKEN, ticket, ..Header::default() };
                if !packets.try_send(peer, header, Payload::None)? {
                    return Ok(false);
                }
                core.peers[peer].taken = 0;
            }
            Post::Told { part, more } => {
                let flags = if *more { FLAGGED } else { 0 };
                let header = Header { kind: TOLD, flags, ..Header::default() };
                return packets.try_send(peer, header, Payload::Bytes(part));
            }
        }
        Ok(true)
    }

    /// Begins and ends bulk transfers.
    pub(super) fn move_bulks(&mut self) -> Result<()> {
        let Self { packets, core } = self;
        for (number, index, block) in std::mem::take(&mut core.beginning) {
            let slot = core.slots.at(index);
            let peer = slot.peer().expect("what is in transfer has a peer");
            let range = match &slot.pipeline {
                Some(pipeline) => pipeline.blocks.range(block),
                None => 0..slot.status.bytes,
            };
            let place = slot.place.advance(range.start, range.len(), "a block of a message")?;
            let bulk = if slot.is_send {
                packets.far().send_bulk(peer, number, &place, range.len())?
            } else {
                packets.far().recv_bulk(peer, number, &place, range.len())?
            };
            core.bulks.push((bulk, index, block));
        }
        let mut i = 0;
        while i < core.bulks.len() {
            let (bulk, index, block) = core.bulks[i];
            if packets.far().is_done(bulk)? {
                core.bulks.swap_remove(i);
                let slot = core.slots.at(index);
                if slot.pipeline.is_some() {
                    core.transferred(index, block);
                } else {
                    let status = slot.status;
                    core.slots.complete(index, Ok(status));
                }
            } else {
                i += 1;
            }
        }
        Ok(())
    }
}

impl Core {
    /// The sender of a message that a receive has refused has been told so.
    fn end_refused(&mut self, receive: u32) {
        self.slots.end_settled(receive);
    }

    /// The receiver of a message, or of that block of it, has been told that it is there.
    fn end_delivered(&mut self, send: u32, block: u32) {
        match self.slots.at(send).pipeline.is_some() {
            true => self.transferred(send, block),
            false => self.slots.end_settled(send),
        }
    }

    /// Ends what only waits for room to tell a peer of it, which has left. The rest needs the peer.
    #[cold]
    fn tell_nobody(&mut self, peer: usize) {
        for post in std::mem::take(&mut self.peers[peer].outbox) {
            match post {
                Post::Refused { receive, .. } => self.end_refused(receive),
                Post::Delivered { send, block, .. } => self.end_delivered(send, block),
                other => {
                    self.peers[peer].outbox.push_back(other);
                    continue;
                }
            }
            self.backlog -= 1;
        }
    }
}

pub(super) fn tag_of(send: &Slot) -> u32 {
    match send.wanted.tag {
        Tag::Value(tag) => tag,
        Tag::Any => unreachable!("a send has one tag"),
    }
}

fn signalled(packets: &Packets, role: Role, peer: usize) {
    if let Some(observer) = packets.observer(peer) {
        observer.signalled(role, peer);
    }
}
