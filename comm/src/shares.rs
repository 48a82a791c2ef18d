//! What the ranks of a machine share out among themselves: cores and devices.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What a rank may use of its machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Share<T> {
    /// The running system, if it can be told from others.
    node: Option<String>,
    usable: Vec<T>,
}

impl<T: Ord> Share<T> {
    /// Of the calling process.
    pub(crate) fn new(usable: Vec<T>) -> Self {
        Self { node: std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok(), usable }
    }

    /// Where the one that a rank takes is in its own list, and `None` in an empty one: the first of those that the fewest
    /// ranks before it on its node have taken. Launchers give ranks the same, some each, or one each, and deal them out
    /// over nodes one by one or in blocks.
    pub(crate) fn of_rank(rank: usize, all: &[Self]) -> Option<usize> {
        let mut taken = BTreeMap::new();
        let mut own = None;
        for Self { usable, .. } in all[..=rank].iter().filter(|other| other.node == all[rank].node) {
            own = (0..usable.len()).min_by_key(|place| taken.get(&usable[*place]).unwrap_or(&0));
            if let Some(place) = own {
                *taken.entry(&usable[place]).or_insert(0) += 1;
            }
        }
        own
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_share_only_where_they_outnumber_what_they_may_use() {
        let taken = |ranks: &[(&str, &[usize])]| -> Vec<usize> {
            let of = |(node, usable): &(&str, &[usize])| Share {
                node: Some((*node).into()),
                usable: usable.to_vec(),
            };
            let all: Vec<_> = ranks.iter().map(of).collect();
            let place = |rank| Share::of_rank(rank, &all).expect("there is one");
            (0..all.len()).map(|rank| all[rank].usable[place(rank)]).collect()
        };
        let (low, high): (&[usize], &[usize]) = (&[0, 1], &[2, 3]);
        let node = &[low, high].concat()[..];
        // The whole node for all, by ranks that are dealt out in blocks and one by one.
        assert_eq!(taken(&[("a", node), ("a", node), ("b", node), ("b", node)]), [0, 1, 0, 1]);
        assert_eq!(taken(&[("a", node), ("b", node), ("a", node), ("b", node)]), [0, 0, 1, 1]);
        // A socket each, in turn, as `--map-by socket --bind-to socket` does.
        assert_eq!(taken(&[("a", low), ("a", high), ("a", low), ("a", high)]), [0, 2, 1, 3]);
        // One each.
        assert_eq!(taken(&[("a", &[3]), ("a", &[1]), ("a", &[2])]), [3, 1, 2]);
        // All of them, each rank's own first, as scripts set `CUDA_VISIBLE_DEVICES`.
        assert_eq!(taken(&[("a", &[0, 1]), ("a", &[1, 0])]), [0, 1]);
        // Some that all may use, and more for some.
        assert_eq!(taken(&[("a", low), ("a", node), ("a", &[1, 2]), ("a", node)]), [0, 1, 2, 3]);
        // Fewer than there are ranks: in turn.
        assert_eq!(taken(&[("a", low), ("a", low), ("a", low), ("a", low)]), [0, 1, 0, 1]);
    }

    #[test]
    fn a_rank_with_nothing_to_use_takes_nothing() {
        let of = |usable: &[u8]| Share { node: None, usable: usable.to_vec() };
        let all = [of(&[]), of(&[7])];
        assert_eq!([Share::of_rank(0, &all), Share::of_rank(1, &all)], [None, Some(0)]);
    }
}
