//! Numbers of the host that go with what is on a stream.

use super::stream::Stream;
use std::cell::Cell;
use std::rc::{Rc, Weak};

/// A number that the host keeps of what it enqueues on a stream, such as which generation of a field is current. What is
/// captured may depend on it: a [capture](Stream::capture) sets it back, and a [replay](Stream::replay) is refused while it
/// is not what it was then. Clones are the same one.
#[derive(Debug, Clone)]
pub struct HostState(Rc<Inner>);

#[derive(Debug)]
struct Inner {
    what: &'static str,
    number: Cell<u32>,
}

impl HostState {
    /// Of `what` it is the number, for errors: "which generation of a field is current".
    pub fn new(what: &'static str, number: u32) -> Self {
        Self(Rc::new(Inner { what, number: Cell::new(number) }))
    }

    /// The number. If `stream` is being captured, the period depends on it. Does not block.
    #[inline]
    pub fn get(&self, stream: &Stream) -> u32 {
        stream.note_state(self);
        self.peek()
    }

    /// Sets the number; if `stream` is being captured, until the end of that. Does not block.
    #[inline]
    pub fn set(&self, stream: &Stream, number: u32) {
        stream.note_state(self);
        self.store(number);
    }

    /// For who only asks whether it is still there: the periods that depend on it keep it too.
    pub fn downgrade(&self) -> WeakHostState {
        WeakHostState(Rc::downgrade(&self.0))
    }

    pub(super) fn what(&self) -> &'static str {
        self.0.what
    }

    pub(super) fn peek(&self) -> u32 {
        self.0.number.get()
    }

    pub(super) fn store(&self, number: u32) {
        self.0.number.set(number);
    }

    pub(super) fn is(&self, other: &Self) -> bool {
        Rc::ptr_eq(&self.0, &other.0)
    }
}

/// A [`HostState`] that may be gone.
#[derive(Debug, Clone)]
pub struct WeakHostState(Weak<Inner>);

impl WeakHostState {
    /// Whether anybody has it still.
    pub fn is_alive(&self) -> bool {
        self.0.strong_count() > 0
    }
}
