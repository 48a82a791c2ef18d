//! The automatic layout against brute force.

use crate::cases::{check, in_each_dimension, on_each_axis, whole};
use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;
use streamhalo_grid::{GlobalGrid, GridError, IndexBox, Partition};

fn grid_and_ranks<const D: usize>() -> impl Strategy<Value = (GlobalGrid<D>, usize)> {
    let most_cells = [16_usize, 9, 6][D - 1];
    (on_each_axis((1..=most_cells, any::<bool>())), 1..=[18_usize, 30, 30][D - 1]).prop_map(
        |(axes, ranks): ([(usize, bool); D], usize)| {
            let grid = GlobalGrid::new(axes.map(|axis| axis.0), axes.map(|axis| axis.1));
            (grid.unwrap(), ranks)
        },
    )
}

/// Every layout of `ranks` ranks with at least one cell each, by trying all combinations.
fn all_layouts<const D: usize>(grid: &GlobalGrid<D>, ranks: usize) -> Vec<Partition<D>> {
    let ends = grid.cells().map(|cells| cells + 1);
    IndexBox::new([1; D], ends)
        .indices()
        .filter(|layout| layout.iter().product::<usize>() == ranks)
        .map(|layout| Partition::with_layout(grid, layout, ranks).unwrap())
        .collect()
}

/// The number of pairs of adjacent cells that different ranks own, pair by pair.
fn counted_surface<const D: usize>(partition: &Partition<D>) -> usize {
    let grid = partition.grid();
    let owner =
        |cell: [usize; D]| (0..partition.ranks()).find(|&rank| partition.owned_cells(rank).contains(cell));
    let mut surface = 0;
    for cell in whole(grid.cells()).indices() {
        for axis in 0..D {
            let mut next = cell;
            next[axis] += 1;
            if next[axis] == grid.cells()[axis] {
                if !grid.periodic()[axis] {
                    continue;
                }
                next[axis] = 0;
            }
            surface += usize::from(owner(cell) != owner(next));
        }
    }
    surface
}

in_each_dimension!(automatic_layouts_have_least_surface, 150, grid_and_ranks);
fn automatic_layouts_have_least_surface<const D: usize>(
    (grid, ranks): (GlobalGrid<D>, usize),
) -> TestCaseResult {
    // The tie rule: more parts on the slowest axis on which two layouts differ.
    let mut expected = all_layouts(&grid, ranks);
    expected.sort_by_key(|partition| (counted_surface(partition), partition.layout().map(std::cmp::Reverse)));
    match (expected.first(), Partition::by_surface(&grid, ranks)) {
        (Some(best), Ok(found)) => {
            prop_assert_eq!(&found, &expected);
            prop_assert_eq!(&Partition::automatic(&grid, ranks).unwrap(), best);
            for partition in found {
                prop_assert_eq!(partition.surface(), counted_surface(&partition) as u128);
            }
        }
        (None, Err(error)) => {
            let works = |&count: &usize| !all_layouts(&grid, count).is_empty();
            let most = grid.cells().iter().product::<usize>();
            let expected = GridError::NoLayout {
                ranks,
                cells: grid.cells().to_vec(),
                below: (1..ranks).rev().find(works).unwrap(),
                above: (ranks + 1..=most).find(works),
            };
            prop_assert_eq!(error, expected);
        }
        (best, found) => prop_assert!(false, "{:?} expected, {:?} found", best, found),
    }
    Ok(())
}

#[test]
fn equal_surfaces_split_the_slower_axis() {
    for periodic in [false, true] {
        let square = GlobalGrid::new([8, 8], [periodic; 2]).unwrap();
        assert_eq!(Partition::automatic(&square, 2).unwrap().layout(), [2, 1]);
        let cube = GlobalGrid::new([8; 3], [periodic; 3]).unwrap();
        assert_eq!(Partition::automatic(&cube, 2).unwrap().layout(), [2, 1, 1]);
        // Four planes round a periodic axis are as much as two on each of two axes.
        let four = if periodic { [4, 1, 1] } else { [2, 2, 1] };
        assert_eq!(Partition::automatic(&cube, 4).unwrap().layout(), four);
    }
}

#[test]
fn a_cut_through_a_periodic_axis_counts_twice() {
    // Split along axis 0 the cut has 6 cells, along axis 1 it would have 2 x 5 where it wraps round.
    let grid = GlobalGrid::new([5, 6], [false, true]).unwrap();
    assert_eq!(Partition::automatic(&grid, 2).unwrap().layout(), [2, 1]);
    let grid = GlobalGrid::new([5, 6], [true, false]).unwrap();
    assert_eq!(Partition::automatic(&grid, 2).unwrap().layout(), [1, 2]);
}

#[test]
fn given_layouts_are_kept() {
    check(100, grid_and_ranks::<3>(), |(grid, ranks)| {
        for partition in all_layouts(&grid, ranks) {
            prop_assert_eq!(partition.ranks(), ranks);
            prop_assert_eq!(partition.grid(), &grid);
        }
        Ok(())
    });
}

#[test]
fn large_numbers_of_ranks_are_laid_out_at_once() {
    let grid = GlobalGrid::new([100_000, 100_000, 100_000], [true; 3]).unwrap();
    let partition = Partition::automatic(&grid, 1 << 20).unwrap();
    assert_eq!(partition.ranks(), 1 << 20);
    let absurd = Partition::automatic(&grid, usize::MAX).unwrap_err();
    let GridError::NoLayout { below, above, .. } = absurd else {
        panic!("{absurd}");
    };
    assert_eq!((below, above), (1_000_000_000_000_000, None));
}
