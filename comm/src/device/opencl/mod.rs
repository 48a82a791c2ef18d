//! OpenCL: GPUs of any vendor that has a driver for it, and PoCL or Intel's runtime on the host's cores.
//!
//! A device is used if pointers stay what they are on it (shared virtual memory), so that kernels of one rank store
//! into the memory of others that are threads of the same process. Where the host and kernels address it at the same
//! time (fine-grained), arrays can live there ([`super::MemoryMode::Shared`]), and the words by which ranks tell
//! each other about them do. Else arrays are in memory that only kernels and queues address, and words in the host's:
//! the stream's thread signals and waits. Where kernels address all memory of the host, as on its own cores, processes
//! share what lies in memory files.

mod choice;
mod driver;
#[cfg(test)]
mod exchanges;
mod exported;
mod graph;
mod queue;
#[cfg(test)]
mod several;
#[cfg(test)]
mod tests;

pub use choice::{FoundDevice, found};

use super::MemoryMode;
use super::accelerator::Accelerator;
use super::queue::Opened;
use crate::error::Result;
use driver::OpenclDriver;
use opencl3::device::Device;
use std::sync::Arc;

/// By their numbers, and whether their memory is separate.
static OPENED: Opened<(usize, bool), OpenclDriver> = Opened::new();

/// Opens the device that `select` means; see [`super::Device::opencl`].
pub(super) fn open(select: &str, mode: MemoryMode) -> Result<Arc<dyn Accelerator>> {
    let (index, (device, found)) = choice::choose(select)?;
    let separate = found.separates(mode)?;
    reopen(index, device, found, separate)
}

/// Opens a device that has been chosen.
fn reopen(index: usize, device: Device, found: FoundDevice, separate: bool) -> Result<Arc<dyn Accelerator>> {
    OPENED.open((index, separate), || OpenclDriver::new(index, device, found, separate))
}
