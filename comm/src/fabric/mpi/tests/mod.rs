//! The layer on real libraries: two ranks, for each launcher that `STREAMHALO_TEST_MPIEXEC` names.

mod pair;

use crate::error::{Error, Result};
use crate::fabric::mpi::launcher::{Launcher, first_line};
use crate::fabric::mpi::library::{Library, VARIABLE};
use crate::fabric::mpi::request::Status;
use crate::fabric::mpi::search::{Place, candidates};
use crate::fabric::mpi::{Communicator, Mpi, Request, ThreadLevel};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// Colon-separated paths of `mpiexec` programs.
const LAUNCHERS: &str = "STREAMHALO_TEST_MPIEXEC";
const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// A wait that never ends would keep the launcher waiting too.
fn until<T>(what: &str, mut done: impl FnMut() -> Result<Option<T>>) -> T {
    let start = Instant::now();
    loop {
        match done() {
            Ok(Some(value)) => return value,
            Ok(None) => {}
            Err(error) => panic!("{what}: {error}"),
        }
        assert!(start.elapsed() < LONGEST_WAIT, "{what} does not come");
        std::thread::yield_now();
    }
}

fn wait(what: &str, mut request: Request) -> Status {
    until(what, || request.test())
}

/// Both ranks have called it: each has heard from the other.
fn barrier(comm: &Communicator) {
    for root in 0..2 {
        let mut heard = 0u8;
        // SAFETY: waited for at once.
        wait("a barrier", unsafe { comm.ibcast(&raw mut heard, 1, root) }.expect("can be entered"));
    }
}

fn launchers() -> Vec<PathBuf> {
    let Some(list) = std::env::var_os(LAUNCHERS).filter(|list| !list.is_empty()) else {
        eprintln!("skipped: {LAUNCHERS} names no mpiexec, and without a launcher there are no two ranks");
        return Vec::new();
    };
    std::env::split_paths(&list).collect()
}

/// Runs a test of this module as two ranks, and returns whether they succeeded, with all that they said.
fn run(launcher: &Path, test: &str, variables: &[(&str, &Path)]) -> (bool, String) {
    let this = std::env::current_exe().expect("a running program has a file");
    let test = format!("fabric::mpi::tests::{test}");
    let mut command = Command::new(launcher);
    command.args(["-n", "2"]).arg(this).args(["--exact", &test, "--ignored", "--nocapture"]);
    // Open MPI wants to be told that root may start it, Intel MPI where it is and to stay on the machine;
    // the others look at neither.
    command.envs([("OMPI_ALLOW_RUN_AS_ROOT", "1"), ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")]);
    command.env("I_MPI_FABRICS", "shm");
    if let Some(prefix) = launcher.parent().and_then(Path::parent) {
        command.env("I_MPI_ROOT", prefix);
    }
    for (name, value) in variables {
        command.env(name, value);
    }
    let output = command.output().unwrap_or_else(|error| panic!("{}: {error}", launcher.display()));
    let said = [&output.stdout[..], &output.stderr[..]].concat();
    (output.status.success(), String::from_utf8_lossy(&said).into_owned())
}

#[test]
fn every_library_of_every_launcher() {
    for launcher in launchers() {
        let (success, said) = run(&launcher, "two_ranks", &[]);
        assert!(success && said.contains(PASSED), "{}: {said}", launcher.display());
        eprintln!("{}: {}", launcher.display(), result_line(&said));
        // An installation may have a library for each interface; the launcher serves all of them.
        let program = std::fs::canonicalize(&launcher).expect("was run");
        let prefix = program.parent().and_then(Path::parent).expect("lies in a folder of an installation");
        let mut seen = Vec::new();
        for candidate in candidates(Some(prefix), &Launcher::default()) {
            let Place::File(library) = candidate.place else { continue };
            let Ok(file) = std::fs::canonicalize(&library) else { continue };
            // What lies in the folders of a distribution is not this launcher's alone.
            if seen.contains(&file) || prefix == Path::new("/usr") {
                continue;
            }
            seen.push(file);
            let (success, said) = run(&launcher, "two_ranks", &[(VARIABLE, &library)]);
            assert!(success && said.contains(&*library.to_string_lossy()), "{}: {said}", library.display());
            eprintln!("{}: {}", launcher.display(), result_line(&said));
        }
    }
}

#[test]
fn an_application_that_has_initialised_mpi_keeps_it() {
    for launcher in launchers() {
        let (success, said) = run(&launcher, "initialised_by_the_application", &[]);
        assert!(success && said.contains(PASSED), "{}: {said}", launcher.display());
    }
}

#[test]
fn a_rank_that_fails_ends_the_job() {
    for launcher in launchers() {
        let start = Instant::now();
        let (success, said) = run(&launcher, "one_rank_fails", &[]);
        assert!(!success, "{}: {said}", launcher.display());
        assert!(start.elapsed() < LONGEST_WAIT, "{}: {said}", launcher.display());
    }
}

/// What the ranks say at their end.
const PASSED: &str = "two ranks have passed";

/// The line with it; the test harness may have written before it on the same line.
fn result_line(said: &str) -> &str {
    said.lines().find_map(|line| line.find(PASSED).map(|at| &line[at..])).unwrap_or_default()
}

/// A rank that fails leaves the other one in the middle of something.
struct EndsTheJob(&'static Mpi);

impl Drop for EndsTheJob {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.poison();
        }
    }
}

#[test]
#[ignore = "is run by an MPI launcher with two ranks"]
fn two_ranks() {
    let mpi = Mpi::get().expect("there is a library");
    let level = mpi.start().expect("it starts");
    let _ends = EndsTheJob(mpi);
    assert_eq!(mpi.start(), Ok(level), "a second start changes nothing");
    // The test runs in a thread of its own, which is the one that has initialised.
    assert_eq!(mpi.is_main_thread(), Ok(true));
    let world = mpi.world().expect("is running");
    assert_eq!(world.size(), Ok(2));
    let comm = world.duplicate().expect("can be had");
    assert!(comm.tag_upper_bound().expect("is known") >= 32767);

    pair::gpus(mpi);
    pair::first_ranks(&comm);
    pair::tags(mpi, &comm);
    pair::messages(&comm);
    pair::collectives(&comm);
    pair::persistent(mpi, &comm);
    pair::windows(&comm);
    pair::errors(&comm);
    pair::truncated(mpi, &comm);
    if level == ThreadLevel::Multiple {
        pair::several_threads(&comm);
    }

    barrier(&comm);
    if comm.rank() == Ok(0) {
        println!(
            "{PASSED}: {} ({}, {level}): {}",
            mpi.path().display(),
            mpi.abi(),
            first_line(&mpi.library_version().expect("is known")),
        );
    }
    comm.free().expect("can be freed");
}

#[test]
#[ignore = "is run by an MPI launcher with two ranks"]
fn initialised_by_the_application() {
    // The application has it for itself, as a plug-in of an interpreter does: nobody else sees its symbols.
    let launcher = Launcher::of_this_process();
    let own = candidates(None, &launcher).iter().find_map(|one| Library::open(&one.place).ok());
    let own = own.expect("there is a library");
    let mpi = Mpi::get().expect("there is a library");
    assert_eq!(mpi.path(), own.path, "the one that is there is taken");
    let out_of_order = mpi.world().expect_err("MPI is not initialised");
    assert!(matches!(out_of_order, Error::OutOfOrder { .. }), "{out_of_order}");
    let (funneled, mut level) = (mpi.constants.thread_levels[1], 0);
    let none = std::ptr::null_mut();
    // SAFETY: as an application does it; the place lives through the call.
    unsafe { mpi.table.init_thread(none, none.cast(), funneled, &raw mut level) }.expect("initialises");
    assert!(mpi.start().expect("joins") >= ThreadLevel::Funneled);
    // SAFETY: the handle is that of all ranks.
    let handed_in = unsafe { Communicator::from_raw(mpi, mpi.constants.comm_world) }.expect("is one");
    let comm = handed_in.duplicate().expect("can be had");
    assert_eq!(comm.size(), Ok(2));
    pair::errors(&comm);
    // SAFETY: no communicator is used.
    let null = unsafe { Communicator::from_raw(mpi, mpi.constants.comm_null) };
    assert!(null.expect_err("is none").to_string().contains("MPI_COMM_NULL"));
    barrier(&comm);
    let rank = comm.rank();
    comm.free().expect("can be freed");
    // SAFETY: as an application does it; if the exit did so once more, the ranks would fail.
    unsafe { mpi.table.finalize() }.expect("finalises");
    assert!(!mpi.is_running());
    if rank == Ok(0) {
        println!("{PASSED}");
    }
}

#[test]
#[ignore = "is run by an MPI launcher with two ranks"]
fn one_rank_fails() {
    let mpi = Mpi::get().expect("there is a library");
    mpi.start().expect("it starts");
    let comm = mpi.world().expect("is running").duplicate().expect("can be had");
    if comm.rank() == Ok(1) {
        mpi.poison(); // and exits, as a program does after it has written its error
        return;
    }
    barrier(&comm); // which the other rank never enters
}
