//! Random partitions with a halo and an exchange, for the properties of the other modules.

use proptest::prelude::*;
use proptest::test_runner::{Config, TestCaseResult, TestRunner};
use std::fmt::Debug;
use streamhalo_grid::{Entity, GlobalGrid, IndexBox, Partition, Subdomain};

/// A partition, the halo of its subdomains and an exchange that may or may not be possible on it.
#[derive(Clone, Debug)]
pub(crate) struct Case<const D: usize> {
    pub(crate) partition: Partition<D>,
    pub(crate) entity: Entity,
    pub(crate) halo_width: [usize; D],
    pub(crate) exchange_width: [usize; D],
}

impl<const D: usize> Case<D> {
    pub(crate) fn subdomain(&self, rank: usize) -> Subdomain<D> {
        self.partition.subdomain(rank, self.halo_width).unwrap()
    }
}

#[derive(Clone, Copy, Debug)]
struct Axis {
    cells: usize,
    /// What they are refined by.
    factor: usize,
    parts: usize,
    periodic: bool,
    halo_width: usize,
    exchange_width: usize,
}

fn axis(most_cells: usize) -> impl Strategy<Value = Axis> {
    (prop_oneof![2 => Just(1), 1 => 2..=3_usize], any::<bool>())
        .prop_flat_map(move |(factor, periodic)| (1..=most_cells / factor, Just(factor), Just(periodic)))
        .prop_flat_map(|(cells, factor, periodic)| (Just((cells, factor, periodic)), 1..=cells.min(4)))
        .prop_flat_map(|((cells, factor, periodic), parts)| {
            // Subdomains as thin as their halo come up often; thinner ones are in `errors`.
            let widest = if periodic || parts > 1 { cells / parts * factor } else { 4 };
            (Just((cells, factor, periodic, parts)), 0..=widest.min(4))
        })
        .prop_flat_map(|(axis, halo_width)| (Just(axis), Just(halo_width), 0..=halo_width))
        .prop_map(|((cells, factor, periodic, parts), halo_width, exchange_width)| Axis {
            cells,
            factor,
            parts,
            periodic,
            halo_width,
            exchange_width,
        })
}

fn entity(dimensions: usize) -> impl Strategy<Value = Entity> {
    prop_oneof![
        Just(Entity::Cell),
        Just(Entity::Node),
        (0..dimensions).prop_map(Entity::Face),
        (0..dimensions).prop_map(Entity::Edge),
    ]
}

/// A value on each of `D` axes.
pub(crate) fn on_each_axis<const D: usize, T: Debug>(
    value: impl Strategy<Value = T>,
) -> impl Strategy<Value = [T; D]> {
    proptest::collection::vec(value, D).prop_map(|values| values.try_into().unwrap())
}

pub(crate) fn case<const D: usize>() -> impl Strategy<Value = Case<D>> {
    let most_cells = [24, 11, 7][D - 1];
    (on_each_axis(axis(most_cells)), entity(D)).prop_map(|(axes, entity): ([Axis; D], Entity)| {
        let grid = GlobalGrid::new(axes.map(|a| a.cells), axes.map(|a| a.periodic)).unwrap();
        let layout = axes.map(|a| a.parts);
        let coarse = Partition::with_layout(&grid, layout, layout.iter().product()).unwrap();
        Case {
            partition: coarse.refined(axes.map(|a| a.factor)).unwrap(),
            entity,
            halo_width: axes.map(|a| a.halo_width),
            exchange_width: axes.map(|a| a.exchange_width),
        }
    })
}

/// Runs `property` on random values, and shows the smallest one that fails.
pub(crate) fn check<S: Strategy>(cases: u32, values: S, property: impl Fn(S::Value) -> TestCaseResult) {
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    if let Err(failure) = TestRunner::new(config).run(&values, property) {
        panic!("{failure}");
    }
}

/// The position of `index` in a row-major array of `extents`.
pub(crate) fn flat<const D: usize>(extents: [usize; D], index: [usize; D]) -> usize {
    (0..D).fold(0, |position, axis| position * extents[axis] + index[axis])
}

/// The box that holds all of an array of `extents`.
pub(crate) fn whole<const D: usize>(extents: [usize; D]) -> IndexBox<D> {
    IndexBox::new([0; D], extents)
}

/// The offsets of all direct neighbours, corners included.
pub(crate) fn all_offsets<const D: usize>() -> Vec<[i32; D]> {
    whole([3; D])
        .indices()
        .map(|index| index.map(|component| component as i32 - 1))
        .filter(|offset| *offset != [0; D])
        .collect()
}

/// Makes one test per number of axes out of a property that is generic over it.
macro_rules! in_each_dimension {
    ($property:ident, $cases:expr, $values:ident) => {
        mod $property {
            #[test]
            fn in_1_dimension() {
                crate::cases::check($cases, super::$values::<1>(), super::$property);
            }
            #[test]
            fn in_2_dimensions() {
                crate::cases::check($cases, super::$values::<2>(), super::$property);
            }
            #[test]
            fn in_3_dimensions() {
                crate::cases::check($cases, super::$values::<3>(), super::$property);
            }
        }
    };
}
pub(crate) use in_each_dimension;
