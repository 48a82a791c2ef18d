//! `st-send`: stream-triggered sends (2026, sections III to V).
//!
//! Receives start by sending clear-to-send from the stream. Each send goes out when both the
//! stream has triggered it and its clear-to-send has come (2026, V-B); its completion wakes the
//! waiting stream (V-A). Only the wait may block (V-C).

use super::protocol::{Completion, Protocol};
use super::triggered::Triggered;
use super::{BackendRow, Direct};
use crate::fabric::{Role, clear_to_send};

pub(super) const ROW: BackendRow = BackendRow {
    name: "st-send",
    summary: "stream-triggered sends, each after its receiver's clear-to-send",
    source: "2026, sections III to V",
    by_host: false,
    puts: false,
    make: |site, spec| Triggered::matched(site, &spec, PROTOCOL),
};

const PROTOCOL: Protocol = Protocol {
    backend: ROW.name,
    readiness: Role::ClearToSend,
    announces: |_| true,
    awaits: |_| true,
    announced: clear_to_send,
    needed: clear_to_send,
    waits_for_group: false,
    // The clear-to-send of an epoch says that the buffer has been unpacked: one is enough.
    buffers: 1,
    direct: Direct::WhenClear,
    completion: Completion::Flag,
};
