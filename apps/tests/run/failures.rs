//! Runs that do not come to their end: no process is left, earlier results stay as they were, and
//! the message says who failed.

use std::fs;
use std::io::{Write, pipe};
use std::process::{Child, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::errors::refused;
use super::launched::has_waited;
use super::{FABRICS, Folder, OCCUPIED, SMALL, finish, signal, text, ticks, until};

/// A game that would take hours.
const ENDLESS: [&str; 4] =
    ["app.steps=1000000000", "run.ranks=2", "run.verify=false", "comm.backend=['st-send']"];

/// A folder with the results of an earlier run, and an endless one that is under way in it.
fn under_way(fabric: &str, set: &[&str]) -> (Folder, Child) {
    let folder = Folder::new();
    folder.records(SMALL, &["run.ranks=1"]);
    let fabric = format!("comm.fabric={fabric}");
    let child = folder.start(SMALL, &[&ENDLESS[..], &[&fabric], set].concat());
    // Ranks are at work once some processor time has been used, by whichever process or thread.
    until("the ranks are at work", || busy_ticks(&folder) > 20);
    (folder, child)
}

/// Processor time of all processes of a folder, in hundredths of a second.
fn busy_ticks(folder: &Folder) -> u64 {
    folder.processes().into_iter().filter_map(ticks).sum()
}

/// Waits for the end and checks what holds after every failure.
fn ends(folder: &Folder, child: Child, earlier: &[String], within: Duration) -> Output {
    let since = Instant::now();
    let output = finish(Ok(child));
    assert!(since.elapsed() < within, "took {:?}: {}", since.elapsed(), text(&output.stderr));
    until("all processes have ended", || folder.processes().is_empty());
    assert_eq!(results(folder), earlier, "{}", text(&output.stderr));
    output
}

/// Names and contents of the results folder, but for what says that somebody writes into it.
fn results(folder: &Folder) -> Vec<String> {
    let entries = fs::read_dir(folder.out()).expect("was made").map(|entry| entry.expect("is readable"));
    let mut files: Vec<_> = entries
        .filter(|entry| entry.file_name() != OCCUPIED)
        .map(|entry| format!("{:?} {:?}", entry.file_name(), fs::read(entry.path()).expect("is readable")))
        .collect();
    files.sort();
    files
}

/// A process that starts ranks has a pipe to each of them. What it may have open is raised as far as the system lets it.
#[test]
fn many_ranks_take_more_open_files_than_a_process_has_by_itself() {
    let folder = Folder::new();
    let config = folder.write("config.toml", SMALL);
    let run = |limits: &str| {
        let script = format!(
            "{limits} && exec {:?} run {config:?} --out {:?} --ranks 24 --fabric shm --backend st-send",
            env!("CARGO_BIN_EXE_streamhalo"),
            folder.out()
        );
        let mut command = folder.command("sh");
        finish(command.args(["-c", &script]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn())
    };
    let output = run("ulimit -Sn 24");
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let output = run("ulimit -n 24");
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    let expected = "error: 24 ranks that are processes take 40 open files of the one that starts them, and the system allows it \
                    24: ask for fewer, or raise its limit (`ulimit -n`)";
    assert!(said.contains(expected), "{said}");
}

#[test]
fn ctrl_c_ends_everything() {
    for fabric in FABRICS {
        let (folder, child) = under_way(fabric, &[]);
        let earlier = results(&folder);
        assert_eq!(folder.workers().len(), if fabric == "shm" { 2 } else { 0 });
        signal("-INT", child.id());
        let output = ends(&folder, child, &earlier, Duration::from_secs(10));
        assert_eq!(output.status.code(), Some(130), "{fabric}");
        assert!(text(&output.stderr).contains("interrupted; earlier results are untouched"));
        assert!(!folder.out().join(OCCUPIED).exists());
    }
}

/// As a terminal does it: ranks get the signal too, and may be gone first.
#[test]
fn ctrl_c_from_a_terminal_reaches_ranks_too() {
    let (folder, child) = under_way("shm", &[]);
    let earlier = results(&folder);
    // The program is stopped meanwhile, so that its ranks are certain to be first.
    signal("-STOP", child.id());
    folder.workers().into_iter().for_each(|worker| signal("-INT", worker));
    signal("-INT", child.id());
    signal("-CONT", child.id());
    let output = ends(&folder, child, &earlier, Duration::from_secs(10));
    assert_eq!(output.status.code(), Some(130), "{}", text(&output.stderr));
}

/// As `timeout` does it: to the program, and to its process group.
#[test]
fn two_signals_at_the_same_moment_are_one() {
    for fabric in FABRICS {
        let (folder, child) = under_way(fabric, &[]);
        let earlier = results(&folder);
        // The program is stopped meanwhile, so that it has done nothing about the first one.
        signal("-STOP", child.id());
        ["-INT", "-TERM"].into_iter().for_each(|name| signal(name, child.id()));
        signal("-CONT", child.id());
        let output = ends(&folder, child, &earlier, Duration::from_secs(10));
        let said = text(&output.stderr);
        assert!(matches!(output.status.code(), Some(130 | 143)), "{fabric}: {:?}: {said}", output.status);
        assert!(said.contains("interrupted; earlier results are untouched"), "{said}");
        assert!(!folder.out().join(OCCUPIED).exists());
    }
}

/// Whatever the program was doing about the first one: here it cannot print that it was interrupted.
#[test]
fn a_later_signal_ends_the_program_at_once() {
    let folder = Folder::new();
    let config = folder.write("config.toml", SMALL);
    let (_unread, mut full) = pipe().expect("the system has pipes");
    let mut command = folder.command(env!("CARGO_BIN_EXE_streamhalo"));
    command.arg("run").arg(config).arg("--out").arg(folder.out());
    ENDLESS.iter().for_each(|set| _ = command.args(["--set", set]));
    command.stdout(Stdio::null()).stderr(full.try_clone().expect("the system has pipes"));
    let mut child = command.spawn().expect("the program starts");
    until("the ranks are at work", || busy_ticks(&folder) > 20);
    let written = Arc::new(AtomicUsize::new(0));
    let count = written.clone();
    // It ends with the test.
    std::thread::spawn(move || {
        while full.write_all(&[b'.'; 4096]).is_ok() {
            count.fetch_add(1, Ordering::Relaxed);
        }
    });
    let mut last = (0, Instant::now());
    until("the pipe is full", || {
        let now = written.load(Ordering::Relaxed);
        if now > last.0 {
            last = (now, Instant::now());
        }
        now > 0 && last.1.elapsed() > Duration::from_millis(300)
    });
    signal("-INT", child.id());
    // Much longer than signals count as the same one.
    std::thread::sleep(Duration::from_secs(2));
    assert!(child.try_wait().expect("is our child").is_none(), "it has printed into a pipe that is full");
    signal("-TERM", child.id());
    until("it has ended", || child.try_wait().expect("is our child").is_some());
    assert_eq!(child.wait().expect("is our child").code(), Some(143));
}

#[test]
fn ctrl_c_while_the_reference_is_computed() {
    let folder = Folder::new();
    folder.records(SMALL, &["run.ranks=1"]);
    let earlier = results(&folder);
    let child = folder.start(SMALL, &["app.steps=1000000000", "run.ranks=2"]);
    until("it computes", || busy_ticks(&folder) > 20);
    signal("-TERM", child.id());
    let output = ends(&folder, child, &earlier, Duration::from_secs(10));
    assert_eq!(output.status.code(), Some(143), "{}", text(&output.stderr));
}

#[test]
fn ranks_do_not_outlive_a_program_that_was_killed() {
    let (folder, child) = under_way("shm", &[]);
    let earlier = results(&folder);
    signal("-KILL", child.id());
    let output = ends(&folder, child, &earlier, Duration::from_secs(10));
    assert_eq!(output.status.code(), None);
}

/// Whatever it is: another run, a bench, or the report on what is there. Not after the first one was killed.
#[test]
fn one_at_a_time_writes_into_a_folder() {
    let (folder, child) = under_way("shm", &[]);
    let (earlier, first) = (results(&folder), child.id());
    let out = folder.out();
    let out = out.to_str().expect("is text");
    let others = [
        folder.run(SMALL, &["run.ranks=1"]),
        folder.streamhalo(&["bench", "halo", "--cells", "8,8", "--layout", "1,1", "--out", out]),
        folder.streamhalo(&["bench", "latency", "--out", out]),
        folder.streamhalo(&["report", out]),
    ];
    for other in &others {
        refused(
            other,
            1,
            &["cannot write results into", &format!("process {first} on "), "hint: ", "--out DIR"],
        );
    }
    assert_eq!(results(&folder), earlier);
    signal("-KILL", first);
    ends(&folder, child, &earlier, Duration::from_secs(10));
    assert_eq!(folder.run(SMALL, &["run.ranks=1"]).status.code(), Some(0));
    assert!(!folder.out().join(OCCUPIED).exists());
}

#[test]
fn a_rank_that_dies_is_named() {
    let (folder, child) = under_way("shm", &[]);
    let earlier = results(&folder);
    // Either of them; which one has which rank is not seen from outside.
    signal("-KILL", folder.workers()[0]);
    let output = ends(&folder, child, &earlier, Duration::from_secs(10));
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    let named = [0, 1]
        .iter()
        .any(|rank| said.contains(&format!("error: rank {rank} failed: its process was ended by signal 9")));
    assert!(named && said.contains("(st-send, 2 ranks, trial 0)"), "{said}");
}

#[test]
fn a_rank_that_does_not_answer_is_named() {
    let (folder, child) = under_way("shm", &["comm.timeout_s=2"]);
    let earlier = results(&folder);
    signal("-STOP", folder.workers()[1]);
    let output = ends(&folder, child, &earlier, Duration::from_secs(30));
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(has_waited(&said) && said.contains("`comm.timeout_s`"), "{said}");
}

/// A program that is stopped judges no answer, and its ranks begin no other trial: they neither work nor end.
#[test]
fn ranks_wait_asleep_until_an_answer_is_judged() {
    let folder = Folder::new();
    let set = ["comm.fabric=shm", "comm.timeout_s=2", "run.ranks=2", "run.trials=6", "app.steps=5000"];
    let child = folder.start(SMALL, &[&set[..], &["comm.backend=['st-send']"]].concat());
    let of_ranks = || folder.workers().into_iter().filter_map(ticks).sum::<u64>();
    until("the ranks are at work", || of_ranks() > 5);
    signal("-STOP", child.id());
    let mut last = (of_ranks(), Instant::now());
    until("the ranks have come to rest", || {
        let now = of_ranks();
        if now > last.0 {
            last = (now, Instant::now());
        }
        last.1.elapsed() > Duration::from_millis(2500)
    });
    assert_eq!(folder.workers().len(), 2, "they wait, longer than for each other");
    signal("-CONT", child.id());
    let output = finish(Ok(child));
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
}
