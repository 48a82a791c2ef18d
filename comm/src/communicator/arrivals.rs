//! What an engine does with what comes.

use super::blocks::Blocks;
use super::engine::{Announced, Core, Message};
use super::matching::Early;
use super::pipeline::{Pipeline, To};
use super::record::{
    CLEAR_TO_SEND, DELIVERED, EAGER, FLAGGED, Post, READY_TO_SEND, TAKEN, TOLD, Target, element_of,
};
use super::slots::State;
use crate::element::ElementType;
use crate::error::{Error, Result};
use crate::fabric::{Arrived, Place};
use crate::source::Status;

impl Core {
    /// Looks at a packet.
    #[inline]
    pub(super) fn arrived(&mut self, packet: &Arrived<'_>) {
        let (source, header) = (packet.source, packet.header);
        #[cfg(test)]
        if matches!(header.kind, EAGER | READY_TO_SEND) {
            self.sources.push(source);
        }
        match header.kind {
            EAGER => self.eager(packet),
            READY_TO_SEND => {
                let (element, bytes) = (element_of(header.flags), header.offset as usize);
                let blocks = Blocks::from_packet(packet, 0, bytes);
                let announced = blocks.map(|blocks| Announced { element, send: header.ticket, blocks });
                match (announced, self.matching.arrive(source, header.tag)) {
                    (Ok(announced), Some(receive)) => {
                        self.announced(receive, Status { source, tag: header.tag, bytes }, announced);
                    }
                    (Ok(announced), None) => {
                        self.matching.keep(source, header.tag, Message::Announced { bytes, announced });
                    }
                    (Err(error), _) => self.failed = Some(error),
                }
            }
            CLEAR_TO_SEND => {
                if let Err(error) = self.cleared(packet) {
                    self.failed = Some(error);
                }
            }
            DELIVERED => {
                let slot = self.slots.at(header.ticket);
                let outcome = if header.flags & FLAGGED == 0 {
                    Ok(())
                } else {
                    Err(Error::OperationFailed {
                        operation: format!("a receive with {} from rank {source}", slot.wanted.tag),
                        message: format!("rank {source} could not address the memory of the receive"),
                    })
                };
                if slot.pipeline.is_some() {
                    self.landed(header.ticket, header.tag, outcome);
                } else {
                    let status = slot.status;
                    self.slots.complete(header.ticket, outcome.map(|()| status));
                }
            }
            TAKEN => self.acknowledged(source, header.ticket),
            TOLD => {
                let partial = &mut self.peers[source].partial;
                let begun = partial.len();
                partial.resize(begun + packet.length(), 0);
                packet.copy_into(&mut partial[begun..]);
                if header.flags & FLAGGED == 0 {
                    self.told.push((source, std::mem::take(partial)));
                }
            }
            other => {
                self.failed = Some(Error::System {
                    call: "reading a packet",
                    reason: format!("rank {source} has sent one of kind {other}, which there is not"),
                });
            }
        }
    }

    #[inline]
    fn acknowledged(&mut self, peer: usize, taken: u32) {
        self.peers[peer].ahead = self.peers[peer].ahead.saturating_sub(taken);
    }

    #[inline]
    fn eager(&mut self, packet: &Arrived<'_>) {
        let (source, header) = (packet.source, packet.header);
        self.acknowledged(source, header.ticket);
        let element = element_of(header.flags);
        match self.matching.arrive(source, header.tag) {
            Some(receive) => {
                let status = Status { source, tag: header.tag, bytes: packet.length() };
                self.whole(receive, status, element, |place| packet.copy_to(place));
            }
            None => {
                let length = packet.length();
                // The smallest that fits: longer messages may need the others.
                let fits = (0..self.spare.len()).filter(|index| self.spare[*index].capacity() >= length);
                let fits = fits.min_by_key(|index| self.spare[*index].capacity());
                let spare = fits.map(|fits| self.spare.swap_remove(fits)).or_else(|| self.spare.pop());
                let mut payload = spare.unwrap_or_default();
                // What it held before needs no clearing.
                payload.resize(length, 0);
                packet.copy_into(&mut payload);
                self.matching.keep(source, header.tag, Message::Whole { element, payload });
            }
        }
    }

    /// Posts a receive, or gives it the message that has come for it already.
    #[inline]
    pub(super) fn begin_receive(&mut self, index: u32) {
        self.slots.begin(index, State::Posted);
        let wanted = self.slots.at(index).wanted;
        let Some(Early { source, tag, message }) = self.matching.post(wanted, index) else { return };
        match message {
            Message::Whole { element, payload } => {
                let status = Status { source, tag, bytes: payload.len() };
                self.whole(index, status, element, |place| place.write(&payload));
                self.give_back(payload);
            }
            Message::Announced { bytes, announced } => {
                self.announced(index, Status { source, tag, bytes }, announced);
            }
        }
    }

    /// A receive has matched a message that is there.
    #[inline]
    fn whole(
        &mut self,
        receive: u32,
        status: Status,
        element: Option<ElementType>,
        copy: impl FnOnce(&Place) -> Result<()>,
    ) {
        self.took(status.source);
        let outcome = self.fits(receive, status, element);
        if self.slots.at(receive).pipeline.is_some() && outcome.is_ok() {
            return match status.bytes {
                0 => self.slots.complete(receive, Ok(status)),
                _ => self.whole_for_device(receive, status, copy),
            };
        }
        let outcome = outcome.and_then(|()| copy(&self.slots.at(receive).place));
        self.slots.complete(receive, outcome.map(|()| status));
    }

    /// A whole message has come for a receive on a device.
    #[cold]
    fn whole_for_device(&mut self, receive: u32, status: Status, copy: impl FnOnce(&Place) -> Result<()>) {
        let room = self.expect_blocks(receive, status, Some(Blocks::whole(status.bytes)));
        match room.and_then(|_| copy(&self.slots.at(receive).place)) {
            Ok(()) => {
                self.slots.at(receive).state = State::InTransfer;
                self.landed(receive, 0, Ok(()));
            }
            Err(error) => self.slots.complete(receive, Err(error)),
        }
    }

    /// A receive has matched a message that its sender keeps until it is told where it goes.
    fn announced(&mut self, receive: u32, status: Status, announced: Announced) {
        let (source, Announced { element, send, blocks }) = (status.source, announced);
        let is_staged = self.slots.at(receive).pipeline.is_some();
        let is_own = source == self.rank && (is_staged || blocks.is_some());
        let in_blocks = is_staged || is_own || blocks.is_some_and(|blocks| blocks.count() > 1);
        let blocks = self.fits(receive, status, element).and_then(|()| match in_blocks {
            true => self.expect_blocks(receive, status, blocks),
            false => Ok(Blocks::whole(status.bytes)),
        });
        let blocks = match blocks {
            Ok(blocks) => blocks,
            Err(error) => {
                self.slots.at(receive).status = status;
                self.slots.settle(receive, Err(error));
                self.post(source, Post::Refused { receive, send });
                return;
            }
        };
        if source == self.rank && !is_own {
            let from = self.slots.at(send);
            let (place, sent) = (from.place.clone(), Status { source, ..status });
            let copied = self.slots.at(receive).place.copy_from(&place, status.bytes);
            self.slots.complete(receive, copied.map(|()| status));
            self.slots.complete(send, Ok(sent));
            return;
        }
        let slot = self.slots.at(receive);
        slot.state = State::InTransfer;
        slot.status = status;
        if is_own {
            let from = self.slots.at(send);
            from.status = status;
            from.pipeline.get_or_insert_with(|| Box::new(Pipeline::on_host(blocks)));
            self.send_blocks(send, To::Own { receive });
        } else if self.peers[source].is_mapped {
            self.post(source, Post::ClearToSend { receive, send });
        } else {
            let number = self.peers[source].next_bulk;
            self.peers[source].next_bulk = number.wrapping_add(blocks.count());
            self.beginning
                .extend((0..blocks.count()).map(|block| (number.wrapping_add(block), receive, block)));
            self.post(source, Post::ClearToSendBulk { number, send, blocks });
        }
    }

    /// Whether a message is what a receive can take.
    #[inline]
    fn fits(&mut self, receive: u32, status: Status, element: Option<ElementType>) -> Result<()> {
        let slot = self.slots.at(receive);
        if let (Some(asked), Some(found)) = (slot.element, element)
            && asked != found
        {
            let Status { source: sender, tag, .. } = status;
            return Err(Error::MessageMismatch { sender, tag, asked, found });
        }
        if status.bytes > slot.bytes {
            let Status { source: sender, tag, bytes: message_bytes } = status;
            return Err(Error::Truncated { sender, tag, message_bytes, room_bytes: slot.bytes });
        }
        Ok(())
    }

    /// The receiver of a send has said where it goes.
    fn cleared(&mut self, packet: &Arrived<'_>) -> Result<()> {
        let (peer, header) = (packet.source, packet.header);
        let (rank, is_mapped) = (self.rank, self.peers[packet.source].is_mapped);
        let is_refused = header.flags & FLAGGED != 0;
        let slot = self.slots.at(header.ticket);
        let status = Status { source: rank, tag: super::posting::tag_of(slot), bytes: slot.bytes };
        let behind = if is_mapped { Target::BYTES } else { 0 };
        let blocks = Blocks::from_packet(packet, behind, slot.bytes)?;
        if let Some(blocks) = blocks {
            slot.pipeline.get_or_insert_with(|| Box::new(Pipeline::on_host(blocks)));
        }
        if slot.pipeline.is_some() {
            slot.status = status;
            let to = match (is_refused, is_mapped) {
                (true, _) => To::Nowhere,
                (false, true) => To::Mapped { receive: header.tag, target: Target::from_packet(packet)? },
                (false, false) => To::Wire { first: header.tag },
            };
            self.send_blocks(header.ticket, to);
        } else if is_refused {
            // The receiver has its own error; the message has been taken from this rank.
            self.slots.complete(header.ticket, Ok(status));
        } else if is_mapped {
            let (place, bytes) = (slot.place.clone(), slot.bytes);
            let copied = Target::from_packet(packet).and_then(|target| self.put(peer, target, &place, bytes));
            let (send, receive, failed) = (header.ticket, header.tag, copied.is_err());
            self.slots.settle(send, copied.map(|()| status));
            self.post(peer, Post::Delivered { send, receive, block: 0, failed });
        } else {
            slot.status = status;
            self.beginning.push((header.tag, header.ticket, 0));
        }
        Ok(())
    }

    /// Copies a message, or a block of one, to where its receiver wants it.
    pub(super) fn put(&mut self, peer: usize, target: Target, place: &Place, bytes: usize) -> Result<()> {
        let region = self.mapped.region(&*self.fabric, peer, target)?;
        region.place(target.offset as usize, bytes, "a message")?.copy_from(place, bytes)?;
        if let Some(observer) = region.observer() {
            observer.stored(peer, bytes);
        }
        Ok(())
    }
}
