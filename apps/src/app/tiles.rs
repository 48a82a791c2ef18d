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
/// rows are whole where no other rank is along x, because two cells beside a row take as long as a row. Nothing
/// where there is no message to wait for.
pub(crate) fn inner_of<const D: usize>(grid: &LocalGrid<D>, halo: &StreamHalo) -> IndexBox<D> {
    let owned = grid.owned(Entity::Cell);
    if halo.routes().is_empty() {
        return IndexBox::new(owned.start, owned.start);
    }
    let layout = grid.subdomain().partition().layout();
    owned.shrink(layout.map(|ranks| usize::from(ranks > 1)))
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
