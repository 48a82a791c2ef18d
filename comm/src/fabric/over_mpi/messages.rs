//! Exchanges as persistent messages: what carries `st-send`, `st-rsend` and `notified` over MPI.
//!
//! Every message of an exchange has a tag of its own, which its receiver chose at matching. Receives
//! are posted as soon as their buffer is free: with one buffer when the stream starts to receive an
//! epoch, with two an epoch ahead. A receiver posts before it announces, and before it sends. So a send
//! that has waited for the announcement, or for the peer's own message where that says the same, finds
//! its receive posted, as a *ready* send must (MPI 4.1, section 3.4).

use super::half::Tags;
use super::readiness::{Readiness, Said};
use crate::error::Result;
use crate::fabric::carrier::Carried;
use crate::fabric::mpi::{Communicator, RequestSet};
use crate::fabric::{Bells, FarExchange, FarRecv, FarSend, Terms, Word, phase};

/// An exchange that a carrier goes round to.
#[derive(Debug)]
pub(super) struct Messages {
    /// It keeps what they read and write.
    set: RequestSet,
    terms: Terms,
    counts: [Word; 2],
    /// Where the stream says that it starts to receive.
    start: Word,
    started: u32,
    sends: Vec<Send>,
    recvs: Vec<Recv>,
    readiness: Readiness,
    /// What the completion of each request of the set means.
    meanings: Vec<Meaning>,
    completed: Vec<usize>,
}

#[derive(Debug)]
struct Send {
    trigger: Word,
    departure: Word,
    /// The receiver's readiness, where it is waited for.
    clear: Option<Word>,
    request: usize,
    is_due: bool,
    /// The last epochs that were started, and that have left the staging memory.
    sent: u32,
    departed: u32,
}

#[derive(Debug)]
struct Recv {
    arrivals: [Word; 2],
    /// By buffer.
    requests: [usize; 2],
    /// The last epoch whose receive was posted.
    posted: u32,
    /// By buffer: the epoch that was posted there, and the last that has come. A message may overtake
    /// the one before.
    epochs: [u32; 2],
    arrived: [u32; 2],
}

#[derive(Debug, Clone, Copy)]
enum Meaning {
    Departed(usize),
    Arrived { recv: usize, buffer: usize },
    Said(Said),
}

impl Messages {
    /// Makes the requests, and posts what may come at once. All peers do so before any of them sends.
    pub(super) fn new(
        communicator: &Communicator,
        exchange: FarExchange,
        bells: &Bells,
        tags: &Tags,
    ) -> Result<Self> {
        let FarExchange { terms, sends, recvs, counts, .. } = exchange;
        let mut made = Self {
            terms,
            counts,
            start: bells.start.clone(),
            started: terms.last_epoch,
            sends: Vec::with_capacity(sends.len()),
            recvs: Vec::with_capacity(recvs.len()),
            readiness: Readiness::default(),
            set: RequestSet::new(communicator.mpi()),
            meanings: Vec::new(),
            completed: Vec::new(),
        };
        sends.iter().for_each(|send| made.set.keep(send.staging.clone()));
        for (recv, tags) in recvs.iter().zip(&tags.recvs) {
            made.add_recv(communicator, recv, tags.payload)?;
            if recv.announces {
                let said = made.readiness.tell(&mut made.set, communicator, recv.peer, tags.readiness)?;
                made.meanings.push(Meaning::Said(said));
            }
        }
        for ((send, tags), index) in sends.iter().zip(&tags.sends).zip(0..) {
            made.add_send(communicator, send, tags.payload, bells, index)?;
            if send.awaits {
                let clear = send.clear.clone();
                let said =
                    made.readiness.hear(&mut made.set, communicator, send.peer, tags.readiness, clear)?;
                made.meanings.push(Meaning::Said(said));
            }
        }
        made.completed.reserve(made.meanings.len());
        // Both of two buffers are free at first.
        if terms.buffers == 2 {
            made.post_until(terms.last_epoch.wrapping_add(2))?;
        }
        Ok(made)
    }

    fn add_recv(&mut self, communicator: &Communicator, recv: &FarRecv, tag: i32) -> Result<()> {
        let mut requests = [0; 2];
        for (buffer, request) in requests.iter_mut().enumerate().take(self.terms.buffers) {
            let slot = &recv.slots[buffer];
            self.set.keep(slot.clone());
            // SAFETY: the slot holds `bytes` bytes of a region that the set keeps alive longer than
            // its requests; its protocol has nobody else touch it while the receive is active.
            let made = unsafe { communicator.recv_init(slot.address(), recv.bytes, recv.peer, tag) }?;
            *request = self.set.push(made);
            self.meanings.push(Meaning::Arrived { recv: self.recvs.len(), buffer });
        }
        let last = self.terms.last_epoch;
        let arrivals = recv.arrivals.clone();
        self.recvs.push(Recv { arrivals, requests, posted: last, epochs: [last; 2], arrived: [last; 2] });
        Ok(())
    }

    fn add_send(
        &mut self,
        communicator: &Communicator,
        send: &FarSend,
        tag: i32,
        bells: &Bells,
        index: usize,
    ) -> Result<()> {
        let pointer = send.staging.address();
        let made = if self.terms.buffers == 2 {
            // SAFETY: as for receives; the stream packs the staging memory again only after the departure.
            unsafe { communicator.rsend_init(pointer, send.bytes, send.peer, tag) }
        } else {
            // SAFETY: as above.
            unsafe { communicator.send_init(pointer, send.bytes, send.peer, tag) }
        }?;
        let last = self.terms.last_epoch;
        self.sends.push(Send {
            trigger: bells.triggers[index].clone(),
            departure: bells.departures[index].clone(),
            clear: send.awaits.then(|| send.clear.clone()),
            request: self.set.push(made),
            is_due: false,
            sent: last,
            departed: last,
        });
        self.meanings.push(Meaning::Departed(index));
        Ok(())
    }

    /// Posts the receives of all epochs up to that one.
    fn post_until(&mut self, epoch: u32) -> Result<()> {
        for recv in &mut self.recvs {
            while recv.posted != epoch {
                recv.posted = recv.posted.wrapping_add(1);
                let buffer = phase(recv.posted) % self.terms.buffers;
                recv.epochs[buffer] = recv.posted;
                // SAFETY: the buffer's last message has come and been unpacked: the stream has said so.
                unsafe { self.set.start(recv.requests[buffer]) }?;
            }
        }
        Ok(())
    }

    fn note(&mut self, meaning: Meaning) -> Result<()> {
        match meaning {
            Meaning::Said(said) => self.readiness.note(said, &mut self.set)?,
            Meaning::Departed(index) => {
                let send = &mut self.sends[index];
                send.departed = send.sent;
                send.departure.set(send.departed);
            }
            Meaning::Arrived { recv, buffer } => {
                let recv = &mut self.recvs[recv];
                let epoch = recv.epochs[buffer];
                recv.arrived[buffer] = epoch;
                recv.arrivals[buffer].set(epoch);
                if self.terms.counts {
                    self.counts[phase(epoch)].increment();
                }
            }
        }
        Ok(())
    }
}

impl Carried for Messages {
    fn progress(&mut self) -> Result<bool> {
        // Before the starts: whoever sees a trigger sees the start before it, so that what the peer of
        // this message will send next finds its receive posted.
        for send in &mut self.sends {
            send.is_due = send.trigger.cell().reached(send.sent.wrapping_add(1));
        }
        let next = self.started.wrapping_add(1);
        if self.start.cell().reached((self.terms.announced)(next)) {
            self.started = next;
            self.post_until(next.wrapping_add(self.terms.buffers as u32 - 1))?;
            self.readiness.announce((self.terms.announced)(next));
        }
        self.readiness.advance(&mut self.set)?;
        for send in self.sends.iter_mut().filter(|send| send.is_due) {
            let epoch = send.sent.wrapping_add(1);
            let needed = (self.terms.needed)(epoch);
            if send.clear.as_ref().is_none_or(|clear| clear.cell().reached(needed)) {
                // SAFETY: the last one has departed, or the stream could not have come here; a ready send
                // finds its receive posted, as said above.
                unsafe { self.set.start(send.request) }?;
                send.sent = epoch;
            }
        }
        let mut completed = std::mem::take(&mut self.completed);
        self.set.test_some(&mut completed)?;
        for &index in &completed {
            self.note(self.meanings[index])?;
        }
        self.completed = completed;
        let buffer = phase(self.started) % self.terms.buffers;
        Ok(self.recvs.iter().any(|recv| recv.arrived[buffer] != self.started)
            || self.sends.iter().any(|send| send.departed != self.started))
    }

    fn is_quiet(&self) -> bool {
        self.readiness.is_quiet() && self.sends.iter().all(|send| send.departed == send.sent)
    }
}
