//! Where spans are kept: bounded memory that is set aside at the start.

use super::{Activity, Lane, Span, Timeline};
use crate::error::Result;
use crate::locks::lock;
use crate::room::room_for;
use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

/// A span without what its recording knows of it.
#[derive(Debug, Clone)]
pub(crate) struct Draft {
    pub(crate) activity: Activity,
    pub(crate) name: Cow<'static, str>,
    pub(crate) operation: Option<u64>,
    pub(crate) peer: Option<usize>,
    pub(crate) bytes: Option<usize>,
    pub(crate) value: Option<u32>,
}

impl Draft {
    /// Of something with a name, and nothing else that is known of it.
    pub(crate) fn new(activity: Activity, name: impl Into<Cow<'static, str>>) -> Self {
        Self { activity, name: name.into(), operation: None, peer: None, bytes: None, value: None }
    }
}

/// The part of a stream in a timeline, which other streams of its rank may share.
#[derive(Debug, Clone)]
pub(crate) struct Recording {
    shared: Arc<Shared>,
    stream: u16,
    numbers: Arc<Numbers>,
}

/// How far a stream has come. The host counts one, the executor the other.
#[derive(Debug, Default)]
struct Numbers {
    enqueued: AtomicU64,
    begun: AtomicU64,
}

#[derive(Debug)]
struct Shared {
    rank: usize,
    kept: Mutex<Kept>,
}

#[derive(Debug)]
struct Kept {
    spans: VecDeque<Span>,
    capacity: usize,
    dropped: u64,
    streams: u16,
}

impl Recording {
    /// A timeline with room for that many spans, and its first stream.
    pub(crate) fn new(rank: usize, capacity: usize) -> Result<Self> {
        let spans = VecDeque::from(room_for(capacity, &format!("a timeline of {capacity} spans"))?);
        let kept = Mutex::new(Kept { spans, capacity, dropped: 0, streams: 1 });
        Ok(Self { shared: Arc::new(Shared { rank, kept }), stream: 0, numbers: Arc::default() })
    }

    /// The same timeline for one more stream.
    pub(crate) fn join(&self) -> Self {
        let mut kept = self.kept();
        let stream = kept.streams;
        kept.streams += 1;
        Self { shared: self.shared.clone(), stream, numbers: Arc::default() }
    }

    /// Whether both are the same part of the same timeline.
    pub(crate) fn is(&self, other: &Recording) -> bool {
        Arc::ptr_eq(&self.numbers, &other.numbers)
    }

    /// The number of the operation that the host enqueues now.
    pub(crate) fn enqueue(&self) -> u64 {
        self.numbers.enqueued.fetch_add(1, Ordering::Relaxed)
    }

    /// The number of the operation that the executor begins now.
    pub(crate) fn begin(&self) -> u64 {
        self.numbers.begun.fetch_add(1, Ordering::Relaxed)
    }

    /// Keeps a span, and lets go of the oldest if there is no room.
    pub(crate) fn note(&self, on_host: bool, draft: Draft, begin_ns: u64, end_ns: u64) {
        let Draft { activity, name, operation, peer, bytes, value } = draft;
        let stream = self.stream;
        let lane = if on_host { Lane::Host } else { Lane::Stream(stream) };
        self.kept().push(Span {
            lane,
            activity,
            name,
            begin_ns,
            end_ns,
            stream,
            operation,
            peer,
            bytes,
            value,
        });
    }

    /// What was kept of all streams, which are left with an empty timeline.
    pub(crate) fn take(&self) -> Timeline {
        let mut kept = self.kept();
        let mut spans: Vec<Span> = kept.spans.drain(..).collect();
        let dropped = std::mem::take(&mut kept.dropped);
        // Stable: of spans that take no time at all the one that ended first comes first.
        spans.sort_by_key(|span| (span.begin_ns, Reverse(span.end_ns)));
        Timeline { rank: self.shared.rank, spans, dropped }
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        lock(&self.shared.kept)
    }
}

impl Kept {
    fn push(&mut self, span: Span) {
        if self.spans.len() == self.capacity {
            self.dropped += 1;
            if self.spans.pop_front().is_none() {
                return;
            }
        }
        self.spans.push_back(span);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Error;

    fn named(recording: &Recording, name: &str, begin_ns: u64, end_ns: u64) {
        recording.note(false, Draft::new(Activity::Kernel, name.to_owned()), begin_ns, end_ns);
    }

    #[test]
    fn the_newest_are_kept_and_the_others_counted() -> Result<()> {
        for (capacity, kept, dropped) in [(0, vec![], 5), (2, vec!["3", "4"], 3), (9, vec!["0", "1"], 0)] {
            let recording = Recording::new(7, capacity)?;
            for number in 0..kept.len() as u64 + dropped {
                named(&recording, &number.to_string(), number, number + 1);
            }
            let timeline = recording.take();
            let names: Vec<_> = timeline.spans.iter().map(|span| &*span.name).collect();
            assert_eq!((names, timeline.dropped, timeline.rank), (kept, dropped, 7));
            assert_eq!(recording.take().spans, [], "what was taken is gone");
        }
        Ok(())
    }

    #[test]
    fn what_lies_within_another_comes_behind_it() -> Result<()> {
        let recording = Recording::new(0, 10)?;
        named(&recording, "inner", 5, 6);
        named(&recording, "outer", 5, 9);
        let joined = recording.join();
        named(&joined, "first", 1, 20);
        let spans = recording.take().spans;
        let found: Vec<_> = spans.iter().map(|span| (&*span.name, span.lane)).collect();
        let [zero, one] = [0, 1].map(Lane::Stream);
        assert_eq!(found, [("first", one), ("outer", zero), ("inner", zero)]);
        Ok(())
    }

    #[test]
    fn more_than_can_be_addressed_is_an_error() {
        let refused = Recording::new(0, usize::MAX).expect_err("nobody has that much");
        assert!(matches!(refused, Error::OutOfMemory { .. }), "{refused}");
    }
}
