//! The unexpected queue: notifications that have come before a request asked for them.

use std::collections::VecDeque;

/// What stands for any source, or any tag.
pub(super) const ANY: u32 = u32::MAX;

/// A notification that has come: its source, and its tag above that. One number, since two that are stored apart and loaded
/// together, on their way between functions, would keep the core until they are in its cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Entry(u64);

impl Entry {
    #[inline(always)]
    pub(super) fn new(source: u32, tag: u32) -> Self {
        Self(u64::from(source) | u64::from(tag) << 32)
    }

    #[inline(always)]
    pub(super) fn source(self) -> u32 {
        self.0 as u32
    }

    #[inline(always)]
    pub(super) fn tag(self) -> u32 {
        (self.0 >> 32) as u32
    }
}

/// What a request waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Wanted {
    /// A rank, or [`ANY`].
    pub(super) source: u32,
    /// A tag, or [`ANY`].
    pub(super) tag: u32,
}

impl Wanted {
    /// The rank that it has to be from, if that is one.
    #[inline(always)]
    pub(super) fn from(self) -> Option<usize> {
        (self.source != ANY).then_some(self.source as usize)
    }

    #[inline(always)]
    pub(super) fn matches(self, entry: Entry) -> bool {
        (self.source == entry.source() || self.source == ANY) && (self.tag == entry.tag() || self.tag == ANY)
    }
}

/// How many entries lie beside the head of the queue.
const FIRST: usize = 5;
/// Entries for which there is memory from the start.
const PREPARED: usize = 512;

/// The queue, in the order of arrival. Its head and its first entries fit on one cache line with the flag of
/// the cell that they are in, so that looking through a short queue costs one line (2015, section V).
#[repr(C)]
#[derive(Debug)]
pub(super) struct Unexpected {
    /// Entries in `first`. There are some in `more` only if it is full.
    beside: u32,
    /// Waits for requests, and tests that have found them complete: counted where a line has room that they need anyway.
    pub(super) waits: u32,
    first: [Entry; FIRST],
    #[allow(clippy::box_collection, reason = "a line has room for a pointer only")]
    more: Box<VecDeque<Entry>>,
}

const _: () = assert!(size_of::<Unexpected>() + size_of::<isize>() == 64);

impl Unexpected {
    pub(super) fn new() -> Self {
        Self {
            beside: 0,
            waits: 0,
            first: [Entry::default(); FIRST],
            more: Box::new(VecDeque::with_capacity(PREPARED)),
        }
    }

    #[inline(always)]
    pub(super) fn is_empty(&self) -> bool {
        self.beside == 0
    }

    /// How many there are.
    pub(super) fn length(&self) -> usize {
        self.beside as usize + self.more.len()
    }

    #[inline]
    pub(super) fn push(&mut self, entry: Entry) {
        if (self.beside as usize) < FIRST {
            self.first[self.beside as usize] = entry;
            self.beside += 1;
        } else {
            self.more.push_back(entry);
        }
    }

    fn beside(&self) -> &[Entry] {
        &self.first[..self.beside as usize]
    }

    /// The first that matches.
    pub(super) fn find(&self, wanted: Wanted) -> Option<Entry> {
        self.beside().iter().chain(&*self.more).copied().find(|entry| wanted.matches(*entry))
    }

    /// Takes the first that matches.
    #[inline]
    pub(super) fn take(&mut self, wanted: Wanted) -> Option<Entry> {
        match self.beside().iter().position(|entry| wanted.matches(*entry)) {
            Some(index) => Some(self.remove_beside(index)),
            None if (self.beside as usize) < FIRST => None,
            None => {
                let index = self.more.iter().position(|entry| wanted.matches(*entry))?;
                self.more.remove(index)
            }
        }
    }

    fn remove_beside(&mut self, index: usize) -> Entry {
        let entry = self.first[index];
        let beside = self.beside as usize;
        self.first.copy_within(index + 1..beside, index);
        // Nearly always there are few: the rest is on lines of its own.
        let next = if beside == FIRST { self.more.pop_front() } else { None };
        match next {
            Some(next) => self.first[FIRST - 1] = next,
            None => self.beside -= 1,
        }
        entry
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Debug, Clone, Copy)]
    enum Step {
        Push(Entry),
        Find(Wanted),
        Take(Wanted),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let number = || prop_oneof![4 => 0_u32..3, 1 => Just(ANY)];
        let wanted = move || (number(), number()).prop_map(|(source, tag)| Wanted { source, tag });
        prop::collection::vec(
            prop_oneof![
                3 => (0_u32..3, 0_u32..3).prop_map(|(source, tag)| Step::Push(Entry::new(source, tag))),
                1 => wanted().prop_map(Step::Find),
                3 => wanted().prop_map(Step::Take),
            ],
            1..200,
        )
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 4 } else { 300 }, ..ProptestConfig::default() })]

        #[test]
        fn the_queue_is_a_list_in_the_order_of_arrival(steps in steps()) {
            let (mut queue, mut list) = (Unexpected::new(), Vec::new());
            for step in steps {
                match step {
                    Step::Push(entry) => {
                        queue.push(entry);
                        list.push(entry);
                    }
                    Step::Find(wanted) => {
                        let expected = list.iter().copied().find(|entry| wanted.matches(*entry));
                        prop_assert_eq!(queue.find(wanted), expected);
                    }
                    Step::Take(wanted) => {
                        let index = list.iter().position(|entry| wanted.matches(*entry));
                        prop_assert_eq!(queue.take(wanted), index.map(|index| list.remove(index)));
                    }
                }
                prop_assert_eq!((queue.length(), queue.is_empty()), (list.len(), list.is_empty()));
            }
        }
    }

    #[test]
    fn any_is_any_and_a_value_is_that_value() {
        let entry = Entry::new(1, 2);
        for (source, tag, matches) in
            [(1, 2, true), (ANY, 2, true), (1, ANY, true), (ANY, ANY, true), (2, 2, false), (1, 1, false)]
        {
            assert_eq!(Wanted { source, tag }.matches(entry), matches, "{source} {tag}");
        }
    }
}
