//! The layer on real libraries: two ranks, for each launcher that `STREAMHALO_TEST_MPIEXEC` names.

use super::library::VARIABLE;
use super::search::{Place, candidates};
use super::{Communicator, Group, Mpi, Request, RequestSet, Status, ThreadLevel, Window};
use crate::error::{Error, Result};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// Colon-separated paths of `mpiexec` programs.
const LAUNCHERS: &str = "STREAMHALO_TEST_MPIEXEC";
/// What the ranks run.
const INNER: &str = "fabric::mpi::tests::two_ranks";

/// A wait that never ends would keep the launcher waiting too.
fn until<T>(what: &str, mut done: impl FnMut() -> Result<Option<T>>) -> T {
    let start = Instant::now();
    loop {
        match done() {
            Ok(Some(value)) => return value,
            Ok(None) => {}
            Err(error) => panic!("{what}: {error}"),
        }
        assert!(start.elapsed() < Duration::from_secs(30), "{what} does not come");
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

/// Runs two ranks, and returns whether they succeeded, with all that they said.
fn run(launcher: &Path, variables: &[(&str, &Path)]) -> (bool, String) {
    let this = std::env::current_exe().expect("a running program has a file");
    let mut command = Command::new(launcher);
    command.args(["-n", "2"]).arg(this).args(["--exact", INNER, "--ignored", "--nocapture"]);
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
        let (success, said) = run(&launcher, &[]);
        assert!(success && said.contains("two ranks have passed"), "{}: {said}", launcher.display());
        eprintln!("{}: {}", launcher.display(), result_line(&said));
        // An installation may have a library for each interface; the launcher serves all of them.
        let program = std::fs::canonicalize(&launcher).expect("was run");
        let prefix = program.parent().and_then(Path::parent).expect("lies in a folder of an installation");
        let mut seen = Vec::new();
        for candidate in candidates(Some(prefix), &super::launcher::Launcher::default()) {
            let Place::File(library) = candidate.place else { continue };
            let Ok(file) = std::fs::canonicalize(&library) else { continue };
            // What lies in the folders of a distribution is not this launcher's alone.
            if seen.contains(&file) || prefix == Path::new("/usr") {
                continue;
            }
            seen.push(file);
            let (success, said) = run(&launcher, &[(VARIABLE, &library)]);
            assert!(success && said.contains(&*library.to_string_lossy()), "{}: {said}", library.display());
            eprintln!("{}: {}", launcher.display(), result_line(&said));
        }
    }
}

/// What the ranks said at their end; the test harness may have written before it on the same line.
fn result_line(said: &str) -> &str {
    said.lines().find_map(|line| line.find("two ranks have passed").map(|at| &line[at..])).unwrap_or_default()
}

#[test]
#[ignore = "is run by an MPI launcher with two ranks"]
fn two_ranks() {
    let mpi = Mpi::get().expect("there is a library");
    let level = mpi.start().expect("it starts");
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

    first_ranks(&comm);
    messages(&comm);
    collectives(&comm);
    persistent(mpi, &comm);
    windows(&comm);
    locked(&comm);
    errors(&comm);

    wait("a barrier", comm.ibarrier().expect("can be entered"));
    if comm.rank() == Ok(0) {
        println!(
            "two ranks have passed: {} ({}, {level}, partitioned {}): {}",
            mpi.path().display(),
            mpi.abi(),
            mpi.has_partitioned(),
            super::launcher::first_line(&mpi.library_version().expect("is known")),
        );
    }
    comm.free().expect("can be freed");
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

fn windows(comm: &Communicator) {
    const BYTES: usize = 4096;
    let rank = comm.rank().expect("is known");
    let peer = 1 - rank;
    let mut memory = vec![0u8; BYTES];
    let base = memory.as_mut_ptr();
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
    group.free().expect("can be freed");
    window.free().expect("can be freed");
}

fn locked(comm: &Communicator) {
    let rank = comm.rank().expect("is known");
    let mut numbers = vec![5i64; 512];
    let base: *mut i64 = numbers.as_mut_ptr();
    // SAFETY: freed below, before the numbers are.
    let window = unsafe { Window::create(base.cast(), 4096, comm) }.expect("is made");
    window.lock_all().expect("is locked");
    let (one, mut before) = (rank as i64 + 1, -1);
    // SAFETY: flushed at once; the offset is that of a number.
    unsafe { window.fetch_add(&one, &raw mut before, 0, 8) }.expect("is added");
    window.flush(0).expect("is flushed");
    assert!((5..8).contains(&before), "found {before}");
    window.unlock_all().expect("is unlocked");
    window.free().expect("can be freed");
    if rank == 0 {
        assert_eq!(numbers[1], 5 + 1 + 2);
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

    let mut number = 0u8;
    // SAFETY: freed below.
    let window = unsafe { Window::create(&raw mut number, 1, comm) }.expect("is made");
    window.lock_all().expect("is locked");
    // SAFETY: nothing is put.
    let error = unsafe { window.put(data.as_ptr(), 1, 7, 0) }.expect_err("there is no rank 7");
    assert!(matches!(error, Error::Mpi { call: "MPI_Put", .. }), "{error:?}");
    window.unlock_all().expect("is unlocked");
    window.free().expect("can be freed");
}
