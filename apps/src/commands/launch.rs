//! `streamhalo launch -n N PROGRAM`: one's own program as the ranks of a world over `shm`.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use streamhalo::comm::fabric::FABRIC_VARIABLE;
use streamhalo::comm::fabric::shm::{Exit, Job};

use crate::cli::LaunchArgs;
use crate::error::AppError;
use crate::interrupt::Interrupt;

/// How long between two looks at the processes: they may hold all cores.
const PAUSE: Duration = Duration::from_millis(5);

/// That nobody has asked for another fabric than the one that processes are started for here.
fn check_fabric() -> Result<(), AppError> {
    let asked = std::env::var(FABRIC_VARIABLE).ok().filter(|name| name != SHM);
    asked.map_or(Ok(()), |name| {
        let flag = format!("{FABRIC_VARIABLE}={name}");
        let message = format!(
            "`streamhalo launch` starts processes for `{SHM}`; unset it, or start them as `{name}` needs, as with `mpiexec`"
        );
        Err(AppError::Usage { flag, message })
    })
}

/// The fabric of what is launched.
const SHM: &str = "shm";

/// Whether there is a file of that name where the system looks for programs.
fn is_there(program: &Path) -> bool {
    if program.components().count() > 1 {
        return program.exists();
    }
    let folders = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&folders).any(|folder| folder.join(program).exists())
}

/// Starts the processes with this one's standard input, output and error, and waits for them. Once
/// one has failed or the user interrupts, the others are ended.
pub(super) fn launch(args: &LaunchArgs) -> Result<u8, AppError> {
    check_fabric()?;
    let (program, arguments) = args.program();
    let interrupt = Interrupt::watch()?;
    let mut job = Job::start(args.processes.get(), &mut |_rank| {
        let mut command = Command::new(program);
        command.args(arguments);
        command
    })
    .map_err(|error| match is_there(Path::new(program)) {
        true => error.into(),
        false => AppError::NoProgram { program: program.display().to_string() },
    })?;
    let exit = job.wait(&|| {
        std::thread::sleep(PAUSE);
        interrupt.has_come()
    })?;
    interrupt.check()?;
    match exit {
        Exit::Success => Ok(0),
        Exit::Failed { rank, reason, code } => Err(AppError::Launched {
            program: program.display().to_string(),
            rank,
            reason,
            // What a system can report is 1 to 255.
            status: u8::try_from(code).ok().filter(|code| *code != 0).unwrap_or(1),
        }),
    }
}
