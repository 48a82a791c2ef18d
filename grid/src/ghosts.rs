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
///
/// Exchanges have numbers, and 0 is none.
#[derive(Debug, Clone)]
pub struct Ghosts(Rc<Inner>);

#[derive(Debug)]
struct Inner {
    readable: HostState,
    in_flight: HostState,
    filled_ahead: HostState,
    /// The exchange that fills ahead.
    ahead: RefCell<Option<WeakHostState>>,
}

impl Ghosts {
    /// That nobody fills.
    pub(crate) fn new() -> Self {
        Self(Rc::new(Inner {
            readable: HostState::new("which ghosts of a field may be read", ReadableGhosts::All as u32),
            in_flight: HostState::new("which exchange has begun with a field", 0),
            filled_ahead: HostState::new("which exchange fills ghosts of a field ahead", 0),
            ahead: RefCell::default(),
        }))
    }

    /// Which of them kernels of the array's stream may read.
    pub fn readable(&self, stream: &Stream) -> ReadableGhosts {
        match self.0.readable.get(stream) {
            2 => ReadableGhosts::All,
            1 => ReadableGhosts::Own,
            _ => ReadableGhosts::None,
        }
    }

    /// Says which of them kernels may read. Exchanges do, who know what peers write, and the array's pair.
    pub fn set_readable(&self, stream: &Stream, readable: ReadableGhosts) {
        self.0.readable.set(stream, readable as u32);
    }

    /// Whether kernels may write them.
    pub(crate) fn are_writable(&self, stream: &Stream) -> bool {
        self.readable(stream) == ReadableGhosts::All && self.filled_ahead(stream) == 0
    }

    /// The exchange that has begun with them and is not finished, whatever else becomes of the array meanwhile.
    pub fn in_flight(&self, stream: &Stream) -> u32 {
        self.0.in_flight.get(stream)
    }

    /// Says which exchange has begun with them and is not finished.
    pub fn set_in_flight(&self, stream: &Stream, exchange: u32) {
        self.0.in_flight.set(stream, exchange);
    }

    /// The exchange by which peers may fill them before this rank begins it, or might when it was last known on all ranks.
    pub fn filled_ahead(&self, stream: &Stream) -> u32 {
        self.0.filled_ahead.get(stream)
    }

    /// Whether this rank, or any period of it, has still got that exchange. Others may.
    pub fn is_filler_alive(&self) -> bool {
        self.0.ahead.borrow().as_ref().is_some_and(WeakHostState::is_alive)
    }

    /// From now on peers may fill them before this rank begins `exchange`, whose number it has, and by no other; where
    /// there is none, nobody may. No rank may have the one any more that did so before, and all streams have to be behind it.
    pub fn let_fill_ahead(&self, stream: &Stream, exchange: Option<&HostState>) {
        let was = self.filled_ahead(stream);
        let number = exchange.map_or(0, |exchange| exchange.get(stream));
        self.0.filled_ahead.set(stream, number);
        *self.0.ahead.borrow_mut() = exchange.map(HostState::downgrade);
        if number != 0 {
            self.set_readable(stream, ReadableGhosts::None);
        } else if was != 0 {
            self.set_readable(stream, ReadableGhosts::All);
        }
    }
}
