//! What a run prints and leaves behind.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Stdio;

use serde_json::Value;
use streamhalo_apps::life::rle::Pattern;

use super::{Folder, SMALL, finish, pattern, text, until};

/// The keys of a record, as the documentation lists them.
const KEYS: [&str; 19] = [
    "app",
    "backend",
    "fabric",
    "executor",
    "device",
    "ranks",
    "layout",
    "cells",
    "steps",
    "trial",
    "solve_s",
    "halo_s",
    "compute_s",
    "setup_s",
    "bytes_per_exchange",
    "messages_per_exchange",
    "verified",
    "checksum",
    "result",
];

#[test]
fn results_have_every_field_of_the_schema() {
    let folder = Folder::new();
    let records = folder.records(SMALL, &["device.stream=threaded"]);
    let results: Value = serde_json::from_str(&folder.read_out("results.json")).expect("is JSON");
    assert_eq!(results["schema"], 1);
    assert_eq!(results["config"]["app"]["pattern"], "random:7");
    assert_eq!(results["config"]["grid"]["halo"], serde_json::json!([1, 1]));
    assert!(results["machine"]["os"].is_string());
    assert_eq!(records.len(), 3 * 5);
    let mut sorted = KEYS;
    sorted.sort_unstable();
    for record in &records {
        let keys: Vec<_> = record.as_object().expect("is an object").keys().map(String::as_str).collect();
        assert_eq!(keys, sorted);
        assert_eq!((&record["app"], &record["device"]), (&Value::from("life"), &Value::from("host")));
        let seconds = |key: &str| record[key].as_f64().expect("is a number");
        // On a threaded stream too the parts are measured, not guessed.
        assert!(seconds("compute_s") > 0.0 && seconds("halo_s") > 0.0 && seconds("setup_s") > 0.0);
        assert!(seconds("solve_s") >= seconds("compute_s").max(seconds("halo_s")), "{record}");
        let checksum = record["checksum"].as_str().expect("is text");
        assert_eq!(checksum.len(), 16);
        assert!(checksum.bytes().all(|digit| digit.is_ascii_hexdigit()));
        let ranks: u64 =
            record["layout"].as_array().expect("is a list").iter().filter_map(Value::as_u64).product();
        assert_eq!(record["ranks"], ranks);
    }
}

#[test]
fn table_plot_and_final_state_are_written() {
    let folder = Folder::new();
    let glider = pattern("glider");
    let output = folder.run(SMALL, &[&glider, "app.origin=[23, 39]", "app.steps=4"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let mut names: Vec<_> = fs::read_dir(folder.out())
        .expect("was made")
        .map(|entry| entry.expect("is readable").file_name().into_string().expect("is text"))
        .collect();
    names.sort();
    assert_eq!(names, ["final.rle", "results.csv", "results.json", "speedup.svg", "time.svg"]);
    assert_eq!(folder.read_out("results.csv").lines().count(), 1 + 3 * 5);
    for plot in ["speedup.svg", "time.svg"] {
        assert!(folder.read_out(plot).contains("</svg>"));
    }
    // One cell down and to the right: from across the corner to the corner.
    let last = Pattern::parse(&folder.read_out("final.rle")).expect("is a pattern");
    assert_eq!((last.height, last.width), (24, 40));
    assert_eq!(last.cells, [(0, 1), (1, 2), (2, 0), (2, 1), (2, 2)]);
}

/// They have names of their own until they are complete.
#[test]
fn what_a_killed_run_left_behind_is_removed_and_nothing_else() {
    let folder = Folder::new();
    fs::create_dir(folder.out()).expect("can write");
    let left = [
        ".results.json.unfinished",
        ".speedup.svg.earlier.unfinished",
        ".timeline-standard.svg.unfinished",
        ".probe.unfinished",
        ".occupied",
    ];
    // In folders of their own whatever is unfinished, also where nothing is written this time.
    let left =
        [&left[..], &["checkpoints/.life_000008.halo.unfinished", "snapshots/.life.pvd.unfinished"]].concat();
    let kept = [".notes.unfinished", ".results.json.1.unfinished", ".results.json.new", "snapshots/life.pvd"];
    for name in ["checkpoints", "snapshots"] {
        fs::create_dir(folder.out().join(name)).expect("can write");
    }
    for name in left.iter().chain(&kept) {
        fs::write(folder.out().join(name), "half of it").expect("can write");
    }
    assert_eq!(folder.run(SMALL, &["run.ranks=1"]).status.code(), Some(0));
    let is_there = |name: &&&str| folder.out().join(name).exists();
    assert_eq!(left.iter().filter(is_there).count(), 0);
    assert_eq!(kept.iter().filter(is_there).count(), kept.len());
    assert!(folder.out().join("results.json").exists());
}

/// Also where the one before it cannot be read.
#[test]
fn what_is_unfinished_is_removed_from_each_folder() {
    let folder = Folder::new();
    let left = folder.out().join("snapshots/.life.pvd.unfinished");
    fs::create_dir_all(folder.out().join("snapshots")).expect("can write");
    fs::write(&left, "half of it").expect("can write");
    symlink("checkpoints", folder.out().join("checkpoints")).expect("can write");
    let output = folder.run(SMALL, &["run.ranks=1"]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("out/checkpoints"), "{said}");
    assert!(!left.exists());
}

/// Before anything has run, which would be lost, and with the earlier results as they are.
#[test]
fn a_folder_where_a_file_of_some_runs_would_be_is_said_at_once() {
    let folder = Folder::new();
    folder.records(SMALL, &["run.ranks=1"]);
    let before = folder.read_out("results.json");
    fs::create_dir(folder.out().join("timeline-st-send.json")).expect("can write");
    let output = folder.run(SMALL, &["run.ranks=1"]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.contains("timeline-st-send.json") && said.contains("earlier results are untouched"),
        "{said}"
    );
    assert!(!said.contains("results in"), "{said}");
    assert_eq!(folder.read_out("results.json"), before);
}

/// A folder that was good when the run began. It lasts for seconds after the first picture, and the place is taken before.
#[test]
fn results_that_find_no_place_are_kept_elsewhere() {
    let folder = Folder::new();
    let (config, elsewhere) = (folder.write("config.toml", SMALL), folder.path().join("elsewhere"));
    fs::create_dir(&elsewhere).expect("can write");
    let mut command = folder.command(env!("CARGO_BIN_EXE_streamhalo"));
    command.env("TMPDIR", &elsewhere).arg("run").arg(&config).arg("--out").arg(folder.out());
    command.args([
        "--ranks",
        "1",
        "--backend",
        "st-send",
        "--snapshot",
        "every=30000",
        "--set",
        "app.steps=60000",
    ]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().expect("the program starts");
    until("the first picture is there", || folder.out().join("snapshots").exists());
    fs::create_dir(folder.out().join("results.json")).expect("the run has not ended");
    let output = finish(Ok(child));
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("results.json") && said.contains("remove it, or choose another place"), "{said}");
    let kept = said.lines().find_map(|line| line.strip_prefix("the results of this run are in "));
    let kept = Path::new(kept.unwrap_or_else(|| panic!("{said}")));
    assert!(kept.starts_with(&elsewhere) && kept.join("final.rle").exists(), "{said}");
    let mode = fs::metadata(kept).expect("is there").permissions().mode();
    assert_eq!(mode & 0o777, 0o700, "nobody else may write there");
    // All that it measured, which `report` makes the rest of.
    let report = folder.streamhalo(&["report", kept.to_str().expect("is text")]);
    assert_eq!(report.status.code(), Some(0), "{}", text(&report.stderr));
    assert_eq!(text(&report.stdout), text(&output.stdout));
}

#[test]
fn a_limit_of_the_size_of_files_is_an_error_as_a_full_disk_is() {
    let folder = Folder::new();
    let config = folder.write("config.toml", SMALL);
    let script = "ulimit -f 4 && exec \"$0\" run \"$1\" --out \"$2\" --quiet --ranks 1 --set grid.cells=[120,120] \"${@:3}\"";
    let elsewhere = folder.path().join("elsewhere");
    fs::create_dir(&elsewhere).expect("can write");
    let run = |arguments: &[&str]| {
        let mut command = folder.command("bash");
        command.env("TMPDIR", &elsewhere);
        command.args(["-c", script, env!("CARGO_BIN_EXE_streamhalo")]).arg(&config).arg(folder.out());
        finish(command.args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn())
    };
    let output = run(&["--snapshot", "every=1"]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("cannot write the picture") && said.contains("File too large"), "{said}");
    let output = run(&["--snapshot", "every=1", "--set", "output.on_full_disk=go-on"]);
    let said = text(&output.stderr);
    // The results are longer, too.
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.contains("goes on without") && said.contains("cannot replace") && said.contains("ulimit -f"),
        "{said}"
    );
    assert_eq!(
        fs::read_dir(&elsewhere).expect("is there").count(),
        0,
        "they find no place elsewhere: {said}"
    );
}

#[test]
fn what_is_used_is_said_unless_quiet() {
    let folder = Folder::new();
    let output = folder.run(SMALL, &["comm.fabric=shm", "device.threads=2"]);
    let (said, table) = (text(&output.stderr), text(&output.stdout));
    let lines: Vec<_> = said.lines().collect();
    assert!(lines[0].starts_with("device:   host, ") && lines[0].contains("2 threads a rank"), "{said}");
    assert!(lines[1].starts_with("fabric:   shm, ranks are processes"), "{said}");
    assert_eq!(lines[2], "backends: standard, st-send, st-rsend, active-rma, notified");
    assert_eq!(lines[3], "executor: host (standard), stream (st-send, st-rsend, active-rma, notified)");
    assert!(lines[4].starts_with("results in ") && lines.len() == 5, "{said}");
    assert!(table.starts_with("life: 24 x 40 cells, 24 steps; fabric shm, device host"), "{table}");

    let config = folder.write("config.toml", SMALL);
    let out = folder.out();
    let arguments =
        ["run", config.to_str().expect("is text"), "--quiet", "--out", out.to_str().expect("is text")];
    let output = folder.streamhalo(&arguments);
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), String::new()));
}

#[test]
fn flags_win_over_the_file() {
    let folder = Folder::new();
    let config = folder.write("config.toml", SMALL);
    let out = folder.out();
    let arguments = "--ranks 2,3 --backend notified --fabric shm --set app.steps=3 --quiet".split(' ');
    let paths = ["run", config.to_str().expect("is text"), "--out", out.to_str().expect("is text")];
    let output = folder.streamhalo(&paths.into_iter().chain(arguments).collect::<Vec<_>>());
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let runs = folder.records_there();
    let found: Vec<_> = runs
        .iter()
        .map(|run| (run["ranks"].as_u64(), run["backend"].as_str(), run["steps"].as_u64()))
        .collect();
    assert_eq!(found, [2, 3].map(|ranks| (Some(ranks), Some("notified"), Some(3))));
}
