//! Runs that go on from a checkpoint end as if they had never been interrupted.

use std::ops::Range;
use std::time::Duration;

use serde_json::{Map, Value};
use streamhalo::prelude::Alternating;
use streamhalo::{Array, Entity, GlobalGrid, World};

use super::*;
use crate::app::{Steps, Stopwatch};
use crate::ranks::patient;

/// One way to compute the same.
type Way<'w> = (&'w [usize], &'w str, &'w str);

/// Runs in one go, and then from every checkpoint on in each way. Norms are the same where the layout is.
fn same_answers(app: &str, grid: &str, every: u64, steps: u64, ways: &[Way<'_>]) {
    let folder = Folder::new();
    let config = |rest: &str| folder.config(&format!("{app}, steps = {steps}"), &format!("{grid}\n{rest}"));
    let (layout, backend, rest) = ways[0];
    let whole = play(&config(rest), layout, backend, None).expect("nothing fails");
    let writes = format!("{rest}\noutput.checkpoint_every = {every}\noutput.checkpoints_kept = 0");
    let written = play(&config(&writes), layout, backend, None).expect("nothing fails");
    assert_eq!(written, whole, "{app}: who looks changes nothing");
    let checkpoints: Vec<u64> = (every..=steps).step_by(every as usize).collect();
    assert_eq!(folder.names().len(), checkpoints.len());
    for step in checkpoints {
        let path = folder.checkpoint(&config(rest).app.name, step);
        for (layout, backend, rest) in ways {
            let again = play(&config(rest), layout, backend, Some(&path)).expect("nothing fails");
            assert_eq!(
                (&again.checksum, &again.state),
                (&whole.checksum, &whole.state),
                "{app}, {step}, {rest}"
            );
            if *layout == ways[0].0 {
                assert_eq!(again.result, whole.result, "{app}, {step}, {rest}");
            }
        }
    }
}

const EVERY_3: &str = "grid.halo = 3\nrun.exchange_every = 3";

#[test]
fn life_goes_on_with_any_ranks_layouts_and_backends() {
    for periodic in ["true", "false", "[true, false]"] {
        let grid = format!("grid.cells = [13, 17]\ngrid.periodic = {periodic}");
        let ways: [Way<'_>; 8] = [
            (&[2, 1], "st-rsend", ""),
            (&[1, 1], "standard", ""),
            (&[1, 2], "st-send", ""),
            (&[3, 1], "active-rma", EVERY_3),
            (&[2, 2], "notified", EVERY_3),
            (&[1, 4], "st-rsend", EVERY_3),
            (&[1, 3], "notified", "device.stream = 'threaded'"),
            (&[2, 1], "standard", EVERY_3),
        ];
        // Neither at multiples of the steps between two exchanges, nor always at those of each other.
        same_answers("pattern = 'random:11'", &grid, 4, 11, &ways);
        same_answers("pattern = 'random:12'", &grid, 5, 10, &ways[2..5]);
    }
}

#[test]
fn stencils_go_on_with_any_ranks_layouts_and_backends() {
    let ways: [Way<'_>; 6] = [
        (&[1, 2, 1], "st-send", ""),
        (&[1, 1, 1], "standard", ""),
        (&[2, 1, 2], "st-rsend", EVERY_3),
        (&[1, 1, 3], "active-rma", ""),
        (&[2, 2, 1], "notified", "device.threads = 2"),
        (&[1, 2, 1], "st-rsend", EVERY_3),
    ];
    for element in ["f32", "f64"] {
        for (app, periodic) in [
            ("points = 7", "true"),
            ("points = 27, overlap = false", "[true, false, true]"),
            ("equation = 'jacobi', points = 7, residual_every = 3", "false"),
            ("equation = 'jacobi', points = 27, residual_every = 2", "[false, true, true]"),
        ] {
            let app = format!("name = 'stencil3d', {app}, element = '{element}'");
            let grid = format!("grid.cells = [7, 8, 9]\ngrid.periodic = {periodic}");
            same_answers(&app, &grid, 4, 10, &ways);
        }
    }
}

/// The norms before a checkpoint are part of it, bit by bit.
#[test]
fn norms_from_before_a_checkpoint_are_not_lost() {
    let folder = Folder::new();
    let app = "name = 'stencil3d', equation = 'jacobi', residual_every = 7, steps";
    let grid = "grid.cells = [5, 6, 7]\noutput.checkpoint_every = 8\noutput.checkpoints_kept = 0";
    let whole = play(&folder.config(&format!("{app} = 16"), grid), &[1, 1, 1], "standard", None);
    let whole = whole.expect("nothing fails");
    let norm = |answer: &Answer, which: &str| answer.result["residual"][which].as_f64().expect("is a number");
    assert!(norm(&whole, "last") < norm(&whole, "first"));
    for (step, steps) in [(8, 16), (16, 16)] {
        let config = folder.config(&format!("{app} = {steps}"), grid);
        let path = folder.checkpoint("stencil3d", step);
        let again = play(&config, &[1, 1, 1], "notified", Some(&path)).expect("nothing fails");
        assert_eq!(again, whole, "from {step}");
    }
}

/// Checkpoints of a run that goes on are those of one that was not interrupted, byte by byte.
#[test]
fn later_checkpoints_are_the_same_files() {
    let (one, other) = (Folder::new(), Folder::new());
    let app = "name = 'stencil3d', equation = 'jacobi', residual_every = 2, steps = 9";
    let rest = "grid.cells = [5, 6, 7]\noutput.checkpoint_every = 3\noutput.checkpoints_kept = 0";
    play(&one.config(app, rest), &[1, 2, 1], "standard", None).expect("nothing fails");
    let from = one.checkpoint("stencil3d", 3);
    play(&other.config(app, rest), &[1, 2, 1], "st-send", Some(&from)).expect("nothing fails");
    assert_eq!(other.names(), ["stencil3d_000006.halo", "stencil3d_000009.halo"]);
    for step in [6, 9] {
        let [one, other] = [&one, &other].map(|folder| fs::read(folder.checkpoint("stencil3d", step)));
        assert!(one.expect("is there") == other.expect("is there"), "at step {step}");
    }
}

/// The values come from the file, and not from computing everything again.
#[test]
fn a_run_goes_on_from_what_is_in_the_file() {
    let folder = Folder::new();
    let config =
        folder.config("pattern = 'random:5', steps = 8", "grid.cells = [9, 9]\noutput.checkpoint_every = 4");
    let whole = play(&config, &[1, 1], "standard", None).expect("nothing fails");
    let path = folder.checkpoint("life", 4);
    let mut bytes = fs::read(&path).expect("is there");
    let end = bytes.len();
    bytes[end - 81..].fill(0);
    fs::write(&path, bytes).expect("can write");
    // Its checksum would be refused; here nobody looks at it.
    let dead = play(&config, &[1, 1], "standard", Some(&path)).expect("nothing fails");
    assert_eq!(dead.result["population"], 0);
    assert_ne!(whole.result["population"], 0);
}

/// Cells of another type get the same numbers, where the application allows it.
#[test]
fn values_are_the_same_numbers_in_another_type() {
    let folder = Folder::new();
    let config =
        folder.config("pattern = 'random:5', steps = 4", "grid.cells = [5, 7]\noutput.checkpoint_every = 4");
    play(&config, &[1, 1], "standard", None).expect("nothing fails");
    let path = folder.checkpoint("life", 4);
    let checkpoint = Checkpoint::read(&path).expect("is whole");
    let world = World::alone().expect("needs nothing");
    let stream = Device::host().stream(&world).expect("is there");
    let grid = |cells| {
        let grid = GlobalGrid::new(cells, [true; 2]).expect("is a grid");
        grid.partition(&world).and_then(|partition| partition.local(1)).expect("is one part")
    };
    let mut field = Array::<f64, 2>::zeros(&grid([5, 7]), Entity::Cell, &stream).expect("is small");
    checkpoint.restore(&mut field).expect("is as large");
    let bytes = fs::read(&path).expect("is there");
    let written = bytes[bytes.len() - 35..].iter().map(|byte| f64::from(*byte));
    assert!(field.owned().expect("nothing fails").iter().copied().eq(written));
    let mut other = Array::<u8, 2>::zeros(&grid([7, 5]), Entity::Cell, &stream).expect("is small");
    let error = checkpoint.restore(&mut other).expect_err("has another shape").to_string();
    assert!(error.ends_with("it has [1, 5, 7] cells, the grid has [1, 7, 5]"), "{error}");
}

/// A field that takes a rank long to go on from a checkpoint.
struct Slow {
    cells: Alternating<u8, 2>,
    takes: Duration,
}

impl Steps<u8, 2> for Slow {
    fn take(&mut self, _: Range<u64>, _: &Stopwatch) -> Result<(), AppError> {
        unreachable!("the checkpoint is of the last step")
    }

    fn cells(&mut self) -> &mut Alternating<u8, 2> {
        &mut self.cells
    }

    fn carry(&mut self, _: &Map<String, Value>) {
        std::thread::sleep(self.takes);
    }
}

/// A disk may keep one of them longer than ranks wait for each other in a trial.
#[test]
fn ranks_wait_for_one_that_reads() {
    let folder = Folder::new();
    let config =
        folder.config("pattern = 'random:1', steps = 4", "grid.cells = [8, 6]\noutput.checkpoint_every = 4");
    play(&config, &[1, 1], "standard", None).expect("nothing fails");
    let from = Checkpoint::read(&folder.checkpoint("life", 4)).expect("is whole");
    let options = WorldOptions { timeout: Some(Duration::from_millis(1_500)), ..WorldOptions::default() };
    let done = on_threads(2, options, |world| {
        let (stream, patient) = (Device::host().stream(world)?, patient(world)?);
        let between = Between { from: Some(&from), patient: Some(&patient), ..Between::default() };
        let (backend, layout) = ("standard", &[2, 1]);
        let trial = Trial { world, stream: &stream, backend, layout, wants_state: false, between };
        let grid = trial.local_grid(&GlobalGrid::new([8, 6], [true; 2])?, [1, 1])?;
        let cells = Alternating::zeros(&grid, Entity::Cell, &stream)?;
        let takes = Duration::from_secs([0, 2][world.rank()]);
        trial.carry_out(4, &mut Slow { cells, takes }).map(|_| ())
    });
    done.expect("nobody gives up");
}
