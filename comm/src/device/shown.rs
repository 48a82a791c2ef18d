//! What the host is shown of memory that it does not address: copies, which queues of the device make.

use super::driver::MemoryKind;
use super::host::kernel::Memory;
use super::moves::{Move, MoveTable};
use super::stream::Stream;
use super::tile::Tile;
use crate::element::Op;
use crate::error::Result;
use crate::fabric::Region;
use std::ops::Range;
use std::sync::Arc;

/// Memory that has points of an array: the array's own, or a copy of a part of it.
#[derive(Debug, Clone)]
pub(crate) struct Shown {
    pub(crate) region: Region,
    /// Where it begins in the array's memory, in bytes.
    pub(crate) first: usize,
}

impl From<&Region> for Shown {
    fn from(whole: &Region) -> Self {
        Self { region: whole.clone(), first: 0 }
    }
}

impl Stream {
    /// Enqueues copying points of an array to memory that the host addresses, of which there is that part of the array's;
    /// `None` if the host addresses the array itself. Does not block.
    ///
    /// # Errors
    /// [`crate::Error::OutOfMemory`].
    pub(crate) fn bring(
        &self,
        memory: &Memory<'_>,
        points: Tile,
        part: Range<usize>,
    ) -> Result<Option<Shown>> {
        let Some(accelerator) = self.accelerator().filter(|_| !memory.array.region.host_reaches()) else {
            return Ok(None);
        };
        let copy = accelerator.allocate(part.len(), MemoryKind::Pinned)?;
        let region = Region::private(Arc::new(copy), self.status().context.rank);
        let copy = Shown { region, first: part.start };
        self.put_move(&copy_of(memory, points, &(&memory.array.region).into(), &copy)?);
        Ok(Some(copy))
    }
}

/// The move of some points of an array from one memory that has them to another.
///
/// # Errors
/// [`crate::Error::OutOfBounds`].
pub(crate) fn copy_of(memory: &Memory<'_>, points: Tile, from: &Shown, to: &Shown) -> Result<Arc<MoveTable>> {
    let bytes = memory.element.bytes();
    let strides = memory.array.rows.strides().map(|stride| stride * bytes);
    let [planes, rows, length] = points.extents();
    let place = |shown: &Shown| {
        let start = if points.points() == 0 {
            0
        } else {
            memory.array.rows.offset(points.start) * bytes - shown.first
        };
        shown.region.place(start, 0, "a copy for the host")
    };
    let one = Move {
        source: place(from)?,
        source_strides: [strides[0], strides[1]],
        destination: place(to)?,
        destination_strides: [strides[0], strides[1]],
        counts: [planes, rows],
        run_bytes: length * memory.array.rows.extents().components * bytes,
        element: memory.element,
        op: Op::Replace,
    };
    Ok(Arc::new(MoveTable::new(&[vec![one]])?))
}
