//! `notified`: put with notification (2015, sections III and IV).
//!
//! Each put notifies its target, which waits once, on one counting request for all its
//! neighbours. Small payloads travel on the lines of their notification. There is one counter a
//! phase: a fast neighbour may be one epoch ahead of a slow one. Buffers are free by the rules of
//! ready sends.

use super::protocol::Protocol;
use super::{BackendRow, Carried};
use crate::fabric::Terms;

pub(super) const ROW: BackendRow = BackendRow {
    name: "notified",
    summary: "put with notification; one counting request for all neighbours",
    source: "2015, sections III and IV",
    carried: Carried::Triggered(Protocol {
        terms: Terms { counts: true, ..Terms::READY },
        ..Protocol::READY
    }),
};
