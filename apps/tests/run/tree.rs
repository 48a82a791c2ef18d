//! `tree` from outside: every primitive, fabric and number of ranks, what it reports, and what it refuses.

use super::errors::refused;
use super::pipeline::{PRIMITIVES, refuses_what_needs_ghosts};
use super::{FABRICS, Folder, assert_verified, checksums, text};

/// Few leaves at 1, 2, 4 and 8 ranks, once.
const TREE: &str = "
app = { name = 'tree', arity = 2, elements = 3, steps = 20 }
grid.cells = 19
run = { ranks = [1, 2, 4, 8], trials = 1, warmup = 0, pin = false }
comm.timeout_s = 60
";

/// Integers at every number of ranks; rounded sums at one.
#[test]
fn every_primitive_fabric_and_arity_gives_the_same_bits() {
    let folder = Folder::new();
    let mut integers = Vec::new();
    for fabric in FABRICS {
        let fabric = format!("comm.fabric={fabric}");
        for arity in ["app.arity=2", "app.arity=16"] {
            let records = folder.records(TREE, &[&fabric, arity]);
            assert_verified(&records);
            let backends: Vec<_> =
                records.iter().map(|run| run["backend"].as_str().expect("is text")).collect();
            assert_eq!(backends, [PRIMITIVES; 4].concat());
            integers.extend(records);
        }
        let reals = folder.records(TREE, &[&fabric, "app.values=reals", "run.ranks=8"]);
        assert_verified(&reals);
        assert_eq!(checksums(&reals).len(), 1, "{fabric}");
    }
    assert_eq!(checksums(&integers).len(), 1);
    for run in &integers {
        assert_eq!(
            (&run["executor"], &run["result"]["ranks_agree"]),
            (&"host".into(), &true.into()),
            "{run}"
        );
        for key in ["tree_us", "allreduce_us"] {
            assert!(run["result"][key].as_f64().expect("is a number") > 0.0, "{run}");
        }
    }
}

/// The paper's 16 children at the root, and one of them with a child of its own.
#[test]
fn sixteen_children_and_a_level_below_them() {
    let folder = Folder::new();
    let records = folder.records(TREE, &["app.arity=16", "run.ranks=18", "app.steps=5"]);
    assert_verified(&records);
    let backends: Vec<_> = records.iter().map(|run| run["backend"].as_str().expect("is text")).collect();
    assert_eq!(backends, PRIMITIVES);
    assert_eq!(checksums(&records).len(), 1);
    for run in &records {
        assert_eq!((&run["ranks"], &run["messages_per_exchange"]), (&18.into(), &34.into()), "{run}");
        assert_eq!(run["result"]["ranks_agree"], true, "{run}");
    }
    let config = folder.write("config.toml", TREE).display().to_string();
    let set = ["--set", "app.arity=16", "--set", "run.ranks=18"];
    let said = text(&folder.streamhalo(&[&["explain", &config], &set[..]].concat()).stdout);
    // The root's, and those of rank 1.
    let of_root = said.lines().filter(|line| line.contains("down to a child")).count();
    assert!(of_root >= 17, "{said}");
}

/// Every rank but the root sends once and is sent to once.
#[test]
fn messages_go_up_and_down() {
    let folder = Folder::new();
    for run in folder.records(TREE, &[]) {
        let messages = 2 * (run["ranks"].as_u64().expect("is a number") - 1);
        assert_eq!(run["messages_per_exchange"], messages, "{run}");
        assert_eq!(run["bytes_per_exchange"], messages * 3 * 8, "{run}");
    }
    let config = folder.write("config.toml", TREE);
    let explain = folder.streamhalo(&["explain", config.to_str().expect("is text")]);
    let said = text(&explain.stdout);
    assert_eq!(explain.status.code(), Some(0), "{}", text(&explain.stderr));
    for part in ["8 ranks (8)", "two-sided messages", "post, start", "up to the parent"] {
        assert!(said.contains(part), "no {part:?} in\n{said}");
    }
}

#[test]
fn weak_scaling_adds_leaves() {
    let folder = Folder::new();
    let records = folder.records(TREE, &["run.scaling=weak", "grid.cells=1", "run.ranks=[1, 5]"]);
    assert_verified(&records);
    assert_eq!(records[3]["cells"], serde_json::json!([5]));
}

#[test]
fn what_does_not_fit_is_refused() {
    refuses_what_needs_ghosts(TREE, "tree");
    let folder = Folder::new();
    let cases: [(&[&str], &[&str]); 6] = [
        (&["app.arity=0"], &["`app.arity` is the integer 0", "at least 1"]),
        (&["app.elements=0"], &["`app.elements` is the integer 0", "from 1 to 16777216"]),
        (
            &["app.elements=16777217"],
            &["`app.elements` is the integer 16777217", "an integer from 1 to 16777216"],
        ),
        (&["app.values=complex"], &["`integers` or `reals`"]),
        (&["app.steps=100000000"], &["app.steps", "an f64 holds the sums"]),
        (&["grid.cells=[4, 4]"], &["`tree` lives on 1 axis", "[leaves]"]),
    ];
    for (set, parts) in cases {
        refused(&folder.run(TREE, set), 2, parts);
        assert!(!folder.out().exists(), "{set:?}");
    }
}
