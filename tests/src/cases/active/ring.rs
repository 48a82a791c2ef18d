//! Windows whose contents are written and checked by kernels.

use crate::{Sample, value};
use std::fmt::Debug;
use std::ops::Range;
use std::sync::{Arc, Mutex};
use streamhalo::comm::device::{Buffer, Extents};
use streamhalo::comm::window::{ActiveOptions, Group, Mode, Window};
use streamhalo::{HaloError, Rows, RowsMut, Stream, World};

/// A row of elements.
pub fn row(elements: usize) -> Extents {
    Extents { points: [1, 1, elements], components: 1 }
}

/// What kernels have found wrong.
#[derive(Debug, Clone, Default)]
pub struct Faults(Arc<Mutex<Vec<String>>>);

impl Faults {
    /// Checks a part of a buffer once the stream has come to here.
    pub fn check<T: Sample>(
        &self,
        stream: &Stream,
        buffer: &Buffer<T>,
        part: Range<usize>,
        what: String,
        expected: impl Fn(usize) -> T + Send + Sync + 'static,
    ) -> Result<(), HaloError> {
        let faults = self.clone();
        let whole = buffer.extents().whole();
        let compare = move |_, (rows,): (Rows<'_, T>,)| {
            for (i, found) in rows.row(0, 0)[part.clone()].iter().enumerate() {
                let expected = expected(i);
                if *found != expected {
                    let fault = format!("{what}, element {i}: {found:?} instead of {expected:?}");
                    faults.0.lock().expect("checks do not panic").push(fault);
                }
            }
        };
        Ok(stream.launch_on_host("compare", whole, (buffer.reader(whole)?,), compare)?)
    }

    /// Fails if anything was found.
    pub fn assert_none(&self, context: &dyn Debug) {
        let faults = self.0.lock().expect("checks do not panic");
        assert!(
            faults.is_empty(),
            "{context:?}: {} faults: {:#?}",
            faults.len(),
            &faults[..faults.len().min(5)]
        );
    }
}

/// Fills a buffer once the stream has come to here.
pub fn fill<T: Sample>(
    stream: &Stream,
    buffer: &mut Buffer<T>,
    with: impl Fn(usize) -> T + Send + Sync + 'static,
) -> Result<(), HaloError> {
    let whole = buffer.extents().whole();
    let fill = move |_, (mut rows,): (RowsMut<'_, T>,)| {
        for (i, element) in rows.row(0, 0).iter_mut().enumerate() {
            *element = with(i);
        }
    };
    Ok(stream.launch_on_host("fill", whole, (buffer.writer(whole)?,), fill)?)
}

/// A number that tells ranks, epochs and elements apart.
pub(super) fn sample<T: Sample>(rank: usize, epoch: u32, index: usize) -> T {
    value(rank, &[index], 0, epoch)
}

/// Each rank writes to its left and right neighbour, epoch after epoch, and reads what these have written.
#[derive(Debug)]
pub struct Ring {
    stream: Stream,
    /// From the left, then from the right.
    received: Buffer<f64>,
    source: Buffer<f64>,
    pub(super) window: Window,
    pub(super) group: Group,
    left: usize,
    right: usize,
    elements: usize,
    rank: usize,
    epoch: u32,
    faults: Faults,
}

impl Ring {
    /// Collective.
    pub fn new(
        world: &World,
        stream: &Stream,
        elements: usize,
        options: ActiveOptions,
    ) -> Result<Self, HaloError> {
        let (rank, ranks) = (world.rank(), world.size());
        let (left, right) = ((rank + ranks - 1) % ranks, (rank + 1) % ranks);
        let received = Buffer::zeros(world, stream, row(2 * elements))?;
        let window = Window::active(world, &received.section(0..2 * elements)?, options)?;
        let group = if left == right { vec![left] } else { vec![left, right] };
        Ok(Self {
            stream: stream.clone(),
            source: Buffer::zeros(world, stream, row(elements))?,
            received,
            window,
            group: Group::new(world, &group)?,
            left,
            right,
            elements,
            rank,
            epoch: 0,
            faults: Faults::default(),
        })
    }

    /// The window.
    pub fn window(&self) -> &Window {
        &self.window
    }

    pub(super) fn puts(&self) -> Result<(), HaloError> {
        let section = self.source.section(0..self.elements)?;
        self.window.put(&section, self.left, self.elements)?;
        self.window.put(&section, self.right, 0)?;
        Ok(())
    }

    fn increment(&mut self) -> Result<(), HaloError> {
        let (rank, epoch) = (self.rank, self.epoch);
        fill(&self.stream, &mut self.source, move |i| sample(rank, epoch, i))
    }

    fn compare(&self) -> Result<(), HaloError> {
        for (part, from) in [self.left, self.right].into_iter().enumerate() {
            let epoch = self.epoch;
            let what = format!("from rank {from} in epoch {epoch}");
            let part = part * self.elements..(part + 1) * self.elements;
            self.faults.check(&self.stream, &self.received, part, what, move |i| sample(from, epoch, i))?;
        }
        Ok(())
    }

    /// Exposes the window and fills what is sent (figure 9b).
    pub fn post_stream(&mut self) -> Result<(), HaloError> {
        self.window.post_stream(&self.group, &self.stream)?;
        self.epoch += 1;
        self.increment()
    }

    /// The access epoch.
    pub fn access_stream(&self) -> Result<(), HaloError> {
        self.window.start(&self.group, Mode::Stream)?;
        self.puts()?;
        Ok(self.window.complete_stream(&self.stream)?)
    }

    /// Ends the exposure and reads what has come.
    pub fn wait_stream(&self) -> Result<(), HaloError> {
        self.window.wait_stream(&self.stream)?;
        self.compare()
    }

    /// One epoch, all of it on the stream.
    pub fn step_stream(&mut self) -> Result<(), HaloError> {
        self.post_stream()?;
        self.access_stream()?;
        self.wait_stream()
    }

    /// One epoch by the host, which synchronises the stream twice (figure 9a).
    pub fn step_host(&mut self, tests: bool) -> Result<(), HaloError> {
        self.window.post(&self.group)?;
        self.epoch += 1;
        self.increment()?;
        self.stream.synchronize()?;
        self.window.start(&self.group, Mode::Host)?;
        self.puts()?;
        self.window.complete()?;
        if tests {
            while !self.window.test()? {
                std::thread::yield_now();
            }
        } else {
            self.window.wait()?;
        }
        self.compare()?;
        Ok(self.stream.synchronize()?)
    }

    /// Waits for the stream, and fails if anything was wrong.
    pub fn finish(&self) -> Result<(), HaloError> {
        self.stream.synchronize()?;
        self.faults.assert_none(&(self.rank, &self.window));
        Ok(())
    }
}
