//! One rank's part of a grid, with its ghosts.

use crate::global_grid::check_entry_count;
use crate::{Entity, GridError, IndexBox, Partition, PerAxis, Side};
use std::array::from_fn;

/// One rank's part of a grid: the entries it owns, and the ghosts around them.
///
/// *Local* indices count from the first ghost of this rank, so that they index an array of
/// [`Subdomain::extents`]; *global* indices count from the first entry of the grid. On every axis the
/// local node, face or edge with index `i` is on the low side of the local cell with index `i`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct Subdomain<const D: usize> {
    partition: Partition<D>,
    rank: usize,
    coordinates: [usize; D],
    halo_width: [usize; D],
}

impl<const D: usize> Partition<D> {
    /// The part of `rank`, with ghosts `halo_width` cells deep on both sides of each axis.
    ///
    /// A subdomain may be as thin as its halo is wide, not thinner: ghosts come from direct
    /// neighbours only. This is checked for all ranks at once, on every axis that is periodic or
    /// split; on the others nothing fills the ghosts and any width will do.
    ///
    /// # Errors
    ///
    /// On all ranks alike: [`GridError::SubdomainTooThin`] where the halo is wider than the thinnest
    /// subdomain of any rank; [`GridError::TooManyEntries`] where a subdomain and its ghosts are
    /// more than can be counted. For this rank: [`GridError::RankOutOfRange`].
    pub fn subdomain(&self, rank: usize, halo_width: [usize; D]) -> Result<Subdomain<D>, GridError> {
        let layout = self.layout();
        for (axis, &width) in halo_width.iter().enumerate() {
            // Parts never get longer along an axis: the last is the thinnest, the first the longest.
            let thinnest_cells = self.owned_cells_of_part(axis, layout[axis] - 1).len();
            if self.has_neighbors(axis) && thinnest_cells < width {
                return Err(GridError::SubdomainTooThin {
                    axis,
                    thinnest_cells,
                    halo_width: width,
                    layout: layout.to_vec(),
                    fitting: None,
                });
            }
        }
        check_entry_count(from_fn::<_, D, _>(|axis| {
            let most_nodes = self.owned_cells_of_part(axis, 0).len() + 1;
            most_nodes.saturating_add(halo_width[axis].saturating_mul(2))
        }))?;
        self.check_rank(rank)?;
        Ok(Subdomain { partition: *self, rank, coordinates: self.coordinates(rank), halo_width })
    }
}

impl<const D: usize> Subdomain<D> {
    /// The rank whose part this is.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// The partition that this is a part of.
    pub fn partition(&self) -> &Partition<D> {
        &self.partition
    }

    /// Where this rank stands in the layout: its part on each axis.
    pub fn coordinates(&self) -> [usize; D] {
        self.coordinates
    }

    /// The depth of the ghosts, in cells, on both sides of each axis.
    pub fn halo_width(&self) -> [usize; D] {
        self.halo_width
    }

    /// The rank that stands `offset` parts away on each axis, any number of parts in either
    /// direction. Wraps round periodic axes, so it may be this rank itself; `None` beyond a boundary
    /// that is not periodic.
    pub fn neighbor(&self, offset: [i32; D]) -> Option<usize> {
        self.partition.neighbor(self.rank, offset)
    }

    /// The layers of ghosts on the `[low, high]` side of each axis.
    ///
    /// On a cell-like axis both are the halo width. On a node-like axis there is one more on the high
    /// side, the node that is shared with and owned by the neighbour there, unless this rank is the
    /// last on an axis that is not periodic and owns that node itself.
    ///
    /// # Panics
    ///
    /// Where `entity` names an axis that the grid does not have; [`Entity::check`] tells before.
    pub fn ghost_widths(&self, entity: Entity) -> [[usize; 2]; D] {
        entity.assert_exists(D);
        from_fn(|axis| {
            let width = self.halo_width[axis];
            let shared = entity.is_node_like(axis) && !self.owns_high_boundary(axis);
            [width, width + usize::from(shared)]
        })
    }

    /// The number of entries on each axis that this rank owns: as many as cells, and one more on a
    /// node-like axis where this rank is the last and the axis is not periodic.
    ///
    /// # Panics
    ///
    /// Where `entity` names an axis that the grid does not have.
    pub fn owned_extents(&self, entity: Entity) -> [usize; D] {
        self.owned_global(entity).extents()
    }

    /// The number of local entries on each axis: owned ones and the ghosts on both sides.
    ///
    /// # Panics
    ///
    /// Where `entity` names an axis that the grid does not have.
    pub fn extents(&self, entity: Entity) -> [usize; D] {
        let owned = self.owned_extents(entity);
        let ghosts = self.ghost_widths(entity);
        from_fn(|axis| ghosts[axis][0] + owned[axis] + ghosts[axis][1])
    }

    /// The entries that this rank owns, in local indices.
    ///
    /// # Panics
    ///
    /// Where `entity` names an axis that the grid does not have.
    pub fn owned(&self, entity: Entity) -> IndexBox<D> {
        let extents = self.owned_extents(entity);
        // The low ghosts are as many as the halo is wide for every entity.
        let start = self.halo_width;
        IndexBox::new(start, from_fn(|axis| start[axis] + extents[axis]))
    }

    /// The owned entries that need no ghosts of other ranks, for a kernel that reads `width` layers around each: to be
    /// computed between `begin_gather` and `finish`, and [the rest](IndexBox::without) afterwards. Without `width` layers
    /// on those sides on which another rank is; empty where nothing is left then.
    ///
    /// ```
    /// use streamhalo_grid::{Entity, GlobalGrid, IndexBox, Partition};
    /// let grid = GlobalGrid::new([8, 8], [false, true])?;
    /// // Rank 0 has the upper half: below it is rank 1, above it nobody, and beside it is itself.
    /// let here = Partition::with_layout(&grid, [2, 1], 2)?.subdomain(0, [2, 2])?;
    /// assert_eq!(here.owned(Entity::Cell), IndexBox::new([2, 2], [6, 10]));
    /// assert_eq!(here.inner(Entity::Cell, 2), IndexBox::new([2, 2], [4, 10]));
    /// # Ok::<(), streamhalo_grid::GridError>(())
    /// ```
    ///
    /// # Panics
    ///
    /// Where `entity` names an axis that the grid does not have.
    pub fn inner(&self, entity: Entity, width: impl PerAxis<D>) -> IndexBox<D> {
        let (mut inner, width) = (self.owned(entity), width.per_axis());
        for axis in 0..D {
            let is_other = |side: i32| {
                let mut offset = [0; D];
                offset[axis] = side;
                self.neighbor(offset).is_some_and(|rank| rank != self.rank())
            };
            let (start, end) = (inner.start[axis], inner.end[axis]);
            if is_other(-1) {
                inner.start[axis] = start.saturating_add(width[axis]).min(end);
            }
            if is_other(1) {
                inner.end[axis] = end.saturating_sub(width[axis]).max(inner.start[axis]);
            }
        }
        inner
    }

    /// The owned entries and `width` layers of the ghosts on those sides on which a neighbour is, be it this rank itself: what
    /// a kernel computes that has more steps before the next exchange, each with as many layers less as it reads around an
    /// entry. Not beyond a boundary of the grid, where nobody fills ghosts.
    ///
    /// ```
    /// use streamhalo_grid::{Entity, GlobalGrid, IndexBox, Partition};
    /// let grid = GlobalGrid::new([8, 8], [false, true])?;
    /// let here = Partition::with_layout(&grid, [2, 1], 2)?.subdomain(0, [3, 3])?;
    /// assert_eq!(here.owned(Entity::Cell), IndexBox::new([3, 3], [7, 11]));
    /// // Three steps follow an exchange of three layers, by a rule that reads one around: the first computes two of them.
    /// assert_eq!(here.outer(Entity::Cell, 2), IndexBox::new([3, 1], [9, 13]));
    /// # Ok::<(), streamhalo_grid::GridError>(())
    /// ```
    ///
    /// # Panics
    ///
    /// Where there are not so many layers of ghosts, or `entity` names an axis that the grid does not have.
    pub fn outer(&self, entity: Entity, width: impl PerAxis<D>) -> IndexBox<D> {
        let (mut outer, width) = (self.owned(entity), width.per_axis());
        let ghosts = self.ghost_widths(entity);
        for axis in 0..D {
            assert!(
                width[axis] <= self.halo_width[axis],
                "{width:?} layers of ghosts, of {:?}",
                self.halo_width
            );
            if self.beyond(entity, axis, Side::Low).is_none() {
                outer.start[axis] -= width[axis];
            }
            if self.beyond(entity, axis, Side::High).is_none() {
                // Of what sits on nodes with the one that is shared.
                outer.end[axis] += width[axis] + ghosts[axis][1] - self.halo_width[axis];
            }
        }
        outer
    }

    /// The ghosts beyond the boundary of the grid on one side of an axis, in local indices and with their corners: the
    /// application's own, which no exchange fills. `None` where a neighbour is, be it this rank itself.
    ///
    /// # Panics
    ///
    /// Where there is no such axis, or `entity` names one that the grid does not have.
    pub fn beyond(&self, entity: Entity, axis: usize, side: Side) -> Option<IndexBox<D>> {
        let mut offset = [0; D];
        offset[axis] = if side == Side::Low { -1 } else { 1 };
        if self.neighbor(offset).is_some() {
            return None;
        }
        let (owned, mut beyond) = (self.owned(entity), IndexBox::new([0; D], self.extents(entity)));
        match side {
            Side::Low => beyond.end[axis] = owned.start[axis],
            Side::High => beyond.start[axis] = owned.end[axis],
        }
        Some(beyond)
    }

    /// The entries that this rank owns, in global indices. The boxes of all ranks tile the grid:
    /// each entity has exactly one owner.
    ///
    /// # Panics
    ///
    /// Where `entity` names an axis that the grid does not have.
    pub fn owned_global(&self, entity: Entity) -> IndexBox<D> {
        entity.assert_exists(D);
        let cells = self.partition.owned_cells(self.rank);
        let end = from_fn(|axis| {
            let boundary = entity.is_node_like(axis) && self.owns_high_boundary(axis);
            cells.end[axis] + usize::from(boundary)
        });
        IndexBox::new(cells.start, end)
    }

    /// The global index of the entry at `local`, owned or ghost. Wraps round periodic axes, as
    /// often as needed; `None` where the entry lies beyond a boundary that is not periodic. `local`
    /// need not be inside of [`Subdomain::extents`].
    ///
    /// # Panics
    ///
    /// Where `entity` names an axis that the grid does not have.
    pub fn to_global(&self, entity: Entity, local: [usize; D]) -> Option<[usize; D]> {
        let owned_start = self.partition.owned_cells(self.rank).start;
        let extents = self.partition.grid().entity_extents(entity);
        let mut global = [0; D];
        for axis in 0..D {
            let (start, ghosts) = (owned_start[axis], self.halo_width[axis]);
            let extent = extents[axis];
            let unwrapped = start.checked_add(local[axis]).and_then(|position| position.checked_sub(ghosts));
            global[axis] = match unwrapped {
                Some(position) if position < extent => position,
                _ if self.partition.grid().periodic()[axis] => {
                    // Reduced first, so that neither side leaves the range of `usize`.
                    (start + local[axis] % extent + (extent - ghosts % extent)) % extent
                }
                _ => return None,
            };
        }
        Some(global)
    }

    fn owns_high_boundary(&self, axis: usize) -> bool {
        self.partition.owns_high_boundary(axis, self.coordinates[axis])
    }
}
