//! Grids of several levels that nest: each rank owns the same part of all of them.

use crate::{Decomposition, GlobalGrid, GridError, Partition, PerAxis};
use std::array::from_fn;

impl<const D: usize> Partition<D> {
    /// The partition of `factors` times as many cells on each axis, in the same layout: each rank owns those that its own
    /// cells are divided into.
    ///
    /// # Errors
    ///
    /// [`GridError::ZeroFactor`]; [`GridError::TooManyEntries`] where there are more nodes than can be counted.
    pub fn refined(&self, factors: impl PerAxis<D>) -> Result<Self, GridError> {
        let factors = checked(factors)?;
        let cells = self.grid().cells();
        let grid = GlobalGrid::new(
            from_fn(|axis| cells[axis].saturating_mul(factors[axis])),
            self.grid().periodic(),
        )?;
        let block_cells = self.block_cells();
        Ok(Self::in_blocks(grid, self.layout(), from_fn(|axis| block_cells[axis] * factors[axis])))
    }

    /// The way back: the partition whose cells are each made of `factors` cells on each axis, all of one rank, which owns it.
    ///
    /// # Errors
    ///
    /// [`GridError::ZeroFactor`]; [`GridError::CellsNoMultiple`] where a factor does not divide the cells of its axis;
    /// [`GridError::CutNoMultiple`] where ranks meet inside of a coarse cell, with a layout in which none do, if there is
    /// one.
    pub fn coarsened(&self, factors: impl PerAxis<D>) -> Result<Self, GridError> {
        let factors = checked(factors)?;
        let cells = self.grid().cells();
        for (axis, (&factor, cells)) in factors.iter().zip(cells).enumerate() {
            if !cells.is_multiple_of(factor) {
                return Err(GridError::CellsNoMultiple { axis, cells, factor });
            }
        }
        if let Some((axis, cut)) = self.cut_inside(factors) {
            let layouts = Self::by_surface(self.grid(), self.ranks())?;
            let fitting = layouts.iter().find(|other| other.cut_inside(factors).is_none());
            return Err(GridError::CutNoMultiple {
                axis,
                cut,
                factor: factors[axis],
                layout: self.layout().to_vec(),
                fitting: fitting.map(|other| other.layout().to_vec()),
            });
        }
        let grid = GlobalGrid::new(from_fn(|axis| cells[axis] / factors[axis]), self.grid().periodic())?;
        // Where parts differ, they do so by a block: it is a multiple of the factor, as both of them are.
        let block_cells = self.block_cells();
        Ok(Self::in_blocks(grid, self.layout(), from_fn(|axis| (block_cells[axis] / factors[axis]).max(1))))
    }

    /// Every partition into as many parts by the same blocks, by [surface](Self::surface): what a grid can be that stays
    /// refined from the one that it was refined from. Along an axis whose parts are as long as each other no block is known,
    /// so that one of these need not be.
    pub(crate) fn in_all_layouts(&self) -> Result<Vec<Self>, GridError> {
        let (cells, block_cells) = (self.grid().cells(), self.block_cells());
        let blocks =
            GlobalGrid::new(from_fn(|axis| cells[axis] / block_cells[axis]), self.grid().periodic())?;
        let layouts = Self::by_surface(&blocks, self.ranks())?;
        let mut partitions: Vec<Self> =
            layouts.iter().map(|layout| layout.refined(block_cells)).collect::<Result<_, _>>()?;
        partitions.sort_by_key(Self::surface);
        Ok(partitions)
    }

    /// The first axis on which a part begins inside of a cell of the coarser grid, and where.
    fn cut_inside(&self, factors: [usize; D]) -> Option<(usize, usize)> {
        (0..D).find_map(|axis| {
            let mut cuts = (1..self.layout()[axis]).map(|part| self.owned_cells_of_part(axis, part).start);
            Some((axis, cuts.find(|cut| !cut.is_multiple_of(factors[axis]))?))
        })
    }
}

fn checked<const D: usize>(factors: impl PerAxis<D>) -> Result<[usize; D], GridError> {
    let factors = factors.per_axis();
    match factors.iter().position(|&factor| factor == 0) {
        Some(axis) => Err(GridError::ZeroFactor { axis, factors: factors.to_vec() }),
        None => Ok(factors),
    }
}

impl<const D: usize> Decomposition<D> {
    /// The grid with `factors` times as many cells on each axis, over the same world and in the same layout. Each rank owns
    /// the cells that its own are divided into, so that restriction and prolongation need none of other ranks beyond the
    /// ghosts of each level. Every rank gets the same answer; does not communicate.
    ///
    /// ```
    /// use streamhalo_comm::device::{Device, Rows, RowsMut, Tile};
    /// use streamhalo_comm::{World, WorldOptions};
    /// use streamhalo_grid::{Array, Entity, GlobalGrid, GridError};
    ///
    /// # fn main() -> Result<(), GridError> {
    /// let ranks = World::threads(2, WorldOptions::default(), |world| {
    ///     let stream = Device::host().stream(&world)?;
    ///     let coarse = GlobalGrid::new([5], [false])?.partition(&world)?; // 3 cells and 2
    ///     let (coarse, fine) = (coarse.local(1)?, coarse.refined(2)?.local(1)?); // and 6 and 4, where 10 alone are 5 and 5
    ///     let mut on_fine = Array::<i64, 1>::zeros(&fine, Entity::Cell, &stream)?;
    ///     let mut on_coarse = Array::<i64, 1>::zeros(&coarse, Entity::Cell, &stream)?;
    ///     on_fine.fill(|[x], _| x as i64)?;
    ///
    ///     // On either level the owned cells begin behind one ghost.
    ///     let restrict = |tile: Tile, (fine, mut coarse): (Rows<'_, i64>, RowsMut<'_, i64>)| {
    ///         let pairs = fine.span(0, 0, 2 * tile.start[2] - 1..2 * tile.end[2] - 1).chunks(2);
    ///         coarse.row(0, 0).iter_mut().zip(pairs).for_each(|(cell, pair)| *cell = pair[0] + pair[1]);
    ///     };
    ///     let arguments = (on_fine.reader()?, on_coarse.writer()?);
    ///     stream.launch("restrict", coarse.owned(Entity::Cell).tile(), arguments, restrict)?;
    ///     on_coarse.collect(0)
    /// })?;
    /// let whole = ranks.into_iter().next().expect("there are two")?.expect("it is rank 0");
    /// assert_eq!(whole.as_slice(), Some(&[1, 5, 9, 13, 17][..]));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Partition::refined`], on all ranks.
    pub fn refined(&self, factors: impl PerAxis<D>) -> Result<Self, GridError> {
        Ok(Self { partition: self.partition.refined(factors)?, world: self.world.clone() })
    }

    /// The grid whose cells are each made of `factors` cells on each axis, over the same world and in the same layout: what
    /// this one is [refined](Self::refined) from. It fails for many numbers of ranks where a grid was split for itself; a
    /// coarsest grid that is refined never does. Every rank gets the same answer; does not communicate.
    ///
    /// # Errors
    /// As [`Partition::coarsened`], on all ranks.
    pub fn coarsened(&self, factors: impl PerAxis<D>) -> Result<Self, GridError> {
        Ok(Self { partition: self.partition.coarsened(factors)?, world: self.world.clone() })
    }
}
