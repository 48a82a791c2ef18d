//! Steps that streams replay: the same answers, how many of them they are, and what cannot be replayed.

use serde_json::Value;

use super::devices::kinds;
use super::{FABRICS, Folder, SMALL, assert_verified, checksums, text};

const FACES: &str = "app = { name = 'faces', order = 2, steps = 9, outer = 2, middle = 2 }\ngrid.cells = [4, 4, 2]\n\
                     run = { ranks = [1, 2, 4], trials = 1, warmup = 0, pin = false }\ncomm.timeout_s = 60";
const JACOBI: &str = "app = { name = 'stencil3d', equation = 'jacobi', steps = 14, residual_every = 0 }\n\
                      grid = { cells = [9, 10, 11], periodic = false }\n\
                      run = { ranks = [1, 2, 4], trials = 1, warmup = 0, pin = false }\ncomm.timeout_s = 60";

/// Runs with and without, and gives the records of the runs with.
fn replayed(folder: &Folder, config: &str, replay: &str, set: &[&str]) -> Vec<Value> {
    let plain = folder.records(config, set);
    let records = folder.records(config, &[set, &[replay]].concat());
    assert_verified(&records);
    assert_eq!(checksums(&records), checksums(&plain), "{replay}, {set:?}");
    records
}

/// That so many steps were replayed by that executor, but with `standard`.
fn assert_replayed(records: &[Value], steps: u64, by: &str) {
    for record in records {
        let result = &record["result"];
        let found = (result["replayed_steps"].as_u64(), result["replayed_by"].as_str().expect("is said"));
        if record["backend"] == "standard" {
            assert_eq!(found.0, Some(0), "{record}");
            assert!(
                found.1.starts_with("nobody: an exchange of backend `standard` cannot be captured"),
                "{record}"
            );
        } else {
            assert!(found.0 == Some(steps) && found.1.starts_with(by), "{steps}, {by}: {record}");
        }
    }
}

#[test]
fn replayed_steps_give_the_same_answers() {
    let folder = Folder::new();
    for fabric in FABRICS.map(|fabric| format!("comm.fabric={fabric}")) {
        // Two exchanges are enqueued first, and what is left at the end.
        for (replay, set, steps) in [
            ("run.replay=2", &[][..], 22),
            ("run.replay=4", &["device.stream=threaded", "grid.periodic=false"], 20),
            ("run.replay=2", &["grid.halo=3", "run.exchange_every=3"], 18),
            ("run.replay=2", &["grid.halo=5", "run.exchange_every=5", "device.threads=2"], 10),
        ] {
            let records = replayed(&folder, SMALL, replay, &[set, &[&fabric]].concat());
            assert_replayed(&records, steps, "stream");
        }
    }
    // Looks cut periods and sweeps. Of single steps 2 to 6 are replayed, 8 to 12, and 14 to 18; of sweeps of two steps, of which
    // every fourth is cut to one, 7 to 11 and 14 to 18.
    let looks = ["output.checkpoint_every=7", "comm.backend=st-rsend", "run.ranks=4"];
    assert_replayed(&replayed(&folder, SMALL, "run.replay=4", &looks), 12, "stream");
    let sweeps = [&looks[..], &["grid.halo=2", "run.exchange_every=2"]].concat();
    assert_replayed(&replayed(&folder, SMALL, "run.replay=2", &sweeps), 8, "stream");
    // Looks that are closer than a period.
    let looks =
        ["output.checkpoint_every=3", "output.checkpoints_kept=0", "comm.backend=st-send", "run.ranks=2"];
    assert_replayed(
        &replayed(&folder, SMALL, "run.replay=4", &looks),
        0,
        "nobody: there were never 4 steps left before a look",
    );
    // On from a checkpoint, on another number of ranks: of 9 steps 2 and the last one are enqueued.
    let restart = format!("run.restart={:?}", folder.out().join("checkpoints/life_000015.halo"));
    let on = [restart.as_str(), "comm.backend=[\"notified\", \"standard\"]", "run.ranks=[1, 4]"];
    assert_replayed(&replayed(&Folder::new(), SMALL, "run.replay=2", &on), 6, "stream");
    // The first steps of what each pass of the outer loop allocates are enqueued, and one behind each inner loop.
    assert_replayed(&replayed(&folder, FACES, "run.replay=2", &[]), 2 * (6 + 8), "stream");
    for set in [&[][..], &["app.overlap=false", "app.points=27", "app.element=f32"]] {
        assert_replayed(&replayed(&folder, JACOBI, "run.replay=2", set), 12, "stream");
    }
    let wide = ["grid.halo=2", "run.exchange_every=2", "device.stream=threaded"];
    assert_replayed(&replayed(&folder, JACOBI, "run.replay=2", &wide), 8, "stream");
}

#[test]
fn devices_replay_graphs() {
    let folder = Folder::new();
    let by_kernels = ["device.waits=kernel", "comm.signal=merged", "run.ranks=2"];
    for kind in kinds() {
        for (config, steps) in [(SMALL, 22), (FACES, 28), (JACOBI, 12)] {
            let set = [&by_kernels[..], &[&kind]].concat();
            assert_replayed(&replayed(&folder, config, "run.replay=2", &set), steps, "stream");
        }
        let wide = [&by_kernels[..], &[&kind, "grid.halo=2", "run.exchange_every=2"]].concat();
        assert_replayed(&replayed(&folder, SMALL, "run.replay=2", &wide), 20, "stream");
        let by_thread = ["device.waits=proxy", "run.ranks=2", &kind];
        assert_replayed(&replayed(&folder, SMALL, "run.replay=4", &by_thread), 20, "proxy, since");
    }
}

#[test]
fn who_replays_is_said_and_what_cannot_be_replayed_is_refused() {
    let folder = Folder::new();
    let output = folder.run(SMALL, &["run.replay=2", "run.ranks=2"]);
    let said = text(&output.stdout).split_whitespace().collect::<Vec<_>>().join(" ");
    for part in [
        "replayed by nobody: an exchange of backend `standard`",
        ", stream (st-send, st-rsend, active-rma, notified)",
    ] {
        assert!(said.contains(part), "no {part:?} in {said}");
    }
    for (config, set, expected) in [
        (JACOBI, "app.equation=heat", "the source of the heat equation is another at each step"),
        (JACOBI, "app.residual_every=3", "a norm is taken every 3 steps; set `app.residual_every` to 0"),
        (FACES, "app.extra_compute=1", "set `app.extra_compute` to 0"),
        (SMALL, "app.steps=3", "`life` has 3 steps of the 4 that a period needs"),
        (
            "app.name = 'comb'\ngrid.cells = [8, 8, 8]",
            "run.ranks=1",
            "those of life, faces and stencil3d are",
        ),
        ("app.name = 'tree'", "run.ranks=1", "`tree` cannot be replayed"),
    ] {
        let output = folder.run(config, &[set, "run.replay=2"]);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains("--set run.replay=2: run.replay: ") && said.contains(expected), "{said}");
    }
}
