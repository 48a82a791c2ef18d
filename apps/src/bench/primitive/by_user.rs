//! Messages of a device whose program knows no better: it copies them to memory of the host itself, sends them from
//! there, and copies what has come to the device. The baseline of the 2023 paper on Intel GPUs (section V-E).

use super::messages::{TAG, parts_of_window, post};
use super::payload::{Messages, Payload, line, parts};
use super::{Link, WINDOW};
use streamhalo::comm::device::{Copier, Section};
use streamhalo::comm::{Communicator, Request, wait_all};
use streamhalo::{Device, HaloError, Stream, World};

/// Such messages, of which so many are on their way together.
pub(in crate::bench) fn link(
    world: &World,
    device: &Device,
    stream: &Stream,
    bytes: usize,
    at_a_time: usize,
) -> Result<Box<dyn Link>, HaloError> {
    let host = Device::host().stream(world)?;
    let payload = Messages::new(world, stream, bytes, at_a_time)?;
    let [out, back] = [line(world, &host, at_a_time * bytes)?, line(world, &host, at_a_time * bytes)?];
    Ok(Box::new(ByUser {
        communicator: Communicator::new(world)?,
        copier: Copier::new(device)?,
        from: payload.sent()?,
        into: payload.places()?,
        out: parts(&out, bytes)?,
        back: parts(&back, bytes)?,
        payload,
        peer: 1 - world.rank(),
        sent: Vec::new(),
    }))
}

struct ByUser {
    communicator: Communicator,
    copier: Copier,
    /// On the device.
    payload: Messages,
    from: Section,
    into: Vec<Section>,
    /// On the host: what goes out, and what comes back.
    out: Vec<Section>,
    back: Vec<Section>,
    peer: usize,
    sent: Vec<Request>,
}

impl ByUser {
    fn post(&self, messages: usize) -> Result<Vec<Request>, HaloError> {
        post(&self.communicator, &self.back, self.peer, messages)
    }

    /// Waits for them, and copies what has come to the device; how many they were.
    fn take(&mut self, mut posted: Vec<Request>) -> Result<usize, HaloError> {
        wait_all(&mut posted)?;
        for (host, device) in self.back.iter().zip(&self.into).take(posted.len()) {
            self.copier.up_from(host, device)?;
        }
        Ok(posted.len())
    }

    fn recv_some(&mut self, messages: usize) -> Result<(), HaloError> {
        let mut received = 0;
        while received < messages {
            let posted = self.post(messages - received)?;
            received += self.take(posted)?;
        }
        Ok(())
    }
}

impl Link for ByUser {
    fn start(&mut self) -> Result<(), HaloError> {
        let host = &self.out[self.sent.len()];
        self.copier.down_to(&self.from, host)?;
        self.sent.push(self.communicator.isend(host, self.peer, TAG)?);
        Ok(())
    }

    fn finish(&mut self) -> Result<(), HaloError> {
        wait_all(&mut self.sent)?;
        self.sent.clear();
        Ok(())
    }

    fn recv(&mut self) -> Result<(), HaloError> {
        self.recv_some(1)
    }

    fn send_window(&mut self) -> Result<(), HaloError> {
        for messages in parts_of_window(self.out.len()) {
            (0..messages).try_for_each(|_| self.start())?;
            self.finish()?;
        }
        Ok(())
    }

    fn recv_window(&mut self) -> Result<(), HaloError> {
        self.recv_some(WINDOW)
    }

    fn swap_windows(&mut self) -> Result<(), HaloError> {
        for messages in parts_of_window(self.out.len()) {
            // First, as in the OSU suite: what comes finds its place.
            let posted = self.post(messages)?;
            (0..messages).try_for_each(|_| self.start())?;
            let received = self.take(posted)?;
            self.recv_some(messages - received)?;
            self.finish()?;
        }
        Ok(())
    }

    fn payload(&mut self) -> &mut dyn Payload {
        &mut self.payload
    }
}
