//! A box of indices, and walking over it.

use std::array::from_fn;
use std::iter::FusedIterator;

/// A half-open box of indices: on each axis those from `start` up to, but not including, `end`.
///
/// Axis 0 is the slowest. A box is empty where `end` is not above `start` on some axis; empty boxes
/// at different places are not equal.
///
/// ```
/// use streamhalo_grid::IndexBox;
/// let owned = IndexBox::new([1, 1], [4, 6]);
/// assert_eq!(owned.extents(), [3, 5]);
/// let interior = owned.shrink([1, 1]); // what does not depend on ghosts
/// assert_eq!(interior.indices().collect::<Vec<_>>(), [[2, 2], [2, 3], [2, 4]]);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct IndexBox<const D: usize> {
    /// The lowest index on each axis.
    pub start: [usize; D],
    /// One above the highest index on each axis.
    pub end: [usize; D],
}

/// A side of a box along an axis.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Side {
    /// That of the lowest index.
    Low,
    /// That of the highest index.
    High,
}

impl<const D: usize> IndexBox<D> {
    /// The box from `start` up to, but not including, `end`.
    pub const fn new(start: [usize; D], end: [usize; D]) -> Self {
        Self { start, end }
    }

    /// The number of indices on each axis, 0 where `end` is not above `start`.
    pub fn extents(&self) -> [usize; D] {
        from_fn(|axis| self.end[axis].saturating_sub(self.start[axis]))
    }

    /// The number of indices in the box: the product of its extents, `usize::MAX` where that is more.
    pub fn len(&self) -> usize {
        self.extents().into_iter().fold(1, usize::saturating_mul)
    }

    /// Whether there is no index in the box.
    pub fn is_empty(&self) -> bool {
        (0..D).any(|axis| self.start[axis] >= self.end[axis])
    }

    /// Whether an index is in both boxes.
    pub fn meets(&self, other: &Self) -> bool {
        (0..D).all(|axis| self.start[axis].max(other.start[axis]) < self.end[axis].min(other.end[axis]))
    }

    /// Whether `index` is in the box.
    pub fn contains(&self, index: [usize; D]) -> bool {
        (0..D).all(|axis| (self.start[axis]..self.end[axis]).contains(&index[axis]))
    }

    /// The box without its outermost `width` indices, on both sides of each axis. An axis with
    /// fewer than 2 × `width` indices has none left.
    pub fn shrink(&self, width: [usize; D]) -> Self {
        let start: [usize; D] = from_fn(|axis| {
            let last = self.end[axis].max(self.start[axis]);
            self.start[axis].saturating_add(width[axis]).min(last)
        });
        let end = from_fn(|axis| self.end[axis].saturating_sub(width[axis]).max(start[axis]));
        Self { start, end }
    }

    /// The boxes that make up this one without `inner`: at most two for each axis, the slowest first. The rim that is
    /// left when an exchange has ended, where [`inner`](crate::Subdomain::inner) is what was computed meanwhile.
    ///
    /// ```
    /// use streamhalo_grid::IndexBox;
    /// let owned = IndexBox::new([1, 1], [5, 7]);
    /// let rim = owned.without(IndexBox::new([1, 2], [4, 6]));
    /// let [below, left, right] = rim[..] else { panic!("there is nothing above") };
    /// assert_eq!(below, IndexBox::new([4, 1], [5, 7]));
    /// assert_eq!(left, IndexBox::new([1, 1], [4, 2]));
    /// assert_eq!(right, IndexBox::new([1, 6], [4, 7]));
    /// ```
    pub fn without(&self, inner: Self) -> Vec<Self> {
        if !self.meets(&inner) {
            return if self.is_empty() { Vec::new() } else { vec![*self] };
        }
        let mut rest = *self;
        let mut rim = Vec::with_capacity(2 * D);
        for axis in 0..D {
            let (mut low, mut high) = (rest, rest);
            rest.start[axis] = inner.start[axis].max(rest.start[axis]);
            rest.end[axis] = inner.end[axis].min(rest.end[axis]);
            low.end[axis] = rest.start[axis];
            high.start[axis] = rest.end[axis];
            rim.extend([low, high].into_iter().filter(|part| !part.is_empty()));
        }
        rim
    }

    /// All indices of the box in row-major order: the last axis runs fastest.
    pub fn indices(&self) -> Indices<D> {
        Indices { bounds: *self, next: self.start, remaining: self.len() }
    }
}

/// The indices of an [`IndexBox`] in row-major order, made by [`IndexBox::indices`].
#[derive(Clone, Debug)]
pub struct Indices<const D: usize> {
    bounds: IndexBox<D>,
    next: [usize; D],
    remaining: usize,
}

impl<const D: usize> Iterator for Indices<D> {
    type Item = [usize; D];

    fn next(&mut self) -> Option<[usize; D]> {
        self.remaining = self.remaining.checked_sub(1)?;
        let index = self.next;
        for axis in (0..D).rev() {
            self.next[axis] += 1;
            if self.next[axis] < self.bounds.end[axis] {
                break;
            }
            self.next[axis] = self.bounds.start[axis];
        }
        Some(index)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.remaining, Some(self.remaining))
    }
}

impl<const D: usize> ExactSizeIterator for Indices<D> {}
impl<const D: usize> FusedIterator for Indices<D> {}
