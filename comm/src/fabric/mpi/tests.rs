//! The layer on real libraries: two ranks, for each launcher that `STREAMHALO_TEST_MPIEXEC` names.

use super::launcher::{Launcher, first_line};
use super::library::{Library, VARIABLE};
use super::request::Status;
use super::search::{Place, candidates};
use super::{Communicator, Group, Mpi, Request, RequestSet, ThreadLevel, Window};
use crate::device::{Takes, Vendor};
use crate::error::{Error, Result};
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
    assert!(mpi.version().expect("is known") >= (3, 0));
    // The test runs in a thread of its own, which is the one that has initialised.
    assert_eq!(mpi.is_main_thread(), Ok(true));
    let world = mpi.world().expect("is running");
    assert_eq!(world.size(), Ok(2));
    let comm = world.duplicate().expect("can be had");
    let node = comm.node().expect("can be had");
    assert_eq!(node.size(), Ok(2), "both ranks run here");
    node.free().expect("can be freed");
    assert!(comm.tag_upper_bound().expect("is known") >= 32767);

    gpus(mpi);
    first_ranks(&comm);
    messages(&comm);
    collectives(&comm);
    persistent(mpi, &comm);
    windows(&comm);
    locked(&comm);
    errors(&comm);
    truncated(mpi, &comm);
    if level == ThreadLevel::Multiple {
        several_threads(&comm);
    }

    wait("a barrier", comm.ibarrier().expect("can be entered"));
    if comm.rank() == Ok(0) {
        println!(
            "{PASSED}: {} ({}, {level}, partitioned {}): {}",
            mpi.path().display(),
            mpi.abi(),
            mpi.has_partitioned(),
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
    errors(&comm);
    // SAFETY: no communicator is used.
    let null = unsafe { Communicator::from_raw(mpi, mpi.constants.comm_null) };
    assert!(null.expect_err("is none").to_string().contains("MPI_COMM_NULL"));
    wait("a barrier", comm.ibarrier().expect("can be entered"));
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
    wait("a barrier that the other rank never enters", comm.ibarrier().expect("can be entered"));
}

/// What the library says of addresses of GPUs, on a machine that may have none.
fn gpus(mpi: &Mpi) {
    let kinds = mpi.kinds();
    println!("kinds of memory: {kinds:?}");
    assert!(kinds.is_none_or(|kinds| kinds.contains("system")), "all libraries serve the host's");
    for (vendor, name, device) in
        [(Vendor::Cuda(0), "CUDA", "/dev/nvidiactl"), (Vendor::Hip(0), "HIP", "/dev/kfd")]
    {
        let said = mpi.takes(vendor);
        println!("{said:?}");
        let (takes, said) = match said {
            Takes::Yes { because, .. } => (true, because),
            Takes::No(said) | Takes::Unknown(said) => (false, said),
        };
        assert!(said.contains(name) && said.contains("MPI"), "{said}");
        assert!(!takes || Path::new(device).exists(), "{said}");
    }
}

fn first_ranks(comm: &Communicator) {
    if comm.rank() == Ok(0) {
        let alone = comm.first(1).expect("takes the first rank alone");
        assert_eq!((alone.rank(), alone.size()), (Ok(0), Ok(1)));
        alone.free().expect("can be freed");
    }
    let both = comm.first(2).expect("takes both");
    assert_eq!(both.rank(), comm.rank());
    both.free().expect("can be freed");
}

fn messages(comm: &Communicator) {
    let rank = comm.rank().expect("is known");
    let peer = 1 - rank;
    let sent = [rank as u8 + 1; 24];
    // SAFETY: waited for below, before the array ends.
    let send = unsafe { comm.isend(sent.as_ptr(), sent.len(), peer, 77) }.expect("is sent");
    let seen = until("a probe", || comm.iprobe(77));
    assert_eq!(seen, Status { source: peer, tag: 77, bytes: 24 });
    let mut received = [0u8; 64];
    // SAFETY: waited for at once.
    let receive = unsafe { comm.irecv(received.as_mut_ptr(), 64, peer, 77) }.expect("is posted");
    assert_eq!(wait("a message", receive), seen);
    assert_eq!(received[..24], [peer as u8 + 1; 24]);
    wait("a send", send);

    // SAFETY: cancelled, and waited for, below.
    let mut never = unsafe { comm.irecv(received.as_mut_ptr(), 64, peer, 78) }.expect("is posted");
    assert_eq!(never.test(), Ok(None));
    never.cancel().expect("can be cancelled");
    until("the end of a cancelled receive", || never.test());
    never.free().expect("is at its end");
}

fn collectives(comm: &Communicator) {
    let rank = comm.rank().expect("is known");
    let mut data = [if rank == 1 { 5u8 } else { 0 }; 9];
    // SAFETY: waited for at once.
    wait("a broadcast", unsafe { comm.ibcast(data.as_mut_ptr(), 9, 1) }.expect("is started"));
    assert_eq!(data, [5; 9]);
    let (own, mut all) = ([rank as u8 + 3; 4], [0u8; 8]);
    // SAFETY: waited for at once.
    wait("a gather", unsafe { comm.iallgather(own.as_ptr(), 4, all.as_mut_ptr()) }.expect("is started"));
    assert_eq!(all, [3, 3, 3, 3, 4, 4, 4, 4]);
}

/// Several persistent messages each way, more than once, with set and single starts; the second round is
/// with ready sends, which a barrier makes right.
fn persistent(mpi: &'static Mpi, comm: &Communicator) {
    const MESSAGES: usize = 5;
    const BYTES: usize = 3000;
    let rank = comm.rank().expect("is known");
    let peer = 1 - rank;
    let mut sent = [[0u8; BYTES]; MESSAGES];
    let mut received = [[0u8; BYTES]; MESSAGES];
    let (to, from) = (sent.as_mut_ptr(), received.as_mut_ptr());
    for ready in [false, true] {
        let (mut sends, mut receives) = (RequestSet::new(mpi), RequestSet::new(mpi));
        for message in 0..MESSAGES {
            let tag = message as i32;
            let (to, from) = (to.wrapping_add(message).cast(), from.wrapping_add(message).cast());
            // SAFETY: the arrays outlive the sets, and are used between the starts only.
            let receive = unsafe { comm.recv_init(from, BYTES, peer, tag) };
            assert_eq!(receives.push(receive.expect("is made")), message);
            let send = if ready {
                // SAFETY: as above.
                unsafe { comm.rsend_init(to, BYTES, peer, tag) }
            } else {
                // SAFETY: as above.
                unsafe { comm.send_init(to, BYTES, peer, tag) }
            };
            assert_eq!(sends.push(send.expect("is made")), message);
        }
        let mut completed = Vec::with_capacity(MESSAGES);
        assert_eq!(receives.test_some(&mut completed), Ok(false), "none is active");
        for round in 1..4u8 {
            for message in 0..MESSAGES {
                let value = 10 * round + message as u8 + 100 * rank as u8;
                // SAFETY: in bounds, and no send is active.
                unsafe { to.wrapping_add(message).cast::<u8>().write_bytes(value, BYTES) };
            }
            // SAFETY: none is active.
            unsafe { receives.start(0) }.expect("starts");
            // SAFETY: none of these is active.
            unsafe { receives.start_all(1..MESSAGES) }.expect("start");
            wait("a barrier", comm.ibarrier().expect("can be entered"));
            // SAFETY: none is active, and all receives are started.
            unsafe { sends.start_all(0..MESSAGES) }.expect("start");
            let mut seen = [0; MESSAGES];
            until("persistent messages", || {
                let active = receives.test_some(&mut completed)?;
                completed.iter().for_each(|index| seen[*index] += 1);
                Ok((!active).then_some(()))
            });
            assert_eq!(seen, [1; MESSAGES], "each completes once");
            until("persistent sends", || Ok(sends.test_all()?.then_some(())));
            assert!(!sends.is_active(0) && !receives.is_active(MESSAGES - 1));
            for message in 0..MESSAGES {
                let value = 10 * round + message as u8 + 100 * peer as u8;
                // SAFETY: in bounds, and the receive has completed.
                let got = unsafe { from.wrapping_add(message).read() };
                assert!(got == [value; BYTES], "message {message} of round {round}");
            }
        }
        // Dropped while a receive is active, to which no message comes.
        // SAFETY: none is active; the arrays outlive the set.
        unsafe { receives.start(2) }.expect("starts");
        drop(receives);
        wait("a barrier", comm.ibarrier().expect("can be entered"));
    }
}

/// Memory of a window.
#[repr(align(64))]
struct Aligned<T>(T);

fn windows(comm: &Communicator) {
    const BYTES: usize = 4096;
    let rank = comm.rank().expect("is known");
    let peer = 1 - rank;
    let mut memory = Aligned([0u8; BYTES]);
    let base: *mut u8 = (&raw mut memory.0).cast();
    // SAFETY: freed below, before the memory is.
    let window = unsafe { Window::create(base, BYTES, comm) }.expect("is made");
    let group = Group::new(comm, &[peer]).expect("is made");
    for (round, nocheck) in [(1u8, false), (2, true), (3, true)] {
        // SAFETY: the window's memory is read after the test below; nobody has started, by the barrier
        // below and by that of the round before.
        unsafe { window.post(&group, nocheck) }.expect("is posted");
        wait("a barrier", comm.ibarrier().expect("can be entered"));
        // SAFETY: the posts are made, by the barrier.
        unsafe { window.start(&group, nocheck) }.expect("is started");
        let data = vec![round + 10 * rank as u8; BYTES / 2];
        // SAFETY: in bounds; the data stays until it has completed.
        unsafe { window.put(data.as_ptr(), BYTES / 2, peer, BYTES / 4) }.expect("is put");
        window.complete().expect("completes");
        until("the other side of a window", || Ok(window.test()?.then_some(())));
        let value = round + 10 * peer as u8;
        for (offset, expected) in [(0, 0), (BYTES / 4, value), (3 * BYTES / 4 - 1, value), (BYTES - 1, 0)] {
            // SAFETY: in bounds, and nobody writes now.
            assert_eq!(unsafe { base.wrapping_add(offset).read() }, expected, "byte {offset}");
        }
        wait("a barrier", comm.ibarrier().expect("can be entered"));
    }
    drop(group);
    window.free().expect("can be freed");
}

fn locked(comm: &Communicator) {
    let rank = comm.rank().expect("is known");
    let mut numbers = Aligned([5i64; 2]);
    let base: *mut i64 = (&raw mut numbers.0).cast();
    // SAFETY: freed below, before the numbers end.
    let window = unsafe { Window::create(base.cast(), 16, comm) }.expect("is made");
    window.lock_all().expect("is locked");
    let (one, mut before) = (rank as i64 + 1, -1);
    // SAFETY: flushed at once; the offset is that of a number.
    unsafe { window.fetch_add(&one, &raw mut before, 0, 8) }.expect("is added");
    window.flush(0).expect("is flushed");
    assert!((5..8).contains(&before), "found {before}");
    window.unlock_all().expect("is unlocked");
    window.free().expect("can be freed");
    if rank == 0 {
        // SAFETY: in bounds, and the window is no more.
        assert_eq!(unsafe { base.wrapping_add(1).read() }, 5 + 1 + 2);
    }
}

fn errors(comm: &Communicator) {
    let data = [0u8; 4];
    // SAFETY: no send comes of it.
    let error = unsafe { comm.isend(data.as_ptr(), 4, 7, 0) }.expect_err("there is no rank 7");
    let Error::Mpi { call: "MPI_Isend", reason } = &error else { panic!("{error:?}") };
    assert!(reason.contains("rank"), "{reason}");
    // SAFETY: no send comes of it.
    let error = unsafe { comm.send_init(data.as_ptr(), 4, 0, -5) }.expect_err("-5 is no tag");
    assert!(matches!(error, Error::Mpi { call: "MPI_Send_init", .. }), "{error:?}");
    // SAFETY: no send comes of it.
    let error = unsafe { comm.isend(data.as_ptr(), usize::MAX, 0, 0) }.expect_err("is too much");
    assert!(error.to_string().contains("split it"), "{error}");
    // An error leaves the next call alone.
    assert_eq!(comm.size(), Ok(2));

    let mut memory = Aligned([0u8; 2]);
    let base: *mut u8 = (&raw mut memory.0).cast();
    // SAFETY: no window comes of it.
    let error = unsafe { Window::create(base.wrapping_add(1), 1, comm) }.expect_err("lies badly");
    assert!(error.to_string().contains("not aligned"), "{error}");
    // SAFETY: freed below.
    let window = unsafe { Window::create(base, 1, comm) }.expect("is made");
    window.lock_all().expect("is locked");
    // SAFETY: nothing is put.
    let error = unsafe { window.put(data.as_ptr(), 1, 7, 0) }.expect_err("there is no rank 7");
    assert!(matches!(error, Error::Mpi { call: "MPI_Put", .. }), "{error:?}");
    window.unlock_all().expect("is unlocked");
    window.free().expect("can be freed");
}

/// A message that is longer than its receive, among others that are not.
fn truncated(mpi: &'static Mpi, comm: &Communicator) {
    let rank = comm.rank().expect("is known");
    let (sent, mut received) = ([3u8; 8], [[0u8; 4]; 3]);
    if rank == 0 {
        for (tag, bytes) in [(0, 4), (1, 8), (2, 4)] {
            // SAFETY: waited for at once.
            let send = unsafe { comm.isend(sent.as_ptr(), bytes, 1, tag) };
            wait("a send", send.expect("is sent"));
        }
        return;
    }
    let mut set = RequestSet::new(mpi);
    let base: *mut u8 = (&raw mut received).cast();
    for tag in 0..3 {
        // SAFETY: in bounds; used after the set has ended.
        let receive = unsafe { comm.recv_init(base.wrapping_add(4 * tag as usize), 4, 0, tag) };
        set.push(receive.expect("is made"));
    }
    // SAFETY: none is active.
    unsafe { set.start_all(0..3) }.expect("start");
    let mut completed = Vec::new();
    let (mut failed, mut seen) = (None, [0; 3]);
    until("messages", || {
        let active = match set.test_some(&mut completed) {
            Ok(active) => active,
            Err(error) => failed.replace(error).is_none(),
        };
        completed.iter().for_each(|index| seen[*index] += 1);
        Ok((!active).then_some(()))
    });
    let error = failed.expect("one was too long");
    assert!(matches!(error, Error::Mpi { call: "MPI_Testsome", .. }), "{error:?}");
    let said = error.to_string();
    let explained = said.contains("request 1: ") && said.to_lowercase().contains("truncated");
    // What was seen complete in one call, some libraries do not tell apart.
    let among = said.split_once('[').and_then(|(_, rest)| rest.split_once("], the library does not say why"));
    let is_among = among.is_some_and(|(requests, _)| requests.split(", ").any(|request| request == "1"));
    assert!(explained || is_among, "{said}");
    assert_eq!(seen, [1; 3], "{error}");
    drop(set);
    assert_eq!((received[0], received[2]), ([3; 4], [3; 4]));
}

/// Two threads that call at the same time, each on a communicator of its own.
fn several_threads(comm: &Communicator) {
    let peer = 1 - comm.rank().expect("is known");
    let own = [comm.duplicate().expect("can be had"), comm.duplicate().expect("can be had")];
    std::thread::scope(|scope| {
        for (thread, comm) in own.iter().enumerate() {
            scope.spawn(move || {
                let mut received = 0u64;
                for round in 0..500u64 {
                    let sent = 2 * round + thread as u64;
                    let (from, to) = ((&raw const sent).cast(), (&raw mut received).cast());
                    // SAFETY: waited for in this round.
                    let receive = unsafe { comm.irecv(to, 8, peer, 0) }.expect("is posted");
                    // SAFETY: waited for in this round.
                    let send = unsafe { comm.isend(from, 8, peer, 0) }.expect("is sent");
                    wait("a message of a thread", receive);
                    wait("a send of a thread", send);
                    assert_eq!(received, sent);
                    // An error is told to the thread that has made it, and to no other.
                    if thread == 0 {
                        // SAFETY: no send comes of it.
                        assert!(unsafe { comm.isend(from, 8, 9, 0) }.is_err());
                    }
                }
            });
        }
    });
    own.into_iter().for_each(|comm| comm.free().expect("can be freed"));
}
