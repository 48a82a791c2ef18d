//! `comb` from outside: every backend, fabric and layout, what it reports, and what it refuses.

use super::errors::refused;
use super::{BACKENDS, FABRICS, Folder, assert_verified, checksums, text};
use serde_json::Value;

/// Few cells of two variables at 1, 2, 4 and 8 ranks, once.
const COMB: &str = "
app = { name = 'comb', steps = 5, variables = 2 }
grid = { cells = [6, 8, 10], periodic = [true, false, true] }
run = { ranks = [1, 2, 4, 8], trials = 1, warmup = 0, pin = false }
comm.timeout_s = 60
";

#[test]
fn every_backend_fabric_and_layout_gives_the_same_bits() {
    let folder = Folder::new();
    for element in ["f32", "f64"] {
        let mut all = Vec::new();
        for fabric in FABRICS {
            for layout in ["'auto'", "[[1, 1, 1], [1, 1, 2], [4, 1, 1], [2, 2, 2]]"] {
                let set = [
                    format!("app.element={element}"),
                    format!("comm.fabric={fabric}"),
                    format!("run.layout={layout}"),
                ];
                let records = folder.records(COMB, &set.each_ref().map(String::as_str));
                assert_verified(&records);
                assert_eq!(records.len(), 4 * BACKENDS.len());
                all.extend(records);
            }
        }
        assert_eq!(checksums(&all).len(), 1, "{element}");
        assert!(all.iter().all(|run| run["result"]["wrong_ghosts"] == 0));
    }
}

#[test]
fn threads_threaded_streams_and_wide_halos() {
    let folder = Folder::new();
    let plain = folder.records(COMB, &["run.ranks=2"]);
    for set in ["device.stream=threaded", "device.threads=2", "grid.halo=[1, 2, 3]"] {
        let records = folder.records(COMB, &["run.ranks=2", set]);
        assert_verified(&records);
        assert_eq!(checksums(&records), checksums(&plain), "{set}");
    }
}

/// Two ranks side by side along z, which wraps around, have one layer of both variables for each other at either side:
/// with the ghosts along x, which is folded.
#[test]
fn all_variables_go_into_one_message() {
    let folder = Folder::new();
    for run in folder.records(COMB, &["run.ranks=2", "run.layout=[[2, 1, 1]]", "app.variables=5"]) {
        assert_eq!(run["messages_per_exchange"], 2, "{run}");
        assert_eq!(run["bytes_per_exchange"], 2 * 2 * 5 * 8 * 12 * 8, "{run}");
    }
    let config = folder.write("config.toml", COMB);
    let explain = folder.streamhalo(&["explain", config.to_str().expect("is text")]);
    assert_eq!(explain.status.code(), Some(0), "{}", text(&explain.stderr));
    assert!(text(&explain.stdout).contains("8 ranks (1 x 2 x 4)"), "{}", text(&explain.stdout));
}

/// By Comb's names, as far as they are told apart.
#[test]
fn phases_are_reported() {
    let folder = Folder::new();
    let mut records = folder.records(COMB, &["run.ranks=2"]);
    records.extend(folder.records(COMB, &["run.ranks=2", "comm.backend=auto"]));
    let carried_by = |run: &Value| match run["backend"].as_str() {
        // Its phases are those of the one that was chosen.
        Some("auto") => run["result"]["chosen_backend"].as_str().expect("is a name").to_owned(),
        name => name.expect("is a name").to_owned(),
    };
    for run in records {
        let phases = run["result"]["phases_us"].as_object().expect("is an object");
        let posts: &[&str] = match carried_by(&run).as_str() {
            "standard" => &["post_recv_and_send"],
            _ => &["post_recv", "post_send"],
        };
        for name in posts.iter().chain(&["pre_comm", "wait_recv_and_send", "unpack", "post_comm"]) {
            let [min, mean, max] =
                ["min", "mean", "max"].map(|key| phases[*name][key].as_f64().expect("is a number"));
            assert!(min <= mean && mean <= max, "{name}: {run}");
        }
        assert_eq!(phases.len(), posts.len() + 4, "{run}");
    }
    let csv = folder.read_out("results.csv");
    let header = csv.lines().next().expect("has a header");
    assert!(header.contains("result_phases_us_wait_recv_and_send_mean"), "{header}");
}

#[test]
fn weak_scaling_grows_the_grid() {
    let folder = Folder::new();
    let set = ["run.scaling=weak", "grid.cells=[3, 3, 3]", "run.ranks=[1, 8]"];
    let layout = "run.layout=[[1, 1, 1], [2, 2, 2]]";
    let records = folder.records(COMB, &[&set[..], &[layout]].concat());
    assert_verified(&records);
    assert_eq!(records.last().expect("there are some")["cells"], serde_json::json!([6, 6, 6]));
}

#[test]
fn what_does_not_fit_is_refused() {
    let folder = Folder::new();
    let cases: [(&[&str], &[&str]); 8] = [
        (&["app.variables=0"], &["`app.variables` is the integer 0", "from 1 to 1024"]),
        (&["app.variables=1025"], &["`app.variables` is the integer 1025", "an integer from 1 to 1024"]),
        (&["app.element=u8"], &["`f32` or `f64`"]),
        (&["app.variable=2"], &["unknown key `variable`", "did you mean `variables`?"]),
        (&["app.tile=2"], &["unknown key `tile`"]),
        (
            &["grid.cells=[4, 4]", "grid.periodic=true"],
            &["`comb` lives on 3 axes, `grid.cells` has 2", "[z, y, x]"],
        ),
        (
            &["grid.halo=2", "run.exchange_every=2"],
            &["run.exchange_every", "every cycle of `comb` exchanges"],
        ),
        (&["grid.halo=4"], &["halo"]),
    ];
    for (set, parts) in cases {
        refused(&folder.run(COMB, set), 2, parts);
        assert!(!folder.out().exists(), "{set:?}");
    }
}
