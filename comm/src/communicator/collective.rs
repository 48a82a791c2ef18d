//! Collective calls of a communicator, by the host.
//!
//! Values are combined in one order that depends on the number of ranks alone, that of
//! [`AllReduce`](crate::collective::AllReduce): as a tree over neighbouring ranks, of whose values that of the lower one is
//! the left operand, after ranks 2i and 2i + 1 with i < k have become one where there are 2ⁿ + k. So every rank gets the same
//! bits, on every fabric, from `reduce` as from `allreduce`, and however long the vector is.
//!
//! All ranks fail or none: one that cannot make its part of a call, whatever the reason, fails the world
//! ([`crate::World::fail`]), as the others would wait for it. If it finds that ranks do not agree, which is
//! [`Error::CollectiveFailed`], those that wait for it in a call of that name fail with that too; else with
//! [`Error::PeerFailed`].
//!
//! What a call needs besides its vectors the communicator keeps: one that has made room for its longest vector
//! allocates no more.

use super::Communicator;
use super::call::{Call, Kind};
use super::step::Parts;
use crate::collective::{self, order};
use crate::element::{Element, Op};
use crate::error::{Error, Result};
use std::ops::Range;

/// Vectors of that many bytes are reduced in parts, one by each rank, as each rank then sends them only twice.
const LONG_BYTES: usize = 32 * 1024;

impl Communicator {
    /// Blocks until all ranks have called it. Collective. Takes log₂ of the number of ranks steps.
    ///
    /// ```
    /// # use streamhalo_comm::{Communicator, Error, World, WorldOptions};
    /// # fn main() -> Result<(), Error> {
    /// World::threads(3, WorldOptions::default(), |world| Communicator::new(&world)?.barrier())?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::PeerFailed`] if a rank has failed, [`Error::TimedOut`] if one does not come.
    pub fn barrier(&self) -> Result<()> {
        let (rank, size) = (self.rank(), self.size());
        let call = self.call(Kind::Barrier, Op::Replace, 0, 0);
        let mut step = 1;
        while step < size {
            let (to, from) = ((rank + step) % size, (rank + size - step) % size);
            self.exchange_step::<u8>(call, (to, &[]), (from, &mut []))?;
            step *= 2;
        }
        Ok(())
    }

    /// Gives every rank what `root` has. Collective, with as many elements of one type on all ranks and the same
    /// root; blocks. Takes log₂ of the number of ranks steps.
    ///
    /// ```
    /// # use streamhalo_comm::{Communicator, Error, World, WorldOptions};
    /// # fn main() -> Result<(), Error> {
    /// let ranks = World::threads(3, WorldOptions::default(), |world| {
    ///     let mut values = [world.rank() as i32; 2];
    ///     Communicator::new(&world)?.broadcast(&mut values, 1)?;
    ///     Ok::<_, Error>(values)
    /// })?;
    /// assert_eq!(ranks, [Ok([1, 1]), Ok([1, 1]), Ok([1, 1])]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::WrongRank`]; [`Error::CollectiveFailed`] if ranks make different calls, or give different roots, operations,
    /// types or numbers of elements, on all that find it or wait for one that has, after which the world has failed; else as
    /// [`Communicator::barrier`]. Who waits for nobody, as a root may, learns of it in a later call.
    pub fn broadcast<T: Element>(&self, elements: &mut [T], root: usize) -> Result<()> {
        const CALL: &str = "broadcast";
        self.or_fail(CALL, self.check_rank("Communicator::broadcast", root))?;
        let call = self.call(Kind::Broadcast, Op::Replace, elements.len(), root);
        let (rank, size) = (self.rank(), self.size());
        // Counted from the root, rank r gets it from r without its lowest set bit, and gives it to those
        // that have one bit more below that.
        let own = (rank + size - root) % size;
        let of = |counted: usize| (counted + root) % size;
        let lowest = if own == 0 { size.next_power_of_two() } else { own & own.wrapping_neg() };
        if own != 0 {
            self.receive_step(call, of(own - lowest), elements)?;
        }
        let mut bit = lowest / 2;
        while bit > 0 {
            if own + bit < size {
                self.send_step(call, of(own + bit), elements)?;
            }
            bit /= 2;
        }
        Ok(())
    }

    /// Combines the vectors of all ranks element by element, for `root`; those of the others stay as they are.
    /// Collective, with as many elements of one type on all ranks, the same operation and root; blocks. Takes
    /// log₂ of the number of ranks steps. The result has the same bits as that of [`Communicator::allreduce`].
    ///
    /// ```
    /// # use streamhalo_comm::{Communicator, Error, Op, World, WorldOptions};
    /// # fn main() -> Result<(), Error> {
    /// let ranks = World::threads(3, WorldOptions::default(), |world| {
    ///     let mut values = [world.rank() as f64, 1.0];
    ///     Communicator::new(&world)?.reduce(&mut values, Op::Sum, 2)?;
    ///     Ok::<_, Error>(values)
    /// })?;
    /// assert_eq!(ranks, [Ok([0.0, 1.0]), Ok([1.0, 1.0]), Ok([3.0, 3.0])]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Communicator::broadcast`], and [`Error::CollectiveFailed`] for [`Op::Replace`], which combines nothing.
    pub fn reduce<T: Element>(&self, elements: &mut [T], op: Op, root: usize) -> Result<()> {
        const CALL: &str = "reduce";
        self.or_fail(CALL, self.check_rank("Communicator::reduce", root))?;
        self.check_op(CALL, op)?;
        let call = self.call(Kind::Reduce, op, elements.len(), root);
        let (rank, size) = (self.rank(), self.size());
        let parts = collective::Parts::of(size);
        let (part, pair) = (parts.part(rank), parts.pair(rank));
        self.with_scratch(call, 2 * elements.len(), |scratch| {
            let (own, others) = scratch.split_at_mut(elements.len());
            own.copy_from_slice(elements);
            if let Some(lower) = pair.filter(|pair| *pair < rank) {
                self.send_step(call, lower, own)?;
            } else {
                if let Some(higher) = pair {
                    self.receive_and_combine(call, higher, op, own, others)?;
                }
                for distance in parts.distances() {
                    if part & distance != 0 {
                        self.send_step(call, parts.rank(part - distance), own)?;
                        break;
                    }
                    self.receive_and_combine(call, parts.rank(part + distance), op, own, others)?;
                }
            }
            // Rank 0 has the result: the order must not depend on the root.
            match (rank == 0, rank == root) {
                (true, true) => elements.copy_from_slice(own),
                (true, false) => self.send_step(call, root, own)?,
                (false, true) => self.receive_step(call, 0, elements)?,
                (false, false) => {}
            }
            Ok(())
        })
    }

    /// Combines the vectors of all ranks element by element, for all of them. Collective, with as many elements
    /// of one type on all ranks and the same operation; blocks. Takes about log₂ of the number of ranks steps
    /// for short vectors; long ones (from 32 KiB) are reduced in parts, one by each rank.
    ///
    /// Integer sums wrap; `Min` and `Max` of floats ignore NaN. All ranks get the same bits, whatever the fabric
    /// and whoever comes first: the order depends on the number of ranks alone.
    ///
    /// ```
    /// # use streamhalo_comm::{Communicator, Error, Op, World, WorldOptions};
    /// # fn main() -> Result<(), Error> {
    /// let ranks = World::threads(3, WorldOptions::default(), |world| {
    ///     let mut residual = [0.5 * world.rank() as f64];
    ///     Communicator::new(&world)?.allreduce(&mut residual, Op::Max)?;
    ///     Ok::<_, Error>(residual[0])
    /// })?;
    /// assert_eq!(ranks, [Ok(1.0), Ok(1.0), Ok(1.0)]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Communicator::reduce`].
    pub fn allreduce<T: Element>(&self, elements: &mut [T], op: Op) -> Result<()> {
        const CALL: &str = "allreduce";
        self.check_op(CALL, op)?;
        let call = self.call(Kind::AllReduce, op, elements.len(), 0);
        if self.size() > 2 && size_of_val(elements) >= LONG_BYTES {
            self.allreduce_parts(call, elements, op)
        } else {
            self.allreduce_doubling(call, elements, op)
        }
    }

    /// Every rank gets every value, two blocks after the other.
    fn allreduce_doubling<T: Element>(&self, call: Call, elements: &mut [T], op: Op) -> Result<()> {
        let rank = self.rank();
        let parts = collective::Parts::of(self.size());
        let (part, pair) = (parts.part(rank), parts.pair(rank));
        if let Some(lower) = pair.filter(|pair| *pair < rank) {
            self.send_step(call, lower, elements)?;
            return self.receive_step(call, lower, elements);
        }
        self.with_scratch(call, elements.len(), |others| {
            if let Some(higher) = pair {
                self.receive_and_combine(call, higher, op, elements, others)?;
            }
            for distance in parts.distances() {
                let peer = parts.rank(part ^ distance);
                self.exchange_step(call, (peer, elements), (peer, others))?;
                if rank < peer { combine(op, elements, others) } else { combine_left(op, others, elements) }
            }
            match pair {
                Some(higher) => self.send_step(call, higher, elements),
                None => Ok(()),
            }
        })
    }

    /// Every rank gets all values of its part, combines them in the order that the doubling has, and tells the
    /// others what came out.
    fn allreduce_parts<T: Element>(&self, call: Call, elements: &mut [T], op: Op) -> Result<()> {
        let (rank, size) = (self.rank(), self.size());
        let all = elements.len();
        let part = |of: usize| part_of(all, size, of);
        let own = part(rank);
        self.with_scratch(call, own.len() * size, |values| {
            // All but this one.
            let other = |index: usize| index + usize::from(index >= rank);
            let sent = |index| (other(index), part(other(index)));
            let come = |index| (other(index), other(index) * own.len()..(other(index) + 1) * own.len());
            let (sends, receives) =
                (Parts { count: size - 1, part: &sent }, Parts { count: size - 1, part: &come });
            self.step(call, (elements, sends), (values, receives))?;
            values[rank * own.len()..][..own.len()].copy_from_slice(&elements[own.clone()]);
            for (low, high) in order(size) {
                let (lower, upper) = values.split_at_mut(high * own.len());
                combine(op, &mut lower[low * own.len()..][..own.len()], &upper[..own.len()]);
            }
            elements[own.clone()].copy_from_slice(&values[..own.len()]);
            Ok(())
        })?;
        self.ring(call, elements, &part)
    }

    /// Gives every rank the elements of every rank, by rank: `gathered` has as many times the elements of `own`
    /// as there are ranks. Collective, with as many elements of one type on all ranks; blocks. Takes log₂ of the
    /// number of ranks steps for short vectors, and one for each rank for long ones.
    ///
    /// ```
    /// # use streamhalo_comm::{Communicator, Error, World, WorldOptions};
    /// # fn main() -> Result<(), Error> {
    /// let ranks = World::threads(3, WorldOptions::default(), |world| {
    ///     let mut all = [0; 3];
    ///     Communicator::new(&world)?.allgather(&[10 * world.rank() as i64], &mut all)?;
    ///     Ok::<_, Error>(all)
    /// })?;
    /// assert_eq!(ranks, [Ok([0, 10, 20]), Ok([0, 10, 20]), Ok([0, 10, 20])]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::CollectiveFailed`] if `gathered` has another length; else as [`Communicator::broadcast`].
    pub fn allgather<T: Element>(&self, own: &[T], gathered: &mut [T]) -> Result<()> {
        const CALL: &str = "allgather";
        let (rank, size, length) = (self.rank(), self.size(), own.len());
        if gathered.len() != size * length {
            let reason =
                format!("{size} ranks with {length} elements each do not make {} elements", gathered.len());
            return self.or_fail(CALL, Err(Error::CollectiveFailed { call: CALL, rank, reason }));
        }
        self.allgather_in(self.call(Kind::AllGather, Op::Replace, length, 0), own, gathered)
    }

    /// The same as a part of a call, with room for all.
    pub(super) fn allgather_in<T: Element>(&self, call: Call, own: &[T], gathered: &mut [T]) -> Result<()> {
        let (rank, size, length) = (self.rank(), self.size(), own.len());
        if size_of_val(gathered) >= LONG_BYTES {
            gathered[rank * length..][..length].copy_from_slice(own);
            return self.ring(call, gathered, &|of| of * length..(of + 1) * length);
        }
        // Counted from this rank on, twice as many values are there after every step.
        self.with_scratch(call, gathered.len(), |values| {
            values[..length].copy_from_slice(own);
            let mut known = 1;
            while known < size {
                let more = known.min(size - known);
                let (to, from) = ((rank + size - known) % size, (rank + known) % size);
                let (there, coming) = values.split_at_mut(known * length);
                let (there, coming) = (&there[..more * length], &mut coming[..more * length]);
                self.exchange_step(call, (to, there), (from, coming))?;
                known += more;
            }
            let (upper, lower) = values.split_at((size - rank) * length);
            gathered[rank * length..].copy_from_slice(upper);
            gathered[..rank * length].copy_from_slice(lower);
            Ok(())
        })
    }

    /// Every rank's part goes once round the ranks; this rank's is there, and so are the others' afterwards.
    fn ring<T: Element>(
        &self,
        call: Call,
        elements: &mut [T],
        part: &dyn Fn(usize) -> Range<usize>,
    ) -> Result<()> {
        let (rank, size) = (self.rank(), self.size());
        let (to, from) = ((rank + 1) % size, (rank + size - 1) % size);
        for step in 0..size - 1 {
            let (sent, coming) = ((rank + size - step) % size, (rank + 2 * size - step - 1) % size);
            let (sent, coming) = two_parts(elements, part(sent), part(coming));
            self.exchange_step(call, (to, sent), (from, coming))?;
        }
        Ok(())
    }

    /// Sends a block to each of `destinations`, in order, and receives one from each of `sources`: `sent` and
    /// `received` are cut into as many equal blocks. Collective over the neighbours: whoever names this rank as a
    /// source is named by it as a destination, as often, with blocks of the same length; blocks. A rank may be
    /// named several times: its blocks are matched in order. As `MPI_Neighbor_alltoall`.
    ///
    /// ```
    /// # use streamhalo_comm::{Communicator, Error, World, WorldOptions};
    /// # fn main() -> Result<(), Error> {
    /// // To both neighbours of a ring, and from them.
    /// let ranks = World::threads(3, WorldOptions::default(), |world| {
    ///     let (left, right) = ((world.rank() + 2) % 3, (world.rank() + 1) % 3);
    ///     let own = world.rank() as i32;
    ///     let mut received = [0; 2];
    ///     let communicator = Communicator::new(&world)?;
    ///     communicator.neighbour_alltoall(&[left, right], &[own, 10 * own], &[left, right], &mut received)?;
    ///     Ok::<_, Error>(received)
    /// })?;
    /// assert_eq!(ranks, [Ok([20, 1]), Ok([0, 2]), Ok([10, 0])]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::WrongRank`]; [`Error::CollectiveFailed`] if a vector cannot be cut into as many blocks; else as
    /// [`Communicator::broadcast`].
    pub fn neighbour_alltoall<T: Element>(
        &self,
        destinations: &[usize],
        sent: &[T],
        sources: &[usize],
        received: &mut [T],
    ) -> Result<()> {
        const CALL: &str = "neighbour_alltoall";
        let what = "Communicator::neighbour_alltoall";
        let mut neighbours = destinations.iter().chain(sources);
        self.or_fail(CALL, neighbours.try_for_each(|rank| self.check_rank(what, *rank)))?;
        let block = |elements: usize, neighbours: usize| match neighbours {
            0 if elements == 0 => Ok(0),
            1.. if elements.is_multiple_of(neighbours) => Ok(elements / neighbours),
            _ => Err(Error::CollectiveFailed {
                call: CALL,
                rank: self.rank(),
                reason: format!("{elements} elements cannot be cut into {neighbours} equal blocks"),
            }),
        };
        let given = self.or_fail(CALL, block(sent.len(), destinations.len()))?;
        let taken = self.or_fail(CALL, block(received.len(), sources.len()))?;
        self.count_pairs(destinations.iter().chain(sources).copied());
        // Blocks of others may have other lengths.
        let call = Call::new(Kind::NeighbourAllToAll, 0, Op::Replace, 0, 0);
        let to = |index: usize| (destinations[index], index * given..(index + 1) * given);
        let from = |index: usize| (sources[index], index * taken..(index + 1) * taken);
        let sends = Parts { count: destinations.len(), part: &to };
        let receives = Parts { count: sources.len(), part: &from };
        self.step(call, (sent, sends), (received, receives))
    }

    fn receive_and_combine<T: Element>(
        &self,
        call: Call,
        from: usize,
        op: Op,
        own: &mut [T],
        others: &mut [T],
    ) -> Result<()> {
        self.receive_step(call, from, others)?;
        combine(op, own, others);
        Ok(())
    }

    /// The next call of all ranks.
    pub(super) fn call(&self, kind: Kind, op: Op, elements: usize, root: usize) -> Call {
        let calls = &self.inner.calls;
        calls.set(calls.get().wrapping_add(1));
        Call::new(kind, calls.get(), op, elements, root)
    }

    fn check_op(&self, call: &'static str, op: Op) -> Result<()> {
        if op != Op::Replace {
            return Ok(());
        }
        let reason = "`Op::Replace` combines nothing; use broadcast".into();
        self.or_fail(call, Err(Error::CollectiveFailed { call, rank: self.rank(), reason }))
    }
}

/// The part of a vector that a rank reduces.
fn part_of(elements: usize, size: usize, rank: usize) -> Range<usize> {
    rank * elements / size..(rank + 1) * elements / size
}

/// Two parts of a vector that do not overlap, the second to be written.
fn two_parts<T>(elements: &mut [T], read: Range<usize>, written: Range<usize>) -> (&[T], &mut [T]) {
    if read.start <= written.start {
        let (lower, upper) = elements.split_at_mut(written.start);
        (&lower[read], &mut upper[..written.len()])
    } else {
        let (lower, upper) = elements.split_at_mut(read.start);
        (&upper[..read.len()], &mut lower[written])
    }
}

/// `own` becomes own ∘ other.
fn combine<T: Element>(op: Op, own: &mut [T], others: &[T]) {
    own.iter_mut().zip(others).for_each(|(own, other)| *own = T::combine(op, *own, *other));
}

/// `own` becomes other ∘ own.
fn combine_left<T: Element>(op: Op, others: &[T], own: &mut [T]) {
    own.iter_mut().zip(others).for_each(|(own, other)| *own = T::combine(op, *other, *own));
}
