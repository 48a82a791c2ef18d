//! Which messages or notifications a receiver means, and what it is told of the one that came.

use std::fmt;

/// The ranks from which a receiver accepts something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Source {
    /// Any rank.
    Any,
    /// That rank only.
    Rank(usize),
}

impl Source {
    /// Whether that rank is meant.
    #[inline]
    pub fn matches(self, rank: usize) -> bool {
        match self {
            Source::Any => true,
            Source::Rank(wanted) => wanted == rank,
        }
    }

    /// The rank, if it is one.
    pub(crate) fn rank(self) -> Option<usize> {
        match self {
            Source::Any => None,
            Source::Rank(rank) => Some(rank),
        }
    }
}

impl From<usize> for Source {
    fn from(rank: usize) -> Self {
        Source::Rank(rank)
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Any => f.write_str("any rank"),
            Source::Rank(rank) => write!(f, "rank {rank}"),
        }
    }
}

/// The tags that a receiver accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Tag {
    /// Any tag.
    Any,
    /// That tag only.
    Value(u32),
}

impl Tag {
    /// Whether that tag is meant.
    #[inline]
    pub fn matches(self, tag: u32) -> bool {
        match self {
            Tag::Any => true,
            Tag::Value(wanted) => wanted == tag,
        }
    }
}

impl From<u32> for Tag {
    fn from(tag: u32) -> Self {
        Tag::Value(tag)
    }
}

impl fmt::Display for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Tag::Any => f.write_str("any tag"),
            Tag::Value(tag) => write!(f, "tag {tag}"),
        }
    }
}

/// What a receiver is told of a message or a notification that has matched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Status {
    /// The rank that it came from.
    pub source: usize,
    /// Its tag.
    pub tag: u32,
    /// Bytes of the payload.
    pub bytes: usize,
}
