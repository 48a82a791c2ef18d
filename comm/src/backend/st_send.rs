//! `st-send`: stream-triggered sends (2026, sections III to V).
//!
//! Receives start by sending clear-to-send from the stream. Each send goes out when both the
//! stream has triggered it and its clear-to-send has come (2026, V-B); its completion wakes the
//! waiting stream (V-A). Only the wait may block (V-C).

use super::protocol::Protocol;
use super::{BackendRow, Carried};

pub(super) const ROW: BackendRow = BackendRow {
    name: "st-send",
    summary: "stream-triggered sends, each after its receiver's clear-to-send",
    source: "2026, sections III to V",
    carried: Carried::Triggered(Protocol::CLEARED),
};
