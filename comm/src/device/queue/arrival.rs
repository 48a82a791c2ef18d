//! Waits whose kernel moves what has arrived to where it belongs (2023, section 5.4).
//!
//! One group of threads does both. Several would all have to wait, each on a compute unit, for the words that one of them
//! looks at: on a GPU that costs as much as a kernel of its own behind the wait, which moves with as many groups as it can
//! use. So what is moved here is little.
//!
//! A stream is told of a wait before it is told of the moves behind it. So a wait that had some behind it before is kept back
//! until the next operation comes, or none does for a while.

use super::awaited::{Number, Place};
use super::engine::Engine;
use super::executor::QueueExecutor;
use super::moves::{Argument, Compiler, Moves, is_one_kernel};
use super::ready::{Onto, words_of};
use super::waits::{DeviceWaits, Launched};
use crate::device::driver::{CommandQueue, Driver, Value};
use crate::device::moves::MoveTable;
use crate::device::operation::WaitSet;
use crate::error::Result;
use crate::fabric::Word;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Chunks of moves that the one group of threads takes one by one, at most; each is of one box.
const MOST_CHUNKS: usize = 4;
/// Looks for the next operation until a wait that was kept back is put on the queue by itself. What is behind it has not come
/// either, so that nothing is late for it; but whoever is to hear of a rank that is gone does not enqueue anything.
const LOOKS: u32 = 256;

/// A wait and moves as one kernel.
pub(super) struct Arrival<D: Driver> {
    kernel: D::Kernel,
    words: Argument,
    awaited: u64,
    moves: Vec<Argument>,
    threads: usize,
}

impl<D: Driver> Arrival<D> {
    /// Compiles one, if one kernel can do both and there is no more to move than one group of threads should.
    pub(super) fn compile(
        engine: &Engine<D>,
        waits: &WaitSet,
        unpack: &Arc<MoveTable>,
    ) -> Result<Option<Self>> {
        let boxes: usize = unpack.nests.iter().map(|nest| nest.pairs.len()).sum();
        if unpack.accumulates || boxes > MOST_CHUNKS || !is_one_kernel(unpack) {
            return Ok(None);
        }
        let regions = unpack.regions.iter().chain(waits.words.iter().map(Word::region));
        let mut compiler = Compiler::new(engine, regions)?;
        let Moves { arguments: moves, threads: all } =
            compiler.tables(unpack.nests.iter().map(|nest| (&**unpack, nest)))?;
        let threads = engine.driver().traits().group_threads;
        if all > MOST_CHUNKS * threads {
            return Ok(None);
        }
        let (words, awaited) = (words_of(&compiler, waits)?, waits.words.len() as u64);
        let kernel = compiler.kernel("halo_arrive")?;
        Ok(Some(Self { kernel, words, awaited, moves, threads }))
    }

    /// Puts it on the queue. The caller holds the words and the moves.
    pub(super) fn launch(
        &mut self,
        queue: &mut D::Queue,
        flags: [Value<'_>; 2],
        (value, place): (Number, Place),
    ) -> Result<()> {
        let words = [self.words.value(), Value::U64(self.awaited)];
        let wait = words.into_iter().chain(flags).chain(value.arguments()).chain(place.arguments());
        let arguments: Vec<Value> = wait.chain(self.moves.iter().map(Argument::value)).collect();
        // SAFETY: the arguments are those of the kernel's text; the tables are held with `self` and what they point into by
        // the caller, and the flags and the place live as long as the queue.
        unsafe { queue.launch("a wait with moves", &mut self.kernel, &arguments, [self.threads, 1, 1]) }
    }
}

/// The last operation, if it was a wait: with its value and its epoch.
pub(super) struct LastWait {
    waits: Arc<WaitSet>,
    wanted: [u32; 2],
    /// Whether it is not on the queue yet, and for how many looks nothing has come behind it.
    kept_back: Option<u32>,
}

impl<D: Driver> QueueExecutor<D> {
    /// Puts a wait that kernels can do on the queue, or keeps it back for the moves that are likely to follow.
    pub(super) fn wait_by_device(&mut self, waits: &Arc<WaitSet>, wanted: [u32; 2]) -> Result<()> {
        if !self.joins() || self.times.is_some() {
            return self.put_wait(waits, wanted, None).map(drop);
        }
        let kept_back = self.onto().awaits_moves(waits)?.then_some(0);
        if kept_back.is_none() {
            self.put_wait(waits, wanted, None)?;
        }
        self.last_wait = Some(LastWait { waits: waits.clone(), wanted, kept_back });
        Ok(())
    }

    /// Whether waits and moves behind them may be one kernel.
    pub(super) fn joins(&self) -> bool {
        self.is_merged && self.device_waits.as_ref().is_some_and(DeviceWaits::are_kernels)
    }

    pub(super) fn onto(&mut self) -> Onto<'_, D> {
        let Self { engine, queue, id, flags, .. } = self;
        Onto { engine, queue, id: *id, flags }
    }

    /// An operation comes, of these moves if any: puts a wait that was kept back on the queue, with them as one kernel if that
    /// can be. Whether it is. Behind a wait that is on the queue already they are made ready to go with it the next time.
    pub(super) fn put_kept_back(&mut self, unpack: Option<&Arc<MoveTable>>) -> Result<bool> {
        let Some(LastWait { waits, wanted, kept_back }) = self.last_wait.take() else { return Ok(false) };
        match (kept_back, unpack) {
            _ if self.status.has_failed() => Ok(false),
            (Some(_), _) => self.put_wait(&waits, wanted, unpack),
            (None, Some(unpack)) => self.onto().joins(&waits, unpack, false).map(|_| false),
            (None, None) => Ok(false),
        }
    }

    /// Nothing has come behind a wait that is kept back, if one is; whether one still is.
    pub(super) fn look_at_kept_back(&mut self) -> Result<bool> {
        match &mut self.last_wait {
            Some(LastWait { kept_back: Some(looks), .. }) if *looks < LOOKS => {
                *looks += 1;
                Ok(true)
            }
            Some(LastWait { kept_back: Some(_), .. }) => self.put_kept_back(None),
            _ => Ok(false),
        }
    }

    fn put_wait(
        &mut self,
        waits: &Arc<WaitSet>,
        wanted: [u32; 2],
        unpack: Option<&Arc<MoveTable>>,
    ) -> Result<bool> {
        // Before: if a call behind the launch fails, the kernel is on the queue all the same.
        if let Some(unpack) = unpack {
            self.hold(unpack.clone())?;
        }
        let Self { engine, queue, id, flags, device_waits, .. } = self;
        let mut onto = Onto { engine, queue, id: *id, flags };
        let launched = match device_waits {
            Some(kernels) => kernels.launch(&mut onto, waits, wanted, unpack)?,
            None => Launched::Nothing,
        };
        if launched == Launched::Nothing {
            self.wait_by_thread(waits, wanted)?;
            return Ok(false);
        }
        self.status.kernel_waits.fetch_add(1, Ordering::Relaxed);
        self.hold(waits.clone())?;
        if launched == Launched::Arrival {
            self.status.merged_arrivals.fetch_add(1, Ordering::Relaxed);
        }
        Ok(launched == Launched::Arrival)
    }
}
