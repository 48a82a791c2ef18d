//! Tables of moves as a device carries them out: all moves of a stage in one kernel.

use super::bounce::{Bounce, Bounces};
use super::engine::Engine;
use super::pieces::{EACH, MOST_WORDS, Piece, chunks_of};
use super::waits::Flags;
use crate::device::accelerator::DeviceMemory;
use crate::device::driver::{CommandQueue, Driver, Groups, MemoryKind, Value};
use crate::device::moves::{MoveTable, Nest};
use crate::element::{ElementType, Op};
use crate::error::{Error, Result};
use crate::fabric::Region;
use std::ffi::c_void;
use std::sync::Arc;

/// Whether one kernel can carry a table out: its moves do not depend on each other, and kernels reach all their memory.
pub(super) fn is_one_kernel(table: &MoveTable) -> bool {
    let is_reached = |region: &Region| region.on_device().is_some_and(|memory| memory.kernels_reach());
    table.stages.len() <= 1
        && table.nests.iter().all(|nest| nest.op == Op::Replace)
        && table.regions.iter().all(is_reached)
}

/// A table, compiled for a device. The streams that launch it come to rest before it is dropped.
pub(super) struct DeviceTable<D: Driver> {
    steps: Vec<Step<D>>,
    _scratch: Vec<Arc<DeviceMemory>>,
}

/// What is put on the queue.
enum Step<D: Driver> {
    Kernel(Prepared<D>),
    Copy(Bounce),
}

/// A kernel with its arguments.
struct Prepared<D: Driver> {
    kernel: D::Kernel,
    /// Behind the flag that stops it.
    arguments: Vec<Argument>,
    threads: usize,
}

/// An argument that stays as it is.
pub(super) enum Argument {
    Table(Arc<DeviceMemory>),
    U32(u32),
    U64(u64),
}

/// What the kernels that move are given: the tables, how many chunks there are, and how long they are.
pub(super) struct Moves {
    pub(super) arguments: Vec<Argument>,
    /// Of all groups.
    pub(super) threads: usize,
}

impl<D: Driver> DeviceTable<D> {
    /// Compiles a table, all of whose memory is the device's. What its kernels read is in the device's memory then.
    pub(super) fn compile(engine: &Engine<D>, table: &MoveTable) -> Result<Self> {
        if table.accumulates {
            let device = engine.driver().name().into();
            return Err(Error::WrongDevice { what: "an accumulate", device });
        }
        let mut compiler = Compiler::new(engine, table.regions.iter())?;
        let mut steps = Vec::new();
        let ends = table.stages.iter().skip(1).copied().chain([table.nests.len()]);
        for (first, end) in table.stages.iter().zip(ends) {
            let stage = &table.nests[*first..end];
            let mut launches = Vec::new();
            let replacing: Vec<&Nest> = stage.iter().filter(|nest| nest.op == Op::Replace).collect();
            if !replacing.is_empty() {
                launches.push(compiler.moves(table, &replacing)?);
            }
            for (kind, alike) in reductions(stage) {
                launches.push(compiler.reduction(table, kind, &alike)?);
            }
            steps.extend(compiler.bounces.before.drain(..).map(Step::Copy));
            steps.extend(launches.into_iter().map(Step::Kernel));
            steps.extend(compiler.bounces.behind.drain(..).map(Step::Copy));
        }
        Ok(Self { steps, _scratch: compiler.bounces.scratch })
    }

    /// Whether no copies of the queue's are among it.
    pub(super) fn is_all_kernels(&self) -> bool {
        self.steps.iter().all(|step| matches!(step, Step::Kernel(_)))
    }

    /// Puts all of it on a queue. It and the table that it was compiled from must be held until the queue has come
    /// to rest.
    pub(super) fn launch(&mut self, queue: &mut D::Queue, flags: &Flags) -> Result<()> {
        for step in &mut self.steps {
            let one = match step {
                Step::Kernel(one) => one,
                Step::Copy(copy) => {
                    copy.put(queue)?;
                    continue;
                }
            };
            let failed = Value::Pointer(flags.failed());
            let arguments: Vec<Value> =
                [failed].into_iter().chain(one.arguments.iter().map(Argument::value)).collect();
            // SAFETY: the arguments are those of the kernel's text; the tables are held with `self`, and so are
            // the regions that they point into, by the table that it was compiled from.
            unsafe {
                queue.launch("a move", &mut one.kernel, &arguments, Groups::ForThreads([one.threads, 1, 1]))
            }?;
        }
        Ok(())
    }
}

/// The reductions of a stage that one kernel carries out, in their order: those of other types are of other elements, and
/// those by another operation come behind.
fn reductions(stage: &[Nest]) -> Vec<((ElementType, Op), Vec<&Nest>)> {
    let mut kinds: Vec<((ElementType, Op), Vec<&Nest>)> = Vec::new();
    for nest in stage.iter().filter(|nest| nest.op != Op::Replace) {
        let of_type = kinds.iter_mut().rev().find(|((element, _), _)| *element == nest.element);
        match of_type.filter(|((_, op), _)| *op == nest.op) {
            Some((_, alike)) => alike.push(nest),
            None => kinds.push(((nest.element, nest.op), vec![nest])),
        }
    }
    kinds
}

/// An address as bytes from the beginning of the memory that it is in, as the host has it.
fn within(table: &MoveTable, address: usize) -> usize {
    let mut regions = table.regions.iter().map(|region| (region.address() as usize, region.bytes()));
    let offset =
        regions.find_map(|(start, bytes)| address.checked_sub(start).filter(|offset| *offset < bytes));
    offset.unwrap_or(address)
}

impl Argument {
    pub(super) fn value(&self) -> Value<'static> {
        match self {
            Argument::Table(memory) => Value::Pointer(memory.base().as_ptr().cast_const().cast()),
            Argument::U32(number) => Value::U32(*number),
            Argument::U64(number) => Value::U64(*number),
        }
    }
}

/// What tables are compiled with.
pub(super) struct Compiler<'a, D: Driver> {
    pub(super) engine: &'a Engine<D>,
    /// The allocations that the addresses in the tables are in.
    pub(super) reaches: Vec<*const c_void>,
    pub(super) bounces: Bounces,
}

impl<'a, D: Driver> Compiler<'a, D> {
    /// For moves in that memory.
    ///
    /// # Errors
    /// [`Error::WrongDevice`] if some of it is not the device's.
    pub(super) fn new<'r>(engine: &'a Engine<D>, regions: impl Iterator<Item = &'r Region>) -> Result<Self> {
        let mut reaches = Vec::new();
        for region in regions {
            let memory = region.on_device().filter(|memory| memory.device() == engine.driver().id());
            let Some(memory) = memory else {
                let device = engine.driver().name().into();
                return Err(Error::WrongDevice { what: "the memory of a move", device });
            };
            if memory.kernels_reach() {
                reaches.push(memory.base().as_ptr().cast_const().cast());
            }
        }
        Ok(Self { engine, reaches, bounces: Bounces::default() })
    }

    fn moves(&mut self, table: &MoveTable, nests: &[&Nest]) -> Result<Prepared<D>> {
        let Moves { arguments, threads } = self.by_groups(nests.iter().map(|nest| (table, *nest)))?;
        Ok(Prepared { kernel: self.kernel("halo_move")?, arguments, threads })
    }

    /// Moves as kernels of a group for each chunk read them.
    pub(super) fn by_groups<'n>(
        &mut self,
        nests: impl Iterator<Item = (&'n MoveTable, &'n Nest)>,
    ) -> Result<Moves> {
        let (pieces, group) = (self.pieces(nests)?, self.engine.driver().traits().group_threads);
        self.tables(&pieces, group)
    }

    /// Moves as kernels of one group read them, which takes one chunk after the other; `None` if there are more than `most`, or
    /// more words than so many `full` ones have. The group has `group` threads or, if that is left open, no more than it needs.
    pub(super) fn by_one_group<'n>(
        &mut self,
        nests: impl Iterator<Item = (&'n MoveTable, &'n Nest)>,
        [most, full]: [usize; 2],
        group: Option<usize>,
    ) -> Result<Option<Moves>> {
        let (pieces, traits) = (self.pieces(nests)?, self.engine.driver().traits());
        let chunks = |group: usize| -> usize {
            pieces.iter().map(|piece| (piece.all as usize).div_ceil(EACH * group)).sum()
        };
        let usual = || {
            if chunks(traits.group_threads) <= 1 { traits.group_threads } else { traits.most_group_threads }
        };
        let group = group.unwrap_or_else(usual);
        let words: usize = pieces.iter().map(|piece| piece.all as usize).sum();
        if chunks(group) > most || words > full * EACH * traits.most_group_threads {
            return Ok(None);
        }
        self.tables(&pieces, group).map(|moves| Some(Moves { threads: group, ..moves }))
    }

    fn pieces<'n>(&mut self, nests: impl Iterator<Item = (&'n MoveTable, &'n Nest)>) -> Result<Vec<Piece>> {
        let mut pieces = Vec::new();
        for (table, nest) in nests {
            for pair in &nest.pairs {
                self.reached(table, nest, *pair)?.cut(MOST_WORDS, &mut pieces);
            }
        }
        Ok(pieces)
    }

    fn tables(&self, pieces: &[Piece], group: usize) -> Result<Moves> {
        let length = (EACH * group) as u32;
        let chunks = chunks_of(pieces, length);
        let arguments = vec![
            self.upload(pieces)?,
            self.upload(&chunks)?,
            Argument::U32(chunks.len() as u32),
            Argument::U32(length),
        ];
        Ok(Moves { arguments, threads: chunks.len().max(1) * group })
    }

    /// Destination by destination, each with its contributions in the order of the moves: as the host sums.
    fn reduction(
        &mut self,
        table: &MoveTable,
        (element, op): (ElementType, Op),
        nests: &[&Nest],
    ) -> Result<Prepared<D>> {
        let bytes = element.bytes();
        let mut contributions: Vec<(u64, u64)> = Vec::new();
        for nest in nests {
            for pair in &nest.pairs {
                let one = self.reached(table, nest, *pair)?;
                for run in 0..nest.counts[0] * nest.counts[1] {
                    let (outer, inner) = (run / nest.counts[1], run % nest.counts[1]);
                    let at =
                        |first: usize, strides: [usize; 2]| first + outer * strides[0] + inner * strides[1];
                    let source = at(one.source, one.source_strides);
                    let destination = at(one.destination, one.destination_strides);
                    for (what, offset) in [("a reduction's source", source), ("a reduction", destination)] {
                        if !offset.is_multiple_of(bytes) {
                            return Err(Error::Misaligned { what, offset: within(table, offset), element });
                        }
                    }
                    let elements = (0..nest.run_bytes).step_by(bytes);
                    contributions.extend(
                        elements.map(|offset| ((destination + offset) as u64, (source + offset) as u64)),
                    );
                }
            }
        }
        // Stable: contributions to one element stay in their order.
        contributions.sort_by_key(|(destination, _)| *destination);
        let (mut destinations, mut firsts) = (Vec::new(), Vec::new());
        for (index, (destination, _)) in contributions.iter().enumerate() {
            if destinations.last() != Some(destination) {
                destinations.push(*destination);
                firsts.push(index as u64);
            }
        }
        firsts.push(contributions.len() as u64);
        let sources: Vec<u64> = contributions.into_iter().map(|(_, source)| source).collect();
        let number = match op {
            Op::Replace => unreachable!("a reduction combines"),
            Op::Sum => 1,
            Op::Min => 2,
            Op::Max => 3,
        };
        let threads = destinations.len();
        let arguments = vec![
            Argument::U32(number),
            self.upload(&destinations)?,
            self.upload(&firsts)?,
            self.upload(&sources)?,
            Argument::U64(threads as u64),
        ];
        Ok(Prepared { kernel: self.kernel(&format!("halo_reduce_{element}"))?, arguments, threads })
    }

    pub(super) fn kernel(&self, name: &str) -> Result<D::Kernel> {
        self.engine.own_kernel(name, &self.reaches)
    }

    /// A table in the device's memory. In the order of no queue: a copy behind a kernel that waits may hold up those of
    /// other streams, which some devices make in one order.
    pub(super) fn upload<T: Copy>(&self, table: &[T]) -> Result<Argument> {
        let bytes = size_of_val(table);
        let driver = self.engine.driver();
        let memory = Arc::new(driver.allocate(bytes, MemoryKind::Device)?);
        let staged = driver.allocate(bytes, MemoryKind::Pinned)?;
        let start = staged.base().as_ptr();
        // SAFETY: memory of the host that is that long and that nobody else has.
        unsafe { std::ptr::copy_nonoverlapping(table.as_ptr().cast::<u8>(), start, bytes) };
        // SAFETY: both have that length, and nobody else has them yet.
        unsafe { driver.copy_apart(start, memory.base().as_ptr(), bytes) }?;
        Ok(Argument::Table(memory))
    }
}
