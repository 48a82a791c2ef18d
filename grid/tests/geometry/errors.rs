//! Misuse, down to the exact variant, its data and its message.

use streamhalo_grid::{Entity, GlobalGrid, GridError, Partition, Subdomain};

fn grid_2d(periodic: bool) -> GlobalGrid<2> {
    GlobalGrid::new([7, 8], [periodic; 2]).unwrap()
}

fn partition_2d(layout: [usize; 2], periodic: bool) -> Partition<2> {
    Partition::with_layout(&grid_2d(periodic), layout, layout[0] * layout[1]).unwrap()
}

fn subdomain_2d() -> Subdomain<2> {
    partition_2d([2, 2], true).subdomain(0, [2, 1]).unwrap()
}

#[track_caller]
fn assert_error<T: std::fmt::Debug>(found: Result<T, GridError>, error: GridError, message: &str) {
    let found = found.unwrap_err();
    assert_eq!(found, error);
    assert_eq!(found.to_string(), message);
}

#[test]
fn zero_cells() {
    assert_error(
        GlobalGrid::new([4, 0, 3], [true; 3]),
        GridError::ZeroCells { axis: 1, cells: vec![4, 0, 3] },
        "axis 1 has 0 cells (of [4, 0, 3]): give every axis at least 1",
    );
}

#[test]
fn too_many_cells() {
    let limit = isize::MAX as usize / 4;
    let half = 1 << (usize::BITS / 2);
    assert_error(
        GlobalGrid::new([half, half], [true; 2]),
        GridError::TooManyEntries { extents: vec![half + 1, half + 1], limit },
        &format!(
            "[{0}, {0}] cells, or nodes at their corners, ghosts included, are more than {limit} in all: use fewer cells or a narrower halo",
            half + 1
        ),
    );
    assert!(GlobalGrid::new([usize::MAX], [false]).is_err());
    assert!(GlobalGrid::new([limit], [false]).is_err());
    assert!(GlobalGrid::new([limit - 1], [false]).is_ok());
}

#[test]
fn too_many_ghosts() {
    // Nothing fills the ghosts of an axis that is neither periodic nor split, so any width is
    // allowed there that can be counted.
    let partition = partition_2d([1, 1], false);
    assert!(partition.subdomain(0, [1000, 1000]).is_ok());
    assert_eq!(
        partition.subdomain(0, [1, usize::MAX / 2 + 1]).unwrap_err(),
        GridError::TooManyEntries { extents: vec![10, usize::MAX], limit: isize::MAX as usize / 4 }
    );
}

#[test]
fn entity_axis() {
    assert_error(
        Entity::Face(3).check(2),
        GridError::EntityAxis { entity: Entity::Face(3), axis: 3, dimensions: 2 },
        "there is no face normal to axis 3 on a grid with 2 axes: axis must be below 2, not 3",
    );
    assert_eq!(
        subdomain_2d().check_exchange(Entity::Edge(2), [1, 1]),
        Err(GridError::EntityAxis { entity: Entity::Edge(2), axis: 2, dimensions: 2 })
    );
    for entity in [Entity::Cell, Entity::Node, Entity::Face(1), Entity::Edge(0)] {
        assert_eq!(entity.check(2), Ok(()));
    }
}

#[test]
#[should_panic(expected = "there is no edge along axis 2 on a grid with 2 axes")]
fn extents_of_an_entity_that_does_not_exist() {
    let _ = subdomain_2d().extents(Entity::Edge(2));
}

#[test]
fn zero_ranks() {
    let message = "a grid cannot be split over 0 ranks: give at least 1";
    let grid = grid_2d(true);
    assert_error(Partition::automatic(&grid, 0), GridError::ZeroRanks, message);
    let given = Partition::with_layout(&grid, [1, 1], 0);
    assert_error(given, GridError::ZeroRanks, message);
}

#[test]
fn no_layout() {
    assert_error(
        Partition::automatic(&grid_2d(true), 11),
        GridError::NoLayout { ranks: 11, cells: vec![7, 8], below: 10, above: Some(12) },
        "[7, 8] cells cannot be split over 11 ranks with at least one cell each on every axis: use 10 or 12 ranks",
    );
    assert_error(
        Partition::automatic(&grid_2d(true), 57),
        GridError::NoLayout { ranks: 57, cells: vec![7, 8], below: 56, above: None },
        "[7, 8] cells cannot be split over 57 ranks with at least one cell each on every axis: use at most 56 ranks",
    );
}

#[test]
fn layout_axis() {
    assert_error(
        Partition::with_layout(&grid_2d(true), [1, 9], 9),
        GridError::LayoutAxis { axis: 1, parts: 9, cells: 8, layout: vec![1, 9] },
        "layout [1, 9] splits the 8 cells of axis 1 into 9 parts: use 1 to 8 parts there",
    );
    assert_error(
        Partition::with_layout(&grid_2d(true), [0, 4], 4),
        GridError::LayoutAxis { axis: 0, parts: 0, cells: 7, layout: vec![0, 4] },
        "layout [0, 4] splits the 7 cells of axis 0 into 0 parts: use 1 to 7 parts there",
    );
}

#[test]
fn layout_product() {
    assert_error(
        Partition::with_layout(&grid_2d(true), [2, 3], 4),
        GridError::LayoutProduct { layout: vec![2, 3], product: 6, ranks: 4 },
        "layout [2, 3] makes 6 subdomains for 4 ranks: the product of its factors must be 4",
    );
}

#[test]
fn zero_factor() {
    let error = GridError::ZeroFactor { axis: 1, factors: vec![2, 0] };
    let message = "axis 1 has the factor 0 (of [2, 0]): use at least 1, which leaves an axis as it is";
    assert_error(partition_2d([2, 2], true).refined([2, 0]), error.clone(), message);
    assert_error(partition_2d([2, 2], true).coarsened([2, 0]), error, message);
}

#[test]
fn refined_too_far() {
    let limit = isize::MAX as usize / 4;
    let found = partition_2d([2, 2], true).refined([1, usize::MAX / 2]).unwrap_err();
    assert_eq!(found, GridError::TooManyEntries { extents: vec![8, usize::MAX], limit });
}

#[test]
fn cells_that_are_no_multiple() {
    assert_error(
        partition_2d([1, 2], true).coarsened(2),
        GridError::CellsNoMultiple { axis: 0, cells: 7, factor: 2 },
        "the 7 cells of axis 0 cannot be coarsened by 2, of which they are no multiple: make the coarsest grid first and refine it (`Decomposition::refined`)",
    );
}

#[test]
fn cuts_that_are_no_multiple() {
    let grid = GlobalGrid::new([18, 16], [false, true]).unwrap();
    let along = |layout| Partition::with_layout(&grid, layout, 2).unwrap();
    assert!(along([1, 2]).coarsened(2).is_ok());
    let error = |axis, cut, factor, layout: [usize; 2], fitting: Option<[usize; 2]>| {
        let (layout, fitting) = (layout.to_vec(), fitting.map(|fitting| fitting.to_vec()));
        GridError::CutNoMultiple { axis, cut, factor, layout, fitting }
    };
    assert_error(
        along([2, 1]).coarsened(2),
        error(0, 9, 2, [2, 1], Some([1, 2])),
        "axis 0 cannot be coarsened by 2 in layout [2, 1]: ranks meet at cell 9, which is no multiple of it; partition the coarsest grid and refine it (`Decomposition::refined`), or use layout [1, 2] (by `partition_as`)",
    );
    // There is no other where axis 1 is not coarsened into so few.
    assert_error(
        along([2, 1]).coarsened([2, 16]),
        error(0, 9, 2, [2, 1], None),
        "axis 0 cannot be coarsened by 2 in layout [2, 1]: ranks meet at cell 9, which is no multiple of it; partition the coarsest grid and refine it (`Decomposition::refined`)",
    );
}

#[test]
fn rank_out_of_range() {
    assert_error(
        partition_2d([2, 2], true).subdomain(4, [1, 1]),
        GridError::RankOutOfRange { rank: 4, ranks: 4 },
        "there is no rank 4 among 4 ranks: use 0 to 3",
    );
}

#[test]
#[should_panic(expected = "there is no rank 4 among 4 ranks")]
fn coordinates_of_a_rank_that_does_not_exist() {
    let _ = partition_2d([2, 2], true).coordinates(4);
}

#[test]
#[should_panic(expected = "there is no part 2 on axis 1 of layout [2, 2]")]
fn rank_at_coordinates_that_do_not_exist() {
    let _ = partition_2d([2, 2], true).rank_at([0, 2]);
}

#[test]
fn subdomain_too_thin_on_every_rank() {
    // Parts of 3, 2 and 2 cells: the halo fits rank 0, but not the others.
    for rank in 0..3 {
        assert_error(
            partition_2d([3, 1], false).subdomain(rank, [3, 1]),
            GridError::SubdomainTooThin {
                axis: 0,
                thinnest_cells: 2,
                halo_width: 3,
                layout: vec![3, 1],
                fitting: None,
            },
            "a halo width of 3 on axis 0 is more than the 2 cells of the thinnest subdomain of layout [3, 1]: use a halo width of at most 2, or fewer parts on axis 0 (by `partition_as` or fewer ranks) or more cells there",
        );
        assert!(partition_2d([3, 1], false).subdomain(rank, [2, 9]).is_ok());
    }
    // One part on a periodic axis is its own neighbour, and counts.
    assert_error(
        partition_2d([3, 1], true).subdomain(0, [2, 9]),
        GridError::SubdomainTooThin {
            axis: 1,
            thinnest_cells: 8,
            halo_width: 9,
            layout: vec![3, 1],
            fitting: None,
        },
        "a halo width of 9 on axis 1 is more than the 8 cells of the thinnest subdomain of layout [3, 1]: use a halo width of at most 8, or more cells on axis 1",
    );
}

#[test]
fn exchange_too_wide() {
    assert_error(
        subdomain_2d().check_exchange(Entity::Cell, [2, 2]),
        GridError::ExchangeTooWide { axis: 1, width: 2, halo_width: 1 },
        "an exchange of 2 layers on axis 1 is wider than the halo, which has 1: exchange at most 1, or make the subdomain with a wider halo",
    );
}

#[test]
fn too_few_owned_on_every_rank() {
    // Parts of 3, 2 and 2 cells: rank 1 must fill three nodes of rank 0 and owns two.
    for rank in 0..3 {
        let here = partition_2d([3, 1], false).subdomain(rank, [2, 1]).unwrap();
        assert_eq!(here.check_exchange(Entity::Face(1), [2, 1]), Ok(()));
        assert_error(
            here.check_exchange(Entity::Face(0), [2, 1]),
            GridError::TooFewOwned {
                entity: Entity::Face(0),
                axis: 0,
                width: 2,
                thinnest: 2,
                needed: 3,
                layout: vec![3, 1],
            },
            "an exchange of 2 layers (face normal to axis 0) on axis 0 takes 3 owned entries from each rank, but the thinnest subdomain of layout [3, 1] owns 2: exchange fewer layers, or use fewer parts on axis 0 (by `partition_as` or fewer ranks) or more cells there",
        );
    }
    // One part has no ranks to do without.
    assert_error(
        partition_2d([3, 1], true).subdomain(0, [2, 8]).unwrap().check_exchange(Entity::Node, [1, 8]),
        GridError::TooFewOwned {
            entity: Entity::Node,
            axis: 1,
            width: 8,
            thinnest: 8,
            needed: 9,
            layout: vec![3, 1],
        },
        "an exchange of 8 layers (node) on axis 1 takes 9 owned entries from each rank, but the thinnest subdomain of layout [3, 1] owns 8: exchange fewer layers, or use more cells on axis 1",
    );
}

#[test]
#[should_panic(expected = "3 layers (node) cannot be sent along axis 0 by a rank that owns 2")]
fn sending_more_than_is_owned() {
    let here = partition_2d([3, 1], false).subdomain(1, [2, 1]).unwrap();
    let _ = here.send_box(Entity::Node, [-1, 0], [2, 1]);
}

#[test]
#[should_panic(expected = "offset [0, 2] is 2 on axis 1")]
fn boxes_of_neighbors_that_are_not_direct() {
    let _ = subdomain_2d().recv_box(Entity::Cell, [0, 2], [1, 1]);
}

#[test]
#[should_panic(expected = "an exchange of 2 layers on axis 1 is wider than the halo, which has 1")]
fn boxes_wider_than_the_halo() {
    let _ = subdomain_2d().recv_box(Entity::Cell, [0, 1], [1, 2]);
}
