//! Packets and bulk transfers between processes, over every library that is here.
//!
//! The test starts its own program as two or three ranks on a test that is ignored otherwise: by each MPI
//! launcher that `STREAMHALO_TEST_MPIEXEC` names, and at a rendezvous for each provider of libfabric.

mod cases;
mod gets;
mod goodbyes;
mod pairs;

use super::Envelope;
use super::state::LARGEST;
use crate::fabric::ofi::providers;
use crate::{Error, World, WorldOptions};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Colon-separated paths of `mpiexec` programs.
const LAUNCHERS: &str = "STREAMHALO_TEST_MPIEXEC";
/// How long any wait of a rank may take, and how long all ranks together.
const PATIENCE: Duration = Duration::from_secs(40);
const LIMIT: Duration = Duration::from_secs(120);
const ARGUMENTS: [&str; 4] = ["--exact", "fabric::messaging::tests::a_rank", "--ignored", "--nocapture"];
/// Has the last rank fail, and the others say in this folder that they have seen it.
const FAILURE: &str = "STREAMHALO_TEST_FAILURE";

/// Runs processes, which are to end well.
fn run(what: &str, commands: Vec<Command>) {
    let started = Instant::now();
    let ended = all_ended(commands, true);
    assert!(ended.iter().all(|status| status.is_some_and(|status| status.success())), "{what}: {ended:?}");
    eprintln!("{what}: {:.1} s", started.elapsed().as_secs_f64());
}

/// Runs ranks of which one fails: the others see it, and all end by themselves.
fn run_failing(what: &str, ranks: usize, mut commands: Vec<Command>) {
    static RUNS: AtomicU32 = AtomicU32::new(0);
    let run = RUNS.fetch_add(1, Ordering::Relaxed);
    let folder = std::env::temp_dir().join(format!("streamhalo-packets-{}-{run}", std::process::id()));
    std::fs::create_dir(&folder).expect("a folder can be made");
    for command in &mut commands {
        command.env(FAILURE, &folder);
    }
    let ended = all_ended(commands, false);
    let seen: Vec<bool> = (0..ranks - 1).map(|rank| folder.join(rank.to_string()).exists()).collect();
    let _ = std::fs::remove_dir_all(&folder);
    assert!(ended.iter().all(Option::is_some), "{what}: {ended:?}");
    assert!(seen.iter().all(|seen| *seen), "{what}: who has seen the failure: {seen:?}");
}

/// How processes have ended, none of which stays behind; nothing of those that have not. If `is_brief`, they do
/// not go on when one has failed.
fn all_ended(mut commands: Vec<Command>, is_brief: bool) -> Vec<Option<ExitStatus>> {
    let end = Instant::now() + LIMIT;
    let mut ranks: Vec<Child> =
        commands.iter_mut().map(|command| command.spawn().expect("a program starts")).collect();
    let mut ended = vec![None; ranks.len()];
    while Instant::now() < end && ended.contains(&None) {
        std::thread::sleep(Duration::from_millis(5));
        for (rank, ended) in ranks.iter_mut().zip(&mut ended).filter(|(_, ended)| ended.is_none()) {
            *ended = rank.try_wait().expect("a child can be waited for");
        }
        if is_brief && ended.iter().flatten().any(|status: &ExitStatus| !status.success()) {
            break;
        }
    }
    for rank in &mut ranks {
        let _ = rank.kill();
        let _ = rank.wait();
    }
    ended
}

fn this_program() -> PathBuf {
    std::env::current_exe().expect("a running program has a file")
}

#[test]
fn packets_of_strangers_are_refused() {
    let check = |source, length| Envelope { source, length: length as u16, channel: 0 }.check(3);
    assert_eq!((check(0, 0), check(2, LARGEST)), (Ok(()), Ok(())));
    for (source, length) in [(3, 0), (u32::MAX, 1), (1, LARGEST + 1)] {
        let Err(Error::System { reason, .. }) = check(source, length) else { panic!("{source} {length}") };
        assert!(reason.contains(&format!("rank {source} of 3 has sent {length} bytes")), "{reason}");
    }
}

/// One test, for one job at a time: ranks outnumber the cores as it is, and tests that wait can run beside it.
#[test]
fn over_every_library() {
    over_every_mpi();
    over_every_provider();
}

fn over_every_mpi() {
    let Some(list) = std::env::var_os(LAUNCHERS).filter(|list| !list.is_empty()) else {
        eprintln!("skipped: {LAUNCHERS} names no mpiexec");
        return;
    };
    for launcher in std::env::split_paths(&list) {
        let command = |ranks: usize, threads: &str| {
            let mut command = Command::new(&launcher);
            command.args(["-n", &ranks.to_string()]).arg(this_program()).args(ARGUMENTS);
            // Open MPI wants to be told that root may start it, and that there are more ranks than cores; Intel
            // MPI where it is, and to stay on the machine.
            command.envs([("OMPI_ALLOW_RUN_AS_ROOT", "1"), ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")]);
            command.env("PRTE_MCA_rmaps_default_mapping_policy", ":oversubscribe");
            command.env("I_MPI_FABRICS", "shm");
            if let Some(prefix) = launcher.parent().and_then(Path::parent) {
                command.env("I_MPI_ROOT", prefix);
            }
            if threads == "funneled" {
                command.env("STREAMHALO_MPI_THREADS", threads);
            }
            vec![command]
        };
        for (ranks, threads) in [(2, "multiple"), (2, "funneled"), (3, "multiple")] {
            let what = format!("{}, {ranks} ranks, {threads}", launcher.display());
            run(&what, command(ranks, threads));
            run_failing(&what, ranks, command(ranks, threads));
        }
    }
}

fn over_every_provider() {
    let known = match providers() {
        Ok(known) => known,
        Err(error) => {
            eprintln!("skipped: {error}");
            return;
        }
    };
    for (provider, ranks) in [("sockets", 2), ("tcp", 2), ("shm", 2), ("tcp", 3)] {
        let is_it = |name: &str| name.split(';').any(|part| part == provider);
        if !known.iter().any(|one| is_it(&one.name) && one.unusable.is_none()) {
            eprintln!("skipped: this libfabric has no usable provider `{provider}`");
            continue;
        }
        let commands = || {
            let free = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
            let port = free.expect("a port is free").port();
            let rank = |rank: usize| {
                let mut command = Command::new(this_program());
                command.args(ARGUMENTS).env("STREAMHALO_RENDEZVOUS", format!("127.0.0.1:{port}"));
                command.env("STREAMHALO_RANK", rank.to_string()).env("STREAMHALO_SIZE", ranks.to_string());
                command.env("STREAMHALO_JOB_KEY", format!("{:064x}", std::process::id()));
                command.env("STREAMHALO_OFI_PROVIDER", provider);
                command
            };
            (0..ranks).map(rank).collect()
        };
        let what = format!("{provider}, {ranks} ranks");
        run(&what, commands());
        run_failing(&what, ranks, commands());
    }
}

#[test]
#[ignore = "is run as two ranks or three"]
fn a_rank() {
    let options = WorldOptions { timeout: Some(PATIENCE), ..WorldOptions::default() };
    let world = World::from_env_with(options).expect("ranks were started");
    assert!(world.size() > 1, "one rank has nobody to talk to");
    if let Some(folder) = std::env::var_os(FAILURE) {
        cases::failure(world, Path::new(&folder));
        return;
    }
    for (name, case) in cases::ALL.iter().chain(goodbyes::ALL).chain(pairs::ALL).chain(gets::ALL) {
        let started = Instant::now();
        case(&world).unwrap_or_else(|error| {
            world.fail(&format!("{name}: {error}"));
            panic!("{name}: {error}")
        });
        world.barrier().expect("all ranks come");
        if world.rank() == 0 && std::env::var_os("STREAMHALO_TEST_TIMES").is_some() {
            eprintln!("  {name}: {:.3} s", started.elapsed().as_secs_f64());
        }
    }
}
