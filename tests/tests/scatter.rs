//! Scatters: the adjoint of gathers, and what each operation makes of entries that several ranks
//! contribute to. Sums have the same bits on every backend, kind of stream and run.

use std::collections::BTreeMap;
use streamhalo::ElementType::F64;
use streamhalo::{Array, Entity, HaloError, LocalGrid, Op, Pattern, World};
use streamhalo_tests::cases::ScatterCase;
use streamhalo_tests::{
    FieldSpec, Oracle, Origin, Random, Sample, Scenario, delay, each_way, on_ranks, same_on_all, stream_of,
    value,
};

/// Runs `check` on every rank, in every way.
fn each_way_of(
    case: &ScatterCase<2>,
    check: impl Fn(&World, &LocalGrid<2>, &Oracle<2>, Scenario) -> Result<(), HaloError> + Sync,
) {
    on_ranks(case.ranks(), |world| {
        let grid = case.grid(world)?;
        let oracle = case.oracle(&grid);
        each_way().try_for_each(|way| check(world, &grid, &oracle, way))
    });
}

/// The cases that all properties are checked on: folded axes, one's own neighbour, thin
/// subdomains, the same peer on both sides, nodes that are shared, offsets of one way.
fn cases() -> Vec<ScatterCase<2>> {
    let one_way = Pattern::Offsets(vec![vec![0, 1], vec![1, 0], vec![-1, -1]]);
    let kinds =
        [([true, true], Entity::Cell), ([true, false], Entity::Node), ([false, true], Entity::Face(1))];
    let case = |layout: [usize; 2], pattern: &Pattern, (periodic, entity)| {
        let cells = [layout[0] * 3, layout[1] * 4];
        ScatterCase {
            periodic,
            pattern: pattern.clone(),
            entity,
            width: [2, 1],
            ..ScatterCase::new(cells, layout)
        }
    };
    let mut cases = vec![
        case([2, 1], &Pattern::All, ([true, true], Entity::Node)),
        case([1, 3], &Pattern::All, ([true, true], Entity::Edge(1))),
    ];
    for (i, layout) in [[1, 1], [2, 1], [1, 2], [2, 2], [3, 1], [2, 3]].into_iter().enumerate() {
        for (j, pattern) in [&Pattern::All, &Pattern::Faces, &one_way].into_iter().enumerate() {
            cases.push(case(layout, pattern, kinds[(i + j) % 3]));
        }
    }
    cases
}

/// A whole number that depends on the rank, the entry and the epoch.
fn whole<T: Sample>(rank: usize, local: &[usize], component: usize, epoch: u32) -> T {
    value(rank, local, component, epoch)
}

#[test]
fn gather_and_scatter_sum_are_adjoint() {
    for case in cases() {
        each_way_of(&case, |world, grid, oracle, way| {
            let stream = stream_of(world, way.kind)?;
            let mut field = Array::<i64, 2>::zeros(grid, case.entity, &stream)?;
            let mut halo = case.halo(world, &mut field, way, Op::Sum)?;
            for epoch in 0..3 {
                // x on owned entries, y on all of them.
                let x = |global: &[usize]| value::<i64>(0, global, 0, epoch) % 1000;
                let y = |local: &[usize]| whole::<i64>(world.rank() + 1, local, 0, epoch) % 1000;
                field.fill(|global, _| x(&global))?;
                halo.gather(&mut field)?;
                let gathered = field.copy_with_ghosts()?;
                let mut left = 0;
                for local in oracle.entries() {
                    if oracle.origin(local) != Origin::Untouched {
                        left += gathered[&local[..]] * y(&local);
                    }
                }
                field.fill_with_ghosts(|local, _| y(&local))?;
                halo.scatter(&mut field)?;
                let mut right = 0;
                for (scattered, global) in field.owned()?.iter().zip(grid.owned_global(case.entity).indices())
                {
                    right += scattered * x(&global);
                }
                let sums = world.all_gather(&(left, right))?;
                let [left, right] =
                    [0, 1].map(|side| sums.iter().map(|sum| [sum.0, sum.1][side]).sum::<i64>());
                assert_eq!(left, right, "<Gx, y> and <x, Sy> in epoch {epoch} of {case:?}, {way:?}");
            }
            Ok(())
        });
    }
}

#[test]
fn a_scatter_of_ones_counts_how_often_entries_are_shared() {
    for case in cases() {
        each_way_of(&case, |world, grid, oracle, way| {
            let mut copies: BTreeMap<[usize; 2], i32> = BTreeMap::new();
            for rank in 0..world.size() {
                let there = oracle.of_rank(rank);
                for local in there.entries() {
                    if let Origin::Ghost { global, .. } = there.origin(local) {
                        *copies.entry(global).or_default() += 1;
                    }
                }
            }
            let stream = stream_of(world, way.kind)?;
            let mut field = Array::<i32, 2>::zeros(grid, case.entity, &stream)?;
            let mut halo = case.halo(world, &mut field, way, Op::Sum)?;
            field.fill_with_ghosts(|_, _| 1)?;
            halo.scatter(&mut field)?;
            for (found, global) in field.owned()?.iter().zip(grid.owned_global(case.entity).indices()) {
                let expected = 1 + copies.get(&global).copied().unwrap_or(0);
                assert_eq!(*found, expected, "sharers of {global:?} in {case:?}, {way:?}");
            }
            Ok(())
        });
    }
}

/// Checks an operation on entries made by `before(rank, local, component)`, bit for bit.
fn check_op<T: Sample, const D: usize>(
    case: &ScatterCase<D>,
    op: Op,
    before: impl Fn(usize, [usize; D], usize) -> T + Sync,
) {
    on_ranks(case.ranks(), |world| case.check_op(world, each_way(), op, &before));
}

/// The cases with one to three components.
fn cases_with_components() -> Vec<ScatterCase<2>> {
    let mut cases = cases();
    cases.iter_mut().zip(0..).for_each(|(case, index)| case.components = 1 + index % 3);
    cases
}

/// Those without folded axes, where sums are taken in the order of the offsets. (Folded axes are
/// summed one after the other, after what other ranks send.)
fn unfolded() -> Vec<ScatterCase<2>> {
    let folded = |case: &ScatterCase<2>, axis: usize| case.layout[axis] == 1 && case.periodic[axis];
    let mut cases = cases_with_components();
    cases.retain(|case| case.pattern != Pattern::All || !(0..2).any(|axis| folded(case, axis)));
    cases
}

#[test]
fn integer_sums_wrap() {
    for case in cases_with_components() {
        check_op::<u8, 2>(&case, Op::Sum, |rank, local, c| 128 + whole::<u8>(rank, &local, c, 1) % 100);
        check_op::<i32, 2>(&case, Op::Sum, |rank, local, c| i32::MAX - whole::<i32>(rank, &local, c, 1));
        check_op::<i64, 2>(&case, Op::Sum, |rank, local, c| i64::MIN + whole::<i64>(rank, &local, c, 1));
    }
}

#[test]
fn the_smallest_and_the_largest_ignore_nan() {
    for case in cases_with_components() {
        for op in [Op::Min, Op::Max] {
            check_op::<f64, 2>(&case, op, |rank, local, c| match whole::<u8>(rank, &local, c, 2) % 3 {
                0 => f64::NAN,
                _ => whole(rank, &local, c, 3),
            });
            check_op::<f32, 2>(&case, op, |rank, local, c| match whole::<u8>(rank, &local, c, 2) % 3 {
                0 => f32::NAN,
                _ => -whole::<f32>(rank, &local, c, 3),
            });
            check_op::<i32, 2>(&case, op, |rank, local, c| whole(rank, &local, c, 4));
        }
    }
}

#[test]
fn of_replacements_the_last_offset_wins() {
    for case in cases_with_components() {
        check_op::<i64, 2>(&case, Op::Replace, |rank, local, c| whole(rank, &local, c, 5));
        check_op::<u8, 2>(&case, Op::Replace, |rank, local, c| whole(rank, &local, c, 5));
    }
}

#[test]
fn floating_point_sums_add_in_the_order_of_the_offsets() {
    // Values of very different size: every other order of addition gives other bits.
    let uneven = |rank, local: [usize; 2], c| {
        let bits = whole::<i64>(rank, &local, c, 6);
        (bits % 1000 + 1) as f64 * 10_f64.powi((bits / 1000 % 30) as i32 - 15)
    };
    for case in unfolded() {
        check_op::<f64, 2>(&case, Op::Sum, uneven);
        check_op::<f32, 2>(&case, Op::Sum, |rank, local, c| uneven(rank, local, c) as f32);
    }
    let large = ScatterCase { components: 3, width: [1, 2], ..ScatterCase::new([6, 3_000], [2, 2]) };
    check_op::<f64, 2>(&large, Op::Sum, uneven);
}

#[test]
fn sums_have_the_same_bits_in_every_way_and_in_every_run() {
    let spec = FieldSpec::array(F64, Entity::Node, 1);
    for layout in [[1, 1, 1], [2, 1, 1], [1, 2, 2], [1, 1, 3]] {
        let case = ScatterCase { entity: spec.entity, ..ScatterCase::new([5, 6, 7], layout) };
        let ranks = layout.iter().product();
        let sums = on_ranks(ranks, |world| {
            let grid = case.grid(world)?;
            let mut sums: Vec<u64> = Vec::new();
            for (run, way) in each_way().chain(each_way()).enumerate() {
                let stream = stream_of(world, way.kind)?;
                let mut random = Random::new((run * 100 + world.rank()) as u64);
                let mut field = Array::<f64, 3>::zeros(&grid, case.entity, &stream)?;
                let mut halo = case.halo(world, &mut field, way, Op::Sum)?;
                let mut checksum = 0_u64;
                for epoch in 0..4 {
                    field.fill_with_ghosts(|local, _| {
                        1.0 / (1.0 + whole::<f32>(world.rank(), &local, 0, epoch) as f64)
                    })?;
                    delay(&stream, &mut random);
                    halo.enqueue_scatter(&mut field)?;
                    delay(&stream, &mut random);
                    // The ghosts come from sums, so a wrong order shows there too.
                    halo.enqueue_gather(&mut field)?;
                    for sum in field.copy_with_ghosts()? {
                        checksum = checksum.rotate_left(5) ^ sum.to_bits();
                    }
                }
                sums.push(checksum);
            }
            Ok(same_on_all(sums))
        });
        assert_eq!(sums.len(), ranks);
    }
}
