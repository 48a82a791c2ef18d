//! `st-rsend`: stream-triggered ready sends (2026, sections III to V).
//!
//! No clear-to-send. Two receive buffers (or the two generations of an alternating field) used in
//! turn make that safe between ranks that send to each other: having received the peer's message
//! k proves that it has unpacked message k-1, so the buffer of k+1 is free. Where messages go one
//! way only, the receiver grants credits instead.

use super::protocol::Protocol;
use super::{BackendRow, Carried};

pub(super) const ROW: BackendRow = BackendRow {
    name: "st-rsend",
    summary: "stream-triggered ready sends into two buffers used in turn",
    source: "2026, sections III to V",
    carried: Carried::Triggered(Protocol::READY),
};
