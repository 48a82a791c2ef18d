//! `streamhalo launch`: somebody else's program as ranks.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Stdio};
use std::time::Duration;

use streamhalo::World;

use super::{Folder, finish, signal, text, until};

fn shell(folder: &Folder, ranks: &str, script: &str) -> std::process::Output {
    folder.streamhalo(&["launch", "-n", ranks, "sh", "-c", script])
}

#[test]
fn every_process_is_a_rank_and_has_the_standard_output() {
    let folder = Folder::new();
    let output = shell(&folder, "3", "echo rank $STREAMHALO_RANK of $STREAMHALO_SIZE");
    let mut lines: Vec<_> = text(&output.stdout).lines().map(str::to_owned).collect();
    lines.sort();
    assert_eq!(lines, ["rank 0 of 3", "rank 1 of 3", "rank 2 of 3"]);
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), String::new()));
}

/// Not a test but a rank of the next one.
#[test]
#[ignore = "a rank of another test"]
fn as_a_rank() {
    let world = World::from_env().expect("was launched");
    let ranks = world.all_gather(&world.rank()).expect("all are here");
    println!("rank {} knows {ranks:?} over {}", world.rank(), world.fabric().name());
}

#[test]
fn programs_of_this_library_find_their_world() {
    let folder = Folder::new();
    let program = std::env::current_exe().expect("is known");
    let program = program.to_str().expect("is text");
    let as_a_rank = ["--exact", "launch::as_a_rank", "--ignored", "--nocapture", "--test-threads=1"];
    let output = folder.streamhalo(&[&["launch", "-n", "3", program], &as_a_rank[..]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    for rank in 0..3 {
        let line = format!("rank {rank} knows [0, 1, 2] over shm");
        assert!(text(&output.stdout).contains(&line), "no {line:?} in {}", text(&output.stdout));
    }
}

#[test]
fn the_exit_status_is_that_of_the_first_rank_that_fails() {
    let folder = Folder::new();
    let output = shell(&folder, "3", "test $STREAMHALO_RANK = 1 && exit 7; exec sleep 60");
    assert_eq!(output.status.code(), Some(7));
    let said = text(&output.stderr);
    assert!(said.contains("error: rank 1 of `sh` failed: its process exited with status 7"), "{said}");
    until("all processes have ended", || folder.processes().is_empty());
}

#[test]
fn another_fabric_is_refused_and_nothing_starts() {
    let folder = Folder::new();
    let mut command = folder.command(env!("CARGO_BIN_EXE_streamhalo"));
    command.args(["launch", "-n", "2", "sh", "-c", "echo started"]).env("STREAMHALO_FABRIC", "mpi");
    let output = finish(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn());
    let said = text(&output.stderr);
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(2), String::new()), "{said}");
    assert!(said.starts_with("error: STREAMHALO_FABRIC=mpi: `streamhalo launch` starts"), "{said}");
}

#[test]
fn a_program_that_is_not_there() {
    let folder = Folder::new();
    for absent in ["./absent-program", "streamhalo-absent-program"] {
        let output = folder.streamhalo(&["launch", "-n", "2", absent]);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(127), "{said}");
        assert!(
            said.starts_with(&format!("error: there is no program `{absent}`\nhint: give its path")),
            "{said}"
        );
    }
}

#[test]
fn what_is_there_and_is_no_program() {
    let folder = Folder::new();
    let script = folder.write("solver.sh", "#!/bin/sh\n").display().to_string();
    for (program, what) in [
        ("/", "is a folder"),
        ("./", "is a folder"),
        ("/dev/null", "is no regular file"),
        (&script, "is a file that nobody may execute"),
    ] {
        let output = folder.streamhalo(&["launch", "-n", "2", program]);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(126), "{said}");
        let head = format!("error: `{program}` {what}, not a program\nhint: give the path of a program");
        assert!(said.starts_with(&head), "{said}");
    }
    // It says that it is one, and is none that the system knows.
    fs::set_permissions(&script, Permissions::from_mode(0o755)).expect("is ours");
    fs::write(&script, "#!/nowhere/sh\n").expect("is ours");
    let output = folder.streamhalo(&["launch", "-n", "2", &script]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains(&format!("starting a rank failed: `{script}`")), "{said}");
}

#[test]
fn ctrl_c_ends_all_ranks() {
    let folder = Folder::new();
    let mut command = folder.command(env!("CARGO_BIN_EXE_streamhalo"));
    let child = command.args(["launch", "-n", "3", "sleep", "600"]).stderr(Stdio::piped()).spawn();
    let child = child.expect("the program starts");
    until("all ranks run", || folder.processes().len() == 4);
    // A rank that has just been forked is still the program; by now it may take signals.
    std::thread::sleep(Duration::from_millis(50));
    signal("-INT", child.id());
    let output = finish(Ok(child));
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(130), "error: interrupted\n".to_owned()));
    until("all processes have ended", || folder.processes().is_empty());
}

/// Two ranks that are scripts, each with a program that it waits for, and one that it does not.
fn scripts(folder: &Folder) -> Child {
    let mut command = folder.command(env!("CARGO_BIN_EXE_streamhalo"));
    command.args(["launch", "-n", "2", "sh", "-c", "sleep 600 & sleep 600; echo done"]);
    let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("the program starts");
    until("all run", || folder.processes().len() == 7);
    std::thread::sleep(Duration::from_millis(50));
    child
}

#[test]
fn what_ranks_have_started_ends_with_them() {
    let folder = Folder::new();
    let child = scripts(&folder);
    signal("-TERM", child.id());
    assert_eq!(finish(Ok(child)).status.code(), Some(143));
    until("all processes have ended", || folder.processes().is_empty());

    let child = scripts(&folder);
    let is_script = |process: &u32| {
        fs::read_to_string(format!("/proc/{process}/cmdline")).is_ok_and(|line| line.starts_with("sh\0"))
    };
    signal("-KILL", folder.processes().into_iter().find(is_script).expect("it runs"));
    assert_eq!(finish(Ok(child)).status.code(), Some(137));
    until("all processes have ended", || folder.processes().is_empty());
}

/// A script that fails leaves two programs: one that still says something, and one that would never end.
#[test]
fn what_ranks_that_fail_leave_behind_has_the_time_of_ranks_to_end() {
    let folder = Folder::new();
    let output =
        shell(&folder, "2", "(sleep 1; echo told) & sleep 600 > /dev/null & exit $((5 + STREAMHALO_RANK))");
    assert!(matches!(output.status.code(), Some(5 | 6)), "{output:?}");
    assert_eq!(text(&output.stdout), "told\ntold\n");
    until("all processes have ended", || folder.processes().is_empty());
}

/// A shell that has become the launcher leaves it its own children.
#[test]
fn what_ran_before_the_ranks_is_left_alone() {
    let folder = Folder::new();
    let program = env!("CARGO_BIN_EXE_streamhalo");
    let script = format!("sleep 600 > /dev/null 2>&1 & exec {program} launch -n 2 sh -c 'exit 5'");
    let mut command = folder.command("sh");
    let output = finish(command.args(["-c", &script]).stderr(Stdio::piped()).spawn());
    assert_eq!(output.status.code(), Some(5), "{output:?}");
    let left = folder.processes();
    assert_eq!(left.len(), 1);
    signal("-KILL", left[0]);
}

#[test]
fn what_ranks_that_succeed_leave_behind_is_their_business() {
    let folder = Folder::new();
    assert_eq!(shell(&folder, "2", "sleep 600 > /dev/null 2>&1 &").status.code(), Some(0));
    let left = folder.processes();
    assert_eq!(left.len(), 2);
    left.into_iter().for_each(|process| signal("-KILL", process));
}
