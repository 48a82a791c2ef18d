//! How messages of buffers on a device go through the host's memory.

use super::blocks::Blocks;
use crate::error::{Error, Result};
use crate::named::named;

/// Which memory of the host messages are staged in (2023 paper on Intel GPUs, section IV-A).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StagingMemory {
    /// Memory that the device itself copies to and from. What comes from a process that maps this one's memory (over
    /// `shm`) lands in memory that both share, which is pageable: see [`crate::Communicator::landing_memory`].
    #[default]
    Pinned,
    /// Memory as any other, which the device's driver may have to copy once more.
    Pageable,
}

/// In which pieces a message goes down to the host, to the other rank, and up to its device (section IV-B, figure 2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StagingScheme {
    /// The whole message at each step.
    Naive,
    /// Blocks of equal length, each of which goes on by itself.
    Even,
    /// Blocks of which the first is shorter, so that its copy up begins sooner, and the last longer.
    #[default]
    Advanced,
}

named!(StagingMemory { Pinned = "pinned", Pageable = "pageable" });

named!(StagingScheme { Naive = "naive", Even = "even", Advanced = "advanced" });

/// How messages from or to sections on a device go through the host's memory. The numbers of the default are those of
/// the 2023 paper on Intel GPUs, section V-D.
///
/// A sender on a device cuts its message, whatever its receiver would do; one of a host is cut by its receiver. So
/// ranks may be told differently, though that is of no use.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Staging {
    /// Where the message is on the host.
    pub memory: StagingMemory,
    /// How it is cut.
    pub scheme: StagingScheme,
    /// Into how many blocks, from 1 to [`Staging::MOST_BLOCKS`]. A scheme other than [`StagingScheme::Naive`] with one
    /// block is that.
    pub blocks: u32,
    /// In bytes: messages up to there are not cut.
    pub threshold_bytes: usize,
    /// How long the first block is, in those between it and the last; for [`StagingScheme::Advanced`].
    pub first: f64,
    /// How long the last block is, in the same unit.
    pub last: f64,
}

impl Default for Staging {
    fn default() -> Self {
        Self {
            memory: StagingMemory::default(),
            scheme: StagingScheme::default(),
            blocks: 2,
            threshold_bytes: 64 * 1024,
            first: 0.5,
            last: 1.5,
        }
    }
}

impl Staging {
    /// The most blocks that a message may be cut into.
    pub const MOST_BLOCKS: u32 = 64;

    /// Whether messages can be staged so.
    ///
    /// # Errors
    /// [`Error::WrongStaging`] with what is wrong and what would be right.
    pub fn check(&self) -> Result<()> {
        let wrong = |reason: String| Err(Error::WrongStaging { reason });
        if !(1..=Self::MOST_BLOCKS).contains(&self.blocks) {
            return wrong(format!("{} blocks; a message has from 1 to {}", self.blocks, Self::MOST_BLOCKS));
        }
        for (which, length) in [("first", self.first), ("last", self.last)] {
            if !(length.is_finite() && length > 0.0) {
                return wrong(format!(
                    "a {which} block {length} times as long as those in between; it must be longer than 0, as 0.5"
                ));
            }
        }
        Ok(())
    }

    /// The blocks of a message of so many bytes.
    pub(crate) fn cut(&self, bytes: usize) -> Blocks {
        let (count, first, last) = match self.scheme {
            _ if bytes <= self.threshold_bytes => (1, 1.0, 1.0),
            StagingScheme::Naive => (1, 1.0, 1.0),
            StagingScheme::Even => (self.blocks, 1.0, 1.0),
            StagingScheme::Advanced => (self.blocks, self.first, self.last),
        };
        Blocks::weighted(bytes, count, first, last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_long_messages_are_cut() {
        let count = |scheme, bytes| Staging { scheme, blocks: 4, ..Staging::default() }.cut(bytes).count();
        for (scheme, long) in
            [(StagingScheme::Naive, 1), (StagingScheme::Even, 4), (StagingScheme::Advanced, 4)]
        {
            assert_eq!(count(scheme, 65_536), 1, "{scheme:?}");
            assert_eq!(count(scheme, 65_537), long, "{scheme:?}");
        }
    }

    #[test]
    fn nonsense_is_refused() {
        let reason = |staging: Staging| match staging.check() {
            Err(Error::WrongStaging { reason }) => reason,
            other => panic!("{other:?}"),
        };
        assert!(Staging::default().check().is_ok());
        assert!(reason(Staging { blocks: 0, ..Staging::default() }).contains("from 1 to 64"));
        assert!(reason(Staging { blocks: 65, ..Staging::default() }).contains("65 blocks"));
        assert!(reason(Staging { first: 0.0, ..Staging::default() }).contains("first block 0 times"));
        assert!(reason(Staging { last: f64::NAN, ..Staging::default() }).contains("last block NaN times"));
    }
}
