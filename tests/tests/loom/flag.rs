//! Words with a modelled futex, as shipped and with a rule left out.

use crate::payload::Payload;
use crate::sync::{AtomicU32, Ordering, fence};
use crate::word::{Sleep, WordCell, has_reached, store_fence};
use loom::sync::{Condvar, Mutex};

/// A futex of the kernel: looks at the word and goes to sleep in one step, as seen by those who
/// wake. It has no time-out, so that a lost wake-up is a deadlock.
#[derive(Debug)]
pub(crate) struct ModelFutex {
    queue: Mutex<()>,
    woken: Condvar,
}

impl ModelFutex {
    fn new() -> Self {
        Self { queue: Mutex::new(()), woken: Condvar::new() }
    }
}

impl Sleep for ModelFutex {
    fn sleep(&self, word: &AtomicU32, seen: u32) {
        let queue = self.queue.lock().unwrap();
        if word.load(Ordering::Relaxed) == seen {
            drop(self.woken.wait(queue).unwrap());
        }
    }

    fn wake(&self, _word: &AtomicU32) {
        drop(self.queue.lock().unwrap());
        self.woken.notify_all();
    }
}

/// What a rank can do with a word.
pub(crate) trait Flag: Send + Sync + 'static {
    /// A word with that value.
    fn at(value: u32) -> Self;
    /// Stores, and wakes.
    fn set(&self, value: u32);
    /// Blocks until the word has come to the value.
    fn wait(&self, wanted: u32);
}

/// The shipped word. Each has a futex of its own, so that no wake-up for one of them hides that
/// another was lost.
#[derive(Debug)]
pub(crate) struct Shipped {
    pub(crate) cell: WordCell,
    pub(crate) futex: ModelFutex,
}

impl Shipped {
    pub(crate) fn wake(&self) {
        self.cell.wake_sleepers(&self.futex);
    }
}

impl Flag for Shipped {
    fn at(value: u32) -> Self {
        Self { cell: WordCell::new(value), futex: ModelFutex::new() }
    }

    fn set(&self, value: u32) {
        self.cell.set(value, &self.futex);
    }

    fn wait(&self, wanted: u32) {
        while !self.cell.reached(wanted) {
            self.cell.sleep_unless_reached(wanted, &self.futex);
        }
    }
}

/// Stores to several words, then one fence, then the look for sleepers of all: what `SignalSet`
/// and `TriggeredSend` do.
pub(crate) fn set_all(flags: &[&Shipped], value: u32) {
    for flag in flags {
        flag.cell.store(value);
    }
    store_fence();
    flags.iter().for_each(|flag| flag.wake());
}

/// The rules of `word.rs`, of which a fault leaves one out.
#[derive(Debug)]
pub(crate) struct Faulty<const FAULT: u8> {
    value: AtomicU32,
    sleepers: AtomicU32,
    futex: ModelFutex,
}

/// None: the same as the shipped word, to show that it is the fault that is refuted.
pub(crate) const NO_FAULT: u8 = 0;
/// The writer clears the sleeper's mark, and not the sleeper itself.
pub(crate) const WRITER_CLEARS: u8 = 1;
/// No fence between the writer's store and its look for sleepers.
pub(crate) const NO_WRITER_FENCE: u8 = 2;
/// No fence between the sleeper's mark and its last look at the value.
pub(crate) const NO_SLEEPER_FENCE: u8 = 3;
/// The payload is not ordered before the value.
pub(crate) const RELAXED_STORE: u8 = 4;
/// The value is not ordered before the payload.
pub(crate) const RELAXED_LOAD: u8 = 5;

impl<const FAULT: u8> Flag for Faulty<FAULT> {
    fn at(value: u32) -> Self {
        Self { value: AtomicU32::new(value), sleepers: AtomicU32::new(0), futex: ModelFutex::new() }
    }

    fn set(&self, value: u32) {
        self.value.store(value, if FAULT == RELAXED_STORE { Ordering::Relaxed } else { Ordering::Release });
        if FAULT != NO_WRITER_FENCE {
            fence(Ordering::SeqCst);
        }
        let marked = match FAULT {
            WRITER_CLEARS => self.sleepers.swap(0, Ordering::Relaxed) != 0,
            _ => self.sleepers.load(Ordering::Relaxed) != 0,
        };
        if marked {
            self.futex.wake(&self.value);
        }
    }

    fn wait(&self, wanted: u32) {
        let look = if FAULT == RELAXED_LOAD { Ordering::Relaxed } else { Ordering::Acquire };
        while !has_reached(self.value.load(look), wanted) {
            match FAULT {
                WRITER_CLEARS => self.sleepers.store(1, Ordering::Relaxed),
                _ => drop(self.sleepers.fetch_add(1, Ordering::Relaxed)),
            }
            if FAULT != NO_SLEEPER_FENCE {
                fence(Ordering::SeqCst);
            }
            let seen = self.value.load(Ordering::Relaxed);
            if !has_reached(seen, wanted) {
                self.futex.sleep(&self.value, seen);
            }
            if FAULT != WRITER_CLEARS {
                self.sleepers.fetch_sub(1, Ordering::Relaxed);
            }
        }
    }
}

/// A receive buffer, or ghosts: payload, and the word that says which epoch it is of.
pub(crate) struct Buffer<F> {
    pub(crate) arrival: F,
    payload: Payload,
}

impl<F: Flag> Buffer<F> {
    pub(crate) fn after(epoch: u32) -> Self {
        Self { arrival: F::at(epoch), payload: Payload::new(epoch) }
    }

    /// The put: payload, without saying so.
    pub(crate) fn write(&self, epoch: u32) {
        self.payload.write(epoch);
    }

    /// The put and its completion.
    pub(crate) fn fill(&self, epoch: u32) {
        self.write(epoch);
        self.arrival.set(epoch);
    }

    /// The unpacking.
    pub(crate) fn read(&self, epoch: u32) {
        self.payload.read(epoch);
    }

    /// Waiting for the payload, and unpacking.
    pub(crate) fn take(&self, epoch: u32) {
        self.arrival.wait(epoch);
        self.read(epoch);
    }
}
