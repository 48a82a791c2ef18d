//! Parts of buffers, for operations that outlive the call that begins them.

use super::accelerator::Accelerator;
use super::buffer::Buffer;
use super::stream::Stream;
use super::uses::{BufferUses, Held, Uses};
use crate::element::{Element, ElementType};
use crate::error::{Error, Result};
use crate::fabric::{Place, Region};
use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

/// Consecutive elements of a [`Buffer`], in the order in which they lie in memory. Keeps the memory alive.
///
/// While an operation has begun that writes a section, nothing else of this rank may read or write it, and
/// while one has begun that reads it nothing may write it: views, kernels and operations that would are
/// refused with [`Error::InUse`]. What is on the stream already, such as a kernel that writes it, is waited for instead, by
/// whatever does not go on the stream itself. From within an operation that its stream runs inline, none begins on it
/// ([`Error::OutOfOrder`]). Where the operation is one of a window's epoch on a stream, kernels and replays of that stream
/// may use its section until the epoch is completed.
///
/// Tables of moves ([`Stream::enqueue_move`]) and exchanges, those of `StreamHalo` too, are in none of this: nothing keeps
/// track of what they pack and fill. Whoever begins an operation on a section of that synchronises the stream first, and waits
/// for the operation before the next one is enqueued.
#[derive(Debug, Clone)]
pub struct Section {
    place: Place,
    elements: usize,
    element: ElementType,
    access: Rc<Access>,
}

/// What is done with a part of a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Intent {
    Read,
    Write,
}

impl Intent {
    /// Whether the two cannot be at the same time.
    pub(super) fn meets(self, bytes: &Range<usize>, other: Intent, of_other: &Range<usize>) -> bool {
        (self == Intent::Write || other == Intent::Write) && have_common(bytes, of_other)
    }
}

/// Whether a byte is in both: none is in an empty range, wherever that is.
fn have_common(one: &Range<usize>, other: &Range<usize>) -> bool {
    one.start.max(other.start) < one.end.min(other.end)
}

/// Which bytes of a buffer operations that have begun still read or write.
#[derive(Debug)]
pub(crate) struct Access {
    next: Cell<u64>,
    stream: Stream,
    /// Where the buffer begins.
    address: usize,
    uses: Arc<BufferUses>,
    /// What else is on the stream, and holds nothing any more.
    left: RefCell<Uses>,
}

/// What the host looks at of a buffer.
#[derive(Debug)]
pub(super) struct View {
    /// The buffer, by where it begins, and which of its holds it is.
    pub(super) of: usize,
    number: u64,
    pub(super) addresses: Range<usize>,
    pub(super) intent: Intent,
}

/// Keeps others from a section until it is dropped.
#[derive(Debug)]
pub(crate) struct Hold {
    access: Rc<Access>,
    number: u64,
    bytes: Range<usize>,
    intent: Intent,
    is_view: bool,
}

impl Access {
    /// Of a buffer of that stream, which nothing uses yet.
    pub(super) fn new(stream: &Stream, memory: &Region) -> Self {
        Self {
            next: Cell::default(),
            stream: stream.clone(),
            address: memory.address() as usize,
            uses: Arc::default(),
            left: RefCell::default(),
        }
    }

    /// What is done with it now, which kernels look at and add to.
    pub(super) fn uses(&self) -> &Arc<BufferUses> {
        &self.uses
    }

    /// Notes that what is on the stream does that with those bytes, and holds nothing.
    pub(super) fn leave(&self, bytes: Range<usize>, intent: Intent) {
        if self.stream.status().is_captured() {
            self.stream.note_use(&self.uses, bytes, intent);
        } else if let Some((next, passed)) = self.stream.positions() {
            self.left.borrow_mut().add(bytes, intent, next - 1, passed);
        }
    }

    /// Blocks until the stream has come past what those bytes cannot be used so beside.
    fn wait_for_stream(&self, bytes: &Range<usize>, intent: Intent) -> Result<()> {
        let Some((_, passed)) = self.stream.positions() else { return Ok(()) };
        let last = self.uses.last_against(bytes, intent, passed);
        match last.max(self.left.borrow().last_against(bytes, intent)) {
            last if last > passed => self.stream.come_past(last),
            _ => Ok(()),
        }
    }

    /// Whether those bytes may be used so now, by `what`.
    pub(crate) fn check(&self, bytes: &Range<usize>, intent: Intent, what: &'static str) -> Result<()> {
        self.stream.refuse_within_replay(what)?;
        self.uses.check(bytes, intent, what, |_| true)
    }

    /// Whether a kernel that goes on the stream next may use those bytes so, for `what`.
    pub(super) fn check_for_kernel(
        &self,
        bytes: &Range<usize>,
        intent: Intent,
        what: &'static str,
    ) -> Result<()> {
        self.uses.check(bytes, intent, what, |held| !held.is_ahead)
    }

    /// Whether those bytes may be used so, as far as only views of the host are concerned.
    fn check_views(&self, bytes: &Range<usize>, intent: Intent, what: &'static str) -> Result<()> {
        self.stream.refuse_within_operation(what)?;
        self.uses.check(bytes, intent, what, |held| held.is_view)
    }

    /// Keeps others from what the host is lent.
    pub(super) fn lend(self: &Rc<Self>, bytes: Range<usize>, intent: Intent) -> Result<Hold> {
        let by = "a view of an array";
        self.check(&bytes, intent, by)?;
        Ok(self.keep(Held { number: self.next.get(), bytes, intent, by, is_view: true, is_ahead: false }))
    }

    fn keep(self: &Rc<Self>, held: Held) -> Hold {
        let Held { number, intent, is_view, .. } = held;
        let bytes = held.bytes.clone();
        self.next.set(number + 1);
        if is_view {
            let addresses = self.address + bytes.start..self.address + bytes.end;
            let view = View { of: self.address, number, addresses, intent };
            self.stream.views().borrow_mut().push(view);
        }
        self.uses.hold(held);
        Hold { access: self.clone(), number, bytes, intent, is_view }
    }
}

impl Hold {
    /// Leaves the part to what is on the stream, which ends the operation.
    pub(crate) fn leave(self) {
        self.access.leave(self.bytes.clone(), self.intent);
    }

    /// Keeps others from the part as long as there is the buffer. The stream may go.
    pub(crate) fn keep(self) {
        self.access.uses.keep(self.number);
    }

    /// Lets kernels of the stream use the part, since the operation goes on it behind them.
    pub(crate) fn let_kernels(&self) {
        self.access.uses.let_kernels(self.number);
    }

    /// For an operation that begins outside of the stream after all: blocks as [`Section::hold`] does.
    ///
    /// # Errors
    /// The stream's.
    pub(crate) fn wait_for_stream(&self) -> Result<()> {
        self.access.wait_for_stream(&self.bytes, self.intent)
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.access.uses.release(self.number);
        if self.is_view {
            let (of, number) = (self.access.address, self.number);
            self.access.stream.views().borrow_mut().retain(|view| (view.of, view.number) != (of, number));
        }
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
        Ok(Section { place, elements, element: T::TYPE, access: self.access().clone() })
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
        self.stream().accelerator()
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
        &self.access.stream
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
        self.place.region().is_same(other.place.region()) && have_common(&self.range(), &other.range())
    }

    /// That the host does not look at some of its bytes in a way that forbids `what`, which the host does. Blocks as
    /// [`Section::hold`] does.
    ///
    /// # Errors
    /// [`Error::InUse`]; the stream's.
    pub(crate) fn check_views(&self, bytes: Range<usize>, intent: Intent, what: &'static str) -> Result<()> {
        let start = self.place.offset();
        let bytes = start.saturating_add(bytes.start)..start.saturating_add(bytes.end);
        self.access.check_views(&bytes, intent, what)?;
        self.access.wait_for_stream(&bytes, intent)
    }

    /// Keeps others from it for an operation that begins outside of its stream. Blocks until what is on the stream, and
    /// uses it in a way that forbids the operation, has run.
    ///
    /// # Errors
    /// [`Error::InUse`] if another operation uses a part of it already; the stream's, if it has been waited for.
    pub(crate) fn hold(&self, intent: Intent, by: &'static str) -> Result<Hold> {
        let hold = self.hold_in_order(intent, by)?;
        hold.wait_for_stream()?;
        Ok(hold)
    }

    /// As [`Section::hold`], for an operation that goes on the stream, behind what is there. Does not block.
    ///
    /// # Errors
    /// [`Error::InUse`], as there.
    pub(crate) fn hold_in_order(&self, intent: Intent, by: &'static str) -> Result<Hold> {
        self.hold_if(intent, by, |_| true)
    }

    /// Notes that what is on its stream does that with it, and holds nothing.
    pub(crate) fn leave(&self, intent: Intent) {
        self.access.leave(self.range(), intent);
    }

    /// As [`Section::hold_in_order`], for an operation that may share it with whoever has `other`.
    ///
    /// # Errors
    /// As there, for any but that one.
    pub(crate) fn hold_beside(&self, other: &Hold, intent: Intent, by: &'static str) -> Result<Hold> {
        let is_of_it = Rc::ptr_eq(&self.access, &other.access);
        self.hold_if(intent, by, |held| !is_of_it || held.number != other.number)
    }

    /// Its bytes in the buffer.
    fn range(&self) -> Range<usize> {
        self.place.offset()..self.place.offset() + self.bytes()
    }

    fn hold_if(&self, intent: Intent, by: &'static str, counts: impl Fn(&Held) -> bool) -> Result<Hold> {
        let bytes = self.range();
        self.access.stream.refuse_within_operation(by)?;
        self.access.uses.check(&bytes, intent, by, counts)?;
        let number = self.access.next.get();
        Ok(self.access.keep(Held { number, bytes, intent, by, is_view: false, is_ahead: false }))
    }
}

/// Of a section that something may hold for ever: whether it can be read, and whether its stream is there once all others
/// have let go of it.
#[cfg(test)]
pub(crate) fn left_of<T: Element>(stream: Stream, buffer: Buffer<T>, section: Section) -> (Result<()>, bool) {
    let lent = section.hold_in_order(Intent::Read, "a send").map(drop);
    let of_stream = Rc::downgrade(stream.views());
    drop((section, buffer, stream));
    (lent, of_stream.upgrade().is_some())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::{Buffer, Device, Extents, StreamKind, StreamOptions, Ways};
    use crate::world::World;

    #[test]
    fn a_section_without_elements_is_in_nobodys_way() {
        let world = World::alone().expect("a world of one rank");
        let stream = Device::host().stream(&world).expect("a stream");
        let line = Extents { points: [1, 1, 8], components: 1 };
        let buffer = Buffer::<f64>::zeros(&world, &stream, line).expect("memory");
        let [some, empty] = [2..6, 4..4].map(|range| buffer.section(range).expect("it is in the buffer"));
        for (first, second) in [(&some, &empty), (&empty, &some)] {
            assert!(!first.meets(second));
            let _first = first.hold(Intent::Write, "a receive").expect("nobody has it");
            assert!(second.hold(Intent::Write, "a receive").is_ok(), "they have no element in common");
        }
        let _some = some.hold(Intent::Write, "a receive").expect("it was given back");
        let ends = buffer.section(5..7).expect("it is in the buffer");
        assert!(ends.meets(&some) && ends.hold(Intent::Read, "a send").is_err());
    }

    #[test]
    fn what_is_kept_for_ever_keeps_no_stream() {
        let world = World::alone().expect("a world of one rank");
        let options = StreamOptions { kind: StreamKind::Threaded, ..StreamOptions::default() };
        let stream = Stream::open(&world, options, None, Ways::default()).expect("a stream");
        let line = Extents { points: [1, 1, 8], components: 1 };
        let buffer = Buffer::<u8>::zeros(&world, &stream, line).expect("memory");
        let section = buffer.section(2..4).expect("it is in the buffer");
        section.hold_in_order(Intent::Write, "a receive").expect("nobody has it").keep();
        let left = left_of(stream, buffer, section);
        assert!(matches!(left, (Err(Error::InUse { by: "a receive", .. }), false)), "{left:?}");
    }
}
