//! OpenCL: GPUs of any vendor that has a driver for it, and PoCL or Intel's runtime on the host's cores.
//!
//! A device is used if the host and its kernels reach the same memory by the same pointers at the same time
//! (fine-grained shared virtual memory): arrays, the buffers of messages and the words by which ranks tell each
//! other about them live there, and are mapped between ranks that are threads of one process.
//!
//! Each stream is an in-order queue of the device, fed by a thread. Moves are kernels that store into the
//! memory of peers; signals are kernels behind them, with release order at the scope of all devices, where the
//! device has such atomics, and else stores of the thread once the queue has come to rest. Waits are the thread's, or
//! kernels too ([`super::Waits`]): a kernel that waits occupies a compute unit, and four ranks on the two workers
//! that PoCL has on two cores would wait for kernels that cannot start. So there are fewer such kernels at a time
//! than compute units, and the thread waits where there would be more.

mod choice;
mod context;
mod executor;
mod moves;
mod queue;
#[cfg(test)]
mod tests;
mod waits;

pub use choice::{FoundDevice, found};

use super::accelerator::Accelerator;
use crate::error::Result;
use context::Context;
use std::sync::{Arc, Mutex, PoisonError};

/// The devices that this process has opened. They stay open: their programs stay compiled, and what ranks that
/// come later allocate is in the same memory.
static OPENED: Mutex<Vec<(usize, Arc<Context>)>> = Mutex::new(Vec::new());

/// Opens the device that `select` means; see [`super::Device::opencl`].
pub(super) fn open(select: &str) -> Result<Arc<dyn Accelerator>> {
    // Held while a device is opened, so that ranks that ask for the same one get the same.
    let mut opened = OPENED.lock().unwrap_or_else(PoisonError::into_inner);
    let (index, device) = choice::choose(select)?;
    if let Some((_, context)) = opened.iter().find(|(known, _)| *known == index) {
        return Ok(context.clone());
    }
    let context = Arc::new(Context::new(index, device)?);
    opened.push((index, context.clone()));
    Ok(context)
}
