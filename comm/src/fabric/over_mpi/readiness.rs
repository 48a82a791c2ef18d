//! What receivers tell senders before a payload may come: a clear-to-send, a credit or an exposure,
//! as persistent messages of one value each.

use crate::error::Result;
use crate::fabric::Word;
use crate::fabric::mpi::{Communicator, RequestSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

const VALUE_BYTES: usize = size_of::<u32>();

/// The announcements of an exchange, both ways.
#[derive(Debug, Default)]
pub(super) struct Readiness {
    outgoing: Vec<Outgoing>,
    incoming: Vec<Incoming>,
    /// What all are to be told.
    due: Option<u32>,
}

#[derive(Debug)]
struct Outgoing {
    value: Arc<AtomicU32>,
    request: usize,
    is_active: bool,
    told: Option<u32>,
}

#[derive(Debug)]
struct Incoming {
    value: Arc<AtomicU32>,
    request: usize,
    clear: Word,
}

/// An announcement that has come or gone.
#[derive(Debug, Clone, Copy)]
pub(super) enum Said {
    /// A peer was told.
    Told(usize),
    /// A peer has said so.
    Heard(usize),
}

impl Readiness {
    /// A peer that is told. Gives what a completion of its request means.
    pub(super) fn tell(
        &mut self,
        set: &mut RequestSet,
        communicator: &Communicator,
        peer: usize,
        tag: i32,
    ) -> Result<Said> {
        let value = Arc::new(AtomicU32::new(0));
        set.keep(value.clone());
        // SAFETY: the value is on the heap and the set keeps it as long as the request; nobody writes it while the request
        // is active.
        let request = unsafe { communicator.send_init(value.as_ptr().cast(), VALUE_BYTES, peer, tag) }?;
        let request = set.push(request);
        self.outgoing.push(Outgoing { value, request, is_active: false, told: None });
        Ok(Said::Told(self.outgoing.len() - 1))
    }

    /// A peer whose readiness comes to `clear`. It may come from now on.
    pub(super) fn hear(
        &mut self,
        set: &mut RequestSet,
        communicator: &Communicator,
        peer: usize,
        tag: i32,
        clear: Word,
    ) -> Result<Said> {
        let value = Arc::new(AtomicU32::new(0));
        set.keep(value.clone());
        // SAFETY: as in `tell`; nobody reads it while the request is active.
        let request = unsafe { communicator.recv_init(value.as_ptr().cast(), VALUE_BYTES, peer, tag) }?;
        let request = set.push(request);
        // SAFETY: as above; it is inactive.
        unsafe { set.start(request) }?;
        self.incoming.push(Incoming { value, request, clear });
        Ok(Said::Heard(self.incoming.len() - 1))
    }

    /// Has all be told a value by the next [`Readiness::advance`].
    pub(super) fn announce(&mut self, value: u32) {
        self.due = Some(value);
    }

    /// Tells those whose last announcement has gone.
    pub(super) fn advance(&mut self, set: &mut RequestSet) -> Result<()> {
        for outgoing in &mut self.outgoing {
            if outgoing.told != self.due && !outgoing.is_active {
                outgoing.value.store(self.due.unwrap_or_default(), Ordering::Relaxed);
                // SAFETY: it is inactive, and its value stays until it has gone.
                unsafe { set.start(outgoing.request) }?;
                outgoing.is_active = true;
                outgoing.told = self.due;
            }
        }
        Ok(())
    }

    /// Whether all that was said has gone.
    pub(super) fn is_quiet(&self) -> bool {
        self.outgoing.iter().all(|outgoing| outgoing.told == self.due && !outgoing.is_active)
    }

    /// Takes note of a completion.
    pub(super) fn note(&mut self, said: Said, set: &mut RequestSet) -> Result<()> {
        match said {
            Said::Told(index) => self.outgoing[index].is_active = false,
            Said::Heard(index) => {
                let incoming = &self.incoming[index];
                incoming.clear.set(incoming.value.load(Ordering::Relaxed));
                // SAFETY: it has just completed, and its value was read.
                unsafe { set.start(incoming.request) }?;
            }
        }
        Ok(())
    }
}
