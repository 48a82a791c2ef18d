//! A complete exchange with plain vectors: every ghost has one right value, known from its global
//! index, and none is written twice.

use crate::cases::{Case, all_offsets, case, flat, in_each_dimension, whole};
use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;
use streamhalo_grid::{Entity, GlobalGrid, GridError, Partition};

/// What ghosts hold before the exchange, and beyond a boundary also after it.
const SENTINEL: usize = usize::MAX;

in_each_dimension!(every_ghost_gets_its_value_once, 300, case);
fn every_ghost_gets_its_value_once<const D: usize>(case: Case<D>) -> TestCaseResult {
    let (entity, width) = (case.entity, case.exchange_width);
    let ranks: Vec<_> = (0..case.partition.ranks()).map(|rank| case.subdomain(rank)).collect();
    // Whether it must succeed is checked by `refused_where_neighbors_own_too_little`.
    prop_assume!(ranks[0].check_exchange(entity, width).is_ok());
    let global_extents = case.partition.grid().entity_extents(entity);
    let value = |global| flat(global_extents, global);

    let before: Vec<Vec<usize>> = ranks
        .iter()
        .map(|here| {
            whole(here.extents(entity))
                .indices()
                .map(|local| match here.to_global(entity, local) {
                    Some(global) if here.owned(entity).contains(local) => value(global),
                    _ => SENTINEL,
                })
                .collect()
        })
        .collect();

    let mut after = before.clone();
    let mut writes: Vec<Vec<u32>> = before.iter().map(|array| vec![0; array.len()]).collect();
    for (rank, here) in ranks.iter().enumerate() {
        for offset in all_offsets::<D>() {
            let sent = here.send_box(entity, offset, width);
            let Some(peer) = here.neighbor(offset) else {
                prop_assert!(sent.is_empty());
                prop_assert!(here.recv_box(entity, offset, width).is_empty());
                continue;
            };
            let there = &ranks[peer];
            let received = there.recv_box(entity, offset.map(|component| -component), width);
            prop_assert_eq!(sent.extents(), received.extents());
            prop_assert_eq!(sent.is_empty(), (0..D).any(|axis| offset[axis] != 0 && width[axis] == 0));
            for (from, to) in sent.indices().zip(received.indices()) {
                prop_assert!(here.owned(entity).contains(from));
                prop_assert!(!there.owned(entity).contains(to));
                let to = flat(there.extents(entity), to);
                after[peer][to] = before[rank][flat(here.extents(entity), from)];
                writes[peer][to] += 1;
            }
        }
    }

    for (rank, here) in ranks.iter().enumerate() {
        let (owned, extents) = (here.owned(entity), here.extents(entity));
        for local in whole(extents).indices() {
            // Filled are the ghosts no further away than the width, and on a node-like axis the
            // shared node before those on the high side; a width of 0 takes no part.
            let inside = (0..D).all(|axis| {
                let shared = width[axis] > 0 && entity.is_node_like(axis);
                let low = owned.start[axis] - width[axis];
                let high = owned.end[axis] + width[axis] + usize::from(shared);
                (low..high).contains(&local[axis])
            });
            let expected = match here.to_global(entity, local) {
                Some(global) if inside => value(global),
                _ => SENTINEL,
            };
            let position = flat(extents, local);
            prop_assert_eq!(after[rank][position], expected, "rank {} at {:?}", rank, local);
            let ghost = expected != SENTINEL && !owned.contains(local);
            prop_assert_eq!(writes[rank][position], u32::from(ghost));
        }
    }
    Ok(())
}

in_each_dimension!(refused_where_neighbors_own_too_little, 500, case);
fn refused_where_neighbors_own_too_little<const D: usize>(case: Case<D>) -> TestCaseResult {
    let verdict = case.subdomain(0).check_exchange(case.entity, case.exchange_width);
    for rank in 1..case.partition.ranks() {
        let other = case.subdomain(rank);
        prop_assert_eq!(&other.check_exchange(case.entity, case.exchange_width), &verdict);
    }
    let refused_axis = (0..D).find(|&axis| reaches_too_far(&case, axis));
    match verdict {
        Ok(()) => prop_assert_eq!(refused_axis, None),
        Err(GridError::TooFewOwned { axis, .. }) => prop_assert_eq!(refused_axis, Some(axis)),
        Err(other) => prop_assert!(false, "{}", other),
    }
    Ok(())
}

/// Whether some rank has a ghost on `axis` that is not owned by its direct neighbours. The axis is
/// laid out flat, three times round where it is periodic, one letter per position for its owner.
fn reaches_too_far<const D: usize>(case: &Case<D>, axis: usize) -> bool {
    let grid = case.partition.grid();
    let (parts, periodic) = (case.partition.layout()[axis], grid.periodic()[axis]);
    let rounds = if periodic { 3 } else { 1 };
    let node_like = case.entity.is_node_like(axis);
    let mut owners: Vec<usize> = Vec::new();
    for turn in 0..rounds * parts {
        let mut coordinates = [0; D];
        coordinates[axis] = turn % parts;
        let rank = case.partition.rank_at(coordinates);
        let cells = case.partition.owned_cells(rank).extents()[axis];
        owners.extend(std::iter::repeat_n(turn, cells));
    }
    if node_like && !periodic {
        owners.push(parts - 1);
    }
    let width = case.exchange_width[axis];
    let high_width = width + usize::from(width > 0 && node_like);
    let middle = if periodic { parts..2 * parts } else { 0..parts };
    middle.into_iter().any(|turn| {
        let first = owners.iter().position(|&owner| owner == turn).unwrap();
        let last = owners.iter().rposition(|&owner| owner == turn).unwrap();
        let lowest = first.saturating_sub(width);
        let highest = (last + high_width).min(owners.len() - 1);
        // With three turns of one part each the highest reach is cut off above, so count it as far.
        let cut_off = periodic && last + high_width >= owners.len();
        cut_off || owners[lowest] + 1 < turn || owners[highest] > turn + 1
    })
}

#[test]
fn a_subdomain_may_be_as_thin_as_its_halo() {
    let grid = GlobalGrid::new([6], [true]).unwrap();
    let partition = Partition::with_layout(&grid, [3], 3).unwrap();
    let here = partition.subdomain(0, [2]).unwrap();
    assert_eq!(here.check_exchange(Entity::Cell, [2]), Ok(()));
    // Three nodes would be needed, and two are owned.
    assert!(here.check_exchange(Entity::Node, [2]).is_err());
    assert_eq!(here.check_exchange(Entity::Node, [1]), Ok(()));
}

#[test]
fn the_first_and_the_last_rank_may_be_as_thin_as_a_node_halo_without_periodicity() {
    // Rank 0 fills no high ghosts, and the last rank owns the node on the boundary as well.
    let grid = GlobalGrid::new([4], [false]).unwrap();
    let partition = Partition::with_layout(&grid, [2], 2).unwrap();
    let here = partition.subdomain(0, [2]).unwrap();
    assert_eq!(here.check_exchange(Entity::Node, [2]), Ok(()));
}
