//! What needs no ghosts of other ranks, and what may be computed with some.

use crate::cases::{Case, case, flat, in_each_dimension, on_each_axis};
use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;

/// Wider than the halo too, and than a subdomain.
fn case_and_width<const D: usize>() -> impl Strategy<Value = (Case<D>, [usize; D])> {
    let width = prop_oneof![9 => 0..=5_usize, 1 => Just(usize::MAX)];
    (case::<D>(), on_each_axis(width))
}

in_each_dimension!(inner_entries_meet_no_other_rank, 300, case_and_width);
fn inner_entries_meet_no_other_rank<const D: usize>((case, width): (Case<D>, [usize; D])) -> TestCaseResult {
    let (entity, grid) = (case.entity, case.partition.grid());
    let extents = grid.entity_extents(entity);
    let mut owners = vec![0; extents.iter().product()];
    for rank in 0..case.partition.ranks() {
        for index in case.subdomain(rank).owned_global(entity).indices() {
            owners[flat(extents, index)] = rank;
        }
    }
    for rank in 0..case.partition.ranks() {
        let here = case.subdomain(rank);
        // The entry so many layers from another one along an axis is of another rank, where there is one.
        let is_of_other = |mut index: [usize; D], axis: usize, layers: i64| {
            let (position, extent) = (index[axis] as i64 + layers, extents[axis] as i64);
            if !grid.periodic()[axis] && !(0..extent).contains(&position) {
                return false;
            }
            index[axis] = position.rem_euclid(extent) as usize;
            owners[flat(extents, index)] != rank
        };
        let (owned, inner) = (here.owned(entity), here.inner(entity, width));
        for (local, global) in owned.indices().zip(here.owned_global(entity).indices()) {
            let meets_other = (0..D).any(|axis| {
                // Once round the grid all are met.
                let layers = width[axis].min(extents[axis]) as i64;
                (-layers..=layers).any(|layers| is_of_other(global, axis, layers))
            });
            prop_assert_eq!(inner.contains(local), !meets_other, "rank {} at {:?}", rank, local);
        }
        prop_assert!(inner.is_empty() || inner.indices().all(|index| owned.contains(index)));
    }
    Ok(())
}

in_each_dimension!(outer_entries_are_those_of_the_grid_so_far_away, 300, case_and_width);
fn outer_entries_are_those_of_the_grid_so_far_away<const D: usize>(
    (case, width): (Case<D>, [usize; D]),
) -> TestCaseResult {
    let (entity, grid) = (case.entity, case.partition.grid());
    let extents = grid.entity_extents(entity);
    for rank in 0..case.partition.ranks() {
        let here = case.subdomain(rank);
        let layers: [usize; D] = std::array::from_fn(|axis| width[axis].min(here.halo_width()[axis]));
        let (owned, global) = (here.owned(entity), here.owned_global(entity));
        let outer = here.outer(entity, layers);
        for axis in 0..D {
            // The node that is shared with the neighbour behind comes with its layers.
            let shared = here.ghost_widths(entity)[axis][1] - here.halo_width()[axis];
            let positions = -(layers[axis] as i64)..(owned.extents()[axis] + layers[axis] + shared) as i64;
            let exists = |position: &i64| {
                let on_grid = 0..extents[axis] as i64;
                grid.periodic()[axis] || on_grid.contains(&(global.start[axis] as i64 + position))
            };
            let there: Vec<i64> = positions.filter(exists).map(|at| at + owned.start[axis] as i64).collect();
            let found: Vec<i64> = (outer.start[axis]..outer.end[axis]).map(|at| at as i64).collect();
            prop_assert_eq!(found, there, "rank {}, axis {}, {:?}", rank, axis, layers);
        }
    }
    Ok(())
}
