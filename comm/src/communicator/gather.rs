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
    /// root receives a piece of every rank in turn, and the next of each, so that every element goes once over the wire and no
    /// rank waits for long. As `MPI_Gatherv`.
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
        let room = |length: i64| {
            let mut room = self.or_fail(CALL, room_for(length as usize, "what a rank has gathered"))?;
            room.resize(length as usize, T::default());
            Ok(room)
        };
        let mut all: Vec<Vec<T>> = lengths.into_iter().map(room).collect::<Result<_>>()?;
        all[root].copy_from_slice(own);
        let longest = all.iter().map(Vec::len).max().unwrap_or(0);
        for start in (0..longest).step_by(piece) {
            for (rank, elements) in all.iter_mut().enumerate().filter(|(rank, _)| *rank != root) {
                let end = elements.len().min(start + piece);
                if start < end {
                    self.receive_step(call, rank, &mut elements[start..end])?;
                }
            }
        }
        Ok(Some(all))
    }
}
