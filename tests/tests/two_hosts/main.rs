//! Two machines on one: ranks in two network namespaces, whose bytes go over a cable that can be cut.
//! Skipped, with the reason, where this user may not make any.

mod cable;

use cable::{Cable, INTERFACE};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use streamhalo::comm::fabric::FABRICS;
use streamhalo_tests::programs;
use streamhalo_tests::start::{Ended, Started, at_rendezvous, launchers, run};

/// After how long a start is given up.
const LIMIT: Duration = Duration::from_secs(90);
/// After how long a rank of `tried_rank` gives up waiting, in seconds, and how much later it may say so.
const TIMEOUT_S: u64 = 3;
const SLACK_S: u64 = 5;
/// Where rank 0 waits for the others; nobody else is on its host.
const PORT: u16 = 4711;

/// How the ranks of two hosts are brought together.
#[derive(Debug, Clone)]
enum Means {
    /// MPICH, whose launcher takes any program for ssh.
    Mpich(PathBuf),
    /// A rendezvous, and a provider of libfabric.
    Libfabric(&'static str),
}

/// All means that there are here; what there is not is said.
fn means() -> Vec<Means> {
    let mut means = Vec::new();
    match launchers() {
        Ok(found) => match found.into_iter().find(|launcher| launcher.library == "MPICH") {
            Some(launcher) => means.push(Means::Mpich(launcher.program)),
            None => println!("skipped: two hosts over mpi: there is no MPICH"),
        },
        Err(reason) => println!("skipped: two hosts over mpi: {reason}"),
    }
    match FABRICS.iter().find(|row| row.name == "ofi").map(|row| (row.unusable)()) {
        Some(None) => means.extend(["sockets", "tcp"].map(Means::Libfabric)),
        Some(Some(reason)) => println!("skipped: two hosts over ofi: {reason}"),
        None => println!("skipped: two hosts over ofi: this version has no such fabric"),
    }
    means
}

impl Means {
    fn fabric(&self) -> &'static str {
        match self {
            Means::Mpich(_) => "mpi",
            Means::Libfabric(_) => "ofi",
        }
    }

    /// A rank of a program on each host.
    fn commands(&self, cable: &Cable, program: &Path, arguments: &[&str]) -> Vec<Command> {
        match self {
            Means::Mpich(launcher) => {
                let mut command = cable.host(0).command(launcher);
                let wrapper = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/two_hosts/on_host");
                let hosts = [0, 1].map(|number| cable.host(number).address.clone()).join(",");
                command.args(["-launcher", "ssh", "-launcher-exec", wrapper, "-iface", INTERFACE]);
                command.args(["-hosts", &hosts, "-n", "2"]).arg(program).args(arguments);
                command.env("STREAMHALO_TEST_HOSTS", cable.table()).env("STREAMHALO_FABRIC", "mpi");
                let prefix = launcher.parent().and_then(Path::parent).expect("it lies in an installation");
                // The memory of the one machine that these are would be found.
                command.env("STREAMHALO_MPI", prefix).env("UCX_TLS", "tcp").env("UCX_NET_DEVICES", INTERFACE);
                vec![command]
            }
            Means::Libfabric(provider) => [0, 1]
                .map(|rank| {
                    let mut command = cable.host(rank).command(program);
                    let address = format!("{}:{PORT}", cable.host(0).address);
                    at_rendezvous(&mut command, &address, rank, 2, provider);
                    command.args(arguments).env("STREAMHALO_FABRIC", "ofi");
                    command
                })
                .into(),
        }
    }
}

/// Runs a test with all means, or says why it cannot.
fn with_all_means(test: &str, run: impl Fn(&Means, &Cable)) {
    for means in means() {
        match Cable::new(test) {
            Ok(cable) => run(&means, &cable),
            Err(reason) => {
                println!("skipped: two hosts: {reason}");
                return;
            }
        }
    }
}

#[test]
fn life_is_right_and_goes_over_the_cable() {
    // Rows of 128 cells of one byte: in each exchange each rank sends the other both of its edges.
    const STEPS: u64 = 200;
    const ROW: u64 = 128;
    let program = &programs().streamhalo;
    let out = std::env::temp_dir().join(format!("streamhalo-two-hosts-{}", std::process::id()));
    with_all_means("life", |means, cable| {
        let folder = out.display().to_string();
        let config = concat!(env!("CARGO_MANIFEST_DIR"), "/../configs/life/quickstart.toml");
        let steps = format!("app.steps={STEPS}");
        let cells = format!("grid.cells=[{ROW}, {ROW}]");
        let arguments =
            ["run", config, "--fabric", means.fabric(), "--ranks", "2", "--out", &folder, "--quiet"];
        let changes = ["--set", &steps, "--set", &cells, "--set", "run.trials=1"];
        let arguments = [&arguments[..], &changes].concat();
        let before = [0, 1].map(|number| cable.host(number).sent_bytes());
        let ended = run(means.commands(cable, program, &arguments), LIMIT);
        assert!(ended.is_success(), "{means:?}: {ended:#?}");
        let results = std::fs::read_to_string(out.join("results.json")).expect("the run has written it");
        assert!(results.contains("\"verified\": true"), "{means:?}: {results}");
        assert!(!results.contains("\"verified\": false"), "{means:?}: {results}");
        // One trial and one to warm up, with each of five backends.
        let payload = 2 * 5 * STEPS * 2 * ROW;
        for (number, before) in before.into_iter().enumerate() {
            let sent = cable.host(number).sent_bytes() - before;
            assert!(sent > payload, "{means:?}: host {number} has sent {sent} bytes, not {payload}");
        }
        println!("{means:?}: life is right");
        std::fs::remove_dir_all(&out).expect("the run has made it");
    });
}

#[test]
fn a_cut_cable_is_an_error_that_names_the_peer() {
    with_all_means("cut", |means, cable| {
        let folder = std::env::temp_dir().join(format!("streamhalo-cut-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("the folder of temporary files is writable");
        // Not over the launcher, whose own connection is cut as well.
        let said = |rank: usize| folder.join(format!("rank-{rank}"));
        let arguments = ["cut", &*folder.display().to_string()];
        let started =
            Started::new(means.commands(cable, Path::new(env!("CARGO_BIN_EXE_tried_rank")), &arguments));
        let begun = Instant::now();
        let has = |rank: usize, text: &str| {
            std::fs::read_to_string(said(rank)).is_ok_and(|said| said.contains(text))
        };
        while ![0, 1].iter().all(|rank| has(*rank, "runs")) {
            assert!(begun.elapsed() < LIMIT, "{means:?}: the ranks do not begin");
            std::thread::sleep(Duration::from_millis(10));
        }
        cable.cut();
        let cut = Instant::now();
        let names = |rank: usize| has(rank, &format!("rank {}", 1 - rank)) && has(rank, "ended:");
        while ![0, 1].iter().all(|rank| names(*rank)) && cut.elapsed().as_secs() < TIMEOUT_S + SLACK_S {
            std::thread::sleep(Duration::from_millis(10));
        }
        let took = cut.elapsed();
        // A launcher may wait for a host that it does not reach any more.
        let ended: Ended = started.wait(cut.elapsed() + begun.elapsed() + Duration::from_secs(SLACK_S));
        let said = [0, 1].map(|rank| std::fs::read_to_string(said(rank)).unwrap_or_default());
        std::fs::remove_dir_all(&folder).expect("it was made");
        println!("{means:?}: {said:?} after {took:?}");
        for rank in [0, 1] {
            let wanted = format!("rank {}", 1 - rank);
            assert!(
                said[rank].lines().any(|line| line.starts_with("ended:") && line.contains(&wanted)),
                "{means:?}: rank {rank} does not name its peer within {took:?}: {said:#?}, {ended:#?}"
            );
        }
    });
}
