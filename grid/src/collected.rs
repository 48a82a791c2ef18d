//! A field of all ranks on one of them, for results.

use crate::{Array, GridError};
use ndarray::{ArrayD, ArrayViewD, Slice};
use streamhalo_comm::{Communicator, Element, Error, room_for};

impl<T: Element, const D: usize> Array<T, D> {
    /// The whole field on the rank `root`, wherever it lives: shape `[axis 0, .., x]` of the entries of the grid, with the
    /// component as a last axis where there are several; `None` on the others. For results: `root` has to have memory for
    /// it twice, and for its own part once more. Collective; blocks, also until the stream has come to rest.
    ///
    /// ```
    /// use streamhalo_comm::device::Device;
    /// use streamhalo_comm::{World, WorldOptions};
    /// use streamhalo_grid::{Array, Entity, GlobalGrid, GridError};
    ///
    /// # fn main() -> Result<(), GridError> {
    /// let ranks = World::threads(4, WorldOptions::default(), |world| {
    ///     let stream = Device::host().stream(&world)?;
    ///     let grid = GlobalGrid::new([3, 5], [false, true])?.partition(&world)?.local(1)?;
    ///     let mut field = Array::<i32, 2>::zeros(&grid, Entity::Cell, &stream)?;
    ///     field.fill(|[y, x], _| (10 * y + x) as i32)?;
    ///     field.collect(0)
    /// })?;
    /// let whole = ranks.into_iter().next().expect("there are four")?.expect("it is rank 0");
    /// assert_eq!(whole.shape(), [3, 5]);
    /// assert!(whole.indexed_iter().all(|(at, value)| *value as usize == 10 * at[0] + at[1]));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// On all ranks if there is no such rank, if one names another than rank 0 does, or another field, has no memory or a
    /// stream that has failed; else as [`Communicator::gather`].
    pub fn collect(&self, root: usize) -> Result<Option<ArrayD<T>>, GridError> {
        const CALL: &str = "Array::collect";
        let world = self.grid().world();
        let (rank, size) = (world.rank(), world.size());
        let prepared = match root < size {
            true => {
                self.copy_owned().and_then(|own| Ok((own, (rank == root).then(|| self.room()).transpose()?)))
            }
            false => Err(Error::WrongRank { what: CALL, rank: root, size }.into()),
        };
        let told =
            world.agree(CALL, prepared.as_ref().map(|_| format!("{}, on rank {root}", self.described())))?;
        if let Some(other) = told.iter().position(|other| *other != told[0]) {
            let reason = format!("it collects {}, and rank 0 {}", told[other], told[0]);
            return Err(Error::CollectiveFailed { call: CALL, rank: other, reason }.into());
        }
        let (own, mut whole) = prepared?;
        let parts = Communicator::new(world)?.gather(&own, root)?;
        if let (Some(whole), Some(parts)) = (&mut whole, parts) {
            self.put_together(&parts, whole)?;
        }
        Ok(whole)
    }

    /// The extents of a box of entries, with the components where there are several.
    fn shape(&self, extents: [usize; D]) -> Vec<usize> {
        extents.into_iter().chain(Some(self.components()).filter(|components| *components > 1)).collect()
    }

    /// Zeros for the entries of all ranks.
    fn room(&self) -> Result<ArrayD<T>, GridError> {
        let shape = self.shape(self.grid().subdomain().partition().grid().entity_extents(self.entity()));
        let elements = shape.iter().product();
        let mut room = room_for(elements, "a field of all ranks")?;
        room.resize(elements, T::default());
        Ok(ArrayD::from_shape_vec(shape, room).expect("the room is of that shape"))
    }

    /// The field, of what each rank owns.
    fn put_together(&self, parts: &[Vec<T>], whole: &mut ArrayD<T>) -> Result<(), GridError> {
        let partition = self.grid().subdomain().partition();
        for (rank, part) in parts.iter().enumerate() {
            let owned = partition.subdomain(rank, self.grid().halo_width())?.owned_global(self.entity());
            let part =
                ArrayViewD::from_shape(self.shape(owned.extents()), part).expect("a rank sends what it owns");
            let place = |axis: usize| match axis < D {
                true => Slice::from(owned.start[axis]..owned.end[axis]),
                false => Slice::from(..),
            };
            whole.slice_each_axis_mut(|axis| place(axis.axis.index())).assign(&part);
        }
        Ok(())
    }
}
