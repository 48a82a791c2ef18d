//! Tiles of cells: with some layers of ghosts where exchanges are rare, and in two parts where the first
//! is computed before an exchange ends.

use streamhalo::{Entity, IndexBox, LocalGrid, StreamHalo};

/// The owned cells and `layers` of ghosts around them, but nothing beyond a boundary that is not
/// periodic: what is there stays as it is because nobody ever writes it.
pub(crate) fn with_ghosts<const D: usize>(grid: &LocalGrid<D>, layers: usize) -> IndexBox<D> {
    let mut cells = grid.owned(Entity::Cell);
    for axis in 0..D {
        let has_neighbor = |side: i32| {
            let mut offset = [0; D];
            offset[axis] = side;
            grid.neighbor(offset).is_some()
        };
        if has_neighbor(-1) {
            cells.start[axis] -= layers;
        }
        if has_neighbor(1) {
            cells.end[axis] += layers;
        }
    }
    cells
}

/// The part of the owned cells that needs no ghosts of other ranks, to be computed while these are on their way:
/// rows are whole where no other rank is along x. Where one is, `columns` cells at either end are left for later, or
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
    let layout = grid.subdomain().partition().layout();
    owned.shrink(layers_for_later(layout, owned.extents(), columns))
}

/// How many layers of cells along each axis are left for when ghosts have come.
fn layers_for_later<const D: usize>(layout: [usize; D], cells: [usize; D], columns: usize) -> [usize; D] {
    let mut layers = layout.map(|ranks| usize::from(ranks > 1));
    layers[D - 1] *= columns.min(cells[D - 1] / 4).max(1);
    layers
}

/// The boxes that make up `whole` without `inner`, which lies in it: at most two for each axis, the
/// slowest first.
pub(crate) fn shell<const D: usize>(whole: IndexBox<D>, inner: IndexBox<D>) -> Vec<IndexBox<D>> {
    if inner.is_empty() {
        return if whole.is_empty() { Vec::new() } else { vec![whole] };
    }
    let mut rest = whole;
    let mut shell = Vec::with_capacity(2 * D);
    for axis in 0..D {
        let (mut low, mut high) = (rest, rest);
        low.end[axis] = inner.start[axis];
        high.start[axis] = inner.end[axis];
        rest.start[axis] = inner.start[axis];
        rest.end[axis] = inner.end[axis];
        shell.extend([low, high].into_iter().filter(|slab| !slab.is_empty()));
    }
    shell
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_of_rows_are_as_wide_as_a_vector_where_they_are_cut() {
        assert_eq!(layers_for_later([2, 1, 2], [64, 64, 64], 8), [1, 0, 8]);
        assert_eq!(layers_for_later([1, 3, 1], [64, 64, 64], 8), [0, 1, 0]);
        assert_eq!(layers_for_later([1, 1, 4], [64, 64, 20], 8), [0, 0, 5]);
        assert_eq!(layers_for_later([1, 1, 4], [64, 64, 3], 8), [0, 0, 1]);
        assert_eq!(layers_for_later([2, 2], [9, 9], 1), [1, 1]);
    }

    #[test]
    fn a_shell_and_what_is_inside_are_the_whole_once() {
        let whole = IndexBox::new([1, 2, 3], [5, 6, 9]);
        for inner in [
            whole.shrink([1, 1, 1]),
            whole,
            IndexBox::new([1, 3, 3], [5, 4, 8]),
            IndexBox::new([2, 2, 2], [2, 3, 3]),
        ] {
            let shell = shell(whole, inner);
            for index in whole.indices() {
                let times = shell.iter().chain([&inner]).filter(|part| part.contains(index)).count();
                assert_eq!(times, 1, "{index:?} of {inner:?}");
            }
            assert_eq!(shell.iter().map(IndexBox::len).sum::<usize>() + inner.len(), whole.len());
        }
    }
}
