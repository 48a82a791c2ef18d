//! `active-rma`: stream-triggered active-target RMA (2023, sections 4 and 5).
//!
//! Post exposes the window to all origins with one merged signal, once the previous epoch has
//! been unpacked. The access epoch starts when the whole group has exposed; then the puts, and
//! complete: one signal a target, chained to all puts to it. Wait ends the exposure epoch.

use super::protocol::{Completion, Protocol};
use super::triggered::Triggered;
use super::{BackendRow, Direct};
use crate::fabric::{Role, clear_to_send};

pub(super) const ROW: BackendRow = BackendRow {
    name: "active-rma",
    summary: "post, start, put, complete, wait, all on the stream",
    source: "2023 active RMA, sections 4 and 5",
    by_host: false,
    puts: true,
    make: |site, spec| Triggered::matched(site, &spec, PROTOCOL),
};

const PROTOCOL: Protocol = Protocol {
    backend: ROW.name,
    readiness: Role::Exposure,
    announces: |_| true,
    awaits: |_| true,
    announced: clear_to_send,
    needed: clear_to_send,
    waits_for_group: true,
    buffers: 1,
    direct: Direct::WhenClear,
    completion: Completion::Flag,
};
