//! What goes wrong over MPI: ranks that panic, end or stay away, and launchers and libraries that do
//! not belong together. And an application that brings its own communicator.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use streamhalo::comm::fabric::{FABRICS, FabricRow};
use streamhalo_tests::start::{Ended, Launcher, launchers, run};
use streamhalo_tests::{Amount, Cell, Outcome, on_ranks, try_cells};

/// After how long a start is given up.
const LIMIT: Duration = Duration::from_secs(60);
/// How long a job may take that fails at once: it includes starting all processes, on a busy machine.
const SOON: Duration = Duration::from_secs(15);
/// What is said of a rank that has ended with status 0.
const EXITED: &str = "its process exited without dropping its world";
/// The libraries' files, the preferred first.
const LIBRARIES: [&str; 3] = ["libmpi_abi.so.1", "libmpi.so.12", "libmpi.so.40"];

/// Runs a test with the launchers, or says why it cannot.
fn with_launchers(test: impl FnOnce(&[Launcher])) {
    match launchers() {
        Ok(launchers) => test(&launchers),
        Err(reason) => println!("skipped: {reason}"),
    }
}

/// Runs a test with every launcher, one after the other.
fn with_each_launcher(test: impl Fn(&Launcher)) {
    with_launchers(|launchers| launchers.iter().for_each(test));
}

/// As [`with_each_launcher`], all at once: for ranks that wait for longer than they compute.
fn with_all_launchers_at_once(test: impl Fn(&Launcher) + Sync) {
    let test = &test;
    with_launchers(|launchers| {
        std::thread::scope(|scope| {
            for launcher in launchers {
                scope.spawn(move || test(launcher));
            }
        });
    });
}

/// Ranks whose launcher is not told that they fail, so that it does not end the others before they
/// have said why they do.
fn patient_command(launcher: &Launcher, ranks: usize, arguments: &[&str]) -> Command {
    let mut command = launcher.command();
    command.args(["-n", &ranks.to_string(), "sh", "-c", "\"$@\"; echo \"a rank ended with $?\"", "sh"]);
    command.arg(env!("CARGO_BIN_EXE_tried_rank")).args(arguments).env("STREAMHALO_FABRIC", "mpi");
    command
}

fn command(launcher: &Launcher, ranks: usize, arguments: &[&str]) -> Command {
    let mut command = launcher.command();
    command.args(["-n", &ranks.to_string(), env!("CARGO_BIN_EXE_tried_rank")]).args(arguments);
    command.env("STREAMHALO_FABRIC", "mpi");
    command
}

/// Runs ranks that must fail, all of them, and soon.
fn failure(launcher: &Launcher, ranks: usize, arguments: &[&str], is_funneled: bool) -> Ended {
    let mut command = command(launcher, ranks, arguments);
    if is_funneled {
        command.env("STREAMHALO_MPI_THREADS", "funneled");
    }
    let ended = run(vec![command], LIMIT);
    let what = format!("{arguments:?} with {}, funneled: {is_funneled}", launcher.library);
    assert!(ended.statuses[0].is_some(), "{what} does not end: {ended:#?}");
    assert!(!ended.is_success(), "{what} succeeds: {ended:#?}");
    assert_eq!(ended.left_behind, 0, "{what} leaves processes behind: {ended:#?}");
    assert!(ended.took < SOON, "{what} takes {:?}: {ended:#?}", ended.took);
    ended
}

fn assert_says(ended: &Ended, pieces: &[&str]) {
    // Launchers forward a line in pieces, with what others write between them.
    let all = ended.all();
    for piece in pieces {
        assert!(all.contains(piece), "`{piece}` is not in: {ended:#?}");
    }
}

/// Rank 0 says that it has waited, for its time-out of two seconds and hardly longer.
fn assert_waited(ended: &Ended) {
    let all = ended.all();
    let after =
        all.split("rank 0 waited ").nth(1).and_then(|rest| rest.split(' ').next()?.parse::<u64>().ok());
    assert!(after.is_some_and(|seconds| (2..=5).contains(&seconds)), "{after:?} s: {ended:#?}");
}

#[test]
fn a_panic_of_a_rank_ends_the_others() {
    with_each_launcher(|launcher| {
        for is_funneled in [false, true] {
            let ended = failure(launcher, 2, &["main"], is_funneled);
            assert_says(&ended, &["rank 1 failed", "this rank panics on purpose"]);
        }
    });
}

#[test]
fn a_panic_in_a_kernel_ends_the_others() {
    with_each_launcher(|launcher| {
        for is_funneled in [false, true] {
            let ended = failure(launcher, 2, &["kernel"], is_funneled);
            assert_says(&ended, &["rank 1 failed", "explode", "this kernel panics on purpose"]);
        }
    });
}

#[test]
fn a_rank_that_exits_ends_the_others() {
    with_each_launcher(|launcher| {
        failure(launcher, 2, &["exit"], false);
    });
}

/// Status 0 is no success while the others wait for it.
#[test]
fn a_rank_that_exits_well_in_the_middle_ends_the_others() {
    with_each_launcher(|launcher| {
        for is_funneled in [false, true] {
            let ended = failure(launcher, 2, &["quit"], is_funneled);
            assert_says(&ended, &["rank 1 failed", EXITED]);
        }
    });
}

/// Whatever they wait for. Libraries take turns with that; who has been told may end well.
#[test]
fn who_waits_for_a_rank_that_exits_well_is_told() {
    const WAITS: [&str; 8] =
        ["message", "room", "notification", "epoch", "queue", "match", "barrier", "allreduce"];
    with_launchers(|launchers| {
        for (index, wait) in WAITS.into_iter().enumerate() {
            let launcher = &launchers[index % launchers.len()];
            for fabric in if index < launchers.len() { &["mpi", "shm+mpi"][..] } else { &["mpi"] } {
                let mut command = command(launcher, 2, &["quit", wait]);
                command.env("STREAMHALO_FABRIC", fabric);
                if index % 2 == 1 {
                    command.env("STREAMHALO_MPI_THREADS", "funneled");
                }
                let ended = run(vec![command], LIMIT);
                let what = format!("{wait} over {fabric} with {}", launcher.library);
                assert!(ended.is_success() && ended.took < SOON, "{what}: {ended:#?}");
                assert_says(&ended, &["rank 0 was told", EXITED]);
            }
        }
    });
}

#[test]
fn a_rank_that_exits_well_when_nobody_wants_anything_of_it_fails_nobody() {
    with_each_launcher(|launcher| {
        succeeds_within(SOON, launcher, 2, "quit-late");
    });
}

#[test]
fn ranks_that_exit_well_may_leave_their_worlds() {
    with_each_launcher(|launcher| succeeds(launcher, 2, "leaked"));
}

/// MPICH has 2048 communicators at a time.
#[test]
fn worlds_leave_the_library_what_they_had_of_it() {
    with_all_launchers_at_once(|launcher| {
        let ended = run(vec![command(launcher, 2, &["worlds", "800"])], LIMIT);
        assert!(ended.is_success(), "{}: {ended:#?}", launcher.library);
    });
}

#[test]
fn a_rank_that_never_comes_to_an_exchange_is_named() {
    with_all_launchers_at_once(|launcher| {
        for (backend, is_funneled) in [
            ("standard", false),
            ("st-send", false),
            ("st-rsend", true),
            ("active-rma", false),
            ("notified", false),
        ] {
            let ended = failure(launcher, 2, &["absent", backend], is_funneled);
            assert_waited(&ended);
            assert_says(&ended, &["of rank 1"]);
        }
    });
}

#[test]
fn a_rank_that_never_comes_to_a_collective_call_is_named() {
    with_all_launchers_at_once(|launcher| {
        let ended = failure(launcher, 3, &["missing"], false);
        assert_waited(&ended);
        assert_says(&ended, &["for the collective call of rank 2"]);
    });
}

#[test]
fn an_exchange_may_be_dropped_when_it_has_begun() {
    with_all_launchers_at_once(|launcher| succeeds(launcher, 3, "begun"));
}

#[test]
fn a_world_may_be_dropped_by_the_end_of_its_thread() {
    with_all_launchers_at_once(|launcher| succeeds(launcher, 2, "at-thread-end"));
}

fn succeeds(launcher: &Launcher, ranks: usize, mode: &str) {
    succeeds_within(LIMIT, launcher, ranks, mode);
}

/// With a progress thread, and without one.
fn succeeds_within(limit: Duration, launcher: &Launcher, ranks: usize, mode: &str) {
    for is_funneled in [false, true] {
        let mut command = command(launcher, ranks, &[mode]);
        if is_funneled {
            command.env("STREAMHALO_MPI_THREADS", "funneled");
        }
        let ended = run(vec![command], limit);
        assert!(ended.is_success() && ended.left_behind == 0, "{}: {ended:#?}", launcher.library);
    }
}

/// Whatever fabric is over MPI, or has its ranks meet over it.
#[test]
fn another_thread_than_the_only_one_that_may_call_is_refused() {
    // What there is of MPI is the launchers'.
    let is_here = |row: &&FabricRow| row.name == "mpi" || (row.name == "ofi" && (row.unusable)().is_none());
    with_all_launchers_at_once(|launcher| {
        for fabric in FABRICS.iter().filter(is_here).map(|row| row.name) {
            let mut command = command(launcher, 2, &["other-thread"]);
            command.env("STREAMHALO_FABRIC", fabric).env("STREAMHALO_OFI_PROVIDER", "tcp");
            command.env("STREAMHALO_MPI_THREADS", "funneled");
            let ended = run(vec![command], LIMIT);
            assert!(ended.is_success(), "{fabric}, {}: {ended:#?}", launcher.library);
            let refused = count(&ended.all(), "may be called by the thread that initialised it only");
            assert_eq!(refused, 2, "{fabric}, {}: {ended:#?}", launcher.library);
        }
    });
}

/// The library of an installation.
fn library(launcher: &Launcher) -> Option<PathBuf> {
    let prefix = launcher.prefix();
    let folders = ["lib", "lib64", "lib/release", "lib/x86_64-linux-gnu"].map(|folder| prefix.join(folder));
    let files = folders.iter().flat_map(|folder| LIBRARIES.map(|name| folder.join(name)));
    let fits = |file: &PathBuf| file.ends_with("libmpi.so.40") == (launcher.library == "Open MPI");
    files.into_iter().find(|file| file.exists() && fits(file))
}

/// How often a text is in another.
fn count(text: &str, piece: &str) -> usize {
    text.matches(piece).count()
}

/// A library under the launcher of another would make every rank a world of its own.
#[test]
fn a_launcher_and_the_library_of_another_are_refused() {
    with_each_launcher(|launcher| {
        let others = launchers().expect("there are some");
        let Some(other) = others.iter().find(|other| !other.is_like(launcher)) else {
            println!("skipped: {}: there is no launcher of another family", launcher.library);
            return;
        };
        let Some(file) = library(other) else {
            println!("skipped: {}: {} has no library of its own", launcher.library, other.library);
            return;
        };
        let mut command = patient_command(launcher, 2, &["world"]);
        command.env("STREAMHALO_MPI", &file);
        let ended = run(vec![command], LIMIT);
        assert_says(&ended, &["start with the `mpiexec` of that library", "set STREAMHALO_MPI"]);
        assert_eq!(count(&ended.all(), "every rank would be alone"), 2, "not every rank says so: {ended:#?}");
        assert_eq!(count(&ended.all(), "a rank ended with 1"), 2, "{ended:#?}");
    });
}

#[test]
fn a_file_that_is_no_mpi_is_refused() {
    with_each_launcher(|launcher| {
        // A library that is always there, one that is not, and a file that is none.
        for file in ["libc.so.6", "/no/such/libmpi.so.12", concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml")]
        {
            let mut command = patient_command(launcher, 2, &["world"]);
            command.env("STREAMHALO_MPI", file);
            let ended = run(vec![command], LIMIT);
            assert_eq!(count(&ended.all(), "cannot be used"), 2, "not every rank: {ended:#?}");
            assert_eq!(count(&ended.all(), "a rank ended with 1"), 2, "{ended:#?}");
            assert_says(&ended, &[file, "STREAMHALO_MPI"]);
        }
    });
}

#[test]
fn an_application_brings_its_own_communicator() {
    application_with("multiple", Amount::Few, "proxy");
}

#[test]
fn an_application_of_one_thread_brings_its_own_communicator() {
    application_with("single", Amount::First, "host");
}

/// Ranks that have initialised MPI with that level of thread support, and try so much: who then carries messages.
fn application_with(level: &str, amount: Amount, executor: &str) {
    let expected: Vec<Cell> = on_ranks(2, |world| {
        let mut cells = Vec::new();
        try_cells(world, amount, |cell| cells.push(cell))?;
        Ok(cells)
    })
    .swap_remove(0);
    with_each_launcher(|launcher| {
        let Some(library) = library(launcher) else {
            println!("skipped: {}: its library is not in its own folder", launcher.library);
            return;
        };
        let ended = run(vec![application(launcher, &library, level)], LIMIT);
        assert!(ended.is_success(), "{}: {ended:#?}", launcher.library);
        let cells = ended.said.lines().filter(|line| line.starts_with("cell "));
        let cells: Vec<Cell> = cells.map(|line| line.parse().expect("it is a cell")).collect();
        assert_eq!(cells.len(), expected.len(), "{ended:#?}");
        for (cell, expected) in cells.iter().zip(&expected) {
            assert_eq!(cell.outcome, expected.outcome, "{cell}");
            assert!(matches!(cell.outcome, Outcome::Passed { .. }));
            let by = if expected.executor == "host" { "host" } else { executor };
            assert_eq!(cell.executor, by, "{cell}");
        }
    });
}

/// Open MPI makes each process a world of its own under a launcher that it does not know. Others end the job.
#[test]
fn an_application_that_has_initialised_mpi_is_not_alone_unnoticed() {
    with_each_launcher(|launcher| {
        let others = launchers().expect("there are some");
        let open_mpi = others.iter().find(|other| other.library == "Open MPI" && !other.is_like(launcher));
        let Some(library) = open_mpi.and_then(library) else {
            println!(
                "skipped: {}: it needs another's launcher, and the library of Open MPI",
                launcher.library
            );
            return;
        };
        let ended = run(vec![application(launcher, &library, "launched")], LIMIT);
        assert_says(&ended, &["the launcher started 2 ranks", "sees 1"]);
        assert!(!ended.is_success(), "{}: {ended:#?}", launcher.library);
    });
}

/// Each of several ranks that an MPI launcher has not started would be.
#[test]
fn ranks_of_another_launcher_are_not_alone_over_mpi_unnoticed() {
    with_all_launchers_at_once(|launcher| {
        let Some(library) = library(launcher) else {
            println!("skipped: {}: its library is not in its own folder", launcher.library);
            return;
        };
        for (size, is_alone) in [("1", true), ("2", false)] {
            let mut command = Command::new(env!("CARGO_BIN_EXE_tried_rank"));
            command.arg("world").env("STREAMHALO_MPI", &library).env("STREAMHALO_FABRIC", "mpi");
            command.env("STREAMHALO_RANK", "0").env("STREAMHALO_SIZE", size);
            let ended = run(vec![command], LIMIT);
            assert_eq!(ended.is_success(), is_alone, "{}: {ended:#?}", launcher.library);
            if !is_alone {
                assert_says(&ended, &["fabric `mpi`", "STREAMHALO_SIZE=2", "use `ofi` or `shm+ofi`"]);
            }
        }
    });
}

#[test]
fn a_communicator_of_an_mpi_that_is_not_initialised_is_refused() {
    with_all_launchers_at_once(|launcher| {
        let Some(library) = library(launcher) else {
            println!("skipped: {}: its library is not in its own folder", launcher.library);
            return;
        };
        let ended = run(vec![application(launcher, &library, "none")], LIMIT);
        assert_says(&ended, &["has not initialised MPI"]);
        assert!(!ended.is_success(), "{}: {ended:#?}", launcher.library);
    });
}

fn application(launcher: &Launcher, library: &Path, level: &str) -> Command {
    let mut command = launcher.command();
    command.args(["-n", "2", env!("CARGO_BIN_EXE_mpi_application")]).arg(library).arg(level);
    command.env("STREAMHALO_MPI", library);
    command
}
