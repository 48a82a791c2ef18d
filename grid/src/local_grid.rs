//! A rank's part of a grid, in a world of ranks.

use crate::{GlobalGrid, GridError, IndexBox, Partition, Subdomain};
use std::ops::Deref;
use streamhalo_comm::World;
use streamhalo_comm::device::Tile;

/// What may differ by axis, such as the width of a halo: one number for all axes, or one for each,
/// slowest axis first.
pub trait PerAxis<const D: usize> {
    /// The number of each axis.
    fn per_axis(self) -> [usize; D];
}

impl<const D: usize> PerAxis<D> for usize {
    fn per_axis(self) -> [usize; D] {
        [self; D]
    }
}

impl<const D: usize> PerAxis<D> for [usize; D] {
    fn per_axis(self) -> [usize; D] {
        self
    }
}

impl<const D: usize> GlobalGrid<D> {
    /// Splits the cells over the ranks of a world with the least surface between them. Every rank
    /// gets the same answer; does not communicate.
    ///
    /// Grids of several levels that are split one by one need not nest: of 36, 18 and 9 cells over two ranks the last two are
    /// cut at 9 and at 5. Split the coarsest, and take the others by [`Decomposition::refined`].
    ///
    /// # Errors
    /// If no layout gives every rank a cell.
    pub fn partition(&self, world: &World) -> Result<Decomposition<D>, GridError> {
        let partition = Partition::automatic(self, world.size())?;
        Ok(Decomposition { partition, world: world.clone() })
    }

    /// Splits the cells over the ranks of a world as told: `layout` parts along each axis. Of several levels the coarsest,
    /// as with [`GlobalGrid::partition`].
    ///
    /// # Errors
    /// If the layout does not have as many parts as the world has ranks, or more than cells.
    pub fn partition_as(&self, world: &World, layout: [usize; D]) -> Result<Decomposition<D>, GridError> {
        let partition = Partition::with_layout(self, layout, world.size())?;
        Ok(Decomposition { partition, world: world.clone() })
    }
}

/// A grid that is split over the ranks of a world. Those of several levels, as multigrid has them, nest where one is
/// [refined](Self::refined) or [coarsened](Self::coarsened) from the other.
#[derive(Debug, Clone)]
pub struct Decomposition<const D: usize> {
    pub(crate) partition: Partition<D>,
    pub(crate) world: World,
}

impl<const D: usize> Decomposition<D> {
    /// How the cells are split.
    pub fn partition(&self) -> &Partition<D> {
        &self.partition
    }

    /// This rank's part, with a halo of that many cells.
    ///
    /// # Errors
    /// On all ranks, if some rank's part is thinner than the halo on an axis with neighbours; with a layout that the halo
    /// fits, if there is one.
    pub fn local(&self, halo_width: impl PerAxis<D>) -> Result<LocalGrid<D>, GridError> {
        let halo_width = halo_width.per_axis();
        let mut subdomain = self.partition.subdomain(self.world.rank(), halo_width);
        if let Err(GridError::SubdomainTooThin { fitting, .. }) = &mut subdomain {
            let others = self.partition.in_all_layouts()?;
            let fits = others.into_iter().find(|other| other.subdomain(0, halo_width).is_ok());
            *fitting = fits.map(|other| other.layout().to_vec());
        }
        Ok(LocalGrid { subdomain: subdomain?, world: self.world.clone() })
    }
}

/// The part of a grid that a rank of a world owns, with its ghosts: what arrays are made on. It is
/// a [`Subdomain`] that knows its world.
#[derive(Debug, Clone)]
pub struct LocalGrid<const D: usize> {
    subdomain: Subdomain<D>,
    world: World,
}

impl<const D: usize> LocalGrid<D> {
    /// The world.
    pub fn world(&self) -> &World {
        &self.world
    }

    /// The geometry.
    pub fn subdomain(&self) -> &Subdomain<D> {
        &self.subdomain
    }
}

impl<const D: usize> Deref for LocalGrid<D> {
    type Target = Subdomain<D>;

    fn deref(&self) -> &Subdomain<D> {
        &self.subdomain
    }
}

impl<const D: usize> IndexBox<D> {
    /// The same box as a tile of points, for kernels: filled up with leading axes of one point.
    ///
    /// ```
    /// use streamhalo_grid::IndexBox;
    /// let tile = IndexBox::new([1, 2], [5, 6]).tile();
    /// assert_eq!((tile.start, tile.end), ([0, 1, 2], [1, 5, 6]));
    /// ```
    pub fn tile(&self) -> Tile {
        const { assert!(D >= 1 && D <= 3, "a tile has one to three axes") };
        let mut tile = Tile { start: [0; 3], end: [1; 3] };
        tile.start[3 - D..].copy_from_slice(&self.start);
        tile.end[3 - D..].copy_from_slice(&self.end);
        tile
    }
}
