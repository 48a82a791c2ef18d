//! `faces` from outside: every backend, fabric and layout, what it reports, and what it refuses.

use serde_json::Value;

use super::errors::refused;
use super::{BACKENDS, FABRICS, Folder, assert_verified, checksums, text};

/// Some elements of low order at 1, 2 and 4 ranks, once.
const FACES: &str = "
app = { name = 'faces', order = 3, steps = 6, outer = 2, middle = 2 }
grid = { cells = [4, 4, 4], periodic = [true, false, true] }
run = { ranks = [1, 2, 4], trials = 1, warmup = 0, pin = false }
comm.timeout_s = 60
";

/// Sums of integers are exact, and those of reals are made in one order whatever the layout.
#[test]
fn every_backend_fabric_and_layout_gives_the_same_bits() {
    let folder = Folder::new();
    for values in ["integers", "reals"] {
        let mut all = Vec::new();
        for fabric in FABRICS {
            for layout in ["'auto'", "[[1, 1, 1], [1, 1, 2], [4, 1, 1]]"] {
                let values = format!("app.values={values}");
                let (fabric, layout) = (format!("comm.fabric={fabric}"), format!("run.layout={layout}"));
                let records = folder.records(FACES, &[&values, &fabric, &layout]);
                assert_verified(&records);
                assert_eq!(records.len(), 3 * BACKENDS.len());
                all.extend(records);
            }
        }
        assert_eq!(checksums(&all).len(), 1, "{values}");
    }
}

#[test]
fn threaded_streams_and_the_extra_kernel() {
    let folder = Folder::new();
    let plain = folder.records(FACES, &[]);
    for set in
        [&["device.stream=threaded"][..], &["device.threads=2"], &["device.stream=threaded", "run.pin=true"]]
    {
        let records = folder.records(FACES, &[set, &["app.extra_compute=2"]].concat());
        assert_verified(&records);
        assert_eq!(checksums(&records), checksums(&plain), "{set:?}");
        // Those of two inner loops in each of two outer ones are timed, and two sweeps in each step are counted.
        assert!(records.iter().all(|run| run["timed_steps"] == 4 * 6));
        assert!(records.iter().all(|run| run["result"]["extra_compute"] == 2.0 * 4.0 * 6.0));
    }
}

#[test]
fn times_of_the_inner_loop_are_reported_over_ranks() {
    let folder = Folder::new();
    for run in folder.records(FACES, &["run.ranks=[1, 2]"]) {
        let [min, mean, max] =
            ["min", "mean", "max"].map(|key| run["result"]["inner_s"][key].as_f64().expect("is a number"));
        assert!(0.0 < min && min <= mean && mean <= max, "{run}");
        assert!(run["ranks"] != 1 || min == max, "{run}");
        // With the last barrier of each inner loop.
        assert!(run["solve_s"].as_f64().expect("is a number") >= max, "{run}");
    }
    let csv = folder.read_out("results.csv");
    let header = csv.lines().next().expect("has a header");
    assert!(header.ends_with("result_inner_s_max,result_inner_s_mean,result_inner_s_min"), "{header}");
    let before = folder.read_out("speedup.svg");
    let report = folder.streamhalo(&["report", folder.out().to_str().expect("is text")]);
    assert!(
        text(&report.stdout).starts_with("faces: 4 x 4 x 4 elements, 6 steps"),
        "{}",
        text(&report.stdout)
    );
    assert_eq!(folder.read_out("speedup.svg"), before);
}

/// A neighbour of a 2 x 2 layout has a face, an edge or both of a block of 8 x 8 x 16 points.
#[test]
fn messages_are_one_layer_of_points() {
    let folder = Folder::new();
    let set = ["grid.periodic=false", "run.ranks=4", "run.layout=[[2, 2, 1]]"];
    for run in folder.records(FACES, &set) {
        assert_eq!(run["messages_per_exchange"], 4 * 3, "{run}");
        assert_eq!(run["bytes_per_exchange"], 4 * 8 * (8 * 16 + 8 * 16 + 16), "{run}");
    }
    let config = folder.write("config.toml", FACES);
    let explain = folder.streamhalo(&["explain", config.to_str().expect("is text")]);
    assert_eq!(explain.status.code(), Some(0), "{}", text(&explain.stderr));
    assert!(text(&explain.stdout).contains("4 ranks (2 x 2 x 1)"), "{}", text(&explain.stdout));
}

/// Every rank has the block; answers are compared with a reference for each grid.
#[test]
fn weak_scaling_grows_the_grid() {
    let folder = Folder::new();
    let set = [
        "run.scaling=weak",
        "grid.cells=[2, 2, 2]",
        "run.ranks=[1, 2, 8]",
        "run.layout=[[1, 1, 1], [2, 1, 1], [2, 2, 2]]",
        "comm.backend='st-send'",
    ];
    let records = folder.records(FACES, &set);
    assert_verified(&records);
    let cells: Vec<&Value> = records.iter().map(|run| &run["cells"]).collect();
    assert_eq!(
        cells,
        [&serde_json::json!([2, 2, 2]), &serde_json::json!([4, 2, 2]), &serde_json::json!([4, 4, 4])]
    );
    let report = folder.streamhalo(&["report", folder.out().to_str().expect("is text")]);
    let table = text(&report.stdout);
    assert!(table.starts_with("faces: 2 x 2 x 2 elements a rank, 6 steps"), "{table}");
    assert!(table.contains("Efficiency: over st-send at 1 rank"), "{table}");
    assert!(folder.read_out("speedup.svg").contains("efficiency over st-send at 1 rank"));
    // The program's own choice: along the axis that is not periodic, where a cut has one side only.
    let records = folder.records(FACES, &["run.scaling=weak", "grid.cells=[2, 2, 2]", "run.ranks=2"]);
    assert_verified(&records);
    assert_eq!(records[0]["layout"], serde_json::json!([1, 2, 1]));
    assert_eq!(records[0]["cells"], serde_json::json!([2, 4, 2]));
}

#[test]
fn what_does_not_fit_is_refused() {
    let folder = Folder::new();
    let cases: [(&[&str], &[&str]); 11] = [
        (&["app.order=32"], &["`app.order` is the integer 32", "an integer from 1 to 31"]),
        (&["app.order=0"], &["`app.order` is the integer 0", "an integer from 1 to 31"]),
        (&["app.steps=331"], &["`app.steps` is 331", "at most 330 steps", "hint: more passes"]),
        (&["app.values=complex"], &["`integers` or `reals`"]),
        (&["app.outter=2"], &["unknown key `outter`", "did you mean `outer`?"]),
        (&["app.pattern=random:1"], &["unknown key `pattern`"]),
        (&["app.middle=0"], &["app.middle", "at least 1"]),
        (
            &["grid.cells=[4, 4]", "grid.periodic=true"],
            &["`faces` lives on 3 axes, `grid.cells` has 2", "[z, y, x]"],
        ),
        (
            &["grid.cells=[999999, 999999, 999999]"],
            &["--set grid.cells", "[999999, 999999, 999999] elements of ", "use fewer elements"],
        ),
        (&["grid.halo=2"], &["one layer of points", "[2, 2, 2]"]),
        (
            &["grid.cells=[4, 3, 4]", "run.ranks=2", "run.layout=[[1, 2, 1]]"],
            &["3 elements along axis 1 cannot be shared evenly", "[1, 2, 1]"],
        ),
    ];
    for (set, parts) in cases {
        refused(&folder.run(FACES, set), 2, parts);
        assert!(!folder.out().exists(), "{set:?}");
    }
    let output = folder.run(&FACES.replace("[run]", "").replace("order = 3", "ordre = 3"), &[]);
    refused(&output, 2, &["config.toml:2:", "unknown key `ordre`", "did you mean `order`?"]);
}
