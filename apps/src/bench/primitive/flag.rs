//! `flag`: one cache line, one way. Not a message, but what no message can be faster than.

use super::Link;
use super::payload::Payload;
use streamhalo::comm::fabric::FlagPair;
use streamhalo::{HaloError, Stream, World};

/// What fits a line beside the flag.
const LARGEST: usize = 32;

pub(super) fn link(
    world: &World,
    _stream: &Stream,
    [bytes, _]: [usize; 2],
) -> Result<Option<Box<dyn Link>>, HaloError> {
    let pair = FlagPair::connect(world, 1 - world.rank())?;
    Ok(pair.filter(|_| bytes <= LARGEST).map(|pair| Box::new(Flag(pair)) as Box<dyn Link>))
}

struct Flag(FlagPair);

impl Link for Flag {
    #[inline(always)]
    fn start(&mut self) -> Result<(), HaloError> {
        self.0.raise();
        Ok(())
    }

    #[inline(always)]
    fn finish(&mut self) -> Result<(), HaloError> {
        Ok(())
    }

    #[inline(always)]
    fn recv(&mut self) -> Result<(), HaloError> {
        Ok(self.0.wait()?)
    }

    fn send_window(&mut self) -> Result<(), HaloError> {
        (0..super::WINDOW).try_for_each(|_| self.start())
    }

    fn recv_window(&mut self) -> Result<(), HaloError> {
        (0..super::WINDOW).try_for_each(|_| self.recv())
    }

    fn swap_windows(&mut self) -> Result<(), HaloError> {
        self.send_window()?;
        self.recv_window()
    }

    fn payload(&mut self) -> &mut dyn Payload {
        self
    }

    fn executor(&self) -> String {
        "stream".to_owned()
    }
}

/// Nothing: a flag that had not come would not have been waited for.
impl Payload for Flag {
    fn fill(&mut self, _byte: &dyn Fn(usize) -> u8) -> Result<(), HaloError> {
        Ok(())
    }

    fn received(&mut self) -> Result<Vec<u8>, HaloError> {
        Ok(Vec::new())
    }
}
