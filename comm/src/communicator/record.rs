//! What the engines of two ranks say to each other, and how it is written in packets.

use super::blocks::Blocks;
use crate::element::ElementType;
use crate::error::{Error, Result};
use crate::fabric::{Arrived, Header, Place};

/// A whole message.
pub(super) const EAGER: u16 = 1;
/// There is a message; its receiver is to say where it goes.
pub(super) const READY_TO_SEND: u16 = 2;
/// Where a message goes, or that it goes nowhere.
pub(super) const CLEAR_TO_SEND: u16 = 3;
/// A message, or the block of it that the tag says, is where it was to go.
pub(super) const DELIVERED: u16 = 4;
/// Early messages have been taken.
pub(super) const TAKEN: u16 = 5;
/// A record for the user of the communicator's control channel, or a part of it.
pub(super) const TOLD: u16 = 6;

/// With [`CLEAR_TO_SEND`]: the receive has failed, the message is not wanted any more. With [`DELIVERED`]: the
/// message could not be sent. With [`TOLD`]: more of the record follows.
pub(super) const FLAGGED: u16 = 1 << 3;

/// The element type of a message in the flags of its packet. 0 is a message of plain bytes.
#[inline]
pub(super) fn flags_of(element: Option<ElementType>) -> u16 {
    element.map_or(0, |element| 1 + element as u16)
}

/// The opposite of [`flags_of`].
#[inline]
pub(super) fn element_of(flags: u16) -> Option<ElementType> {
    ElementType::ALL.get(usize::from(flags & 7).wrapping_sub(1)).copied()
}

/// What waits for room to be sent to a peer.
#[derive(Debug)]
pub(super) enum Post {
    /// The message of a send.
    Eager(u32),
    /// The announcement of a send.
    ReadyToSend(u32),
    /// Where the peer's send is to go, which is a receive of this rank.
    ClearToSend { receive: u32, send: u32 },
    /// Where the peer's send is to go over a wire: by bulk transfers from that number on, one for each block.
    ClearToSendBulk { number: u32, send: u32, blocks: Blocks },
    /// The peer's send goes nowhere. The receive of this rank, which has failed, ends once this has left.
    Refused { receive: u32, send: u32 },
    /// The message, or that block of it, is where the peer's receive wanted it. The send of this rank ends once this has
    /// left.
    Delivered { send: u32, receive: u32, block: u32, failed: bool },
    /// How many eager messages have been taken since this was last said is in the packet.
    Taken,
    /// A part of a record.
    Told { part: Vec<u8>, more: bool },
}

/// What describes the memory of a receive to the rank that is to write it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Target {
    pub(super) key: u64,
    pub(super) region_bytes: u64,
    pub(super) offset: u64,
}

impl Target {
    pub(super) const BYTES: usize = 16;

    pub(super) fn of(place: &Place) -> Self {
        let region = place.region();
        Self { key: region.key(), region_bytes: region.bytes() as u64, offset: place.offset() as u64 }
    }

    /// The part that goes into the packet's payload; the offset is in its header.
    pub(super) fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..8].copy_from_slice(&self.key.to_le_bytes());
        bytes[8..].copy_from_slice(&self.region_bytes.to_le_bytes());
        bytes
    }

    pub(super) fn from_packet(packet: &Arrived<'_>) -> Result<Self> {
        let mut bytes = [0; Self::BYTES];
        if packet.copy_into(&mut bytes) != Self::BYTES {
            return Err(Error::System {
                call: "reading a clear-to-send",
                reason: format!("rank {} has not said where its receive is", packet.source),
            });
        }
        let [key, region_bytes] = [0, 8].map(|at| {
            let mut number = [0; 8];
            number.copy_from_slice(&bytes[at..at + 8]);
            u64::from_le_bytes(number)
        });
        Ok(Self { key, region_bytes, offset: packet.header.offset })
    }
}

/// The header of an eager message or of its announcement, of which the length is in `offset`.
#[inline]
pub(super) fn message_header(
    kind: u16,
    element: Option<ElementType>,
    tag: u32,
    bytes: usize,
    ticket: u32,
) -> Header {
    let flags = flags_of(element);
    Header { kind, flags, tag, bytes: bytes.min(u32::MAX as usize) as u32, ticket, offset: bytes as u64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_element_type_has_flags_of_its_own() {
        assert_eq!(element_of(flags_of(None)), None);
        for element in ElementType::ALL {
            assert_eq!(element_of(flags_of(Some(element))), Some(element));
            assert_eq!(element_of(flags_of(Some(element)) | FLAGGED), Some(element));
        }
    }
}
