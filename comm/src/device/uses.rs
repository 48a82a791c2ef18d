//! What a stream still does with a buffer whose operations hold nothing back: those are in order with each other, and
//! whoever uses the buffer outside of the stream waits for them first.

use super::at_home::AtHome;
use super::section::Intent;
use crate::error::{Error, Result};
use std::ops::Range;
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
    /// Whether what is to use it is yet to be put on the stream: kernels that go there before it may use it too.
    pub(super) is_ahead: bool,
}

/// What is done with a buffer now, and by kernels. Their arguments carry it to where they are launched, which types allow to
/// be another thread, and streams do not.
#[derive(Debug, Default)]
pub(crate) struct BufferUses {
    /// The last position of a kernel: who waits for nothing does not look further.
    last: AtomicU64,
    kernels: AtHome<Uses>,
    /// How many parts are held: who finds none does not look further.
    holds: AtomicUsize,
    held: AtHome<Vec<Held>>,
}

impl BufferUses {
    /// Notes that a kernel at that position does that with those bytes, as [`Uses::add`].
    pub(super) fn add(&self, bytes: Range<usize>, intent: Intent, position: u64, passed: u64) {
        self.last.store(position, Ordering::Relaxed);
        self.kernels.with(|kernels| kernels.add(bytes, intent, position, passed));
    }

    /// As [`Uses::last_against`], if it is behind `passed`.
    pub(super) fn last_against(&self, bytes: &Range<usize>, intent: Intent, passed: u64) -> u64 {
        match self.last.load(Ordering::Relaxed) > passed {
            true => self.kernels.with(|kernels| kernels.last_against(bytes, intent)),
            false => 0,
        }
    }

    /// Keeps others from a part, until [`BufferUses::release`].
    pub(super) fn hold(&self, held: Held) {
        self.change(|all| all.push(held));
    }

    pub(super) fn release(&self, number: u64) {
        self.change(|all| all.retain(|held| held.number != number));
    }

    /// Keeps others from what a hold does for ever: it is never released.
    pub(super) fn keep(&self, number: u64) {
        self.change_one(number, |held| held.number = FOR_EVER);
    }

    /// Lets kernels use what a hold keeps others from.
    pub(super) fn let_kernels(&self, number: u64) {
        self.change_one(number, |held| held.is_ahead = true);
    }

    fn change_one(&self, number: u64, change: impl FnMut(&mut Held)) {
        self.change(|all| all.iter_mut().filter(|held| held.number == number).for_each(change));
    }

    #[inline]
    fn change(&self, change: impl FnOnce(&mut Vec<Held>)) {
        let left = self.held.with(|all| {
            change(all);
            all.len()
        });
        self.holds.store(left, Ordering::Relaxed);
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
        let meets = |held: &&Held| which(held) && intent.meets(bytes, held.intent, &held.bytes);
        match self.held.with(|all| all.iter().find(meets).map(|held| held.by)) {
            None => Ok(()),
            Some(by) => Err(Error::InUse { what, start: bytes.start, end: bytes.end, by }),
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
