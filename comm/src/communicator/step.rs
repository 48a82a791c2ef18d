//! One step of a collective call: messages to and from some ranks, all at once.

use super::Communicator;
use super::call::Call;
use super::request::Kind;
use super::slots::Ticket;
use super::tickets::Contents;
use crate::element::Element;
use crate::error::{Error, Result};
use crate::fabric::{Place, bytes_of, bytes_of_mut, elements_of_mut};
use crate::room::room_for;
use crate::source::{Source, Tag};
use std::ops::Range;

/// The messages of a step in one direction: so many, each with a rank and its part of one vector. Nothing is
/// listed, so that nothing is allocated.
#[derive(Clone, Copy)]
pub(super) struct Parts<'a> {
    pub(super) count: usize,
    pub(super) part: &'a dyn Fn(usize) -> (usize, Range<usize>),
}

impl Parts<'_> {
    const NONE: Parts<'static> = Parts { count: 0, part: &|_| (0, 0..0) };

    /// The rank of each, and its bytes in a vector of that type.
    fn of<T>(self) -> impl Iterator<Item = (usize, Range<usize>)> {
        (0..self.count).map(move |index| {
            let (rank, Range { start, end }) = (self.part)(index);
            (rank, start * size_of::<T>()..end * size_of::<T>())
        })
    }
}

/// What collective calls of a communicator use again and again.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    /// For elements of any type, of which none has more than eight bytes.
    words: Vec<u64>,
    tickets: Vec<Ticket>,
    /// Whether there is memory for messages of ranks that are ahead.
    is_prepared: bool,
    /// Calls that only neighbours make: how many there were, and by rank, the last one with it and how many with it.
    calls_of_pairs: u32,
    pairs: Vec<[u32; 2]>,
}

/// How many messages another rank may be ahead in calls that depend on each other: it gets no further than to what
/// it needs from this one.
const AHEAD_OF_EACH: usize = 4;
/// Ahead of all ranks together, memory is made for so many.
const AHEAD_OF_ALL: usize = 64;

impl Communicator {
    /// Sends a vector to a rank, and blocks until that is done.
    pub(super) fn send_step<T: Element>(&self, call: Call, to: usize, sent: &[T]) -> Result<()> {
        let whole = &|_| (to, 0..sent.len());
        self.step::<T>(call, (sent, Parts { count: 1, part: whole }), (&mut [], Parts::NONE))
    }

    /// Receives a vector from a rank, and blocks until it is there.
    pub(super) fn receive_step<T: Element>(&self, call: Call, from: usize, received: &mut [T]) -> Result<()> {
        let elements = received.len();
        let whole = &|_| (from, 0..elements);
        self.step::<T>(call, (&[], Parts::NONE), (received, Parts { count: 1, part: whole }))
    }

    /// Both at once.
    pub(super) fn exchange_step<T: Element>(
        &self,
        call: Call,
        (to, sent): (usize, &[T]),
        (from, received): (usize, &mut [T]),
    ) -> Result<()> {
        let elements = received.len();
        let sends = Parts { count: 1, part: &|_| (to, 0..sent.len()) };
        let receives = Parts { count: 1, part: &|_| (from, 0..elements) };
        self.step(call, (sent, sends), (received, receives))
    }

    /// Sends and receives at once, and blocks until all is done.
    pub(super) fn step<T: Element>(
        &self,
        call: Call,
        (sent, sends): (&[T], Parts<'_>),
        (received, receives): (&mut [T], Parts<'_>),
    ) -> Result<()> {
        let scratch = &self.inner.scratch;
        if !std::mem::replace(&mut scratch.borrow_mut().is_prepared, true) {
            let mut engine = self.lock();
            let bytes = (0..self.size()).map(|peer| engine.longest_eager(peer)).max().unwrap_or(0);
            engine.reserve((AHEAD_OF_EACH * (self.size() - 1)).min(AHEAD_OF_ALL), bytes);
        }
        let mut tickets = std::mem::take(&mut scratch.borrow_mut().tickets);
        let done = self.try_step::<T>(
            call,
            (bytes_of(sent), sends),
            (bytes_of_mut(received), receives),
            &mut tickets,
        );
        if done.is_err() {
            // What is left goes on by itself, in memory that nobody else gets.
            let mut engine = self.lock();
            for ticket in &tickets {
                if engine.is_known(*ticket) {
                    engine.free(*ticket);
                }
            }
        }
        tickets.clear();
        scratch.borrow_mut().tickets = tickets;
        self.or_fail(call.name, done)
    }

    /// A rank that cannot make its part of a collective call tells the others, which would wait for it.
    pub(super) fn or_fail<R>(&self, call: &'static str, done: Result<R>) -> Result<R> {
        done.map_err(|error| {
            self.world().fail(&format!("{call}: {error}"));
            verdict(call, &error).unwrap_or(error)
        })
    }

    /// Counts a call that only neighbours make, for each of them: with others they may have made more, or fewer.
    pub(super) fn count_pairs(&self, neighbours: impl Iterator<Item = usize>) {
        let mut scratch = self.inner.scratch.borrow_mut();
        let Scratch { calls_of_pairs, pairs, .. } = &mut *scratch;
        pairs.resize(self.size(), [0; 2]);
        *calls_of_pairs = calls_of_pairs.wrapping_add(1);
        for rank in neighbours {
            let [last, calls] = &mut pairs[rank];
            if *last != *calls_of_pairs {
                (*last, *calls) = (*calls_of_pairs, calls.wrapping_add(1));
            }
        }
    }

    /// The call, as messages between this rank and that one say it.
    fn with(&self, call: Call, rank: usize) -> Call {
        if call.is_of_pairs() { call.numbered(self.inner.scratch.borrow().pairs[rank][1]) } else { call }
    }

    fn try_step<T: Element>(
        &self,
        call: Call,
        (sent, sends): (&[u8], Parts<'_>),
        (received, receives): (&mut [u8], Parts<'_>),
        tickets: &mut Vec<Ticket>,
    ) -> Result<()> {
        let bytes = receives.of::<T>().chain(sends.of::<T>()).map(|(_, part)| padded(part.len())).sum();
        let staged = self.inner.pool.borrow_mut().take(bytes)?;
        // Receives lie before sends.
        let mut rest = Rest { staged: &staged, next: 0 };
        let mut engine = self.lock();
        for (from, part) in receives.of::<T>() {
            let place = rest.take(part.len())?;
            let kind = Kind::Recv { source: Source::Rank(from), tag: Tag::Value(self.with(call, from).tag) };
            tickets.push(engine.begin(kind, Contents::Place(&place, part.len(), Some(T::TYPE)))?);
        }
        for (to, part) in sends.of::<T>() {
            let place = rest.take(part.len())?;
            place.write(&sent[part.clone()])?;
            let kind = Kind::Send { destination: to, tag: self.with(call, to).tag };
            tickets.push(engine.begin(kind, Contents::Place(&place, part.len(), Some(T::TYPE)))?);
        }
        drop(engine);
        let expected = receives.of::<T>().map(|(_, part)| Some(part.len()));
        for (ticket, expected) in tickets.iter().zip(expected.chain(std::iter::repeat(None))) {
            self.wait_for_part(call, *ticket, expected)?;
        }
        let mut rest = Rest { staged: &staged, next: 0 };
        for (_, part) in receives.of::<T>() {
            rest.take(part.len())?.read(&mut received[part])?;
        }
        self.inner.pool.borrow_mut().give_back(&staged);
        Ok(())
    }

    /// Waits for a message, of which it is known how long it is to be if it is received.
    fn wait_for_part(&self, call: Call, ticket: Ticket, expected: Option<usize>) -> Result<()> {
        let failed = |rank: usize, reason: String| Error::CollectiveFailed { call: call.name, rank, reason };
        let differs = |rank: usize, tag: u32, what: String| {
            let asks = "do all ranks give as many elements of one type?";
            let other = self.with(call, rank).differs_before_length(tag, self.rank());
            failed(rank, other.unwrap_or_else(|| format!("it sent {what}; {asks}")))
        };
        let lengths = |found: usize, expected: usize| {
            format!("{found} bytes where rank {} expects {expected}", self.rank())
        };
        let context = self.host().context();
        match (self.host().wait(ticket), expected) {
            (Err(Error::Truncated { sender, tag, message_bytes, room_bytes }), _) => {
                Err(differs(sender, tag, lengths(message_bytes, room_bytes)))
            }
            (Err(Error::MessageMismatch { sender, tag, asked, found }), _) => {
                Err(differs(sender, tag, format!("{found} where rank {} expects {asked}", self.rank())))
            }
            (Ok(status), Some(expected)) if status.bytes != expected => {
                Err(differs(status.source, status.tag, lengths(status.bytes, expected)))
            }
            (Ok(status), Some(_)) => match self.with(call, status.source).differs(status.tag, self.rank()) {
                Some(reason) => Err(failed(status.source, reason)),
                None => Ok(()),
            },
            // Whoever has failed may have dropped the memory that a message was to go to.
            (Err(Error::System { .. }), _) if context.abort.failure().is_some() => {
                Err(context.peer_failure())
            }
            (status, _) => status.map(|_| ()),
        }
    }

    /// Lends memory for that many elements, of which nothing is known.
    pub(super) fn with_scratch<T: Element, R>(
        &self,
        call: Call,
        elements: usize,
        work: impl FnOnce(&mut [T]) -> Result<R>,
    ) -> Result<R> {
        let mut words = std::mem::take(&mut self.inner.scratch.borrow_mut().words);
        let needed = (elements * size_of::<T>()).div_ceil(size_of::<u64>());
        if needed > words.len() {
            // What was in it is of no use any more.
            words = self.or_fail(call.name, room_for(needed, "values of a collective call"))?;
            words.resize(needed, 0);
        }
        let result = work(&mut elements_of_mut(&mut words)[..elements]);
        self.inner.scratch.borrow_mut().words = words;
        result
    }
}

/// What another rank has found in a call of that name, where that is that ranks do not agree: so all say it in one way, whoever
/// finds it first. Ranks are told of failures in words and no more, so it is read out of them.
fn verdict(call: &'static str, error: &Error) -> Option<Error> {
    let Error::PeerFailed { operation, .. } = error else { return None };
    let told = operation.strip_prefix(call)?.strip_prefix(": rank ")?;
    let (rank, reason) = told.split_once(&format!(" could not take part in `{call}`: "))?;
    Some(Error::CollectiveFailed { call, rank: rank.parse().ok()?, reason: reason.into() })
}

/// Memory that is handed out from its beginning on.
struct Rest<'a> {
    staged: &'a Place,
    next: usize,
}

impl Rest<'_> {
    fn take(&mut self, bytes: usize) -> Result<Place> {
        let place = self.staged.advance(self.next, bytes, "a message of a collective call");
        self.next += padded(bytes);
        place
    }
}

/// Every message of a step has cache lines of its own.
fn padded(bytes: usize) -> usize {
    bytes.next_multiple_of(64)
}
