//! The two kernels of a cycle: one sets all owned cells, the other looks at all ghosts.

use std::sync::atomic::{AtomicU64, Ordering};

use streamhalo::{Rows, RowsMut, Tile};

use super::numbering::{Turn, Whereabouts, row};
use crate::app::values::Real;

/// Sets the owned cells of `tile`. `shift` is what local indices are before global ones.
pub(super) fn set<T: Real>(
    cells: [usize; 3],
    shift: [isize; 3],
    turn: Turn,
    tile: Tile,
    mut values: RowsMut<'_, T>,
) {
    let global = |local: usize, axis: usize| local.wrapping_add_signed(shift[axis]);
    for (z, y) in tile.rows() {
        let numbers = row(cells, [global(z, 0), global(y, 1), global(tile.start[2], 2)], turn);
        for (value, number) in values.row(z, y).iter_mut().zip(numbers) {
            *value = T::from_f64(number.into());
        }
    }
}

/// Counts the entries of `tile` that do not hold what they must.
pub(super) fn count_wrong<T: Real>(
    here: &Whereabouts,
    turn: Turn,
    tile: Tile,
    values: Rows<'_, T>,
    wrong: &AtomicU64,
) {
    for (z, y) in tile.rows() {
        let columns = tile.start[2]..tile.end[2];
        let found = values.span(z, y, columns.clone()).iter().zip(columns);
        let count =
            found.filter(|(value, x)| value.to_f64() != f64::from(here.number([z, y, *x], turn))).count();
        if count > 0 {
            wrong.fetch_add(count as u64, Ordering::Relaxed);
        }
    }
}
