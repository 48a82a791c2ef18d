//! What kinds of stream there are.

/// When the operations of a stream run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StreamKind {
    /// On the calling thread, as they are enqueued. The fastest where ranks fill the cores. A wait
    /// blocks the caller, so exchanges must be issued in the same order on all ranks.
    #[default]
    Inline,
    /// On a thread of the stream's own, as on a GPU: enqueueing does not wait for the operation, but
    /// for room on the stream once 4096 operations are on it. Exchanges of one stream wait for each other in the order in
    /// which they were enqueued, which has to be the same on all ranks here too.
    Threaded,
    /// On a device with a memory of its own, fed by a thread: enqueueing is as with `Threaded`.
    Device,
}

impl StreamKind {
    /// The kinds of the host.
    pub const OF_HOST: [Self; 2] = [StreamKind::Inline, StreamKind::Threaded];

    /// The name in configurations.
    pub const fn name(self) -> &'static str {
        match self {
            StreamKind::Inline => "inline",
            StreamKind::Threaded => "threaded",
            StreamKind::Device => "device",
        }
    }

    /// The kind of host stream of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::OF_HOST.into_iter().find(|kind| kind.name() == name)
    }
}

/// How a stream is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamOptions {
    /// When operations run, on the host.
    pub kind: StreamKind,
    /// Threads for kernels, on the host.
    pub threads: usize,
}

impl Default for StreamOptions {
    fn default() -> Self {
        Self { kind: StreamKind::Inline, threads: 1 }
    }
}
