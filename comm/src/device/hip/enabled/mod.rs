//! Builds with the feature `hip`.

mod compiler;
mod devices;
mod driver;
mod graph;
mod library;
mod memory;
mod processes;
mod queue;
#[cfg(test)]
mod tests;
mod words;

use super::found::FoundHipDevice;
use crate::device::accelerator::Accelerator;
use crate::device::queue::Opened;
use crate::device::text::KernelText;
use crate::error::Result;
use driver::{HipDriver, choose};
use library::Library;
use std::sync::Arc;

/// By their numbers.
static OPENED: Opened<usize, HipDriver> = Opened::new();

/// The devices of HIP on this machine, in the order of their numbers. Loads the runtime.
///
/// # Errors
/// [`crate::Error::DeviceUnavailable`] if the program was built without HIP, if there is no runtime, or no device.
pub fn found() -> Result<Vec<FoundHipDevice>> {
    devices::list(Library::load()?)
}

/// Compiles the text of a kernel for an architecture, such as `gfx90a`, as a stream does when it is first launched, but
/// without a device: a code object. Blocks; for tests of kernels on machines that have no GPU.
///
/// # Errors
/// [`crate::Error::KernelDidNotCompile`] with the compiler's log and the text's lines, or if it does not know the
/// architecture; [`crate::Error::DeviceUnavailable`] if the program was built without HIP, or if there is no runtime.
pub fn compile(text: &KernelText, architecture: &str) -> Result<Vec<u8>> {
    compiler::compile(Library::load()?, architecture, text)
}

/// Opens the device that `select` means; see [`crate::device::Device::hip`].
pub(in crate::device) fn open(select: &str) -> Result<Arc<dyn Accelerator>> {
    let (library, index, found) = choose(select)?;
    OPENED.open(index, || HipDriver::new(library, index, found))
}
