//! What every cell holds: a number that tells cells, variables and cycles apart. A ghost has that of the cell that it is
//! a copy of, by an arithmetic of its own: what comes from a wrong place, or from an earlier cycle, shows.
//!
//! Numbers are hashes: grids have more cells than there are numbers, so that a number that counts comes back at a fixed
//! distance, at which a whole face of wrong ghosts would pass. Two hashes are the same by chance, once in 2²⁴. Each row
//! begins anywhere and goes on in steps of the golden ratio (Knuth, The Art of Computer Programming, volume 3, section
//! 6.4), since all cells are set in every cycle, and a sum for each of them is done by the vector.

use streamhalo::LocalGrid;

use crate::app::{mix, places_of};

/// From one cell of a row to the next: the odd number nearest to 2⁶⁴ divided by the golden ratio.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// What is left out of a hash: the rest is below 2²⁴, which an `f32` holds.
const LOW_BITS: u32 = 40;

/// Which cycle of which variable.
#[derive(Clone, Copy, Debug)]
pub(super) struct Turn {
    pub(super) variable: usize,
    pub(super) cycle: u64,
}

impl Turn {
    /// What all cells' numbers begin with.
    pub(super) fn base(self) -> u64 {
        mix(mix(self.variable as u64) ^ self.cycle)
    }
}

/// What the cell at `[z, y, x]` of the whole grid and those behind it in its row hold.
pub(super) fn row(
    [_, height, _]: [usize; 3],
    [z, y, x]: [usize; 3],
    turn: Turn,
) -> impl Iterator<Item = u32> {
    let first = mix(turn.base() ^ (z * height + y) as u64).wrapping_add(STEP.wrapping_mul(x as u64));
    (0..).map(move |cell| (first.wrapping_add(STEP.wrapping_mul(cell)) >> LOW_BITS) as u32)
}

/// Where the entries of a rank are in the whole grid, along each axis; none beyond its ends.
#[derive(Clone, Debug)]
pub(super) struct Whereabouts {
    cells: [usize; 3],
    axes: [Vec<Option<usize>>; 3],
}

impl Whereabouts {
    pub(super) fn of(grid: &LocalGrid<3>) -> Self {
        Self { cells: grid.subdomain().partition().grid().cells(), axes: places_of(grid) }
    }

    /// Where entries are along each axis, slowest first; -1 beyond the ends of the grid.
    pub(super) fn places(&self) -> [Vec<i64>; 3] {
        let number = |place: &Option<usize>| place.map_or(-1, |place| place as i64);
        self.axes.each_ref().map(|axis| axis.iter().map(number).collect())
    }

    /// What the entry at local `[z, y, x]` must hold; beyond the ends of the grid, where nobody ever writes, 0.
    pub(super) fn number(&self, [z, y, x]: [usize; 3], turn: Turn) -> u32 {
        match (self.axes[0][z], self.axes[1][y], self.axes[2][x]) {
            (Some(z), Some(y), Some(x)) => row(self.cells, [z, y, x], turn).next().expect("has no end"),
            _ => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;
    use streamhalo::{GlobalGrid, World};

    const TURN: Turn = Turn { variable: 0, cycle: 0 };

    #[test]
    fn numbers_tell_cells_variables_and_cycles_apart() {
        let mut numbers = HashSet::new();
        for turn in (0..3).flat_map(|variable| (0..4).map(move |cycle| Turn { variable, cycle })) {
            for (z, y) in (0..4).flat_map(|z| (0..5).map(move |y| (z, y))) {
                numbers.extend(row([4, 5, 6], [z, y, 0], turn).take(6));
            }
        }
        // Of a million pairs some may be the same by chance.
        assert!(numbers.len() > 3 * 4 * 4 * 5 * 6 - 6, "{}", numbers.len());
        let whole: Vec<u32> = row([4, 5, 6], [1, 2, 0], TURN).take(6).collect();
        let part: Vec<u32> = row([4, 5, 6], [1, 2, 3], TURN).take(2).collect();
        assert_eq!(part, whole[3..5]);
    }

    /// Planes that are as many cells apart as there are numbers, or a multiple of that: between them a rank's part of
    /// 512³ cells begins and ends.
    #[test]
    fn numbers_do_not_come_back_at_a_fixed_distance() {
        const WIDTH: usize = 512;
        for (from, to) in [(0, 64), (64, 128), (0, 448), (511, 63)] {
            let row_of = |plane| row([WIDTH; 3], [plane, 0, 0], TURN).take(WIDTH);
            let same = row_of(from).zip(row_of(to)).filter(|(one, other)| one == other).count();
            assert_eq!(same, 0, "planes {from} and {to}");
        }
        let long = [1, 1, 1 << 25];
        let [one, other] = [0, 1 << 24].map(|x| row(long, [0, 0, x], TURN).take(WIDTH));
        assert_eq!(one.zip(other).filter(|(one, other)| one == other).count(), 0, "within a row");
    }

    #[test]
    fn ghosts_are_copies_of_cells_or_nothing() {
        let grid = GlobalGrid::new([3; 3], [true, false, true]).expect("is a grid");
        let alone = grid.partition_as(&World::alone().expect("needs nothing"), [1; 3]).expect("fits");
        let here = Whereabouts::of(&alone.local([2; 3]).expect("fits"));
        assert_eq!(here.axes[0], [1, 2, 0, 1, 2, 0, 1].map(Some));
        assert_eq!(here.axes[1], [None, None, Some(0), Some(1), Some(2), None, None]);
        assert_eq!(here.number([2, 1, 3], Turn { cycle: 5, ..TURN }), 0);
        assert_eq!(Some(here.number([0, 2, 6], TURN)), row([3; 3], [1, 0, 1], TURN).next());
    }
}
