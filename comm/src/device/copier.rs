//! Copies between a device and the host that a program makes itself.

use super::copies::{Copies, CopyDirection};
use super::driver::MemoryKind;
use super::{Device, Intent, Section};
use crate::communicator::StagingMemory;
use crate::error::{Error, Result};
use crate::fabric::{Fabric, LocalFabric, Place, Region, bytes_of, bytes_of_mut};
use std::fmt;
use std::sync::Arc;

/// Copies sections of a device to the host and back, by calls that block. They make no progress on messages.
///
/// What is sent from a device needs none of it, as messages are staged: see [`crate::Staging`].
pub struct Copier {
    copies: Copies,
}

/// Memory of the host that a [`Copier`] copies to and from.
#[derive(Debug)]
pub struct HostMemory {
    place: Place,
    bytes: usize,
}

impl Copier {
    /// Queues for copies of a device.
    ///
    /// # Errors
    /// [`Error::DeviceUnavailable`] if it is the host, or has no more queues.
    pub fn new(device: &Device) -> Result<Self> {
        let accelerator = device.accelerator.as_ref().ok_or_else(|| Error::DeviceUnavailable {
            device: "host".into(),
            reason: "its memory is the host's already; name a device with a memory of its own".into(),
        })?;
        Ok(Self { copies: Copies::open(accelerator)? })
    }

    /// Zeroed memory of the host, which the device has pinned or not.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub fn host_memory(&self, bytes: usize, memory: StagingMemory) -> Result<HostMemory> {
        let region = match memory {
            StagingMemory::Pageable => LocalFabric::alone(0)?.allocate(bytes)?,
            StagingMemory::Pinned => {
                Region::private(Arc::new(self.copies.accelerator().allocate(bytes, MemoryKind::Pinned)?), 0)
            }
        };
        Ok(HostMemory { place: region.place(0, bytes, "memory for copies")?, bytes })
    }

    /// Copies a section of the device to the beginning of memory of the host. Blocks until it is there.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`] if it is too long; [`Error::InUse`]; [`Error::WrongDevice`] if the section is not on this
    /// device; what the device says.
    pub fn down(&mut self, from: &Section, to: &mut HostMemory) -> Result<()> {
        self.copy(CopyDirection::Down, from, &to.place, to.bytes)
    }

    /// Copies the beginning of memory of the host to a section of the device. Blocks until it is there.
    ///
    /// # Errors
    /// As [`Copier::down`].
    pub fn up(&mut self, from: &HostMemory, to: &Section) -> Result<()> {
        self.copy(CopyDirection::Up, to, &from.place, from.bytes)
    }

    /// Copies a section of the device to one on the host. Blocks until it is there.
    ///
    /// # Errors
    /// As [`Copier::down`], and [`Error::NotOnHost`] if the other section is not on the host.
    pub fn down_to(&mut self, from: &Section, to: &Section) -> Result<()> {
        to.check_on_host("the host's side of a copy")?;
        let _hold = to.hold(Intent::Write, "a copy")?;
        self.copy(CopyDirection::Down, from, to.place(), to.bytes())
    }

    /// Copies a section on the host to one of the device. Blocks until it is there.
    ///
    /// # Errors
    /// As [`Copier::down_to`].
    pub fn up_from(&mut self, from: &Section, to: &Section) -> Result<()> {
        from.check_on_host("the host's side of a copy")?;
        let _hold = from.hold(Intent::Read, "a copy")?;
        self.copy(CopyDirection::Up, to, from.place(), from.bytes())
    }

    /// Copies a section of the device to another one of it, so many times one behind the other: what the device can
    /// do with its own memory. Blocks until all have been made.
    ///
    /// # Errors
    /// As [`Copier::down`], of either section.
    pub fn within(&mut self, from: &Section, to: &Section, times: usize) -> Result<()> {
        self.check_here(from)?;
        self.check_here(to)?;
        let bytes = from.bytes();
        if bytes > to.bytes() {
            let what = "a copy within a device";
            return Err(Error::OutOfBounds { what, start: 0, end: bytes, region_bytes: to.bytes() });
        }
        let _read = from.hold(Intent::Read, "a copy")?;
        let _written = to.hold(Intent::Write, "a copy")?;
        if bytes > 0 {
            (0..times).try_for_each(|_| {
                self.copies.begin(CopyDirection::Down, from.place(), to.place(), bytes).map(|_| ())
            })?;
        }
        self.copies.finish(CopyDirection::Down)
    }

    fn check_here(&self, section: &Section) -> Result<()> {
        let is_here =
            |accelerator: &Arc<dyn super::Accelerator>| Arc::ptr_eq(accelerator, self.copies.accelerator());
        if section.accelerator().is_some_and(is_here) {
            return Ok(());
        }
        let device = self.copies.accelerator().name().into();
        Err(Error::WrongDevice { what: "the section of a copy", device })
    }

    fn copy(
        &mut self,
        direction: CopyDirection,
        section: &Section,
        host: &Place,
        host_bytes: usize,
    ) -> Result<()> {
        self.check_here(section)?;
        let bytes = section.bytes();
        if bytes > host_bytes {
            let what = "a copy between a device and the host";
            return Err(Error::OutOfBounds { what, start: 0, end: bytes, region_bytes: host_bytes });
        }
        let intent = if direction == CopyDirection::Down { Intent::Read } else { Intent::Write };
        let _hold = section.hold(intent, "a copy")?;
        if bytes == 0 {
            return Ok(());
        }
        self.copies.begin(direction, section.place(), host, bytes)?;
        self.copies.finish(direction)
    }
}

impl HostMemory {
    /// Size in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Copies its first elements out.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`] if it has not that many.
    pub fn read<T: crate::Element>(&self, elements: &mut [T]) -> Result<()> {
        self.place.read(bytes_of_mut(elements))
    }

    /// Copies elements to its beginning.
    ///
    /// # Errors
    /// As [`HostMemory::read`].
    pub fn write<T: crate::Element>(&mut self, elements: &[T]) -> Result<()> {
        self.place.write(bytes_of(elements))
    }
}

impl fmt::Debug for Copier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Copier({})", self.copies.accelerator().name())
    }
}
