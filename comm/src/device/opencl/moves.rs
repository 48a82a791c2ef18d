//! Tables of moves as a device carries them out: all moves of a stage in one kernel.

use super::context::Context;
use super::queue::Queue;
use super::waits::Flags;
use crate::device::accelerator::{Accelerator, DeviceMemory};
use crate::device::moves::{MoveTable, Nest};
use crate::element::{ElementType, Op};
use crate::error::{Error, Result};
use opencl3::kernel::{CL_KERNEL_EXEC_INFO_SVM_PTRS, Kernel, set_kernel_exec_info};
use std::ffi::c_void;

/// A table, compiled for a device.
pub(super) struct DeviceTable {
    launches: Vec<Prepared>,
}

/// A kernel whose arguments are set, with the tables that it reads.
struct Prepared {
    kernel: Kernel,
    threads: usize,
    _tables: Vec<DeviceMemory>,
}

// SAFETY: the arguments of its kernels are set when it is made and never again, and the thread of one stream
// enqueues them.
unsafe impl Sync for DeviceTable {}

/// As the kernel reads it.
#[repr(C)]
#[derive(Clone, Copy)]
struct Piece {
    source: u64,
    destination: u64,
    source_strides: [u64; 2],
    destination_strides: [u64; 2],
    first: u64,
    inner: u64,
    words: u64,
    word_bytes: u64,
}

impl DeviceTable {
    /// Compiles a table, all of whose memory is the device's.
    pub(super) fn compile(context: &Context, flags: &Flags, table: &MoveTable) -> Result<Self> {
        let compiler = Compiler { context, flags, table };
        let is_here =
            |memory: Option<&DeviceMemory>| memory.is_some_and(|memory| memory.device() == context.id());
        if table.accumulates || !table.regions.iter().all(|region| is_here(region.on_device())) {
            let device = context.name().into();
            return Err(Error::WrongDevice { what: "the memory of a move", device });
        }
        let mut launches = Vec::new();
        let ends = table.stages.iter().skip(1).copied().chain([table.nests.len()]);
        for (first, end) in table.stages.iter().zip(ends) {
            let stage = &table.nests[*first..end];
            let replacing: Vec<&Nest> = stage.iter().filter(|nest| nest.op == Op::Replace).collect();
            if !replacing.is_empty() {
                launches.push(compiler.moves(&replacing)?);
            }
            // Reductions of other types, or by other operations, are of other elements.
            let mut kinds: Vec<(ElementType, Op)> = Vec::new();
            for nest in stage.iter().filter(|nest| nest.op != Op::Replace) {
                if !kinds.contains(&(nest.element, nest.op)) {
                    kinds.push((nest.element, nest.op));
                }
            }
            for kind in kinds {
                let alike = stage.iter().filter(|nest| (nest.element, nest.op) == kind);
                launches.push(compiler.reduction(kind, alike)?);
            }
        }
        Ok(Self { launches })
    }

    /// Puts all of it on a queue. The table must be held until the queue has come to rest.
    pub(super) fn launch(&self, queue: &mut Queue) -> Result<()> {
        for one in &self.launches {
            // SAFETY: the arguments are those of the kernel's text; the tables are held with `self`, and so are
            // the regions that they point into, by the table that it was compiled from.
            unsafe { queue.launch("a move", &one.kernel, [one.threads, 1, 1]) }?;
        }
        Ok(())
    }
}

/// What a table is compiled for.
struct Compiler<'a> {
    context: &'a Context,
    flags: &'a Flags,
    table: &'a MoveTable,
}

impl Compiler<'_> {
    fn moves(&self, nests: &[&Nest]) -> Result<Prepared> {
        let context = self.context;
        let mut pieces = Vec::new();
        let mut total = 0;
        for nest in nests {
            for &(source, destination) in &nest.pairs {
                // The longest words that begin on their boundaries in all runs.
                let strides = nest.source_strides.iter().chain(&nest.destination_strides);
                let all = strides
                    .fold(nest.run_bytes | source as usize | destination as usize, |all, stride| {
                        all | stride
                    });
                let word_bytes = 1 << all.trailing_zeros().min(4);
                let words = (nest.run_bytes / word_bytes) as u64;
                let wide = |sizes: [usize; 2]| sizes.map(|size| size as u64);
                pieces.push(Piece {
                    source: source as u64,
                    destination: destination as u64,
                    source_strides: wide(nest.source_strides),
                    destination_strides: wide(nest.destination_strides),
                    first: total,
                    inner: nest.counts[1] as u64,
                    words,
                    word_bytes: word_bytes as u64,
                });
                total += (nest.counts[0] * nest.counts[1]) as u64 * words;
            }
        }
        let kernel = context.own_kernel("halo_move")?;
        let tables = vec![upload(context, &pieces)?];
        let arguments = self.arguments(&kernel)?;
        arguments.pointer(1, &tables[0])?;
        arguments.number(2, pieces.len() as u64)?;
        arguments.number(3, total)?;
        Ok(Prepared { kernel, threads: total as usize, _tables: tables })
    }

    /// Destination by destination, each with its contributions in the order of the moves: as the host sums.
    fn reduction<'a>(
        &self,
        (element, op): (ElementType, Op),
        nests: impl Iterator<Item = &'a Nest>,
    ) -> Result<Prepared> {
        let context = self.context;
        let bytes = element.bytes();
        let mut contributions: Vec<(u64, u64)> = Vec::new();
        for nest in nests {
            for &(source, destination) in &nest.pairs {
                for run in 0..nest.counts[0] * nest.counts[1] {
                    let (outer, inner) = (run / nest.counts[1], run % nest.counts[1]);
                    let at =
                        |first: usize, strides: [usize; 2]| first + outer * strides[0] + inner * strides[1];
                    let source = at(source as usize, nest.source_strides);
                    let destination = at(destination as usize, nest.destination_strides);
                    for (what, offset) in [("a reduction's source", source), ("a reduction", destination)] {
                        if !offset.is_multiple_of(bytes) {
                            return Err(Error::Misaligned { what, offset, element });
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
        let kernel = context.own_kernel(&format!("halo_reduce_{element}"))?;
        let tables =
            vec![upload(context, &destinations)?, upload(context, &firsts)?, upload(context, &sources)?];
        let number: u32 = match op {
            Op::Replace => unreachable!("a reduction combines"),
            Op::Sum => 1,
            Op::Min => 2,
            Op::Max => 3,
        };
        let arguments = self.arguments(&kernel)?;
        arguments.number(1, number)?;
        for (index, memory) in (2..).zip(&tables) {
            arguments.pointer(index, memory)?;
        }
        arguments.number(5, destinations.len() as u64)?;
        Ok(Prepared { kernel, threads: destinations.len(), _tables: tables })
    }

    /// The arguments that all kernels of moves have, and what they reach.
    fn arguments<'k>(&'k self, kernel: &'k Kernel) -> Result<Arguments<'k>> {
        let arguments = Arguments { context: self.context, kernel };
        // SAFETY: the kernel's text has a pointer there; the flags live as long as the stream's queue.
        let set = unsafe { kernel.set_arg_svm_pointer(0, self.flags.failed()) };
        set.map_err(|error| self.context.failed("clSetKernelArgSVMPointer", &error))?;
        arguments.reaches(self.table)?;
        Ok(arguments)
    }
}

/// A kernel whose arguments are set for good.
struct Arguments<'a> {
    context: &'a Context,
    kernel: &'a Kernel,
}

impl Arguments<'_> {
    fn number<T: Copy>(&self, index: u32, value: T) -> Result<()> {
        // SAFETY: the kernel's text has a number of that size there.
        let set = unsafe { self.kernel.set_arg(index, &value) };
        set.map_err(|error| self.context.failed("clSetKernelArg", &error))
    }

    fn pointer(&self, index: u32, memory: &DeviceMemory) -> Result<()> {
        let pointer: *const c_void = memory.base().as_ptr().cast();
        // SAFETY: the kernel's text has a pointer there; the memory is held as long as the kernel.
        let set = unsafe { self.kernel.set_arg_svm_pointer(index, pointer) };
        set.map_err(|error| self.context.failed("clSetKernelArgSVMPointer", &error))
    }

    /// Tells the runtime which memory the kernel reaches by the addresses in its tables.
    fn reaches(&self, table: &MoveTable) -> Result<()> {
        let allocations = table.regions.iter().filter_map(|region| region.on_device());
        let bases: Vec<*const c_void> =
            allocations.map(|memory| memory.base().as_ptr().cast_const().cast()).collect();
        let (size, first) = (size_of_val(bases.as_slice()), bases.as_ptr().cast());
        // SAFETY: the list has that size and is copied by the call.
        let set =
            unsafe { set_kernel_exec_info(self.kernel.get(), CL_KERNEL_EXEC_INFO_SVM_PTRS, size, first) };
        set.map_err(|code| self.context.failed("clSetKernelExecInfo", &code.into()))
    }
}

/// A table in the device's memory.
fn upload<T: Copy>(context: &Context, table: &[T]) -> Result<DeviceMemory> {
    let memory = context.allocate(size_of_val(table))?;
    // SAFETY: the memory is that long, aligned to 64 bytes, and nobody else has it yet.
    unsafe { std::ptr::copy_nonoverlapping(table.as_ptr(), memory.base().as_ptr().cast::<T>(), table.len()) };
    Ok(memory)
}
