//! The least that two ranks can tell each other: a floor for measurements.

use super::{Role, WaitContext, Word};
use crate::error::{Error, Result};
use crate::world::World;
use std::sync::Arc;

/// A cache line of each of two ranks that the other writes. It has no message, no tag and no queue: what it takes
/// is what the machine takes to show one rank what another has stored.
#[derive(Debug)]
pub struct FlagPair {
    /// In the peer's memory.
    theirs: Word,
    own: Word,
    raised: u32,
    /// Whether the peer may sleep.
    wakes: bool,
    seen: u32,
    context: Arc<WaitContext>,
}

/// What a rank maps of a peer.
const BYTES: usize = 128;

impl FlagPair {
    /// Connects this rank with `peer`, which connects with this one; `None` where their memory is not mapped.
    /// Collective over `world`; blocks.
    ///
    /// # Errors
    /// [`Error::CollectiveFailed`], on all ranks, if one has no memory for it, or names a peer that is not there.
    pub fn connect(world: &World, peer: usize) -> Result<Option<Self>> {
        const CALL: &str = "FlagPair::connect";
        let (fabric, size) = (world.fabric(), world.size());
        let region = match peer < size {
            true => fabric.allocate(BYTES),
            false => Err(Error::WrongRank { what: CALL, rank: peer, size }),
        };
        let sleeps = world.wait_context().policy.sleeps;
        let told = world.agree(CALL, region.as_ref().map(|own| (own.key(), sleeps)))?;
        let own = region?;
        let pair = if fabric.is_mapped(peer) {
            let rank = world.rank();
            let (key, wakes) = told[peer];
            let theirs = fabric.map(peer, key, BYTES);
            let words = theirs.and_then(|theirs| {
                let theirs = theirs.word(0, Role::Notification, rank, peer)?;
                Ok((theirs, own.word(0, Role::Notification, peer, rank)?))
            });
            let context = world.wait_context().clone();
            words.map(|(theirs, own)| Some(Self { theirs, own, raised: 0, wakes, seen: 0, context }))
        } else {
            Ok(None)
        };
        // Nobody lets go of what another has still to map.
        world.agree(CALL, pair.as_ref().map(|_| ()))?;
        pair
    }

    /// Stores the next number into the peer's line. Does not block.
    #[inline]
    pub fn raise(&mut self) {
        self.raised = self.raised.wrapping_add(1);
        match self.wakes {
            // Where nobody sleeps a store is all that it takes.
            false => self.theirs.post(self.raised),
            true => self.theirs.set(self.raised),
        }
    }

    /// Blocks until the peer's next number is in this rank's line.
    ///
    /// # Errors
    /// [`Error::PeerFailed`], [`Error::TimedOut`].
    #[inline]
    pub fn wait(&mut self) -> Result<()> {
        self.seen = self.seen.wrapping_add(1);
        self.context.wait(&self.own, self.seen, &|| None, &mut || false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::WorldOptions;

    #[test]
    fn a_peer_that_is_not_there_is_refused_on_all_ranks() {
        let refused = World::threads(2, WorldOptions::default(), |world| {
            let refused = FlagPair::connect(&world, 1 + world.rank()).map(drop);
            // The right call still works.
            let mut pair = FlagPair::connect(&world, 1 - world.rank())?.expect("their memory is mapped");
            pair.raise();
            pair.wait()?;
            Ok::<_, Error>(refused)
        });
        let wrong = Error::WrongRank { what: "FlagPair::connect", rank: 2, size: 2 };
        let expected =
            Error::CollectiveFailed { call: "FlagPair::connect", rank: 1, reason: wrong.to_string() };
        assert_eq!(refused, Ok(vec![Ok(Err(expected.clone())), Ok(Err(expected))]));
    }
}
