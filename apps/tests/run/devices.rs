//! Applications on a device, here of OpenCL: the answers of the host wherever arrays are and messages go, what is looked at
//! between steps, and who is refused.

use std::fs;

use super::everywhere::CONFIGS;
use super::opencl::{DEVICE, is_there};
use super::{BACKENDS, Folder, assert_verified, checksums, text};

/// Once, at some numbers of ranks.
fn config(app: &str, ranks: &[usize]) -> String {
    let comm = "comm.timeout_s = 60\n";
    format!("{app}\nrun = {{ ranks = {ranks:?}, trials = 1, warmup = 0, pin = false }}\n{comm}")
}

#[test]
fn every_application_gives_the_answer_of_the_host() {
    if !is_there() {
        return;
    }
    for (name, app, backends) in CONFIGS.iter().filter(|(.., backends)| **backends == BACKENDS) {
        let folder = Folder::new();
        let on_host = folder.records(&config(app, &[1]), &["comm.backend=standard"]);
        for (ranks, set) in [
            (&[1, 2, 4, 8][..], ["device.memory=shared", "comm.fabric=local", "comm.signal=kernel"]),
            (&[1, 2, 4], ["device.memory=separate", "comm.fabric=local", "comm.signal=merged"]),
            (&[2], ["device.memory=separate", "comm.fabric=shm", "comm.signal=kernel"]),
        ] {
            let records = folder.records(&config(app, ranks), &[&set[..], &[DEVICE]].concat());
            assert_verified(&records);
            assert_eq!(records.len(), ranks.len() * backends.len(), "{name}, {set:?}");
            assert_eq!(checksums(&records), checksums(&on_host), "{name}, {set:?}");
            assert!(records.iter().all(|record| record["device"] == "opencl"), "{name}");
        }
    }
}

/// What belongs to the answer besides cells: norms, which are added up on the device and by an allreduce there, and
/// the sweeps of another stream.
#[test]
fn every_result_is_that_of_the_host() {
    if !is_there() {
        return;
    }
    let folder = Folder::new();
    let faces = "app = { name = 'faces', order = 3, steps = 3, outer = 1, middle = 2, extra_compute = 2, \
                 values = 'reals' }\ngrid.cells = [4, 4, 4]";
    let jacobi = "app = { name = 'stencil3d', equation = 'jacobi', steps = 5, residual_every = 2 }\n\
                  grid = { cells = [9, 10, 11], periodic = false }";
    for (app, set) in [
        (faces, &[][..]),
        (jacobi, &["app.points=27", "app.element=f32"]),
        (jacobi, &["grid.halo=2", "run.exchange_every=2", "device.memory=separate"]),
    ] {
        let config = config(app, &[2, 4]);
        let on_host = folder.records(&config, set);
        let records = folder.records(&config, &[set, &[DEVICE]].concat());
        let of = |records: &[serde_json::Value]| -> Vec<_> {
            records.iter().map(|record| [record["checksum"].clone(), record["result"].clone()]).collect()
        };
        assert_verified(&records);
        // What is measured stands with the result: seconds are no part of the answer.
        let results = of(&records).into_iter().zip(of(&on_host));
        for ([checksum, found], [expected_checksum, expected]) in results {
            assert_eq!(checksum, expected_checksum, "{set:?}");
            for key in ["residual", "extra_compute", "error"] {
                assert_eq!(found[key], expected[key], "{key} of {set:?}");
            }
        }
        assert!(records.iter().all(|record| !record["result"].as_object().expect("some").is_empty()));
    }
}

#[test]
fn pictures_and_checkpoints_are_those_of_the_host() {
    if !is_there() {
        return;
    }
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
    for app in [
        "app = { steps = 12, pattern = 'random:7' }\ngrid.cells = [24, 40]",
        "app = { name = 'stencil3d', equation = 'jacobi', element = 'f32', steps = 12, residual_every = 1 }\n\
         grid.cells = [6, 7, 8]",
    ] {
        let config = config(app, &[2]);
        let looks = ["output.snapshot_every=6", "output.checkpoint_every=6", "comm.backend=st-send"];
        let whole = folder.records(&config, &looks);
        let expected = files();
        let records = folder.records(&config, &[&looks[..], &[DEVICE, "device.memory=separate"]].concat());
        assert_eq!(checksums(&records), checksums(&whole));
        let found = files();
        assert_eq!(found.len(), expected.len());
        for ((path, found), (_, expected)) in found.iter().zip(&expected) {
            assert!(found == expected, "{}", path.display());
        }
        // On from the host's, and the device's is the same.
        let restart = format!("run.restart={:?}", folder.out().join("checkpoints"));
        let from = folder.records(&config, &[restart.as_str(), DEVICE, "run.ranks=4", "app.steps=18"]);
        let plain = folder.records(&config, &["app.steps=18", "comm.backend=standard"]);
        assert_verified(&from);
        assert_eq!(checksums(&from), checksums(&plain));
    }
}

#[test]
fn what_the_host_has_to_call_is_refused_with_the_reason() {
    for (name, app, _) in CONFIGS.iter().filter(|(.., backends)| **backends != BACKENDS) {
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
