//! Arrays as applications see them: views and their shapes, filling, copying with ghosts, and what
//! is refused while peers may be writing.

use streamhalo::comm::Error;
use streamhalo::grid::{GridError, Side};
use streamhalo::{
    Alternating, Array, Entity, GlobalGrid, HaloError, LocalGrid, Pattern, Rows, RowsMut, StreamHalo, Tile,
    World,
};
use streamhalo_tests::{KINDS, Scenario, each_way, on_ranks, stream_of};

fn plane(world: &World) -> Result<LocalGrid<2>, HaloError> {
    Ok(GlobalGrid::new([6, 5], [true, false])?.partition_as(world, [world.size(), 1])?.local([2, 1])?)
}

#[test]
fn views_have_the_axes_of_the_grid_and_one_for_several_components() {
    on_ranks(2, |world| {
        for kind in KINDS {
            let stream = stream_of(world, kind)?;
            let line = GlobalGrid::new([9], [true])?.partition(world)?.local(2)?;
            let space = GlobalGrid::new([6, 4, 5], [false; 3])?.partition(world)?.local([1, 0, 2])?;
            let cells = 5 - world.rank();
            let mut points = Array::<u8, 1>::zeros(&line, Entity::Cell, &stream)?;
            assert_eq!(points.owned()?.shape(), [cells]);
            assert_eq!(points.owned_mut()?.shape(), [cells]);
            assert_eq!(points.copy_with_ghosts()?.shape(), [cells + 4]);
            let pairs = Array::<u8, 1>::with_components(&line, Entity::Cell, 2, &stream)?;
            assert_eq!(pairs.owned()?.shape(), [cells, 2]);
            assert_eq!(pairs.copy_with_ghosts()?.shape(), [cells + 4, 2]);
            // The last rank of a bounded axis owns the nodes of its boundary.
            let last = world.rank();
            let mut nodes = Array::<f64, 3>::with_components(&space, Entity::Node, 3, &stream)?;
            assert_eq!(nodes.owned()?.shape(), [3 + last, 5, 6, 3]);
            assert_eq!(nodes.owned_mut()?.shape(), [3 + last, 5, 6, 3]);
            assert_eq!(nodes.copy_with_ghosts()?.shape(), [3 + 2 + 1, 5, 6 + 4, 3]);
            let faces = Array::<f64, 3>::zeros(&space, Entity::Face(2), &stream)?;
            assert_eq!(faces.owned()?.shape(), [3, 4, 6]);
            assert_eq!((faces.entity(), faces.components()), (Entity::Face(2), 1));
            assert_eq!(faces.owned_box(), space.owned(Entity::Face(2)));
        }
        Ok(())
    });
}

#[test]
fn filling_goes_by_global_index_and_views_see_it() {
    on_ranks(3, |world| {
        for kind in KINDS {
            let stream = stream_of(world, kind)?;
            let grid = plane(world)?;
            let mut field = Array::<i32, 2>::with_components(&grid, Entity::Cell, 2, &stream)?;
            let value = |[y, x]: [usize; 2], component: usize| (y * 100 + x * 10 + component) as i32;
            field.fill(value)?;
            for ((global, local), component) in grid
                .owned_global(Entity::Cell)
                .indices()
                .zip(grid.owned(Entity::Cell).indices())
                .flat_map(|pair| [(pair, 0), (pair, 1)])
            {
                let [y, x] = [local[0] - 2, local[1] - 1];
                assert_eq!(field.owned()?[[y, x, component]], value(global, component));
                assert_eq!(
                    field.copy_with_ghosts()?[[local[0], local[1], component]],
                    value(global, component)
                );
            }
            // Ghosts are still zero; what is written through a view arrives in kernels.
            assert_eq!(field.copy_with_ghosts()?[[0, 0, 0]], 0);
            field.owned_mut()?[[1, 2, 1]] = -7;
            let whole = Tile { start: [0; 3], end: [1, 6, 7] };
            stream.launch("look", whole, (field.reader()?,), |_, (rows,): (Rows<'_, i32>,)| {
                assert_eq!(rows.span(0, 3, 3..4)[1], -7);
                assert_eq!(rows.row(0, 3).len(), 14);
            })?;
            stream.synchronize()?;
            field.fill_with_ghosts(|[y, x], component| (y * 50 + x * 4 + component) as i32)?;
            let all = field.copy_with_ghosts()?;
            for (index, entry) in all.indexed_iter() {
                assert_eq!(*entry as usize, index[0] * 50 + index[1] * 4 + index[2]);
            }
        }
        Ok(())
    });
}

#[test]
fn host_access_waits_for_the_stream() {
    on_ranks(1, |world| {
        let stream = stream_of(world, KINDS[1])?;
        let grid = plane(world)?;
        let mut field = Array::<u8, 2>::zeros(&grid, Entity::Cell, &stream)?;
        for round in 1..20 {
            let slow = move |tile: Tile, (mut rows,): (RowsMut<'_, u8>,)| {
                std::thread::sleep(std::time::Duration::from_micros(100));
                tile.rows().for_each(|(i, j)| rows.row(i, j).fill(round));
            };
            stream.launch("slow", grid.owned(Entity::Cell).tile(), (field.writer()?,), slow)?;
            match round % 3 {
                0 => assert!(field.owned()?.iter().all(|entry| *entry == round)),
                1 => assert!(field.owned_mut()?.iter().all(|entry| *entry == round)),
                _ => assert_eq!(field.copy_with_ghosts()?[[3, 3]], round),
            }
        }
        Ok(())
    });
}

#[test]
fn arrays_that_cannot_be() {
    on_ranks(1, |world| {
        let stream = stream_of(world, KINDS[0])?;
        let grid = plane(world)?;
        let none = Array::<f64, 2>::with_components(&grid, Entity::Cell, 0, &stream).map(|_| ());
        assert_eq!(none, Err(GridError::NoComponents { entity: Entity::Cell }));
        for entity in [Entity::Face(2), Entity::Edge(7)] {
            let missing = Alternating::<f64, 2>::zeros(&grid, entity, &stream).map(|_| ());
            assert!(matches!(missing, Err(GridError::EntityAxis { dimensions: 2, .. })), "{missing:?}");
        }
        for components in [usize::MAX / 16, usize::MAX / 64] {
            let huge = Array::<f64, 2>::with_components(&grid, Entity::Cell, components, &stream).map(|_| ());
            assert!(
                matches!(huge, Err(GridError::Communication(Error::OutOfMemory { .. }))),
                "{components} components: {huge:?}"
            );
        }
        Ok(())
    });
}

fn in_flight(call: &'static str) -> GridError {
    GridError::GhostsInFlight { call }
}

#[test]
fn ghosts_are_out_of_reach_while_an_exchange_is_in_flight() {
    on_ranks(2, |world| {
        for way in each_way() {
            let stream = stream_of(world, way.kind)?;
            let grid = plane(world)?;
            let mut field = Array::<f64, 2>::zeros(&grid, Entity::Cell, &stream)?;
            let mut halo = StreamHalo::new(world, &stream, way.backend, Pattern::All, [2, 1], &mut field)?;
            for _ in 0..3 {
                let mut exchange = halo.begin_gather(&mut field)?;
                assert_eq!(exchange.copy_with_ghosts().map(|_| ()), Err(in_flight("copy_with_ghosts")));
                assert_eq!(exchange.fill_with_ghosts(|_, _| 1.0), Err(in_flight("fill_with_ghosts")));
                // What it owns it may look at.
                assert_eq!(exchange.owned()?.shape(), [3, 5]);
                exchange.finish()?;
                field.copy_with_ghosts()?;
                field.fill_with_ghosts(|_, _| 1.0)?;
                halo.enqueue_gather(&mut field)?;
                assert_eq!(field.copy_with_ghosts()?.iter().sum::<f64>(), 49.0);
            }
        }
        Ok(())
    });
}

#[test]
fn a_swap_changes_which_generation_is_now() {
    on_ranks(1, |world| {
        for kind in KINDS {
            let stream = stream_of(world, kind)?;
            let grid = plane(world)?;
            let mut field = Alternating::<i64, 2>::with_components(&grid, Entity::Cell, 2, &stream)?;
            field.now_mut().fill(|_, _| 1)?;
            for step in 1..6 {
                let (now, next) = field.now_and_next()?;
                let double = |tile: Tile, (now, mut next): (Rows<'_, i64>, RowsMut<'_, i64>)| {
                    for (i, j) in tile.rows() {
                        let own = now.span(i, j, tile.start[2]..tile.end[2]);
                        next.row(i, j).iter_mut().zip(own).for_each(|(next, own)| *next = 2 * own);
                    }
                };
                stream.launch("double", grid.owned(Entity::Cell).tile(), (now, next), double)?;
                field.swap();
                assert!(field.now().owned()?.iter().all(|entry| *entry == 1 << step));
            }
            assert_eq!(field.now().components(), 2);
        }
        Ok(())
    });
}

/// Where peers may write straight into the generation that is not in use, its ghosts are out of
/// reach until it has been exchanged, and kernels write owned entries only.
#[test]
fn ghosts_that_peers_may_write_are_out_of_reach_until_they_are_exchanged() {
    on_ranks(2, |world| {
        for way in each_way() {
            let stream = stream_of(world, way.kind)?;
            let grid = plane(world)?;
            let owned = grid.owned(Entity::Cell).tile();
            // The axis with boundaries is whole.
            let writable = Tile { start: [0, 2, 0], end: [1, 5, 7] };
            let mut field = Alternating::<f64, 2>::zeros(&grid, Entity::Cell, &stream)?;
            field.now().copy_with_ghosts()?;
            let mut halo = StreamHalo::new(world, &stream, way.backend, Pattern::All, [2, 1], &mut field)?;
            for _ in 0..4 {
                assert_eq!(field.now().copy_with_ghosts().map(|_| ()), Err(in_flight("copy_with_ghosts")));
                assert_eq!(field.now_mut().fill_with_ghosts(|_, _| 0.0), Err(in_flight("fill_with_ghosts")));
                halo.enqueue_gather(&mut field)?;
                field.now().copy_with_ghosts()?;
                let whole = Tile { start: [0; 3], end: [1, 7, 7] };
                let (now, next) = field.now_and_next()?;
                let refused = stream.launch("all", whole, (now, next), |_, _| ());
                let (kernel, argument) = ("all".into(), 1);
                let [tile, array, bounds] = [whole, whole, writable].map(Box::new);
                let expected = Error::TileOutOfBounds { kernel, argument, array, tile, bounds };
                assert!(expected.to_string().contains("ghosts that peers may fill"), "{expected}");
                assert_eq!(refused, Err(expected));
                let write = field.now_mut().writer()?;
                let refused = stream.launch("now", whole, (write,), |_, _| ());
                assert!(matches!(refused, Err(Error::TileOutOfBounds { .. })), "{refused:?}");
                let (now, next) = field.now_and_next()?;
                stream
                    .launch("owned", owned, (now, next), |_, (now, _)| assert_eq!(now.row(0, 0).len(), 7))?;
                field.swap();
            }
            stream.synchronize()?;
        }
        Ok(())
    });
}

/// Where no peer writes ahead, kernels may write ghosts, as a halo of several layers needs.
#[test]
fn fields_of_wide_halos_may_be_written_with_their_ghosts() {
    on_ranks(2, |world| {
        for way in each_way() {
            let stream = stream_of(world, way.kind)?;
            let grid = plane(world)?;
            let mut field = Alternating::<f64, 2>::zeros(&grid, Entity::Cell, &stream)?;
            let mut halo = StreamHalo::builder(world, &stream)
                .backend(way.backend)
                .swaps_per_exchange(2)
                .build([2, 1], &mut field)?;
            let whole = Tile { start: [0; 3], end: [1, 7, 7] };
            for _ in 0..3 {
                halo.enqueue_gather(&mut field)?;
                for _ in 0..2 {
                    let (now, next) = field.now_and_next()?;
                    stream.launch("all", whole, (now, next), |tile, (now, mut next)| {
                        for (i, j) in tile.rows() {
                            next.row(i, j).copy_from_slice(now.row(i, j));
                        }
                    })?;
                    field.swap();
                }
                field.now().copy_with_ghosts()?;
            }
            stream.synchronize()?;
        }
        Ok(())
    });
}

/// Boundary conditions that change with time: rows that come in at either end, askew, and meet.
fn with_boundaries(world: &World, layout: [usize; 2], way: Scenario) -> Result<Vec<f64>, HaloError> {
    let stream = stream_of(world, way.kind)?;
    let grid = GlobalGrid::new([8, 6], [false, true])?.partition_as(world, layout)?.local(1)?;
    let mut cells = Alternating::<f64, 2>::zeros(&grid, Entity::Cell, &stream)?;
    let mut halo = StreamHalo::new(world, &stream, way.backend, Pattern::All, 1, &mut cells)?;
    for step in 1..=STEPS {
        for (side, value) in [(Side::Low, f64::from(step)), (Side::High, -f64::from(step))] {
            let Some(beyond) = grid.beyond(Entity::Cell, 0, side) else {
                let refused = cells.now_mut().boundary_writer(0, side).map(drop);
                assert_eq!(refused, Err(GridError::NoBoundary { axis: 0, side }));
                continue;
            };
            let set = move |tile: Tile, (mut rows,): (RowsMut<'_, f64>,)| {
                tile.rows().for_each(|(i, j)| rows.row(i, j).fill(value));
            };
            let writer = cells.now_mut().boundary_writer(0, side)?;
            stream.launch("boundary", beyond.tile(), (writer,), set)?;
        }
        halo.enqueue_gather(&mut cells)?;
        let compute = |tile: Tile, (now, mut next): (Rows<'_, f64>, RowsMut<'_, f64>)| {
            for (i, j) in tile.rows() {
                let (first, behind) = (tile.start[2], tile.end[2]);
                let (low, high) =
                    (now.span(i, j - 1, first - 1..behind - 1), now.span(i, j + 1, first + 1..behind + 1));
                let pairs = low.iter().zip(high);
                next.row(i, j).iter_mut().zip(pairs).for_each(|(cell, (low, high))| *cell = 2.0 * low + high);
            }
        };
        stream.launch("compute", grid.owned(Entity::Cell).tile(), cells.now_and_next()?, compute)?;
        cells.swap();
    }
    stream.synchronize()?;
    Ok(cells.now().owned()?.iter().copied().collect())
}

const STEPS: i32 = 5;

#[test]
fn boundary_conditions_change_with_time_whoever_writes_the_other_ghosts() {
    let mut column = [0.0; 8];
    for step in 1..=STEPS {
        let before = column;
        let at = |y: i32| match y {
            -1 => f64::from(step),
            8 => -f64::from(step),
            y => before[y as usize],
        };
        (0..8).for_each(|y| column[y as usize] = 2.0 * at(y - 1) + at(y + 1));
    }
    for layout in [[1, 1], [2, 1], [3, 1], [1, 2], [2, 2]] {
        for way in each_way() {
            let parts = on_ranks(layout[0] * layout[1], |world| with_boundaries(world, layout, way));
            // Each part has whole rows of values that are the same; parts side by side have the same ones.
            let width = 6 / layout[1];
            let rows = parts.chunks(layout[1]).flat_map(|beside| {
                beside.iter().for_each(|part| assert_eq!(part, &beside[0], "{layout:?}, {way:?}"));
                beside[0].chunks(width).map(|row| {
                    row.iter().for_each(|value| assert_eq!(*value, row[0], "{layout:?}, {way:?}"));
                    row[0]
                })
            });
            assert_eq!(rows.collect::<Vec<_>>(), column, "{layout:?}, {way:?}");
        }
    }
}

#[test]
fn boundary_conditions_that_stay_are_those_of_both_generations() {
    on_ranks(2, |world| {
        for kind in KINDS {
            let stream = stream_of(world, kind)?;
            let mut field = Alternating::<f64, 2>::zeros(&plane(world)?, Entity::Cell, &stream)?;
            field.fill_with_ghosts(|[i, j], _| (10 * i + j) as f64)?;
            for _generation in 0..2 {
                let all = field.now().copy_with_ghosts()?;
                assert!(all.indexed_iter().all(|(at, value)| *value == (10 * at[0] + at[1]) as f64));
                field.swap();
            }
        }
        Ok(())
    });
}

/// Each entry says where it is.
fn mark(index: &[usize], component: usize) -> i32 {
    index.iter().fold(component, |mark, index| mark * 100 + index + 1) as i32
}

/// Collects a field of every entity, with one component and with three.
fn collected<const D: usize>(
    world: &World,
    grid: &LocalGrid<D>,
    entities: &[Entity],
) -> Result<(), HaloError> {
    let last = world.size() - 1;
    for kind in KINDS {
        let stream = stream_of(world, kind)?;
        for (entity, components, root) in
            entities.iter().flat_map(|entity| [(*entity, 1, 0), (*entity, 3, last)])
        {
            let mut field = Array::<i32, D>::with_components(grid, entity, components, &stream)?;
            field.fill(|index, component| mark(&index, component))?;
            let whole = field.collect(root)?;
            assert_eq!(whole.is_some(), world.rank() == root);
            let Some(whole) = whole else { continue };
            let mut shape = grid.subdomain().partition().grid().entity_extents(entity).to_vec();
            shape.extend((components > 1).then_some(components));
            assert_eq!(whole.shape(), shape, "{entity}");
            for (index, value) in whole.indexed_iter() {
                let component = if components > 1 { index[D] } else { 0 };
                let at: [usize; D] = std::array::from_fn(|axis| index[axis]);
                assert_eq!(*value, mark(&at, component));
            }
        }
    }
    Ok(())
}

#[test]
fn a_field_of_all_ranks_is_collected_on_one() {
    for ranks in [1, 2, 3, 6] {
        on_ranks(ranks, |world| {
            let line = GlobalGrid::new([13], [false])?.partition(world)?.local(2)?;
            collected(world, &line, &[Entity::Cell, Entity::Node])?;
            let plane = GlobalGrid::new([7, 9], [true, false])?.partition(world)?.local([0, 1])?;
            collected(world, &plane, &[Entity::Cell, Entity::Node, Entity::Face(0), Entity::Face(1)])?;
            let space = GlobalGrid::new([4, 5, 7], [false, true, false])?.partition(world)?.local(1)?;
            collected(world, &space, &[Entity::Cell, Entity::Node, Entity::Face(2), Entity::Edge(1)])
        });
    }
}

/// On all ranks or on none.
#[test]
fn a_field_is_collected_on_a_rank_that_all_name() {
    on_ranks(3, |world| {
        let stream = stream_of(world, KINDS[0])?;
        let grid = GlobalGrid::new([9], [true])?.partition(world)?.local(1)?;
        let field = Array::<u8, 1>::zeros(&grid, Entity::Cell, &stream)?;
        let refused = field.collect(3).expect_err("there is no rank 3").to_string();
        assert!(refused.contains("rank 3") && refused.contains("Array::collect"), "{refused}");
        let refused = field.collect(usize::from(world.rank() == 2)).expect_err("rank 2 names another");
        let what = "1 component(s) of u8 per cell of [9] cells (periodic: [true]) in layout [3], on rank";
        let reason = format!("it collects {what} 1, and rank 0 {what} 0");
        let expected = Error::CollectiveFailed { call: "Array::collect", rank: 2, reason };
        assert_eq!(refused, GridError::Communication(expected));
        // A field of another level, of as many entries in other places, and of another type.
        let level = |cells| GlobalGrid::new([cells], [true])?.partition(world)?.local(1);
        let coarse =
            Array::<u8, 1>::zeros(&level(if world.rank() == 1 { 3 } else { 9 })?, Entity::Cell, &stream)?;
        let refused = coarse.collect(0).expect_err("rank 1 collects another").to_string();
        assert!(refused.contains("of [3] cells") && refused.contains("of [9] cells"), "{refused}");
        let faces = Array::<u8, 1>::zeros(
            &grid,
            if world.rank() == 0 { Entity::Cell } else { Entity::Node },
            &stream,
        )?;
        assert!(faces.collect(0).expect_err("two entities").to_string().contains("per node of"));
        let floats = Array::<f32, 1>::zeros(&grid, Entity::Cell, &stream)?;
        let refused =
            if world.rank() == 2 { floats.collect(0).map(drop) } else { field.collect(0).map(drop) };
        assert!(refused.expect_err("two types").to_string().contains("of f32 per cell"));
        assert_eq!(field.collect(2)?.is_some(), world.rank() == 2, "and goes on");
        Ok(())
    });
}

/// Heat that does not leave: on either axis ghosts beyond a boundary are what is beside them within, the corners too.
fn without_flux(world: &World, layout: [usize; 2], way: Scenario) -> Result<Option<Vec<i64>>, HaloError> {
    let stream = stream_of(world, way.kind)?;
    let grid = GlobalGrid::new([8, 6], [false, false])?.partition_as(world, layout)?.local(1)?;
    let mut heat = Alternating::<i64, 2>::zeros(&grid, Entity::Cell, &stream)?;
    heat.now_mut().fill(|[y, x], _| hot(y, x))?;
    let mut halo = StreamHalo::new(world, &stream, way.backend, Pattern::All, 1, &mut heat)?;
    for _ in 0..STEPS {
        halo.enqueue_gather(&mut heat)?;
        for (axis, side) in [(0, Side::Low), (0, Side::High), (1, Side::Low), (1, Side::High)] {
            let Some(beyond) = grid.beyond(Entity::Cell, axis, side) else {
                let refused = heat.now_mut().inside_and_boundary(axis, side).map(drop);
                assert_eq!(refused, Err(GridError::NoBoundary { axis, side }));
                continue;
            };
            let mirror = move |tile: Tile, (inside, mut ghosts): (Rows<'_, i64>, RowsMut<'_, i64>)| {
                for (i, j) in tile.rows() {
                    let beside = |index: usize| if side == Side::Low { index + 1 } else { index - 1 };
                    let from = match axis {
                        0 => inside.span(i, beside(j), tile.start[2]..tile.end[2]),
                        _ => inside.span(i, j, beside(tile.start[2])..beside(tile.end[2])),
                    };
                    ghosts.row(i, j).copy_from_slice(from);
                }
            };
            let arguments = heat.now_mut().inside_and_boundary(axis, side)?;
            stream.launch("no flux", beyond.tile(), arguments, mirror)?;
        }
        let spread = |tile: Tile, (now, mut next): (Rows<'_, i64>, RowsMut<'_, i64>)| {
            for (i, j) in tile.rows() {
                let around = [j - 1, j, j + 1].map(|j| now.span(i, j, tile.start[2] - 1..tile.end[2] + 1));
                for (x, cell) in next.row(i, j).iter_mut().enumerate() {
                    *cell = around
                        .iter()
                        .zip([1, 2, 3])
                        .map(|(row, y)| y * (row[x] + 2 * row[x + 1] - row[x + 2]))
                        .sum();
                }
            }
        };
        stream.launch("spread", grid.owned(Entity::Cell).tile(), heat.now_and_next()?, spread)?;
        heat.swap();
    }
    Ok(heat.now().collect(0)?.map(|whole| whole.into_iter().collect()))
}

fn hot(y: usize, x: usize) -> i64 {
    (7 * y * y + 3 * x + 1) as i64 % 13
}

#[test]
fn boundary_conditions_are_made_of_the_fields_own_interior() {
    let mut plane: Vec<Vec<i64>> = (0..8).map(|y| (0..6).map(|x| hot(y, x)).collect()).collect();
    for _ in 0..STEPS {
        let before = plane.clone();
        // The nearest cell of the grid stands for what is beyond it.
        let at = |y: usize, x: usize| before[y.clamp(1, 8) - 1][x.clamp(1, 6) - 1];
        for (y, x) in (0..8).flat_map(|y| (0..6).map(move |x| (y, x))) {
            let row = |dy: usize| at(y + dy, x) + 2 * at(y + dy, x + 1) - at(y + dy, x + 2);
            plane[y][x] = row(0) + 2 * row(1) + 3 * row(2);
        }
    }
    for layout in [[1, 1], [2, 1], [1, 3], [2, 2]] {
        for way in each_way() {
            let parts = on_ranks(layout[0] * layout[1], |world| without_flux(world, layout, way));
            assert_eq!(parts[0], Some(plane.concat()), "{layout:?}, {way:?}");
        }
    }
}

#[test]
fn a_boundary_condition_reads_no_ghosts_that_it_writes() {
    on_ranks(1, |world| {
        let stream = stream_of(world, KINDS[0])?;
        let grid = GlobalGrid::new([4], [false])?.partition(world)?.local(2)?;
        let mut line = Array::<u8, 1>::zeros(&grid, Entity::Cell, &stream)?;
        let both = line.inside_and_boundary(0, Side::High)?;
        let beyond = grid.beyond(Entity::Cell, 0, Side::High).expect("it ends there").tile();
        stream.launch(
            "too far",
            beyond,
            both,
            |tile: Tile, (inside, mut ghosts): (Rows<'_, u8>, RowsMut<'_, u8>)| {
                ghosts.row(0, 0)[0] = inside.span(0, 0, 0..tile.start[2] + 1)[0];
            },
        )?;
        let error = stream.synchronize().expect_err("the last of them is written").to_string();
        assert!(error.contains("too far") && error.contains("which may be read"), "{error}");
        Ok(())
    });
}
