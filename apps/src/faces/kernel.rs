//! The sum of the copies of every shared point, row by row.
//!
//! The point `i` of an element has a copy in the next element along an axis if it is the element's first or
//! last one there; the copies lie side by side. So a point has 1, 2, 4 or 8 copies. They are added as
//! pairs: along z, then along y, then along x. Addition commutes, so every copy gets the same bits, on
//! whichever rank it is and however the elements are split. Whole rows are added along z and y, which
//! the compiler turns into vector instructions; along x only the pairs at the ends of elements are.
//!
//! Points that are no element's first or last are not touched: both generations of the field hold them.

use streamhalo::prelude::Alternating;
use streamhalo::{HaloError, KernelText, Rows, RowsMut, Stream, Tile};

/// Layers of ghosts: local index 1 is the first point of an element.
const GHOSTS: usize = 1;

/// The kernel for devices that compile it: point by point what [`sum_copies`] does row by row.
pub(super) static SUM: KernelText =
    KernelText { name: "sum_of_copies", source: include_str!("kernel.cl"), reach: [1; 3] };

/// Enqueues the sums of the points of `tile`.
pub(super) fn launch_sum(
    stream: &Stream,
    order_points: usize,
    tile: Tile,
    points: &mut Alternating<f64, 3>,
) -> Result<(), HaloError> {
    let numbers = [(order_points as i64).into()];
    let arguments = points.now_and_next()?;
    stream.launch_either_with(&SUM, tile, arguments, &numbers, move |tile, (now, next)| {
        sum_copies(order_points, tile, now, next);
    })?;
    Ok(())
}

/// Sums the copies of the points in `tile`, with `points` points an element along each axis.
fn sum_copies(points: usize, tile: Tile, now: Rows<'_, f64>, mut next: RowsMut<'_, f64>) {
    if tile.points() == 0 {
        return; // a block that is all surface has nothing inside
    }
    let columns = Columns::new(points, tile);
    for (k, j) in tile.rows() {
        let row = |k, j| now.span(k, j, columns.read.clone());
        let sums = next.row(k, j);
        match (partner(k, points), partner(j, points)) {
            (None, None) => columns.sum([row(k, j)], sums, |[a]| *a),
            (Some(other), None) => columns.sum([row(k, j), row(other, j)], sums, |[a, b]| a + b),
            (None, Some(other)) => columns.sum([row(k, j), row(k, other)], sums, |[a, b]| a + b),
            (Some(k2), Some(j2)) => {
                let rows = [row(k, j), row(k2, j), row(k, j2), row(k2, j2)];
                columns.sum(rows, sums, |[a, b, c, d]| (a + b) + (c + d));
            }
        }
    }
}

/// Where a point's copy in the next element is along one axis, if it has one there; in local indices.
fn partner(index: usize, points: usize) -> Option<usize> {
    match within(index, points) {
        0 => Some(index - 1),
        last if last + 1 == points => Some(index + 1),
        _ => None,
    }
}

/// Which point of its element a local index is along an axis. Ghosts are points of elements too.
fn within(index: usize, points: usize) -> usize {
    (index + points - GHOSTS) % points
}

/// The columns of a tile, and those that are read for them.
struct Columns {
    points: usize,
    write: std::ops::Range<usize>,
    /// With the copies of the first and the last column, where these have any.
    read: std::ops::Range<usize>,
}

impl Columns {
    fn new(points: usize, tile: Tile) -> Self {
        let write = tile.start[2]..tile.end[2];
        let below = usize::from(within(write.start, points) == 0);
        let above = usize::from(within(write.end, points) == 0);
        Self { points, read: write.start - below..write.end + above, write }
    }

    /// One row of sums from the rows that hold copies of its points.
    #[inline(always)]
    fn sum<const ROWS: usize>(
        &self,
        rows: [&[f64]; ROWS],
        sums: &mut [f64],
        add: impl Fn([&f64; ROWS]) -> f64,
    ) {
        let first = self.write.start - self.read.start;
        if ROWS > 1 {
            let rows = rows.map(|row| &row[first..first + sums.len()]);
            for (column, sum) in sums.iter_mut().enumerate() {
                *sum = add(rows.each_ref().map(|row| &row[column]));
            }
        }
        // The pairs at the ends of elements. One of a pair can lie outside of the tile.
        let at = |column: usize| add(rows.each_ref().map(|row| &row[column]));
        let last_of_element = self.points - 1 - within(self.read.start, self.points);
        for left in (last_of_element..rows[0].len() - 1).step_by(self.points) {
            let sum = at(left) + at(left + 1);
            if left >= first {
                sums[left - first] = sum;
            }
            if let Some(right) = sums.get_mut(left + 1 - first) {
                *right = sum;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_lie_side_by_side() {
        // Two elements of three points behind one ghost: 0 | 1 2 3 | 4 5 6 | 7.
        let found: Vec<_> = (1..7).map(|index| partner(index, 3)).collect();
        assert_eq!(found, [Some(0), None, Some(4), Some(3), None, Some(7)]);
        // Elements of two points have nothing inside.
        assert_eq!((1..5).map(|index| partner(index, 2)).collect::<Vec<_>>(), [0, 3, 2, 5].map(Some));
    }

    #[test]
    fn a_tile_reads_no_more_than_the_copies_of_its_points() {
        let read = |start, end| Columns::new(3, Tile { start: [0, 0, start], end: [1, 1, end] }).read;
        assert_eq!(read(1, 7), 0..8);
        assert_eq!(read(2, 6), 2..6);
        assert_eq!(read(1, 2), 0..2);
        assert_eq!(read(4, 6), 3..6);
    }
}
