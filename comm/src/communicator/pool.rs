//! Memory of the host for messages whose elements lie elsewhere, used again and again.

use crate::device::{Accelerator, MemoryKind};
use crate::error::Result;
use crate::fabric::{Fabric, Place, Region};
use std::fmt;
use std::sync::Arc;

/// How many pieces are kept for the next messages.
const KEPT: usize = 8;
const SMALLEST_BYTES: usize = 8192;

/// Pieces of memory that are used again.
pub(super) struct Pool {
    source: Source,
    free: Vec<Region>,
}

/// Where more comes from.
enum Source {
    /// The fabric: peers can address it.
    Fabric(Arc<dyn Fabric>),
    /// A device, which copies to and from it by itself; over a fabric whose ranks share it if there is one.
    Pinned { accelerator: Arc<dyn Accelerator>, rank: usize, shared: Option<Arc<dyn Fabric>> },
}

impl Pool {
    /// Memory that peers can address.
    pub(super) fn of_fabric(fabric: &Arc<dyn Fabric>) -> Self {
        Self { source: Source::Fabric(fabric.clone()), free: Vec::new() }
    }

    /// Pinned memory of a device, which only this rank addresses.
    pub(super) fn pinned(accelerator: &Arc<dyn Accelerator>, rank: usize) -> Self {
        Self {
            source: Source::Pinned { accelerator: accelerator.clone(), rank, shared: None },
            free: Vec::new(),
        }
    }

    /// Pinned memory of a device, which ranks of the same process can address.
    pub(super) fn pinned_and_shared(accelerator: &Arc<dyn Accelerator>, fabric: &Arc<dyn Fabric>) -> Self {
        let shared = Some(fabric.clone());
        Self {
            source: Source::Pinned { accelerator: accelerator.clone(), rank: fabric.rank(), shared },
            free: Vec::new(),
        }
    }

    /// Memory for that many bytes, which nobody else has.
    pub(super) fn take(&mut self, bytes: usize) -> Result<Place> {
        let fits = self.free.iter().position(|region| region.bytes() >= bytes);
        let region = match fits {
            Some(fits) => self.free.swap_remove(fits),
            None => {
                let rounded = bytes.checked_next_power_of_two().unwrap_or(bytes);
                self.source.allocate(rounded.max(SMALLEST_BYTES))?
            }
        };
        region.place(0, bytes, "a staged message")
    }

    /// Nobody uses it any more.
    pub(super) fn give_back(&mut self, place: &Place) {
        self.free.push(place.region().clone());
        if self.free.len() > KEPT {
            // The longest are kept: they serve all.
            let shortest = (0..self.free.len()).min_by_key(|index| self.free[*index].bytes());
            self.free.swap_remove(shortest.expect("some are kept"));
        }
    }
}

impl Source {
    fn allocate(&self, bytes: usize) -> Result<Region> {
        match self {
            Source::Fabric(fabric) => fabric.allocate(bytes),
            Source::Pinned { accelerator, rank, shared } => {
                let memory = Arc::new(accelerator.allocate(bytes, MemoryKind::Pinned)?);
                Ok(match shared {
                    Some(fabric) => fabric.adopt(memory),
                    None => Region::private(memory, *rank),
                })
            }
        }
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.source {
            Source::Fabric(_) => "pageable",
            Source::Pinned { .. } => "pinned",
        };
        write!(f, "Pool({kind}, {} free)", self.free.len())
    }
}
