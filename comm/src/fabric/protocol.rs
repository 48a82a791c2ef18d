//! The rules by which epochs become buffers, thresholds and counts.
//!
//! Epochs count exchanges from 1 and wrap at 2³². The backends and the model checker use these
//! same functions, so what is checked is what runs.

/// Which of two receive buffers, or of two generations, an epoch uses.
#[inline(always)]
pub fn phase(epoch: u32) -> usize {
    (epoch & 1) as usize
}

/// What the receiver announces as it starts to receive `epoch` with a clear-to-send or an
/// exposure: the sender of `epoch` waits for the same value.
#[inline(always)]
pub(crate) fn clear_to_send(epoch: u32) -> u32 {
    epoch
}

/// The credit that the receiver of a one-way pair grants as it starts to receive `epoch`: the
/// last epoch that it has unpacked.
#[inline(always)]
pub(crate) fn credit_granted(epoch: u32) -> u32 {
    epoch.wrapping_sub(1)
}

/// The credit that a ready sender of a one-way pair needs before it fills the buffer of `epoch`:
/// that buffer was filled two epochs ago, and must have been unpacked. Where messages go both
/// ways the peer's own message of the epoch before proves the same.
#[inline(always)]
pub(crate) fn credit_needed(epoch: u32) -> u32 {
    epoch.wrapping_sub(2)
}

/// What a counting notification must come to once all `sources` have notified once more. There
/// is one counter per phase, because a fast source may be one epoch ahead of a slow one.
#[inline(always)]
pub(crate) fn next_count(last_count: u32, sources: u32) -> u32 {
    last_count.wrapping_add(sources)
}
