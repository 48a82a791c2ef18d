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

/// A folder has the name of the file with the lock, which not even root can then write.
#[test]
fn a_folder_that_cannot_be_written_to_is_reported_on() {
    let folder = Folder::new();
    write_results(folder.as_ref(), &typical(), vec![]).expect("can be written");
    std::fs::create_dir(folder.0.path().join(".occupied")).expect("can write");
    folder.write("results.csv", "as it was");
    let output = report(folder.as_ref());
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let table = String::from_utf8(output.stdout).expect("is text");
    assert!(table.starts_with("life: 2048 x 1024 cells"), "{table}");
    let said = String::from_utf8(output.stderr).expect("is text");
    assert!(said.starts_with("error: cannot write results into "), "{said}");
    assert!(said.contains("hint: ") && !said.contains("--out"), "{said}");
    assert_eq!(folder.read("results.csv"), "as it was");
}

#[test]
fn a_folder_without_results_is_not_made() {
    let folder = Folder::new();
    let absent = folder.0.path().join("absent");
    assert_eq!(report(&absent).status.code(), Some(2));
    assert!(!absent.exists());
}
