//! Disks that are full, and other reasons not to write. `/dev/full` has no room for anybody.

use std::fs;
use std::os::unix::fs::symlink;

use super::{Folder, drawn, path, read, reference};

const TEXT: &str =
    "app = { steps = 4, pattern = 'random:3' }\ngrid.cells = [7, 10]\noutput.snapshot_every = 2\n";

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
        let full = || symlink("/dev/full", folder.snapshots().join(file)).expect("can write");
        full();
        let error = drawn(&folder.config(TEXT), &[1, 2]).expect_err("there is no room").to_string();
        let message = format!("cannot write the picture after 2 steps, {}", path(&folder.snapshots(), file));
        assert!(error.starts_with(&format!("rank {rank} failed: {message}: No space left")), "{error}");
        assert!(error.ends_with("; with `output.on_full_disk = \"go-on\"` it goes on without"), "{error}");
        has_the_first_only(&folder);

        full();
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
    symlink("/dev/full", folder.snapshots().join("life_000002_0.vti")).expect("can write");
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
