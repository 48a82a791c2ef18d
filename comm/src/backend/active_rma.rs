//! `active-rma`: stream-triggered active-target RMA (2023, sections 4 and 5).
//!
//! Post exposes the window to all origins with one merged signal, once the previous epoch has
//! been unpacked. The access epoch starts when the whole group has exposed; then the puts, and
//! complete: one signal a target, chained to all puts to it. Wait ends the exposure epoch.

use super::protocol::Protocol;
use super::{BackendRow, Carried};
use crate::fabric::{Role, Terms};

pub(super) const ROW: BackendRow = BackendRow {
    name: "active-rma",
    summary: "post, start, put, complete, wait, all on the stream",
    source: "2023 active RMA, sections 4 and 5",
    carried: Carried::Triggered(Protocol {
        terms: Terms { readiness: Role::Exposure, waits_for_group: true, ..Terms::CLEAR_TO_SEND },
        ..Protocol::CLEARED
    }),
};
