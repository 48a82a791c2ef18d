//! Which GPUs of CUDA there are, and which of them is meant.

use super::sys::{self, CUdevice, CUdevice_attribute, CUdevice_attribute::*, Failure, check};
use crate::device::select::{Choosable, index_of};
use crate::error::{Error, Result};
use std::ffi::{CStr, c_char, c_int};
use std::fmt;

/// What kernels are compiled for: CUDA's number of a generation of GPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Capability {
    /// 9 of 9.0.
    pub major: i32,
    /// 0 of 9.0.
    pub minor: i32,
}

impl fmt::Display for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// The oldest GPUs that have the memory model by which kernels signal: PTX's, of 7.0 on.
pub(super) const OLDEST: Capability = Capability { major: 7, minor: 0 };

/// A GPU of CUDA, as [`found`] lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundGpu {
    /// As its vendor calls it.
    pub name: String,
    /// Where it is plugged in, which stays the same: `0000:01:00.0`.
    pub bus: String,
    /// Its generation.
    pub capability: Capability,
    /// How many multiprocessors it has, each of which has room for kernels' groups.
    pub multiprocessors: u32,
    /// Its memory in bytes.
    pub memory_bytes: u64,
    /// Whether memory is allocated in a queue's order, so that nothing that waits on the device is in the way.
    pub has_memory_pools: bool,
    /// Whether additions to the host's memory are atomic for the host as well.
    pub has_host_atomics: bool,
    /// Whether processes may use it.
    pub is_open: bool,
    /// The driver's CUDA, as `12.4`.
    pub driver: String,
}

impl FoundGpu {
    fn of(device: CUdevice, driver: c_int) -> Result<Self, Failure> {
        let number = |attribute| attribute_of(device, attribute);
        let (mut bytes, mut name, mut bus) = (0, [0; 256], [0; 32]);
        // SAFETY: a number is written.
        check("cuDeviceTotalMem", unsafe { sys::cuDeviceTotalMem_v2(&mut bytes, device) })?;
        // SAFETY: at most as many bytes are written as the call is told.
        check("cuDeviceGetName", unsafe { sys::cuDeviceGetName(name.as_mut_ptr(), 256, device) })?;
        // SAFETY: as above.
        check("cuDeviceGetPCIBusId", unsafe { sys::cuDeviceGetPCIBusId(bus.as_mut_ptr(), 32, device) })?;
        Ok(Self {
            name: text(&name),
            bus: text(&bus),
            capability: Capability {
                major: number(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
                minor: number(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
            },
            multiprocessors: number(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?.unsigned_abs(),
            memory_bytes: bytes as u64,
            has_memory_pools: number(CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED)? != 0,
            has_host_atomics: number(CU_DEVICE_ATTRIBUTE_HOST_NATIVE_ATOMIC_SUPPORTED)? != 0,
            is_open: number(CU_DEVICE_ATTRIBUTE_COMPUTE_MODE)?
                != sys::CUcomputemode::CU_COMPUTEMODE_PROHIBITED as c_int,
            driver: sys::written(driver),
        })
    }
}

impl FoundGpu {
    /// Why streams cannot use it, if so.
    pub fn unusable(&self) -> Option<String> {
        if self.capability < OLDEST {
            return Some(format!(
                "its compute capability is {}, and streams need {OLDEST}, from which on kernels can tell other \
                 ranks of what they have stored",
                self.capability
            ));
        }
        if !self.has_memory_pools {
            return Some("its driver has no memory pools; without them allocations wait for kernels".into());
        }
        let closed = "its compute mode is `prohibited`; an administrator can change it by `nvidia-smi -c 0`";
        (!self.is_open).then(|| closed.into())
    }
}

impl Choosable for FoundGpu {
    fn label(&self) -> String {
        format!("{} ({})", self.name, self.bus)
    }

    fn names(&self) -> Vec<&str> {
        vec![&self.name, &self.bus]
    }

    fn model(&self) -> String {
        self.name.clone()
    }

    fn address(&self) -> Option<&str> {
        Some(&self.bus)
    }

    fn unusable(&self) -> Option<String> {
        self.unusable()
    }
}

fn attribute_of(device: CUdevice, attribute: CUdevice_attribute) -> Result<c_int, Failure> {
    let mut value = 0;
    // SAFETY: a number is written.
    check("cuDeviceGetAttribute", unsafe { sys::cuDeviceGetAttribute(&mut value, attribute, device) })?;
    Ok(value)
}

fn text(bytes: &[c_char]) -> String {
    let bytes: Vec<u8> = bytes.iter().map(|byte| *byte as u8).collect();
    let text = CStr::from_bytes_until_nul(&bytes).unwrap_or_default();
    text.to_string_lossy().trim().to_owned()
}

/// The GPUs of CUDA on this machine, in the order of their numbers. Loads the driver.
///
/// # Errors
/// [`Error::DeviceUnavailable`] if there is no driver, none that is new enough, or no GPU, with what to do.
pub fn found() -> Result<Vec<FoundGpu>> {
    Ok(list("cuda")?.into_iter().map(|(_, found)| found).collect())
}

fn list(asked: &str) -> Result<Vec<(CUdevice, FoundGpu)>> {
    let unavailable = |reason: String| Error::DeviceUnavailable { device: asked.into(), reason };
    let failed = |failure: Failure| unavailable(failure.to_string());
    let driver = sys::driver().map_err(unavailable)?;
    let found = |device| Ok((device, FoundGpu::of(device, driver)?));
    let devices = sys::devices().map_err(failed)?;
    let all = devices.into_iter().map(found).collect::<Result<Vec<_>, Failure>>().map_err(failed)?;
    if all.is_empty() {
        return Err(unavailable("the driver of CUDA has found no GPU on this machine".into()));
    }
    Ok(all)
}

/// The GPU that is meant.
pub(super) fn choose(select: &str) -> Result<(CUdevice, FoundGpu)> {
    let asked = if select.is_empty() { "cuda".to_owned() } else { format!("cuda:{select}") };
    let mut all = list(&asked)?;
    let found: Vec<FoundGpu> = all.iter().map(|(_, found)| found.clone()).collect();
    let index = index_of(&asked, select, &found)?;
    Ok(all.swap_remove(index))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gpu(name: &str, bus: &str, capability: [i32; 2]) -> FoundGpu {
        let [major, minor] = capability;
        FoundGpu {
            name: name.into(),
            bus: bus.into(),
            capability: Capability { major, minor },
            multiprocessors: 132,
            memory_bytes: 80 << 30,
            has_memory_pools: true,
            has_host_atomics: false,
            is_open: true,
            driver: "12.4".into(),
        }
    }

    fn said(select: &str, all: &[FoundGpu]) -> String {
        index_of("cuda:it", select, all).expect_err("refused").to_string()
    }

    #[test]
    fn a_gpu_is_chosen_by_number_name_or_where_it_is_plugged_in() {
        let all =
            [gpu("Tesla P100", "0000:01:00.0", [6, 0]), gpu("NVIDIA H100 PCIe", "0000:81:00.0", [9, 0])];
        for select in ["", "1", "h100", "0000:81", "nvidia"] {
            assert_eq!(index_of("cuda", select, &all), Ok(1), "{select}");
        }
        assert!(said("0", &all).contains("its compute capability is 6.0, and streams need 7.0"));
        assert!(said("a100", &all).contains("1: NVIDIA H100 PCIe (0000:81:00.0)"), "{}", said("a100", &all));
    }

    #[test]
    fn a_gpu_that_cannot_be_used_says_why() {
        let closed = FoundGpu { is_open: false, ..gpu("A", "b", [9, 0]) };
        assert!(said("a", &[closed]).contains("compute mode is `prohibited`"));
        let old = FoundGpu { has_memory_pools: false, ..gpu("A", "b", [9, 0]) };
        assert!(said("a", &[old]).contains("memory pools"));
    }
}
