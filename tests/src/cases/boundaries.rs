//! Ghosts beyond boundaries of the grid, made by conditions: what stands there by the place in the whole grid alone.

use super::Done;
use crate::random::mix;
use crate::{Sample, Scenario, stream_of, value};
use streamhalo::{
    Array, Boundary, Entity, GlobalGrid, HaloError, IndexBox, LocalGrid, Mirrored, Pattern, Rows, RowsMut,
    Side, StreamHalo, Tile, World,
};

/// A grid, and what is at the boundaries of a field on it.
struct Case<T, const D: usize> {
    cells: [usize; D],
    layout: [usize; D],
    periodic: [bool; D],
    halo: [usize; D],
    entity: Entity,
    components: usize,
    /// By axis and side: for each component.
    conditions: [[Vec<Boundary<T>>; 2]; D],
}

impl<T: Sample, const D: usize> Case<T, D> {
    /// What is at a place of the whole grid once axes have been done in their order, or beyond it: the last axis along which it
    /// is beyond decides.
    fn at(&self, mut place: [i64; D], component: usize, epoch: u32, twice_less: &impl Fn(T, T) -> T) -> T {
        for axis in (0..D).rev() {
            let is_node = self.entity.is_node_like(axis);
            let entries = self.cells[axis] as i64 + i64::from(is_node && !self.periodic[axis]);
            if self.periodic[axis] {
                place[axis] = place[axis].rem_euclid(entries);
                continue;
            }
            // Entries from the outermost one to the place, which is 0 for that itself.
            let (outermost, side) = match place[axis] {
                ..0 => (0, 0),
                index if index >= entries => (entries - 1, 1),
                _ => continue,
            };
            let distance = place[axis] - outermost;
            let between = if is_node { 0 } else { distance.signum() };
            let of_side = &self.conditions[axis][side];
            match of_side[component % of_side.len()] {
                Boundary::Value(value) => return value,
                Boundary::Nearest => place[axis] = outermost,
                Boundary::Even => place[axis] = outermost - distance + between,
                Boundary::Odd(about) => {
                    place[axis] = outermost - distance + between;
                    return twice_less(about, self.at(place, component, epoch, twice_less));
                }
            }
        }
        value(0, &place.map(|index| index as usize), component, epoch)
    }

    /// All entries of a box of a rank's part, in order.
    fn expected(
        &self,
        grid: &LocalGrid<D>,
        part: IndexBox<D>,
        epoch: u32,
        twice_less: &impl Fn(T, T) -> T,
    ) -> Vec<u64> {
        let (owned, global) = (grid.owned(self.entity).start, grid.owned_global(self.entity).start);
        let place = |index: [usize; D]| {
            std::array::from_fn(|axis| global[axis] as i64 + index[axis] as i64 - owned[axis] as i64)
        };
        let of_entry = |index| (0..self.components).map(move |component| (place(index), component));
        part.indices()
            .flat_map(of_entry)
            .map(|(place, component)| self.at(place, component, epoch, twice_less).bits())
            .collect()
    }

    /// Whether all that is mirrored is owned, also what begins with an entry on the boundary.
    fn is_thick(&self) -> bool {
        (0..D).all(|axis| self.halo[axis] < self.cells[axis] / self.layout[axis])
    }

    fn enqueue(&self, field: &mut Array<T, D>) -> Result<(), HaloError>
    where
        T: Mirrored,
    {
        for (axis, sides) in self.conditions.iter().enumerate() {
            for (side, conditions) in [Side::Low, Side::High].into_iter().zip(sides) {
                field.enqueue_boundary(axis, side, conditions)?;
            }
        }
        Ok(())
    }

    /// Gathers a field and makes what is beyond its boundaries, some times; then once more while the gather is in flight, where
    /// what is made of no other rank's ghosts can be read.
    fn run(&self, world: &World, way: Scenario, twice_less: impl Fn(T, T) -> T) -> Result<u64, HaloError>
    where
        T: Mirrored,
    {
        let stream = stream_of(world, way.kind)?;
        Boundary::<T>::compile(&stream)?;
        let grid =
            GlobalGrid::new(self.cells, self.periodic)?.partition_as(world, self.layout)?.local(self.halo)?;
        let zeros = || Array::<T, D>::with_components(&grid, self.entity, self.components, &stream);
        let (mut field, mut seen) = (zeros()?, zeros()?);
        field.fill_with_ghosts(|_, _| T::SENTINEL)?;
        let mut halo = StreamHalo::new(world, &stream, way.backend, Pattern::All, self.halo, &mut field)?;
        let whole = IndexBox::new([0; D], grid.extents(self.entity));
        let mut checksum = 0;
        for epoch in 1..=3 {
            field.fill(|index, component| value(0, &index, component, epoch))?;
            if epoch < 3 {
                halo.enqueue_gather(&mut field)?;
            } else {
                let mut in_flight = halo.begin_gather(&mut field)?;
                self.enqueue(&mut in_flight)?;
                // The owned entries, and what is beside them beyond boundaries.
                let mut beside = grid.owned(self.entity);
                for axis in 0..D {
                    let is_boundary = |side| grid.beyond(self.entity, axis, side).is_some();
                    if is_boundary(Side::Low) {
                        beside.start[axis] = 0;
                    }
                    if is_boundary(Side::High) {
                        beside.end[axis] = whole.end[axis];
                    }
                }
                let copy = |tile: Tile, (from, mut to): (Rows<'_, T>, RowsMut<'_, T>)| {
                    for (i, j) in tile.rows() {
                        to.row(i, j).copy_from_slice(from.span(i, j, tile.start[2]..tile.end[2]));
                    }
                };
                stream.launch_on_host("look", beside.tile(), (in_flight.reader()?, seen.writer()?), copy)?;
                in_flight.finish()?;
                let found = bits_of(&seen.copy_with_ghosts()?, self.components, whole, beside);
                let expected = self.expected(&grid, beside, epoch, &twice_less);
                if self.is_thick() {
                    assert_alike(&found, &expected, &format!("in flight, {way:?}"));
                }
            }
            self.enqueue(&mut field)?;
            let found = bits_of(&field.copy_with_ghosts()?, self.components, whole, whole);
            assert_alike(&found, &self.expected(&grid, whole, epoch, &twice_less), &format!("{way:?}"));
            checksum = found.into_iter().fold(checksum, |sum, bits| mix(sum ^ bits));
        }
        Ok(checksum)
    }
}

fn assert_alike(found: &[u64], expected: &[u64], context: &str) {
    let differs = found.iter().zip(expected).position(|(found, expected)| found != expected);
    assert_eq!((found.len(), differs), (expected.len(), None), "{context}: where the first other one is");
}

/// The bits of the entries of a box, of an array of all.
fn bits_of<T: Sample, const D: usize>(
    all: &streamhalo::ndarray::ArrayD<T>,
    components: usize,
    whole: IndexBox<D>,
    part: IndexBox<D>,
) -> Vec<u64> {
    let entries = all.as_slice().expect("it is a copy").chunks_exact(components);
    let is_in =
        |index: &[usize; D]| (0..D).all(|axis| (part.start[axis]..part.end[axis]).contains(&index[axis]));
    let within = whole.indices().zip(entries).filter(|(index, _)| is_in(index));
    within.flat_map(|(_, entry)| entry.iter().map(|element| element.bits())).collect()
}

/// Of fields of one type, on every kind of entity, in one, two and three dimensions, with one layer and more, and conditions for
/// all components and for each. `twice_less` gives twice the first of two elements less the second.
///
/// # Errors
/// Those of exchanges.
///
/// # Panics
/// On a rank that finds another ghost.
pub fn of_fields<T: Sample + Mirrored>(
    world: &World,
    way: Scenario,
    twice_less: impl Fn(T, T) -> T + Copy,
) -> Result<Done, HaloError> {
    use Boundary::{Even, Nearest, Odd, Value};
    let ranks = world.size();
    let [one, two] = [1, 2].map(|seed| value::<T>(seed, &[], 0, 0));
    let line = |entity, components, conditions| Case {
        cells: [4 * ranks],
        layout: [ranks],
        periodic: [false],
        halo: [3],
        entity,
        components,
        conditions: [conditions],
    };
    let slips = [Odd(one), Even, Even];
    let mut sums = vec![
        line(Entity::Cell, 1, [vec![Even], vec![Odd(one)]]).run(world, way, twice_less)?,
        line(Entity::Node, 2, [vec![Odd(two)], vec![Even, Value(one)]]).run(world, way, twice_less)?,
        line(Entity::Cell, 3, [vec![Nearest], slips.to_vec()]).run(world, way, twice_less)?,
    ];
    for (entity, periodic) in [
        (Entity::Cell, [false, false]),
        (Entity::Node, [false, false]),
        (Entity::Face(0), [false, true]),
        (Entity::Edge(0), [true, false]),
    ] {
        for layout in [[ranks, 1], [1, ranks]] {
            let case = Case {
                cells: [4 * layout[0], 4 * layout[1] + 1],
                layout,
                periodic,
                halo: [2, 3],
                entity,
                components: 2,
                conditions: [
                    [vec![Even], vec![Odd(one), Nearest]],
                    [vec![Value(two), Odd(two)], vec![Nearest, Nearest]],
                ],
            };
            sums.push(case.run(world, way, twice_less)?);
        }
    }
    let space = Case {
        cells: [3, 3 * ranks, 70],
        layout: [1, ranks, 1],
        periodic: [false; 3],
        halo: [1, 2, 1],
        entity: Entity::Face(1),
        components: 3,
        conditions: [
            [slips.to_vec(), vec![Odd(two)]],
            [vec![Even], vec![Odd(one), Value(one), Value(one)]],
            [vec![Nearest], vec![Even]],
        ],
    };
    sums.push(space.run(world, way, twice_less)?);
    if ranks == 1 {
        // As many layers as there are cells.
        for entity in [Entity::Cell, Entity::Node] {
            let short = Case { cells: [3], ..line(entity, 1, [vec![Even], vec![Odd(one)]]) };
            sums.push(short.run(world, way, twice_less)?);
        }
    }
    if ranks == 2 {
        // So thin that a mirror image has an entry of the other rank's.
        let thin = Case { cells: [3, 4, 5], ..space };
        sums.push(thin.run(world, way, twice_less)?);
    }
    Ok(Done { checksum: sums.into_iter().fold(0, |sum, one| mix(sum ^ one)), ..Done::default() })
}
