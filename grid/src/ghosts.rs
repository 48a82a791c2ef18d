//! Who may use the ghosts of an array.

use std::cell::{Cell, RefCell};
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
    /// Which ghosts kernels may read, and above that the exchange that is in flight: whoever asks asks for both.
    state: HostState,
    /// The exchange that has begun last, and what it sends.
    sent: Cell<(u32, SentLayers)>,
    filled_ahead: HostState,
    /// The exchange that fills ahead, and its number among those of the world.
    ahead: RefCell<Option<(WeakHostState, u32)>>,
}

/// Layers of owned entries on the `[low, high]` side of each axis of a tile, in which all lie that other ranks are sent.
pub type SentLayers = [[usize; 2]; 3];

/// Where the number of the exchange that is in flight begins.
const IN_FLIGHT_BIT: u32 = 2;

fn state_of(exchange: u32, readable: ReadableGhosts) -> u32 {
    exchange << IN_FLIGHT_BIT | readable as u32
}

impl Ghosts {
    /// That nobody fills.
    pub(crate) fn new() -> Self {
        let state = state_of(0, ReadableGhosts::All);
        Self(Rc::new(Inner {
            state: HostState::new("which ghosts of a field may be read", state),
            sent: Cell::default(),
            filled_ahead: HostState::new("which exchange fills ghosts of a field ahead", 0),
            ahead: RefCell::default(),
        }))
    }

    /// Which of them kernels of the array's stream may read.
    #[inline]
    pub fn readable(&self, stream: &Stream) -> ReadableGhosts {
        match self.0.state.get(stream) & ((1 << IN_FLIGHT_BIT) - 1) {
            2 => ReadableGhosts::All,
            1 => ReadableGhosts::Own,
            _ => ReadableGhosts::None,
        }
    }

    /// Whether kernels may write them.
    pub(crate) fn are_writable(&self, stream: &Stream) -> bool {
        self.readable(stream) == ReadableGhosts::All && self.filled_ahead(stream) == 0
    }

    /// The exchange that has begun with them and is not finished, whatever else becomes of the array meanwhile.
    #[inline]
    pub fn in_flight(&self, stream: &Stream) -> u32 {
        self.0.state.get(stream) >> IN_FLIGHT_BIT
    }

    /// What that exchange may still be sending; `None` where another has begun since, in a capture that has been taken back.
    pub(crate) fn sent(&self, exchange: u32) -> Option<SentLayers> {
        let (last, sent) = self.0.sent.get();
        (last == exchange).then_some(sent)
    }

    /// An exchange has begun with them which sends those layers, and none is in flight.
    #[inline]
    pub fn begin(&self, stream: &Stream, exchange: u32, sent: SentLayers) {
        self.0.sent.set((exchange, sent));
        self.0.state.set(stream, state_of(exchange, ReadableGhosts::Own));
    }

    /// The exchange that was in flight has filled them, for kernels to read unless they have been spoiled since it began.
    #[inline]
    pub fn finish(&self, stream: &Stream) {
        let readable = match self.readable(stream) {
            ReadableGhosts::None => ReadableGhosts::None,
            ReadableGhosts::Own | ReadableGhosts::All => ReadableGhosts::All,
        };
        self.0.state.set(stream, state_of(0, readable));
    }

    /// Peers may be filling them, or what they hold is of no use.
    #[inline]
    pub fn spoil(&self, stream: &Stream) {
        self.0.state.set(stream, state_of(self.in_flight(stream), ReadableGhosts::None));
    }

    /// The exchange by which peers may fill them before this rank begins it, or might when it was last known on all ranks.
    #[inline]
    pub fn filled_ahead(&self, stream: &Stream) -> u32 {
        self.0.filled_ahead.get(stream)
    }

    /// Whether this rank, or any period of it, has still got that exchange. Others may.
    pub fn is_filler_alive(&self) -> bool {
        self.0.ahead.borrow().as_ref().is_some_and(|(exchange, _)| exchange.is_alive())
    }

    /// That exchange's number, which is the same on all ranks, also of one that this rank has let go of.
    pub fn filler(&self) -> Option<u32> {
        self.0.ahead.borrow().as_ref().map(|(_, number)| *number)
    }

    /// From now on peers may fill them before this rank begins `exchange`, which has its number on this rank and one among
    /// those of the world, and by no other; where there is none, nobody may. No rank may have the one any more that did so
    /// before, and all streams have to be behind it.
    pub fn let_fill_ahead(&self, stream: &Stream, exchange: Option<(&HostState, u32)>) {
        let was = self.filled_ahead(stream);
        let number = exchange.map_or(0, |(exchange, _)| exchange.get(stream));
        self.0.filled_ahead.set(stream, number);
        *self.0.ahead.borrow_mut() = exchange.map(|(exchange, of_world)| (exchange.downgrade(), of_world));
        if number != 0 {
            self.spoil(stream);
        } else if was != 0 {
            self.0.state.set(stream, state_of(0, ReadableGhosts::All));
        }
    }
}
