//! Rings of receives: posted, and taken, in turn.

use super::{Label, Messaging};
use crate::error::Result;
use crate::fabric::region::Place;
use crate::fabric::{Fabric, LocalFabric};

/// Memory of one message.
#[derive(Debug)]
pub(super) struct Slot<M: Messaging> {
    pub(super) place: Place,
    pub(super) memory: M::Memory,
}

impl<M: Messaging> Slot<M> {
    pub(super) fn new(library: &mut M, memory: &LocalFabric, bytes: usize) -> Result<Self> {
        let place = memory.allocate(bytes)?.place(0, bytes, "the memory of a packet")?;
        Ok(Self { memory: library.own(&place), place })
    }
}

/// Receives of one label. The first `read` messages were read, the first `arrived` have come, and the
/// first `posted` may.
#[derive(Debug)]
pub(super) struct Ring<M: Messaging> {
    label: Label,
    bytes: usize,
    slots: Vec<(Slot<M>, Option<M::Operation>)>,
    read: u64,
    arrived: u64,
    posted: u64,
}

impl<M: Messaging> Ring<M> {
    pub(super) fn new(
        library: &mut M,
        memory: &LocalFabric,
        (label, slots, bytes): (Label, usize, usize),
    ) -> Result<Self> {
        let slots =
            (0..slots).map(|_| Ok((Slot::new(library, memory, bytes)?, None))).collect::<Result<Vec<_>>>()?;
        Ok(Self { label, bytes, slots, read: 0, arrived: 0, posted: 0 })
    }

    fn index(&self, number: u64) -> usize {
        (number % self.slots.len() as u64) as usize
    }

    /// Posts whatever was read.
    pub(super) fn post(&mut self, library: &mut M) -> Result<()> {
        while self.posted < self.read + self.slots.len() as u64 {
            let index = self.index(self.posted);
            let (slot, operation) = &mut self.slots[index];
            // SAFETY: the slot is read only once the receive has completed, and kept for as long as it has not.
            let posted = unsafe { library.receive(&mut slot.memory, 0..self.bytes, self.label) }?;
            let Some(posted) = posted else { break };
            *operation = Some(posted);
            self.posted += 1;
        }
        Ok(())
    }

    /// Whether one more has come, the next in order; it is there from now on.
    pub(super) fn arrive(&mut self, library: &mut M) -> Result<Option<&Place>> {
        if self.arrived == self.posted {
            return Ok(None);
        }
        let index = self.index(self.arrived);
        let (slot, operation) = &mut self.slots[index];
        let receive = operation.as_mut().expect("what is posted has an operation");
        if !library.is_complete(receive)? {
            return Ok(None);
        }
        *operation = None;
        self.arrived += 1;
        Ok(Some(&slot.place))
    }

    /// The next message that has come and was not read.
    pub(super) fn unread(&self) -> Option<&Place> {
        (self.read < self.arrived).then(|| &self.slots[self.index(self.read)].0.place)
    }

    /// Goes on to the next one.
    pub(super) fn pass(&mut self) {
        self.read += 1;
    }

    /// Asks for the end of all receives.
    pub(super) fn cancel(&mut self, library: &mut M) {
        self.slots.iter_mut().filter_map(|(_, operation)| operation.as_mut()).for_each(|operation| {
            library.cancel(operation);
        });
    }

    /// Whether all receives have ended, after they were asked to.
    pub(super) fn has_ended(&mut self, library: &mut M) -> bool {
        for (_, operation) in &mut self.slots {
            if let Some(receive) = operation
                && library.is_complete(receive).unwrap_or(false)
            {
                *operation = None;
            }
        }
        self.slots.iter().all(|(_, operation)| operation.is_none())
    }

    /// Leaves the memory of receives that have not ended to whoever may still write to it.
    pub(super) fn forget(&mut self) {
        let slots = std::mem::take(&mut self.slots);
        let active = slots.into_iter().filter(|(_, operation)| operation.is_some());
        active.for_each(|(slot, _)| std::mem::forget(slot.place));
    }
}
