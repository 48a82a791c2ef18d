//! Applications on devices of every kind that there is: the answers of the host wherever arrays are and messages go, what is
//! looked at between steps, and who is refused.

use std::fs;

use streamhalo::Device;
use streamhalo::comm::Error;

use super::everywhere::CONFIGS;
use super::{BACKENDS, Folder, assert_verified, checksums, text};
use crate::pipeline::PRIMITIVES;

/// Whether a device that was asked for is there. That it is not is printed as a part that was left out.
pub(super) fn has(kind: &str, device: Result<Device, Error>) -> bool {
    match device {
        Ok(_) => true,
        Err(Error::DeviceUnavailable { reason, .. }) => {
            println!("skipped: runs on a device of `{kind}`: {reason}");
            false
        }
        Err(error) => panic!("there is a device, but {error}"),
    }
}

/// What chooses a device, for each kind of which there is one.
pub(super) fn kinds() -> Vec<String> {
    let kinds = [("opencl", Device::opencl("")), ("cuda", Device::cuda("")), ("hip", Device::hip(""))];
    let there = kinds.into_iter().filter_map(|(kind, device)| has(kind, device).then_some(kind));
    there.map(|kind| format!("device.kind={kind}")).collect()
}

/// Once, at some numbers of ranks.
fn config(app: &str, ranks: &[usize]) -> String {
    let comm = "comm.timeout_s = 60\n";
    format!("{app}\nrun = {{ ranks = {ranks:?}, trials = 1, warmup = 0, pin = false }}\n{comm}")
}

#[test]
fn every_application_gives_the_answer_of_the_host() {
    let kinds = kinds();
    for (name, app, backends) in CONFIGS.iter().filter(|(.., backends)| **backends == BACKENDS) {
        let folder = Folder::new();
        let on_host = folder.records(&config(app, &[1]), &["comm.backend=standard"]);
        for (kind, (ranks, set)) in kinds.iter().flat_map(|kind| {
            // Where it is by itself: with the host on its own cores, apart on a GPU.
            let by_itself = ["device.memory=auto", "comm.fabric=local", "comm.signal=kernel"];
            let ways = [
                (&[1, 2, 4, 8][..], by_itself),
                (&[1, 2, 4], ["device.memory=separate", "comm.fabric=local", "comm.signal=merged"]),
                (&[2], ["device.memory=separate", "comm.fabric=shm", "comm.signal=kernel"]),
            ];
            ways.map(|way| (kind, way))
        }) {
            let records = folder.records(&config(app, ranks), &[&set[..], &[kind]].concat());
            assert_verified(&records);
            assert_eq!(records.len(), ranks.len() * backends.len(), "{name}, {set:?}");
            assert_eq!(checksums(&records), checksums(&on_host), "{name}, {set:?}");
            let is_there =
                |record: &serde_json::Value| kind.ends_with(record["device"].as_str().expect("text"));
            assert!(records.iter().all(is_there), "{name}");
        }
    }
}

/// What belongs to the answer besides cells: norms, which are added up on the device and by an allreduce there, and
/// the sweeps of another stream.
#[test]
fn every_result_is_that_of_the_host() {
    let kinds = kinds();
    let folder = Folder::new();
    let faces = "app = { name = 'faces', order = 3, steps = 3, outer = 1, middle = 2, extra_compute = 2, \
                 values = 'reals' }\ngrid.cells = [4, 4, 4]";
    let jacobi = "app = { name = 'stencil3d', equation = 'jacobi', steps = 5, residual_every = 2 }\n\
                  grid = { cells = [9, 10, 11], periodic = false }";
    for (app, set, memory) in [
        (faces, &[][..], "auto"),
        (jacobi, &["app.points=27", "app.element=f32"], "auto"),
        (jacobi, &["grid.halo=2", "run.exchange_every=2"], "separate"),
    ] {
        let memory = format!("device.memory={memory}");
        let config = config(app, &[2, 4]);
        let of = |records: &[serde_json::Value]| -> Vec<_> {
            records.iter().map(|record| [record["checksum"].clone(), record["result"].clone()]).collect()
        };
        let on_host = if kinds.is_empty() { Vec::new() } else { of(&folder.records(&config, set)) };
        for kind in &kinds {
            let records = folder.records(&config, &[set, &[kind, &memory]].concat());
            assert_verified(&records);
            // What is measured stands with the result: seconds are no part of the answer.
            for ([checksum, found], [expected_checksum, expected]) in of(&records).into_iter().zip(&on_host) {
                assert_eq!(checksum, *expected_checksum, "{set:?}");
                for key in ["residual", "extra_compute", "error"] {
                    assert_eq!(found[key], expected[key], "{key} of {set:?}");
                }
            }
            assert!(records.iter().all(|record| !record["result"].as_object().expect("some").is_empty()));
        }
    }
}

#[test]
fn pictures_and_checkpoints_are_those_of_the_host() {
    let folder = Folder::new();
    let files = || {
        let mut files = Vec::new();
        for part in ["snapshots", "checkpoints"] {
            let entries = fs::read_dir(folder.out().join(part)).expect("was made");
            let paths = entries.map(|entry| entry.expect("is readable").path());
            files.extend(paths.map(|path| (path.clone(), fs::read(path).expect("is readable"))));
        }
        files.sort();
        files
    };
    let apps = [
        "app = { steps = 12, pattern = 'random:7' }\ngrid.cells = [24, 40]",
        "app = { name = 'stencil3d', equation = 'jacobi', element = 'f32', steps = 12, residual_every = 1 }\n\
         grid.cells = [6, 7, 8]",
    ];
    for (kind, app) in kinds().iter().flat_map(|kind| apps.map(|app| (kind.as_str(), app))) {
        let config = config(app, &[2]);
        let looks = ["output.snapshot_every=6", "output.checkpoint_every=6", "comm.backend=st-send"];
        let whole = folder.records(&config, &looks);
        let expected = files();
        let records = folder.records(&config, &[&looks[..], &[kind, "device.memory=separate"]].concat());
        assert_eq!(checksums(&records), checksums(&whole));
        let found = files();
        assert_eq!(found.len(), expected.len());
        for ((path, found), (_, expected)) in found.iter().zip(&expected) {
            assert!(found == expected, "{}", path.display());
        }
        // On from the host's, and the device's is the same.
        let restart = format!("run.restart={:?}", folder.out().join("checkpoints"));
        let from = folder.records(&config, &[restart.as_str(), kind, "run.ranks=4", "app.steps=18"]);
        let plain = folder.records(&config, &["app.steps=18", "comm.backend=standard"]);
        assert_verified(&from);
        assert_eq!(checksums(&from), checksums(&plain));
    }
}

#[test]
fn what_the_host_has_to_call_is_refused_with_the_reason() {
    for (name, app, _) in CONFIGS.iter().filter(|(.., backends)| **backends == PRIMITIVES) {
        let folder = Folder::new();
        for kind in ["opencl", "cuda", "hip"] {
            let output = folder.run(&config(app, &[1]), &[&format!("device.kind={kind}")]);
            let said = text(&output.stderr);
            assert_eq!(output.status.code(), Some(2), "{said}");
            for part in [
                format!("`{name}` has kernels for `host` only, not for `{kind}`"),
                "the host calls its primitives between what it computes".to_owned(),
                "choose `host`, or an application that exchanges ghosts".to_owned(),
            ] {
                assert!(said.contains(&part), "{part} is not in {said}");
            }
            assert!(!folder.out().exists());
        }
    }
}
