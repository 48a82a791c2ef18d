//! What leaves an engine: posts wait in the outbox of their peer, in order, until the packets have room.

use super::engine::Engine;
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
                if !packets.try_send(peer, header, Payload::Place(&slot.place, bytes))? {
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
                if !packets.try_send(peer, header, Payload::None)? {
                    return Ok(false);
                }
                slot.state = State::InTransfer;
                signalled(packets, Role::ReadyToSend, peer);
            }
            Post::ClearToSend { receive, send } => {
                let target = Target::of(&core.slots.at(*receive).place);
                let header = Header {
                    kind: CLEAR_TO_SEND,
                    tag: *receive,
                    ticket: *send,
                    offset: target.offset,
                    ..Header::default()
                };
                if !packets.try_send(peer, header, Payload::Bytes(&target.to_bytes()))? {
                    return Ok(false);
                }
                signalled(packets, Role::ClearToSend, peer);
            }
            Post::ClearToSendBulk { number, send } => {
                let header = Header { kind: CLEAR_TO_SEND, tag: *number, ticket: *send, ..Header::default() };
                return packets.try_send(peer, header, Payload::None);
            }
            Post::Refused { send } => {
                let header =
                    Header { kind: CLEAR_TO_SEND, flags: FLAGGED, ticket: *send, ..Header::default() };
                return packets.try_send(peer, header, Payload::None);
            }
            Post::Delivered { receive, failed } => {
                let flags = if *failed { FLAGGED } else { 0 };
                let header = Header { kind: DELIVERED, flags, ticket: *receive, ..Header::default() };
                return packets.try_send(peer, header, Payload::None);
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
        while let Some((number, index)) = core.beginning.pop() {
            let slot = core.slots.at(index);
            let peer = slot.peer().expect("what is in transfer has a peer");
            let bulk = if slot.is_send {
                packets.far().send_bulk(peer, number, &slot.place, slot.bytes)?
            } else {
                packets.far().recv_bulk(peer, number, &slot.place, slot.status.bytes)?
            };
            core.bulks.push((bulk, index));
        }
        let mut i = 0;
        while i < core.bulks.len() {
            let (bulk, index) = core.bulks[i];
            if packets.far().is_done(bulk)? {
                core.bulks.swap_remove(i);
                let status = core.slots.at(index).status;
                core.slots.complete(index, Ok(status));
            } else {
                i += 1;
            }
        }
        Ok(())
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
