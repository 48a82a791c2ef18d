//! `cholesky` from outside: every primitive, fabric and number of ranks, what it reports, and what it refuses.

use super::errors::refused;
use super::pipeline::{PRIMITIVES, refuses_what_needs_ghosts};
use super::{FABRICS, Folder, assert_verified, checksums, text};

/// Ten tiles at 1, 2, 4 and 8 ranks, once.
const CHOLESKY: &str = "
app = { name = 'cholesky', tile = 12, steps = 3 }
grid.cells = 48
run = { ranks = [1, 2, 4, 8], trials = 1, warmup = 0, pin = false }
comm.timeout_s = 60
";

#[test]
fn every_primitive_fabric_and_number_of_ranks_gives_the_same_bits() {
    let folder = Folder::new();
    for values in ["integers", "reals"] {
        let mut all = Vec::new();
        for fabric in FABRICS {
            let set = [format!("comm.fabric={fabric}"), format!("app.values={values}")];
            let records = folder.records(CHOLESKY, &set.each_ref().map(String::as_str));
            assert_verified(&records);
            let backends: Vec<_> =
                records.iter().map(|run| run["backend"].as_str().expect("is text")).collect();
            assert_eq!(backends, [PRIMITIVES; 4].concat());
            all.extend(records);
        }
        assert_eq!(checksums(&all).len(), 1, "{values}");
        for run in &all {
            assert!(run["result"]["gflops"].as_f64().expect("is a number") > 0.0, "{run}");
            assert_eq!(run["executor"], "host", "{run}");
        }
    }
}

/// With two ranks every tile but the last, from which nothing is computed, goes to the other one, if it computes
/// something from it.
#[test]
fn messages_are_tiles() {
    let folder = Folder::new();
    for run in folder.records(CHOLESKY, &["run.ranks=[1, 2, 8]"]) {
        let messages = run["messages_per_exchange"].as_u64().expect("is a number");
        assert_eq!(run["bytes_per_exchange"], messages * 12 * 12 * 8, "{run}");
        match run["ranks"].as_u64() {
            Some(1) => assert_eq!(messages, 0, "{run}"),
            Some(2) => assert!((5..=9).contains(&messages), "{run}"),
            _ => assert!(messages > 9, "{run}"),
        }
    }
    let config = folder.write("config.toml", CHOLESKY);
    let explain = folder.streamhalo(&["explain", config.to_str().expect("is text")]);
    let said = text(&explain.stdout);
    assert_eq!(explain.status.code(), Some(0), "{}", text(&explain.stderr));
    for part in ["8 ranks (8)", "two-sided messages", "post, start", "puts with notification", "tiles a"] {
        assert!(said.contains(part), "no {part:?} in\n{said}");
    }
}

#[test]
fn weak_scaling_adds_rows() {
    let folder = Folder::new();
    let records = folder.records(CHOLESKY, &["run.scaling=weak", "grid.cells=12", "run.ranks=[1, 5]"]);
    assert_verified(&records);
    assert_eq!(records[3]["cells"], serde_json::json!([60]));
}

#[test]
fn what_does_not_fit_is_refused() {
    refuses_what_needs_ghosts(CHOLESKY, "cholesky");
    let folder = Folder::new();
    let cases: [(&[&str], &[&str]); 9] = [
        (&["app.tile=0"], &["`app.tile` is the integer 0", "from 1 to 4096"]),
        (
            &["grid.cells=4000000000", "app.tile=4000000000"],
            &["`app.tile` is the integer 4000000000", "from 1 to 4096"],
        ),
        (&["app.tile=7"], &["--set app.tile=7", "48 rows", "no multiple of `app.tile`", "42 or 49 rows"]),
        (&["app.tile=64"], &["no multiple of `app.tile`, which is 64", "expected 64 rows"]),
        (&["app.tyle=8"], &["unknown key `tyle`", "did you mean `tile`?"]),
        (&["app.values=complex"], &["`integers` or `reals`"]),
        (&["grid.cells=8193", "app.tile=1"], &["grid.cells", "8193 tiles of 1", "at most 4096 tiles"]),
        (&["grid.cells=[48, 48]"], &["`cholesky` lives on 1 axis", "[rows]"]),
        (&["grid.cells=12", "run.ranks=16"], &["16 ranks"]),
    ];
    for (set, parts) in cases {
        refused(&folder.run(CHOLESKY, set), 2, parts);
        assert!(!folder.out().exists(), "{set:?}");
    }
    let output = folder.run(&CHOLESKY.replace("= 48", "= 50"), &[]);
    refused(&output, 2, &["config.toml:2:", "the 50 rows of `grid.cells`", "48 or 60 rows"]);
}
