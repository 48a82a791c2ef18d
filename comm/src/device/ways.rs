//! How the streams of a device besides the host signal and wait, and where its arrays are.

use super::Wires;
use crate::named::named;

/// How the streams of a device besides the host signal and wait.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Ways {
    pub(crate) waits: Waits,
    pub(crate) signals: Signals,
    pub(crate) peers: Peers,
    pub(crate) wires: Wires,
}

impl Ways {
    /// Whether kernels are to do what the thread can do as well.
    pub(crate) fn need_kernels(self) -> bool {
        self.waits == Waits::Kernel || matches!(self.signals, Signals::Merged | Signals::Memop)
    }
}

impl From<Waits> for Ways {
    fn from(waits: Waits) -> Self {
        Self { waits, ..Self::default() }
    }
}

/// How kernels of a device besides the host tell other ranks that a payload is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Signals {
    /// As with `Merged` on a GPU, else as with `Kernel`.
    #[default]
    Auto,
    /// A kernel of its own for it, behind those that move the payload.
    Kernel,
    /// The kernel that moves the payload, once all of it has been stored: one kernel for all messages that are sent
    /// together. What it cannot do (payloads that are not stored at once, words of the host) goes as with `Kernel`. A kernel
    /// that waits does the first table of moves that came right behind its wait, too, and a send that came behind these, if
    /// either is little and only copies.
    Merged,
    /// The queue itself, by its vendor's operations on memory: a store behind what moves the payload, which cannot
    /// count, so that counting signals stay kernels. With [`Waits::Auto`] the queue waits as well. What is behind a wait
    /// that was stopped still signals; but its stream has failed before, and so has every stream of the world that
    /// signals so once it synchronises.
    Memop,
}

named!(Signals { Auto = "auto", Kernel = "kernel", Merged = "merged", Memop = "memop" });

/// How other ranks reach the arrays of a device besides the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Peers {
    /// Straight, where fabric and devices allow it: as threads of one process (`local`), or by handles that the device
    /// gives of its memory (`shm`); and else through the host's memory.
    #[default]
    Auto,
    /// Through the host's memory.
    Staged,
}

named!(Peers { Auto = "auto", Staged = "staged" });

/// Who waits for other ranks in a stream of a device besides the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Waits {
    /// Kernels on a GPU, and the stream's thread on the host's own cores, of which the ranks need all.
    #[default]
    Auto,
    /// Kernels: the device goes on without the host. Where as many wait as the device has compute units but one,
    /// or sends have to be served meanwhile, the stream's thread does.
    Kernel,
    /// The stream's thread.
    Proxy,
}

named!(Waits { Auto = "auto", Kernel = "kernel", Proxy = "proxy" });

/// Where the arrays of a device are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MemoryMode {
    /// Shared where the device can and its kernels run on the host's cores; else separate.
    #[default]
    Auto,
    /// Where the host addresses them too, by the same pointers and at the same time.
    Shared,
    /// In memory that the host does not address: what it is shown are copies that the device's queues make.
    Separate,
}

named!(MemoryMode { Auto = "auto", Shared = "shared", Separate = "separate" });
