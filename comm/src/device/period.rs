//! Replaying a period of a stream.

use super::capture::refusal;
use super::host_state::HostState;
use super::operation::Operation;
use super::section::Intent;
use super::sequence::{Replay, Sequence};
use super::standing::{COUNTS, Counts, Stage, Standing};
use super::stream::Stream;
use super::uses::BufferUses;
use crate::error::{Error, Result};
use crate::fabric::Executor;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

/// A period of a stream, to be [replayed](Stream::replay) on it: exchanges, and the kernels and moves between them.
/// It keeps the memory that they use, whoever else lets go of it.
pub struct Period {
    pub(super) stream: u64,
    pub(super) sequence: Arc<Sequence>,
    pub(super) exchanges: Vec<Captured>,
    /// What it depends on, as it has to be whenever it is replayed.
    pub(super) states: Vec<(HostState, u32)>,
    /// What its operations do with buffers.
    pub(super) uses: Vec<CapturedUse>,
}

/// The part of a buffer that an operation uses.
pub(super) type CapturedUse = (Arc<BufferUses>, Range<usize>, Intent);

/// An exchange of a period.
pub(super) struct Captured {
    standing: Standing,
    /// Its counts at the capture, and how far they move on in a period.
    before: [u32; COUNTS],
    pub(super) strides: [u32; COUNTS],
}

impl Period {
    /// How many operations it has.
    pub fn operations(&self) -> usize {
        self.sequence.steps.len()
    }

    /// Who puts the operations of a replay where they run: [`Executor::Stream`] if the stream itself does (on a
    /// device: a graph, with one call for the whole period), [`Executor::Proxy`] if the stream's thread does, one after
    /// the other, for the [reason](Period::reason) that is given.
    pub fn executor(&self) -> Executor {
        if self.reason().is_none() { Executor::Stream } else { Executor::Proxy }
    }

    /// Why the device does not replay it by itself; `None` where it does, and on the host.
    pub fn reason(&self) -> Option<&str> {
        match self.sequence.prepared.get() {
            Some(Ok(Some(reason))) => Some(reason),
            _ => None,
        }
    }
}

impl fmt::Debug for Period {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Period({} operations of stream {})", self.operations(), self.stream)
    }
}

impl Captured {
    /// Of an exchange that stood so before the period and behind it.
    ///
    /// # Errors
    /// [`crate::Error::NotCapturable`] if it cannot be replayed from there.
    pub(super) fn between(standing: Standing, before: Counts, after: Counts) -> Result<Self> {
        if after.stage != Stage::Idle {
            return Err(refusal("an exchange that is begun only", "finish it within the period"));
        }
        let (from, to) = (before.numbers(), after.numbers());
        let strides: [u32; COUNTS] = std::array::from_fn(|index| to[index].wrapping_sub(from[index]));
        if !strides[0].is_multiple_of(2) {
            let count = strides[0];
            let reason = format!(
                "buffers and generations are used in turn, so that a period has an even number of each exchange: {} or {}",
                count - 1,
                count + 1
            );
            return Err(refusal(format!("a period with {count} of an exchange"), &reason));
        }
        Ok(Self { standing, before: from, strides })
    }
}

/// What is no more as it was.
pub(super) fn changed(states: &[(HostState, u32)]) -> Option<&'static str> {
    states.iter().find(|(state, before)| state.peek() != *before).map(|(state, _)| state.what())
}

impl Stream {
    /// Enqueues a period that was captured on this stream, `times` times. Blocks as the operations of the period do: not
    /// at all, but on an inline stream and while the stream has no room.
    ///
    /// All ranks of its exchanges have to replay it, or to enqueue as many exchanges as it has: the other side does not
    /// see the difference. What is enqueued in between goes on with the epochs that replays have come to.
    ///
    /// # Errors
    /// [`Error::WrongStream`]; [`Error::OutOfOrder`] if an exchange of the period is in flight, or would begin in the
    /// other generation, as after an odd number of exchanges in between, if a field of it is in another generation or has
    /// other ghosts to read than at the capture, or if there is a view of any array of the stream; [`Error::InUse`] if an
    /// operation has begun that uses a part of a buffer in a way that forbids what the period does with it;
    /// [`Error::NotCapturable`] within a capture; [`Error::OutOfOrder`] from within an operation that an inline stream runs.
    /// Nothing is enqueued then.
    pub fn replay(&self, period: &Period, times: u64) -> Result<()> {
        if period.stream != self.id() {
            return Err(Error::WrongStream { what: "a period", owner: period.stream, used: self.id() });
        }
        self.refuse_capture("a replay", "a period has no others in it; capture its operations instead")?;
        self.refuse_within_operation("replay")?;
        let out_of_order = |reason: &str| Err(Error::OutOfOrder { call: "replay", reason: reason.into() });
        // Of whatever array: what a period writes is not looked up for each replay.
        if !self.views().borrow().is_empty() {
            return out_of_order("the host looks at an array of the stream: drop the view first");
        }
        let mut moved = Vec::with_capacity(COUNTS * period.exchanges.len());
        for exchange in &period.exchanges {
            let counts = exchange.standing.get();
            if counts.stage != Stage::Idle {
                return out_of_order("finish the exchange of the period that is in flight first");
            }
            let numbers = counts.numbers();
            let so_far: [u32; COUNTS] =
                std::array::from_fn(|index| numbers[index].wrapping_sub(exchange.before[index]));
            if !so_far[0].is_multiple_of(2) {
                return out_of_order(
                    "an odd number of exchanges has been enqueued since the capture, and the period begins in the other \
                     generation: enqueue one more",
                );
            }
            moved.extend(so_far);
        }
        if let Some(what) = changed(&period.states) {
            return out_of_order(&format!(
                "{what} is another than at the capture: bring the field to where the period begins first"
            ));
        }
        for (of, bytes, intent) in &period.uses {
            of.check(bytes, *intent, "a replay", |held| !held.is_ahead)?;
        }
        if times == 0 {
            return Ok(());
        }
        if let Some((next, passed)) = self.positions() {
            let uses = period.uses.iter().cloned();
            uses.for_each(|(of, bytes, intent)| of.add(bytes, intent, next, passed));
        }
        let sequence = period.sequence.clone();
        let replay = Operation::Replay(Box::new(Replay { sequence, moved, times }));
        self.while_replaying(|| self.put(replay));
        for Captured { standing, strides, .. } in &period.exchanges {
            standing.move_on(*strides, times);
        }
        Ok(())
    }
}
