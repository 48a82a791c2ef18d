//! One step of a collective call: messages to and from some ranks, all at once.

use super::Communicator;
use super::slots::Ticket;
use crate::error::{Error, Result};
use crate::fabric::Place;
use crate::source::{Source, Tag};

/// To which rank a step sends what.
pub(super) struct Sent<'a>(pub(super) usize, pub(super) &'a [u8]);
/// From which rank it receives, and where to.
pub(super) struct Received<'a>(pub(super) usize, pub(super) &'a mut [u8]);

impl Communicator {
    /// Sends and receives at once, and blocks until all is done. A rank on which that fails tells the others,
    /// which would wait for it.
    pub(super) fn step(
        &self,
        call: &'static str,
        tag: u32,
        sends: &[Sent<'_>],
        receives: &mut [Received<'_>],
    ) -> Result<()> {
        let done = self.try_step(call, tag, sends, receives);
        if let Err(error) = &done {
            self.world().fail(&format!("{call}: {error}"));
        }
        done
    }

    fn try_step(
        &self,
        call: &'static str,
        tag: u32,
        sends: &[Sent<'_>],
        receives: &mut [Received<'_>],
    ) -> Result<()> {
        let lengths = receives.iter().map(|receive| receive.1.len());
        let lengths = lengths.chain(sends.iter().map(|send| send.1.len()));
        let staged = self.inner.pool.borrow_mut().take(lengths.map(padded).sum())?;
        let mut next = 0;
        let mut place = |bytes: usize| {
            let place = staged.advance(next, bytes, "a message of a collective call");
            next += padded(bytes);
            place
        };
        let mut tickets = Vec::with_capacity(receives.len() + sends.len());
        let begun = || -> Result<Vec<Place>> {
            let mut engine = self.lock();
            let mut places = Vec::with_capacity(receives.len());
            for Received(from, bytes) in &*receives {
                let place = place(bytes.len())?;
                let (source, tag) = (Source::Rank(*from), Tag::Value(tag));
                tickets.push(engine.irecv_place(&place, bytes.len(), None, source, tag)?);
                places.push(place);
            }
            for Sent(to, bytes) in sends {
                let place = place(bytes.len())?;
                place.write(bytes)?;
                tickets.push(engine.isend_place(&place, bytes.len(), None, *to, tag)?);
            }
            Ok(places)
        }();
        let places = begun.and_then(|places| {
            self.wait_for_step(call, &mut tickets, receives)?;
            Ok(places)
        });
        match places {
            Ok(places) => {
                for (Received(_, bytes), place) in receives.iter_mut().zip(places) {
                    place.read(bytes)?;
                }
                self.inner.pool.borrow_mut().give_back(&staged);
                Ok(())
            }
            Err(error) => {
                // What is left goes on by itself, in memory that nobody else gets.
                let mut engine = self.lock();
                tickets
                    .into_iter()
                    .filter(|ticket| engine.is_known(*ticket))
                    .collect::<Vec<_>>()
                    .into_iter()
                    .for_each(|ticket| engine.free(ticket));
                Err(error)
            }
        }
    }

    fn wait_for_step(
        &self,
        call: &'static str,
        tickets: &mut Vec<Ticket>,
        receives: &[Received<'_>],
    ) -> Result<()> {
        let mut lengths = receives.iter().map(|receive| receive.1.len());
        while !tickets.is_empty() {
            let status = self.host().wait(tickets[0]);
            if status.is_err() && self.lock().is_known(tickets[0]) {
                return status.map(|_| ());
            }
            tickets.remove(0);
            let differs = |rank: usize, found: usize, expected: usize| Error::CollectiveFailed {
                call,
                rank,
                reason: format!(
                    "it sent {found} bytes where this rank expects {expected}; do all ranks give as many \
                     elements of one type?"
                ),
            };
            match (status, lengths.next()) {
                (Err(Error::Truncated { sender, message_bytes, room_bytes, .. }), _) => {
                    return Err(differs(sender, message_bytes, room_bytes));
                }
                (Ok(status), Some(expected)) if status.bytes != expected => {
                    return Err(differs(status.source, status.bytes, expected));
                }
                (status, _) => status.map(|_| ())?,
            }
        }
        Ok(())
    }
}

/// Every message of a step has cache lines of its own.
fn padded(bytes: usize) -> usize {
    bytes.next_multiple_of(64)
}
