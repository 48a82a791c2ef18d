//! Accesses that notify nobody: what one-sided programs did before notified access, and beside it (2015, sections V and VI).

use super::Window;
use super::notified::{Access, Notified};
use super::notify::{fetch, swap};
use crate::element::{Element, Op};
use crate::error::Result;
use crate::fabric::{bytes_of, bytes_of_mut};

impl Window {
    /// Puts elements into the target's part, from its element `offset` on, without a notification: they are there once
    /// [`Window::flush`] has returned, and before whatever this rank notifies the target of later. Not atomic: what is put beside
    /// a fetch or an accumulate of another rank may be lost; exchange with [`Op::Replace`] there. Blocks as
    /// [`Window::put_notify`] does. `MPI_Put`, on a window for passive targets (2015, section V).
    ///
    /// How a tile of the 2015 paper's factorisation is put and told of with one-sided accesses alone (section VI-C):
    ///
    /// ```
    /// use streamhalo_comm::device::Device;
    /// use streamhalo_comm::window::Window;
    /// use streamhalo_comm::{Error, Op, World, WorldOptions};
    ///
    /// const TILE: usize = 64;
    /// let ranks = World::threads(3, WorldOptions::default(), |world| {
    ///     let stream = Device::host().stream(&world)?;
    ///     let tiles = Window::allocate::<f64>(&world, &stream, 3 * TILE)?;
    ///     // Where the next one is told of, and a ring of those that have come.
    ///     let ring = Window::allocate::<i32>(&world, &stream, 4)?;
    ///     ring.write(1, &[-1; 3])?;
    ///     world.barrier()?;
    ///     let (target, index) = (0, world.rank() * TILE);
    ///     tiles.put_values(&[world.rank() as f64; TILE], target, index)?;
    ///     let dest = ring.fetch_and_op(1, target, 0, Op::Sum)?;
    ///     tiles.flush(target)?;
    ///     ring.put_values(&[world.rank() as i32], target, 1 + dest as usize)?;
    ///     ring.flush(target)?;
    ///     world.barrier()?;
    ///     let (mut told, mut tile) = ([0; 3], [0.0; TILE]);
    ///     ring.read(1, &mut told)?;
    ///     tiles.read(2 * TILE, &mut tile)?;
    ///     world.barrier()?; // before the windows go
    ///     told.sort();
    ///     Ok::<_, Error>((told, tile[TILE - 1]))
    /// })?;
    /// assert_eq!(ranks[0], Ok(([0, 1, 2], 2.0)));
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Window::put_notify`].
    pub fn put_values<T: Element>(&self, data: &[T], target: usize, offset: usize) -> Result<()> {
        let (notified, access) = self.silent::<T>("Window::put_values", target, offset, data.len())?;
        notified.put_silently(access, bytes_of(data))
    }

    /// Gets elements of the target's part, from its element `offset` on, without a notification: blocks until they are here.
    /// Where the target's memory is mapped they are read at once, unless something of this rank's may be on its way there, in a
    /// packet that the target has not taken: then it answers, as in [`Window::get_notify`].
    /// `MPI_Get` and `MPI_Win_flush`, on a window for passive targets (2015, section V).
    ///
    /// # Errors
    /// As [`Window::put_notify`].
    pub fn get_values<T: Element>(&self, data: &mut [T], target: usize, offset: usize) -> Result<()> {
        let (notified, access) = self.silent::<T>("Window::get_values", target, offset, data.len())?;
        notified.get(access, bytes_of_mut(data))
    }

    /// Combines elements of the target's part, from its element `offset` on, each with one of `data`, without a notification:
    /// atomically for each element, among accumulates, fetches and swaps, and there as what [`Window::put_values`] puts. Blocks
    /// as [`Window::put_notify`] does. `MPI_Accumulate`, on a window for passive targets.
    ///
    /// # Errors
    /// As [`Window::put_notify`].
    pub fn accumulate_values<T: Element>(
        &self,
        data: &[T],
        target: usize,
        offset: usize,
        op: Op,
    ) -> Result<()> {
        let (notified, access) = self.silent::<T>("Window::accumulate_values", target, offset, data.len())?;
        notified.accumulate(access, bytes_of(data), op)
    }

    /// As [`Window::fetch_and_op_notify`], without a notification. `MPI_Fetch_and_op` and `MPI_Win_flush` (2015, section VI-C).
    ///
    /// # Errors
    /// As [`Window::put_notify`].
    pub fn fetch_and_op<T: Element>(&self, value: T, target: usize, offset: usize, op: Op) -> Result<T> {
        fetch(self.silent::<T>("Window::fetch_and_op", target, offset, 1)?, value, op)
    }

    /// As [`Window::compare_and_swap_notify`], without a notification. `MPI_Compare_and_swap` and `MPI_Win_flush`.
    ///
    /// # Errors
    /// As [`Window::put_notify`].
    pub fn compare_and_swap<T: Element>(
        &self,
        expected: T,
        new: T,
        target: usize,
        offset: usize,
    ) -> Result<T> {
        swap(self.silent::<T>("Window::compare_and_swap", target, offset, 1)?, [expected, new])
    }

    /// [`Window::flush`] of all targets, one after the other, and of accesses that notify too: all have come to their targets'
    /// parts. With a barrier behind it, it is what `MPI_Win_fence` is. Notifications stay until they are asked for.
    ///
    /// ```
    /// use streamhalo_comm::device::Device;
    /// use streamhalo_comm::window::Window;
    /// use streamhalo_comm::{Error, Op, World, WorldOptions};
    ///
    /// let ranks = World::threads(3, WorldOptions::default(), |world| {
    ///     let stream = Device::host().stream(&world)?;
    ///     let window = Window::allocate::<i64>(&world, &stream, 2)?;
    ///     let fence = || window.flush_all().and_then(|()| world.barrier());
    ///     window.accumulate_values(&[1, world.rank() as i64], 0, 0, Op::Sum)?;
    ///     fence()?;
    ///     let mut sums = [0_i64; 2];
    ///     window.get_values(&mut sums, 0, 0)?;
    ///     fence()?;
    ///     Ok::<_, Error>(sums)
    /// })?;
    /// assert_eq!(ranks, [Ok([3, 3]), Ok([3, 3]), Ok([3, 3])]);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Window::flush`]; those behind the first have not been flushed.
    pub fn flush_all(&self) -> Result<()> {
        let notified = self.notified("Window::flush_all")?;
        (0..self.size()).try_for_each(|target| notified.flush(target, true))
    }

    fn silent<T: Element>(
        &self,
        what: &'static str,
        target: usize,
        offset: usize,
        elements: usize,
    ) -> Result<(&Notified, Access<'_>)> {
        let (notified, access) = self.access::<T>(what, target, offset, elements, 0)?;
        Ok((notified, Access { notifies: false, ..access }))
    }
}
