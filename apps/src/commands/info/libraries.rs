//! Libraries that carry messages between machines: what was found of them, and what each can do.

use streamhalo::comm::Error;
use streamhalo::comm::device::{FoundDevice, FoundGpu, FoundHipDevice};
use streamhalo::comm::fabric::{FoundLibrary, Provider};

use crate::run::in_short;

/// Entries of a section.
type Entries = Vec<(String, Vec<String>)>;

/// What is said of MPI libraries.
pub(super) fn of_mpi(found: &[FoundLibrary]) -> Entries {
    let entry = |library: &FoundLibrary| {
        let path = library.path.display();
        let ability = ability(&library.capabilities, library.unusable.as_deref());
        if library.version.is_empty() {
            return (path.to_string(), vec![ability]);
        }
        let mut said = vec![format!("{path} ({})", library.abi), ability];
        if !library.gpus.is_empty() {
            said.push(format!("takes addresses of {}", library.gpus.join("; ")));
        }
        (in_short(&library.version), said)
    };
    let none = "none: install MPICH, Open MPI or Intel MPI, or set STREAMHALO_MPI to the path of one";
    listed(found, entry, none)
}

/// What is said of devices of OpenCL, whose number chooses one.
pub(super) fn of_opencl(found: Result<Vec<FoundDevice>, Error>) -> Entries {
    devices("opencl", found, |device| {
        let FoundDevice { name, platform, kind, version, compute_units, .. } = device;
        let able = |has, what| if has { what } else { "" };
        let state = device.unusable().map_or_else(
            || {
                let signals = if device.has_atomics { "by kernels" } else { "by proxy" };
                let doubles = able(device.has_doubles, ", with f64");
                let waits = if device.has_atomics && device.compute_units > 1 {
                    ", waits too"
                } else {
                    ", waits by proxy"
                };
                let memory = if device.has_fine_grained_memory {
                    "shared or separate memory"
                } else {
                    "separate memory"
                };
                let processes = able(device.has_system_memory, ", mapped by other processes too");
                format!("usable{doubles}; {memory}{processes}; signals {signals}{waits}")
            },
            |reason| format!("cannot be used here: {reason}"),
        );
        // Behind the number drivers say all that they are made of.
        let version = version.split_whitespace().take(2).collect::<Vec<_>>().join(" ");
        let what = format!("{kind} with {compute_units} compute units, {version}, of {platform}");
        vec![name.clone(), what, state]
    })
}

/// What is said of GPUs of HIP, whose number chooses one.
pub(super) fn of_hip(found: Result<Vec<FoundHipDevice>, Error>) -> Entries {
    devices("hip", found, |FoundHipDevice { name, architecture, compute_units, total_bytes }| {
        let gigabytes = total_bytes >> 30;
        let what = format!("{architecture} with {compute_units} compute units and {gigabytes} GiB");
        let state = "usable, with f64; no GPU of AMD's has run this version so far";
        vec![name.clone(), what, state.to_owned()]
    })
}

/// The devices of a kind, by their numbers, or why there are none.
fn devices<T>(kind: &str, found: Result<Vec<T>, Error>, say: impl Fn(&T) -> Vec<String>) -> Entries {
    let found = match found {
        Ok(found) => found,
        Err(Error::DeviceUnavailable { reason, .. }) => return vec![(kind.to_owned(), vec![reason])],
        Err(error) => return vec![(kind.to_owned(), vec![error.to_string()])],
    };
    found.iter().enumerate().map(|(index, device)| (format!("{kind} {index}"), say(device))).collect()
}

/// What is said of GPUs of CUDA, whose number chooses one, and of the compiler of applications' kernels.
pub(super) fn of_cuda(found: Result<Vec<FoundGpu>, Error>, compiler: Result<String, Error>) -> Entries {
    let kernels = match compiler {
        Ok(version) => format!("kernels of applications by NVRTC {version}"),
        Err(error) => format!("no kernels of applications: {error}"),
    };
    devices("cuda", found, |gpu| {
        let FoundGpu { name, bus, capability, multiprocessors, memory_bytes, driver, .. } = gpu;
        let state = gpu.unusable().map_or_else(
            || format!("usable, with f64; signals and waits by kernels; {kernels}"),
            |reason| format!("cannot be used here: {reason}"),
        );
        let memory = memory_bytes >> 30;
        let what = format!(
            "{multiprocessors} multiprocessors of {capability}, {memory} GiB, at {bus}, driver of CUDA {driver}"
        );
        vec![name.clone(), what, state]
    })
}

/// What is said of providers of libfabric.
pub(super) fn of_libfabric(found: Result<Vec<Provider>, Error>) -> Entries {
    let found = match found {
        Ok(found) => found,
        Err(Error::FabricUnavailable { reason, .. }) => return vec![("-".to_owned(), vec![reason])],
        Err(error) => return vec![("-".to_owned(), vec![error.to_string()])],
    };
    let entry = |provider: &Provider| {
        let mut said = vec![format!("version {}", provider.version)];
        if !provider.domains.is_empty() {
            said[0] += &format!(", sees {}", provider.domains.join(", "));
        }
        said.push(ability(&provider.capabilities, provider.unusable.as_deref()));
        (provider.name.clone(), said)
    };
    listed(&found, entry, "none: libfabric has no provider for this machine")
}

fn listed<T>(found: &[T], entry: impl Fn(&T) -> (String, Vec<String>), none: &str) -> Entries {
    match found {
        [] => vec![("-".to_owned(), vec![none.to_owned()])],
        _ => found.iter().map(entry).collect(),
    }
}

fn ability(capabilities: &[&str], unusable: Option<&str>) -> String {
    match unusable {
        Some(reason) => format!("cannot be used: {reason}"),
        None if capabilities.is_empty() => "messages only".to_owned(),
        None => capabilities.join(", "),
    }
}

#[cfg(test)]
mod tests {
    use super::super::page::Page;
    use super::*;
    use streamhalo::comm::device::Capability;

    fn shown(entries: &Entries) -> String {
        let mut page = Page::new("");
        page.section("part", entries);
        page.into_text()
    }

    #[test]
    fn libraries_say_where_they_are_and_what_they_can_do() {
        let usable = FoundLibrary {
            path: "/opt/mpich/lib/libmpi.so.12".into(),
            abi: "MPICH ABI".to_owned(),
            version: "MPICH Version:      4.3.2\nMPICH Release date: x".to_owned(),
            capabilities: vec!["persistent", "RMA", "partitioned"],
            gpus: vec!["CUDA: as MPIX_Query_cuda_support says in a run".to_owned()],
            unusable: None,
        };
        let unusable = FoundLibrary {
            version: "Open MPI v1.6.5, package: x".to_owned(),
            unusable: Some("it implements MPI 2.1, but 3.0 or newer is needed".to_owned()),
            ..usable.clone()
        };
        let text = shown(&of_mpi(&[usable, unusable]));
        assert!(text.contains(
            "  MPICH Version: 4.3.2\n      /opt/mpich/lib/libmpi.so.12 (MPICH ABI)\n      persistent, RMA, partitioned\n      \
             takes addresses of CUDA: as MPIX_Query_cuda_support says in a run\n"
        ), "{text}");
        assert!(text.contains("Open MPI v1.6.5") && text.contains("cannot be used: it implements MPI 2.1"));
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    }

    #[test]
    fn providers_say_what_they_reach_and_can_do() {
        let provider = Provider {
            name: "cxi".to_owned(),
            version: "0.1".to_owned(),
            domains: vec!["hsn0".to_owned(), "hsn1".to_owned()],
            capabilities: vec!["triggered", "atomics", "RMA"],
            unusable: None,
        };
        let plain =
            Provider { name: "udp".to_owned(), domains: vec![], capabilities: vec![], ..provider.clone() };
        let text = shown(&of_libfabric(Ok(vec![provider, plain])));
        assert!(
            text.contains("  cxi  version 0.1, sees hsn0, hsn1\n       triggered, atomics, RMA\n"),
            "{text}"
        );
        assert!(text.contains("  udp  version 0.1\n       messages only\n"), "{text}");
    }

    #[test]
    fn gpus_are_numbered_and_say_what_they_are() {
        let gpu = |name: &str| FoundHipDevice {
            name: name.to_owned(),
            architecture: "gfx90a:sramecc+:xnack-".to_owned(),
            compute_units: 104,
            total_bytes: 64 << 30,
        };
        let text = shown(&of_hip(Ok(vec![gpu("Instinct A"), gpu("Instinct B")])));
        assert!(text.contains("  hip 1  Instinct B\n"), "{text}");
        assert!(text.contains("gfx90a:sramecc+:xnack- with 104 compute units and 64 GiB"), "{text}");
        let (device, reason) = ("hip".to_owned(), "there is no GPU".to_owned());
        let text = shown(&of_hip(Err(Error::DeviceUnavailable { device, reason })));
        assert!(text.contains("  hip  there is no GPU\n"), "{text}");
    }

    #[test]
    fn gpus_say_what_they_are_and_what_is_missing() {
        let gpu = FoundGpu {
            name: "NVIDIA H100 PCIe".to_owned(),
            bus: "0000:81:00.0".to_owned(),
            capability: Capability { major: 9, minor: 0 },
            multiprocessors: 114,
            memory_bytes: 80 << 30,
            has_memory_pools: true,
            has_host_atomics: false,
            is_open: true,
            driver: "12.4".to_owned(),
        };
        let missing = || {
            let (device, reason) = ("cuda".to_owned(), "NVRTC could not be loaded".to_owned());
            Error::DeviceUnavailable { device, reason }
        };
        let closed = FoundGpu { is_open: false, ..gpu.clone() };
        let text = shown(&of_cuda(Ok(vec![gpu.clone(), closed]), Ok("12.0".to_owned())));
        for part in [
            "  cuda 0  NVIDIA H100 PCIe\n",
            "114 multiprocessors of 9.0, 80 GiB",
            "by NVRTC 12.0",
            "nvidia-smi -c 0",
        ] {
            assert!(text.contains(part), "no {part:?} in {text}");
        }
        assert!(shown(&of_cuda(Ok(vec![gpu]), Err(missing()))).contains("NVRTC could not be loaded"));
        assert!(shown(&of_cuda(Err(missing()), Ok("12.0".to_owned()))).contains("  cuda  NVRTC could not"));
    }

    #[test]
    fn that_there_are_none_is_said_with_the_reason() {
        assert!(shown(&of_mpi(&[])).contains("none: install MPICH"));
        let text = shown(&of_libfabric(Err(Error::FabricUnavailable {
            name: "ofi".to_owned(),
            reason: "there is no libfabric.so.1".to_owned(),
        })));
        assert!(text.contains("  -  there is no libfabric.so.1\n"), "{text}");
    }
}
