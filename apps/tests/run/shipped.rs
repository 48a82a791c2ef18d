//! The first configuration of each application, as users start with it: it runs as it is, but for its size.

use std::path::Path;

use serde_json::Value;
use streamhalo_apps::app::APPLICATIONS;

use super::{Folder, assert_verified, text};

/// What makes those of an application small.
const SMALLER: &[(&str, &[&str])] = &[
    ("life", &["grid.cells=[64, 64]", "app.steps=8"]),
    ("faces", &["app.steps=2", "app.order=2"]),
    ("stencil3d", &["grid.cells=[16, 16, 16]", "app.steps=4"]),
    ("pipeline", &["grid.cells=[24, 24]", "app.steps=2"]),
    ("tree", &["app.steps=20"]),
    ("cholesky", &["grid.cells=64", "app.steps=2"]),
    ("comb", &["grid.cells=[8, 8, 8]", "app.steps=2"]),
];

/// What else would take long.
const ONCE: [&str; 5] =
    ["run.trials=1", "run.warmup=0", "run.pin=false", "comm.fabric=local", "comm.timeout_s=60"];

#[test]
fn every_quick_start_runs() {
    let named: Vec<_> = SMALLER.iter().map(|(name, _)| *name).collect();
    assert_eq!(named, APPLICATIONS.iter().map(|row| row.name).collect::<Vec<_>>(), "all of them run");
    for (app, smaller) in SMALLER {
        let folder = Folder::new();
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../configs").join(app).join("quickstart.toml");
        let (file, out) = (file.display().to_string(), folder.out().display().to_string());
        let set = smaller.iter().chain(&ONCE).flat_map(|one| ["--set", one]);
        let arguments: Vec<&str> = ["run", &file, "--out", &out, "--quiet"].into_iter().chain(set).collect();
        let output = folder.streamhalo(&arguments);
        assert_eq!(output.status.code(), Some(0), "{file}: {}", text(&output.stderr));
        let records = folder.records_there();
        assert_verified(&records);
        assert!(records.iter().all(|record| record["app"] == *app), "{file}");
        let ranks = |record: &Value| record["ranks"].as_u64();
        assert!(records.iter().filter_map(ranks).max() >= Some(2), "{file}");
    }
}
