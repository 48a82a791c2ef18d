//! Ranks over libfabric that meet at a rendezvous: started by the program itself, or one by one.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use streamhalo::comm::fabric::FABRICS;
use streamhalo::comm::fabric::rendezvous::{JobKey, ReservedPort};

use super::bench::{assert_timed, each_bench};
use super::launched::has_waited;
use super::{BACKENDS, Folder, SMALL, assert_verified, checksums, finish, signal, text, ticks, until};

/// Whether libfabric can be used here; says so if not.
pub(crate) fn has_libfabric() -> bool {
    let row = FABRICS.iter().find(|row| row.name == "ofi").expect("is registered");
    match (row.unusable)() {
        None => true,
        Some(reason) => {
            eprintln!("skipped: {reason}");
            false
        }
    }
}

#[test]
fn own_processes_give_the_answer_of_threads() {
    if !has_libfabric() {
        return;
    }
    let folder = Folder::new();
    let local = folder.records(SMALL, &[]);
    for (fabric, executors) in [("ofi", ["nic", "proxy"]), ("shm+ofi", ["stream", "stream"])] {
        let output = folder.run(SMALL, &[&format!("comm.fabric={fabric}")]);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{said}");
        assert!(said.contains("\nexecutor: host (standard), "), "{said}");
        assert!(said.contains("\nlibrary:  libfabric "), "{said}");
        let records = folder.records_there();
        assert_eq!(records.len(), 3 * BACKENDS.len());
        assert_verified(&records);
        assert_eq!(checksums(&records), checksums(&local));
        for run in &records {
            let executor = run["executor"].as_str().expect("is text");
            let expected = if run["backend"] == "standard" { ["host"; 2] } else { executors };
            assert!(expected.contains(&executor) && run["fabric"] == fabric, "{run}");
        }
    }
}

/// An interactive shell under Slurm, which is a step of one task.
#[test]
fn the_only_process_of_a_launcher_starts_ranks() {
    if !has_libfabric() {
        return;
    }
    for fabric in ["ofi", "shm+ofi"] {
        let folder = Folder::new();
        let mut command = folder.command(env!("CARGO_BIN_EXE_streamhalo"));
        command.arg("run").arg(folder.write("config.toml", SMALL)).arg("--out").arg(folder.out());
        command.args(["--fabric", fabric, "--ranks", "2", "--backend", "st-send"]);
        command.envs([("SLURM_PROCID", "0"), ("SLURM_STEP_NUM_TASKS", "1")]);
        let output = finish(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn());
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        assert_verified(&folder.records_there());
    }
}

#[test]
fn primitives_are_timed_between_own_processes() {
    if !has_libfabric() {
        return;
    }
    let folder = Folder::new();
    for (bench, arguments) in each_bench("ofi") {
        let output = folder.streamhalo(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
        assert_eq!(output.status.code(), Some(0), "{bench}: {}", text(&output.stderr));
        assert_timed(bench, "ofi", &text(&output.stdout));
    }
}

/// An endless game of two ranks over `ofi`, in which both are at work.
fn under_way(folder: &Folder, timeout_s: &str) -> Child {
    let set = ["app.steps=1000000000", "run.ranks=2", "run.verify=false", "comm.backend=['st-send']"];
    let timeout = format!("comm.timeout_s={timeout_s}");
    let child = folder.start(SMALL, &[&set[..], &["comm.fabric=ofi", &timeout]].concat());
    let at_work = || folder.workers().into_iter().filter(|worker| ticks(*worker) > Some(20)).count() == 2;
    until("the ranks are at work", at_work);
    child
}

fn ends(folder: &Folder, child: Child, status: Option<i32>) -> String {
    let since = Instant::now();
    let output = finish(Ok(child));
    let said = text(&output.stderr);
    assert!(since.elapsed() < Duration::from_secs(10), "took {:?}: {said}", since.elapsed());
    assert_eq!(output.status.code(), status, "{said}");
    until("all processes have ended", || folder.processes().is_empty());
    said
}

#[test]
fn own_processes_end_together() {
    if !has_libfabric() {
        return;
    }
    let folder = Folder::new();
    let child = under_way(&folder, "10");
    signal("-KILL", folder.workers()[1]);
    let said = ends(&folder, child, Some(1));
    assert!(said.contains("error: rank ") && said.contains("(st-send, 2 ranks, trial 0)"), "{said}");

    let child = under_way(&folder, "10");
    signal("-INT", child.id());
    ends(&folder, child, Some(130));

    let child = under_way(&folder, "10");
    signal("-KILL", child.id());
    ends(&folder, child, None);
}

/// Whichever it is, also the one that leads.
#[test]
fn a_silent_rank_is_named_by_those_that_wait_for_it() {
    if !has_libfabric() {
        return;
    }
    for silent in [0, 1] {
        let folder = Folder::new();
        let child = under_way(&folder, "2");
        let rank = format!("STREAMHALO_RANK={silent}");
        let is_silent = |worker: &u32| {
            let environment = std::fs::read(format!("/proc/{worker}/environ")).expect("it runs");
            environment.split(|byte| *byte == 0).any(|variable| variable == rank.as_bytes())
        };
        signal("-STOP", folder.workers().into_iter().find(is_silent).expect("it runs"));
        let said = ends(&folder, child, Some(1));
        let who = format!("error: rank {} failed: rank {0} waited ", 1 - silent);
        assert!(said.contains(&who) && has_waited(&said), "{said}");
        assert!(said.contains(&format!("of rank {silent}")), "{said}");
    }
}

/// The process of one rank, as a person starts it, of a run.
fn rank(folder: &Folder, address: &str, key: &str, number: usize, more: &[&str]) -> Command {
    let mut command = rank_of("run", folder, address, key, number);
    command.arg("--out").arg(folder.out()).args(more);
    command
}

/// The same, of a command.
fn rank_of(what: &str, folder: &Folder, address: &str, key: &str, number: usize) -> Command {
    let config = folder.path().join("config.toml");
    if !config.exists() {
        // Not while another rank reads it.
        folder.write("config.toml", SMALL);
    }
    let mut command = folder.command(env!("CARGO_BIN_EXE_streamhalo"));
    command.arg(what).arg(config);
    command.args(["--fabric", "ofi", "--rank-zero", address, "--world-size", "2"]);
    command.args(["--rank", &number.to_string()]).env("STREAMHALO_JOB_KEY", key);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

#[test]
fn processes_that_were_started_one_by_one_are_ranks() {
    if !has_libfabric() {
        return;
    }
    let folder = Folder::new();
    let port = ReservedPort::on([127, 0, 0, 1].into()).expect("there is a port");
    let (address, key) = (port.address().to_string(), JobKey::generate().expect("is random").to_hex());
    let start = |number: usize, more: &[&str]| rank(&folder, &address, &key, number, more).spawn();

    let second = start(1, &["--ranks", "1,2"]);
    let first = finish(start(0, &["--ranks", "1,2"]));
    let second = finish(second);
    assert_eq!(first.status.code(), Some(0), "{}", text(&first.stderr));
    assert_eq!(
        (second.status.code(), text(&second.stdout), text(&second.stderr)),
        (Some(0), String::new(), String::new())
    );
    assert!(
        text(&first.stderr).contains("\nranks:    2 ranks, started one by one\n"),
        "{}",
        text(&first.stderr)
    );
    assert_verified(&folder.records_there());

    // So are those that are asked how their messages travel, over what they really run over.
    let explain = |number| rank_of("explain", &folder, &address, &key, number).args(["--ranks", "2"]).spawn();
    let second = explain(1);
    let first = finish(explain(0));
    let second = finish(second);
    assert_eq!((first.status.code(), second.status.code()), (Some(0), Some(0)), "{}", text(&first.stderr));
    assert!(text(&first.stdout).contains("fabric ofi"), "{}", text(&first.stdout));
    assert_eq!(text(&second.stdout), "");

    // What is for more of them says how these were started.
    let second = start(1, &["--ranks", "3"]);
    let first = finish(start(0, &["--ranks", "3"]));
    assert_eq!((first.status.code(), finish(second).status.code()), (Some(2), Some(2)));
    let said = "run.ranks: asks for 3 ranks, but they were started with `--world-size 2`; start them with `--world-size 3`, or";
    assert!(text(&first.stderr).contains(said), "{}", text(&first.stderr));

    // Those that differ end together here too, and rank 0 says why.
    let second = start(1, &["--ranks", "2"]);
    let first = finish(start(0, &["--ranks", "1,2"]));
    let second = finish(second);
    assert_eq!((first.status.code(), second.status.code()), (Some(2), Some(2)), "{}", text(&first.stderr));
    assert!(text(&first.stderr).contains("rank 1 was not started as the others were: its `run.ranks`"));
    assert_eq!(text(&second.stderr), "");
}

/// Rank 0 would wait for the other one as long as ranks may wait for each other.
#[test]
fn a_rank_of_a_bench_with_a_mistake_tells_the_others() {
    if !has_libfabric() {
        return;
    }
    let folder = Folder::new();
    for (bench, wrong) in [
        ("pingpong", ["--backend", "none"]),
        ("latency", ["--primitive", "none"]),
        ("throttle", ["--policy", "none"]),
        ("collectives", ["--sizes", "9"]),
    ] {
        let port = ReservedPort::on([127, 0, 0, 1].into()).expect("there is a port");
        let (address, key) = (port.address().to_string(), JobKey::generate().expect("is random").to_hex());
        let start = |number: &str, more: &[&str]| {
            let mut command = folder.command(env!("CARGO_BIN_EXE_streamhalo"));
            command.args(["bench", bench, "--fabric", "ofi", "--rank-zero", &address, "--world-size", "2"]);
            command.args(["--rank", number]).args(more).env("STREAMHALO_JOB_KEY", &key);
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()
        };
        let since = Instant::now();
        let second = start("1", &wrong);
        let first = finish(start("0", &[]));
        let said = [&first, &finish(second)].map(|output| text(&output.stderr)).concat();
        assert_eq!(first.status.code(), Some(2), "{bench}: {said}");
        assert!(said.contains(wrong[0]) && since.elapsed() < Duration::from_secs(30), "{bench}: {said}");
    }
}

/// Whoever comes first, and whoever finds nobody.
#[test]
fn ranks_are_looked_for_as_long_as_the_configuration_says() {
    let folder = Folder::new();
    let port = ReservedPort::on([127, 0, 0, 1].into()).expect("there is a port");
    let (address, key) = (port.address().to_string(), JobKey::generate().expect("is random").to_hex());
    for (number, who) in [(0, "rank 1 did not come within "), (1, "rank 0 was not found there within ")] {
        let since = Instant::now();
        let output = finish(rank(&folder, &address, &key, number, &["--set", "comm.timeout_s=1"]).spawn());
        let (said, took) = (text(&output.stderr), since.elapsed());
        assert!(output.status.code() == Some(1) && said.contains(who), "{said}");
        // By itself it is twice as long.
        assert!(took < Duration::from_secs(30), "{took:?}");
    }
}

#[test]
fn ranks_of_a_launcher_without_mpi_are_told_how_to_meet() {
    let folder = Folder::new();
    for fabric in ["ofi", "shm+ofi"] {
        let mut command = folder.command(env!("CARGO_BIN_EXE_streamhalo"));
        command.args(["bench", "halo", "--layout", "2", "--cells", "8", "--fabric", fabric]);
        command.envs([("PMI_SIZE", "2"), ("PMI_RANK", "0"), ("STREAMHALO_MPI", "/nowhere/libmpi.so")]);
        let output = finish(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn());
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        let head =
            format!("a launcher (PMI_SIZE=2) meet through MPI over the fabric `{fabric}`, and MPI cannot");
        let way = format!("--fabric {fabric} --rank-zero HOST:PORT --world-size N --rank R`");
        assert!(said.contains(&head) && said.contains("hint: ") && said.contains(&way), "{said}");
    }
}

#[test]
fn flags_of_a_rendezvous_that_make_no_rank() {
    let folder = Folder::new();
    let said = |number: usize, more: &[&str]| {
        let mut command = rank(&folder, "127.0.0.1:9", "", number, more);
        let output = finish(command.env_remove("STREAMHALO_JOB_KEY").spawn());
        assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
        text(&output.stderr)
    };
    assert!(said(0, &[]).contains("STREAMHALO_JOB_KEY"));
    assert!(said(2, &[]).contains("error: --rank: 2 is none of the 2 ranks"));
}
