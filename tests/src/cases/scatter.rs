//! Scatters: what each operation makes of entries that several ranks contribute to, bit for bit.

use super::Done;
use crate::{Oracle, Origin, Sample, Scenario, stream_of};
use std::collections::BTreeMap;
use streamhalo::{Array, Entity, GlobalGrid, HaloError, LocalGrid, Op, Pattern, StreamHalo, World};

/// A scatter to be tried in every way.
#[derive(Debug, Clone)]
pub struct ScatterCase<const D: usize> {
    /// Of the whole grid.
    pub cells: [usize; D],
    /// By axis.
    pub periodic: [bool; D],
    /// Ranks on each axis.
    pub layout: [usize; D],
    /// Of the exchange; arrays have one layer of ghosts more.
    pub width: [usize; D],
    /// The neighbours.
    pub pattern: Pattern,
    /// Where values sit.
    pub entity: Entity,
    /// Elements at each entry.
    pub components: usize,
}

impl<const D: usize> ScatterCase<D> {
    /// A periodic grid whose cells are exchanged one layer deep with all neighbours.
    pub fn new(cells: [usize; D], layout: [usize; D]) -> Self {
        Self {
            cells,
            periodic: [true; D],
            layout,
            width: [1; D],
            pattern: Pattern::All,
            entity: Entity::Cell,
            components: 1,
        }
    }

    /// How many ranks it is for.
    pub fn ranks(&self) -> usize {
        self.layout.iter().product()
    }

    /// With one layer of ghosts more than is exchanged.
    pub fn grid(&self, world: &World) -> Result<LocalGrid<D>, HaloError> {
        let halo = self.width.map(|width| width + 1);
        Ok(GlobalGrid::new(self.cells, self.periodic)?.partition_as(world, self.layout)?.local(halo)?)
    }

    /// What a scatter means on the rank of `grid`.
    pub fn oracle(&self, grid: &LocalGrid<D>) -> Oracle<D> {
        Oracle::new(grid.subdomain(), self.entity, &self.pattern, self.width)
    }

    /// The exchange of a field.
    pub fn halo<T: Sample>(
        &self,
        world: &World,
        field: &mut Array<T, D>,
        way: Scenario,
        op: Op,
    ) -> Result<StreamHalo, HaloError> {
        let stream = streamhalo::grid::Field::info(field).stream.clone();
        StreamHalo::builder(world, &stream)
            .backend(way.backend)
            .pattern(self.pattern.clone())
            .scatter(op)
            .build(self.width, field)
    }

    /// What a scatter must give on the owned entries of the oracle's rank: contributions combined in
    /// the order of their offsets.
    fn expected<T: Sample>(
        &self,
        oracle: &Oracle<D>,
        world: &World,
        op: Op,
        before: impl Fn(usize, [usize; D], usize) -> T,
    ) -> BTreeMap<([usize; D], usize), T> {
        /// What is added to an entry, with the offset that it comes from.
        type Contributions<T, const D: usize> = Vec<([i32; D], T)>;
        let mut contributions: BTreeMap<([usize; D], usize), Contributions<T, D>> = BTreeMap::new();
        for sharer in 0..world.size() {
            let there = oracle.of_rank(sharer);
            for local in there.entries() {
                if let Origin::Ghost { global, offset } = there.origin(local) {
                    for component in 0..self.components {
                        let shared = (offset, before(sharer, local, component));
                        contributions.entry((global, component)).or_default().push(shared);
                    }
                }
            }
        }
        let mut result = BTreeMap::new();
        for local in oracle.entries() {
            let Origin::Owned { global } = oracle.origin(local) else { continue };
            for component in 0..self.components {
                let mut given = contributions.remove(&(global, component)).unwrap_or_default();
                given.sort_by_key(|(offset, _)| *offset);
                let own = before(world.rank(), local, component);
                let all = given.into_iter().fold(own, |own, (_, other)| own.combined(op, other));
                result.insert((global, component), all);
            }
        }
        result
    }

    /// Checks an operation in some ways, twice each, on entries made by `before(rank, local, component)`, and on those of
    /// components that arrays do not have: what an earlier scatter has left in a buffer is wrong.
    pub fn check_op<T: Sample>(
        &self,
        world: &World,
        ways: impl Iterator<Item = Scenario>,
        op: Op,
        before: impl Fn(usize, [usize; D], usize) -> T,
    ) -> Result<Done, HaloError> {
        let grid = self.grid(world)?;
        let oracle = self.oracle(&grid);
        let before = |round: usize, rank: usize, local, component| {
            before(rank, local, component + round * self.components)
        };
        let expected = [0, 1].map(|round| {
            self.expected(&oracle, world, op, |rank, local, component| before(round, rank, local, component))
        });
        let mut done = Done::default();
        for way in ways {
            let stream = stream_of(world, way.kind)?;
            let mut field = Array::<T, D>::with_components(&grid, self.entity, self.components, &stream)?;
            let mut halo = self.halo(world, &mut field, way, op)?;
            let mut checksum = 0_u64;
            for (round, expected) in expected.iter().enumerate() {
                field.fill_with_ghosts(|local, component| before(round, world.rank(), local, component))?;
                halo.scatter(&mut field)?;
                field.with_owned(|owned| {
                    for (found, (key, expected)) in owned.iter().zip(expected) {
                        assert_eq!(
                            found.bits(),
                            expected.bits(),
                            "{op:?} of {key:?} is {found:?}, not {expected:?}, in {self:?}, {way:?}"
                        );
                        checksum = checksum.rotate_left(5) ^ found.bits();
                    }
                })?;
            }
            done.add(&Done::new(checksum, &halo));
        }
        Ok(done)
    }
}
