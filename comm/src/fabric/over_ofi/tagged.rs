//! Two-sided messages as tagged ones: `standard` over libfabric, which the host starts and tests.

use super::hub::{Hub, Number};
use super::refuse_too_long;
use super::target::register;
use crate::error::Result;
use crate::fabric::ofi::{LocalSlice, PeerAddress, Posted};
use crate::fabric::{FarMessage, FarMessages, PerMessage, Persistent, Sides, tell};
use crate::world::World;
use std::sync::Arc;

/// The far messages of one exchange, receives first.
#[derive(Debug)]
pub(super) struct Tagged {
    hub: Arc<Hub>,
    sides: Vec<Side>,
    /// How often all were started.
    started: u32,
}

#[derive(Debug)]
struct Side {
    rank: usize,
    peer: PeerAddress,
    is_send: bool,
    slice: LocalSlice,
    /// The receiver's number.
    tag: u64,
    done: Number,
    posted: u32,
}

impl Tagged {
    /// Registers the memory, and exchanges tags. Collective.
    pub(super) fn open(
        world: &World,
        hub: &Arc<Hub>,
        peers: &[PeerAddress],
        messages: &FarMessages,
    ) -> Result<Self> {
        let lengths = messages.sends.iter().map(|send| (send.peer, send.bytes));
        let refused = refuse_too_long(hub.endpoint(), lengths);
        let sides = Sides::of_messages(messages);
        let numbers: Vec<Number> = messages.recvs.iter().map(|_| hub.number()).collect();
        let own = PerMessage {
            sends: vec![0; messages.sends.len()],
            recvs: numbers.iter().map(|number| number.number).collect(),
        };
        let PerMessage { sends: tags, .. } =
            tell(world, "making tagged messages over libfabric", &sides, refused.map(|()| own))?;
        let side = |message: &FarMessage, is_send: bool, tag: u32, done: Number| {
            let region = register(hub.endpoint(), &message.place, message.bytes, None)?;
            Ok(Side {
                rank: message.peer,
                peer: peers[message.peer],
                is_send,
                slice: region.slice(0, message.bytes, "a message")?,
                tag: tag.into(),
                done,
                posted: 0,
            })
        };
        let recvs =
            messages.recvs.iter().zip(numbers).map(|(recv, done)| side(recv, false, done.number, done));
        let sends = messages.sends.iter().zip(&tags).map(|(send, tag)| side(send, true, *tag, hub.number()));
        let sides = recvs.chain(sends).collect::<Result<Vec<_>>>()?;
        Ok(Self { hub: hub.clone(), sides, started: 0 })
    }

    /// Posts what has been started and found no room before.
    fn post(&mut self) -> Result<()> {
        let endpoint = self.hub.endpoint();
        for side in self.sides.iter_mut().filter(|side| side.posted != self.started) {
            let number = side.done.number;
            let posted = if side.is_send {
                // SAFETY: the stream packs the place again only after the host has seen the completion.
                unsafe { endpoint.send_tagged(&side.slice, side.peer, side.tag, number) }
            } else {
                // SAFETY: the stream has unpacked the last message, and unpacks this one once it is there.
                unsafe { endpoint.receive_tagged(&side.slice, side.peer, side.tag, number) }
            };
            if posted? == Posted::Yes {
                side.posted = side.posted.wrapping_add(1);
            }
        }
        Ok(())
    }
}

impl Persistent for Tagged {
    fn start(&mut self) -> Result<()> {
        self.started = self.started.wrapping_add(1);
        self.post()
    }

    fn test(&mut self) -> Result<bool> {
        self.post()?;
        self.hub.poll()?;
        Ok(self.late().is_none())
    }

    fn late(&self) -> Option<(usize, bool)> {
        let late = self.sides.iter().find(|side| side.done.count() != self.started);
        late.map(|side| (side.rank, side.is_send))
    }

    fn path(&self) -> (&'static str, &'static str) {
        ("packed, tagged message", "the peer's memory is not mapped")
    }
}

impl Drop for Tagged {
    fn drop(&mut self) {
        // What is not complete may still come or go, and its memory must stay registered for that.
        if self.late().is_some() {
            std::mem::forget(std::mem::take(&mut self.sides));
        }
    }
}
