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
use super::relay::Sent;
use super::waits::{DeviceWaits, Launched};
use crate::device::counts::Count;
use crate::device::driver::{CommandQueue, Driver, Groups, Value};
use crate::device::moves::MoveTable;
use crate::device::operation::WaitSet;
use crate::error::Result;
use crate::fabric::Word;
use std::sync::Arc;

/// Chunks of moves that the one group of threads takes one by one, at most, each of one box, and how many of these would be full:
/// a kernel with more groups is faster then, by more than its launch takes.
pub(super) const MOST_CHUNKS: [usize; 2] = [4, 2];
/// Looks for the next operation until a wait that was kept back is put on the queue by itself. What is behind it has not come
/// either, so that nothing is late for it; but whoever is to hear of a rank that is gone does not enqueue anything.
const LOOKS: u32 = 256;

/// A wait and moves as one kernel.
pub(super) struct Arrival<D: Driver> {
    kernel: D::Kernel,
    words: Argument,
    awaited: u64,
    moves: Moves,
}

impl<D: Driver> Arrival<D> {
    /// Compiles one, if one kernel can do both and there is no more to move than one group of threads should.
    pub(super) fn compile(
        engine: &Engine<D>,
        waits: &WaitSet,
        unpack: &Arc<MoveTable>,
    ) -> Result<Option<Self>> {
        let boxes: usize = unpack.nests.iter().map(|nest| nest.pairs.len()).sum();
        if unpack.accumulates || boxes > MOST_CHUNKS[0] || !is_one_kernel(unpack) {
            return Ok(None);
        }
        let regions = unpack.regions.iter().chain(waits.words.iter().map(Word::region));
        let mut compiler = Compiler::new(engine, regions)?;
        let nests = unpack.nests.iter().map(|nest| (&**unpack, nest));
        let Some(moves) = compiler.by_one_group(nests, MOST_CHUNKS, None)? else { return Ok(None) };
        let (words, awaited) = (words_of(&compiler, waits)?, waits.words.len() as u64);
        let kernel = compiler.kernel("halo_arrive")?;
        Ok(Some(Self { kernel, words, awaited, moves }))
    }

    /// The arguments of its kernel, and the first of one that does more.
    pub(super) fn arguments(
        &self,
        flags: [Value<'static>; 2],
        (value, place): (Number, Place),
    ) -> impl Iterator<Item = Value<'static>> {
        let words = [self.words.value(), Value::U64(self.awaited)];
        let wait = words.into_iter().chain(flags).chain(value.arguments()).chain(place.arguments());
        wait.chain(self.moves.arguments.iter().map(Argument::value))
    }

    /// Those of its one group.
    pub(super) fn threads(&self) -> usize {
        self.moves.threads
    }

    /// Puts it on the queue. The caller holds the words and the moves.
    pub(super) fn launch(
        &mut self,
        queue: &mut D::Queue,
        flags: [Value<'static>; 2],
        numbers: (Number, Place),
    ) -> Result<()> {
        let arguments: Vec<Value> = self.arguments(flags, numbers).collect();
        // SAFETY: the arguments are those of the kernel's text; the tables are held with `self` and what they point into by
        // the caller, and the flags and the place live as long as the queue.
        unsafe {
            queue.launch("a wait with moves", &mut self.kernel, &arguments, Groups::One(self.moves.threads))
        }
    }
}

/// The last operation, if it was a wait: with its value and its epoch.
pub(super) struct LastWait {
    pub(super) waits: Arc<WaitSet>,
    wanted: [u32; 2],
    /// The moves that have come behind it, if its kernel does them.
    pub(super) unpack: Option<Arc<MoveTable>>,
    /// Whether it is not on the queue yet, and for how many looks nothing has come behind it.
    pub(super) kept_back: Option<u32>,
}

impl<D: Driver> QueueExecutor<D> {
    /// Puts a wait that kernels can do on the queue, or keeps it back for the moves that are likely to follow.
    pub(super) fn wait_by_device(&mut self, waits: &Arc<WaitSet>, wanted: [u32; 2]) -> Result<()> {
        if !self.joins() || self.times.is_some() {
            return self.put_wait((waits, wanted), None, None).map(drop);
        }
        let kept_back = self.onto().awaits_moves(waits)?.then_some(0);
        if kept_back.is_none() {
            self.put_wait((waits, wanted), None, None)?;
        }
        self.last_wait = Some(LastWait { waits: waits.clone(), wanted, unpack: None, kept_back });
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

    /// An operation comes, of these moves if any: puts what was kept back on the queue, a wait with them as one kernel if that
    /// can be. Whether it is, or keeps both back for a send. Behind a wait that is on the queue already they are made ready to
    /// go with it the next time.
    pub(super) fn put_kept_back(&mut self, unpack: Option<&Arc<MoveTable>>) -> Result<bool> {
        self.put_arrival(None)?;
        let Some(last) = self.last_wait.take().filter(|last| last.unpack.is_none()) else { return Ok(false) };
        let wait = (&last.waits, last.wanted);
        match (last.kept_back, unpack) {
            _ if self.status.has_failed() => Ok(false),
            (Some(_), Some(unpack)) => {
                let kept_back = self.onto().expects_send(&last.waits, unpack)?.then_some(0);
                let goes =
                    kept_back.is_some() || self.put_wait(wait, Some(unpack), None)? == Launched::Arrival;
                self.last_wait = goes.then(|| LastWait { unpack: Some(unpack.clone()), kept_back, ..last });
                Ok(goes)
            }
            (Some(_), None) => self.put_wait(wait, None, None).map(|_| false),
            (None, Some(unpack)) => self.onto().joins(&last.waits, unpack, false).map(|_| false),
            (None, None) => Ok(false),
        }
    }

    /// Signals or a send come, which may go with a wait and the moves behind it: puts a wait without any on the queue, if one
    /// was kept back.
    pub(super) fn put_wait_alone(&mut self) -> Result<()> {
        match &self.last_wait {
            Some(LastWait { unpack: Some(_), .. }) => Ok(()),
            _ => self.put_kept_back(None).map(drop),
        }
    }

    /// Puts a wait on the queue that was kept back with the moves behind it, if one was, and a send as the same kernel if that
    /// can be.
    pub(super) fn put_arrival(&mut self, sent: Option<Sent<'_>>) -> Result<Launched> {
        let is_kept_back = |last: &mut LastWait| last.kept_back.is_some() && last.unpack.is_some();
        let last = self.last_wait.take_if(is_kept_back);
        let Some(last) = last.filter(|_| !self.status.has_failed()) else { return Ok(Launched::Nothing) };
        let launched = self.put_wait((&last.waits, last.wanted), last.unpack.as_ref(), sent)?;
        match (launched, &last.unpack) {
            (Launched::Relay, _) => {}
            (Launched::Arrival, _) => self.last_wait = Some(LastWait { kept_back: None, ..last }),
            (_, Some(unpack)) if !self.status.has_failed() => {
                self.holding(unpack.clone(), |own, unpack| own.put_moves(unpack))?;
            }
            _ => {}
        }
        Ok(launched)
    }

    /// Nothing has come behind what is kept back, if something is; whether it still is.
    pub(super) fn look_at_kept_back(&mut self) -> Result<bool> {
        let wait = match &mut self.last_wait {
            Some(LastWait { kept_back: Some(looks), .. }) => {
                *looks += 1;
                (*looks <= LOOKS).then_some(true)
            }
            _ => Some(false),
        };
        let is_clear = self.kept_send.as_ref().is_some_and(|one| one.send.is_clear(one.epoch));
        match (wait, self.look_at_signals()) {
            (Some(wait), Some(signals)) if !is_clear => Ok(wait || signals),
            _ => {
                if let Some(LastWait { waits, unpack: Some(unpack), kept_back: Some(_), .. }) =
                    &self.last_wait
                    && !is_clear
                {
                    let (waits, unpack) = (waits.clone(), unpack.clone());
                    self.onto().expect_send(&waits, &unpack, false)?;
                }
                self.put_all_kept_back().map(|()| false)
            }
        }
    }

    fn put_wait(
        &mut self,
        (waits, wanted): (&Arc<WaitSet>, [u32; 2]),
        unpack: Option<&Arc<MoveTable>>,
        sent: Option<Sent<'_>>,
    ) -> Result<Launched> {
        let launched = self.holding((waits.clone(), unpack.cloned()), |own, _| {
            let Self { engine, queue, id, flags, device_waits, .. } = own;
            let mut onto = Onto { engine, queue, id: *id, flags };
            match device_waits {
                Some(kernels) => kernels.launch(&mut onto, (waits, wanted), unpack, sent),
                None => Ok(Launched::Nothing),
            }
        })?;
        if launched == Launched::Nothing {
            self.wait_by_thread(waits, wanted)?;
            return Ok(launched);
        }
        self.status.count(Count::KernelWaits, 1);
        if launched != Launched::Wait {
            self.status.count(Count::MergedArrivals, 1);
            unpack.iter().for_each(|unpack| unpack.observe());
        }
        Ok(launched)
    }
}
