//! The programs of the workspace that are no test's own, for suites that start them.

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Where the programs are.
#[derive(Debug)]
pub struct Programs {
    /// The program `streamhalo`.
    pub streamhalo: PathBuf,
    /// The example that the README shows.
    pub life: PathBuf,
    /// The example that has walls.
    pub heat: PathBuf,
}

/// The programs, built by cargo as the tests were and into the same folder. The tests of the whole workspace leave
/// nothing to build: one profile, and all programs and examples at once, so that what they are built from has the same
/// features. Blocks while cargo builds.
///
/// # Panics
/// If they cannot be built.
pub fn programs() -> &'static Programs {
    static PROGRAMS: OnceLock<Programs> = OnceLock::new();
    PROGRAMS.get_or_init(|| {
        let this = std::env::current_exe().expect("the test knows its file");
        let profile_folder = this.parent().and_then(Path::parent).expect("tests lie in PROFILE/deps");
        let profile = match profile_folder.file_name().and_then(|name| name.to_str()) {
            Some("debug") | None => "dev",
            Some(profile) => profile,
        };
        let output = Command::new(std::env::var("CARGO").unwrap_or_else(|_| "cargo".into()))
            .args(["build", "--workspace", "--bins", "--examples", "--offline", "--quiet"])
            .args(["--message-format", "json-render-diagnostics", "--profile", profile, "--target-dir"])
            .arg(profile_folder.parent().expect("profiles lie in the target folder"))
            .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
            .output()
            .expect("cargo starts");
        assert!(output.status.success(), "cargo build: {}", String::from_utf8_lossy(&output.stderr));
        let messages = String::from_utf8(output.stdout).expect("cargo writes text");
        let built: Vec<Value> =
            messages.lines().map(|line| serde_json::from_str(line).expect("cargo writes JSON")).collect();
        let program = |kind: &str, name: &str| {
            let found = built.iter().find(|one| {
                one["target"]["name"] == name
                    && one["target"]["kind"][0] == kind
                    && one["executable"].is_string()
            });
            let found = found.unwrap_or_else(|| panic!("cargo has built no {kind} `{name}`"));
            PathBuf::from(found["executable"].as_str().expect("is text"))
        };
        Programs {
            streamhalo: program("bin", "streamhalo"),
            life: program("example", "life"),
            heat: program("example", "heat"),
        }
    })
}
