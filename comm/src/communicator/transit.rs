//! Copies between a device and the host for calls that block until they have been made.

use super::engine::Core;
use super::pipeline::Home;
use super::staging::StagingMemory;
use crate::device::{Accelerator, CopyDirection, CopyMark};
use crate::error::Result;
use crate::fabric::Place;
use std::sync::Arc;

/// A copy for a call that blocks until it has been made.
#[derive(Debug)]
pub(super) struct Transit {
    device: usize,
    home: Home,
    host: Place,
    mark: CopyMark,
}

impl Transit {
    /// Where it is on the host.
    pub(super) fn host(&self) -> &Place {
        &self.host
    }
}

impl Core {
    /// Begins a copy between memory of a device and the host's: up, of `bytes`; down, of as many as these are.
    pub(super) fn begin_transit(
        &mut self,
        accelerator: &Arc<dyn Accelerator>,
        memory: &Place,
        direction: CopyDirection,
        bytes: &[u8],
    ) -> Result<Transit> {
        let device = self.staged_for(accelerator)?;
        let home = match self.staging.memory {
            StagingMemory::Pageable => Home::Pageable,
            StagingMemory::Pinned => Home::Pinned,
        };
        let host = self.pool(device, home).take(bytes.len())?;
        if direction == CopyDirection::Up {
            host.write(bytes)?;
        }
        let mark = self.staged[device].copies.begin(direction, memory, &host, bytes.len())?;
        self.transits += 1;
        Ok(Transit { device, home, host, mark })
    }

    pub(super) fn has_passed(&mut self, transit: &Transit) -> Result<bool> {
        self.staged[transit.device].copies.has_passed(transit.mark)
    }

    /// Lends its memory to others again, if nothing uses it any more.
    pub(super) fn end_transit(&mut self, transit: Transit, has_passed: bool) {
        self.transits -= 1;
        if has_passed {
            self.pool(transit.device, transit.home).give_back(&transit.host);
        }
    }
}
