//! How many entries of deferred work may be outstanding.
//!
//! Network interfaces have few (Slingshot about 500 for each job step), and what happens beyond is
//! undefined, so the account is kept here. Whoever finds it exhausted waits for entries to complete
//! and takes those, one by one: the adaptive throttling of Namashivayam et al. (2023, section 5.2.3).

use std::sync::atomic::{AtomicUsize, Ordering};

/// An account of triggered entries.
#[derive(Debug)]
pub(crate) struct Budget {
    limit: usize,
    in_use: AtomicUsize,
}

impl Budget {
    /// Of that many entries.
    pub(crate) fn new(limit: usize) -> Self {
        Self { limit, in_use: AtomicUsize::new(0) }
    }

    /// What a provider has for the whole process, with a few left for its own use.
    pub(crate) fn of_provider(provider: &str) -> Self {
        // `sockets` keeps its entries in a list; the number keeps it short, because each change of
        // a counter walks over all entries that wait for that counter.
        Self::new(if provider == "cxi" { 480 } else { 4096 })
    }

    /// Takes `entries` of them, all or none, and says whether it could.
    pub(crate) fn try_reserve(&self, entries: usize) -> bool {
        let fits = |in_use: usize| in_use.checked_add(entries).filter(|sum| *sum <= self.limit);
        self.in_use.fetch_update(Ordering::AcqRel, Ordering::Acquire, fits).is_ok()
    }

    /// Gives back `entries` that have completed.
    pub(crate) fn release(&self, entries: usize) {
        let before = self.in_use.fetch_sub(entries, Ordering::AcqRel);
        debug_assert!(before >= entries, "{entries} entries given back, {before} were taken");
    }

    /// How many may be outstanding.
    pub(crate) fn limit(&self) -> usize {
        self.limit
    }

    /// How many are.
    pub(crate) fn in_use(&self) -> usize {
        self.in_use.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reservations_are_all_or_nothing() {
        let budget = Budget::new(3);
        assert!(budget.try_reserve(2));
        assert!(!budget.try_reserve(2));
        assert_eq!(budget.in_use(), 2);
        assert!(budget.try_reserve(1));
        assert!(!budget.try_reserve(1));
        budget.release(2);
        assert!(budget.try_reserve(2));
        assert_eq!((budget.in_use(), budget.limit()), (3, 3));
        assert!(!budget.try_reserve(usize::MAX));
    }
}
