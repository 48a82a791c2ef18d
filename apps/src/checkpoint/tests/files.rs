//! The file itself: where cells lie in it, and whatever can be wrong with it.

use std::fs;

use proptest::prelude::*;
use serde_json::{Map, Value};
use streamhalo::{ElementType, GlobalGrid, Partition};

use super::super::runs::Runs;
use super::super::{Head, folder};
use super::*;

const APP: &str = "steps = 6, pattern = 'random:3'";
/// Two blocks of 64 KiB, of which the second is short.
const GRID: &str = "grid.cells = [300, 301]\noutput.checkpoint_every = 4\n";

/// A checkpoint after 4 of 6 steps.
fn written() -> (Folder, RunConfig, PathBuf) {
    let folder = Folder::new();
    let config = folder.config(APP, GRID);
    play(&config, &[2, 1], "st-send", None).expect("nothing fails");
    let path = folder.checkpoint("life", 4);
    (folder, config, path)
}

proptest! {
    #[test]
    fn the_ranks_of_any_layout_fill_the_payload_once(
        cells in [1_usize..7, 1_usize..7, 1_usize..7],
        parts in [1_usize..4, 1_usize..4, 1_usize..4],
        element_bytes in prop::sample::select(vec![1_usize, 4, 8]),
    ) {
        let layout = std::array::from_fn(|axis| parts[axis].min(cells[axis]));
        let grid = GlobalGrid::new(cells, [true; 3]).expect("is a grid");
        let ranks = layout.iter().product();
        let partition = Partition::with_layout(&grid, layout, ranks).expect("every rank has a cell");
        let mut times = vec![0; cells.iter().product::<usize>() * element_bytes];
        for rank in 0..ranks {
            let own = partition.owned_cells(rank);
            let runs = Runs::new(100, cells, own.tile(), element_bytes);
            let bytes = runs.starts().flat_map(|start| start as usize..start as usize + runs.run_bytes());
            // In the order of the cells, so that it can be told which byte is whose.
            let expected = own.indices().flat_map(|[z, y, x]| {
                let cell = (z * cells[1] + y) * cells[2] + x;
                (0..element_bytes).map(move |byte| 100 + cell * element_bytes + byte)
            });
            prop_assert!(bytes.clone().eq(expected));
            bytes.for_each(|byte| times[byte - 100] += 1);
        }
        prop_assert!(times.iter().all(|times| *times == 1));
    }
}

#[test]
fn rows_that_lie_next_to_each_other_are_one_run() {
    let runs = |end: [usize; 3]| {
        let tile = streamhalo::Tile { start: [0; 3], end };
        Runs::new(0, [4, 5, 6], tile, 8).starts().count()
    };
    assert_eq!([runs([3, 5, 6]), runs([3, 4, 6]), runs([3, 4, 5])], [1, 3, 12]);
}

#[test]
fn heads_are_the_same_before_and_after_checksums_are_known() {
    for cells in [[1, 1, 1], [1, 300, 301], [1 << 10, 1 << 12, 1 << 14]] {
        let carried = Map::from_iter([("ümlaut".to_owned(), Value::from("ä"))]);
        let mut head = Head::new(7, Map::new(), carried, ElementType::F64, cells);
        let before = head.encode();
        head.blocks.fill(blake3::hash(b"x").to_hex().to_string());
        let after = head.encode();
        assert_eq!((before.len(), before.len() % 4096), (after.len(), 0));
        let bytes: u64 = (0..head.blocks.len()).map(|index| head.block(index).1).sum();
        assert_eq!(Some(bytes), head.payload_bytes());
        assert!(head.blocks.len() <= 1024);
        let folder = Folder::new();
        let path = folder.0.path().join("head");
        fs::write(&path, &after).expect("can write");
        let mut file = fs::File::open(&path).expect("is there");
        let (found, start, _) = Head::read(&mut file, &path).expect("was written by us");
        assert_eq!((found, start), (head, after.len() as u64));
    }
}

/// Whatever byte is changed, and whatever is missing at the end.
#[test]
fn damaged_and_truncated_files_are_refused_with_the_reason() {
    let (_folder, config, path) = written();
    let right = fs::read(&path).expect("is there");
    let start = right.len() - 300 * 301;
    for at in (0..right.len()).step_by(997).chain([8, 12, 16, 47, 48, start - 1, start, right.len() - 1]) {
        let mut wrong = right.clone();
        wrong[at] ^= 0x10;
        fs::write(&path, &wrong).expect("can write");
        let error = refused(&path, &config);
        match (at, &error) {
            (0..8, CheckpointError::Foreign { .. })
            | (8..12, CheckpointError::Version { supported: 1, .. })
            // A length that is not right may be beyond the end.
            | (12..16, CheckpointError::Damaged { .. } | CheckpointError::Truncated { .. }) => {}
            (16.., CheckpointError::Damaged { what, .. }) if at < start => {
                assert_eq!(what, "its head is not what was written");
            }
            (16.., CheckpointError::Damaged { what, .. }) => {
                let block = (at - start) >> 16;
                let bytes = start + (block << 16)..(start + ((block + 1) << 16)).min(right.len());
                let expected = format!("bytes {} to {} (block {} of 2)", bytes.start, bytes.end, block + 1);
                assert!(what.starts_with(&expected), "byte {at}: {what}");
            }
            _ => panic!("byte {at}: {error}"),
        }
    }
    for length in (0..right.len()).step_by(1009).chain([7, 8, 47, 48, start - 1, start, right.len() - 1]) {
        fs::write(&path, &right[..length]).expect("can write");
        let error = refused(&path, &config);
        let CheckpointError::Truncated { found_bytes, needed_bytes, at_least, .. } = error else {
            panic!("{length} bytes: {error}")
        };
        assert_eq!(found_bytes, length as u64);
        assert!(if at_least { needed_bytes > found_bytes } else { needed_bytes == right.len() as u64 });
        assert_eq!(at_least, length < start, "once the head is there the length is known");
    }
    fs::write(&path, [&right[..], b"x"].concat()).expect("can write");
    let error = refused(&path, &config);
    assert!(error.to_string().ends_with("bytes, 1 more than it should have"), "{error}");
    fs::write(&path, right).expect("can write");
    let application = ApplicationRow::open(&config).expect("is right");
    assert!(Checkpoint::open(&path, &config, &*application).and_then(|opened| opened.verify()).is_ok());
}

#[test]
fn what_is_no_checkpoint_is_refused() {
    let folder = Folder::new();
    let config = folder.config(APP, GRID);
    let path = folder.0.path().join("other");
    assert!(matches!(refused(&path, &config), CheckpointError::Unreadable { .. }), "absent");
    for content in ["x = 3, y = 3\nbob$2bo$3o!\n", "\u{89}PNG\r\n"] {
        fs::write(&path, content).expect("can write");
        assert!(matches!(refused(&path, &config), CheckpointError::Foreign { .. }), "{content}");
    }
}

#[test]
fn checkpoints_of_other_runs_are_refused_with_what_differs() {
    let (folder, _, path) = written();
    let big = "grid.cells = [300, 301]";
    let stencil = "name = 'stencil3d', steps = 6";
    for (app, rest, expected) in [
        (stencil, "", "`app.name` is \"life\" there, and \"stencil3d\" in this configuration"),
        ("pattern = 'random:4'", big, "`app.pattern` is \"random:3\" there, and \"random:4\""),
        (APP, "grid.cells = [301, 300]", "`grid.cells` is [300,301] there, and [301,300]"),
        (
            APP,
            "grid = { cells = [300, 301], periodic = false }",
            "`grid.periodic` is [true,true] there, and [false",
        ),
        ("steps = 3, pattern = 'random:3'", big, "is of step 4, but `app.steps` is 3"),
    ] {
        let error = refused(&path, &folder.config(app, rest)).to_string();
        assert!(error.contains(expected), "{error}");
    }
    let cells = "grid.cells = [4, 4, 4]\noutput.checkpoint_every = 4";
    let jacobi = format!("{stencil}, equation = 'jacobi'");
    play(&folder.config(&jacobi, cells), &[1, 1, 1], "standard", None).expect("nothing fails");
    for (app, expected) in [
        (format!("{jacobi}, points = 27"), "`app.points` is 7 there, and 27"),
        (format!("{jacobi}, element = 'f32'"), "`app.element` is \"f64\" there, and \"f32\""),
        (format!("{jacobi}, residual_every = 2"), "`app.residual_every` is 10 there, and 2"),
        (stencil.to_owned(), "`app.equation` is \"jacobi\" there, and \"heat\""),
    ] {
        let error = refused(&folder.checkpoint("stencil3d", 4), &folder.config(&app, cells)).to_string();
        assert!(error.contains(expected), "{error}");
    }
}

/// What a file holds counts, and not what it is called.
#[test]
fn patterns_from_files_are_told_apart_by_their_cells() {
    let folder = Folder::new();
    let app =
        |name: &str, origin: &str| format!("steps = 6, pattern = {:?}{origin}", folder.0.path().join(name));
    for (name, content) in [("a.rle", "bob$2bo$3o!"), ("b.rle", "bob$2bo$3o!"), ("c.rle", "bob$2bo$2o!")] {
        let header = "x = 3, y = 3\n";
        fs::write(folder.0.path().join(name), header.to_owned() + content).expect("can write");
    }
    let grid = "grid.cells = [9, 9]\noutput.checkpoint_every = 4";
    play(&folder.config(&app("a.rle", ""), grid), &[1, 1], "standard", None).expect("nothing fails");
    let path = folder.checkpoint("life", 4);
    for other in [app("b.rle", ""), app("a.rle", ", origin = [3, 3]")] {
        let config = folder.config(&other, grid);
        play(&config, &[1, 1], "standard", Some(&path)).expect("is the same game");
    }
    for other in [app("c.rle", ""), app("a.rle", ", origin = [3, 4]")] {
        let error = refused(&path, &folder.config(&other, grid));
        let CheckpointError::OtherRun { key, .. } = error else { panic!("{error}") };
        assert_eq!(key, "app.pattern");
    }
    // The pattern lies elsewhere in another grid, which is the difference to tell.
    let error = refused(&path, &folder.config(&app("a.rle", ""), "grid.cells = [9, 11]"));
    let CheckpointError::OtherRun { key, .. } = error else { panic!("{error}") };
    assert_eq!(key, "grid.cells");
}

#[test]
fn what_is_no_file_is_not_waited_for() {
    let folder = Folder::new();
    let error = refused(std::path::Path::new("/dev/null"), &folder.config(APP, GRID));
    assert!(error.to_string().contains("/dev/null: it is no regular file"), "{error}");
}

/// Trials read what was opened, whatever becomes of its name.
#[test]
fn a_checkpoint_that_was_opened_may_be_removed() {
    let (_folder, config, path) = written();
    let whole = play(&config, &[1, 1], "standard", None).expect("nothing fails");
    let application = ApplicationRow::open(&config).expect("is right");
    let opened = Checkpoint::open(&path, &config, &*application).expect("is right");
    fs::remove_file(&path).expect("is there");
    opened.verify().expect("is whole");
    let again = on_threads(1, WorldOptions::default(), |world| {
        let stream = Device::host().stream(world)?;
        let between = Between { from: Some(&opened), ..Between::default() };
        let (backend, layout) = ("standard", &[1, 1]);
        let trial = Trial { world, stream: &stream, backend, layout, wants_state: true, between };
        Ok(application.run_trial(&trial)?.answer)
    });
    assert_eq!(again.expect("nothing fails"), [whole]);
}

/// Ranks of later entries go on from the file that was looked at, or not at all.
#[test]
fn a_checkpoint_that_was_replaced_since_is_refused() {
    let (_folder, mut config, path) = written();
    config.run.restart = Some(path.clone());
    let application = ApplicationRow::open(&config).expect("is right");
    let found =
        |found: &str| Checkpoint::asked_for(&config, &*application, Some(found)).expect("one is asked for");
    let known = Checkpoint::open(&path, &config, &*application).expect("is right").checksum().to_owned();
    assert_eq!(found(&known).expect("is the same").checksum(), known);
    let error = found("of another file").expect_err("is another one");
    assert!(matches!(error, CheckpointError::Replaced { .. }), "{error}");
}

fn found(path: &Path, app: &str) -> Result<PathBuf, CheckpointError> {
    folder::resolve(path, app, |path, _| Ok(path.to_owned())).map(|(found, _)| found)
}

#[test]
fn a_folder_stands_for_its_latest_checkpoint() {
    let folder = Folder::new();
    let none = found(folder.0.path(), "life").expect_err("is empty");
    assert!(none.to_string().contains("no checkpoint of `life`"), "{none}");
    let names = ["life_000100.halo", "life_999999.halo", "life_1000000.halo", "stencil3d_3000000.halo"];
    let others = ["life_x.halo", "life_4000000.halo.bak"];
    for name in names.iter().chain(&others) {
        fs::write(folder.0.path().join(name), "x").expect("can write");
    }
    let latest = found(folder.0.path(), "life").expect("has some");
    assert_eq!(latest, folder.0.path().join("life_1000000.halo"));
    let file = folder.0.path().join(names[0]);
    assert_eq!(found(&file, "life").expect("is one"), file);
    // A folder of results has one of checkpoints; what is in itself comes first.
    fs::create_dir(folder.checkpoints()).expect("can write");
    fs::write(folder.checkpoint("faces", 7), "x").expect("can write");
    let of_results = found(folder.0.path(), "faces").expect("has some");
    assert_eq!(of_results, folder.checkpoint("faces", 7));
}
