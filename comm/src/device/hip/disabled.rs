//! Builds without the feature `hip`.

use super::found::FoundHipDevice;
use crate::device::accelerator::Accelerator;
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

pub(in crate::device) fn open(_select: &str) -> Result<Arc<dyn Accelerator>> {
    refused()
}
