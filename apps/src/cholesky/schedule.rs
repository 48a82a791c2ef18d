//! Which rank computes which tile, in which order, and along which tree a tile is broadcast.
//!
//! The schedule is the simple static one that the paper ports (2015, section VI-C, after Kurzak, Buttari and Dongarra
//! 2008): tiles of the lower triangle are numbered column by column, each column from the diagonal down, and dealt out
//! to the ranks in turn. A rank computes its tiles in that order. A tile needs tiles of smaller numbers only, so that
//! ranks that wait for each other do so in no circle.

use crate::tree::Place;

/// Children of a rank in the tree of a tile: "along a binary tree overlay process topology".
const ARITY: usize = 2;

/// A row and a column of tiles, from 0.
pub(super) type Coordinates = [usize; 2];

/// The schedule of a matrix.
#[derive(Clone, Copy, Debug)]
pub(super) struct Schedule {
    /// Tiles along a side of the matrix.
    pub(super) side: usize,
    pub(super) ranks: usize,
}

/// A rank's part in the broadcast of a tile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Hop {
    /// From whom it comes; none for the rank that computes it.
    pub(super) parent: Option<usize>,
    /// To whom it is passed on.
    pub(super) children: Vec<usize>,
}

impl Schedule {
    /// The number of a tile.
    pub(super) fn number(self, [row, column]: Coordinates) -> usize {
        column * (2 * self.side + 1 - column) / 2 + row - column
    }

    /// All tiles, by their numbers.
    pub(super) fn all(self) -> impl Iterator<Item = Coordinates> {
        (0..self.side).flat_map(move |column| (column..self.side).map(move |row| [row, column]))
    }

    /// The rank that computes a tile.
    pub(super) fn owner(self, tile: Coordinates) -> usize {
        self.number(tile) % self.ranks
    }

    /// The tiles that are computed from one: those to its right in its row, and those below the diagonal tile of its
    /// row.
    fn dependents(self, [row, column]: Coordinates) -> impl Iterator<Item = Coordinates> {
        let in_row = (column + 1..=row).map(move |other| [row, other]);
        in_row.chain((row + 1..self.side).map(move |other| [other, row]))
    }

    /// The ranks that have a tile in the end: its owner, and behind it those that need it, in turn.
    fn members(self, tile: Coordinates) -> Vec<usize> {
        let owner = self.owner(tile);
        let mut needs = vec![false; self.ranks];
        let mut missing = self.ranks;
        for dependent in std::iter::once(tile).chain(self.dependents(tile)) {
            let rank = self.owner(dependent);
            if !std::mem::replace(&mut needs[rank], true) {
                missing -= 1;
            }
            if missing == 0 {
                break;
            }
        }
        (owner..owner + self.ranks).map(|rank| rank % self.ranks).filter(|rank| needs[*rank]).collect()
    }

    /// A rank's part in the broadcast of a tile, if it computes or needs it.
    pub(super) fn hop(self, tile: Coordinates, rank: usize) -> Option<Hop> {
        let members = self.members(tile);
        let position = members.iter().position(|member| *member == rank)?;
        let place = Place::new(position, members.len(), ARITY);
        Some(Hop {
            parent: place.parent.map(|parent| members[parent]),
            children: members[place.children].to_vec(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCHEDULES: [(usize, usize); 7] = [(1, 1), (1, 4), (2, 3), (5, 2), (6, 7), (9, 8), (7, 1)];

    fn schedules() -> impl Iterator<Item = Schedule> {
        SCHEDULES.into_iter().map(|(side, ranks)| Schedule { side, ranks })
    }

    /// What a tile is computed from: the formula of the factorisation.
    fn needed([m, k]: Coordinates) -> Vec<Coordinates> {
        let updates = (0..k).flat_map(|n| [[m, n], [k, n]]);
        updates.chain((m != k).then_some([k, k])).collect()
    }

    #[test]
    fn tiles_are_numbered_in_order_and_need_smaller_numbers() {
        for schedule in schedules() {
            let numbers: Vec<usize> = schedule.all().map(|tile| schedule.number(tile)).collect();
            assert_eq!(numbers, (0..schedule.side * (schedule.side + 1) / 2).collect::<Vec<_>>());
            for tile in schedule.all() {
                for other in needed(tile) {
                    assert!(schedule.number(other) < schedule.number(tile), "{tile:?} needs {other:?}");
                    assert!(schedule.dependents(other).any(|dependent| dependent == tile));
                }
            }
        }
    }

    #[test]
    fn every_rank_that_needs_a_tile_gets_it_once() {
        for schedule in schedules() {
            for tile in schedule.all() {
                let owner = schedule.owner(tile);
                let needs = |rank: usize| {
                    schedule.all().any(|own| schedule.owner(own) == rank && needed(own).contains(&tile))
                };
                let hop = |rank: usize| schedule.hop(tile, rank);
                let mut reached = vec![owner];
                let mut next = 0;
                while let Some(rank) = reached.get(next).copied() {
                    let children = hop(rank).expect("was reached").children;
                    assert!(children.len() <= ARITY);
                    for child in children {
                        assert_eq!(hop(child).expect("is a child").parent, Some(rank));
                        reached.push(child);
                    }
                    next += 1;
                }
                reached.sort_unstable();
                let wanted = |rank: &usize| *rank == owner || needs(*rank);
                assert_eq!(reached, (0..schedule.ranks).filter(wanted).collect::<Vec<_>>(), "{tile:?}");
            }
        }
    }
}
