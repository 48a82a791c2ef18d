//! Blocking messages and collective calls on sections, wherever they live.
//!
//! A message is one of `isend` and `irecv` that is waited for. Collective calls are those on slices: what a rank has to
//! give is copied to the host first, and what it gets to where the section lives afterwards, and nothing else is
//! (2023 paper on Intel GPUs, section III-D).

use super::Communicator;
use super::engine::Engine;
use super::ledger::StagedStep;
use super::staging::{Staging, StagingMemory};
use super::transit::Transit;
use crate::device::{CopyDirection, Hold, Intent, Section};
use crate::element::{Element, Op, with_type};
use crate::error::{Error, Result};
use crate::fabric::{bytes_of, bytes_of_mut};
use crate::source::{Source, Status, Tag};

impl Communicator {
    /// How messages of sections on a device are staged from here on; what has begun stays as it is. A new communicator
    /// has what its world says: [`crate::World::set_staging`].
    ///
    /// # Errors
    /// [`Error::WrongStaging`].
    pub fn set_staging(&self, staging: Staging) -> Result<()> {
        staging.check()?;
        self.lock().core.staging = staging;
        Ok(())
    }

    /// How messages of sections on a device are staged.
    pub fn staging(&self) -> Staging {
        self.lock().core.staging
    }

    /// In which memory messages from that rank to a device land here. Over `shm` that is always
    /// [`StagingMemory::Pageable`], as two processes share it and no device has pinned it.
    ///
    /// # Errors
    /// [`Error::WrongRank`].
    pub fn landing_memory(&self, source: usize) -> Result<StagingMemory> {
        self.check_rank("Communicator::landing_memory", source)?;
        let fabric = self.world().fabric();
        let is_shared = source != self.rank() && fabric.is_mapped(source) && !fabric.reaches_devices();
        Ok(if is_shared { StagingMemory::Pageable } else { self.staging().memory })
    }

    /// Records the steps of staged messages from here on, at most so many: see [`StagedStep`]. An earlier record is
    /// lost.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub fn record_staging(&self, steps: usize) -> Result<()> {
        self.lock().core.ledger.begin_record(steps)
    }

    /// Ends the record and gives its steps; none if nothing was being recorded.
    pub fn take_staging_record(&self) -> Vec<StagedStep> {
        self.lock().core.ledger.take()
    }

    /// Sends a section. Blocks until it may be written again.
    ///
    /// ```
    /// use streamhalo_comm::device::{Buffer, Device, Extents};
    /// use streamhalo_comm::{Communicator, Error, World, WorldOptions};
    ///
    /// let ranks = World::threads(2, WorldOptions::default(), |world| {
    ///     // Of a GPU as well: `Device::cuda("0")`.
    ///     let stream = Device::host().stream(&world)?;
    ///     let communicator = Communicator::new(&world)?;
    ///     let line = Extents { points: [1, 1, 4], components: 1 };
    ///     let mut cells = Buffer::<f64>::zeros(&world, &stream, line)?;
    ///     if world.rank() == 0 {
    ///         cells.view_mut(line.whole())?.fill(2.5);
    ///         communicator.send_section(&cells.section(0..2)?, 1, 7)?;
    ///     } else {
    ///         let status = communicator.recv_section(&cells.section(1..4)?, 0, 7)?;
    ///         assert_eq!(status.bytes, 2 * size_of::<f64>());
    ///     }
    ///     cells.copy_out(line.whole())
    /// })?;
    /// assert_eq!(ranks[1], Ok(vec![0.0, 2.5, 2.5, 0.0]));
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Communicator::isend`] and [`crate::Request::wait`].
    pub fn send_section(&self, section: &Section, destination: usize, tag: u32) -> Result<()> {
        self.isend(section, destination, tag)?.wait().map(|_| ())
    }

    /// Receives a message, of at most as many elements, into a section. Blocks until it is where the section lives.
    /// As in the example of [`Communicator::send_section`].
    ///
    /// # Errors
    /// As [`Communicator::irecv`] and [`crate::Request::wait`].
    pub fn recv_section(
        &self,
        section: &Section,
        source: impl Into<Source>,
        tag: impl Into<Tag>,
    ) -> Result<Status> {
        self.irecv(section, source, tag)?.wait()
    }

    /// Sends a section and receives into another one, in no order. Blocks.
    ///
    /// ```
    /// use streamhalo_comm::device::{Buffer, Device, Extents};
    /// use streamhalo_comm::{Communicator, Error, World, WorldOptions};
    ///
    /// let ranks = World::threads(2, WorldOptions::default(), |world| {
    ///     let stream = Device::host().stream(&world)?;
    ///     let line = Extents { points: [1, 1, 2], components: 1 };
    ///     let mut cells = Buffer::<i32>::zeros(&world, &stream, line)?;
    ///     cells.view_mut(line.whole())?.fill(world.rank() as i32);
    ///     let (own, ghost, peer) = (cells.section(0..1)?, cells.section(1..2)?, 1 - world.rank());
    ///     let status = Communicator::new(&world)?.sendrecv_sections((&own, peer, 7), &ghost, peer, 7)?;
    ///     assert_eq!(status.source, peer);
    ///     cells.copy_out(line.whole())
    /// })?;
    /// assert_eq!(ranks, [Ok(vec![0, 1]), Ok(vec![1, 0])]);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Communicator::send_section`] and [`Communicator::recv_section`].
    pub fn sendrecv_sections(
        &self,
        (sent, destination, send_tag): (&Section, usize, u32),
        received: &Section,
        source: impl Into<Source>,
        tag: impl Into<Tag>,
    ) -> Result<Status> {
        let mut receive = self.irecv(received, source, tag)?;
        self.send_section(sent, destination, send_tag)?;
        receive.wait()
    }

    /// As [`Communicator::broadcast`], of a section, and as in the example of [`Communicator::allreduce_section`].
    /// Collective; blocks.
    ///
    /// # Errors
    /// As [`Communicator::broadcast`]; [`Error::InUse`], with which all ranks fail; what the
    /// section's device says.
    pub fn broadcast_section(&self, section: &Section, root: usize) -> Result<()> {
        const CALL: &str = "broadcast";
        self.or_fail(CALL, self.check_rank("Communicator::broadcast_section", root))?;
        let is_root = self.rank() == root;
        let intent = if is_root { Intent::Read } else { Intent::Write };
        let _hold = self.or_fail(CALL, self.hold(section, intent, CALL))?;
        with_type!(section.element_type(), T => {
            let mut elements = self.bring::<T>(CALL, section, is_root)?;
            self.broadcast(&mut elements, root)?;
            if is_root { Ok(()) } else { self.put_back(CALL, section, &elements) }
        })
    }

    /// As [`Communicator::reduce`], of a section, and as in the example of [`Communicator::allreduce_section`].
    /// Collective; blocks.
    ///
    /// # Errors
    /// As [`Communicator::reduce`]; [`Error::InUse`], with which all ranks fail; what the
    /// section's device says.
    pub fn reduce_section(&self, section: &Section, op: Op, root: usize) -> Result<()> {
        const CALL: &str = "reduce";
        self.or_fail(CALL, self.check_rank("Communicator::reduce_section", root))?;
        let is_root = self.rank() == root;
        let intent = if is_root { Intent::Write } else { Intent::Read };
        let _hold = self.or_fail(CALL, self.hold(section, intent, CALL))?;
        with_type!(section.element_type(), T => {
            let mut elements = self.bring::<T>(CALL, section, true)?;
            self.reduce(&mut elements, op, root)?;
            if is_root { self.put_back(CALL, section, &elements) } else { Ok(()) }
        })
    }

    /// As [`Communicator::allreduce`], of a section. Collective; blocks.
    ///
    /// # Errors
    /// As [`Communicator::allreduce`]; [`Error::InUse`], with which all ranks fail; what the
    /// section's device says.
    ///
    /// ```
    /// use streamhalo_comm::device::{Buffer, Device, Extents};
    /// use streamhalo_comm::{Communicator, Error, Op, World, WorldOptions};
    ///
    /// let ranks = World::threads(3, WorldOptions::default(), |world| {
    ///     // Of a GPU as well: `Device::cuda("0")`.
    ///     let stream = Device::host().stream(&world)?;
    ///     let line = Extents { points: [1, 1, 2], components: 1 };
    ///     let mut cells = Buffer::<i64>::zeros(&world, &stream, line)?;
    ///     cells.view_mut(line.whole())?.fill(1 + world.rank() as i64);
    ///     Communicator::new(&world)?.allreduce_section(&cells.section(0..2)?, Op::Sum)?;
    ///     cells.copy_out(line.whole())
    /// })?;
    /// assert!(ranks.into_iter().all(|rank| rank == Ok(vec![6, 6])));
    /// # Ok::<(), Error>(())
    /// ```
    pub fn allreduce_section(&self, section: &Section, op: Op) -> Result<()> {
        const CALL: &str = "allreduce";
        let _hold = self.or_fail(CALL, self.hold(section, Intent::Write, CALL))?;
        with_type!(section.element_type(), T => {
            let mut elements = self.bring::<T>(CALL, section, true)?;
            self.allreduce(&mut elements, op)?;
            self.put_back(CALL, section, &elements)
        })
    }

    /// As [`Communicator::allgather`], from a section into another one. Collective; blocks.
    ///
    /// ```
    /// use streamhalo_comm::device::{Buffer, Device, Extents};
    /// use streamhalo_comm::{Communicator, Error, World, WorldOptions};
    ///
    /// let ranks = World::threads(2, WorldOptions::default(), |world| {
    ///     let stream = Device::host().stream(&world)?;
    ///     let line = Extents { points: [1, 1, 3], components: 1 };
    ///     let mut cells = Buffer::<i64>::zeros(&world, &stream, line)?;
    ///     cells.view_mut(line.whole())?.fill(5 + world.rank() as i64);
    ///     let (own, gathered) = (cells.section(0..1)?, cells.section(1..3)?);
    ///     Communicator::new(&world)?.allgather_section(&own, &gathered)?;
    ///     cells.copy_out(line.whole())
    /// })?;
    /// assert_eq!(ranks, [Ok(vec![5, 5, 6]), Ok(vec![6, 5, 6])]);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Communicator::allgather`]; [`Error::ElementMismatch`]; [`Error::InUse`], also if they overlap; what the
    /// device of a section says.
    pub fn allgather_section(&self, own: &Section, gathered: &Section) -> Result<()> {
        const CALL: &str = "allgather";
        let _holds = self.hold_both((CALL, "the result of an allgather"), own, gathered)?;
        with_type!(own.element_type(), T => {
            let own = self.bring::<T>(CALL, own, true)?;
            let mut elements = self.bring::<T>(CALL, gathered, false)?;
            self.allgather(&own, &mut elements)?;
            self.put_back(CALL, gathered, &elements)
        })
    }

    /// As [`Communicator::neighbour_alltoall`], from a section into another one, which are given as in the example of
    /// [`Communicator::allgather_section`]. Collective over the neighbours; blocks.
    ///
    /// # Errors
    /// As [`Communicator::neighbour_alltoall`]; [`Error::ElementMismatch`]; [`Error::InUse`], also if the sections
    /// overlap; what the device of a section says.
    pub fn neighbour_alltoall_section(
        &self,
        destinations: &[usize],
        sent: &Section,
        sources: &[usize],
        received: &Section,
    ) -> Result<()> {
        const CALL: &str = "neighbour_alltoall";
        let _holds = self.hold_both((CALL, "the result of a neighbour_alltoall"), sent, received)?;
        with_type!(sent.element_type(), T => {
            let sent = self.bring::<T>(CALL, sent, true)?;
            let mut elements = self.bring::<T>(CALL, received, false)?;
            self.neighbour_alltoall(destinations, &sent, sources, &mut elements)?;
            self.put_back(CALL, received, &elements)
        })
    }

    /// Room for the elements of a section on the host, with what is in it if `filled`.
    fn bring<T: Element>(&self, call: &'static str, section: &Section, filled: bool) -> Result<Vec<T>> {
        let mut elements = vec![T::default(); section.elements()];
        if filled {
            self.or_fail(call, self.copy_down(call, section, bytes_of_mut(&mut elements)))?;
        }
        Ok(elements)
    }

    fn put_back<T: Element>(&self, call: &'static str, section: &Section, elements: &[T]) -> Result<()> {
        self.or_fail(call, self.copy_up(call, section, bytes_of(elements)))
    }

    /// Holds what a call reads and what it writes, which have elements of one type.
    fn hold_both(
        &self,
        (call, result): (&'static str, &'static str),
        read: &Section,
        written: &Section,
    ) -> Result<(Hold, Hold)> {
        let hold_both = || {
            let (asked, found) = (read.element_type(), written.element_type());
            if asked != found {
                return Err(Error::ElementMismatch { what: result, asked, found });
            }
            Ok((self.hold(read, Intent::Read, call)?, self.hold(written, Intent::Write, call)?))
        };
        self.or_fail(call, hold_both())
    }

    /// Copies a section to bytes of this rank. Blocks, and makes progress meanwhile.
    fn copy_down(&self, call: &'static str, section: &Section, bytes: &mut [u8]) -> Result<()> {
        match self.transit(call, section, CopyDirection::Down, bytes)? {
            None => section.place().read(bytes),
            Some(transit) => {
                transit.host().read(bytes)?;
                self.lock().core.end_transit(transit, true);
                Ok(())
            }
        }
    }

    /// The opposite.
    fn copy_up(&self, call: &'static str, section: &Section, bytes: &[u8]) -> Result<()> {
        match self.transit(call, section, CopyDirection::Up, bytes)? {
            None => section.place().write(bytes),
            Some(transit) => {
                self.lock().core.end_transit(transit, true);
                Ok(())
            }
        }
    }

    /// Copies a section to where the host can read it, or bytes from there; `None` if it is on the host.
    fn transit(
        &self,
        call: &'static str,
        section: &Section,
        direction: CopyDirection,
        bytes: &[u8],
    ) -> Result<Option<Transit>> {
        let Some(accelerator) = section.accelerator().filter(|_| !bytes.is_empty()) else { return Ok(None) };
        let transit = self.lock().core.begin_transit(accelerator, section.place(), direction, bytes)?;
        let mut passed = |engine: &mut Engine| engine.core.has_passed(&transit);
        let what = || format!("a copy of its device for {call}");
        let late = |waited| self.host().context().late(None, what(), waited);
        match self.host().wait_until(&mut passed, &late) {
            Ok(()) => Ok(Some(transit)),
            Err(error) => {
                self.lock().core.end_transit(transit, false);
                Err(error)
            }
        }
    }
}
