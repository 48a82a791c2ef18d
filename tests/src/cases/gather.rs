//! Gathers against the oracle: every entry is made from its global index, component, field and
//! epoch, so each ghost has one right value; ghosts that no neighbour fills keep a sentinel.

use super::Done;
use crate::{FieldSet, FieldSpec, Random, Scenario, delay, each_way, offsets_of, on_ranks, stream_of};
use streamhalo::ElementType::{F32, F64, I32, I64, U8};
use streamhalo::{Entity, GlobalGrid, HaloError, Pattern, StreamHalo, World};

/// A gather to be tried in every way.
#[derive(Debug, Clone)]
pub struct GatherCase<const D: usize> {
    /// Of the whole grid.
    pub cells: [usize; D],
    /// By axis.
    pub periodic: [bool; D],
    /// Ranks on each axis.
    pub layout: [usize; D],
    /// Of the arrays.
    pub halo: [usize; D],
    /// Of the exchange.
    pub width: [usize; D],
    /// The neighbours.
    pub pattern: Pattern,
    /// What is exchanged together.
    pub fields: Vec<FieldSpec>,
    /// Of alternating fields, between two exchanges.
    pub swaps: usize,
    /// The same, before the exchange is made.
    pub swaps_before: usize,
    /// How many exchanges.
    pub epochs: u32,
    /// Of the pauses.
    pub seed: u64,
}

impl<const D: usize> GatherCase<D> {
    /// A periodic grid with one field that is exchanged one layer deep with all neighbours.
    pub fn new(cells: [usize; D], layout: [usize; D], field: FieldSpec) -> Self {
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

    /// How many ranks it is for.
    pub fn ranks(&self) -> usize {
        self.layout.iter().product()
    }

    /// Runs it in every way, on threads.
    pub fn run(&self) {
        on_ranks(self.ranks(), |world| each_way().try_for_each(|way| self.run_way(world, way).map(|_| ())));
    }

    /// All epochs in one way, on all ranks of a world.
    pub fn run_way(&self, world: &World, way: Scenario) -> Result<Done, HaloError> {
        let stream = stream_of(world, way.kind)?;
        let grid =
            GlobalGrid::new(self.cells, self.periodic)?.partition_as(world, self.layout)?.local(self.halo)?;
        let mut fields = FieldSet::new(&grid, &stream, &self.fields, &self.pattern, self.width)?;
        (0..self.swaps_before).for_each(|_| fields.swap());
        let mut halo = StreamHalo::builder(world, &stream)
            .backend(way.backend)
            .pattern(self.pattern.clone())
            .swaps_per_exchange(self.swaps)
            .build(self.width, &mut fields)?;
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
        Ok(Done::new(fields.checksum(), &halo))
    }
}

/// A case of `D` dimensions made up from a seed, on that many ranks.
pub fn random_gather<const D: usize>(seed: u64, ranks: usize) -> GatherCase<D> {
    let mut random = Random::new(seed);
    let mut layout = [1; D];
    let mut rest = ranks;
    while rest > 1 {
        let prime = (2..=rest).find(|prime| rest.is_multiple_of(*prime)).expect("it divides itself");
        layout[random.below(D)] *= prime;
        rest /= prime;
    }
    let mut width = layout.map(|_| random.pick(&[0, 1, 1, 2, 3]));
    if width == [0; D] {
        width[random.below(D)] = 1;
    }
    let halo = width.map(|width| width + random.pick(&[0, 0, 1]));
    let mut cells: [usize; D] = std::array::from_fn(|axis| layout[axis] * (halo[axis] + 1) + random.below(4));
    // Long rows begin with a line of the caches.
    cells[D - 1] += layout[D - 1] * random.pick(&[0, 0, 33, 90]);
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
            let all = offsets_of::<D>(&Pattern::All);
            Pattern::Offsets(
                all.into_iter().filter(|_| random.once_in(2)).map(|offset| offset.to_vec()).collect(),
            )
        }
    };
    GatherCase {
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
