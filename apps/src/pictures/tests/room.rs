//! Disks that are full, and other reasons not to write. `/dev/full` has no room for anybody.

use std::fs;
use std::os::unix::fs::symlink;

use std::process::Command;
use std::sync::mpsc;
use std::time::Duration;

use super::{Folder, drawn, path, read, reference, until};
use crate::occupied::unfinished;

const TEXT: &str =
    "app = { steps = 4, pattern = 'random:3' }\ngrid.cells = [7, 10]\noutput.snapshot_every = 2\n";

/// Leaves no room for a file.
fn fill_up(folder: &Folder, file: &str) {
    symlink("/dev/full", folder.snapshots().join(unfinished(file))).expect("can write");
}

/// What is in the folder where only the first picture has found room.
fn has_the_first_only(folder: &Folder) {
    let names = folder.names();
    let of_first = ["life_000000.png", "life_000000.pvti", "life_000000_0.vti", "life_000000_1.vti"];
    assert_eq!(names, [&["life.pvd"], &of_first[..]].concat());
    let series = read::series(&folder.snapshots().join("life.pvd"));
    assert_eq!(series, [(0, "life_000000.pvti".to_owned())]);
}

/// Of each kind of file one finds no room: on either of the ranks, or of all ranks.
#[test]
fn a_full_disk_ends_the_run_or_its_pictures() {
    for (file, rank) in
        [("life_000002_0.vti", 0), ("life_000002_1.vti", 1), ("life_000002.png", 0), ("life_000002.pvti", 0)]
    {
        let folder = Folder::new();
        fill_up(&folder, file);
        let error = drawn(&folder.config(TEXT), &[1, 2]).expect_err("there is no room").to_string();
        let message = format!("cannot write the picture after 2 steps, {}", path(&folder.snapshots(), file));
        assert!(error.starts_with(&format!("rank {rank} failed: {message}: No space left")), "{error}");
        assert!(error.ends_with("; with `output.on_full_disk = \"go-on\"` it goes on without"), "{error}");
        has_the_first_only(&folder);

        fill_up(&folder, file);
        let config = folder.config(&format!("{TEXT}output.on_full_disk = 'go-on'"));
        let said = drawn(&config, &[1, 2]).expect("goes on");
        let [said] = &said[..] else { panic!("{said:?}") };
        assert!(said.starts_with(&format!("rank {rank} {message}: No space left")), "{said}");
        assert!(said.ends_with("; the run goes on without further pictures"), "{said}");
        has_the_first_only(&folder);
    }
}

#[test]
fn what_is_no_want_of_room_ends_the_run() {
    let folder = Folder::new();
    fs::create_dir(folder.snapshots().join("life_000002_1.vti")).expect("can write");
    fill_up(&folder, "life_000002_0.vti");
    let config = folder.config(&format!("{TEXT}output.on_full_disk = 'go-on'"));
    let error = drawn(&config, &[1, 2]).expect_err("a folder has its name").to_string();
    assert!(error.starts_with("rank 1 failed: cannot write") && error.ends_with("(os error 21)"), "{error}");
}

#[test]
fn a_folder_that_cannot_be_made_ends_the_run() {
    let folder = Folder::new();
    fs::remove_dir(folder.snapshots()).expect("is empty");
    fs::write(folder.snapshots(), "mine").expect("can write");
    let error = drawn(&folder.config(TEXT), &[1, 2]).expect_err("a file has its name").to_string();
    assert!(error.contains("rank 0 failed: cannot write the picture after 0 steps"), "{error}");
    assert_eq!(fs::read(folder.snapshots()).expect("is there"), b"mine");
}

/// The other direction: where there is room the third picture is there.
#[test]
fn the_third_picture_is_right() {
    let folder = Folder::new();
    let config = folder.config(TEXT);
    drawn(&config, &[1, 2]).expect("nothing fails");
    let field = read::whole(&folder.snapshots().join("life_000004.pvti"));
    assert_eq!(field.values, reference(&config, 4));
}

/// Rank 1 writes its piece into a pipe, which it cannot open before somebody reads there.
#[test]
fn what_is_of_all_ranks_is_not_there_before_their_pieces_are() {
    let folder = Folder::new();
    let snapshots = folder.snapshots();
    let pipe = snapshots.join(unfinished("life_000002_1.vti"));
    assert!(Command::new("mkfifo").arg(&pipe).status().expect("`mkfifo` is there").success());
    let (sender, seen) = mpsc::channel();
    // Not joined: it would hang where nobody writes into the pipe.
    std::thread::spawn(move || {
        until(|| snapshots.join("life_000002.png").exists());
        // Rank 0 would have gone on by then.
        std::thread::sleep(Duration::from_millis(100));
        let names = ["life_000002_1.vti", "life_000002.pvti"];
        sender.send(names.map(|name| snapshots.join(name).exists())).expect("somebody listens");
        let mut piece = fs::File::open(pipe).expect("is there");
        std::io::copy(&mut piece, &mut std::io::sink()).expect("can be read");
    });
    let error = drawn(&folder.config(TEXT), &[1, 2]).expect_err("a pipe is no disk").to_string();
    assert!(error.starts_with("rank 1 failed: cannot write"), "{error}");
    assert_eq!(seen.recv(), Ok([false; 2]));
    has_the_first_only(&folder);
}

/// Not even a series of what has gone is left.
#[test]
fn a_run_without_a_first_picture_leaves_none_of_the_one_before() {
    let folder = Folder::new();
    drawn(&folder.config(TEXT), &[1, 2]).expect("nothing fails");
    let left = [".life_000002_1.vti.unfinished", ".life.pvd.unfinished", ".life.pvd.earlier.unfinished"];
    for name in left.into_iter().chain([".notes.unfinished", ".life_x.png.unfinished"]) {
        fs::write(folder.snapshots().join(name), "half of it").expect("can write");
    }
    fill_up(&folder, "life_000000.png");
    drawn(&folder.config(TEXT), &[1, 2]).expect_err("there is no room");
    assert_eq!(folder.names(), [".life_x.png.unfinished", ".notes.unfinished"]);
}
