//! What the executor of a stream shares with its owner, and the points in streams that others wait for.

use super::counts::{Count, Counts};
use crate::error::{Error, Result};
use crate::fabric::WaitContext;
use crate::locks::lock;
use crate::timeline::Recording;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex};

/// What the executor of a stream shares with its owner.
#[derive(Debug)]
pub(crate) struct Status {
    /// [`FAILED`], [`RECORDED`] and [`CAPTURED`]: one look says whether an operation is just to be carried out.
    state: AtomicU8,
    /// Whether the stream's owner has been given the error.
    is_told: AtomicBool,
    first_error: Mutex<Option<Error>>,
    recording: Mutex<Option<Recording>>,
    counts: Counts,
    pub(crate) context: Arc<WaitContext>,
}

/// An operation has failed.
const FAILED: u8 = 1;
/// A timeline is kept.
const RECORDED: u8 = 2;
/// Operations are captured; only the stream's owner cares.
const CAPTURED: u8 = 4;

impl Status {
    pub(super) fn new(context: Arc<WaitContext>) -> Self {
        Self {
            state: AtomicU8::new(0),
            is_told: AtomicBool::new(false),
            first_error: Mutex::new(None),
            recording: Mutex::new(None),
            counts: Counts::default(),
            context,
        }
    }

    /// Counts `more` of that.
    pub(crate) fn count(&self, what: Count, more: u64) {
        self.counts.add(what, more);
    }

    /// How many of that have been counted.
    pub(super) fn counted(&self, what: Count) -> u64 {
        self.counts.of(what)
    }

    /// Whether operations are carried out, and nothing else.
    #[inline(always)]
    pub(crate) fn is_plain(&self) -> bool {
        self.state.load(Ordering::Acquire) == 0
    }

    /// Whether an operation has failed, so that the rest is skipped.
    #[inline(always)]
    pub(crate) fn has_failed(&self) -> bool {
        self.state.load(Ordering::Acquire) & FAILED != 0
    }

    /// Whether a timeline is kept.
    #[inline(always)]
    pub(crate) fn is_recorded(&self) -> bool {
        self.state.load(Ordering::Acquire) & RECORDED != 0
    }

    /// Whether operations are captured, and not carried out.
    #[inline(always)]
    pub(crate) fn is_captured(&self) -> bool {
        self.state.load(Ordering::Relaxed) & CAPTURED != 0
    }

    pub(super) fn set_captured(&self, is_captured: bool) {
        match is_captured {
            true => self.state.fetch_or(CAPTURED, Ordering::Relaxed),
            false => self.state.fetch_and(!CAPTURED, Ordering::Relaxed),
        };
    }

    /// Keeps the first error and tells the other ranks. In this order: a wait of this rank that
    /// ends because of it must find the error.
    pub(crate) fn fail(&self, error: Error) {
        let told = error.to_string();
        lock(&self.first_error).get_or_insert(error);
        self.state.fetch_or(FAILED, Ordering::Release);
        self.context.abort.raise(self.context.rank, &told);
    }

    /// The first error, if an operation has failed.
    pub(super) fn result(&self) -> Result<()> {
        if !self.has_failed() {
            return Ok(());
        }
        self.is_told.store(true, Ordering::Relaxed);
        let error = lock(&self.first_error);
        Err(error.clone().expect("a failed stream has an error"))
    }

    /// Writes the first error to standard error, if there is one that nobody has been given. A rank that panics has more to
    /// say.
    pub(super) fn say_untold(&self) {
        if self.is_told.load(Ordering::Relaxed) || std::thread::panicking() {
            return;
        }
        if let Err(error) = self.result() {
            let rank = self.context.rank;
            eprintln!("rank {rank}: a stream was dropped that had failed, and nobody had asked it: {error}");
        }
    }

    /// The stream's part in a timeline, if one is kept.
    pub(crate) fn recording(&self) -> Option<Recording> {
        lock(&self.recording).clone()
    }

    /// Begins or ends keeping a timeline, while nothing is on the stream.
    pub(super) fn record(&self, recording: Option<Recording>) {
        let is_recorded = recording.is_some();
        *lock(&self.recording) = recording;
        match is_recorded {
            true => self.state.fetch_or(RECORDED, Ordering::Release),
            false => self.state.fetch_and(!RECORDED, Ordering::Release),
        };
    }
}

/// A point in a stream that other streams can wait for.
#[derive(Debug, Clone, Default)]
pub struct Event {
    reached: Arc<AtomicBool>,
}

impl Event {
    /// An event that nothing has recorded yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether a stream has come to the point where it was recorded.
    pub fn is_complete(&self) -> bool {
        self.reached.load(Ordering::Acquire)
    }

    pub(crate) fn complete(&self) {
        self.reached.store(true, Ordering::Release);
    }
}
