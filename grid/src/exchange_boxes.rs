//! Which owned entries fill which ghosts when two neighbours exchange.

use crate::{Entity, GridError, IndexBox, Subdomain};
use std::array::from_fn;
use std::ops::Range;

/// How many layers of ghosts an exchange of `width` layers fills on the `[low, high]` side of an
/// axis. On a node-like axis the high side has one more, the shared node that the neighbour there
/// owns. A width of 0 leaves the axis out of the exchange, shared nodes included.
fn filled_layers(entity: Entity, axis: usize, width: usize) -> [usize; 2] {
    let shared = width > 0 && entity.is_node_like(axis);
    [width, width + usize::from(shared)]
}

impl<const D: usize> Subdomain<D> {
    /// Whether `width` layers of `entity` can be exchanged on each axis, on every rank. All ranks
    /// get the same verdict.
    ///
    /// Each ghost must be there, and be owned by a direct neighbour of its rank. On a node-like axis
    /// the high ghosts of a rank are one layer more than `width`, and its neighbour must own that many.
    ///
    /// # Errors
    ///
    /// [`GridError::EntityAxis`] where `entity` does not exist on this grid;
    /// [`GridError::ExchangeTooWide`] where `width` is more than the halo width on an axis;
    /// [`GridError::TooFewOwned`] where some rank owns fewer entries than its neighbour needs.
    pub fn check_exchange(&self, entity: Entity, width: [usize; D]) -> Result<(), GridError> {
        entity.check(D)?;
        for (axis, &width) in width.iter().enumerate() {
            let halo_width = self.halo_width()[axis];
            if width > halo_width {
                return Err(GridError::ExchangeTooWide { axis, width, halo_width });
            }
            self.check_owned(entity, axis, width)?;
        }
        Ok(())
    }

    /// Whether every rank owns as much along `axis` as the high ghosts of its low neighbour take.
    /// The low ghosts of its high neighbour need no check: they are `width` layers, and no subdomain
    /// has fewer cells than the halo is wide.
    fn check_owned(&self, entity: Entity, axis: usize, width: usize) -> Result<(), GridError> {
        let partition = self.partition();
        let [_, needed] = filled_layers(entity, axis, width);
        let thinnest = (0..partition.layout()[axis])
            .filter(|&part| partition.neighbor_part(axis, part, -1).is_some())
            .map(|part| {
                let boundary = entity.is_node_like(axis) && partition.owns_high_boundary(axis, part);
                partition.owned_cells_of_part(axis, part).len() + usize::from(boundary)
            })
            .min();
        match thinnest {
            Some(thinnest) if thinnest < needed => Err(GridError::TooFewOwned {
                entity,
                axis,
                width,
                thinnest,
                needed,
                layout: partition.layout().to_vec(),
            }),
            _ => Ok(()),
        }
    }

    /// The owned entries, in local indices, that the neighbour at `offset` keeps as ghosts when
    /// `width` layers are exchanged on each axis.
    ///
    /// Where a component of `offset` is 0 these are all owned entries along that axis; where it is +1
    /// the highest `width`; where it is −1 the lowest `width`, and one more on a node-like axis, since
    /// they fill *high* ghosts. The box is empty where there is no such neighbour, and where `offset`
    /// has a component on an axis of `width` 0. It has the extents of that neighbour's
    /// [`Subdomain::recv_box`] for the opposite offset, and its entries are in the same order.
    ///
    /// # Panics
    ///
    /// Where a component of `offset` is not −1, 0 or 1, `entity` names an axis that the grid does not
    /// have, or `width` is more than [`Subdomain::check_exchange`] allows.
    pub fn send_box(&self, entity: Entity, offset: [i32; D], width: [usize; D]) -> IndexBox<D> {
        let owned = self.owned(entity);
        self.exchange_box(entity, offset, width, |axis, [low, high]| {
            let owned = owned.start[axis]..owned.end[axis];
            match offset[axis] {
                0 => owned,
                -1 => {
                    assert!(
                        high <= owned.len(),
                        "{high} layers ({entity}) cannot be sent along axis {axis} by a rank \
                         that owns {}: see `check_exchange`",
                        owned.len()
                    );
                    owned.start..owned.start + high
                }
                _ => owned.end - low..owned.end,
            }
        })
    }

    /// The ghosts, in local indices, that the neighbour at `offset` fills when `width` layers are
    /// exchanged on each axis.
    ///
    /// Where a component of `offset` is 0 the box has the owned range of that axis; where it is −1
    /// the `width` layers just below it; where it is +1 the `width` layers just above it, and one more
    /// on a node-like axis. The box is empty where there is no such neighbour, so ghosts beyond a
    /// boundary that is not periodic are in no box, and where `offset` has a component on an axis of
    /// `width` 0.
    ///
    /// # Panics
    ///
    /// Where a component of `offset` is not −1, 0 or 1, `entity` names an axis that the grid does not
    /// have, or `width` is more than the halo width.
    pub fn recv_box(&self, entity: Entity, offset: [i32; D], width: [usize; D]) -> IndexBox<D> {
        let owned = self.owned(entity);
        self.exchange_box(entity, offset, width, |axis, [low, high]| match offset[axis] {
            0 => owned.start[axis]..owned.end[axis],
            -1 => owned.start[axis] - low..owned.start[axis],
            _ => owned.end[axis]..owned.end[axis] + high,
        })
    }

    /// The box whose range on each axis is given by `range`, from the layers that an exchange fills
    /// on the low and the high side of that axis.
    fn exchange_box(
        &self,
        entity: Entity,
        offset: [i32; D],
        width: [usize; D],
        range: impl Fn(usize, [usize; 2]) -> Range<usize>,
    ) -> IndexBox<D> {
        let ranges: [Range<usize>; D] = from_fn(|axis| {
            let (component, halo_width) = (offset[axis], self.halo_width()[axis]);
            assert!(
                (-1..=1).contains(&component),
                "offset {offset:?} is {component} on axis {axis}: boxes are exchanged with direct \
                 neighbours only, at -1, 0 or 1"
            );
            assert!(
                width[axis] <= halo_width,
                "an exchange of {} layers on axis {axis} is wider than the halo, which has \
                 {halo_width}: see `check_exchange`",
                width[axis]
            );
            let part = self.coordinates()[axis];
            let neighbor = self.partition().neighbor_part(axis, part, component);
            // Beyond a boundary a last rank has no ghost for the node it owns there, so the layers of
            // a width would not even be inside of its array.
            let layers = match neighbor {
                Some(_) => filled_layers(entity, axis, width[axis]),
                None => [0, 0],
            };
            range(axis, layers)
        });
        IndexBox::new(from_fn(|axis| ranges[axis].start), from_fn(|axis| ranges[axis].end))
    }
}
