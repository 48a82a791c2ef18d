//! Ranks that an MPI launcher has started: one answer, one error, one exit status.
//!
//! `STREAMHALO_TEST_MPIEXEC` names the launchers, separated by colons. Each test goes over all of them.

use std::fs;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;

use super::bench::{assert_timed, each_bench};
use super::launchers::{Launcher, each_launcher, each_launcher_at_once, in_turn};
use super::rendezvous::has_libfabric;
use super::{BACKENDS, Folder, OCCUPIED, SMALL, assert_verified, checksums, signal, text, until};

/// A game that would take hours.
const ENDLESS: [&str; 5] = [
    "app.steps=1000000000",
    "run.verify=false",
    "comm.backend=['st-send']",
    "comm.fabric=mpi",
    "comm.timeout_s=2",
];

/// The arguments of a run of the small configuration with values laid over it.
fn run_of(folder: &Folder, set: &[&str]) -> Vec<String> {
    arguments_of(folder, SMALL, set)
}

/// The arguments of a run of that configuration with values laid over it.
pub(super) fn arguments_of(folder: &Folder, config: &str, set: &[&str]) -> Vec<String> {
    let config = folder.write("config.toml", config);
    let mut arguments = vec!["run".to_owned(), config.display().to_string()];
    arguments.extend(["--out".to_owned(), folder.out().display().to_string()]);
    arguments.extend(set.iter().flat_map(|one| ["--set".to_owned(), (*one).to_owned()]));
    arguments
}

fn count(text: &str, part: &str) -> usize {
    text.matches(part).count()
}

#[test]
fn every_backend_gives_the_answer_of_threads() {
    let local = Folder::new();
    let local = local.records(SMALL, &[]);
    each_launcher(|launcher| {
        let mut fabrics = vec![("mpi", ["proxy", "host"]), ("shm+mpi", ["stream", "stream"])];
        if has_libfabric() {
            fabrics.extend([("ofi", ["nic", "proxy"]), ("shm+ofi", ["stream", "stream"])]);
        }
        for (fabric, executors) in fabrics {
            let folder = Folder::new();
            let output =
                launcher.streamhalo(&folder, 4, &run_of(&folder, &[&format!("comm.fabric={fabric}")]));
            let (said, table) = (text(&output.stderr), text(&output.stdout));
            assert_eq!(output.status.code(), Some(0), "{said}");
            let records = folder.records_there();
            assert_eq!(records.len(), 3 * BACKENDS.len());
            assert_verified(&records);
            assert_eq!(checksums(&records), checksums(&local));
            for run in &records {
                let executor = run["executor"].as_str().expect("is text");
                let expected = if run["backend"] == "standard" { ["host"; 2] } else { executors };
                assert!(expected.contains(&executor) && run["fabric"] == fabric, "{run}");
            }
            // Whatever is printed or written comes from one rank.
            for part in ["life: 24 x 40 cells", "Speed-up: over standard at 1 rank"] {
                assert_eq!(count(&table, part), 1, "{table}");
            }
            for part in [
                "launcher: has started 4 ranks\n",
                "library:  ",
                "executor: host (standard), ",
                "results in ",
            ] {
                assert_eq!(count(&said, part), 1, "{part}: {said}");
            }
            let files = fs::read_dir(folder.out()).expect("was made").count();
            assert_eq!(files, 5, "results.json, results.csv, speedup.svg, time.svg and final.rle");
        }
    });
}

#[test]
fn a_library_for_one_thread_is_called_by_the_host() {
    each_launcher(|launcher| {
        let folder = Folder::new();
        let mut command = launcher.command(&folder, 2);
        let arguments = run_of(&folder, &["run.ranks=2", "comm.fabric=mpi"]);
        command.env("STREAMHALO_MPI_THREADS", "funneled").arg(Launcher::PROGRAM).args(arguments);
        let output = launcher.finish(command);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{said}");
        let line = "executor: host (standard, st-send, st-rsend, active-rma, notified)\n";
        assert!(said.contains(line), "{said}");
        let records = folder.records_there();
        assert_verified(&records);
        assert!(records.iter().all(|run| run["executor"] == "host"), "{records:?}");
    });
}

/// Values laid over the small configuration of all ranks, and what one of them must say.
const REFUSED: &[(&[&str], &str)] = &[
    (&["comm.fabric=mpi", "run.ranks=[1, 3]"], "run.ranks: asks for 3 ranks, but the launcher has started 2"),
    (&["comm.fabric=local"], "each of the 2 processes would start ranks of its own"),
    (&["comm.fabric=shm"], "each of the 2 processes would start ranks of its own"),
    (&["comm.fabric=mpi", "run.rank=2"], "unknown key `rank`"),
    (&["comm.fabric=shm-mpi"], "did you mean `shm+mpi`?"),
    (&["comm.fabric=mpi", "app.pattern=absent.rle"], "there is no file absent.rle"),
    (&["comm.fabric=mpi", "run.ranks=2", "grid.cells=[1, 1]"], "at 2 ranks: "),
];

#[test]
fn what_is_wrong_on_all_ranks_is_said_once() {
    in_turn(REFUSED, |launcher, (set, part)| {
        let folder = Folder::new();
        let run = Ranks::wrapped(&folder, "", &run_of(&folder, set));
        let output = launcher.finish(run.command(launcher, 2));
        run.refused(&output.stderr, 2, part);
        assert!(!folder.out().exists(), "{set:?}");
    });
}

/// What rank 0 does at the end by itself.
#[test]
fn results_that_cannot_be_written_are_said_once_with_what_to_do() {
    each_launcher(|launcher| {
        let folder = Folder::new();
        fs::create_dir_all(folder.out().join("results.csv")).expect("can write");
        let set = ["comm.fabric=mpi", "run.ranks=2", "comm.backend=st-send"];
        let output = launcher.streamhalo(&folder, 2, &run_of(&folder, &set));
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert_eq!(count(&said, "error: cannot replace "), 1, "{said}");
        assert_eq!(count(&said, "hint: a folder has the name of the file"), 1, "{said}");
    });
}

/// What rank 1 alone is given besides, and what must be said of it.
const DIFFERENT: &[(&str, &str)] = &[
    (
        "--set run.trials=3",
        "error: rank 1 was not started as the others were: its `run.trials` is 3, that of rank 0 is 1",
    ),
    ("--ranks 1,5", "error: rank 1: run.ranks: asks for 5 ranks"),
    (
        "--set comm.fabric=shm+mpi",
        "error: rank 1 was not started as the others were: it runs another version",
    ),
    ("--set comm.fabric=local", "error: rank 1: `streamhalo run` was started by a launcher"),
    ("--backend st-sent", "error: rank 1: --backend st-sent: "),
    ("--nonsense", "error: rank 1: unexpected argument '--nonsense'"),
];

#[test]
fn ranks_that_were_started_differently_end_together() {
    let over_mpi = format!("{SMALL}comm.fabric = 'mpi'\n");
    in_turn(DIFFERENT, |launcher, (odd, part)| {
        let folder = Folder::new();
        let run = Ranks::wrapped(&folder, odd, &arguments_of(&folder, &over_mpi, &[]));
        let output = launcher.finish(run.command(launcher, 4));
        run.refused(&output.stderr, 4, part);
        assert!(!folder.out().exists(), "{odd}");
    });
}

/// Every rank makes its own cells of the pattern; one of them has another file.
#[test]
fn a_wrong_answer_is_the_exit_status_of_all() {
    each_launcher(|launcher| {
        let folder = Folder::new();
        for (rank, cells) in ["3o", "3b", "3o"].iter().enumerate() {
            let own = folder.path().join(rank.to_string());
            fs::create_dir(&own).expect("can write");
            fs::write(own.join("row.rle"), format!("x = 3, y = 1\n{cells}!\n")).expect("can write");
            let config = SMALL.replace("random:7", "row.rle");
            fs::write(own.join("config.toml"), config).expect("can write");
        }
        let out = folder.out().display().to_string();
        let set = ["run.ranks=3", "run.layout=[[1, 3]]", "comm.fabric=mpi"];
        let mut arguments: Vec<String> = ["run", "config.toml", "--out", &out].map(str::to_owned).into();
        arguments.extend(set.iter().flat_map(|one| ["--set".to_owned(), (*one).to_owned()]));
        let run = Ranks::wrapped(&folder, "", &arguments);
        let output = launcher.finish(run.command(launcher, 3));
        let (said, table) = (text(&output.stderr), text(&output.stdout));
        assert_eq!(output.status.code(), Some(1), "{said}");
        run.all_end_with("1", 3);
        for backend in BACKENDS {
            assert_eq!(
                count(&said, &format!("verification failed: {backend}, 3 ranks, trial 0: ")),
                1,
                "{said}"
            );
        }
        assert_eq!(count(&table, "Verification FAILED in 5 of 5 runs."), 1, "{table}");
        assert!(folder.records_there().iter().all(|record| record["verified"] == false));
    });
}

/// Whether somebody says to have waited for the time-out of two seconds, and hardly longer.
pub(super) fn has_waited(said: &str) -> bool {
    let seconds =
        said.split("waited ").nth(1).and_then(|rest| rest.split(" s for").next()?.parse::<u64>().ok());
    seconds.is_some_and(|seconds| (2..=5).contains(&seconds))
}

/// Stops one of a number of ranks in the middle of an endless game, and gives what is said of it.
fn without_an_answer_of(launcher: &Launcher, rank: usize, of: usize) -> String {
    let folder = Folder::new();
    let mut command = launcher.command(&folder, of);
    let ranks = format!("run.ranks={of}");
    command.arg(Launcher::PROGRAM).args(run_of(&folder, &[&ENDLESS[..], &[&ranks]].concat()));
    let child = command.spawn().expect("the launcher starts");
    let ranks = launcher.ranks_at_work(&folder, of);
    let (_, process) = ranks.iter().find(|(number, _)| *number == rank).expect("all are there");
    signal("-STOP", *process);
    let output = super::finish(Ok(child));
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    until("all processes have ended", || folder.processes().is_empty());
    // Rank 0 may have been killed, and what says that it writes there stays then.
    let left =
        fs::read_dir(folder.out()).expect("was made").map(|entry| entry.expect("is readable").file_name());
    assert!(left.into_iter().all(|name| name == OCCUPIED), "{said}");
    said
}

#[test]
fn a_rank_that_does_not_answer_ends_all() {
    each_launcher_at_once(|launcher| {
        let said = without_an_answer_of(launcher, 2, 3);
        assert_eq!(count(&said, "error: rank "), 1, "{said}");
        assert!(has_waited(&said) && said.contains("(st-send, 3 ranks, trial 0)"), "{said}");
    });
}

/// It is the one that prints otherwise. There are two: of three, one may wait for the other, which
/// waits for rank 0, and be the first whose time is up.
#[test]
fn where_rank_0_does_not_answer_another_says_so() {
    each_launcher_at_once(|launcher| {
        let said = without_an_answer_of(launcher, 0, 2);
        // A launcher may wake rank 0 before it ends it, which then has waited too.
        assert!(count(&said, "error: rank ") >= 1, "{said}");
        assert!(has_waited(&said) && said.contains("of rank 0"), "{said}");
    });
}

#[test]
fn ctrl_c_and_the_death_of_a_rank_end_all_and_leave_earlier_results() {
    each_launcher_at_once(|launcher| {
        for rank in [None, Some(1)] {
            let folder = Folder::new();
            folder.records(SMALL, &["run.ranks=1"]);
            let earlier = folder.read_out("results.json");
            let mut command = launcher.command(&folder, 3);
            command.arg(Launcher::PROGRAM).args(run_of(&folder, &[&ENDLESS[..], &["run.ranks=3"]].concat()));
            let child = command.spawn().expect("the launcher starts");
            let ranks = launcher.ranks_at_work(&folder, 3);
            match rank {
                None => signal("-INT", child.id()),
                Some(rank) => signal("-KILL", ranks[rank].1),
            }
            let since = std::time::Instant::now();
            let output = super::finish(Ok(child));
            assert!(since.elapsed() < Duration::from_secs(20), "{}", text(&output.stderr));
            assert_ne!(output.status.code(), Some(0), "{}", text(&output.stderr));
            until("all processes have ended", || folder.processes().is_empty());
            assert_eq!(folder.read_out("results.json"), earlier);
        }
    });
}

#[test]
fn primitives_are_timed_over_the_launchers_ranks() {
    in_turn(each_bench("mpi"), |launcher, (bench, arguments)| {
        let output = launcher.streamhalo(&Folder::new(), 2, arguments);
        assert_eq!(output.status.code(), Some(0), "{bench}: {}", text(&output.stderr));
        assert_timed(bench, "mpi", &text(&output.stdout));
    });
}

#[test]
fn exchanges_are_timed_over_the_launchers_ranks() {
    each_launcher(|launcher| {
        for fabric in ["mpi", "shm+mpi"] {
            let folder = Folder::new();
            let line = format!(
                "bench halo --layout 2,1 --cells 16,16 --seconds 0.05 --fabric {fabric} --json - --out {}",
                folder.out().display()
            );
            let arguments: Vec<String> = line.split(' ').map(str::to_owned).collect();
            let output = launcher.streamhalo(&folder, 3, &arguments);
            assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
            let said = text(&output.stdout);
            // A library may print lines of its own among them.
            let lines = said.lines().filter(|line| line.starts_with('{'));
            let figures: Vec<Value> =
                lines.map(|line| serde_json::from_str(line).expect("is JSON")).collect();
            let backends: Vec<_> =
                figures.iter().map(|one| one["backend"].as_str().expect("is text")).collect();
            assert_eq!(backends, BACKENDS);
            assert!(figures.iter().all(|one| one["fabric"] == fabric && one["min_us"].as_f64() > Some(0.0)));
            assert!(folder.read_out("bench-halo.json").starts_with("[\n{"));
        }
        let folder = Folder::new();
        let line =
            "bench pingpong --sizes 8,9000 --backend standard,notified --seconds 0.02 --fabric mpi --json -";
        let arguments: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let output = launcher.streamhalo(&folder, 3, &arguments);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        assert_eq!(count(&text(&output.stdout), "\"bench\":\"pingpong\""), 4);
        let arguments = ["bench", "halo", "--layout", "2,2,1", "--fabric", "mpi"].map(str::to_owned);
        let run = Ranks::wrapped(&folder, "", &arguments);
        let output = launcher.finish(run.command(launcher, 2));
        run.refused(&output.stderr, 2, "--layout: asks for 4 ranks, but the launcher has started 2");
    });
}

#[test]
fn routes_are_explained_by_the_ranks_that_have_them() {
    each_launcher(|launcher| {
        for (fabric, executor) in [("mpi", "proxy"), ("shm+mpi", "stream")] {
            let folder = Folder::new();
            let config = folder.write("config.toml", SMALL).display().to_string();
            let arguments =
                ["explain", &config, "--fabric", fabric, "--ranks", "1,2", "--backend", "st-send"];
            let output = launcher.streamhalo(&folder, 3, &arguments.map(str::to_owned));
            assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
            let said = text(&output.stdout);
            assert_eq!(count(&said, &format!("1 rank (1 x 1), fabric {fabric}")), 1, "{said}");
            assert_eq!(count(&said, &format!("2 ranks (1 x 2), fabric {fabric}")), 1, "{said}");
            assert!(said.contains(executor) || (fabric == "mpi" && said.contains("host")), "{said}");
        }
        let folder = Folder::new();
        let output = launcher.streamhalo(&folder, 3, &["run".to_owned(), "--help".to_owned()]);
        assert_eq!(count(&text(&output.stdout), "Usage: streamhalo run"), 1);
    });
}

/// Ranks whose exit statuses are kept, each in a folder of its own if there is one of its number.
struct Ranks<'f> {
    folder: &'f Folder,
}

impl<'f> Ranks<'f> {
    /// Rank 1 gets `odd` besides.
    fn wrapped(folder: &'f Folder, odd: &str, arguments: &[String]) -> Self {
        let quoted: Vec<String> =
            [Launcher::PROGRAM.to_owned()].iter().chain(arguments).map(|one| format!("'{one}'")).collect();
        let (at, line) = (folder.path().display(), quoted.join(" "));
        let script = format!(
            "rank=${{OMPI_COMM_WORLD_RANK:-$PMI_RANK}}\n\
             cd '{at}'\n[ -d $rank ] && cd $rank\n\
             if [ $rank = 1 ]; then {line} {odd}; else {line}; fi\n\
             status=$?\necho $status > '{at}'/status.$rank\nexit $status\n"
        );
        folder.write("rank.sh", &script);
        Self { folder }
    }

    fn command(&self, launcher: &Launcher, ranks: usize) -> std::process::Command {
        let mut command = launcher.command(self.folder, ranks);
        command.arg("sh").arg(self.folder.path().join("rank.sh"));
        command
    }

    fn statuses(&self, ranks: usize) -> Vec<String> {
        let read = |rank: usize| {
            let path: &Path = &self.folder.path().join(format!("status.{rank}"));
            // Empty where it was ended in the middle of writing it.
            let status = fs::read_to_string(path).unwrap_or_default().trim().to_owned();
            if status.is_empty() { "none".to_owned() } else { status }
        };
        (0..ranks).map(read).collect()
    }

    /// Checks an error that one rank prints, and with which all end.
    fn refused(&self, stderr: &[u8], ranks: usize, part: &str) {
        let said = text(stderr);
        assert!(said.contains(part), "no {part:?} in\n{said}");
        assert_eq!(count(&said, "error: "), 1, "{said}");
        self.all_end_with("2", ranks);
    }

    fn all_end_with(&self, status: &str, ranks: usize) {
        let statuses = self.statuses(ranks);
        // Some launchers end the others as soon as one has ended.
        assert!(statuses.iter().all(|found| [status, "none"].contains(&found.as_str())), "{statuses:?}");
        assert!(statuses.contains(&status.to_owned()), "{statuses:?}");
    }
}
