//! Where the rows of an array lie in its memory.

use super::{Extents, Tile};
use crate::fabric::LINE;
use std::ops::Range;

/// Rows of at least so many bytes begin with a line: it lengthens them by a line at most.
const LONG_BYTES: usize = 4 * LINE;

/// Rows are no multiple of so many bytes apart: those that a kernel reads side by side would share few places of the
/// first-level cache, which looks for a line by where it lies within 4 KiB.
const CROWDED_BYTES: usize = 16 * LINE;

/// The extents of an array, and where its rows lie in memory: one behind the other along axis 1, then axis 0, each
/// `pitch` elements behind the one before.
///
/// [`Extents`] alone become rows without anything in between.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Pitched {
    extents: Extents,
    /// Elements from the beginning of the memory to the first row.
    pub(crate) first: usize,
    /// Elements from row to row.
    pub(crate) pitch: usize,
}

impl From<Extents> for Pitched {
    fn from(extents: Extents) -> Self {
        Self { extents, first: 0, pitch: extents.points[2].saturating_mul(extents.components) }
    }
}

impl Pitched {
    /// Rows of which point `x` begins with a line of the caches, where rows have 4 lines or more: loads and stores of
    /// kernels that start there do not straddle two lines, and what is around the rows from `x` on, as ghosts are, has
    /// lines of its own. Shorter rows have nothing in between. Those that would be a multiple of 16 lines apart have one
    /// more. `element_bytes` divide a line.
    pub fn aligned(extents: Extents, element_bytes: usize, x: usize) -> Self {
        let dense = Self::from(extents);
        let line = LINE / element_bytes;
        if dense.pitch < LONG_BYTES / element_bytes {
            return dense;
        }
        let before = x.saturating_mul(extents.components);
        let first = (line - before % line) % line;
        let whole_lines = dense.pitch.checked_next_multiple_of(line).unwrap_or(usize::MAX);
        let is_crowded = whole_lines.is_multiple_of(CROWDED_BYTES / element_bytes);
        let pitch = if is_crowded { whole_lines.saturating_add(line) } else { whole_lines };
        Self { first, pitch, ..dense }
    }

    /// Points and components, without what lies between rows.
    pub fn extents(self) -> Extents {
        self.extents
    }

    /// Elements of the memory in all, or `None` if there are more than can be addressed.
    pub fn elements(self) -> Option<usize> {
        let [planes, rows, _] = self.extents.points;
        planes.checked_mul(rows)?.checked_mul(self.pitch)?.checked_add(self.first)
    }

    /// Elements from one point to the next along each axis.
    pub fn strides(self) -> [usize; 3] {
        [self.extents.points[1] * self.pitch, self.pitch, self.extents.components]
    }

    /// The bytes from the first of those points to behind the last, also where they are beyond any memory: up to
    /// `usize::MAX` then.
    pub(crate) fn bytes(self, points: Tile, element_bytes: usize) -> Range<usize> {
        let offset = |[i, j, k]: [usize; 3]| {
            let row = i.saturating_mul(self.extents.points[1]).saturating_add(j);
            let before = row.saturating_mul(self.pitch).saturating_add(self.first);
            before.saturating_add(k.saturating_mul(self.extents.components))
        };
        let end = offset(points.end.map(|end| end.saturating_sub(1))).saturating_add(self.extents.components);
        offset(points.start).saturating_mul(element_bytes)..end.saturating_mul(element_bytes)
    }

    /// Elements from the beginning of the memory to the first component of a point.
    #[inline(always)]
    pub fn offset(self, [i, j, k]: [usize; 3]) -> usize {
        self.first + (i * self.extents.points[1] + j) * self.pitch + k * self.extents.components
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_rows_begin_with_a_line() {
        let extents = Extents { points: [3, 4, 66], components: 1 };
        let rows = Pitched::aligned(extents, 8, 1);
        assert_eq!((rows.first, rows.pitch), (7, 72));
        assert_eq!(rows.strides(), [288, 72, 1]);
        for (i, j) in extents.whole().rows() {
            assert!(rows.offset([i, j, 1]).is_multiple_of(8));
            assert!(rows.offset([i, j, 65]) < rows.elements().expect("they are few"));
        }
    }

    #[test]
    fn rows_do_not_crowd_in_the_first_level_cache() {
        let pitch = |x, element_bytes| {
            let extents = Extents { points: [3, 4, x], components: 1 };
            Pitched::aligned(extents, element_bytes, 1).pitch * element_bytes / LINE
        };
        assert_eq!([120, 121, 128, 129].map(|x| pitch(x, 8)), [15, 17, 17, 17]);
        assert_eq!([248, 252, 256, 257].map(|x| pitch(x, 8)), [31, 33, 33, 33]);
        assert_eq!([252, 257].map(|x| pitch(x, 4)), [17, 17]);
        assert_eq!([1022, 1025].map(|x| pitch(x, 1)), [17, 17]);
    }

    #[test]
    fn components_and_wide_halos_are_counted_in_elements() {
        let extents = Extents { points: [1, 2, 40], components: 3 };
        let rows = Pitched::aligned(extents, 4, 2);
        assert_eq!((rows.first, rows.pitch), (10, 128));
        assert_eq!(rows.offset([0, 1, 2]), 10 + 128 + 6);
        assert_eq!(rows.strides(), [256, 128, 3]);
    }

    #[test]
    fn short_rows_have_nothing_in_between() {
        let extents = Extents { points: [2, 3, 31], components: 1 };
        assert_eq!(Pitched::aligned(extents, 8, 1), extents.into());
        assert_eq!(Pitched::from(extents).elements(), Some(186));
    }

    #[test]
    fn more_than_can_be_addressed_is_none() {
        for points in [[2, 2, usize::MAX / 2], [usize::MAX, 2, 1], [1, 1, usize::MAX]] {
            let extents = Extents { points, components: 1 };
            assert_eq!(Pitched::from(extents).elements().is_none(), points[2] != usize::MAX);
            assert_eq!(Pitched::aligned(extents, 1, 1).elements(), None);
        }
    }
}
