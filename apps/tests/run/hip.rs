//! Runs on a GPU of HIP, as far as there is none.

use std::process::Stdio;

use streamhalo::comm::device::hip_devices;

use super::{Folder, SMALL, finish, text};

#[test]
fn a_program_that_cannot_use_it_says_why() {
    let Err(error) = hip_devices() else {
        println!("skipped: a machine without a GPU of AMD's: this one has some");
        return;
    };
    let folder = Folder::new();
    let config = folder.write("config.toml", SMALL);
    let config = config.to_str().expect("is text");
    let reason = error.to_string();
    let reason = reason.split_once("cannot be used: ").expect("it is about the device").1;
    let run = ["run", config, "--set", "device.kind=hip"];
    let mut command = folder.command(env!("CARGO_BIN_EXE_streamhalo"));
    let output = finish(command.args(run).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn());
    let said = text(&output.stderr);
    assert!(said.contains("device `hip` cannot be used: ") && said.contains(reason), "{said}");
    assert_eq!((output.status.code(), folder.out().exists()), (Some(2), false));
    let info = text(&folder.streamhalo(&["info"]).stdout);
    assert!(info.lines().any(|line| line.starts_with("  hip")), "{info}");
}
