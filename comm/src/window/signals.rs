//! The signals of active target epochs: between any two ranks a word for exposures and one for completions.
//!
//! A target adds to the exposure word of an origin, in the memory of the origin, and an origin to the
//! completion word of a target, in the memory of the target. Both count epochs of that pair, so the words of
//! the k-th epoch come to k on both sides, whatever the groups of the other epochs. Ranks that have come to
//! the same count are told by one merged signal (2023, section 5.4).

use crate::device::{SignalSet, Stream, WaitSet, next_group};
use crate::error::Result;
use crate::fabric::{LINE, Region, Role, Word};
use crate::world::World;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// The two words of a pair, in the memory of either.
const PAIR_BYTES: usize = 2 * LINE;
/// Merged signals that are kept; groups that change all the time do not fill the memory.
const KEPT: usize = 32;

/// The words of a window and what they have come to.
#[derive(Debug)]
pub(super) struct Signals {
    peers: Vec<Peer>,
    /// Tells the sends of this window from others on a stream.
    group: u64,
    /// Merged signals, made for the ranks that are told together and used again.
    exposures: Vec<Batch<SignalSet>>,
    completions: Vec<Batch<WaitSet>>,
    /// The ranks of a call by count.
    sorted: Vec<usize>,
}

#[derive(Debug)]
struct Peer {
    /// In its memory, if that is mapped.
    there: Option<Pair>,
    /// In the memory of this rank.
    here: Pair,
    /// Whether its waits may sleep until they are woken.
    sleeps: bool,
    /// How often this rank has exposed its window to it.
    exposures: u32,
    /// How often this rank has begun to access its window.
    accesses: u32,
    /// The last access that was carried out, or is on a stream.
    completed: u32,
}

/// The words that a rank writes for another.
#[derive(Debug)]
struct Pair {
    exposure: Word,
    completion: Word,
}

#[derive(Debug)]
struct Batch<T> {
    ranks: Vec<usize>,
    made: Arc<T>,
}

/// The region with the words from peers, as its rank tells the others of it.
#[derive(Debug, Serialize, Deserialize)]
struct WordRegion {
    key: u64,
    bytes: usize,
    sleeps: bool,
}

impl Pair {
    /// The words that `from` writes for `to`, which has them in `region`.
    fn of(region: &Region, from: usize, to: usize) -> Result<Self> {
        let offset = from * PAIR_BYTES;
        Ok(Self {
            exposure: region.word_with_parting(offset, Role::Exposure, from, to)?,
            completion: region.word_with_parting(offset + LINE, Role::Completion, from, to)?,
        })
    }
}

impl Signals {
    /// Makes the words between all ranks, for which the host of this one waits, and that stream. Collective; blocks. Fails
    /// on all ranks or on none.
    pub(super) fn connect(world: &World, stream: &Stream, call: &'static str) -> Result<Self> {
        let (rank, fabric, last) = (world.rank(), world.fabric(), world.last_epoch());
        let own = fabric.allocate(world.size() * PAIR_BYTES);
        let told = own.as_ref().map(|own| WordRegion {
            key: own.key(),
            bytes: own.bytes(),
            // The stream may be of another world, with another policy.
            sleeps: world.wait_context().policy.sleeps || stream.status().context.policy.sleeps,
        });
        let told = world.agree(call, told)?;
        let peers = own.and_then(|own| {
            let peer = |(peer, told): (usize, &WordRegion)| {
                let there = if fabric.is_mapped(peer) {
                    Some(Pair::of(&fabric.map(peer, told.key, told.bytes)?, rank, peer)?)
                } else {
                    None
                };
                let here = Pair::of(&own, peer, rank)?;
                // Peers write them once all have said that they have theirs.
                here.exposure.set(last);
                here.completion.set(last);
                Ok(Peer {
                    there,
                    here,
                    sleeps: told.sleeps,
                    exposures: last,
                    accesses: last,
                    completed: last,
                })
            };
            told.iter().enumerate().map(peer).collect::<Result<Vec<_>>>()
        });
        world.agree(call, peers.as_ref().map(|_| ()))?;
        Ok(Self {
            peers: peers?,
            group: next_group(),
            exposures: Vec::new(),
            completions: Vec::new(),
            sorted: Vec::new(),
        })
    }

    /// What the sends of the window have in common.
    pub(super) fn group(&self) -> u64 {
        self.group
    }

    /// Whether that rank's memory is mapped, so that its words can be written.
    pub(super) fn is_mapped(&self, rank: usize) -> bool {
        self.peers[rank].there.is_some()
    }

    /// Counts one more exposure to each of those ranks.
    pub(super) fn expose(&mut self, ranks: &[usize]) {
        for rank in ranks {
            let count = &mut self.peers[*rank].exposures;
            *count = count.wrapping_add(1);
        }
    }

    /// Counts one more access to each of those ranks' windows.
    pub(super) fn access(&mut self, ranks: &[usize]) {
        for rank in ranks {
            let count = &mut self.peers[*rank].accesses;
            *count = count.wrapping_add(1);
        }
    }

    /// Takes back the last access to those ranks' windows, which have been told nothing of it: the next one is that one.
    pub(super) fn take_back(&mut self, ranks: impl IntoIterator<Item = usize>) {
        for rank in ranks {
            let count = &mut self.peers[rank].accesses;
            *count = count.wrapping_sub(1);
        }
    }

    /// Takes note that nothing can keep the accesses to those ranks from being completed, except a stream that fails.
    pub(super) fn complete(&mut self, ranks: &[usize]) {
        for rank in ranks {
            let peer = &mut self.peers[*rank];
            peer.completed = peer.accesses;
        }
    }

    /// The first of those origins that has dropped its window before it came to the access that is waited for.
    pub(super) fn left_origin(&self, ranks: &[usize]) -> Option<usize> {
        ranks.iter().find_map(|origin| self.completed_by(*origin).leaver(self.exposures(*origin)))
    }

    /// The first of those targets that has dropped its window before it came to the exposure that is waited for.
    pub(super) fn left_target(&self, ranks: &[usize]) -> Option<usize> {
        ranks.iter().find_map(|target| self.exposed_by(*target).leaver(self.accesses(*target)))
    }

    /// Tells the ranks that map this one's memory, or the other way round, how far it has come, and that it goes no
    /// further: what streams still have to do counts.
    pub(super) fn part(&self) {
        for peer in &self.peers {
            if let Some(there) = &peer.there {
                there.exposure.part(peer.exposures);
                there.completion.part(peer.completed);
            }
        }
    }

    /// The number of the exposure epoch of that origin.
    pub(super) fn exposures(&self, origin: usize) -> u32 {
        self.peers[origin].exposures
    }

    /// The number of the access epoch to that target.
    pub(super) fn accesses(&self, target: usize) -> u32 {
        self.peers[target].accesses
    }

    /// Where a target says that it is exposed to this rank.
    pub(super) fn exposed_by(&self, target: usize) -> &Word {
        &self.peers[target].here.exposure
    }

    /// Where an origin says that its operations on this rank's window are done.
    pub(super) fn completed_by(&self, origin: usize) -> &Word {
        &self.peers[origin].here.completion
    }

    /// Where this rank says so to a target whose memory is mapped.
    pub(super) fn completion_of(&self, target: usize) -> &Word {
        &self.peers[target].there.as_ref().expect("its memory is mapped").completion
    }

    /// Whether a rank has to be woken.
    pub(super) fn sleeps(&self, rank: usize) -> bool {
        self.peers[rank].sleeps
    }

    /// The mapped ranks among those, in batches of the same count, which `count` says.
    fn batches(&mut self, ranks: &[usize], count: fn(&Peer) -> u32) -> Vec<usize> {
        let mut sorted = std::mem::take(&mut self.sorted);
        sorted.clear();
        sorted.extend(ranks.iter().copied().filter(|rank| self.is_mapped(*rank)));
        sorted.sort_unstable_by_key(|rank| (count(&self.peers[*rank]), *rank));
        sorted
    }

    /// Calls back with the signals that expose the window to the mapped ranks among those, and their values.
    pub(super) fn each_exposure(&mut self, ranks: &[usize], mut call: impl FnMut(&Arc<SignalSet>, u32)) {
        let sorted = self.batches(ranks, |peer| peer.exposures);
        let count = |rank: usize| self.peers[rank].exposures;
        for batch in sorted.chunk_by(|a, b| count(*a) == count(*b)) {
            let made = Batch::find(&mut self.exposures, batch, |ranks| {
                let words = ranks.iter().map(|rank| self.peers[*rank].there.as_ref().expect("it is mapped"));
                let words = words.map(|there| there.exposure.clone()).collect();
                SignalSet::new(words, batch.iter().any(|rank| self.peers[*rank].sleeps))
            });
            call(made, count(batch[0]));
        }
        self.sorted = sorted;
    }

    /// Calls back with the waits for the mapped ranks among those to complete, and their values.
    pub(super) fn each_completion(&mut self, ranks: &[usize], mut call: impl FnMut(&Arc<WaitSet>, u32)) {
        let sorted = self.batches(ranks, |peer| peer.exposures);
        let count = |rank: usize| self.peers[rank].exposures;
        for batch in sorted.chunk_by(|a, b| count(*a) == count(*b)) {
            let made = Batch::find(&mut self.completions, batch, |ranks| {
                let words = ranks.iter().map(|rank| self.peers[*rank].here.completion.clone()).collect();
                // What this rank sends on the same stream is waited for where it completes.
                WaitSet::new(words, Vec::new(), 0)
            });
            call(made, count(batch[0]));
        }
        self.sorted = sorted;
    }

    /// Calls back with the mapped ranks among those whose windows are accessed for the same time, and how
    /// often that is.
    pub(super) fn each_access(&mut self, ranks: &[usize], mut call: impl FnMut(&Self, &[usize], u32)) {
        let sorted = self.batches(ranks, |peer| peer.accesses);
        let count = |rank: usize| self.peers[rank].accesses;
        for batch in sorted.chunk_by(|a, b| count(*a) == count(*b)) {
            call(self, batch, count(batch[0]));
        }
        self.sorted = sorted;
    }
}

impl<T> Batch<T> {
    /// What was made for those ranks; made now if they have not been told together before.
    fn find<'a>(batches: &'a mut Vec<Self>, ranks: &[usize], make: impl FnOnce(&[usize]) -> T) -> &'a Arc<T> {
        let index = batches.iter().position(|batch| batch.ranks == ranks).unwrap_or_else(|| {
            if batches.len() == KEPT {
                batches.remove(0);
            }
            batches.push(Self { ranks: ranks.to_vec(), made: Arc::new(make(ranks)) });
            batches.len() - 1
        });
        &batches[index].made
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Device;
    use crate::error::Error;
    use crate::fabric::WaitPolicy;
    use crate::world::WorldOptions;

    #[test]
    fn peers_are_told_if_the_host_or_the_stream_sleeps() {
        let options = |sleeps| WorldOptions {
            policy: Some(WaitPolicy { spins: 1, yields: 0, sleeps }),
            ..WorldOptions::default()
        };
        for (stream_sleeps, host_sleeps) in [(true, false), (false, true), (false, false)] {
            let ranks = World::threads(2, options(stream_sleeps), |world| {
                let stream = Device::host().stream(&world)?;
                let world = world.first_with(2, options(host_sleeps))?.expect("both ranks are in it");
                let signals = Signals::connect(&world, &stream, "a test")?;
                Ok::<_, Error>(signals.sleeps(1 - world.rank()))
            });
            assert_eq!(ranks.expect("threads start"), vec![Ok(stream_sleeps || host_sleeps); 2]);
        }
    }
}
