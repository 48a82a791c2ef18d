//! What the host is shown of memory that it does not address: copies, which queues of the device make.

use super::driver::MemoryKind;
use super::host::kernel::Memory;
use super::moves::{Move, MoveTable};
use super::stream::Stream;
use super::tile::Tile;
use crate::element::Op;
use crate::error::Result;
use crate::fabric::Region;
use std::sync::Arc;

impl Stream {
    /// Enqueues copying points of an array to memory of the same shape that the host addresses; `None` if the host
    /// addresses the array itself. Does not block.
    ///
    /// # Errors
    /// [`crate::Error::OutOfMemory`].
    pub(crate) fn bring(&self, memory: &Memory<'_>, points: Tile) -> Result<Option<Region>> {
        let Some(accelerator) = self.accelerator().filter(|_| !memory.region.host_reaches()) else {
            return Ok(None);
        };
        let copy = accelerator.allocate(memory.region.bytes(), MemoryKind::Pinned)?;
        let copy = Region::private(Arc::new(copy), self.status().context.rank);
        self.enqueue_move(&copy_of(memory, points, memory.region, &copy)?);
        Ok(Some(copy))
    }
}

/// The move of some points between two arrays of the same shape.
///
/// # Errors
/// [`crate::Error::OutOfBounds`].
pub(crate) fn copy_of(
    memory: &Memory<'_>,
    points: Tile,
    from: &Region,
    to: &Region,
) -> Result<Arc<MoveTable>> {
    let bytes = memory.element.bytes();
    let strides = memory.rows.strides().map(|stride| stride * bytes);
    let [planes, rows, length] = points.extents();
    let start = if points.points() == 0 { 0 } else { memory.rows.offset(points.start) * bytes };
    let one = Move {
        source: from.place(start, 0, "a copy for the host")?,
        source_strides: [strides[0], strides[1]],
        destination: to.place(start, 0, "a copy for the host")?,
        destination_strides: [strides[0], strides[1]],
        counts: [planes, rows],
        run_bytes: length * memory.rows.extents().components * bytes,
        element: memory.element,
        op: Op::Replace,
    };
    Ok(Arc::new(MoveTable::new(&[vec![one]])?))
}
