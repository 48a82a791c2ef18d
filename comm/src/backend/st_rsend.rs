//! `st-rsend`: stream-triggered ready sends (2026, sections III to V).
//!
//! No clear-to-send. Two receive buffers (or the two generations of an alternating field) used in
//! turn make that safe between ranks that send to each other: having received the peer's message
//! k proves that it has unpacked message k-1, so the buffer of k+1 is free. Where messages go one
//! way only, the receiver grants credits instead.

use super::protocol::{Completion, Protocol};
use super::triggered::Triggered;
use super::{BackendRow, Direct};
use crate::fabric::{Role, credit_granted, credit_needed};

pub(super) const ROW: BackendRow = BackendRow {
    name: "st-rsend",
    summary: "stream-triggered ready sends into two buffers used in turn",
    source: "2026, sections III to V",
    by_host: false,
    puts: false,
    make: |site, spec| Triggered::matched(site, &spec, PROTOCOL),
};

const PROTOCOL: Protocol = Protocol {
    backend: ROW.name,
    readiness: Role::Credit,
    announces: |recv| recv.one_way,
    awaits: |send| send.one_way,
    announced: credit_granted,
    needed: credit_needed,
    waits_for_group: false,
    buffers: 2,
    direct: Direct::Alternating,
    completion: Completion::Flag,
};
