//! Reductions against loops over the entries of the whole grid.

use super::*;
use crate::{GlobalGrid, IndexBox, PerAxis};
use streamhalo_comm::WorldOptions;
use streamhalo_comm::device::{Device, StreamKind, StreamOptions};

const OPS: [Op; 3] = [Op::Sum, Op::Min, Op::Max];

/// Elements that hold whole numbers, so that sums are exact.
trait Whole: Reducible {
    fn of(number: i64) -> Self;
    fn whole(total: Self::Total) -> i128;
}

macro_rules! whole {
    ($($rust:ty)*) => {$(
        impl Whole for $rust {
            fn of(number: i64) -> Self {
                number as $rust
            }
            fn whole(total: Self::Total) -> i128 {
                total as i128
            }
        }
    )*};
}
whole!(u8 i32 i64 f32 f64);

fn on_ranks<R: Send>(ranks: usize, rank_main: impl Fn(&World) -> Result<R, GridError> + Sync) -> Vec<R> {
    let results = World::threads(ranks, WorldOptions::default(), |world| rank_main(&world));
    results.expect("threads").into_iter().map(|one| one.unwrap_or_else(|error| panic!("{error}"))).collect()
}

fn stream_of(world: &World, kind: StreamKind, threads: usize) -> Stream {
    Device::host().stream_with(world, StreamOptions { kind, threads }).expect("a stream")
}

/// A number that says nothing of its neighbours'; a byte where it is not negative.
fn number<const D: usize>(index: [usize; D], component: usize, field: usize) -> i64 {
    let key = index.into_iter().fold(field * 7 + component, |key, index| key * 8_191 + index);
    (key as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(17) as i64 % 251
}

fn filled<T: Whole, const D: usize>(array: &mut Array<T, D>, field: usize) -> Result<(), GridError> {
    // Ghosts that would change every result.
    array.fill_with_ghosts(|_, _| T::of(if field == 0 { 120 } else { 119 }))?;
    array.fill(|index, component| own::<T, D>(index, component, field))
}

fn own<T: Whole, const D: usize>(index: [usize; D], component: usize, field: usize) -> T {
    let number = number(index, component, field);
    T::of(if size_of::<T>() == 1 { number.abs() % 101 } else { number % 101 })
}

fn expected<T: Whole, const D: usize>(
    whole: IndexBox<D>,
    op: Op,
    component: usize,
    is_product: bool,
) -> i128 {
    let value = |index| {
        let [a, b] = [0, 1].map(|field| T::whole(own::<T, D>(index, component, field).total()));
        if is_product { a * b } else { a }
    };
    let values = whole.indices().map(value);
    match op {
        Op::Sum => values.sum(),
        Op::Min => values.min().expect("there are entries"),
        _ => values.max().expect("there are entries"),
    }
}

/// All operations of fields and of products, on either kind of stream and grids of different halos.
fn reduces<T: Whole, const D: usize>(
    ranks: usize,
    (cells, periodic): ([usize; D], [bool; D]),
    entity: Entity,
    components: usize,
) {
    let grid = GlobalGrid::new(cells, periodic).expect("a grid");
    let whole = IndexBox::new([0; D], grid.entity_extents(entity));
    on_ranks(ranks, |world| {
        let parts = grid.partition(world)?;
        let (wide, narrow) = (parts.local(1)?, parts.local(PerAxis::<D>::per_axis(0))?);
        for (kind, threads) in [(StreamKind::Inline, 1), (StreamKind::Threaded, 3)] {
            let stream = stream_of(world, kind, threads);
            let mut a = Array::<T, D>::with_components(&wide, entity, components, &stream)?;
            let mut b = Array::<T, D>::with_components(&narrow, entity, components, &stream)?;
            filled(&mut a, 0)?;
            filled(&mut b, 1)?;
            for op in OPS {
                let mut reduction = Reduction::new(&a, op)?;
                assert!(reduction.values()?.iter().all(|total| T::whole(*total) == 0), "nothing yet");
                for is_product in [false, true, false] {
                    match is_product {
                        true => reduction.enqueue_product(&a, &b)?,
                        false => reduction.enqueue(&a)?,
                    }
                    let found: Vec<i128> = reduction.values()?.into_iter().map(T::whole).collect();
                    let right = |component| expected::<T, D>(whole, op, component, is_product);
                    let what = format!("{op:?} of {} on {ranks} ranks, {is_product}", a.described());
                    assert_eq!(found, (0..components).map(right).collect::<Vec<_>>(), "{what}");
                }
            }
        }
        Ok(())
    });
}

fn of_all_types<const D: usize>(
    ranks: usize,
    grid: ([usize; D], [bool; D]),
    entity: Entity,
    components: usize,
) {
    reduces::<u8, D>(ranks, grid, entity, components);
    reduces::<i32, D>(ranks, grid, entity, components);
    reduces::<i64, D>(ranks, grid, entity, components);
    reduces::<f32, D>(ranks, grid, entity, components);
    reduces::<f64, D>(ranks, grid, entity, components);
}

#[test]
fn every_entry_of_a_line_counts_once() {
    for (ranks, cells) in [(1, 1), (1, 31), (2, 65), (3, 5), (2, 2 * BLOCK_ENTRIES + 1), (1, 9_001)] {
        for periodic in [false, true] {
            of_all_types(ranks, ([cells], [periodic]), Entity::Cell, 1);
            of_all_types(ranks, ([cells], [periodic]), Entity::Node, 3);
        }
    }
}

#[test]
fn every_entry_of_a_plane_counts_once() {
    for (ranks, cells) in [(1, [1, 1]), (2, [301, 7]), (3, [5, 2_049]), (4, [33, 70])] {
        of_all_types(ranks, (cells, [false, true]), Entity::Cell, 3);
        of_all_types(ranks, (cells, [true, false]), Entity::Node, 1);
        of_all_types(ranks, (cells, [false, false]), Entity::Face(0), 1);
    }
}

#[test]
fn every_entry_of_a_box_counts_once() {
    for (ranks, cells) in [(1, [3, 4, 5]), (2, [5, 7, 40]), (3, [2, 3, 33]), (4, [9, 66, 35])] {
        of_all_types(ranks, (cells, [true, false, true]), Entity::Cell, 1);
        of_all_types(ranks, (cells, [false, false, true]), Entity::Node, 3);
        of_all_types(ranks, (cells, [true, true, true]), Entity::Edge(1), 1);
    }
}

/// Of what rounds, the bits by what must make no difference to them.
#[test]
fn bits_depend_on_the_layout_alone() {
    let grid = GlobalGrid::new([7, 9, 130], [true, false, false]).expect("a grid");
    let bits = on_ranks(3, |world| {
        let mut bits = Vec::new();
        for halo in [0, 1, 2] {
            let local = grid.partition_as(world, [1, 3, 1])?.local(halo)?;
            for (kind, threads) in
                [(StreamKind::Inline, 1), (StreamKind::Inline, 4), (StreamKind::Threaded, 1)]
            {
                let stream = stream_of(world, kind, threads);
                let mut field = Array::<f64, 3>::with_components(&local, Entity::Node, 2, &stream)?;
                field.fill(|index, component| (number(index, component, 0) as f64 + 0.1).sin())?;
                for backend in ["st-rsend", "standard", "notified"] {
                    let mut sum = Reduction::with_backend(&field, backend, Op::Sum)?;
                    sum.enqueue(&field)?;
                    let mut own = sum.values()?;
                    sum.enqueue_product(&field, &field)?;
                    own.extend(sum.values()?);
                    bits.push(own.into_iter().map(f64::to_bits).collect::<Vec<_>>());
                }
            }
        }
        Ok(bits)
    });
    for found in bits.iter().flatten() {
        assert_eq!(*found, bits[0][0]);
    }
    let [sum, squares] = [0, 2].map(|at| f64::from_bits(bits[0][0][at]));
    assert!(sum != sum.round() && squares > 0.0, "they are rounded: {sum}, {squares}");
}

/// The order that the documentation of the module tells, written out for one rank.
#[test]
fn sums_are_added_in_the_documented_order() {
    for cells in [[1, 1, 5_000], [1, 300, 70], [6, 50, 100]] {
        let found = on_ranks(1, |world| {
            let stream = stream_of(world, StreamKind::Inline, 1);
            let local = GlobalGrid::new(cells, [true; 3])?.partition(world)?.local(0)?;
            let mut field = Array::<f32, 3>::zeros(&local, Entity::Cell, &stream)?;
            field.fill(|index, _| (number(index, 0, 0) as f32 + 0.1).sin())?;
            let mut sum = Reduction::new(&field, Op::Sum)?;
            sum.enqueue(&field)?;
            sum.values()
        });
        let [planes, rows, columns] = cells;
        let strip = (2048 / columns).max(1);
        let mut blocks: Vec<Vec<f64>> = Vec::new();
        for z in 0..planes {
            for first in (0..rows).step_by(strip) {
                for start in (0..columns).step_by(2048) {
                    let mut lanes = vec![0.0; 32];
                    for y in first..rows.min(first + strip) {
                        for x in start..columns.min(start + 2048) {
                            let entry = (number([z, y, x], 0, 0) as f32 + 0.1).sin();
                            lanes[(x - start) % 32] += f64::from(entry);
                        }
                    }
                    blocks.push(lanes);
                }
            }
        }
        let add = |rows: &[Vec<f64>]| -> Vec<f64> {
            (0..32).map(|lane| rows.iter().fold(0.0, |sum, row| sum + row[lane])).collect()
        };
        let all = blocks.len();
        let run = all.div_ceil(all.div_ceil(all.isqrt()));
        let lanes = add(&blocks.chunks(run).map(add).collect::<Vec<_>>());
        assert_eq!(found, [[lanes.into_iter().fold(0.0, |sum, lane| sum + lane)]], "{cells:?}");
    }
}

#[test]
fn integers_wrap() {
    on_ranks(2, |world| {
        let stream = stream_of(world, StreamKind::Inline, 1);
        let local = GlobalGrid::new([2], [false])?.partition(world)?.local(0)?;
        let mut field = Array::<i64, 1>::zeros(&local, Entity::Cell, &stream)?;
        field.fill(|[x], _| i64::MAX - x as i64)?;
        let mut sum = Reduction::new(&field, Op::Sum)?;
        sum.enqueue(&field)?;
        assert_eq!(sum.values()?, [-3]);
        sum.enqueue_product(&field, &field)?;
        assert_eq!(sum.values()?, [5], "1 and 4, as the squares of -1 - MIN and -2 - MIN wrap");
        // What would not fit into the elements does fit.
        let mut bytes = Array::<u8, 1>::zeros(&local, Entity::Cell, &stream)?;
        bytes.fill(|_, _| 255)?;
        let mut of_bytes = Reduction::new(&bytes, Op::Sum)?;
        of_bytes.enqueue_product(&bytes, &bytes)?;
        assert_eq!(of_bytes.values()?, [2 * 255 * 255]);
        Ok(())
    });
}

#[test]
fn a_nan_is_ignored_unless_there_is_nothing_else() {
    for ranks in [1, 3] {
        on_ranks(ranks, |world| {
            let stream = stream_of(world, StreamKind::Inline, 1);
            let local = GlobalGrid::new([70, 3], [false, true])?.partition(world)?.local(1)?;
            let mut field = Array::<f32, 2>::zeros(&local, Entity::Cell, &stream)?;
            let totals = |field: &Array<f32, 2>| -> Result<Vec<f64>, GridError> {
                OPS.into_iter()
                    .map(|op| {
                        let mut reduction = Reduction::new(field, op)?;
                        reduction.enqueue(field)?;
                        Ok(reduction.values()?[0])
                    })
                    .collect()
            };
            // The first and the last of a lane, and all of a rank.
            field.fill(|[y, x], _| if y == 13 && x == 1 { 5.0 } else { f32::NAN })?;
            assert!(matches!(totals(&field)?[..], [sum, 5.0, 5.0] if sum.is_nan()), "{ranks}");
            field.fill(|[y, _], _| if y % 3 == 0 { f32::NAN } else { y as f32 })?;
            assert!(matches!(totals(&field)?[..], [sum, 1.0, 68.0] if sum.is_nan()), "{ranks}");
            field.fill(|_, _| f32::NAN)?;
            assert!(totals(&field)?.iter().all(|total| total.is_nan()), "{ranks}");
            field.fill(|[y, _], _| if y == 5 { f32::NEG_INFINITY } else { f32::MAX })?;
            assert_eq!(totals(&field)?, [f64::NEG_INFINITY, f64::NEG_INFINITY, f64::from(f32::MAX)]);
            Ok(())
        });
    }
}

#[test]
fn other_arrays_are_refused() {
    on_ranks(2, |world| {
        let [stream, elsewhere] = [(); 2].map(|()| stream_of(world, StreamKind::Inline, 1));
        let local = |cells, periodic| GlobalGrid::new(cells, periodic)?.partition(world)?.local(1);
        let (grid, longer, ring) =
            (local([6, 4], [false, true])?, local([6, 5], [false, true])?, local([6, 4], [true, true])?);
        let across = GlobalGrid::new([6, 4], [false, true])?.partition_as(world, [1, 2])?.local(1)?;
        let mut array = Array::<f64, 2>::zeros(&grid, Entity::Cell, &stream)?;
        let mut sum = Reduction::new(&array, Op::Sum)?;
        let expected = format!(
            "1 component(s) of f64 per cell of [6, 4] cells (periodic: [false, true]) in layout [2, 1] on stream {}",
            stream.id()
        );
        for (other, says) in [
            (Array::zeros(&longer, Entity::Cell, &stream)?, "per cell of [6, 5] cells"),
            (Array::zeros(&ring, Entity::Cell, &stream)?, "(periodic: [true, true])"),
            (Array::zeros(&across, Entity::Cell, &stream)?, "in layout [1, 2]"),
            (Array::zeros(&grid, Entity::Node, &stream)?, "per node"),
            (Array::with_components(&grid, Entity::Cell, 2, &stream)?, "2 component(s)"),
            (Array::zeros(&grid, Entity::Cell, &elsewhere)?, &format!("on stream {}", elsewhere.id())),
        ] {
            let refused = [sum.enqueue(&other), sum.enqueue_product(&array, &other)];
            for refused in refused {
                let Err(GridError::OtherArray { expected: made_for, found }) = refused else {
                    panic!("{refused:?}");
                };
                assert!(made_for == expected && found.contains(says), "`{made_for}`, `{found}`");
            }
        }
        // The right one still works.
        array.fill(|[y, x], _| (4 * y + x) as f64)?;
        sum.enqueue(&array)?;
        assert_eq!(sum.values()?, [276.0]);
        Ok(())
    });
}

#[test]
fn what_ranks_disagree_on_fails_on_all() {
    let told = on_ranks(3, |world| {
        let stream = stream_of(world, StreamKind::Inline, 1);
        let local = GlobalGrid::new([9], [true])?.partition(world)?.local(1)?;
        let is_last = world.rank() == 2;
        let cells = Array::<u8, 1>::zeros(&local, Entity::Cell, &stream)?;
        let nodes = Array::<u8, 1>::zeros(&local, Entity::Node, &stream)?;
        let none = Reduction::new(&cells, Op::Replace).map(drop);
        let of_one = Reduction::new(&cells, if is_last { Op::Replace } else { Op::Sum }).map(drop);
        let other_op = Reduction::new(&cells, if is_last { Op::Min } else { Op::Max }).map(drop);
        let other_array = Reduction::new(if is_last { &nodes } else { &cells }, Op::Max).map(drop);
        let unknown = Reduction::with_backend(&cells, "telepathy", Op::Max).map(drop);
        assert!(
            matches!(&unknown, Err(GridError::Communication(Error::UnknownBackend { .. }))),
            "{unknown:?}"
        );
        Ok([none, of_one, other_op, other_array])
    });
    for own in &told {
        assert_eq!(own, &told[0]);
    }
    let said = [
        (0, "a field is not reduced by Replace"),
        (2, "a field is not reduced by Replace"),
        (2, "the Min of 1 component(s) of u8 per cell"),
        (2, "the Max of 1 component(s) of u8 per node"),
    ];
    for (result, (of, says)) in told[0].iter().zip(said) {
        match result {
            Err(GridError::Communication(Error::CollectiveFailed {
                call: "Reduction::new",
                rank,
                reason,
            })) => {
                assert!(*rank == of && reason.contains(says), "{rank}: {reason}");
            }
            other => panic!("{other:?}"),
        }
    }
}
