//! Moves from and to memory of the host that kernels do not reach: by way of the device's, from and to which
//! queues copy.

use super::moves::Compiler;
use super::pieces::Moved;
use crate::device::accelerator::DeviceMemory;
use crate::device::driver::{CommandQueue, Driver, MemoryKind};
use crate::device::moves::{MoveTable, Nest};
use crate::element::Op;
use crate::error::{Error, Result};
use std::sync::Arc;

/// A copy that a queue makes, before or behind the kernels of a stage.
#[derive(Debug)]
pub(super) struct Bounce {
    source: usize,
    destination: usize,
    bytes: usize,
}

/// What goes by way of the device's memory.
#[derive(Default)]
pub(super) struct Bounces {
    /// Ahead of the kernels of the stage.
    pub(super) before: Vec<Bounce>,
    /// Behind them.
    pub(super) behind: Vec<Bounce>,
    /// For as long as the table.
    pub(super) scratch: Vec<Arc<DeviceMemory>>,
}

impl Bounce {
    /// Puts it on a queue. What the addresses are of must be held until that has come to rest.
    pub(super) fn put<Q: CommandQueue>(&self, queue: &mut Q) -> Result<()> {
        let (source, destination) = (self.source as *const u8, self.destination as *mut u8);
        // SAFETY: the move that it was made of is within its regions, which the table holds, as it does the scratch.
        unsafe { queue.copy(source, destination, self.bytes) }
    }
}

impl<D: Driver> Compiler<'_, D> {
    /// One of a nest's moves as kernels carry it out.
    ///
    /// # Errors
    /// [`Error::WrongDevice`] if it would reduce into memory that they do not reach.
    pub(super) fn reached(
        &mut self,
        table: &MoveTable,
        nest: &Nest,
        (source, destination): (*const u8, *mut u8),
    ) -> Result<Moved> {
        let mut one = Moved {
            source: source as usize,
            source_strides: nest.source_strides,
            destination: destination as usize,
            destination_strides: nest.destination_strides,
            counts: nest.counts,
            run_bytes: nest.run_bytes,
        };
        if !is_reached(table, one.source) {
            let copies = self.bounce(nest, one.source, one.source_strides)?;
            (one.source, one.source_strides) = (copies.scratch, copies.strides);
            self.bounces.before.extend(copies.pairs.into_iter().map(|(there, scratch)| Bounce {
                source: there,
                destination: scratch,
                bytes: copies.bytes,
            }));
        }
        if !is_reached(table, one.destination) {
            if nest.op != Op::Replace {
                let device = self.engine.driver().name().into();
                return Err(Error::WrongDevice { what: "the destination of a reduction", device });
            }
            let copies = self.bounce(nest, one.destination, one.destination_strides)?;
            (one.destination, one.destination_strides) = (copies.scratch, copies.strides);
            self.bounces.behind.extend(copies.pairs.into_iter().map(|(there, scratch)| Bounce {
                source: scratch,
                destination: there,
                bytes: copies.bytes,
            }));
        }
        Ok(one)
    }

    /// Scratch for one side of a move, in which its runs follow each other.
    fn bounce(&mut self, nest: &Nest, start: usize, strides: [usize; 2]) -> Result<Side> {
        let [outer, inner] = nest.counts;
        let packed = [inner * nest.run_bytes, nest.run_bytes];
        let memory =
            Arc::new(self.engine.driver().allocate(outer * inner * nest.run_bytes, MemoryKind::Device)?);
        let scratch = memory.base().as_ptr() as usize;
        self.reaches.push(memory.base().as_ptr().cast_const().cast());
        self.bounces.scratch.push(memory);
        if (inner == 1 || strides[1] == packed[1]) && (outer == 1 || strides[0] == packed[0]) {
            let bytes = outer * inner * nest.run_bytes;
            return Ok(Side { scratch, strides: packed, pairs: vec![(start, scratch)], bytes });
        }
        let runs = (0..outer).flat_map(|i| (0..inner).map(move |j| [i, j]));
        let at =
            |first: usize, strides: [usize; 2], [i, j]: [usize; 2]| first + i * strides[0] + j * strides[1];
        let pairs = runs.map(|run| (at(start, strides, run), at(scratch, packed, run))).collect();
        Ok(Side { scratch, strides: packed, pairs, bytes: nest.run_bytes })
    }
}

/// One side of a move, and what is copied between the host and scratch.
struct Side {
    scratch: usize,
    strides: [usize; 2],
    pairs: Vec<(usize, usize)>,
    bytes: usize,
}

fn is_reached(table: &MoveTable, address: usize) -> bool {
    let holds = |memory: &&DeviceMemory| {
        let first = memory.base().as_ptr() as usize;
        (first..first + memory.bytes()).contains(&address)
    };
    let mut memories = table.regions.iter().filter_map(|region| region.on_device());
    memories.find(holds).is_some_and(DeviceMemory::kernels_reach)
}
