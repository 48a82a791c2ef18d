//! Parts of buffers, for operations that outlive the call that begins them.

use super::accelerator::Accelerator;
use super::buffer::Buffer;
use super::stream::Stream;
use crate::element::{Element, ElementType};
use crate::error::{Error, Result};
use crate::fabric::Place;
use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

/// Consecutive elements of a [`Buffer`], in the order in which they lie in memory. Keeps the memory alive.
///
/// While an operation has begun that writes a section, nothing else of this rank may read or write it, and
/// while one has begun that reads it nothing may write it: views, kernels and operations that would are
/// refused with [`Error::InUse`].
#[derive(Debug, Clone)]
pub struct Section {
    place: Place,
    elements: usize,
    element: ElementType,
    stream: Stream,
    access: Rc<Access>,
}

/// What is done with a part of a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Intent {
    Read,
    Write,
}

/// Which bytes of a buffer operations that have begun still read or write.
#[derive(Debug)]
pub(crate) struct Access {
    holds: RefCell<Vec<Held>>,
    next: Cell<u64>,
    /// How many views there are of the arrays of its stream.
    views: Rc<Cell<usize>>,
}

#[derive(Debug)]
struct Held {
    number: u64,
    bytes: Range<usize>,
    intent: Intent,
    by: &'static str,
    /// Whether the host looks at them, rather than that an operation has begun.
    is_view: bool,
}

impl Held {
    fn meets(&self, bytes: &Range<usize>, intent: Intent) -> bool {
        (self.intent == Intent::Write || intent == Intent::Write)
            && self.bytes.start < bytes.end
            && bytes.start < self.bytes.end
    }
}

/// Keeps others from a section until it is dropped.
#[derive(Debug)]
pub(crate) struct Hold {
    access: Rc<Access>,
    number: u64,
    is_view: bool,
}

impl Access {
    /// Of a buffer of that stream, which nothing uses yet.
    pub(super) fn new(stream: &Stream) -> Self {
        Self { holds: RefCell::default(), next: Cell::default(), views: stream.views().clone() }
    }

    /// Whether those bytes may be used so now, by `what`.
    pub(crate) fn check(&self, bytes: &Range<usize>, intent: Intent, what: &'static str) -> Result<()> {
        self.check_those(bytes, intent, what, |_| true)
    }

    /// The same, of what the host looks at alone.
    fn check_views(&self, bytes: &Range<usize>, intent: Intent, what: &'static str) -> Result<()> {
        self.check_those(bytes, intent, what, |held| held.is_view)
    }

    fn check_those(
        &self,
        bytes: &Range<usize>,
        intent: Intent,
        what: &'static str,
        which: impl Fn(&Held) -> bool,
    ) -> Result<()> {
        let holds = self.holds.borrow();
        match holds.iter().find(|held| which(held) && held.meets(bytes, intent)) {
            None => Ok(()),
            Some(held) => Err(Error::InUse { what, start: bytes.start, end: bytes.end, by: held.by }),
        }
    }

    /// Keeps others from what the host is lent.
    pub(super) fn lend(self: &Rc<Self>, bytes: Range<usize>, intent: Intent) -> Result<Hold> {
        let by = "a view of an array";
        self.check(&bytes, intent, by)?;
        Ok(self.keep(Held { number: self.next.get(), bytes, intent, by, is_view: true }))
    }

    fn keep(self: &Rc<Self>, held: Held) -> Hold {
        let Held { number, is_view, .. } = held;
        self.next.set(number + 1);
        self.views.set(self.views.get() + usize::from(is_view));
        self.holds.borrow_mut().push(held);
        Hold { access: self.clone(), number, is_view }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.access.holds.borrow_mut().retain(|held| held.number != self.number);
        let views = &self.access.views;
        views.set(views.get() - usize::from(self.is_view));
    }
}

impl<T: Element> Buffer<T> {
    /// The elements of `range`, counted in the order in which they lie in memory: axis 0 is the slowest, and
    /// the components of a point lie next to each other. What lies between the rows of [`super::Pitched`] counts too.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`] if they are not all in the buffer.
    pub fn section(&self, range: Range<usize>) -> Result<Section> {
        let (start, elements) = (range.start.saturating_mul(size_of::<T>()), range.len());
        let bytes = elements.saturating_mul(size_of::<T>());
        let place = self.region().place(start, bytes, "a section of a buffer")?;
        let (stream, access) = (self.stream().clone(), self.access().clone());
        Ok(Section { place, elements, element: T::TYPE, stream, access })
    }
}

impl Section {
    /// How many elements it has.
    pub fn elements(&self) -> usize {
        self.elements
    }

    /// Their type.
    pub fn element_type(&self) -> ElementType {
        self.element
    }

    /// Their size in bytes.
    pub fn bytes(&self) -> usize {
        self.elements * self.element.bytes()
    }

    /// Where it begins.
    pub fn place(&self) -> &Place {
        &self.place
    }

    /// The device that it lives on; `None`: the host.
    pub(crate) fn accelerator(&self) -> Option<&Arc<dyn Accelerator>> {
        self.stream.accelerator()
    }

    /// That the host addresses it, for what does not stage it.
    ///
    /// # Errors
    /// [`Error::NotOnHost`].
    pub(crate) fn check_on_host(&self, what: &'static str) -> Result<()> {
        match self.accelerator() {
            None => Ok(()),
            Some(accelerator) => Err(Error::NotOnHost { what, device: accelerator.name().into() }),
        }
    }

    /// The stream that works on its buffer.
    pub(crate) fn stream(&self) -> &Stream {
        &self.stream
    }

    /// Its first elements, which it has.
    pub(super) fn first(&self, elements: usize) -> Self {
        Self { elements, ..self.clone() }
    }

    /// Whether both are the same elements of the same memory.
    pub(crate) fn is_same(&self, other: &Section) -> bool {
        (self.place.offset(), self.bytes()) == (other.place.offset(), other.bytes())
            && self.element == other.element
            && self.place.region().is_same(other.place.region())
    }

    /// Whether all of it is a part of `other`.
    pub(crate) fn is_within(&self, other: &Section) -> bool {
        let (start, first) = (self.place.offset(), other.place.offset());
        self.place.region().is_same(other.place.region())
            && start >= first
            && start + self.bytes() <= first + other.bytes()
    }

    /// Whether they have elements in common.
    pub(crate) fn meets(&self, other: &Section) -> bool {
        let (start, first) = (self.place.offset(), other.place.offset());
        self.place.region().is_same(other.place.region())
            && start < first + other.bytes()
            && first < start + self.bytes()
    }

    /// That the host does not look at some of its bytes in a way that forbids `what`.
    ///
    /// # Errors
    /// [`Error::InUse`].
    pub(crate) fn check_views(&self, bytes: Range<usize>, intent: Intent, what: &'static str) -> Result<()> {
        let start = self.place.offset();
        let bytes = start.saturating_add(bytes.start)..start.saturating_add(bytes.end);
        self.access.check_views(&bytes, intent, what)
    }

    /// Keeps others from it for an operation that begins.
    ///
    /// # Errors
    /// [`Error::InUse`] if another operation uses a part of it already.
    pub(crate) fn hold(&self, intent: Intent, by: &'static str) -> Result<Hold> {
        self.hold_if(intent, by, |_| true)
    }

    /// The same, for an operation that may share it with whoever has `other`.
    ///
    /// # Errors
    /// As [`Section::hold`], for any but that one.
    pub(crate) fn hold_beside(&self, other: &Hold, intent: Intent, by: &'static str) -> Result<Hold> {
        let is_of_it = Rc::ptr_eq(&self.access, &other.access);
        self.hold_if(intent, by, |held| !is_of_it || held.number != other.number)
    }

    fn hold_if(&self, intent: Intent, by: &'static str, counts: impl Fn(&Held) -> bool) -> Result<Hold> {
        let start = self.place.offset();
        let bytes = start..start + self.bytes();
        self.access.check_those(&bytes, intent, by, counts)?;
        Ok(self.access.keep(Held { number: self.access.next.get(), bytes, intent, by, is_view: false }))
    }
}
