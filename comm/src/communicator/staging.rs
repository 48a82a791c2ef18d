//! Memory that peers can address, for messages whose elements lie elsewhere.

use crate::error::Result;
use crate::fabric::{Fabric, Place, Region};
use std::cell::RefCell;
use std::sync::Arc;

/// How many pieces are kept for the next messages.
const KEPT: usize = 8;
const SMALLEST_BYTES: usize = 8192;

/// Pieces of memory that are used again.
#[derive(Debug)]
pub(super) struct Staging {
    fabric: Arc<dyn Fabric>,
    free: RefCell<Vec<Region>>,
}

impl Staging {
    pub(super) fn new(fabric: &Arc<dyn Fabric>) -> Self {
        Self { fabric: fabric.clone(), free: RefCell::default() }
    }

    /// Memory for that many bytes, which nobody else has.
    pub(super) fn take(&self, bytes: usize) -> Result<Place> {
        let mut free = self.free.borrow_mut();
        let fits = free.iter().position(|region| region.bytes() >= bytes);
        let region = match fits {
            Some(fits) => free.swap_remove(fits),
            None => {
                let rounded = bytes.checked_next_power_of_two().unwrap_or(bytes);
                self.fabric.allocate(rounded.max(SMALLEST_BYTES))?
            }
        };
        region.place(0, bytes, "a staged message")
    }

    /// Nobody uses it any more.
    pub(super) fn give_back(&self, place: Place) {
        let mut free = self.free.borrow_mut();
        free.push(place.region().clone());
        if free.len() > KEPT {
            // The longest are kept: they serve all.
            let shortest = (0..free.len()).min_by_key(|index| free[*index].bytes());
            free.swap_remove(shortest.expect("some are kept"));
        }
    }
}
