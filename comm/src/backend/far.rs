//! The part of an exchange that goes over a wire, because the peers' memory is not mapped.

use super::blocks::InBlocks;
use super::matching::{Plan, PlannedRecv, PlannedSend, Target};
use super::protocol::Protocol;
use super::reach::Site;
use crate::error::Result;
use crate::fabric::{FarExchange, FarRecv, FarSend, OpenExchange, Place, Terms, Wire};
use crate::world::World;
use std::sync::Arc;

/// What carries messages to peers whose memory is not mapped. A rank that is alone has none; not every
/// library makes a window for it.
pub(super) fn wire(world: &World) -> Option<Arc<dyn Wire>> {
    if world.size() == 1 { None } else { world.fabric().wire() }
}

/// Makes it ready to be triggered; `None` on a fabric without a wire. Collective.
pub(super) fn open(
    site: &Site<'_>,
    (plan, blocks): (&Plan, &InBlocks),
    protocol: Protocol,
    last_epoch: u32,
) -> Result<Option<OpenExchange>> {
    let Some(wire) = wire(site.world) else { return Ok(None) };
    let sends =
        plan.sends.iter().zip(&blocks.sends).flat_map(|(send, blocks)| match (&send.target, blocks) {
            (Target::Near(_), _) => Vec::new(),
            (Target::Far(staging, _), None) => {
                vec![far_send(protocol, send, None, (staging.clone(), send.bytes))]
            }
            (Target::Far(..), Some(blocks)) => {
                let lengths = send.blocks.iter().flat_map(|blocks| blocks.lengths());
                let each = (0..).zip(blocks.wire.iter().cloned().zip(lengths));
                each.map(|(block, taken)| far_send(protocol, send, Some(block), taken)).collect()
            }
        });
    let far = plan.recvs.iter().zip(&blocks.recvs).filter(|(recv, _)| recv.is_far());
    let recvs = far.flat_map(|(recv, blocks)| match blocks {
        None => vec![far_recv(protocol, recv, None, (recv.slots.clone(), recv.bytes))],
        Some(blocks) => {
            let lengths = recv.blocks.iter().flat_map(|blocks| blocks.lengths());
            let each = (0..).zip(blocks.wire.iter().cloned().zip(lengths)).zip(&blocks.arrivals);
            let far = |((block, brought), arrivals): ((u32, _), &[_; 2])| FarRecv {
                arrivals: arrivals.clone(),
                ..far_recv(protocol, recv, Some(block), brought)
            };
            each.map(far).collect()
        }
    });
    let exchange = FarExchange {
        terms: Terms { last_epoch, ..protocol.terms },
        sends: sends.collect(),
        recvs: recvs.collect(),
        counts: plan.counts.clone(),
        device: site.device_of_wire(),
    };
    wire.open(site.world, exchange).map(Some)
}

fn far_send(protocol: Protocol, send: &PlannedSend, block: Option<u32>, taken: (Place, usize)) -> FarSend {
    FarSend {
        peer: send.peer,
        tag: send.tag,
        block,
        bytes: taken.1,
        staging: taken.0,
        awaits: (protocol.awaits)(send),
        clear: send.clear.clone(),
    }
}

fn far_recv(
    protocol: Protocol,
    recv: &PlannedRecv,
    block: Option<u32>,
    (slots, bytes): ([Place; 2], usize),
) -> FarRecv {
    FarRecv {
        peer: recv.peer,
        tag: recv.tag,
        block,
        bytes,
        slots,
        arrivals: recv.arrivals.clone(),
        announces: (protocol.announces)(recv),
    }
}
