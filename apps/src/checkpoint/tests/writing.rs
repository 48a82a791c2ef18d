//! What is left behind, whatever happens while a checkpoint is written.

use super::*;
use crate::occupied::unfinished;

const GRID: &str = "grid.cells = [12, 12]\noutput.checkpoint_every = 2\n";
const APP: &str = "pattern = 'random:1', steps = 9";

#[test]
fn the_last_ones_are_kept() {
    for (kept, expected) in [("", &[2, 6, 8][..]), ("1", &[2, 8]), ("3", &[2, 4, 6, 8]), ("0", &[2, 4, 6, 8])]
    {
        let folder = Folder::new();
        let kept = if kept.is_empty() { String::new() } else { format!("output.checkpoints_kept = {kept}") };
        let config = folder.config(APP, &format!("{GRID}{kept}"));
        fs::create_dir(folder.checkpoints()).expect("can write");
        // Those of an earlier run are its own, also where one has the name of one of ours.
        for step in [2, 100] {
            fs::write(folder.checkpoint("life", step), "earlier").expect("can write");
        }
        play(&config, &[2, 1], "st-send", None).expect("nothing fails");
        let mut expected: Vec<_> = expected.iter().map(|step| format!("life_{step:06}.halo")).collect();
        expected.push("life_000100.halo".to_owned());
        assert_eq!(folder.names(), expected);
    }
}

/// A run that is started again in its folder, with fewer to be kept, and in the end with as many.
#[test]
fn those_of_an_earlier_run_stay() {
    let folder = Folder::new();
    let kept = |kept: u32| folder.config(APP, &format!("{GRID}output.checkpoints_kept = {kept}"));
    let all = |steps: &[u64]| steps.iter().map(|step| format!("life_{step:06}.halo")).collect::<Vec<_>>();
    play(&kept(2), &[1, 1], "standard", None).expect("nothing fails");
    for (number, left) in [(2, &[6, 8][..]), (0, &[2, 4, 6, 8]), (1, &[2, 4, 6, 8])] {
        play(&kept(number), &[1, 1], "standard", None).expect("nothing fails");
        assert_eq!(folder.names(), all(left), "{number}");
    }
}

#[test]
fn a_run_that_would_write_over_what_is_not_its_own_is_refused() {
    let folder = Folder::new();
    let config = folder.config(APP, GRID);
    play(&config, &[1, 1], "standard", None).expect("nothing fails");
    let prepare = |config: &RunConfig, first| {
        let application = ApplicationRow::open(config).expect("is right");
        super::super::prepare(config, &*application, first).map_err(|error| error.to_string())
    };
    let (six, eight) = (folder.checkpoint("life", 6), folder.checkpoint("life", 8));
    let own = (fs::read(&six).expect("is there"), fs::read(&eight).expect("is there"));
    // The same again, however it is computed, and on from somewhere.
    for (first, rest) in [(0, ""), (4, "run.ranks = 3"), (6, "grid.halo = 2")] {
        prepare(&folder.config(APP, &format!("{GRID}{rest}")), first).expect("leaves the same");
    }
    let other = |steps: u64, every: u64| {
        let app = format!("pattern = 'random:2', steps = {steps}");
        folder.config(&app, &format!("grid.cells = [12, 12]\noutput.checkpoint_every = {every}"))
    };
    for (steps, every, first) in [(9, 5, 0), (5, 2, 0), (9, 2, 8)] {
        prepare(&other(steps, every), first).expect("needs none of these names");
    }
    for (steps, every, first, path) in
        [(9, 2, 0, &six), (6, 3, 0, &six), (9, 2, 6, &eight), (8, 8, 0, &eight)]
    {
        let error = prepare(&other(steps, every), first).expect_err("would lose one");
        assert!(
            error.starts_with(&format!("the checkpoint {} is of another run: ", path.display())),
            "{error}"
        );
        assert!(error.ends_with("; this run would write its own over it"), "{error}");
    }
    assert_eq!((fs::read(&six).expect("is there"), fs::read(&eight).expect("is there")), own);
    // Nor is what has been given the name of another step.
    fs::copy(&eight, &six).expect("can write");
    let error = prepare(&config, 0).expect_err("is of another step");
    assert!(error.contains("life_000006.halo holds step 8, not 6 as its name says; this run"), "{error}");
    // What is no checkpoint at all may be dear to somebody too.
    fs::write(&six, "mine").expect("can write");
    let error = prepare(&config, 0).expect_err("is no checkpoint");
    assert!(error.contains("life_000006.halo is no checkpoint of streamhalo"), "{error}");
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
    let (latest, _) = super::super::resolve(&folder.checkpoints(), "life", |path, _| Ok(path.to_owned()))
        .expect("has some");
    assert_eq!(latest, folder.checkpoint("life", 8));
    let whole = folder.names().into_iter().filter(|name| !name.starts_with('.')).collect::<Vec<_>>();
    let application = ApplicationRow::open(&config).expect("is right");
    super::super::prepare(&config, &*application, 0).expect("can remove");
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
