//! Messages that are filled and checked by kernels, and what these have found.

use crate::cases::Done;
use crate::random::mix;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use streamhalo::comm::device::{Buffer, Extents, Section};
use streamhalo::{HaloError, Rows, RowsMut, Stream, Tile, World};

/// Elements of messages: none, some that fit a line, a packet and a buffer of a library, and one that does not.
pub const SIZES: [usize; 5] = [0, 1, 3, 400, 12_000];

/// What checks on a stream have found.
#[derive(Debug, Clone, Default)]
pub struct Checks {
    wrong: Arc<AtomicU64>,
    sum: Arc<AtomicU64>,
}

impl Checks {
    /// The sum over all values that were right.
    ///
    /// # Panics
    /// If one was wrong.
    pub fn done(&self, context: &dyn std::fmt::Debug) -> Done {
        assert_eq!(self.wrong.load(Ordering::SeqCst), 0, "wrong values: {context:?}");
        Done { checksum: self.sum.load(Ordering::SeqCst), ..Done::default() }
    }

    pub(super) fn compare(&self, found: i64, expected: i64) {
        if found != expected {
            self.wrong.fetch_add(1, Ordering::SeqCst);
        }
        self.sum.fetch_add(mix(found as u64), Ordering::SeqCst);
    }
}

/// What element `index` of message `number` from `sender` is in an epoch.
pub fn element(sender: usize, number: usize, epoch: usize, index: usize) -> i64 {
    (((sender * 64 + number) * 1000 + epoch) * 100_000 + index) as i64
}

/// A message of its own memory.
#[derive(Debug)]
pub struct Payload {
    pub(super) buffer: Buffer<i64>,
    elements: usize,
}

impl Payload {
    /// Zeroed.
    pub fn new(world: &World, stream: &Stream, elements: usize) -> Result<Self, HaloError> {
        let extents = Extents { points: [1, 1, elements.max(1)], components: 1 };
        Ok(Self { buffer: Buffer::zeros(world, stream, extents)?, elements })
    }

    /// All of it.
    pub fn section(&self) -> Result<Section, HaloError> {
        Ok(self.buffer.section(0..self.elements)?)
    }

    pub(super) fn whole(&self) -> Tile {
        self.buffer.extents().whole()
    }

    /// Enqueues filling it.
    pub fn fill(&mut self, sender: usize, number: usize, epoch: usize) -> Result<(), HaloError> {
        let (stream, tile) = (self.buffer.stream().clone(), self.whole());
        let writer = self.buffer.writer(tile)?;
        stream.launch_on_host("fill", tile, (writer,), move |_, (mut out,): (RowsMut<'_, i64>,)| {
            for (index, value) in out.row(0, 0).iter_mut().enumerate() {
                *value = element(sender, number, epoch, index);
            }
        })?;
        Ok(())
    }

    /// What it holds, when all that was enqueued before has been done.
    pub fn read(&self) -> Result<Vec<i64>, HaloError> {
        self.buffer.stream().synchronize()?;
        let mut all = self.buffer.copy_out(self.whole())?;
        all.truncate(self.elements);
        Ok(all)
    }

    /// Enqueues comparing the first elements with what was sent, and the others with 0.
    pub fn check(
        &self,
        checks: &Checks,
        (sender, number, epoch): (usize, usize, usize),
        elements: usize,
    ) -> Result<(), HaloError> {
        let (tile, checks) = (self.whole(), checks.clone());
        let reader = self.buffer.reader(tile)?;
        let stream = self.buffer.stream();
        stream.launch_on_host("check", tile, (reader,), move |_, (found,): (Rows<'_, i64>,)| {
            for (index, value) in found.row(0, 0).iter().enumerate() {
                let expected = if index < elements { element(sender, number, epoch, index) } else { 0 };
                checks.compare(*value, expected);
            }
        })?;
        Ok(())
    }
}
