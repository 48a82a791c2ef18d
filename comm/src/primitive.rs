//! The interfaces of the papers that lie below the backends, as a list.

use crate::fabric::Executor;

/// One row of the registry of primitives.
#[derive(Debug, Clone, Copy)]
pub struct PrimitiveRow {
    /// The name in tables.
    pub name: &'static str,
    /// What it is, in a line.
    pub summary: &'static str,
    /// Where it is in this crate.
    pub module: &'static str,
    /// Where it is from.
    pub source: &'static str,
    /// Who carries its operations out.
    pub by: By,
}

/// Who carries out the operations of a primitive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum By {
    /// The host, in its own calls.
    Host,
    /// What executes a stream; where peers are not mapped a progress thread, or the host where the library takes
    /// calls of one thread only, moves what it says.
    Stream,
    /// Whoever executes triggered operations over the fabric: the stream, the network interface, a progress
    /// thread or the host.
    Fabric,
}

impl PrimitiveRow {
    /// Who carries out its operations over a fabric whose triggered operations are executed by `fabric`.
    pub fn executor(&self, fabric: Executor) -> Executor {
        match (self.by, fabric) {
            (By::Host, _) => Executor::Host,
            (By::Stream, Executor::Nic) => Executor::Proxy,
            (By::Stream | By::Fabric, fabric) => fabric,
        }
    }
}

/// Every primitive, each over every fabric.
pub const PRIMITIVES: &[PrimitiveRow] = &[
    PrimitiveRow {
        name: "messages",
        summary: "two-sided messages, blocking or not, persistent, with wildcards; collectives of the host",
        module: "Communicator",
        source: "MPI 4.1, chapters 3 and 6",
        by: By::Host,
    },
    PrimitiveRow {
        name: "notified-access",
        summary: "put, get and accumulate that notify their target, or nobody, and flushes; counting requests with source and tag",
        module: "window",
        source: "2015, sections III and IV",
        by: By::Host,
    },
    PrimitiveRow {
        name: "active-target",
        summary: "post, start, put, complete, wait, by the host or enqueued on a stream; throttling",
        module: "window",
        source: "2023 active RMA, sections 4 and 5",
        by: By::Stream,
    },
    PrimitiveRow {
        name: "queues",
        summary: "persistent requests, matched once, started and waited for on a stream",
        module: "queue",
        source: "2026, tables I to III",
        by: By::Fabric,
    },
    PrimitiveRow {
        name: "enqueued-messages",
        summary: "two-sided operations in batches on a stream, each matched on its own",
        module: "queue",
        source: "2022, section III",
        by: By::Stream,
    },
    PrimitiveRow {
        name: "enqueued-collectives",
        summary: "allreduce and barrier on a stream, of matched exchanges",
        module: "collective",
        source: "2026, section VIII, future work",
        by: By::Fabric,
    },
];
