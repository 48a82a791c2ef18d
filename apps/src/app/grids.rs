//! The grid of a configuration, and what of it a rank has.

use streamhalo::{Entity, GlobalGrid, IndexBox, LocalGrid, Partition};

use super::Trial;
use crate::config::RunConfig;
use crate::error::AppError;

/// What a configuration or a layout says of each axis. It has been checked that it has as many entries.
pub(crate) fn of_axes<T: Copy, const D: usize>(entries: &[T]) -> [T; D] {
    std::array::from_fn(|axis| entries[axis])
}

/// The grid of a configuration.
pub(crate) fn global_grid<const D: usize>(config: &RunConfig) -> Result<GlobalGrid<D>, AppError> {
    Ok(GlobalGrid::new(of_axes(&config.grid.cells), of_axes(&config.grid.periodic))?)
}

/// Which cell of the whole grid each entry of a rank's part is along each axis or, being a ghost, is a copy of; none
/// beyond the ends.
pub(crate) fn places_of<const D: usize>(grid: &LocalGrid<D>) -> [Vec<Option<usize>>; D] {
    let whole = grid.subdomain().partition().grid();
    let (first, owned) = (grid.owned_global(Entity::Cell).start, grid.owned(Entity::Cell).start);
    std::array::from_fn(|axis| {
        let cells = whole.cells()[axis] as i64;
        let place = |local: usize| {
            let place = (first[axis] + local) as i64 - owned[axis] as i64;
            let wrapped = if whole.periodic()[axis] { place.rem_euclid(cells) } else { place };
            (0..cells).contains(&wrapped).then_some(wrapped as usize)
        };
        (0..grid.extents(Entity::Cell)[axis]).map(place).collect()
    })
}

impl Trial<'_> {
    /// This rank's part of a grid, with so many layers of ghosts, if the layout fits.
    pub(crate) fn local_grid<const D: usize>(
        &self,
        grid: &GlobalGrid<D>,
        halo_width: [usize; D],
    ) -> Result<LocalGrid<D>, AppError> {
        Ok(grid.partition_as(self.world, of_axes(self.layout))?.local(halo_width)?)
    }

    /// The cells that this rank owns of a grid without ghosts, if the layout fits.
    pub(crate) fn owned_cells<const D: usize>(&self, grid: &GlobalGrid<D>) -> Result<IndexBox<D>, AppError> {
        let partition = Partition::with_layout(grid, of_axes(self.layout), self.world.size())?;
        Ok(partition.owned_cells(self.world.rank()))
    }
}
