//! What is sent, and the places that it is received into.

use streamhalo::comm::device::{Buffer, Extents, Section};
use streamhalo::{HaloError, Stream, World};

/// What a link sends and has received, for those who check it.
pub(in crate::bench) trait Payload {
    /// Has each byte of the next messages be the one for its index.
    fn fill(&mut self, byte: &dyn Fn(usize) -> u8) -> Result<(), HaloError>;
    /// What was received last, once for each place that messages take turns in.
    fn received(&mut self) -> Result<Vec<u8>, HaloError>;
}

/// A message of a stream's own memory, and places for those of the peer.
pub(super) struct Messages {
    own: Buffer<u8>,
    theirs: Buffer<u8>,
    bytes: usize,
}

impl Messages {
    pub(super) fn new(
        world: &World,
        stream: &Stream,
        bytes: usize,
        places: usize,
    ) -> Result<Self, HaloError> {
        let (own, theirs) = (line(world, stream, bytes)?, line(world, stream, places * bytes)?);
        Ok(Self { own, theirs, bytes })
    }

    /// What is sent.
    pub(super) fn sent(&self) -> Result<Section, HaloError> {
        Ok(self.own.section(0..self.bytes)?)
    }

    /// Where messages are received.
    pub(super) fn places(&self) -> Result<Vec<Section>, HaloError> {
        parts(&self.theirs, self.bytes)
    }

    /// All of these places as one.
    pub(super) fn all(&self) -> Result<Section, HaloError> {
        Ok(self.theirs.section(0..self.theirs.extents().points[2])?)
    }
}

impl Payload for Messages {
    fn fill(&mut self, byte: &dyn Fn(usize) -> u8) -> Result<(), HaloError> {
        let fill = |line: ndarray::ArrayViewMut4<'_, u8>| {
            line.into_iter().enumerate().for_each(|(index, one)| *one = byte(index));
        };
        Ok(self.own.with_host_mut(self.own.extents().whole(), fill)?)
    }

    fn received(&mut self) -> Result<Vec<u8>, HaloError> {
        Ok(self.theirs.copy_out(self.theirs.extents().whole())?)
    }
}

/// A line of bytes.
pub(super) fn line(world: &World, stream: &Stream, bytes: usize) -> Result<Buffer<u8>, HaloError> {
    let extents = Extents { points: [1, 1, bytes], components: 1 };
    Ok(Buffer::zeros(world, stream, extents)?)
}

/// A line in pieces of so many bytes.
pub(super) fn parts(line: &Buffer<u8>, bytes: usize) -> Result<Vec<Section>, HaloError> {
    let starts = (0..line.extents().points[2]).step_by(bytes);
    Ok(starts.map(|start| line.section(start..start + bytes)).collect::<Result<_, _>>()?)
}
