//! Tiles of cells in two parts, of which the first is computed before an exchange ends.

use streamhalo::{Entity, IndexBox, LocalGrid, StreamHalo};

/// The part of the owned cells that needs no ghosts of other ranks, to be computed while these are on their way:
/// rows are whole where no other rank is along x. Where one is, `columns` cells at that end are left for later, or
/// a quarter of a row: as many as the application computes in the time of one. Nothing where there is no message to
/// wait for.
pub(crate) fn inner_of<const D: usize>(
    grid: &LocalGrid<D>,
    halo: &StreamHalo,
    columns: usize,
) -> IndexBox<D> {
    let owned = grid.owned(Entity::Cell);
    if halo.routes().is_empty() {
        return IndexBox::new(owned.start, owned.start);
    }
    grid.inner(Entity::Cell, layers_for_later(owned.extents(), columns))
}

/// How many layers of cells towards other ranks along each axis are left for when ghosts have come.
fn layers_for_later<const D: usize>(cells: [usize; D], columns: usize) -> [usize; D] {
    let mut layers = [1; D];
    layers[D - 1] = columns.min(cells[D - 1] / 4).max(1);
    layers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_of_rows_are_as_wide_as_a_vector_where_they_are_cut() {
        assert_eq!(layers_for_later([64, 64, 64], 8), [1, 1, 8]);
        assert_eq!(layers_for_later([64, 64, 20], 8), [1, 1, 5]);
        assert_eq!(layers_for_later([64, 64, 3], 8), [1, 1, 1]);
        assert_eq!(layers_for_later([9, 9], 1), [1, 1]);
    }
}
