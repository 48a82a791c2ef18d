//! What is left behind, whatever happens while a checkpoint is written.

use super::*;
use crate::occupied::unfinished;

const GRID: &str = "grid.cells = [12, 12]\noutput.checkpoint_every = 2\n";
const APP: &str = "pattern = 'random:1', steps = 9";

#[test]
fn the_last_ones_are_kept() {
    for (kept, expected) in [("", &[6, 8][..]), ("1", &[8]), ("3", &[4, 6, 8]), ("0", &[2, 4, 6, 8])] {
        let folder = Folder::new();
        let kept = if kept.is_empty() { String::new() } else { format!("output.checkpoints_kept = {kept}") };
        let config = folder.config(APP, &format!("{GRID}{kept}"));
        fs::create_dir(folder.checkpoints()).expect("can write");
        // That of an earlier run is none of ours, unless it has the same name.
        for step in [2, 100] {
            fs::write(folder.checkpoint("life", step), "earlier").expect("can write");
        }
        play(&config, &[2, 1], "st-send", None).expect("nothing fails");
        let mut expected: Vec<_> = expected.iter().map(|step| format!("life_{step:06}.halo")).collect();
        expected.push("life_000100.halo".to_owned());
        assert_eq!(folder.names(), expected);
    }
}

#[test]
fn nothing_is_written_at_the_beginning() {
    let folder = Folder::new();
    let config = folder.config("pattern = 'random:1', steps = 4", GRID);
    play(&config, &[1, 1], "standard", None).expect("nothing fails");
    assert_eq!(folder.names(), ["life_000002.halo", "life_000004.halo"]);
    let from = folder.0.path().join("from");
    fs::rename(folder.checkpoint("life", 4), &from).expect("can rename");
    play(&config, &[1, 1], "standard", Some(&from)).expect("nothing fails");
    assert_eq!(folder.names(), ["life_000002.halo"]);
}

/// A folder where the file's name should be: neither the owner nor root can give it another file.
#[test]
fn a_checkpoint_that_cannot_be_written_fails_on_all_ranks_and_leaves_the_earlier_ones() {
    let folder = Folder::new();
    let config = folder.config(APP, GRID);
    fs::create_dir_all(folder.checkpoint("life", 6).join("inside")).expect("can write");
    let error = play(&config, &[2, 2], "st-rsend", None).expect_err("has no room").to_string();
    assert!(error.contains("rank 0 failed: cannot write the checkpoint after 6 steps"), "{error}");
    assert!(error.contains("life_000006.halo"), "{error}");
    assert_eq!(
        folder.names(),
        ["life_000002.halo", "life_000004.halo", "life_000006.halo"],
        "nothing unfinished"
    );
    fs::remove_dir_all(folder.checkpoint("life", 6)).expect("can remove");
    let from = folder.checkpoint("life", 4);
    let again = play(&config, &[3, 1], "standard", Some(&from)).expect("is whole");
    let whole = play(&folder.config(APP, "grid.cells = [12, 12]"), &[1, 1], "standard", None);
    assert_eq!(again, whole.expect("nothing fails"));
}

/// A file where the folder should be.
#[test]
fn a_folder_that_cannot_be_made_is_named() {
    let folder = Folder::new();
    fs::write(folder.checkpoints(), "a file").expect("can write");
    let error = play(&folder.config(APP, GRID), &[2, 1], "standard", None).expect_err("is no folder");
    assert!(error.to_string().contains("cannot write the checkpoint"), "{error}");
    assert_eq!(fs::read_to_string(folder.checkpoints()).expect("is there"), "a file");
}

/// What was being written when a run was killed has another name: it is no checkpoint for anybody, and the next
/// run removes it.
#[test]
fn unfinished_files_are_no_checkpoints() {
    let folder = Folder::new();
    let config = folder.config(APP, GRID);
    play(&config, &[1, 1], "standard", None).expect("nothing fails");
    let half = fs::read(folder.checkpoint("life", 8)).expect("is there");
    let left = folder.checkpoints().join(unfinished("life_000010.halo"));
    fs::write(&left, &half[..half.len() / 2]).expect("can write");
    let (latest, _) =
        super::super::resolve(&folder.checkpoints(), "life", |path| Ok(path.to_owned())).expect("has some");
    assert_eq!(latest, folder.checkpoint("life", 8));
    let whole = folder.names().into_iter().filter(|name| !name.starts_with('.')).collect::<Vec<_>>();
    super::super::prepare(folder.0.path()).expect("can remove");
    assert_eq!(folder.names(), whole, "and nothing else");
    play(&config, &[1, 2], "notified", Some(&latest)).expect("is whole");
}

#[test]
fn ranks_that_find_different_files_all_refuse() {
    let folder = Folder::new();
    let config = folder.config(APP, GRID);
    play(&config, &[1, 1], "standard", None).expect("nothing fails");
    let application = ApplicationRow::open(&config).expect("is right");
    let application = &*application;
    for (step, expected) in [(8, "it finds another file than rank 0"), (10, "cannot read the checkpoint")] {
        let refusals = on_threads(3, WorldOptions::default(), |world| {
            let path = folder.checkpoint("life", if world.rank() == 2 { step } else { 6 });
            let opened = Checkpoint::agree(world, Checkpoint::open(&path, &config, application));
            Ok(opened.expect_err("one has another").to_string())
        });
        for said in refusals.expect("all go on") {
            assert!(said.contains("rank 2") && said.contains(expected), "{said}");
        }
    }
}
