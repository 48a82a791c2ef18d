//! The program that the README shows, and the programs that documents speak of.

use crate::{Block, document, split, workspace};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;

/// The programs that documents speak of.
struct Programs {
    streamhalo: PathBuf,
    life: PathBuf,
}

/// Built by cargo as the tests were, and into the same folder, where little of them is missing.
fn programs() -> &'static Programs {
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
            .current_dir(workspace())
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
        Programs { streamhalo: program("bin", "streamhalo"), life: program("example", "life") }
    })
}

fn run(program: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(program);
    command.args(arguments).current_dir(workspace()).stdin(Stdio::null());
    command.output().unwrap_or_else(|error| panic!("{}: {error}", program.display()))
}

/// What `streamhalo` has against these arguments, if anything.
pub(crate) fn refusal(arguments: &[&str]) -> Option<String> {
    let output = run(&programs().streamhalo, arguments);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    (!output.status.success()).then(|| format!("`streamhalo {}`: {said}", arguments.join(" ")))
}

#[test]
fn the_readme_shows_the_example() {
    let example = document("halo/examples/life.rs");
    let (blocks, _) = split(&document("README.md"));
    let programs: Vec<&Block> = blocks.iter().filter(|block| block.language == "rust").collect();
    assert_eq!(programs.len(), 1, "the README shows one program");
    assert_eq!(programs[0].text, example, "the README's program is not halo/examples/life.rs");
    assert!(example.lines().count() < 50, "the program has {} lines", example.lines().count());
}

#[test]
fn the_readmes_program_runs_on_any_number_of_ranks() {
    let life = programs().life.to_str().expect("is text");
    let mut runs = vec![(1, run(&programs().life, &[]))];
    if cfg!(target_os = "linux") {
        let launched = |ranks: &str| run(&programs().streamhalo, &["launch", "-n", ranks, life]);
        runs.extend([(1, launched("1")), (4, launched("4"))]);
    }
    for (ranks, output) in runs {
        let said = String::from_utf8_lossy(&output.stdout);
        let expected = format!("5 live cells after 100 generations on {ranks} rank(s): [[56, 57], ");
        assert!(output.status.success(), "on {ranks} ranks: {}", String::from_utf8_lossy(&output.stderr));
        assert!(said.starts_with(&expected) && said.lines().count() == 1, "on {ranks} ranks: {said}");
    }
}
