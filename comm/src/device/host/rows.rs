//! Arrays as kernels of the host see them: row by row.

use crate::device::pitched::Pitched;
use crate::device::tile::Tile;
use crate::element::Element;
use crate::error::why_unreadable;
use std::marker::PhantomData;
use std::ops::Range;

/// An array as a kernel reads it: row by row.
#[derive(Debug, Clone, Copy)]
pub struct Rows<'a, T> {
    base: *const T,
    rows: Pitched,
    bounds: Tile,
    lifetime: PhantomData<&'a T>,
}

impl<'a, T: Element> Rows<'a, T> {
    /// The points within `bounds` of an array.
    ///
    /// # Safety
    /// `base` is the memory of an array of such `rows`, in which `bounds` lie, and nobody writes those during `'a`.
    pub(super) unsafe fn new(base: *const T, rows: Pitched, bounds: Tile) -> Self {
        Self { base, rows, bounds, lifetime: PhantomData }
    }

    /// The points `x` of the row at `i` on axis 0 and `j` on axis 1, all in local indices: the
    /// components of each point next to each other. Two-dimensional arrays have `i = 0`.
    ///
    /// # Panics
    /// If the points are not in the array, or are ghosts that an exchange may be filling: an
    /// error of the stream, which names the kernel.
    #[inline(always)]
    #[track_caller]
    pub fn span(&self, i: usize, j: usize, x: Range<usize>) -> &'a [T] {
        let [span] = self.spans(i, j, x);
        span
    }

    /// The points `x` of as many rows as the array has, one behind the other along axis 1 from `j` on: each as
    /// [`Rows::span`] gives it, and looked up together, for kernels that compute several rows side by side.
    ///
    /// # Panics
    /// As [`Rows::span`], if any of the points may not be read.
    #[inline(always)]
    #[track_caller]
    pub fn spans<const N: usize>(&self, i: usize, j: usize, x: Range<usize>) -> [&'a [T]; N] {
        self.plane(i, j..j.saturating_add(N), x).rows(0)
    }

    /// The points `x` of the rows `js` on axis 1 at `i` on axis 0: looked up once for all of them, for kernels that go
    /// through them some at a time.
    ///
    /// # Panics
    /// As [`Rows::span`], if any of the points may not be read.
    #[inline(always)]
    #[track_caller]
    pub fn plane(&self, i: usize, js: Range<usize>, x: Range<usize>) -> Plane<'a, T> {
        let Tile { start, end } = self.bounds;
        let are_readable = start[0] <= i
            && i < end[0]
            && start[1] <= js.start
            && js.start <= js.end
            && js.end <= end[1]
            && start[2] <= x.start
            && x.start <= x.end
            && x.end <= end[2];
        if !are_readable {
            unreadable(i, js, x, self.bounds, self.rows.extents().whole());
        }
        let elements = (x.end - x.start) * self.rows.extents().components;
        // Of no rows at the array's end there may be nothing, but it is not read either.
        let first = self.base.wrapping_add(self.rows.offset([i, js.start, x.start]));
        Plane { first, pitch: self.rows.pitch, rows: js.end - js.start, elements, lifetime: PhantomData }
    }

    /// All points of a row that may be read, ghosts included where they may.
    #[inline(always)]
    #[track_caller]
    pub fn row(&self, i: usize, j: usize) -> &'a [T] {
        self.span(i, j, self.bounds.start[2]..self.bounds.end[2])
    }
}

/// Panics in the kernel's name: the line that it names is the kernel's.
#[cold]
#[inline(never)]
#[track_caller]
fn unreadable(i: usize, js: Range<usize>, x: Range<usize>, bounds: Tile, array: Tile) -> ! {
    let points = Tile { start: [i, js.start, x.start], end: [i.saturating_add(1), js.end, x.end] };
    panic!(
        "points {}..{} of {} row(s) from ({}, {}) on are not all in {bounds}, which may be read: {}",
        x.start as isize,
        x.end as isize,
        js.len(),
        i as isize,
        js.start as isize,
        why_unreadable(&points, &array)
    );
}

/// Points of rows that lie one behind the other along axis 1, the same of each.
#[derive(Debug, Clone, Copy)]
pub struct Plane<'a, T> {
    first: *const T,
    pitch: usize,
    rows: usize,
    elements: usize,
    lifetime: PhantomData<&'a T>,
}

impl<'a, T: Element> Plane<'a, T> {
    /// As many rows as the array has, from the `from`-th on.
    ///
    /// # Panics
    /// If there are not so many.
    #[inline(always)]
    #[track_caller]
    pub fn rows<const N: usize>(&self, from: usize) -> [&'a [T]; N] {
        assert!(
            from <= self.rows && N <= self.rows - from,
            "{N} rows from {from} on are not among {}",
            self.rows
        );
        // Behind the last row there may be nothing, but then none is asked for.
        let first = self.first.wrapping_add(from * self.pitch);
        std::array::from_fn(|row| {
            let first = first.wrapping_add(row * self.pitch);
            // SAFETY: there is such a row by the assertion, and `Rows::plane` has checked that the points may be read; the
            // launch that the kernel writes none of them, the stream orders other kernels, and peers write only ghosts,
            // outside of the bounds then.
            unsafe { std::slice::from_raw_parts(first, self.elements) }
        })
    }
}

impl<'a, T: Element> Plane<'a, T> {
    /// Each row, in order.
    #[inline(always)]
    pub fn each(&self) -> Each<'a, T> {
        Each { rows: self.windows(0) }
    }

    /// As many rows side by side as the arrays have, from the `from`-th on, then from the next one on, and so forth
    /// to the last of them: as [`slice::windows`] of rows. Arrays of no rows do not compile.
    ///
    /// # Panics
    /// If there are fewer rows than `from`.
    #[inline(always)]
    #[track_caller]
    pub fn windows<const N: usize>(&self, from: usize) -> Windows<'a, T, N> {
        const { assert!(N > 0, "there is no end to windows of no rows") };
        assert!(from <= self.rows, "row {from} is not among {}", self.rows);
        // Where the first of no rows would be, there may be nothing.
        let first = self.first.wrapping_add(from * self.pitch);
        Windows { rest: Plane { first, rows: self.rows - from, ..*self } }
    }
}

/// Rows side by side, one further each time. See [`Plane::windows`].
#[derive(Debug, Clone)]
pub struct Windows<'a, T, const N: usize> {
    rest: Plane<'a, T>,
}

impl<'a, T: Element, const N: usize> Iterator for Windows<'a, T, N> {
    type Item = [&'a [T]; N];

    #[inline(always)]
    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.rows < N {
            return None;
        }
        let rows = self.rest.rows(0);
        self.rest.rows -= 1;
        // Behind the last row there may be nothing, but it is not read either.
        self.rest.first = self.rest.first.wrapping_add(self.rest.pitch);
        Some(rows)
    }
}

/// Rows, one behind the other. See [`Plane::each`].
#[derive(Debug, Clone)]
pub struct Each<'a, T> {
    rows: Windows<'a, T, 1>,
}

impl<'a, T: Element> Iterator for Each<'a, T> {
    type Item = &'a [T];

    // Not a map over windows, which need not be inlined into kernels.
    #[inline(always)]
    fn next(&mut self) -> Option<Self::Item> {
        let [row] = self.rows.next()?;
        Some(row)
    }
}

/// The part of an array that a kernel writes: row by row, within its tile.
#[derive(Debug)]
pub struct RowsMut<'a, T> {
    base: *mut T,
    rows: Pitched,
    tile: Tile,
    lifetime: PhantomData<&'a mut T>,
}

impl<T: Element> RowsMut<'_, T> {
    /// The points of a tile of an array.
    ///
    /// # Safety
    /// `base` is the memory of an array of such `rows`, in which the tile lies, and nobody else has access to that part of
    /// it meanwhile.
    pub(super) unsafe fn new(base: *mut T, rows: Pitched, tile: Tile) -> Self {
        Self { base, rows, tile, lifetime: PhantomData }
    }

    /// The part within the tile of the row at `i` on axis 0 and `j` on axis 1 of local indices:
    /// the tile's points along x, the components of each next to each other.
    ///
    /// # Panics
    /// If the row is not in the tile: an error of the stream, which names the kernel.
    #[inline(always)]
    #[track_caller]
    pub fn row(&mut self, i: usize, j: usize) -> &mut [T] {
        let tile = self.tile;
        assert!(
            (tile.start[0]..tile.end[0]).contains(&i) && (tile.start[1]..tile.end[1]).contains(&j),
            "row ({i}, {j}) is not in the tile {tile:?}"
        );
        // SAFETY: the row is in the tile by the assertion, and `&mut self` lends one at a time.
        unsafe { row_of_tile(self.base, self.rows, tile, i, j) }
    }

    /// The parts within the tile of the rows `js` on axis 1 at `i` on axis 0, in order: looked up once for all of them.
    ///
    /// # Panics
    /// As [`RowsMut::row`], if any of the rows is not in the tile.
    #[inline(always)]
    #[track_caller]
    pub fn plane(&mut self, i: usize, js: Range<usize>) -> PlaneMut<'_, T> {
        let tile = self.tile;
        assert!(
            (tile.start[0]..tile.end[0]).contains(&i)
                && tile.start[1] <= js.start
                && js.start <= js.end
                && js.end <= tile.end[1],
            "{} rows from ({i}, {}) on are not in the tile {tile:?}",
            js.len(),
            js.start
        );
        let elements = (tile.end[2] - tile.start[2]) * self.rows.extents().components;
        // Of no rows at the array's end there may be nothing, but it is not written either.
        let first = self.base.wrapping_add(self.rows.offset([i, js.start, tile.start[2]]));
        PlaneMut { first, pitch: self.rows.pitch, rows: js.end - js.start, elements, lifetime: PhantomData }
    }

    /// The parts within the tile of all its rows, in order, for kernels that write several rows
    /// side by side. Each is as [`RowsMut::row`] gives it.
    #[inline(always)]
    pub fn rows(&mut self) -> impl Iterator<Item = &mut [T]> {
        let (base, rows, tile) = (self.base, self.rows, self.tile);
        // SAFETY: the rows are those of the tile, each is lent once, and `&mut self` is borrowed for
        // as long as any of them lives.
        tile.rows().map(move |(i, j)| unsafe { row_of_tile(base, rows, tile, i, j) })
    }
}

/// Parts within a tile of rows that lie one behind the other along axis 1, in order.
#[derive(Debug)]
pub struct PlaneMut<'a, T> {
    first: *mut T,
    pitch: usize,
    rows: usize,
    elements: usize,
    lifetime: PhantomData<&'a mut T>,
}

impl<'a, T: Element> Iterator for PlaneMut<'a, T> {
    type Item = &'a mut [T];

    #[inline(always)]
    fn next(&mut self) -> Option<Self::Item> {
        self.rows = self.rows.checked_sub(1)?;
        // SAFETY: there was one more row; `RowsMut::plane` has checked that all are in the tile, which is borrowed for as
        // long as any of them lives, and each is lent once.
        let row = unsafe { std::slice::from_raw_parts_mut(self.first, self.elements) };
        // Behind the last row there may be nothing, but it is not written either.
        self.first = self.first.wrapping_add(self.pitch);
        Some(row)
    }
}

/// The part of a row that lies in a tile.
///
/// # Safety
/// `base` is the memory of an array of such `rows` of which the caller may write the points of `tile`;
/// (`i`, `j`) is a row of the tile; and nothing else has access to that part of it during `'a`.
#[inline(always)]
unsafe fn row_of_tile<'a, T>(base: *mut T, rows: Pitched, tile: Tile, i: usize, j: usize) -> &'a mut [T] {
    // SAFETY: the row's part lies within the array, since the tile does.
    let first = unsafe { base.add(rows.offset([i, j, tile.start[2]])) };
    // SAFETY: as above; tiles of one launch do not overlap, and the caller lends the row once.
    unsafe {
        std::slice::from_raw_parts_mut(first, (tile.end[2] - tile.start[2]) * rows.extents().components)
    }
}

// SAFETY: shared read access to plain elements.
unsafe impl<T: Element> Send for Rows<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Element> Sync for Rows<'_, T> {}
// SAFETY: exclusive access to elements of its own tile.
unsafe impl<T: Element> Send for RowsMut<'_, T> {}
