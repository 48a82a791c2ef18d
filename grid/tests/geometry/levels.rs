//! Levels that nest: what is refined and coarsened, rank by rank.

use streamhalo_grid::{Entity, GlobalGrid, GridError, IndexBox, Partition};

/// Every way to split a few cells into a few parts.
fn each_axis() -> impl Iterator<Item = Partition<1>> {
    let cells_and_parts = (1..=13).flat_map(|cells| (1..=cells.min(6)).map(move |parts| (cells, parts)));
    cells_and_parts.flat_map(|(cells, parts)| [true, false].map(|periodic| along(cells, parts, periodic)))
}

fn along(cells: usize, parts: usize, periodic: bool) -> Partition<1> {
    Partition::with_layout(&GlobalGrid::new([cells], [periodic]).unwrap(), [parts], parts).unwrap()
}

/// Where the parts begin, and where the last one ends.
fn cuts(partition: &Partition<1>) -> Vec<usize> {
    let parts = (0..partition.ranks()).map(|rank| partition.owned_cells(rank));
    let ends: Vec<_> = parts.clone().map(|part| part.end[0]).collect();
    let starts: Vec<_> = parts.map(|part| part.start[0]).collect();
    assert_eq!(starts[1..], ends[..ends.len() - 1], "parts follow each other");
    [&starts[..], &ends[ends.len() - 1..]].concat()
}

fn times(cuts: &[usize], factor: usize) -> Vec<usize> {
    cuts.iter().map(|cut| cut * factor).collect()
}

#[test]
fn refined_cells_are_of_the_rank_that_has_the_coarse_one() {
    for coarse in each_axis() {
        for factor in 1..=5 {
            let fine = coarse.refined(factor).unwrap();
            assert_eq!(fine.layout(), coarse.layout());
            assert_eq!(fine.grid().periodic(), coarse.grid().periodic());
            assert_eq!(fine.grid().cells()[0], coarse.grid().cells()[0] * factor);
            assert_eq!(cuts(&fine), times(&cuts(&coarse), factor));
            assert_eq!(fine.coarsened([factor]), Ok(coarse), "the way back");
            for rank in 0..coarse.ranks() {
                let [coarse, fine] = [coarse, fine].map(|level| level.subdomain(rank, [0]).unwrap());
                // A node is where every so many of the fine ones are, which have the owner of that one.
                let [coarse, fine] = [coarse, fine].map(|part| part.owned_global(Entity::Node));
                let of_both = (fine.start[0]..fine.end[0]).filter(|node| node % factor == 0);
                assert_eq!(
                    of_both.collect::<Vec<_>>(),
                    times(&(coarse.start[0]..coarse.end[0]).collect::<Vec<_>>(), factor)
                );
            }
        }
    }
}

#[test]
fn refinements_add_up_and_partitions_that_cut_alike_are_equal() {
    for coarse in each_axis() {
        for (first, second) in [(2, 2), (2, 3), (3, 2), (1, 4), (4, 1)] {
            let middle = coarse.refined(first).unwrap();
            let fine = middle.refined(second).unwrap();
            assert_eq!(fine, coarse.refined(first * second).unwrap());
            assert_eq!(fine.coarsened(second), Ok(middle));
            let alone = along(fine.grid().cells()[0], fine.ranks(), fine.grid().periodic()[0]);
            assert_eq!(fine == alone, cuts(&fine) == cuts(&alone), "{fine:?} and {alone:?}");
        }
    }
}

#[test]
fn what_can_be_coarsened_is_and_nothing_else() {
    for coarsest in each_axis() {
        for partition in [coarsest, coarsest.refined(4).unwrap(), coarsest.refined(6).unwrap()] {
            let cuts = cuts(&partition);
            let (cut, cells) = (&cuts[..cuts.len() - 1], cuts[cuts.len() - 1]);
            for factor in 1..=13 {
                let found = partition.coarsened(factor);
                let inside = cut.iter().find(|cut| *cut % factor != 0);
                match (cells % factor, inside) {
                    (0, None) => assert_eq!(times(&self::cuts(&found.unwrap()), factor), cuts),
                    (0, Some(inside)) => {
                        let Err(GridError::CutNoMultiple { cut, fitting, .. }) = &found else {
                            panic!("{found:?}")
                        };
                        assert_eq!(cut, inside);
                        // In one dimension there is one layout: what is of other blocks may fit without them.
                        let alone = along(cells, partition.ranks(), partition.grid().periodic()[0]);
                        let layout = alone.coarsened(factor).ok().map(|_| vec![partition.ranks()]);
                        assert_eq!(*fitting, layout);
                    }
                    _ => assert_eq!(found, Err(GridError::CellsNoMultiple { axis: 0, cells, factor })),
                }
            }
        }
    }
}

#[test]
fn axes_have_factors_and_blocks_of_their_own() {
    let grid = GlobalGrid::new([5, 6, 7], [false, true, false]).unwrap();
    let coarse = Partition::with_layout(&grid, [2, 3, 2], 12).unwrap();
    let fine = coarse.refined([3, 2, 4]).unwrap();
    assert_eq!(fine.grid(), &GlobalGrid::new([15, 12, 28], [false, true, false]).unwrap());
    assert_eq!(fine.block_cells(), [3, 1, 4], "1 where parts are as long as each other");
    for rank in 0..12 {
        let IndexBox { start, end } = coarse.owned_cells(rank);
        let times = |at: [usize; 3]| [3 * at[0], 2 * at[1], 4 * at[2]];
        assert_eq!(fine.owned_cells(rank), IndexBox::new(times(start), times(end)));
    }
    assert_eq!(fine.coarsened([3, 1, 2]).unwrap().grid().cells(), [5, 12, 14]);
    assert_eq!(fine.surface(), 12 * 28 + 3 * 15 * 28 + 15 * 12, "wherever the cuts are");
}

#[test]
fn the_thinnest_part_is_one_of_whole_blocks() {
    // 3 + 2 + 2 cells: 12, 8 and 8 of the fine ones, where 28 alone were 10, 9 and 9.
    let fine = along(7, 3, false).refined(4).unwrap();
    assert!(fine.subdomain(0, [8]).is_ok());
    let thin = fine.subdomain(0, [9]).unwrap_err();
    assert!(matches!(thin, GridError::SubdomainTooThin { thinnest_cells: 8, .. }), "{thin}");
    assert!(along(28, 3, false).subdomain(0, [9]).is_ok());
}
