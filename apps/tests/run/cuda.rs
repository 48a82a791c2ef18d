//! Runs on a GPU of CUDA, as far as there is none.

use std::process::Stdio;

use super::{Folder, SMALL, finish, text};

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
