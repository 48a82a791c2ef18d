//! What a stream counts of how its device does things: so that nobody has to guess whether it did.

use std::sync::atomic::{AtomicU64, Ordering};

/// What is counted since the stream was made: see [`super::Stream::count`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Count {
    /// Waits for other ranks that kernels of its device have done, or are doing: see [`super::Waits`].
    KernelWaits,
    /// Sends that were one kernel of its device, payloads and signals: see [`super::Signals`].
    MergedSends,
    /// How many times one of these kernels has first told other ranks what was to be told before the send: that this one is
    /// ready to receive, mostly.
    MergedSignals,
    /// Waits by kernels that moved what had arrived to where it belongs: see [`super::Signals`].
    MergedArrivals,
    /// How many of these kernels were that of the send behind them, too: what has come is moved and passed on, or answered,
    /// by one launch.
    Relays,
    /// How often its device has replayed a period by itself: see [`super::Period::executor`].
    Graphs,
    /// Moves of payloads between its device's memory and the host's, for messages that are staged.
    StagedMoves,
    /// How often a message, or a block of one, has gone on its way while its device still copied later ones to the host.
    StagedOverlaps,
}

/// How many of each.
#[derive(Debug, Default)]
pub(super) struct Counts([AtomicU64; Count::StagedOverlaps as usize + 1]);

impl Counts {
    pub(super) fn add(&self, what: Count, more: u64) {
        self.0[what as usize].fetch_add(more, Ordering::Relaxed);
    }

    pub(super) fn of(&self, what: Count) -> u64 {
        self.0[what as usize].load(Ordering::Relaxed)
    }
}
