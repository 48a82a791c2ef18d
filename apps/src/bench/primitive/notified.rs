//! `put-notify`: puts of which the target is notified (2015).

use super::payload::Payload;
use super::{Link, WINDOW, zeros};
use streamhalo::comm::window::{NotifyRequest, Window};
use streamhalo::comm::{Source, Tag};
use streamhalo::{HaloError, Stream, World};

pub(super) fn link(
    world: &World,
    stream: &Stream,
    [bytes, places]: [usize; 2],
) -> Result<Option<Box<dyn Link>>, HaloError> {
    let window = Window::allocate::<u8>(world, stream, places * bytes)?;
    let peer = 1 - world.rank();
    let request = |count: usize| window.notify_init(Source::Rank(peer), Tag::Value(TAG), count as u32);
    let (one, all) = (request(1)?, request(WINDOW)?);
    Ok(Some(Box::new(Notified { window, own: zeros(bytes)?, places, peer, one, all })))
}

struct Notified {
    window: Window,
    own: Vec<u8>,
    places: usize,
    peer: usize,
    one: NotifyRequest,
    all: NotifyRequest,
}

const TAG: u32 = 99;

impl Notified {
    fn put_all(&mut self) -> Result<(), HaloError> {
        for message in 0..WINDOW {
            let offset = message % self.places * self.own.len();
            self.window.put_notify(&self.own, self.peer, offset, TAG)?;
        }
        Ok(())
    }
}

impl Link for Notified {
    #[inline(always)]
    fn start(&mut self) -> Result<(), HaloError> {
        Ok(self.window.put_notify(&self.own, self.peer, 0, TAG)?)
    }

    /// Nothing: what a put has taken may be changed as soon as it returns.
    #[inline(always)]
    fn finish(&mut self) -> Result<(), HaloError> {
        Ok(())
    }

    #[inline(always)]
    fn recv(&mut self) -> Result<(), HaloError> {
        self.one.start()?;
        self.one.wait()?;
        Ok(())
    }

    fn send_window(&mut self) -> Result<(), HaloError> {
        self.put_all()
    }

    fn recv_window(&mut self) -> Result<(), HaloError> {
        self.all.start()?;
        self.all.wait()?;
        Ok(())
    }

    fn swap_windows(&mut self) -> Result<(), HaloError> {
        self.put_all()?;
        self.recv_window()
    }

    fn payload(&mut self) -> &mut dyn Payload {
        self
    }
}

impl Payload for Notified {
    fn fill(&mut self, byte: &dyn Fn(usize) -> u8) -> Result<(), HaloError> {
        self.own.iter_mut().enumerate().for_each(|(index, one)| *one = byte(index));
        Ok(())
    }

    fn received(&mut self) -> Result<Vec<u8>, HaloError> {
        let mut bytes = zeros(self.places * self.own.len())?;
        self.window.read(0, &mut bytes)?;
        Ok(bytes)
    }
}
