//! What the messages of a collective call say of it, so that ranks that make different calls find out.
//!
//! Collective calls are made in the same order by all ranks, and so the k-th message of one rank to another is the k-th that
//! the other one receives of it, whatever they say: a receive takes the next one, and compares.

use super::matching::INTERNAL;
use crate::element::Op;

/// Which call it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Barrier,
    Broadcast,
    Reduce,
    AllReduce,
    AllGather,
    NeighbourAllToAll,
    Gather,
}

impl Kind {
    const ALL: [Self; 7] = [
        Self::Barrier,
        Self::Broadcast,
        Self::Reduce,
        Self::AllReduce,
        Self::AllGather,
        Self::NeighbourAllToAll,
        Self::Gather,
    ];

    const fn name(self) -> &'static str {
        match self {
            Self::Barrier => "barrier",
            Self::Broadcast => "broadcast",
            Self::Reduce => "reduce",
            Self::AllReduce => "allreduce",
            Self::AllGather => "allgather",
            Self::NeighbourAllToAll => "neighbour_alltoall",
            Self::Gather => "gather",
        }
    }
}

/// A call of a rank.
#[derive(Debug, Clone, Copy)]
pub(super) struct Call {
    pub(super) name: &'static str,
    /// The tag of its messages: what has to be the same on all ranks.
    pub(super) tag: u32,
}

/// Below the bit of internal tags: the kind, the operation, how many calls there were before, and what else is agreed upon.
const KIND_SHIFT: u32 = 28;
const OP_SHIFT: u32 = 26;
const NUMBER_SHIFT: u32 = 18;

impl Call {
    /// The `number`-th one, with so many elements, and a root if it has one.
    pub(super) fn new(kind: Kind, number: u32, op: Op, elements: usize, root: usize) -> Self {
        // Of different roots, and of lengths that are less than 2¹⁸ apart, it is another.
        let agreed = elements.wrapping_add(root.wrapping_mul(0x1F3D5)) as u32 % (1 << NUMBER_SHIFT);
        let tag = INTERNAL | (kind as u32) << KIND_SHIFT | (op as u32) << OP_SHIFT | agreed;
        Self { name: kind.name(), tag }.numbered(number)
    }

    /// Whether it is counted for each pair of ranks, since not all ranks make it.
    pub(super) fn is_of_pairs(self) -> bool {
        (self.tag & !INTERNAL) >> KIND_SHIFT == Kind::NeighbourAllToAll as u32
    }

    /// The same call, which is the `number`-th one.
    pub(super) fn numbered(self, number: u32) -> Self {
        let most = (1 << OP_SHIFT) - (1 << NUMBER_SHIFT);
        Self { tag: self.tag & !most | (number << NUMBER_SHIFT) & most, ..self }
    }

    /// What a rank has done that sends a message of another call to `rank`; `None` if it is of this one.
    pub(super) fn differs(self, found: u32, rank: usize) -> Option<String> {
        if found == self.tag {
            return None;
        }
        let what = if self.name == Kind::Gather.name() { "" } else { ", or another number of elements," };
        let rest = || asked(&format!("it gave another root{what} than rank {rank}"));
        Some(self.differs_before_length(found, rank).unwrap_or_else(rest))
    }

    /// The same, of all but what else is agreed upon: where lengths differ, they say more.
    pub(super) fn differs_before_length(self, found: u32, rank: usize) -> Option<String> {
        let differs = |shift: u32| found >> shift != self.tag >> shift;
        let called =
            Kind::ALL.get(((found & !INTERNAL) >> KIND_SHIFT) as usize).map_or("?", |kind| kind.name());
        let what = if differs(KIND_SHIFT) {
            format!("it called `{called}` where rank {rank} called `{}`", self.name)
        } else if differs(OP_SHIFT) {
            format!("it asked for another operation than rank {rank}")
        } else if differs(NUMBER_SHIFT) {
            format!("rank {rank} has not received all that it sent in a call before")
        } else {
            return None;
        };
        Some(asked(&what))
    }
}

fn asked(what: &str) -> String {
    format!("{what}; do all ranks make the same calls?")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_differs_is_said() {
        let own = Call::new(Kind::AllReduce, 300, Op::Sum, 4, 0);
        assert_eq!((own.name, own.differs(own.tag, 1)), ("allreduce", None));
        let said = |other: Call| own.differs(other.tag, 1).expect("it is another");
        let cases = [
            (
                Call::new(Kind::NeighbourAllToAll, 300, Op::Sum, 4, 0),
                "`neighbour_alltoall` where rank 1 called `allreduce`",
            ),
            (Call::new(Kind::AllReduce, 300, Op::Max, 4, 0), "another operation than rank 1"),
            (Call::new(Kind::AllReduce, 299, Op::Sum, 4, 0), "rank 1 has not received all"),
            (Call::new(Kind::AllReduce, 300, Op::Sum, 5, 0), "another number of elements"),
            (Call::new(Kind::AllReduce, 300, Op::Sum, 4, 1), "another root"),
        ];
        let [first, second] = [0, 1].map(|root| Call::new(Kind::Gather, 7, Op::Replace, 0, root));
        assert_eq!(
            first.differs(second.tag, 1).as_deref(),
            Some("it gave another root than rank 1; do all ranks make the same calls?")
        );
        assert_eq!(own.numbered(44).tag, own.tag, "of 256 numbers");
        assert!(!own.is_of_pairs() && cases[0].0.is_of_pairs());
        for (other, what) in cases {
            assert!(said(other).contains(what), "{}", said(other));
        }
    }
}
