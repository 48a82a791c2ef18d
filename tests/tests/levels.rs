//! Grids of several levels: ranks that restrict and prolong with no more than their own part of each level and its ghosts,
//! and what is refused where levels look alike and are not.

use streamhalo::comm::backend::BACKENDS;
use streamhalo::grid::GridError;
use streamhalo::ndarray::ArrayD;
use streamhalo::{Array, Entity, GlobalGrid, HaloError, Pattern, Stream, StreamHalo, World};
use streamhalo_tests::{KINDS, Scenario, each_way, on_ranks, same_on_all, stream_of};

/// A field with its exchange.
type Level = (Array<f64, 2>, StreamHalo);

/// What an entry is made of along an axis: entries of the other level, counted from its one ghost on, each with a weight.
type Weights = fn(is_node_like: bool, entry: usize) -> Vec<(usize, f64)>;

fn restriction(is_node_like: bool, entry: usize) -> Vec<(usize, f64)> {
    let weights: &[f64] = if is_node_like { &[0.25, 0.5, 0.25] } else { &[0.125, 0.375, 0.375, 0.125] };
    weights.iter().enumerate().map(|(place, weight)| (2 * entry + place, *weight)).collect()
}

fn prolongation(is_node_like: bool, entry: usize) -> Vec<(usize, f64)> {
    let own = entry / 2 + 1;
    match (is_node_like, entry % 2) {
        (true, 0) => vec![(own, 1.0)],
        (true, _) => vec![(own, 0.5), (own + 1, 0.5)],
        (false, 0) => vec![(own - 1, 0.25), (own, 0.75)],
        (false, _) => vec![(own, 0.75), (own + 1, 0.25)],
    }
}

/// The values of a level with their ghosts.
fn exchanged((field, halo): &mut Level) -> Result<ArrayD<f64>, HaloError> {
    halo.gather(field)?;
    Ok(field.copy_with_ghosts()?)
}

/// Adds to a level what it gets from the other one.
fn add((field, _): &mut Level, other: &ArrayD<f64>, weights: Weights) -> Result<(), HaloError> {
    let entity = field.entity();
    field.with_owned_mut(|mut owned| {
        for (at, value) in owned.indexed_iter_mut() {
            for (y, by_row) in weights(entity.is_node_like(0), at[0]) {
                for (x, by_column) in weights(entity.is_node_like(1), at[1]) {
                    *value += by_row * by_column * other[[y, x]];
                }
            }
        }
    })?;
    Ok(())
}

/// Down to the coarsest of three levels and up again: the bits of the finest one, on rank 0.
fn cycle(
    world: &World,
    layout: [usize; 2],
    (periodic, entity): ([bool; 2], Entity),
    way: Scenario,
) -> Result<Option<Vec<u64>>, HaloError> {
    let stream = stream_of(world, way.kind)?;
    let coarsest = GlobalGrid::new([7, 5], periodic)?.partition_as(world, layout)?;
    let mut levels: Vec<Level> = Vec::new();
    for factor in [4, 2, 1] {
        let grid = coarsest.refined(factor)?.local(1)?;
        let mut field = Array::zeros(&grid, entity, &stream)?;
        let halo = StreamHalo::new(world, &stream, way.backend, Pattern::All, 1, &mut field)?;
        levels.push((field, halo));
    }
    levels[0].0.fill(|[y, x], _| 1.0 / (1 + 31 * y + x) as f64)?;
    for (fine, coarse) in [(0, 1), (1, 2)] {
        let values = exchanged(&mut levels[fine])?;
        add(&mut levels[coarse], &values, restriction)?;
    }
    for (coarse, fine) in [(2, 1), (1, 0)] {
        let values = exchanged(&mut levels[coarse])?;
        add(&mut levels[fine], &values, prolongation)?;
    }
    let whole = levels[0].0.collect(0)?;
    Ok(whole.map(|whole| whole.iter().map(|value| value.to_bits()).collect()))
}

#[test]
fn a_cycle_over_three_levels_has_the_bits_of_one_rank() {
    for periodic in [[true, false], [false, true]] {
        for entity in [Entity::Cell, Entity::Node, Entity::Face(0)] {
            let of = (periodic, entity);
            let alone = Scenario { backend: BACKENDS[0].name, kind: KINDS[0] };
            let expected = on_ranks(1, |world| cycle(world, [1, 1], of, alone)).remove(0);
            for layout in [[1, 1], [2, 1], [3, 2]] {
                on_ranks(layout[0] * layout[1], |world| {
                    for way in each_way() {
                        let found = cycle(world, layout, of, way)?;
                        let is_right = world.rank() != 0 || found == expected;
                        assert!(is_right, "{way:?} in layout {layout:?} of {of:?}");
                    }
                    Ok(())
                });
            }
        }
    }
}

/// On 18 cells, of which one rank has 10 and the other 8; or each 9.
fn line(world: &World, stream: &Stream, is_refined: bool) -> Result<Array<u8, 1>, GridError> {
    let cells = |cells| GlobalGrid::new([cells], [true])?.partition(world);
    let grid = if is_refined { cells(9)?.refined(2)? } else { cells(18)? };
    Array::zeros(&grid.local(1)?, Entity::Cell, stream)
}

#[test]
fn as_many_cells_that_are_cut_elsewhere_are_another_grid() {
    let [mixed, apart, collected] = same_on_all(on_ranks(2, |world| {
        let stream = stream_of(world, KINDS[0])?;
        let mut fields = (line(world, &stream, false)?, line(world, &stream, true)?);
        let mixed = StreamHalo::new(world, &stream, "st-send", Pattern::All, 1, &mut fields);
        let mut odd = line(world, &stream, world.rank() == 1)?;
        let apart = StreamHalo::new(world, &stream, "st-send", Pattern::All, 1, &mut odd);
        let collected = odd.collect(0).expect_err("ranks collect others").to_string();
        let [mixed, apart] = [mixed, apart].map(|refused| refused.expect_err("other cuts").to_string());
        Ok([mixed, apart, collected])
    }));
    let blocks =
        "it has a grid dealt out in blocks of [2] cells, field 0 a grid dealt out in blocks of [1] cells";
    assert!(mixed.contains(blocks), "{mixed}");
    assert!(
        apart.contains("rank 1") && apart.contains("blocks of [2] cells, not blocks of [1] cells"),
        "{apart}"
    );
    assert!(
        collected.contains("in layout [2] of blocks of [2] cells, on")
            && collected.contains("in layout [2], on"),
        "{collected}"
    );
}

#[test]
fn levels_that_do_not_nest_and_halos_that_do_not_fit_name_a_layout_that_does() {
    on_ranks(2, |world| {
        // Cut at 18, at 9, and then inside of a cell.
        let fine = GlobalGrid::new([36], [false])?.partition(world)?;
        let error = fine.coarsened(2)?.coarsened(2).expect_err("9 is no multiple of 2");
        let expected =
            GridError::CutNoMultiple { axis: 0, cut: 9, factor: 2, layout: vec![2], fitting: None };
        assert_eq!(error, expected);
        assert!(error.to_string().contains("`Decomposition::refined`"), "{error}");
        // 10 and 8 rows, where 18 alone would be cut in the middle and fit.
        let levels = GlobalGrid::new([9, 8], [false; 2])?.partition_as(world, [2, 1])?.refined(2)?;
        let error = levels.local([9, 0]).expect_err("8 rows");
        let GridError::SubdomainTooThin { thinnest_cells: 8, fitting, .. } = &error else {
            panic!("{error}")
        };
        assert_eq!(*fitting, Some(vec![1, 2]), "{error}");
        Ok(())
    });
}
