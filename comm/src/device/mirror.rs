//! Sections as fabrics and peers reach them: what is on a device has a copy in the host's memory.

use super::moves::{Move, MoveTable};
use super::{Section, Stream};
use crate::error::Result;
use crate::fabric::Place;
use crate::world::World;
use std::sync::Arc;

/// A section, and where the host and peers find it: where it is, or, if it is on a device, in memory of the fabric.
///
/// Copies go on the stream of the section's buffer, in order with the kernels there. Those of a section on the host
/// are nothing.
#[derive(Debug, Clone)]
pub(crate) struct Mirror {
    section: Section,
    place: Place,
    copies: Option<Copies>,
}

/// Mirrors of sections that are used again and again.
#[derive(Debug, Default)]
pub(crate) struct Mirrors(Vec<Mirror>);

/// How many sections with a copy are remembered. More of them in turn are given a new one each time.
const REMEMBERED: usize = 64;

#[derive(Debug, Clone)]
struct Copies {
    down: Arc<MoveTable>,
    up: Arc<MoveTable>,
}

impl Mirror {
    /// Makes what a section needs. Not collective.
    ///
    /// # Errors
    /// [`crate::Error::OutOfMemory`] for the copy.
    pub(crate) fn new(world: &World, section: &Section) -> Result<Self> {
        if section.accelerator().is_none() {
            return Ok(Self { section: section.clone(), place: section.place().clone(), copies: None });
        }
        let memory = world.fabric().allocate(section.bytes().max(1))?;
        Self::at(section, memory.place(0, section.bytes(), "a copy of a section")?)
    }

    /// The mirror of the first elements, in so many bytes.
    ///
    /// # Errors
    /// [`crate::Error::OutOfBounds`] if there are not that many.
    pub(crate) fn first(self, bytes: usize) -> Result<Self> {
        if !self.is_copy() || bytes == self.section.bytes() {
            return Ok(self);
        }
        self.part(&self.section.first(bytes / self.section.element_type().bytes()))
    }

    /// The mirror of a section within this one, whose copy is a part of this one's.
    ///
    /// # Errors
    /// As [`Mirror::first`].
    pub(crate) fn part(&self, section: &Section) -> Result<Self> {
        let offset = section.place().offset() - self.section.place().offset();
        Self::at(section, self.place.advance(offset, section.bytes(), "a copy of a part of a section")?)
    }

    fn at(section: &Section, place: Place) -> Result<Self> {
        let copy = |source: &Place, destination: &Place| {
            let one = Move {
                element: section.element_type(),
                ..Move::of_bytes(source.clone(), destination.clone(), section.bytes())
            };
            MoveTable::new(&[vec![one]]).map(Arc::new)
        };
        let (down, up) = (copy(section.place(), &place)?, copy(&place, section.place())?);
        Ok(Self { section: section.clone(), place, copies: Some(Copies { down, up }) })
    }

    /// The section.
    pub(crate) fn section(&self) -> &Section {
        &self.section
    }

    /// Where the host and peers find it.
    pub(crate) fn place(&self) -> &Place {
        &self.place
    }

    /// Whether that is a copy.
    pub(crate) fn is_copy(&self) -> bool {
        self.copies.is_some()
    }

    fn stream(&self) -> &Stream {
        self.section.stream()
    }

    /// Enqueues the copy from the device. Does not block.
    pub(crate) fn enqueue_down(&self) {
        if let Some(Copies { down, .. }) = &self.copies {
            self.stream().put_move(down);
        }
    }

    /// Enqueues the copy to the device. Does not block.
    pub(crate) fn enqueue_up(&self) {
        if let Some(Copies { up, .. }) = &self.copies {
            self.stream().put_move(up);
        }
    }

    /// Brings it to the host. Blocks until its stream has come to that.
    ///
    /// # Errors
    /// As [`Stream::synchronize`].
    pub(crate) fn bring_down(&self) -> Result<()> {
        self.enqueue_down();
        self.settle()
    }

    /// Brings it to the device. Blocks as [`Mirror::bring_down`] does.
    ///
    /// # Errors
    /// As [`Stream::synchronize`].
    pub(crate) fn bring_up(&self) -> Result<()> {
        self.enqueue_up();
        self.settle()
    }

    /// Blocks until its stream has made the copies that are on it.
    ///
    /// # Errors
    /// As [`Stream::synchronize`].
    pub(crate) fn settle(&self) -> Result<()> {
        if self.is_copy() { self.stream().synchronize() } else { Ok(()) }
    }
}

impl Mirrors {
    /// The mirror of a section, made by `make` the first time that it has to be a copy.
    ///
    /// # Errors
    /// Those of `make`.
    pub(crate) fn of(&mut self, section: &Section, make: impl FnOnce() -> Result<Mirror>) -> Result<Mirror> {
        if let Some(known) = self.0.iter().find(|known| known.section.is_same(section)) {
            return Ok(known.clone());
        }
        let mirror = make()?;
        if mirror.is_copy() {
            if self.0.len() == REMEMBERED {
                self.0.remove(0);
            }
            self.0.push(mirror.clone());
        }
        Ok(mirror)
    }
}
