//! `two-sided`: messages that the host sends and receives.

use super::payload::{self, Payload};
use super::{Link, WINDOW};
use streamhalo::comm::device::Section;
use streamhalo::comm::{Communicator, Request, Staging, wait_all};
use streamhalo::{HaloError, Stream, World};

pub(super) fn link(
    world: &World,
    stream: &Stream,
    [bytes, places]: [usize; 2],
) -> Result<Option<Box<dyn Link>>, HaloError> {
    let messages = Messages::new(world, stream, bytes, places, WINDOW)?;
    Ok(Some(Box::new(messages)))
}

/// The same from and to a device, staged so: only so many at a time, as each has memory of its own on the host.
pub(in crate::bench) fn staged(
    world: &World,
    stream: &Stream,
    bytes: usize,
    at_a_time: usize,
    staging: Staging,
) -> Result<Box<dyn Link>, HaloError> {
    let messages = Messages::new(world, stream, bytes, at_a_time, at_a_time)?;
    messages.communicator.set_staging(staging)?;
    Ok(Box::new(messages))
}

struct Messages {
    communicator: Communicator,
    payload: payload::Messages,
    from: Section,
    into: Vec<Section>,
    peer: usize,
    sent: Vec<Request>,
    /// Messages of a window that are on their way together.
    at_a_time: usize,
}

pub(super) const TAG: u32 = 7;

impl Messages {
    fn new(
        world: &World,
        stream: &Stream,
        bytes: usize,
        places: usize,
        at_a_time: usize,
    ) -> Result<Self, HaloError> {
        let communicator = Communicator::new(world)?;
        let payload = payload::Messages::new(world, stream, bytes, places)?;
        let (from, into) = (payload.sent()?, payload.places()?);
        let peer = 1 - world.rank();
        Ok(Self { communicator, payload, from, into, peer, sent: Vec::new(), at_a_time })
    }

    fn post(&self, messages: usize) -> Result<Vec<Request>, HaloError> {
        post(&self.communicator, &self.into, self.peer, messages)
    }

    fn recv_some(&mut self, messages: usize) -> Result<(), HaloError> {
        let mut received = 0;
        while received < messages {
            let mut posted = self.post(messages - received)?;
            wait_all(&mut posted)?;
            received += posted.len();
        }
        Ok(())
    }
}

impl Link for Messages {
    fn start(&mut self) -> Result<(), HaloError> {
        self.sent.push(self.communicator.isend(&self.from, self.peer, TAG)?);
        Ok(())
    }

    fn finish(&mut self) -> Result<(), HaloError> {
        wait_all(&mut self.sent)?;
        self.sent.clear();
        Ok(())
    }

    fn recv(&mut self) -> Result<(), HaloError> {
        self.communicator.irecv(&self.into[0], self.peer, TAG)?.wait()?;
        Ok(())
    }

    fn send_window(&mut self) -> Result<(), HaloError> {
        for messages in parts_of_window(self.at_a_time) {
            (0..messages).try_for_each(|_| self.start())?;
            self.finish()?;
        }
        Ok(())
    }

    fn recv_window(&mut self) -> Result<(), HaloError> {
        self.recv_some(WINDOW)
    }

    fn swap_windows(&mut self) -> Result<(), HaloError> {
        for messages in parts_of_window(self.at_a_time) {
            // First, as in the OSU suite: what comes finds its place.
            let mut posted = self.post(messages)?;
            (0..messages).try_for_each(|_| self.start())?;
            wait_all(&mut posted)?;
            self.recv_some(messages - posted.len())?;
            self.finish()?;
        }
        Ok(())
    }

    fn payload(&mut self) -> &mut dyn Payload {
        &mut self.payload
    }
}

/// Begins to receive so many messages of a peer, or as many as there are places for.
pub(super) fn post(
    communicator: &Communicator,
    places: &[Section],
    peer: usize,
    messages: usize,
) -> Result<Vec<Request>, HaloError> {
    let posted = places.iter().take(messages).map(|place| communicator.irecv(place, peer, TAG));
    Ok(posted.collect::<Result<_, _>>()?)
}

/// How many messages of a window follow each other, if there are only so many at a time.
pub(super) fn parts_of_window(at_a_time: usize) -> impl Iterator<Item = usize> {
    (0..WINDOW).step_by(at_a_time).map(move |first| at_a_time.min(WINDOW - first))
}
