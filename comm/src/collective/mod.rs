//! Collectives on a stream: a reduction and a barrier that are enqueued like a kernel.
//!
//! What the 2026 paper leaves as future work (section VIII), out of what it has: persistent operations that are
//! matched once and then started and waited for on a queue. [`AllReduce::enqueue`] is its `enqueue_allreduce`,
//! [`Barrier::enqueue`] its `enqueue_barrier`. Each is some rounds of matched exchanges
//! ([`match_exchange`](crate::backend::match_exchange)), whose messages are triggered operations wherever the
//! fabric has them, and moves of the stream in between.
//!
//! The ranks of a world enqueue their collectives and exchanges in the same order, as with all that is inline on a
//! stream. Any number of them may be on a stream.

mod allreduce;
mod barrier;
mod rounds;
mod turns;

pub use allreduce::AllReduce;
pub use barrier::Barrier;
pub(crate) use turns::{Parts, order};

/// What carries the messages unless the caller says otherwise: nothing goes before a payload.
const BACKEND: &str = "st-rsend";

/// The largest section that goes from all to all at once.
const AT_ONCE_BYTES: usize = 1024;
