//! Exchanges make no system call while their waits spin: the helper's ranks are killed by the kernel
//! for making one.

use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};
use streamhalo::comm::backend::backend_names;
use streamhalo::comm::fabric::shm::Job;

/// What `quiet_rank` exits with where system calls cannot be given up.
const NOT_HERE: i32 = 77;
/// The signal that ends who makes one then.
const BAD_SYSTEM_CALL: i32 = 31;

fn helper(fabric: &str, fault: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_quiet_rank"));
    command.args([fabric, fault]).stdin(Stdio::null()).stdout(Stdio::piped());
    command
}

/// Why the test cannot be made here, if so.
fn unusable() -> Option<String> {
    let clock = std::fs::read_to_string("/sys/devices/system/clocksource/clocksource0/current_clocksource");
    let clock = clock.unwrap_or_default();
    // With any other the clock, which waits read now and then, is a system call.
    let without_call = ["tsc", "kvm-clock", "hyperv_clocksource_tsc_page", "arch_sys_counter"];
    (!without_call.contains(&clock.trim()))
        .then(|| format!("the clock `{}` is read by a system call", clock.trim()))
}

/// How ranks ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Done,
    SystemCall,
    /// This kernel has no seccomp filters.
    NotHere,
    Otherwise,
}

/// What a process of some ranks said until they were done, or it ended.
fn listen(process: &mut Child, ranks: usize) -> (Vec<String>, End) {
    let mut lines = Vec::new();
    let output = BufReader::new(process.stdout.take().expect("it is piped"));
    let mut done = 0;
    for line in output.lines() {
        let line = line.expect("it writes text");
        done += usize::from(line.ends_with("done"));
        lines.push(line);
        if done == ranks {
            return (lines, End::Done);
        }
    }
    let status = process.wait().expect("it has been started");
    let end = match (status.signal(), status.code()) {
        (Some(BAD_SYSTEM_CALL), _) => End::SystemCall,
        (_, Some(NOT_HERE)) => End::NotHere,
        _ => End::Otherwise,
    };
    (lines, end)
}

/// The lines of both ranks, and how the first that did not come to its end ended.
fn run(fabric: &str, fault: &str) -> ([Vec<String>; 2], End) {
    if fabric == "local" {
        let mut process = helper(fabric, fault).spawn().expect("the helper starts");
        let (lines, end) = listen(&mut process, 2);
        process.wait().expect("it ends");
        let of = |rank: &str| lines.iter().filter(|line| line.starts_with(rank)).cloned().collect();
        return ([of("rank 0"), of("rank 1")], end);
    }
    let mut job = Job::start(2, &mut |_rank| helper(fabric, fault)).expect("the job starts");
    let (first, first_end) = listen(&mut job.ranks()[0], 1);
    if first_end != End::Done {
        // The other one would wait for it.
        job.kill();
    }
    let (second, second_end) = listen(&mut job.ranks()[1], 1);
    ([first, second], if first_end == End::Done { second_end } else { first_end })
}

fn all_lines(rank: usize) -> Vec<String> {
    let cases = backend_names().flat_map(|name| [true, false].map(|packed| format!("{name} {packed}")));
    cases.chain(["done".into()]).map(|line| format!("rank {rank} {line}")).collect()
}

/// One test, since its ranks want a core each.
#[test]
fn exchanges_make_no_system_call() {
    if let Some(reason) = unusable() {
        println!("skipped: {reason}");
        return;
    }
    for fabric in ["local", "shm"] {
        let (lines, end) = run(fabric, "none");
        if end == End::NotHere {
            println!("skipped: this kernel has no seccomp filters");
            return;
        }
        assert_eq!(end, End::Done, "on {fabric}, after {lines:?}");
        for (rank, lines) in lines.into_iter().enumerate() {
            assert_eq!(lines, all_lines(rank), "on {fabric}");
        }
        // Controls: a call is deadly, and a wait that yields is noticed.
        for fault in ["yield", "impatient"] {
            let (lines, end) = run(fabric, fault);
            assert_eq!(end, End::SystemCall, "on {fabric} with `{fault}`, after {lines:?}");
        }
    }
}
