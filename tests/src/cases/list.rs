//! The cases that fit a number of ranks, in an order that is the same on all of them.

use super::auto::chosen;
use super::misused::begun_twice;
use super::order::{
    blocked_elsewhere, dropped_early, opposite_orders, random_delays, slow_rank, two_streams, wrap,
};
use super::periods::periods;
use super::refusals::{a_mismatch, a_wrong_offset, another_width, wrong_backends};
use super::worlds::{many_tags, parts, world_and_part};
use super::{ALTERNATING, CELLS, Done, GatherCase, ScatterCase, offsets, random_gather};
use crate::{FieldSpec, KINDS, Sample, Scenario, value};
use std::fmt;
use streamhalo::ElementType::{F32, F64, I32, I64, U8};
use streamhalo::{Entity, HaloError, Op, Pattern, World};

type Run = dyn Fn(&World, Scenario) -> Result<Done, HaloError> + Send + Sync;

/// An exchange, or several, to be tried over a world in some way.
pub struct Case {
    /// What a failure is reported as.
    pub name: &'static str,
    /// Whether it is the same on all streams of the host, and tried enough with those of one kind: the host's or a device's.
    pub is_of_any_stream: bool,
    run: Box<Run>,
}

impl Case {
    /// Tries it. Collective; panics on a rank that gets a wrong value.
    pub fn run(&self, world: &World, way: Scenario) -> Result<Done, HaloError> {
        (self.run)(world, way)
    }
}

impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Case({})", self.name)
    }
}

#[derive(Default)]
pub(super) struct List(pub(super) Vec<Case>);

impl List {
    pub(super) fn add(
        &mut self,
        name: &'static str,
        run: impl Fn(&World, Scenario) -> Result<Done, HaloError> + Send + Sync + 'static,
    ) {
        self.0.push(Case { name, is_of_any_stream: false, run: Box::new(run) });
    }

    /// As [`List::add`], of a case for which it makes no difference on whose thread streams of the host run.
    pub(super) fn add_of_any_stream(
        &mut self,
        name: &'static str,
        run: impl Fn(&World, Scenario) -> Result<Done, HaloError> + Send + Sync + 'static,
    ) {
        self.0.push(Case { name, is_of_any_stream: true, run: Box::new(run) });
    }

    fn gather<const D: usize>(&mut self, name: &'static str, case: GatherCase<D>) {
        self.add(name, move |world, way| case.run_way(world, way));
    }
}

/// The largest number that divides the ranks and is at most its own cofactor.
pub(super) fn smaller_side(ranks: usize) -> usize {
    (1..=ranks).rfind(|side| side * side <= ranks && ranks.is_multiple_of(*side)).expect("1 divides")
}

/// The cases for that many ranks. With `at_length` false only those that are carried out in different
/// ways over different fabrics: a message of every size, one way and both, other ranks' delays, the wrap,
/// a scatter, parts of the world, and a refusal.
pub fn cases_for(ranks: usize, at_length: bool) -> Vec<Case> {
    let mut list = List::default();
    let side = smaller_side(ranks);
    let plane = [ranks / side, side];
    brief(&mut list, ranks, plane);
    if at_length {
        geometry(&mut list, ranks, plane);
        messages(&mut list, ranks, plane);
        scatters(&mut list, plane);
        timing(&mut list, ranks, plane);
        list.add("a world and its like, in opposite orders", |world, way| world_and_part(world, way, 40));
        list.add("many exchanges, finished in another order", many_tags);
        list.add("another width on one rank", another_width);
        list.add("a wrong offset on one rank", a_wrong_offset);
        list.add("backends that are none or differ", wrong_backends);
    }
    list.0
}

/// What every fabric is tried with.
fn brief(list: &mut List, ranks: usize, plane: [usize; 2]) {
    for (row, field) in [(8, CELLS), (40, ALTERNATING), (1_100, CELLS)] {
        let case = GatherCase::new([2 * ranks, row], [ranks, 1], field);
        list.gather("rows of any length", GatherCase { epochs: 4, ..case });
    }
    // Above 64 KiB, where libraries change their protocol once more.
    let case = GatherCase::new([ranks, 8_300], [ranks, 1], CELLS);
    list.gather("long rows", GatherCase { pattern: Pattern::Faces, epochs: 2, ..case });
    let case = GatherCase::new([4 * plane[0] + 1, 12 * plane[1] + 1], plane, ALTERNATING);
    let pattern = offsets(&[&[0, 1], &[1, 0], &[-1, -1]]);
    list.gather("asymmetric offsets", GatherCase { pattern, periodic: [true, false], ..case });
    let case = uneven_sums(plane);
    list.add("sums of any size", move |world, way| {
        case.check_op::<f64>(world, [way].into_iter(), Op::Sum, uneven)
    });
    list.add("two exchanges in opposite orders", |world, way| opposite_orders(world, way, 200, &[CELLS]));
    let chain = ([3 * ranks, 30], [ranks, 1], false);
    list.add("a one-way chain with a slow rank", move |world, way| {
        slow_rank(world, way, chain, (&[CELLS], &offsets(&[&[1, 0]])), (ranks - 1, 20))
    });
    list.add("epochs that wrap", |world, way| wrap(world, way, 60, ALTERNATING, &Pattern::All));
    list.add("a period that is replayed", |world, way| periods(world, way, 40, &Pattern::All));
    list.add("an exchange that is dropped early", |world, way| dropped_early(world, way, 60));
    list.add("the world and its parts", parts);
    list.add("the backend that is measured to be the fastest", chosen);
    list.add("messages that do not match", a_mismatch);
    list.add("an exchange that is begun twice", begun_twice);
}

/// What is decided before anything is sent: which entries of which arrays.
fn geometry(list: &mut List, ranks: usize, plane: [usize; 2]) {
    let of = |entity: Entity, alternating: bool| {
        [U8, I32, I64, F32, F64].map(|element| FieldSpec {
            alternating,
            ..FieldSpec::array(element, entity, 1 + element.bytes() % 3)
        })
    };
    let case =
        GatherCase { epochs: 4, ..GatherCase::new([4 * plane[0] + 1, 3 * plane[1] + 1], plane, CELLS) };
    for (entity, periodic) in [
        (Entity::Cell, [true, true]),
        (Entity::Node, [false, true]),
        (Entity::Face(0), [true, false]),
        (Entity::Edge(0), [false, false]),
    ] {
        let alternating = periodic[0];
        list.gather(
            "every element type",
            GatherCase { periodic, fields: of(entity, alternating).to_vec(), ..case.clone() },
        );
    }
    let fields = vec![
        FieldSpec::array(U8, Entity::Cell, 3),
        FieldSpec::array(F64, Entity::Node, 1),
        FieldSpec::alternating(I32, Entity::Face(1), 2),
        FieldSpec::array(F32, Entity::Face(0), 1),
        FieldSpec::alternating(U8, Entity::Edge(0), 1),
        FieldSpec::array(I64, Entity::Cell, 2),
    ];
    list.gather("several fields of different kinds", GatherCase { fields, ..case });
    let line = GatherCase::new([4 * ranks + 3], [ranks], ALTERNATING);
    list.gather("one dimension, uneven", GatherCase { halo: [3], width: [2], epochs: 4, ..line });
    let space = [1, plane[0], plane[1]];
    for (layout, pattern) in [(space, Pattern::Faces), ([plane[1], 1, plane[0]], Pattern::All)] {
        let cells = layout.map(|ranks| 3 * ranks + 2);
        let case = GatherCase::new(cells, layout, FieldSpec::array(F32, Entity::Cell, 1));
        let (halo, width) = ([1, 2, 3], [1, 2, 2]);
        list.gather("three dimensions, wide", GatherCase { pattern, halo, width, epochs: 3, ..case });
    }
    for seed in 0..3 {
        list.gather("at random", GatherCase { epochs: 4, ..random_gather::<1>(seed, ranks) });
        list.gather("at random", GatherCase { epochs: 4, ..random_gather::<2>(100 + seed, ranks) });
        list.gather("at random", GatherCase { epochs: 3, ..random_gather::<3>(200 + seed, ranks) });
    }
}

/// Messages of every size, in both directions or one, with and without alternating fields.
fn messages(list: &mut List, ranks: usize, plane: [usize; 2]) {
    for (row, field) in [(8, ALTERNATING), (40, CELLS), (1_100, ALTERNATING)] {
        list.gather("rows of any length", GatherCase::new([2 * ranks, row], [ranks, 1], field));
    }
    let one_way: [&[&[i32]]; 4] = [&[&[0, 1]], &[&[0, 1], &[1, 0], &[-1, -1]], &[&[1, 1], &[1, -1]], &[]];
    for (index, pattern) in one_way.into_iter().enumerate() {
        let periodic = [index % 2 == 0; 2];
        let field = if index % 2 == 0 { CELLS } else { ALTERNATING };
        let case = GatherCase::new([4 * plane[0], 12 * plane[1]], plane, field);
        list.gather(
            "offsets that go one way",
            GatherCase { periodic, pattern: offsets(pattern), epochs: 10, ..case },
        );
    }
    for pattern in [Pattern::All, offsets(&[&[0, 1], &[1, 0], &[-1, 0]])] {
        let case = GatherCase::new([5, 6 * ranks], [1, ranks], FieldSpec::array(I64, Entity::Node, 2));
        list.gather("one's own neighbour", GatherCase { pattern, ..case });
    }
    let case = GatherCase::new([2 * plane[0], 3 * plane[1]], plane, ALTERNATING);
    list.gather("as thin as the halo", GatherCase { halo: [2, 3], width: [2, 3], ..case.clone() });
    for swaps in [0, 2] {
        list.gather("swaps that do not alternate", GatherCase { swaps, ..case.clone() });
    }
}

/// Sums without folded axes, where they are taken in the order of the offsets.
fn uneven_sums(plane: [usize; 2]) -> ScatterCase<2> {
    ScatterCase {
        entity: Entity::Node,
        components: 2,
        width: [2, 1],
        periodic: plane.map(|ranks| ranks > 1),
        ..ScatterCase::new([4 * plane[0], 5 * plane[1]], plane)
    }
}

/// Values of very different size: every other order of addition gives other bits.
fn uneven(rank: usize, local: [usize; 2], component: usize) -> f64 {
    let bits = value::<i64>(rank, &local, component, 6);
    (bits % 1000 + 1) as f64 * 10_f64.powi((bits / 1000 % 30) as i32 - 15)
}

/// Operations on entries that several ranks contribute to.
fn scatters(list: &mut List, plane: [usize; 2]) {
    let nodes = uneven_sums(plane);
    let large = ScatterCase { components: 3, ..ScatterCase::new([4 * plane[0], 350 * plane[1]], plane) };
    list.add("large sums", move |world, way| large.check_op::<i64>(world, [way].into_iter(), Op::Sum, plain));
    let case = ScatterCase { pattern: offsets(&[&[0, 1], &[1, 0], &[-1, -1]]), ..nodes.clone() };
    list.add("the smallest, one way", move |world, way| {
        case.check_op::<f32>(world, [way].into_iter(), Op::Min, |rank, local, c| {
            -plain::<f32>(rank, local, c)
        })
    });
    list.add("the largest", move |world, way| nodes.check_op::<u8>(world, [way].into_iter(), Op::Max, plain));
}

fn plain<T: Sample>(rank: usize, local: [usize; 2], component: usize) -> T {
    value(rank, &local, component, 1)
}

/// What depends on who comes when.
fn timing(list: &mut List, ranks: usize, plane: [usize; 2]) {
    for row in [8, 1_100] {
        list.add("two exchanges in opposite orders", move |world, way| {
            opposite_orders(world, way, row, &[ALTERNATING])
        });
        list.add("a rank that blocks elsewhere", move |world, way| blocked_elsewhere(world, way, row));
    }
    for (columns, pattern) in [(3, Pattern::All), (1_100, Pattern::All), (30, offsets(&[&[1, 0], &[-1, 1]]))]
    {
        list.add("periods of every kind", move |world, way| periods(world, way, columns, &pattern));
    }
    list.add("two streams", |world, way| two_streams(world, way, [way.kind, KINDS[1]]));
    let ring = ([2 * ranks, 60], [ranks, 1], true);
    list.add("a ring with a slow rank", move |world, way| {
        slow_rank(world, way, ring, (&[ALTERNATING], &Pattern::All), (0, 30))
    });
    let shape = ([4 * plane[0], 6 * plane[1]], plane, true);
    let specs =
        [FieldSpec::alternating(U8, Entity::Cell, 1), FieldSpec::alternating(F64, Entity::Face(0), 2)];
    list.add("random delays", move |world, way| random_delays(world, way, shape, &specs, 40));
    for (row, pattern) in [(8, offsets(&[&[1, 0]])), (60, offsets(&[&[1, 0], &[-1, 1]]))] {
        list.add("epochs that wrap", move |world, way| wrap(world, way, row, CELLS, &pattern));
    }
}
