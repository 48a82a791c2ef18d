//! Gathers against an oracle: every entry is made from its global index, component, field and epoch,
//! so each ghost has one right value; ghosts that no neighbour fills keep a sentinel.

use streamhalo::ElementType::{F32, F64, I32, I64, U8};
use streamhalo::{Entity, Pattern};
use streamhalo_tests::cases::{ALTERNATING, CELLS, GatherCase, offsets, random_gather};
use streamhalo_tests::{FieldSpec, Random, Scenario, on_ranks};

/// Runs it in every way, and makes sure that the stream-triggered backends with clear-to-send take
/// the single pass.
fn run_direct<const D: usize>(case: GatherCase<D>) {
    run_and_expect(&case, |path| path == "straight into ghosts");
}

/// The same for backends that pack.
fn run_packed<const D: usize>(case: GatherCase<D>) {
    run_and_expect(&case, |path| path.starts_with("packed"));
}

fn run_and_expect<const D: usize>(case: &GatherCase<D>, expected: impl Fn(&str) -> bool + Sync) {
    case.run();
    on_ranks(case.ranks(), |world| {
        for backend in ["st-send", "active-rma"] {
            let way = Scenario { backend, kind: streamhalo::StreamKind::Inline };
            for path in case.run_way(world, way)?.paths {
                assert!(expected(path), "{backend} took `{path}` in {case:?}");
            }
        }
        Ok(())
    });
}

#[test]
fn every_element_type_entity_and_number_of_components() {
    let entities =
        [Entity::Cell, Entity::Node, Entity::Face(0), Entity::Face(1), Entity::Edge(0), Entity::Edge(1)];
    for (index, entity) in entities.into_iter().enumerate() {
        for periodic in [[true, true], [false, true], [false, false]] {
            let fields = [U8, I32, I64, F32, F64]
                .map(|element| FieldSpec::array(element, entity, 1 + (index + element.bytes()) % 3));
            let case = GatherCase::new([9, 7], [2, 2], CELLS);
            GatherCase { periodic, fields: fields.to_vec(), ..case }.run();
        }
    }
}

#[test]
fn layouts_of_one_to_eight_ranks_that_do_not_divide() {
    for layout in [[1, 1], [1, 2], [2, 1], [3, 1], [1, 3], [2, 2], [3, 2], [2, 4], [8, 1]] {
        for periodic in [[true, true], [true, false], [false, true], [false, false]] {
            GatherCase { periodic, ..GatherCase::new([17, 11], layout, CELLS) }.run();
        }
    }
    for layout in [[1, 1, 2], [3, 1, 1], [2, 2, 2], [1, 2, 3]] {
        GatherCase::new([7, 5, 7], layout, ALTERNATING).run();
    }
    for layout in [1, 2, 3, 4, 8] {
        GatherCase::new([19], [layout], ALTERNATING).run();
    }
}

#[test]
fn widths_that_differ_by_axis_and_are_less_than_the_halo() {
    for (halo, width) in [([0, 2, 1], [0, 2, 1]), ([3, 2, 2], [3, 0, 1]), ([1, 2, 3], [0, 0, 3])] {
        for entity in [Entity::Cell, Entity::Node, Entity::Face(2), Entity::Edge(1)] {
            let case = GatherCase::new([8, 9, 10], [2, 2, 1], FieldSpec::array(F32, entity, 1));
            GatherCase { halo, width, ..case }.run();
        }
    }
}

#[test]
fn a_rank_that_is_its_own_neighbour_folded_or_not() {
    for pattern in [
        Pattern::All,
        Pattern::Faces,
        offsets(&[&[0, 0, 1], &[0, 0, -1]]),
        offsets(&[&[0, 0, 1]]),
        offsets(&[&[1, 0, 0], &[1, 0, 1], &[1, 0, -1], &[0, 0, 1], &[0, 0, -1], &[0, 1, 0]]),
    ] {
        for layout in [[1, 1, 1], [2, 1, 1], [1, 2, 1], [1, 1, 2], [1, 2, 2]] {
            let fields =
                vec![FieldSpec::array(I64, Entity::Cell, 1), FieldSpec::array(U8, Entity::Edge(1), 2)];
            let case = GatherCase::new([5, 6, 7], layout, CELLS);
            GatherCase { pattern: pattern.clone(), width: [1, 2, 1], halo: [1, 2, 1], fields, ..case }.run();
        }
    }
}

#[test]
fn a_subdomain_as_thin_as_its_halo() {
    for layout in [[3, 1], [2, 2], [1, 3]] {
        let cells = [layout[0] * 2, layout[1] * 3];
        for alternating in [false, true] {
            let field = FieldSpec { alternating, ..CELLS };
            GatherCase { halo: [2, 3], width: [2, 3], ..GatherCase::new(cells, layout, field) }.run();
        }
    }
    GatherCase::new([1, 1], [1, 1], CELLS).run();
    GatherCase::new([2, 4], [2, 4], CELLS).run();
}

#[test]
fn offsets_that_go_one_way_or_are_asymmetric() {
    for pattern in [
        offsets(&[&[0, 1]]),
        offsets(&[&[-1, 0]]),
        offsets(&[&[0, 1], &[1, 0], &[-1, -1]]),
        offsets(&[&[1, 1], &[1, -1]]),
        offsets(&[]),
    ] {
        for layout in [[1, 2], [2, 2], [1, 3], [3, 2]] {
            for (periodic, field) in [([true; 2], CELLS), ([false; 2], ALTERNATING)] {
                let case = GatherCase::new([12, 40], layout, field);
                GatherCase { periodic, pattern: pattern.clone(), epochs: 12, ..case }.run();
            }
        }
    }
}

#[test]
fn several_fields_of_different_kinds_in_one_exchange() {
    let fields = vec![
        FieldSpec::array(U8, Entity::Cell, 3),
        FieldSpec::array(F64, Entity::Node, 1),
        FieldSpec::alternating(I32, Entity::Face(1), 2),
        FieldSpec::array(F32, Entity::Face(0), 1),
        FieldSpec::alternating(U8, Entity::Edge(0), 1),
        FieldSpec::array(I64, Entity::Cell, 2),
    ];
    let alternating: Vec<_> = fields.iter().map(|field| FieldSpec { alternating: true, ..*field }).collect();
    for layout in [[1, 2], [2, 2], [4, 1]] {
        for fields in [&fields, &alternating] {
            GatherCase { fields: fields.clone(), ..GatherCase::new([11, 13], layout, CELLS) }.run();
        }
    }
}

#[test]
fn long_runs_go_straight_into_ghosts() {
    for swaps in [0, 1, 2, 3] {
        for fields in [vec![CELLS], vec![ALTERNATING], vec![ALTERNATING, ALTERNATING]] {
            // 40 cells of 8 bytes: above 200 bytes, in runs of at least a cache line.
            let case = GatherCase::new([10, 40], [2, 1], CELLS);
            run_direct(GatherCase { swaps, swaps_before: swaps / 2, fields, epochs: 8, ..case });
        }
    }
    let three = GatherCase::new([6, 10, 12], [2, 1, 1], ALTERNATING);
    run_direct(GatherCase { pattern: Pattern::Faces, width: [2, 1, 1], halo: [2, 1, 1], ..three });
    // Ranks whose arrays have other strides than their peers'.
    for field in [CELLS, ALTERNATING] {
        run_direct(GatherCase::new([6, 7, 12], [1, 2, 1], field));
        run_direct(GatherCase { halo: [1, 8], width: [1, 8], ..GatherCase::new([10, 33], [1, 2], field) });
    }
}

#[test]
fn short_runs_go_straight_into_ghosts_where_there_are_many() {
    // Two columns of 4,200 runs of 8 bytes: more than 64 KiB. 4,000 each are less.
    for field in [CELLS, ALTERNATING] {
        run_direct(GatherCase { epochs: 4, ..GatherCase::new([4_200, 2], [1, 2], field) });
    }
    run_packed(GatherCase {
        pattern: Pattern::Faces,
        epochs: 4,
        ..GatherCase::new([4_000, 2], [1, 2], CELLS)
    });
}

#[test]
fn swaps_that_do_not_alternate_with_exchanges() {
    for swaps in [0, 2, 3] {
        for layout in [[1, 2], [2, 2]] {
            for pattern in [Pattern::All, offsets(&[&[0, 1], &[1, 1]])] {
                let fields = vec![ALTERNATING, FieldSpec::alternating(U8, Entity::Node, 1)];
                let case = GatherCase::new([12, 12], layout, CELLS);
                GatherCase { swaps, fields, pattern, epochs: 7, ..case }.run();
            }
        }
    }
}

/// A case of `D` dimensions, and a number of ranks, made up from a seed.
fn random_case<const D: usize>(seed: u64) -> GatherCase<D> {
    random_gather(seed, Random::new(!seed).pick(&[1, 2, 3, 4, 6, 8]))
}

#[test]
fn cases_at_random_in_one_dimension() {
    (0..20).for_each(|seed| random_case::<1>(seed).run());
}

#[test]
fn cases_at_random_in_two_dimensions() {
    (1000..1030).for_each(|seed| random_case::<2>(seed).run());
}

#[test]
fn cases_at_random_in_three_dimensions() {
    (2000..2025).for_each(|seed| random_case::<3>(seed).run());
}
