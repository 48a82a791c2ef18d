//! Files are replaced together or not at all.

use std::fs;

use streamhalo_apps::AppError;
use streamhalo_apps::report::{OutputFile, check_writable, replace_files, write_results};

use super::{Folder, names, results, run, typical};

#[test]
fn a_run_leaves_its_files_and_nothing_else() {
    let folder = Folder::new();
    let extra = vec![OutputFile::new("final.rle", "bob!")];
    let deep = folder.0.path().join("a/b");
    write_results(&deep, &typical(), extra.clone()).expect("can be written");
    write_results(&deep, &results(vec![run("st-send", 1, 0, 1.0)]), extra).expect("again");
    assert_eq!(names(&deep), ["final.rle", "results.csv", "results.json", "speedup.svg", "time.svg"]);
    let read = |name| fs::read_to_string(deep.join(name)).expect(name);
    assert!(read("results.json").contains("st-send"));
    assert!(!read("results.csv").contains("notified"));
    assert_eq!(read("final.rle"), "bob!");
}

#[test]
fn a_file_that_cannot_be_replaced_undoes_those_before_it() {
    let folder = Folder::new();
    folder.write("a", "old a");
    // A folder in the place of a file: even root cannot rename over it.
    fs::create_dir(folder.0.path().join("c")).expect("can write");
    let files = [("a", "new a"), ("b", "new b"), ("c", "new c"), ("d", "new d")]
        .map(|(name, content)| OutputFile::new(name, content));
    let error = replace_files(folder.as_ref(), &files).expect_err("c is a folder");
    let wanted = format!("cannot replace {}: ", folder.0.path().join("c").display());
    let text = error.to_string();
    assert!(text.starts_with(&wanted), "{text}");
    assert!(text.ends_with("earlier results are untouched"), "{text}");
    assert_eq!(folder.names(), ["a", "c"]);
    assert_eq!(folder.read("a"), "old a");
}

/// What a process leaves behind that is killed between two renames is a second name of the file itself.
#[test]
fn what_was_left_in_replacing_does_not_come_back_empty() {
    let folder = Folder::new();
    folder.write("a", "old a");
    let [file, left] = ["a", ".a.earlier.unfinished"].map(|name| folder.0.path().join(name));
    fs::hard_link(file, left).expect("can link");
    fs::create_dir(folder.0.path().join("b")).expect("can write");
    let files = [("a", "new a"), ("b", "new b")].map(|(name, content)| OutputFile::new(name, content));
    replace_files(folder.as_ref(), &files).expect_err("b is a folder");
    assert_eq!(folder.names(), ["a", "b"]);
    assert_eq!(folder.read("a"), "old a");
}

#[test]
fn a_file_that_cannot_be_written_touches_nothing() {
    let folder = Folder::new();
    folder.write("a", "old a");
    let files = [("a", "new a"), ("absent/b", "new b")].map(|(name, content)| OutputFile::new(name, content));
    let error = replace_files(folder.as_ref(), &files).expect_err("no such folder");
    assert!(matches!(error, AppError::Replace { .. }), "{error:?}");
    assert_eq!(folder.names(), ["a"]);
    assert_eq!(folder.read("a"), "old a");
}

/// The results are there all the same, and the user is told what may be taken for theirs.
#[test]
fn what_an_earlier_run_has_left_and_cannot_be_removed() {
    let folder = Folder::new();
    let left = folder.0.path().join("final.rle");
    // A folder in the place of a file: even root cannot remove it as one.
    fs::create_dir(&left).expect("can write");
    let error = write_results(folder.as_ref(), &typical(), vec![]).expect_err("final.rle is a folder");
    let wanted = format!("cannot remove {}, which an earlier run has left: ", left.display());
    assert!(error.to_string().starts_with(&wanted), "{error}");
    let hint = "the new results are there; remove it by hand, so that it is not taken for theirs";
    assert_eq!((error.hint().as_deref(), error.exit_status()), (Some(hint), 1));
    assert_eq!(folder.names(), ["final.rle", "results.csv", "results.json", "speedup.svg", "time.svg"]);
}

#[test]
fn inconsistent_results_are_refused_before_anything_is_written() {
    let folder = Folder::new();
    let mut wrong = typical();
    wrong.runs[1].halo_s = f64::NAN;
    let error = write_results(folder.as_ref(), &wrong, vec![]).expect_err("is NaN");
    assert!(matches!(error, AppError::InconsistentRun { run: 2, .. }), "{error:?}");
    assert!(folder.names().is_empty());
}

#[test]
fn a_folder_that_cannot_be_made_is_told_before_the_run() {
    let folder = Folder::new();
    folder.write("file", "");
    // Its parent is a file: that stops root too.
    let inside = folder.0.path().join("file/results");
    let error = check_writable(&inside).expect_err("is inside of a file");
    assert!(matches!(error, AppError::NotWritable { .. }), "{error:?}");
    let wanted = format!("cannot write results into {}: ", inside.display());
    assert!(error.to_string().starts_with(&wanted), "{error}");
    assert!(error.hint().expect("has a remedy").contains("--out DIR"));
    assert_eq!(folder.names(), ["file"]);
    check_writable(&folder.0.path().join("new/results")).expect("can be made");
    assert_eq!(fs::read_dir(folder.0.path().join("new/results")).expect("was made").count(), 0);
}
