//! Two-sided messages as persistent requests: `standard` over MPI, which the host starts and tests.

use crate::error::Result;
use crate::fabric::mpi::{Communicator, RequestSet};
use crate::fabric::{FarMessage, FarMessages, Persistent};

/// The far messages of one exchange.
#[derive(Debug)]
pub(super) struct Requests {
    set: RequestSet,
    /// By request: the peer, whether it is a send, and whether it is complete.
    sides: Vec<Side>,
    left: usize,
    completed: Vec<usize>,
}

#[derive(Debug)]
struct Side {
    peer: usize,
    is_send: bool,
    is_done: bool,
}

impl Requests {
    /// Makes the requests: receives first, as they are started first. Tags are by message.
    pub(super) fn new(
        communicator: &Communicator,
        messages: &FarMessages,
        send_tags: &[i32],
        recv_tags: &[i32],
    ) -> Result<Self> {
        let mut set = RequestSet::new(communicator.mpi());
        let mut sides = Vec::new();
        let mut add = |message: &FarMessage, tag: i32, is_send: bool| -> Result<()> {
            let FarMessage { peer, bytes, ref place, .. } = *message;
            set.keep(place.clone());
            let request = if is_send {
                // SAFETY: the place holds `bytes` bytes of a region that the set keeps, and that the exchange leaves
                // alone while they are active.
                unsafe { communicator.send_init(place.address(), bytes, peer, tag) }
            } else {
                // SAFETY: as above.
                unsafe { communicator.recv_init(place.address(), bytes, peer, tag) }
            }?;
            set.push(request);
            sides.push(Side { peer, is_send, is_done: true });
            Ok(())
        };
        messages.recvs.iter().zip(recv_tags).try_for_each(|(message, tag)| add(message, *tag, false))?;
        messages.sends.iter().zip(send_tags).try_for_each(|(message, tag)| add(message, *tag, true))?;
        let completed = Vec::with_capacity(sides.len());
        Ok(Self { set, sides, left: 0, completed })
    }
}

impl Persistent for Requests {
    fn start(&mut self) -> Result<()> {
        self.sides.iter_mut().for_each(|side| side.is_done = false);
        self.left = self.sides.len();
        // SAFETY: all are inactive, as starts and waits alternate; the stream has packed and unpacked.
        unsafe { self.set.start_all(0..self.set.len()) }
    }

    fn test(&mut self) -> Result<bool> {
        if self.left > 0 {
            self.set.test_some(&mut self.completed)?;
            for &index in &self.completed {
                self.sides[index].is_done = true;
                self.left -= 1;
            }
        }
        Ok(self.left == 0)
    }

    fn late(&self) -> Option<(usize, bool)> {
        self.sides.iter().find(|side| !side.is_done).map(|side| (side.peer, side.is_send))
    }

    fn path(&self) -> (&'static str, &'static str) {
        ("packed, MPI message", "the peer's memory is not mapped")
    }
}
