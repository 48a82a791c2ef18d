//! The synchronisation word: a counter that one rank waits on and other ranks write, with a
//! sleep that cannot miss its wake-up.
//!
//! Everything that ranks tell each other on the exchange path (clear-to-send, exposure, credit,
//! completion, counting notification) is a value in such a word. It orders the payload: what was
//! stored before [`WordCell::set`] or [`WordCell::add`] is visible after [`WordCell::reached`]
//! has said true.

use super::sync::{AtomicU32, Ordering, fence};

/// Puts the calling thread to sleep on a word, and wakes those that sleep there.
pub(crate) trait Sleep {
    /// Sleeps unless the word differs from `seen`; may return early for no reason.
    fn sleep(&self, word: &AtomicU32, seen: u32);
    /// Wakes all that sleep on the word.
    fn wake(&self, word: &AtomicU32);
}

/// Two words of shared memory. Zeroed memory is a valid cell with value 0.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct WordCell {
    value: AtomicU32,
    /// How many threads sleep, or are about to. Only the sleeper takes itself out again: if the
    /// writer cleared it, a writer that is still waking for the last value would erase the mark
    /// of a sleeper for the next one, and that wake-up would be lost.
    sleepers: AtomicU32,
}

/// Whether a counter with value `found` has come to `wanted`, across the wrap at 2³².
pub(crate) fn has_reached(found: u32, wanted: u32) -> bool {
    found.wrapping_sub(wanted) as i32 >= 0
}

impl WordCell {
    /// A cell with that value and no sleepers.
    #[allow(dead_code, reason = "cells live in zeroed shared memory; the model checker makes its own")]
    pub(crate) fn new(value: u32) -> Self {
        Self { value: AtomicU32::new(value), sleepers: AtomicU32::new(0) }
    }

    /// The value, ordered before whatever the caller reads next.
    #[inline(always)]
    pub(crate) fn load(&self) -> u32 {
        self.value.load(Ordering::Acquire)
    }

    /// Whether the value has come to `wanted`, across the wrap.
    #[inline(always)]
    pub(crate) fn reached(&self, wanted: u32) -> bool {
        has_reached(self.load(), wanted)
    }

    /// Stores a value without looking for sleepers: [`WordCell::wake_sleepers`] must follow.
    #[inline(always)]
    pub(crate) fn store(&self, value: u32) {
        self.value.store(value, Ordering::Release);
    }

    /// Adds without looking for sleepers: [`WordCell::wake_sleepers`] must follow. Additions of
    /// several ranks form one release sequence, so who sees the sum sees all their payloads.
    #[inline(always)]
    pub(crate) fn increment(&self) {
        self.value.fetch_add(1, Ordering::Release);
    }

    /// Takes the value back to where no further additions bring it to `wanted`, unless it is there, or is not even at
    /// `before` and so was taken back already; whether it did. For who waits no longer for additions that may yet come.
    pub(crate) fn take_back(&self, before: u32, wanted: u32) -> bool {
        let back = |found: u32| {
            let is_awaited = has_reached(found, before) && !has_reached(found, wanted);
            is_awaited.then(|| found.wrapping_sub(1 << 30))
        };
        self.value.fetch_update(Ordering::AcqRel, Ordering::Acquire, back).is_ok()
    }

    /// Wakes whoever sleeps on the word. The caller has put a sequentially consistent fence
    /// between its store and this look (see [`store_fence`]).
    #[inline(always)]
    pub(crate) fn wake_sleepers(&self, sleep: &impl Sleep) {
        if self.sleepers.load(Ordering::Relaxed) != 0 {
            sleep.wake(&self.value);
        }
    }

    /// Stores a value and wakes whoever sleeps on it.
    pub(crate) fn set(&self, value: u32, sleep: &impl Sleep) {
        self.store(value);
        store_fence();
        self.wake_sleepers(sleep);
    }

    /// Sleeps until something is stored, unless the value has come to `wanted` already. May
    /// return early: the caller looks again.
    pub(crate) fn sleep_unless_reached(&self, wanted: u32, sleep: &impl Sleep) {
        self.sleepers.fetch_add(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let seen = self.value.load(Ordering::Relaxed);
        if !has_reached(seen, wanted) {
            sleep.sleep(&self.value, seen);
        }
        self.sleepers.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What the writer of a word leaves behind it when it lets go of its end: zeroed memory until then.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Parting {
    /// What the word comes to without the writer: what it has left on its streams is still carried out.
    last: AtomicU32,
    has_left: AtomicU32,
}

impl Parting {
    /// One that nobody has made.
    #[allow(dead_code, reason = "partings live in zeroed shared memory; the model checker makes its own")]
    pub(crate) fn none() -> Self {
        Self { last: AtomicU32::new(0), has_left: AtomicU32::new(0) }
    }

    /// Says that the writer has let go, and that the word comes to `last` and no further.
    pub(crate) fn leave(&self, last: u32) {
        self.last.store(last, Ordering::Relaxed);
        self.has_left.store(1, Ordering::Release);
    }

    /// Whether the writer has let go and the word will not come to `wanted`, nor has it.
    #[inline]
    pub(crate) fn denies(&self, cell: &WordCell, wanted: u32) -> bool {
        self.has_left.load(Ordering::Acquire) != 0
            && !has_reached(self.last.load(Ordering::Relaxed), wanted)
            && !cell.reached(wanted)
    }
}

/// Separates stores to words from the look for sleepers. Either the writer sees the sleeper's
/// mark, or the sleeper sees the writer's value: without this fence both may miss each other.
/// One fence serves all words of a batch.
#[inline(always)]
pub(crate) fn store_fence() {
    fence(Ordering::SeqCst);
}
