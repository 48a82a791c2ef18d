//! CUDA: NVIDIA's GPUs, by their driver, which is looked for at run time.
//!
//! The kernels of streams are PTX that comes with the library, so that only applications' kernels need a compiler at
//! run time: NVRTC, looked for too. All ranks of a process share a GPU's primary context and so its memory. The host
//! addresses none of it: words by which ranks tell each other lie in locked memory of the host, which kernels address
//! by the same pointers.

mod choice;
mod context;
mod graph;
mod memory;
mod nvrtc;
mod processes;
mod program;
mod queue;
mod streams;
mod sys;
#[cfg(test)]
mod tests;

pub use choice::{Capability, FoundGpu, found};

use super::accelerator::Accelerator;
use super::queue::Opened;
use super::text::KernelText;
use crate::error::{Error, Result};
use context::CudaDriver;
use nvrtc::Nvrtc;
use std::sync::Arc;

/// By the driver's numbers.
static OPENED: Opened<i32, CudaDriver> = Opened::new();

/// Opens the GPU that `select` means; see [`super::Device::cuda`].
pub(super) fn open(select: &str) -> Result<Arc<dyn Accelerator>> {
    let (device, found) = choice::choose(select)?;
    OPENED.open(device, || CudaDriver::new(device, found))
}

/// Compiles the text of a kernel for GPUs of that capability, as a stream does when it is first launched, but without
/// one: their machine code, or PTX if they are newer than the compiler. Blocks; for tests of kernels on machines that
/// have no GPU.
///
/// # Errors
/// [`Error::KernelDidNotCompile`] with the compiler's log and the text's lines; [`Error::DeviceUnavailable`] if there is
/// no NVRTC, with what to install.
pub fn compile(text: &KernelText, capability: Capability) -> Result<Vec<u8>> {
    let device = format!("cuda {capability}");
    match Nvrtc::load().and_then(|compiler| Ok((compiler, compiler.target(capability)?))) {
        Ok((compiler, target)) => nvrtc::build(compiler, &device, text, target),
        Err(reason) => Err(Error::DeviceUnavailable { device, reason }),
    }
}

/// The version of NVRTC, which compiles the kernels of applications, as `12.0`; or why there is none. Loads it.
///
/// # Errors
/// [`Error::DeviceUnavailable`] with what to install.
pub fn compiler() -> Result<String> {
    let unavailable = |reason| Error::DeviceUnavailable { device: "cuda".into(), reason };
    let [major, minor] = Nvrtc::load().map_err(unavailable)?.version();
    Ok(format!("{major}.{minor}"))
}
