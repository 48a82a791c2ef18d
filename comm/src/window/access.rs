//! Access epochs: `MPI_Win_start`, and the operations that are recorded for it: `MPI_Put`, `MPI_Get` and
//! `MPI_Accumulate`.

use super::active::{Mode, out_of_order};
use super::epoch::{Kind, Recorded};
use super::{Group, Window};
use crate::device::{Intent, Section};
use crate::element::Op;
use crate::error::{Error, Result};

impl Window {
    /// Begins an access epoch to the parts of the targets of `group`. Does not block: whether they are exposed
    /// is waited for where the epoch is completed. `MPI_Win_start`.
    ///
    /// # Errors
    /// [`Error::OutOfOrder`] if an access epoch has begun already; [`Error::BadGroup`] if the group is of a larger
    /// world.
    pub fn start(&self, group: &Group, mode: Mode) -> Result<()> {
        self.check_group(group)?;
        let active = &mut *self.epochs("start")?;
        if active.access.is_some() {
            return Err(out_of_order("start", "an access epoch has begun already; complete it first"));
        }
        active.access = Some((group.clone(), mode));
        Ok(())
    }

    /// Puts a section into the part of `target`, from its element `offset` on, in this access epoch. Nothing may
    /// write the section until the epoch is completed, but that in an epoch of [`Mode::Stream`] kernels and replays of the
    /// section's stream may up to there (2023, section 4.4): what they have written is put. Does not block: it is recorded, and
    /// carried out where the epoch is completed, in no order with the epoch's other operations. Where puts overlap, what is
    /// there afterwards is undefined. A section on a device is copied to the host where the epoch is completed. `MPI_Put`.
    ///
    /// # Errors
    /// [`Error::OutOfOrder`] without an access epoch, [`Error::NotInGroup`], [`Error::OtherWorld`] if the section is of
    /// another world than the window, [`Error::ElementMismatch`], [`Error::OutOfBounds`] if the part of the target is too
    /// small, which counts bytes, and [`Error::InUse`]; [`Error::OutOfMemory`] for the copy of a section on a device.
    pub fn put(&self, section: &Section, target: usize, offset: usize) -> Result<()> {
        self.record("put", Kind::Put, section, target, offset)
    }

    /// Gets a section from the part of `target`, from its element `offset` on, in this access epoch; as
    /// [`Window::put`]. It is there once the epoch is completed; until then nothing may use the section, but that kernels
    /// may as there. `MPI_Get`.
    ///
    /// ```
    /// use streamhalo_comm::device::{Buffer, Device, Extents};
    /// use streamhalo_comm::window::{ActiveOptions, Group, Mode, Window};
    /// use streamhalo_comm::{Error, World, WorldOptions};
    ///
    /// // Rank 0 exposes its part to the others, which have none.
    /// let ranks = World::threads(3, WorldOptions::default(), |world| {
    ///     let stream = Device::host().stream(&world)?;
    ///     let row = |elements| Extents { points: [1, 1, elements], components: 1 };
    ///     let mut own = Buffer::<f32>::zeros(&world, &stream, row(6))?;
    ///     let elements = if world.rank() == 0 { 6 } else { 0 };
    ///     let window = Window::active(&world, &own.section(0..elements)?, ActiveOptions::default())?;
    ///     if world.rank() == 0 {
    ///         own.view_mut(row(6).whole())?.fill(2.5);
    ///         window.post(&Group::new(&world, &[1, 2])?)?;
    ///         window.wait()?;
    ///     } else {
    ///         window.start(&Group::new(&world, &[0])?, Mode::Host)?;
    ///         window.get(&own.section(1..4)?, 0, 3)?;
    ///         window.complete()?;
    ///     }
    ///     own.copy_out(row(6).whole())
    /// })?;
    /// assert_eq!(ranks[0], Ok(vec![2.5; 6]));
    /// assert_eq!(ranks[2], Ok(vec![0.0, 2.5, 2.5, 2.5, 0.0, 0.0]));
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Window::put`].
    pub fn get(&self, section: &Section, target: usize, offset: usize) -> Result<()> {
        self.record("get", Kind::Get, section, target, offset)
    }

    /// Combines a section with the part of `target`, from its element `offset` on, in this access epoch; as
    /// [`Window::put`]. Each element is combined atomically, so that any number of origins may accumulate into it
    /// in the same epoch; those of one origin happen in their order. In which order origins come is open:
    /// sums of integers, minima and maxima do not depend on it, sums of floats do in their last bits.
    /// `MPI_Accumulate`.
    ///
    /// ```
    /// use streamhalo_comm::device::{Buffer, Device, Extents};
    /// use streamhalo_comm::window::{ActiveOptions, Group, Mode, Window};
    /// use streamhalo_comm::{Error, Op, World, WorldOptions};
    ///
    /// let ranks = World::threads(4, WorldOptions::default(), |world| {
    ///     let stream = Device::host().stream(&world)?;
    ///     let two = Extents { points: [1, 1, 2], components: 1 };
    ///     let mut own = Buffer::<i64>::zeros(&world, &stream, two)?;
    ///     own.view_mut(two.whole())?.fill(world.rank() as i64);
    ///     let part = Buffer::<i64>::zeros(&world, &stream, two)?;
    ///     let window = Window::active(&world, &part.section(0..2)?, ActiveOptions::default())?;
    ///     let all = Group::new(&world, &[0, 1, 2, 3])?;
    ///     window.post(&all)?;
    ///     window.start(&all, Mode::Host)?;
    ///     for target in 0..4 {
    ///         window.accumulate(&own.section(0..1)?, target, 0, Op::Sum)?;
    ///         window.accumulate(&own.section(1..2)?, target, 1, Op::Max)?;
    ///     }
    ///     window.complete()?;
    ///     window.wait()?;
    ///     part.copy_out(two.whole())
    /// })?;
    /// assert!(ranks.iter().all(|part| *part == Ok(vec![0 + 1 + 2 + 3, 3])));
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Window::put`].
    pub fn accumulate(&self, section: &Section, target: usize, offset: usize, op: Op) -> Result<()> {
        self.record("accumulate", Kind::Accumulate(op), section, target, offset)
    }

    fn record(
        &self,
        call: &'static str,
        kind: Kind,
        section: &Section,
        target: usize,
        offset: usize,
    ) -> Result<()> {
        let active = &mut *self.epochs(call)?;
        let Some((group, mode)) = &active.access else {
            return Err(out_of_order(call, "start an access epoch first"));
        };
        let is_on_stream = *mode == Mode::Stream;
        if !group.contains(target) {
            return Err(Error::NotInGroup { call, target, group: group.ranks().to_vec() });
        }
        section.stream().check_world(&self.inner().world, "an operation of a window")?;
        let (asked, found) = (section.element_type(), self.element_type());
        if asked != found {
            return Err(Error::ElementMismatch { what: "a window", asked, found });
        }
        let offset = offset.saturating_mul(found.bytes());
        let end = offset.saturating_add(section.bytes());
        let region_bytes = self.elements(target) * found.bytes();
        if end > region_bytes {
            return Err(Error::OutOfBounds { what: call, start: offset, end, region_bytes });
        }
        let purpose = match kind {
            Kind::Put => (Intent::Read, "a put"),
            Kind::Get => (Intent::Write, "a get"),
            Kind::Accumulate(_) => (Intent::Read, "an accumulate"),
        };
        let own = &self.inner().own;
        let (hold, is_exposed) = active.hold(own.section(), section, purpose)?;
        if is_on_stream {
            hold.let_kernels();
        }
        if section.bytes() > 0 {
            let (mirror, hold) = (active.mirror(own, section)?, Some(hold));
            active.operations.push(Recorded { kind, target, offset, mirror, is_exposed, hold });
        }
        Ok(())
    }
}
