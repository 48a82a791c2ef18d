//! What a rank leaves behind an exchange that it lets go of, and how its peers find it: beside the words of the matching,
//! in memory that is mapped.

use super::matching::{Plan, PlannedRecv, PlannedSend, Target};
use crate::error::Error;
use crate::fabric::Word;

/// Where this rank says how far it comes.
#[derive(Debug)]
pub(super) struct Farewell {
    /// Behind its readiness.
    announced: Vec<Word>,
    /// Behind its payloads.
    sent: Vec<Word>,
}

impl Farewell {
    /// To the senders that it `announces` its readiness to, and to the receivers of its payloads, which have so many
    /// buffers.
    pub(super) fn new(plan: &Plan, announces: impl Fn(&PlannedRecv) -> bool, buffers: usize) -> Self {
        let announced = plan.recvs.iter().filter(|recv| announces(recv));
        let arrivals = plan.sends.iter().filter_map(|send| match &send.target {
            Target::Near(near) => Some(&near.arrivals[..buffers]),
            Target::Far(_) => None,
        });
        Self {
            announced: announced.filter_map(|recv| recv.clear.clone()).collect(),
            sent: arrivals.flatten().cloned().collect(),
        }
    }

    /// Lets go: what it has announced last, and the epoch of its last payloads. What is on its streams is still carried
    /// out.
    pub(super) fn tell(&self, announced: u32, sent: u32) {
        self.announced.iter().for_each(|word| word.part(announced));
        self.sent.iter().for_each(|word| word.part(sent));
    }
}

/// Where the peers say it, for an exchange that waits for no words but these.
#[derive(Debug)]
pub(super) struct Listened(Vec<Word>);

impl Listened {
    pub(super) fn new(plan: &Plan) -> Self {
        let near = |send: &&PlannedSend| !send.is_far();
        let clear = plan.sends.iter().filter(near).map(|send| send.clear.clone());
        let near = |recv: &&PlannedRecv| !recv.is_far();
        let arrivals = plan.recvs.iter().filter(near).map(|recv| recv.arrivals[0].clone());
        Self(arrivals.chain(clear).collect())
    }

    /// The error if a peer has let go before that epoch.
    pub(super) fn gone(&self, epoch: u32) -> Option<Error> {
        self.0.iter().find_map(|word| word.gone(epoch))
    }
}
