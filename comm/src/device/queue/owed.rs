//! What the thread of a stream owes: the host's part of moves, and words of the host's memory, each behind what was on
//! the device's queue at the time.

use crate::device::moves::MoveTable;
use crate::device::operation::Rule;
use crate::fabric::{Word, store_fence};
use std::collections::VecDeque;
use std::sync::Arc;

/// One thing that the thread owes.
pub(super) enum Debt {
    /// The host's part of moves.
    Moves(Arc<MoveTable>),
    /// A word, and waking whoever sleeps on it.
    Post(Word, Rule, u32),
    /// A word that is a part of a payload, of which nobody is told.
    Stamp(Word, u32),
}

impl Debt {
    fn pay(self) {
        match self {
            Debt::Moves(moves) => moves.run(),
            Debt::Post(word, rule, value) => {
                rule.post(&word, value);
                store_fence();
                word.wake();
            }
            Debt::Stamp(word, value) => word.cell().store(value),
        }
    }
}

/// All of it, in the order of the stream, each with a mark on the queue that it comes behind.
pub(super) struct Owed<M>(VecDeque<(M, Debt)>);

impl<M> Owed<M> {
    pub(super) fn new() -> Self {
        Self(VecDeque::new())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether these moves are still owed.
    pub(super) fn includes(&self, moves: &Arc<MoveTable>) -> bool {
        self.0.iter().any(|(_, debt)| matches!(debt, Debt::Moves(owed) if Arc::ptr_eq(owed, moves)))
    }

    pub(super) fn push(&mut self, mark: M, debt: Debt) {
        self.0.push_back((mark, debt));
    }

    /// How many of the first the device has come to.
    pub(super) fn due(&self, has_passed: impl Fn(&M) -> bool) -> usize {
        self.0.iter().take_while(|(mark, _)| has_passed(mark)).count()
    }

    /// Pays so many of the first, to which the device has come. Gives how many words it has posted with moves still owed that
    /// the device has not come to.
    pub(super) fn pay(&mut self, due: usize, has_passed: impl Fn(&M) -> bool) -> u64 {
        let mut overlaps = 0;
        for _ in 0..due {
            let (_, debt) = self.0.pop_front().expect("there is a first");
            let next = self.0.iter().find(|(_, debt)| matches!(debt, Debt::Moves(_)));
            overlaps +=
                u64::from(matches!(debt, Debt::Post(..)) && next.is_some_and(|(mark, _)| !has_passed(mark)));
            debt.pay();
        }
        overlaps
    }

    /// Forgets it: a stream that has failed tells nobody anything.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fabric::Role;
    use crate::world::World;

    #[test]
    fn a_block_is_on_its_way_while_the_device_copies_the_next() {
        let world = World::alone().expect("a rank");
        let region = world.fabric().allocate(128).expect("memory");
        let triggers = [0, 64].map(|at| region.word(at, Role::Trigger, 0, 0).expect("is there"));
        let copy = Arc::new(MoveTable::new(&[]).expect("moves nothing"));
        let mut owed = Owed::new();
        for (block, trigger) in triggers.iter().enumerate() {
            owed.push(2 * block, Debt::Moves(copy.clone()));
            owed.push(2 * block + 1, Debt::Post(trigger.clone(), Rule::Set, 7));
        }
        let posted = || triggers.each_ref().map(|trigger| trigger.cell().reached(7));
        let mut pay = |come: usize| {
            let has_passed = |mark: &usize| *mark < come;
            let due = owed.due(has_passed);
            owed.pay(due, has_passed)
        };
        assert_eq!((pay(1), posted()), (0, [false; 2]), "the first is on the host only");
        assert_eq!((pay(2), posted()), (1, [true, false]));
        assert_eq!((pay(4), posted()), (0, [true; 2]), "nothing was left to be copied");
        assert!(owed.is_empty());
    }
}
