//! The whole grid, before it is split.

use crate::{Entity, GridError};
use std::array::from_fn;

/// The number of entries that a grid, or a subdomain with its ghosts, may have. A quarter of what
/// an array index can hold, so that no sum of a few positions overflows.
const MAXIMUM_ENTRIES: usize = isize::MAX as usize / 4;

/// The whole grid: its cells on each axis, slowest axis first, and which axes are periodic.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct GlobalGrid<const D: usize> {
    cells: [usize; D],
    periodic: [bool; D],
}

impl<const D: usize> GlobalGrid<D> {
    /// A grid of `cells` cells on each axis, slowest axis first (`[ny, nx]` in two dimensions). On
    /// an axis that is `periodic` the last cell is followed by the first.
    ///
    /// # Errors
    ///
    /// [`GridError::ZeroCells`] where an axis has no cells; [`GridError::TooManyEntries`] where
    /// the grid has more nodes than can be counted.
    pub fn new(cells: [usize; D], periodic: [bool; D]) -> Result<Self, GridError> {
        const { assert!(D >= 1 && D <= 3, "a grid has 1, 2 or 3 axes") };
        if let Some(axis) = cells.iter().position(|&count| count == 0) {
            return Err(GridError::ZeroCells { axis, cells: cells.to_vec() });
        }
        check_entry_count(cells.map(|count| count.saturating_add(1)))?;
        Ok(Self { cells, periodic })
    }

    /// The number of cells on each axis.
    pub fn cells(&self) -> [usize; D] {
        self.cells
    }

    /// Which axes are periodic.
    pub fn periodic(&self) -> [bool; D] {
        self.periodic
    }

    /// The number of distinct entities on each axis: as many as cells where the entity is cell-like
    /// or the axis periodic, one more otherwise.
    ///
    /// # Panics
    ///
    /// Where `entity` names an axis that the grid does not have; [`Entity::check`] tells before.
    pub fn entity_extents(&self, entity: Entity) -> [usize; D] {
        entity.assert_exists(D);
        from_fn(|axis| {
            let boundary = entity.is_node_like(axis) && !self.periodic[axis];
            self.cells[axis] + usize::from(boundary)
        })
    }
}

/// Refuses extents whose product, or anything computed from it, might overflow.
pub(crate) fn check_entry_count<const D: usize>(extents: [usize; D]) -> Result<(), GridError> {
    let count = extents.iter().try_fold(1_usize, |product, &extent| product.checked_mul(extent));
    match count {
        Some(count) if count <= MAXIMUM_ENTRIES => Ok(()),
        _ => Err(GridError::TooManyEntries { extents: extents.to_vec(), limit: MAXIMUM_ENTRIES }),
    }
}
