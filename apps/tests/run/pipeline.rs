//! `pipeline` from outside: every primitive, fabric and number of ranks, what it reports, and what it refuses.

use super::errors::refused;
use super::{FABRICS, Folder, assert_verified, checksums, text};

/// The backends that stand for a primitive.
pub(super) const PRIMITIVES: [&str; 3] = ["standard", "active-rma", "notified"];

/// Few rows and columns at 1, 2, 4 and 8 ranks, once.
const PIPELINE: &str = "
app = { name = 'pipeline', steps = 4 }
grid.cells = [15, 21]
run = { ranks = [1, 2, 4, 8], trials = 1, warmup = 0, pin = false }
comm.timeout_s = 60
";

#[test]
fn every_primitive_fabric_and_number_of_ranks_gives_the_same_bits() {
    let folder = Folder::new();
    let mut all = Vec::new();
    for fabric in FABRICS {
        for block_rows in [1, 4] {
            let set = [format!("comm.fabric={fabric}"), format!("app.block_rows={block_rows}")];
            let records = folder.records(PIPELINE, &set.each_ref().map(String::as_str));
            assert_verified(&records);
            let backends: Vec<_> =
                records.iter().map(|run| run["backend"].as_str().expect("is text")).collect();
            assert_eq!(backends, [PRIMITIVES; 4].concat());
            for run in &records {
                // The value that the Parallel Research Kernels verify: (iterations + 1) (m + n - 2).
                assert_eq!(run["result"]["corner"], 5.0 * 34.0, "{run}");
                assert!(run["result"]["gmops"].as_f64().expect("is a number") > 0.0, "{run}");
                assert_eq!(run["executor"], "host", "{run}");
            }
            all.extend(records);
        }
    }
    assert_eq!(checksums(&all).len(), 1);
}

/// 14 rows below the first, and the corner.
#[test]
fn messages_are_blocks_of_rows() {
    let folder = Folder::new();
    for (block_rows, messages) in [(1, 14), (4, 4), (100, 1)] {
        let block_rows = format!("app.block_rows={block_rows}");
        for run in folder.records(PIPELINE, &[&block_rows, "run.ranks=[1, 4]"]) {
            let is_alone = run["ranks"] == 1;
            assert_eq!(run["messages_per_exchange"], if is_alone { 0 } else { 3 * messages + 1 }, "{run}");
            assert_eq!(run["bytes_per_exchange"], if is_alone { 0 } else { 8 * (3 * 14 + 1) }, "{run}");
        }
    }
    let config = folder.write("config.toml", PIPELINE);
    let explain = folder.streamhalo(&["explain", config.to_str().expect("is text")]);
    let said = text(&explain.stdout);
    assert_eq!(explain.status.code(), Some(0), "{}", text(&explain.stderr));
    for part in
        ["1 rank (1 x 1)", "no rank has a neighbour", "8 ranks (1 x 8)", "puts with notification", "host"]
    {
        assert!(said.contains(part), "no {part:?} in\n{said}");
    }
}

#[test]
fn weak_scaling_adds_columns() {
    let folder = Folder::new();
    let records = folder.records(PIPELINE, &["run.scaling=weak", "grid.cells=[6, 5]", "run.ranks=[1, 3]"]);
    assert_verified(&records);
    assert_eq!(records[0]["cells"], serde_json::json!([6, 5]));
    assert_eq!(records[3]["cells"], serde_json::json!([6, 15]));
    assert_eq!(records[3]["layout"], serde_json::json!([1, 3]));
}

/// Beside "the last column, in 4 messages an iteration": what each of them has, as of every other application.
#[test]
fn explain_says_how_long_a_message_is() {
    let folder = Folder::new();
    let config = folder.write("config.toml", PIPELINE);
    for (block_rows, bytes) in [(1, 8), (4, 32), (100, 14 * 8)] {
        let rows = format!("app.block_rows={block_rows}");
        let arguments = ["explain", config.to_str().expect("is text"), "--ranks", "3", "--set", &rows];
        let said = text(&folder.streamhalo(&arguments).stdout);
        let found: Vec<usize> = said
            .lines()
            .filter(|line| line.contains("[0,1]"))
            .filter_map(|line| line.split_whitespace().nth(3)?.parse().ok())
            .collect();
        assert_eq!(found, [bytes, bytes, 8], "{said}");
    }
}

/// What applications without ghosts refuse, by their name.
pub(super) fn refuses_what_needs_ghosts(config: &str, app: &str) {
    let folder = Folder::new();
    for backend in ["st-send", "st-rsend", "auto"] {
        let said = [
            &format!("`comm.backend` entry 2 is `{backend}`, which exchanges ghosts; `{app}` has none"),
            "expected `standard`, `active-rma` or `notified`",
            "`notified` for puts with notification",
        ];
        let set = format!("comm.backend=['notified', '{backend}']");
        refused(&folder.run(config, &[&set]), 2, &said);
        assert!(!folder.out().exists(), "{backend}");
    }
    let own = format!("`{app}` computes on the thread of each rank");
    let cases: [(&[&str], &[&str]); 6] = [
        (&["comm.backend=notifed"], &["did you mean `notified`?"]),
        (&["device.stream=threaded"], &["`device.stream` is `threaded`", &own]),
        (&["device.threads=2"], &["`device.threads` is 2", &own]),
        (&["grid.periodic=true"], &["no axis of", "wraps around"]),
        (&["grid.halo=2"], &["has no ghosts"]),
        (&["run.exchange_every=2"], &["run.exchange_every"]),
    ];
    for (set, parts) in cases {
        refused(&folder.run(config, set), 2, parts);
        assert!(!folder.out().exists(), "{set:?}");
    }
}

#[test]
fn what_does_not_fit_is_refused() {
    refuses_what_needs_ghosts(PIPELINE, "pipeline");
    let folder = Folder::new();
    let cases: [(&[&str], &[&str]); 8] = [
        (&["app.block_rows=0"], &["`app.block_rows` is the integer 0", "at least 1"]),
        (&["app.blockrows=2"], &["unknown key `blockrows`", "did you mean `block_rows`?"]),
        (&["app.steps=300000000000000"], &["app.steps", "an f64 holds"]),
        (&["grid.cells=[2, 9007199254740993]"], &["app.steps", "an f64 holds those of at most 0"]),
        (&["grid.cells=[8, 8, 8]"], &["`pipeline` lives on 2 axes", "[rows, columns]"]),
        (
            &["grid.cells=[268435456, 268435456]"],
            &["--set grid.cells", "bytes for a rank, more than there is"],
        ),
        (&["grid.cells=[8, 15]"], &["15 columns are too few for 8 ranks"]),
        (&["run.ranks=4", "run.layout=[[2, 2]]"], &["`pipeline` splits columns only"]),
    ];
    for (set, parts) in cases {
        refused(&folder.run(PIPELINE, set), 2, parts);
        assert!(!folder.out().exists(), "{set:?}");
    }
}
