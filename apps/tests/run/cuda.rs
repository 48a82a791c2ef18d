//! Runs on a GPU of CUDA, and what can be checked of its kernels without one.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Stdio;

use streamhalo::comm::Error;
use streamhalo::comm::device::{Capability, compile_for_cuda, cuda_compiler};
use streamhalo_apps::app::{APPLICATIONS, ApplicationRow};
use streamhalo_apps::config::{KnownNames, Overrides, RunConfig};

use super::{Folder, SMALL, finish, text};

#[test]
fn the_kernels_of_all_applications_compile() {
    if let Err(Error::DeviceUnavailable { reason, .. }) = cuda_compiler() {
        println!("skipped: compiling kernels for CUDA: {reason}");
        return;
    }
    let apps: Vec<&str> = APPLICATIONS.iter().map(|row| row.name).collect();
    let names = KnownNames {
        apps: &apps,
        backends: &["standard", "st-send", "st-rsend", "active-rma", "notified"],
        fabrics: &["local", "shm", "mpi", "ofi", "shm+mpi", "shm+ofi"],
        devices: &["host"],
    };
    // Configurations of one application mostly have the same kernels.
    let mut compiled = BTreeSet::new();
    for app in &apps {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../configs").join(app);
        let entries = std::fs::read_dir(&folder).expect("each application has configurations");
        let configs = entries.map(|entry| entry.expect("it can be read").path());
        for config in configs.filter(|path| path.extension().is_some_and(|extension| extension == "toml")) {
            let (config, _) = RunConfig::load(&config, &Overrides::default(), &names).expect("it is right");
            let application = ApplicationRow::open(&config).expect("its settings fit");
            for kernel in application.device_kernels() {
                if !compiled.insert((kernel.name, kernel.source)) {
                    continue;
                }
                for (major, minor) in [(7, 0), (8, 0), (9, 0)] {
                    let code = compile_for_cuda(kernel, Capability { major, minor });
                    assert!(!code.expect("it compiles").is_empty());
                }
            }
        }
    }
    assert!(!compiled.is_empty(), "no application has a kernel");
}

#[test]
fn a_machine_without_a_driver_says_what_to_install() {
    if let Ok(gpus) = streamhalo::comm::device::cuda_devices() {
        println!("skipped: a machine without CUDA's driver: this one has {} GPUs", gpus.len());
        return;
    }
    let folder = Folder::new();
    let config = folder.write("config.toml", SMALL);
    let config = config.to_str().expect("is text");
    for arguments in [
        vec!["info"],
        vec!["run", config, "--set", "device.kind=cuda"],
        vec!["bench", "halo", "--device", "cuda"],
    ] {
        let mut command = folder.command(env!("CARGO_BIN_EXE_streamhalo"));
        let run = command.args(&arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let output = finish(run);
        let said = text(&output.stdout) + &text(&output.stderr);
        assert!(said.contains("driver"), "{arguments:?}: {said}");
        assert_eq!(output.status.success(), arguments == ["info"], "{said}");
        assert!(!folder.out().exists());
    }
}
