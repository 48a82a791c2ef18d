//! Gathers against an oracle: every entry is made from its global index, component, field and epoch,
//! so each ghost has one right value; ghosts that no neighbour fills keep a sentinel.

use streamhalo::ElementType::{F32, F64, I32, I64, U8};
use streamhalo::{Entity, GlobalGrid, HaloError, Pattern, StreamHalo, World};
use streamhalo_tests::{FieldSet, FieldSpec, Random, Scenario, delay, each_way, on_ranks, stream_of};

/// An exchange to be tried in every way.
#[derive(Debug, Clone)]
struct Case<const D: usize> {
    cells: [usize; D],
    periodic: [bool; D],
    layout: [usize; D],
    /// Of the arrays.
    halo: [usize; D],
    /// Of the exchange.
    width: [usize; D],
    pattern: Pattern,
    fields: Vec<FieldSpec>,
    swaps: usize,
    /// Of alternating fields, before the exchange is made.
    swaps_before: usize,
    epochs: u32,
    seed: u64,
}

impl<const D: usize> Case<D> {
    /// A periodic grid with one field that is exchanged one layer deep with all neighbours.
    fn new(cells: [usize; D], layout: [usize; D], field: FieldSpec) -> Self {
        Self {
            cells,
            periodic: [true; D],
            layout,
            halo: [1; D],
            width: [1; D],
            pattern: Pattern::All,
            fields: vec![field],
            swaps: 1,
            swaps_before: 0,
            epochs: 6,
            seed: 0,
        }
    }

    fn run(&self) {
        on_ranks(self.layout.iter().product(), |world| {
            each_way().try_for_each(|way| self.run_way(world, way).map(|_| ()))
        });
    }

    /// All epochs in one way; gives the paths of the messages.
    fn run_way(&self, world: &World, way: Scenario) -> Result<Vec<&'static str>, HaloError> {
        let stream = stream_of(world, way.kind)?;
        let grid =
            GlobalGrid::new(self.cells, self.periodic)?.partition_as(world, self.layout)?.local(self.halo)?;
        let mut fields = FieldSet::new(&grid, &stream, &self.fields, &self.pattern, self.width)?;
        (0..self.swaps_before).for_each(|_| fields.swap());
        let mut halo = StreamHalo::builder(world, &stream)
            .backend(way.backend)
            .pattern(self.pattern.clone())
            .swaps_per_exchange(self.swaps)
            .build(self.width, &fields)?;
        let mut random = Random::new(self.seed ^ world.rank() as u64);
        for epoch in 1..=self.epochs {
            delay(&stream, &mut random);
            fields.fill(epoch)?;
            if epoch % 3 == 0 {
                let in_flight = halo.begin_gather(&mut fields)?;
                in_flight.check_owned(epoch)?;
                in_flight.finish()?;
            } else {
                halo.enqueue_gather(&mut fields)?;
            }
            delay(&stream, &mut random);
            fields.check(epoch)?;
            (0..self.swaps).for_each(|_| fields.swap());
        }
        fields.assert_right(&(self, way))?;
        Ok(halo.routes().into_iter().map(|route| route.path).collect())
    }

    /// As [`Case::run`], and makes sure that the stream-triggered backends with clear-to-send take
    /// the single pass.
    fn run_direct(&self) {
        self.run_and_expect(|path, _| path == "straight into ghosts");
    }

    /// The same for backends that pack.
    fn run_packed(&self) {
        self.run_and_expect(|path, bytes| path.starts_with("packed") && bytes > 0);
    }

    fn run_and_expect(&self, expected: impl Fn(&str, usize) -> bool + Sync) {
        self.run();
        on_ranks(self.layout.iter().product(), |world| {
            for backend in ["st-send", "active-rma"] {
                let way = Scenario { backend, kind: streamhalo::StreamKind::Inline };
                for path in self.run_way(world, way)? {
                    assert!(expected(path, 1), "{backend} took `{path}` in {self:?}");
                }
            }
            Ok(())
        });
    }
}

const SCALAR: FieldSpec = FieldSpec::array(F64, Entity::Cell, 1);
const ALTERNATING: FieldSpec = FieldSpec::alternating(F64, Entity::Cell, 1);

fn offsets(given: &[&[i32]]) -> Pattern {
    Pattern::Offsets(given.iter().map(|offset| offset.to_vec()).collect())
}

#[test]
fn every_element_type_entity_and_number_of_components() {
    let entities =
        [Entity::Cell, Entity::Node, Entity::Face(0), Entity::Face(1), Entity::Edge(0), Entity::Edge(1)];
    for (index, entity) in entities.into_iter().enumerate() {
        for periodic in [[true, true], [false, true], [false, false]] {
            let fields = [U8, I32, I64, F32, F64]
                .map(|element| FieldSpec::array(element, entity, 1 + (index + element.bytes()) % 3));
            let case = Case::new([9, 7], [2, 2], SCALAR);
            Case { periodic, fields: fields.to_vec(), ..case }.run();
        }
    }
}

#[test]
fn layouts_of_one_to_eight_ranks_that_do_not_divide() {
    for layout in [[1, 1], [1, 2], [2, 1], [3, 1], [1, 3], [2, 2], [3, 2], [2, 4], [8, 1]] {
        for periodic in [[true, true], [true, false], [false, true], [false, false]] {
            Case { periodic, ..Case::new([17, 11], layout, SCALAR) }.run();
        }
    }
    for layout in [[1, 1, 2], [3, 1, 1], [2, 2, 2], [1, 2, 3]] {
        Case::new([7, 5, 7], layout, ALTERNATING).run();
    }
    for layout in [1, 2, 3, 4, 8] {
        Case::new([19], [layout], ALTERNATING).run();
    }
}

#[test]
fn widths_that_differ_by_axis_and_are_less_than_the_halo() {
    for (halo, width) in [([0, 2, 1], [0, 2, 1]), ([3, 2, 2], [3, 0, 1]), ([1, 2, 3], [0, 0, 3])] {
        for entity in [Entity::Cell, Entity::Node, Entity::Face(2), Entity::Edge(1)] {
            let case = Case::new([8, 9, 10], [2, 2, 1], FieldSpec::array(F32, entity, 1));
            Case { halo, width, ..case }.run();
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
            let case = Case::new([5, 6, 7], layout, SCALAR);
            Case { pattern: pattern.clone(), width: [1, 2, 1], halo: [1, 2, 1], fields, ..case }.run();
        }
    }
}

#[test]
fn a_subdomain_as_thin_as_its_halo() {
    for layout in [[3, 1], [2, 2], [1, 3]] {
        let cells = [layout[0] * 2, layout[1] * 3];
        for alternating in [false, true] {
            let field = FieldSpec { alternating, ..SCALAR };
            Case { halo: [2, 3], width: [2, 3], ..Case::new(cells, layout, field) }.run();
        }
    }
    Case::new([1, 1], [1, 1], SCALAR).run();
    Case::new([2, 4], [2, 4], SCALAR).run();
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
            for (periodic, field) in [([true; 2], SCALAR), ([false; 2], ALTERNATING)] {
                let case = Case::new([12, 40], layout, field);
                Case { periodic, pattern: pattern.clone(), epochs: 12, ..case }.run();
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
            Case { fields: fields.clone(), ..Case::new([11, 13], layout, SCALAR) }.run();
        }
    }
}

#[test]
fn long_runs_go_straight_into_ghosts() {
    for swaps in [0, 1, 2, 3] {
        for fields in [vec![SCALAR], vec![ALTERNATING], vec![ALTERNATING, ALTERNATING]] {
            // 40 cells of 8 bytes: above 200 bytes, in runs of at least a cache line.
            let case = Case::new([10, 40], [2, 1], SCALAR);
            Case { swaps, swaps_before: swaps / 2, fields, epochs: 8, ..case }.run_direct();
        }
    }
    let three = Case::new([6, 10, 12], [2, 1, 1], ALTERNATING);
    Case { pattern: Pattern::Faces, width: [2, 1, 1], halo: [2, 1, 1], ..three }.run_direct();
    // Ranks whose arrays have other strides than their peers'.
    for field in [SCALAR, ALTERNATING] {
        Case::new([6, 7, 12], [1, 2, 1], field).run_direct();
        Case { halo: [1, 8], width: [1, 8], ..Case::new([10, 33], [1, 2], field) }.run_direct();
    }
}

#[test]
fn short_runs_go_straight_into_ghosts_where_there_are_many() {
    // Two columns of 4,200 runs of 8 bytes: more than 64 KiB. 4,000 each are less.
    for field in [SCALAR, ALTERNATING] {
        Case { epochs: 4, ..Case::new([4_200, 2], [1, 2], field) }.run_direct();
    }
    Case { pattern: Pattern::Faces, epochs: 4, ..Case::new([4_000, 2], [1, 2], SCALAR) }.run_packed();
}

#[test]
fn swaps_that_do_not_alternate_with_exchanges() {
    for swaps in [0, 2, 3] {
        for layout in [[1, 2], [2, 2]] {
            for pattern in [Pattern::All, offsets(&[&[0, 1], &[1, 1]])] {
                let fields = vec![ALTERNATING, FieldSpec::alternating(U8, Entity::Node, 1)];
                let case = Case::new([12, 12], layout, SCALAR);
                Case { swaps, fields, pattern, epochs: 7, ..case }.run();
            }
        }
    }
}

/// A case of `D` dimensions made up from a seed.
fn random_case<const D: usize>(seed: u64) -> Case<D> {
    let mut random = Random::new(seed);
    let mut layout = [1; D];
    let ranks = random.pick(&[1, 2, 3, 4, 6, 8]);
    let mut rest: usize = ranks;
    while rest > 1 {
        let prime = if rest.is_multiple_of(2) { 2 } else { 3 };
        layout[random.below(D)] *= prime;
        rest /= prime;
    }
    let width = layout.map(|_| random.pick(&[0, 1, 1, 2, 3]));
    let halo = width.map(|width| width + random.pick(&[0, 0, 1]));
    let cells = std::array::from_fn(|axis| layout[axis] * (halo[axis] + 1) + random.below(4));
    let field = |random: &mut Random| FieldSpec {
        element: random.pick(&[U8, I32, I64, F32, F64]),
        entity: match random.below(4) {
            0 => Entity::Node,
            1 => Entity::Face(random.below(D)),
            2 => Entity::Edge(random.below(D)),
            _ => Entity::Cell,
        },
        components: random.between(1, 3),
        alternating: random.once_in(2),
    };
    let fields = (0..random.between(1, 3)).map(|_| field(&mut random)).collect();
    let pattern = match random.below(3) {
        0 => Pattern::All,
        1 => Pattern::Faces,
        _ => {
            let all = streamhalo_tests::offsets_of::<D>(&Pattern::All);
            Pattern::Offsets(
                all.into_iter().filter(|_| random.once_in(2)).map(|offset| offset.to_vec()).collect(),
            )
        }
    };
    Case {
        cells,
        periodic: layout.map(|_| random.once_in(2)),
        layout,
        halo,
        width,
        pattern,
        fields,
        swaps: random.pick(&[0, 1, 1, 1, 2, 3]),
        swaps_before: random.below(2),
        epochs: 6,
        seed,
    }
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
