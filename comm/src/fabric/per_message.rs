//! What ranks tell each other of the far messages of an exchange, which only the wire understands.

use super::{FarExchange, FarMessages};
use crate::error::Result;
use crate::world::World;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// One thing for each send and each receive of a rank, in their order.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct PerMessage<T> {
    pub(crate) sends: Vec<T>,
    pub(crate) recvs: Vec<T>,
}

/// The peer, the tag and the block of each message.
pub(crate) type Sides = PerMessage<(usize, u32, Option<u32>)>;

impl Sides {
    /// Those of an exchange.
    pub(crate) fn of(exchange: &FarExchange) -> Self {
        Self {
            sends: exchange.sends.iter().map(|send| (send.peer, send.tag, send.block)).collect(),
            recvs: exchange.recvs.iter().map(|recv| (recv.peer, recv.tag, recv.block)).collect(),
        }
    }

    /// Those of two-sided messages.
    pub(crate) fn of_messages(messages: &FarMessages) -> Self {
        Self {
            sends: messages.sends.iter().map(|send| (send.peer, send.tag, None)).collect(),
            recvs: messages.recvs.iter().map(|recv| (recv.peer, recv.tag, None)).collect(),
        }
    }
}

/// Tells all ranks what this one has to say of its messages, and gives what their other sides have said:
/// for a send what the receiver said of its receive, and the other way round. Collective; blocks.
///
/// # Errors
/// The same on every rank: what the first had an error instead of.
pub(crate) fn tell<T: Serialize + DeserializeOwned + Clone>(
    world: &World,
    call: &'static str,
    sides: &Sides,
    own: Result<PerMessage<T>>,
) -> Result<PerMessage<T>> {
    let all = world.agree(call, own.map(|own| (sides.clone(), own)))?;
    type Side = (usize, u32, Option<u32>);
    let find = |sides: &[Side], said: &[T], (_, tag, block): Side| {
        let found = sides.iter().position(|side| *side == (world.rank(), tag, block));
        said[found.expect("matching has found both sides")].clone()
    };
    let receiver = |side: &Side| {
        let (sides, said) = &all[side.0];
        find(&sides.recvs, &said.recvs, *side)
    };
    let sender = |side: &Side| {
        let (sides, said) = &all[side.0];
        find(&sides.sends, &said.sends, *side)
    };
    Ok(PerMessage {
        sends: sides.sends.iter().map(receiver).collect(),
        recvs: sides.recvs.iter().map(sender).collect(),
    })
}
