//! Where a rank is in the tree: level by level, from the root on, which is rank 0.

use std::ops::Range;

/// A rank and its neighbours in the tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// None for the root.
    pub(crate) parent: Option<usize>,
    /// Which of its parent's children it is, from 0.
    pub(crate) sibling: usize,
    /// They have consecutive ranks.
    pub(crate) children: Range<usize>,
}

impl Place {
    /// The place of a rank in a tree of `size` ranks with up to `arity` children each.
    pub(crate) fn new(rank: usize, size: usize, arity: usize) -> Self {
        let first_child = |rank: usize| rank.saturating_mul(arity).saturating_add(1).min(size);
        let parent = rank.checked_sub(1).map(|rank| rank / arity);
        let sibling = parent.map_or(0, |parent| rank - first_child(parent));
        Self { parent, sibling, children: first_child(rank)..first_child(rank + 1) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rank_is_a_child_once() {
        for (size, arity) in
            [(1, 16), (2, 16), (17, 16), (18, 16), (8, 2), (5, 1), (273, 16), (9, usize::MAX)]
        {
            let place = |rank| Place::new(rank, size, arity);
            let children: Vec<usize> = (0..size).flat_map(|rank| place(rank).children).collect();
            assert_eq!(children, (1..size).collect::<Vec<_>>(), "{size} {arity}");
            assert_eq!(place(0).parent, None);
            for rank in 1..size {
                let parent = place(place(rank).parent.expect("is not the root"));
                assert_eq!(parent.children.clone().nth(place(rank).sibling), Some(rank), "{size} {arity}");
                assert!(parent.children.len() <= arity);
            }
        }
    }
}
