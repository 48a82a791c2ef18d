//! The words of pairs, and the end of a pair over a wire, which tells its peer how far they come.

use super::record::{Record, Spot};
use crate::error::Result;
use crate::fabric::{Fabric, LINE, Listening, Parted, Region, Role, Word};
use crate::world::World;
use std::sync::Arc;

/// Words that are made at once.
const SLAB_WORDS: usize = 64;

/// Memory of this rank for the words that its peers write.
#[derive(Debug, Default)]
pub(super) struct Words {
    slab: Option<Region>,
    used: usize,
}

impl Words {
    /// The next word, zero. No word is given out twice: a peer may hold on to one for as long as it likes.
    pub(super) fn take(&mut self, world: &World, role: Role, from: usize) -> Result<(Word, Spot)> {
        if self.slab.is_none() || self.used == SLAB_WORDS {
            self.slab = Some(world.fabric().allocate(SLAB_WORDS * LINE)?);
            self.used = 0;
        }
        let slab = self.slab.as_ref().expect("it was just made");
        let offset = self.used * LINE;
        let word = slab.word_with_parting(offset, role, from, world.rank())?;
        let spot = Spot::of(&slab.place(offset, LINE, "a word of a pair")?);
        self.used += 1;
        Ok((word, spot))
    }
}

/// This rank's end of what a wire carries, for partings.
#[derive(Debug)]
pub(super) struct End {
    /// Its own word, which the peer parts from.
    pub(super) own: Word,
    pub(super) listening: Option<Listening>,
    /// The word of the peer that this rank parts from, and how far that comes.
    there: Parted,
    fabric: Arc<dyn Fabric>,
    /// The epoch before the first.
    pub(super) last_epoch: u32,
}

impl Drop for End {
    /// Also of a pair that was never made: the peer may have its own.
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.fabric.tell_parting(self.own.from, &self.there);
        }
    }
}

impl End {
    pub(super) fn new(world: &World, own: Word, listening: Option<Listening>, told: &Record) -> Self {
        let last_epoch = world.last_epoch();
        let there = Parted { number: told.partings, words: vec![(told.word.offset, last_epoch)] };
        Self { own, listening, there, fabric: world.shared_fabric().clone(), last_epoch }
    }

    /// The word comes to `last` and no further.
    pub(super) fn ends_at(&mut self, last: u32) {
        self.there.words[0].1 = last;
    }
}
