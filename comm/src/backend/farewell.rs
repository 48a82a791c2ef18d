//! What a rank leaves behind an exchange that it lets go of, and how its peers find it: beside the words of the matching.

use super::matching::{Clear, Plan, Target};
use crate::error::Error;
use crate::fabric::{Fabric, Parted, Word};
use crate::world::World;
use std::sync::Arc;

/// Where this rank says how far it comes.
#[derive(Debug)]
pub(super) struct Farewell {
    /// Behind its readiness.
    announced: Vec<Word>,
    /// Behind its payloads.
    sent: Vec<Word>,
    /// The same, of peers over a wire.
    far: Vec<Far>,
    fabric: Arc<dyn Fabric>,
}

/// Words of a peer over a wire, by their offsets.
#[derive(Debug)]
struct Far {
    peer: usize,
    number: u64,
    announced: Vec<usize>,
    sent: Vec<usize>,
}

impl Farewell {
    /// To senders, also those that it does not announce its readiness to, and to the receivers of its payloads, which have
    /// so many buffers.
    pub(super) fn new(world: &World, plan: &Plan, buffers: usize) -> Self {
        let fabric = world.shared_fabric().clone();
        let mut made = Self { announced: Vec::new(), sent: Vec::new(), far: Vec::new(), fabric };
        for recv in &plan.recvs {
            match &recv.clear {
                Clear::Near(word) => made.announced.push(word.clone()),
                Clear::Far(word) => made.far(recv.peer, word.number).announced.push(word.offset),
            }
        }
        for send in &plan.sends {
            match &send.target {
                Target::Near(near) => made.sent.extend_from_slice(&near.arrivals[..buffers]),
                Target::Far(_, arrivals) => {
                    let offsets = arrivals[..buffers].iter().map(|word| word.offset);
                    made.far(send.peer, arrivals[0].number).sent.extend(offsets);
                }
            }
        }
        made
    }

    fn far(&mut self, peer: usize, number: u64) -> &mut Far {
        let known = self.far.iter().position(|far| far.peer == peer);
        let index = known.unwrap_or_else(|| {
            self.far.push(Far { peer, number, announced: Vec::new(), sent: Vec::new() });
            self.far.len() - 1
        });
        &mut self.far[index]
    }

    /// Lets go: what it has announced last, and the epoch of its last payloads, of what it has waited for. That is on its
    /// streams and is still carried out; what was begun beyond may come or not.
    pub(super) fn tell(&self, announced: u32, sent: u32) {
        self.announced.iter().for_each(|word| word.part(announced));
        self.sent.iter().for_each(|word| word.part(sent));
        for far in &self.far {
            let announced = far.announced.iter().map(|offset| (*offset, announced));
            let words = announced.chain(far.sent.iter().map(|offset| (*offset, sent))).collect();
            self.fabric.tell_parting(far.peer, &Parted { number: far.number, words });
        }
    }
}

/// Where the peers say it, for an exchange that waits for no words but these.
#[derive(Debug)]
pub(super) struct Listened(Vec<Word>);

impl Listened {
    pub(super) fn new(plan: &Plan) -> Self {
        let clear = plan.sends.iter().map(|send| send.clear.clone());
        let arrivals = plan.recvs.iter().map(|recv| recv.arrivals[0].clone());
        Self(arrivals.chain(clear).collect())
    }

    /// The error if a peer has let go before that epoch.
    pub(super) fn gone(&self, epoch: u32) -> Option<Error> {
        self.0.iter().find_map(|word| word.gone(epoch))
    }
}
