//! The part of an exchange that goes over a wire, because the peers' memory is not mapped.

use super::matching::{Plan, Target};
use super::protocol::{Completion, Protocol};
use super::reach::Site;
use crate::error::Result;
use crate::fabric::{FarExchange, FarRecv, FarSend, OpenExchange, Terms, Wire};
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
    plan: &Plan,
    protocol: Protocol,
    last_epoch: u32,
) -> Result<Option<OpenExchange>> {
    let Some(wire) = wire(site.world) else { return Ok(None) };
    let sends = plan.sends.iter().filter_map(|send| match &send.target {
        Target::Near(_) => None,
        Target::Far(staging) => Some(FarSend {
            peer: send.peer,
            tag: send.tag,
            bytes: send.bytes,
            staging: staging.clone(),
            awaits: (protocol.awaits)(send),
            clear: send.clear.clone(),
        }),
    });
    let recvs = plan.recvs.iter().filter(|recv| recv.is_far()).map(|recv| FarRecv {
        peer: recv.peer,
        tag: recv.tag,
        bytes: recv.bytes,
        slots: recv.slots.clone(),
        arrivals: recv.arrivals.clone(),
        announces: (protocol.announces)(recv),
    });
    let exchange = FarExchange {
        terms: Terms {
            readiness: protocol.readiness,
            announced: protocol.announced,
            needed: protocol.needed,
            waits_for_group: protocol.waits_for_group,
            buffers: protocol.buffers,
            counts: protocol.completion == Completion::Count,
            last_epoch,
        },
        sends: sends.collect(),
        recvs: recvs.collect(),
        counts: plan.counts.clone(),
        device: site.device_of_wire(),
    };
    wire.open(site.world, exchange).map(Some)
}
