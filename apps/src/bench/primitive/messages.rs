//! `two-sided`: messages that the host sends and receives.

use super::{Link, WINDOW, fill, line, places};
use streamhalo::comm::device::{Buffer, Section};
use streamhalo::comm::{Communicator, Request, wait_all};
use streamhalo::{HaloError, Stream, World};

pub(super) fn link(world: &World, stream: &Stream, bytes: usize) -> Result<Option<Box<dyn Link>>, HaloError> {
    let communicator = Communicator::new(world)?;
    let (own, theirs) = (line(world, stream, bytes)?, line(world, stream, places(bytes) * bytes)?);
    let sections = (0..places(bytes)).map(|place| theirs.section(place * bytes..(place + 1) * bytes));
    let (from, into) = (own.section(0..bytes)?, sections.collect::<Result<Vec<_>, _>>()?);
    let peer = 1 - world.rank();
    Ok(Some(Box::new(Messages { communicator, own, theirs, from, into, peer, sent: Vec::new() })))
}

struct Messages {
    communicator: Communicator,
    own: Buffer<u8>,
    theirs: Buffer<u8>,
    from: Section,
    into: Vec<Section>,
    peer: usize,
    sent: Vec<Request>,
}

const TAG: u32 = 7;

impl Messages {
    fn start_all(&mut self) -> Result<(), HaloError> {
        (0..WINDOW).try_for_each(|_| self.start())
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
        self.start_all()?;
        self.finish()
    }

    fn recv_window(&mut self) -> Result<(), HaloError> {
        let mut received = 0;
        while received < WINDOW {
            let now = self.into.iter().take(WINDOW - received);
            let requests = now.map(|section| self.communicator.irecv(section, self.peer, TAG));
            let mut requests = requests.collect::<Result<Vec<_>, _>>()?;
            wait_all(&mut requests)?;
            received += requests.len();
        }
        Ok(())
    }

    fn swap_windows(&mut self) -> Result<(), HaloError> {
        self.start_all()?;
        self.recv_window()?;
        self.finish()
    }

    fn fill(&mut self, bytes: &[u8]) -> Result<(), HaloError> {
        fill(&mut self.own, bytes)
    }

    fn received(&mut self) -> Result<Vec<u8>, HaloError> {
        Ok(self.theirs.copy_out(self.theirs.extents().whole())?)
    }
}
