//! How a staged message is cut into blocks, which both of its ends know.

use crate::error::{Error, Result};
use crate::fabric::Arrived;
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// Blocks begin at multiples of that many bytes: cache lines of their own, and whole elements.
const STEP_BYTES: usize = 64;

/// A message of so many bytes in consecutive blocks: the first, others of equal length, and the last, which has
/// what is left.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Blocks {
    bytes: usize,
    count: u32,
    first_bytes: usize,
    middle_bytes: usize,
}

impl Blocks {
    /// How many bytes it takes to tell them to a rank that knows the length of the message.
    pub(super) const ENCODED_BYTES: usize = 20;

    /// All in one.
    pub(crate) fn whole(bytes: usize) -> Self {
        Self { bytes, count: 1, first_bytes: bytes, middle_bytes: 0 }
    }

    /// At most `count` blocks, of which the first is `first` times as long as those between it and the last, and the
    /// last `last` times; fewer where one would be empty.
    pub(super) fn weighted(bytes: usize, count: u32, first: f64, last: f64) -> Self {
        for count in (2..=count).rev() {
            let unit = bytes as f64 / (first + f64::from(count - 2) + last);
            let stepped = |blocks: f64| (blocks * unit) as usize / STEP_BYTES * STEP_BYTES;
            let (first_bytes, middle_bytes) = (stepped(first), stepped(1.0));
            let before_last = middle_bytes.checked_mul(count as usize - 2);
            let before_last = before_last.and_then(|middle| middle.checked_add(first_bytes));
            let has_last = before_last.is_some_and(|before_last| before_last < bytes);
            if first_bytes > 0 && has_last && (count == 2 || middle_bytes > 0) {
                return Self { bytes, count, first_bytes, middle_bytes };
            }
        }
        Self::whole(bytes)
    }

    /// How many there are, at least one.
    pub(crate) fn count(&self) -> u32 {
        self.count
    }

    /// Which bytes of the message a block has.
    pub(crate) fn range(&self, block: u32) -> Range<usize> {
        let end = |block: u32| match block {
            last if last + 1 == self.count => self.bytes,
            block => self.first_bytes + self.middle_bytes * block as usize,
        };
        let start = block.checked_sub(1).map_or(0, end);
        start..end(block)
    }

    /// How long each is.
    pub(crate) fn lengths(&self) -> impl Iterator<Item = usize> {
        (0..self.count).map(|block| self.range(block).len())
    }

    /// How long the message is.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// What a receiver has to tell its sender of them: nothing of a single one.
    pub(super) fn told(&self) -> Option<[u8; Self::ENCODED_BYTES]> {
        (self.count > 1).then(|| self.to_bytes())
    }

    pub(super) fn to_bytes(self) -> [u8; Self::ENCODED_BYTES] {
        let mut bytes = [0; Self::ENCODED_BYTES];
        bytes[..4].copy_from_slice(&self.count.to_le_bytes());
        bytes[4..12].copy_from_slice(&(self.first_bytes as u64).to_le_bytes());
        bytes[12..].copy_from_slice(&(self.middle_bytes as u64).to_le_bytes());
        bytes
    }

    /// The blocks of a message of that length which a packet's payload ends with, from byte `from` on; `None` if it
    /// says nothing of them.
    ///
    /// # Errors
    /// [`Error::System`] if they do not make up the message.
    pub(super) fn from_packet(packet: &Arrived<'_>, from: usize, bytes: usize) -> Result<Option<Self>> {
        if packet.length() <= from {
            return Ok(None);
        }
        let mut payload = [0; 64];
        let length = packet.copy_into(&mut payload);
        let told = payload[..length].get(from..).and_then(|told| Self::from_bytes(told, bytes));
        told.map(Some).ok_or_else(|| Error::System {
            call: "reading the blocks of a message",
            reason: format!("those that rank {} tells do not make up its {bytes} bytes", packet.source),
        })
    }

    fn from_bytes(told: &[u8], bytes: usize) -> Option<Self> {
        let told: &[u8; Self::ENCODED_BYTES] = told.try_into().ok()?;
        let number = |at: usize| {
            let mut number = [0; 8];
            number.copy_from_slice(&told[at..at + 8]);
            usize::try_from(u64::from_le_bytes(number)).ok()
        };
        let count = u32::from_le_bytes([told[0], told[1], told[2], told[3]]);
        let (first_bytes, middle_bytes) = (number(4)?, number(12)?);
        let before_last = middle_bytes.checked_mul((count as usize).saturating_sub(2))?;
        let before_last = before_last.checked_add(first_bytes)?;
        let makes_up = match count {
            0 => false,
            1 => first_bytes == bytes,
            _ => before_last <= bytes,
        };
        makes_up.then_some(Self { bytes, count, first_bytes, middle_bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ranges(blocks: Blocks) -> Vec<Range<usize>> {
        (0..blocks.count()).map(|block| blocks.range(block)).collect()
    }

    #[test]
    fn the_first_is_half_as_long_and_the_last_has_what_it_lacks() {
        // Listing 1 of the 2023 paper: of two blocks of 512 KiB the first sends 256.
        let kib = 1024;
        let two = ranges(Blocks::weighted(1024 * kib, 2, 0.5, 1.5));
        assert_eq!(two, [0..256 * kib, 256 * kib..1024 * kib]);
        let four = ranges(Blocks::weighted(1024 * kib, 4, 0.5, 1.5));
        assert_eq!(four, [0..128 * kib, 128 * kib..384 * kib, 384 * kib..640 * kib, 640 * kib..1024 * kib]);
        let even = ranges(Blocks::weighted(1000, 3, 1.0, 1.0));
        assert_eq!(even, [0..320, 320..640, 640..1000]);
    }

    #[test]
    fn what_is_too_short_for_its_blocks_has_fewer() {
        for bytes in [0, 100] {
            assert_eq!(Blocks::weighted(bytes, 4, 1.0, 1.0), Blocks::whole(bytes));
            assert_eq!(Blocks::whole(bytes).range(0), 0..bytes);
        }
        assert_eq!(ranges(Blocks::weighted(128, 4, 1.0, 1.0)), [0..64, 64..128]);
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 4 } else { 256 }, ..ProptestConfig::default() })]

        #[test]
        fn every_byte_is_in_one_block_in_order(
            bytes in 0_usize..50_000_000, count in 1_u32..64, first in 0.01..8.0, last in 0.01..8.0,
        ) {
            let blocks = Blocks::weighted(bytes, count, first, last);
            let ranges = ranges(blocks);
            prop_assert!(ranges.len() <= count as usize);
            prop_assert_eq!(ranges[0].start, 0);
            prop_assert_eq!(ranges[ranges.len() - 1].end, bytes);
            prop_assert!(ranges.windows(2).all(|pair| pair[0].end == pair[1].start));
            prop_assert!(bytes == 0 || ranges.iter().all(|range| !range.is_empty()));
            prop_assert!(ranges.iter().all(|range| range.start % STEP_BYTES == 0));
            prop_assert_eq!(Blocks::from_bytes(&blocks.to_bytes(), bytes), Some(blocks));
        }

        #[test]
        fn lengths_are_as_weighted(bytes in 100_000_usize..50_000_000, count in 2_u32..32) {
            let ranges = ranges(Blocks::weighted(bytes, count, 0.5, 1.5));
            let unit = bytes as f64 / f64::from(count);
            prop_assert_eq!(ranges.len(), count as usize);
            for (block, range) in ranges.iter().enumerate() {
                let wanted = match block {
                    0 => 0.5,
                    last if last + 1 == ranges.len() => 1.5,
                    _ => 1.0,
                };
                // What is rounded off is added up in the last.
                let rounded = (STEP_BYTES * count as usize) as f64;
                prop_assert!((range.len() as f64 - wanted * unit).abs() <= rounded, "{:?}", ranges);
            }
        }

        #[test]
        fn nonsense_is_no_message(told in any::<[u8; 20]>(), bytes in 0_usize..1_000_000) {
            if let Some(blocks) = Blocks::from_bytes(&told, bytes) {
                prop_assert!(ranges_end(blocks).iter().all(|end| *end <= bytes));
            }
        }
    }

    /// The ends of some blocks of what may have many.
    fn ranges_end(blocks: Blocks) -> Vec<usize> {
        let some = [0, blocks.count() / 2, blocks.count() - 1];
        some.into_iter().map(|block| blocks.range(block).end).collect()
    }
}
