//! What a stream still does with a buffer whose operations hold nothing back: those are in order with each other, and
//! whoever uses the buffer outside of the stream waits for them first.

use super::section::Intent;
use crate::error::{Error, Result};
use crate::locks::lock;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// How many are kept, also of those that count no more: what is done again and again finds its own, and allocates
/// nothing.
const KEPT: usize = 64;

/// The number of no hold.
const FOR_EVER: u64 = u64::MAX;

/// Parts of a buffer that operations of its stream use, with the last one's position on it.
#[derive(Debug, Default)]
pub(super) struct Uses(Vec<Use>);

#[derive(Debug)]
struct Use {
    bytes: Range<usize>,
    intent: Intent,
    position: u64,
}

impl Uses {
    /// Adds one at that position, which is behind all others. What is at `passed` or before it counts no more.
    pub(super) fn add(&mut self, bytes: Range<usize>, intent: Intent, position: u64, passed: u64) {
        match self.0.iter_mut().find(|known| known.bytes == bytes && known.intent == intent) {
            Some(known) => known.position = position,
            None => {
                if self.0.len() >= KEPT {
                    self.0.retain(|known| known.position > passed);
                }
                self.0.push(Use { bytes, intent, position });
            }
        }
    }

    /// The position of the last one that whoever uses those bytes so has to wait for; 0 if there is none.
    pub(super) fn last_against(&self, bytes: &Range<usize>, intent: Intent) -> u64 {
        let against = self.0.iter().filter(|one| intent.meets(bytes, one.intent, &one.bytes));
        against.map(|one| one.position).max().unwrap_or(0)
    }
}

/// A part of a buffer that others are kept from.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) number: u64,
    pub(super) bytes: Range<usize>,
    pub(super) intent: Intent,
    pub(super) by: &'static str,
    /// Whether the host looks at it, rather than that an operation has begun.
    pub(super) is_view: bool,
}

/// What is done with a buffer now, and by kernels. Their arguments carry it to where they are launched, which may be another
/// thread for all that types say.
#[derive(Debug, Default)]
pub(crate) struct BufferUses {
    /// The last position of a kernel: who waits for nothing does not look further.
    last: AtomicU64,
    kernels: Mutex<Uses>,
    /// How many parts are held: who finds none does not look further.
    holds: AtomicUsize,
    held: Mutex<Vec<Held>>,
}

impl BufferUses {
    /// Notes that a kernel at that position does that with those bytes, as [`Uses::add`].
    pub(super) fn add(&self, bytes: Range<usize>, intent: Intent, position: u64, passed: u64) {
        self.last.store(position, Ordering::Relaxed);
        lock(&self.kernels).add(bytes, intent, position, passed);
    }

    /// As [`Uses::last_against`], if it is behind `passed`.
    pub(super) fn last_against(&self, bytes: &Range<usize>, intent: Intent, passed: u64) -> u64 {
        match self.last.load(Ordering::Relaxed) > passed {
            true => lock(&self.kernels).last_against(bytes, intent),
            false => 0,
        }
    }

    /// Keeps others from a part, until [`BufferUses::release`].
    pub(super) fn hold(&self, held: Held) {
        let mut all = lock(&self.held);
        all.push(held);
        self.holds.store(all.len(), Ordering::Relaxed);
    }

    pub(super) fn release(&self, number: u64) {
        let mut all = lock(&self.held);
        all.retain(|held| held.number != number);
        self.holds.store(all.len(), Ordering::Relaxed);
    }

    /// Keeps others from what a hold does for ever: it is never released.
    pub(super) fn keep(&self, number: u64) {
        let mut all = lock(&self.held);
        all.iter_mut().filter(|held| held.number == number).for_each(|held| held.number = FOR_EVER);
    }

    /// What a hold that has not been released keeps others from.
    pub(super) fn held(&self, number: u64) -> (Range<usize>, Intent) {
        let all = lock(&self.held);
        let held = all.iter().find(|held| held.number == number).expect("it is there until it is released");
        (held.bytes.clone(), held.intent)
    }

    /// Whether any part is held.
    pub(super) fn has_holds(&self) -> bool {
        self.holds.load(Ordering::Relaxed) > 0
    }

    /// That those bytes may be used so now, by `what`, as far as such holds are concerned.
    ///
    /// # Errors
    /// [`Error::InUse`].
    pub(super) fn check(
        &self,
        bytes: &Range<usize>,
        intent: Intent,
        what: &'static str,
        which: impl Fn(&Held) -> bool,
    ) -> Result<()> {
        if !self.has_holds() {
            return Ok(());
        }
        let all = lock(&self.held);
        match all.iter().find(|held| which(held) && intent.meets(bytes, held.intent, &held.bytes)) {
            None => Ok(()),
            Some(held) => Err(Error::InUse { what, start: bytes.start, end: bytes.end, by: held.by }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readers_wait_for_writers_and_writers_for_all() {
        let mut uses = Uses::default();
        uses.add(0..8, Intent::Read, 1, 0);
        uses.add(8..16, Intent::Write, 2, 0);
        assert_eq!(uses.last_against(&(0..8), Intent::Read), 0);
        assert_eq!(uses.last_against(&(0..8), Intent::Write), 1);
        assert_eq!(uses.last_against(&(7..9), Intent::Read), 2);
        assert_eq!(uses.last_against(&(16..32), Intent::Write), 0);
    }

    #[test]
    fn what_has_passed_is_forgotten() {
        let mut uses = Uses::default();
        for position in 1..1000 {
            let start = position as usize;
            uses.add(start..start + 1, Intent::Write, position, position.saturating_sub(3));
            assert!(uses.0.len() <= KEPT);
            assert_eq!(uses.last_against(&(0..1000), Intent::Read), position);
        }
    }

    /// However far the stream has come meanwhile.
    #[test]
    fn what_is_done_again_allocates_nothing() {
        let mut uses = Uses::default();
        let mut capacity = None;
        for round in 0..10 {
            for part in 0..26 {
                let position = 26 * round + part as u64 + 1;
                let passed = if round % 2 == 0 { position - 1 } else { 26 * round };
                uses.add(part..part + 1, Intent::Read, position, passed);
            }
            assert_eq!(*capacity.get_or_insert(uses.0.capacity()), uses.0.capacity());
        }
    }
}
