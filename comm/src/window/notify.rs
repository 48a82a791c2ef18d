//! Notified access: accesses to other ranks' parts of a window of which they are told (Belli and Hoefler 2015).

use super::Window;
use super::notified::{Access, Notification, Notified, NotifyRequest};
use crate::element::{Element, Op};
use crate::error::{Error, Result};
use crate::fabric::{bytes_of, bytes_of_mut};
use crate::source::{Source, Tag};
use std::rc::Rc;

impl Window {
    /// The largest tag of an access.
    pub const LARGEST_TAG: u32 = (1 << 31) - 1;

    /// Puts elements into the target's part, from element `offset` on, and notifies the target: once a request of
    /// its has matched this access, the elements are there. They may be changed again as soon as this returns.
    /// No elements are a notification alone. `MPI_Put_notify` (2015, section III-B).
    ///
    /// Up to 32 bytes travel in the notification's own cache line. Blocks only while the target has not read the
    /// last notifications of this rank, 16 where its memory is mapped and 32 over a wire, or fewer of long packets; other
    /// ranks' accesses to this one are served meanwhile.
    ///
    /// ```
    /// use streamhalo_comm::device::Device;
    /// use streamhalo_comm::window::Window;
    /// use streamhalo_comm::{Error, Source, Tag, World, WorldOptions};
    ///
    /// let ranks = World::threads(2, WorldOptions::default(), |world| {
    ///     let stream = Device::host().stream(&world)?;
    ///     let window = Window::allocate::<f64>(&world, &stream, 4)?;
    ///     let mut values = [0.0; 4];
    ///     if world.rank() == 0 {
    ///         window.put_notify(&[1.0, 2.0], 1, 2, 99)?;
    ///     } else {
    ///         let mut request = window.notify_init(Source::Rank(0), Tag::Value(99), 1)?;
    ///         request.start()?;
    ///         request.wait()?;
    ///         window.read(0, &mut values)?;
    ///     }
    ///     world.barrier()?; // before the window goes
    ///     Ok::<_, Error>(values)
    /// })?;
    /// assert_eq!(ranks[1], Ok([0.0, 0.0, 1.0, 2.0]));
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::WrongRank`], [`Error::WrongTag`], [`Error::ElementMismatch`]; [`Error::OutOfBounds`], in bytes, if
    /// they are not in the target's part; [`Error::TimedOut`] if the target does not read its notifications;
    /// [`Error::PeerFailed`] if a rank has failed, or the target has dropped its end of the window;
    /// [`Error::OutOfOrder`] if the window is for active target epochs.
    #[inline(always)]
    pub fn put_notify<T: Element>(&self, data: &[T], target: usize, offset: usize, tag: u32) -> Result<()> {
        let (notified, access) = self.access::<T>("Window::put_notify", target, offset, data.len(), tag)?;
        notified.put(access, bytes_of(data))
    }

    /// Gets elements of the target's part, from element `offset` on, and notifies the target, which may overwrite
    /// them then. Blocks until they are here. `MPI_Get_notify` (2015, section III-B).
    ///
    /// Where the target's memory is mapped they are read at once, unless something of this rank's may be on its way there, in a
    /// packet that the target has not taken: a flush waits for none that notifies. Otherwise the target answers, in its own
    /// calls on the window or while it waits for something else.
    ///
    /// ```
    /// use streamhalo_comm::device::Device;
    /// use streamhalo_comm::window::Window;
    /// use streamhalo_comm::{Error, Source, Tag, World, WorldOptions};
    ///
    /// let ranks = World::threads(2, WorldOptions::default(), |world| {
    ///     let stream = Device::host().stream(&world)?;
    ///     let window = Window::allocate::<i32>(&world, &stream, 3)?;
    ///     window.write(0, &[10, 11, 12])?;
    ///     world.barrier()?;
    ///     let mut values = [0; 2];
    ///     if world.rank() == 0 {
    ///         window.get_notify(&mut values, 1, 1, 7)?;
    ///     } else {
    ///         let mut request = window.notify_init(Source::Any, Tag::Value(7), 1)?;
    ///         request.start()?;
    ///         assert_eq!(request.wait()?.source, 0);
    ///         window.write(0, &[0, 0, 0])?; // rank 0 has what it wanted
    ///     }
    ///     world.barrier()?;
    ///     Ok::<_, Error>(values)
    /// })?;
    /// assert_eq!(ranks[0], Ok([11, 12]));
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Window::put_notify`].
    pub fn get_notify<T: Element>(
        &self,
        data: &mut [T],
        target: usize,
        offset: usize,
        tag: u32,
    ) -> Result<()> {
        let (notified, access) = self.access::<T>("Window::get_notify", target, offset, data.len(), tag)?;
        notified.get(access, bytes_of_mut(data))
    }

    /// Combines elements of the target's part, from element `offset` on, each with one of `data`, and notifies the
    /// target. `MPI_Accumulate`, notified (2015, section III-B).
    ///
    /// The target does it as it takes the access, in its own calls on the window or while it waits for something
    /// else: so accumulates of several ranks are atomic for each element, and those of one rank happen in order.
    /// Blocks as [`Window::put_notify`] does.
    ///
    /// ```
    /// use streamhalo_comm::device::Device;
    /// use streamhalo_comm::window::Window;
    /// use streamhalo_comm::{Error, Op, Source, Tag, World, WorldOptions};
    ///
    /// let ranks = World::threads(3, WorldOptions::default(), |world| {
    ///     let stream = Device::host().stream(&world)?;
    ///     let window = Window::allocate::<i64>(&world, &stream, 1)?;
    ///     window.accumulate_notify(&[1 + world.rank() as i64], 0, 0, Op::Sum, 5)?;
    ///     let mut sum = [0_i64];
    ///     if world.rank() == 0 {
    ///         let mut all = window.notify_init(Source::Any, Tag::Value(5), 3)?;
    ///         all.start()?;
    ///         all.wait()?;
    ///         window.read(0, &mut sum)?;
    ///     }
    ///     world.barrier()?;
    ///     Ok::<_, Error>(sum[0])
    /// })?;
    /// assert_eq!(ranks[0], Ok(6));
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Window::put_notify`].
    pub fn accumulate_notify<T: Element>(
        &self,
        data: &[T],
        target: usize,
        offset: usize,
        op: Op,
        tag: u32,
    ) -> Result<()> {
        let what = "Window::accumulate_notify";
        let (notified, access) = self.access::<T>(what, target, offset, data.len(), tag)?;
        notified.accumulate(access, bytes_of(data), op)
    }

    /// Combines one element of the target's part with `value`, notifies the target, and gives what the element
    /// was. Atomic with all accumulates; blocks until the target has done it, as [`Window::accumulate_notify`]
    /// says. `MPI_Fetch_and_op`, notified. With [`Op::Replace`] it is an exchange.
    ///
    /// ```
    /// use streamhalo_comm::device::Device;
    /// use streamhalo_comm::window::Window;
    /// use streamhalo_comm::{Error, Op, World, WorldOptions};
    ///
    /// // Tickets that no two ranks share.
    /// let ranks = World::threads(3, WorldOptions::default(), |world| {
    ///     let stream = Device::host().stream(&world)?;
    ///     let window = Window::allocate::<i64>(&world, &stream, 1)?;
    ///     let ticket = window.fetch_and_op_notify(1_i64, 0, 0, Op::Sum, 0)?;
    ///     world.barrier()?;
    ///     Ok::<_, Error>(ticket)
    /// })?;
    /// let mut tickets = ranks.into_iter().collect::<Result<Vec<_>, _>>()?;
    /// tickets.sort();
    /// assert_eq!(tickets, [0, 1, 2]);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Window::put_notify`].
    pub fn fetch_and_op_notify<T: Element>(
        &self,
        value: T,
        target: usize,
        offset: usize,
        op: Op,
        tag: u32,
    ) -> Result<T> {
        let what = "Window::fetch_and_op_notify";
        fetch(self.access::<T>(what, target, offset, 1, tag)?, value, op)
    }

    /// Replaces one element of the target's part with `new` if its bits are those of `expected`, notifies the
    /// target in any case, and gives what the element was. Atomic with all accumulates; blocks as
    /// [`Window::fetch_and_op_notify`] does. `MPI_Compare_and_swap`, notified.
    ///
    /// ```
    /// use streamhalo_comm::device::Device;
    /// use streamhalo_comm::window::Window;
    /// use streamhalo_comm::{Error, World, WorldOptions};
    ///
    /// // One rank of several becomes the first.
    /// let ranks = World::threads(3, WorldOptions::default(), |world| {
    ///     let stream = Device::host().stream(&world)?;
    ///     let window = Window::allocate::<i32>(&world, &stream, 1)?;
    ///     let found = window.compare_and_swap_notify(0, 1, 0, 0, 0)?;
    ///     world.barrier()?;
    ///     Ok::<_, Error>(found == 0)
    /// })?;
    /// assert_eq!(ranks.into_iter().filter(|is_first| *is_first == Ok(true)).count(), 1);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Window::put_notify`].
    pub fn compare_and_swap_notify<T: Element>(
        &self,
        expected: T,
        new: T,
        target: usize,
        offset: usize,
        tag: u32,
    ) -> Result<T> {
        let what = "Window::compare_and_swap_notify";
        swap(self.access::<T>(what, target, offset, 1, tag)?, [expected, new])
    }

    /// Ends this rank's accesses to a target. `MPI_Win_flush`, as it stands in the 2015 paper's listing 1.
    ///
    /// Those that notify have left this rank's memory, in order, and whatever it accesses there later comes after them; that
    /// they have come is what the target's notifications say. The calls of this module hand over what they are given before
    /// they return, so that this waits for nothing; it reports what has gone wrong meanwhile. Accesses that notify nobody
    /// ([`Window::put_values`] and the like) have come to the target's part: it blocks until the target has taken those that
    /// cannot be made without it, which it does where it probes, tests or waits for a request of the window, or blocks for
    /// something else.
    ///
    /// # Errors
    /// [`Error::OutOfOrder`] if the window is for active target epochs; [`Error::TimedOut`] if the target does not take them;
    /// [`Error::WrongRank`]; [`Error::PeerFailed`] if a rank has failed, or the target has dropped its end of the
    /// window and has not taken all of them; what a wire says.
    pub fn flush(&self, target: usize) -> Result<()> {
        let what = "Window::flush";
        self.check_rank(what, target)?;
        self.notified(what)?.flush(target, false)
    }

    /// A persistent request that is complete once `expected_count` accesses with that tag, made by that rank, have
    /// notified this one. Not collective; does not block. `MPI_Notify_init` (2015, section III-B).
    ///
    /// The paper's listing 1, a ping-pong:
    ///
    /// ```
    /// use streamhalo_comm::device::Device;
    /// use streamhalo_comm::window::{Notification, Window};
    /// use streamhalo_comm::{Error, Source, Tag, World, WorldOptions};
    ///
    /// const MAX_SIZE: usize = 64;
    /// let ranks = World::threads(2, WorldOptions::default(), |world| {
    ///     let stream = Device::host().stream(&world)?;
    ///     let window = Window::allocate::<f64>(&world, &stream, 2 * MAX_SIZE)?;
    ///     let (partner_rank, custom_tag, expected_count) = (1 - world.rank(), 99, 1);
    ///     let mut notification_request =
    ///         window.notify_init(Source::Rank(partner_rank), Tag::Value(custom_tag), expected_count)?;
    ///     let mut buffer = [0.0; MAX_SIZE];
    ///     for size in 8..MAX_SIZE {
    ///         if world.rank() == 0 {
    ///             // Send ping.
    ///             buffer[..size].fill(size as f64);
    ///             window.put_notify(&buffer[..size], partner_rank, 0, custom_tag)?;
    ///             window.flush(partner_rank)?;
    ///             // Wait for pong.
    ///             notification_request.start()?;
    ///             let status = notification_request.wait()?;
    ///             assert_eq!(status, Notification { source: partner_rank, tag: custom_tag });
    ///             window.read(MAX_SIZE, &mut buffer)?;
    ///             assert_eq!(buffer[..size], vec![size as f64 + 1.0; size]);
    ///         } else {
    ///             // Wait for ping.
    ///             notification_request.start()?;
    ///             notification_request.wait()?;
    ///             // Send pong.
    ///             window.read(0, &mut buffer)?;
    ///             buffer.iter_mut().for_each(|value| *value += 1.0);
    ///             window.put_notify(&buffer[..size], partner_rank, MAX_SIZE, custom_tag)?;
    ///             window.flush(partner_rank)?;
    ///         }
    ///     }
    ///     notification_request.free();
    ///     Ok::<_, Error>(())
    /// })?;
    /// assert_eq!(ranks, [Ok(()), Ok(())]);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::WrongRank`], [`Error::WrongTag`]; [`Error::OutOfOrder`] if the window is for active target epochs, or
    /// no accesses are expected, or more than can be counted.
    pub fn notify_init(&self, source: Source, tag: Tag, expected_count: u32) -> Result<NotifyRequest> {
        let what = "Window::notify_init";
        let notified = self.notified(what)?;
        self.check_source_and_tag(what, source, tag)?;
        if expected_count == 0 || expected_count == u32::MAX {
            let reason = format!("{expected_count} accesses cannot be waited for; expect at least one");
            return Err(Error::OutOfOrder { call: what, reason });
        }
        Ok(NotifyRequest::new(Rc::clone(notified), source, tag, expected_count))
    }

    /// The first notification that has come, that nobody has asked for yet, and that a request for that source and
    /// tag would match; it stays where it is. Does not block. `MPI_Iprobe`, for notifications (2015, section III-B).
    ///
    /// ```
    /// use streamhalo_comm::device::Device;
    /// use streamhalo_comm::window::{Notification, Window};
    /// use streamhalo_comm::{Error, Source, Tag, World, WorldOptions};
    ///
    /// let ranks = World::threads(2, WorldOptions::default(), |world| {
    ///     let stream = Device::host().stream(&world)?;
    ///     let window = Window::allocate::<f64>(&world, &stream, 4)?;
    ///     if world.rank() == 0 {
    ///         window.put_notify(&[1.0, 2.0], 1, 0, 99)?;
    ///         world.barrier()?; // until rank 1 has looked
    ///         return Ok(None);
    ///     }
    ///     let mut found = None;
    ///     while found.is_none() {
    ///         found = window.probe(Source::Any, Tag::Any)?;
    ///     }
    ///     world.barrier()?;
    ///     Ok::<_, Error>(found)
    /// })?;
    /// assert_eq!(ranks, [Ok(None), Ok(Some(Notification { source: 0, tag: 99 }))]);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Window::notify_init`]; [`Error::PeerFailed`] if nothing has come and a rank has failed. That nothing has come says
    /// nothing of what may come, or whether the source is still there: tests and waits of a request do.
    pub fn probe(&self, source: Source, tag: Tag) -> Result<Option<Notification>> {
        let what = "Window::probe";
        let notified = self.notified(what)?;
        self.check_source_and_tag(what, source, tag)?;
        notified.probe(source, tag)
    }

    fn check_source_and_tag(&self, what: &'static str, source: Source, tag: Tag) -> Result<()> {
        if let Source::Rank(rank) = source {
            self.check_rank(what, rank)?;
        }
        if let Tag::Value(tag) = tag { check_tag(what, tag) } else { Ok(()) }
    }

    fn check_rank(&self, what: &'static str, rank: usize) -> Result<()> {
        let size = self.size();
        if rank < size { Ok(()) } else { Err(Error::WrongRank { what, rank, size }) }
    }

    #[inline]
    pub(super) fn notified(&self, call: &'static str) -> Result<&Rc<Notified>> {
        self.inner().notified.as_ref().ok_or_else(|| not_notified(call))
    }

    /// An access to that part, if there is such a part, with those elements.
    #[inline(always)]
    pub(super) fn access<T: Element>(
        &self,
        what: &'static str,
        target: usize,
        offset: usize,
        elements: usize,
        tag: u32,
    ) -> Result<(&Notified, Access<'_>)> {
        let notified = self.notified(what)?;
        let start = self.byte_offset::<T>(offset)?;
        let Some(part) = self.inner().targets.get(target) else {
            return Err(Error::WrongRank { what, rank: target, size: self.size() });
        };
        check_tag(what, tag)?;
        match offset.checked_add(elements) {
            Some(end) if end <= part.elements => {
                Ok((notified, Access { part, target, start, tag, notifies: true }))
            }
            _ => Err(out_of_bounds::<T>(what, offset, elements, part.elements)),
        }
    }
}

/// Combines one element of a target's part, and gives what it was.
pub(super) fn fetch<T: Element>((notified, access): (&Notified, Access<'_>), value: T, op: Op) -> Result<T> {
    let mut value = [value];
    notified.fetch(access, bytes_of_mut(&mut value), op)?;
    Ok(value[0])
}

/// Replaces one element of a target's part if it is the first of these by the second, and gives what it was.
pub(super) fn swap<T: Element>(
    (notified, access): (&Notified, Access<'_>),
    expected_and_new: [T; 2],
) -> Result<T> {
    let mut found = [T::default()];
    notified.swap(access, bytes_of(&expected_and_new), bytes_of_mut(&mut found))?;
    Ok(found[0])
}

#[inline]
fn check_tag(what: &'static str, tag: u32) -> Result<()> {
    let largest = Window::LARGEST_TAG;
    if tag <= largest { Ok(()) } else { Err(Error::WrongTag { what, tag, largest }) }
}

#[cold]
fn not_notified(call: &'static str) -> Error {
    let reason = "the window is for active target epochs; make it by `Window::over` for notified access";
    Error::OutOfOrder { call, reason: reason.into() }
}

#[cold]
fn out_of_bounds<T>(what: &'static str, offset: usize, elements: usize, part_elements: usize) -> Error {
    let bytes = |elements: usize| elements.saturating_mul(size_of::<T>());
    let end = bytes(offset.saturating_add(elements));
    Error::OutOfBounds { what, start: bytes(offset), end, region_bytes: bytes(part_elements) }
}
