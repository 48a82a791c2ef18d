//! The two kernels of a cycle: one sets all owned cells, the other looks at all ghosts.

use streamhalo::{KernelText, Rows, RowsMut, Tile};

use super::numbering::{Turn, Whereabouts, row};
use crate::app::real_texts;
use crate::app::values::Real;

/// The same for devices that compile them, entry by entry.
pub(super) static SET: [KernelText; 2] =
    real_texts!("set_cells", [0; 3], include_str!("number.cl"), "set.cl");
pub(super) static LOOK: [KernelText; 2] =
    real_texts!("look_at_ghosts", [0; 3], include_str!("number.cl"), "look.cl");

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

/// Counts for each entry of `tile` how often it has not held what it must.
pub(super) fn count_wrong<T: Real>(
    here: &Whereabouts,
    turn: Turn,
    tile: Tile,
    values: Rows<'_, T>,
    mut wrong: RowsMut<'_, i32>,
) {
    for (z, y) in tile.rows() {
        let columns = tile.start[2]..tile.end[2];
        let found = values.span(z, y, columns.clone()).iter().zip(columns);
        for ((value, x), count) in found.zip(wrong.row(z, y)) {
            *count += i32::from(value.to_f64() != f64::from(here.number([z, y, x], turn)));
        }
    }
}
