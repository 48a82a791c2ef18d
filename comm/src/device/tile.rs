//! Boxes of points, over which kernels run.

use std::fmt;

/// A box of points, half open, slowest axis first; the last axis (x) is contiguous.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Tile {
    /// First point on each axis.
    pub start: [usize; 3],
    /// One past the last point on each axis.
    pub end: [usize; 3],
}

impl Tile {
    /// Points along each axis; 0 where the end is not past the start.
    #[inline]
    pub fn extents(self) -> [usize; 3] {
        std::array::from_fn(|axis| self.end[axis].saturating_sub(self.start[axis]))
    }

    /// Points in all; `usize::MAX` where there are more.
    #[inline]
    pub fn points(self) -> usize {
        self.extents().into_iter().fold(1, usize::saturating_mul)
    }

    /// Whether every point lies in `other`. An empty tile lies everywhere.
    #[inline]
    pub fn is_within(self, other: Tile) -> bool {
        (0..3).all(|axis| self.start[axis] >= other.start[axis] && self.end[axis] <= other.end[axis])
            || self.points() == 0
    }

    /// Whether some point lies in both.
    pub(crate) fn meets(self, other: Tile) -> bool {
        (0..3).all(|axis| self.start[axis].max(other.start[axis]) < self.end[axis].min(other.end[axis]))
    }

    /// The two outer indices of every row, in order.
    pub fn rows(self) -> impl Iterator<Item = (usize, usize)> {
        (self.start[0]..self.end[0]).flat_map(move |i| (self.start[1]..self.end[1]).map(move |j| (i, j)))
    }

    /// At most `parts` tiles that make up this one, cut along the slowest axis that is long enough.
    pub(super) fn split(self, parts: usize) -> impl Iterator<Item = Tile> {
        let extents = self.extents();
        let axis = if extents[0] >= parts { 0 } else { 1 };
        let length = extents[axis];
        let parts = parts.min(length).max(1);
        (0..parts).map(move |part| {
            let mut tile = self;
            tile.start[axis] = self.start[axis] + part * length / parts;
            tile.end[axis] = self.start[axis] + (part + 1) * length / parts;
            tile
        })
    }
}

impl fmt::Display for Tile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A point before the first one is a huge number.
        let signed = |point: [usize; 3]| point.map(|index| index as isize);
        write!(f, "{:?}..{:?}", signed(self.start), signed(self.end))
    }
}
