//! Strided moves, and tables of them that are built once and run many times.

use super::section::{Intent, View};
use crate::element::{ElementType, Op};
use crate::error::{Error, Result};
use crate::fabric::{Place, Recording, Region};
use crate::locks::lock;
use std::any::Any;
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex};

/// A strided copy or reduction from one box of elements to another of the same shape: up to two
/// outer axes of contiguous runs.
#[derive(Debug, Clone)]
pub struct Move {
    /// Where the source's first run begins.
    pub source: Place,
    /// Bytes from one run to the next in the source, along the outer and the inner axis.
    pub source_strides: [usize; 2],
    /// Where the destination's first run begins.
    pub destination: Place,
    /// Bytes from one run to the next in the destination, along the outer and the inner axis.
    pub destination_strides: [usize; 2],
    /// Runs along the outer and the inner axis.
    pub counts: [usize; 2],
    /// Length of a run in bytes.
    pub run_bytes: usize,
    /// What a run consists of.
    pub element: ElementType,
    /// How the source is combined with the destination.
    pub op: Op,
}

impl Move {
    /// A copy of so many bytes in one run, of whatever they are.
    pub fn of_bytes(source: Place, destination: Place, bytes: usize) -> Self {
        Self {
            source,
            source_strides: [0; 2],
            destination,
            destination_strides: [0; 2],
            counts: [1; 2],
            run_bytes: bytes,
            element: ElementType::U8,
            op: Op::Replace,
        }
    }

    fn bytes(&self) -> usize {
        self.counts[0].saturating_mul(self.counts[1]).saturating_mul(self.run_bytes)
    }
}

/// A loop nest over runs: moves of one shape, carried out together because they are likely to
/// touch the same cache lines (the two ends of a row, for instance).
pub(crate) struct Nest {
    pub(crate) counts: [usize; 2],
    pub(crate) run_bytes: usize,
    pub(crate) source_strides: [usize; 2],
    pub(crate) destination_strides: [usize; 2],
    /// First source and first destination byte of each move.
    pub(crate) pairs: Vec<(*const u8, *mut u8)>,
    pub(crate) element: ElementType,
    pub(crate) op: Op,
    /// Carries the nest out, compiled for its length of runs and operation.
    pub(crate) run: fn(&Nest),
}

// SAFETY: the pointers are into regions that the table of the nest keeps alive; who accesses them
// when is settled by streams and words.
unsafe impl Send for Nest {}
// SAFETY: as above; a nest is never changed after it was built.
unsafe impl Sync for Nest {}

/// What the moves of a table are for, as a timeline says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Purpose {
    /// Data of the rank that stays within it.
    #[default]
    Copy,
    /// The payload for that rank.
    Pack(usize),
    /// What has arrived goes to where it belongs.
    Unpack,
}

/// What streams of a device have made of a table to run it, by the numbers of their executors: made once for each.
#[derive(Default)]
pub(crate) struct OnDevice(Mutex<Vec<(u64, Box<dyn Any + Send>)>>);

impl OnDevice {
    /// Hands `run` what an executor has made of it, or makes now. Both are given the queue.
    pub(crate) fn with<Q, T: Send + 'static, R>(
        &self,
        executor: u64,
        queue: &mut Q,
        make: impl FnOnce(&mut Q) -> Result<T>,
        run: impl FnOnce(&mut Q, &mut T) -> Result<R>,
    ) -> Result<R> {
        let mut known = lock(&self.0);
        let index = match known.iter().position(|(of, _)| *of == executor) {
            Some(index) => index,
            None => {
                known.push((executor, Box::new(make(queue)?)));
                known.len() - 1
            }
        };
        run(queue, known[index].1.downcast_mut().expect("executors have a number each"))
    }
}

impl fmt::Debug for OnDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OnDevice")
    }
}

/// Moves, checked and compiled to loop nests. Running it neither allocates nor fails.
pub struct MoveTable {
    pub(crate) nests: Vec<Nest>,
    /// The first nest of each stage.
    pub(crate) stages: Vec<usize>,
    /// Whether the last nests reduce atomically.
    pub(crate) accumulates: bool,
    pub(crate) on_device: OnDevice,
    /// Payload that goes to watched memory of peers: observer, rank, bytes.
    pub(super) observed: Vec<(Arc<Recording>, usize, usize)>,
    pub(super) bytes: usize,
    pub(super) purpose: Purpose,
    /// Whether the host may carry it out.
    pub(crate) host_reaches: bool,
    /// What the pointers point into.
    pub(crate) regions: Vec<Region>,
}

impl MoveTable {
    /// Compiles stages of moves. Moves of one stage do not depend on each other, except that
    /// reductions happen in the given order; stages run one after the other.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`] if a move leaves its region.
    pub fn new(stages: &[Vec<Move>]) -> Result<Self> {
        let mut table = Self::empty();
        for stage in stages {
            let first = table.nests.len();
            table.stages.push(first);
            for one in stage.iter().filter(|one| one.bytes() > 0) {
                table.check(one)?;
                table.keep(one);
                table.add(first, one);
                table.bytes = table.bytes.saturating_add(one.bytes());
            }
        }
        Ok(table)
    }

    pub(super) fn empty() -> Self {
        Self {
            nests: Vec::new(),
            stages: Vec::new(),
            accumulates: false,
            on_device: OnDevice::default(),
            observed: Vec::new(),
            bytes: 0,
            purpose: Purpose::default(),
            host_reaches: true,
            regions: Vec::new(),
        }
    }

    /// Compiles moves that do not depend on each other, and then reductions into memory that others may
    /// reduce into at the same time, element by element atomically and in the given order.
    ///
    /// # Errors
    /// As [`MoveTable::new`]; [`Error::Misaligned`] if a reduction's destination is not aligned.
    pub(crate) fn with_accumulates(moves: Vec<Move>, accumulates: &[Move]) -> Result<Self> {
        let mut table = Self::new(&[moves])?;
        table.accumulates = !accumulates.is_empty();
        for one in accumulates.iter().filter(|one| one.bytes() > 0) {
            table.check(one)?;
            let (element, place) = (one.element, &one.destination);
            if !(place.pointer() as usize).is_multiple_of(element.bytes()) {
                return Err(Error::Misaligned { what: "an accumulate", offset: place.offset(), element });
            }
            table.keep(one);
            let mut nest = Nest::of(one);
            nest.run = super::host::accumulate::accumulator(&nest);
            table.nests.push(nest);
            table.bytes = table.bytes.saturating_add(one.bytes());
        }
        Ok(table)
    }

    /// The same moves, for a timeline that says what for.
    pub fn meant_for(self, purpose: Purpose) -> Self {
        Self { purpose, ..self }
    }

    /// What they are for.
    pub fn purpose(&self) -> Purpose {
        self.purpose
    }

    /// Bytes that a run of the table reads at the sources of all its moves: as many as it copies or combines.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether it moves something, and no memory of a device.
    pub(crate) fn is_of_host(&self) -> bool {
        self.bytes > 0 && self.regions.iter().all(|region| region.on_device().is_none())
    }

    /// That it does nothing to what those views show that they forbid.
    ///
    /// # Errors
    /// [`Error::InUse`].
    pub(super) fn check_views(&self, views: &[View]) -> Result<()> {
        let meets = |(intent, addresses): (Intent, Range<usize>)| {
            views.iter().find(|view| intent.meets(&addresses, view.intent, &view.addresses))
        };
        let Some(view) = self.touched().find_map(meets) else { return Ok(()) };
        let (start, end) = (view.addresses.start - view.of, view.addresses.end - view.of);
        Err(Error::InUse { what: "a move", start, end, by: "a view of an array" })
    }

    /// Addresses between which it reads and writes.
    fn touched(&self) -> impl Iterator<Item = (Intent, Range<usize>)> {
        self.nests.iter().flat_map(|nest| {
            let reach = |strides: [usize; 2]| {
                (nest.counts[0] - 1) * strides[0] + (nest.counts[1] - 1) * strides[1] + nest.run_bytes
            };
            let (read, written) = (reach(nest.source_strides), reach(nest.destination_strides));
            nest.pairs.iter().flat_map(move |(source, destination)| {
                let (source, destination) = (*source as usize, *destination as usize);
                [(Intent::Read, source..source + read), (Intent::Write, destination..destination + written)]
            })
        })
    }

    /// How many loop nests a run of the table goes through: moves of one shape and stage are one.
    pub fn nests(&self) -> usize {
        self.nests.len()
    }

    fn check(&self, one: &Move) -> Result<()> {
        // What cannot be counted is beyond the end of every region.
        let reach = |strides: [usize; 2]| {
            let steps = |axis: usize| (one.counts[axis] - 1).saturating_mul(strides[axis]);
            steps(0).saturating_add(steps(1)).saturating_add(one.run_bytes)
        };
        one.source.advance(0, reach(one.source_strides), "the source of a move")?;
        one.destination.advance(0, reach(one.destination_strides), "the destination of a move")?;
        if !one.run_bytes.is_multiple_of(one.element.bytes()) {
            return Err(Error::OutOfBounds {
                what: "a move of whole elements",
                start: 0,
                end: one.run_bytes,
                region_bytes: one.element.bytes(),
            });
        }
        Ok(())
    }

    fn keep(&mut self, one: &Move) {
        for region in [one.source.region(), one.destination.region()] {
            self.host_reaches &= region.host_reaches();
            if !self.regions.iter().any(|kept| kept.is_same(region)) {
                self.regions.push(region.clone());
            }
        }
        let target = one.destination.region();
        if let Some(observer) = target.observer() {
            // One put per target region, however many boxes it consists of.
            match self
                .observed
                .iter_mut()
                .find(|(seen, to, _)| Arc::ptr_eq(seen, observer) && *to == target.owner())
            {
                Some((_, _, bytes)) => *bytes += one.bytes(),
                None => self.observed.push((observer.clone(), target.owner(), one.bytes())),
            }
        }
    }

    fn add(&mut self, first_of_stage: usize, one: &Move) {
        let nest = Nest::of(one);
        let alike = |other: &&mut Nest| {
            nest.op == Op::Replace
                && other.op == Op::Replace
                && (nest.counts, nest.run_bytes) == (other.counts, other.run_bytes)
                && nest.source_strides == other.source_strides
                && nest.destination_strides == other.destination_strides
        };
        match self.nests[first_of_stage..].iter_mut().find(alike) {
            Some(other) => other.pairs.extend(nest.pairs),
            None => self.nests.push(nest),
        }
    }

    /// Tells the observers, if any, of the payload that a run of the table has stored.
    #[inline(always)]
    pub(crate) fn observe(&self) {
        for (observer, to, bytes) in &self.observed {
            observer.stored(*to, *bytes);
        }
    }
}

impl Nest {
    fn of(one: &Move) -> Self {
        let nest = Self {
            counts: one.counts,
            run_bytes: one.run_bytes,
            source_strides: one.source_strides,
            destination_strides: one.destination_strides,
            pairs: vec![(one.source.address().cast_const(), one.destination.address())],
            element: one.element,
            op: one.op,
            run: |_| {},
        };
        nest.merge_runs()
    }

    /// One loop fewer where runs follow each other without a gap on both sides, and the code for what is left.
    pub(super) fn merge_runs(mut self) -> Self {
        for _ in 0..2 {
            if self.counts[1] == 1 {
                // The inner axis has nothing to step over: let the outer one take its place.
                self.counts = [1, self.counts[0]];
                self.source_strides[1] = self.source_strides[0];
                self.destination_strides[1] = self.destination_strides[0];
            }
            if self.counts[1] > 1
                && self.source_strides[1] == self.run_bytes
                && self.destination_strides[1] == self.run_bytes
            {
                self.run_bytes *= self.counts[1];
                self.counts[1] = 1;
            }
        }
        self.run = super::host::copy::runner(&self);
        self
    }
}

impl fmt::Debug for MoveTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MoveTable({} bytes in {} loop nests)", self.bytes, self.nests.len())
    }
}
