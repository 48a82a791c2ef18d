//! Bulk transfers under way.

use super::{Label, Messaging};
use crate::error::Result;
use crate::fabric::packet::Bulk;
use crate::fabric::region::Place;

/// All of one rank's, in both directions.
#[derive(Debug)]
pub(super) struct Bulks<M: Messaging> {
    entries: Vec<Entry<M>>,
    free: Vec<u32>,
    /// Those that are not complete.
    active: Vec<u32>,
}

#[derive(Debug)]
struct Entry<M: Messaging> {
    /// How often the entry was used before.
    generation: u32,
    transfer: Option<Transfer<M>>,
    is_done: bool,
    operations: Vec<M::Operation>,
}

/// A transfer, in messages of at most what the library takes.
#[derive(Debug)]
struct Transfer<M: Messaging> {
    label: Label,
    /// Whom it is sent to; none for one that is received.
    to: Option<usize>,
    bytes: usize,
    memory: M::Memory,
    messages: usize,
    posted: usize,
    /// Keeps the memory.
    place: Place,
}

impl<M: Messaging> Transfer<M> {
    /// Posts what was not yet; whether all is.
    fn post(&mut self, library: &mut M, operations: &mut Vec<M::Operation>) -> Result<bool> {
        let longest = library.longest();
        while self.posted < self.messages {
            let start = self.posted * longest;
            let part = start..self.bytes.min(start + longest);
            let posted = match self.to {
                // SAFETY: who has begun the transfer leaves the memory alone until it is done, and it is kept here.
                Some(peer) => unsafe { library.send(&mut self.memory, part, peer, self.label) },
                // SAFETY: as above.
                None => unsafe { library.receive(&mut self.memory, part, self.label) },
            }?;
            let Some(posted) = posted else { return Ok(false) };
            operations.push(posted);
            self.posted += 1;
        }
        Ok(true)
    }
}

impl<M: Messaging> Bulks<M> {
    pub(super) fn new() -> Self {
        Self { entries: Vec::new(), free: Vec::new(), active: Vec::new() }
    }

    /// Notes a transfer, which the next [`Bulks::progress`] begins.
    pub(super) fn begin(
        &mut self,
        library: &mut M,
        (label, to): (Label, Option<usize>),
        place: &Place,
        bytes: usize,
    ) -> Result<Bulk> {
        let memory = library.prepare(place, bytes)?;
        let messages = bytes.div_ceil(library.longest()).max(1);
        let transfer = Transfer { label, to, bytes, memory, messages, posted: 0, place: place.clone() };
        let index = self.free.pop().unwrap_or_else(|| {
            self.entries.push(Entry {
                generation: 0,
                transfer: None,
                is_done: false,
                operations: Vec::with_capacity(1),
            });
            self.entries.len() as u32 - 1
        });
        let entry = &mut self.entries[index as usize];
        entry.transfer = Some(transfer);
        self.active.push(index);
        Ok(Bulk(u64::from(entry.generation) << 32 | u64::from(index)))
    }

    /// Posts what found no room before, and looks what is complete; tells of each transfer that is. Gives
    /// the first error, after all have been looked at.
    pub(super) fn progress(
        &mut self,
        library: &mut M,
        completed: &mut dyn FnMut(Label, Option<usize>),
    ) -> Result<()> {
        let mut at = 0;
        while let Some(&index) = self.active.get(at) {
            let Entry { transfer, operations, is_done, .. } = &mut self.entries[index as usize];
            let under_way = transfer.as_mut().expect("an active entry has a transfer");
            let mut is_complete = under_way.post(library, operations)?;
            while let Some(operation) = operations.last_mut() {
                if !library.is_complete(operation)? {
                    is_complete = false;
                    break;
                }
                operations.pop();
            }
            if !is_complete {
                at += 1;
                continue;
            }
            *is_done = true;
            let Transfer { label, to, memory, .. } = transfer.take().expect("as above");
            library.release(memory);
            completed(label, to);
            self.active.swap_remove(at);
        }
        Ok(())
    }

    /// Whether a transfer is done, which then is forgotten.
    pub(super) fn take_done(&mut self, bulk: Bulk) -> bool {
        let (generation, index) = ((bulk.0 >> 32) as u32, bulk.0 as u32);
        let entry = &mut self.entries[index as usize];
        assert_eq!(entry.generation, generation, "a bulk transfer is done once");
        if !entry.is_done {
            return false;
        }
        entry.is_done = false;
        entry.generation = generation.wrapping_add(1);
        self.free.push(index);
        true
    }

    /// How many are not complete.
    pub(super) fn len(&self) -> usize {
        self.active.len()
    }

    /// Whether nothing is on its way to a peer.
    pub(super) fn is_quiet(&self) -> bool {
        !self.under_way().any(|entry| entry.transfer.as_ref().is_some_and(|transfer| transfer.to.is_some()))
    }

    fn under_way(&self) -> impl Iterator<Item = &Entry<M>> {
        self.active.iter().map(|index| &self.entries[*index as usize])
    }

    /// Asks for the end of all receives.
    pub(super) fn cancel(&mut self, library: &mut M) {
        for index in &self.active {
            let Entry { transfer, operations, .. } = &mut self.entries[*index as usize];
            if transfer.as_ref().is_some_and(|transfer| transfer.to.is_none()) {
                operations.iter_mut().for_each(|operation| library.cancel(operation));
            }
        }
    }

    /// Whether all that was begun has ended, after it was asked to.
    pub(super) fn has_ended(&mut self, library: &mut M) -> bool {
        for index in &self.active {
            let operations = &mut self.entries[*index as usize].operations;
            operations.retain_mut(|operation| !library.is_complete(operation).unwrap_or(false));
        }
        self.under_way().all(|entry| entry.operations.is_empty())
    }

    /// Leaves the memory of what has not ended to whoever may still be at it.
    pub(super) fn forget(&mut self) {
        self.active.clear();
        let entries = std::mem::take(&mut self.entries);
        let active = entries.into_iter().filter(|entry| !entry.operations.is_empty());
        active.filter_map(|entry| entry.transfer).for_each(|transfer| std::mem::forget(transfer.place));
    }
}
