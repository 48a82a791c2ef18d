//! Jobs of processes over shared memory: that they compute the right thing, sleep and are woken,
//! give memory back, and end together.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use streamhalo::comm::backend::backend_names;
use streamhalo::comm::fabric::rendezvous::ADDRESS_VARIABLE;
use streamhalo::comm::fabric::shm::{
    Exit, Job, LAUNCHER_VARIABLE, RANK_VARIABLE, SEGMENT_VARIABLE, SIZE_VARIABLE,
};
use streamhalo::comm::fabric::{FABRIC_VARIABLE, WaitPolicy};

/// After how long a job is given up.
const WATCHDOG: Duration = Duration::from_secs(60);
/// How soon the others must have ended once a rank is gone.
const SOON: Duration = Duration::from_secs(10);

fn piped(program: &str) -> Command {
    let mut command = Command::new(program);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn helper(arguments: &[&str]) -> Command {
    let mut command = piped(env!("CARGO_BIN_EXE_tried_rank"));
    command.args(arguments);
    command
}

/// What came of a rank.
#[derive(Debug)]
struct Ended {
    code: Option<i32>,
    said: String,
    complained: String,
}

fn start(ranks: usize, arguments: &[&str]) -> Job {
    Job::start(ranks, &mut |_rank| helper(arguments)).expect("the job starts")
}

/// Waits for a job whose ranks say little enough to fit their pipes.
fn wait(job: &mut Job) -> (Exit, Vec<Ended>) {
    let started = Instant::now();
    let exit = job.wait(&|| started.elapsed() > WATCHDOG).expect("ranks can be waited for");
    let ended = job.ranks().iter_mut().map(|child| {
        let mut ended = Ended {
            code: child.try_wait().expect("it has ended").and_then(|status| status.code()),
            said: String::new(),
            complained: String::new(),
        };
        // Taken already by who waited for the rank to begin.
        if let Some(mut output) = child.stdout.take() {
            output.read_to_string(&mut ended.said).expect("it writes text");
        }
        child.stderr.take().expect("piped").read_to_string(&mut ended.complained).expect("it writes text");
        ended
    });
    (exit, ended.collect())
}

/// Runs a job that must succeed, and gives what each rank said.
fn run(ranks: usize, arguments: &[&str]) -> Vec<String> {
    let (exit, ended) = wait(&mut start(ranks, arguments));
    assert_eq!(exit, Exit::Success, "{ranks} ranks of {arguments:?}: {ended:#?}");
    ended.into_iter().map(|ended| ended.said).collect()
}

/// Starts ranks that exchange for ever, and waits until all of them do.
fn start_running(ranks: usize, mode: &str) -> Job {
    let mut job = start(ranks, &[mode]);
    streamhalo_tests::start::wait_until_running(&mut job);
    job
}

#[test]
fn all_backends_exchange_in_any_number_of_processes() {
    for ranks in [1, 2, 3, 4, 8] {
        for (rank, said) in run(ranks, &["exchange", "1", "6"]).into_iter().enumerate() {
            let cases = 2 * backend_names().count();
            assert_eq!(said, format!("rank {rank} of {ranks}: {cases} cases\n"));
        }
    }
}

/// A lost wake-up would show as a wait that ends with a nap only, or never.
#[test]
fn short_jobs_end_every_time() {
    for seed in 0..20 {
        run(4, &["exchange", &seed.to_string(), "3"]);
    }
}

#[test]
fn sleepers_are_woken() {
    let said = run(2, &["wake"]);
    let mut backends = 0;
    for line in said[0].lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let (late_us, sleeps): (u64, u64) = (words[1].parse().unwrap(), words[2].parse().unwrap());
        assert!(sleeps >= 16, "with {} a rank that waited for 30 ms has slept {sleeps} times", words[0]);
        // Who was not woken sleeps on for 10 ms, nearly every time.
        assert!(late_us < 5000, "with {} sleepers were {late_us} us late, and more", words[0]);
        backends += 1;
    }
    assert_eq!(backends, backend_names().count());
}

#[test]
fn memory_comes_back_when_all_have_let_go() {
    for ranks in [1, 2, 3] {
        run(ranks, &["memory"]);
    }
}

#[test]
fn memory_is_kept_for_peers_that_have_mapped_it() {
    run(3, &["kept"]);
}

#[test]
fn memory_that_is_not_there_is_refused() {
    run(2, &["refused"]);
}

#[test]
fn memory_that_cannot_be_mapped_is_given_back() {
    run(1, &["unmapped"]);
}

/// Ranks that scripts bind to a core each do not share one.
#[test]
fn bound_ranks_wait_as_those_that_have_all_cores() {
    if std::thread::available_parallelism().is_ok_and(|cores| cores.get() < 2) {
        return println!("skipped: two ranks share the one core here");
    }
    assert_eq!(run(2, &["bound"]), vec![format!("{:?}\n", WaitPolicy::for_ranks(2)); 2]);
}

/// The others' errors name the rank, and what became of it.
#[test]
fn a_killed_rank_ends_the_others() {
    // As many as cores and more: waits that nap, and waits that sleep.
    for ranks in [2, 5] {
        let mut job = start_running(ranks, "forever");
        job.ranks()[1].kill().expect("it runs");
        let killed = Instant::now();
        let (exit, ended) = wait(&mut job);
        assert!(killed.elapsed() < SOON, "the others took {:?} to end", killed.elapsed());
        let Exit::Failed { rank, reason, code } = exit else { panic!("{exit:?}") };
        assert_eq!((rank, code), (1, 128 + 9), "{reason}");
        assert!(reason.contains("signal 9"), "{reason}");
        for (rank, ended) in ended.iter().enumerate().filter(|(rank, _)| *rank != 1) {
            assert_eq!(ended.code, Some(1), "rank {rank}: {ended:?}");
            assert!(ended.complained.contains("rank 1 failed"), "rank {rank}: {ended:?}");
            assert!(ended.complained.contains("signal 9"), "rank {rank}: {ended:?}");
        }
        assert_eq!(ended[1].code, None, "it was killed");
    }
}

#[test]
fn a_panic_in_a_kernel_ends_the_others() {
    for ranks in [2, 4] {
        let mut job = start_running(ranks, "kernel");
        let (exit, ended) = wait(&mut job);
        let Exit::Failed { rank, reason, code: 1 } = exit else { panic!("{exit:?}") };
        assert_eq!(rank, ranks - 1, "{reason}");
        for told in [reason.as_str()].into_iter().chain(ended.iter().map(|ended| ended.complained.as_str())) {
            assert!(told.contains("explode") && told.contains("this kernel panics on purpose"), "{told}");
            assert!(told.contains(&format!("rank {}", ranks - 1)), "{told}");
        }
    }
}

#[test]
fn a_panic_of_a_rank_ends_the_others() {
    let mut job = start_running(3, "main");
    let (exit, ended) = wait(&mut job);
    let Exit::Failed { rank: 2, reason, code: 101 } = exit else { panic!("{exit:?}") };
    assert!(reason.contains("panicked"), "{reason}");
    for ended in &ended[..2] {
        assert!(ended.complained.contains("rank 2 failed"), "{ended:?}");
        assert!(ended.complained.contains("panicked"), "{ended:?}");
    }
    assert!(ended[2].complained.contains("this rank panics on purpose"), "{:?}", ended[2]);
}

/// Status 0 is no success while the others wait for it.
#[test]
fn a_process_that_ends_without_dropping_its_world_ends_the_others() {
    let mut job = start_running(3, "quit");
    let (exit, ended) = wait(&mut job);
    let Exit::Failed { rank: 2, reason, code: 1 } = exit else { panic!("{exit:?}") };
    assert_says(&reason, &["without dropping its world"]);
    for ended in &ended[..2] {
        assert_says(&ended.complained, &["rank 2 failed", "without dropping its world"]);
    }
    assert_eq!(ended[2].code, Some(0));
}

/// Worlds of a job that have the same number on each rank belong together.
#[test]
fn worlds_follow_each_other_and_stand_side_by_side() {
    for ranks in [1, 2, 3, 5] {
        run(ranks, &["worlds", "20"]);
        run(ranks, &["two-worlds"]);
    }
    // Nor need it be the same program that makes them.
    let program = env!("CARGO_BIN_EXE_tried_rank");
    let one_by_one = |_rank| {
        let mut command = piped("sh");
        let programs = format!("'{program}' worlds 2 && '{program}' exchange 3 2 && '{program}' worlds 1");
        command.args(["-c", &programs]);
        command
    };
    let (exit, ended) = wait(&mut Job::start(3, &mut { one_by_one }).expect("the job starts"));
    assert_eq!(exit, Exit::Success, "{ended:#?}");
}

/// Status 0 is no success either for who has not come to a world in which the others wait.
#[test]
fn a_process_that_ends_without_making_a_world_ends_the_others() {
    for before in ["0", "2"] {
        let (exit, ended) = wait(&mut start(3, &["fewer-worlds", before]));
        let Exit::Failed { rank: 2, reason, code: 1 } = exit else { panic!("{exit:?}") };
        assert_says(&reason, &["without making a world"]);
        for ended in &ended[..2] {
            assert_says(&ended.complained, &["rank 2 failed", "without making a world"]);
        }
        assert_eq!(ended[2].code, Some(0));
    }
    // Where no rank makes one nobody has failed.
    let (exit, _) = wait(&mut Job::start(2, &mut |_| piped("true")).expect("the job starts"));
    assert_eq!(exit, Exit::Success);
}

/// A process that drops its window, its request or its exchange and goes on, or ends: whose stream waits for it is told so.
#[test]
fn what_is_dropped_ends_the_waits_of_other_processes() {
    for kind in ["inline", "threaded"] {
        for side in ["host", "origin", "target", "sender", "receiver", "exchange", "replay"] {
            for ranks in [2, 3] {
                run(ranks, &["leave", kind, side]);
            }
        }
    }
}

fn is_alive(process: &str) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    // The state follows the name in parentheses; a zombie only waits to be asked how it ended.
    status
        .rsplit_once(") ")
        .is_some_and(|(name, state)| name.contains("tried_rank") && !state.starts_with('Z'))
}

fn named_memory() -> Vec<String> {
    let entries = std::fs::read_dir("/dev/shm").expect("Linux has it").filter_map(Result::ok);
    let mut names: Vec<String> = entries.map(|entry| entry.file_name().to_string_lossy().into()).collect();
    names.sort();
    names
}

#[test]
fn no_rank_outlives_its_launcher() {
    for mode in ["launch", "launch-scripts"] {
        end_launcher(mode);
    }
}

fn end_launcher(mode: &str) {
    let before = named_memory();
    let mut launcher = helper(&[mode, "3", "forever"]).spawn().expect("the launcher starts");
    let output = BufReader::new(launcher.stdout.take().expect("piped"));
    let mut processes = Vec::new();
    let mut running = 0;
    for line in output.lines() {
        let line = line.expect("it writes text");
        processes.extend(line.strip_prefix("process ").map(ToString::to_string));
        running += usize::from(line.ends_with("runs"));
        if running == 3 && processes.len() == 3 {
            break;
        }
    }
    assert!(processes.iter().all(|process| is_alive(process)), "{processes:?}");
    launcher.kill().expect("it runs");
    launcher.wait().expect("it has ended");
    let killed = Instant::now();
    while processes.iter().any(|process| is_alive(process)) {
        assert!(killed.elapsed() < SOON, "ranks outlive their launcher ({mode}): {processes:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
    let left: Vec<String> = named_memory().into_iter().filter(|name| !before.contains(name)).collect();
    assert!(left.iter().all(|name| !name.contains("streamhalo")), "{left:?}");
}

/// As in a container, where the launcher is the first process.
#[test]
fn the_launcher_may_be_the_first_process() {
    let as_first = |arguments: &[&str]| {
        piped("unshare").args(["--pid", "--fork", "--mount-proc"]).args(arguments).output()
    };
    match as_first(&["true"]) {
        Ok(output) if output.status.success() => {}
        other => return println!("skipped: a process that is the first one cannot be made here: {other:?}"),
    }
    let output = as_first(&[env!("CARGO_BIN_EXE_tried_rank"), "launch", "2", "world"]).expect("it starts");
    assert!(output.status.success(), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("process "), "{output:?}");
}

#[test]
fn a_rank_whose_launcher_has_gone_does_not_begin() {
    let mut gone = helper(&["world"]).spawn().expect("the helper starts");
    let change = format!("{LAUNCHER_VARIABLE}={}", gone.id());
    gone.wait().expect("it has been started");
    let (_, ended) = wait(&mut start(1, &["with", &change, "world"]));
    assert_says(&ended[0].complained, &["finding the launcher", "it has ended already"]);
}

/// Dropping a job that has not been waited for ends its processes.
#[test]
fn no_rank_outlives_its_job() {
    let mut job = start_running(3, "forever");
    let processes: Vec<String> = job.ranks().iter().map(|child| child.id().to_string()).collect();
    assert!(processes.iter().all(|process| is_alive(process)), "{processes:?}");
    drop(job);
    assert!(!processes.iter().any(|process| is_alive(process)), "{processes:?}");
}

/// What a rank without a launcher says to an environment, with a file as its standard input.
fn complaint(file: &Path, environment: &[(&str, &str)]) -> String {
    let mut command = helper(&["world"]);
    let input = std::fs::File::options().read(true).write(true).open(file).expect("the file is there");
    command.envs(environment.iter().copied()).stdin(input);
    let output = command.output().expect("the rank starts");
    assert_eq!(output.status.code(), Some(1), "{environment:?}: {output:?}");
    String::from_utf8(output.stderr).expect("it writes text")
}

fn assert_says(complaint: &str, pieces: &[&str]) {
    for piece in pieces {
        assert!(complaint.contains(piece), "`{piece}` is not in `{complaint}`");
    }
}

#[test]
fn an_environment_without_a_job_is_refused() {
    let null = Path::new("/dev/null");
    let rank = [(RANK_VARIABLE, "0"), (SIZE_VARIABLE, "2")];
    let with = |descriptor| [rank[0], rank[1], (SEGMENT_VARIABLE, descriptor)];
    // Not left alone either.
    assert_says(&complaint(null, &rank), &["nobody has started ranks", "rendezvous"]);
    // Nor over a fabric that leaves each of several alone, which one process may be.
    let over = |fabric| [&rank[..], &[(FABRIC_VARIABLE, fabric)]].concat();
    let several = ["fabric `local`", "one of several", "STREAMHALO_SIZE=2", "use `ofi` or `shm+ofi`"];
    assert_says(&complaint(null, &over("local")), &several);
    for variable in [(RANK_VARIABLE, "1"), (ADDRESS_VARIABLE, "127.0.0.1:7000")] {
        let told = format!("{}={}", variable.0, variable.1);
        assert_says(&complaint(null, &[variable, (FABRIC_VARIABLE, "local")]), &[&told]);
    }
    let (_, ended) = wait(&mut start(2, &["over", "local"]));
    for ended in ended {
        assert_says(&ended.complained, &["fabric `local`", "STREAMHALO_SIZE=2", "use `shm`"]);
    }
    run(1, &["over", "local"]);
    // Where there is a library.
    assert_says(&complaint(null, &over("mpi")), &["fabric `mpi`"]);
    // A launcher that tells a rank its number, and not of how many.
    let of_pmix = [("PMIX_RANK", "1"), ("STREAMHALO_MPI", "/nowhere/libmpi.so")];
    assert_says(&complaint(null, &of_pmix), &["fabric `mpi`", "/nowhere/libmpi.so"]);
    assert_says(
        &complaint(null, &with("rubbish")),
        &[SEGMENT_VARIABLE, "`rubbish`", "must be the number of a file descriptor"],
    );
    assert_says(&complaint(null, &with("-1")), &["`-1`", "must be the number of a file descriptor"]);
    assert_says(&complaint(null, &with("987")), &["`987`", "No such file", "streamhalo launch"]);
    let foreign = [SEGMENT_VARIABLE, "`0`", "it is not a memory file of StreamHalo"];
    assert_says(&complaint(null, &with("0")), &foreign);
    // A regular file, shorter and longer than what a job has.
    for bytes in [10, 1 << 20] {
        let file = std::env::temp_dir().join(format!("streamhalo-foreign-{}-{bytes}", std::process::id()));
        std::fs::write(&file, vec![b'x'; bytes]).expect("the folder of temporary files is writable");
        let said = complaint(&file, &with("0"));
        let untouched = std::fs::read(&file).is_ok_and(|found| found == vec![b'x'; bytes]);
        std::fs::remove_file(&file).expect("it was just made");
        assert_says(&said, &foreign);
        assert!(untouched, "a foreign file was written");
    }
}

#[test]
fn variables_of_a_rank_must_fit_the_job() {
    let cases: [(&[&str], &[&str]); 7] = [
        (&["STREAMHALO_RANK"], &["STREAMHALO_RANK", "is not set", "streamhalo launch"]),
        (&["STREAMHALO_SIZE"], &["STREAMHALO_SIZE", "is not set", "streamhalo launch"]),
        (&["STREAMHALO_RANK=one"], &["STREAMHALO_RANK=`one`", "must be a whole number"]),
        (&["STREAMHALO_RANK=-1"], &["STREAMHALO_RANK=`-1`", "must be a whole number"]),
        (&["STREAMHALO_SIZE=2.0"], &["STREAMHALO_SIZE=`2.0`", "must be a whole number"]),
        (&["STREAMHALO_RANK=2"], &["STREAMHALO_RANK=`2 of 2`", "the job has 2 ranks"]),
        (&["STREAMHALO_SIZE=3"], &["of 3`", "the job has 2 ranks"]),
    ];
    for (changes, pieces) in cases {
        let arguments: Vec<&str> = ["with"].iter().chain(changes).copied().chain(["world"]).collect();
        let (exit, ended) = wait(&mut start(2, &arguments));
        assert!(matches!(exit, Exit::Failed { code: 1, .. }), "{changes:?}: {exit:?}");
        assert_says(&ended[0].complained, pieces);
    }
}

#[test]
fn jobs_that_cannot_be_started_say_why() {
    let error = Job::start(0, &mut |_| helper(&["world"])).unwrap_err().to_string();
    assert_says(&error, &["a world of 0 ranks was asked for", "at least one rank"]);
    let error = Job::start(usize::MAX, &mut |_| helper(&["world"])).unwrap_err().to_string();
    assert_says(&error, &["was asked for", "no more than 1048576"]);
    let error = Job::start(2, &mut |_| Command::new("/no/such/program")).unwrap_err().to_string();
    assert_says(&error, &["starting a rank", "/no/such/program", "No such file"]);
}

#[test]
fn an_interrupted_job_ends() {
    let mut job = start_running(2, "forever");
    let exit = job.wait(&|| true).expect("ranks can be waited for");
    assert_eq!(exit, Exit::Failed { rank: 0, reason: "interrupted".into(), code: 130 });
    assert!(job.ranks().iter_mut().all(|child| child.try_wait().is_ok_and(|status| status.is_some())));
}
