//! Capturing a period of a stream: operations that are captured once and [replayed](super::period) with one call.
//!
//! A capture carries nothing out and sets back what the host has counted meanwhile; a replay moves the counts on, so that
//! replays and what is enqueued as ever may alternate. See `docs/design/0023-periods.md`.

use super::host_state::HostState;
use super::operation::Operation;
use super::period::{Captured, CapturedUse, Period, changed};
use super::section::Intent;
use super::sequence::{Due, Sequence, Step};
use super::standing::{COUNTS, Counts, Reading, Stage, Standing};
use super::stream::Stream;
use super::stream_kind::StreamKind;
use super::uses::BufferUses;
use crate::error::{Error, Result};
use crate::timeline::Activity;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What cannot be counted on by a device or a thread, since the host counts it.
const COUNTED_BY_HOST: &str = "what it sets and waits for is counted by the host, call by call; capture exchanges of \
                               `match_exchange`, or what is made of them";

/// What can be captured whole only.
const BEGUN_BEFORE: &str = "its exchange was begun before the capture; begin and finish it within, or before";

/// What a capture has so far.
pub(super) struct Capture {
    /// Which one it is, of all that there are.
    number: u64,
    steps: Vec<Step>,
    /// Those that take part, and where they stood before.
    exchanges: Vec<(Standing, Counts)>,
    /// What it depends on, as it was before.
    states: Vec<(HostState, u32)>,
    uses: Vec<CapturedUse>,
    /// The first thing that could not be captured.
    refused: Option<Error>,
}

/// The error that something is no part of a period.
pub(super) fn refusal(what: impl Into<String>, reason: &str) -> Error {
    Error::NotCapturable { what: what.into(), reason: reason.into() }
}

impl Capture {
    /// Takes an operation, which goes with that count of an exchange.
    fn take(&mut self, operation: Operation, reading: Reading<'_>, on_device: bool) {
        match self.step(operation, reading, on_device) {
            Ok(step) => self.steps.push(step),
            Err(error) => self.refuse(error),
        }
    }

    fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self {
            number: NEXT.fetch_add(1, Ordering::Relaxed),
            steps: Vec::new(),
            exchanges: Vec::new(),
            states: Vec::new(),
            uses: Vec::new(),
            refused: None,
        }
    }

    fn refuse(&mut self, error: Error) {
        self.refused.get_or_insert(error);
    }

    fn due(&self, what: &str, reading: Reading<'_>) -> Result<Due> {
        let Some((standing, which)) = reading.of else { return Err(refusal(what, COUNTED_BY_HOST)) };
        let index = self
            .exchanges
            .iter()
            .position(|(known, _)| known.is(standing))
            .ok_or_else(|| refusal(what, BEGUN_BEFORE))?;
        Ok(Due { value: reading.value, count: COUNTS * index + which })
    }

    fn step(&self, operation: Operation, reading: Reading<'_>, on_device: bool) -> Result<Step> {
        Ok(match operation {
            Operation::Move(moves) => Step::Move(moves),
            Operation::Signal(signals, _) => Step::Signal(signals, self.due("a signal", reading)?),
            Operation::Send(send, _) => Step::Send(send, self.due("a send", reading)?),
            Operation::Wake(waits) => Step::Wake(waits),
            Operation::Wait(waits, _) => Step::Wait(waits, self.due("a wait", reading)?),
            Operation::Launch(launch) => Step::Launch(launch),
            Operation::Kernel(kernel) if !on_device => Step::Kernel(kernel),
            Operation::Kernel(kernel) => {
                let what = format!("kernel `{}`, which the host runs,", kernel.name);
                return Err(refusal(
                    what,
                    "the device would have to come to rest for it; use `launch_either`",
                ));
            }
            Operation::Ready(..) => return Err(refusal("a ready send", COUNTED_BY_HOST)),
            Operation::Host(Activity::Mark, name, _) => {
                return Err(refusal(format!("mark `{name}`"), "a timeline notes it once"));
            }
            Operation::Host(_, name, _) => {
                let reason = "the host runs it once; enqueue it before or behind the replay";
                return Err(refusal(format!("host function `{name}`"), reason));
            }
            Operation::Clock(_) => {
                return Err(refusal(
                    "a reading of the clock",
                    "it tells one time; read it before or behind the replay",
                ));
            }
            Operation::Record(_) | Operation::WaitEvent(_) => {
                let reason = "it is reached once; record and wait for events before or behind the replay";
                return Err(refusal("an event", reason));
            }
            Operation::Finish | Operation::Prepare(_) | Operation::Replay(_) => {
                unreachable!("asked before they are put on a stream")
            }
        })
    }
}

/// How things stand at the end of a capture.
struct Ended {
    counts: Vec<Counts>,
    /// What of the host's is not as it was before.
    changed: Option<&'static str>,
}

/// Ends the capture of a stream, whatever happens while it is captured.
struct Ending<'a>(&'a Stream);

impl Ending<'_> {
    /// What has been captured, with the counts of its exchanges behind it; they are set back, and what the host keeps.
    fn end(&self) -> Option<(Capture, Ended)> {
        let capture = self.0.captured().borrow_mut().take()?;
        self.0.status().set_captured(false);
        let counts = capture.exchanges.iter().map(|(standing, _)| standing.get()).collect();
        capture.exchanges.iter().for_each(|(standing, before)| standing.set(*before));
        let changed = changed(&capture.states);
        capture.states.iter().for_each(|(state, before)| state.store(*before));
        Some((capture, Ended { counts, changed }))
    }
}

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.end();
    }
}

impl Stream {
    /// Captures what `enqueue` puts on the stream, to be [replayed](Stream::replay) as often as wanted; nothing of it is
    /// carried out now. A replay costs one call however many operations the period has and, on a device that can, no
    /// work of the host at all: see [`Period::executor`]. Blocks until what is on the stream of a device has run.
    ///
    /// A period consists of moves, kernels (on a device those of [`Stream::launch_either`]) and whole exchanges, an even
    /// number of each, since receive buffers and generations of fields are used in turn. Fields that alternate are swapped
    /// as ever within the period, and have to be back where they began at its end, and there again whenever it is replayed,
    /// with the same ghosts for kernels to read: kernels are replayed with the memory and the numbers that they were
    /// captured with, and their arguments are made within the capture. What differs is refused; see [`HostState`].
    ///
    /// ```
    /// use streamhalo_comm::device::{Buffer, Device, Extents, Tile};
    /// use streamhalo_comm::{Error, World};
    ///
    /// # fn main() -> Result<(), Error> {
    /// let world = World::alone()?;
    /// let stream = Device::host().stream(&world)?;
    /// let four = Extents { points: [1, 1, 4], components: 1 };
    /// let mut cells = Buffer::<i64>::zeros(&world, &stream, four)?;
    /// let period = stream.capture(|stream| {
    ///     stream.launch("add one", four.whole(), (cells.writer(four.whole())?,), |tile, (mut cells,)| {
    ///         cells.row(tile.start[0], tile.start[1]).iter_mut().for_each(|cell| *cell += 1);
    ///     })
    /// })?;
    /// stream.replay(&period, 5)?;
    /// assert_eq!(cells.copy_out(four.whole())?, [5; 4]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// A device makes the period ready, for which some wait until they have come to rest: where ranks share one, all of them
    /// capture, and synchronise, before one replays.
    ///
    /// # Errors
    /// [`Error::NotCapturable`], with what and why: host functions, what waits for the stream, events, exchanges of
    /// `standard` or by triggered operations of a network interface, messages, windows and queues, a number of exchanges
    /// or of collectives that is odd, exchanges that are
    /// begun or finished outside, arguments of kernels that were made before, fields that are not back where they began.
    /// What `enqueue` failed with, or the stream's error. Nothing is enqueued then, and the stream, its exchanges, and the
    /// generations and ghosts of fields are as they were.
    pub fn capture<E: From<Error>>(
        &self,
        enqueue: impl FnOnce(&Stream) -> std::result::Result<(), E>,
    ) -> std::result::Result<Period, E> {
        self.check()?;
        self.refuse_capture("a capture", "the stream is captured already")?;
        *self.captured().borrow_mut() = Some(Capture::new());
        self.status().set_captured(true);
        let ending = Ending(self);
        let enqueued = enqueue(self);
        let (capture, ended) = ending.end().expect("begun above");
        if let Some(error) = capture.refused {
            return Err(error.into());
        }
        enqueued?;
        let mut exchanges = Vec::with_capacity(ended.counts.len());
        for ((standing, before), after) in capture.exchanges.into_iter().zip(ended.counts) {
            exchanges.push(Captured::between(standing, before, after)?);
        }
        if let Some(what) = ended.changed {
            let reason = format!("{what} is another at its end than at its beginning");
            return Err(refusal("the period", &reason).into());
        }
        let strides = exchanges.iter().flat_map(|exchange| exchange.strides).collect();
        let sequence = Arc::new(Sequence::new(capture.steps, strides));
        if self.kind() == StreamKind::Device {
            self.put(Operation::Prepare(sequence.clone()));
            self.drain();
            self.check()?;
            if let Some(Err(error)) = sequence.prepared.get() {
                return Err(error.clone().into());
            }
        }
        let Capture { states, uses, .. } = capture;
        Ok(Period { stream: self.id(), sequence, exchanges, states, uses })
    }

    /// That the stream is not being captured, for what cannot be a part of a period; the capture then fails with it.
    ///
    /// # Errors
    /// [`Error::NotCapturable`].
    #[inline]
    pub(crate) fn refuse_capture(&self, what: &str, reason: &str) -> Result<()> {
        if !self.status().is_captured() {
            return Ok(());
        }
        let error = refusal(what, reason);
        if let Some(capture) = &mut *self.captured().borrow_mut() {
            capture.refuse(error.clone());
        }
        Err(error)
    }

    /// As [`Stream::refuse_capture`], for operations whose epochs the host counts by itself.
    ///
    /// # Errors
    /// [`Error::NotCapturable`].
    pub(crate) fn refuse_capture_of(&self, what: &str) -> Result<()> {
        self.refuse_capture(what, COUNTED_BY_HOST)
    }

    /// Notes where an exchange stands before a call moves it on, if the stream is being captured: it is set back then, and
    /// refused if it was begun before.
    #[inline]
    pub(crate) fn note(&self, standing: &Standing) {
        if !self.status().is_captured() {
            return;
        }
        if let Some(capture) = &mut *self.captured().borrow_mut()
            && !capture.exchanges.iter().any(|(known, _)| known.is(standing))
        {
            let counts = standing.get();
            capture.exchanges.push((standing.clone(), counts));
            if counts.stage != Stage::Idle {
                capture.refuse(refusal("an exchange", BEGUN_BEFORE));
            }
        }
    }

    /// The number of the capture that the stream is in; 0 outside of any.
    #[inline]
    pub(crate) fn capture_number(&self) -> u64 {
        match self.status().is_captured() {
            true => self.captured().borrow().as_ref().map_or(0, |capture| capture.number),
            false => 0,
        }
    }

    /// The error that an argument of a kernel was made outside of the capture that the stream is in, or in one that has
    /// ended: with it would be lost what its bounds depend on, or what was put back behind it.
    #[cold]
    pub(crate) fn made_elsewhere(&self, kernel: &str) -> Error {
        let before = "an argument of it was made before the capture; make it within";
        let ended = "an argument of it was made in a capture that has ended; make it anew";
        match self.refuse_capture(&format!("kernel `{kernel}`"), before) {
            Err(error) => error,
            Ok(()) => Error::OutOfOrder { call: "launch", reason: format!("kernel `{kernel}`: {ended}") },
        }
    }

    /// Notes what the host has kept before that is used or changed, if the stream is being captured.
    #[inline]
    pub(super) fn note_state(&self, state: &HostState) {
        if self.status().is_captured() {
            self.note_captured(state);
        }
    }

    #[cold]
    fn note_captured(&self, state: &HostState) {
        if let Some(capture) = &mut *self.captured().borrow_mut()
            && !capture.states.iter().any(|(known, _)| known.is(state))
        {
            capture.states.push((state.clone(), state.peek()));
        }
    }

    /// Notes that the operation which is put on it next does that with a part of a buffer.
    pub(super) fn note_use(&self, of: &Arc<BufferUses>, bytes: Range<usize>, intent: Intent) {
        match &mut *self.captured().borrow_mut() {
            Some(capture) => capture.uses.push((of.clone(), bytes, intent)),
            None => {
                if let Some((next, passed)) = self.positions() {
                    of.add(bytes, intent, next, passed);
                }
            }
        }
    }

    /// Takes an operation into the capture that there is.
    #[cold]
    pub(super) fn put_captured(&self, operation: Operation, reading: Reading<'_>) {
        let on_device = self.kind() == StreamKind::Device;
        if let Some(capture) = &mut *self.captured().borrow_mut() {
            capture.take(operation, reading, on_device);
        }
    }
}
