//! Packets over MPI: messages on a communicator of their own.

use crate::error::Result;
use crate::fabric::Place;
use crate::fabric::messaging::{Label, Messaging};
use crate::fabric::mpi::{Communicator, Request};
use std::collections::HashSet;
use std::ops::Range;

const PACKET: i32 = 0;
const CREDIT: i32 = 1;
/// Bulk transfers have the tags from there on.
const FIRST_BULK: i32 = 2;
/// The longest message: counts have 31 bits.
const LONGEST: usize = 1 << 30;

/// Messages on a communicator that nobody else uses.
#[derive(Debug)]
pub(super) struct MpiMessaging {
    communicator: Communicator,
    /// How many bulk transfers there may be between two ranks at a time.
    bulk_tags: u32,
}

impl MpiMessaging {
    pub(super) fn new(communicator: Communicator) -> Result<Self> {
        let tags = (communicator.tag_upper_bound()? - FIRST_BULK) as u32;
        // A power of two, so that numbers that follow each other differ where they wrap too.
        let bulk_tags = 1 << tags.ilog2();
        Ok(Self { communicator, bulk_tags })
    }

    pub(super) fn communicator(&self) -> &Communicator {
        &self.communicator
    }

    fn tag(&self, label: Label) -> i32 {
        match label {
            Label::Packet => PACKET,
            Label::Credit => CREDIT,
            Label::Bulk { number, .. } => FIRST_BULK + (number % self.bulk_tags) as i32,
        }
    }
}

impl Messaging for MpiMessaging {
    type Memory = Place;
    type Operation = Request;

    fn prepare(&mut self, place: &Place, _bytes: usize) -> Result<Place> {
        Ok(place.clone())
    }

    fn own(&mut self, place: &Place) -> Place {
        place.clone()
    }

    fn release(&mut self, _memory: Place) {}

    fn longest(&self) -> usize {
        LONGEST
    }

    unsafe fn send(
        &mut self,
        memory: &mut Place,
        part: Range<usize>,
        peer: usize,
        label: Label,
    ) -> Result<Option<Request>> {
        // SAFETY: the part lies in the memory.
        let data = unsafe { memory.pointer().add(part.start) };
        // SAFETY: passed on to the caller.
        unsafe { self.communicator.isend(data, part.len(), peer, self.tag(label)) }.map(Some)
    }

    unsafe fn receive(
        &mut self,
        memory: &mut Place,
        part: Range<usize>,
        label: Label,
    ) -> Result<Option<Request>> {
        // SAFETY: the part lies in the memory.
        let data = unsafe { memory.pointer().add(part.start) };
        let tag = self.tag(label);
        match label {
            // SAFETY: passed on to the caller.
            Label::Bulk { source, .. } => unsafe { self.communicator.irecv(data, part.len(), source, tag) },
            // SAFETY: as above.
            _ => unsafe { self.communicator.irecv_any(data, part.len(), tag) },
        }
        .map(Some)
    }

    fn is_complete(&mut self, request: &mut Request) -> Result<bool> {
        request.test().map(|status| status.is_some())
    }

    fn cancel(&mut self, request: &mut Request) {
        // One that cannot be called back does not end, which its owner sees.
        let _ = request.cancel();
    }

    fn is_lost(&self) -> bool {
        let mpi = self.communicator.mpi();
        !mpi.is_running() || mpi.is_poisoned()
    }
}

/// How many messages a rank has sent to each of those that it has sent any, and how many have come.
pub(super) type Counts = [Vec<(usize, u32)>; 2];

/// Which of the packets that all ranks are done with have nothing on its way: what every rank says of those
/// that it is done with, by their number.
pub(super) fn settled(all: &[Vec<(u32, Counts)>]) -> Vec<u32> {
    let is_settled = |number: u32| {
        let (mut sent, mut come) = (HashSet::new(), HashSet::new());
        for (rank, said) in all.iter().enumerate() {
            let Some((_, [to, from])) = said.iter().find(|(other, _)| *other == number) else { return false };
            sent.extend(to.iter().map(|(peer, count)| (rank, *peer, *count)));
            come.extend(from.iter().map(|(peer, count)| (*peer, rank, *count)));
        }
        sent == come
    };
    let of_first = all.first().into_iter().flatten();
    of_first.map(|(number, _)| *number).filter(|number| is_settled(*number)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_on_its_way_anywhere_is_kept() {
        let quiet = |number| (number, [vec![(1, 7)], vec![(1, 2)]]);
        let other = |number, come| (number, [vec![(0, 2)], vec![(0, come)]]);
        assert_eq!(settled(&[vec![quiet(3), quiet(4)], vec![other(3, 7), other(4, 6)]]), [3]);
        assert_eq!(settled(&[vec![quiet(3)], vec![]]), Vec::<u32>::new(), "one rank is not done with it");
        assert_eq!(settled(&[vec![(0, Counts::default())], vec![(0, Counts::default())]]), [0]);
    }
}
