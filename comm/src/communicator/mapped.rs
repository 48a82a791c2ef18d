//! Regions of peers that messages have gone to before.

use super::record::Target;
use crate::error::Result;
use crate::fabric::{Fabric, Region};

/// How many are kept beside those of exchanges: what is mapped lives, even if its owner has let go of it.
const KEPT: usize = 64;

/// Mapped regions, of which the one that was not used for longest makes room for another.
#[derive(Debug, Default)]
pub(super) struct Mapped {
    /// How many messages there are that go to the same region each time.
    lasting: usize,
    /// By owner and key, with the number of the last use. A key is given to no other memory while the region
    /// is mapped here.
    regions: Vec<(Region, u64)>,
    uses: u64,
}

impl Mapped {
    /// Has the regions of so many messages kept however many others there are, until they are released.
    pub(super) fn reserve(&mut self, messages: usize) {
        self.lasting += messages;
        self.regions.reserve((KEPT + self.lasting).saturating_sub(self.regions.len()));
    }

    /// Lets go of as many as are not needed for so many messages any more.
    pub(super) fn release(&mut self, messages: usize) {
        self.lasting -= messages;
        self.keep(KEPT + self.lasting);
    }

    /// Keeps at most so many, which have been used last.
    fn keep(&mut self, most: usize) {
        while self.regions.len() > most {
            let oldest = (0..self.regions.len()).min_by_key(|index| self.regions[*index].1);
            self.regions.swap_remove(oldest.expect("some are kept"));
        }
    }

    /// The region of a peer.
    pub(super) fn region(&mut self, fabric: &dyn Fabric, owner: usize, target: Target) -> Result<&Region> {
        self.uses += 1;
        let known = |(region, _): &(Region, u64)| region.owner() == owner && region.key() == target.key;
        let index = match self.regions.iter().position(known) {
            Some(index) => index,
            None => {
                let region = fabric.map(owner, target.key, target.region_bytes as usize)?;
                self.keep(KEPT + self.lasting - 1);
                self.regions.push((region, 0));
                self.regions.len() - 1
            }
        };
        self.regions[index].1 = self.uses;
        Ok(&self.regions[index].0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::{World, WorldOptions};

    /// Of regions that messages go to for the first time all are kept that others rely upon, and so many more.
    #[test]
    fn as_many_are_kept_as_messages_need() {
        let kept = World::threads(1, WorldOptions::default(), |world| -> Result<[usize; 3]> {
            let fabric = world.fabric();
            let regions = (0..2 * KEPT).map(|_| fabric.allocate(64)).collect::<Result<Vec<_>>>()?;
            let mut mapped = Mapped::default();
            let touch_all = |mapped: &mut Mapped| -> Result<usize> {
                for region in &regions {
                    let target = Target { key: region.key(), region_bytes: 64, offset: 0 };
                    mapped.region(fabric, 0, target)?;
                }
                Ok(mapped.regions.len())
            };
            let alone = touch_all(&mut mapped)?;
            mapped.reserve(6);
            let with_exchanges = touch_all(&mut mapped)?;
            mapped.release(6);
            Ok([alone, with_exchanges, mapped.regions.len()])
        });
        let kept = kept.expect("ranks start").remove(0).expect("memory is mapped");
        assert_eq!(kept, [KEPT, KEPT + 6, KEPT]);
    }
}
