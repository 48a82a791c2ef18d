//! Who may use the ghosts of an array.

use std::cell::RefCell;
use std::rc::Rc;
use streamhalo_comm::device::{HostState, Stream, WeakHostState};

/// Which ghosts kernels may read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadableGhosts {
    /// None.
    None = 0,
    /// Those along axes that the rank has to itself, beside its own entries: an exchange fills them as it
    /// begins, and messages of other ranks only others.
    Own = 1,
    /// All: nothing is filling any.
    All = 2,
}

/// What an array and its exchanges agree on. Clones are of the same array, wherever that is moved to.
#[derive(Debug, Clone)]
pub struct Ghosts {
    readable: HostState,
    /// The exchange that lets peers fill them before this rank begins it. They are not for kernels to write then, nor
    /// when the exchange is gone: peers may be late.
    ahead: Rc<RefCell<Option<WeakHostState>>>,
}

impl Ghosts {
    /// That nobody fills.
    pub(crate) fn new() -> Self {
        let readable = HostState::new("which ghosts of a field may be read", ReadableGhosts::All as u32);
        Self { readable, ahead: Rc::default() }
    }

    /// Which of them kernels of the array's stream may read.
    pub fn readable(&self, stream: &Stream) -> ReadableGhosts {
        match self.readable.get(stream) {
            2 => ReadableGhosts::All,
            1 => ReadableGhosts::Own,
            _ => ReadableGhosts::None,
        }
    }

    /// Says which of them kernels may read. Exchanges do, who know what peers write, and the array's pair.
    pub fn set_readable(&self, stream: &Stream, readable: ReadableGhosts) {
        self.readable.set(stream, readable as u32);
    }

    /// Whether kernels may write them.
    pub(crate) fn are_writable(&self, stream: &Stream) -> bool {
        self.readable(stream) == ReadableGhosts::All && !self.are_filled_ahead()
    }

    /// Whether peers may fill them before this rank begins an exchange.
    pub fn are_filled_ahead(&self) -> bool {
        self.ahead.borrow().is_some()
    }

    /// Whether they may by an exchange that is there still, and is not that one.
    pub fn are_filled_ahead_beside(&self, exchange: Option<&HostState>) -> bool {
        let is_another = |filling: &WeakHostState| {
            filling.is_there() && !exchange.is_some_and(|exchange| filling.is(exchange))
        };
        self.ahead.borrow().as_ref().is_some_and(is_another)
    }

    /// From now on peers may fill them ahead, until nobody has a clone of `exchange` any more. Kernels may not read
    /// them before that has been carried out.
    pub fn fill_ahead(&self, stream: &Stream, exchange: &HostState) {
        *self.ahead.borrow_mut() = Some(exchange.downgrade());
        self.set_readable(stream, ReadableGhosts::None);
    }
}
