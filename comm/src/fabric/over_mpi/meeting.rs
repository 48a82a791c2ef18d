//! Meetings over MPI: rank 0 gathers with messages, so that it can say who is missing, and broadcasts.

use super::attendance::Attendance;
use super::communicators::Communicators;
use crate::error::{Error, Result};
use crate::fabric::WaitContext;
use crate::fabric::mpi::{Communicator, Request};
use crate::meeting::Meeting;
use std::cell::{Cell, OnceCell};
use std::sync::Arc;
use std::time::Duration;

/// Messages to rank 0.
const GATHER: i32 = 1;
/// What goes before the data of a rank: the number of the call, and which it is.
const HEADER_BYTES: usize = 8;
const BARRIER: u32 = 1;
const ALL_GATHER: u32 = 2;
/// How much longer than rank 0 the others wait: it knows who is missing, and tells them.
const GRACE: Duration = Duration::from_secs(1);

/// Where the ranks of one communicator meet.
#[derive(Debug)]
pub(super) struct MpiMeeting {
    all: Arc<Communicators>,
    communicator: Communicator,
    rank: usize,
    size: usize,
    calls: Cell<u32>,
    /// Of a call that this rank has given up. Others may have come to its end: what they have told would be taken for the
    /// answer to the next one.
    failed: OnceCell<Error>,
    /// None where ranks may stay away: a call that fails does not end the job, and nobody is told who leaves.
    attendance: Option<Attendance>,
}

impl MpiMeeting {
    /// Over a communicator that nobody else uses.
    pub(super) fn new(
        all: Arc<Communicators>,
        communicator: Communicator,
        attendance: Option<Attendance>,
    ) -> Result<Self> {
        let (rank, size) = (communicator.rank()?, communicator.size()?);
        Ok(Self { all, communicator, rank, size, calls: Cell::new(0), failed: OnceCell::new(), attendance })
    }

    /// Every rank's data, by rank, on all of them.
    fn meet(&self, context: &WaitContext, kind: u32, data: &[u8]) -> Result<Vec<Vec<u8>>> {
        if let Some(error) = self.failed.get() {
            return Err(error.clone());
        }
        self.calls.set(self.calls.get().wrapping_add(1));
        let header = header(self.calls.get(), kind);
        let message = [&header, data].concat();
        let gathered =
            if self.rank == 0 { self.gather(context, message) } else { self.send(context, message) };
        let all = gathered.and_then(|mut all| self.broadcast(context, &mut all).map(|()| all));
        if let Err(error) = &all {
            let _ = self.failed.set(error.clone());
            if self.attendance.is_some() {
                // Whoever did not come to this call will not come to the end either, which waits for all.
                let mpi = self.communicator.mpi();
                match error {
                    Error::PeerFailed { operation, .. } => mpi.poison_by(operation),
                    _ => mpi.poison(),
                }
            }
        }
        decode(&all?, header)
    }

    /// Rank 0: takes every rank's message, and puts them in one.
    fn gather(&self, context: &WaitContext, own: Vec<u8>) -> Result<Vec<u8>> {
        let mut messages: Vec<Option<Vec<u8>>> = vec![None; self.size];
        messages[0] = Some(own);
        while let Some(missing) = messages.iter().position(Option::is_none) {
            let mut found = None;
            let mut done = || {
                found = self.communicator.iprobe(GATHER)?;
                Ok(found.is_some())
            };
            self.poll(context, missing, Duration::ZERO, &mut done)?;
            let found = found.expect("the wait ends with it");
            let (rank, bytes) = (found.source, found.bytes);
            let mut message = vec![0; bytes];
            // SAFETY: the vector holds `bytes` bytes and is kept until the request is complete, or, after
            // a failure, for ever.
            let request = unsafe { self.communicator.irecv(message.as_mut_ptr(), bytes, rank, GATHER) }?;
            let waited = self.complete(context, request, rank, Duration::ZERO);
            if waited.is_err() {
                std::mem::forget(std::mem::take(&mut message));
            }
            waited?;
            messages[rank] = Some(message);
        }
        Ok(encode(&messages.into_iter().flatten().collect::<Vec<_>>()))
    }

    /// The other ranks: hands rank 0 the message.
    fn send(&self, context: &WaitContext, message: Vec<u8>) -> Result<Vec<u8>> {
        // SAFETY: the message is kept until the request is complete, or, after a failure, for ever.
        let request = unsafe { self.communicator.isend(message.as_ptr(), message.len(), 0, GATHER) }?;
        let waited = self.complete(context, request, 0, GRACE);
        if waited.is_err() {
            std::mem::forget(message);
        }
        waited.map(|()| Vec::new())
    }

    fn broadcast(&self, context: &WaitContext, all: &mut Vec<u8>) -> Result<()> {
        let mut length = Box::new(all.len() as u64);
        // SAFETY: the length is on the heap, and kept as in `send`.
        let request = unsafe { self.communicator.ibcast((&raw mut *length).cast(), size_of::<u64>(), 0) }?;
        let waited = self.complete(context, request, 0, GRACE);
        if waited.is_err() {
            std::mem::forget(length);
            return waited;
        }
        all.resize(*length as usize, 0);
        // SAFETY: the vector holds that many bytes, and is kept as in `send`.
        let request = unsafe { self.communicator.ibcast(all.as_mut_ptr(), all.len(), 0) }?;
        let waited = self.complete(context, request, 0, GRACE);
        if waited.is_err() {
            std::mem::forget(std::mem::take(all));
        }
        waited
    }

    fn complete(
        &self,
        context: &WaitContext,
        mut request: Request,
        peer: usize,
        grace: Duration,
    ) -> Result<()> {
        self.poll(context, peer, grace, &mut || Ok(request.test()?.is_some()))
    }

    fn poll(
        &self,
        context: &WaitContext,
        peer: usize,
        grace: Duration,
        done: &mut dyn FnMut() -> Result<bool>,
    ) -> Result<()> {
        let gone = || self.attendance.as_ref()?.gone(self.calls.get());
        context.poll_longer(grace, done, &gone, &|waited| self.late(context, peer, waited))
    }

    fn late(&self, context: &WaitContext, peer: usize, waited: Duration) -> Error {
        Error::TimedOut {
            rank: context.rank,
            peer,
            what: "the collective call".into(),
            wanted: self.calls.get(),
            found: self.calls.get().wrapping_sub(1),
            waited,
        }
    }
}

impl Meeting for MpiMeeting {
    fn barrier(&self, context: &WaitContext) -> Result<()> {
        self.meet(context, BARRIER, &[]).map(|_| ())
    }

    fn all_gather(&self, context: &WaitContext, data: &[u8]) -> Result<Vec<Vec<u8>>> {
        self.meet(context, ALL_GATHER, data)
    }

    fn first(&self, context: &WaitContext, ranks: usize) -> Result<Option<Box<dyn Meeting>>> {
        // Making a communicator blocks without a time-out: not before all have come. Rank 0, which is in all of them,
        // numbers them.
        let told = self.all_gather(context, &self.all.next_number().to_le_bytes())?;
        if self.rank >= ranks {
            return Ok(None);
        }
        let attendance = match (&self.attendance, told[0].first_chunk()) {
            (Some(own), Some(number)) => {
                Some(Attendance::new(own.news(), self.rank, ranks, 2 * u64::from_le_bytes(*number) + 1)?)
            }
            _ => None,
        };
        let communicator = self.all.first(&self.communicator, ranks)?;
        Ok(Some(Box::new(Self::new(self.all.clone(), communicator, attendance)?)))
    }
}

impl Drop for MpiMeeting {
    fn drop(&mut self) {
        if let Some(attendance) = &self.attendance {
            attendance.end(self.calls.get());
        }
    }
}

/// All messages in one: each with its length.
fn encode(messages: &[Vec<u8>]) -> Vec<u8> {
    let mut all = Vec::new();
    for message in messages {
        all.extend((message.len() as u64).to_le_bytes());
        all.extend(message);
    }
    all
}

/// What goes before the data of a rank.
fn header(call: u32, kind: u32) -> [u8; HEADER_BYTES] {
    let mut header = [0; HEADER_BYTES];
    header[..4].copy_from_slice(&call.to_le_bytes());
    header[4..].copy_from_slice(&kind.to_le_bytes());
    header
}

/// The data of each rank, if all have made the same call, which is this rank's.
fn decode(mut all: &[u8], own: [u8; HEADER_BYTES]) -> Result<Vec<Vec<u8>>> {
    let another = |rank, reason: &str| Error::CollectiveFailed {
        call: "a collective call",
        rank,
        reason: format!("{reason}; do all ranks make the same calls?"),
    };
    let mut data = Vec::new();
    let mut first_header = None;
    while let Some((length, rest)) = all.split_first_chunk::<8>() {
        let (message, rest) = rest.split_at(u64::from_le_bytes(*length) as usize);
        let (header, payload) = message.split_at(HEADER_BYTES);
        if *first_header.get_or_insert(header) != header {
            return Err(another(data.len(), "it made another call than rank 0"));
        }
        data.push(payload.to_vec());
        all = rest;
    }
    // This rank's own is among those of its call.
    if first_header != Some(&own) {
        return Err(another(0, "what it has told is of another call than this rank's"));
    }
    Ok(data)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(call: u32, kind: u32, data: &[u8]) -> Vec<u8> {
        [&header(call, kind), data].concat()
    }

    #[test]
    fn data_comes_back_by_rank() {
        let all = encode(&[message(7, 2, b"one"), message(7, 2, b""), message(7, 2, &[0; 99])]);
        assert_eq!(decode(&all, header(7, 2)), Ok(vec![b"one".to_vec(), vec![], vec![0; 99]]));
    }

    #[test]
    fn another_call_is_named_with_its_rank() {
        for other in [message(7, 1, b"one"), message(8, 2, b"one")] {
            let all = encode(&[message(7, 2, b"one"), message(7, 2, b"one"), other]);
            let decoded = decode(&all, header(7, 2));
            assert!(matches!(decoded, Err(Error::CollectiveFailed { rank: 2, .. })));
        }
    }

    #[test]
    fn what_was_told_in_an_earlier_call_is_no_answer() {
        let all = encode(&[message(7, 2, b"one"), message(7, 2, b"two")]);
        let decoded = decode(&all, header(8, 2));
        assert!(matches!(decoded, Err(Error::CollectiveFailed { rank: 0, .. })), "{decoded:?}");
    }
}
