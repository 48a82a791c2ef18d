//! Runs on a device of OpenCL: the answers of the host, and what is refused.

use std::path::Path;
use std::process::Stdio;

use serde_json::Value;
use streamhalo::Device;

use super::devices::has;
use super::launchers::any_launcher;
use super::rendezvous::has_libfabric;
use super::{BACKENDS, Folder, SMALL, finish, text};

pub(super) const DEVICE: &str = "device.kind=opencl";

/// Whether there is a device. That there is none is printed as a part that was left out.
pub(super) fn is_there() -> bool {
    has("opencl", Device::opencl(""))
}

fn answers(records: &[Value]) -> Vec<(String, Value)> {
    let of = |record: &Value| (record["backend"].to_string(), record["checksum"].clone());
    records.iter().map(of).collect()
}

#[test]
fn life_gives_the_cells_of_the_host_with_every_backend_at_every_number_of_ranks() {
    if !is_there() {
        return;
    }
    let (separate, by_kernel, by_proxy) =
        ("device.memory=separate", "device.waits=kernel", "device.waits=proxy");
    let wide = ["run.ranks=3", "grid.halo=2", "run.exchange_every=2"];
    for (set, on_device, by) in [
        (&["run.ranks=[1, 2, 4]"][..], &[][..], ["proxy", "stream"]),
        (&["run.ranks=[1, 2, 4]"], &[separate, "comm.signal=merged"], ["proxy", "stream"]),
        (&wide, &[by_proxy], ["proxy"; 2]),
        (&wide, &[separate, by_proxy], ["proxy"; 2]),
        (&["run.ranks=[2, 4]"], &[by_kernel], ["stream"; 2]),
        (&["run.ranks=[2, 4]"], &[separate, by_kernel], ["stream"; 2]),
    ] {
        let folder = Folder::new();
        let on_host = folder.records(SMALL, set);
        let records = folder.records(SMALL, &[set, &[DEVICE], on_device].concat());
        assert_eq!(answers(&records), answers(&on_host));
        assert!(records.len() >= BACKENDS.len());
        for record in &records {
            assert_eq!(
                (&record["device"], &record["verified"]),
                (&"opencl".into(), &true.into()),
                "{record}"
            );
            let by = if record["backend"] == "standard" { ["host"; 2] } else { by };
            assert!(by.iter().any(|by| record["executor"] == *by), "{record}");
        }
    }
}

#[test]
fn the_first_example_runs_on_a_device() {
    if !is_there() {
        return;
    }
    let folder = Folder::new();
    let config = Path::new(env!("CARGO_MANIFEST_DIR")).join("../configs/life/quickstart.toml");
    let (config, out) = (config.display().to_string(), folder.out().display().to_string());
    let small = ["--set", "grid.cells=[192, 160]", "--set", "app.steps=40", "--set", "run.trials=1"];
    let arguments = [&["run", &config, "--set", DEVICE, "--out", &out], &small[..]].concat();
    let output = folder.streamhalo(&arguments);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(said.contains("device:   opencl, ") && said.contains("executor: "), "{said}");
}

#[test]
fn explain_says_who_carries_messages_out() {
    if !is_there() {
        return;
    }
    let folder = Folder::new();
    let config = folder.write("config.toml", SMALL);
    let config = config.to_str().expect("is text");
    let output = folder.streamhalo(&["explain", config, "--set", DEVICE, "--set", "run.ranks=2"]);
    let said = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    // By its kind: kernels wait on a GPU.
    assert!(said.contains("proxy") || said.contains("stream"), "{said}");
}

/// Those of all ranks and backends, by one executor each.
fn check(records: &[Value], on_host: &[Value], fabric: &str) {
    assert_eq!(answers(records), answers(on_host), "over {fabric}");
    for record in records {
        let of = |key: &str| record[key].as_str().unwrap_or_default();
        assert_eq!(
            (of("device"), of("fabric"), &record["verified"]),
            ("opencl", fabric, &true.into()),
            "{record}"
        );
        // Who carries messages between nodes is up to the library.
        let known = match of("backend") {
            "standard" => ["host"; 3],
            _ => ["proxy", "nic", "host"],
        };
        assert!(of("executor").split('+').all(|by| known.contains(&by)), "{record}");
    }
}

#[test]
fn life_gives_the_cells_of_the_host_over_every_fabric() {
    if !is_there() {
        return;
    }
    let set = ["run.ranks=[1, 2, 4]", "run.pin=false"];
    let folder = Folder::new();
    let on_host = folder.records(SMALL, &set);
    let of_its_own = if has_libfabric() { &["ofi", "shm+ofi"][..] } else { &[] };
    for fabric in [&["shm"], of_its_own].concat() {
        let chosen = format!("comm.fabric={fabric}");
        check(&folder.records(SMALL, &[&set[..], &[DEVICE, &chosen]].concat()), &on_host, fabric);
    }
    if let Some(launcher) = any_launcher() {
        for fabric in ["mpi", "shm+mpi"] {
            let file = folder.write("config.toml", SMALL).display().to_string();
            let out = folder.out().display().to_string();
            let chosen = format!("comm.fabric={fabric}");
            let set = [&set[..], &[DEVICE, &chosen]].concat();
            let set = set.into_iter().flat_map(|set| ["--set".to_owned(), set.to_owned()]);
            let arguments: Vec<String> =
                ["run".into(), file, "--out".into(), out].into_iter().chain(set).collect();
            let output = launcher.streamhalo(&folder, 4, &arguments);
            let said = text(&output.stderr);
            assert_eq!(output.status.code(), Some(0), "over {fabric}: {said}");
            // PoCL's arrays are in memory that the host addresses too; within a node there is no wire.
            let straight = "messages: straight from and to the device's memory, because";
            assert_eq!(said.contains(straight), fabric == "mpi", "{said}");
            check(&folder.records_there(), &on_host, fabric);
        }
    }
}

#[test]
fn explain_says_how_messages_of_a_device_are_staged() {
    if !is_there() {
        return;
    }
    let folder = Folder::new();
    let config = folder.write("config.toml", SMALL).display().to_string();
    let explain_with = |set: &[&str]| {
        let set = set.iter().flat_map(|one| ["--set", one]).collect::<Vec<_>>();
        let output = folder.streamhalo(&[&["explain", &config, "--set", DEVICE], &set[..]].concat());
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        text(&output.stdout)
    };
    let explain = |peers: &str| explain_with(&["run.ranks=2", peers, "comm.fabric=shm"]);
    // Lines are broken within the table's columns.
    let said = explain("device.peers=staged");
    let words: Vec<&str> =
        said.split(|c: char| !c.is_ascii_graphic()).filter(|word| !word.is_empty()).collect();
    for word in ["staged", "`device.peers`", "`staged`", "proxy"] {
        assert!(words.contains(&word), "`{word}` is not in {said}");
    }
    assert!(!said.contains("straight into ghosts"), "{said}");
    assert!(!explain("device.peers=auto").contains("staged"), "processes map each other's arrays");
    if !has_libfabric() {
        return;
    }
    let wide = ["grid.cells=[8, 1048576]", "run.ranks=2", "run.layout=[[2, 1]]", "comm.fabric=ofi"];
    for (staging, blocks) in [("staging.blocks=8", Some("8")), ("staging.scheme=naive", None)] {
        let set = [&wide[..], &["comm.backend=st-send", "device.wires=staged", staging]].concat();
        let said = explain_with(&set);
        let words: Vec<&str> = said.split(|c: char| !c.is_ascii_alphanumeric()).collect();
        let words: Vec<&str> = words.into_iter().filter(|word| !word.is_empty()).collect();
        let told = words.windows(2).find(|pair| pair[1] == "blocks").map(|pair| pair[0]);
        assert_eq!(told, blocks, "{staging}: {said}");
    }
}

#[test]
fn runs_and_info_say_that_messages_are_staged() {
    let folder = Folder::new();
    // Lines are broken.
    let info = text(&folder.streamhalo(&["info"]).stdout);
    let info = info.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(info.contains("(`device.wires`), else they are staged"), "{info}");
    if !is_there() {
        return;
    }
    for (fabric, peers, is_staged) in
        [("local", "auto", false), ("shm", "auto", false), ("local", "staged", true), ("shm", "staged", true)]
    {
        let [fabric, peers] = [format!("comm.fabric={fabric}"), format!("device.peers={peers}")];
        let output = folder.run(SMALL, &["run.ranks=2", DEVICE, &fabric, &peers]);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{said}");
        assert_eq!(said.contains("staged through the host's memory"), is_staged, "{said}");
        assert!(said.contains("proxy (st-send, st-rsend, active-rma, notified)"), "{said}");
    }
}

/// PoCL shows the host's cores as often as it is told, by the name that its devices' names begin with.
#[test]
fn ranks_compute_on_a_device_each_where_several_are_alike() {
    let Ok(pocl) = Device::opencl("portable computing language") else {
        return println!("skipped: several devices of OpenCL: there is no PoCL that would show them");
    };
    let (_, name) = pocl.name().split_once(", ").expect("its kind comes first");
    let driver = name.split('-').next().expect("there is a first part");
    for fabric in ["local", "shm"] {
        let folder = Folder::new();
        let config = folder.write("config.toml", SMALL);
        let mut command = folder.command(env!("CARGO_BIN_EXE_streamhalo"));
        command
            .env("POCL_DEVICES", format!("{driver} {driver}"))
            .args(["run", "--fabric", fabric])
            .arg(config);
        command.args(["--set", DEVICE, "--set", "device.select=portable", "--out"]).arg(folder.out());
        let output = finish(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn());
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{said}");
        assert!(said.contains("devices:  0, 1; the ranks of a node take them in turn"), "{said}");
        let records = folder.records_there();
        assert!(records.iter().all(|record| record["verified"] == true), "{records:?}");
    }
}

#[test]
fn what_a_device_cannot_do_is_refused_before_anything_runs() {
    if !is_there() {
        return;
    }
    let folder = Folder::new();
    for (set, expected) in [
        (&["comm.fabric=mpi", "device.waits=kernel"][..], "choose `auto` or `proxy`, or the fabric `local`"),
        (
            &["device.peers=staged", "comm.signal=merged"],
            "because `device.peers` is `staged`; choose `kernel`",
        ),
        (&["comm.signal=memop"], "choose `kernel`"),
        (
            &["comm.fabric=shm", "device.wires=direct"],
            "`shm` go over no wire that could take the device's memory",
        ),
        (
            &["comm.fabric=ofi", "device.wires=direct", "device.peers=staged"],
            "device.wires: `direct` gives wires the device's memory, but `device.peers` is `staged`",
        ),
        (
            &["comm.fabric=ofi", "device.wires=direct", "device.memory=separate"],
            "device.wires: wires cannot be given the device's memory: the host does not address",
        ),
        (&["device.wires=straight"], "`auto`, `direct`"),
        (&["device.select=nobody's"], "no device is meant by it; the devices are 0: "),
        (&["device.select=77"], "no device is meant by it; the devices are 0: "),
    ] {
        let output = folder.run(SMALL, &[set, &[DEVICE]].concat());
        let said = text(&output.stderr);
        assert!(!output.status.success() && said.contains(expected), "{set:?}: {said}");
        assert!(!folder.out().exists());
    }
}

#[test]
fn a_machine_without_a_driver_says_what_to_install() {
    let folder = Folder::new();
    let config = folder.write("config.toml", SMALL);
    let config = config.to_str().expect("is text");
    for arguments in [vec!["info"], vec!["run", config, "--set", DEVICE]] {
        let mut command = folder.command(env!("CARGO_BIN_EXE_streamhalo"));
        // Where loaders look for drivers: a folder that has none.
        command.env("OCL_ICD_VENDORS", folder.path()).env("OPENCL_LAYERS", "");
        let run = command.args(&arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let output = finish(run);
        let said = text(&output.stdout) + &text(&output.stderr);
        assert!(said.contains("install") && said.contains("pocl-opencl-icd"), "{arguments:?}: {said}");
        assert_eq!(output.status.success(), arguments == ["info"], "{said}");
    }
}
