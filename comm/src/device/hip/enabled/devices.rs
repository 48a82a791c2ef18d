//! Which devices there are.

use super::library::{
    AskProperties, INVALID_DEVICE, Library, NO_DEVICE, NumberedProperties, SUCCESS, unavailable,
};
use crate::device::hip::FoundHipDevice;
use crate::error::Result;
use hip_sys::hiprt;
use std::ffi::{CStr, c_char, c_int};

/// The devices of HIP on this machine, in the order of their numbers.
pub(super) fn list(library: &Library) -> Result<Vec<FoundHipDevice>> {
    // SAFETY: it may be called at any time, by any thread.
    let mut code = unsafe { (library.runtime.hipInit)(0) };
    let mut count: c_int = 0;
    if code == SUCCESS {
        // SAFETY: `count` is a place for the answer.
        code = unsafe { (library.runtime.hipGetDeviceCount)(&mut count) };
    }
    if code == NO_DEVICE || code == INVALID_DEVICE || (code == SUCCESS && count == 0) {
        return Err(unavailable(
            "the runtime of HIP has found no GPU of AMD's on this machine that it can use (its driver is amdgpu, by \
             /dev/kfd, which this user must be allowed to open)",
        ));
    }
    check(library, "hipInit", code)?;
    (0..count).map(|index| properties(library, index)).collect()
}

fn properties(library: &Library, index: c_int) -> Result<FoundHipDevice> {
    let mut name: [c_char; 256] = [0; 256];
    // SAFETY: there is room for that many bytes, and the device is one of those that were counted.
    let code = unsafe { (library.runtime.hipDeviceGetName)(name.as_mut_ptr(), name.len() as c_int, index) };
    check(library, "hipDeviceGetName", code)?;
    let mut total_bytes = 0_usize;
    // SAFETY: a place for the answer, and as above.
    let code = unsafe { (library.runtime.hipDeviceTotalMem)(&mut total_bytes, index) };
    check(library, "hipDeviceTotalMem", code)?;
    let mut compute_units: c_int = 0;
    let asked = hiprt::hipDeviceAttribute_t::hipDeviceAttributeMultiprocessorCount;
    // SAFETY: as above.
    let code = unsafe { (library.runtime.hipDeviceGetAttribute)(&mut compute_units, asked, index) };
    check(library, "hipDeviceGetAttribute", code)?;
    let architecture = match library.properties {
        AskProperties::Numbered(ask) => {
            let mut properties = NumberedProperties::EMPTY;
            // SAFETY: there is room for the structure and more, and as above.
            check(library, "hipGetDevicePropertiesR0600", unsafe { ask(&mut properties, index) })?;
            string(&properties.architecture)
        }
        AskProperties::Old(ask) => {
            let mut properties = hiprt::hipDeviceProp_t::default();
            // SAFETY: that is the structure of libraries without the numbered one.
            check(library, "hipGetDeviceProperties", unsafe { ask(&mut properties, index) })?;
            string(&properties.gcnArchName)
        }
    };
    // Some versions do not know the names of some devices.
    let name = Some(string(&name)).filter(|name| !name.is_empty()).unwrap_or_else(|| architecture.clone());
    Ok(FoundHipDevice {
        name,
        architecture,
        compute_units: compute_units.try_into().unwrap_or(0),
        total_bytes: total_bytes as u64,
    })
}

fn check(library: &Library, call: &str, code: u32) -> Result<()> {
    if code == SUCCESS {
        return Ok(());
    }
    Err(unavailable(format!("{call} failed: {}", library.describe(code))))
}

/// The text before the first zero.
fn string(bytes: &[c_char]) -> String {
    let bytes: Vec<u8> = bytes.iter().map(|byte| *byte as u8).collect();
    let text = CStr::from_bytes_until_nul(&bytes).map(CStr::to_string_lossy);
    text.map(|text| text.trim().to_owned()).unwrap_or_default()
}
