//! How a grid is split into one box of cells per rank.

use crate::blocks::block;
use crate::{GlobalGrid, GridError, IndexBox, layout};
use std::array::from_fn;
use std::ops::Range;

/// How the cells of a grid are split into one box per rank.
///
/// The ranks stand in a grid of their own, the *layout*: so many parts on each axis, slowest axis
/// first. They are numbered row-major, so rank 1 is the neighbour of rank 0 along the last axis that
/// is split. Where an axis does not divide evenly, its first `cells % parts` parts get one cell more;
/// or one block more, where a partition of fewer cells was [refined](Self::refined). Partitions of a
/// grid are equal where each rank owns the same of it in both.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct Partition<const D: usize> {
    grid: GlobalGrid<D>,
    layout: [usize; D],
    /// By how much the first parts are longer than the others. 1 where none are, so that there is one for each way to cut.
    block_cells: [usize; D],
}

impl<const D: usize> Partition<D> {
    /// The partition over `ranks` ranks whose cuts have the least [surface](Self::surface). Among
    /// layouts of equal surface the one with more parts on the slower axis wins.
    ///
    /// # Errors
    ///
    /// [`GridError::ZeroRanks`]; [`GridError::NoLayout`] where no layout gives every rank at
    /// least one cell on every axis, with the nearest numbers of ranks that would do.
    pub fn automatic(grid: &GlobalGrid<D>, ranks: usize) -> Result<Self, GridError> {
        Ok(Self::by_surface(grid, ranks)?[0])
    }

    /// Every partition over `ranks` ranks, that of [`automatic`](Self::automatic) first and then in
    /// the same order: for whoever needs more of a layout than that it cuts little.
    ///
    /// # Errors
    ///
    /// As [`automatic`](Self::automatic); there is at least one otherwise.
    pub fn by_surface(grid: &GlobalGrid<D>, ranks: usize) -> Result<Vec<Self>, GridError> {
        if ranks == 0 {
            return Err(GridError::ZeroRanks);
        }
        let layouts = layout::by_surface(grid, ranks)?;
        Ok(layouts.into_iter().map(|layout| Self::in_blocks(*grid, layout, [1; D])).collect())
    }

    /// The partition over `ranks` ranks with `layout` parts on each axis, slowest axis first.
    ///
    /// # Errors
    ///
    /// [`GridError::ZeroRanks`]; [`GridError::LayoutAxis`] where an axis has no parts or more
    /// parts than cells; [`GridError::LayoutProduct`] where the layout makes more or fewer
    /// subdomains than there are ranks.
    pub fn with_layout(grid: &GlobalGrid<D>, layout: [usize; D], ranks: usize) -> Result<Self, GridError> {
        if ranks == 0 {
            return Err(GridError::ZeroRanks);
        }
        for (axis, (&parts, cells)) in layout.iter().zip(grid.cells()).enumerate() {
            if parts == 0 || parts > cells {
                return Err(GridError::LayoutAxis { axis, parts, cells, layout: layout.to_vec() });
            }
        }
        let product = layout.iter().product();
        if product != ranks {
            return Err(GridError::LayoutProduct { layout: layout.to_vec(), product, ranks });
        }
        Ok(Self::in_blocks(*grid, layout, [1; D]))
    }

    /// The partition that deals the cells out in blocks of so many, each part at least one.
    pub(crate) fn in_blocks(grid: GlobalGrid<D>, layout: [usize; D], block_cells: [usize; D]) -> Self {
        let block_cells = from_fn(|axis| {
            let blocks = grid.cells()[axis] / block_cells[axis];
            if blocks.is_multiple_of(layout[axis]) { 1 } else { block_cells[axis] }
        });
        Self { grid, layout, block_cells }
    }

    /// The grid that is split.
    pub fn grid(&self) -> &GlobalGrid<D> {
        &self.grid
    }

    /// The number of parts on each axis.
    pub fn layout(&self) -> [usize; D] {
        self.layout
    }

    /// The number of cells that are dealt out to parts at a time on each axis: 1 unless this was
    /// [refined](Self::refined) from a partition with parts that differ there.
    pub fn block_cells(&self) -> [usize; D] {
        self.block_cells
    }

    /// The surface of the cuts, counted in cells: on each axis the number of planes that separate
    /// ranks (one fewer than parts, or as many where the axis is periodic and split) times the
    /// product of the other extents.
    pub fn surface(&self) -> u128 {
        layout::cut_surface(&self.grid, &self.layout)
    }

    /// The number of ranks: the product of the layout.
    pub fn ranks(&self) -> usize {
        self.layout.iter().product()
    }

    /// Where `rank` stands in the layout: its part on each axis.
    ///
    /// # Panics
    ///
    /// Where there is no such rank.
    pub fn coordinates(&self, rank: usize) -> [usize; D] {
        if let Err(error) = self.check_rank(rank) {
            panic!("{error}");
        }
        let mut rest = rank;
        let mut coordinates = [0; D];
        for axis in (0..D).rev() {
            coordinates[axis] = rest % self.layout[axis];
            rest /= self.layout[axis];
        }
        coordinates
    }

    /// The rank that stands at `coordinates` in the layout; the last axis runs fastest.
    ///
    /// # Panics
    ///
    /// Where a coordinate is not below the layout on its axis.
    pub fn rank_at(&self, coordinates: [usize; D]) -> usize {
        let layout = self.layout;
        (0..D).fold(0, |rank, axis| {
            let coordinate = coordinates[axis];
            assert!(
                coordinate < layout[axis],
                "there is no part {coordinate} on axis {axis} of layout {layout:?}"
            );
            rank * layout[axis] + coordinate
        })
    }

    /// The cells that `rank` owns, in global indices.
    ///
    /// # Panics
    ///
    /// Where there is no such rank.
    pub fn owned_cells(&self, rank: usize) -> IndexBox<D> {
        let coordinates = self.coordinates(rank);
        let ranges: [Range<usize>; D] = from_fn(|axis| self.owned_cells_of_part(axis, coordinates[axis]));
        IndexBox::new(from_fn(|axis| ranges[axis].start), from_fn(|axis| ranges[axis].end))
    }

    /// The rank that stands `offset` parts away from `rank` on each axis, any number of parts in
    /// either direction. Wraps round periodic axes, so it may be `rank` itself; `None` beyond a
    /// boundary that is not periodic.
    ///
    /// # Panics
    ///
    /// Where there is no such rank.
    pub fn neighbor(&self, rank: usize, offset: [i32; D]) -> Option<usize> {
        let from = self.coordinates(rank);
        let mut coordinates = [0; D];
        for axis in 0..D {
            coordinates[axis] = self.neighbor_part(axis, from[axis], offset[axis])?;
        }
        Some(self.rank_at(coordinates))
    }

    /// The part that is `offset` parts away from part `from` of `axis`, if there is one.
    pub(crate) fn neighbor_part(&self, axis: usize, from: usize, offset: i32) -> Option<usize> {
        // Parts are at most as many as cells, which `GlobalGrid` keeps well inside of an `i64`.
        let parts = self.layout[axis] as i64;
        let target = from as i64 + i64::from(offset);
        let target = if self.grid.periodic()[axis] { target.rem_euclid(parts) } else { target };
        (0..parts).contains(&target).then_some(target as usize)
    }

    /// Whether ranks have neighbours along `axis`, be it themselves.
    pub(crate) fn has_neighbors(&self, axis: usize) -> bool {
        self.grid.periodic()[axis] || self.layout[axis] > 1
    }

    /// The global cells of part `part` of `axis`.
    pub(crate) fn owned_cells_of_part(&self, axis: usize, part: usize) -> Range<usize> {
        let block_cells = self.block_cells[axis];
        let blocks = block(self.grid.cells()[axis] / block_cells, self.layout[axis], part);
        blocks.start * block_cells..blocks.end * block_cells
    }

    /// Whether part `part` of `axis` ends at a boundary that is not periodic, and so owns the nodes
    /// on it, which have no cell on their high side.
    pub(crate) fn owns_high_boundary(&self, axis: usize, part: usize) -> bool {
        !self.grid.periodic()[axis] && part + 1 == self.layout[axis]
    }

    pub(crate) fn check_rank(&self, rank: usize) -> Result<(), GridError> {
        let ranks = self.ranks();
        if rank < ranks { Ok(()) } else { Err(GridError::RankOutOfRange { rank, ranks }) }
    }
}
