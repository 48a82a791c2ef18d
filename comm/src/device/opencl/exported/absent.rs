//! Systems without memory files: processes share none.

use crate::device::accelerator::{DeviceMemory, Reach};
use crate::error::{Error, Result};

const REASON: &str = "processes of this system share no memory files";

/// None of these can be made.
#[derive(Debug)]
pub(super) enum ExportedMemory {}

/// Why there is none on this system.
pub(super) fn unusable() -> Option<String> {
    Some(REASON.into())
}

impl ExportedMemory {
    /// Says why there is none.
    pub(super) fn new(bytes: usize) -> Result<Self> {
        Err(Error::OutOfMemory { bytes, kind: "shared", reason: REASON.into() })
    }

    /// There is none.
    pub(super) fn handle(&self) -> Vec<u8> {
        match *self {}
    }

    /// Says why there is none.
    pub(super) fn open(_handle: &[u8]) -> std::result::Result<Self, String> {
        Err(REASON.into())
    }

    /// There is none.
    pub(super) fn of_device(self, _device: u64, _reach: Reach) -> DeviceMemory {
        match self {}
    }
}
