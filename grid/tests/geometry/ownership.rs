//! Who owns what, and what is where in a local array.

use crate::cases::{Case, case, flat, in_each_dimension, on_each_axis, whole};
use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;
use streamhalo_grid::Entity;

in_each_dimension!(each_entity_has_one_owner, 200, case);
fn each_entity_has_one_owner<const D: usize>(case: Case<D>) -> TestCaseResult {
    let grid = case.partition.grid();
    let extents = grid.entity_extents(case.entity);
    let mut owners = vec![None; extents.iter().product()];
    for rank in 0..case.partition.ranks() {
        for index in case.subdomain(rank).owned_global(case.entity).indices() {
            let owner = &mut owners[flat(extents, index)];
            prop_assert_eq!(*owner, None, "{:?} has two owners", index);
            *owner = Some(rank);
        }
    }
    for index in whole(extents).indices() {
        // The cell on the high side, or the last cell where there is none.
        let cell = std::array::from_fn(|axis| index[axis].min(grid.cells()[axis] - 1));
        let owner = owners[flat(extents, index)];
        prop_assert!(owner.is_some_and(|rank| case.partition.owned_cells(rank).contains(cell)));
    }
    Ok(())
}

in_each_dimension!(entities_are_counted, 200, case);
fn entities_are_counted<const D: usize>(case: Case<D>) -> TestCaseResult {
    let grid = case.partition.grid();
    // Each axis has its planes of nodes and its layers of cells; entities mix the two by axis.
    for axis in 0..D {
        let cells = grid.cells()[axis];
        let nodes = if grid.periodic()[axis] { cells } else { cells + 1 };
        let count = |entity| grid.entity_extents(entity)[axis];
        prop_assert_eq!(count(Entity::Cell), cells);
        prop_assert_eq!(count(Entity::Node), nodes);
        for other in 0..D {
            let same = other == axis;
            prop_assert_eq!(count(Entity::Face(other)), if same { nodes } else { cells });
            prop_assert_eq!(count(Entity::Edge(other)), if same { cells } else { nodes });
        }
    }
    Ok(())
}

in_each_dimension!(longer_parts_come_first, 200, case);
fn longer_parts_come_first<const D: usize>(case: Case<D>) -> TestCaseResult {
    let partition = &case.partition;
    for rank in 0..partition.ranks() {
        let coordinates = partition.coordinates(rank);
        let extents = partition.owned_cells(rank).extents();
        for axis in 0..D {
            let (cells, parts) = (partition.grid().cells()[axis], partition.layout()[axis]);
            let block_cells = partition.block_cells()[axis];
            let blocks = cells / block_cells;
            let longer = coordinates[axis] < blocks % parts;
            prop_assert_eq!(extents[axis], (blocks / parts + usize::from(longer)) * block_cells);
        }
    }
    Ok(())
}

in_each_dimension!(ranks_are_row_major, 200, case);
fn ranks_are_row_major<const D: usize>(case: Case<D>) -> TestCaseResult {
    let partition = &case.partition;
    let mut next = 0;
    for coordinates in whole(partition.layout()).indices() {
        prop_assert_eq!(partition.rank_at(coordinates), next);
        prop_assert_eq!(partition.coordinates(next), coordinates);
        prop_assert_eq!(case.subdomain(next).coordinates(), coordinates);
        prop_assert_eq!(case.subdomain(next).rank(), next);
        next += 1;
    }
    prop_assert_eq!(partition.ranks(), next);
    Ok(())
}

fn case_and_offset<const D: usize>() -> impl Strategy<Value = (Case<D>, [i32; D])> {
    let component = prop_oneof![4 => -9..=9, 1 => Just(i32::MIN), 1 => Just(i32::MAX)];
    (case::<D>(), on_each_axis(component))
}

in_each_dimension!(neighbors_wrap_or_end, 300, case_and_offset);
fn neighbors_wrap_or_end<const D: usize>((case, offset): (Case<D>, [i32; D])) -> TestCaseResult {
    let partition = &case.partition;
    for rank in 0..partition.ranks() {
        let target: [i64; D] = std::array::from_fn(|axis| {
            let target = partition.coordinates(rank)[axis] as i64 + i64::from(offset[axis]);
            let parts = partition.layout()[axis] as i64;
            let periodic = partition.grid().periodic()[axis];
            if periodic { target.rem_euclid(parts) } else { target }
        });
        let expected =
            (0..partition.ranks()).find(|&other| partition.coordinates(other).map(|c| c as i64) == target);
        prop_assert_eq!(partition.neighbor(rank, offset), expected);
        prop_assert_eq!(case.subdomain(rank).neighbor(offset), expected);
    }
    Ok(())
}

in_each_dimension!(local_arrays_hold_owned_and_ghosts, 200, case);
fn local_arrays_hold_owned_and_ghosts<const D: usize>(case: Case<D>) -> TestCaseResult {
    let entity = case.entity;
    for rank in 0..case.partition.ranks() {
        let here = case.subdomain(rank);
        let (owned, global) = (here.owned(entity), here.owned_global(entity));
        prop_assert_eq!(owned.extents(), global.extents());
        prop_assert_eq!(here.owned_extents(entity), global.extents());
        // Owned entries are the same, in the same order, locally and globally.
        for (local, global) in owned.indices().zip(global.indices()) {
            prop_assert_eq!(here.to_global(entity, local), Some(global));
        }
        for axis in 0..D {
            let [low, high] = here.ghost_widths(entity)[axis];
            prop_assert_eq!(owned.start[axis], low);
            prop_assert_eq!(here.extents(entity)[axis] - owned.end[axis], high);
            prop_assert_eq!(low, case.halo_width[axis]);
            // All nodes of all cells, ghost cells included: one more than cells.
            let cells = global_cells(&case, rank)[axis] + 2 * case.halo_width[axis];
            let node_like = usize::from(entity.is_node_like(axis));
            prop_assert_eq!(here.extents(entity)[axis], cells + node_like);
        }
    }
    Ok(())
}

fn global_cells<const D: usize>(case: &Case<D>, rank: usize) -> [usize; D] {
    case.partition.owned_cells(rank).extents()
}

in_each_dimension!(local_indices_wrap_or_end, 100, case);
fn local_indices_wrap_or_end<const D: usize>(case: Case<D>) -> TestCaseResult {
    let (entity, grid) = (case.entity, case.partition.grid());
    for rank in 0..case.partition.ranks() {
        let here = case.subdomain(rank);
        let owned_start = here.owned_global(entity).start;
        // Beyond the local array too: every other index up to three times round on the high side.
        let far = grid.cells().map(|cells| (3 * cells + 8).div_ceil(2));
        let locals = whole(far).indices().map(|index| index.map(|i| 2 * i));
        for local in whole(here.extents(entity)).indices().chain(locals) {
            let mut expected = Some([0; D]);
            for axis in 0..D {
                let position = owned_start[axis] as i64 + local[axis] as i64 - case.halo_width[axis] as i64;
                let extent = grid.entity_extents(entity)[axis] as i64;
                if grid.periodic()[axis] {
                    if let Some(global) = &mut expected {
                        global[axis] = position.rem_euclid(extent) as usize;
                    }
                } else if !(0..extent).contains(&position) {
                    expected = None;
                } else if let Some(global) = &mut expected {
                    global[axis] = position as usize;
                }
            }
            prop_assert_eq!(here.to_global(entity, local), expected);
        }
    }
    Ok(())
}

#[test]
fn indices_far_outside_of_the_local_array_wrap_without_overflow() {
    use streamhalo_grid::{GlobalGrid, Partition};
    let round = Partition::automatic(&GlobalGrid::new([10], [true]).unwrap(), 2).unwrap();
    let here = round.subdomain(1, [3]).unwrap();
    let expected = (5 + usize::MAX as u128 - 3) % 10;
    let found = here.to_global(Entity::Cell, [usize::MAX]);
    assert_eq!(found, Some([expected as usize]));
    let bounded = Partition::automatic(&GlobalGrid::new([10], [false]).unwrap(), 2).unwrap();
    let here = bounded.subdomain(1, [3]).unwrap();
    assert_eq!(here.to_global(Entity::Cell, [usize::MAX]), None);
}
