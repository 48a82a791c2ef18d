//! The atomics that the flag protocols are written with.
//!
//! A file of its own so that the model checker can put its own atomics in the place of these:
//! the tests compile `word.rs` beside another `sync` module.

pub(crate) use std::sync::atomic::{AtomicU32, Ordering, fence};
