//! How far an exchange has come: what its host counts, a capture sets back, and a replay moves on.

use std::cell::{Cell, OnceCell};
use std::fmt;
use std::rc::Rc;

/// How far an exchange has come. Calls in another order are refused, and do nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    Unbound,
    Idle,
    Receiving,
    Sending,
}

/// Where an exchange stands.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Counts {
    pub(crate) stage: Stage,
    /// How many exchanges were started, wrapping.
    pub(crate) epoch: u32,
    /// What the counting words of each phase come to next.
    pub(crate) expected: [u32; 2],
}

/// How many counts an exchange has.
pub(super) const COUNTS: usize = 3;

impl Counts {
    pub(super) fn numbers(&self) -> [u32; COUNTS] {
        [self.epoch, self.expected[0], self.expected[1]]
    }
}

/// Where an exchange stands. Clones are the same one's: its own, and those of periods in which it was captured.
#[derive(Debug, Clone)]
pub(crate) struct Standing(Rc<Inner>);

struct Inner {
    counts: Cell<Counts>,
    farewell: OnceCell<Box<dyn Fn(Counts)>>,
}

impl Drop for Inner {
    /// A rank that panics has more to say, and says it later.
    fn drop(&mut self) {
        if let Some(farewell) = self.farewell.get().filter(|_| !std::thread::panicking()) {
            farewell(self.counts.get());
        }
    }
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.counts.fmt(f)
    }
}

impl Standing {
    /// Of an exchange whose moves are not there yet.
    pub(crate) fn new(last_epoch: u32) -> Self {
        Self::at(Counts { stage: Stage::Unbound, epoch: last_epoch, expected: [0; 2] })
    }

    /// Of what is never seen in between.
    pub(crate) fn idle() -> Self {
        Self::at(Counts { stage: Stage::Idle, epoch: 0, expected: [0; 2] })
    }

    fn at(counts: Counts) -> Self {
        Self(Rc::new(Inner { counts: Cell::new(counts), farewell: OnceCell::new() }))
    }

    /// Has `farewell` told where it stands, once neither the exchange nor any period can move it on any more.
    pub(crate) fn at_the_end(&self, farewell: impl Fn(Counts) + 'static) {
        assert!(self.0.farewell.set(Box::new(farewell)).is_ok(), "there is one farewell");
    }

    /// Begins the next epoch, which it gives.
    pub(crate) fn begin(&self) -> u32 {
        let mut counts = self.get();
        counts.epoch = counts.epoch.wrapping_add(1);
        self.set(counts);
        counts.epoch
    }

    #[inline(always)]
    pub(crate) fn get(&self) -> Counts {
        self.0.counts.get()
    }

    #[inline(always)]
    pub(crate) fn set(&self, counts: Counts) {
        self.0.counts.set(counts);
    }

    /// A value that goes with the epoch.
    #[inline(always)]
    pub(crate) fn of_epoch(&self, value: u32) -> Reading<'_> {
        Reading { value, of: Some((self, 0)) }
    }

    /// A value that goes with the counting word of a phase.
    #[inline(always)]
    pub(crate) fn of_count(&self, phase: usize, value: u32) -> Reading<'_> {
        Reading { value, of: Some((self, 1 + phase)) }
    }

    pub(super) fn is(&self, other: &Standing) -> bool {
        Rc::ptr_eq(&self.0, &other.0)
    }

    /// Moves the counts on, as so many replays do.
    pub(super) fn move_on(&self, strides: [u32; COUNTS], times: u64) {
        // Counts wrap: only the lower half of the number matters.
        let [epoch, first, second] = strides.map(|stride| stride.wrapping_mul(times as u32));
        let mut counts = self.get();
        counts.epoch = counts.epoch.wrapping_add(epoch);
        counts.expected = [counts.expected[0].wrapping_add(first), counts.expected[1].wrapping_add(second)];
        self.set(counts);
    }
}

/// What an operation sets a word to, or waits for, and the count by which that is another at a replay; `None` for what
/// cannot be replayed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reading<'a> {
    pub(crate) value: u32,
    pub(super) of: Option<(&'a Standing, usize)>,
}

impl From<u32> for Reading<'_> {
    #[inline(always)]
    fn from(value: u32) -> Self {
        Self { value, of: None }
    }
}
