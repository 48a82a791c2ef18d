//! Builds without the feature `hip`.

use super::found::FoundHipDevice;
use crate::device::accelerator::Accelerator;
use crate::device::text::KernelText;
use crate::error::{Error, Result};
use std::sync::Arc;

fn refused<T>() -> Result<T> {
    let reason =
        "this program was built without it; build it with `--features hip`, where the headers of HIP are";
    Err(Error::DeviceUnavailable { device: "hip".into(), reason: reason.into() })
}

/// The devices of HIP on this machine, in the order of their numbers.
///
/// # Errors
/// [`Error::DeviceUnavailable`] if the program was built without HIP, if there is no runtime, or no device.
pub fn found() -> Result<Vec<FoundHipDevice>> {
    refused()
}

/// Compiles the text of a kernel for an architecture, such as `gfx90a`, without a device.
///
/// # Errors
/// [`Error::DeviceUnavailable`]: this build has no HIP. With the feature `hip`, also
/// [`Error::KernelDidNotCompile`] with the compiler's log.
pub fn compile(_text: &KernelText, _architecture: &str) -> Result<Vec<u8>> {
    refused()
}

pub(in crate::device) fn open(_select: &str) -> Result<Arc<dyn Accelerator>> {
    refused()
}
