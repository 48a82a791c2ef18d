//! What a run leaves behind, made and read again.

mod files;
mod program;
mod results;
mod views;

use std::path::Path;

use serde_json::{Value, json};
use streamhalo_apps::config::{KnownNames, Overrides, RunConfig};
use streamhalo_apps::report::{MachineInfo, Results, RunRecord};
use tempfile::TempDir;

/// A folder of one test.
struct Folder(TempDir);

impl Folder {
    fn new() -> Self {
        Self(TempDir::with_prefix("streamhalo-").expect("can write"))
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.0.path().join(name)).expect(name)
    }

    fn write(&self, name: &str, content: &str) {
        std::fs::write(self.0.path().join(name), content).expect(name);
    }

    /// Names in the folder, sorted.
    fn names(&self) -> Vec<String> {
        names(self.0.path())
    }
}

fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).expect("is there");
    let name = |entry: std::io::Result<std::fs::DirEntry>| {
        entry.expect("is readable").file_name().into_string().expect("is text")
    };
    let mut names: Vec<_> = entries.map(name).collect();
    names.sort();
    names
}

impl AsRef<Path> for Folder {
    fn as_ref(&self) -> &Path {
        self.0.path()
    }
}

fn config() -> RunConfig {
    let names = KnownNames {
        backends: &["standard", "st-send", "notified"],
        fabrics: &["local"],
        devices: &["host"],
    };
    let text = "app.pattern = 'random:1'\n";
    RunConfig::parse("f.toml", text, &Overrides::default(), &names).expect("is right")
}

/// A run whose times are binary fractions, so that medians and quotients are exact.
fn run(backend: &str, ranks: usize, trial: u32, solve_s: f64) -> RunRecord {
    let result = match json!({ "population": 1024, "box": { "height": 7 } }) {
        Value::Object(result) => result,
        _ => unreachable!("is an object"),
    };
    RunRecord {
        app: "life".to_owned(),
        backend: backend.to_owned(),
        fabric: "local".to_owned(),
        executor: if backend == "standard" { "host" } else { "stream" }.to_owned(),
        device: "host".to_owned(),
        ranks,
        layout: vec![ranks, 1],
        cells: vec![2048, 1024],
        steps: 1000,
        timed_steps: None,
        trial,
        solve_s,
        halo_s: solve_s / 4.0,
        compute_s: solve_s / 2.0,
        setup_s: 0.125,
        bytes_per_exchange: 2048 * ranks as u64,
        messages_per_exchange: 2 * ranks as u64,
        verified: Some(true),
        checksum: "00ff".to_owned(),
        result,
    }
}

fn results(runs: Vec<RunRecord>) -> Results {
    Results::new(&config(), MachineInfo::detect(), runs).expect("is consistent")
}

/// Two backends, three trials, at 1, 2 and 4 ranks.
fn typical() -> Results {
    let mut runs = Vec::new();
    for ranks in [1, 2, 4] {
        for trial in 0..3 {
            let share = (1.0 + 0.25 * f64::from(trial)) / ranks as f64;
            runs.push(run("standard", ranks, trial, 2.0 * share));
            runs.push(run("notified", ranks, trial, 1.5 * share));
        }
    }
    results(runs)
}
