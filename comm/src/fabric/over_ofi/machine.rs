//! Which ranks run on this rank's machine, whose network interfaces they share.

use crate::error::Result;
use crate::world::World;
use std::convert::Infallible;

/// Names a running Linux, also to containers on it.
const BOOT: &str = "/proc/sys/kernel/random/boot_id";

/// The ranks of one machine.
#[derive(Debug)]
pub(super) struct Machine {
    rank: usize,
    ranks: Vec<usize>,
}

impl Machine {
    /// That of this rank. Collective.
    pub(super) fn of(world: &World) -> Result<Self> {
        // What does not say which one it is counts as one.
        let own: Result<String, Infallible> = Ok(std::fs::read_to_string(BOOT).unwrap_or_default());
        let names = world.agree("learning which ranks share a machine", own)?;
        Ok(Self::among(world.rank(), &names))
    }

    fn among(rank: usize, names: &[String]) -> Self {
        let ranks = (0..names.len()).filter(|other| names[*other] == names[rank]).collect();
        Self { rank, ranks }
    }

    /// How many ranks there are before this one, and how many in all.
    pub(super) fn share(&self) -> (usize, usize) {
        (self.ranks.iter().filter(|other| **other < self.rank).count(), self.ranks.len())
    }

    /// How many of them have the same of something as this rank has.
    pub(super) fn sharing<T: PartialEq>(&self, of: impl Fn(usize) -> T) -> usize {
        self.ranks.iter().filter(|other| of(**other) == of(self.rank)).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_of_a_machine_share_what_they_have_the_same_of() {
        let names = ["a", "b", "a", "a", "b"].map(str::to_owned);
        let shares = [0, 1, 2, 3, 4].map(|rank| Machine::among(rank, &names).share());
        assert_eq!(shares, [(0, 3), (0, 2), (1, 3), (2, 3), (1, 2)]);
        let interfaces = ["cxi0", "cxi0", "cxi0", "cxi1", "cxi1"];
        let sharing =
            [0, 1, 2, 3, 4].map(|rank| Machine::among(rank, &names).sharing(|other| interfaces[other]));
        assert_eq!(sharing, [2, 1, 2, 1, 1]);
    }
}
