//! The flag protocols under a model checker.
//!
//! `word.rs`, `protocol.rs` and `ring.rs` are the shipped files, compiled here with loom's atomics in the place
//! of the machine's. Each protocol is checked over all interleavings, and all values that relaxed
//! loads may see, with a bounded number of preemptions; and each is checked again with one of its
//! rules left out, which the checker must refute: a model that cannot fail shows nothing.

/// What `word.rs` is written with.
mod sync {
    pub(crate) use loom::sync::atomic::{AtomicU32, Ordering, fence};
}

#[allow(unreachable_pub, dead_code, reason = "compiled as a part of comm, which uses all of it")]
#[path = "../../../comm/src/fabric/protocol.rs"]
mod protocol;
#[allow(dead_code, reason = "compiled as a part of comm, which uses all of it")]
#[path = "../../../comm/src/fabric/word.rs"]
mod word;
// What `ring.rs` is written with.
use word::{WordCell, has_reached, store_fence};
#[allow(dead_code, reason = "compiled as a part of comm, which uses all of it")]
#[path = "../../../comm/src/fabric/packet/ring.rs"]
mod ring;

mod accumulate;
mod answers;
mod buffers;
mod checker;
mod counting;
mod exposure;
mod flag;
mod packets;
mod parting;
mod payload;
mod reaching;
mod sleeping;
