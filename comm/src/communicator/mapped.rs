//! Regions of peers that messages have gone to before.

use super::record::Target;
use crate::error::Result;
use crate::fabric::{Fabric, Region};

/// How many are kept: what is mapped lives, even if its owner has let go of it.
const KEPT: usize = 64;

/// Mapped regions, of which the one that was not used for longest makes room for another.
#[derive(Debug, Default)]
pub(super) struct Mapped {
    /// By owner and key, with the number of the last use. A key is given to no other memory while the region
    /// is mapped here.
    regions: Vec<(Region, u64)>,
    uses: u64,
}

impl Mapped {
    /// The region of a peer.
    pub(super) fn region(&mut self, fabric: &dyn Fabric, owner: usize, target: Target) -> Result<&Region> {
        self.uses += 1;
        let known = |(region, _): &(Region, u64)| region.owner() == owner && region.key() == target.key;
        let index = match self.regions.iter().position(known) {
            Some(index) => index,
            None => {
                let region = fabric.map(owner, target.key, target.region_bytes as usize)?;
                if self.regions.len() == KEPT {
                    let oldest = (0..KEPT).min_by_key(|index| self.regions[*index].1);
                    self.regions.swap_remove(oldest.expect("some are kept"));
                }
                self.regions.push((region, 0));
                self.regions.len() - 1
            }
        };
        self.regions[index].1 = self.uses;
        Ok(&self.regions[index].0)
    }
}
