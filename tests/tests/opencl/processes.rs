//! Every backend between ranks that are processes, each with a context of its own, whose kernels store into arrays and
//! words of each other's: the answers of the host, straight and staged.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use streamhalo::comm::backend::backend_names;
use streamhalo::comm::fabric::shm::{Exit, Job};
use streamhalo_tests::cases::Subject;
use streamhalo_tests::start::{job, wait_until_running};
use streamhalo_tests::{Cell, Outcome, cells_on_host, check_cells, other_device};

/// After how long a job is given up.
const LIMIT: Duration = Duration::from_secs(120);

/// What ranks of `conformance_rank shm` say.
fn said(ranks: usize, arguments: &[&str]) -> String {
    let all: Vec<&str> = ["shm"].iter().chain(arguments).copied().collect();
    let ended = job(ranks, Path::new(env!("CARGO_BIN_EXE_conformance_rank")), &all, LIMIT);
    println!("{ranks} ranks of {arguments:?} in {:.1} s", ended.took.as_secs_f64());
    ended.said
}

#[test]
fn every_backend_gives_the_answer_of_the_host() {
    if other_device().is_none() {
        return;
    }
    let mut known = BTreeMap::new();
    // The device works on two kernels at a time, of which one may wait, in each of the processes.
    for (ranks, words) in [
        (1, "separate waits-kernel"),
        (2, "shared"),
        (2, "separate waits-kernel merged"),
        (2, "separate staged"),
        (3, "separate odd-staged"),
        (3, "shared waits-kernel"),
        (4, "separate"),
        (4, "shared odd-staged"),
    ] {
        let arguments: Vec<&str> = ["device"].into_iter().chain(words.split(' ')).collect();
        let said = said(ranks, &arguments);
        let by = if words.contains("waits-kernel") { "stream" } else { "proxy" };
        check_cells(&said, words, known.entry(ranks).or_insert_with(|| cells_on_host(ranks)), &[by]);
    }
}

#[test]
fn every_primitive_goes_by_way_of_the_host() {
    if other_device().is_none() {
        return;
    }
    for (ranks, words) in [
        (1, "shared"),
        (2, "separate"),
        // Of which there are some that move nothing, and some that tell nobody.
        (2, "separate merged"),
        (3, "shared"),
        (3, "separate odd-staged"),
        (4, "separate staged"),
    ] {
        let arguments: Vec<&str> = ["primitives"].into_iter().chain(words.split(' ')).collect();
        let said = said(ranks, &arguments);
        let cells: Vec<Cell> = said.lines().filter_map(|line| line.parse().ok()).collect();
        let names: Vec<&str> = cells.iter().map(|cell| cell.backend.as_str()).collect();
        let expected: Vec<&str> = Subject::on_device().map(|subject| subject.name()).collect();
        assert_eq!(names, expected, "{words}: {said}");
        assert!(cells.iter().all(|cell| matches!(cell.outcome, Outcome::Passed { .. })), "{words}: {said}");
    }
}

/// A message of a rank, as it has been reported.
struct Route<'a> {
    sender: usize,
    receiver: usize,
    backend: &'a str,
    path: &'a str,
    reason: &'a str,
}

/// That of a line.
fn route(line: &str) -> Option<Route<'_>> {
    let (ranks, rest) = line.strip_prefix("route ")?.split_once(' ')?;
    let (sender, receiver) = ranks.split_once('>')?;
    let (backend, rest) = rest.split_once(' ')?;
    let (path, reason) = rest.split_once(' ')?.1.split_once(": ")?;
    Some(Route { sender: sender.parse().ok()?, receiver: receiver.parse().ok()?, backend, path, reason })
}

fn routes(said: &str) -> Vec<Route<'_>> {
    said.lines().filter_map(route).collect()
}

const STAGED: &str = "staged through the host's memory";

fn paths(said: &str) -> BTreeSet<&str> {
    routes(said).into_iter().filter(|route| route.backend != "standard").map(|route| route.path).collect()
}

/// How many waits and sends were kernels' alone, of all ranks.
fn by_kernels(said: &str) -> [u64; 2] {
    let lines = said.lines().filter(|line| line.starts_with("rank ") && !line.contains(" standard "));
    let numbers = lines.map(|line| {
        let words: Vec<&str> = line.split(' ').collect();
        [words[4], words[6]].map(|number| number.parse::<u64>().expect("a number"))
    });
    numbers.fold([0; 2], |[waits, merged], [w, m]| [waits + w, merged + m])
}

#[test]
fn kernels_store_straight_into_what_other_processes_have_exported() {
    if other_device().is_none() {
        return;
    }
    let all = ["packed into the peer's buffer", "packed, with its signal", "straight into ghosts"];
    for (ranks, words, paths_of, [waits, merged]) in [
        (3, "shared", &all[..], [false, false]),
        // Words are the host's, and payloads are not on their lines.
        (2, "separate waits-kernel", &[all[0], all[2]], [true, false]),
        (2, "separate merged", &[all[0], all[2]], [false, true]),
    ] {
        let arguments: Vec<&str> = ["routes"].into_iter().chain(words.split(' ')).collect();
        let said = said(ranks, &arguments);
        assert!(!said.contains(STAGED), "{words}: {said}");
        assert_eq!(paths(&said), paths_of.iter().copied().collect(), "{words}");
        let [waited, sent] = by_kernels(&said);
        assert_eq!([waited > 0, sent > 0], [waits, merged], "{words}: {waited} waits, {sent} sends");
        // Around the ring, in both directions, three sets of fields with each backend.
        let neighbours = if ranks == 2 { 1 } else { 2 };
        assert_eq!(routes(&said).len(), ranks * neighbours * 3 * backend_names().count(), "{said}");
    }
}

#[test]
fn ranks_that_are_told_to_stage_say_so() {
    if other_device().is_none() {
        return;
    }
    let said_by_all = said(2, &["routes", "separate", "staged"]);
    for route in routes(&said_by_all) {
        let told = "because `device.peers` is `staged`";
        assert!(route.reason.contains(STAGED) && route.reason.ends_with(told), "{}", route.reason);
        assert_ne!(route.path, "straight into ghosts");
    }
    // Rank 1 of a ring of three: the other two still reach each other.
    for memory in ["shared", "separate"] {
        let said = said(3, &["routes", memory, "odd-staged"]);
        let mut straight = BTreeSet::new();
        for route in routes(&said).into_iter().filter(|route| route.backend != "standard") {
            let is_staged = route.sender == 1 || route.receiver == 1;
            assert_eq!(
                route.reason.contains(STAGED),
                is_staged,
                "{}>{}: {}",
                route.sender,
                route.receiver,
                route.reason
            );
            if is_staged && route.sender != 1 {
                assert!(
                    route.reason.contains("rank 1's are: `device.peers` is `staged`"),
                    "{}",
                    route.reason
                );
            }
            if route.path == "straight into ghosts" {
                straight.insert((route.sender, route.receiver));
            }
        }
        assert_eq!(straight, BTreeSet::from([(0, 2), (2, 0)]), "{memory}");
    }
}

/// Processes that exchange on the device for ever, until all of them do.
fn start_running(ranks: usize, words: &[&str]) -> Job {
    let mut job = Job::start(ranks, &mut |_rank| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tried_rank"));
        command.arg("device").args(words).args(["--", "forever"]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    })
    .expect("the job starts");
    wait_until_running(&mut job);
    job
}

/// What it has open of a rank that is dead hangs no other: its memory is unmapped with the process.
#[test]
fn a_killed_rank_ends_the_others() {
    if other_device().is_none() {
        return;
    }
    for words in [&["shared"][..], &["separate", "waits-kernel"]] {
        let mut job = start_running(2, words);
        job.ranks()[1].kill().expect("it runs");
        let killed = Instant::now();
        let exit = job.wait(&|| killed.elapsed() > LIMIT).expect("ranks can be waited for");
        assert!(killed.elapsed() < Duration::from_secs(10), "the other took {:?} to end", killed.elapsed());
        let Exit::Failed { rank: 1, reason, .. } = exit else { panic!("{exit:?}") };
        assert!(reason.contains("signal 9"), "{reason}");
        let mut complaint = job.ranks()[0].stderr.take().expect("piped");
        let complaint = std::io::read_to_string(&mut complaint).expect("it writes text");
        assert!(complaint.contains("rank 1 failed"), "{words:?}: {complaint}");
    }
}

/// Words are the host's whoever waits for them: an error says who is late.
#[test]
fn a_wait_of_a_kernel_ends_with_the_time_out() {
    if other_device().is_none() {
        return;
    }
    for backend in ["st-send", "notified"] {
        let mut job = Job::start(2, &mut |_rank| {
            let mut command = Command::new(env!("CARGO_BIN_EXE_tried_rank"));
            command.args(["device", "separate", "waits-kernel", "--", "absent", backend]);
            command.stdin(Stdio::null()).stderr(Stdio::piped());
            command
        })
        .expect("the job starts");
        let begun = Instant::now();
        let exit = job.wait(&|| begun.elapsed() > LIMIT).expect("ranks can be waited for");
        let Exit::Failed { rank: 0, reason, .. } = exit else { panic!("{backend}: {exit:?}") };
        // Or longer, where it was not looked for a while.
        let has_waited = (2..=5).any(|seconds| reason.contains(&format!("rank 0 waited {seconds} s")));
        assert!(has_waited && reason.contains("of rank 1"), "{backend}: {reason}");
    }
}
