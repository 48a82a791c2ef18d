//! Exchanges as access epochs of a window: what carries `active-rma` over MPI (MPI 4.1, section 12.5.2;
//! 2023 active RMA, section 4).
//!
//! The target posts its window and says so to its origins, as one message of our own to each: the
//! exposure. An origin starts once the whole group has exposed, so that both may promise
//! `MPI_MODE_NOCHECK`, and the start never waits. Complete waits for the library only, and the
//! exposure epoch is tested, not waited for. So no call of one exchange holds up another, in
//! whichever order ranks come to them.

use super::half::Tags;
use super::readiness::{Readiness, Said};
use super::windows::OwnWindow;
use crate::error::Result;
use crate::fabric::carrier::Carried;
use crate::fabric::mpi::{Communicator, Group, RequestSet};
use crate::fabric::{Bells, FarExchange, Place, Terms, Word};
use std::sync::Arc;

/// An exchange that a carrier goes round to.
#[derive(Debug)]
pub(super) struct ActiveTarget {
    /// Dropped first: whatever receives are active write to what the others keep.
    set: RequestSet,
    terms: Terms,
    start: Word,
    started: u32,
    /// Every receiver's exposure.
    group: Vec<Word>,
    puts: Vec<Put>,
    /// Whether the access epoch of the exchange has begun, and how many puts it has had.
    is_open: bool,
    put: usize,
    sent: u32,
    arrivals: Vec<Word>,
    arrived: u32,
    readiness: Readiness,
    meanings: Vec<Said>,
    completed: Vec<usize>,
    origins: Group,
    targets: Group,
    window: Arc<OwnWindow>,
}

#[derive(Debug)]
struct Put {
    staging: Place,
    bytes: usize,
    /// In the world.
    target: usize,
    /// In the target's window.
    offset: usize,
    trigger: Word,
    departure: Word,
}

impl ActiveTarget {
    /// An exchange over a window of its receivers. Puts are in the order of `exchange.sends`, to
    /// `offsets` bytes from the start of the window of their targets.
    pub(super) fn new(
        communicator: &Communicator,
        exchange: FarExchange,
        bells: &Bells,
        tags: &Tags,
        offsets: &[usize],
        window: Arc<OwnWindow>,
    ) -> Result<Self> {
        let FarExchange { terms, sends, recvs, .. } = exchange;
        let mut set = RequestSet::new(communicator.mpi());
        let mut readiness = Readiness::default();
        let mut meanings = Vec::new();
        for (recv, tags) in recvs.iter().zip(&tags.recvs) {
            meanings.push(readiness.tell(&mut set, communicator, recv.peer, tags.readiness)?);
        }
        for (send, tags) in sends.iter().zip(&tags.sends) {
            let clear = send.clear.clone();
            meanings.push(readiness.hear(&mut set, communicator, send.peer, tags.readiness, clear)?);
        }
        let puts = sends.iter().enumerate().map(|(index, send)| Put {
            staging: send.staging.clone(),
            bytes: send.bytes,
            target: send.peer,
            offset: offsets[index],
            trigger: bells.triggers[index].clone(),
            departure: bells.departures[index].clone(),
        });
        let ranks = |peers: &mut dyn Iterator<Item = usize>| {
            let mut ranks: Vec<usize> = peers.collect();
            ranks.sort_unstable();
            ranks.dedup();
            Group::new(communicator, &ranks)
        };
        Ok(Self {
            terms,
            start: bells.start.clone(),
            started: terms.last_epoch,
            group: sends.iter().map(|send| send.clear.clone()).collect(),
            puts: puts.collect(),
            is_open: false,
            put: 0,
            sent: terms.last_epoch,
            arrivals: recvs.iter().map(|recv| recv.arrivals[0].clone()).collect(),
            arrived: terms.last_epoch,
            readiness,
            set,
            completed: Vec::with_capacity(meanings.len()),
            meanings,
            origins: ranks(&mut recvs.iter().map(|recv| recv.peer))?,
            targets: ranks(&mut sends.iter().map(|send| send.peer))?,
            window,
        })
    }

    /// Whether peers may write to this rank's part of the window.
    fn is_exposed(&self) -> bool {
        !self.arrivals.is_empty() && self.arrived != self.started
    }

    fn is_in_epoch(&self) -> bool {
        self.is_open || self.is_exposed()
    }

    /// The access epoch, once all have exposed: puts what has been packed, and completes with the last.
    fn access(&mut self, epoch: u32) -> Result<()> {
        let packed = self.puts[self.put..].iter().take_while(|put| put.trigger.cell().reached(epoch));
        let packed = packed.count();
        if packed > 0 && !self.is_open {
            // SAFETY: every target has posted, without a check too: its exposure says so.
            unsafe { self.window.window.start(&self.targets, true) }?;
            self.is_open = true;
        }
        for put in &self.puts[self.put..self.put + packed] {
            // SAFETY: the staging memory holds `bytes` bytes and is packed again only after the
            // departure; the target has checked that the offset lies in its window.
            unsafe { self.window.window.put(put.staging.address(), put.bytes, put.target, put.offset) }?;
        }
        self.put += packed;
        if self.put < self.puts.len() {
            return Ok(());
        }
        self.window.window.complete()?;
        (self.is_open, self.put, self.sent) = (false, 0, epoch);
        self.puts.iter().for_each(|put| put.departure.set(epoch));
        Ok(())
    }
}

impl Drop for ActiveTarget {
    /// An epoch whose other side does not come is never closed: the library may still read what was put, peers may write to
    /// the window, and a window in an epoch cannot be freed.
    fn drop(&mut self) {
        if self.is_in_epoch() {
            std::mem::forget(std::mem::take(&mut self.puts));
            std::mem::forget(self.window.clone());
        }
    }
}

impl Carried for ActiveTarget {
    fn progress(&mut self) -> Result<bool> {
        let next = self.started.wrapping_add(1);
        if self.start.cell().reached((self.terms.announced)(next)) {
            self.started = next;
            if !self.arrivals.is_empty() {
                // SAFETY: the stream has unpacked the last epoch, and no origin starts before it is told below.
                unsafe { self.window.window.post(&self.origins, true) }?;
            }
            self.readiness.announce((self.terms.announced)(next));
        }
        self.readiness.advance(&mut self.set)?;
        let epoch = self.sent.wrapping_add(1);
        let needed = (self.terms.needed)(epoch);
        if !self.puts.is_empty() && self.group.iter().all(|word| word.cell().reached(needed)) {
            self.access(epoch)?;
        }
        if self.is_exposed() && self.window.window.test()? {
            self.arrived = self.started;
            self.arrivals.iter().for_each(|word| word.set(self.arrived));
        }
        let mut completed = std::mem::take(&mut self.completed);
        self.set.test_some(&mut completed)?;
        for &index in &completed {
            self.readiness.note(self.meanings[index], &mut self.set)?;
        }
        self.completed = completed;
        Ok(self.is_exposed() || (!self.puts.is_empty() && self.sent != self.started))
    }

    fn is_quiet(&self) -> bool {
        self.readiness.is_quiet() && !self.is_in_epoch()
    }

    fn may_block(&self) -> bool {
        // `MPI_Win_complete`, which cannot be tested for.
        true
    }
}
