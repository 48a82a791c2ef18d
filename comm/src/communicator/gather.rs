//! What every rank has, for one of them.

use super::Communicator;
use super::call::Kind;
use crate::element::{Element, Op};
use crate::error::Result;
use crate::room::room_for;

/// In pieces of that many bytes: both sides keep memory for one.
const PIECE_BYTES: usize = 1 << 20;

impl Communicator {
    /// Gives `root` the elements of every rank, by rank, of each as many as it has; the others get `None`. Collective, with
    /// elements of one type on all ranks and the same root; blocks. All ranks first learn how many each of them has; then the
    /// root receives from one rank after the other, so that every element goes once over the wire. As `MPI_Gatherv`.
    ///
    /// ```
    /// # use streamhalo_comm::{Communicator, Error, World, WorldOptions};
    /// # fn main() -> Result<(), Error> {
    /// let ranks = World::threads(3, WorldOptions::default(), |world| {
    ///     let own = vec![world.rank() as i64; world.rank()];
    ///     Communicator::new(&world)?.gather(&own, 1)
    /// })?;
    /// assert_eq!(ranks, [Ok(None), Ok(Some(vec![vec![], vec![1], vec![2, 2]])), Ok(None)]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::OutOfMemory`](crate::Error::OutOfMemory) on the root; else as [`Communicator::broadcast`], where ranks may give
    /// different numbers of elements. Of different types the root learns, and the others in a later call.
    pub fn gather<T: Element>(&self, own: &[T], root: usize) -> Result<Option<Vec<Vec<T>>>> {
        const CALL: &str = "gather";
        self.or_fail(CALL, self.check_rank("Communicator::gather", root))?;
        let call = self.call(Kind::Gather, Op::Replace, 0, root);
        let piece = PIECE_BYTES / size_of::<T>();
        let mut lengths = vec![0_i64; self.size()];
        self.allgather_in(call, &[own.len() as i64], &mut lengths)?;
        if self.rank() != root {
            own.chunks(piece).try_for_each(|piece| self.send_step(call, root, piece))?;
            return Ok(None);
        }
        let of_rank = |(rank, length): (usize, i64)| {
            let length = length as usize;
            let mut elements = self.or_fail(CALL, room_for(length, "what a rank has gathered"))?;
            if rank == root {
                elements.extend_from_slice(own);
            } else {
                elements.resize(length, T::default());
                elements.chunks_mut(piece).try_for_each(|piece| self.receive_step(call, rank, piece))?;
            }
            Ok(elements)
        };
        lengths.into_iter().enumerate().map(of_rank).collect::<Result<_>>().map(Some)
    }
}
