//! `notified`: put with notification (2015, sections III and IV).
//!
//! Each put notifies its target, which waits once, on one counting request for all its
//! neighbours. Small payloads travel on the lines of their notification. There is one counter a
//! phase: a fast neighbour may be one epoch ahead of a slow one. Buffers are free by the rules of
//! ready sends.

use super::protocol::{Completion, Protocol};
use super::triggered::Triggered;
use super::{BackendRow, Direct};
use crate::fabric::{Role, credit_granted, credit_needed};

pub(super) const ROW: BackendRow = BackendRow {
    name: "notified",
    summary: "put with notification; one counting request for all neighbours",
    source: "2015, sections III and IV",
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
    completion: Completion::Count,
};
