//! Which devices there are, and which of them is meant.

use super::graph;
use crate::device::MemoryMode;
use crate::device::select::{Choosable, index_of};
use crate::error::{Error, Result};
use crate::locks::lock;
use opencl3::device::{
    CL_DEVICE_ATOMIC_ORDER_ACQ_REL, CL_DEVICE_ATOMIC_SCOPE_ALL_DEVICES, CL_DEVICE_SVM_ATOMICS,
    CL_DEVICE_SVM_COARSE_GRAIN_BUFFER, CL_DEVICE_SVM_FINE_GRAIN_BUFFER, CL_DEVICE_SVM_FINE_GRAIN_SYSTEM,
    CL_DEVICE_TYPE_ALL, CL_DEVICE_TYPE_CPU, CL_DEVICE_TYPE_GPU, Device,
};
use opencl3::error_codes::{CL_DEVICE_NOT_FOUND, ClError, DLOPEN_RUNTIME_LOAD_FAILED};
use opencl3::platform::get_platforms;
use std::sync::Mutex;

/// The code of loaders that have found no vendor's driver.
const NO_PLATFORM: i32 = -1001;

/// The platform of PoCL.
pub(super) const POCL: &str = "Portable Computing Language";

/// A device of OpenCL, as [`found`] lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundDevice {
    /// As its vendor calls it.
    pub name: String,
    /// The platform that it belongs to.
    pub platform: String,
    /// Who has made it.
    pub vendor: String,
    /// The version of OpenCL, as its driver says it.
    pub version: String,
    /// `GPU`, `CPU` or `accelerator`.
    pub kind: &'static str,
    /// How many kernels' groups it works on at a time.
    pub compute_units: u32,
    /// The most bytes that can be allocated at once.
    pub largest_bytes: u64,
    /// Whether it computes with `f64`.
    pub has_doubles: bool,
    /// Whether the host and its kernels can use the same memory at the same time.
    pub has_fine_grained_memory: bool,
    /// Whether they can use the same pointers, one after the other.
    pub has_shared_memory: bool,
    /// Whether they can tell each other about it by atomic operations.
    pub has_atomics: bool,
    /// Whether kernels address all memory of the host, by its addresses.
    pub has_system_memory: bool,
    /// Whether its queues run kernels that were recorded (`cl_khr_command_buffer`).
    pub has_command_buffers: bool,
}

impl FoundDevice {
    fn of(device: &Device, platform: &str) -> opencl3::Result<Self> {
        let capabilities = device.svm_mem_capability();
        let has = |capability| capabilities & capability != 0;
        let kind = match device.dev_type()? {
            kind if kind & CL_DEVICE_TYPE_GPU != 0 => "GPU",
            kind if kind & CL_DEVICE_TYPE_CPU != 0 => "CPU",
            _ => "accelerator",
        };
        let wide = device.address_bits()? == 64;
        Ok(Self {
            name: device.name()?.trim().into(),
            platform: platform.into(),
            vendor: device.vendor()?.trim().into(),
            version: device.version()?.trim().into(),
            kind,
            compute_units: device.max_compute_units()?,
            largest_bytes: device.max_mem_alloc_size()?,
            has_doubles: device.double_fp_config().is_ok_and(|config| config != 0),
            // Kernels follow pointers that the host has written.
            has_fine_grained_memory: has(CL_DEVICE_SVM_FINE_GRAIN_BUFFER) && wide,
            has_shared_memory: has(CL_DEVICE_SVM_COARSE_GRAIN_BUFFER) && wide,
            has_atomics: has(CL_DEVICE_SVM_ATOMICS) && has_order_and_scope(device),
            // PoCL's kernels on the host's cores are functions of the process, though not all its versions say so.
            has_system_memory: wide
                && (has(CL_DEVICE_SVM_FINE_GRAIN_SYSTEM) || kind == "CPU" && platform == POCL),
            has_command_buffers: graph::has_command_buffers(device),
        })
    }

    /// Why streams cannot use it, if so.
    pub fn unusable(&self) -> Option<String> {
        (!self.has_shared_memory).then(|| {
            "it has no shared virtual memory, by which ranks reach each other's arrays; choose another device, \
             or `host`"
                .into()
        })
    }

    /// Whether arrays are in memory that the host does not address.
    ///
    /// # Errors
    /// [`Error::DeviceUnavailable`] if it is to share what it cannot.
    pub(super) fn separates(&self, mode: MemoryMode) -> Result<bool> {
        match mode {
            MemoryMode::Auto => Ok(!self.has_fine_grained_memory || self.kind != "CPU"),
            MemoryMode::Separate => Ok(true),
            MemoryMode::Shared if self.has_fine_grained_memory => Ok(false),
            MemoryMode::Shared => Err(Error::DeviceUnavailable {
                device: self.name.clone(),
                reason: "it has no fine-grained shared virtual memory, by which the host would address its arrays; \
                         choose `separate` or `auto`"
                    .into(),
            }),
        }
    }

    /// The language of its kernels, the newest that it has.
    pub(super) fn language(&self) -> &'static str {
        if self.version.starts_with("OpenCL 3.") { "CL3.0" } else { "CL2.0" }
    }
}

impl Choosable for FoundDevice {
    fn label(&self) -> String {
        format!("{} ({})", self.name, self.platform)
    }

    fn names(&self) -> Vec<&str> {
        vec![&self.name, &self.platform, &self.vendor]
    }

    fn model(&self) -> String {
        self.label()
    }

    fn unusable(&self) -> Option<String> {
        FoundDevice::unusable(self)
    }
}

/// Whether its atomic operations can release to, and acquire from, all devices and the host. Before OpenCL 3.0
/// all that are there can.
fn has_order_and_scope(device: &Device) -> bool {
    let needed = CL_DEVICE_ATOMIC_ORDER_ACQ_REL | CL_DEVICE_ATOMIC_SCOPE_ALL_DEVICES;
    device.atomic_memory_capabilities().map_or(true, |capabilities| capabilities & needed == needed)
}

/// The devices of OpenCL on this machine, in the order of their numbers. Loads the library.
///
/// # Errors
/// [`Error::DeviceUnavailable`] if there is no library or no driver, with what to install.
pub fn found() -> Result<Vec<FoundDevice>> {
    Ok(list("opencl")?.into_iter().map(|(_, found)| found).collect())
}

fn list(asked: &str) -> Result<Vec<(Device, FoundDevice)>> {
    // Not every driver can be asked for its devices by two threads at once, the first time.
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _turn = lock(&ONE_AT_A_TIME);
    let unavailable = |reason: String| Error::DeviceUnavailable { device: asked.into(), reason };
    let failed = |error: ClError| unavailable(reason(&error));
    let mut all = Vec::new();
    for platform in get_platforms().map_err(failed)? {
        let name = platform.name().map_err(failed)?;
        let ids = match platform.get_devices(CL_DEVICE_TYPE_ALL) {
            Err(ClError(CL_DEVICE_NOT_FOUND)) => Vec::new(),
            ids => ids.map_err(failed)?,
        };
        for device in ids.into_iter().map(Device::new) {
            let found = FoundDevice::of(&device, name.trim()).map_err(failed)?;
            all.push((device, found));
        }
    }
    if all.is_empty() {
        return Err(unavailable("no driver of OpenCL has found a device on this machine".into()));
    }
    Ok(all)
}

fn reason(error: &ClError) -> String {
    match error.0 {
        DLOPEN_RUNTIME_LOAD_FAILED => "there is no library of OpenCL (libOpenCL.so.1) on this machine; \
             install a loader and a driver, such as ocl-icd-libopencl1 and pocl-opencl-icd"
            .into(),
        NO_PLATFORM => {
            "the library of OpenCL has found no driver; install one, such as pocl-opencl-icd".into()
        }
        _ => error.to_string(),
    }
}

/// The device that is meant, with its number.
pub(super) fn choose(select: &str) -> Result<(usize, (Device, FoundDevice))> {
    let asked = if select.is_empty() { "opencl".to_owned() } else { format!("opencl:{select}") };
    let all = list(&asked)?;
    let found: Vec<FoundDevice> = all.iter().map(|(_, found)| found.clone()).collect();
    let index = index_of(&asked, select, &found)?;
    let chosen = all.into_iter().nth(index).expect("an index of the list");
    Ok((index, chosen))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(name: &str, platform: &str, vendor: &str) -> FoundDevice {
        FoundDevice {
            name: name.into(),
            platform: platform.into(),
            vendor: vendor.into(),
            version: "OpenCL 3.0 tried".into(),
            kind: "GPU",
            compute_units: 4,
            largest_bytes: 1 << 30,
            has_doubles: true,
            has_fine_grained_memory: true,
            has_shared_memory: true,
            has_atomics: true,
            has_system_memory: true,
            has_command_buffers: true,
        }
    }

    fn devices() -> Vec<FoundDevice> {
        let bare = FoundDevice { has_shared_memory: false, ..device("Arc", "OpenCL Graphics", "Intel(R)") };
        vec![
            bare,
            device("cpu", "Portable Computing Language", "The pocl project"),
            device("X", "Y", "Intel"),
        ]
    }

    #[test]
    fn a_device_is_chosen_by_number_name_platform_or_vendor() {
        for (select, index) in [("1", 1), ("POCL", 1), ("portable", 1), ("x", 2), ("intel", 2), ("", 1)] {
            assert_eq!(index_of("opencl", select, &devices()), Ok(index), "{select}");
        }
    }

    #[test]
    fn what_cannot_be_chosen_is_refused_with_what_there_is() {
        let said = |select| index_of("opencl:it", select, &devices()).expect_err("refused").to_string();
        for select in ["3", "nvidia"] {
            assert!(
                said(select).contains("`opencl:it`") && said(select).contains("1: cpu (Portable"),
                "{select}"
            );
        }
        for select in ["0", "arc"] {
            let reason = "Arc (OpenCL Graphics): it has no shared virtual memory";
            assert!(said(select).contains(reason), "{select}");
        }
    }

    #[test]
    fn a_machine_without_a_library_says_what_to_install() {
        assert!(reason(&ClError(DLOPEN_RUNTIME_LOAD_FAILED)).contains("ocl-icd-libopencl1"));
        assert!(reason(&ClError(NO_PLATFORM)).contains("pocl-opencl-icd"));
        assert!(!reason(&ClError(-30)).is_empty());
    }
}
