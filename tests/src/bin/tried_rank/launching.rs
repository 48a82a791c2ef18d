//! What starts ranks.

use std::error::Error;
use std::process::Command;
use streamhalo::comm::fabric::shm::{Exit, Job};

/// Starts ranks, each from a script if so, says which processes they are, and waits for them.
pub(crate) fn launch(ranks: &str, mode: &str, by_script: bool) -> Result<(), Box<dyn Error>> {
    let program = std::env::current_exe()?;
    let mut job = Job::start(ranks.parse()?, &mut |_rank| {
        if by_script {
            let mut command = Command::new("sh");
            command.args(["-c", "\"$0\" \"$1\" & echo process $!; wait $!"]).arg(&program).arg(mode);
            return command;
        }
        let mut command = Command::new(&program);
        command.arg(mode);
        command
    })?;
    for child in job.ranks().iter().filter(|_| !by_script) {
        println!("process {}", child.id());
    }
    match job.wait(&|| false)? {
        Exit::Success => Ok(()),
        Exit::Failed { rank, reason, .. } => Err(format!("rank {rank}: {reason}").into()),
    }
}

/// Becomes a rank, once the environment is another.
pub(crate) fn with_changes(changes: &[&str], mode: &str) -> Result<(), Box<dyn Error>> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg(mode);
    for change in changes {
        match change.split_once('=') {
            Some((name, value)) => command.env(name, value),
            None => command.env_remove(change),
        };
    }
    Err(format!("{}", command.status()?).into())
}
