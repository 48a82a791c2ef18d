//! The grid of a configuration, and what of it a rank has.

use streamhalo::{GlobalGrid, IndexBox, LocalGrid, Partition};

use super::Trial;
use crate::config::RunConfig;
use crate::error::AppError;

/// What a configuration or a layout says of each axis. It has been checked that it has as many entries.
pub(crate) fn of_axes<T: Copy, const D: usize>(entries: &[T]) -> [T; D] {
    std::array::from_fn(|axis| entries[axis])
}

/// The grid of a configuration.
///
/// # Errors
///
/// Those of [`GlobalGrid::new`].
pub(crate) fn global_grid<const D: usize>(config: &RunConfig) -> Result<GlobalGrid<D>, AppError> {
    Ok(GlobalGrid::new(of_axes(&config.grid.cells), of_axes(&config.grid.periodic))?)
}

impl Trial<'_> {
    /// This rank's part of a grid, with so many layers of ghosts.
    ///
    /// # Errors
    ///
    /// A layout that does not fit the grid.
    pub(crate) fn local_grid<const D: usize>(
        &self,
        grid: &GlobalGrid<D>,
        halo_width: [usize; D],
    ) -> Result<LocalGrid<D>, AppError> {
        Ok(grid.partition_as(self.world, of_axes(self.layout))?.local(halo_width)?)
    }

    /// The cells that this rank owns of a grid without ghosts.
    ///
    /// # Errors
    ///
    /// A layout that does not fit the grid.
    pub(crate) fn owned_cells<const D: usize>(&self, grid: &GlobalGrid<D>) -> Result<IndexBox<D>, AppError> {
        let partition = Partition::with_layout(grid, of_axes(self.layout), self.world.size())?;
        Ok(partition.owned_cells(self.world.rank()))
    }
}
