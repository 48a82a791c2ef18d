//! Notified access: the origin's accesses and the target's queue of notifications (2015, sections III and IV).
//!
//! Every access that notifies is a packet of the window's own rings, or ends with one. A put of up to 32 bytes travels in the
//! packet's line, and the target stores it as it takes the packet; a longer one to mapped memory is copied there
//! before its packet is sent. What cannot be done from afar (an accumulate, an access to memory that is not
//! mapped, a long access to where a put may still be on its way) is carried out by the target as it takes the
//! packet, in the order in which it was sent. So the accesses of a rank to the same target happen in order, and
//! accumulates of all ranks are atomic: one thread does them.

mod arrivals;
mod origin;
mod request;
#[cfg(test)]
mod tests;
mod unexpected;

pub(super) use origin::Access;
pub use request::{Notification, NotifyRequest};

use super::WINDOW;
use crate::device::{Hold, Mirror, progress};
use crate::element::ElementType;
use crate::error::{Error, Result};
use crate::fabric::{Memory, Packets, Progress, Reaches, WaitContext, any_other, register};
use crate::source::{Source, Tag};
use crate::world::World;
use arrivals::Aside;
use origin::OnTheWay;
use std::cell::{Cell, RefCell};
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use unexpected::Unexpected;

/// The notified accesses of a window, on one rank.
///
/// The first line holds what a ready notification needs: the flag of the cell, and the queue's head with its
/// first entries.
#[repr(C, align(64))]
pub(crate) struct Notified {
    state: RefCell<State>,
    rank: usize,
    size: usize,
    context: Arc<WaitContext>,
    /// Behind the state: peers are told that this rank lets go of the window before it uses the part again.
    _lent: Lent,
}

/// This rank's part, which is lent to its peers while it has the window or a request, by which it still takes what they
/// have sent.
struct Lent {
    own: Mirror,
    hold: Option<Hold>,
    reaches: Reaches,
    context: Arc<WaitContext>,
}

impl Drop for Lent {
    /// What peers have written goes where the section is, once those have ended that are in the middle of a long access.
    fn drop(&mut self) {
        let Self { own, hold, reaches, context } = self;
        let mut nap = |nap: Duration| std::thread::sleep(nap.min(SHORT_NAP));
        let mut are_over = || reaches.are_over();
        if are_over() || context.wait_until(&mut are_over, &mut progress, &mut nap).is_ok() {
            own.enqueue_up();
            if own.is_copy() {
                // Whoever uses the section next comes behind that.
                hold.take().into_iter().for_each(Hold::leave);
            }
        } else {
            // What a peer may still write is never lent again.
            hold.take().into_iter().for_each(Hold::keep);
        }
    }
}

#[repr(C)]
struct State {
    unexpected: Unexpected,
    packets: Packets,
    /// This rank's part of the window.
    memory: Memory,
    element: ElementType,
    aside: Aside,
    /// By target.
    on_the_way: Vec<OnTheWay>,
    /// Whether accesses have been sent there of which the target is not told, since it has answered last.
    unflushed: Vec<bool>,
    /// Whether such accesses have been made to mapped memory, since the last flush.
    stored: Vec<bool>,
    /// How many packets of no accesses, behind all others, a target may have left unread.
    unread_flushes: Vec<u32>,
    /// Calls that have asked for answers.
    asked: u32,
}

impl Notified {
    /// Connects all ranks, and lends them this one's part, which lies in `memory`. Collective; blocks.
    pub(super) fn connect(
        world: &World,
        element: ElementType,
        memory: &Memory,
        (own, hold): (&Mirror, Hold),
    ) -> Result<Rc<Self>> {
        let packets = Packets::connect(world)?;
        let (context, reaches) = (world.wait_context().clone(), packets.reaches());
        let lent = Lent { own: own.clone(), hold: Some(hold), reaches, context: context.clone() };
        let state = State {
            unexpected: Unexpected::new(),
            packets,
            memory: memory.clone(),
            element,
            aside: Aside::default(),
            on_the_way: vec![OnTheWay::default(); world.size()],
            unflushed: vec![false; world.size()],
            stored: vec![false; world.size()],
            unread_flushes: vec![0; world.size()],
            asked: 0,
        };
        let notified = Rc::new(Self {
            state: RefCell::new(state),
            rank: world.rank(),
            size: world.size(),
            context,
            _lent: lent,
        });
        register(&notified);
        Ok(notified)
    }

    /// Takes what has come over a wire, if there is one.
    pub(super) fn take_far(&self) -> Result<()> {
        match self.state.try_borrow_mut() {
            Ok(mut state) if state.packets.has_far() => state.serve().map(drop),
            // Whoever has it takes it.
            _ => Ok(()),
        }
    }

    /// Serves other ranks, one wait of some, and whether this was one: who always finds soon what it waits for looks at
    /// nothing else.
    #[inline(always)]
    fn serve_at_times(&self, state: &mut State) -> bool {
        let waits = &mut state.unexpected.waits;
        *waits = waits.wrapping_add(1);
        let serves = waits.is_multiple_of(WAITS);
        if serves {
            self.serve(state);
        }
        serves
    }

    /// Serves other ranks; whether there is more to do. Whoever uses the window next is told of an error.
    #[inline(never)]
    fn serve(&self, state: &mut State) -> bool {
        match state.serve() {
            // A rank far away may ask for something at any time, and cannot wake this one.
            Ok(any) => any || state.packets.has_far(),
            Err(error) => {
                state.aside.fail(error);
                false
            }
        }
    }

    /// The first notification that such a request would match.
    pub(super) fn probe(&self, source: Source, tag: Tag) -> Result<Option<Notification>> {
        let wanted = request::wanted(source, tag);
        let mut state = self.state.borrow_mut();
        if let Some(entry) = state.unexpected.find(wanted) {
            return Ok(Some(entry.into()));
        }
        state.serve()?;
        if let Some(entry) = state.unexpected.find(wanted) {
            return Ok(Some(entry.into()));
        }
        // Ranks that have left are no error here: whoever asks may want to know that nothing is left over.
        if self.context.abort.failure().is_some() { Err(self.context.peer_failure()) } else { Ok(None) }
    }

    /// Why nothing follows what is there, of that rank or of any: a rank has failed, or those that it depends on have left.
    #[inline(never)]
    fn in_vain(&self, state: &State, peer: Option<usize>) -> Option<Error> {
        if self.context.abort.failure().is_some() {
            return Some(self.context.peer_failure());
        }
        self.have_left(&state.packets, peer).then(|| self.left(peer))
    }

    /// Blocks until `done`, which serves other ranks meanwhile; `peer` is the one that it depends on, if that is
    /// one. `sleeps` if a packet of that peer ends the wait.
    fn wait(
        &self,
        state: &mut State,
        (peer, sleeps): (Option<usize>, bool),
        what: &dyn Fn() -> String,
        done: &mut dyn FnMut(&mut State) -> Result<bool>,
    ) -> Result<()> {
        let (state, is_in_vain) = (RefCell::new(state), Cell::new(false));
        let mut look = || {
            let state = &mut **state.borrow_mut();
            is_in_vain.set(false);
            if done(state)? {
                return Ok(true);
            }
            if !self.have_left(&state.packets, peer) {
                return Ok(false);
            }
            // What they sent before they left is there now.
            let is_done = done(state)?;
            is_in_vain.set(!is_done);
            Ok(is_done)
        };
        // Why they have left may be told yet.
        let gone = || is_in_vain.get().then(|| self.left(peer));
        // Nothing wakes it for the others.
        let awaited = if sleeps { peer } else { None };
        let mut sleep = |nap: Duration| state.borrow().packets.sleep(awaited, nap.min(NAP));
        let late = |waited| self.context.late(self.somebody(peer), what(), waited);
        self.context.poll_sleeping(&mut look, &gone, &mut sleep, &late)
    }

    /// Whether the peer that is waited for, or every other rank, has let go of the window.
    fn have_left(&self, packets: &Packets, peer: Option<usize>) -> bool {
        match peer {
            Some(peer) => packets.has_left(peer),
            None => {
                let mut others = (0..self.size).filter(|other| *other != self.rank).peekable();
                others.peek().is_some() && others.all(|other| packets.has_left(other))
            }
        }
    }

    /// A rank to name where any could have come.
    fn somebody(&self, peer: Option<usize>) -> usize {
        peer.unwrap_or_else(|| any_other(self.rank, self.size))
    }

    #[cold]
    fn left(&self, peer: Option<usize>) -> Error {
        self.context.left(self.somebody(peer), WINDOW)
    }
}

/// One of so many waits for requests serves other ranks.
const WAITS: u32 = 16;
/// The longest single sleep of a wait.
const NAP: Duration = Duration::from_micros(500);
/// The longest single sleep of a wait for peers to end what they are in the middle of.
const SHORT_NAP: Duration = Duration::from_micros(50);

impl Progress for Notified {
    fn progress(&self) -> bool {
        // Somebody who waits on this window serves it already.
        let Ok(mut state) = self.state.try_borrow_mut() else { return false };
        self.serve(&mut state)
    }
}

impl fmt::Debug for Notified {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.state.try_borrow() {
            Ok(state) => write!(f, "Notified({} unexpected)", state.unexpected.length()),
            Err(_) => f.write_str("Notified(in use)"),
        }
    }
}
