//! Timelines: what the streams of a rank did when, and what its host did meanwhile.
//!
//! A stream that is told to keep one ([`Stream::record_timeline`](crate::device::Stream::record_timeline)) notes
//! a [`Span`] for each operation that its executor carries out, and one for each call with which the host
//! enqueued it. Exchanges on inline streams that were not told so pay for it with no branch of their own.
//!
//! ```
//! use streamhalo_comm::device::{Buffer, Device, Extents, RowsMut};
//! use streamhalo_comm::timeline::{Activity, Lane};
//! use streamhalo_comm::{Error, World};
//!
//! # fn main() -> Result<(), Error> {
//! let world = World::alone()?;
//! let stream = Device::host().stream(&world)?;
//! let row = Extents { points: [1, 1, 4], components: 1 };
//! let mut values = Buffer::<f64>::zeros(&world, &stream, row)?;
//!
//! stream.record_timeline(100)?; // room for 100 spans
//! stream.mark("step 0");
//! stream.launch("fill", row.whole(), (values.writer(row.whole())?,), |_, (mut out,): (RowsMut<'_, f64>,)| {
//!     out.rows().for_each(|row| row.fill(1.0));
//! })?;
//! stream.synchronize()?;
//! let timeline = stream.take_timeline().expect("one was recorded");
//!
//! assert_eq!(timeline.dropped, 0);
//! let kernel = timeline.spans.iter().find(|span| span.activity == Activity::Kernel).expect("it has run");
//! assert_eq!((kernel.lane, &*kernel.name), (Lane::Stream(0), "fill"));
//! // The host was in this call to enqueue it.
//! let enqueued = timeline.spans.iter().find(|span| {
//!     span.activity == Activity::Enqueue && span.operation == kernel.operation
//! });
//! assert!(enqueued.expect("somebody has enqueued it").begin_ns <= kernel.begin_ns);
//! # Ok(())
//! # }
//! ```
//!
//! **What a span costs.** Two readings of the clock and a lock that nobody else holds, for the operation and again
//! for the host's call: exchanges that take less than a microsecond look longer than they are. Memory is set
//! aside at the start; when it is full the oldest spans make room, and are counted ([`Timeline::dropped`]).
//!
//! **What is on it.** A send whose receiver is not ready is put off ([`Activity::Deferred`]) and carried out within
//! whatever wait of the rank finds its receiver ready: its spans lie within that of the wait. All other spans of a
//! lane follow each other. Over a wire ([`fabric::Wire`](crate::fabric::Wire)) a [`Activity::Trigger`] ends when
//! the network, the progress thread or the host has been told; the payload is under way from then on, and no lane
//! shows it.
//!
//! **For those who write devices.** Whoever carries operations out notes them, from any thread and in any order,
//! with times of [`now_ns`]; a device with a clock of its own converts. The host's calls are noted before they
//! reach the executor. `device/recorded.rs` is both for host streams, `device/queue/times.rs` the former for those of
//! other devices.

mod clock;
mod recorder;

pub use clock::{ClockOffset, now_ns};
pub(crate) use recorder::{Draft, Recording};

use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// What was recorded of a rank.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timeline {
    /// The rank.
    pub rank: usize,
    /// In the order of their beginnings; a span comes before those that lie within it.
    pub spans: Vec<Span>,
    /// How many older spans there was no room for.
    pub dropped: u64,
}

/// Whose time it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Lane {
    /// The thread of the rank.
    Host,
    /// The executor of a stream; streams are counted from 0 as they join the timeline. That of an inline stream
    /// is the host, which is within the call that enqueues meanwhile.
    Stream(u16),
}

/// What somebody was doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Activity {
    /// Moves the payload of a message to where it goes: into a buffer, or straight into the receiver's ghosts.
    Pack,
    /// Starts a message whose payload is in place: says so to its receiver, or to whatever carries it.
    Trigger,
    /// Tells other ranks something that is no payload: that they may send, or that they should wake up.
    Signal,
    /// Finds a receiver that is not ready, and puts the send off.
    Deferred,
    /// Waits for other ranks, or for another stream.
    Wait,
    /// Moves what has arrived to where it belongs.
    Unpack,
    /// Moves data within the rank.
    Copy,
    /// Runs a kernel.
    Kernel,
    /// Runs another function of the host on the stream, or reaches an event.
    Function,
    /// The host puts an operation on a stream; on an inline stream it carries it out within the call.
    Enqueue,
    /// The host waits until a stream has done all that is on it.
    Synchronize,
    /// A point in the program, from [`Stream::mark`](crate::device::Stream::mark).
    Mark,
}

impl Activity {
    /// Every activity.
    pub const ALL: [Activity; 12] = [
        Activity::Pack,
        Activity::Trigger,
        Activity::Signal,
        Activity::Deferred,
        Activity::Wait,
        Activity::Unpack,
        Activity::Copy,
        Activity::Kernel,
        Activity::Function,
        Activity::Enqueue,
        Activity::Synchronize,
        Activity::Mark,
    ];

    /// Its name, as in files.
    pub const fn name(self) -> &'static str {
        match self {
            Activity::Pack => "pack",
            Activity::Trigger => "trigger",
            Activity::Signal => "signal",
            Activity::Deferred => "deferred",
            Activity::Wait => "wait",
            Activity::Unpack => "unpack",
            Activity::Copy => "copy",
            Activity::Kernel => "kernel",
            Activity::Function => "function",
            Activity::Enqueue => "enqueue",
            Activity::Synchronize => "synchronize",
            Activity::Mark => "mark",
        }
    }
}

/// One thing that was done, from its begin to its end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Span {
    /// Who did it.
    pub lane: Lane,
    /// What it was.
    pub activity: Activity,
    /// The activity in words, or the name of a kernel or function. An [`Activity::Enqueue`] has that of what it
    /// enqueues.
    pub name: Cow<'static, str>,
    /// When it began, in nanoseconds of [`now_ns`].
    pub begin_ns: u64,
    /// When it ended.
    pub end_ns: u64,
    /// The stream that it is about.
    pub stream: u16,
    /// The operation of that stream, counted from 0 as they are enqueued; `None` for what is no operation, or was
    /// enqueued before the recording began.
    pub operation: Option<u64>,
    /// The rank that a payload is for.
    pub peer: Option<usize>,
    /// Bytes that were moved.
    pub bytes: Option<usize>,
    /// What words were set to or waited for: the epoch of an exchange, or a count.
    pub value: Option<u32>,
}

impl Span {
    /// Whether the host did nothing but wait: for a stream, or for messages itself.
    pub fn is_host_waiting(&self) -> bool {
        self.lane == Lane::Host && matches!(self.activity, Activity::Synchronize | Activity::Wait)
    }
}
