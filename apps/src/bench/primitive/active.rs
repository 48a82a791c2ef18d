//! `put-active` and `put-stream`: puts in active target epochs, of the host and on a stream (2023).

use super::payload::{Messages, Payload};
use super::{Link, WINDOW};
use streamhalo::comm::device::Section;
use streamhalo::comm::window::{ActiveOptions, Group, Mode, Window};
use streamhalo::{HaloError, Stream, World};

pub(super) fn link(
    world: &World,
    stream: &Stream,
    [bytes, places]: [usize; 2],
    mode: Mode,
) -> Result<Option<Box<dyn Link>>, HaloError> {
    let payload = Messages::new(world, stream, bytes, places)?;
    let window = Window::active(world, &payload.all()?, ActiveOptions::default())?;
    let (from, peer) = (payload.sent()?, 1 - world.rank());
    let group = Group::new(world, &[peer])?;
    let stream = stream.clone();
    Ok(Some(Box::new(Active { stream, window, payload, from, group, peer, mode, places })))
}

struct Active {
    stream: Stream,
    window: Window,
    payload: Messages,
    from: Section,
    group: Group,
    peer: usize,
    mode: Mode,
    places: usize,
}

impl Active {
    fn post(&self) -> Result<(), HaloError> {
        match self.mode {
            Mode::Host => self.window.post(&self.group)?,
            Mode::Stream => self.window.post_stream(&self.group, &self.stream)?,
        }
        Ok(())
    }

    fn wait(&self) -> Result<(), HaloError> {
        match self.mode {
            Mode::Host => self.window.wait()?,
            Mode::Stream => self.window.wait_stream(&self.stream)?,
        }
        Ok(())
    }

    fn put_all(&self) -> Result<(), HaloError> {
        self.window.start(&self.group, self.mode)?;
        // Puts of an epoch that overlap leave anything behind: each place once, in as many epochs as that takes.
        (0..self.places)
            .try_for_each(|place| self.window.put(&self.from, self.peer, place * self.from.bytes()))?;
        Ok(())
    }

    /// How many epochs the messages of a window take.
    fn epochs(&self) -> usize {
        WINDOW.div_ceil(self.places)
    }
}

impl Link for Active {
    fn start(&mut self) -> Result<(), HaloError> {
        self.window.start(&self.group, self.mode)?;
        Ok(self.window.put(&self.from, self.peer, 0)?)
    }

    fn finish(&mut self) -> Result<(), HaloError> {
        match self.mode {
            Mode::Host => self.window.complete()?,
            Mode::Stream => self.window.complete_stream(&self.stream)?,
        }
        Ok(())
    }

    fn recv(&mut self) -> Result<(), HaloError> {
        self.post()?;
        self.wait()
    }

    fn send_window(&mut self) -> Result<(), HaloError> {
        for _ in 0..self.epochs() {
            self.put_all()?;
            self.finish()?;
        }
        Ok(())
    }

    fn recv_window(&mut self) -> Result<(), HaloError> {
        (0..self.epochs()).try_for_each(|_| self.recv())
    }

    fn swap_windows(&mut self) -> Result<(), HaloError> {
        for _ in 0..self.epochs() {
            self.post()?;
            self.put_all()?;
            self.finish()?;
            self.wait()?;
        }
        Ok(())
    }

    fn synchronize(&mut self) -> Result<(), HaloError> {
        Ok(self.stream.synchronize()?)
    }

    fn payload(&mut self) -> &mut dyn Payload {
        &mut self.payload
    }

    fn executor(&self) -> String {
        self.window.executor(self.peer, self.mode).to_string()
    }
}
