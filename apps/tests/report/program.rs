//! `streamhalo report`, from outside.

use std::path::Path;
use std::process::{Command, Output};

use streamhalo_apps::report::write_results;

use super::{Folder, typical};

fn report(dir: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_streamhalo"))
        .arg("report")
        .arg(dir)
        .output()
        .expect("the program starts")
}

#[test]
fn report_makes_everything_again() {
    let folder = Folder::new();
    write_results(folder.as_ref(), &typical(), vec![]).expect("can be written");
    let before = ["results.csv", "speedup.svg", "time.svg"].map(|name| folder.read(name));
    folder.write("results.csv", "spoilt");
    for name in ["speedup.svg", "time.svg"] {
        std::fs::remove_file(folder.0.path().join(name)).expect("was written");
    }
    let output = report(folder.as_ref());
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(["results.csv", "speedup.svg", "time.svg"].map(|name| folder.read(name)), before);
    assert!(output.stderr.is_empty(), "{output:?}");
    let table = String::from_utf8(output.stdout).expect("is text");
    assert!(table.starts_with("life: 2048 x 1024 cells"), "{table}");
}

#[test]
fn a_failed_verification_shows_in_the_exit_status() {
    let folder = Folder::new();
    let mut results = typical();
    results.runs[0].verified = Some(false);
    write_results(folder.as_ref(), &results, vec![]).expect("can be written");
    let output = report(folder.as_ref());
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stdout).contains("FAILED"));
}

#[test]
fn errors_go_to_the_standard_error_with_their_remedy() {
    let folder = Folder::new();
    let output = report(folder.as_ref());
    assert_eq!(output.status.code(), Some(2));
    let text = String::from_utf8(output.stderr).expect("is text");
    let lines: Vec<_> = text.lines().collect();
    assert!(lines[0].starts_with("error: cannot read "), "{text}");
    assert!(lines[1].starts_with("hint: give the folder that a run wrote"), "{text}");
    assert!(output.stdout.is_empty());
}
