//! Splitting a run of items into parts as evenly as possible: cells, or blocks of them, over ranks.

use std::ops::Range;

/// The items of part `part` when `length` items are dealt out in order to `parts` parts. The first
/// `length % parts` parts get one item more, so lengths never increase from one part to the next.
pub(crate) fn block(length: usize, parts: usize, part: usize) -> Range<usize> {
    let (shorter, longer_parts) = (length / parts, length % parts);
    let start = part * shorter + part.min(longer_parts);
    start..start + shorter + usize::from(part < longer_parts)
}
